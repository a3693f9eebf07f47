"""How the path kernel turns to the labels while a network trains: P0 figure 3, P1 figure 2 (middle)."""

from dataclasses import dataclass, field, replace
from itertools import accumulate, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.grids import Grid, counted, course_of_epochs, figure, finished_runs, grid, tasks_of
from neuralpath.papers.experiments.settings import check_given, check_integers
from neuralpath.papers.experiments.specs import DataSpec, NetSpec
from neuralpath.papers.experiments.statistics import Read, Runs, accuracy_at, means, paired, rounded, spread
from neuralpath.papers.experiments.summary_items import Cell, HeatMaps, SummaryItem, Table
from neuralpath.papers.experiments.trained import optimizer_label, run_training, seeded
from neuralpath.papers.runs import RunDirectory, Task
from neuralpath.training import RMSprop, TrainingConfig

if TYPE_CHECKING:
    from torch import Tensor, nn

    from neuralpath.data import Split
    from neuralpath.training import TrainingMoment

LEADING = (1, 2, 5, 10, 20, 50)  # numbers of leading eigenvectors whose share of the labels is followed


@dataclass(frozen=True)
class TraceLabelEnergy(Task):
    """Train a network on two classes and measure the label energy of its path kernel on training examples."""

    data: DataSpec
    net: NetSpec
    training: TrainingConfig
    n_per_class: int
    every: int
    n_mapped: int
    seed: int = 0

    @property
    def label(self) -> str:
        return f"label-energy {self.data.label} {self.net.label} {optimizer_label(self.training)} seed{self.seed}"

    @property
    def n_steps(self) -> int:
        return self.training.epochs + 1

    def make(self) -> "nn.Module":
        """The network before training."""
        return self.net.make(self.data.shape, self.data.n_outputs, seeded(self.seed, "network"))

    def run(self, directory: RunDirectory) -> dict[str, Any]:
        kernel = _KernelOfGates(self.make(), self.measured(directory.data_dir), self.n_mapped)

        def measure(moment: "TrainingMoment") -> dict[str, Any]:
            is_due = moment.epoch % self.every == 0 or moment.epoch == self.training.epochs
            return kernel.measure(moment.model) if is_due else {}

        model = self.make()
        result = run_training(model, self, directory, measure=measure)
        lines = [line for line in directory.metrics() if "energy" in line]
        measured = [{"epoch": line["step"], "energy": line["energy"], "leading": line["leading"]} for line in lines]
        return {
            "measured": measured,
            "before": kernel.portrait(self.make()),
            "after": kernel.portrait(model),
            "classes": [int(label) for label in kernel.labels[kernel.mapped]],
            **result,
        }

    def measured(self, data_dir: Path | None = None) -> "Split":
        """The examples that are measured, the same for every seed of the network."""
        from neuralpath.data import balanced_subset

        train = self.data.load(data_dir).train
        return balanced_subset(train, self.n_per_class, seeded(self.data.seed, "label energy examples"))


class _KernelOfGates:
    """The path kernel of a network's gates on fixed examples sorted by class, in float64."""

    def __init__(self, model: "nn.Module", examples: "Split", n_mapped: int) -> None:
        import torch

        from neuralpath.graph import trace

        order = examples.labels.argsort(stable=True)
        self.images = examples.images[order].double()
        self.labels = examples.labels[order].double()
        # Rows of the picture: the first examples of each class.
        self.mapped = torch.cat([(self.labels == sign).nonzero()[: n_mapped // 2, 0] for sign in (-1, 1)])
        self._twin = model.double().eval()
        self._graph = trace(self._twin, self.images[:1])

    def of(self, model: "nn.Module") -> "Tensor":
        """Normalized by the widths, which keeps it in range; the energy does not depend on its scale."""
        from neuralpath.kernels import path_kernel

        self._twin.load_state_dict(model.state_dict())
        return path_kernel(self._graph, self.images, normalize=True, progress=False)

    def measure(self, model: "nn.Module") -> dict[str, Any]:
        """The label energy, None for a singular kernel, and the labels' share in the leading eigenvectors."""
        from neuralpath.kernels import label_energy_by_eigenvector

        try:
            split = label_energy_by_eigenvector(self.of(model), self.labels)
        except ValueError as error:
            if "singular" not in str(error):
                raise
            return {"energy": None, "leading": None}
        shares = (split.projections / split.projections.sum()).cumsum(0)
        leading = {str(count): float(shares[count - 1]) for count in LEADING if count <= len(shares)}
        return {"energy": float(split.total), "leading": leading}

    def portrait(self, model: "nn.Module") -> dict[str, Any]:
        """The split over all eigenvectors, and cosines of path features of a few examples as a picture."""
        import torch

        kernel = self.of(model)
        values, vectors = torch.linalg.eigh(kernel / kernel.trace())
        length = kernel.diagonal().sqrt()
        cosines = kernel / (length[:, None] * length).clamp(min=torch.finfo(kernel.dtype).tiny)
        return {
            "eigenvalues": rounded(values.flip(0).tolist()),
            "projections": rounded(((vectors.T @ self.labels) ** 2).flip(0).tolist()),
            "map": [[round(cosine, 3) for cosine in row] for row in cosines[self.mapped][:, self.mapped].tolist()],
        }


# Smoothing and epsilon are the defaults of Keras, in which the notebook is written.
_OPTIMIZER = RMSprop(1e-4, alpha=0.9, eps=1e-7)
_TRAINING = TrainingConfig(epochs=50, batch_size=64, optimizer=_OPTIMIZER, loss="squared")


@dataclass(frozen=True)
class LabelEnergyConfig:
    """Label energy of the path kernel during training, two classes, squared loss, random signs."""

    data: DataSpec = field(default=DataSpec("mnist", classes=(4, 7)))
    net: NetSpec = field(default=NetSpec("fc", width=100, bias=False, init="random-sign"))
    depths: tuple[int, ...] = (5, 6)
    """Weight layers: 5 in the papers, 6 in the notebook."""
    training: TrainingConfig = _TRAINING
    n_per_class: int = 100
    """Examples of each class on which the kernel is measured."""
    every: int = 2
    """Epochs between two measurements."""
    n_mapped: int = 60
    """Rows of the pictures of the kernel."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)

    def __post_init__(self) -> None:
        check_given(depths=self.depths)
        check_integers(1, depths=self.depths, n_per_class=self.n_per_class, every=self.every, n_mapped=self.n_mapped)


def tasks(config: LabelEnergyConfig) -> tuple[Task, ...]:
    """A run for each depth and seed."""
    return tasks_of(_grid(config))


def _grid(config: LabelEnergyConfig) -> Grid:
    def task(depth: int, seed: int) -> TraceLabelEnergy:
        measured = config.n_per_class, config.every, config.n_mapped
        return TraceLabelEnergy(config.data, replace(config.net, depth=depth), config.training, *measured, seed)

    return grid(task, config.seeds, depth=config.depths)


def summary(config: LabelEnergyConfig, results: Results) -> tuple[SummaryItem, ...]:
    """Energy before and after, its course, the labels' share in leading eigenvectors, and pictures of the kernel."""
    by_depth = finished_runs(_grid(config), results)
    energies, leading, split = {}, {}, {}
    for depth, runs in by_depth.items():
        energies[f"d = {depth}"] = course_of_epochs(runs, lambda entry: entry["energy"])
        for count in LEADING:
            leading[f"d = {depth}, leading {count}"] = course_of_epochs(runs, _share_of_leading(count))
        for when in ("before", "after"):
            split[f"d = {depth}, {when} training"] = [_cumulated(run[when]) for run in runs.values()]
    by_number = "eigenvectors, largest eigenvalue first"
    rows = [{"depth": depth} | _row(runs) for depth, runs in by_depth.items()]
    note = f"y' H^-1 y, H of trace 1, {config.n_per_class} examples of each class. The papers only say that it falls."
    items = (
        Table.of("Label energy of the path kernel", rows, note),
        figure("Label energy during training", "epoch", "label energy", energies, log="y"),
        figure("Labels in the leading eigenvectors", "epoch", "share of the labels", leading),
        figure("Label energy by eigenvectors", by_number, "cumulated label energy", split, log="y"),
    )
    # For each depth, of the first seed that is finished.
    pictures = (_pictures(depth, *next(iter(runs.items()))) for depth, runs in by_depth.items() if runs)
    return (*counted(items, tasks(config), results), *pictures)


def _row(runs: Runs) -> dict[str, Cell]:
    first, last = (
        {seed: energy for seed, run in runs.items() if (energy := run["measured"][index]["energy"])}
        for index in (0, -1)
    )
    fall = paired(last, first)
    return {
        "before": spread(first.values()),
        "after": spread(last.values()),
        "after / before": spread(last[seed] / first[seed] for seed in sorted(first.keys() & last.keys())),
        "after - before": fall.difference if fall else None,
        "in standard errors": fall.exceeds if fall else None,
        **means(runs, {"test accuracy, best epoch": accuracy_at("best"), "last epoch": accuracy_at("last")}),
    }


def _share_of_leading(count: int) -> Read:
    return lambda entry: entry["leading"].get(str(count)) if entry["leading"] else None


def _cumulated(portrait: dict[str, Any]) -> dict[float, float | None]:
    """The energy of the leading eigenvectors, by their number; up to the first eigenvalue that rounding made 0."""
    pairs = zip(portrait["eigenvalues"], portrait["projections"], strict=True)
    energies = (share / value for value, share in takewhile(lambda pair: pair[0] > 0, pairs))
    return {float(number): total for number, total in enumerate(accumulate(energies), 1)}


def _pictures(depth: int, seed: int, run: dict[str, Any]) -> HeatMaps:
    maps = {f"{when} training": tuple(map(tuple, run[when]["map"])) for when in ("before", "after")}
    return HeatMaps(f"Cosines between path features, d = {depth}, seed {seed}", maps, tuple(run["classes"]))


EXPERIMENT = Experiment(
    name="label-energy",
    description="how the path kernel turns to the labels while a network trains on two classes",
    source="P0 figure 3, P1 figure 2",
    config=LabelEnergyConfig,
    presets={
        "smoke": LabelEnergyConfig(
            data=DataSpec("digits", classes=(4, 7)),
            net=NetSpec("fc", width=32, bias=False, init="random-sign"),
            depths=(4,),
            training=replace(_TRAINING, epochs=8, batch_size=32, optimizer=RMSprop(1e-3)),
            n_per_class=20,
            n_mapped=12,
            seeds=(0, 1, 2),
        ),
        **dict.fromkeys(("cpu", "paper"), LabelEnergyConfig()),
    },
    reduced={"smoke": "embedded digits, a narrower and shallower network, 8 epochs at a higher rate"},
    tasks=tasks,
    summary=summary,
)

run = EXPERIMENT.run
