"""Last-epoch test accuracies of the regimes on MNIST, against values measured beforehand.

python benchmarks/mnist_regimes.py --data ../shared/data --out mnist-regimes    # ten minutes on one core
python benchmarks/mnist_regimes.py --data ../shared/data --out small --epochs 1 --count 2000

Fully connected, width 128, depth 6, with biases as in the papers' notebooks, Adam 3e-4, 20 epochs, batches of 32, one
seed. The folder OUT keeps checkpoints: a run that was stopped, however that happened, goes on where it was, and
finished regimes are not run again.
"""

import argparse
from pathlib import Path

import torch
from torch import nn

import measure
from neuralpath import data, nets
from neuralpath.gating.regimes import decouple
from neuralpath.training import Adam, SaveEvery, TrainingConfig, train

REFERENCE = {"ReLU": 97.8, "FL": 98.1, "FR-II": 95.9, "FR-DI": None, "DL": 97.8}
"""In percent; FR-DI was not among them."""
TOLERANCE = 0.4
EPOCHS = 20


def make_model(regime: str, trained: nn.Module | None, seed: int) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    base = nets.FC((1, 28, 28), 128, 6, 10, bias=True, generator=generator)
    if regime == "ReLU":
        return base
    return decouple(trained if regime == "FL" else base, regime, generator=generator)


def run(regime: str, trained: nn.Module | None, dataset: data.Dataset, arguments: argparse.Namespace) -> dict:
    config = TrainingConfig(
        epochs=arguments.epochs, batch_size=32, optimizer=Adam(3e-4), seed=arguments.seed, threads=arguments.threads
    )
    model = make_model(regime, trained, arguments.seed)
    result = train(
        model, dataset.train, dataset.test, config, folder=arguments.out / regime, save_every=SaveEvery(seconds=10),
        identity={"regime": regime, "network": "FC 128x6"},
    )  # fmt: skip
    last, reference = 100 * result.last.test.accuracy, REFERENCE[regime]
    seconds = sum(metrics.seconds for metrics in result.history) / len(result.history)
    comparable = reference is not None and arguments.count is None and arguments.epochs == EPOCHS
    told = f", measured beforehand {reference} ({last - reference:+.2f})" if comparable else ""
    print(f"{regime}: test accuracy {last:.2f} % after {len(result.history)} epochs of {seconds:.1f} s{told}")
    row = {
        "regime": regime, "last_test_accuracy": last, "reference": reference,
        "best_test_accuracy": 100 * result.best.test.accuracy, "last_train_accuracy": 100 * result.last.train.accuracy,
        "seconds_per_epoch": seconds,
    }  # fmt: skip
    return {"row": row, "model": model}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with MNIST")
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoints")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--count", type=int, help="train on the first so many examples only")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    dataset = data.load("mnist", data_dir=arguments.data)
    if arguments.count is not None:
        part = data.Split(dataset.train.images[: arguments.count], dataset.train.labels[: arguments.count])
        dataset = data.Dataset(dataset.name, part, dataset.test, dataset.class_names)
    rows, trained = [], None
    for regime in REFERENCE:
        outcome = run(regime, trained, dataset, arguments)
        trained = outcome["model"] if regime == "ReLU" else trained
        rows.append(outcome["row"])
    if arguments.count is not None or arguments.epochs != EPOCHS:
        return  # not the experiment that the values are of
    measure.save("mnist_regimes", {"epochs": EPOCHS, "seed": arguments.seed, "regimes": rows})
    off = [
        row["regime"]
        for row in rows
        if row["reference"] and abs(row["last_test_accuracy"] - row["reference"]) > TOLERANCE
    ]
    if off:
        raise SystemExit(f"further than {TOLERANCE} points from the values measured beforehand: {', '.join(off)}")


if __name__ == "__main__":
    main()
