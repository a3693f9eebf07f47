"""Claims about training on noisy labels: C31, C32, C33."""

from collections.abc import Iterator
from dataclasses import dataclass

from neuralpath.papers.claims.estimates import (
    FAR_ABOVE,
    PEAK,
    RANDOM_LABELS_COST,
    SAME_GATES,
    Comparison,
    difference,
    fitted,
    is_above,
    is_within,
    printed_difference,
    with_fit,
)
from neuralpath.papers.claims.rows import ClaimRow, claim_row
from neuralpath.papers.claims.sweep_records import Records
from neuralpath.papers.experiments import Printed, Results, Seeds, label_noise, printed


@dataclass(frozen=True)
class NoiseLevel:
    """One network at one level of label noise."""

    part: label_noise.LabelNoisePart
    noise: float
    runs: dict[label_noise.Model, Seeds]
    clean: dict[label_noise.Model, Seeds]
    """The same network without noise; empty if the sweep has none."""
    results: Results

    @property
    def where(self) -> str:
        """Label for tables."""
        return f"{self.part.data.label} {self.part.net.label}, noise {round(100 * self.noise)} %"

    def with_upstream(self, comparisons: list[Comparison], upstream: label_noise.Model = "M1") -> list[Comparison]:
        """Add how much of its own labels the upstream network has fitted."""
        return with_fit(comparisons, upstream, fitted(self.runs[upstream], self.results))

    def printed(self, model: str, noise: float | None = None) -> Printed | None:
        """The papers' accuracy; they print only the convolutional network on CIFAR-10."""
        if self.part.data.name != "cifar10" or self.part.net.family != "gconv":
            return None
        percent = round(100 * (self.noise if noise is None else noise))
        return printed(paper="P3", where="table 2", regime=f"{model} noise {percent}")


def _levels(records: Records) -> Iterator[NoiseLevel]:
    """Every level of noise of every network."""
    for one in records.of("label-noise"):
        for part in one.sweep.config.chosen:
            clean = label_noise.runs_of(part, 0.0) if 0.0 in part.noises else {}
            for noise in part.noises:
                yield NoiseLevel(part, noise, label_noise.runs_of(part, noise), clean, one.results)


def c31(records: Records) -> ClaimRow:
    """C31: random labels with fixed gates."""
    comparisons: list[Comparison] = []
    for level in _levels(records):
        pair = difference(level.runs["M3"], level.runs["M2"], level.results)
        figure = printed_difference(level.printed("M3"), level.printed("M2"))
        compared = is_within(level.part.data, level.where, pair, -RANDOM_LABELS_COST, printed=figure)
        comparisons += level.with_upstream(compared, "M3 upstream")
    return claim_row("C31", records, {"M3 - M2": comparisons})


def c32(records: Records) -> ClaimRow:
    """C32: random labels with free gates."""
    same: list[Comparison] = []
    below: list[Comparison] = []
    fixed: list[Comparison] = []
    for level in _levels(records):
        if level.noise == 0:
            continue
        data, results, m4 = level.part.data, level.results, level.runs["M4"]
        figure = printed_difference(level.printed("M5"), level.printed("M4"))
        pair = difference(level.runs["M5"], m4, results)
        same += level.with_upstream(is_within(data, level.where, pair, -SAME_GATES, SAME_GATES, figure))
        if level.clean:
            figure = printed_difference(level.printed("M2", 0.0), level.printed("M4"))
            pair = difference(level.clean["M2"], m4, results)
            below += level.with_upstream(is_above(data, level.where, pair, figure))
            figure = printed_difference(level.printed("M3", 0.0), level.printed("M4"))
            pair = difference(level.clean["M3"], m4, results)
            fixed += level.with_upstream(is_above(data, level.where, pair, figure))
    return claim_row("C32", records, {"M5 - M4": same, "M2 without noise - M4": below, "M3 without noise - M4": fixed})


def c33(records: Records) -> ClaimRow:
    """C33: the best epoch of M1 against its last, and M2 against the last of M1."""
    falls: list[Comparison] = []
    gates: list[Comparison] = []
    for level in _levels(records):
        if level.noise == 0:
            continue
        data, m1, results = level.part.data, level.runs["M1"], level.results
        figure = printed_difference(level.printed("M1 best"), level.printed("M1 end"))
        pair = difference(m1, m1, results, "best", "last")
        falls += level.with_upstream(is_above(data, level.where, pair, figure, PEAK))
        figure = printed_difference(level.printed("M2"), level.printed("M1 end"))
        pair = difference(level.runs["M2"], m1, results, "best", "last")
        gates += level.with_upstream(is_above(data, level.where, pair, figure, FAR_ABOVE))
    return claim_row("C33", records, {"M1, peak - end": falls, "M2 - end of M1": gates})
