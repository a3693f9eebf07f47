import itertools

import numpy as np
import pytest
import torch
from torch import nn

from neuralpath.gating.matching import as_order, sources
from neuralpath.gating.network import GatedNetwork

NAMES = ("a", "b", "c")


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (None, (0, 1, 2)),
        ("reversed", (2, 1, 0)),
        ((1, 2, 0), (1, 2, 0)),
        ([0, 2, 1], (0, 2, 1)),
        ({}, (0, 1, 2)),
        ({"a": "c"}, (2, 1, 2)),  # a gate may be used twice by a mapping
        ({0: 2, "b": 0}, (2, 0, 2)),
        (np.array([1, 2, 0]), (1, 2, 0)),
        ([np.int64(2), np.int32(0), 1], (2, 0, 1)),
        (torch.tensor([1, 2, 0]), (1, 2, 0)),
        ({np.int64(0): np.int64(2), "b": 0}, (2, 0, 2)),
    ],
)
def test_sources_of_the_value_gates(order, expected, without_type_checks):
    plain = as_order(order)
    assert sources(plain, NAMES, NAMES) == expected
    if isinstance(plain, tuple):
        assert all(type(index) is int for index in plain)


@pytest.mark.parametrize("make", [np.array, torch.tensor, lambda order: [np.int64(index) for index in order]])
def test_orders_of_numpy_and_torch_are_taken(make):
    torch.manual_seed(0)
    feature, value = dense(2, 3, 3, 3, 1), dense(2, 3, 3, 3, 1)
    network = GatedNetwork(feature, value, gate_order=make([2, 0, 1]))
    x = torch.randn(5, 2)
    assert network.gate_order == (2, 0, 1)
    assert torch.equal(network(x), GatedNetwork(feature, value, gate_order=(2, 0, 1))(x))


def test_a_mapping_may_join_networks_with_different_numbers_of_gates():
    assert sources({2: "b"}, ("a", "b"), NAMES) == (0, 1, 1)


@pytest.mark.parametrize(
    ("order", "kind", "message"),
    [
        ((0, 0, 1), ValueError, r"`gate_order` .*0 to 2, got \(0, 0, 1\)"),
        ((1, 2, 3), ValueError, "`gate_order` .*0 to 2"),
        ((0, -1), ValueError, "`gate_order` .*0 to 1"),
        ((0, True), TypeError, "`gate_order` .*integers"),
        ((0, 1.0), TypeError, "`gate_order` .*integers"),
        ("backwards", TypeError, "`gate_order` .*'backwards'"),
        (3, TypeError, "`gate_order` .* got a int"),
        ({0, 1, 2}, TypeError, "`gate_order` .* got a set"),
        (np.array([0.0, 1.0]), TypeError, "`gate_order` .*integers"),
        (np.array([True, False]), TypeError, "`gate_order` .*integers"),
        (np.array([[0, 1], [1, 0]]), TypeError, "`gate_order` .*integers"),
        (np.array([0, 0]), ValueError, r"`gate_order` .*0 to 1, got \(0, 0\)"),
    ],
)
def test_what_is_no_order_is_refused_at_once(order, kind, message, without_type_checks):
    with pytest.raises(kind, match=message):
        GatedNetwork(nn.Linear(1, 1), nn.Linear(1, 1), gate_order=order)


@pytest.mark.parametrize(
    ("order", "feature", "message"),
    [
        ((1, 0), NAMES, "`gate_order` has 2 entries.* 3 gates: a, b, c"),
        (None, ("x", "y"), r"feature network has 2 gates \(x, y\) but the value network has 3 \(a, b, c\)"),
        ("reversed", ("x", "y"), "feature network has 2 gates"),
        ({}, ("x", "y"), "'c' .*feature network has only 2"),
        ({"d": 0}, NAMES, "key of `gate_order`, 'd',.*value network.* 0 to 2: a, b, c"),
        ({0: "d"}, NAMES, "value of `gate_order`, 'd',.*feature network"),
        ({0: 3}, NAMES, "value of `gate_order`, 3,.*feature network"),
        ({-1: 0}, NAMES, "a key of `gate_order`, -1"),
    ],
)
def test_orders_that_do_not_fit_the_gates_are_refused(order, feature, message):
    with pytest.raises(ValueError, match=message):
        sources(order, feature, NAMES)


def dense(*widths):
    layers = []
    for n_in, n_out in itertools.pairwise(widths[:-1]):
        layers += [nn.Linear(n_in, n_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1]))


@pytest.mark.parametrize("order", ["reversed", (1, 0, 2), {"1": "3"}])
def test_orders_that_mix_shapes_name_both_gates_and_shapes(order):
    network = GatedNetwork(dense(2, 3, 4, 3, 1), dense(2, 3, 4, 3, 1), gate_order=order)
    x = torch.randn(5, 2)
    if order == "reversed":  # 3, 4, 3 is the same backwards
        assert network(x).shape == (5, 1)
        return
    with pytest.raises(ValueError, match=r"value .*gate '1' .*feature .*gate '3'.* \(3,\) .* \(4,\)"):
        network(x)
