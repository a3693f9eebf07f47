"""Runs of the experiment `theorem`: draws of the value tangent kernel, and its change in training."""

import math
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, Literal

from neuralpath.papers.experiments.statistics import rounded
from neuralpath.papers.experiments.trained import seeded
from neuralpath.papers.runs import RunDirectory, Task

if TYPE_CHECKING:
    from torch import Tensor, nn

    from neuralpath.graph import PathGraph

DrawnFamily = Literal["fc", "cnn", "residual", "open"]
FirstLayer = Literal["width", "in"]

N_INPUTS = 16  # dimension of the inputs of drawn networks
LAZY_INPUTS = 6  # dimension of the inputs of networks that are compared with limits or trained
RATE = 0.1  # learning rate as a share of the largest that is stable for the kernel before training


@dataclass(frozen=True)
class DrawKernels(Task):
    """Draw value weights with the gates of a random network, and compare each kernel with the expectation."""

    family: DrawnFamily  # `open` has no gates, and random signs as weights; the others have normal weights
    width: int
    depth: int
    n_examples: int
    n_draws: int
    seed: int = 0

    @property
    def label(self) -> str:
        return f"draws {self.family} w{self.width} d{self.depth} n{self.n_draws} seed{self.seed}"

    def run(self, directory: RunDirectory) -> dict[str, Any]:
        from neuralpath.graph import trace
        from neuralpath.kernels import concentration, random_signs

        x = self.inputs()
        graph = trace(self.network(), x[:1])
        generator = seeded(self.seed, f"draws {self.width} {self.depth}")
        signs: dict[str, Any] = {"weight_variance": 1 / self.width, "draw": random_signs}
        options = signs if self.family == "open" else {}
        drawn = concentration(graph, x, self.n_draws, generator=generator, **options)
        low, high = (float(ends.mean()) for ends in drawn.spectrum_ratios.aminmax(dim=1))
        return {
            "distance": math.sqrt(drawn.relative_variance),
            "distances": rounded(drawn.distances.tolist()),
            "eigenvalue_ratios": [low, high],
            "mean_off_in_errors": float(((drawn.mean - drawn.expected).abs() / drawn.standard_error).median()),
        }

    def inputs(self) -> "Tensor":
        """Drawn from the seed."""
        import torch

        if self.family == "open":  # all its entries are equal up to the inputs, so that one is enough
            return torch.ones(1, N_INPUTS)
        return torch.randn(self.n_examples, N_INPUTS, generator=seeded(self.seed, "drawn inputs"))

    def network(self) -> "nn.Module":
        """The network that makes the gates."""
        from torch import nn

        from neuralpath import nets

        common: dict[str, Any] = {"init": nets.Gaussian(), "generator": seeded(self.seed, f"drawn {self.width}")}
        if self.family == "fc":
            return nets.FC(N_INPUTS, self.width, self.depth, **common)
        if self.family == "cnn":
            return nets.CircularCNN(N_INPUTS, self.width, self.depth - 1, 1, window=3, **common)
        if self.family == "residual":
            # Each sum doubles the variance of what it carries; the factor takes that back.
            return nets.ResidualFC(N_INPUTS, self.width, self.depth - 2, 1, gamma_post=math.sqrt(0.5), **common)
        sizes = [N_INPUTS, *[self.width] * (self.depth - 1), 1]
        return nn.Sequential(*(nn.Linear(n_in, n_out, bias=False) for n_in, n_out in pairwise(sizes)))


@dataclass(frozen=True)
class ApproachLimits(Task):
    """Kernels of the weights that define the gates, and of independent weights, against the limit of each."""

    width: int
    depth: int
    n_examples: int
    n_draws: int
    seed: int = 0

    @property
    def label(self) -> str:
        return f"limits w{self.width} d{self.depth} n{self.n_draws} seed{self.seed}"

    def run(self, directory: RunDirectory) -> dict[str, Any]:
        import torch

        from neuralpath import nets
        from neuralpath.graph import trace
        from neuralpath.kernels import limit_path_kernel, limit_tangent_kernel, random_weights, value_kernel

        x = torch.randn(self.n_examples, LAZY_INPUTS, generator=seeded(self.seed, "limit inputs"))
        x = x / x.norm(dim=1, keepdim=True)
        model = nets.FC(LAZY_INPUTS, self.width, self.depth)
        graph = trace(model, x[:1])
        # Of weights of variance 2 / width: those that define the gates, and independent ones.
        limits = {"dependent": limit_tangent_kernel(graph, x, progress=False)}
        scale = self.depth * 2 ** (self.depth - 1) * LAZY_INPUTS
        limits["independent"] = scale * limit_path_kernel(graph, x, progress=False)
        # By the kind of weights, and the limit that their kernel is compared with.
        distances: dict[tuple[str, str], list[float]] = {(kind, limit): [] for kind in limits for limit in limits}
        generator = seeded(self.seed, f"limits {self.width}")
        for _ in range(self.n_draws):
            nets.initialize(model, nets.Gaussian(), generator)
            weights = random_weights(graph, generator=generator, weight_variance=2 / self.width)
            drawn = {"dependent": value_kernel(graph, x), "independent": value_kernel(graph, x, weights=weights)}
            for (kind, kernel), (name, limit) in product(drawn.items(), limits.items()):
                distances[kind, name].append(float((kernel - limit).norm() / limit.norm()))
        apart = (limits["dependent"] - limits["independent"]).norm() / limits["dependent"].norm()
        means = {pair: math.sqrt(sum(v * v for v in values) / len(values)) for pair, values in distances.items()}
        return {
            "distance": {kind: {limit: means[kind, limit] for limit in limits} for kind in limits},
            "distances": {kind: rounded(distances[kind, kind]) for kind in limits},
            "between_limits": float(apart),
        }


@dataclass(frozen=True)
class TrainLazily(Task):
    """Train ReLU networks by gradient descent; how many gates flip, and how far the tangent kernel moves."""

    first_layer: FirstLayer  # variance of its weights: 2 / width, as the papers have it, or 2 / fan-in
    width: int
    depth: int
    n_examples: int
    n_steps_trained: int
    n_networks: int
    seed: int = 0

    @property
    def label(self) -> str:
        return f"lazy {self.first_layer} w{self.width} d{self.depth} n{self.n_networks} seed{self.seed}"

    def run(self, directory: RunDirectory) -> dict[str, Any]:
        import torch

        from neuralpath import nets
        from neuralpath.graph import trace

        x = torch.randn(self.n_examples, LAZY_INPUTS, generator=seeded(self.seed, "lazy inputs"))
        y = torch.randn(self.n_examples, 1, generator=seeded(self.seed, "lazy labels"))
        model = nets.FC(LAZY_INPUTS, self.width, self.depth)
        graph = trace(model, x[:1])
        generator = seeded(self.seed, f"lazy networks {self.width}")
        runs = []
        for _ in range(self.n_networks):
            nets.initialize(model, nets.Gaussian(fan=self.first_layer), generator)
            runs.append(_trained(model, graph, x, y, self.n_steps_trained))
        return {name: [run[name] for run in runs] for name in runs[0]}


def _trained(model: "nn.Module", graph: "PathGraph", x: "Tensor", y: "Tensor", n_steps: int) -> dict[str, float]:
    """Shares: of gates that differ in the end, of the kernel that changed, of the prediction of the fixed kernel."""
    import torch

    from neuralpath.kernels import GradientSteps, KernelDynamics, value_kernel
    from neuralpath.paths import SwitchRecorder

    recorder = SwitchRecorder()
    recorder.update(graph.gates(x))
    first, kernel = model(x).detach(), value_kernel(graph, x)
    dynamics = KernelDynamics(kernel)
    rate = RATE * dynamics.largest_rate
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(n_steps):
        optimizer.zero_grad()
        (0.5 * (model(x) - y).square().sum()).backward()
        optimizer.step()
    recorder.update(graph.gates(x))
    last, predicted = model(x).detach(), dynamics.train(y, GradientSteps(n_steps, rate), initial=first)
    return {
        "flips": float(recorder.switches().mean_fraction.mean()),
        "kernel": float((value_kernel(graph, x) - kernel).norm() / kernel.norm()),
        "prediction": float((predicted - last).norm() / (y - first).norm()),
        "loss": float((last - y).square().sum() / (first - y).square().sum()),
    }
