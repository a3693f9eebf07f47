"""Hyperplanes of linear gates: a gate is open on one side of its hyperplane."""

import pytest
import torch

from neuralpath import gating, nets
from neuralpath.gating.hyperplanes import gate_hyperplanes


def test_hyperplanes_are_where_gates_open():
    model = gating.LinearGatedFC((1, 3, 3), 6, 3, 2, bias=True, generator=torch.Generator().manual_seed(0)).double()
    x = torch.randn(50, 1, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    planes = gate_hyperplanes(model, x[:2])
    for plane, gates in zip(planes, model.gates(x).layers.values(), strict=True):
        q = x.flatten(1) @ plane.normals.flatten(1).T + plane.offsets
        assert torch.equal(q > 0, gates > 0.5)


def test_hyperplanes_of_a_convolution_are_those_in_the_middle():
    model = gating.LinearGatedCNN((1, 5, 5), 2, channels=(3, 4), generator=torch.Generator().manual_seed(0)).double()
    x = torch.randn(30, 1, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for plane, gates in zip(gate_hyperplanes(model, x[:2]), model.gates(x).layers.values(), strict=True):
        q = x.flatten(1) @ plane.normals.flatten(1).T + plane.offsets
        assert torch.equal(q > 0, gates[:, :, 2, 2] > 0.5)


def test_only_linear_gates_have_hyperplanes():
    with pytest.raises(ValueError, match=r"linear_feature=True.*got a FC"):
        gate_hyperplanes(nets.FC(4, 8, 3), torch.randn(2, 4))
