"""Downloading one file: resumed where it stopped, verified, and put in place in one step."""

import http.client
import io
import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from neuralpath.data._errors import DataError
from neuralpath.data._files import file_matches
from neuralpath.data._progress import Report
from neuralpath.data._sources import Download

try:
    import fcntl
except ImportError:  # not on Windows; there two downloads of one file at a time are not kept apart
    fcntl = None  # type: ignore[assignment]

_TIMEOUT = 30.0  # seconds without a byte before a server is given up
_BLOCK = 1 << 16


class _Failure(Exception):
    """One mirror did not deliver; the next one may."""


def download(item: Download, folder: Path, mirrors: Sequence[str], report: Report) -> Path:
    """Download a file into a folder, trying one mirror after the other.

    Raises: DataError if no mirror delivers the file. What has come so far stays in ``NAME.part``, unless its
        checksum is wrong. An interruption from the keyboard leaves the part as well, and never a broken file.
    """
    target, part = folder / item.name, folder / f"{item.name}.part"
    failures = []
    try:
        with _sole_user(part):
            for mirror in mirrors:
                url = f"{mirror.rstrip('/')}/{item.name}"
                try:
                    _complete(url, part, item, report)
                except _Failure as failure:
                    failures.append(f"{url}: {failure}")
                    continue
                os.replace(part, target)
                return target
            n_kept = part.stat().st_size
    except OSError as error:
        raise DataError(
            f"{item.name} cannot be written to {folder}: {error.strerror or error}. "
            "Make room or choose another folder with --data-dir; run the same command again to resume."
        ) from error
    kept = f"{n_kept} of {item.size} bytes are kept in {part}" if n_kept else "nothing is kept"
    raise DataError(
        f"{item.name} could not be downloaded: {'; '.join(failures)}; {kept}. "
        f"Run the same command again{' to resume' if n_kept else ''}, or put the file into {folder} yourself."
    )


def _complete(url: str, part: Path, item: Download, report: Report) -> None:
    """Bring the part to its full, verified contents."""
    is_resumed = part.stat().st_size > 0
    _transfer(url, part, item, report)
    if file_matches(part, item.checksum):
        return
    # Truncated and not removed: the lock hangs on this very file.
    os.truncate(part, 0)
    if is_resumed:  # what lay there may have been the start of something else: a fresh try tells
        _complete(url, part, item, report)
        return
    raise _Failure(f"the {item.checksum.algorithm.upper()} of the download is wrong, so it was removed")


def _transfer(url: str, part: Path, item: Download, report: Report) -> None:
    """Add what is missing to the part."""
    n_there = part.stat().st_size
    if n_there > item.size:
        os.truncate(part, 0)
        n_there = 0
    report(item.name, n_there, item.size)
    if n_there == item.size:
        return
    with _opened(url, n_there) as response:
        position = _first_byte(response, n_there, item.size)
        # A server that ignores the range sends all from the start. That is written over what is there, which
        # keeps its length, so that another interruption still loses nothing.
        with part.open("r+b") as file:
            file.seek(position)
            _copy(response, file, position, item, report)


def _copy(
    response: http.client.HTTPResponse, file: io.BufferedRandom, position: int, item: Download, report: Report
) -> None:
    while block := _read(response):
        if position + len(block) > item.size:
            raise _Failure(f"the server sends more than the expected {item.size} bytes")
        file.write(block)
        position += len(block)
        report(item.name, position, item.size)
    if position < item.size:
        raise _Failure(f"the connection ended after {position} of {item.size} bytes")
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def _opened(url: str, n_there: int) -> Iterator[http.client.HTTPResponse]:
    headers = {"User-Agent": "neuralpath"}
    if n_there:
        headers["Range"] = f"bytes={n_there}-"
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and n_there:
                with _opened(url, 0) as whole:
                    yield whole
                return
            raise _Failure(f"HTTP {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise _Failure(str(getattr(error.reason, "strerror", None) or error.reason)) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _Failure(str(error) or type(error).__name__) from error
    with response:
        yield response


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read1(_BLOCK)
    except (OSError, http.client.HTTPException) as error:
        raise _Failure(str(error) or type(error).__name__) from error


def _first_byte(response: http.client.HTTPResponse, n_there: int, size: int) -> int:
    """Position in the file of the first byte that comes; a wrong size is noticed before any is written."""
    if response.status == http.client.PARTIAL_CONTENT:
        expected = f"bytes {n_there}-{size - 1}/{size}"
        if response.headers.get("Content-Range") != expected:
            raise _Failure(f"the server sends {response.headers.get('Content-Range')!r}, asked for {expected!r}")
        return n_there
    length = response.headers.get("Content-Length")
    if length is not None and length != str(size):
        raise _Failure(f"the server offers {length} bytes, expected {size}")
    return 0


@contextmanager
def _sole_user(part: Path) -> Iterator[None]:
    """Make sure that the part exists and nobody else writes it; remove it in the end if it is empty."""
    while True:
        with part.open("ab") as handle:
            if fcntl is not None:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    raise DataError(f"{part} is being downloaded by another process; wait for it.") from error
            # Whoever had the lock may have finished between our open and our lock: this is then its result.
            if not (os.path.exists(part) and os.path.samestat(os.fstat(handle.fileno()), part.stat())):
                continue
            try:
                yield
            finally:
                if os.path.exists(part) and part.stat().st_size == 0:
                    part.unlink()
            return
