"""The training loop."""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from neuralpath._checks import check_number, describe
from neuralpath._configs import to_json
from neuralpath._progress import Step, progress_bar
from neuralpath.training import context, interrupts, metrics as m
from neuralpath.training.batches import Augment, derive_seed
from neuralpath.training.checkpoints import CheckpointFolder, TrainingState, describe_run
from neuralpath.training.config import SGD, Adam, OptimizerConfig, TrainingConfig
from neuralpath.training.training_task import Data, TrainingTask, check_task, pack_fixed_gates


def train(
    model: nn.Module,
    train_data: Data,
    test_data: Data | None = None,
    config: TrainingConfig | None = None,
    *,
    augment: Augment | None = None,
    folder: Path | str | None = None,
    checkpoint_seconds: float = 30.0,
    identity: Mapping[str, Any] | None = None,
    hooks: Sequence[m.Hook] = (),
    progress: bool | None = None,
) -> m.TrainingResult:
    """Train a model in place.

    The order of batches, dropout and augmentation come from ``config.seed``, and torch's global generators are restored
    at the end. On one machine and with one number of threads, equal arguments give equal weights, bit for bit. (On CUDA
    as far as torch's operations are deterministic.)

    With a ``folder``, checkpoints are written at the end of epochs. A run that was interrupted or killed resumes from
    the last one when it is called again, and ends with the same weights, bit for bit. Its settings, its data, and its
    model as it prints must be those of the first call. The weights come from the checkpoint, so the model may be made
    again with other ones. Runs that differ only in their first weights, or in the settings of their augmentation, need
    different folders, or an ``identity``. Ctrl-C raises KeyboardInterrupt and SIGTERM raises ``Terminated``, both with
    a message about the last checkpoint. Loaders are repeated as far as possible, see ``LoaderBatches``.

    A ``GatedNetwork`` with fixed gates never runs its feature network while it trains on splits without augmentation.

    Args:
        model: The model, trained on its own device. Parameters that require no gradient stay unchanged.
        train_data: A split in memory, or a loader of (images, labels) that is iterated anew in each epoch.
        test_data: Data to measure after each epoch.
        config: All settings that the result depends on; None for the defaults.
        augment: Changes each training batch at random, with the generator that it is given.
        folder: Folder for checkpoints; None for no checkpoints.
        checkpoint_seconds: Least time between two checkpoints; 0 writes one after every epoch. The last epoch always
            writes one.
        identity: More JSON values that must be equal when a run is resumed, such as how the model was made.
        hooks: Functions that are called before training and after each epoch, with the model in evaluation mode. Their
            draws from torch's generators do not change the run. A resumed run may call them again for the same epoch.
        progress: Whether to show a progress bar; None: on a terminal, if the run is long.

    Returns:
        The metrics of each epoch.

    Raises:
        ValueError, TypeError: If model, data and config do not fit together.
        CheckpointError: If the folder belongs to another run, or its checkpoint is damaged.
        TrainingDiverged: If the loss is no longer finite; the last checkpoint stays.

    >>> from neuralpath import data, nets, training
    >>> digits = data.load("digits")
    >>> model = nets.FC((1, 8, 8), width=16, depth=2, n_outputs=10, generator=torch.Generator().manual_seed(0))
    >>> config = training.TrainingConfig(epochs=2, optimizer=training.Adam(0.01), threads=1)
    >>> result = train(model, digits.train, digits.test, config)
    >>> len(result.history), result.last.test.accuracy > 0.5
    (2, True)
    """
    config = config or TrainingConfig()
    check_number("checkpoint_seconds", checkpoint_seconds, or_zero=True)
    _check_arguments(model, config, identity, hooks)
    with ExitStack() as stack:
        for manager in (context.restored_modes(model), context.restored_generators(model), context.reused_memory()):
            stack.enter_context(manager)
        task = check_task(model, train_data, test_data, config, augment)
        description = {} if folder is None else describe_run(task, identity)
        checkpoints = CheckpointFolder(None if folder is None else Path(folder), description)
        stack.enter_context(checkpoints.locked())
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        state = TrainingState(model, _make_optimizer(config.optimizer, trained))
        checkpoints.restore(state)
        stack.enter_context(context.torch_threads(config.threads or state.threads))
        if state.epoch == 0 or not state.is_finished(config):
            _Run(task, checkpoints, state).complete(hooks, checkpoint_seconds, progress)
        return m.TrainingResult(tuple(state.history), state.step, state.stopped_early)


def _check_arguments(model: object, config: object, identity: Any, hooks: object) -> None:
    for name, value, expected in (("model", model, nn.Module), ("config", config, TrainingConfig)):
        if not isinstance(value, expected):
            raise TypeError(f"`{name}` must be a {expected.__name__}, got {describe(value)}.")
    if not isinstance(hooks, Sequence) or not all(map(callable, hooks)):
        raise TypeError(f"`hooks` must be a sequence of functions, such as [hook], got {hooks!r}.")
    try:
        json.dumps(to_json(dict(identity or {})), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TypeError(f"`identity` must have plain JSON values, such as numbers and strings: {error}.") from error


class _Run:
    """A run from its current state to its end."""

    def __init__(self, task: TrainingTask, checkpoints: CheckpointFolder, state: TrainingState) -> None:
        self._task = task
        self._config = task.config
        self._checkpoints = checkpoints
        self._state = state
        packed = pack_fixed_gates(task, state.has_packed_gates)
        state.has_packed_gates = {part: gates is not None for part, gates in packed.items()}
        self._batches = task.batches("train", packed["train"], training=True)
        self._examples = {part: task.batches(part, gates) for part, gates in packed.items()}  # for measurements
        self._n_batches = len(self._batches)

    def complete(self, hooks: Sequence[m.Hook], checkpoint_seconds: float, progress: bool | None) -> None:
        """Train to the end."""
        state, n_epochs, saved = self._state, self._config.epochs, time.perf_counter()
        with (
            self._interrupts_reported(),
            progress_bar((n_epochs - state.epoch) * self._n_batches, "training", progress) as report,
        ):
            if state.epoch == 0:
                self._call(hooks, None)
            while not state.is_finished(self._config):
                start = time.perf_counter()
                metrics = self._finish_epoch(self._train_epoch(report), start)
                test = "" if metrics.test is None else f", test {metrics.test.accuracy:.2%}"
                report(0, f"epoch {metrics.epoch}/{n_epochs}, accuracy: train {metrics.train.accuracy:.2%}{test}")
                self._call(hooks, metrics)
                if time.perf_counter() - saved >= checkpoint_seconds or state.is_finished(self._config):
                    self._checkpoints.save(state)
                    saved = time.perf_counter()

    @contextmanager
    def _interrupts_reported(self) -> Iterator[None]:
        """Let Ctrl-C and SIGTERM end the run with a message about the last checkpoint."""
        try:
            with interrupts.sigterm_raises():
                yield
        except (KeyboardInterrupt, interrupts.Terminated) as error:
            message = f"training was interrupted after step {self._state.step}; {self._checkpoints}."
            if isinstance(error, interrupts.Terminated):
                print(message, file=sys.stderr)
            raise type(error)(message) from None

    def _train_epoch(self, report: Step) -> m.Measurement:
        """Do the steps of one epoch; the mean loss and accuracy of their forward passes."""
        state, model, objective, forward = self._state, self._task.model, self._task.objective, self._task.forward
        optimizer, sums, first_step = state.optimizer, m.MetricSums(objective), state.step
        model.train()
        # Every epoch has its own stream of random numbers, so nothing done between two epochs can change the run.
        torch.manual_seed(derive_seed(self._config.seed, "network", state.epoch))
        current_rate = None
        try:
            for batch in self._batches.epoch(state.epoch):
                if (rate := self._rate(state.step)) != current_rate:
                    current_rate = rate
                    for group in optimizer.param_groups:
                        group["lr"] = rate
                optimizer.zero_grad()
                outputs = forward(batch)
                loss = objective.loss(outputs, batch.targets)
                sums.add(loss, outputs, batch.targets)
                loss.backward()
                optimizer.step()
                state.step += 1
                report(1)
            train = sums.mean()
        except m.NonFiniteLoss as error:
            raise self._diverged(f"the training loss became {error.value}", first_step + error.batch) from None
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            problem = "batch norm cannot be trained on a batch of one example, as the last one of an epoch is here"
            raise ValueError(f"{problem}: set `drop_last=True`, or another `batch_size`.") from error
        for name, parameter in model.named_parameters():  # a step can spoil the weights although its loss was finite
            if parameter.requires_grad and not bool(torch.isfinite(parameter.detach()).all()):
                raise self._diverged(f"the parameter {name} became NaN or infinite", state.step - 1)
        return train

    def _finish_epoch(self, train: m.Measurement, start: float) -> m.EpochMetrics:
        """Measure the model after the steps of an epoch."""
        state, config = self._state, self._config
        if config.train_metrics == "evaluated":
            train = self._evaluate("train")
        enough = config.stop_at_train_accuracy is not None and train.accuracy >= config.stop_at_train_accuracy
        due = (state.epoch + 1) % config.evaluate_every == 0 or state.epoch + 1 == config.epochs or enough
        test = self._evaluate("test") if "test" in self._task.data and due else None
        state.epoch += 1
        state.stopped_early = enough
        metrics = m.EpochMetrics(state.epoch, train, test, time.perf_counter() - start)
        state.history.append(metrics)
        return metrics

    def _evaluate(self, part: str) -> m.Measurement:
        try:
            return self._task.evaluate(self._examples[part].epoch(self._state.epoch))
        except m.NonFiniteLoss as error:
            raise self._diverged(f"the {part} loss is {error.value}", self._state.step - 1) from None

    def _call(self, hooks: Sequence[m.Hook], metrics: m.EpochMetrics | None) -> None:
        state = self._state
        for hook in hooks:
            state.model.eval()
            hook(m.TrainingMoment(state.model, state.epoch, state.step, metrics))

    def _rate(self, step: int) -> float:
        config = self._config
        return config.optimizer.lr * config.schedule.factor(step / self._n_batches, config.epochs)

    def _diverged(self, problem: str, step: int) -> m.TrainingDiverged:
        return m.TrainingDiverged(
            f"{problem} at step {step + 1} (epoch {step // self._n_batches + 1}) with learning rate "
            f"{self._rate(step):.6g}; {self._checkpoints}. Try a smaller learning rate, or check the data."
        )


def _make_optimizer(config: OptimizerConfig, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Torch's optimizer in the form that is fastest for many small tensors; RMSprop has no fused one."""
    settings = asdict(config)
    if isinstance(config, Adam):
        decoupled = settings.pop("decoupled")
        return torch.optim.Adam(parameters, **settings, decoupled_weight_decay=decoupled, fused=True)
    if isinstance(config, SGD):
        return torch.optim.SGD(parameters, **settings, fused=True)
    return torch.optim.RMSprop(parameters, **settings, foreach=True)
