"""Kernel regression with path kernels and kernels of infinite width, against the networks on the same examples."""

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, get_args

from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.grids import Grid, counted, course, figure, finished_runs, grid, part_of, tasks_of
from neuralpath.papers.experiments.kernel_tasks import FitKernel, KernelName, WidenValue
from neuralpath.papers.experiments.seed_tables import Seeds, accuracies, accuracy, beside, printed, results_by_seed
from neuralpath.papers.experiments.settings import check_given, check_integers, check_positive
from neuralpath.papers.experiments.specs import DataSpec, NetSpec, TrainingRecipe, data_of_seed
from neuralpath.papers.experiments.statistics import paired, spread
from neuralpath.papers.experiments.summary_items import Cell, SummaryItem, Table
from neuralpath.papers.experiments.trained import TrainGated, TrainNetwork
from neuralpath.papers.runs import Task, Weights

KernelsPart = Literal["dense", "images", "widened"]
KernelOf = Literal["linear", "path-random", "path-learnt", "limit-path", "limit-tangent"]
NETWORKS = ("relu", "FL", "FR-II")

TITLES = {
    "relu": "ReLU network",
    "FL": "FL network (learnt gates)",
    "FR-II": "FR-II network (random gates)",
    "linear": "linear kernel",
    "path-random": "NPK, random gates",
    "path-learnt": "NPK, learnt gates",
    "limit-path": "NPK, random gates, infinite width",
    "limit-tangent": "NTK, infinite width",
}
"""Of the rows: networks and kernels."""

_GCONV = {"paper": "P1", "where": "table 2", "architecture": "GCONV", "optimizer": "Adam"}
PRINTED = {
    "limit-tangent": {"architecture": "CNTK", "regime": "kernel regression"},
    "FL": _GCONV | {"regime": "FL"},
    "FR-II": _GCONV | {"regime": "FR-II"},
    "relu": _GCONV | {"regime": "ReLU"},
}
"""The figures that the papers compare on CIFAR-10, by row."""

COMPARED = {
    "path-learnt": ("path-random", "limit-tangent", "linear"),
    "limit-tangent": ("path-random", "FR-II"),
    "FL": ("path-learnt", "limit-tangent", "FR-II"),
    "FR-II": ("path-random",),
    "relu": ("limit-tangent",),
}
"""Rows whose accuracies are compared: each minus the others."""

WIDENED = {
    "network": "network",
    "kernel": "kernel, as many steps",
    "interpolating": "kernel, to the end",
    "agree": "same predictions",
    "distance": "distance of the outputs",
    "train_error": "training error left",
}
"""Columns of the table of wider value networks, by the entries of their results."""


@dataclass(frozen=True)
class KernelsConfig:
    """Kernel regression with path kernels and limit kernels against networks, on the same examples."""

    only: tuple[KernelsPart, ...] = ("dense", "images", "widened")
    """Parts to run: fully connected networks, convolutional ones, and wider value networks."""
    dense_data: DataSpec = field(default=DataSpec("mnist", n_train=10_000))
    dense_net: NetSpec = field(default=NetSpec("fc", width=128, depth=6, bias=False))
    dense_recipe: TrainingRecipe = field(default=TrainingRecipe("adam", 3e-4, epochs=40))
    image_data: DataSpec = field(default=DataSpec("cifar10", n_train=1000, n_test=1000, size=16))
    image_net: NetSpec = field(default=NetSpec("gconv", channels=(16, 16, 32, 32), hidden=(64, 64), bias=False))
    """Its kernel of infinite width is the CNTK with pooling."""
    image_recipe: TrainingRecipe = field(default=TrainingRecipe("adam", 1e-3, epochs=100))
    wide_data: DataSpec = field(default=DataSpec("mnist", n_train=500, n_test=1000))
    wide_net: NetSpec = field(default=NetSpec("fc", width=32, depth=4, bias=False))
    """The network whose gates are repeated."""
    wide_recipe: TrainingRecipe = field(default=TrainingRecipe("adam", 1e-3, epochs=60))
    """Training of the network whose learned gates are repeated."""
    repeats: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    """How often each gate is repeated in a wider value network."""
    wide_steps: int = 300
    """Steps of gradient descent of the wider value networks."""
    wide_lr: float = 0.25
    """Their learning rate as a share of the largest that is stable for the expected kernel."""
    kernels: tuple[KernelOf, ...] = get_args(KernelOf)
    """Kernels of the first two parts; the path kernel of infinite width is that of fully connected networks only."""
    ridges: tuple[float, ...] = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    """Ridges to choose from, in units of the kernel's mean diagonal entry."""
    n_chosen_on: int = 2000
    """Training examples on which the ridge is chosen, by leaving one out; test data take no part in it."""
    seeds: tuple[int, ...] = (0, 1, 2)

    def __post_init__(self) -> None:
        check_given(only=self.only, ridges=self.ridges, repeats=self.repeats)
        check_integers(1, repeats=self.repeats, wide_steps=self.wide_steps)
        check_integers(2, n_chosen_on=self.n_chosen_on)
        check_positive(wide_lr=self.wide_lr)
        if not all(0 <= ridge < math.inf for ridge in self.ridges):
            raise ValueError(f"`ridges` must be finite numbers, 0 or more, got {self.ridges}.")


def tasks(config: KernelsConfig) -> tuple[Task, ...]:
    """The networks and kernels of each part."""
    parts = [_rows(config, part) for part in config.only if part != "widened"]
    return tasks_of(*parts, _widened_grid(config) if "widened" in config.only else {})


def _case(config: KernelsConfig, part: KernelsPart) -> tuple[DataSpec, NetSpec, TrainingRecipe]:
    """The examples, the network and its training."""
    if part == "dense":
        return config.dense_data, config.dense_net, config.dense_recipe
    if part == "images":
        return config.image_data, config.image_net, config.image_recipe
    return config.wide_data, config.wide_net, config.wide_recipe


def network(config: KernelsConfig, part: KernelsPart, seed: int) -> TrainNetwork:
    """The ReLU network; its last epoch counts, so that test data choose nothing."""
    data, net, recipe = _case(config, part)
    return TrainNetwork(data_of_seed(data, seed), net, recipe.training(), seed)


def gated(config: KernelsConfig, part: KernelsPart, regime: Literal["FL", "FR-II"], seed: int) -> TrainGated:
    """The network with learned or random gates, on the same examples."""
    data, net, recipe = _case(config, part)
    gates = Weights(network(config, part, seed)) if regime == "FL" else None
    return TrainGated(data_of_seed(data, seed), net, recipe.training(), regime, seed, gates)


def regression(config: KernelsConfig, part: KernelsPart, kernel: KernelOf, seed: int) -> FitKernel:
    """Kernel regression."""
    data, net, _ = _case(config, part)
    gates = Weights(network(config, part, seed)) if kernel == "path-learnt" else None
    name: KernelName = "path" if kernel == "path-random" or kernel == "path-learnt" else kernel
    return FitKernel(data_of_seed(data, seed), net, name, config.ridges, config.n_chosen_on, gates, seed)


def widened(config: KernelsConfig, gates: Literal["random", "learnt"], repeats: int, seed: int) -> WidenValue:
    """A value network with repeated gates."""
    data, net, _ = _case(config, "widened")
    learned = Weights(network(config, "widened", seed)) if gates == "learnt" else None
    return WidenValue(data_of_seed(data, seed), net, repeats, config.wide_steps, config.wide_lr, learned, seed)


def _widened_grid(config: KernelsConfig) -> Grid:
    return grid(partial(widened, config), config.seeds, gates=("random", "learnt"), repeats=config.repeats)


def _rows(config: KernelsConfig, part: KernelsPart) -> dict[str, Seeds]:
    """The runs of each row of a table, by seed."""
    # The path kernel of infinite width has no fast method for images: it needs all pairs of positions.
    names = [name for name in config.kernels if part != "images" or name != "limit-path"]
    return {
        "relu": {seed: network(config, part, seed) for seed in config.seeds},
        **grid(partial(gated, config, part), config.seeds, regime=("FL", "FR-II")),
        **grid(partial(regression, config, part), config.seeds, kernel=names),
    }


def summary(config: KernelsConfig, results: Results) -> tuple[SummaryItem, ...]:
    """Accuracies of kernels and networks, paired comparisons, and networks that tend to their kernel."""
    items: list[SummaryItem] = []
    for part in config.only:
        items += _widening(config, results) if part == "widened" else _accuracies(config, results, part)
    return tuple(items)


def _accuracies(config: KernelsConfig, results: Results, part: KernelsPart) -> tuple[SummaryItem, ...]:
    rows, (data, net, _) = _rows(config, part), _case(config, part)
    cells: list[dict[str, Cell]] = []
    for name, seeds in rows.items():
        best = ridge = None
        if name in NETWORKS:
            last, best = accuracy(seeds, results, "last"), accuracy(seeds, results, "best")
            trained = accuracy(seeds, results, "last", "train_accuracy")
        else:
            runs = results_by_seed(seeds, results).values()
            last, trained = (spread(100 * run[f"{of}_accuracy"] for run in runs) for of in ("test", "train"))
            ridge = ", ".join(sorted({f"{run['ridge']:g}" for run in runs})) or None
        row: dict[str, Cell] = {"method": TITLES[name], "test (kernel, or last epoch)": last, "test, best epoch": best}
        paper = printed(**PRINTED[name]) if part == "images" and name in PRINTED else None
        theirs, difference = beside(best if name in NETWORKS else last, paper).values()
        cells.append(row | {"train": trained, "ridge": ridge, "printed": theirs, "ours - printed": difference})
    note = (
        f"{data.label}, {net.label}. Ridges in units of the mean diagonal, chosen by leaving one out on "
        f"{config.n_chosen_on:,} training examples or fewer."
    )
    if part == "images":
        note += " Printed figures are of all of CIFAR-10, 32 x 32, and of wide networks: no claim beyond the subset."
    table = Table.of(f"Kernels and networks on the same examples ({part}): test accuracy in %", cells, note)
    return counted((table, _comparisons(rows, results, part)), tasks_of(rows), results)


def _comparisons(rows: dict[str, Seeds], results: Results, part: KernelsPart) -> Table:
    """Paired by seed; networks with their last epoch."""

    def tests(name: str) -> dict[int, float]:
        if name in NETWORKS:
            return accuracies(rows[name], results, "last")
        return {seed: 100 * run["test_accuracy"] for seed, run in results_by_seed(rows[name], results).items()}

    cells: list[tuple[Cell, ...]] = []
    pairs = [(first, second) for first, others in COMPARED.items() for second in others]
    for first, second in [names for names in pairs if rows.keys() >= set(names)]:
        pair = paired(tests(first), tests(second))
        values = (pair.difference, pair.exceeds) if pair else (None, None)
        cells.append((TITLES[first], TITLES[second], *values))
    columns = ("first", "second", "first - second in points", "in standard errors")
    return Table(f"Paired comparisons ({part})", columns, tuple(cells), "Networks with their last epoch.")


def _widening(config: KernelsConfig, results: Results) -> tuple[SummaryItem, ...]:
    points = _widened_grid(config)
    every = finished_runs(points, results)
    converged = {
        (gates, repeats * config.wide_net.width): {seed: run for seed, run in runs.items() if not run["diverged"]}
        for (gates, repeats), runs in every.items()
    }
    rows = [
        {
            "gates": gates,
            "width of the value network": width,
            **{title: spread(100 * run[name] for run in trained.values()) for name, title in WIDENED.items()},
            "runs that diverged": len(runs) - len(trained),
        }
        for ((gates, width), trained), runs in zip(converged.items(), every.values(), strict=True)
    ]
    kinds = ("random", "learnt")
    distances = {f"{kind} gates": course(part_of(converged, kind), lambda run: run["distance"]) for kind in kinds}
    table = Table.of(
        "Value networks with repeated gates, and kernel regression with their path kernel (in %)",
        rows,
        f"Test accuracies after {config.wide_steps} steps of gradient descent on the squared loss; the kernel is "
        "the expected tangent kernel, a multiple of the path kernel that is the same at all widths. What a "
        "network gives before training is taken off. Distances are relative.",
    )
    axes = ("width of the value network", "distance of test outputs")
    curves = figure("Networks tend to their kernel", *axes, distances, log="xy")
    return counted((table, curves), tasks_of(points), results)


EXPERIMENT = Experiment(
    name="kernels",
    description="kernel regression with path kernels and kernels of infinite width, against the networks",
    source="P1 section 6, P2 section 6, P3 section 3",
    config=KernelsConfig,
    presets={
        "smoke": KernelsConfig(
            dense_data=DataSpec("digits", n_train=200, n_test=100),
            dense_net=NetSpec("fc", width=32, depth=4, bias=False),
            dense_recipe=TrainingRecipe("adam", 3e-3, epochs=10),
            image_data=DataSpec("digits", n_train=40, n_test=40, size=4),
            image_net=NetSpec("gconv", channels=(8, 8), hidden=(), bias=False),
            image_recipe=TrainingRecipe("adam", 1e-2, epochs=5),
            wide_data=DataSpec("digits", n_train=60, n_test=100),
            wide_net=NetSpec("fc", width=16, depth=3, bias=False),
            wide_recipe=TrainingRecipe("adam", 1e-2, epochs=5),
            repeats=(1, 16),
            wide_steps=60,
            ridges=(1e-4, 1e-2, 1.0),
            kernels=("linear", "path-random", "path-learnt", "limit-tangent"),
        ),
        "cpu": KernelsConfig(),
        "paper": KernelsConfig(
            dense_data=DataSpec("mnist"),
            dense_recipe=TrainingRecipe("adam", 3e-4, epochs=100),
            image_data=DataSpec("cifar10"),
            image_net=NetSpec("gconv", bias=False),
            image_recipe=TrainingRecipe("adam", 3e-4, epochs=200),
            wide_data=DataSpec("mnist", n_train=2000),
            wide_net=NetSpec("fc", width=128, depth=6, bias=False),
            repeats=(1, 2, 4, 8, 16, 32, 64),
            wide_steps=1000,
            seeds=(0, 1, 2, 3, 4),
        ),
    },
    reduced={
        "smoke": "embedded digits, small networks, a few epochs",
        "cpu": "10,000 training images of MNIST; 1,000 training and 1,000 test images of CIFAR-10 at 16 x 16 with a "
        "narrow GCONV (16-16-32-32 channels and dense 64, 64), Adam 1e-3 for 100 epochs (papers: 3e-4 for 200); no "
        "network has biases, unlike the papers', so that they fit their kernels; three seeds",
    },
    tasks=tasks,
    summary=summary,
)
