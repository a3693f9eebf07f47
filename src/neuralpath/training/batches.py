"""Batches for training and for measurements, as a function of the seed and the epoch only.

A resumed run can therefore repeat any epoch exactly. The method ``epoch`` of each class yields the batches of an epoch.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from neuralpath._checks import describe
from neuralpath._hashing import text_digest
from neuralpath.graph import Gates
from neuralpath.training.config import TrainingConfig
from neuralpath.training.fixed_gates import PackedGates
from neuralpath.training.metrics import Labels, Objective

Augment = Callable[[Tensor, torch.Generator], Tensor]
"""Changes a batch of images at random, with the given generator as the only source of randomness."""


class Batch(NamedTuple):
    """Images and targets of some examples, and their gates if these are fixed and were computed before."""

    images: Float[Tensor, "batch ..."]
    targets: Shaped[Tensor, "batch ..."]
    gates: Gates | None


@runtime_checkable
class Loader(Protocol):
    """A user's own source of (images, labels) pairs, such as ``torch.utils.data.DataLoader``."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...


def derive_seed(seed: int, *use: str | int) -> int:
    """A seed for one use, such as ``derive_seed(7, "order", epoch)``. Different uses get independent seeds.

    >>> derive_seed(0, "order", 1) == derive_seed(0, "order", 2)
    False
    """
    text = "/".join(str(part) for part in (seed, *use))
    return int.from_bytes(bytes.fromhex(text_digest(text))[:8], "little") >> 1


def _augmented(images: Tensor, augment: Augment | None, seed: int, epoch: int, number: int) -> Tensor:
    if augment is None:
        return images
    return augment(images, torch.Generator(images.device).manual_seed(derive_seed(seed, "augment", epoch, number)))


@dataclass(frozen=True, eq=False)
class TensorBatches:
    """Batches of tensors in memory: rows of a permutation that is drawn from (seed, epoch), or all rows in order."""

    images: Float[Tensor, "example ..."]
    targets: Shaped[Tensor, "example ..."]
    config: TrainingConfig
    gates: PackedGates | None = None
    augment: Augment | None = None
    in_order: bool = False

    def __post_init__(self) -> None:
        if len(self) == 0:
            raise ValueError(f"`drop_last` leaves no batch: there are {len(self.images)} examples for {self._size}.")

    @property
    def _size(self) -> int:
        return self.config.evaluation_batch_size if self.in_order else self.config.batch_size

    def __len__(self) -> int:
        whole, rest = divmod(len(self.images), self._size)
        return whole + (rest > 0 and (self.in_order or not self.config.drop_last))

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """The batches of an epoch."""
        seed, size = self.config.seed, self._size
        if not self.in_order:
            generator = torch.Generator().manual_seed(derive_seed(seed, "order", epoch))
            # Drawn on the CPU, so that all devices have the same order.
            order = torch.randperm(len(self.images), generator=generator).to(self.images.device)
        for number in range(len(self)):
            rows: Any = slice(number * size, (number + 1) * size)
            if self.in_order:
                # A copy, in memory that torch aligns: vector code may round differently on other alignments.
                images, targets = self.images[rows].clone(), self.targets[rows]
            else:
                rows = order[rows]
                images, targets = self.images.index_select(0, rows), self.targets.index_select(0, rows)
            images = _augmented(images, self.augment, seed, epoch, number)
            yield Batch(images, targets, None if self.gates is None else self.gates.batch(rows))


@dataclass(frozen=True, eq=False)
class LoaderBatches:
    """Batches of a user's loader, for training or for measurements, made repeatable as far as possible from outside.

    At the start of an epoch, torch's global generator and the generators of the loader and its sampler are seeded from
    (seed, use, epoch). Torch's own samplers, and transforms that draw from torch, are therefore repeated exactly. Draws
    from elsewhere (numpy, a sampler's own state, workers that persist between epochs) are not repeated.
    """

    loader: Loader
    use: str
    objective: Objective
    seed: int
    device: torch.device
    augment: Augment | None = None

    def __len__(self) -> int:
        return len(self.loader)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """The batches of an epoch."""
        seed = derive_seed(self.seed, self.use, epoch)
        if self.use != "order":  # the training loop seeds the global generator itself, for the network's dropout too
            torch.manual_seed(seed)
        sampler = getattr(self.loader, "sampler", None)
        inner = getattr(getattr(self.loader, "batch_sampler", None), "sampler", None)
        for owner in (self.loader, sampler, inner):
            generator = getattr(owner, "generator", None)
            if isinstance(generator, torch.Generator):
                generator.manual_seed(seed)
        for number, pair in enumerate(self.loader):
            images, labels = (part.to(self.device) for part in check_pair(pair))
            images = _augmented(images, self.augment, self.seed, epoch, number)
            yield Batch(images, self.objective.targets(labels), None)


def check_pair(item: Any) -> tuple[Float[Tensor, "batch ..."], Labels]:
    """The images and labels of an item of a loader, which must be a pair of equally long tensors."""
    if isinstance(item, tuple | list) and len(item) == 2 and all(isinstance(part, Tensor) for part in item):
        check_labels("labels", *item)
        return item[0], item[1]
    raise TypeError(f"a loader must yield pairs (images, labels) of tensors, got {describe(item)}.")


def check_labels(name: str, images: Tensor, labels: Tensor) -> None:
    """Check that there is one label for each image."""
    if tuple(labels.shape) != tuple(images.shape[:1]):
        hint = f"; use `{name}.flatten()`" if labels.numel() == len(labels) == len(images) else ""
        raise ValueError(f"`{name}` must have the shape ({len(images)},), a label each, got {describe(labels)}{hint}.")
