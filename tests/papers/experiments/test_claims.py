"""Every claim has a rule, each rule says yes and no where it must, and tables are made of verdicts."""

import ast
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from neuralpath.cli import main
from neuralpath.papers.claims import rules
from neuralpath.papers.claims.checks import Aspect, Check, Claim
from neuralpath.papers.claims.compared import is_above
from neuralpath.papers.claims.costs import Costs
from neuralpath.papers.claims.every_claim import CLAIMS
from neuralpath.papers.claims.evidence import Evidence, gather
from neuralpath.papers.claims.judging import _cell, _untested, claim_verdicts, judge, judge_all
from neuralpath.papers.claims.markdown import claims_markdown, summary
from neuralpath.papers.experiments import Sweep
from neuralpath.papers.experiments.registry import NAMES, get
from neuralpath.papers.experiments.specs import DataSpec
from neuralpath.papers.experiments.statistics import Spread, paired
from neuralpath.papers.experiments.trained import TrainGated, TrainNetwork
from neuralpath.papers.runs.store import Store
from neuralpath.papers.runs.task import with_dependencies
from papers.experiments import claim_results as made_up
from papers.experiments.claim_results import accuracies, evidence
from papers.experiments.serial import run_tasks

ROOT = Path(__file__).parents[3]
BY_NUMBER = {claim.number: claim for claim in CLAIMS}


def verdict(number, found):
    return judge(BY_NUMBER[number], found).verdict


# --- the list


def test_there_is_a_row_for_every_claim():
    assert [claim.number for claim in CLAIMS] == [f"C{number}" for number in range(1, 39)]
    assert {name for claim in CLAIMS for name in claim.experiments} == set(NAMES)


def test_every_test_that_settles_a_claim_exists():
    for claim in CLAIMS:
        for named in claim.exact.tests if claim.exact else ():
            path, _, function = named.partition("::")
            tree = ast.parse((ROOT / path).read_text())
            assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, named


def test_a_claim_needs_a_way_to_be_judged():
    with pytest.raises(ValueError, match="C0: a claim is judged by tests or by runs"):
        Claim("C0", "nothing", "nowhere")
    with pytest.raises(ValueError, match="go together"):
        Claim("C0", "nothing", "nowhere", experiments=("regimes",))


# --- the rules


def test_bounds_are_kept_broken_or_open():
    assert rules.within(Spread.of([-0.8, -0.9, -0.7]), -1, 1) == "yes"
    assert rules.within(Spread.of([-0.9, -1.1, -0.9]), -1, 1) == "open"  # by less than a standard error
    assert rules.within(Spread(-0.97, None, 0.84, 3), -1, 1) == "open"
    assert rules.within(Spread(0.97, None, 0.02, 3), -1, 1) == "yes"
    assert rules.within(Spread.of([-1.5, -1.6, -1.4]), -1, 1) == "no"
    assert rules.within(Spread.of([-0.1, -1.5, -2.0]), -1, 1) == "open"
    assert rules.within(Spread(-1.5, None, 0.4, 3), -1, 1) == "doubtful"  # outside by more than a standard error
    assert rules.within(Spread.of([-2.9]), -1, float("inf"), single=0.7) == "doubtful"
    assert rules.within(Spread.of([-1.6]), -1, float("inf"), single=0.7) == "open"
    assert rules.within(Spread.of([-9.0]), -1, 1) == "open"  # one value has no error of its own
    assert rules.within(Spread.of([-9.0]), -1, 1, single=0.7) == "no"
    assert rules.within(Spread.of([0.0]), -0.5, 0.5, single=0.7) == "open"  # one run could not tell
    assert rules.within(Spread.of([0.0]), -1, float("inf"), single=0.7) == "yes"
    assert rules.within(Spread.of([5.0, -5.0]), -1, float("inf")) == "open"
    assert rules.within(Spread.of([0.3]), 0, float("inf"), single=0.7) == "open"


def test_differences_are_there_absent_or_open():
    assert rules.above(Spread.of([1.0, 1.1, 0.9])) == "yes"
    assert rules.above(Spread.of([-1.0, -1.1, -0.9])) == "no"
    assert rules.above(Spread.of([-1.0, 1.1, 0.9])) == "open"
    assert rules.above(Spread.of([0.01, -0.01, 0.0]), named=0.3) == "no"  # too small to be named, for certain
    assert rules.above(Spread.of([2.0]), single=0.7) == "open"
    assert rules.above(Spread.of([2.2]), single=0.7) == "yes"
    assert rules.above(Spread.of([-0.6]), single=0.7) == "open"
    assert rules.above(Spread.of([-0.8]), single=0.7) == "doubtful"


def test_above_a_floor_nothing_more_is_asked_for():
    assert rules.above(Spread.of([5.20, 5.02, 5.11]), 5.0, named=0.3) == "open"
    assert rules.above(Spread.of([5.20, 5.10, 5.15]), 5.0, named=0.3) == "yes"
    assert rules.above(Spread.of([4.80, 4.90, 4.85]), 5.0, named=0.3) == "no"
    found = paired(dict(enumerate((55.20, 55.02, 55.11))), dict.fromkeys(range(3), 50.0))
    assert [check.outcome for check in is_above(DataSpec("mnist"), "here", found, floor=5.0)] == ["open"]


def test_what_standard_errors_of_few_seeds_mean():
    for sigmas in (1.0, 3.0):  # the tails of Student's distribution have closed forms for 1 and 2 degrees of freedom
        assert rules.chance_of(sigmas, 2) == pytest.approx(1 - 2 / math.pi * math.atan(sigmas), rel=1e-9)
        assert rules.chance_of(sigmas, 3) == pytest.approx(1 - sigmas / math.sqrt(2 + sigmas**2), rel=1e-9)
    assert rules.chance_of(3.0, 10_000) == pytest.approx(math.erfc(3 / math.sqrt(2)), rel=1e-2)
    head = claims_markdown((), evidence("regimes", accuracies())).partition("| number")[0]
    assert "chance alone gives as much, up or down, in 9.5 % of\n  checks, with many seeds in 0.3 %." in head
    assert "rule chance out" not in head


def test_seeds_that_are_needed():
    mnist, cifar = (DataSpec(name) for name in ("mnist", "cifar10"))
    assert rules.too_few(mnist, 2) == "2 seeds of the 3 that are needed"
    assert rules.too_few(mnist, 3) == rules.too_few(cifar, 1) == ""
    assert rules.too_few(None, 1) == "1 seed of the 3 that are needed"
    assert rules.too_few(cifar, 5, least=6, what="order") == "5 orders of the 6 that are needed"


def _aspect(*outcomes, aside=""):
    return Aspect("part", tuple(Check("here", "1", outcome, aside=aside) for outcome in outcomes))


@pytest.mark.parametrize(
    ("aspects", "expected"),
    [
        ((_aspect("yes", "yes"), _aspect("yes", "open")), "holds"),
        ((_aspect("yes"), _aspect("yes", "doubtful")), "holds in part"),
        ((_aspect("yes"), _aspect("doubtful")), "holds in part"),
        (
            (
                _aspect("yes", "yes"),
                Aspect("part", (Check("here", "1", "yes"), Check("here", "1", "doubtful", aside="1 seed"))),
            ),
            "holds",
        ),
        ((_aspect("no"), _aspect("no", "doubtful")), "does not hold"),
        ((_aspect("doubtful"),), "not tested here"),
        ((_aspect("no"), _aspect("no", "open")), "does not hold"),
        ((_aspect("yes", "no"),), "holds in part"),
        ((_aspect("yes"), _aspect("no")), "holds in part"),
        ((_aspect("yes"), _aspect()), "holds in part"),
        ((_aspect("yes"), _aspect("open")), "holds in part"),
        ((_aspect("open"), _aspect()), "not tested here"),
        ((_aspect("no"), _aspect()), "not tested here"),  # what is missing could say yes
        ((_aspect("no"), _aspect("open")), "not tested here"),
        ((_aspect("no"), _aspect("yes"), _aspect()), "holds in part"),
        ((_aspect("yes", aside="1 seed"),), "not tested here"),
        ((), "not tested here"),
    ],
)
def test_four_verdicts(aspects, expected):
    assert rules.verdict_of(aspects) == expected
    lowered = {"holds": "holds in part", "does not hold": "not tested here"}
    assert rules.verdict_of(aspects, is_finished=False) == lowered.get(expected, expected)


# --- each claim in both directions


def _regimes(changes=None, **options):
    return evidence("regimes", accuracies(changes, **options))


def _kernels(accuracy):
    return evidence("kernels", made_up.regressions({"linear": 50.0, "path": 60.0, "limit-path": 60.0, **accuracy}))


_GOOD_KERNELS = {"limit-tangent": 75.0, "ReLU": 80.0, "FL": 79.0, "FR-II": 67.0}


def _noise(values):
    config = made_up.only_part("label-noise", "mnist-fc")
    return evidence("label-noise", made_up.noisy(config.chosen[0], values), config=config)


def _models(**changes):
    usual = {"M1": (75.0, 45.0), "M2": 70.0, "M3 upstream": 10.0, "M3": 69.0, "M4": 73.0, "M5": 73.2}
    values = usual | changes
    # Without noise all that is trained on true labels is ten points better.
    return lambda model, noise: values[model] + 10.0 if noise == 0 and model in ("M2", "M3") else values[model]


def _memorised(**options):
    # Deeper helps up to 4 layers, and then hurts.
    return evidence("memorization", made_up.memorised(lambda w, d: 40 + 30 * math.log2(d / 4) ** 2, **options))


def _theorem(distance=lambda task: (task.depth / task.width) ** 0.5, **options):
    return evidence("theorem", made_up.drawn(distance, **options))


CASES = {
    "C2 holds": ("C2", lambda: _memorised(), "holds"),
    "C2 is broken": ("C2", lambda: _memorised(losses=(1.0, 0.0)), "holds in part"),
    "C4 holds": ("C4", lambda: _theorem(), "holds"),
    "C4 with draws that stay away": ("C4", lambda: _theorem(lambda task: 0.3), "holds in part"),
    "C4 with another mean": ("C4", lambda: _theorem(off=20.0), "holds in part"),
    "C6 holds": ("C6", lambda: evidence("kernel-parts", made_up.parts(2.0)), "holds"),
    "C6 with a cross part": ("C6", lambda: evidence("kernel-parts", made_up.parts(2.0, cross=1e-9)), "holds in part"),
    "C6 with a feature part": ("C6", lambda: evidence("kernel-parts", made_up.parts(2.0, fixed=1e-9)), "holds in part"),
    "C8 holds": ("C8", lambda: _regimes(), "holds"),
    "C8 with gates as good as any": ("C8", lambda: _regimes({"FR-II": 81.0}), "holds in part"),
    "C8 with useless gates": ("C8", lambda: _regimes({"FR-II": 12.0}), "holds in part"),
    "C8 with gates far from good": ("C8", lambda: _regimes({"FR-II": 35.0}), "holds"),
    "C9 holds": ("C9", lambda: _regimes(), "holds"),
    "C9 two points off": ("C9", lambda: _regimes({"FL": 70.0}), "does not hold"),
    "C9 on MNIST only": (
        "C9", lambda: _regimes({"FL": 70.0}, where=lambda task: task.data.name == "cifar10"), "holds in part"),
    "C10 holds": ("C10", lambda: _regimes(), "holds"),
    "C10 apart": ("C10", lambda: _regimes({"FR-DI": 60.0}), "does not hold"),
    "C14 holds": ("C14", lambda: _regimes(), "holds"),
    "C14 with gates that are better": ("C14", lambda: _regimes({"random-labels": 70.0, "random-pixels": 71.0}),
                                       "does not hold"),
    "C14 with pixels only": ("C14", lambda: _regimes({"random-labels": 70.0}), "holds in part"),
    "C14 without fitting": ("C14", lambda: _regimes(fitted=89.0), "not tested here"),
    "C15 holds": ("C15", lambda: _memorised(), "holds"),
    "C15 where depth only hurts": (
        "C15", lambda: evidence("memorization", made_up.memorised(lambda w, d: 10 * d)), "holds in part"),
    "C15 where runs diverge beyond a point": (
        "C15", lambda: evidence("memorization", made_up.memorised(
            lambda w, d: 200 / d if d < 12 else None, diverged=True)), "holds"),
    "C15 where no depth is too much": (
        "C15", lambda: evidence("memorization", made_up.memorised(lambda w, d: 1000 / d)), "holds in part"),
    "C15 where only the best depth gets there": (
        "C15", lambda: evidence("memorization", made_up.memorised(lambda w, d: 300 if d == 6 else None)), "holds"),
    "C15 where depths differ by rounding only": (
        "C15", lambda: evidence("memorization", made_up.memorised(lambda w, d: 50)), "not tested here"),
    "C15 where no run gets there": (
        "C15", lambda: evidence("memorization", made_up.memorised(lambda w, d: None)), "not tested here"),
    "C16 holds": ("C16", lambda: _memorised(), "holds"),
    "C16 off the product": ("C16", lambda: _memorised(ratio=1.5), "holds in part"),
    "C16 off the diagonal": ("C16", lambda: _memorised(diagonal=1.2), "holds in part"),
    "C17 holds": ("C17", lambda: _theorem(), "holds"),
    "C17 far from the limit": ("C17", lambda: _theorem(approach=lambda task: 0.4), "holds in part"),
    "C22 holds": ("C22", lambda: _theorem(), "holds"),
    "C22 with draws that go away": ("C22", lambda: _theorem(lambda task: task.width / 1e4), "holds in part"),
    "C27 holds": ("C27", lambda: _regimes(), "holds"),
    "C27 five points off": ("C27", lambda: _regimes({"DL": 75.0}), "does not hold"),
    "C12 holds": ("C12", lambda: evidence("label-energy", made_up.energies(10.0, 3.0)), "holds"),
    "C12 rises": ("C12", lambda: evidence("label-energy", made_up.energies(3.0, 10.0)), "does not hold"),
    "C13 holds": ("C13", lambda: evidence("kernel-parts", made_up.parts(0.2)), "holds"),
    "C13 of other scales": ("C13", lambda: evidence("kernel-parts", made_up.parts(0.01)), "does not hold"),
    "C25 holds": ("C25", lambda: evidence("hidden-outputs", accuracies()), "holds"),
    "C25 loses": ("C25", lambda: evidence("hidden-outputs", accuracies({"FL": 70.0})), "does not hold"),
    "C26 holds": ("C26", lambda: made_up.together(_kernels(_GOOD_KERNELS), _regimes()), "holds"),
    "C26 with a better CNTK": (
        "C26", lambda: made_up.together(_kernels({**_GOOD_KERNELS, "limit-tangent": 85.0}), _regimes()),
        "holds in part"),
    "C26 upside down": ("C26", lambda: made_up.together(
        _kernels({**_GOOD_KERNELS, "FL": 60.0, "FR-II": 90.0}), _regimes({"FR-II": 85.0})), "does not hold"),
    "C26 without kernels": ("C26", lambda: _regimes(), "holds in part"),
    "C28 holds": ("C28", lambda: evidence("residual", accuracies({"FL": 79.9})), "holds"),
    "C28 without recovery": ("C28", lambda: evidence("residual", accuracies({"FL": 75.0})), "holds in part"),
    "C28 turned round": ("C28", lambda: evidence("residual", accuracies({"DL": 60.0, "FR-II": 85.0})), "holds in part"),
    "C29 holds": ("C29", lambda: evidence("base-kernels", made_up.overlapping(lambda w: 0.45 / w**0.5)), "holds"),
    "C29 off the angle": ("C29", lambda: evidence("base-kernels", made_up.overlapping(lambda w: 0.2)), "holds in part"),
    "C29 with depth that does nothing": (
        "C29", lambda: evidence("base-kernels", made_up.overlapping(lambda w: 0.45 / w**0.5, last=0.3)),
        "holds in part"),
    "C31 holds": ("C31", lambda: _noise(_models()), "holds"),
    "C31 costs much": ("C31", lambda: _noise(_models(M3=60.0)), "does not hold"),
    "C32 holds": ("C32", lambda: _noise(_models()), "holds"),
    "C32 with damage elsewhere": ("C32", lambda: _noise(_models(M5=76.0)), "holds in part"),
    "C32 with fixed gates that cost as much": ("C32", lambda: _noise(_models(M3=63.0)), "holds in part"),
    "C32 without damage": ("C32", lambda: _noise(_models(M4=83.0, M5=85.0)), "does not hold"),
    "C33 holds": ("C33", lambda: _noise(_models()), "holds"),
    "C33 without a fall": ("C33", lambda: _noise(_models(M1=75.0)), "does not hold"),
    "C34 holds": ("C34", lambda: evidence("linear-gating", accuracies()), "holds"),
    "C34 loses": ("C34", lambda: evidence("linear-gating", accuracies({"DLGN": 70.0})), "does not hold"),
    "C35 holds": ("C35", lambda: _theorem(), "holds"),
    "C35 nearer the other": ("C35", lambda: _theorem(approach=lambda task: 0.9), "does not hold"),
    "C36 holds": ("C36", lambda: _theorem(), "holds"),
    "C36 falls too slowly": ("C36", lambda: _theorem(power=-0.1), "does not hold"),
    "C37 holds": ("C37", lambda: _kernels(_GOOD_KERNELS), "holds"),
    "C37 never comes near": ("C37", lambda: evidence("kernels", made_up.regressions(
        {"linear": 1.0, "path": 1.0, "limit-path": 1.0, **_GOOD_KERNELS}, lambda task: float(task.repeats), gap=20.0)),
        "does not hold"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_rules_say_yes_and_no(case):
    number, make, expected = CASES[case]
    judged = judge(BY_NUMBER[number], make())
    assert judged.verdict == expected, judged.aspects
    assert judged.differs == any(
        check.outcome in ("no", "doubtful") and not check.aside for aspect in judged.aspects for check in aspect.checks
    )


def test_every_rule_has_been_tried_in_both_directions():
    own = ("C11", "C23", "C24", "C30")  # with tests of their own
    for claim in CLAIMS:
        if claim.judge is not None and claim.number not in own:
            outcomes = {outcome for number, _, outcome in CASES.values() if number == claim.number}
            assert "holds" in outcomes, claim.number
            assert len(outcomes) > 1, claim.number


def test_what_is_in_doubt_is_named_and_keeps_a_claim_from_holding():
    """Learnt gates 2.5 points below one seed on CIFAR-10: too far for the claim, too little for one seed to refute."""
    found = _regimes({"FL": 77.5}, where=lambda task: task.data.name == "cifar10")
    judged = judge(BY_NUMBER["C9"], found)
    assert judged.verdict == "holds in part"
    assert judged.differs
    named = [check.where for check in judged.aspects[0].doubts]
    assert named
    assert f"In doubt, FL - ReLU: {', '.join(named)}." in judged.reason
    assert f", {len(named)} doubtful" in judged.row.ours
    assert "| doubtful |" in claims_markdown((judged,), found)


def test_stages_rise_and_the_cntk_lies_between():
    rising = made_up.by_stage(lambda stage: 70.0 + stage / 3)
    judged = judge(BY_NUMBER["C11"], evidence("stages", rising))
    assert judged.verdict == "holds in part"  # nothing to compare with on a narrow network
    assert "Not tested, FL from below the CNTK to above: the printed 77.43 %" in judged.reason
    config = replace(get("stages").presets["cpu"], cntk=75.0)
    assert verdict("C11", evidence("stages", rising, config=config)) == "holds"
    falling = made_up.by_stage(lambda stage: 80.0 - stage)
    judged = judge(BY_NUMBER["C11"], evidence("stages", falling))
    assert judged.verdict == "not tested here"  # the CNTK could still lie between
    assert judged.differs
    assert judged.reason.startswith("What was checked speaks against it; what was not could still speak for it.")
    assert verdict("C11", evidence("stages", falling, config=config)) == "does not hold"
    dip = made_up.by_stage(lambda stage: 60.0 if stage == 8 else 70.0 + stage / 3)
    judged = judge(BY_NUMBER["C11"], evidence("stages", dip))
    assert "Against it, FL, from stage to stage: cifar10 gconv-16-16-32-32, epoch 8 - 4." in judged.reason
    steps = {check.where.rpartition(", ")[2]: check.outcome for check in judged.aspects[1].checks}
    assert steps == {"epoch 2 - 1": "open", "epoch 4 - 2": "open", "epoch 8 - 4": "no", "epoch 16 - 8": "yes",
                     "epoch 30 - 16": "yes"}  # a third of a point is less than one seed tells  # fmt: skip
    paper = judge(BY_NUMBER["C11"], evidence("stages", rising, config=get("stages").presets["paper"]))
    assert paper.verdict == "holds"  # the papers' own network stands against the printed 77.43


def test_the_printed_rise_stands_beside_the_papers_own_stages_only():
    rising = made_up.by_stage(lambda stage: 70.0 + stage / 3)
    cpu, paper = (
        judge(BY_NUMBER["C11"], evidence("stages", rising, config=get("stages").presets[preset])).aspects[0].checks
        for preset in ("cpu", "paper")
    )
    assert [(check.where.partition(", ")[2], check.paper) for check in (*cpu, *paper)] == [
        ("epoch 30 - 1", ""), ("epoch 60 - 10", "+7.68"),
    ]  # fmt: skip


def _order_costs(points):
    return made_up.moved_gates(lambda task: points if task.gate_order == (3, 2, 1, 0) else 0.0)


def test_orders_that_matter_and_those_that_do_not():
    assert verdict("C23", evidence("gate-orders", _order_costs(0.0))) == "holds"
    judged = judge(BY_NUMBER["C23"], evidence("gate-orders", _order_costs(20.0)))
    assert judged.verdict == "holds in part"  # the exact part holds
    assert all("yes" not in aspect.outcomes for aspect in judged.aspects[1:])
    fc = made_up.only_part("gate-orders", "fc")
    assert verdict("C23", evidence("gate-orders", _order_costs(0.0), config=fc)) == "holds"
    some = evidence("gate-orders", _order_costs(20.0), config=fc,
                    keep=lambda task: getattr(task, "gate_order", None) in (None, (3, 2, 1, 0)))  # fmt: skip
    judged = judge(BY_NUMBER["C23"], some)
    assert "2 orders of the 6 that are needed" in judged.reason
    one = evidence("gate-orders", _order_costs(0.0), config=fc, keep=lambda task: task.seed == 0)
    assert all("over seeds 0.50 assumed of one)" in check.ours
               for aspect in judge(BY_NUMBER["C23"], one).aspects[1:5] for check in aspect.checks[:2])  # fmt: skip
    assert not any(aspect.outcomes for aspect in judged.aspects[1:])


def test_the_mean_of_both_inputs_stands_beside_the_papers_mean_of_both():
    dear = made_up.moved_gates(lambda task: 5.0 if task.value_input == "ones" else 0.0)
    fc = made_up.only_part("gate-orders", "fc")
    judged = judge(BY_NUMBER["C23"], evidence("gate-orders", dear, config=fc))
    for aspect, figure in zip(judged.aspects[1:5], (98.6, 94.1, 94.1, 98.1), strict=True):
        image, ones, both = aspect.checks
        assert (image.paper, image.printed, ones.paper, ones.printed) == ("", None, "", None)
        assert both.printed == figure
        assert both.value == pytest.approx((image.value + ones.value) / 2)
        assert float(both.difference) == pytest.approx(both.value - figure, abs=0.006)
        assert not both.decides
    # With an order that has one input only, the mean would be nearer to the other.
    half = evidence("gate-orders", dear, config=fc, keep=lambda task: not (
        getattr(task, "value_input", "") == "ones" and task.gate_order == (3, 2, 1, 0)))  # fmt: skip
    assert [len(aspect.checks) for aspect in judge(BY_NUMBER["C23"], half).aspects[1:5]] == [2] * 4


def test_orders_of_one_seed_are_compared_with_the_own_order_over_seeds():
    fc = made_up.only_part("gate-orders", "fc")
    moved = made_up.moved_gates(lambda task: 3.0 if task.gate_order else 0.0)
    judged = judge(BY_NUMBER["C23"], evidence("gate-orders", moved, config=fc))
    seeds = judged.aspects[5:]
    assert [aspect.name for aspect in seeds] == [
        f"{regime}, other orders - own order" for regime in ("FL", "FR-II", "FR-DI", "DL")
    ]
    assert all(aspect.outcomes == {"no"} for aspect in seeds)
    check = seeds[0].checks[0]
    assert check.value == pytest.approx(-3.0, abs=0.1)
    # What the seed adds to all other orders alike is not averaged out by their number: 2/3 of its variance is left.
    spread = made_up.moved_gates(lambda task: (0.0, 1.0, 2.0)[task.seed])
    first = judge(BY_NUMBER["C23"], evidence("gate-orders", spread, config=fc)).aspects[5].checks[0]
    assert float(first.ours.split("±")[1].split()[0]) == pytest.approx((2 / 3) ** 0.5, abs=0.05)
    assert check.ours.endswith("(3 seeds), 23 orders of seed 0")
    one = evidence("gate-orders", moved, config=fc, keep=lambda task: task.seed == 0)
    judged = judge(BY_NUMBER["C23"], one)
    assert {check.aside for aspect in judged.aspects[5:] for check in aspect.checks} == {
        "1 seed of the 3 that are needed"
    }


def test_ones_are_paired_by_order_and_by_seed():
    fc = made_up.only_part("gate-orders", "fc")
    # In the layers' own order ones cost much with other seeds than the first.
    dear = made_up.moved_gates(lambda task: 6.0 + task.seed if task.seed and task.value_input == "ones" else 0.0)
    judged = judge(BY_NUMBER["C24"], evidence("gate-orders", dear, config=fc))
    for aspect in judged.aspects:
        orders, seeds = aspect.checks
        assert orders.where.endswith(", orders of seed 0")
        assert orders.outcome == "yes"
        assert seeds.where.endswith(", own order")
        assert "(3 seeds)" in seeds.ours
        assert seeds.decides is (seeds.outcome in ("yes", "no"))
        assert seeds.value == pytest.approx(-5.0, abs=0.1)  # the mean of 0, 7 and 8
    always = made_up.moved_gates(lambda task: 6.0 if task.value_input == "ones" else 0.0)
    judged = judge(BY_NUMBER["C24"], evidence("gate-orders", always, config=fc))
    assert all(check.outcome == "no" for aspect in judged.aspects for check in aspect.checks)


def _hardly_trained(task):
    result = accuracies()(task)
    return result if "images" in result else made_up.trained(80.0, train=43.2 if task.label.count("relu") else 47.8)


def test_a_network_that_has_hardly_been_trained_is_no_mark_to_reach():
    judged = judge(BY_NUMBER["C25"], evidence("hidden-outputs", _hardly_trained))
    (check,) = judged.aspects[0].checks
    assert check.ours == "+0.00 (1 seed), ReLU fitted 43.2 %, reversed fitted 47.8 %"
    assert check.outcome == "yes"
    assert judged.verdict == "not tested here"
    assert "fitted less than 90 % of its training labels (it would take a time that was not estimated)" in judged.reason
    judged = judge(BY_NUMBER["C34"], evidence("linear-gating", _hardly_trained))
    assert judged.verdict == "not tested here"
    assert all("fitted less than 90 %" in check.aside for check in judged.aspects[0].checks)
    regimes = evidence(
        "regimes", lambda task: _hardly_trained(task) if task.data.name == "cifar10" else accuracies()(task)
    )
    for number in ("C9", "C27"):
        checks = judge(BY_NUMBER[number], regimes).aspects[0].checks
        assert {bool(check.aside) for check in checks if "cifar10" in check.where} == {True}
        assert all("ReLU fitted" in check.ours for check in checks)
        assert verdict(number, regimes) == "holds"  # by the networks on MNIST
    on_cifar = evidence("linear-gating", lambda task: (
        _hardly_trained if task.data.name == "cifar10" else accuracies({"DLGN": 70.0}))(task))  # fmt: skip
    assert verdict("C34", on_cifar) == "does not hold"


def test_claims_about_noise_tell_how_much_was_fitted_upstream():
    for number, fitted in (("C31", "M3 upstream fitted 99.0 %"), ("C32", "M1 fitted 99.0 %"), ("C33", "M1 fitted 99")):
        judged = judge(BY_NUMBER[number], _noise(_models()))
        assert all(fitted in check.ours for aspect in judged.aspects for check in aspect.checks)


def test_kernels_that_speak_against_a_claim_without_deciding_are_shown():
    against = {**_GOOD_KERNELS, "FL": 70.0, "FR-II": 60.0, "path": 75.0}
    found = evidence("kernels", made_up.regressions({"linear": 50.0, "limit-path": 60.0, **against}))
    alike = judge(BY_NUMBER["C37"], found).aspects[1].checks
    told = [(check.where, round(check.value)) for check in alike if check.aside]
    assert told == [
        ("cifar10-1000-16px gconv-16-16-32-32-nobias, random gates, as it is", -15),
        ("cifar10-1000-16px gconv-16-16-32-32-nobias, learnt gates, as it is", -5),
        ("mnist-10000 fc-w128-d6-nobias, random gates, as it is", -15),
        ("mnist-10000 fc-w128-d6-nobias, learnt gates, as it is", -5),
    ]
    assert all("finite width" in check.aside for check in alike if check.aside)
    judged = judge(BY_NUMBER["C37"], found)
    assert judged.verdict == "holds"
    assert not judged.differs
    learnt, random = judge(BY_NUMBER["C26"], found).aspects[:2]
    for aspect, value in ((learnt, -5), (random, 15)):
        on_images, dense = aspect.checks
        assert on_images.decides
        assert round(dense.value) == value
        assert dense.aside == "the kernel is the NTK of a fully connected network, not the CNTK of the claim"
        assert dense.paper == ""
    # Without the images nothing decides, and the reason says what there is.
    config = replace(get("kernels").presets["cpu"], only=("dense",))
    only = evidence("kernels", made_up.regressions({"linear": 50.0, "limit-path": 60.0, **against}), config=config)
    judged = judge(BY_NUMBER["C26"], only)
    assert judged.verdict == "not tested here"
    assert "not the CNTK of the claim" in judged.reason


def test_a_network_as_near_its_bound_as_chance_does_not_decide():
    near = evidence("kernels", made_up.regressions({"linear": 1.0, "path": 1.0, "limit-path": 1.0, **_GOOD_KERNELS},
                                                   gap=-0.97, spread=1.45))  # fmt: skip
    widest = [check for check in judge(BY_NUMBER["C37"], near).aspects[1].checks if not check.aside]
    assert [(check.ours, check.outcome) for check in widest] == [("-0.97 ± 0.84 (3 seeds)", "open")] * 2


def test_ones_in_place_of_the_image():
    free = made_up.moved_gates(lambda task: 0.0)
    assert verdict("C24", evidence("gate-orders", free)) == "holds"
    dear = made_up.moved_gates(lambda task: 5.0 if task.value_input == "ones" else 0.0)
    assert verdict("C24", evidence("gate-orders", dear)) == "does not hold"
    assert verdict("C28", evidence("residual", dear)) == "holds in part"
    cnn = made_up.only_part("gate-orders", "cnn")
    judged = judge(BY_NUMBER["C24"], evidence("gate-orders", free, config=cnn))
    assert judged.verdict == "holds in part"
    assert "Not tested, DL, ones - image: no finished runs that tell." in judged.reason


def test_masks_that_are_rotated_and_tiled():
    def costs(rotated, tiled):
        return evidence("tilings", made_up.moved_gates(
            lambda task: (rotated if task.shift else 0.0) + (tiled if task.value_channels else 0.0)
        ))  # fmt: skip

    assert verdict("C30", costs(1.0, 1.0)) == "holds"
    assert verdict("C30", costs(10.0, 0.0)) == "holds in part"
    assert verdict("C30", costs(10.0, 10.0)) == "does not hold"


def test_too_few_seeds_are_shown_and_do_not_decide():
    one_seed = evidence("regimes", accuracies(), keep=lambda task: task.data.name == "mnist" and task.seed == 0)
    judged = judge(BY_NUMBER["C9"], one_seed)
    assert judged.verdict == "not tested here"
    assert "Not tested, FL - ReLU: 1 seed of the 3 that are needed." in judged.reason
    assert len(judged.aspects[0].checks) == 5
    assert "none of 5 checks decides" in judged.row.ours
    assert "runs would take a time that was not estimated" in judged.reason


def test_figures_stand_beside_the_papers():
    (row,) = [judge(BY_NUMBER["C9"], _regimes()).aspects[0].checks[0]]
    assert row.where == "mnist fc-w128-d6 Adam"
    assert row.paper == "-0.32"
    assert float(row.difference) == pytest.approx(row.value + 0.32, abs=0.006)
    cell = judge(BY_NUMBER["C9"], _regimes()).row
    assert cell.ours.startswith("FL - ReLU: -0.4")
    assert "holds in 2 of 2, 5 more do not decide" in cell.ours


def test_cells_say_which_figures_do_not_decide():
    cifar = evidence("regimes", accuracies(), keep=lambda task: task.data.name == "cifar10")
    judged = judge(BY_NUMBER["C9"], cifar)
    assert [check.outcome for check in judged.aspects[0].checks] == ["open", "open"]  # 0.4 below, with 0.7 of error
    assert judged.row.ours.count("; open]") == 2
    assert "; open]" not in judged.row.paper
    assert judge(BY_NUMBER["C27"], cifar).row.ours.count("; open]") == 0
    one_seed = evidence("hidden-outputs", accuracies(), config=replace(
        get("hidden-outputs").presets["cpu"], data=get("regimes").presets["cpu"].parts[0].data))  # fmt: skip
    assert judge(BY_NUMBER["C25"], one_seed).row.ours.count("; does not decide]") == 1


def test_what_chance_leaves_open_is_named_beside_what_does_not_decide(tmp_path):
    aspect = Aspect("part", (Check("here", "1", "open"), Check("there", "1", "yes", aside="1 seed")))
    said = _untested(aspect, gather([], Store(tmp_path, tmp_path), Costs()))
    assert said == "Not tested, part: chance does not let one say (here); 1 seed."


def test_one_seed_of_mnist_decides_nothing():
    one_seed = evidence("regimes", accuracies(), keep=lambda task: task.data.name == "mnist" and task.seed == 0)
    for number in ("C8", "C9", "C10", "C27"):
        for aspect in judge(BY_NUMBER[number], one_seed).aspects:
            assert aspect.checks
            assert {check.aside for check in aspect.checks} == {"1 seed of the 3 that are needed"}, aspect.name


def test_cells_say_what_a_ratio_is():
    judged = judge(BY_NUMBER["C16"], _memorised())
    nearer = next(aspect for aspect in judged.aspects if aspect.name.startswith("diagonal off 1 against width"))
    factors = [check.value for check in nearer.checks]
    assert all(factor == pytest.approx(math.sqrt(25 / 500)) for factor in factors)
    assert f"{nearer.name}: a factor of 0.224 to 0.224, holds in 16 of 16" in judged.row.ours
    mean = next(aspect for aspect in judged.aspects if aspect.name == "mean of the diagonal")
    assert f"{mean.name}: 1 to 1, holds" in judged.row.ours
    mixed = Aspect("two kinds", (*nearer.checks[:2], *mean.checks[:2]))
    assert _cell(mixed, "ours") == "two kinds: holds in 4 of 4"


# --- folders


def _n_runs(name):
    """Of an experiment with its preset cpu."""
    return len(with_dependencies(get(name).tasks(get(name).presets["cpu"])))


def test_without_runs_exact_claims_hold_and_others_are_not_tested(tmp_path):
    found = gather([], Store(tmp_path, tmp_path), Costs())
    judged = {one.claim.number: one for one in judge_all(found)}
    assert {number for number, one in judged.items() if one.verdict == "holds"} == {
        "C1", "C3", "C5", "C7", "C18", "C19", "C20", "C21", "C38",
    }  # fmt: skip
    assert not any(one.verdict == "does not hold" for one in judged.values())
    assert judged["C9"].verdict == "not tested here"
    assert f"`regimes` was not run: {_n_runs('regimes')} runs would take" in judged["C9"].reason
    assert judged["C23"].verdict == "holds in part"  # its exact part by a test
    assert {number for number, one in judged.items() if one.by_tests} == {
        number for number, one in judged.items() if one.verdict == "holds"
    }
    assert summary(tuple(judged.values())).startswith("9 hold by tests alone; of the other 29: 0 holds, ")


def test_only_the_page_of_the_repository_names_its_test(tmp_path):
    found = gather([], Store(tmp_path, tmp_path), Costs())
    (tmp_path / "tests" / "papers").mkdir(parents=True)
    (tmp_path / "tests" / "papers" / "test_results.py").write_text("")
    sentence = "by `neuralpath papers claims`; `make test` checks that it fits them."
    assert sentence in claims_markdown((), found, tmp_path / "results" / "analyses")
    assert sentence not in claims_markdown((), found, tmp_path / "runs" / "results" / "analyses")
    assert sentence not in claims_markdown((), found)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Real runs of a smoke sweep, kept as runs are, under another preset's name so that they count."""
    experiment = get("regimes")
    part = experiment.presets["smoke"].parts[0]
    small = replace(part.data, n_train=100, n_test=50)
    part = replace(part, data=small, recipe=replace(part.recipe, epochs=1), regimes=("ReLU", "FL"), sources=("true",))
    sweep = Sweep(
        experiment, replace(experiment.presets["smoke"], parts=(part,)), "cpu", "neuralpath papers run regimes"
    )
    folder = tmp_path_factory.mktemp("claims")
    store = Store(folder / "runs")
    store.make()
    for task, result in run_tasks(sweep.tasks, folder / "serial").items():
        store.begin(task)
        store.finish(task, result, {})
    sweep.write(folder / "runs")
    return folder / "runs"


def test_no_claim_holds_while_runs_are_missing():
    [claim] = [claim for claim in CLAIMS if claim.number == "C9"]
    on_mnist = evidence("regimes", accuracies(None), keep=lambda task: task.data.name == "mnist")
    judged = judge(claim, on_mnist)
    assert judged.verdict == "holds in part"
    assert {outcome for aspect in judged.aspects for outcome in aspect.outcomes} == {"yes"}
    assert "`regimes` is not finished" in judged.reason


def test_no_claim_is_refuted_while_runs_are_missing():
    on_mnist = evidence("regimes", accuracies({"FL": 70.0}), keep=lambda task: task.data.name == "mnist")
    judged = judge(BY_NUMBER["C9"], on_mnist)
    assert judged.verdict == "not tested here"
    assert judged.differs
    assert judged.reason.startswith("What was checked speaks against it; what was not could still speak for it.")
    assert "Against it, FL - ReLU: mnist fc-w128-d6 Adam" in judged.reason


def test_real_runs_are_judged(runs):
    rows = {row.number: row for row in claim_verdicts(Store(runs, runs))}
    assert len(rows) == 38
    assert rows["C9"].ours.startswith("FL - ReLU: ")
    assert "% [digits-100 fc-w32-d4 Adam; does not decide]" in rows["C9"].ours  # its ReLU network has fitted little
    assert rows["C27"].verdict == "not tested here"


def test_the_command_writes_a_page_with_all_rows_and_the_analyses(runs, tmp_path, capsys):
    (runs / "analyses").mkdir(exist_ok=True)
    (runs / "analyses" / "C9.md").write_text("Because of the digits.\n")
    page = tmp_path / "page.md"
    assert main(["papers", "claims", str(runs), "--out", str(page)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{page}: 9 hold by tests alone; of the other 29: ")
    text = page.read_text()
    assert printed.strip().removeprefix(f"{page}: ") + ".\n" in text
    assert "by `neuralpath papers claims`.\n" in text
    assert "make test" not in text
    assert [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| C")] == [
        f"| C{number}" for number in range(1, 39)
    ]
    assert "| number | claim | paper | ours | difference | verdict |" in text
    assert "Because of the digits." in text.partition("### C9:")[2].partition("### C10:")[0]
    assert "- `neuralpath papers run regimes --out runs`: 6 of 6 runs are finished, sweep `regimes-" in text
    assert "- `neuralpath papers run theorem --preset cpu --out runs`: not run" in text
    assert "| regimes | cpu | 6 of 6 | - |" in text
    again = tmp_path / "again.md"
    assert main(["papers", "claims", str(runs), "--out", str(again)]) == 0
    assert again.read_bytes() == page.read_bytes()


def test_smoke_sweeps_try_the_machinery_only(runs, tmp_path):
    store = Store(runs, runs)
    (kept,) = (runs / "sweeps").glob("*.json")
    content = json.loads(kept.read_text()) | {"preset": "smoke"}
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / kept.name).write_text(json.dumps(content))
    found = gather(_read(tmp_path), store, Costs())
    assert found.of("regimes") == ()
    judged = {one.claim.number: one for one in judge_all(found)}
    assert (
        "`regimes` was run with the preset smoke only, which tries the machinery out and does not count. With the "
        f"preset cpu, which counts, {_n_runs('regimes')} runs would take" in judged["C9"].reason
    )
    assert "`regimes` was not run" not in judged["C9"].reason
    text = claims_markdown(tuple(judged.values()), found, tmp_path / "analyses")
    assert "| regimes | smoke only | - |" in text
    assert "`neuralpath papers run regimes --preset cpu --out runs`: not run, only the preset smoke, which" in text
    assert "`neuralpath papers run theorem --preset cpu --out runs`: not run\n" in text
    assert claim_verdicts(Store(tmp_path, runs)) == ()
    assert gather(_read(runs), store, Costs()).of("regimes") != ()


def test_smoke_settings_never_count_however_they_were_started(tmp_path):
    experiment = get("base-kernels")
    config = experiment.presets["smoke"]
    sweep = Sweep(experiment, config)  # of a call from Python by a version that did not name presets
    found = gather([sweep], Store(tmp_path), Costs())
    assert found.of("base-kernels") == ()
    assert found.set_aside == {"base-kernels": "smoke"}
    other = Sweep(experiment, replace(config, seeds=(7,)))
    found = gather([sweep, other], Store(tmp_path), Costs())
    assert [one.sweep for one in found.of("base-kernels")] == [other]
    page = claims_markdown(judge_all(found), found)
    assert f"- `base-kernels` with settings of its own, run from Python: 0 of {len(other.tasks)} runs are" in page
    assert "--preset --out" not in page


def _read(folder):
    from neuralpath.papers.experiments import read_sweeps

    return read_sweeps(folder)[0]


def test_folders_that_cannot_be_judged(tmp_path, capsys):
    assert main(["papers", "claims", str(tmp_path / "nowhere")]) == 1
    assert "there is no folder" in capsys.readouterr().err
    assert main(["papers", "claims", str(tmp_path)]) == 1
    assert "holds no runs of an experiment" in capsys.readouterr().err


def test_overlapping_sweeps_count_once():
    first, second = (
        evidence("regimes", accuracies(), config=replace(get("regimes").presets["cpu"], only=only)).of("regimes")
        for only in ((), ("mnist-fc-adam",))
    )
    both = Evidence({"regimes": (*first, *second)}, {}, Costs())
    alone = Evidence({"regimes": first}, {}, Costs())
    assert judge(BY_NUMBER["C9"], both).aspects == judge(BY_NUMBER["C9"], alone).aspects
    page = claims_markdown(judge_all(both), both)
    assert page.count("| FL - ReLU | mnist fc-w128-d6 Adam |") == 1


def _fits(invented, real):
    """Whether all that was made up is there in a real result, in the same form."""
    if isinstance(invented, dict):
        return isinstance(real, dict) and all(key in real and _fits(invented[key], real[key]) for key in invented)
    if isinstance(invented, list):
        return isinstance(real, list) and all(_fits(invented[0], one) for one in real[:1] if invented)
    return isinstance(real, type(invented)) or (isinstance(invented, float) and isinstance(real, int))


def test_made_up_results_of_networks_have_the_form_of_real_ones(runs):
    (found,) = gather(_read(runs), Store(runs, runs), Costs()).of("regimes")
    for task, result in found.results.items():
        assert isinstance(task, TrainNetwork | TrainGated)
        assert _fits(made_up.trained(80.0), result)


FORMS = {
    "theorem": made_up.drawn(lambda task: 0.1),
    "memorization": made_up.memorised(lambda width, depth: None),  # so few steps get nowhere
    "base-kernels": made_up.overlapping(lambda width: 0.1),
    "kernel-parts": made_up.parts(0.5, 0.5, 0.5),
    "label-energy": made_up.energies(10.0, 3.0),
    "kernels": made_up.regressions({"linear": 80.0, "FR-II": 80.0}),
}


@pytest.mark.parametrize("name", FORMS)
def test_made_up_results_of_other_runs_have_the_form_of_real_ones(name, tmp_path):
    first = {}
    for task in get(name).tasks(get(name).presets["smoke"]):
        if not task.dependencies and not isinstance(task, TrainNetwork):  # one of each kind that needs no other run
            first.setdefault(type(task), task)
    for kind, task in first.items():
        assert _fits(FORMS[name](task), run_tasks((task,), tmp_path / kind.__name__)[task]), kind
