"""Augmented copies of a data set, made batch by batch while they are used, and the same for every run of a seed."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor

from neuralpath.data._records import Split

Batch = tuple[Float[Tensor, "batch channels height width"], Shaped[Tensor, "batch"]]


def shifted_copies(
    split: Split, n_examples: int, *, max_shift: int = 2, batch_size: int = 8192, seed: int = 0
) -> Iterator[Batch]:
    """Images and labels in batches: the split as it is, then copies shifted at random, until ``n_examples`` have come.

    A shift is drawn for each image, from ``-max_shift`` to ``max_shift`` pixels along both axes, equally likely; what
    moves in from outside is 0. The k-th pass over the split comes in an order of its own, and the shifts and orders
    depend on ``seed`` and k alone, not on ``batch_size``: only how the examples are cut into batches does.

    Cost: memory of one batch and of one pass's shifts. Raises: ValueError for an empty split, or numbers that are not
    positive.

    >>> split = Split(torch.rand(10, 1, 4, 4), torch.arange(10))
    >>> [len(labels) for images, labels in shifted_copies(split, 25, batch_size=8)]
    [8, 2, 8, 2, 5]
    """
    if not len(split):
        raise ValueError("`split` has no images to make copies of.")
    limits = {
        "n_examples": (n_examples, 1),
        "max_shift": (max_shift, 0),
        "batch_size": (batch_size, 1),
        "seed": (seed, 0),
    }
    for name, (number, least) in limits.items():
        if number < least:
            raise ValueError(f"`{name}` must be at least {least}, got {number}.")
    return _batches(split, n_examples, max_shift, batch_size, seed)


def _batches(split: Split, n_examples: int, max_shift: int, batch_size: int, seed: int) -> Iterator[Batch]:
    n, device = len(split), split.images.device
    for number, done in enumerate(range(0, n_examples, n)):
        # Mixed into 32 bits, as torch's generator on the processor reads no more of a seed.
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


def shifted(
    images: Float[Tensor, "batch channels height width"], shifts: Int64[Tensor, "batch 2"]
) -> Float[Tensor, "batch channels height width"]:
    """Each image moved by its own number of pixels, down and to the right; what moves in is 0."""
    height, width = images.shape[2:]
    rows = torch.arange(height, device=images.device) - shifts[:, :1]
    columns = torch.arange(width, device=images.device) - shifts[:, 1:]
    batch = torch.arange(len(images), device=images.device)[:, None, None]
    # With the two index axes around the channels, those come last.
    moved = images[batch, :, rows.clamp(0, height - 1)[:, :, None], columns.clamp(0, width - 1)[:, None, :]]
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
    return (moved * inside[..., None]).permute(0, 3, 1, 2).contiguous()
