"""Claims about the order of the gate layers and the input of the weights behind them: C23, C24."""

import math
from collections.abc import Callable

from neuralpath.papers.claims.checks import Aspect, Check, Outcome
from neuralpath.papers.claims.compared import counted, difference, is_within, points
from neuralpath.papers.claims.evidence import Evidence
from neuralpath.papers.claims.rules import (
    MARGIN,
    MIN_ORDERS,
    SIGMAS,
    SINGLE_RUN_DEVIATION,
    SINGLE_SEED_ERROR,
    robust,
    too_few,
    within,
)
from neuralpath.papers.experiments import GatedRegime, Results, Spread, accuracies, accuracy, gate_orders, seed_means

ALL_REGIMES: tuple[GatedRegime, ...] = ("FL", "FR-II", "FR-DI", "DL")


def _over_orders(
    config: gate_orders.GateOrdersConfig, part: gate_orders.GateOrdersPart, regime: GatedRegime, results: Results
) -> list[Check]:
    """All orders near their mean; further away counts only where seeds alone do not move as much."""
    checks = []
    for value_input in part.inputs:
        orders = accuracies(gate_orders.by_order(config, part, regime, value_input), results)
        if not orders:
            continue
        ours = Spread.of(list(orders.values()))
        farthest = max(abs(value - ours.mean) for value in orders.values())
        seeds = accuracy(gate_orders.by_seed(config, part, regime, value_input), results)
        measured = None if seeds is None else seeds.deviation
        noise = SINGLE_RUN_DEVIATION if measured is None else measured
        outcome: Outcome = "yes"
        if farthest > robust(part.data):
            spread = ours.deviation or 0.0
            outcome = "no" if spread > SIGMAS * noise else "doubtful" if spread > MARGIN * noise else "open"
        checks.append(Check(
            f"{part.data.label} {part.net.label}, {value_input}",
            f"{ours.mean:.2f}, farthest order {farthest:.2f} away ({_orders_of(part, ours.n)}; deviation over orders "
            f"{ours.deviation or 0.0:.2f}, over seeds {noise:.2f}{' assumed of one' if measured is None else ''})",
            outcome, value=ours.mean, aside=too_few(part.data, ours.n, least=MIN_ORDERS, what="order"),
        ))  # fmt: skip
    return [*checks, *_both_inputs(config, part, regime, results)]


def _orders_of(part: gate_orders.GateOrdersPart, n: int) -> str:
    return f"{counted(n, 'order')} of seed {part.seeds[0]}"


def _both_inputs(
    config: gate_orders.GateOrdersConfig, part: gate_orders.GateOrdersPart, regime: GatedRegime, results: Results
) -> tuple[Check, ...]:
    """The mean over orders and inputs, which the papers print; how far single orders are from it says nothing."""
    both = gate_orders.both_inputs(config, part, regime, results)
    if both is None:
        return ()
    ours, figure = Spread.of(both), gate_orders.printed_accuracy(part, regime)
    return (Check(
        f"{part.data.label} {part.net.label}, mean of both inputs", f"{ours.mean:.2f} ({counted(ours.n, 'network')})",
        "open", "" if figure is None else f"{figure.accuracy:.2f}",
        "" if figure is None else f"{ours.mean - figure.accuracy:+.2f}",
        ours.mean, None if figure is None else figure.accuracy,
        aside="a mean, beside the papers' figure, which is of all orders and both inputs",
    ),)  # fmt: skip


def _other_orders(
    config: gate_orders.GateOrdersConfig, part: gate_orders.GateOrdersPart, regime: GatedRegime, results: Results
) -> list[Check]:
    """The mean of all other orders, of one seed, against the layers' own order with several seeds."""
    checks = []
    for value_input in part.inputs:
        orders = accuracies(gate_orders.by_order(config, part, regime, value_input), results)
        others = seed_means.spread(value for index, value in orders.items() if index != gate_orders.OWN)
        own = accuracy(gate_orders.by_seed(config, part, regime, value_input), results)
        if others is None or own is None:
            continue
        ours, bound = Spread(others.mean - own.mean, None, _error_between(own, others), own.n), robust(part.data)
        checks.append(Check(
            f"{part.data.label} {part.net.label}, {value_input}",
            f"{points(ours)}, {_orders_of(part, others.n)}", within(ours, -bound, bound, single=SINGLE_SEED_ERROR),
            value=ours.mean,
            aside=too_few(part.data, own.n) or too_few(part.data, others.n, least=MIN_ORDERS - 1, what="other order"),
        ))  # fmt: skip
    return checks


def _error_between(own: Spread, others: Spread) -> float | None:
    """The error of the difference between other orders of one seed and the own order of n seeds, that one among them.

    What the seed adds is common to all other orders, so that their number does not average it out: it comes in with
    1 - 1/n of its variance. How much of the deviation between seeds that is remains unknown; here it is all.
    """
    if own.deviation is None or others.error is None:
        return None
    return math.hypot(own.deviation * math.sqrt(1 - 1 / own.n), others.error)


def _of_orders(
    evidence: Evidence,
    check: Callable[[gate_orders.GateOrdersConfig, gate_orders.GateOrdersPart, GatedRegime, Results], list[Check]],
    regime: GatedRegime,
) -> tuple[Check, ...]:
    """A check of every part that has a regime."""
    return tuple(
        made
        for found in evidence.of("gate-orders")
        for part in found.sweep.config.chosen
        if regime in (*part.regimes, *part.more_regimes)
        for made in check(found.sweep.config, part, regime, found.results)
    )


def orders_of_gates(evidence: Evidence) -> tuple[Aspect, ...]:
    """C23, of accuracies."""
    return (
        *(Aspect(f"{regime} in all orders, in %", _of_orders(evidence, _over_orders, regime))
          for regime in ALL_REGIMES),
        *(Aspect(f"{regime}, other orders - own order", _of_orders(evidence, _other_orders, regime))
          for regime in ALL_REGIMES),
    )  # fmt: skip


def inputs_of_ones(evidence: Evidence) -> tuple[Aspect, ...]:
    """C24."""
    return tuple(Aspect(f"{regime}, ones - image", _of_orders(evidence, _ones, regime)) for regime in ALL_REGIMES)


def _ones(
    config: gate_orders.GateOrdersConfig, part: gate_orders.GateOrdersPart, regime: GatedRegime, results: Results
) -> list[Check]:
    """Paired by the order of the gates with one seed, and by the seed with the layers' own order."""
    bound, where = robust(part.data), f"{part.data.label} {part.net.label}"
    ones, image = (gate_orders.by_order(config, part, regime, seen) for seen in ("ones", "image"))
    checks = []
    if pair := difference(ones, image, results):
        ours = pair.difference
        checks.append(Check(
            f"{where}, orders of seed {part.seeds[0]}", points(ours, "order"),
            within(ours, -bound, bound, single=SINGLE_SEED_ERROR), value=ours.mean,
            aside=too_few(part.data, ours.n, least=MIN_ORDERS, what="order"),
        ))  # fmt: skip
    ones, image = (gate_orders.by_seed(config, part, regime, seen) for seen in ("ones", "image"))
    return [*checks, *is_within(part.data, f"{where}, own order", difference(ones, image, results), -bound, bound)]
