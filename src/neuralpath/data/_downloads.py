"""Downloads of data sets by name, with pooch: cached, retried, verified, and whole or not there at all."""

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pooch
from requests import HTTPError, RequestException

from neuralpath._progress import Step, progress_bar
from neuralpath.data._loading import Folder, folders_to_search, search
from neuralpath.data._reading import read_verified
from neuralpath.data._sources import SOURCES, DataError, Download, Source, lookup

_TIMEOUT = 30.0  # seconds without a byte after which a server is given up
_CHUNK = 1 << 16


def fetch(
    name: str,
    *,
    data_dir: Folder = None,
    progress: bool | None = None,
    retries: int = 2,
    sources: Mapping[str, Source] = SOURCES,
) -> Path:
    """Download a data set from its public home.

    The files go into a folder named after the data set, below ``data_dir``, ``$NEURALPATH_DATA`` or the cache folder.
    Files that are already there with their published checksums are not downloaded again. Each file is downloaded
    under a temporary name and gets its own name once its checksum is verified, so that an interrupted download leaves
    nothing half written.

    Args:
        name: One of `names`.
        data_dir: Folder for the data sets; it is created if it does not exist.
        progress: Whether to show a progress bar; None: on a terminal, if the download is long.
        retries: How often a failed download is repeated from each mirror, after a pause of a second or more.
        sources: Descriptions of the known data sets.

    Returns:
        The folder or archive of the data set, as `find` returns it.

    Raises:
        DataError: If the name is unknown, no mirror delivers the file with its checksum, or it cannot be written.
    """
    source = lookup(name, sources)
    root = folders_to_search(data_dir)[0]
    if (path := search(source, [root], sources)) is not None:
        with suppress(DataError):
            read_verified(source, path)
            return path
    folder = root / source.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{name}: the folder {folder} cannot be created: {error.strerror or error}.") from error
    pooch.get_logger().setLevel(logging.WARNING)  # the bar and the errors report the same
    for download in source.downloads:
        _download(download, source.mirrors, folder, retries, progress)
    path = search(source, [root], sources)
    if path is None:
        raise DataError(f"{name}: the downloads in {folder} do not make up the data set that its source describes.")
    return path


def _download(download: Download, mirrors: tuple[str, ...], folder: Path, retries: int, show: bool | None) -> None:
    """Download one file from the first mirror that delivers it, unless it is there already."""
    checksum = f"{download.checksum.algorithm}:{download.checksum.digest}"
    failures = []
    for mirror in mirrors:
        url = f"{mirror.rstrip('/')}/{download.name}"
        files = pooch.create(path=folder, base_url=mirror, registry={download.name: checksum}, retry_if_failed=retries)
        try:
            with progress_bar(download.size, f"{download.name} (bytes)", show) as report:
                bar = _PoochBar(download.size, report)
                downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=_CHUNK, timeout=_TIMEOUT)
                path = files.fetch(download.name, downloader=downloader)
            os.chmod(path, 0o644)  # temporary files are readable by their owner only
            return
        except HTTPError as error:
            failures.append(f"{url}: HTTP {getattr(error.response, 'status_code', '')}")
        except (RequestException, _TooLong) as error:
            failures.append(f"{url}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
        except ValueError:  # pooch's only other one: the checksum differs
            failures.append(f"{url}: the {download.checksum.algorithm.upper()} of the download is wrong")
        except OSError as error:
            problem = f"{download.name} cannot be written to {folder}: {error.strerror or error}"
            raise DataError(f"{problem}. Free some space, or choose another folder with --data-dir.") from error
    raise DataError(
        f"{download.name} could not be downloaded: {'; '.join(failures)}. "
        f"Run the same command again, or put the file into {folder} yourself."
    )


class _TooLong(Exception):
    """A server sends more bytes than the file has."""


class _PoochBar:
    """The progress bar interface that pooch expects; it also stops downloads that do not end."""

    def __init__(self, size: int, report: Step) -> None:
        self._size, self._report, self._done = size, report, 0

    @property
    def total(self) -> int:
        """The size of the file; pooch sets it at the start of a download and of each retry."""
        return self._size

    @total.setter
    def total(self, size: int) -> None:
        self.reset()

    def update(self, n_bytes: int) -> None:
        """Add downloaded bytes; pooch counts the last chunk as a whole one."""
        self._done += n_bytes
        if self._done > self._size + _CHUNK:
            raise _TooLong(f"the server sends more than the expected {self._size} bytes")
        self._report(n_bytes)

    def reset(self) -> None:
        """Count from 0 again: pooch then adds the whole size, so that the bar ends full."""
        self._report(-self._done)
        self._done = 0

    def close(self) -> None:
        """Pooch calls this at the end of a download."""
