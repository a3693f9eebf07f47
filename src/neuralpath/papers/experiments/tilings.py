"""Experiment `tilings`: masks that are rotated in space and repeated over the channels of a wider network."""

from dataclasses import dataclass, replace
from itertools import product

from neuralpath.papers.experiments import seed_tables as tables, specs
from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.seed_tables import Seeds
from neuralpath.papers.experiments.settings import check_integers
from neuralpath.papers.experiments.specs import DataSpec, NetSpec, TrainingRecipe, data_of_seed
from neuralpath.papers.experiments.summary_items import SummaryItem
from neuralpath.papers.experiments.trained import GatedRegime, TrainNetwork
from neuralpath.papers.runs import Task

Shift = tuple[int, ...]


@dataclass(frozen=True)
class TilingsConfig:
    """A convolutional network, and how its masks are changed on their way to the weights."""

    data: DataSpec
    net: NetSpec
    recipe: TrainingRecipe
    """Recipe of the gated weights."""
    source_epochs: int
    """Epochs of the ReLU network whose gates FL takes."""
    shifts: tuple[Shift, ...]
    """Positions by which the masks are rotated along both axes: one number for all layers, or one for each."""
    tiles: tuple[int, ...] = (1, 2)
    """How often the masks are repeated over the channels of a value network that is this many times as wide."""
    regimes: tuple[GatedRegime, ...] = ("FL", "FR-II")
    seeds: tuple[int, ...] = (0, 1, 2)

    def __post_init__(self) -> None:
        check_integers(0, source_epochs=self.source_epochs)
        if self.net.family not in ("vconv", "gconv") or self.net.hidden:
            raise ValueError(f"`net` must be convolutions without dense hidden layers, got {self.net.label}.")
        n_layers = len(self.net.channels)
        if bad := [shift for shift in self.shifts if len(shift) not in (1, n_layers)]:
            raise ValueError(f"`shifts` must have one number or {n_layers}, one for each layer; got {bad}.")
        check_integers(1, tiles=self.tiles)
        if "FR-DI" in self.regimes and any(tile > 1 for tile in self.tiles):
            raise ValueError("`regimes` has FR-DI, whose weights are those of its gates: `tiles` must be 1 there.")


def relu_network(config: TilingsConfig, seed: int, tile: int = 1) -> TrainNetwork:
    """The network whose gates FL takes; or, for comparison, one as wide as the tiled weights."""
    training = config.recipe.training(config.source_epochs)
    return TrainNetwork(data_of_seed(config.data, seed), _wider(config.net, tile), training, seed)


def _wider(net: NetSpec, tile: int) -> NetSpec:
    return replace(net, channels=tuple(tile * channels for channels in net.channels))


def gated(config: TilingsConfig, regime: GatedRegime, shift: Shift, tile: int) -> Seeds:
    """Weights with changed masks, by seed."""
    channels = None if tile == 1 else _wider(config.net, tile).channels
    shifts = shift[0] if len(shift) == 1 else shift
    training = config.recipe.training()
    tasks = {seed: relu_network(config, seed).gated(regime, training) for seed in config.seeds}
    return {seed: replace(task, shift=shifts, value_channels=channels) for seed, task in tasks.items()}


def rows_of(config: TilingsConfig) -> dict[tuple[str, Shift, int], Seeds]:
    """The ReLU networks, as wide as the weights too, then the weights of each regime, rotation and width."""
    rows: dict[tuple[str, Shift, int], Seeds] = {}
    for tile in (1, *config.tiles):
        rows["ReLU", (), tile] = {seed: relu_network(config, seed, tile) for seed in config.seeds}
    for regime, tile, shift in product(config.regimes, config.tiles, config.shifts):
        rows[regime, shift, tile] = gated(config, regime, shift, tile)
    return rows


def tasks(config: TilingsConfig) -> tuple[Task, ...]:
    """The networks, then a run for each change of the masks and each seed."""
    return tables.each_once(rows_of(config).values())


def summary(config: TilingsConfig, results: Results) -> tuple[SummaryItem, ...]:
    """Accuracies, each change against masks as they are, and the curves."""
    every, about = rows_of(config), f"{config.data.label} {config.net.label}"
    figure = tables.printed(paper="P3", architecture="CNN 4x128", dataset=config.data.name, regime="ReLU")
    rows = []
    for (regime, shift, tile), runs in every.items():
        head = {"regime": regime, "width of the weights": tile, "masks rotated by": _spelt(shift) or "-"}
        rows.append((head, runs, figure if regime == "ReLU" else None))
    note = (
        "Rotated by this many positions along both axes, in all layers or in each by its own number; repeated over the "
        "channels of weights that are this many times as wide. The papers name no figure for the masks."
    )
    still, narrow = config.shifts[0], config.tiles[0]
    rotated: dict[str, tuple[Seeds, Seeds]] = {}
    wider: dict[str, tuple[Seeds, Seeds]] = {}
    named: dict[str, dict[str, Seeds]] = {regime: {} for regime in config.regimes}
    for (regime, shift, tile), runs in every.items():
        if regime == "ReLU":
            continue
        by = f"rotated by {_spelt(shift)}"
        named[regime][f"width {tile}, {by}"] = runs
        if shift != still:
            rotated[f"{regime}, width {tile}: {by} - by {_spelt(still)}"] = (runs, every[regime, still, tile])
        if tile != narrow:
            wider[f"{regime}, {by}: width {tile} - width {narrow}"] = (runs, every[regime, shift, narrow])
    title = f"Gated by tiled and rotated masks, {{}}: {about}"
    return (
        tables.accuracy_table(f"Tiled and rotated masks: {about}", rows, results, note),
        tables.comparisons(f"What the change of the masks costs: {about}", rotated | wider, results),
        *(tables.accuracy_figure(title.format(regime), runs, results) for regime, runs in named.items()),
    )


def _spelt(shift: Shift) -> str:
    return "-".join(map(str, shift))


_CPU_RECIPE = TrainingRecipe(epochs=10, precision="bfloat16")
_SHIFTS: tuple[Shift, ...] = ((0,), (4,), (8,), (16,), (4, 12, 20, 28))
EXPERIMENT = Experiment(
    name="tilings",
    description="masks rotated in space and tiled over a wider network, on the CNN",
    source="P3 contribution 1",
    config=TilingsConfig,
    presets={
        "smoke": TilingsConfig(
            specs.SMOKE_PART, specs.plain_cnn(6, 2), specs.SMOKE_RECIPE, 2, shifts=((0,), (1, 3)), regimes=("FL",)
        ),
        "cpu": TilingsConfig(
            specs.CIFAR_PART, specs.CIFAR_CNN, _CPU_RECIPE, 30, ((0,), (4,), (16,), (4, 12, 20, 28)), seeds=(0,)
        ),
        "paper": TilingsConfig(
            specs.CIFAR, specs.PAPER_CNN, TrainingRecipe(epochs=100), 100, _SHIFTS, (1, 2, 4), seeds=specs.FIVE_SEEDS
        ),
    },
    reduced={
        "smoke": "200 digits, two convolutions of 6 filters, FL only",
        "cpu": "32 filters (papers: 128), 10,000 images (50,000), 10 epochs of the gated weights, 1 seed, products "
        "in bfloat16; the ReLU network whose gates FL takes has 30 epochs (to about 100 % training accuracy), after "
        "which it fits 43 % of its training labels in full precision",
    },
    tasks=tasks,
    summary=summary,
)
