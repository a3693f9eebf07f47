"""Experiment `kernel-parts`: value and feature part of the tangent kernel during training (P1 section 6)."""

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.grids import Grid, counted, course_of_epochs, figure, finished_runs, grid, tasks_of
from neuralpath.papers.experiments.settings import check_given, check_integers, check_positive
from neuralpath.papers.experiments.specs import DataSpec, NetSpec
from neuralpath.papers.experiments.statistics import Read, Runs, accuracy_at, means
from neuralpath.papers.experiments.summary_items import Cell, Curves, SummaryItem, Table
from neuralpath.papers.experiments.trained import GatedRegime, TrainGated, optimizer_label, run_training, seeded
from neuralpath.papers.runs import RunDirectory, Task
from neuralpath.training import SGD, TrainingConfig

if TYPE_CHECKING:
    from torch import Tensor

    from neuralpath.training import TrainingMoment

NORMS = {"trace": "Trace", "frobenius": "Frobenius norm"}


@dataclass(frozen=True)
class TraceKernelParts(Task):
    """Train a gated network and measure both parts of its tangent kernel on training examples."""

    data: DataSpec
    net: NetSpec
    training: TrainingConfig
    regime: GatedRegime
    beta: float  # steepness of the soft gates of DL
    n_examples: int
    every: int
    seed: int = 0

    @property
    def label(self) -> str:
        what = f"kernel-parts {self.data.label} {self.net.label} {self.regime}"
        return f"{what} {optimizer_label(self.training)} seed{self.seed}"

    @property
    def n_steps(self) -> int:
        return self.training.epochs + 1

    def trained(self) -> TrainGated:
        """The training alone."""
        return TrainGated(self.data, self.net, self.training, self.regime, self.seed, beta=self.beta)

    def run(self, directory: RunDirectory) -> dict[str, Any]:
        x = self.measured(directory.data_dir)

        def measure(moment: "TrainingMoment") -> dict[str, Any]:
            is_due = moment.epoch % self.every == 0 or moment.epoch == self.training.epochs
            return {"parts": _parts(moment.model, x)} if is_due else {}

        result = run_training(self.trained().make(directory), self, directory, measure=measure)
        measured = [{"epoch": line["step"], **line["parts"]} for line in directory.metrics() if "parts" in line]
        return {"measured": measured, **result}

    def measured(self, data_dir: Path | None = None) -> "Tensor":
        """The examples that are measured, the same for every seed of the network."""
        from neuralpath.data import balanced_subset

        train, generator = self.data.load(data_dir).train, seeded(self.data.seed, "kernel parts examples")
        return balanced_subset(train, self.n_examples // self.data.n_classes, generator).images


def _parts(model: Any, x: "Tensor") -> dict[str, dict[str, float]]:
    """Trace and norm of each part, the mean over the logits."""
    import torch

    from neuralpath.kernels import tangent_parts

    parts = tangent_parts(model, x, progress=False)
    kernels = {name: getattr(parts, name).double() for name in ("value", "feature", "cross")}
    return {
        name: {"trace": float(kernel.trace()), "frobenius": float(torch.linalg.matrix_norm(kernel))}
        for name, kernel in kernels.items()
    }


_TRAINING = TrainingConfig(epochs=60, batch_size=32, optimizer=SGD(1e-2))


@dataclass(frozen=True)
class KernelPartsConfig:
    """Trace and Frobenius norm of the parts of the tangent kernel during training."""

    data: DataSpec = field(default=DataSpec("mnist"))
    net: NetSpec = field(default=NetSpec("fc", width=128, depth=6))
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
            wrong = f"a multiple of {self.data.n_classes}, equally many of each class; got {self.n_examples}"
            raise ValueError(f"`n_examples` must be {wrong}.")


def tasks(config: KernelPartsConfig) -> tuple[Task, ...]:
    """A run for each regime and seed."""
    return tasks_of(_grid(config))


def _grid(config: KernelPartsConfig) -> Grid:
    measured: dict[str, Any] = {"beta": config.beta, "n_examples": config.n_examples, "every": config.every}
    task = partial(TraceKernelParts, config.data, config.net, config.training, **measured)
    return grid(task, config.seeds, regime=config.regimes)


def summary(config: KernelPartsConfig, results: Results) -> tuple[SummaryItem, ...]:
    """Both parts before and after training, their ratio over training, their course, and the accuracies."""
    by_regime = finished_runs(_grid(config), results)
    rows = [
        {"regime": regime, "size": norm, "when": when} | _sizes(runs, norm, index)
        for regime, runs in by_regime.items()
        for norm in NORMS
        for when, index in (("before training", 0), ("first epoch measured", 1), ("last epoch", -1))
    ]
    note = f"Of the logits, {config.n_examples} training examples. P1 says, without numbers, that both have one scale."
    columns = {"best epoch": accuracy_at("best"), "last epoch": accuracy_at("last")}
    accuracies = [{"regime": regime} | means(runs, columns) for regime, runs in by_regime.items()]
    items: tuple[SummaryItem, ...] = (
        Table.of("Parts of the tangent kernel", rows, note),
        *(_figure(by_regime.get("DL", {}), norm) for norm in NORMS),
        Table.of("Test accuracy of the same networks in %", accuracies),
    )
    return counted(items, tasks(config), results)


def _sizes(runs: Runs, norm: str, index: int) -> dict[str, Cell]:
    """Of one moment: both parts and their ratio, and over all moments the least and the largest ratio."""

    def ratios(run: dict[str, Any]) -> list[float]:
        return [point["feature"][norm] / point["value"][norm] for point in run["measured"]]

    columns: dict[str, Read] = {
        "K^V": lambda run: run["measured"][index]["value"][norm],
        "K^F": lambda run: run["measured"][index]["feature"][norm],
        "K^F / K^V": lambda run: ratios(run)[index],
        "least in training": lambda run: min(ratios(run)),
        "largest in training": lambda run: max(ratios(run)),
    }
    return means(runs, columns)


def _figure(runs: Runs, norm: str) -> Curves:
    value = course_of_epochs(runs, lambda entry: entry["value"][norm])
    feature = course_of_epochs(runs, lambda entry: entry["feature"][norm])
    title, courses = f"{NORMS[norm]} of the parts in decoupled learning", {"K^V": value, "K^F": feature}
    return figure(title, "epoch", NORMS[norm], courses, log="y")


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
        **dict.fromkeys(("cpu", "paper"), KernelPartsConfig()),
    },
    reduced={"smoke": "embedded digits, a smaller network, 3 epochs at a higher rate"},
    tasks=tasks,
    summary=summary,
)
