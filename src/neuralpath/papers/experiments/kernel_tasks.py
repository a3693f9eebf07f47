"""Tasks of the experiment `kernels`: kernel regression, and value networks that tend to it as they get wider."""

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from neuralpath.papers.experiments.specs import DataSpec, NetSpec
from neuralpath.papers.experiments.statistics import rounded
from neuralpath.papers.experiments.trained import seeded
from neuralpath.papers.runs import DamagedTensors, RunDirectory, Task, Weights, read_tensors, write_tensors

if TYPE_CHECKING:
    from torch import Tensor, nn

    from neuralpath.gating import GatedNetwork

KernelName = Literal["linear", "path", "limit-path", "limit-tangent"]

DENSE_LIMIT = 30_000  # training examples up to which the solution is exact (Cholesky); beyond, conjugate gradients
STEPS = 500  # of conjugate gradients, at most
SOLVER_MEMORY = 1 << 40  # never decides anything: results must not depend on the memory that happens to be free
BLOCK = 256  # examples that are evaluated together
ROWS = 125  # rows of a kernel that are computed together, and stored until the run is finished


@dataclass(frozen=True)
class FitKernel(Task):
    """Kernel regression on the classes, the ridge chosen by leaving one training example out."""

    data: DataSpec
    net: NetSpec
    kernel: KernelName
    """`path` is the path kernel of the network's gates; `limit-` kernels are of its structure at infinite width."""
    ridges: tuple[float, ...]  # to choose from, in units of the kernel's mean diagonal entry
    n_chosen_on: int  # training examples on which the ridge is chosen
    gates: Weights | None = None  # the trained network whose gates the path kernel has; otherwise a random network
    seed: int = 0

    @property
    def label(self) -> str:
        what = self.kernel if self.kernel != "path" else f"path-{'random' if self.gates is None else 'learnt'}"
        return f"regression {self.data.label} {self.net.label} {what} seed{self.seed}"

    @property
    def n_steps(self) -> int:
        n_train, n_test = self.data.n_images
        return sum(-(-n // ROWS) for n in (self.data.n_train or n_train, self.data.n_test or n_test))

    def make(self, directory: RunDirectory | None = None) -> "nn.Module":
        """The network whose kernel it is, in double precision."""
        return _network(self, directory).double().eval()

    def run(self, directory: RunDirectory) -> dict[str, Any]:
        import torch

        from neuralpath.estimators import KernelClassifier

        examples = self.data.load(directory.data_dir)
        x, labels = examples.train.images.double(), examples.train.labels.numpy()
        kernel = _kernel_of(self.kernel, self.make(directory), x)
        own, cross = _computed(kernel, x, examples.test.images.double(), directory)
        scale = float(own.diagonal().mean())
        own, cross = own.div_(scale), cross.div_(scale)
        order = torch.randperm(len(x), generator=seeded(self.seed, "ridge examples"))
        chosen = order[: self.n_chosen_on].sort().values
        options: dict[str, Any] = {"solver": "cholesky", "memory": SOLVER_MEMORY}
        classifier = KernelClassifier("precomputed", max(self.ridges), **options)
        path = classifier.fit(own[chosen][:, chosen].numpy(), labels[chosen]).ridge_path(self.ridges)
        options |= {} if len(x) <= DENSE_LIMIT else {"solver": "cg", "max_iter": STEPS}
        classifier = KernelClassifier("precomputed", path.best_ridge, **options).fit(own.numpy(), labels)
        assert path.error_rates is not None
        return {
            "test_accuracy": float((classifier.predict(cross.numpy()) == examples.test.labels.numpy()).mean()),
            "train_accuracy": float((classifier.predict(own.numpy()) == labels).mean()),
            "ridge": path.best_ridge,
            "left_out": {
                "ridges": list(self.ridges),
                "squared_errors": rounded(path.squared_errors),
                "accuracies": [1 - float(rate) for rate in path.error_rates],
            },
            "converged": bool(classifier.report_.converged),
        }


def _network(task: "FitKernel | WidenValue", directory: RunDirectory | None) -> "nn.Module":
    """The network of a task: trained, where it reads the gates of another run."""
    model = task.net.make(task.data.shape, task.data.n_outputs, seeded(task.seed, "network"))
    if task.gates is not None and directory is not None:
        model.load_state_dict(directory.weights_of(task.gates.task, task.gates.which))
    return model


Kernel = Callable[["Tensor", "Tensor"], "Tensor"]


def _kernel_of(name: KernelName, model: "nn.Module", x: "Tensor") -> Kernel:
    """The kernel between two batches."""
    from neuralpath.graph import trace
    from neuralpath.kernels import limit_path_kernel, limit_tangent_kernel, path_kernel

    if name == "linear":
        return lambda a, b: a.flatten(1) @ b.flatten(1).T
    graph = trace(model, x[:1])
    if name == "path":
        return partial(path_kernel, graph, normalize=True, progress=False)
    return partial(limit_path_kernel if name == "limit-path" else limit_tangent_kernel, graph, progress=False)


def _computed(kernel: Kernel, train: "Tensor", test: "Tensor", directory: RunDirectory) -> "tuple[Tensor, Tensor]":
    """The kernel of the training examples, and between test and training examples.

    Each block of rows is kept until the run is finished, so that a resumed run computes only what is missing.
    """
    import torch

    n = len(train)
    own, cross = (torch.empty(n_rows, n, dtype=torch.float64) for n_rows in (n, len(test)))
    for start in range(0, n, ROWS):
        stop = min(start + ROWS, n)
        # Up to its own block only: the other half is the same.
        block = _kept(directory, f"own-{start}", partial(kernel, train[start:stop], train[:stop]))
        own[start:stop, :stop] = block
        own[:start, start:stop] = block[:, :start].T
        square = own[start:stop, start:stop]
        own[start:stop, start:stop] = (square + square.T) / 2  # equal up to rounding; the solver requires equal halves
    for start in range(0, len(test), ROWS):
        rows = slice(start, start + ROWS)
        cross[rows] = _kept(directory, f"cross-{start}", partial(kernel, test[rows], train))
    return own, cross


def _kept(directory: RunDirectory, name: str, compute: "Callable[[], Tensor]") -> "Tensor":
    """A block of rows as it was computed before, or computed now; one that is damaged is named and computed anew."""
    from safetensors.torch import load, save

    from neuralpath.training import CheckpointWarning

    file = directory.checkpoints / f"{name}.safetensors"
    if file.exists():
        try:
            return load(read_tensors(file))["block"]
        except DamagedTensors as error:
            warnings.warn(f"{error} It is computed anew.", CheckpointWarning, stacklevel=2)
    directory.checkpoints.mkdir(exist_ok=True)
    write_tensors(file, data := save({"block": compute().contiguous()}))
    return load(data)["block"]


@dataclass(frozen=True)
class WidenValue(Task):
    """Train a value network whose gates are repeated, beside its kernel: gradient descent on the squared loss.

    What the network gives before training is taken off, in training and in the test: so it starts from 0, as kernel
    regression does.
    """

    data: DataSpec
    net: NetSpec  # the network that makes the gates; fully connected, without biases
    repeats: int  # how many times each gate is repeated: the value network is that much wider
    n_steps_trained: int
    lr: float  # as a share of the largest learning rate that is stable for the expected kernel
    gates: Weights | None = None  # the trained network whose gates are taken; otherwise a random network
    seed: int = 0

    def __post_init__(self) -> None:
        if self.net.family != "fc" or self.net.bias:
            raise ValueError("`net` must be fully connected and without biases, so that its gates can be repeated.")

    @property
    def label(self) -> str:
        gates = "random" if self.gates is None else "learnt"
        return f"widened {self.data.label} {self.net.label} {gates} x{self.repeats} seed{self.seed}"

    def make(self, directory: RunDirectory | None = None) -> "GatedNetwork":
        """Gates of the network, each repeated; value weights of variance 2 / (width of the value network)."""
        from neuralpath.gating import GatedNetwork, TileGates

        wide = replace(self.net, width=self.repeats * self.net.width, init="gaussian")
        generator = seeded(self.seed, f"value network x{self.repeats}")
        value = wide.make(self.data.shape, self.data.n_outputs, generator)
        return GatedNetwork(_network(self, directory), value, gate_transform=TileGates())

    def run(self, directory: RunDirectory) -> dict[str, Any]:
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
        predicted = dynamics.test(cross, targets, GradientSteps(self.n_steps_trained, rate)).to(learnt)

        def accuracy(outputs: "Tensor") -> float:
            return float((outputs.argmax(1) == test.labels).double().mean())

        return {
            "diverged": False,
            "network": accuracy(learnt),
            "kernel": accuracy(predicted),
            "interpolating": accuracy(dynamics.test(cross, targets, float("inf"))),
            "agree": float((learnt.argmax(1) == predicted.argmax(1)).double().mean()),
            "distance": float((learnt - predicted).norm() / predicted.norm()),
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
