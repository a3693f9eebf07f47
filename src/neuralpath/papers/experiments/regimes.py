"""Experiment `regimes`: test accuracy with learned, fixed and random gates."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.seed_tables import (
    Printed,
    Seeds,
    accuracies,
    accuracy_cells,
    accuracy_figure,
    comparisons,
    finished,
    printed,
    results_by_seed,
)
from neuralpath.papers.experiments.settings import check_integers, check_positive, check_shares, chosen_parts
from neuralpath.papers.experiments.specs import DataSpec, NetSpec, TrainingRecipe, Variant, data_of_seed
from neuralpath.papers.experiments.statistics import spread
from neuralpath.papers.experiments.summary_items import Cell, SummaryItem, Table
from neuralpath.papers.experiments.trained import GatedRegime, TrainGated, TrainNetwork
from neuralpath.papers.runs import Task, Weights

RegimeName = Literal["ReLU", "DL", "FL", "FR-II", "FR-DI"]
ALL: tuple[RegimeName, ...] = ("ReLU", "DL", "FL", "FR-II", "FR-DI")
PUBLISHED = {"mnist": "MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "fashion-mnist": "Fashion-MNIST"}
"""Names of data sets as the papers print them."""


@dataclass(frozen=True)
class RegimesPart:
    """Networks on one data set, trained by one recipe."""

    name: str
    data: DataSpec
    nets: tuple[NetSpec, ...]
    recipe: TrainingRecipe
    regimes: tuple[RegimeName, ...] = ALL
    sources: tuple[Variant, ...] = ("true",)
    """What the networks whose gates FL takes were trained on; the gated weights always see true data."""
    seeds: tuple[int, ...] = (0, 1, 2)
    keep: tuple[int, ...] = ()
    """Epochs of the ReLU network whose weights are saved; `stages` reads the same ones, and the network is shared."""

    def __post_init__(self) -> None:
        for name, values, known in (("regimes", self.regimes, ALL), ("sources", self.sources, get_args(Variant))):
            if unknown := [value for value in values if value not in known]:
                raise ValueError(f"`{name}` must be among {', '.join(known)}; got {', '.join(map(repr, unknown))}.")
        if any(not 0 <= epoch <= self.recipe.epochs for epoch in self.keep):
            raise ValueError(f"`keep` must be epochs from 0 to {self.recipe.epochs}, got {self.keep}.")


@dataclass(frozen=True)
class RegimesConfig:
    """The parts of the table, and what they share."""

    parts: tuple[RegimesPart, ...]
    only: tuple[str, ...] = ()
    """Names of the parts to run, such as cifar10-gconv; all by default."""
    gates_from: Literal["best", "last"] = "best"
    """Epoch of the true-label network whose gates FL takes: the best on the test data, as the papers do, or the last.
    Of networks trained on random labels or pixels it is always the last."""
    source_accuracy: float = 0.9
    """Networks on random labels or pixels are trained until their training accuracy reaches this share,"""
    source_epochs: int = 200
    """or for this many epochs."""
    beta: float = 8.0
    """The soft gate of DL is factor * sigmoid(beta q); 8 and 1 in P1, 4 and 1.1 in its notebooks."""
    factor: float = 1.0

    def __post_init__(self) -> None:
        chosen_parts(self.parts, self.only)  # which refuses unknown names
        check_shares(source_accuracy=self.source_accuracy)
        check_integers(0, source_epochs=self.source_epochs)
        check_positive(beta=self.beta, factor=self.factor)

    @property
    def chosen(self) -> tuple[RegimesPart, ...]:
        """The parts to run."""
        return chosen_parts(self.parts, self.only)


def relu_network(part: RegimesPart, net: NetSpec, seed: int) -> TrainNetwork:
    """The standard network on true data."""
    return TrainNetwork(data_of_seed(part.data, seed), net, part.recipe.training(), seed, part.keep)


def source_network(config: RegimesConfig, part: RegimesPart, net: NetSpec, source: Variant, seed: int) -> TrainNetwork:
    """The network whose gates FL takes."""
    if source == "true":
        return relu_network(part, net, seed)
    until = part.recipe.training_until(config.source_accuracy, config.source_epochs)
    return TrainNetwork(data_of_seed(replace(part.data, variant=source), seed), net, until, seed)


def gated_network(
    config: RegimesConfig, part: RegimesPart, net: NetSpec, regime: GatedRegime, source: Variant, seed: int
) -> TrainGated:
    """A gated network."""
    gates = None
    if regime == "FL":
        which = config.gates_from if source == "true" else "last"
        gates = Weights(source_network(config, part, net, source, seed), which)
    task = TrainGated(data_of_seed(part.data, seed), net, part.recipe.training(), regime, seed, gates)
    return replace(task, beta=config.beta, factor=config.factor) if regime == "DL" else task


def rows_of(config: RegimesConfig, part: RegimesPart, net: NetSpec) -> dict[str, Seeds]:
    """The rows of the table for one network, by the papers' names, with their runs by seed."""
    rows: dict[str, Seeds] = {}
    for regime in part.regimes:
        if regime == "ReLU":
            rows[regime] = {seed: relu_network(part, net, seed) for seed in part.seeds}
            continue
        for source in part.sources if regime == "FL" else ("true",):
            name = regime if source == "true" else f"{regime} {source.replace('-', ' ')}"
            rows[name] = {seed: gated_network(config, part, net, regime, source, seed) for seed in part.seeds}
    return rows


def sources_of(config: RegimesConfig, part: RegimesPart, net: NetSpec) -> dict[Variant, Seeds]:
    """The networks on random labels and pixels."""
    return {
        source: {seed: source_network(config, part, net, source, seed) for seed in part.seeds}
        for source in part.sources
        if source != "true" and "FL" in part.regimes
    }


def tasks(config: RegimesConfig) -> tuple[Task, ...]:
    """All runs, each once: for each network the ReLU network, the sources of gates, then the gated networks."""
    found: dict[Task, None] = {}
    for part, net in _networks(config):
        for runs in (*sources_of(config, part, net).values(), *rows_of(config, part, net).values()):
            found |= dict.fromkeys(runs.values())
    return tuple(found)


def summary(config: RegimesConfig, results: Results) -> tuple[SummaryItem, ...]:
    """Accuracies beside the papers', paired comparisons, the networks on random data, and curves."""
    items: list[SummaryItem] = [_accuracy_table(config, results)]
    for part, net in _networks(config):
        rows = rows_of(config, part, net)
        about = " ".join(map(str, _head(part, net).values()))
        if pairs := _pairs(rows):
            items.append(comparisons(f"Regimes compared: {about}", pairs, results))
        items.append(accuracy_figure(f"Test accuracy: {about}", rows, results))
    if sources := _source_table(config, results):
        items.append(sources)
    return tuple(items)


def printed_accuracy(data: DataSpec, net: NetSpec, optimizer: str, regime: str) -> Printed | None:
    """The papers' figure for this family of network on this data set; a narrower network stands beside it too."""
    name = f"FC w={net.width} d={net.depth}" if net.family == "fc" else net.family.upper()
    wanted = {"optimizer": optimizer, "dataset": PUBLISHED.get(data.name, ""), "regime": regime, "architecture": name}
    return printed(where="table 4", **wanted) or printed(where="table 2", **wanted)


def _accuracy_table(config: RegimesConfig, results: Results) -> Table:
    rows: list[dict[str, Cell]] = []
    every: list[Seeds] = []
    for part, net in _networks(config):
        for regime, runs in rows_of(config, part, net).items():
            every.append(runs)
            figure = printed_accuracy(part.data, net, part.recipe.label, regime)
            rows.append({**_head(part, net), "regime": regime, **accuracy_cells(runs, results, figure)})
    note = (
        "Test accuracy, mean ± standard deviation over seeds (number of seeds). The papers print the best epoch on the "
        "test data. Where the network or its training is smaller than theirs, their figure is of the larger one. "
        f"FL takes the gates of the {config.gates_from} epoch. Training: the last epoch's own passes. "
        f"{finished(every, results)}"
    )
    return Table.of("Regimes: test accuracy", rows, note)


def _pairs(rows: dict[str, Seeds]) -> dict[str, tuple[Seeds, Seeds]]:
    pairs = (
        ("FL", "ReLU"),
        ("DL", "ReLU"),
        ("FR-II", "ReLU"),
        ("FR-II", "DL"),
        ("FR-II", "FR-DI"),
        ("FL random labels", "FR-II"),
        ("FL random pixels", "FR-II"),
    )
    return {
        f"{first} - {second}": (rows[first], rows[second])
        for first, second in pairs
        if first in rows and second in rows
    }


def _networks(config: RegimesConfig) -> Iterator[tuple[RegimesPart, NetSpec]]:
    return ((part, net) for part in config.chosen for net in part.nets)


def _head(part: RegimesPart, net: NetSpec) -> dict[str, Cell]:
    return {"data": part.data.label, "network": net.label, "optimizer": part.recipe.label}


def _source_table(config: RegimesConfig, results: Results) -> Table | None:
    rows: list[dict[str, Cell]] = []
    every: list[Seeds] = []
    goal = 100 * config.source_accuracy
    for part, net in _networks(config):
        for source, runs in sources_of(config, part, net).items():
            every.append(runs)
            reached = accuracies(runs, results, "last", "train_accuracy")
            epochs = (float(result["last"]["epoch"]) for result in results_by_seed(runs, results).values())
            rows.append(
                {
                    **_head(part, net),
                    "trained on": source,
                    "training accuracy %": spread(reached.values()),
                    "epochs": spread(epochs),
                    "gates of it": _verdict(reached, len(runs), goal),
                }
            )
    if not rows:
        return None
    note = (
        f"Trained until the training accuracy reaches {goal:g} % or for {config.source_epochs} epochs. Below that the "
        "gates have not been learnt on those data, and the claim that they are worse than random gates (C14) counts as "
        f"not tested. {finished(every, results)}"
    )
    return Table.of("Networks trained on random labels or pixels", rows, note)


def _verdict(reached: dict[int, float], n_seeds: int, goal: float) -> str | None:
    if not reached:
        return None
    n_fitted = sum(value >= goal for value in reached.values())
    if n_fitted == n_seeds:
        return "learnt"
    return f"not tested ({n_fitted} of {n_seeds} seeds reached it)"


_MNIST = DataSpec("mnist")
_CIFAR = DataSpec("cifar10")
_ADAM = TrainingRecipe("adam", 3e-4, epochs=40)
_RANDOM: tuple[Variant, ...] = ("true", "random-labels", "random-pixels")
_OTHER_FC = tuple(NetSpec("fc", width, depth) for width, depth in ((128, 10), (256, 6), (256, 10)))
_NARROW = NetSpec("gconv", channels=(16, 16, 32, 32), hidden=(64, 64))
NARROW_GCONV = RegimesPart(
    "cifar10-gconv",
    _CIFAR,
    (_NARROW,),
    replace(_ADAM, epochs=30, precision="bfloat16"),
    seeds=(0,),
    keep=(1, 2, 4, 8, 16, 30),
)
"""The CIFAR-10 network of two cores; `stages` shares it."""
PAPER_GCONV = RegimesPart(
    "cifar10-gconv-adam",
    _CIFAR,
    (NetSpec("gconv"),),
    replace(_ADAM, epochs=200),
    seeds=(0, 1, 2, 3, 4),
    keep=(10, 20, 30, 40, 50, 60),
)
"""The papers' GCONV; `stages` shares it."""

_DIGITS = DataSpec("digits", n_train=400)
_SMOKE = RegimesConfig(
    parts=(
        RegimesPart(
            "digits-fc", _DIGITS, (NetSpec("fc", 32, 4),), TrainingRecipe("adam", 3e-3, epochs=5), sources=_RANDOM
        ),
        RegimesPart(
            "digits-fc-sgd",
            _DIGITS,
            (NetSpec("fc", 32, 4),),
            TrainingRecipe("sgd", 0.1, epochs=2),
            ("ReLU",),
            seeds=(0,),
        ),
    ),
    source_epochs=4,
)
_CPU = RegimesConfig(
    parts=(
        RegimesPart("mnist-fc-adam", _MNIST, (NetSpec("fc", 128, 6),), _ADAM, sources=_RANDOM),
        RegimesPart(
            "mnist-fc-sgd", _MNIST, (NetSpec("fc", 128, 6),), TrainingRecipe("sgd", 1e-2, epochs=40), sources=_RANDOM
        ),
        RegimesPart("mnist-fc-sizes", _MNIST, _OTHER_FC, _ADAM, sources=("true", "random-labels"), seeds=(0,)),
        # Of all sizes the one that fits random labels in 200 epochs.
        RegimesPart(
            "mnist-fc-w256", _MNIST, (NetSpec("fc", 256, 6),), _ADAM, ("FL", "FR-II"), sources=("random-labels",)
        ),
        NARROW_GCONV,
        replace(
            NARROW_GCONV,
            name="cifar10-vconv",
            nets=(replace(_NARROW, family="vconv"),),
            regimes=("ReLU", "FL", "FR-II"),
            keep=(),
        ),
    )
)


def _paper() -> RegimesConfig:
    five = (0, 1, 2, 3, 4)
    every_fc = (NetSpec("fc", 128, 6), *_OTHER_FC)
    gconv = PAPER_GCONV
    vconv = replace(gconv, nets=(NetSpec("vconv"),), keep=())
    return RegimesConfig(
        parts=(
            RegimesPart("mnist-fc-adam", _MNIST, every_fc, replace(_ADAM, epochs=100), sources=_RANDOM, seeds=five),
            RegimesPart(
                "mnist-fc-sgd", _MNIST, every_fc, TrainingRecipe("sgd", 1e-2, epochs=300), sources=_RANDOM, seeds=five
            ),
            replace(vconv, name="cifar10-vconv-adam", recipe=TrainingRecipe("adam", 3e-4, epochs=80)),
            replace(vconv, name="cifar10-vconv-sgd", recipe=TrainingRecipe("sgd", 1e-2, epochs=80)),
            gconv,
            replace(gconv, name="cifar10-gconv-sgd", recipe=TrainingRecipe("sgd", 1e-1, epochs=100), keep=()),
        )
    )


EXPERIMENT = Experiment(
    name="regimes",
    description="accuracy of ReLU, DL, FL, FR-II, FR-DI, with gates from true labels, random labels and random pixels",
    source="P0 table 4, P1 table 2",
    config=RegimesConfig,
    presets={"smoke": _SMOKE, "cpu": _CPU, "paper": _paper()},
    reduced={
        "smoke": "400 digits, FC w=32 d=4, a few epochs; the networks on random data are not trained to the end",
        "cpu": "40 epochs on MNIST (papers: 100 with Adam, 300 with SGD) and 3 seeds (5), 1 seed for other sizes but "
        "for the one that fits random labels; CIFAR-10 with 16-16-32-32 channels and dense 64, 64 (64-64-128-128 and "
        "256, 256), 30 epochs, 1 seed, Adam, products in bfloat16",
    },
    tasks=tasks,
    summary=summary,
)

run = EXPERIMENT.run
