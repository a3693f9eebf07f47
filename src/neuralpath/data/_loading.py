"""Loading a data set by name, and checking which data sets are on the disk."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from torch import Tensor

from neuralpath.data._reading import parse_idx, read_verified
from neuralpath.data._search import find, search_roots
from neuralpath.data._sources import EMBEDDED, SOURCES, CifarSource, DataError, DataFile, IdxSource, Source
from neuralpath.data.splits import Dataset, Split

_LARGEST_VALUE = 255
_LARGEST_DIGIT_VALUE = 16  # scikit-learn's digits count the ink in blocks of 4 x 4 pixels
_DIGITS_TEST_EVERY = 5
_COLORS = 3


def load(
    name: str, *, data_dir: str | os.PathLike[str] | None = None, sources: Mapping[str, Source] = SOURCES
) -> Dataset:
    """Load a data set, with pixel values from 0 to 1 and no other preprocessing.

    Pixels are divided by 255 (those of the embedded digits by 16). Each file is checked against its published checksum
    on each load; nothing is written. CIFAR-100 has its hundred fine labels. The embedded digits come without a split:
    every fifth example, starting with the first, is a test example.

    Args:
        name: One of `names`.
        data_dir: Folder that is searched first, before ``$NEURALPATH_DATA`` and the cache folder.
        sources: Descriptions of the known data sets; others in the same file formats may be given.

    Raises:
        DataError: If the data set is unknown, missing or damaged.

    Cost: 0.2 GB of memory for MNIST, 0.7 GB for CIFAR, and a quarter of that in addition while reading.

    >>> digits = load("digits")
    >>> tuple(digits.train.images.shape), len(digits.test)
    ((1437, 1, 8, 8), 360)
    """
    if name == EMBEDDED:
        return _load_digits()
    path = find(name, data_dir, sources=sources)
    source = sources[name]
    contents = read_verified(source, path)
    if isinstance(source, IdxSource):
        train = _idx_split(contents, source.train_images, source.train_labels)
        test = _idx_split(contents, source.test_images, source.test_labels)
    else:
        train = _cifar_split(contents, source, source.train)
        test = _cifar_split(contents, source, source.test)
    return Dataset(name=name, train=train, test=test, class_names=source.class_names)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The state of one data set on the disk.

    Args:
        name: Name of the data set.
        status: Whether it was found, is missing, or is damaged.
        path: Its folder or archive.
        detail: One human-readable line.
    """

    name: str
    status: Literal["found", "missing", "damaged"]
    path: Path | None
    detail: str


def check(
    data_dir: str | os.PathLike[str] | None = None, *, sources: Mapping[str, Source] = SOURCES
) -> list[CheckResult]:
    """Search every known data set and verify all files of those that are found.

    Args:
        data_dir: Folder that is searched first, before ``$NEURALPATH_DATA`` and the cache folder.
        sources: Descriptions of the known data sets.

    Raises:
        DataError: If ``data_dir`` is not a folder.

    Cost: reads every file once; a few seconds for all of them.

    >>> from neuralpath import data
    >>> [(result.name, result.status) for result in data.check(sources={})]
    [('digits', 'found')]
    """
    search_roots(data_dir)
    digits = CheckResult(EMBEDDED, "found", None, "comes with scikit-learn")
    return [digits, *(_check_source(source, data_dir, sources) for source in sources.values())]


def _check_source(
    source: Source, data_dir: str | os.PathLike[str] | None, sources: Mapping[str, Source]
) -> CheckResult:
    try:
        path = find(source.name, data_dir, sources=sources)
    except DataError as error:
        return CheckResult(source.name, "missing", None, str(error))
    try:
        n_files = len(read_verified(source, path))
    except DataError as error:
        return CheckResult(source.name, "damaged", path, str(error))
    return CheckResult(source.name, "found", path, f"all {n_files} files have their published checksums")


def _load_digits() -> Dataset:
    # Imported here because scikit-learn takes a second to import, and no other data set needs it.
    from sklearn.datasets import load_digits

    values, numbers = load_digits(return_X_y=True)
    images = torch.from_numpy(values).to(torch.float32).reshape(-1, 1, 8, 8).div_(_LARGEST_DIGIT_VALUE)
    labels = torch.from_numpy(numbers).to(torch.int64)
    is_test = torch.arange(len(labels)) % _DIGITS_TEST_EVERY == 0
    return Dataset(
        name=EMBEDDED,
        train=Split(images[~is_test], labels[~is_test]),
        test=Split(images[is_test], labels[is_test]),
        class_names=tuple("0123456789"),
    )


def _idx_split(contents: dict[str, bytes], images: DataFile, labels: DataFile) -> Split:
    pixels = parse_idx(images.name, contents.pop(images.name), images.shape)
    numbers = parse_idx(labels.name, contents.pop(labels.name), labels.shape)
    return Split(_unit_images([pixels[:, None]]), torch.from_numpy(numbers.astype(np.int64)))


def _cifar_split(contents: dict[str, bytes], source: CifarSource, files: Sequence[DataFile]) -> Split:
    # `pop` frees the bytes of each file once its array has been copied into the images.
    records = [np.frombuffer(contents.pop(file.name), np.uint8).reshape(file.shape) for file in files]
    side = source.side
    images = [part[:, source.n_label_bytes :].reshape(-1, _COLORS, side, side) for part in records]
    labels = np.concatenate([part[:, source.n_label_bytes - 1] for part in records])
    return Split(_unit_images(images), torch.from_numpy(labels.astype(np.int64)))


def _unit_images(
    parts: Sequence[UInt8[np.ndarray, "_ channels height width"]],
) -> Float32[Tensor, "batch channels height width"]:
    values = np.empty((sum(len(part) for part in parts), *parts[0].shape[1:]), np.float32)
    np.concatenate(parts, out=values)
    return torch.from_numpy(values).div_(_LARGEST_VALUE)
