"""Claims about the regimes of gates: C8, C9, C10, C14, C27, and C28 for a residual network."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from neuralpath.papers.claims.estimates import (
    ABOVE_GUESSING,
    DECOUPLED,
    NO_DIFFERENCE,
    RECOVERED,
    SINGLE_SEED_ERROR,
    Comparison,
    above,
    against_fitted_relu,
    counted,
    difference,
    fitted,
    is_above,
    is_within,
    printed_difference,
    robust,
    too_few,
    with_fit,
)
from neuralpath.papers.claims.rows import ClaimRow, claim_row
from neuralpath.papers.claims.sweep_records import Records
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
class RegimeSetting:
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
        """Label for tables."""
        return f"{self.data.label} {self.net.label} {self.part.recipe.label}"

    def printed(self, first: str, second: str) -> float | None:
        """The papers' difference between two regimes."""
        label = self.part.recipe.label
        return printed_difference(*(regimes.printed_accuracy(self.data, self.net, label, r) for r in (first, second)))

    def within(self, first: str, second: str, low: float, high: float = float("inf")) -> list[Comparison]:
        """Compare first minus second with bounds."""
        if first not in self.rows or second not in self.rows:
            return []
        pair = difference(self.rows[first], self.rows[second], self.results)
        return is_within(self.data, self.where, pair, low, high, self.printed(first, second))

    def not_below_relu(self, name: str, bound: float) -> list[Comparison]:
        """Compare a regime with the ReLU network: at most this many points below."""
        rows = self.rows.get
        return against_fitted_relu(
            self.within(name, "ReLU", -bound), rows("ReLU", {}), name, rows(name, {}), self.results
        )

    def above(self, first: str, second: str) -> list[Comparison]:
        """Compare first minus second with 0."""
        if first not in self.rows or second not in self.rows:
            return []
        pair = difference(self.rows[first], self.rows[second], self.results)
        return is_above(self.data, self.where, pair, self.printed(first, second))


def in_all_settings(records: Records, compare: Callable[[RegimeSetting], Iterable[Comparison]]) -> list[Comparison]:
    """The comparisons of every network of every sweep of `regimes`."""
    return [
        comparison
        for one in records.of("regimes")
        for part in one.sweep.config.chosen
        for net in part.nets
        for comparison in compare(
            RegimeSetting(one.sweep.config, part, net, regimes.rows_of(one.sweep.config, part, net), one.results)
        )
    ]


def c8(records: Records) -> ClaimRow:
    """C8: random gates generalize, worse than learned ones."""
    return claim_row(
        "C8",
        records,
        {
            "accuracy of FR-II, in %": in_all_settings(records, _generalizes),
            "ReLU - FR-II": in_all_settings(records, lambda setting: setting.above("ReLU", "FR-II")),
            "DL - FR-II": in_all_settings(records, lambda setting: setting.above("DL", "FR-II")),
        },
    )


def _generalizes(setting: RegimeSetting) -> list[Comparison]:
    ours = accuracy(setting.rows.get("FR-II", {}), setting.results)
    if ours is None:
        return []
    figure = regimes.printed_accuracy(setting.data, setting.net, setting.part.recipe.label, "FR-II")
    return [
        Comparison(
            setting.where,
            f"{ours.mean:.2f} ({counted(ours.n, 'seed')})",
            above(ours, ABOVE_GUESSING, single=SINGLE_SEED_ERROR),
            "" if figure is None else f"{figure.accuracy:.2f}",
            "" if figure is None else f"{ours.mean - figure.accuracy:+.2f}",
            ours.mean,
            None if figure is None else figure.accuracy,
            excluded=too_few(setting.data, ours.n),
        )
    ]


def c9(records: Records) -> ClaimRow:
    """C9: learned gates recover the network."""
    return claim_row(
        "C9", records, {"FL - ReLU": in_all_settings(records, lambda setting: setting.not_below_relu("FL", RECOVERED))}
    )


def c10(records: Records) -> ClaimRow:
    """C10: independent and dependent random gates are equal."""

    def compare(setting: RegimeSetting) -> list[Comparison]:
        return setting.within("FR-II", "FR-DI", -NO_DIFFERENCE, NO_DIFFERENCE)

    return claim_row("C10", records, {"FR-II - FR-DI": in_all_settings(records, compare)})


def c14(records: Records) -> ClaimRow:
    """C14: gates learned on random data are worse than random gates."""
    variants: dict[str, Variant] = {"FL random labels": "random-labels", "FL random pixels": "random-pixels"}
    parts = {
        f"FR-II - {row}": in_all_settings(records, partial(_if_fitted, row=row, variant=variant))
        for row, variant in variants.items()
    }
    return claim_row("C14", records, parts)


def _if_fitted(setting: RegimeSetting, row: str, variant: Variant) -> Iterator[Comparison]:
    sources = regimes.sources_of(setting.config, setting.part, setting.net).get(variant, {})
    reached = accuracies(sources, setting.results, "last", "train_accuracy")
    if not reached:
        return
    goal = 100 * setting.config.source_accuracy
    n_fitted = sum(value >= goal for value in reached.values())
    for one in with_fit(setting.above("FR-II", row), "their networks", fitted(sources, setting.results)):
        excluded = one.excluded
        if n_fitted < len(reached):
            excluded = f"{n_fitted} of {counted(len(reached), 'network')} fitted {goal:g} % of their random data"
        yield replace(one, excluded=excluded)


def c27(records: Records) -> ClaimRow:
    """C27: decoupled learning is near ReLU."""
    return claim_row(
        "C27", records, {"DL - ReLU": in_all_settings(records, lambda setting: setting.not_below_relu("DL", DECOUPLED))}
    )


def c28(records: Records) -> ClaimRow:
    """C28: C9, C24, C26 and C27 for a residual network."""
    parts: dict[str, list[Comparison]] = {"FL - ReLU": [], "DL - ReLU": [], "FL - FR-II": [], "ones - image": []}
    for one in records.of("residual"):
        config, results = one.sweep.config, one.results
        rows, where = residual.rows_of(config), f"{config.data.label} {config.net.label}"

        def row(regime: str, value_input: str = "image", rows: dict[tuple[str, str], Seeds] = rows) -> Seeds:
            return rows.get((regime, value_input), {})

        for regime, bound in (("FL", RECOVERED), ("DL", DECOUPLED)):
            pair = difference(row(regime), row("ReLU"), results)
            parts[f"{regime} - ReLU"] += is_within(config.data, where, pair, -bound)
        parts["FL - FR-II"] += is_above(config.data, where, difference(row("FL"), row("FR-II"), results))
        bound = robust(config.data)
        for regime in config.regimes:
            pair = difference(row(regime, "ones"), row(regime), results)
            parts["ones - image"] += is_within(config.data, f"{where} {regime}", pair, -bound, bound)
    return claim_row("C28", records, parts)
