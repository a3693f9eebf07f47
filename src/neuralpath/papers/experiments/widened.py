"""Value networks made wider by repeating their gates, beside kernel regression with their path kernel, as a run."""

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from neuralpath.papers.experiments.specs import DataSpec, NetSpec
from neuralpath.papers.experiments.trained import seeded
from neuralpath.papers.runs import Task, Weights

if TYPE_CHECKING:
    from torch import Tensor

    from neuralpath.gating import GatedNetwork
    from neuralpath.papers.runs import RunDirectory

BLOCK = 256
"""Examples that are evaluated together."""

MEASURED = 250
"""Examples of the step from which a time is estimated."""


@dataclass(frozen=True)
class WidenValue(Task):
    """Train a value network whose gates are repeated, beside its kernel: gradient descent on the squared loss.

    What the network gives before training is taken off, in training and in the test: so it starts from 0, as kernel
    regression does.
    """

    data: DataSpec
    net: NetSpec
    """The network that makes the gates; fully connected, without biases."""
    repeats: int
    """How many times each gate is repeated: the value network is that much wider."""
    n_steps_trained: int
    lr: float
    """Learning rate as a share of the largest that is stable for the expected kernel."""
    gates: Weights | None = None
    """The trained network whose gates are taken; otherwise those of a random network."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.net.family != "fc" or self.net.bias:
            raise ValueError("gates are repeated for fully connected networks without biases; give `net` as such.")

    @property
    def label(self) -> str:
        """As `Task.label`."""
        gates = "random" if self.gates is None else "learnt"
        return f"widened {self.data.label} {self.net.label} {gates} x{self.repeats} seed{self.seed}"

    @property
    def dependencies(self) -> tuple[Task, ...]:
        """As `Task.dependencies`."""
        return () if self.gates is None else (self.gates.task,)

    def make(self, directory: "RunDirectory | None" = None) -> "GatedNetwork":
        """Gates of the network, each repeated; value weights of variance 2 / (width of the value network)."""
        from neuralpath.gating import GatedNetwork, TileGates

        shape, n_outputs = self.data.shape, self.data.n_outputs
        feature = self.net.make(shape, n_outputs, seeded(self.seed, "network"))
        if self.gates is not None and directory is not None:
            feature.load_state_dict(directory.weights_of(self.gates.task, self.gates.which))
        wide = replace(self.net, width=self.repeats * self.net.width, init="gaussian")
        value = wide.make(shape, n_outputs, seeded(self.seed, f"value network x{self.repeats}"))
        return GatedNetwork(feature, value, gate_transform=TileGates())

    def run(self, directory: "RunDirectory") -> dict[str, Any]:
        """As `Task.run`."""
        import torch

        from neuralpath.kernels import GradientSteps, KernelDynamics

        examples = self.data.load(directory.data_dir)
        train, test = examples.train, examples.test
        targets = torch.nn.functional.one_hot(train.labels, self.data.n_outputs).float() - 1 / self.data.n_outputs
        network = self.make(directory)
        own, cross = self.expected(network, train.images, test.images)
        dynamics = KernelDynamics(own)
        rate = self.lr * dynamics.largest_rate
        before, before_test = _outputs(network, train.images), _outputs(network, test.images)
        self._train(network, train.images, targets + before, rate)
        learnt = _outputs(network, test.images) - before_test
        if not bool(learnt.isfinite().all()):
            # One draw of a narrow network's kernel may be far above its expectation, and the rate too large for it.
            return {"diverged": True}
        told = dynamics.test(cross, targets, GradientSteps(self.n_steps_trained, rate)).to(learnt)

        def accuracy(outputs: "Tensor") -> float:
            return float((outputs.argmax(1) == test.labels).double().mean())

        return {
            "diverged": False,
            "network": accuracy(learnt),
            "kernel": accuracy(told),
            "interpolating": accuracy(dynamics.test(cross, targets, float("inf"))),
            "agree": float((learnt.argmax(1) == told.argmax(1)).double().mean()),
            "distance": float((learnt - told).norm() / told.norm()),
            "train_error": float((_outputs(network, train.images) - before - targets).norm() / targets.norm()),
        }

    def expected(self, network: "GatedNetwork", train: "Tensor", test: "Tensor") -> "tuple[Tensor, Tensor]":
        """The expected value tangent kernel: d (2 / w)^(d - 1) H, the same however often the gates are repeated."""
        from neuralpath.graph import Gates, trace
        from neuralpath.kernels import expected_tangent_kernel

        x, x_test = train.double(), test.double()
        graph = trace(copy.deepcopy(network.feature).double(), x[:1])

        def of_feature(images: "Tensor") -> Gates:  # what is repeated stands first
            layers = [layer[:, : self.net.width].contiguous() for layer in network.gates(images).layers.values()]
            return Gates(dict(zip(graph.gate_names, layers, strict=True)))

        gates, gates_test = of_feature(train), of_feature(test)
        options: dict[str, Any] = {"weight_variance": 2 / self.net.width, "progress": False}
        own = expected_tangent_kernel(graph, x, gates1=gates, **options)
        return own, expected_tangent_kernel(graph, x_test, x, gates1=gates_test, gates2=gates, **options)

    def _train(self, network: "GatedNetwork", x: "Tensor", targets: "Tensor", rate: float) -> None:
        import torch

        gates = [gate.to(x.dtype) for gate in network.gates(x).layers.values()]
        weights = [weight for weight in network.value.parameters() if weight.requires_grad]
        for _ in range(self.n_steps_trained):
            loss = 0.5 * (network.value_output(x, gates) - targets).square().sum()
            for weight, slope in zip(weights, torch.autograd.grad(loss, weights), strict=True):
                weight.data.sub_(slope, alpha=rate)


def _outputs(network: "GatedNetwork", x: "Tensor") -> "Tensor":
    import torch

    with torch.no_grad():
        return torch.cat([network(part) for part in x.split(BLOCK)])
