"""Runs in processes of their own, stopped from outside at random times, end equal to the undisturbed run."""

import importlib.util
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("killed_program.py")
LIMIT = 30
"""Steps of one process: twenty processes do fewer than the 640 of the run. An epoch has 5 steps and a checkpoint."""
NEVER = 10**6
PATIENCE = 600
"""Seconds that a process may take on a very busy machine."""


@pytest.fixture(scope="module")
def undisturbed() -> bytes:
    spec = importlib.util.spec_from_file_location("killed_program", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.run(None)


def start(folder: Path, limit: int) -> subprocess.Popen:
    command = [sys.executable, str(PROGRAM), str(folder / "run"), str(folder / "out"), str(limit)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_step(process, 2)  # at the first step torch loads much, and nothing can be lost yet
    return process


def wait_for_step(process: subprocess.Popen, number: int) -> None:
    while (line := process.stdout.readline()) != f"{number}\n":
        assert line, process.stderr.read()


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "run").glob("*.json"))


def stop_often(folder: Path, number: signal.Signals, times: int, seed: int, status: int) -> int:
    """Stop the run so often, by turns at a random step and after a random time; how many lives saved anything."""
    draw = random.Random(seed)
    advanced = 0
    for life in range(times):
        before = checkpoints(folder)
        process = start(folder, LIMIT)
        if life % 2 == 0:
            wait_for_step(process, draw.randint(7, LIMIT))
        else:
            time.sleep(draw.uniform(0, 0.1))
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == status, errors
        advanced += checkpoints(folder) != before
    assert not (folder / "out").exists()
    return advanced


def finish(folder: Path) -> bytes:
    process = start(folder, NEVER)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    return (folder / "out").read_bytes()


def test_three_kills(tmp_path, undisturbed):
    assert stop_often(tmp_path, signal.SIGKILL, 3, seed=0, status=-signal.SIGKILL) >= 2
    assert finish(tmp_path) == undisturbed


@pytest.mark.slow
def test_twenty_kills(tmp_path, undisturbed):
    assert stop_often(tmp_path, signal.SIGKILL, 20, seed=1, status=-signal.SIGKILL) >= 10
    assert finish(tmp_path) == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
def test_polite_signals(number, status, tmp_path, undisturbed):
    assert stop_often(tmp_path, number, 4, seed=2, status=status) >= 2
    assert finish(tmp_path) == undisturbed


@pytest.mark.slow
def test_sigterm_ends_the_process_with_a_message(tmp_path):
    process = start(tmp_path, LIMIT)
    process.terminate()
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM
    assert "training was interrupted after step" in errors
    assert "checkpoint" in errors
    assert "Traceback" not in errors
