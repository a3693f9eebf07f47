"""Downloading a data set by name."""

import os
from collections.abc import Mapping
from pathlib import Path

from rich.progress import Progress

from neuralpath.data._contents import read_verified
from neuralpath.data._download import download
from neuralpath.data._errors import DataError
from neuralpath.data._files import file_matches
from neuralpath.data._places import download_root, search
from neuralpath.data._progress import Report, as_report
from neuralpath.data._sources import SOURCES, Download, Source, lookup


def fetch(
    name: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    progress: Report | Progress | None = None,
    sources: Mapping[str, Source] = SOURCES,
) -> Path:
    """Download a data set from its public home and return where it lies, as :func:`find` would.

    The files go into a folder named after the data set, below `data_dir`, else ``$NEURALPATH_DATA``, else
    the cache folder, which are made if need be. What is there and whole is not downloaded again. Each file
    grows as ``NAME.part``, is checked against its published checksum and only then gets its name; an
    interrupted download is resumed by the next.

    `progress` is called with the file's name, the bytes that are there and the bytes in all, or is a rich
    display such as :func:`progress_bar` gives.

    Raises: DataError if the name is unknown, no mirror delivers, the checksum is wrong, or the disk refuses.
    """
    source = lookup(name, sources)
    root = download_root(data_dir)
    found = search(source, [root], sources)
    if found is not None and _is_whole(source, found):
        return found
    folder = root / source.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{name}: the folder {folder} cannot be made: {error.strerror or error}.") from error
    report = as_report(progress)
    for item in source.downloads:
        target = folder / item.name
        if not _is_downloaded(target, item):
            download(item, folder, source.mirrors, report)
    found = search(source, [root], sources)
    if found is None:
        raise DataError(f"{name}: the downloads in {folder} do not make up the data set its source describes.")
    return found


def _is_downloaded(target: Path, item: Download) -> bool:
    try:
        return os.path.isfile(target) and file_matches(target, item.checksum)
    except OSError:
        return False


def _is_whole(source: Source, place: Path) -> bool:
    try:
        read_verified(source, place)
    except DataError:
        return False
    return True
