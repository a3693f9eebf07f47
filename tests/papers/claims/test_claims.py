"""Each claim holds and fails with results that are made up for it, and its row says why."""

import math
import re
from dataclasses import replace

import pytest
from scipy import stats

from neuralpath.papers.claims.all_claims import CLAIMS, check_claim, claims_markdown
from neuralpath.papers.claims.estimates import Comparison
from neuralpath.papers.claims.rows import Records, claim_row
from neuralpath.papers.experiments.registry import get
from papers.claims import made_up_results as made_up
from papers.claims.made_up_results import accuracies, records


def parts(row):
    return list(row.parts.values())


def verdict(number, found):
    return check_claim(number, found).verdict


def _regimes(changes=None, **options):
    return records("regimes", accuracies(changes, **options))


def _kernels(accuracy):
    return records("kernels", made_up.regressions({"linear": 50.0, "path": 60.0, "limit-path": 60.0, **accuracy}))


_GOOD_KERNELS = {"limit-tangent": 75.0, "ReLU": 80.0, "FL": 79.0, "FR-II": 67.0}


def _noise(values):
    config = made_up.only_part("label-noise", "mnist-fc")
    return records("label-noise", made_up.noisy(config.chosen[0], values), config=config)


def _models(**changes):
    usual = {"M1": (75.0, 45.0), "M2": 70.0, "M3 upstream": 10.0, "M3": 69.0, "M4": 73.0, "M5": 73.2}
    values = usual | changes
    # Without noise all that is trained on true labels is ten points better.
    return lambda model, noise: values[model] + 10.0 if noise == 0 and model in ("M2", "M3") else values[model]


def _memorized(**options):
    # Deeper helps up to 4 layers, and then hurts.
    return records("memorization", made_up.memorized(lambda w, d: 40 + 30 * math.log2(d / 4) ** 2, **options))


def _theorem(distance=lambda task: (task.depth / task.width) ** 0.5, **options):
    return records("theorem", made_up.drawn(distance, **options))


CASES = {
    "C2 holds": ("C2", lambda: _memorized(), "holds"),
    "C2 is broken": ("C2", lambda: _memorized(losses=(1.0, 0.0)), "holds in part"),
    "C4 holds": ("C4", lambda: _theorem(), "holds"),
    "C4 with draws that stay away": ("C4", lambda: _theorem(lambda task: 0.3), "holds in part"),
    "C4 with another mean": ("C4", lambda: _theorem(off=20.0), "holds in part"),
    "C6 holds": ("C6", lambda: records("kernel-parts", made_up.parts(2.0)), "holds"),
    "C6 with a cross part": ("C6", lambda: records("kernel-parts", made_up.parts(2.0, cross=1e-9)), "holds in part"),
    "C6 with a feature part": ("C6", lambda: records("kernel-parts", made_up.parts(2.0, fixed=1e-9)), "holds in part"),
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
    "C15 holds": ("C15", lambda: _memorized(), "holds"),
    "C15 where depth only hurts": (
        "C15", lambda: records("memorization", made_up.memorized(lambda w, d: 10 * d)), "holds in part"),
    "C15 where runs diverge beyond a point": (
        "C15", lambda: records("memorization", made_up.memorized(
            lambda w, d: 200 / d if d < 12 else None, diverged=True)), "holds"),
    "C15 where no depth is too much": (
        "C15", lambda: records("memorization", made_up.memorized(lambda w, d: 1000 / d)), "holds in part"),
    "C15 where only the best depth gets there": (
        "C15", lambda: records("memorization", made_up.memorized(lambda w, d: 300 if d == 6 else None)), "holds"),
    "C15 where depths differ by rounding only": (
        "C15", lambda: records("memorization", made_up.memorized(lambda w, d: 50)), "not tested here"),
    "C15 where no run gets there": (
        "C15", lambda: records("memorization", made_up.memorized(lambda w, d: None)), "not tested here"),
    "C16 holds": ("C16", lambda: _memorized(), "holds"),
    "C16 off the product": ("C16", lambda: _memorized(ratio=1.5), "holds in part"),
    "C16 off the diagonal": ("C16", lambda: _memorized(diagonal=1.2), "holds in part"),
    "C17 holds": ("C17", lambda: _theorem(), "holds"),
    "C17 far from the limit": ("C17", lambda: _theorem(approach=lambda task: 0.4), "holds in part"),
    "C22 holds": ("C22", lambda: _theorem(), "holds"),
    "C22 with draws that go away": ("C22", lambda: _theorem(lambda task: task.width / 1e4), "holds in part"),
    "C27 holds": ("C27", lambda: _regimes(), "holds"),
    "C27 five points off": ("C27", lambda: _regimes({"DL": 75.0}), "does not hold"),
    "C12 holds": ("C12", lambda: records("label-energy", made_up.energies(10.0, 3.0)), "holds"),
    "C12 rises": ("C12", lambda: records("label-energy", made_up.energies(3.0, 10.0)), "does not hold"),
    "C13 holds": ("C13", lambda: records("kernel-parts", made_up.parts(0.2)), "holds"),
    "C13 of other scales": ("C13", lambda: records("kernel-parts", made_up.parts(0.01)), "does not hold"),
    "C25 holds": ("C25", lambda: records("hidden-outputs", accuracies()), "holds"),
    "C25 loses": ("C25", lambda: records("hidden-outputs", accuracies({"FL": 70.0})), "does not hold"),
    "C26 holds": ("C26", lambda: made_up.together(_kernels(_GOOD_KERNELS), _regimes()), "holds"),
    "C26 with a better CNTK": (
        "C26", lambda: made_up.together(_kernels({**_GOOD_KERNELS, "limit-tangent": 85.0}), _regimes()),
        "holds in part"),
    "C26 upside down": ("C26", lambda: made_up.together(
        _kernels({**_GOOD_KERNELS, "FL": 60.0, "FR-II": 90.0}), _regimes({"FR-II": 85.0})), "does not hold"),
    "C26 without kernels": ("C26", lambda: _regimes(), "holds in part"),
    "C28 holds": ("C28", lambda: records("residual", accuracies({"FL": 79.9})), "holds"),
    "C28 without recovery": ("C28", lambda: records("residual", accuracies({"FL": 75.0})), "holds in part"),
    "C28 turned round": ("C28", lambda: records("residual", accuracies({"DL": 60.0, "FR-II": 85.0})), "holds in part"),
    "C29 holds": ("C29", lambda: records("base-kernels", made_up.overlapping(lambda w: 0.45 / w**0.5)), "holds"),
    "C29 off the angle": ("C29", lambda: records("base-kernels", made_up.overlapping(lambda w: 0.2)), "holds in part"),
    "C29 with depth that does nothing": (
        "C29", lambda: records("base-kernels", made_up.overlapping(lambda w: 0.45 / w**0.5, last=0.3)),
        "holds in part"),
    "C31 holds": ("C31", lambda: _noise(_models()), "holds"),
    "C31 costs much": ("C31", lambda: _noise(_models(M3=60.0)), "does not hold"),
    "C32 holds": ("C32", lambda: _noise(_models()), "holds"),
    "C32 with damage elsewhere": ("C32", lambda: _noise(_models(M5=76.0)), "holds in part"),
    "C32 with fixed gates that cost as much": ("C32", lambda: _noise(_models(M3=63.0)), "holds in part"),
    "C32 without damage": ("C32", lambda: _noise(_models(M4=83.0, M5=85.0)), "does not hold"),
    "C33 holds": ("C33", lambda: _noise(_models()), "holds"),
    "C33 without a fall": ("C33", lambda: _noise(_models(M1=75.0)), "does not hold"),
    "C34 holds": ("C34", lambda: records("linear-gating", accuracies()), "holds"),
    "C34 loses": ("C34", lambda: records("linear-gating", accuracies({"DLGN": 70.0})), "does not hold"),
    "C35 holds": ("C35", lambda: _theorem(), "holds"),
    "C35 nearer the other": ("C35", lambda: _theorem(approach=lambda task: 0.9), "does not hold"),
    "C36 holds": ("C36", lambda: _theorem(), "holds"),
    "C36 falls too slowly": ("C36", lambda: _theorem(power=-0.1), "does not hold"),
    "C37 holds": ("C37", lambda: _kernels(_GOOD_KERNELS), "holds"),
    "C37 never comes near": ("C37", lambda: records("kernels", made_up.regressions(
        {"linear": 1.0, "path": 1.0, "limit-path": 1.0, **_GOOD_KERNELS}, lambda task: float(task.repeats), gap=20.0)),
        "does not hold"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_rules_say_yes_and_no(case):
    number, make, expected = CASES[case]
    judged = check_claim(number, make())
    assert judged.verdict == expected, judged.parts
    assert judged.differs == any(
        check.outcome in ("contradicts", "doubtful") and not check.excluded for check in judged.comparisons
    )


def test_every_rule_has_been_tried_in_both_directions():
    own = ("C11", "C23", "C24", "C30")  # with tests of their own
    for claim in CLAIMS.keys() - set(own):
        outcomes = {outcome for number, _, outcome in CASES.values() if number == claim}
        assert "holds" in outcomes, claim
        assert len(outcomes) > 1, claim


def test_what_is_in_doubt_is_named_and_keeps_a_claim_from_holding():
    """Learnt gates 2.5 points below one seed on CIFAR-10: too far for the claim, too little for one seed to refute."""
    found = _regimes({"FL": 77.5}, where=lambda task: task.data.name == "cifar10")
    judged = check_claim("C9", found)
    assert judged.verdict == "holds in part"
    assert judged.differs
    named = [check.where for check in judged.comparisons if check.is_doubtful]
    assert named
    assert f"Doubtful, FL - ReLU: {', '.join(named)}." in judged.reason
    assert f", {len(named)} doubtful" in judged.ours
    assert "| doubtful |" in claims_markdown((judged,), found)


def _stages(made, **options):
    return made_up.together(records("stages", made, **options), _kernels(_GOOD_KERNELS))


def test_stages_rise_and_the_cntk_lies_between():
    rising = made_up.by_stage(lambda stage: 70.0 + stage / 3)
    judged = check_claim("C11", _stages(rising))
    assert judged.verdict == "holds in part"  # nothing to compare with on a narrow network
    assert "Not tested, FL from below the CNTK to above: the printed 77.43 %" in judged.reason
    config = replace(get("stages").presets["cpu"], cntk=75.0)
    assert verdict("C11", _stages(rising, config=config)) == "holds"
    falling = made_up.by_stage(lambda stage: 80.0 - stage)
    judged = check_claim("C11", _stages(falling))
    assert judged.verdict == "not tested here"  # the CNTK could still lie between
    assert judged.differs
    assert "could still support it" in judged.reason
    assert verdict("C11", _stages(falling, config=config)) == "does not hold"
    dip = made_up.by_stage(lambda stage: 60.0 if stage == 8 else 70.0 + stage / 3)
    judged = check_claim("C11", _stages(dip))
    assert "Contradicted, FL, from stage to stage: cifar10 gconv-16-16-32-32, epoch 8 - 4." in judged.reason
    steps = {check.where.rpartition(", ")[2]: check.outcome for check in parts(judged)[1]}
    assert steps == {  # a third of a point is less than one seed resolves
        "epoch 2 - 1": "inconclusive",
        "epoch 4 - 2": "inconclusive",
        "epoch 8 - 4": "contradicts",
        "epoch 16 - 8": "supports",
        "epoch 30 - 16": "supports",
    }
    paper = check_claim("C11", _stages(rising, config=get("stages").presets["paper"]))
    assert paper.verdict == "holds"  # the papers' own network stands against the printed 77.43


def test_the_printed_rise_stands_beside_the_papers_own_stages_only():
    rising = made_up.by_stage(lambda stage: 70.0 + stage / 3)
    cpu, paper = (
        parts(check_claim("C11", _stages(rising, config=get("stages").presets[preset])))[0]
        for preset in ("cpu", "paper")
    )
    assert [(check.where.partition(", ")[2], check.paper) for check in (*cpu, *paper)] == [
        ("epoch 30 - 1", ""), ("epoch 60 - 10", "+7.68"),
    ]  # fmt: skip


def _order_costs(points):
    return made_up.moved_gates(lambda task: points if task.gate_order == (3, 2, 1, 0) else 0.0)


def test_orders_that_matter_and_those_that_do_not():
    assert verdict("C23", records("gate-orders", _order_costs(0.0))) == "holds"
    judged = check_claim("C23", records("gate-orders", _order_costs(20.0)))
    assert judged.verdict == "holds in part"  # the exact part holds
    assert "supports" not in {check.outcome for check in judged.comparisons if check.counts}
    fc = made_up.only_part("gate-orders", "fc")
    assert verdict("C23", records("gate-orders", _order_costs(0.0), config=fc)) == "holds"
    some = records("gate-orders", _order_costs(20.0), config=fc,
                    keep=lambda task: getattr(task, "gate_order", None) in (None, (3, 2, 1, 0)))  # fmt: skip
    judged = check_claim("C23", some)
    assert "2 orders of the 6 that are needed" in judged.reason
    one = records("gate-orders", _order_costs(0.0), config=fc, keep=lambda task: task.seed == 0)
    assert all("over seeds 0.50 assumed for one)" in check.ours
               for part in parts(check_claim("C23", one))[:4] for check in part[:2])  # fmt: skip
    assert not any(check.counts for check in judged.comparisons)


def test_the_mean_of_both_inputs_stands_beside_the_papers_mean_of_both():
    dear = made_up.moved_gates(lambda task: 5.0 if task.value_input == "ones" else 0.0)
    fc = made_up.only_part("gate-orders", "fc")
    judged = check_claim("C23", records("gate-orders", dear, config=fc))
    for (image, ones, both), figure in zip(parts(judged)[:4], (98.6, 94.1, 94.1, 98.1), strict=True):
        assert (image.paper, image.printed, ones.paper, ones.printed) == ("", None, "", None)
        assert both.printed == figure
        assert both.value == pytest.approx((image.value + ones.value) / 2)
        assert float(both.difference) == pytest.approx(both.value - figure, abs=0.006)
        assert not both.counts
    # With an order that has one input only, the mean would be nearer to the other.
    half = records("gate-orders", dear, config=fc, keep=lambda task: not (
        getattr(task, "value_input", "") == "ones" and task.gate_order == (3, 2, 1, 0)))  # fmt: skip
    assert [len(part) for part in parts(check_claim("C23", half))[:4]] == [2] * 4


def test_orders_of_one_seed_are_compared_with_the_own_order_over_seeds():
    fc = made_up.only_part("gate-orders", "fc")
    moved = made_up.moved_gates(lambda task: 3.0 if task.gate_order else 0.0)
    judged = check_claim("C23", records("gate-orders", moved, config=fc))
    seeds = parts(judged)[4:]
    assert list(judged.parts)[4:] == [
        f"{regime}, other orders - own order" for regime in ("FL", "FR-II", "FR-DI", "DL")
    ]
    assert {check.outcome for part in seeds for check in part} == {"contradicts"}
    check = seeds[0][0]
    assert check.value == pytest.approx(-3.0, abs=0.1)
    # What the seed adds to all other orders alike is not averaged out by their number: 2/3 of its variance is left.
    spread = made_up.moved_gates(lambda task: (0.0, 1.0, 2.0)[task.seed])
    first = parts(check_claim("C23", records("gate-orders", spread, config=fc)))[4][0]
    half = float(stats.t.ppf(0.975, 2)) * (2 / 3) ** 0.5
    ends = re.search(r"\[(.*), (.*)\]", first.ours)
    assert (float(ends[2]) - float(ends[1])) / 2 == pytest.approx(half, rel=0.06)
    assert check.ours.endswith("(3 seeds), 23 orders of seed 0")
    one = records("gate-orders", moved, config=fc, keep=lambda task: task.seed == 0)
    judged = check_claim("C23", one)
    assert {check.excluded for part in parts(judged)[4:] for check in part} == {"1 seed of the 3 that are needed"}


def test_ones_are_paired_by_order_and_by_seed():
    fc = made_up.only_part("gate-orders", "fc")
    # In the layers' own order ones cost much with other seeds than the first.
    dear = made_up.moved_gates(lambda task: 6.0 + task.seed if task.seed and task.value_input == "ones" else 0.0)
    judged = check_claim("C24", records("gate-orders", dear, config=fc))
    for orders, seeds in parts(judged):
        assert orders.where.endswith(", orders of seed 0")
        assert orders.outcome == "supports"
        assert seeds.where.endswith(", own order")
        assert "(3 seeds)" in seeds.ours
        assert seeds.counts is (seeds.outcome in ("supports", "contradicts"))
        assert seeds.value == pytest.approx(-5.0, abs=0.1)  # the mean of 0, 7 and 8
    always = made_up.moved_gates(lambda task: 6.0 if task.value_input == "ones" else 0.0)
    judged = check_claim("C24", records("gate-orders", always, config=fc))
    assert all(check.outcome == "contradicts" for check in judged.comparisons)


def _hardly_trained(task):
    result = accuracies()(task)
    return result if "images" in result else made_up.trained(80.0, train=43.2 if task.label.count("relu") else 47.8)


def test_a_network_that_has_hardly_been_trained_is_no_mark_to_reach():
    judged = check_claim("C25", records("hidden-outputs", _hardly_trained))
    (check,) = parts(judged)[0]
    assert check.ours == "+0.00 (1 seed), ReLU fitted 43.2 %, reversed fitted 47.8 %"
    assert check.outcome == "supports"
    assert judged.verdict == "not tested here"
    assert "fitted less than 90 % of its training labels" in judged.reason
    judged = check_claim("C34", records("linear-gating", _hardly_trained))
    assert judged.verdict == "not tested here"
    assert all("fitted less than 90 %" in check.excluded for check in parts(judged)[0])
    regimes = records(
        "regimes", lambda task: _hardly_trained(task) if task.data.name == "cifar10" else accuracies()(task)
    )
    for number in ("C9", "C27"):
        checks = parts(check_claim(number, regimes))[0]
        assert {bool(check.excluded) for check in checks if "cifar10" in check.where} == {True}
        assert all("ReLU fitted" in check.ours for check in checks)
        assert verdict(number, regimes) == "holds"  # by the networks on MNIST
    on_cifar = records("linear-gating", lambda task: (
        _hardly_trained if task.data.name == "cifar10" else accuracies({"DLGN": 70.0}))(task))  # fmt: skip
    assert verdict("C34", on_cifar) == "does not hold"


def test_claims_about_noise_tell_how_much_was_fitted_upstream():
    for number, fitted in (("C31", "M3 upstream fitted 99.0 %"), ("C32", "M1 fitted 99.0 %"), ("C33", "M1 fitted 99")):
        judged = check_claim(number, _noise(_models()))
        assert all(fitted in check.ours for check in judged.comparisons)


def test_kernels_that_speak_against_a_claim_without_deciding_are_shown():
    against = {**_GOOD_KERNELS, "FL": 70.0, "FR-II": 60.0, "path": 75.0}
    found = records("kernels", made_up.regressions({"linear": 50.0, "limit-path": 60.0, **against}))
    alike = parts(check_claim("C37", found))[1]
    told = [(check.where, round(check.value)) for check in alike if check.excluded]
    assert told == [
        ("cifar10-1000-16px gconv-16-16-32-32-nobias, random gates, not widened", -15),
        ("cifar10-1000-16px gconv-16-16-32-32-nobias, learnt gates, not widened", -5),
        ("mnist-10000 fc-w128-d6-nobias, random gates, not widened", -15),
        ("mnist-10000 fc-w128-d6-nobias, learnt gates, not widened", -5),
    ]
    assert all("finite width" in check.excluded for check in alike if check.excluded)
    judged = check_claim("C37", found)
    assert judged.verdict == "holds"
    assert not judged.differs
    learnt, random = parts(check_claim("C26", found))[:2]
    for (on_images, dense), value in ((learnt, -5), (random, 15)):
        assert on_images.counts
        assert round(dense.value) == value
        assert dense.excluded == "the kernel is the NTK of a fully connected network, not the CNTK of the claim"
        assert dense.paper == ""
    # Without the images nothing decides, and the reason says what there is.
    config = replace(get("kernels").presets["cpu"], only=("dense",))
    only = records("kernels", made_up.regressions({"linear": 50.0, "limit-path": 60.0, **against}), config=config)
    judged = check_claim("C26", only)
    assert judged.verdict == "not tested here"
    assert "not the CNTK of the claim" in judged.reason


def test_a_network_as_near_its_bound_as_chance_does_not_decide():
    near = records("kernels", made_up.regressions({"linear": 1.0, "path": 1.0, "limit-path": 1.0, **_GOOD_KERNELS},
                                                   gap=-0.97, spread=1.45))  # fmt: skip
    widest = [check for check in parts(check_claim("C37", near))[1] if not check.excluded]
    assert [(check.ours, check.outcome) for check in widest] == [("-0.97 [-4.57, +2.63] (3 seeds)", "inconclusive")] * 2


def test_ones_in_place_of_the_image():
    free = made_up.moved_gates(lambda task: 0.0)
    assert verdict("C24", records("gate-orders", free)) == "holds"
    dear = made_up.moved_gates(lambda task: 5.0 if task.value_input == "ones" else 0.0)
    assert verdict("C24", records("gate-orders", dear)) == "does not hold"
    assert verdict("C28", records("residual", dear)) == "holds in part"
    cnn = made_up.only_part("gate-orders", "cnn")
    judged = check_claim("C24", records("gate-orders", free, config=cnn))
    assert judged.verdict == "holds in part"
    assert "Not tested, DL, ones - image: no finished runs for it." in judged.reason


def test_masks_that_are_rotated_and_tiled():
    def costs(rotated, tiled):
        return records("tilings", made_up.moved_gates(
            lambda task: (rotated if task.shift else 0.0) + (tiled if task.value_channels else 0.0)
        ))  # fmt: skip

    assert verdict("C30", costs(1.0, 1.0)) == "holds"
    assert verdict("C30", costs(10.0, 0.0)) == "holds in part"
    assert verdict("C30", costs(10.0, 10.0)) == "does not hold"


def test_too_few_seeds_are_shown_and_do_not_decide():
    one_seed = records("regimes", accuracies(), keep=lambda task: task.data.name == "mnist" and task.seed == 0)
    judged = check_claim("C9", one_seed)
    assert judged.verdict == "not tested here"
    assert "Not tested, FL - ReLU: 1 seed of the 3 that are needed." in judged.reason
    assert len(parts(judged)[0]) == 5
    assert "none of 5 counts" in judged.ours
    assert "`regimes` is not finished: " in judged.reason


def test_figures_stand_beside_the_papers():
    (row,) = [parts(check_claim("C9", _regimes()))[0][0]]
    assert row.where == "mnist fc-w128-d6 Adam"
    assert row.paper == "-0.32"
    assert float(row.difference) == pytest.approx(row.value + 0.32, abs=0.006)
    cell = check_claim("C9", _regimes())
    assert cell.ours.startswith("FL - ReLU: -0.4")
    assert "2 of 2 support it, 5 more do not count" in cell.ours


def test_cells_say_which_figures_do_not_decide():
    cifar = records("regimes", accuracies(), keep=lambda task: task.data.name == "cifar10")
    judged = check_claim("C9", cifar)
    assert [check.outcome for check in parts(judged)[0]] == ["inconclusive"] * 2  # 0.4 below, with 0.7 of error
    assert judged.ours.count("; inconclusive]") == 2
    assert "; inconclusive]" not in judged.paper
    assert check_claim("C27", cifar).ours.count("; inconclusive]") == 0
    one_seed = records("hidden-outputs", accuracies(), config=replace(
        get("hidden-outputs").presets["cpu"], data=get("regimes").presets["cpu"].parts[0].data))  # fmt: skip
    assert check_claim("C25", one_seed).ours.count("; does not count]") == 1


def test_inconclusive_comparisons_are_named_beside_excluded_ones():
    part = (Comparison("here", "1", "inconclusive"), Comparison("there", "1", "supports", excluded="1 seed"))
    row = claim_row("C10", Records({}), {"part": part})
    assert "Not tested, part: inconclusive (here); 1 seed." in row.reason


def test_one_seed_of_mnist_decides_nothing():
    one_seed = records("regimes", accuracies(), keep=lambda task: task.data.name == "mnist" and task.seed == 0)
    for number in ("C8", "C9", "C10", "C27"):
        for part in parts(check_claim(number, one_seed)):
            assert part
            assert {check.excluded for check in part} == {"1 seed of the 3 that are needed"}


def test_cells_say_what_a_ratio_is():
    judged = check_claim("C16", _memorized())
    name = "diagonal off 1 against width, root mean square"
    nearer, mean = judged.parts[name], judged.parts["mean of the diagonal"]
    assert all(check.value == pytest.approx(math.sqrt(25 / 500)) for check in nearer)
    assert f"{name}: a factor of 0.224 to 0.224, 16 of 16 support it" in judged.ours
    assert "mean of the diagonal: 1 to 1, " in judged.ours
    mixed = claim_row("C16", Records({}), {"two units": (*nearer[:2], *mean[:2])})
    assert mixed.ours == "two units: 4 of 4 support it"
