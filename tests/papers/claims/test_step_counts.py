"""C15 compares steps: an interval for every comparison, and runs that never finish count as lower bounds."""

import math
from dataclasses import replace

import pytest
from scipy import stats

from neuralpath.papers.claims.fitting_claims import StepCounts, c15, takes_fewer
from neuralpath.papers.experiments.random_labels import Memorize
from neuralpath.papers.experiments.specs import DataSpec
from papers.claims import made_up_results as made_up
from papers.claims.made_up_results import records
from papers.experiments.serial import run_tasks


def steps(*counts, never=()):
    return StepCounts(dict(enumerate(counts)), frozenset(never))


def check(first, second):
    (made,) = takes_fewer("here", first, second)
    return made


def test_steps_of_runs():
    runs = {
        0: {"diverged": False, "reached": {"0.5": 3, "0.1": 7}},
        1: {"diverged": False, "reached": {"0.5": 30, "0.1": None}},
        2: {"diverged": True, "reached": {"0.5": 3, "0.1": 9}},  # what blows up has learnt nothing
    }
    found = StepCounts.to(0.1, runs, 40)
    assert found == StepCounts({0: 7, 1: 40, 2: 40}, frozenset({1, 2}))
    assert found.listed((0, 1, 2)) == "7, > 40, > 40"
    assert found.mean == pytest.approx(math.log(7 * 40 * 40) / 3)


def test_steps_of_real_runs(tmp_path):
    short, long = (Memorize(DataSpec("digits"), "sphere", 10, 64, 2, n_steps_trained=n, lr=0.1) for n in (2, 120))
    for task, is_there in ((short, False), (long, True)):
        result = run_tasks((task,), tmp_path / str(task.n_steps_trained))[task]
        found = StepCounts.to(0.1, {0: result}, task.n_steps_trained)
        assert (found.unfinished == frozenset()) == is_there
        assert 1 <= found.counts[0] <= task.n_steps_trained
        if is_there:
            before = [e for m, e in zip(result["moments"], result["errors"], strict=True) if m < found.counts[0]]
            after = [e for m, e in zip(result["moments"], result["errors"], strict=True) if m >= found.counts[0]]
            assert min(before) > 0.1 >= max(after)


def test_fewer_steps_in_both_directions():
    made = check(steps(9, 8, 9), steps(13, 13, 13))
    assert made.outcome == "supports"
    assert made.ours == "13, 13, 13 to 9, 8, 9, ratio 0.666 [0.562, 0.788] (3 seeds)"
    assert made.value == pytest.approx((9 * 8 * 9 / 13**3) ** (1 / 3))
    assert made.unit == "a factor of"
    assert check(steps(86, 80, 94), steps(66, 67, 59)).outcome == "contradicts"
    assert check(steps(24, 25, 22), steps(23, 22, 21)).outcome == "doubtful"
    assert check(steps(9), steps(13)).excluded == "1 seed of the 3 that are needed"
    assert takes_fewer("here", StepCounts({0: 3}, frozenset()), StepCounts({1: 3}, frozenset())) == []


def test_whole_steps_have_an_error_of_their_own():
    alike = check(steps(6, 6, 6), steps(7, 7, 7))  # which have no spread at all
    error = math.sqrt((1 / 6**2 + 1 / 7**2) / 12 / 3)
    half = float(stats.t.ppf(0.975, 2)) * error
    ends = f"[{6 / 7 * math.exp(-half):.3g}, {6 / 7 * math.exp(half):.3g}]"
    assert alike.ours == f"7, 7, 7 to 6, 6, 6, ratio 0.857 {ends} (3 seeds)"
    assert alike.outcome == ("supports" if math.log(7 / 6) > 3 * error else "inconclusive")
    assert check(steps(2, 2, 2), steps(3, 3, 3)).outcome == "supports"
    assert check(steps(19, 19, 19), steps(20, 20, 20)).outcome == "supports"
    assert check(steps(4, 4, 4), steps(4, 4, 4)).outcome == "inconclusive"


def test_runs_that_never_get_there_are_bounds():
    slower = check(steps(38, 58, 34), steps(500, 500, 500, never=(0, 1, 2)))
    assert slower.outcome == "supports"  # more steps would only say the same
    assert slower.ours.startswith("> 500, > 500, > 500 to 38, 58, 34, ratio 0.0843 [")
    assert slower.ours.endswith("] or less (3 seeds)")
    faster = check(steps(500, 300, 320, never=(0,)), steps(900, 920, 910))
    assert faster.outcome == "inconclusive"  # the first run of the faster case could take a thousand
    assert "or more" in faster.ours
    against = check(steps(500, 480, 500, never=(0, 2)), steps(100, 110, 105))
    assert against.outcome == "contradicts"
    unknown = check(steps(300, 310, 290), steps(100, 100, 110, never=(0,)))
    assert unknown.outcome == "inconclusive"
    nothing = check(steps(500, 500, 500, never=(0, 1, 2)), steps(500, 500, 500, never=(0, 1, 2)))
    assert nothing.outcome == "inconclusive"
    assert " or " not in nothing.ours


def outcomes(count, **options):
    judged = c15(records("memorization", made_up.memorized(count, **options)))
    return [{check.outcome for check in part} for part in judged.parts.values()]


def test_every_comparison_has_an_interval():
    judged = c15(records("memorization", made_up.memorized(lambda w, d: 10 * d)))
    helps, hurts = judged.parts.values()
    assert len(helps) == len(hurts) == 6
    assert all("ratio" in made.ours and "[" in made.ours for made in (*helps, *hurts))
    assert {made.outcome for made in helps} == {"contradicts"}
    assert helps[0].where == "images w = 25, d = 2 to 3"
    assert hurts[0].where == "images w = 25, d = 20 to 2"


def test_the_least_depth_is_no_worse_by_chance():
    def made(task):
        result = made_up.memorized(lambda w, d: 50 if d == 2 else 54)(task)
        if isinstance(task, Memorize) and task.depth > 2:  # each seed has another depth that is faster
            result["reached"]["0.1"] += (-14, 12, 5)[(task.seed + task.depth) % 3]
        return result

    judged = c15(records("memorization", made))
    assert "contradicts" not in {check.outcome for check in next(iter(judged.parts.values()))}


def test_no_largest_depth_can_say_no():
    assert outcomes(lambda w, d: 1000 / d) == [{"supports"}, {"inconclusive"}]
    assert outcomes(lambda w, d: 40 + 30 * math.log2(d / 4) ** 2) == [{"supports"}, {"supports"}]


def test_errors_that_are_left_decide_nothing():
    """They are down to rounding, and rise with depth in the results that are made up."""
    assert outcomes(lambda w, d: 50) == [{"inconclusive"}, {"inconclusive"}]


def test_too_few_depths_or_seeds():
    from neuralpath.papers.experiments.registry import get

    config = get("memorization").presets["cpu"]
    for changed in (replace(config, depths=(2, 20)), replace(config, seeds=(0, 1))):
        judged = c15(records("memorization", made_up.memorized(lambda w, d: 10 * d), config=changed))
        assert judged.verdict == "not tested here"
