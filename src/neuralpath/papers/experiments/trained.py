"""The two training tasks of most experiments: a ReLU network, and a gated network."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from neuralpath.papers.experiments.specs import DataSpec, NetSpec
from neuralpath.papers.runs import Task, Weights
from neuralpath.training import TrainingConfig

if TYPE_CHECKING:
    import torch
    from torch import nn

    from neuralpath.gating import GatedNetwork
    from neuralpath.papers.runs import RunDirectory
    from neuralpath.training import TrainingMoment

GatedRegime = Literal["FL", "FR-II", "FR-DI", "DL"]
ValueInputName = Literal["image", "ones", "random"]

GATE_MEMORY = 4 << 30
"""Of fixed gates, the same on every machine: gates that are computed anew may be rounded to the other side."""


class TrainingRun(Task):
    """A run that trains a network on data. Subclasses are dataclasses and declare these fields in their own order."""

    data: DataSpec
    net: NetSpec
    training: TrainingConfig
    seed: int

    @property
    def n_steps(self) -> int:
        return self.training.epochs

    def _named(self, *parts: str) -> str:
        """The label of the run, with what distinguishes it from other runs of the network."""
        return " ".join([self.data.label, self.net.label, *parts, optimizer_label(self.training), f"seed{self.seed}"])


@dataclass(frozen=True)
class TrainNetwork(TrainingRun):
    """Train one network; keep its weights after the last epoch, those of the best, and of the epochs in ``keep``."""

    data: DataSpec
    net: NetSpec
    training: TrainingConfig
    seed: int = 0
    keep: tuple[int, ...] = ()
    """More epochs whose weights are saved; 0 for those before training."""
    start: Weights | None = None
    """Weights to begin with, of the same network; otherwise drawn from the seed."""

    @property
    def label(self) -> str:
        return self._named("relu", *(() if self.start is None else ("continued",)))

    def gated(
        self,
        regime: GatedRegime,
        training: TrainingConfig,
        *,
        which: str = "best",
        beta: float = 10.0,
        factor: float = 1.0,
    ) -> "TrainGated":
        """A gated network on the same data with the same seed; in FL ``which`` weights of this one give its gates.

        The settings of soft gates are those of DL; other regimes ignore them, so that experiments share their runs.
        """
        gates = Weights(self, which) if regime == "FL" else None
        task = TrainGated(self.data, self.net, training, regime, self.seed, gates)
        return replace(task, beta=beta, factor=factor) if regime == "DL" else task

    def make(self, directory: "RunDirectory | None" = None) -> "nn.Module":
        """The network before training."""
        model = self.net.make(self.data.shape, self.data.n_outputs, seeded(self.seed, "network"))
        if self.start is not None and directory is not None:
            model.load_state_dict(directory.weights_of(self.start.task, self.start.which))
        return model

    def run(self, directory: "RunDirectory") -> dict[str, Any]:
        return run_training(self.make(directory), self, directory, keep=self.keep)


@dataclass(frozen=True)
class TrainGated(TrainingRun):
    """Train a gated network in one of the regimes of `neuralpath.decouple`."""

    data: DataSpec
    net: NetSpec
    training: TrainingConfig
    regime: GatedRegime
    seed: int = 0
    gates: Weights | None = None
    """The trained network whose gates FL takes."""
    gate_order: tuple[int, ...] | None = None
    value_input: ValueInputName = "image"
    shift: int | tuple[int, ...] = 0
    """Positions by which the masks are rotated in space, along each of its axes; or one number for each gate."""
    value_channels: tuple[int, ...] | None = None
    """Filters of a wider value network, over which the masks are repeated."""
    beta: float = 10.0
    """Steepness of the soft gates of DL."""
    factor: float = 1.0
    """Factor of the soft gates of DL."""
    start: Weights | None = None
    """Weights of another such run to begin with."""

    def __post_init__(self) -> None:
        if (self.regime == "FL") != (self.gates is not None):
            raise ValueError(f"`gates` are given for the regime FL, and only there; the regime is {self.regime}.")
        if self.regime == "FR-DI" and self.value_channels is not None:
            raise ValueError("a wider value network cannot begin with the weights of its gates, as FR-DI asks.")

    @property
    def label(self) -> str:
        parts: list[str] = [self.regime]
        if self.gates is not None:
            source = getattr(self.gates.task, "data", self.data)
            parts.append(f"of-{self.gates.which}" + ("" if source == self.data else f"-{source.label}"))
        parts += [] if self.gate_order is None else ["order" + "".join(map(str, self.gate_order))]
        parts += [] if self.value_input == "image" else [self.value_input]
        shifts = self.shift if isinstance(self.shift, tuple) else (self.shift,)
        parts += ["shift" + "-".join(map(str, shifts))] if any(shifts) else []
        parts += [] if self.value_channels is None else ["tiled-" + "-".join(map(str, self.value_channels))]
        parts += [] if self.start is None else ["continued"]
        return self._named(*parts)

    def make(self, directory: "RunDirectory | None" = None) -> "GatedNetwork":
        """The gated network before training."""
        from neuralpath.gating import GatedNetwork, TileGates, decouple

        shape, n_outputs = self.data.shape, self.data.n_outputs
        model = self.net.make(shape, n_outputs, seeded(self.seed, "network"))
        if self.gates is not None and directory is not None:
            model.load_state_dict(directory.weights_of(self.gates.task, self.gates.which))
        gating: dict[str, Any] = {"gate_order": self.gate_order, "value_input": self.value_input}
        if isinstance(self.shift, tuple):
            gating["gate_transform"] = {gate: TileGates(shift) for gate, shift in enumerate(self.shift)}
        elif self.shift or self.value_channels is not None:
            gating["gate_transform"] = TileGates(self.shift)
        options: dict[str, Any] = {"init": self.net.init, "generator": seeded(self.seed, "gated network")}
        options |= {"beta": self.beta, "factor": self.factor} if self.regime == "DL" else {}
        network = decouple(model, self.regime, **options, **gating)
        if self.value_channels is not None:
            wide = replace(self.net, channels=self.value_channels)
            value = wide.make(shape, n_outputs, seeded(self.seed, "wide value network"))
            gating |= {"gate": network.gate, "train_feature": network.train_feature}
            network = GatedNetwork(network.feature, value, **gating)
        if self.start is not None and directory is not None:
            network.load_state_dict(directory.weights_of(self.start.task, self.start.which))
        return network

    def run(self, directory: "RunDirectory") -> dict[str, Any]:
        return run_training(self.make(directory), self, directory)


def run_training(
    model: "nn.Module",
    task: Any,
    directory: "RunDirectory",
    *,
    keep: Sequence[int] = (),
    measure: "Callable[[TrainingMoment], dict[str, Any]]" = lambda _: {},
) -> dict[str, Any]:
    """Train a model with the ``data``, ``training`` and ``seed`` of a task, or resume an interrupted training.

    The weights of the best and the last epoch are saved, and those of the epochs in ``keep``, 0 for those before
    training. ``measure`` adds metrics before training and after each epoch. The result has all epochs.
    """
    from neuralpath.training import train

    def record(moment: "TrainingMoment") -> None:
        metrics = moment.metrics
        values = {**({} if metrics is None else _epoch_values(metrics)), **measure(moment)}
        if metrics is not None and metrics.test is not None:
            # The best so far is read back, not remembered, so that a resumed run knows the epochs before.
            before = (line.get("test_accuracy", -1.0) for line in directory.metrics() if line["step"] < moment.epoch)
            if metrics.test.accuracy > max(before, default=-1.0):
                directory.save_weights("best", moment.model.state_dict())
        if moment.epoch in keep:
            directory.save_weights(f"epoch-{moment.epoch}", moment.model.state_dict())
        if values:
            directory.add_metrics(moment.epoch, values)

    examples = task.data.load(directory.data_dir)
    storage: dict[str, Any] = {"folder": directory.checkpoints, "identity": {"fingerprint": task.fingerprint}}
    # One thread and a fixed budget for gates: results depend on the seed alone.
    config = replace(task.training, seed=task.seed, threads=1, gate_memory=GATE_MEMORY)
    result = train(model, examples.train, examples.test, config, hooks=[record], progress=False, **storage)
    directory.save_weights("last", model.state_dict())
    epochs = [{"epoch": metrics.epoch, **_epoch_values(metrics)} for metrics in result.history]
    best = None if result.best is None else result.best.epoch
    return {
        "epochs": epochs,
        "best_epoch": best,
        "best": None if best is None else epochs[best - 1],
        "last": epochs[-1] if epochs else None,
        "stopped_early": result.stopped_early,
        "n_steps": result.n_steps,
    }


def _epoch_values(metrics: Any) -> dict[str, float]:
    """Losses and accuracies of an epoch."""
    values = {"train_loss": metrics.train.loss, "train_accuracy": metrics.train.accuracy}
    if metrics.test is not None:
        values |= {"test_loss": metrics.test.loss, "test_accuracy": metrics.test.accuracy}
    return values


def seeded(seed: int, use: str) -> "torch.Generator":
    """A generator for one use."""
    import torch

    from neuralpath.training import derive_seed

    return torch.Generator().manual_seed(derive_seed(seed, use))


def optimizer_label(training: TrainingConfig) -> str:
    """Name and rate of the optimizer, the epochs, and a precision that is not full, for the names of runs."""
    kind, rounded = type(training.optimizer).__name__, "" if training.precision == "full" else f" {training.precision}"
    return f"{kind.lower()}{training.optimizer.lr:g} e{training.epochs}{rounded}"
