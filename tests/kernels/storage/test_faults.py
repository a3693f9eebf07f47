"""Stores that are disturbed while they are computed, with real processes: the result is the undisturbed one."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from kernels.storage.stores import contents, tiles_of

pytestmark = pytest.mark.slow

KERNEL = [
    "kernel", "gconv", "--data", "digits", "--count", "800", "--set", "channels=(8, 8)", "n_outputs=2",
    "--memory", "100MB", "--threads", "1",
]  # fmt: skip
N_TILES = 10
PATIENCE = 600
"""Seconds that anything may take on a very busy machine."""

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def start(*arguments: str, **options) -> subprocess.Popen:
    command = [sys.executable, "-m", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, **options
    )


def begin(folder: Path, *more: str, **options) -> subprocess.Popen:
    return start("neuralpath.cli", *KERNEL, "--store", str(folder), *more, **options)


def finish(process: subprocess.Popen, status: int = 0) -> str:
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == status, errors
    assert "Traceback" not in errors
    return errors


def wait_until(condition, *processes: subprocess.Popen) -> None:
    """Wait for a condition while the processes live."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < PATIENCE
        for process in processes:
            assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("undisturbed") / "K.zarr"
    finish(begin(folder))
    assert len(tiles_of(folder)) == N_TILES
    return contents(folder)


class Cluster:
    """A scheduler and workers on the loopback, each a process."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "scheduler.json"
        self.workers: list[subprocess.Popen] = []
        self.scheduler = self._start(
            "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
            "--scheduler-file", str(self.file),
        )  # fmt: skip
        wait_until(self.file.is_file, self.scheduler)

    def _start(self, *arguments: str) -> subprocess.Popen:
        with (self.folder / "log").open("a") as log:
            return subprocess.Popen([sys.executable, "-m", *arguments], stdout=log, stderr=log, env=ENVIRONMENT)

    def add_worker(self) -> None:
        self.workers.append(self._start(
            "distributed.cli.dask_worker", "--scheduler-file", str(self.file), "--nthreads", "1", "--no-nanny",
            "--no-dashboard", "--host", "127.0.0.1", "--local-directory", str(self.folder),
        ))  # fmt: skip

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path):
    running = Cluster(tmp_path)
    running.add_worker()
    running.add_worker()
    yield running
    running.close()


@pytest.mark.parametrize("kills", [1, 2])
def test_workers_are_killed_in_mid_run(kills, cluster, tmp_path, undisturbed):
    folder = tmp_path / "K.zarr"
    client = begin(folder, "--cluster", str(cluster.file))
    for number in range(kills):
        wait_until(lambda enough=2 + 2 * number: len(tiles_of(folder)) >= enough, client)
        cluster.workers[number].kill()
    if kills == 2:  # all are lost, and with them the model and the data
        cluster.add_worker()
    finish(client)
    assert contents(folder) == undisturbed


def test_the_client_is_killed_and_restarted(cluster, tmp_path, undisturbed):
    folder, address = tmp_path / "K.zarr", json.loads(cluster.file.read_text())["address"]
    for enough in (2, 5):
        client = begin(folder, "--cluster", address)
        wait_until(lambda enough=enough: len(tiles_of(folder)) >= enough, client)
        client.kill()
        client.communicate()
        assert len(tiles_of(folder)) < N_TILES
    assert "of them are stored" in finish(begin(folder, "--cluster", address))
    assert contents(folder) == undisturbed


def test_the_scheduler_is_killed(cluster, tmp_path, undisturbed):
    folder = tmp_path / "K.zarr"
    client = begin(folder, "--cluster", str(cluster.file))
    wait_until(lambda: len(tiles_of(folder)) >= 2, client)
    cluster.scheduler.kill()
    assert "tiles are stored" in finish(client, status=1)
    finish(begin(folder))  # goes on here
    assert contents(folder) == undisturbed


def test_models_of_files_reach_the_workers_and_files_beside_them_are_named(cluster, tmp_path):
    lines = [
        "from __future__ import annotations", "from dataclasses import dataclass", "from torch import nn",
        "@dataclass", "class Config:", "    width: int = 3",
        "class Net(nn.Sequential): pass",
        "def net(): return Net(nn.Flatten(), nn.Linear(64, Config().width), nn.ReLU(), nn.Linear(Config().width, 1))",
    ]  # fmt: skip
    (tmp_path / "alone.py").write_text("\n".join(lines))
    (tmp_path / "beside.py").write_text("from torch import nn\nclass Gate(nn.ReLU): pass\n")
    (tmp_path / "together.py").write_text("\n".join([*lines, "from beside import Gate", "nn.ReLU = Gate"]))
    for name, status in (("alone", 0), ("together", 1)):
        arguments = ["kernel", f"{tmp_path / name}.py:net", "--data", "digits", "--count", "20"]
        store = ["--store", str(tmp_path / f"{name}.zarr"), "--cluster", str(cluster.file)]
        said = finish(start("neuralpath.cli", *arguments, *store), status)
    assert "'beside'" in said


def test_a_scheduler_without_workers_is_refused(tmp_path):
    running = Cluster(tmp_path)
    try:
        assert "no workers" in finish(begin(tmp_path / "K.zarr", "--cluster", str(running.file)), status=1)
    finally:
        running.close()


@pytest.mark.parametrize(
    ("number", "status", "message"), [(signal.SIGKILL, -9, ""), (signal.SIGINT, 130, "the same command resumes")]
)
def test_work_on_this_machine_is_stopped(number, status, message, tmp_path, undisturbed):
    folder = tmp_path / "K.zarr"
    for enough in (2, 5):
        client = begin(folder)
        wait_until(lambda enough=enough: len(tiles_of(folder)) >= enough, client)
        client.send_signal(number)
        assert message in finish(client, status)
    finish(begin(folder))
    assert contents(folder) == undisturbed


def test_a_limit_on_the_size_of_files(tmp_path, undisturbed):
    folder = tmp_path / "K.zarr"
    limit = 2**17  # less than a tile
    limited = begin(folder, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert "File too large" in finish(limited, status=1)
    assert tiles_of(folder) == []
    finish(begin(folder))
    assert contents(folder) == undisturbed


@contextmanager
def small_disk(place: Path, size: int):
    place.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], capture_output=True)
    if mount.returncode != 0:
        pytest.skip("mounting is not allowed here; the limit on the size of files is tested instead")
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)


def blow_up(balloon: Path) -> None:
    with balloon.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def test_the_disk_is_full_in_mid_run(tmp_path, undisturbed):
    disk = tmp_path / "disk"
    with small_disk(disk, 2**23):
        folder, balloon = disk / "K.zarr", disk / "balloon"
        client = begin(folder)
        wait_until(lambda: len(tiles_of(folder)) >= 3, client)
        with pytest.raises(OSError, match="No space"):
            blow_up(balloon)
        assert "No space left on device" in finish(client, status=1)
        assert 3 <= len(tiles_of(folder)) < N_TILES
        balloon.unlink()
        finish(begin(folder))
        assert contents(folder) == undisturbed
