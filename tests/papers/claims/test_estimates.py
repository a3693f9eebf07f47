"""Intervals, outcomes of comparisons and verdicts."""

import math

import pytest
import torch

from neuralpath.papers.claims.estimates import Comparison, Gap, above, false_alarms, interval, too_few, within
from neuralpath.papers.claims.rows import verdict_of
from neuralpath.papers.experiments.specs import DataSpec
from neuralpath.papers.experiments.statistics import Spread


def test_bounds_are_kept_broken_or_open():
    assert within(Spread.of([-0.8, -0.9, -0.7]), -1, 1) == "supports"
    assert within(Spread.of([-0.9, -1.1, -0.9]), -1, 1) == "inconclusive"  # by less than a standard error
    assert within(Spread(-0.97, None, 0.84, 3), -1, 1) == "inconclusive"
    assert within(Spread(0.97, None, 0.02, 3), -1, 1) == "supports"
    assert within(Spread.of([-1.5, -1.6, -1.4]), -1, 1) == "contradicts"
    assert within(Spread.of([-0.1, -1.5, -2.0]), -1, 1) == "inconclusive"
    assert within(Spread(-1.5, None, 0.4, 3), -1, 1) == "doubtful"  # outside by more than a standard error
    assert within(Spread.of([-2.9]), -1, float("inf"), single=0.7) == "doubtful"
    assert within(Spread.of([-1.6]), -1, float("inf"), single=0.7) == "inconclusive"
    assert within(Spread.of([-9.0]), -1, 1) == "inconclusive"  # one value has no error of its own
    assert within(Spread.of([-9.0]), -1, 1, single=0.7) == "contradicts"
    assert within(Spread.of([0.0]), -0.5, 0.5, single=0.7) == "inconclusive"  # one run could not tell
    assert within(Spread.of([0.0]), -1, float("inf"), single=0.7) == "supports"
    assert within(Spread.of([5.0, -5.0]), -1, float("inf")) == "inconclusive"
    assert within(Spread.of([0.3]), 0, float("inf"), single=0.7) == "inconclusive"


def test_differences_are_there_absent_or_open():
    assert above(Spread.of([1.0, 1.1, 0.9])) == "supports"
    assert above(Spread.of([-1.0, -1.1, -0.9])) == "contradicts"
    assert above(Spread.of([-1.0, 1.1, 0.9])) == "inconclusive"
    assert above(Spread.of([0.01, -0.01, 0.0]), named=0.3) == "contradicts"  # too small to be named, for certain
    assert above(Spread.of([2.0]), single=0.7) == "inconclusive"
    assert above(Spread.of([2.2]), single=0.7) == "supports"
    assert above(Spread.of([-0.6]), single=0.7) == "inconclusive"
    assert above(Spread.of([-0.8]), single=0.7) == "doubtful"


def test_above_a_floor_nothing_more_is_asked_for():
    assert above(Spread.of([5.20, 5.02, 5.11]), 5.0, named=0.3) == "inconclusive"
    assert above(Spread.of([5.20, 5.10, 5.15]), 5.0, named=0.3) == "supports"
    assert above(Spread.of([4.80, 4.90, 4.85]), 5.0, named=0.3) == "contradicts"
    accuracies = dict(enumerate((55.20, 55.02, 55.11)))
    gap = Gap.between(DataSpec("mnist"), "here", accuracies, dict.fromkeys(range(3), 50.0))
    assert [one.outcome for one in gap.above(5.0)] == ["inconclusive"]


def test_what_standard_errors_of_few_seeds_mean():
    for sigmas in (1.0, 3.0):  # the tails of Student's distribution have closed forms for 1 and 2 degrees of freedom
        assert false_alarms(sigmas, 2) == pytest.approx(1 - 2 / math.pi * math.atan(sigmas), rel=1e-9)
        assert false_alarms(sigmas, 3) == pytest.approx(1 - sigmas / math.sqrt(2 + sigmas**2), rel=1e-9)
    assert false_alarms(3.0, 10_000) == pytest.approx(math.erfc(3 / math.sqrt(2)), rel=1e-2)


def test_intervals_by_closed_forms():
    # Student's t has closed forms: tan(pi (p - 1/2)) for 1 degree of freedom, (2p - 1) / sqrt(2p (1 - p)) for 2.
    for values, quantile in (
        ([1.0, 2.0], math.tan(math.pi * 0.475)),
        ([1.0, 2.0, 6.0], 0.95 / math.sqrt(2 * 0.975 * 0.025)),
    ):
        estimate = Spread.of(values)
        low, high = interval(estimate)
        assert (low + high) / 2 == pytest.approx(estimate.mean)
        assert (high - low) / 2 == pytest.approx(quantile * estimate.error, rel=1e-9)
    assert interval(Spread.of([1.0])) is None


def test_intervals_cover_the_truth_in_95_per_cent_of_samples():
    draws = torch.randn(2000, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    hits = sum(low <= 0 <= high for low, high in (interval(Spread.of(row)) for row in draws.tolist()))
    assert abs(hits / 2000 - 0.95) < 5 * math.sqrt(0.95 * 0.05 / 2000)


def test_seeds_that_are_needed():
    mnist, cifar = (DataSpec(name) for name in ("mnist", "cifar10"))
    assert too_few(mnist, 2) == "2 seeds of the 3 that are needed"
    assert too_few(mnist, 3) == too_few(cifar, 1) == ""
    assert too_few(None, 1) == "1 seed of the 3 that are needed"
    assert too_few(cifar, 5, least=6, noun="order") == "5 orders of the 6 that are needed"


def _part(*outcomes, excluded=""):
    return tuple(Comparison("here", "1", outcome, excluded=excluded) for outcome in outcomes)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((_part("supports", "supports"), _part("supports", "inconclusive")), "holds"),
        ((_part("supports"), _part("supports", "doubtful")), "holds in part"),
        ((_part("supports"), _part("doubtful")), "holds in part"),
        (
            (
                _part("supports", "supports"),
                (Comparison("here", "1", "supports"), Comparison("here", "1", "doubtful", excluded="1 seed")),
            ),
            "holds",
        ),
        ((_part("contradicts"), _part("contradicts", "doubtful")), "does not hold"),
        ((_part("doubtful"),), "not tested here"),
        ((_part("contradicts"), _part("contradicts", "inconclusive")), "does not hold"),
        ((_part("supports", "contradicts"),), "holds in part"),
        ((_part("supports"), _part("contradicts")), "holds in part"),
        ((_part("supports"), _part()), "holds in part"),
        ((_part("supports"), _part("inconclusive")), "holds in part"),
        ((_part("inconclusive"), _part()), "not tested here"),
        ((_part("contradicts"), _part()), "not tested here"),  # what is missing could say yes
        ((_part("contradicts"), _part("inconclusive")), "not tested here"),
        ((_part("contradicts"), _part("supports"), _part()), "holds in part"),
        ((_part("supports", excluded="1 seed"),), "not tested here"),
        ((), "not tested here"),
    ],
)
def test_four_verdicts(parts, expected):
    assert verdict_of(parts) == expected
    lowered = {"holds": "holds in part", "does not hold": "not tested here"}
    assert verdict_of(parts, is_finished=False) == lowered.get(expected, expected)
