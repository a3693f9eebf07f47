"""Small tasks for tests of the engine; in a module of their own, so that other processes can import them."""

import os
import signal
import time
from dataclasses import dataclass

import torch

from neuralpath.papers.runs.task import Task, Weights


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
        start = sum(float(directory.weights_of(weights.work, weights.which)["x"]) for weights in self.reads)
        for step in range(done + 1, self.n + 1):
            time.sleep(self.pause)
            directory.add_metrics(step, {"square": step * step})
        directory.save_weights("last", {"x": torch.tensor(start + self.n)})
        return {"squares": [line["square"] for line in directory.metrics()], "start": start, "pid": None}

    def seconds(self, calibration):
        return self.n * self.pause

    def memory(self):
        return 1 << 20


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
