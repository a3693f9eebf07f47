"""A new gate: try a gate function of one's own, without a change to the library.

A ReLU network multiplies every pre-activation q by a gate γ(q) of 0 or 1. In a deep gated network the gates come from a
network of their own, and any function may stand for γ.
"""

# %%
import os
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor

import neuralpath as npath

SMALL = "NEURALPATH_SMALL" in os.environ  # the tests run every example on little data
digits = npath.data.load("digits")
train = npath.data.Split(digits.train.images[:200], digits.train.labels[:200]) if SMALL else digits.train
config = npath.training.TrainingConfig(epochs=1 if SMALL else 20)


# %% A gate is a function from pre-activations to factors. The first of ours rises in a straight line from closed to
# open: unlike the logistic gate it is exactly 0 and exactly 1 outside of its ramp.
def ramp(q: Tensor) -> Tensor:
    """0 below -1/8, 1 above 1/8, linear between."""
    return (4 * q + 0.5).clamp(0, 1)


def window(q: Tensor) -> Tensor:
    """Open near 0 and closed on both sides: no ReLU has it."""
    return torch.exp(-2 * q.square())


gates: dict[str, Callable[[Tensor], Tensor]] = {
    "logistic (the papers' DL)": npath.SoftGate(beta=10.0),
    "ramp": ramp,
    "window": window,
}


# %% Both networks of a gated network are trained together (the papers' regime DL): the gates by the feature network,
# the weights behind them by the value network. A gate must pass a gradient for that, which hard gates do not.
def make_network(seed: int) -> npath.nets.FC:
    """A small fully connected network with weights of its own."""
    generator = torch.Generator().manual_seed(seed)
    return npath.nets.FC((1, 8, 8), width=16 if SMALL else 64, depth=4, n_outputs=10, generator=generator)


x = npath.data.balanced_subset(train, 5 if SMALL else 20, torch.Generator().manual_seed(2))
same_class = (x.labels[:, None] == x.labels[None, :]).float()
accuracies: dict[str, float] = {}
for label, gate in gates.items():
    network = npath.GatedNetwork(make_network(0), make_network(1), gate=gate, train_feature=True)
    result = npath.training.train(network, train, digits.test, config)
    accuracies[label] = result.last.test.accuracy
    # The path kernel of the learnt gates: of the value network's graph, with the gates that it is given.
    network.eval()
    graph = npath.trace(network.value, x.images[:1])
    with torch.no_grad():
        kernel = npath.path_kernel(graph, x.images, gates1=network.gates(x.images), normalize=True)
    alignment = float(npath.centered_alignment(kernel, same_class))
    print(f"{label:26} test accuracy {accuracies[label]:.1%}, alignment of its path kernel {alignment:.3f}")

# %% The network of infinite width with this gate: the activation q γ(q) takes the place of the graph's own. There is no
# closed form for it, so it is integrated numerically, to an accuracy that is checked. (The ramp has kinks, for which
# this is refused; the smooth window is not.)
few = x.images[: 3 if SMALL else 20].double()
double = npath.trace(make_network(0).double(), few[:1])
limit = npath.limit_tangent_kernel(double, few, activation=lambda q: q * window(q))
relu = npath.limit_tangent_kernel(double, few)
print(f"infinite width: the tangent kernels with window gates and with ReLU have a centered alignment of "
      f"{float(npath.centered_alignment(limit, relu)):.3f}")  # fmt: skip

# %% The gates, and the activations q γ(q) that they make.
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.9), layout="constrained")
q = torch.linspace(-1.5, 1.5, 301)
for label, gate in gates.items():
    left.plot(q.numpy(), gate(q).numpy(), label=f"{label}: {accuracies[label]:.1%}")
    right.plot(q.numpy(), (q * gate(q)).numpy())
left.set(xlabel="pre-activation q", ylabel=r"gate $\gamma(q)$")
right.set(xlabel="pre-activation q", ylabel=r"$q \, \gamma(q)$")
figure.legend(loc="outside upper center", ncols=3, frameon=False)
picture = Path("new_gate.png")
figure.savefig(picture, dpi=120)
print(f"picture: {picture}")
