"""Data sets on the disk: finding, loading and checking them by name.

Three folders are searched in this order: `data_dir` (``--data-dir``), ``$NEURALPATH_DATA``, and the cache folder. In
each of them the files are either in a folder named after the data set (``mnist``, ``MNIST/raw``, ``cifar10``, ...: the
source's `folders`), or in the folder itself. The named folder comes first, because downloads go there. A CIFAR data set
may be the archive or the folder that it unpacks to.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import UInt8

from neuralpath.data._reading import file_path, read_file, read_verified
from neuralpath.data._sources import EMBEDDED, SOURCES, CifarSource, DamagedFile, DataError, IdxSource, Source, lookup
from neuralpath.data.splits import Dataset, Split

# `os.path.isfile` and its like return False for a folder that may not be read, where the methods of `Path` raise.
Folder: TypeAlias = str | os.PathLike[str] | None
ENVIRONMENT_VARIABLE = "NEURALPATH_DATA"
_LARGEST_DIGIT_VALUE = 16  # scikit-learn's digits count the ink in blocks of 4 x 4 pixels
_DIGITS_TEST_EVERY = 5


def load(name: str, *, data_dir: Folder = None, sources: Mapping[str, Source] = SOURCES) -> Dataset:
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
    arrays = read_verified(source, path)
    # `pop` frees the bytes of each file once its array has been copied into the images.
    splits = []
    if isinstance(source, IdxSource):
        for images, labels in (source.files[:2], source.files[2:]):
            splits.append(_make_split([arrays.pop(images.name)[:, None]], [arrays.pop(labels.name)]))
    else:
        start, side = source.n_label_bytes, source.side
        for files in (source.train, source.test):
            records = [arrays.pop(file.name) for file in files]
            pixels = [part[:, start:].reshape(-1, 3, side, side) for part in records]
            splits.append(_make_split(pixels, [part[:, start - 1] for part in records]))
    return Dataset(name, splits[0], splits[1], source.class_names)


def _load_digits() -> Dataset:
    # Imported here because scikit-learn takes a second to import, and no other data set needs it.
    from sklearn.datasets import load_digits

    values, numbers = load_digits(return_X_y=True)
    images = torch.from_numpy(values).to(torch.float32).reshape(-1, 1, 8, 8).div_(_LARGEST_DIGIT_VALUE)
    labels = torch.from_numpy(numbers).to(torch.int64)
    is_test = torch.arange(len(labels)) % _DIGITS_TEST_EVERY == 0
    train, test = (Split(images[rows], labels[rows]) for rows in (~is_test, is_test))
    return Dataset(EMBEDDED, train, test, tuple("0123456789"))


def _make_split(images: Sequence[UInt8[np.ndarray, "_ _ _ _"]], labels: Sequence[UInt8[np.ndarray, "_"]]) -> Split:
    values = np.empty((sum(map(len, images)), *images[0].shape[1:]), np.float32)
    np.concatenate(images, out=values)
    numbers = np.concatenate(labels).astype(np.int64)
    return Split(torch.from_numpy(values).div_(255), torch.from_numpy(numbers))


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


def check(data_dir: Folder = None, *, sources: Mapping[str, Source] = SOURCES) -> list[CheckResult]:
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
    _search_roots(data_dir)
    results = [CheckResult(EMBEDDED, "found", None, "comes with scikit-learn")]
    for source in sources.values():
        path = None
        try:
            path = find(source.name, data_dir, sources=sources)
            detail = f"all {len(read_verified(source, path))} files have their published checksums"
            results.append(CheckResult(source.name, "found", path, detail))
        except DataError as error:
            results.append(CheckResult(source.name, "missing" if path is None else "damaged", path, str(error)))
    return results


def cache_folder() -> Path:
    """Cache folder of the user: ``$XDG_CACHE_HOME/neuralpath`` or ``~/.cache/neuralpath``.

    >>> cache_folder().name
    'neuralpath'
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification requires relative paths to be ignored.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "neuralpath"


def find(name: str, data_dir: Folder = None, *, sources: Mapping[str, Source] = SOURCES) -> Path:
    """The folder or archive of a data set on the disk. The contents of the files are not checked.

    Args:
        name: One of `names`.
        data_dir: Folder that is searched first, before ``$NEURALPATH_DATA`` and the cache folder.
        sources: Descriptions of the known data sets.

    Raises:
        DataError: If the data set is not found, with the folders that were searched; if only its pickled version is
            there; or if ``data_dir`` is not a folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +ELLIPSIS
    ...     find("mnst", folder)
    Traceback (most recent call last):
    neuralpath.data._sources.DataError: No data set is called 'mnst'; known are digits, mnist, ... Did you mean mnist?
    """
    source = lookup(name, sources)
    roots = _search_roots(data_dir)
    path = search(source, roots, sources)
    if path is not None:
        return path
    command = source.fetch_command(data_dir)
    candidates = [folder / refused for root in roots for folder in _folders(source, root) for refused in source.refused]
    pickled = [root for root in roots if root.name in source.refused] + [p for p in candidates if os.path.exists(p)]
    if pickled:
        raise DataError(source.pickled_refusal(str(pickled[0]), command))
    searched = ", ".join(f"{root}{'' if os.path.isdir(root) else ' (does not exist)'}" for root in roots)
    advice = f"download it with {command}, or give its folder with --data-dir or ${ENVIRONMENT_VARIABLE}"
    raise DataError(f"{name} was not found in {searched}, nor in {', '.join(source.folders)} below; {advice}.")


def folders_to_search(data_dir: Folder) -> list[Path]:
    """The given folder, that of the environment and the cache folder; downloads go into the first."""
    given = (data_dir, os.environ.get(ENVIRONMENT_VARIABLE) or None)
    return [*(Path(folder).expanduser() for folder in given if folder is not None), cache_folder()]


def _search_roots(data_dir: Folder) -> list[Path]:
    """The folders to search; if ``data_dir`` is not a folder, searching the others would hide a typing error."""
    roots = folders_to_search(data_dir)
    if data_dir is not None and not os.path.isdir(roots[0]):
        problem = "is a file, not a folder" if os.path.isfile(roots[0]) else "does not exist"
        raise DataError(f"The data folder {roots[0]} {problem}; give the folder that contains the data sets.")
    return roots


def search(source: Source, roots: Sequence[Path], sources: Mapping[str, Source]) -> Path | None:
    """The first complete copy below the roots, else the first incomplete one, else None."""
    incomplete = None
    for root in roots:
        for path in _candidates(source, root):
            if isinstance(source, CifarSource) and path.name in source.archives:
                return path
            n_files = sum(file_path(source, path, file) is not None for file in source.files)
            if n_files == len(source.files) and not _belongs_to_another(source, path, sources):
                return path
            # A single file directly in a root (any project may have a train.bin) is not a data set.
            is_named = path != root or root.name in source.folders
            if 0 < n_files < len(source.files) and is_named and incomplete is None:
                incomplete = path
    return incomplete


def _folders(source: Source, root: Path) -> list[Path]:
    return [*(root / folder for folder in source.folders), root]


def _candidates(source: Source, root: Path) -> Iterator[Path]:
    for folder in _folders(source, root):
        if isinstance(source, CifarSource):
            yield from (folder / name for name in source.archives if os.path.isfile(folder / name))
            yield folder / source.member_folder
        yield folder


def _belongs_to_another(source: Source, folder: Path, sources: Mapping[str, Source]) -> bool:
    """Whether idx files are those of another data set: MNIST's and Fashion-MNIST's have the same names."""
    if not isinstance(source, IdxSource):
        return False
    file = source.test_labels  # the smallest of the four
    path = file_path(source, folder, file)
    try:
        contents = b"" if path is None else read_file(source, path, file)
    except DamagedFile:
        return False
    others = (other for other in sources.values() if isinstance(other, IdxSource) and other != source)
    return any(other.test_labels.checksum.matches(contents) for other in others)
