"""Downloads from a server on this machine that behaves well or badly."""

import errno
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from neuralpath import data

IMAGES = "train-images-idx3-ubyte.gz"


@dataclass
class Served:
    """What the server offers and how it behaves; `requests` lists path and Range of what was asked for."""

    files: dict[str, bytes] = field(default_factory=dict)
    knows_ranges: bool = True
    refuses_ranges: bool = False
    cut_after: int | None = None  # bytes of a body after which the connection closes
    says_length: bool = True
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    address: str = ""


class Handler(BaseHTTPRequestHandler):
    served: Served

    def do_GET(self) -> None:
        served, wanted = self.served, self.headers["Range"]
        served.requests.append((self.path, wanted))
        body = served.files.get(self.path.removeprefix("/sets/"))
        if body is None:
            self.send_error(404)
        elif wanted and served.refuses_ranges:
            self.send_error(416)
        elif wanted and served.knows_ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            self.send_body(body[start:])
        else:
            self.send_response(200)
            self.send_body(body)

    def send_body(self, body: bytes) -> None:
        if self.served.says_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.served.cut_after])

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
    served.files = {"small-binary.tar.gz": tiny_cifar.tar()}
    tiny_cifar.sources = {"small": replace(tiny_cifar.source, mirrors=(served.address,))}
    return tiny_cifar


def failure(name: str, folder: Path, sources, progress=None) -> str:
    with pytest.raises(data.DataError) as caught:
        data.fetch(name, data_dir=folder, sources=sources, progress=progress)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_all_files_arrive_and_can_be_loaded(idx, tmp_path: Path) -> None:
    reports = []
    folder = data.fetch(
        "tiny",
        data_dir=tmp_path / "new" / "folder",
        sources=idx.sources,
        progress=lambda *report: reports.append(report),
    )
    assert folder == tmp_path / "new" / "folder" / "tiny"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == idx.packed
    assert len(data.load("tiny", data_dir=folder.parent, sources=idx.sources).train) == 6
    for name, packed in idx.packed.items():
        done = [report[1] for report in reports if report[0] == name]
        assert done == sorted(done)
        assert (done[0], done[-1]) == (0, len(packed))
        assert {report[2] for report in reports if report[0] == name} == {len(packed)}


def test_archive_arrives(cifar, tmp_path: Path) -> None:
    path = data.fetch("small", data_dir=tmp_path, sources=cifar.sources)
    assert path == data.find("small", tmp_path, sources=cifar.sources)
    assert files_below(tmp_path) == ["small/small-binary.tar.gz"]
    assert len(data.load("small", data_dir=tmp_path, sources=cifar.sources).test) == 2


def test_goes_to_the_environments_folder_else_to_the_cache(
    idx, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert data.fetch("tiny", sources=idx.sources) == cache / "tiny"
    monkeypatch.setenv("NEURALPATH_DATA", str(tmp_path / "environment"))
    assert data.fetch("tiny", sources=idx.sources) == tmp_path / "environment" / "tiny"


def test_what_is_there_is_not_fetched_again(idx, served: Served, tmp_path: Path) -> None:
    idx.write(tmp_path)
    assert data.fetch("tiny", data_dir=tmp_path, sources=idx.sources) == tmp_path
    assert served.requests == []


def test_only_what_is_missing_is_fetched(idx, served: Served, tmp_path: Path) -> None:
    idx.write(tmp_path / "tiny")
    (tmp_path / "tiny" / IMAGES).unlink()
    data.fetch("tiny", data_dir=tmp_path, sources=idx.sources)
    assert served.requests == [(f"/sets/{IMAGES}", None)]


@pytest.mark.parametrize("folder", ["", "tiny"])
def test_damaged_file_gives_way_to_a_good_one(idx, tmp_path: Path, folder: str) -> None:
    idx.write(tmp_path / folder)
    (tmp_path / folder / IMAGES).write_bytes(b"damaged")
    with pytest.raises(data.DataError):
        data.load("tiny", data_dir=tmp_path, sources=idx.sources)
    data.fetch("tiny", data_dir=tmp_path, sources=idx.sources)
    data.load("tiny", data_dir=tmp_path, sources=idx.sources)


@pytest.mark.parametrize("says_length", [True, False])
def test_broken_connection_is_resumed(cifar, served: Served, tmp_path: Path, says_length: bool) -> None:
    whole = served.files["small-binary.tar.gz"]
    part = tmp_path / "small" / "small-binary.tar.gz.part"
    served.cut_after, served.says_length = 100, says_length
    message = failure("small", tmp_path, cifar.sources)
    assert f"the connection ended after 100 of {len(whole)} bytes" in message
    assert f"100 of {len(whole)} bytes are kept in {part}. Run the same command again to resume, or put" in message
    assert files_below(tmp_path) == ["small/small-binary.tar.gz.part"]
    assert part.read_bytes() == whole[:100]
    served.cut_after = None
    path = data.fetch("small", data_dir=tmp_path, sources=cifar.sources)
    assert served.requests[-1] == ("/sets/small-binary.tar.gz", "bytes=100-")
    assert path.read_bytes() == whole
    assert not part.exists()


def test_server_that_knows_no_ranges_sends_all_again(cifar, served: Served, tmp_path: Path) -> None:
    whole = served.files["small-binary.tar.gz"]
    served.knows_ranges = False
    part = tmp_path / "small" / "small-binary.tar.gz.part"
    for n_sent, n_kept in ((100, 100), (40, 100)):  # a shorter second try loses nothing of the first
        served.cut_after = n_sent
        failure("small", tmp_path, cifar.sources)
        assert part.read_bytes() == whole[:n_kept]
    served.cut_after = None
    assert data.fetch("small", data_dir=tmp_path, sources=cifar.sources).read_bytes() == whole


def test_server_that_refuses_the_range(cifar, served: Served, tmp_path: Path) -> None:
    whole = served.files["small-binary.tar.gz"]
    part = tmp_path / "small" / "small-binary.tar.gz.part"
    part.parent.mkdir()
    part.write_bytes(whole[:50])
    served.refuses_ranges = True
    assert data.fetch("small", data_dir=tmp_path, sources=cifar.sources).read_bytes() == whole
    assert [wanted for _, wanted in served.requests] == ["bytes=50-", None]


@pytest.mark.parametrize("stale", [b"something else", bytes(100_000)], ids=["shorter", "longer"])
@pytest.mark.parametrize("knows_ranges", [True, False])
def test_stale_part_is_given_up(cifar, served: Served, tmp_path: Path, stale: bytes, knows_ranges: bool) -> None:
    served.knows_ranges = knows_ranges
    part = tmp_path / "small" / "small-binary.tar.gz.part"
    part.parent.mkdir()
    part.write_bytes(stale)
    path = data.fetch("small", data_dir=tmp_path, sources=cifar.sources)
    assert path.read_bytes() == served.files["small-binary.tar.gz"]
    assert not part.exists()


def test_complete_part_needs_no_server(cifar, served: Served, tmp_path: Path) -> None:
    part = tmp_path / "small" / "small-binary.tar.gz.part"
    part.parent.mkdir()
    part.write_bytes(served.files["small-binary.tar.gz"])
    data.fetch("small", data_dir=tmp_path, sources=cifar.sources)
    assert served.requests == []
    assert files_below(tmp_path) == ["small/small-binary.tar.gz"]


def test_wrong_checksum_leaves_what_was_there(cifar, served: Served, tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "small-binary.tar.gz").write_bytes(b"old and damaged")
    served.files["small-binary.tar.gz"] = bytes(len(served.files["small-binary.tar.gz"]))
    message = failure("small", tmp_path, cifar.sources)
    assert "the SHA256 of the download is wrong, so it was removed" in message
    assert "; nothing is kept. Run the same command again, or put the file into" in message
    assert files_below(tmp_path) == ["small/small-binary.tar.gz"]
    assert (tmp_path / "small" / "small-binary.tar.gz").read_bytes() == b"old and damaged"


def test_offer_of_another_size_leaves_the_part(cifar, served: Served, tmp_path: Path) -> None:
    whole = served.files["small-binary.tar.gz"]
    part = tmp_path / "small" / "small-binary.tar.gz.part"
    part.parent.mkdir()
    part.write_bytes(whole[:50])
    for knows_ranges, problem in ((False, "the server offers 5 bytes"), (True, "the server sends 'bytes 50-")):
        served.files["small-binary.tar.gz"], served.knows_ranges = b"login", knows_ranges
        assert problem in failure("small", tmp_path, cifar.sources)
        assert part.read_bytes() == whole[:50]


def test_endless_answer_is_cut_off(cifar, served: Served, tmp_path: Path) -> None:
    n_expected = len(served.files["small-binary.tar.gz"])
    served.files["small-binary.tar.gz"] = bytes(5_000_000)
    served.says_length = False
    message = failure("small", tmp_path, cifar.sources)
    assert f"the server sends more than the expected {n_expected} bytes" in message
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.part")) <= n_expected


def test_next_mirror_is_tried(idx, served: Served, tmp_path: Path) -> None:
    mirrors = (f"{served.address}moved/", served.address.rstrip("/"))
    data.fetch("tiny", data_dir=tmp_path, sources={"tiny": replace(idx.sources["tiny"], mirrors=mirrors)})
    assert len(served.requests) == 8


def test_unreachable_servers_are_all_named(tiny_idx, served: Served, tmp_path: Path) -> None:
    mirrors = ("http://127.0.0.1:1/closed/", served.address, "nonsense://x/")
    source = replace(tiny_idx.source, mirrors=mirrors)
    message = failure("tiny", tmp_path, {"tiny": source})
    assert f"http://127.0.0.1:1/closed/{IMAGES}: Connection refused" in message
    assert f"{served.address}{IMAGES}: HTTP 404 Not Found" in message
    assert "nonsense://x/" in message
    assert f"put the file into {tmp_path / 'tiny'} yourself" in message
    assert files_below(tmp_path) == []


def test_interruption_from_the_keyboard_keeps_the_part(cifar, served: Served, tmp_path: Path) -> None:
    served.cut_after = 100
    failure("small", tmp_path, cifar.sources)
    served.cut_after = None

    def interrupt(name: str, done: int, total: int) -> None:
        if done > 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        data.fetch("small", data_dir=tmp_path, sources=cifar.sources, progress=interrupt)
    assert files_below(tmp_path) == ["small/small-binary.tar.gz.part"]
    data.fetch("small", data_dir=tmp_path, sources=cifar.sources)
    assert files_below(tmp_path) == ["small/small-binary.tar.gz"]


def test_full_disk_is_one_line(cifar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    message = failure("small", tmp_path, cifar.sources)
    assert "cannot be written to" in message
    assert "No space left on device" in message
    assert files_below(tmp_path) == ["small/small-binary.tar.gz.part"]


def test_two_downloads_of_one_file_are_kept_apart(cifar, tmp_path: Path) -> None:
    pytest.importorskip("fcntl", reason="this system has no file locks of this kind")
    refusals = []

    def start_another(name: str, done: int, total: int) -> None:
        refusals.append(failure("small", tmp_path, cifar.sources))

    data.fetch("small", data_dir=tmp_path, sources=cifar.sources, progress=start_another)
    assert refusals
    assert all("is being downloaded by another process; wait for it" in refusal for refusal in refusals)
    assert files_below(tmp_path) == ["small/small-binary.tar.gz"]


def test_folder_that_cannot_be_made(cifar, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "cannot be made: Not a directory" in failure("small", tmp_path / "file", cifar.sources)


def test_progress_display(idx, tmp_path: Path) -> None:
    with data.progress_bar() as display:
        data.fetch("tiny", data_dir=tmp_path, sources=idx.sources, progress=display)
        assert [task.description for task in display.tasks] == list(idx.packed)
        assert all(task.finished for task in display.tasks)


def test_digits_and_unknown_names_are_not_fetched() -> None:
    with pytest.raises(data.DataError, match="digits comes with scikit-learn"):
        data.fetch("digits")
    with pytest.raises(data.DataError, match=re.escape("No data set is called 'imagenet'")):
        data.fetch("imagenet")
