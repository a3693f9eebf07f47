"""Claims about training on noisy labels: C31, C32, C33."""

from collections.abc import Iterator
from dataclasses import dataclass

from neuralpath.papers.claims.checks import Aspect, Check
from neuralpath.papers.claims.compared import (
    difference,
    fitted,
    is_above,
    is_within,
    printed_difference,
    telling_fit,
)
from neuralpath.papers.claims.evidence import Evidence
from neuralpath.papers.claims.rules import FAR_ABOVE, PEAK, RANDOM_LABELS_COST, SAME_GATES
from neuralpath.papers.experiments import Printed, Results, Seeds, label_noise, printed


@dataclass(frozen=True)
class Level:
    """One network at one level of noise."""

    part: label_noise.LabelNoisePart
    noise: float
    runs: dict[label_noise.Model, Seeds]
    clean: dict[label_noise.Model, Seeds]
    """The same network without noise; empty where that was not asked for."""
    results: Results

    @property
    def where(self) -> str:
        """For tables."""
        return f"{self.part.data.label} {self.part.net.label}, noise {round(100 * self.noise)} %"

    def telling(self, checks: tuple[Check, ...], upstream: label_noise.Model = "M1") -> list[Check]:
        """Checks with how much of its own labels the network upstream has fitted."""
        return telling_fit(checks, upstream, fitted(self.runs[upstream], self.results))

    def printed(self, model: str, noise: float | None = None) -> Printed | None:
        """The papers' accuracy; they have the convolutional network on CIFAR-10 only."""
        if self.part.data.name != "cifar10" or self.part.net.family != "gconv":
            return None
        percent = round(100 * (self.noise if noise is None else noise))
        return printed(paper="P3", where="table 2", regime=f"{model} noise {percent}")


def levels(evidence: Evidence) -> Iterator[Level]:
    """Every level of noise of every network."""
    for found in evidence.of("label-noise"):
        for part in found.sweep.config.chosen:
            clean = label_noise.runs_of(part, 0.0) if 0.0 in part.noises else {}
            for noise in part.noises:
                yield Level(part, noise, label_noise.runs_of(part, noise), clean, found.results)


def fixed_gates(evidence: Evidence) -> tuple[Aspect, ...]:
    """C31."""
    checks: list[Check] = []
    for level in levels(evidence):
        pair = difference(level.runs["M3"], level.runs["M2"], level.results)
        figure = printed_difference(level.printed("M3"), level.printed("M2"))
        made = is_within(level.part.data, level.where, pair, -RANDOM_LABELS_COST, printed=figure)
        checks += level.telling(made, "M3 upstream")
    return (Aspect("M3 - M2", tuple(checks)),)


def free_gates(evidence: Evidence) -> tuple[Aspect, ...]:
    """C32."""
    same: list[Check] = []
    below: list[Check] = []
    fixed: list[Check] = []
    for level in levels(evidence):
        if level.noise == 0:
            continue
        data, results = level.part.data, level.results
        pair = difference(level.runs["M5"], level.runs["M4"], results)
        figure = printed_difference(level.printed("M5"), level.printed("M4"))
        same += level.telling(is_within(data, level.where, pair, -SAME_GATES, SAME_GATES, figure))
        if level.clean:
            figure = printed_difference(level.printed("M2", 0.0), level.printed("M4"))
            pair = difference(level.clean["M2"], level.runs["M4"], results)
            below += level.telling(is_above(data, level.where, pair, figure))
            figure = printed_difference(level.printed("M3", 0.0), level.printed("M4"))
            pair = difference(level.clean["M3"], level.runs["M4"], results)
            fixed += level.telling(is_above(data, level.where, pair, figure))
    return (
        Aspect("M5 - M4", tuple(same)),
        Aspect("M2 without noise - M4", tuple(below)),
        Aspect("M3 without noise - M4", tuple(fixed)),
    )


def rise_and_fall(evidence: Evidence) -> tuple[Aspect, ...]:
    """C33: the best epoch of M1 against its last, and M2 against the last of M1."""
    falls: list[Check] = []
    gates: list[Check] = []
    for level in levels(evidence):
        if level.noise == 0:
            continue
        data, m1, results = level.part.data, level.runs["M1"], level.results
        figure = printed_difference(level.printed("M1 best"), level.printed("M1 end"))
        pair = difference(m1, m1, results, "best", "last")
        falls += level.telling(is_above(data, level.where, pair, figure, PEAK))
        figure = printed_difference(level.printed("M2"), level.printed("M1 end"))
        pair = difference(level.runs["M2"], m1, results, "best", "last")
        gates += level.telling(is_above(data, level.where, pair, figure, FAR_ABOVE))
    return (Aspect("M1, peak - end", tuple(falls)), Aspect("M2 - end of M1", tuple(gates)))
