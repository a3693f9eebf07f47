"""The path kernel of a network before and after training, as a picture of images sorted by class."""

from collections.abc import Mapping
from copy import deepcopy

import torch
from jaxtyping import Float, Int
from torch import Tensor

from neuralpath.data import Split
from neuralpath.graph import trace
from neuralpath.kernels import path_kernel
from neuralpath.papers.experiments import HeatMaps
from neuralpath.papers.report.network import ExplorerNetwork

N_IMAGES = 200
"""Images of the picture, at most; of each class equally many, the first ones."""

_DIGITS = 3

NOTE = (
    "Each point compares two training images, sorted by class: the cosine of their path features. That is the active "
    "paths which both share, weighted by the pixels they start from, so it is 1 for an image with itself and near 0 "
    "where they share little. Bright blocks on the diagonal are classes whose images are alike in this."
)


def kernel_picture(network: ExplorerNetwork) -> HeatMaps:
    """The picture for the explorer's network, on some of the training images that are in the page.

    Cost: two path kernels of ``N_IMAGES``. Raises: OverflowError as ``path_kernel``.
    """
    some = _sorted_by_class(network.train)
    kernels = {}
    for name, model in (("before training", network.before), ("after training", network.after)):
        images = some.images.double()
        kernels[name] = path_kernel(trace(deepcopy(model).double(), images[:1]), images)
    return cosine_maps(kernels, some.labels)


def cosine_maps(kernels: Mapping[str, Float[Tensor, "image image"]], labels: Int[Tensor, " image"]) -> HeatMaps:
    """Kernels scaled to ones on their diagonals, side by side."""
    maps = {
        name: tuple(tuple(round(value, _DIGITS) for value in row) for row in cosines(kernel).tolist())
        for name, kernel in kernels.items()
    }
    return HeatMaps(f"The path kernel of {len(labels)} training images", maps, tuple(labels.tolist()), NOTE)


def cosines(kernel: Float[Tensor, "image image"]) -> Float[Tensor, "image image"]:
    """The kernel scaled to ones on its diagonal; an image without active paths has no direction, and gets zeros."""
    size = kernel.diagonal().sqrt()
    return torch.where(size > 0, kernel / size, 0.0) / torch.where(size > 0, size, 1.0)[:, None]


def _sorted_by_class(split: Split) -> Split:
    classes = split.labels.unique().tolist()
    rows = torch.cat([(split.labels == label).nonzero()[: max(1, N_IMAGES // len(classes)), 0] for label in classes])
    return Split(split.images[rows], split.labels[rows])
