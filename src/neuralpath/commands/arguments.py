"""Parts that several commands share: user errors, the flag `--seed`, and loading examples."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neuralpath.data import Split

LARGEST_SEED = 2**63 - 1
"""The largest seed that torch accepts."""


class UserError(Exception):
    """A mistake on the command line or in a user's file; printed as one message, without a traceback."""


def check_seed(seed: int) -> None:
    """Refuse a seed that torch does not accept, before anything runs.

    Args:
        seed: Value of the flag `--seed`.

    Raises:
        UserError: If the seed is negative or too large.
    """
    if not 0 <= seed <= LARGEST_SEED:
        raise UserError(f"--seed takes a number from 0 to {LARGEST_SEED}, got {seed}.")


def load_examples(name: str, part: str, count: int | None, data_dir: Path | None) -> "Split":
    """Load the first examples of one part of a data set.

    Args:
        name: Name of the data set, such as ``mnist``.
        part: ``train`` or ``test``.
        count: Number of examples; None means all.
        data_dir: Folder with the data; None means $NEURALPATH_DATA, then the cache folder.

    Raises:
        ValueError: If the part has fewer examples, and for the reasons of ``data.load``.
    """
    from neuralpath import data

    split = getattr(data.load(name, data_dir=data_dir), part)
    if count is not None and not 0 < count <= len(split):
        raise ValueError(f"--count must be from 1 to {len(split):,}, got {count}.")
    return data.Split(split.images[:count], split.labels[:count])
