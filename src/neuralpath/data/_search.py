"""Search of data sets on the disk, and the folder for downloads.

Three folders are searched in this order: `data_dir` (``--data-dir``), ``$NEURALPATH_DATA``, and the cache folder. In
each of them the files are either in a folder named after the data set (``mnist``, ``MNIST/raw``, ``cifar10``, ...: the
source's `folders`), or in the folder itself. The named folder comes first, because downloads go there. A CIFAR data set
may be the archive or the folder that it unpacks to.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from neuralpath.data._reading import idx_path, read_idx
from neuralpath.data._sources import SOURCES, CifarSource, DamagedFile, DataError, IdxSource, Source, lookup

# `os.path.isfile` and its like return False for a folder that may not be read, where the methods of `Path` raise.
ENVIRONMENT_VARIABLE = "NEURALPATH_DATA"


def cache_folder() -> Path:
    """Cache folder of the user: ``$XDG_CACHE_HOME/neuralpath`` or ``~/.cache/neuralpath``.

    >>> cache_folder().name
    'neuralpath'
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification requires relative paths to be ignored.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "neuralpath"


def find(name: str, data_dir: str | os.PathLike[str] | None = None, *, sources: Mapping[str, Source] = SOURCES) -> Path:
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
    roots = search_roots(data_dir)
    path = search(source, roots, sources)
    if path is None:
        raise DataError(_not_found(source, roots, data_dir))
    return path


def search_roots(data_dir: str | os.PathLike[str] | None) -> list[Path]:
    """Folders to search, in order.

    Raises: DataError if ``data_dir`` is not a folder: searching the others would hide a typing error.
    """
    roots = []
    if data_dir is not None:
        folder = Path(data_dir).expanduser()
        if not os.path.isdir(folder):
            problem = "is a file, not a folder" if os.path.isfile(folder) else "does not exist"
            raise DataError(f"The data folder {folder} {problem}; give the folder that contains the data sets.")
        roots.append(folder)
    if from_environment := os.environ.get(ENVIRONMENT_VARIABLE):
        roots.append(Path(from_environment).expanduser())
    return [*roots, cache_folder()]


def download_root(data_dir: str | os.PathLike[str] | None) -> Path:
    """Folder for downloads: the first of the three that is set. It may not exist yet."""
    folder = os.environ.get(ENVIRONMENT_VARIABLE) if data_dir is None else data_dir
    return Path(folder).expanduser() if folder else cache_folder()


def search(source: Source, roots: Sequence[Path], sources: Mapping[str, Source]) -> Path | None:
    """The first complete copy below the roots, else the first incomplete one, else None."""
    incomplete = None
    for root in roots:
        for path in _candidates(source, root):
            if isinstance(source, CifarSource) and path.name in source.archives:
                return path
            n_files = _count_files(source, path)
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


def _count_files(source: Source, folder: Path) -> int:
    if isinstance(source, IdxSource):
        return sum(idx_path(folder, file) is not None for file in source.files)
    return sum(os.path.isfile(folder / file.name) for file in source.files)


def _belongs_to_another(source: Source, folder: Path, sources: Mapping[str, Source]) -> bool:
    """Whether idx files are those of another data set: MNIST's and Fashion-MNIST's have the same names."""
    if not isinstance(source, IdxSource):
        return False
    file = source.test_labels  # the smallest of the four
    path = idx_path(folder, file)
    if path is None:
        return False
    try:
        contents = read_idx(path, file)
    except DamagedFile:
        return False
    others = (other for other in sources.values() if isinstance(other, IdxSource) and other != source)
    return any(other.test_labels.checksum.matches(contents) for other in others)


def _pickled_version(source: Source, roots: Sequence[Path]) -> Path | None:
    """Path of the pickled version of a data set, if there is one where the data set is searched."""
    for root in roots:
        if root.name in source.refused:
            return root
        for folder in _folders(source, root):
            for name in source.refused:
                if os.path.exists(folder / name):
                    return folder / name
    return None


def _not_found(source: Source, roots: Sequence[Path], data_dir: str | os.PathLike[str] | None) -> str:
    command = source.fetch_command(data_dir)
    pickled = _pickled_version(source, roots)
    if pickled is not None:
        return source.pickled_refusal(str(pickled), command)
    searched = ", ".join(f"{root}{'' if os.path.isdir(root) else ' (does not exist)'}" for root in roots)
    return (
        f"{source.name} was not found in {searched}, nor in the folders {', '.join(source.folders)} below; "
        f"download it with {command}, or give its folder with --data-dir or ${ENVIRONMENT_VARIABLE}."
    )
