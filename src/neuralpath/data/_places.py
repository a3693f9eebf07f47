"""Where data sets are looked for, and where downloads go.

Three folders are looked into, in this order: the one given as `data_dir` (``--data-dir``), the one named by
``$NEURALPATH_DATA``, and the cache folder. In each of them the files may lie in a folder named after the data
set (``mnist``, ``MNIST/raw``, ``fashion-mnist``, ``cifar10``, …: `folders` of the source), or directly. The
named folder comes first, because downloads go there. A CIFAR set may be its archive or what that unpacks to.
"""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from neuralpath.data._errors import DamagedFile, DataError
from neuralpath.data._files import read_at_most
from neuralpath.data._idx import header_size
from neuralpath.data._sources import SOURCES, CifarSource, DataFile, IdxSource, Source, lookup

ENVIRONMENT_VARIABLE = "NEURALPATH_DATA"


def cache_folder() -> Path:
    """Cache folder of the user: ``$XDG_CACHE_HOME/neuralpath`` or ``~/.cache/neuralpath``.

    >>> cache_folder().name
    'neuralpath'
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rules have relative paths ignored.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "neuralpath"


def find(
    name: str,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    sources: Mapping[str, Source] = SOURCES,
) -> Path:
    """Where a data set lies: the folder of its files, or its archive. Contents are not checked here.

    Raises: DataError if it is nowhere, with the places that were searched; if only the pickled version is
        there; or if `data_dir` is given and is no folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +ELLIPSIS
    ...     find("mnst", folder)
    Traceback (most recent call last):
    neuralpath.data._errors.DataError: No data set is called 'mnst'; known are digits, mnist, ... Did you mean mnist?
    """
    source = lookup(name, sources)
    roots = search_roots(data_dir)
    found = search(source, roots, sources)
    if found is None:
        raise DataError(_nowhere(source, roots, data_dir))
    return found


def search_roots(data_dir: str | os.PathLike[str] | None) -> list[Path]:
    """Folders to search, in order.

    Raises: DataError if `data_dir` is given and is no folder: searching on would hide a slip of the pen.
    """
    roots = []
    if data_dir is not None:
        explicit = Path(data_dir).expanduser()
        if not os.path.isdir(explicit):
            problem = "is a file, not a folder" if os.path.isfile(explicit) else "does not exist"
            raise DataError(f"The data folder {explicit} {problem}; give the folder that holds the data sets.")
        roots.append(explicit)
    if from_environment := os.environ.get(ENVIRONMENT_VARIABLE):
        roots.append(Path(from_environment).expanduser())
    return [*roots, cache_folder()]


def download_root(data_dir: str | os.PathLike[str] | None) -> Path:
    """Folder that downloads go below: the first that is set of the three; it need not exist yet."""
    if data_dir is not None:
        return Path(data_dir).expanduser()
    from_environment = os.environ.get(ENVIRONMENT_VARIABLE)
    return Path(from_environment).expanduser() if from_environment else cache_folder()


def search(source: Source, roots: Sequence[Path], sources: Mapping[str, Source]) -> Path | None:
    """First complete copy below the roots, else the first incomplete one, else nothing."""
    incomplete = None
    for root in roots:
        for place in _places(source, root):
            if isinstance(source, CifarSource) and place.name in source.archives:
                return place
            n_found = _count_files(source, place)
            if n_found == len(source.files) and not _belongs_to_another(source, place, sources):
                return place
            # A stray file directly in a root (any project may have a train.bin) makes no data set.
            is_named = place != root or root.name in source.folders
            if 0 < n_found < len(source.files) and is_named and incomplete is None:
                incomplete = place
    return incomplete


def idx_path(folder: Path, file: DataFile) -> Path | None:
    """Path of an idx file: compressed or not, and with the dot that some copies have for a hyphen."""
    for name in (file.name, file.name.replace("-idx", ".idx")):
        for path in (folder / f"{name}.gz", folder / name):
            if os.path.isfile(path):
                return path
    return None


def refused_path(source: Source, roots: Sequence[Path]) -> Path | None:
    """Path of the pickled version of a data set, if one lies where the data set itself may lie."""
    for root in roots:
        if root.name in source.refused:
            return root
        for folder in _folders(source, root):
            for name in source.refused:
                if os.path.exists(folder / name):
                    return folder / name
    return None


def fetch_command(source: Source, data_dir: str | os.PathLike[str] | None = None) -> str:
    """Command line that downloads a data set, as errors show it."""
    flag = "" if data_dir is None else f" --data-dir {shlex.quote(os.fspath(data_dir))}"
    return f"`neuralpath data fetch {source.name}{flag}`"


def pickled_refusal(source: Source, what: str, command: str) -> str:
    """Say why the pickled version is refused, and the way to the one that is read."""
    return (
        f"{source.name}: {what} is the pickled Python version, which is refused because unpickling can run "
        f"code; get {source.downloads[0].name} with {command} or from {source.mirrors[0]}."
    )


def _folders(source: Source, root: Path) -> Iterator[Path]:
    yield from (root / folder for folder in source.folders)
    yield root


def _places(source: Source, root: Path) -> Iterator[Path]:
    for folder in _folders(source, root):
        if isinstance(source, CifarSource):
            yield from (folder / name for name in source.archives if os.path.isfile(folder / name))
            yield folder / source.member_folder
        yield folder


def _count_files(source: Source, folder: Path) -> int:
    if isinstance(source, IdxSource):
        return sum(idx_path(folder, file) is not None for file in source.files)
    return sum(os.path.isfile(folder / file.name) for file in source.files)


def _belongs_to_another(source: Source, place: Path, sources: Mapping[str, Source]) -> bool:
    """Tell whether idx files are another set's: MNIST's and Fashion-MNIST's have the same names."""
    if not isinstance(source, IdxSource):
        return False
    file = source.test_labels  # the smallest of the four
    path = idx_path(place, file)
    if path is None:
        return False
    try:
        contents = read_at_most(path, header_size(len(file.shape)) + file.n_values)
    except DamagedFile:
        return False
    others = (other for other in sources.values() if isinstance(other, IdxSource) and other != source)
    return any(other.test_labels.checksum.matches([contents]) for other in others)


def _nowhere(source: Source, roots: Sequence[Path], data_dir: str | os.PathLike[str] | None) -> str:
    command = fetch_command(source, data_dir)
    pickled = refused_path(source, roots)
    if pickled is not None:
        return pickled_refusal(source, str(pickled), command)
    searched = ", ".join(f"{root}{'' if os.path.isdir(root) else ' (does not exist)'}" for root in roots)
    whose = "its" if len(roots) == 1 else "their"
    return (
        f"{source.name} was not found in {searched}, nor in {whose} folders {', '.join(source.folders)}; "
        f"download it with {command}, or name its folder with --data-dir or ${ENVIRONMENT_VARIABLE}."
    )
