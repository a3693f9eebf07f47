"""The network of the gate explorer: chosen among the runs, written for the browser, and its path kernel."""

import math
from base64 import b64encode
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from neuralpath.data import DataError, Split
from neuralpath.graph import trace
from neuralpath.kernels import path_kernel
from neuralpath.papers.experiments import HeatMaps, TrainNetwork
from neuralpath.papers.report.contents import SweepContents
from neuralpath.papers.runs import DamagedTensors, Store, with_dependencies

N_TRAIN, N_TEST = 300, 120  # images in the page: the first ones of each class, equally many
N_IMAGES = 200  # images of the kernel's picture, at most: chosen in the same way
LARGEST = 1_000_000  # weights of a network, at most: two copies in base64 take 11 MB of the page
SCALES = (16, 255)  # images that are whole numbers divided by one of these are written as bytes
_DIGITS = 3  # decimals of a cosine

WeightsName = Literal["last", "best"]
SHOWN_WEIGHTS: tuple[WeightsName, ...] = ("last", "best")
"""Weights to show, the first that exist; results have the figures of these epochs under the same names."""


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


def find_network(sweeps: Iterable[SweepContents], store: Store) -> ExplorerNetwork | str:
    """The network with the best test accuracy, at the weights' epoch, among those that the explorer can run.

    If there is none: why not. The weights before training are ``epoch-0``, or drawn again from the run's seed.
    """
    tasks = dict.fromkeys(task for sweep in sweeps for task in with_dependencies(sweep.sweep.tasks))
    networks = [task for task in tasks if isinstance(task, TrainNetwork) and _fits(task)]
    finished = [task for task in networks if store.is_finished(task)]
    if not finished:
        return "no finished run of this folder has trained a fully connected network on several classes"
    problems, candidates = [], []
    for task in finished:
        which = next((name for name in SHOWN_WEIGHTS if store.weights_path(task, name) is not None), None)
        if which is not None:
            accuracy = ((store.result(task) or {}).get(which) or {}).get("test_accuracy")
            candidates.append((task, which, accuracy if isinstance(accuracy, float) else None))
            continue
        damaged = [problem for name in SHOWN_WEIGHTS for problem in store.damaged_weights(task, name)]
        problems += damaged or ["the weights of its networks are not kept in this folder"]
    for task, which, accuracy in sorted(candidates, key=lambda candidate: (-(candidate[2] or 0.0), candidate[0].name)):
        try:
            return _read(task, which, store, accuracy)
        except DataError as error:
            problems.append(f"the data {task.data.name} cannot be read: {error}")
        except DamagedTensors as error:  # damaged since the check above
            problems.append(str(error).removesuffix("."))
    return "; ".join(dict.fromkeys(problems)).removesuffix(".")


def export(network: ExplorerNetwork) -> dict[str, Any]:
    """The network for the browser: float32 weights, row by row, as little-endian base64."""
    facts = {"name": network.name, "about": network.about, "shape": list(network.test.images.shape[1:])}
    stages = {"before": _layers(network.before), "after": _layers(network.after)}
    images = {"train": _images(network.train), "test": _images(network.test)}
    return {**facts, "testAccuracy": network.test_accuracy, "stages": stages, **images}


def _fits(task: TrainNetwork) -> bool:
    data, net = task.data, task.net
    n_weights = net.width * (math.prod(data.shape) + (net.depth - 2) * net.width + data.n_outputs)
    is_true = data.variant == "true" and data.noise == 0
    return net.family == "fc" and task.start is None and is_true and data.n_outputs > 1 and n_weights <= LARGEST


def _read(task: TrainNetwork, which: WeightsName, store: Store, accuracy: float | None) -> ExplorerNetwork:
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
    """The first images of each class, the classes in turn."""
    in_turn = zip_longest(*_rows_by_class(split, number))
    order = [row for rows in in_turn for row in rows if row is not None]
    return Split(split.images[order], split.labels[order])


def _rows_by_class(split: Split, number: int) -> list[list[int]]:
    """The rows of the first images of each class: equally many, about this number in all."""
    classes = split.labels.unique().tolist()
    most = max(1, number // len(classes))
    return [(split.labels == label).nonzero()[:most, 0].tolist() for label in classes]


def _layers(model: nn.Module) -> list[dict[str, Any]]:
    """Weights and biases of the dense layers, in order; a ReLU lies between any two."""
    layers = []
    for layer in (module for module in model.modules() if isinstance(module, nn.Linear)):
        sizes = {"inputs": layer.in_features, "outputs": layer.out_features}
        bias = None if layer.bias is None else _base64(layer.bias)
        layers.append({**sizes, "weights": _base64(layer.weight), "bias": bias})
    return layers


def _images(split: Split) -> dict[str, Any]:
    pixels, scale = _pixels(split.images)
    return {"count": len(split.labels), "labels": split.labels.tolist(), "scale": scale, "pixels": pixels}


def _pixels(images: Float[Tensor, "image *shape"]) -> tuple[str, int | None]:
    """Bytes and their divisor, if these give every value exactly; otherwise float32 and None."""
    for scale in SCALES:
        whole = (images * scale).round()
        if bool(((whole >= 0) & (whole <= 255)).all()) and torch.equal(whole / scale, images):
            return b64encode(whole.to(torch.uint8).numpy().tobytes()).decode(), scale
    return _base64(images), None


def _base64(values: Tensor) -> str:
    return b64encode(values.detach().to(torch.float32).contiguous().numpy().astype("<f4").tobytes()).decode()


NOTE = (
    "Each point compares two training images, sorted by class: the cosine of their path features. It counts the active "
    "paths that both images share, weighted by the pixels that the paths start from. It is 1 for an image with itself "
    "and near 0 for images that share few paths. Bright blocks on the diagonal are classes of similar images."
)


def kernel_picture(network: ExplorerNetwork) -> HeatMaps:
    """The path kernel of the explorer's network before and after training, on training images sorted by class."""
    rows = list(chain.from_iterable(_rows_by_class(network.train, N_IMAGES)))
    images, kernels = network.train.images[rows].double(), {}
    for name, model in (("before training", network.before), ("after training", network.after)):
        kernels[name] = path_kernel(trace(deepcopy(model).double(), images[:1]), images)
    return cosine_maps(kernels, network.train.labels[rows])


def cosine_maps(kernels: Mapping[str, Float[Tensor, "image image"]], labels: Int[Tensor, " image"]) -> HeatMaps:
    """Kernels scaled to ones on their diagonals, side by side, for images with these labels."""
    maps = {}
    for name, kernel in kernels.items():
        maps[name] = tuple(tuple(round(value, _DIGITS) for value in row) for row in cosines(kernel).tolist())
    return HeatMaps(f"The path kernel of {len(labels)} training images", maps, tuple(labels.tolist()), NOTE)


def cosines(kernel: Float[Tensor, "image image"]) -> Float[Tensor, "image image"]:
    """The kernel scaled to ones on its diagonal; zeros for an image without active paths."""
    size = kernel.diagonal().sqrt()
    return torch.where(size > 0, kernel / size, 0.0) / torch.where(size > 0, size, 1.0)[:, None]
