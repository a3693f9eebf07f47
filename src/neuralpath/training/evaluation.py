"""Loss and accuracy of a model on held-out data."""

from collections.abc import Callable, Iterable, Iterator

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from neuralpath.training.batches import Batch, Loader, pair_of, seed_loader
from neuralpath.training.fixed_gates import KeptGates
from neuralpath.training.metrics import Measurement, Sums
from neuralpath.training.objectives import Objective
from neuralpath.training.passes import Forward
from neuralpath.training.seeds import derive_seed


class TensorExamples:
    """Data in memory, in its own order."""

    def __init__(
        self,
        images: Float[Tensor, "example ..."],
        targets: Shaped[Tensor, "example ..."],
        size: int,
        kept: KeptGates | None = None,
    ) -> None:
        self._images = images
        self._targets = targets
        self._size = size
        self._kept = kept

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """All examples; the same in every epoch."""
        for begin in range(0, len(self._images), self._size):
            rows = slice(begin, begin + self._size)
            gates = None if self._kept is None else self._kept.batch(rows)
            # A copy, in memory that torch aligns: vector code may round differently on other alignments.
            yield Batch(self._images[rows].clone(), self._targets[rows], gates)


class LoaderExamples:
    """Data of a user's loader, made repeatable as ``LoaderBatches`` is, from (seed, name, epoch)."""

    def __init__(
        self,
        name: str,
        loader: Loader,
        objective: Objective,
        probe: Float[Tensor, "_example n_outputs"],
        *,
        seed: int,
        device: torch.device,
    ) -> None:
        self._name = name
        self._seed = seed
        self._loader = loader
        self._objective = objective
        self._probe = probe
        self._device = device

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """All examples, in an order that does not depend on what was drawn before."""
        seed = derive_seed(self._seed, self._name, epoch)
        torch.manual_seed(seed)  # nobody goes on with this generator: every epoch of training has a stream of its own
        seed_loader(self._loader, seed)
        for pair in self._loader:
            images, labels = pair_of(pair)
            targets = self._objective.targets(labels.to(self._device), self._probe)
            yield Batch(images.to(self._device), targets, None)


Examples = TensorExamples | LoaderExamples


def evaluate(
    model: nn.Module,
    forward: Forward,
    batches: Iterable[Batch],
    objective: Objective,
    before_each: Callable[[], None] = lambda: None,
) -> Measurement:
    """Mean loss and accuracy in evaluation mode; ``before_each`` is called before each batch and may raise.

    Raises: NonFiniteLoss.
    """
    was_training = model.training
    model.eval()
    sums = Sums(objective)
    try:
        with torch.no_grad():
            for batch in batches:
                before_each()
                outputs = forward(batch)
                sums.add(objective.loss(outputs, batch.targets), outputs, batch.targets)
    finally:
        model.train(was_training)
    return sums.mean()
