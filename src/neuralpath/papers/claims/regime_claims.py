"""Claims about the regimes: C8, C9, C10, C14, C27, and C28 for a residual network."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from neuralpath.papers.claims.checks import Aspect, Check
from neuralpath.papers.claims.compared import (
    beside_a_fitted_network,
    counted,
    difference,
    fitted,
    is_above,
    is_within,
    printed_difference,
    telling_fit,
)
from neuralpath.papers.claims.evidence import Evidence
from neuralpath.papers.claims.rules import (
    ABOVE_CHANCE,
    DECOUPLED,
    NO_DIFFERENCE,
    RECOVERED,
    SINGLE_SEED_ERROR,
    above,
    robust,
    too_few,
)
from neuralpath.papers.experiments import (
    DataSpec,
    NetSpec,
    Results,
    Seeds,
    Variant,
    accuracies,
    accuracy,
    regimes,
    residual,
)


@dataclass(frozen=True)
class Setting:
    """One network on one data set with one optimizer, in all regimes that were run."""

    config: regimes.RegimesConfig
    part: regimes.RegimesPart
    net: NetSpec
    rows: dict[str, Seeds]
    results: Results

    @property
    def data(self) -> DataSpec:
        """The data set."""
        return self.part.data

    @property
    def where(self) -> str:
        """For tables."""
        return f"{self.data.label} {self.net.label} {self.part.recipe.label}"

    def printed(self, first: str, second: str) -> float | None:
        """The papers' difference between two regimes."""
        one, two = (regimes.printed_accuracy(self.data, self.net, self.part.recipe.label, r) for r in (first, second))
        return printed_difference(one, two)

    def within(self, first: str, second: str, low: float, high: float = float("inf")) -> tuple[Check, ...]:
        """Whether first minus second lies within bounds."""
        if first not in self.rows or second not in self.rows:
            return ()
        found = difference(self.rows[first], self.rows[second], self.results)
        return is_within(self.data, self.where, found, low, high, self.printed(first, second))

    def not_below_relu(self, name: str, bound: float) -> list[Check]:
        """Whether something is at most so much below the ReLU network, where that is a mark to reach."""
        checks = self.within(name, "ReLU", -bound)
        return beside_a_fitted_network(checks, self.rows.get("ReLU", {}), name, self.rows.get(name, {}), self.results)

    def above(self, first: str, second: str) -> tuple[Check, ...]:
        """Whether first is above second."""
        if first not in self.rows or second not in self.rows:
            return ()
        found = difference(self.rows[first], self.rows[second], self.results)
        return is_above(self.data, self.where, found, self.printed(first, second))


def settings(evidence: Evidence) -> Iterator[Setting]:
    """Every network of every sweep of `regimes`."""
    for found in evidence.of("regimes"):
        config = found.sweep.config
        for part in config.chosen:
            for net in part.nets:
                yield Setting(config, part, net, regimes.rows_of(config, part, net), found.results)


def random_gates(evidence: Evidence) -> tuple[Aspect, ...]:
    """C8."""
    every = list(settings(evidence))
    return (
        Aspect("accuracy of FR-II, in %", tuple(check for one in every for check in _generalizes(one))),
        Aspect("ReLU - FR-II", tuple(check for one in every for check in one.above("ReLU", "FR-II"))),
        Aspect("DL - FR-II", tuple(check for one in every for check in one.above("DL", "FR-II"))),
    )


def _generalizes(one: Setting) -> Iterator[Check]:
    ours = accuracy(one.rows.get("FR-II", {}), one.results)
    if ours is None:
        return
    figure = regimes.printed_accuracy(one.data, one.net, one.part.recipe.label, "FR-II")
    yield Check(
        one.where, f"{ours.mean:.2f} ({counted(ours.n, 'seed')})",
        above(ours, ABOVE_CHANCE, single=SINGLE_SEED_ERROR),
        "" if figure is None else f"{figure.accuracy:.2f}",
        "" if figure is None else f"{ours.mean - figure.accuracy:+.2f}",
        ours.mean, None if figure is None else figure.accuracy, aside=too_few(one.data, ours.n),
    )  # fmt: skip


def recovered(evidence: Evidence) -> tuple[Aspect, ...]:
    """C9."""
    checks = (check for one in settings(evidence) for check in one.not_below_relu("FL", RECOVERED))
    return (Aspect("FL - ReLU", tuple(checks)),)


def both_random(evidence: Evidence) -> tuple[Aspect, ...]:
    """C10."""
    bounds = (-NO_DIFFERENCE, NO_DIFFERENCE)
    checks = (check for one in settings(evidence) for check in one.within("FR-II", "FR-DI", *bounds))
    return (Aspect("FR-II - FR-DI", tuple(checks)),)


def decoupled(evidence: Evidence) -> tuple[Aspect, ...]:
    """C27."""
    checks = (check for one in settings(evidence) for check in one.not_below_relu("DL", DECOUPLED))
    return (Aspect("DL - ReLU", tuple(checks)),)


def wrong_gates(evidence: Evidence) -> tuple[Aspect, ...]:
    """C14: only where the networks have fitted their random data."""
    variants: dict[Variant, str] = {"random-labels": "FL random labels", "random-pixels": "FL random pixels"}
    every = list(settings(evidence))
    return tuple(
        Aspect(f"FR-II - {row}", tuple(check for one in every for check in _where_fitted(one, variant, row)))
        for variant, row in variants.items()
    )


def _where_fitted(one: Setting, variant: Variant, row: str) -> Iterator[Check]:
    sources = regimes.sources_of(one.config, one.part, one.net).get(variant, {})
    reached = accuracies(sources, one.results, "last", "train_accuracy")
    if not reached:
        return
    goal = 100 * one.config.source_accuracy
    n_fitted = sum(value >= goal for value in reached.values())
    for check in telling_fit(one.above("FR-II", row), "their networks", fitted(sources, one.results)):
        aside = check.aside
        if n_fitted < len(reached):
            aside = f"{n_fitted} of {counted(len(reached), 'network')} fitted {goal:g} % of their random data"
        yield replace(check, aside=aside)


def residual_network(evidence: Evidence) -> tuple[Aspect, ...]:
    """C28: what C9, C24, C26 and C27 say, for a residual network."""
    recovers: list[Check] = []
    learnt: list[Check] = []
    better: list[Check] = []
    inputs: list[Check] = []
    for found in evidence.of("residual"):
        config, results = found.sweep.config, found.results
        rows, where = residual.rows_of(config), f"{config.data.label} {config.net.label}"
        relu, gates = rows["ReLU", "image"], rows.get(("FR-II", "image"), {})
        fixed = rows.get(("FL", "image"), {})
        recovers += is_within(config.data, where, difference(fixed, relu, results), -RECOVERED)
        learnt += is_within(config.data, where, difference(rows.get(("DL", "image"), {}), relu, results), -DECOUPLED)
        better += is_above(config.data, where, difference(fixed, gates, results))
        bound = robust(config.data)
        for regime in config.regimes:
            pair = difference(rows.get((regime, "ones"), {}), rows.get((regime, "image"), {}), results)
            inputs += is_within(config.data, f"{where} {regime}", pair, -bound, bound)
    return (
        Aspect("FL - ReLU", tuple(recovers)),
        Aspect("DL - ReLU", tuple(learnt)),
        Aspect("FL - FR-II", tuple(better)),
        Aspect("ones - image", tuple(inputs)),
    )
