"""Tasks of the experiment `memorization`: random labels with fixed random gates, and the pair without biases.

The seeds are derived from the words below; other words would give other numbers.
"""

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from neuralpath.papers.experiments.specs import DataSpec
from neuralpath.papers.experiments.trained import seeded
from neuralpath.papers.runs import Task

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from neuralpath.gating import GatedNetwork
    from neuralpath.papers.runs import RunDirectory

Inputs = Literal["images", "sphere"]

REMAINING = (0.5, 0.1)
"""Shares of the first error whose first step is noted."""

N_STORED = 64
"""Moments of training whose error is stored, from the first step to the last in equal ratios."""


@dataclass(frozen=True)
class Memorize(Task):
    """Fit random labels with fixed random gates by gradient descent; compare the first kernel with its mean."""

    data: DataSpec
    inputs: Inputs
    """Images of unit length, or as many points drawn uniformly from a sphere of as many dimensions."""
    n_examples: int
    width: int
    depth: int
    n_steps_trained: int
    lr: float
    """Learning rate as a share of 1 / (largest eigenvalue of the kernel before training)."""
    seed: int = 0

    @property
    def label(self) -> str:
        source = self.data.label if self.inputs == "images" else "sphere"
        return f"memorize {source} n{self.n_examples} w{self.width} d{self.depth} seed{self.seed}"

    def make(self) -> "GatedNetwork":
        """Gates of one random network, weights of another: random signs of variance 2 / width."""
        from neuralpath import nets
        from neuralpath.gating import decouple

        model = nets.FC(self.data.shape, self.width, self.depth)
        return decouple(model, "FR-II", init="random-sign", generator=seeded(self.seed, "memorising network"))

    def run(self, directory: "RunDirectory") -> dict[str, Any]:
        import torch

        from neuralpath.graph import trace
        from neuralpath.kernels import expected_tangent_kernel, spectrum, value_kernel

        x = self.points(directory.data_dir)
        y = torch.randint(0, 2, (self.n_examples, 1), generator=seeded(self.seed, "memorised labels")) * 2.0 - 1.0
        network = self.make()
        # The value tangent kernel as it was drawn, and its expectation, in float64.
        gates, points = network.gates(x), x.double()
        graph = trace(copy.deepcopy(network.value).double(), points[:1])
        expected = expected_tangent_kernel(graph, points, gates1=gates, weight_variance=2 / self.width, progress=False)
        kernels = {"expected": expected, "drawn": value_kernel(graph, points, gates1=gates)}
        return {
            "entries": _entries(x, expected / self.depth, self.depth),
            "spectrum": {name: _rounded(spectrum(kernel / self.depth)) for name, kernel in kernels.items()},
            "distance": float((kernels["drawn"] - expected).norm() / expected.norm()),
            **self._trained(network, x, y, kernels),
        }

    def _trained(
        self, network: "GatedNetwork", x: "Tensor", y: "Tensor", kernels: "dict[str, Tensor]"
    ) -> dict[str, Any]:
        """Gradient descent on half the sum of squares, beside what both kernels say for steps of the same size."""
        import torch

        n_steps, gates = self.n_steps_trained, network.gates(x)
        size = self.lr / float(torch.linalg.eigvalsh(kernels["drawn"])[-1])
        weights = [weight for weight in network.value.parameters() if weight.requires_grad]
        with torch.no_grad():
            first = network.value_output(x, gates) - y
        shares: list[float] = []  # of the first error: before each step, and after the last
        for _ in range(n_steps):
            left = network.value_output(x, gates) - y
            share = float(left.detach().norm()) / float(first.norm())
            if not share < math.inf:
                break
            shares.append(share)
            for weight, slope in zip(weights, torch.autograd.grad(0.5 * left.square().sum(), weights), strict=True):
                weight.data.sub_(slope, alpha=size)
        else:
            with torch.no_grad():
                shares.append(float((network.value_output(x, gates) - y).norm() / first.norm()))
        ratio = n_steps ** (1 / (N_STORED - 1))
        moments = sorted({0, n_steps, *(min(n_steps, round(ratio**k)) for k in range(N_STORED))})
        reached = (next((step for step, share in enumerate(shares) if share <= target), None) for target in REMAINING)
        return {
            "moments": moments,
            "errors": [float(f"{shares[m]:.6g}") if m < len(shares) else None for m in moments],
            "predicted_by": {name: _predicted(kernel, y, first, moments, size) for name, kernel in kernels.items()},
            "reached": {f"{target:g}": step for target, step in zip(REMAINING, reached, strict=True)},
            "diverged": len(shares) <= n_steps,
        }

    def points(self, data_dir: "Path | None" = None) -> "Tensor":
        """The inputs, of length 1."""
        import torch

        if self.inputs == "images":
            from neuralpath.data import balanced_subset

            train, per_class = self.data.load(data_dir).train, self.n_examples // self.data.n_outputs
            points = balanced_subset(train, per_class, seeded(self.seed, "memorised examples")).images
        else:
            points = torch.randn(self.n_examples, *self.data.shape, generator=seeded(self.seed, "memorised points"))
        return points / points.flatten(1).norm(dim=1)[:, None, None, None]


def _entries(x: "Tensor", kernel: "Tensor", depth: int) -> dict[str, float]:
    """Entries of the expected kernel over d: the diagonal, and what gates leave of the inputs' inner products.

    For unit inputs the diagonal tends to 1, and an off-diagonal entry to the inner product times the product of the
    layers' overlaps; ``limit`` is that product for infinite width.
    """
    import torch

    pairs, cosines = ~torch.eye(len(x), dtype=torch.bool), cosines_of(x)
    overlaps = [2 * overlap[pairs] for overlap in overlaps_in_the_limit(cosines, depth - 1)]
    gram = cosines[pairs]
    # Weighted by the inner products themselves, since the quotient means nothing where they are near 0.
    weights = gram.abs() / gram.abs().sum()
    return {
        "diagonal_mean": float(kernel.diagonal().mean()),
        "diagonal_deviation": float(kernel.diagonal().std()),
        "pairs_mean": float(kernel[pairs].abs().mean()),
        "suppression": float((weights * kernel[pairs] / gram).sum()),
        "suppression_in_the_limit": float((weights * torch.stack(overlaps).prod(0)).sum()),
    }


def _rounded(values: "Tensor") -> list[float]:
    return [float(f"{value:.6g}") for value in values.tolist()]


def _predicted(kernel: "Tensor", y: "Tensor", first: "Tensor", moments: list[int], size: float) -> list[float] | None:
    """The share of the first error that a fixed kernel leaves; None where it says that the steps are too large."""
    import torch

    from neuralpath.kernels import GradientSteps, KernelDynamics

    try:
        left = KernelDynamics(kernel).train(y, GradientSteps(torch.tensor(moments), size), initial=first + y) - y
    except OverflowError:
        return None
    return _rounded(left.flatten(1).norm(dim=1) / first.double().norm())


@dataclass(frozen=True)
class FitPair(Task):
    """Fit x with the label 1 and x / 2 with the label -1: without biases f(x / 2) = f(x) / 2 whatever the weights."""

    width: int
    depth: int
    bias: bool
    n_steps_trained: int
    seed: int = 0

    @property
    def label(self) -> str:
        return f"fit-pair w{self.width} d{self.depth} {'bias' if self.bias else 'nobias'} seed{self.seed}"

    def run(self, directory: "RunDirectory") -> dict[str, Any]:
        import torch

        from neuralpath import nets

        generator = seeded(self.seed, "pair")
        model = nets.FC(8, self.width, self.depth, bias=self.bias, generator=generator)
        x = torch.randn(1, 8, generator=generator)
        x, y = torch.cat([x, x / 2]), torch.tensor([[1.0], [-1.0]])
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(self.n_steps_trained):
            optimizer.zero_grad()
            (model(x) - y).square().sum().backward()
            optimizer.step()
        with torch.no_grad():  # one at a time: in a batch, rows may be summed in different orders
            outputs = torch.cat([model(row.clone()) for row in x.split(1)])
        return {"outputs": outputs.flatten().tolist(), "loss": float((outputs - y).square().sum())}


def cosines_of(x: "Tensor") -> "Tensor":
    """Cosines of the angles between all inputs, in float64."""
    flat = x.flatten(1).double()
    flat = flat / flat.norm(dim=1, keepdim=True)
    return (flat @ flat.T).clamp(-1, 1)


def overlaps_in_the_limit(cosines: "Tensor", n_layers: int, *, linear: bool = False) -> "list[Tensor]":
    r"""For each gate layer of a random network the share of the gates that two inputs both open, at infinite width.

    .. math:: \frac{\pi - \theta_l}{2 \pi}, \qquad
        \cos \theta_{l+1} = \frac{\sin \theta_l + (\pi - \theta_l) \cos \theta_l}{\pi}

    Symbols: :math:`\theta_1` is the angle between the inputs, whose cosine is given; where features are ``linear`` it
    stays the same at every layer. Without biases. Reference: Theory, "Parts, gates, skips and images".

    >>> import torch
    >>> overlaps_in_the_limit(torch.tensor([0.0, 1.0]), 1)
    [tensor([0.2500, 0.5000])]
    """
    angles, overlaps = cosines.clamp(-1, 1).acos(), []
    for _ in range(n_layers):
        overlaps.append((math.pi - angles) / (2 * math.pi))
        if not linear:
            angles = next_angles(angles)
    return overlaps


def next_angles(angles: "Tensor") -> "Tensor":
    """The angles after a random ReLU layer of infinite width, from those before it."""
    return ((angles.sin() + (math.pi - angles) * angles.cos()) / math.pi).clamp(-1, 1).acos()
