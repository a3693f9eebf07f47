"""Examples of a data set, as a command line asks for them."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neuralpath.data import Split


def load_examples(name: str, part: str, count: int | None, data_dir: Path | None) -> "Split":
    """The first examples of a part of a data set, all by default.

    Raises: ValueError for a number that is not there, and as ``data.load``.
    """
    from neuralpath import data

    split = getattr(data.load(name, data_dir=data_dir), part)
    if count is not None and not 0 < count <= len(split):
        raise ValueError(f"--count must be from 1 to {len(split):,}, got {count}.")
    return data.Split(split.images[:count], split.labels[:count])
