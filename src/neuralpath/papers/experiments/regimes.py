"""Experiment `regimes`: test accuracy with learned, fixed and random gates."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

from neuralpath.papers.experiments import seed_tables as tables, specs
from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.seed_tables import Seeds, spread
from neuralpath.papers.experiments.settings import check_integers, check_positive, check_shares, chosen_parts
from neuralpath.papers.experiments.specs import DataSpec, NetSpec, TrainingRecipe, Variant, data_of_seed
from neuralpath.papers.experiments.summary_items import Cell, SummaryItem, Table
from neuralpath.papers.experiments.trained import TrainNetwork
from neuralpath.papers.runs import Task

RegimeName = Literal["ReLU", "DL", "FL", "FR-II", "FR-DI"]
ALL: tuple[RegimeName, ...] = get_args(RegimeName)
COMPARED = (
    ("FL", "ReLU"), ("DL", "ReLU"), ("FR-II", "ReLU"), ("FR-II", "DL"), ("FR-II", "FR-DI"),
    ("FL random labels", "FR-II"), ("FL random pixels", "FR-II"),
)  # fmt: skip


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


def rows_of(config: RegimesConfig, part: RegimesPart, net: NetSpec) -> dict[str, Seeds]:
    """The rows of the table for one network, by the papers' names, with their runs by seed."""
    rows: dict[str, Seeds] = {}
    training = part.recipe.training()
    for regime in part.regimes:
        if regime == "ReLU":
            rows[regime] = {seed: relu_network(part, net, seed) for seed in part.seeds}
            continue
        for source in part.sources if regime == "FL" else ("true",):
            name = regime if source == "true" else f"{regime} {source.replace('-', ' ')}"
            which = config.gates_from if source == "true" else "last"
            runs: dict[int, Task] = {}
            for seed in part.seeds:
                network = source_network(config, part, net, source, seed)
                task = network.gated(regime, training, which=which, beta=config.beta, factor=config.factor)
                runs[seed] = replace(task, data=data_of_seed(part.data, seed))
            rows[name] = runs
    return rows


def sources_of(config: RegimesConfig, part: RegimesPart, net: NetSpec) -> dict[Variant, Seeds]:
    """The networks on random labels and pixels."""
    sources = [source for source in part.sources if source != "true" and "FL" in part.regimes]
    return {s: {seed: source_network(config, part, net, s, seed) for seed in part.seeds} for s in sources}


def tasks(config: RegimesConfig) -> tuple[Task, ...]:
    """All runs, each once: for each network the ReLU network, the sources of gates, then the gated networks."""
    rows = ((sources_of(config, *network), rows_of(config, *network)) for network in _networks(config))
    return tables.each_once(runs for sources, regimes in rows for runs in (*sources.values(), *regimes.values()))


def summary(config: RegimesConfig, results: Results) -> tuple[SummaryItem, ...]:
    """Accuracies beside the papers', paired comparisons, the networks on random data, and curves."""
    cells = [
        ({**_head(part, net), "regime": regime}, runs, printed_accuracy(part.data, net, part.recipe.label, regime))
        for part, net in _networks(config)
        for regime, runs in rows_of(config, part, net).items()
    ]
    note = (
        "The papers print the best epoch on the test data. Where the network or its training is smaller than theirs, "
        f"their figure is of the larger one. FL takes the gates of the {config.gates_from} epoch. Training: the last "
        "epoch's own passes."
    )
    items: list[SummaryItem] = [tables.accuracy_table("Regimes: test accuracy", cells, results, note)]
    for part, net in _networks(config):
        rows = rows_of(config, part, net)
        about = " ".join(map(str, _head(part, net).values()))
        if pairs := tables.pairs_of(rows, COMPARED):
            items.append(tables.comparisons(f"Regimes compared: {about}", pairs, results))
        items.append(tables.accuracy_figure(f"Test accuracy: {about}", rows, results))
    if sources := _source_table(config, results):
        items.append(sources)
    return tuple(items)


def printed_accuracy(data: DataSpec, net: NetSpec, optimizer: str, regime: str) -> tables.Printed | None:
    """The papers' figure for this family of network on this data set; a narrower network stands beside it too."""
    name = f"FC w={net.width} d={net.depth}" if net.family == "fc" else net.family.upper()
    row = {"optimizer": optimizer, "dataset": data.name, "regime": regime, "architecture": name}
    return tables.printed(where="table 4", **row) or tables.printed(where="table 2", **row)


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
            reached = tables.accuracies(runs, results, "last", "train_accuracy")
            epochs = (float(result["last"]["epoch"]) for result in tables.results_by_seed(runs, results).values())
            n_fitted = sum(value >= goal for value in reached.values())
            verdict = f"not tested ({n_fitted} of {len(runs)} seeds reached it)" if reached else None
            verdict = "learned" if n_fitted == len(runs) else verdict
            row = {**_head(part, net), "trained on": source, "training accuracy %": spread(reached.values())}
            rows.append({**row, "epochs": spread(epochs), "gates of it": verdict})
    if not rows:
        return None
    note = (
        f"Trained until the training accuracy reaches {goal:g} % or for {config.source_epochs} epochs. Below that the "
        "gates have not been learned on those data, and the claim that they are worse than random gates (C14) counts "
        f"as not tested. {tables.finished(every, results)}"
    )
    return Table.of("Networks trained on random labels or pixels", rows, note)


_ADAM = TrainingRecipe("adam", 3e-4, epochs=40)
_RANDOM: tuple[Variant, ...] = get_args(Variant)
_OTHER_FC = tuple(NetSpec("fc", width, depth) for width, depth in ((128, 10), (256, 6), (256, 10)))
_NARROW = NetSpec("gconv", channels=(16, 16, 32, 32), hidden=(64, 64))
_NARROW_VCONV = replace(_NARROW, family="vconv")
_NARROW_CONV = RegimesPart(
    "cifar10-gconv", specs.CIFAR, (_NARROW,), replace(_ADAM, epochs=30, precision="bfloat16"), seeds=(0,)
)
NARROW_GCONV = replace(_NARROW_CONV, keep=(1, 2, 4, 8, 16, 30))
"""The CIFAR-10 network of two cores; `stages` shares it."""
_PAPER_CONV = RegimesPart(
    "cifar10-gconv-adam", specs.CIFAR, (NetSpec("gconv"),), replace(_ADAM, epochs=200), seeds=specs.FIVE_SEEDS
)
PAPER_GCONV = replace(_PAPER_CONV, keep=(10, 20, 30, 40, 50, 60))
"""The papers' GCONV; `stages` shares it."""

_SMOKE_FC = RegimesPart(
    "digits-fc", specs.SMOKE_DATA, (specs.SMOKE_FC,), TrainingRecipe("adam", 3e-3, epochs=5), sources=_RANDOM
)
_SMOKE_SGD = RegimesPart(
    "digits-fc-sgd", specs.SMOKE_DATA, (specs.SMOKE_FC,), TrainingRecipe("sgd", 0.1, epochs=2), ("ReLU",), seeds=(0,)
)
_FC = RegimesPart("mnist-fc-adam", specs.MNIST, (NetSpec("fc", 128, 6),), _ADAM, sources=_RANDOM)
_CPU = RegimesConfig(
    parts=(
        _FC,
        replace(_FC, name="mnist-fc-sgd", recipe=TrainingRecipe("sgd", 1e-2, epochs=40)),
        replace(_FC, name="mnist-fc-sizes", nets=_OTHER_FC, sources=("true", "random-labels"), seeds=(0,)),
        # Of all sizes the one that fits random labels in 200 epochs.
        replace(_FC, name="mnist-fc-w256", nets=_OTHER_FC[1:2], regimes=("FL", "FR-II"), sources=("random-labels",)),
        NARROW_GCONV,
        replace(_NARROW_CONV, name="cifar10-vconv", nets=(_NARROW_VCONV,), regimes=("ReLU", "FL", "FR-II")),
    )
)
_PAPER_FC = replace(_FC, nets=(*_FC.nets, *_OTHER_FC), recipe=replace(_ADAM, epochs=100), seeds=specs.FIVE_SEEDS)
_PAPER_VCONV = replace(_PAPER_CONV, nets=(NetSpec("vconv"),))
_PAPER = RegimesConfig(
    parts=(
        _PAPER_FC,
        replace(_PAPER_FC, name="mnist-fc-sgd", recipe=TrainingRecipe("sgd", 1e-2, epochs=300)),
        replace(_PAPER_VCONV, name="cifar10-vconv-adam", recipe=TrainingRecipe("adam", 3e-4, epochs=80)),
        replace(_PAPER_VCONV, name="cifar10-vconv-sgd", recipe=TrainingRecipe("sgd", 1e-2, epochs=80)),
        PAPER_GCONV,
        replace(_PAPER_CONV, name="cifar10-gconv-sgd", recipe=TrainingRecipe("sgd", 1e-1, epochs=100)),
    )
)

EXPERIMENT = Experiment(
    name="regimes",
    description="accuracy of ReLU, DL, FL, FR-II, FR-DI, with gates from true labels, random labels and random pixels",
    source="P0 table 4, P1 table 2",
    config=RegimesConfig,
    presets={"smoke": RegimesConfig((_SMOKE_FC, _SMOKE_SGD), source_epochs=4), "cpu": _CPU, "paper": _PAPER},
    reduced={
        "smoke": "400 digits, FC w=32 d=4, a few epochs; the networks on random data are not trained to the end",
        "cpu": "40 epochs on MNIST (papers: 100 with Adam, 300 with SGD) and 3 seeds (5), 1 seed for other sizes but "
        "for the one that fits random labels; CIFAR-10 with 16-16-32-32 channels and dense 64, 64 (64-64-128-128 and "
        "256, 256), 30 epochs, 1 seed, Adam, products in bfloat16",
    },
    tasks=tasks,
    summary=summary,
)
