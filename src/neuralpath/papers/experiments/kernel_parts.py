"""Experiment `kernel-parts`: value and feature part of the tangent kernel during training (P1 section 6)."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.seed_tables import finished, mean_curves, spread
from neuralpath.papers.experiments.settings import check_given, check_integers, check_positive
from neuralpath.papers.experiments.specs import DataSpec, NetSpec
from neuralpath.papers.experiments.statistics import Spread
from neuralpath.papers.experiments.summary_items import Cell, Curves, SummaryItem, Table
from neuralpath.papers.experiments.trained import GatedRegime, TrainGated, optimizer_label, run_training, seeded
from neuralpath.papers.runs import Task
from neuralpath.training import SGD, TrainingConfig

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from neuralpath.papers.runs import RunDirectory
    from neuralpath.training import TrainingMoment

PARTS = ("value", "feature")
NORMS = {"trace": "Trace", "frobenius": "Frobenius norm"}
BEST_AND_LAST = ("best", "last")


@dataclass(frozen=True)
class TraceKernelParts(Task):
    """Train a gated network and measure both parts of its tangent kernel on training examples."""

    data: DataSpec
    net: NetSpec
    training: TrainingConfig
    regime: GatedRegime
    beta: float
    """Steepness of the soft gates of DL."""
    n_examples: int
    every: int
    seed: int = 0

    @property
    def label(self) -> str:
        """As `Task.label`."""
        what = f"kernel-parts {self.data.label} {self.net.label} {self.regime}"
        return f"{what} {optimizer_label(self.training)} seed{self.seed}"

    @property
    def n_steps(self) -> int:
        """As `Task.n_steps`."""
        return self.training.epochs + 1

    def trained(self) -> TrainGated:
        """The training alone."""
        return TrainGated(self.data, self.net, self.training, self.regime, self.seed, beta=self.beta)

    def run(self, directory: "RunDirectory") -> dict[str, Any]:
        """As `Task.run`."""
        x = self.measured(directory.data_dir)

        def measure(moment: "TrainingMoment") -> dict[str, Any]:
            is_due = moment.epoch % self.every == 0 or moment.epoch == self.training.epochs
            return {"parts": _parts(moment.model, x)} if is_due else {}

        result = run_training(self.trained().make(directory), self, directory, measure=measure)
        measured = [{"epoch": line["step"], **line["parts"]} for line in directory.metrics() if "parts" in line]
        return {"measured": measured, **result}

    def measured(self, data_dir: "Path | None" = None) -> "Tensor":
        """The examples that are measured, the same for every seed of the network."""
        from neuralpath.data import balanced_subset

        train, generator = self.data.load(data_dir).train, seeded(self.data.seed, "kernel parts examples")
        return balanced_subset(train, self.n_examples // self.data.n_classes, generator).images


def _parts(model: Any, x: "Tensor") -> dict[str, dict[str, float]]:
    """Trace and norm of each part, the mean over the logits."""
    import torch

    from neuralpath.kernels import tangent_parts

    parts = tangent_parts(model, x, progress=False)
    sizes = {"value": parts.value.double(), "feature": parts.feature.double(), "cross": parts.cross.double()}
    return {
        name: {"trace": float(kernel.trace()), "frobenius": float(torch.linalg.matrix_norm(kernel))}
        for name, kernel in sizes.items()
    }


_DATA = DataSpec("mnist")
_NET = NetSpec("fc", width=128, depth=6)
_TRAINING = TrainingConfig(epochs=60, batch_size=32, optimizer=SGD(1e-2))


@dataclass(frozen=True)
class KernelPartsConfig:
    """Trace and Frobenius norm of the parts of the tangent kernel during training."""

    data: DataSpec = _DATA
    net: NetSpec = _NET
    training: TrainingConfig = _TRAINING
    beta: float = 8.0
    """Steepness of the soft gates: 8 in P1."""
    regimes: tuple[GatedRegime, ...] = ("DL", "FR-II")
    """Fixed gates beside learned ones; the feature part of fixed gates is 0."""
    n_examples: int = 100
    """Training examples, equally many of each class, on which the kernels are measured."""
    every: int = 1
    """Epochs between two measurements."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)

    def __post_init__(self) -> None:
        check_integers(1, every=self.every, n_examples=self.n_examples)
        check_positive(beta=self.beta)
        check_given(regimes=self.regimes)
        if "FL" in self.regimes:
            raise ValueError("`regimes` must be among DL, FR-II and FR-DI: FL takes the gates of another run; got FL.")
        if self.n_examples % self.data.n_classes:
            raise ValueError(
                f"`n_examples` must be a multiple of {self.data.n_classes}, since there are equally many of each of "
                f"the {self.data.n_classes} classes; got {self.n_examples}."
            )


def tasks(config: KernelPartsConfig) -> tuple[Task, ...]:
    """A run for each regime and seed."""
    return tuple(_task(config, regime, seed) for regime in config.regimes for seed in config.seeds)


def _task(config: KernelPartsConfig, regime: GatedRegime, seed: int) -> TraceKernelParts:
    return TraceKernelParts(
        config.data, config.net, config.training, regime, config.beta, config.n_examples, config.every, seed
    )


def summary(config: KernelPartsConfig, results: Results) -> tuple[SummaryItem, ...]:
    """Both parts before and after training, their ratio over training, their course, and the accuracies."""
    groups = {
        regime: [results[task] for seed in config.seeds if (task := _task(config, regime, seed)) in results]
        for regime in config.regimes
    }
    note = finished(tasks(config), results)
    moments = ("before training", 0), ("first epoch measured", 1), ("last epoch", -1)
    rows: list[tuple[Cell, ...]] = [
        (regime, norm, name, *_sizes(runs, norm, index))
        for regime, runs in groups.items()
        for norm in NORMS
        for name, index in moments
    ]
    table = Table(
        "Parts of the tangent kernel",
        ("regime", "size", "when", "K^V", "K^F", "K^F / K^V", "least in training", "largest in training"),
        tuple(rows),
        f"Of the logits, on {config.n_examples} training examples. The papers say that both are of one scale, without "
        f"numbers; gates that are fixed have no K^F. {note}",
    )
    accuracies = Table(
        "Test accuracy of the same networks in %",
        ("regime", "best epoch", "last epoch"),
        tuple(
            (regime, *(spread(100 * run[when]["test_accuracy"] for run in runs if run[when]) for when in BEST_AND_LAST))
            for regime, runs in groups.items()
        ),
        note,
    )
    decoupled = groups.get("DL", [])
    figures = [
        Curves(
            f"{title} of the parts in decoupled learning",
            "epoch",
            title,
            mean_curves(
                {
                    f"K^{part[0].upper()}": [
                        {float(point["epoch"]): point[part][norm] for point in run["measured"]} for run in decoupled
                    ]
                    for part in PARTS
                }
            ),
            note,
            "y",
        )
        for norm, title in NORMS.items()
    ]
    return (table, *figures, accuracies)


def _sizes(runs: list[dict[str, Any]], norm: str, index: int) -> tuple[Spread | None, ...]:
    """Of one moment: both parts and their ratio, and over all moments the least and the largest ratio."""
    values = [[point["value"][norm] for point in run["measured"]] for run in runs]
    features = [[point["feature"][norm] for point in run["measured"]] for run in runs]
    ratios = [[f / v for v, f in zip(vs, fs, strict=True)] for vs, fs in zip(values, features, strict=True)]
    return (
        spread(v[index] for v in values),
        spread(f[index] for f in features),
        spread(r[index] for r in ratios),
        spread(min(r) for r in ratios),
        spread(max(r) for r in ratios),
    )


_PAPER = KernelPartsConfig()

EXPERIMENT = Experiment(
    name="kernel-parts",
    description="value and feature part of the tangent kernel while weights and gates are learnt",
    source="P1 section 6",
    config=KernelPartsConfig,
    presets={
        "smoke": KernelPartsConfig(
            data=DataSpec("digits", n_train=400, n_test=100),
            net=NetSpec("fc", width=32, depth=4),
            training=replace(_TRAINING, epochs=3, optimizer=SGD(0.1)),
            n_examples=20,
            seeds=(0, 1, 2),
        ),
        "cpu": _PAPER,
        "paper": _PAPER,
    },
    reduced={"smoke": "embedded digits, a smaller network, 3 epochs at a higher rate"},
    tasks=tasks,
    summary=summary,
)

run = EXPERIMENT.run
