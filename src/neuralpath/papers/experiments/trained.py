"""The two training tasks of most experiments: a ReLU network, and a gated network."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from neuralpath.papers.experiments.specs import DataSpec, NetSpec
from neuralpath.papers.runs import Task, Weights
from neuralpath.training import SGD, Adam, RMSprop, TrainingConfig

if TYPE_CHECKING:
    import torch
    from torch import nn

    from neuralpath.gating import GatedNetwork
    from neuralpath.papers.runs import RunDirectory
    from neuralpath.training import Hook, TrainingMoment, TrainingResult

GatedRegime = Literal["FL", "FR-II", "FR-DI", "DL"]
ValueInputName = Literal["image", "ones", "random"]

GATE_MEMORY = 4 << 30
"""Of fixed gates, the same on every machine: gates that are computed anew may be rounded to the other side."""

_CALIBRATION_SECONDS = 0.1
"""Of the short training from which a time is estimated, where two steps do not take longer."""

_CALIBRATION_STEP = 1.0
"""Seconds that a step of that training may take; where a whole batch takes longer, fewer images are measured."""

_LEAST_BATCH = 2
"""Images, because batch norm has no spread over one."""


@dataclass(frozen=True)
class TrainNetwork(Task):
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
        """As `Task.label`."""
        then = "" if self.start is None else " continued"
        return f"{self.data.label} {self.net.label} relu{then} {optimizer_label(self.training)} seed{self.seed}"

    @property
    def n_steps(self) -> int:
        """As `Task.n_steps`."""
        return self.training.epochs

    def make(self, directory: "RunDirectory | None" = None) -> "nn.Module":
        """The network before training."""
        model = self.net.make(self.data.shape, self.data.n_outputs, seeded(self.seed, "network"))
        if self.start is not None and directory is not None:
            model.load_state_dict(directory.weights_of(self.start.task, self.start.which))
        return model

    def run(self, directory: "RunDirectory") -> dict[str, Any]:
        """As `Task.run`."""
        model = self.make(directory)
        return run_training(model, self, directory, keep=self.keep)


@dataclass(frozen=True)
class TrainGated(Task):
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
        """As `Task.label`."""
        parts = [self.data.label, self.net.label, self.regime]
        if self.gates is not None:
            source = getattr(self.gates.task, "data", self.data)
            parts.append(f"of-{self.gates.which}" + ("" if source == self.data else f"-{source.label}"))
        parts += [] if self.gate_order is None else ["order" + "".join(map(str, self.gate_order))]
        parts += [] if self.value_input == "image" else [self.value_input]
        shifts = self.shift if isinstance(self.shift, tuple) else (self.shift,)
        parts += ["shift" + "-".join(map(str, shifts))] if any(shifts) else []
        parts += [] if self.value_channels is None else ["tiled-" + "-".join(map(str, self.value_channels))]
        parts += [] if self.start is None else ["continued"]
        return " ".join([*parts, optimizer_label(self.training), f"seed{self.seed}"])

    @property
    def n_steps(self) -> int:
        """As `Task.n_steps`."""
        return self.training.epochs

    def make(self, directory: "RunDirectory | None" = None) -> "GatedNetwork":
        """The gated network before training."""
        from neuralpath.gating import GatedNetwork, GateTransforms, TileGates, decouple

        shape, n_outputs = self.data.shape, self.data.n_outputs
        model = self.net.make(shape, n_outputs, seeded(self.seed, "network"))
        if self.gates is not None and directory is not None:
            model.load_state_dict(directory.weights_of(self.gates.task, self.gates.which))
        transform: GateTransforms | None = None
        if isinstance(self.shift, tuple):
            transform = {gate: TileGates(shift) for gate, shift in enumerate(self.shift)}
        elif self.shift or self.value_channels is not None:
            transform = TileGates(self.shift)
        is_soft = self.regime == "DL"
        network = decouple(
            model,
            self.regime,
            init=self.net.init,
            generator=seeded(self.seed, "gated network"),
            gate_order=self.gate_order,
            gate_transform=transform,
            value_input=self.value_input,
            beta=self.beta if is_soft else None,
            factor=self.factor if is_soft else 1.0,
        )
        if self.value_channels is not None:
            wide = replace(self.net, channels=self.value_channels)
            network = GatedNetwork(
                network.feature,
                wide.make(shape, n_outputs, seeded(self.seed, "wide value network")),
                gate=network.gate,
                gate_order=self.gate_order,
                gate_transform=transform,
                value_input=self.value_input,
                train_feature=network.train_feature,
            )
        if self.start is not None and directory is not None:
            network.load_state_dict(directory.weights_of(self.start.task, self.start.which))
        return network

    def run(self, directory: "RunDirectory") -> dict[str, Any]:
        """As `Task.run`."""
        return run_training(self.make(directory), self, directory)


@dataclass
class EpochRecorder:
    """A training hook that writes the metrics of each epoch, with more measurements, and saves weights."""

    directory: "RunDirectory"
    keep: Sequence[int] = ()
    measure: "Callable[[TrainingMoment], dict[str, Any]] | None" = None
    keep_best: bool = True
    _best: float = field(default=-1.0, init=False)

    def __call__(self, moment: "TrainingMoment") -> None:
        """As `neuralpath.training.Hook`."""
        values = {} if self.measure is None else self.measure(moment)
        if moment.metrics is not None:
            values = {**epoch_values(moment.metrics), **values}
            self._keep_best(moment)
        if moment.epoch in self.keep:
            self.directory.save_weights(f"epoch-{moment.epoch}", moment.model.state_dict())
        if values:
            self.directory.add_metrics(moment.epoch, values)

    def _keep_best(self, moment: "TrainingMoment") -> None:
        """Read back, not remembered, so that a run that goes on in another process knows the epochs before."""
        if not self.keep_best or moment.metrics is None or moment.metrics.test is None:
            return
        before = (line.get("test_accuracy") for line in self.directory.metrics() if line["step"] < moment.epoch)
        if moment.metrics.test.accuracy > max((share for share in before if share is not None), default=-1.0):
            self.directory.save_weights("best", moment.model.state_dict())


def run_training(
    model: "nn.Module",
    task: Any,
    directory: "RunDirectory",
    *,
    keep: Sequence[int] = (),
    hooks: "Sequence[Hook]" = (),
    measure: "Callable[[TrainingMoment], dict[str, Any]] | None" = None,
) -> dict[str, Any]:
    """Train a model as a task says (its ``data``, ``training`` and ``seed``), or go on; the result of the run."""
    from neuralpath.training import train

    examples = task.data.load(directory.data_dir)
    recorder = EpochRecorder(directory, keep, measure)
    config = run_config(task.training, task.seed)
    result = train(
        model,
        examples.train,
        examples.test,
        config,
        folder=directory.checkpoints,
        identity={"fingerprint": task.fingerprint},
        hooks=[recorder, *hooks],
        progress=False,
    )
    directory.save_weights("last", model.state_dict())
    return training_result(result)


def run_config(training: TrainingConfig, seed: int) -> TrainingConfig:
    """The settings of a run: one thread and a fixed budget for gates, so that results depend on the seed alone."""
    return replace(training, seed=seed, threads=1, gate_memory=GATE_MEMORY)


def training_result(result: "TrainingResult") -> dict[str, Any]:
    """The result of a training run: every epoch, the best and the last."""
    epochs = [{"epoch": metrics.epoch, **epoch_values(metrics)} for metrics in result.history]
    best = None if result.best is None else result.best.epoch
    return {
        "epochs": epochs,
        "best_epoch": best,
        "best": None if best is None else epochs[best - 1],
        "last": epochs[-1] if epochs else None,
        "stopped_early": result.stopped_early,
        "n_steps": result.n_steps,
    }


def epoch_values(metrics: Any) -> dict[str, float]:
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
    kinds = {Adam: "adam", SGD: "sgd", RMSprop: "rmsprop"}
    rounded = "" if training.precision == "full" else f" {training.precision}"
    return f"{kinds[type(training.optimizer)]}{training.optimizer.lr:g} e{training.epochs}{rounded}"
