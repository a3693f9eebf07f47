"""How the path kernel turns to the labels while a network trains: P0 figure 3, P1 figure 2 (middle)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.seed_tables import finished, mean_curves, spread
from neuralpath.papers.experiments.settings import check_given, check_integers
from neuralpath.papers.experiments.specs import DataSpec, NetSpec
from neuralpath.papers.experiments.statistics import paired
from neuralpath.papers.experiments.summary_items import Cell, Curves, HeatMaps, SummaryItem, Table
from neuralpath.papers.experiments.trained import optimizer_label, run_training, seeded
from neuralpath.papers.runs import Task
from neuralpath.training import RMSprop, TrainingConfig

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, nn

    from neuralpath.data import Split
    from neuralpath.papers.runs import RunDirectory
    from neuralpath.training import TrainingMoment

LEADING = (1, 2, 5, 10, 20, 50)
"""Numbers of leading eigenvectors whose share of the labels is followed through training."""

_MAP_DIGITS = 3


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
        """As `Task.label`."""
        return f"label-energy {self.data.label} {self.net.label} {optimizer_label(self.training)} seed{self.seed}"

    @property
    def n_steps(self) -> int:
        """As `Task.n_steps`."""
        return self.training.epochs + 1

    def make(self) -> "nn.Module":
        """The network before training."""
        return self.net.make(self.data.shape, self.data.n_outputs, seeded(self.seed, "network"))

    def run(self, directory: "RunDirectory") -> dict[str, Any]:
        """As `Task.run`."""
        kernel = _KernelOfGates(self.make(), self.measured(directory.data_dir))

        def measure(moment: "TrainingMoment") -> dict[str, Any]:
            return kernel.measure(moment.model) if self._is_due(moment.epoch) else {}

        model = self.make()
        result = run_training(model, self, directory, measure=measure)
        keys = ("energy", "leading")
        measured = [
            {"epoch": line["step"], **{key: line[key] for key in keys}}
            for line in directory.metrics()
            if "energy" in line
        ]
        return {
            "measured": measured,
            "before": kernel.portrait(self.make(), self.n_mapped),
            "after": kernel.portrait(model, self.n_mapped),
            "classes": kernel.mapped_classes(self.n_mapped),
            **result,
        }

    def measured(self, data_dir: "Path | None" = None) -> "Split":
        """The examples that are measured, the same for every seed of the network."""
        from neuralpath.data import balanced_subset

        train = self.data.load(data_dir).train
        return balanced_subset(train, self.n_per_class, seeded(self.data.seed, "label energy examples"))

    def _is_due(self, epoch: int) -> bool:
        return epoch % self.every == 0 or epoch == self.training.epochs


class _KernelOfGates:
    """The path kernel of a network's gates on fixed examples sorted by class, in float64."""

    def __init__(self, model: "nn.Module", examples: "Split") -> None:
        from neuralpath.graph import trace

        order = examples.labels.argsort(stable=True)
        self.images = examples.images[order].double()
        self.labels = examples.labels[order].double()
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
        counts = [count for count in LEADING if count <= len(shares)]
        return {"energy": float(split.total), "leading": {str(count): float(shares[count - 1]) for count in counts}}

    def portrait(self, model: "nn.Module", n_mapped: int) -> dict[str, Any]:
        """The split over all eigenvectors, and cosines of path features of a few examples as a picture."""
        import torch

        kernel = self.of(model)
        values, vectors = torch.linalg.eigh(kernel / kernel.trace())
        length = kernel.diagonal().sqrt()
        cosines = kernel / (length[:, None] * length).clamp(min=torch.finfo(kernel.dtype).tiny)
        rows = self._mapped(n_mapped)
        return {
            "eigenvalues": _rounded(values.flip(0).tolist()),
            "projections": _rounded(((vectors.T @ self.labels) ** 2).flip(0).tolist()),
            "map": [[round(value, _MAP_DIGITS) for value in row] for row in cosines[rows][:, rows].tolist()],
        }

    def mapped_classes(self, n_mapped: int) -> list[int]:
        """Class of each row of the picture."""
        return [int(label) for label in self.labels[self._mapped(n_mapped)]]

    def _mapped(self, n_mapped: int) -> "Tensor":
        import torch

        return torch.cat([(self.labels == sign).nonzero()[: n_mapped // 2, 0] for sign in (-1, 1)])


def _rounded(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def _decomposition(size: int) -> Any:
    import torch

    matrix = torch.eye(size, dtype=torch.float64) + 0.1
    return lambda: torch.linalg.eigh(matrix)


_DATA = DataSpec("mnist", classes=(4, 7))
_NET = NetSpec("fc", width=100, bias=False, init="random-sign")
# Smoothing and epsilon are the defaults of Keras, in which the notebook is written.
_OPTIMIZER = RMSprop(1e-4, alpha=0.9, eps=1e-7)
_TRAINING = TrainingConfig(epochs=50, batch_size=64, optimizer=_OPTIMIZER, loss="squared")


@dataclass(frozen=True)
class LabelEnergyConfig:
    """Label energy of the path kernel during training, two classes, squared loss, random signs."""

    data: DataSpec = _DATA
    net: NetSpec = _NET
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
    return tuple(_task(config, depth, seed) for depth in config.depths for seed in config.seeds)


def _task(config: LabelEnergyConfig, depth: int, seed: int) -> TraceLabelEnergy:
    net = replace(config.net, depth=depth)
    return TraceLabelEnergy(config.data, net, config.training, config.n_per_class, config.every, config.n_mapped, seed)


def summary(config: LabelEnergyConfig, results: Results) -> tuple[SummaryItem, ...]:
    """Energy before and after, its course, the labels' share in leading eigenvectors, and pictures of the kernel."""
    rows: list[tuple[Cell, ...]] = []
    energies: dict[str, list[dict[float, float | None]]] = {}
    leading: dict[str, list[dict[float, float | None]]] = {}
    split: dict[str, list[dict[float, float | None]]] = {}
    for depth in config.depths:
        runs = {seed: results[task] for seed in config.seeds if (task := _task(config, depth, seed)) in results}
        first = {seed: run["measured"][0]["energy"] for seed, run in runs.items() if run["measured"][0]["energy"]}
        last = {seed: run["measured"][-1]["energy"] for seed, run in runs.items() if run["measured"][-1]["energy"]}
        fall = paired(last, first)
        rows.append(
            (
                depth,
                spread(first.values()),
                spread(last.values()),
                spread(last[seed] / first[seed] for seed in sorted(first.keys() & last.keys())),
                None if fall is None else fall.difference,
                None if fall is None else fall.exceeds,
                spread(100 * run["best"]["test_accuracy"] for run in runs.values() if run["best"]),
                spread(100 * run["last"]["test_accuracy"] for run in runs.values() if run["last"]),
            )
        )
        energies[f"d = {depth}"] = [
            {float(point["epoch"]): point["energy"] for point in run["measured"]} for run in runs.values()
        ]
        for count in LEADING:
            leading[f"d = {depth}, leading {count}"] = [
                {float(p["epoch"]): p["leading"].get(str(count)) for p in run["measured"] if p["leading"]}
                for run in runs.values()
            ]
        for when in ("before", "after"):
            split[f"d = {depth}, {when} training"] = [_cumulated(run[when]) for run in runs.values()]
    note = finished(tasks(config), results)
    table = Table(
        "Label energy of the path kernel",
        (
            "depth",
            "before",
            "after",
            "after / before",
            "after - before",
            "in standard errors",
            "test accuracy, best epoch",
            "last epoch",
        ),
        tuple(rows),
        f"The energy is y' H^-1 y for H of trace 1, on {config.n_per_class} examples of each class. The papers print "
        f"no number, only that it falls. {note}",
    )
    return (
        table,
        Curves("Label energy during training", "epoch", "label energy", mean_curves(energies), note, "y"),
        Curves("Labels in the leading eigenvectors", "epoch", "share of the labels", mean_curves(leading), note),
        Curves(
            "Label energy by eigenvectors",
            "eigenvectors, largest eigenvalue first",
            "cumulated label energy",
            mean_curves(split),
            note,
            "y",
        ),
        *_pictures(config, results),
    )


def _cumulated(portrait: dict[str, Any]) -> dict[float, float | None]:
    total, cumulated = 0.0, {}
    for number, (value, share) in enumerate(zip(portrait["eigenvalues"], portrait["projections"], strict=True), 1):
        if value <= 0:
            break
        total += share / value
        cumulated[float(number)] = total
    return cumulated


def _pictures(config: LabelEnergyConfig, results: Results) -> tuple[HeatMaps, ...]:
    """For each depth, of the first seed that is finished."""
    pictures = []
    for depth in config.depths:
        for seed in config.seeds:
            run = results.get(_task(config, depth, seed))
            if run is not None:
                maps = {f"{when} training": tuple(map(tuple, run[when]["map"])) for when in ("before", "after")}
                title = f"Cosines between path features, d = {depth}, seed {seed}"
                pictures.append(HeatMaps(title, maps, tuple(run["classes"])))
                break
    return tuple(pictures)


_PAPER = LabelEnergyConfig()

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
        "cpu": _PAPER,
        "paper": _PAPER,
    },
    reduced={"smoke": "embedded digits, a narrower and shallower network, 8 epochs at a higher rate"},
    tasks=tasks,
    summary=summary,
)

run = EXPERIMENT.run
