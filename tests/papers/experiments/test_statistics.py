"""Means with their spread: the numbers, and with how many digits they are shown."""

import math

import pytest
from hypothesis import given, strategies as st

from neuralpath.papers.experiments.registry import get
from neuralpath.papers.experiments.seed_tables import accuracy, comparison, spread
from neuralpath.papers.experiments.statistics import Spread
from neuralpath.papers.report.markup import cell_html


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([98.2, 98.3, 98.1], "98.20 ± 0.10 (3)"),
        ([0.00401, 0.00399, 0.00403], "0.004010 ± 0.000020 (3)"),  # a relative variance, and not 0.00 ± 0.00
        ([0.0619, 0.0647], "0.0633 ± 0.0020 (2)"),
        ([17_500.0, 18_300.0], "17900 ± 566 (2)"),
        ([1.4e-7, 2.2e-7, 1.5e-7], "1.70e-07 ± 4.4e-08 (3)"),
        ([3e7, 5e7], "4.00e+07 ± 1.4e+07 (2)"),
        ([0.001, -0.001], "0.00000 ± 0.00141 (2)"),
        ([13.0, 13.0], "13.0 ± 0.0 (2)"),
        ([0.0, 0.0], "0 ± 0 (2)"),
        ([0.0525], "0.05250 (1)"),
        ([-3.37], "-3.370 (1)"),
        ([math.inf], "inf (1)"),
    ],
)
def test_digits_follow_the_sizes(values, shown):
    assert str(Spread.of(values)) == shown


def test_accuracies_keep_two_digits():
    assert str(Spread.of([98.2, 98.2004], 2)) == "98.20 ± 0.00 (2)"
    assert str(Spread.of([0.071, 0.004], 2)) == "0.04 ± 0.05 (2)"
    assert str(Spread.of([0.98, 0.99], 2).times(100)) == "98.50 ± 0.71 (2)"
    assert str(spread([100.0, None, 100.0], 2)) == "100.00 ± 0.00 (2)"
    tasks = get("base-kernels").tasks(get("base-kernels").presets["smoke"])[:2]
    first, second = ({0: tasks[0], 1: tasks[1]}, {0: tasks[1], 1: tasks[0]})
    results = {task: {"best": {"test_accuracy": value}} for task, value in zip(tasks, (0.98, 0.98004), strict=True)}
    assert str(accuracy(first, results)) == "98.00 ± 0.00 (2)"
    assert str(comparison(first, second, results, "best")[0]) == "0.00 ± 0.01 (2)"


def test_digits_do_not_make_spreads_different():
    assert Spread.of([1.0, 2.0], 2) == Spread.of([1.0, 2.0]) == Spread.of([1.0, 2.0]).with_decimals(3)


_SIZES = st.floats(-1e9, 1e9).filter(lambda value: value == 0 or abs(value) > 1e-12)


@given(st.lists(_SIZES, min_size=1, max_size=5))
def test_what_is_shown_is_the_number_to_its_digits(values):
    found = Spread.of(values)
    mean, deviation = found.digits
    largest = max(abs(found.mean), found.deviation or 0.0)
    assert abs(float(mean) - found.mean) <= 0.006 * largest  # three significant digits of the larger
    assert (deviation == "") == (found.deviation is None)
    if found.deviation:
        assert abs(float(deviation) - found.deviation) <= max(0.051 * found.deviation, 0.51e-5 * largest)
    assert len(mean) <= 15
    assert str(found).startswith(mean)
    assert cell_html(found).startswith(mean.replace("-", "&minus;"))
