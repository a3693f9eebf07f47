"""Batches for training and for measurements, as a function of the seed and the epoch only.

A resumed run can therefore repeat any epoch exactly. The method ``epoch`` of each class yields the batches of an epoch.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor

from neuralpath._checks import describe
from neuralpath.graph import Gates
from neuralpath.training.config import TrainingConfig
from neuralpath.training.fixed_gates import PackedGates
from neuralpath.training.objectives import Labels, Objective

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
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


class TensorBatches:
    """Training batches of tensors in memory: rows of a permutation that is drawn from (seed, epoch)."""

    def __init__(
        self,
        images: Float[Tensor, "example ..."],
        targets: Shaped[Tensor, "example ..."],
        config: TrainingConfig,
        *,
        gates: PackedGates | None = None,
        augment: Augment | None = None,
    ) -> None:
        self._images = images
        self._targets = targets
        self._size = config.batch_size
        self._seed = config.seed
        self._gates = gates
        self._augment = augment
        whole, rest = divmod(len(images), config.batch_size)
        self._n_batches = whole if config.drop_last else whole + (rest > 0)
        if self._n_batches == 0:
            raise ValueError(
                f"`drop_last` leaves no batch: there are {len(images)} examples and `batch_size` is {self._size}."
            )

    def __len__(self) -> int:
        return self._n_batches

    def order(self, epoch: int) -> Int64[Tensor, " example"]:
        """The order of the examples in an epoch, drawn on the CPU so that all devices have the same."""
        generator = torch.Generator().manual_seed(derive_seed(self._seed, "order", epoch))
        return torch.randperm(len(self._images), generator=generator).to(self._images.device)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """The batches of an epoch."""
        order = self.order(epoch)
        generator = torch.Generator(device=self._images.device)
        for number in range(self._n_batches):
            rows = order[number * self._size : (number + 1) * self._size]
            images = self._images.index_select(0, rows)
            if self._augment is not None:
                generator.manual_seed(derive_seed(self._seed, "augment", epoch, number))
                images = self._augment(images, generator)
            gates = None if self._gates is None else self._gates.batch(rows)
            yield Batch(images, self._targets.index_select(0, rows), gates)


class TensorExamples:
    """All examples of tensors in memory, in their order, for measurements."""

    def __init__(
        self,
        images: Float[Tensor, "example ..."],
        targets: Shaped[Tensor, "example ..."],
        size: int,
        gates: PackedGates | None = None,
    ) -> None:
        self._images = images
        self._targets = targets
        self._size = size
        self._gates = gates

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """All examples; the same in every epoch."""
        for start in range(0, len(self._images), self._size):
            rows = slice(start, start + self._size)
            gates = None if self._gates is None else self._gates.batch(rows)
            # A copy, in memory that torch aligns: vector code may round differently on other alignments.
            yield Batch(self._images[rows].clone(), self._targets[rows], gates)


class LoaderBatches:
    """Batches of a user's loader, for training or for measurements, made repeatable as far as possible from outside.

    At the start of an epoch, torch's global generator and the generators of the loader and its sampler are seeded from
    (seed, use, epoch). Torch's own samplers, and transforms that draw from torch, are therefore repeated exactly. Draws
    from elsewhere (numpy, a sampler's own state, workers that persist between epochs) are not repeated.
    """

    def __init__(
        self,
        loader: Loader,
        use: str,
        objective: Objective,
        probe: Float[Tensor, "_example n_outputs"],
        *,
        seed: int,
        device: torch.device,
        augment: Augment | None = None,
    ) -> None:
        self._loader = loader
        self._use = use
        self._objective = objective
        self._probe = probe
        self._seed = seed
        self._device = device
        self._augment = augment

    def __len__(self) -> int:
        return len(self._loader)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """The batches of an epoch."""
        seed = derive_seed(self._seed, self._use, epoch)
        if self._use != "order":  # the training loop seeds the global generator itself, for the network's dropout too
            torch.manual_seed(seed)
        _seed_generators(self._loader, seed)
        generator = torch.Generator(device=self._device)
        for number, pair in enumerate(self._loader):
            images, labels = (part.to(self._device) for part in check_pair(pair))
            if self._augment is not None:
                generator.manual_seed(derive_seed(self._seed, "augment", epoch, number))
                images = self._augment(images, generator)
            yield Batch(images, self._objective.targets(labels, self._probe), None)


def check_pair(item: Any) -> tuple[Float[Tensor, "batch ..."], Labels]:
    """The images and labels of an item of a loader.

    Raises: TypeError or ValueError for anything else than a pair of equally long tensors.
    """
    if isinstance(item, tuple | list) and len(item) == 2 and all(isinstance(part, Tensor) for part in item):
        check_labels("labels", *item)
        return item[0], item[1]
    raise TypeError(f"a loader must yield pairs (images, labels) of tensors, got {describe(item)}.")


def check_labels(name: str, images: Tensor, labels: Tensor) -> None:
    """Check that there is one label for each image."""
    if tuple(labels.shape) != tuple(images.shape[:1]):
        hint = f"; use `{name}.flatten()`" if labels.numel() == len(labels) == len(images) else ""
        raise ValueError(
            f"`{name}` must have the shape ({len(images)},), one label for each example, got {describe(labels)}{hint}."
        )


def _seed_generators(loader: Loader, seed: int) -> None:
    """Seed the generators of a loader and of its samplers."""
    inner = getattr(getattr(loader, "batch_sampler", None), "sampler", None)
    for owner in (loader, getattr(loader, "sampler", None), inner):
        generator = getattr(owner, "generator", None)
        if isinstance(generator, torch.Generator):
            generator.manual_seed(seed)
