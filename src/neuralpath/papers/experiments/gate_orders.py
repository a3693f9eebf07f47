"""Experiment `gate-orders`: accuracy with permuted gate layers, and with weights that never see the image."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import permutations, product
from math import factorial
from random import Random

from neuralpath.papers.experiments import seed_tables as tables, specs
from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.seed_tables import Seeds, spread
from neuralpath.papers.experiments.settings import check_integers, check_positive, chosen_parts
from neuralpath.papers.experiments.specs import DataSpec, NetSpec, TrainingRecipe, data_of_seed, plain_cnn
from neuralpath.papers.experiments.summary_items import Cell, Distribution, SummaryItem, Table
from neuralpath.papers.experiments.trained import GatedRegime, TrainGated, TrainNetwork, ValueInputName
from neuralpath.papers.runs import Task

Order = tuple[int, ...]
Rows = dict[tuple[GatedRegime, ValueInputName], Seeds]
"""The runs of each regime and input, by the number of the order or by seed."""

OWN = 0
"""Number of the layers' own order."""
COLUMNS = (
    "regime", "input", "best epoch %, over orders", "least", "most", "own order", "own order, over seeds", "paper %",
    "difference", "last epoch %, over orders",
)  # fmt: skip
_BEST, _LAST = COLUMNS[2], COLUMNS[-1]
NOTE = (
    "Test accuracy; mean ± standard deviation (number of orders, or of seeds for the layers' own order). The path "
    "kernel of a fully connected network is the same for all orders; a convolutional network's is not. "
    "The papers print means over 24 orders and both inputs; ours over both is given when every order has both."
)


@dataclass(frozen=True)
class GateOrdersPart:
    """One network, and the orders in which its gates are tried in each regime."""

    name: str
    data: DataSpec
    net: NetSpec
    recipe: TrainingRecipe
    source_epochs: int
    """Epochs of the ReLU network whose gates FL takes."""
    regimes: tuple[GatedRegime, ...] = ("FL", "FR-II")
    n_orders: int = 24
    """Orders for these regimes: all, or the layers' own, the reversed one, and others drawn at random."""
    more_regimes: tuple[GatedRegime, ...] = ()
    n_more_orders: int = 6
    """Orders for ``more_regimes``."""
    inputs: tuple[ValueInputName, ...] = ("image", "ones")
    """Inputs of the gated weights."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """The first for all orders; the others for the layers' own order, with the same gates in FL, to tell the spread
    over orders from the spread that starts and batches make."""
    stop_at: float | None = None
    """End a run when its training accuracy reaches this share."""

    def __post_init__(self) -> None:
        net, n, most = self.net, self.n_gates, factorial(self.n_gates)
        is_plain_cnn = net.family in ("gconv", "vconv") and not net.hidden and len(set(net.channels)) == 1
        if net.family != "fc" and not is_plain_cnn:
            needed = "`net` must be fc, or convolutions of equal width without dense hidden layers"
            raise ValueError(f"{needed}, whose gates can be permuted; got {net.label}.")
        check_integers(0, source_epochs=self.source_epochs)
        for name in ("n_orders", "n_more_orders"):
            if not 1 <= (number := getattr(self, name)) <= most:
                raise ValueError(f"`{name}` must be from 1 to {most}, the orders of {n} layers; got {number}.")

    @property
    def n_gates(self) -> int:
        """Layers of gates."""
        return self.net.depth - 1 if self.net.family == "fc" else len(self.net.channels)

    @property
    def every_regime(self) -> tuple[GatedRegime, ...]:
        """Regimes with many orders, then those with fewer."""
        return (*self.regimes, *self.more_regimes)


@dataclass(frozen=True)
class GateOrdersConfig:
    """Fully connected and convolutional parts."""

    parts: tuple[GateOrdersPart, ...]
    only: tuple[str, ...] = ()
    """Names of the parts to run, fc or cnn; all by default."""
    order_seed: int = 0
    """Of the orders where not all are taken."""
    beta: float = 10.0
    """Steepness of the soft gates of DL."""

    def __post_init__(self) -> None:
        chosen_parts(self.parts, self.only)  # which refuses unknown names
        check_positive(beta=self.beta)

    @property
    def chosen(self) -> tuple[GateOrdersPart, ...]:
        """The parts to run."""
        return chosen_parts(self.parts, self.only)


def gate_orders(n_gates: int, number: int, seed: int) -> tuple[Order, ...]:
    """Distinct orders of the gates: the layers' own, the reversed one, then others drawn at random.

    >>> gate_orders(3, 3, seed=0)
    ((0, 1, 2), (2, 1, 0), (1, 2, 0))
    """
    every = list(permutations(range(n_gates)))
    ends = [every[0], every[-1]] if n_gates > 1 else every
    others = every[1:-1]
    Random(seed).shuffle(others)
    return tuple([*ends, *others][:number])


def relu_network(part: GateOrdersPart) -> TrainNetwork:
    """The network whose gates FL takes."""
    seed = part.seeds[0]
    return TrainNetwork(data_of_seed(part.data, seed), part.net, part.recipe.training(part.source_epochs), seed)


def _gated(
    config: GateOrdersConfig, part: GateOrdersPart, regime: GatedRegime, seen: ValueInputName, order: Order, seed: int
) -> TrainGated:
    """Weights gated in one order; the data and the gates of FL are those of the first seed."""
    training = part.recipe.training_until(part.stop_at, part.recipe.epochs)
    task = relu_network(part).gated(regime, training, beta=config.beta)
    is_own = order == tuple(range(part.n_gates))
    return replace(task, seed=seed, gate_order=None if is_own else order, value_input=seen)


def by_order(config: GateOrdersConfig, part: GateOrdersPart, regime: GatedRegime, value_input: ValueInputName) -> Seeds:
    """The runs of a regime and an input with the first seed, by the number of the order."""
    number = part.n_orders if regime in part.regimes else part.n_more_orders
    orders, seed = gate_orders(part.n_gates, number, config.order_seed), part.seeds[0]
    return {index: _gated(config, part, regime, value_input, order, seed) for index, order in enumerate(orders)}


def by_seed(config: GateOrdersConfig, part: GateOrdersPart, regime: GatedRegime, value_input: ValueInputName) -> Seeds:
    """The runs with the layers' own order, by seed."""
    own = tuple(range(part.n_gates))
    return {seed: _gated(config, part, regime, value_input, own, seed) for seed in part.seeds}


def both_inputs(
    config: GateOrdersConfig, part: GateOrdersPart, regime: GatedRegime, results: Results
) -> list[float] | None:
    """Accuracies in percent over the orders and all inputs, image and ones, as the papers average them.

    None while an order lacks an input, since the mean would then be nearer to the other.
    """
    reached = [tables.accuracies(by_order(config, part, regime, value_input), results) for value_input in part.inputs]
    if len(reached) < 2 or not reached[0] or any(other.keys() != reached[0].keys() for other in reached):
        return None
    return [value for by_index in reached for value in by_index.values()]


def tasks(config: GateOrdersConfig) -> tuple[Task, ...]:
    """All runs, each once."""
    rows: list[Seeds] = []
    for part in config.chosen:
        rows.append({part.seeds[0]: relu_network(part)})
        for regime, value_input in product(part.every_regime, part.inputs):
            rows += [runs_of(config, part, regime, value_input) for runs_of in (by_order, by_seed)]
    return tables.each_once(rows)


def summary(config: GateOrdersConfig, results: Results) -> tuple[SummaryItem, ...]:
    """For each part the accuracies over orders, image against ones, and the distributions."""
    items: list[SummaryItem] = []
    for part in config.chosen:
        about = f"{part.data.label} {part.net.label}"
        cells = list(product(part.every_regime, part.inputs))
        orders = {cell: by_order(config, part, *cell) for cell in cells}
        seeds = {cell: by_seed(config, part, *cell) for cell in cells}
        relu = {part.seeds[0]: relu_network(part)}
        rows = _table_rows(config, part, relu, orders, seeds, results)
        note = f"{NOTE} {tables.finished([relu, *orders.values(), *seeds.values()], results)}"
        items.append(Table.of(f"Orders of the gates: {about}", rows, note))
        if len(part.inputs) > 1:
            note = f"Here the pairs are orders of the gates, all of seed {part.seeds[0]}."
            items.append(tables.comparisons(f"What the weights see: {about}", _input_pairs(orders), results, note))
            title = f"What the weights see, in the layers' own order: {about}"
            items.append(tables.comparisons(title, _input_pairs(seeds), results))
        groups = {" ".join(cell): tuple(tables.accuracies(orders[cell], results).values()) for cell in cells}
        groups = {name: values for name, values in groups.items() if values}
        reached = tables.accuracy(relu, results)
        lines = None if reached is None else {"ReLU network": reached.mean}
        title = f"Accuracies over the orders of the gates: {about}"
        items.append(Distribution(title, "best test accuracy in %", groups, lines))
    return tuple(items)


def _input_pairs(rows: Rows) -> dict[str, tuple[Seeds, Seeds]]:
    """Each other input against the first, in every regime."""
    first = next(value_input for _, value_input in rows)
    others = [cell for cell in rows if cell[1] != first]
    return {f"{regime}: {other} - {first}": (rows[regime, other], rows[regime, first]) for regime, other in others}


def printed_accuracy(part: GateOrdersPart, regime: str) -> tables.Printed | None:
    """The papers' accuracy of the ReLU network; of a regime their mean over 24 orders and both inputs."""
    name = {"fc": "FC", "gconv": "CNN 4x128"}.get(part.net.family, "")
    models = "" if regime == "ReLU" else " 48 models"
    return tables.printed(where="section 4.1", architecture=name + models, dataset=part.data.name, regime=regime)


def _table_rows(
    config: GateOrdersConfig, part: GateOrdersPart, relu: Seeds, orders: Rows, seeds: Rows, results: Results
) -> list[dict[str, Cell]]:
    def row(regime: str, value_input: str, reached: Collection[float], last: Cell = None) -> dict[str, Cell]:
        """Mean and deviation of accuracies, the least and the largest; the other columns are empty."""
        least, most = (round(f(reached), tables.DECIMALS) if reached else None for f in (min, max))
        cells = {"regime": regime, "input": value_input, "least": least, "most": most, _LAST: last}
        return dict.fromkeys(COLUMNS) | cells | {_BEST: spread(reached, tables.DECIMALS)}

    best = tables.accuracy(relu, results)
    figures = tables.beside(best, printed_accuracy(part, "ReLU"))
    rows = [row("ReLU", "image", (), tables.accuracy(relu, results, "last")) | {_BEST: best} | figures]
    for regime in part.every_regime:
        for value_input in part.inputs:
            runs = orders[regime, value_input]
            reached = tables.accuracies(runs, results)
            over_seeds = tables.accuracy(seeds[regime, value_input], results)
            own: dict[str, Cell] = {"own order": reached.get(OWN), "own order, over seeds": over_seeds}
            rows.append(row(regime, value_input, reached.values(), tables.accuracy(runs, results, "last")) | own)
        if len(part.inputs) > 1:
            both = both_inputs(config, part, regime, results) or ()
            rows.append(row(regime, "both", both) | tables.beside(spread(both), printed_accuracy(part, regime)))
    return rows


_FC = GateOrdersPart(
    "fc", specs.MNIST, NetSpec("fc", 128, 5), TrainingRecipe(epochs=10), 20, more_regimes=("DL", "FR-DI")
)
_CNN = GateOrdersPart(
    "cnn", specs.CIFAR_PART, specs.CIFAR_CNN, TrainingRecipe(epochs=10, precision="bfloat16"), 30, n_orders=12
)
_ALL_ORDERS = replace(_FC, regimes=("FL", "FR-II", "FR-DI", "DL"), more_regimes=(), seeds=(0,), stop_at=0.999)
_PAPER_FC = replace(_ALL_ORDERS, recipe=TrainingRecipe(epochs=200), source_epochs=100)
_PAPER_CNN = replace(_PAPER_FC, name="cnn", data=specs.CIFAR, net=specs.PAPER_CNN)
_FEW_ORDERS = replace(_FC, net=specs.SMOKE_FC, source_epochs=4, n_orders=3, n_more_orders=1)
_SMOKE_FC = replace(_FEW_ORDERS, data=specs.SMOKE_DATA, recipe=TrainingRecipe("adam", 3e-3, epochs=2))
_SMOKE_CNN = GateOrdersPart(
    "cnn", specs.SMOKE_PART, plain_cnn(6, 3), specs.SMOKE_RECIPE, 2, ("FL",), n_orders=2, inputs=("image",), seeds=(0,)
)
EXPERIMENT = Experiment(
    name="gate-orders",
    description="24 orders of the gates x {image, ones} x 4 regimes, fully connected and convolutional",
    source="P2 fig. 4, P3 experiment 1",
    config=GateOrdersConfig,
    presets={
        "smoke": GateOrdersConfig(parts=(_SMOKE_FC, _SMOKE_CNN)),
        "cpu": GateOrdersConfig(parts=(_FC, _CNN)),
        "paper": GateOrdersConfig(parts=(_PAPER_FC, _PAPER_CNN)),
    },
    reduced={
        "smoke": "digits, three small layers of gates, a few orders and epochs",
        "cpu": "10 epochs (papers: to about 100 % training accuracy); FC: DL and FR-DI on 6 of 24 orders; CNN: 32 "
        "filters (128), 10,000 images (50,000), 12 orders (24), FL and FR-II only, products in bfloat16; the ReLU "
        "network whose gates FL takes has 30 epochs, after which it fits 43 % of its training labels in full precision",
    },
    tasks=tasks,
    summary=summary,
)
