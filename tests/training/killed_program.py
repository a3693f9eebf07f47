"""A run that the kill tests start and kill: `python killed_program.py FOLDER OUT LIMIT`.

It prints the number of each step that it begins, and writes weights and metrics to OUT at the end. At step LIMIT of
this process it waits for a signal, so that however slow the machine is, a run that is to be killed does not end.
"""

import dataclasses
import json
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import save
from torch import nn

from neuralpath.data import Split
from neuralpath.training import SGD, Cosine, TrainingConfig, train


def make_model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64, 16),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(16, 3),
        )


def make_split(n: int, seed: int) -> Split:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (n,), generator=generator)
    images = torch.randn(n, 1, 4, 4, generator=generator)
    images[:, 0, 0, :3] += torch.nn.functional.one_hot(labels, 3)
    return Split(images, labels)


class Augment:
    """Noise, and a line for each step."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.calls = 0

    def __call__(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        self.calls += 1
        if self.limit is not None:
            print(self.calls, flush=True)
            time.sleep(0.002)
            if self.calls == self.limit:
                while True:
                    time.sleep(0.001)
        return images + 0.1 * torch.randn(images.shape, generator=generator)


def run(folder: Path | None, limit: int | None = None) -> bytes:
    """Weights and metrics of the run as bytes."""
    config = TrainingConfig(
        epochs=128, batch_size=8, optimizer=SGD(0.05, momentum=0.9, nesterov=True), schedule=Cosine(), threads=1
    )
    model = make_model()
    data = make_split(40, 2), make_split(20, 3)
    result = train(model, *data, config, folder=folder, checkpoint_seconds=0, augment=Augment(limit))
    history = [dataclasses.asdict(metrics) | {"seconds": None} for metrics in result.history]
    return save(dict(model.state_dict())) + json.dumps([history, result.n_steps]).encode()


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(run(Path(sys.argv[1]), int(sys.argv[3])))
