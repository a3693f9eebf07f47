"""Small tasks for tests of the engine; in a module of their own, so that other processes can import them."""

import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from neuralpath.papers.runs.records import Archive, write_archive
from neuralpath.papers.runs.run_directory import write_tensors
from neuralpath.papers.runs.store import Store
from neuralpath.papers.runs.sweep import results_of, sweep_store
from neuralpath.papers.runs.task import Task, Weights


def run_tasks(tasks, out, *, records=None, **options):
    """Do runs and what they depend on; the results of the former."""
    store = Store(Path(out), records)
    sweep_store(tasks, store, **options)
    return results_of(tasks, store)


def finished(folder):
    """Settings and results of the finished runs of an output folder: what must not depend on how they were done."""
    records = {path.parent.name: json.loads(path.read_bytes()) for path in folder.glob("*/record.json")}
    return {
        name: {"task": record["task"], "result": record["result"]}
        for name, record in records.items()
        if record["state"] == "finished"
    }


def archive_runs(out, records, tasks, weights=()):
    """A folder of records from an output folder."""
    records.mkdir(exist_ok=True)
    found = {task.name: json.loads((out / task.name / "record.json").read_bytes()) for task in tasks}
    write_archive(records / "small.jsonl.gz", Archive(records=found))
    for task in weights:
        (records / "weights").mkdir(exist_ok=True)
        data = (out / task.name / "weights" / "last.safetensors").read_bytes()
        write_tensors(records / "weights" / f"{task.name}.last.safetensors", data)
    return records


@dataclass(frozen=True)
class Counting(Task):
    """Writes a line of metrics for each step, goes on where it was, and keeps a tensor."""

    name_of: str
    n: int = 3
    pause: float = 0.0
    reads: tuple[Weights, ...] = ()

    @property
    def label(self):
        return f"counting {self.name_of}"

    @property
    def n_steps(self):
        return self.n

    def run(self, directory):
        done = len(directory.metrics())
        start = sum(float(directory.weights_of(weights.task, weights.which)["x"]) for weights in self.reads)
        for step in range(done + 1, self.n + 1):
            time.sleep(self.pause)
            directory.add_metrics(step, {"square": step * step})
        directory.save_weights("last", {"x": torch.tensor(start + self.n)})
        return {"squares": [line["square"] for line in directory.metrics()], "start": start, "pid": None}


@dataclass(frozen=True)
class Failing(Counting):
    """Fails unless a file is there."""

    flag: str = ""

    def run(self, directory):
        if not os.path.exists(self.flag):
            raise ValueError("the flag is missing")
        return super().run(directory)


@dataclass(frozen=True)
class Dying(Counting):
    """Kills its own process, once."""

    flag: str = ""

    def run(self, directory):
        if not os.path.exists(self.flag):
            open(self.flag, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run(directory)


@dataclass(frozen=True)
class Filling(Counting):
    """Writes more than a small disk holds."""

    megabytes: int = 4

    def run(self, directory):
        directory.save_weights("big", {"x": torch.zeros(self.megabytes << 18)})
        return super().run(directory)
