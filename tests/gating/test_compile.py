"""Gated networks under ``torch.compile``, in a process of its own: run-time type checks cannot be compiled."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
import torch
import zoo
from neuralpath import nets
from neuralpath.gates import SoftGate
from neuralpath.gating.network import GatedNetwork
from neuralpath.gating.regimes import decouple

name, backend = sys.argv[1:]
feature, x = zoo.build(name)
value, _ = zoo.build(name, seed=1)
for settings in ({}, {"gate": SoftGate(4.0), "train_feature": True, "value_input": "random"}):
    network = GatedNetwork(feature, value, **settings).train()
    feature.requires_grad_("gate" in settings)
    for part in network.modules():
        if isinstance(part, torch.nn.Dropout):
            part.eval()
    network.match(x)
    network.zero_grad()
    state = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    y = network(x)
    y.square().sum().backward()
    expected = {key: p.grad.clone() for key, p in network.named_parameters() if p.grad is not None}
    after = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    network.zero_grad()
    network.load_state_dict(state)
    compiled = torch.compile(network, backend=backend, fullgraph=True)
    again = compiled(x)
    torch.testing.assert_close(again, y, rtol=1e-4, atol=1e-5)
    again.square().sum().backward()
    found = {key: p.grad for key, p in network.named_parameters() if p.grad is not None}
    assert found.keys() == expected.keys() and len(found) > 2
    for key, gradient in expected.items():
        size = float(gradient.abs().max()) or 1.0
        torch.testing.assert_close(found[key], gradient, rtol=1e-3, atol=1e-4 * size, msg=key)
    for key, tensor in network.state_dict().items():  # running statistics are updated alike
        torch.testing.assert_close(tensor, after[key], rtol=1e-4, atol=1e-5, msg=key)

# Without a match before, the first batch is matched on the way.
network = decouple(nets.FC(4, 5, 3, 2), "FL")
x = torch.randn(3, 4)
y = torch.compile(network, backend="eager")(x)
assert torch.equal(y, network(x))

# Torch shows these spellings to no function mode while it compiles: an error, not a wrong number.
layers = [torch.nn.Linear(3, 3), torch.nn.Hardswish(), torch.nn.Linear(3, 3), torch.nn.ReLU()]
network = GatedNetwork(torch.nn.Sequential(*layers), torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()),
                       gate_order={0: 1})
network(torch.ones(2, 3))
try:
    torch.compile(network, backend="eager")(torch.ones(2, 3))
except RuntimeError as error:
    assert "torch.compile hides" in str(error), error
else:
    raise AssertionError("a hidden gate was not noticed")
print("done")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "backend"), [("fc", "inductor"), ("vgg", "aot_eager"), ("resnet18", "aot_eager")])
def test_compiled_networks_compute_the_same(name, backend):
    tests = Path(__file__).parent.parent
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, name, backend]
    result = subprocess.run(command, cwd=tests, capture_output=True, text=True, timeout=300)
    assert result.stdout.splitlines()[-1:] == ["done"], result.stderr
