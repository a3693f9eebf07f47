"""Runs on a real Dask scheduler with two worker processes."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from neuralpath.papers.runs.task import RunError, Weights
from papers.runs.small_tasks import Counting, finished, run_tasks


@pytest.fixture
def cluster(tmp_path):
    """A scheduler file, and the processes of two workers."""
    file, here = tmp_path / "scheduler.json", os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    start = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": here}
    scheduler = subprocess.Popen(
        [*start, "--scheduler-file", str(file), "--port", "0", "--no-dashboard", "--host", "127.0.0.1"], **quiet
    )
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file), "--nthreads", "1"]
    more = ["--no-nanny", "--no-dashboard", "--local-directory", str(tmp_path)]
    workers = [subprocess.Popen([*worker, *more], **quiet) for _ in range(2)]
    while not file.exists():
        time.sleep(0.1)
    yield file, workers
    for process in (*workers, scheduler):
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_lost_worker_costs_its_unfinished_steps_only(tmp_path, cluster):
    file, workers = cluster
    base = Counting("base", n=2)
    tasks = [Counting(f"c{i}", n=10, pause=0.1, reads=(Weights(base),)) for i in range(6)]
    run_tasks(tasks, tmp_path / "quiet", progress=False, jobs=2)

    def kill_in_the_middle():
        deadline = time.monotonic() + 120
        while len(list((tmp_path / "out").glob("*/metrics.jsonl"))) < 3:  # the base, and two of the others
            if time.monotonic() > deadline:
                return
            time.sleep(0.02)
        workers[0].send_signal(signal.SIGKILL)

    killer = threading.Thread(target=kill_in_the_middle, daemon=True)
    killer.start()
    results = run_tasks(tasks, tmp_path / "out", cluster=str(file), progress=False)
    killer.join()
    assert workers[0].poll() is not None
    assert len(results) == 6
    assert finished(tmp_path / "out") == finished(tmp_path / "quiet")


def test_an_unreachable_scheduler_is_said(tmp_path):
    with pytest.raises(RunError, match="neither the address of a scheduler"):
        run_tasks([Counting("a")], tmp_path, cluster="nowhere", progress=False)
