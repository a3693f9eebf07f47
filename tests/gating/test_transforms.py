import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from neuralpath.gates import SoftGate
from neuralpath.gating.matching import TileGates
from neuralpath.gating.network import GatedNetwork
from neuralpath.gating.swapping import run_with_gates


def tiled_by_hand(mask, shape, shifts):
    """G'[c, i, j] = G[c mod w, i - s, j - t], entry by entry."""
    result = torch.zeros(len(mask), *shape, dtype=mask.dtype)
    for b in range(len(mask)):
        for c in range(shape[0]):
            for i in range(shape[1]):
                for j in range(shape[2]):
                    row, column = (i - shifts[0]) % shape[1], (j - shifts[1]) % shape[2]
                    result[b, c, i, j] = mask[b, c % mask.shape[1], row, column]
    return result


@given(
    channels=st.integers(1, 3),
    wider=st.integers(0, 4),
    space=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    shifts=st.tuples(st.integers(-5, 5), st.integers(-5, 5)),
    seed=st.integers(0, 100),
)
def test_tiles_are_what_the_formula_says(channels, wider, space, shifts, seed):
    mask = torch.rand(2, channels, *space, generator=torch.Generator().manual_seed(seed)) > 0.5
    shape = (channels + wider, *space)
    assert torch.equal(TileGates(shift=shifts)(mask, shape), tiled_by_hand(mask, shape, shifts))


@pytest.mark.usefixtures("without_type_checks")
def test_shifts_are_integers_and_dense_masks_are_only_repeated():
    assert TileGates(np.int64(2)) == TileGates(2)
    for wrong in (1.5, "1", (1, 0.5), None):
        with pytest.raises(TypeError, match="`shift` must be an integer"):
            TileGates(wrong)
    mask = torch.tensor([[True, False]])
    assert torch.equal(TileGates((1, 2))(mask, (4,)), mask.repeat(1, 2))


@pytest.mark.usefixtures("without_type_checks")
def test_functions_that_are_none_are_refused():
    def make():
        return nn.Sequential(nn.Linear(2, 2), nn.ReLU())

    for wrong in (3, "tile", {0: 3}):
        with pytest.raises(TypeError, match="`gate_transform` must be a function"):
            GatedNetwork(make(), make(), gate_transform=wrong)
    with pytest.raises(TypeError, match=r"`gate` .*got <class .*SoftGate"):
        GatedNetwork(make(), make(), gate=SoftGate)


def test_one_shift_is_for_every_axis():
    mask = torch.eye(4).reshape(1, 1, 4, 4)
    assert torch.equal(TileGates(2)(mask, (1, 4, 4)), TileGates((2, 2))(mask, (1, 4, 4)))
    assert torch.equal(TileGates(1)(mask, (1, 4, 4)), mask)  # along the diagonal


def test_dense_masks_are_repeated_only():
    mask = torch.tensor([[True, False, False]])
    assert TileGates(1)(mask, (7,)).int().tolist() == [[1, 0, 0, 1, 0, 0, 1]]


def conv(width):
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 2),
    )


def test_a_wider_value_network_gets_tiled_and_rotated_masks():
    feature, value, x = conv(2), conv(5), torch.randn(3, 1, 4, 4)
    network = GatedNetwork(feature, value, gate_transform=TileGates((1, 2)))
    masks = tuple(GatedNetwork(feature, conv(2)).gates(x).layers.values())
    by_hand = [tiled_by_hand(mask, (5, 4, 4), (1, 2)) for mask in masks]
    assert all(map(torch.equal, network.gates(x).layers.values(), by_hand))
    assert torch.equal(network(x), run_with_gates(value, x, by_hand))


def test_transforms_for_some_gates_by_name_or_index():
    feature, x = conv(2), torch.randn(3, 1, 4, 4)
    plain = tuple(GatedNetwork(feature, conv(2)).gates(x).layers.values())
    for transform in ({"3": TileGates(1)}, {1: TileGates(1)}):
        first, second = GatedNetwork(feature, conv(2), gate_transform=transform).gates(x).layers.values()
        assert torch.equal(first, plain[0])
        assert torch.equal(second, plain[1].roll((1, 1), (2, 3)))


def test_any_function_may_be_a_transform():
    network = GatedNetwork(conv(2), conv(2), gate_transform=lambda gate, shape: torch.ones_like(gate))
    assert all(bool(gate.all()) for gate in network.gates(torch.randn(3, 1, 4, 4)).layers.values())


def pooled(width, pool):
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), pool, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 2)
    )


def test_positions_of_a_max_pool_are_tiled_over_channels():
    feature, value, x = pooled(2, nn.MaxPool2d(2)), pooled(3, nn.MaxPool2d(2)), torch.randn(3, 1, 4, 4)
    gates = GatedNetwork(feature, value, gate_transform=TileGates()).gates(x)
    assert torch.equal(gates[1][:, 2], gates[1][:, 0])
    assert gates[1].dtype == torch.int64


HEAD = "value network's gate '1' .*feature network's gate '1'"


@pytest.mark.parametrize(
    ("feature", "value", "transform", "message"),
    [
        (conv(2), conv(3), None, HEAD + r".* \(3, 4, 4\) .* \(2, 4, 4\).*TileGates\(\)"),
        (conv(3), conv(2), TileGates(), HEAD + r".*\(3, 4, 4\) .*tiled to \(2, 4, 4\)"),
        (conv(2), conv(2), TileGates((1,)), HEAD + r".*`shift` \(1,\) .*2 axes of space"),
        (conv(2), conv(2), {"5": TileGates()}, "key of `gate_transform`, '5',.*value network"),
        (pooled(2, nn.MaxPool2d(2)), pooled(2, nn.MaxPool2d(2)), TileGates(1), "max pool cannot be shifted"),
        (conv(2), conv(2), lambda gate, shape: gate[..., 1:], HEAD + r".* \(2, 4, 4\) .* \(2, 4, 3\)"),
        (pooled(2, nn.MaxPool2d(2)), pooled(2, nn.MaxPool2d(3)), None, r"'2'.* \(2, 1, 1\) .* \(2, 2, 2\)"),
        (conv(2), pooled(2, nn.MaxPool2d(1)), None, "a max pool and .* an activation"),
        (
            nn.Sequential(nn.ConstantPad2d((1, 0, 1, 0), 0.0), pooled(2, nn.MaxPool2d(2))),
            pooled(2, nn.MaxPool2d(2)),
            {0: lambda gate, shape: gate[:, :, 1:, 1:]},
            r"pools \(4, 4\) .* \(5, 5\)",
        ),
    ],
)
def test_gates_that_do_not_fit_are_named_with_both_shapes(feature, value, transform, message):
    with pytest.raises(ValueError, match=message):
        GatedNetwork(feature, value, gate_transform=transform)(torch.randn(3, 1, 4, 4))
