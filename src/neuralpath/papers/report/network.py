"""The network that the gate explorer looks into: chosen among the runs, and written for the browser."""

import math
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from neuralpath.data import DataError, Split
from neuralpath.papers.experiments import TrainNetwork
from neuralpath.papers.runs import DamagedTensors, Store, Task, with_dependencies

if TYPE_CHECKING:
    from neuralpath.papers.report.contents import SweepContents

N_TRAIN, N_TEST = 300, 120
"""Images in the page; of each class equally many, the first ones."""

LARGEST = 1_000_000
"""Weights of a network, at most: twice, in base64, that is 11 MB of the page."""

Kept = Literal["last", "best"]
KEPT: tuple[Kept, ...] = ("last", "best")
"""Weights to look into, the first that are there; results have the figures of their epochs under the same names."""

SCALES = (16, 255)
"""Images that are whole numbers divided by one of these are written as bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class ExplorerNetwork:
    """A fully connected ReLU network before and after training, with some of its training and test images."""

    name: str
    about: str
    before: nn.Module
    after: nn.Module
    train: Split
    test: Split
    test_accuracy: float | None


@dataclass(frozen=True)
class NoNetwork:
    """Why there is no network to look into, and how to get one."""

    reason: str


def find_network(sweeps: "Iterable[SweepContents]", store: Store) -> ExplorerNetwork | NoNetwork:
    """The network of the best test accuracy among those that the explorer can run.

    These are finished runs of `TrainNetwork` of the family ``fc`` with several classes, true training data and at most
    ``LARGEST`` weights, whose last or best weights are still there and whose data can be read. The accuracy is that of
    the epoch that the weights are of. The weights before training are ``epoch-0``, or drawn again from the run's seed.
    """
    found = _candidates(task for sweep in sweeps for task in with_dependencies(sweep.sweep.tasks))
    finished = [task for task in found if store.is_finished(task)]
    if not finished:
        return NoNetwork("no finished run of this folder has trained a fully connected network on several classes")
    problems, candidates = [], []
    for task in finished:
        which = next((kept for kept in KEPT if store.weights_path(task, kept) is not None), None)
        if which is not None:
            candidates.append((task, which, _accuracy(store, task, which)))
            continue
        damaged = [problem for kept in KEPT for problem in store.damaged_weights(task, kept)]
        problems += damaged or ["the weights of its networks are not kept in this folder"]
    for task, which, accuracy in sorted(candidates, key=lambda one: (-(one[2] or 0.0), one[0].name)):
        try:
            return _read(task, which, store, accuracy)
        except DataError as error:
            problems.append(f"the data {task.data.name} cannot be read: {error}")
        except DamagedTensors as error:  # since they were looked at
            problems.append(str(error).removesuffix("."))
    return NoNetwork("; ".join(dict.fromkeys(problems)).removesuffix("."))


def export(network: ExplorerNetwork) -> dict[str, Any]:
    """The network for the scripts: float32 weights, row by row, in base64 with the lowest byte first."""
    return {
        "name": network.name, "about": network.about, "shape": list(network.test.images.shape[1:]),
        "testAccuracy": network.test_accuracy,
        "stages": {"before": _layers(network.before), "after": _layers(network.after)},
        "train": _images(network.train), "test": _images(network.test),
    }  # fmt: skip


def _candidates(tasks: Iterable[Task]) -> list[TrainNetwork]:
    return [task for task in dict.fromkeys(tasks) if isinstance(task, TrainNetwork) and _fits(task)]


def _fits(task: TrainNetwork) -> bool:
    data, net = task.data, task.net
    if net.family != "fc" or task.start is not None:
        return False
    if data.n_outputs == 1 or data.variant != "true" or data.noise > 0:
        return False
    n_weights = net.width * (math.prod(data.shape) + (net.depth - 2) * net.width + data.n_outputs)
    return n_weights <= LARGEST


def _accuracy(store: Store, task: TrainNetwork, which: Kept) -> float | None:
    """Of the epoch that the weights are of."""
    epoch = (store.result(task) or {}).get(which) or {}
    accuracy = epoch.get("test_accuracy")
    return accuracy if isinstance(accuracy, float) else None


def _read(task: TrainNetwork, which: Kept, store: Store, accuracy: float | None) -> ExplorerNetwork:
    examples = task.data.load(store.data_dir)
    directory = store.directory(task)
    before, after = task.make(directory), task.make(directory)
    if store.weights_path(task, "epoch-0") is not None:
        before.load_state_dict(directory.weights_of(task, "epoch-0"))
    after.load_state_dict(directory.weights_of(task, which))
    when = "after its last epoch" if which == "last" else "at its best epoch"
    about = f"width {task.net.width}, depth {task.net.depth}, {task.data.label}, seed {task.seed}, {when}"
    train, test = _sample(examples.train, N_TRAIN), _sample(examples.test, N_TEST)
    return ExplorerNetwork(task.name, about, before.eval(), after.eval(), train, test, accuracy)


def _sample(split: Split, number: int) -> Split:
    """The first images of each class, one of each class after the other."""
    labels = split.labels.unique().tolist()
    rows = [(split.labels == label).nonzero()[: number // len(labels), 0].tolist() for label in labels]
    longest = max(map(len, rows))
    order = [row[place] for place in range(longest) for row in rows if place < len(row)]
    return Split(split.images[order], split.labels[order])


def _layers(model: nn.Module) -> list[dict[str, Any]]:
    """Weights and biases of the dense layers, in order; between any two lies a ReLU."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    return [
        {
            "inputs": layer.in_features, "outputs": layer.out_features, "weights": _base64(layer.weight),
            "bias": None if layer.bias is None else _base64(layer.bias),
        }
        for layer in layers
    ]  # fmt: skip


def _images(split: Split) -> dict[str, Any]:
    pixels, scale = _pixels(split.images)
    return {"count": len(split.labels), "labels": _numbers(split.labels), "scale": scale, "pixels": pixels}


def _pixels(images: Float[Tensor, "image *shape"]) -> tuple[str, int | None]:
    """Bytes and what to divide them by, where that gives every value exactly; else float32 and None."""
    for scale in SCALES:
        whole = (images * scale).round()
        if bool(((whole >= 0) & (whole <= 255)).all()) and torch.equal(whole / scale, images):
            return b64encode(whole.to(torch.uint8).numpy().tobytes()).decode(), scale
    return _base64(images), None


def _numbers(labels: Int[Tensor, " image"]) -> list[int]:
    return [int(label) for label in labels]


def _base64(values: Tensor) -> str:
    return b64encode(values.detach().to(torch.float32).contiguous().numpy().astype("<f4").tobytes()).decode()
