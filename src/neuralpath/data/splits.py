"""Images and labels in memory, and variants of them: binary tasks, noise, subsets, shifted copies.

All randomness comes from a generator or a seed that the caller gives.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor

Images = Float[Tensor, "batch channels height width"]
AnyImages = Shaped[Tensor, "batch channels height width"]  # of any dtype
ClassNumbers = Int64[Tensor, "batch"]
Batches = Iterator[tuple[Images, Shaped[Tensor, "batch"]]]

# Images that are shuffled at once. A fixed number, so that a seed gives the same result on every machine.
_SHUFFLED_AT_ONCE = 1024


@dataclass(frozen=True, slots=True, eq=False)  # eq=False: tensors have no single truth value
class Split:
    """Images and their labels.

    Args:
        images: Values from 0 to 1.
        labels: Class numbers (int64), or -1 and +1 (floating point) in a two-class task.

    Raises:
        ValueError: If the numbers of images and labels differ.
    """

    images: Images
    labels: ClassNumbers | Float[Tensor, "batch"]

    def __post_init__(self) -> None:
        if len(self.images) != len(self.labels):
            raise ValueError(f"`images` and `labels` differ in length, got {len(self.images)} and {len(self.labels)}.")

    def __len__(self) -> int:
        return self.images.shape[0]


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A data set with its authors' split into training and test examples.

    Args:
        name: Name of the data set.
        train: Training examples.
        test: Test examples.
        class_names: ``class_names[label]`` is the name of a class.

    Raises:
        ValueError: If a label is not the number of a class.
    """

    name: str
    train: Split
    test: Split
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        for part, split in (("train", self.train), ("test", self.test)):
            _require_classes(f"`{part}` labels of {self.name}", split.labels, self.n_classes)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)


def binary_task(split: Split, negative: int, positive: int) -> Split:
    """A two-class task: the examples of two classes, in their order, with labels -1 and +1.

    Reference: P1 figure 2 (middle) uses MNIST's 4 against 7.

    Args:
        split: Examples with class numbers as labels.
        negative: The class that gets the label -1.
        positive: The class that gets the label +1.

    Raises:
        ValueError: If the classes are equal, or one of them has no example.

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
    is_selected = (split.labels == negative) | (split.labels == positive)
    images = split.images[is_selected]
    signs = torch.where(split.labels[is_selected] == positive, 1.0, -1.0).to(images.dtype)
    return Split(images, signs)


def label_noise(
    labels: ClassNumbers, fraction: float | int, n_classes: int, generator: torch.Generator
) -> ClassNumbers:
    """Labels with a random fraction of them drawn again, uniformly over all classes; some may keep their value.

    Args:
        labels: Class numbers.
        fraction: Share of labels to draw again; their number is rounded half to even.
        n_classes: Number of classes.
        generator: Source of the randomness.

    Raises:
        ValueError: If ``fraction`` is not between 0 and 1, or a label is not below ``n_classes``.

    >>> labels = torch.zeros(1000, dtype=torch.int64)
    >>> noisy = label_noise(labels, 0.5, 10, torch.Generator().manual_seed(0))
    >>> 400 < int((noisy != labels).sum()) < 500  # 500 are drawn again, a tenth of them keep their value
    True
    """
    if not 0 <= fraction <= 1:  # a NaN fails here too
        raise ValueError(f"`fraction` must lie between 0 and 1, got {fraction}.")
    _require_at_least("n_classes", n_classes, 1)
    _require_classes("`labels`", labels, n_classes)
    _require_generator(generator)
    n_changed = round(fraction * len(labels))
    device = generator.device
    rows = torch.randperm(len(labels), generator=generator, device=device)[:n_changed]
    values = torch.randint(n_classes, (n_changed,), generator=generator, device=device)
    noisy = labels.clone()
    noisy[rows.to(labels.device)] = values.to(labels.device)
    return noisy


def random_labels(labels: ClassNumbers, n_classes: int, generator: torch.Generator) -> ClassNumbers:
    """Labels that are all drawn again, uniformly over all classes.

    Reference: Zhang et al. 2016, arXiv:1611.03530, section 2.

    Args:
        labels: Class numbers.
        n_classes: Number of classes.
        generator: Source of the randomness.

    Raises:
        ValueError: If a label is not below ``n_classes``.

    >>> random_labels(torch.zeros(5, dtype=torch.int64), 10, torch.Generator().manual_seed(0)).shape
    torch.Size([5])
    """
    _require_at_least("n_classes", n_classes, 1)
    _require_classes("`labels`", labels, n_classes)
    _require_generator(generator)
    values = torch.randint(n_classes, labels.shape, generator=generator, device=generator.device)
    return values.to(labels.device)


def random_pixels(images: AnyImages, generator: torch.Generator) -> AnyImages:
    """Images with shuffled pixels, each image by its own permutation of all channels together.

    Reference: Zhang et al. 2016, arXiv:1611.03530, section 2.

    Args:
        images: A batch of images.
        generator: Source of the randomness.

    >>> images = torch.rand(2, 3, 4, 4)
    >>> shuffled = random_pixels(images, torch.Generator().manual_seed(0))
    >>> bool(torch.equal(shuffled.flatten(2).sort().values, images.flatten(2).sort().values))
    True
    """
    _require_generator(generator)
    n_pixels = math.prod(images.shape[2:])
    shuffled = torch.empty_like(images, memory_format=torch.contiguous_format)
    for start in range(0, len(images), _SHUFFLED_AT_ONCE):
        block = images[start : start + _SHUFFLED_AT_ONCE]
        # Sorting random keys draws all permutations at once; float64 keys are practically never equal.
        keys = torch.rand(len(block), n_pixels, generator=generator, device=generator.device, dtype=torch.float64)
        order = keys.argsort(dim=1).to(images.device)[:, None].expand(-1, images.shape[1], -1)
        shuffled[start : start + _SHUFFLED_AT_ONCE] = block.flatten(2).gather(2, order).reshape(block.shape)
    return shuffled


def balanced_subset(split: Split, n_per_class: int, generator: torch.Generator) -> Split:
    """The same number of random examples of every class, in the order of the split.

    Args:
        split: Examples to choose from.
        n_per_class: Number of examples of each class.
        generator: Source of the randomness.

    Raises:
        ValueError: If ``n_per_class`` is not positive, or a class has fewer examples.

    >>> from neuralpath import data
    >>> subset = balanced_subset(data.load("digits").train, 5, torch.Generator().manual_seed(0))
    >>> subset.labels.bincount().tolist()
    [5, 5, 5, 5, 5, 5, 5, 5, 5, 5]
    """
    _require_at_least("n_per_class", n_per_class, 1)
    _require_generator(generator)
    chosen = []
    for label in sorted(set(split.labels.tolist())):
        members = (split.labels == label).nonzero()[:, 0]
        if len(members) < n_per_class:
            most = f"{len(members)}, the number of examples with the label {label:g}"
            raise ValueError(f"`n_per_class` must be at most {most}; got {n_per_class}.")
        order = torch.randperm(len(members), generator=generator, device=generator.device)
        chosen.append(members[order[:n_per_class].to(members.device)])
    indices = torch.cat(chosen).sort().values if chosen else split.labels.new_empty(0, dtype=torch.int64)
    return Split(split.images[indices], split.labels[indices])


def shifted_copies(
    split: Split, n_examples: int, *, max_shift: int = 2, batch_size: int = 8192, seed: int = 0
) -> Batches:
    """Batches of images and labels: first the split itself, then randomly shifted copies of it.

    Each image is shifted along both axes by a number of pixels that is uniform from ``-max_shift`` to ``max_shift``;
    pixels from outside are 0. Each pass over the split has its own order. Orders and shifts depend on ``seed`` and the
    number of the pass only, not on ``batch_size``.

    Args:
        split: The original examples.
        n_examples: Number of examples in all, the original ones included.
        max_shift: Largest shift along each axis, in pixels.
        batch_size: Largest number of examples in a batch. No batch spans two passes.
        seed: Seed of the orders and shifts.

    Raises:
        ValueError: If the split is empty, or a number is too small.

    Cost: memory for one batch and for the shifts of one pass.

    >>> split = Split(torch.rand(10, 1, 4, 4), torch.arange(10))
    >>> [len(labels) for images, labels in shifted_copies(split, 25, batch_size=8)]
    [8, 2, 8, 2, 5]
    """
    if not len(split):
        raise ValueError("`split` has no images to copy.")
    for name, number in (("n_examples", n_examples), ("batch_size", batch_size)):
        _require_at_least(name, number, 1)
    for name, number in (("max_shift", max_shift), ("seed", seed)):
        _require_at_least(name, number, 0)
    return _shifted_batches(split, n_examples, max_shift, batch_size, seed)


def _shifted_batches(split: Split, n_examples: int, max_shift: int, batch_size: int, seed: int) -> Batches:
    n, device = len(split), split.images.device
    for number, done in enumerate(range(0, n_examples, n)):
        # Mixed into 32 bits, because torch's generator on the CPU uses no more of a seed.
        mixed = np.random.SeedSequence((seed, number)).generate_state(1)
        generator = torch.Generator().manual_seed(int(mixed[0]))
        order, shifts = torch.arange(n), torch.zeros(n, 2, dtype=torch.int64)
        if number > 0:
            order = torch.randperm(n, generator=generator)
            shifts = torch.randint(-max_shift, max_shift + 1, (n, 2), generator=generator)
        for start in range(0, min(n, n_examples - done), batch_size):
            chosen = slice(start, min(start + batch_size, n, n_examples - done))
            rows = order[chosen].to(device)
            yield shifted(split.images[rows], shifts[chosen].to(device)), split.labels[rows]


def shifted(images: Images, shifts: Int64[Tensor, "batch 2"]) -> Images:
    """Each image moved down and to the right by its own numbers of pixels; pixels from outside are 0."""
    height, width = images.shape[2:]
    rows = torch.arange(height, device=images.device) - shifts[:, :1]
    columns = torch.arange(width, device=images.device) - shifts[:, 1:]
    batch = torch.arange(len(images), device=images.device)[:, None, None]
    # Index axes on both sides of the channels put the channels last.
    moved = images[batch, :, rows.clamp(0, height - 1)[:, :, None], columns.clamp(0, width - 1)[:, None, :]]
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
    return (moved * inside[..., None]).permute(0, 3, 1, 2).contiguous()


def _require_generator(generator: object) -> None:
    # Torch takes None for its global generator, whose state depends on everything that ran before.
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"`generator` must be a torch.Generator, got {type(generator).__name__}; make one with a seed.")


def _require_at_least(name: str, number: int, least: int) -> None:
    if number < least:
        raise ValueError(f"`{name}` must be at least {least}, got {number}.")


def _require_classes(name: str, labels: Shaped[Tensor, "batch"], n_classes: int) -> None:
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < n_classes:
        raise ValueError(f"{name} must lie between 0 and {n_classes - 1}, got {labels.min()} to {labels.max()}.")
