"""Sweeps that are killed, starved of disk, shared and spread over a cluster end with the bytes of a quiet one."""

import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from neuralpath.papers.runs.task import RunError
from papers.runs.small_tasks import Counting, Filling, finished, run_tasks
from unprivileged import unprivileged

# Runs of about a second, so that a sweep is far from its end after five kills.
COMMAND = [
    sys.executable,
    "-m",
    "neuralpath.cli",
    "papers",
    "run",
    "regimes",
    "--preset",
    "smoke",
    "--parts.0.recipe.epochs",
    "60",
]


def run(out, *more):
    return subprocess.run([*COMMAND, "--out", str(out), *more], capture_output=True, text=True)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    out = tmp_path_factory.mktemp("quiet")
    done = run(out, "--jobs", "2")
    assert done.returncode == 0, done.stderr
    return finished(out)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_five_kills_of_the_whole_group_leave_no_trace(tmp_path, quiet, jobs):
    chance = random.Random(int(jobs))
    begin = time.monotonic()
    for _ in range(5):
        process = subprocess.Popen(
            [*COMMAND, "--out", str(tmp_path), "--jobs", jobs],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        before = len(finished(tmp_path))
        deadline = time.monotonic() + 120
        # Wait until it has begun to work, so that each kill comes in the middle of something.
        while len(finished(tmp_path)) <= before and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(chance.uniform(0.0, 0.5))
        assert process.poll() is None, "the sweep ended before it could be killed"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert time.monotonic() - begin < 600
    assert 0 < len(finished(tmp_path)) <= len(quiet)
    done = run(tmp_path, "--jobs", jobs)
    assert done.returncode == 0, done.stderr
    assert finished(tmp_path) == quiet


@pytest.mark.slow
def test_two_commands_at_once_share_a_sweep(tmp_path, quiet):
    both = [
        subprocess.Popen([*COMMAND, "--out", str(tmp_path), "--jobs", "1"], stderr=subprocess.PIPE, text=True,
                         stdout=subprocess.DEVNULL)
        for _ in range(2)
    ]  # fmt: skip
    for process in both:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    assert finished(tmp_path) == quiet


@pytest.mark.slow
def test_an_interrupt_saves_and_says_how_to_go_on(tmp_path, quiet):
    process = subprocess.Popen(
        [*COMMAND, "--out", str(tmp_path), "--jobs", "2"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
        text=True, start_new_session=True,
    )  # fmt: skip
    while not finished(tmp_path) and process.poll() is None:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "neuralpath papers run regimes" in errors
    assert "Traceback" not in errors
    done = run(tmp_path, "--jobs", "2")
    assert done.returncode == 0, done.stderr
    assert finished(tmp_path) == quiet


def test_a_full_disk_is_named_and_nothing_is_lost(tmp_path):
    tasks = [Counting("small"), Filling("big")]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then a write past the limit is an error, EFBIG
    try:
        with pytest.raises(RunError, match=r"big-.* cannot be written to: File too large\. Finished runs are kept"):
            run_tasks(tasks, tmp_path, progress=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)
    assert (tmp_path / tasks[0].name / "record.json").exists()
    assert not list(tmp_path.rglob("*.part"))
    assert len(run_tasks(tasks, tmp_path, progress=False)) == 2
    run_tasks(tasks, tmp_path / "quiet", progress=False)
    assert finished(tmp_path) == finished(tmp_path / "quiet")


def test_a_read_only_folder_is_named_and_what_is_finished_stays():
    task, more = Counting("small"), Counting("more")
    with tempfile.TemporaryDirectory() as folder:  # not below pytest's, which only its owner may enter
        out = Path(folder)
        run_tasks([task], out, progress=False)
        before = finished(out)
        out.chmod(0o555)
        (out / ".locks").chmod(0o555)
        with unprivileged(), pytest.raises(RunError, match=r"cannot be written to: Permission denied"):
            run_tasks([task, more], out, progress=False)
        assert finished(out) == before
        out.chmod(0o755)


def test_a_folder_that_cannot_be_written_is_said_on_the_command_line(tmp_path, capsys):
    from neuralpath.cli import main

    (tmp_path / "file").touch()
    assert main(["papers", "run", "regimes", "--out", str(tmp_path / "file" / "out"), "--jobs", "1"]) == 1
    assert "cannot be written to: Not a directory." in capsys.readouterr().err
