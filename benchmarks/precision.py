"""Training with products in bfloat16 against full precision, on CIFAR-10: time of an epoch, and what it changes.

python benchmarks/precision.py               # about four minutes on two cores
python benchmarks/precision.py --epochs 10   # a longer look at the accuracies

Both start from the same weights and see the same batches; they take turns, epoch by epoch, and the fastest epoch of
each counts. The accuracies after the last epoch are compared before the ratio is printed.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import measure
from neuralpath import data, nets
from neuralpath.data import Split
from neuralpath.gating.regimes import decouple
from neuralpath.training import Adam, EpochMetrics, TrainingConfig, train

PRECISIONS = ("full", "bfloat16")
LARGEST_DIFFERENCE = 0.05
"""Of test accuracies; epochs of one run differ by as much while the network still learns fast."""


def cifar(data_dir: Path | None, n_train: int, n_test: int) -> tuple[Split, Split]:
    whole = data.load("cifar10", data_dir=data_dir)
    chosen = torch.Generator().manual_seed(0)
    return tuple(
        Split(split.images[rows], split.labels[rows])
        for split, n in ((whole.train, n_train), (whole.test, n_test))
        for rows in [torch.randperm(len(split), generator=chosen)[:n]]
    )


def network(channels: tuple[int, ...], hidden: tuple[int, ...], regime: str) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    model = nets.GCONV((3, 32, 32), 10, channels=channels, hidden=hidden, generator=generator)
    return model if regime == "ReLU" else decouple(model, regime, generator=generator)


def take_turns(make: Any, splits: tuple[Split, Split], config: TrainingConfig) -> dict[str, list[EpochMetrics]]:
    """The epochs of both precisions; every epoch is a run of its own, so that they can take turns."""
    models = {precision: make() for precision in PRECISIONS}
    history: dict[str, list[EpochMetrics]] = {precision: [] for precision in PRECISIONS}
    for epoch in range(config.epochs):
        for precision, model in models.items():
            turn = replace(config, epochs=1, seed=epoch, precision=precision)
            history[precision].append(train(model, *splits, turn, progress=False).last)
    return history


def compare(name: str, make: Any, splits: tuple[Split, Split], config: TrainingConfig) -> dict[str, Any]:
    history = take_turns(make, splits, config)
    accuracy = {precision: epochs[-1].test.accuracy for precision, epochs in history.items()}
    assert abs(accuracy["full"] - accuracy["bfloat16"]) < LARGEST_DIFFERENCE, accuracy
    seconds = {precision: min(epoch.seconds for epoch in epochs) for precision, epochs in history.items()}
    ratio = seconds["full"] / seconds["bfloat16"]
    print(
        f"{name}: an epoch {seconds['bfloat16']:.2f} s in bfloat16, {seconds['full']:.2f} s in full precision, ratio "
        f"{ratio:.2f}; test accuracy {accuracy['bfloat16']:.2%} and {accuracy['full']:.2%} after {config.epochs} epochs"
    )
    return {"name": name, "seconds_per_epoch": seconds, "ratio": ratio, "test_accuracy": accuracy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--data-dir", type=Path)
    arguments = parser.parse_args()
    measure.set_threads(arguments.threads)
    splits = cifar(arguments.data_dir, arguments.images, arguments.images // 4)
    config = TrainingConfig(epochs=arguments.epochs, optimizer=Adam(3e-4))
    kinds = {"GCONV 16-16-32-32": ((16, 16, 32, 32), (64, 64)), "GCONV 32-32-32-32": ((32,) * 4, ())}
    results = [
        compare(f"{name}, {regime}", lambda shape=shape, regime=regime: network(*shape, regime), splits, config)
        for name, shape in kinds.items()
        for regime in ("ReLU", "FR-II")
    ]
    measure.save("precision", {"epochs": config.epochs, "images": arguments.images, "networks": results})


if __name__ == "__main__":
    main()
