"""Experiment `tilings`: masks that are rotated in space and repeated over the channels of a wider network."""

from dataclasses import dataclass, replace

from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.gate_orders import CIFAR_CNN, CIFAR_PART
from neuralpath.papers.experiments.seed_tables import (
    Seeds,
    accuracy,
    accuracy_figure,
    beside,
    comparisons,
    finished,
    printed,
)
from neuralpath.papers.experiments.settings import check_integers
from neuralpath.papers.experiments.specs import DataSpec, NetSpec, TrainingRecipe, data_of_seed
from neuralpath.papers.experiments.summary_items import Cell, SummaryItem, Table
from neuralpath.papers.experiments.trained import GatedRegime, TrainGated, TrainNetwork
from neuralpath.papers.runs import Task, Weights

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
    """How often the masks are repeated over the channels of a value network that is so much wider."""
    regimes: tuple[GatedRegime, ...] = ("FL", "FR-II")
    seeds: tuple[int, ...] = (0, 1, 2)

    def __post_init__(self) -> None:
        check_integers(0, source_epochs=self.source_epochs)
        if self.net.family not in ("vconv", "gconv") or self.net.hidden:
            raise ValueError(f"`net` must be convolutions without dense hidden layers, got {self.net.label}.")
        for shift in self.shifts:
            if len(shift) not in (1, len(self.net.channels)):
                raise ValueError(
                    f"`shifts` must have one number or {len(self.net.channels)}, one for each layer; got {shift}."
                )
        if any(tile < 1 for tile in self.tiles):
            raise ValueError(f"`tiles` must be numbers from 1, got {self.tiles}.")
        if "FR-DI" in self.regimes and any(tile > 1 for tile in self.tiles):
            raise ValueError("`regimes` has FR-DI, whose weights are those of its gates: `tiles` must be 1 there.")


def relu_network(config: TilingsConfig, seed: int, tile: int = 1) -> TrainNetwork:
    """The network whose gates FL takes; or, for comparison, one as wide as the tiled weights."""
    training = replace(config.recipe, epochs=config.source_epochs).training()
    return TrainNetwork(data_of_seed(config.data, seed), _wider(config.net, tile), training, seed)


def _wider(net: NetSpec, tile: int) -> NetSpec:
    return replace(net, channels=tuple(tile * channels for channels in net.channels))


def gated(config: TilingsConfig, regime: GatedRegime, shift: Shift, tile: int) -> Seeds:
    """Weights with changed masks, by seed."""
    return {
        seed: TrainGated(
            data_of_seed(config.data, seed),
            config.net,
            config.recipe.training(),
            regime,
            seed,
            Weights(relu_network(config, seed), "best") if regime == "FL" else None,
            shift=shift[0] if len(shift) == 1 else shift,
            value_channels=None if tile == 1 else _wider(config.net, tile).channels,
        )
        for seed in config.seeds
    }


def _cells(config: TilingsConfig) -> dict[tuple[GatedRegime, Shift, int], Seeds]:
    return {
        (regime, shift, tile): gated(config, regime, shift, tile)
        for regime in config.regimes
        for tile in config.tiles
        for shift in config.shifts
    }


def _networks(config: TilingsConfig) -> dict[int, Seeds]:
    widths = dict.fromkeys((1, *config.tiles))
    return {tile: {seed: relu_network(config, seed, tile) for seed in config.seeds} for tile in widths}


def tasks(config: TilingsConfig) -> tuple[Task, ...]:
    """The networks, as wide as the weights too, then a run for each change of the masks and each seed."""
    every = [*_networks(config).values(), *_cells(config).values()]
    return tuple(dict.fromkeys(task for runs in every for task in runs.values()))


def summary(config: TilingsConfig, results: Results) -> tuple[SummaryItem, ...]:
    """Accuracies, each change against masks as they are, and the curves."""
    cells, networks = _cells(config), _networks(config)
    about = f"{config.data.label} {config.net.label}"
    figure = printed(paper="P3", where="section 4.1", architecture="CNN 4x128", regime="ReLU")
    every = {("ReLU", (), tile): runs for tile, runs in networks.items()} | cells
    rows: list[dict[str, Cell]] = []
    for (regime, shift, tile), runs in every.items():
        best, is_known = accuracy(runs, results), regime == "ReLU" and config.data.name == "cifar10"
        rows.append(
            {
                "regime": regime,
                "width of the weights": tile,
                "masks rotated by": _spelt(shift) or "-",
                "best epoch %": best,
                **beside(best, figure if is_known else None),
                "last epoch %": accuracy(runs, results, "last"),
            }
        )
    note = (
        "Test accuracy, mean ± standard deviation (seeds). Rotated by so many positions along both axes, in all layers "
        "or in each by its own number; repeated over the channels of weights that are so many times as wide. The "
        f"papers name no figure for the masks. {finished([*networks.values(), *cells.values()], results)}"
    )
    still = config.shifts[0]
    pairs = {
        f"{regime}, width {tile}: rotated by {_spelt(shift)} - by {_spelt(still)}": (runs, cells[regime, still, tile])
        for (regime, shift, tile), runs in cells.items()
        if shift != still
    }
    pairs |= {
        f"{regime}, rotated by {_spelt(shift)}: width {tile} - width {config.tiles[0]}": (
            runs,
            cells[regime, shift, config.tiles[0]],
        )
        for (regime, shift, tile), runs in cells.items()
        if tile != config.tiles[0]
    }
    named: dict[str, dict[str, Seeds]] = {regime: {} for regime in config.regimes}
    for (regime, shift, tile), runs in cells.items():
        named[regime][f"width {tile}, rotated by {_spelt(shift)}"] = runs
    title = "Behind tiled and rotated masks"
    return (
        Table.of(f"Tiled and rotated masks: {about}", rows, note),
        comparisons(f"What the change of the masks costs: {about}", pairs, results),
        *(accuracy_figure(f"{title}, {regime}: {about}", of_regime, results) for regime, of_regime in named.items()),
    )


def _spelt(shift: Shift) -> str:
    return "-".join(map(str, shift))


EXPERIMENT = Experiment(
    name="tilings",
    description="masks rotated in space and tiled over a wider network, on the CNN",
    source="P3 contribution 1",
    config=TilingsConfig,
    presets={
        "smoke": TilingsConfig(
            DataSpec("digits", n_train=200, n_test=100),
            NetSpec("gconv", channels=(6, 6), hidden=()),
            TrainingRecipe("adam", 1e-2, epochs=1),
            source_epochs=2,
            shifts=((0,), (1, 3)),
            tiles=(1, 2),
            regimes=("FL",),
        ),
        "cpu": TilingsConfig(
            CIFAR_PART,
            CIFAR_CNN,
            TrainingRecipe(epochs=10, precision="bfloat16"),
            source_epochs=30,
            shifts=((0,), (4,), (16,), (4, 12, 20, 28)),
            seeds=(0,),
        ),
        "paper": TilingsConfig(
            DataSpec("cifar10"),
            NetSpec("gconv", channels=(128,) * 4, hidden=()),
            TrainingRecipe(epochs=100),
            source_epochs=100,
            shifts=((0,), (4,), (8,), (16,), (4, 12, 20, 28)),
            tiles=(1, 2, 4),
            seeds=(0, 1, 2, 3, 4),
        ),
    },
    reduced={
        "smoke": "200 digits, two convolutions of 6 filters, FL only",
        "cpu": "32 filters (papers: 128), 10,000 images (50,000), 10 epochs behind the gates, 1 seed, products "
        "in bfloat16; the ReLU network whose gates FL takes has 30 epochs (to about 100 % training accuracy), after "
        "which it fits 43 % of its training labels in full precision",
    },
    tasks=tasks,
    summary=summary,
)

run = EXPERIMENT.run
