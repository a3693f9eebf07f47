"""Experiment `tilings`: masks that are rotated in space and repeated over the channels of a wider network."""

from dataclasses import dataclass, replace

from neuralpath.papers.experiments import seed_tables as tables
from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.seed_tables import Seeds
from neuralpath.papers.experiments.settings import check_integers
from neuralpath.papers.experiments.specs import (
    CIFAR_CNN,
    CIFAR_PART,
    FIVE_SEEDS,
    PAPER_CNN,
    DataSpec,
    NetSpec,
    TrainingRecipe,
    data_of_seed,
)
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
    return tables.each_once([*_networks(config).values(), *_cells(config).values()])


def summary(config: TilingsConfig, results: Results) -> tuple[SummaryItem, ...]:
    """Accuracies, each change against masks as they are, and the curves."""
    cells = _cells(config)
    about = f"{config.data.label} {config.net.label}"
    figure = tables.printed(paper="P3", architecture="CNN 4x128", dataset=config.data.name, regime="ReLU")
    every = {("ReLU", (), tile): runs for tile, runs in _networks(config).items()} | cells
    rows = [
        (
            {"regime": regime, "width of the weights": tile, "masks rotated by": _spelt(shift) or "-"},
            runs,
            figure if regime == "ReLU" else None,
        )
        for (regime, shift, tile), runs in every.items()
    ]
    note = (
        "Rotated by this many positions along both axes, in all layers or in each by its own number; repeated over the "
        "channels of weights that are this many times as wide. The papers name no figure for the masks."
    )
    still, narrow = config.shifts[0], config.tiles[0]
    pairs = {
        f"{regime}, width {tile}: rotated by {_spelt(shift)} - by {_spelt(still)}": (runs, cells[regime, still, tile])
        for (regime, shift, tile), runs in cells.items()
        if shift != still
    }
    pairs |= {
        f"{regime}, rotated by {_spelt(shift)}: width {tile} - width {narrow}": (runs, cells[regime, shift, narrow])
        for (regime, shift, tile), runs in cells.items()
        if tile != narrow
    }
    named: dict[str, dict[str, Seeds]] = {regime: {} for regime in config.regimes}
    for (regime, shift, tile), runs in cells.items():
        named[regime][f"width {tile}, rotated by {_spelt(shift)}"] = runs
    return (
        tables.accuracy_table(f"Tiled and rotated masks: {about}", rows, results, note),
        tables.comparisons(f"What the change of the masks costs: {about}", pairs, results),
        *(
            tables.accuracy_figure(f"Gated by tiled and rotated masks, {regime}: {about}", runs, results)
            for regime, runs in named.items()
        ),
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
            PAPER_CNN,
            TrainingRecipe(epochs=100),
            source_epochs=100,
            shifts=((0,), (4,), (8,), (16,), (4, 12, 20, 28)),
            tiles=(1, 2, 4),
            seeds=FIVE_SEEDS,
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
