"""The papers' variants of a data set; all chance comes from the generator that is given."""

import math
from dataclasses import replace

import torch
from jaxtyping import Int64, Shaped
from torch import Tensor

from neuralpath.data._records import Split

# Images that are shuffled at a time. A fixed number, so that a seed gives the same result on every machine.
_IMAGES_AT_A_TIME = 1024


def binary_task(split: Split, negative: int, positive: int) -> Split:
    """Two-class task: the examples of two classes, in their order, with labels -1 and +1.

    Reference: P1 figure 2 (middle) uses MNIST's 4 against 7.
    Raises: ValueError if the classes are the same or one of them has no example.

    >>> from neuralpath import data
    >>> task = binary_task(data.load("digits").train, 4, 7)
    >>> len(task), sorted(set(task.labels.tolist()))
    (296, [-1.0, 1.0])
    """
    if negative == positive:
        raise ValueError(f"`negative` and `positive` must be two classes, got {negative} for both.")
    for argument, label in (("negative", negative), ("positive", positive)):
        if not (split.labels == label).any():
            raise ValueError(f"`{argument}` must be a class of the split; no example has the label {label}.")
    is_kept = (split.labels == negative) | (split.labels == positive)
    images = split.images[is_kept]
    signs = torch.where(split.labels[is_kept] == positive, 1.0, -1.0).to(images.dtype)
    return Split(images, signs)


def label_noise(
    labels: Int64[Tensor, "batch"], fraction: float | int, n_classes: int, generator: torch.Generator
) -> Int64[Tensor, "batch"]:
    """Labels of which a fraction, chosen at random, is redrawn uniformly (and may come out true again).

    The number of redrawn labels is `fraction` times their number, rounded half to even.

    Raises: ValueError if `fraction` is not between 0 and 1 or a label is not below `n_classes`;
        TypeError without a generator.

    >>> labels = torch.zeros(1000, dtype=torch.int64)
    >>> noisy = label_noise(labels, 0.5, 10, torch.Generator().manual_seed(0))
    >>> 400 < int((noisy != labels).sum()) < 500  # 500 are redrawn, and some come out true again
    True
    """
    if not 0 <= fraction <= 1:  # a NaN fails here too
        raise ValueError(f"`fraction` must lie between 0 and 1, got {fraction}.")
    _require_classes(labels, n_classes)
    _require_generator(generator)
    n_redrawn = round(fraction * len(labels))
    device = generator.device
    chosen = torch.randperm(len(labels), generator=generator, device=device)[:n_redrawn]
    drawn = torch.randint(n_classes, (n_redrawn,), generator=generator, device=device)
    noisy = labels.clone()
    noisy[chosen.to(labels.device)] = drawn.to(labels.device)
    return noisy


def random_labels(labels: Int64[Tensor, "batch"], n_classes: int, generator: torch.Generator) -> Int64[Tensor, "batch"]:
    """Labels all redrawn uniformly.

    Reference: Zhang et al. 2016, arXiv:1611.03530, section 2.
    Raises: ValueError if a label is not below `n_classes`; TypeError without a generator.

    >>> random_labels(torch.zeros(5, dtype=torch.int64), 10, torch.Generator().manual_seed(0)).shape
    torch.Size([5])
    """
    _require_classes(labels, n_classes)
    _require_generator(generator)
    drawn = torch.randint(n_classes, labels.shape, generator=generator, device=generator.device)
    return drawn.to(labels.device)


def random_pixels(
    images: Shaped[Tensor, "batch channels height width"], generator: torch.Generator
) -> Shaped[Tensor, "batch channels height width"]:
    """Images whose pixels are shuffled, each image by a permutation of its own.

    A pixel moves as a whole: all channels of an image share its permutation.

    Reference: Zhang et al. 2016, arXiv:1611.03530, section 2.
    Raises: TypeError without a generator.

    >>> images = torch.rand(2, 3, 4, 4)
    >>> shuffled = random_pixels(images, torch.Generator().manual_seed(0))
    >>> bool(torch.equal(shuffled.flatten(2).sort().values, images.flatten(2).sort().values))
    True
    """
    _require_generator(generator)
    n_pixels = math.prod(images.shape[2:])
    shuffled = torch.empty_like(images, memory_format=torch.contiguous_format)
    for start in range(0, len(images), _IMAGES_AT_A_TIME):
        before = images[start : start + _IMAGES_AT_A_TIME]
        # Sorting random keys draws all permutations at once; float64 keys are practically never equal.
        keys = torch.rand(len(before), n_pixels, generator=generator, device=generator.device, dtype=torch.float64)
        order = keys.argsort(dim=1).to(images.device)[:, None].expand(-1, images.shape[1], -1)
        shuffled[start : start + _IMAGES_AT_A_TIME] = before.flatten(2).gather(2, order).reshape(before.shape)
    return shuffled


def balanced_subset(split: Split, n_per_class: int, generator: torch.Generator) -> Split:
    """Equally many examples of every class, chosen at random, in the order they had in the split.

    Raises: ValueError if `n_per_class` is not positive or a class has fewer examples;
        TypeError without a generator.

    >>> from neuralpath import data
    >>> subset = balanced_subset(data.load("digits").train, 5, torch.Generator().manual_seed(0))
    >>> subset.labels.bincount().tolist()
    [5, 5, 5, 5, 5, 5, 5, 5, 5, 5]
    """
    if n_per_class < 1:
        raise ValueError(f"`n_per_class` must be at least 1, got {n_per_class}.")
    _require_generator(generator)
    chosen = []
    for label in sorted(set(split.labels.tolist())):
        members = (split.labels == label).nonzero()[:, 0]
        if len(members) < n_per_class:
            raise ValueError(
                f"`n_per_class` must be at most {len(members)}, the number of examples with the label "
                f"{label:g}; got {n_per_class}."
            )
        order = torch.randperm(len(members), generator=generator, device=generator.device)
        chosen.append(members[order[:n_per_class].to(members.device)])
    indices = torch.cat(chosen).sort().values if chosen else split.labels.new_empty(0, dtype=torch.int64)
    return replace(split, images=split.images[indices], labels=split.labels[indices])


def _require_generator(generator: object) -> None:
    # torch takes None for its global generator: results would depend on what ran before.
    if not isinstance(generator, torch.Generator):
        raise TypeError(
            f"`generator` must be a torch.Generator, got {type(generator).__name__}; "
            "make one with torch.Generator().manual_seed(0)."
        )


def _require_classes(labels: Int64[Tensor, "batch"], n_classes: int) -> None:
    if n_classes < 1:
        raise ValueError(f"`n_classes` must be at least 1, got {n_classes}.")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < n_classes:
        raise ValueError(
            f"`labels` must lie between 0 and {n_classes - 1} (`n_classes` - 1), "
            f"got {int(labels.min())} to {int(labels.max())}."
        )
