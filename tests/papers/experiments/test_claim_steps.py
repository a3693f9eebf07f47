"""C15 is judged by steps: standard errors for every decision, and runs that never get there count as such."""

import math
from dataclasses import replace

import pytest

from neuralpath.papers.claims.every_claim import CLAIMS
from neuralpath.papers.claims.judging import judge
from neuralpath.papers.claims.steps import Steps, takes_fewer
from neuralpath.papers.experiments.random_labels import Memorize
from neuralpath.papers.experiments.specs import DataSpec
from papers.experiments import claim_results as made_up
from papers.experiments.claim_results import evidence
from papers.experiments.serial import run_tasks

(C15,) = (claim for claim in CLAIMS if claim.number == "C15")


def steps(*counts, never=()):
    return Steps(dict(enumerate(counts)), frozenset(never))


def check(first, second):
    (made,) = takes_fewer("here", first, second)
    return made


def test_steps_of_runs():
    runs = {
        0: {"diverged": False, "reached": {"0.5": 3, "0.1": 7}},
        1: {"diverged": False, "reached": {"0.5": 30, "0.1": None}},
        2: {"diverged": True, "reached": {"0.5": 3, "0.1": 9}},  # what blows up has learnt nothing
    }
    found = Steps.to(0.1, runs, 40)
    assert found == Steps({0: 7, 1: 40, 2: 40}, frozenset({1, 2}))
    assert found.told((0, 1, 2)) == "7, > 40, > 40"
    assert found.mean == pytest.approx(math.log(7 * 40 * 40) / 3)


def test_steps_of_real_runs(tmp_path):
    short, long = (Memorize(DataSpec("digits"), "sphere", 10, 64, 2, n_steps_trained=n, lr=0.1) for n in (2, 120))
    for task, is_there in ((short, False), (long, True)):
        result = run_tasks((task,), tmp_path / str(task.n_steps_trained))[task]
        found = Steps.to(0.1, {0: result}, task.n_steps_trained)
        assert (found.unfinished == frozenset()) == is_there
        assert 1 <= found.counts[0] <= task.n_steps_trained
        if is_there:
            before = [e for m, e in zip(result["moments"], result["errors"], strict=True) if m < found.counts[0]]
            after = [e for m, e in zip(result["moments"], result["errors"], strict=True) if m >= found.counts[0]]
            assert min(before) > 0.1 >= max(after)


def test_fewer_steps_in_both_directions():
    made = check(steps(9, 8, 9), steps(13, 13, 13))
    assert made.outcome == "yes"
    assert made.ours == "13, 13, 13 to 9, 8, 9, log ratio -0.407 ± 0.039 (3 seeds)"
    assert made.value == pytest.approx((9 * 8 * 9 / 13**3) ** (1 / 3))
    assert made.value_is == "a factor of"
    assert check(steps(86, 80, 94), steps(66, 67, 59)).outcome == "no"
    assert check(steps(24, 25, 22), steps(23, 22, 21)).outcome == "doubtful"
    assert check(steps(9), steps(13)).aside == "1 seed of the 3 that are needed"
    assert takes_fewer("here", Steps({0: 3}, frozenset()), Steps({1: 3}, frozenset())) == ()


def test_whole_steps_have_an_error_of_their_own():
    alike = check(steps(6, 6, 6), steps(7, 7, 7))  # which have no spread at all
    error = math.sqrt((1 / 6**2 + 1 / 7**2) / 12 / 3)
    assert alike.ours == f"7, 7, 7 to 6, 6, 6, log ratio -0.154 ± {error:.2g} (3 seeds)"
    assert alike.outcome == ("yes" if math.log(7 / 6) > 3 * error else "open")
    assert check(steps(2, 2, 2), steps(3, 3, 3)).outcome == "yes"
    assert check(steps(19, 19, 19), steps(20, 20, 20)).outcome == "yes"
    assert check(steps(4, 4, 4), steps(4, 4, 4)).outcome == "open"


def test_runs_that_never_get_there_are_bounds():
    slower = check(steps(38, 58, 34), steps(500, 500, 500, never=(0, 1, 2)))
    assert slower.outcome == "yes"  # more steps would only say the same
    assert slower.ours == "> 500, > 500, > 500 to 38, 58, 34, log ratio -2.47 ± 0.16 or less (3 seeds)"
    faster = check(steps(500, 300, 320, never=(0,)), steps(900, 920, 910))
    assert faster.outcome == "open"  # the first run of the faster case could take a thousand
    assert "or more" in faster.ours
    against = check(steps(500, 480, 500, never=(0, 2)), steps(100, 110, 105))
    assert against.outcome == "no"
    unknown = check(steps(300, 310, 290), steps(100, 100, 110, never=(0,)))
    assert unknown.outcome == "open"
    nothing = check(steps(500, 500, 500, never=(0, 1, 2)), steps(500, 500, 500, never=(0, 1, 2)))
    assert nothing.outcome == "open"
    assert " or " not in nothing.ours


def outcomes(count, **options):
    judged = judge(C15, evidence("memorization", made_up.memorised(count, **options)))
    return [{check.outcome for check in aspect.checks} for aspect in judged.aspects]


def test_every_decision_has_a_standard_error():
    judged = judge(C15, evidence("memorization", made_up.memorised(lambda w, d: 10 * d)))
    helps, hurts = (aspect.checks for aspect in judged.aspects)
    assert len(helps) == len(hurts) == 6
    assert all("log ratio" in made.ours and "±" in made.ours for made in (*helps, *hurts))
    assert {made.outcome for made in helps} == {"no"}
    assert helps[0].where == "images w = 25, d = 2 to 3"
    assert hurts[0].where == "images w = 25, d = 20 to 2"


def test_the_least_depth_is_no_worse_by_chance():
    def made(task):
        result = made_up.memorised(lambda w, d: 50 if d == 2 else 54)(task)
        if isinstance(task, Memorize) and task.depth > 2:  # each seed has another depth that is faster
            result["reached"]["0.1"] += (-14, 12, 5)[(task.seed + task.depth) % 3]
        return result

    judged = judge(C15, evidence("memorization", made))
    assert "no" not in judged.aspects[0].outcomes


def test_no_largest_depth_can_say_no():
    assert outcomes(lambda w, d: 1000 / d) == [{"yes"}, {"open"}]
    assert outcomes(lambda w, d: 40 + 30 * math.log2(d / 4) ** 2) == [{"yes"}, {"yes"}]


def test_errors_that_are_left_decide_nothing():
    """They are down to rounding, and rise with depth in the results that are made up."""
    assert outcomes(lambda w, d: 50) == [{"open"}, {"open"}]


def test_too_few_depths_or_seeds():
    from neuralpath.papers.experiments.registry import get

    config = get("memorization").presets["cpu"]
    for changed in (replace(config, depths=(2, 20)), replace(config, seeds=(0, 1))):
        judged = judge(C15, evidence("memorization", made_up.memorised(lambda w, d: 10 * d), config=changed))
        assert judged.verdict == "not tested here"
