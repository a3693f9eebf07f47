"""Where batches come from: their order is a pure function of the seed and the epoch, so a run can go on anywhere."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor

from neuralpath._checks import check_batch, check_finite, describe
from neuralpath.data import Split
from neuralpath.graph import Gates
from neuralpath.training.config import TrainingConfig
from neuralpath.training.fixed_gates import KeptGates
from neuralpath.training.objectives import Labels, Objective
from neuralpath.training.seeds import derive_seed

Augment = Callable[[Tensor, torch.Generator], Tensor]
"""Changes a batch of images at random, drawing from the generator that is given and from nothing else."""


class Batch(NamedTuple):
    """Some examples; ``gates`` where they were kept."""

    images: Float[Tensor, "batch ..."]
    targets: Shaped[Tensor, "batch ..."]
    gates: Gates | None


@runtime_checkable
class Loader(Protocol):
    """A user's own source of (images, labels) pairs, such as ``torch.utils.data.DataLoader``."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...


class TensorBatches:
    """Batches of tensors in memory: rows of a permutation drawn from (seed, epoch)."""

    def __init__(
        self,
        images: Float[Tensor, "example ..."],
        targets: Shaped[Tensor, "example ..."],
        config: TrainingConfig,
        *,
        kept: KeptGates | None = None,
        augment: Augment | None = None,
    ) -> None:
        self._images = images
        self._targets = targets
        self._size = config.batch_size
        self._seed = config.seed
        self._kept = kept
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
        """The order of the examples in an epoch; drawn on the processor, so that devices agree."""
        generator = torch.Generator().manual_seed(derive_seed(self._seed, "order", epoch))
        return torch.randperm(len(self._images), generator=generator).to(self._images.device)

    def epoch(self, epoch: int, begin: int) -> Iterator[Batch]:
        """The batches of an epoch from number ``begin`` on."""
        order = self.order(epoch)
        generator = torch.Generator(device=self._images.device)
        for number in range(begin, self._n_batches):
            rows = order[number * self._size : (number + 1) * self._size]
            images = self._images.index_select(0, rows)
            if self._augment is not None:
                generator.manual_seed(derive_seed(self._seed, "augment", epoch, number))
                images = self._augment(images, generator)
            gates = None if self._kept is None else self._kept.batch(rows)
            yield Batch(images, self._targets.index_select(0, rows), gates)


class LoaderBatches:
    """Batches of a user's loader, made repeatable as far as that can be done from outside.

    At the beginning of an epoch the generators of the loader and of its sampler are seeded from (seed, epoch); a
    loader without one draws from torch's global generator, which the loop seeds likewise. A run is taken up in the
    middle of an epoch by loading the batches before it and leaving them unused. So the order is exact for torch's
    own samplers and for transforms that draw from torch. What draws from elsewhere (numpy, a sampler's own state,
    workers that persist between epochs) is not repeated.
    """

    def __init__(
        self,
        loader: Loader,
        objective: Objective,
        probe: Float[Tensor, "_example n_outputs"],
        config: TrainingConfig,
        *,
        device: torch.device,
        augment: Augment | None = None,
    ) -> None:
        self._loader = loader
        self._objective = objective
        self._probe = probe
        self._seed = config.seed
        self._device = device
        self._augment = augment

    def __len__(self) -> int:
        return len(self._loader)

    def epoch(self, epoch: int, begin: int) -> Iterator[Batch]:
        """The batches of an epoch from number ``begin`` on.

        Called with torch's global generator as it is at the beginning of the epoch; it may be set to another state
        before the first batch is taken.
        """
        seed_loader(self._loader, derive_seed(self._seed, "order", epoch))
        source = iter(self._loader)
        for _ in islice(source, begin):
            pass
        return self._rest(source, epoch, begin)

    def _rest(self, source: Iterator[Any], epoch: int, begin: int) -> Iterator[Batch]:
        generator = torch.Generator(device=self._device)
        for number, pair in enumerate(source, start=begin):
            images, labels = pair_of(pair)
            images, labels = images.to(self._device), labels.to(self._device)
            if self._augment is not None:
                generator.manual_seed(derive_seed(self._seed, "augment", epoch, number))
                images = self._augment(images, generator)
            yield Batch(images, self._objective.targets(labels, self._probe), None)


Batches = TensorBatches | LoaderBatches


def pair_of(item: Any) -> tuple[Float[Tensor, "batch ..."], Labels]:
    """Images and labels of what a loader gives."""
    if isinstance(item, tuple | list) and len(item) == 2 and all(isinstance(part, Tensor) for part in item):
        _check_labels("labels", *item)
        return item[0], item[1]
    raise TypeError(f"a loader must give pairs (images, labels) of tensors, got {describe(item)}.")


def check_split(name: str, split: Split, dtype: torch.dtype) -> None:
    """Refuse what cannot be trained on or measured: no examples, other dtypes, values that are not finite."""
    if len(split) == 0:
        raise ValueError(f"`{name}` has no examples.")
    check_batch(f"{name}.images", split.images, tuple(split.images.shape[1:]), dtype=dtype)
    _check_labels(f"{name}.labels", split.images, split.labels)
    if split.labels.is_floating_point():
        check_finite(f"{name}.labels", split.labels)


def _check_labels(name: str, images: Tensor, labels: Tensor) -> None:
    """Refuse what is not one label for each image."""
    if tuple(labels.shape) != tuple(images.shape[:1]):
        hint = f"; use `{name}.flatten()`" if labels.numel() == len(labels) == len(images) else ""
        raise ValueError(
            f"`{name}` must have the shape ({len(images)},), one label for each example, got {describe(labels)}{hint}."
        )


def seed_loader(loader: Loader, seed: int) -> None:
    """Seed the generators that a loader and its samplers have."""
    for owner in (
        loader,
        getattr(loader, "sampler", None),
        getattr(getattr(loader, "batch_sampler", None), "sampler", None),
    ):
        generator = getattr(owner, "generator", None)
        if isinstance(generator, torch.Generator):
            generator.manual_seed(seed)
