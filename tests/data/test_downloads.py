"""Downloads from a server on this machine that behaves well or badly."""

import errno
import io
import os
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import rich.console

from neuralpath import data
from neuralpath.data import _downloads

IMAGES = "train-images-idx3-ubyte.gz"
ARCHIVE = "small-binary.tar.gz"


@dataclass
class Served:
    """What the server offers and how it behaves; `requests` lists the paths that were asked for."""

    files: dict[str, bytes] = field(default_factory=dict)
    cut_after: int | None = None  # bytes of a body after which the connection closes
    says_length: bool = True
    fails: int = 0  # answers that are cut short before the first good one
    requests: list[str] = field(default_factory=list)
    address: str = ""


class Handler(BaseHTTPRequestHandler):
    served: Served

    def do_GET(self) -> None:
        served = self.served
        served.requests.append(self.path)
        body = served.files.get(self.path.removeprefix("/sets/"))
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        if served.says_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut_after = 10 if len(served.requests) <= served.fails else served.cut_after
        self.wfile.write(body[:cut_after])

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def served() -> Iterator[Served]:
    state = Served()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"served": state}))
    state.address = f"http://127.0.0.1:{server.server_port}/sets/"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def idx(tiny_idx, served: Served):
    """The tiny idx set, offered by the server."""
    served.files = dict(tiny_idx.packed)
    tiny_idx.sources = {"tiny": replace(tiny_idx.source, mirrors=(served.address,))}
    return tiny_idx


@pytest.fixture
def cifar(tiny_cifar, served: Served):
    """The tiny CIFAR set, offered by the server."""
    served.files = {ARCHIVE: tiny_cifar.tar()}
    tiny_cifar.sources = {"small": replace(tiny_cifar.source, mirrors=(served.address,))}
    return tiny_cifar


def failure(name: str, folder: Path, sources) -> str:
    with pytest.raises(data.DataError) as caught:
        data.fetch(name, data_dir=folder, sources=sources, retries=0)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_all_files_arrive_and_can_be_loaded(idx, tmp_path: Path, capsys) -> None:
    folder = data.fetch("tiny", data_dir=tmp_path / "new" / "folder", sources=idx.sources)
    assert folder == tmp_path / "new" / "folder" / "tiny"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == idx.packed
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o644}
    assert len(data.load("tiny", data_dir=folder.parent, sources=idx.sources).train) == 6
    assert capsys.readouterr() == ("", "")  # no bar without a terminal


def test_archive_arrives(cifar, tmp_path: Path) -> None:
    path = data.fetch("small", data_dir=tmp_path, sources=cifar.sources)
    assert path == data.find("small", tmp_path, sources=cifar.sources)
    assert files_below(tmp_path) == [f"small/{ARCHIVE}"]
    assert len(data.load("small", data_dir=tmp_path, sources=cifar.sources).test) == 2


def test_goes_to_the_environments_folder_else_to_the_cache(
    idx, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert data.fetch("tiny", sources=idx.sources) == cache / "tiny"
    monkeypatch.setenv("NEURALPATH_DATA", str(tmp_path / "environment"))
    assert data.fetch("tiny", sources=idx.sources) == tmp_path / "environment" / "tiny"


def test_files_on_the_disk_are_not_downloaded_again(idx, served: Served, tmp_path: Path) -> None:
    idx.write(tmp_path)
    assert data.fetch("tiny", data_dir=tmp_path, sources=idx.sources) == tmp_path
    assert served.requests == []


def test_only_missing_files_are_downloaded(idx, served: Served, tmp_path: Path) -> None:
    idx.write(tmp_path / "tiny")
    (tmp_path / "tiny" / IMAGES).unlink()
    data.fetch("tiny", data_dir=tmp_path, sources=idx.sources)
    assert served.requests == [f"/sets/{IMAGES}"]


@pytest.mark.parametrize("folder", ["", "tiny"])
def test_a_damaged_file_is_replaced(idx, tmp_path: Path, folder: str) -> None:
    idx.write(tmp_path / folder)
    (tmp_path / folder / IMAGES).write_bytes(b"damaged")
    with pytest.raises(data.DataError):
        data.load("tiny", data_dir=tmp_path, sources=idx.sources)
    data.fetch("tiny", data_dir=tmp_path, sources=idx.sources)
    data.load("tiny", data_dir=tmp_path, sources=idx.sources)


@pytest.mark.parametrize("says_length", [True, False])
def test_a_broken_connection_leaves_nothing(cifar, served: Served, tmp_path: Path, says_length: bool) -> None:
    served.cut_after, served.says_length = 100, says_length
    message = failure("small", tmp_path, cifar.sources)
    assert f"{served.address}{ARCHIVE}" in message
    assert files_below(tmp_path) == []
    served.cut_after = None
    path = data.fetch("small", data_dir=tmp_path, sources=cifar.sources)
    assert path.read_bytes() == served.files[ARCHIVE]


def test_a_broken_connection_is_retried(cifar, served: Served, tmp_path: Path) -> None:
    served.fails = 1
    path = data.fetch("small", data_dir=tmp_path, sources=cifar.sources, retries=1)
    assert path.read_bytes() == served.files[ARCHIVE]
    assert len(served.requests) == 2


def test_bytes_of_a_failed_try_do_not_count_for_the_next() -> None:
    reports = []
    bar = _downloads._PoochBar(1_000_000, lambda n_bytes: reports.append(n_bytes))
    for _ in range(3):
        bar.total = 1_000_000
        bar.update(900_000)
    assert sum(reports) == 900_000


def test_a_wrong_checksum_leaves_the_file_that_was_there(cifar, served: Served, tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / ARCHIVE).write_bytes(b"old and damaged")
    served.files[ARCHIVE] = bytes(len(served.files[ARCHIVE]))
    message = failure("small", tmp_path, cifar.sources)
    assert "SHA256" in message
    assert files_below(tmp_path) == [f"small/{ARCHIVE}"]
    assert (tmp_path / "small" / ARCHIVE).read_bytes() == b"old and damaged"


def test_an_endless_answer_is_cut_off(cifar, served: Served, tmp_path: Path) -> None:
    size = len(served.files[ARCHIVE])
    served.files[ARCHIVE] = bytes(5_000_000)
    served.says_length = False
    assert f"more than the expected {size} bytes" in failure("small", tmp_path, cifar.sources)
    assert files_below(tmp_path) == []


def test_the_next_mirror_is_tried(idx, served: Served, tmp_path: Path) -> None:
    mirrors = (f"{served.address}moved/", served.address.rstrip("/"))
    sources = {"tiny": replace(idx.sources["tiny"], mirrors=mirrors)}
    data.fetch("tiny", data_dir=tmp_path, sources=sources, retries=0)
    assert len(served.requests) == 8


def test_unreachable_servers_are_all_named(tiny_idx, served: Served, tmp_path: Path) -> None:
    mirrors = ("http://127.0.0.1:1/closed/", served.address, "nonsense://x/")
    source = replace(tiny_idx.source, mirrors=mirrors)
    message = failure("tiny", tmp_path, {"tiny": source})
    assert re.search(rf"http://127\.0\.0\.1:1/closed/{IMAGES}: .*Connection refused", message)
    assert f"{served.address}{IMAGES}: HTTP 404" in message
    assert "nonsense://x/" in message
    assert str(tmp_path / "tiny") in message
    assert files_below(tmp_path) == []


def test_an_interruption_from_the_keyboard_leaves_nothing(cifar, tmp_path: Path, monkeypatch) -> None:
    def interrupt(bar, n_bytes):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_downloads._PoochBar, "update", interrupt)
        with pytest.raises(KeyboardInterrupt):
            data.fetch("small", data_dir=tmp_path, sources=cifar.sources)
    assert files_below(tmp_path) == []
    data.fetch("small", data_dir=tmp_path, sources=cifar.sources)
    assert files_below(tmp_path) == [f"small/{ARCHIVE}"]


def test_a_full_disk_is_one_line(cifar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "move", full)
    message = failure("small", tmp_path, cifar.sources)
    assert str(tmp_path / "small") in message
    assert "No space left on device" in message
    assert files_below(tmp_path) == []


def test_a_folder_that_cannot_be_created(cifar, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = failure("small", tmp_path / "file", cifar.sources)
    assert "Not a directory" in message


def test_the_bar_names_the_files(idx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    terminal = rich.console.Console(file=screen, force_terminal=True, width=120)
    monkeypatch.setattr("neuralpath._progress.Console", lambda stderr: terminal)
    data.fetch("tiny", data_dir=tmp_path, sources=idx.sources, progress=True)
    for name, packed in idx.packed.items():
        assert name in screen.getvalue()
        assert f"{len(packed)}/{len(packed)}" in screen.getvalue()


def test_digits_and_unknown_names_are_not_downloaded() -> None:
    with pytest.raises(data.DataError, match="digits comes with scikit-learn"):
        data.fetch("digits")
    with pytest.raises(data.DataError, match="'imagenet'"):
        data.fetch("imagenet")
