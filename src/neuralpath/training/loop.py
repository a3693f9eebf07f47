"""The training loop."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import nn

from neuralpath._checks import describe
from neuralpath.training.batches import Augment
from neuralpath.training.config import TrainingConfig
from neuralpath.training.evaluation import Examples, evaluate
from neuralpath.training.identity import check_same_model, describe_run
from neuralpath.training.interrupts import Interrupts
from neuralpath.training.metrics import EpochMetrics, Measurement, NonFiniteLoss, Sums
from neuralpath.training.optimizers import make_optimizer, set_rate
from neuralpath.training.progress import TrainingBar
from neuralpath.training.records import Hook, SaveEvery, TrainingDiverged, TrainingMoment, TrainingResult
from neuralpath.training.saving import Saver
from neuralpath.training.seeds import derive_seed
from neuralpath.training.setting_up import Data, Sources, Task, check_task, make_sources
from neuralpath.training.snapshot import (
    RunState,
    check_versions,
    check_weights,
    restore,
    set_generator_states,
    versions,
    weights_of,
)
from neuralpath.training.surroundings import freed_memory_kept, generators_kept, modes_kept, threads_kept


def train(
    model: nn.Module,
    train_data: Data,
    test_data: Data | None = None,
    config: TrainingConfig | None = None,
    *,
    augment: Augment | None = None,
    folder: Path | str | None = None,
    save_every: SaveEvery | None = None,
    identity: Mapping[str, Any] | None = None,
    hooks: Sequence[Hook] = (),
    progress: bool | None = None,
) -> TrainingResult:
    """Train a model in place.

    The order of batches, dropout and augmentation come from ``config.seed``; torch's global generators are as before
    when the run ends. On one machine and with one number of threads the result depends on nothing else. (On CUDA as
    far as torch's operations do not depend on timing.)

    A run with a ``folder`` goes on from the newest checkpoint there, at the very batch, and ends as if it had never
    been stopped, bit for bit. Its settings, its data, and model and augmentation as they are printed must be those that
    it began with. Weights come from the checkpoint, so that the model may be made anew with others; to tell runs apart
    that differ in their first weights alone, give an ``identity``, or other folders. On Ctrl-C and SIGTERM the step is
    finished and a checkpoint written before the run ends with KeyboardInterrupt or ``Terminated``. With a loader see
    ``LoaderBatches`` for what can be promised.

    A ``GatedNetwork`` with fixed gates never runs its feature network while training on splits without augmentation.

    Args:
        model: Is trained where it is, on its own device; parameters that require no gradient stay as they are.
        train_data: A split in memory, or a loader of (images, labels), read anew each epoch.
        test_data: Is measured after each epoch.
        config: All settings that the result depends on.
        augment: Changes each training batch, drawing from the generator it is given.
        folder: Where checkpoints are kept; None keeps none.
        save_every: How often a checkpoint is written, by default every 60 seconds.
        identity: More JSON values that must agree when a run is taken up, such as how the model was made.
        hooks: Called before training and after each epoch, with the model in evaluation mode. What they draw from
            torch's generators does not change the run. A run that is killed may call them again for the same epoch.
        progress: Whether to show a bar; by default on a terminal.

    Raises:
        ValueError, TypeError: If model, data and config do not fit together.
        CheckpointError: If the folder holds another run, or only damaged checkpoints.
        TrainingDiverged: If the loss is no longer finite; the last good checkpoint stays.

    >>> from neuralpath import data, nets, training
    >>> digits = data.load("digits")
    >>> model = nets.FC((1, 8, 8), width=16, depth=2, n_outputs=10, generator=torch.Generator().manual_seed(0))
    >>> config = training.TrainingConfig(epochs=2, optimizer=training.Adam(0.01), threads=1)
    >>> result = train(model, digits.train, digits.test, config)
    >>> len(result.history), result.last.test.accuracy > 0.5
    (2, True)

    """
    config = config or TrainingConfig()
    _check_arguments(model, config, save_every, hooks)
    with ExitStack() as stack:
        stack.enter_context(modes_kept(model))
        stack.enter_context(generators_kept(model))
        stack.enter_context(freed_memory_kept())
        task = check_task(model, train_data, test_data, config)
        about = describe_run(task, config, augment, identity, with_data=folder is not None)
        place = None if folder is None else Path(folder)
        saver = stack.enter_context(Saver(place, save_every or SaveEvery(), about, task.device))
        saved = saver.newest()
        stack.enter_context(threads_kept(config.threads or (None if saved is None else saved.values["threads"])))
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        state = RunState(model, make_optimizer(config.optimizer, trained), Sums(task.objective))
        if saved is not None:
            check_weights(model, weights_of(saved))
            if saved.values["versions"] == versions():  # other versions may print the same model in another way
                check_same_model(about, saved.values["about"], place)
            restore(state, saved, task.objective, task.device)
            check_versions(saved.values, place)
        if not state.is_finished:
            sources, state.gates_kept = make_sources(task, config, augment, state.gates_kept)
            _Run(task, config, sources, saver, state).complete(hooks, progress)
        return TrainingResult(tuple(state.history), state.step, state.stopped_early)


def _check_arguments(model: object, config: object, save_every: object, hooks: object) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be a torch.nn.Module, got {describe(model)}.")
    if not isinstance(config, TrainingConfig):
        raise TypeError(f"`config` must be a TrainingConfig, got {describe(config)}.")
    if save_every is not None and not isinstance(save_every, SaveEvery):
        raise TypeError(f"`save_every` must be SaveEvery(seconds=...) or SaveEvery(steps=...), got {save_every!r}.")
    if not isinstance(hooks, Sequence) or not all(map(callable, hooks)):
        raise TypeError(f"`hooks` must be a sequence of functions, such as [hook], got {hooks!r}.")


class _StopRequested(Exception):
    """A signal asks the run to stop, and the run has been saved."""


class _Run:
    """A run from where its state is to its end."""

    def __init__(self, task: Task, config: TrainingConfig, sources: Sources, saver: Saver, state: RunState) -> None:
        self._task = task
        self._config = config
        self._sources = sources
        self._saver = saver
        self._state = state
        self._interrupts = Interrupts()
        self._n_batches = len(sources.batches)
        self._begun = 0.0

    def complete(self, hooks: Sequence[Hook], progress: bool | None) -> None:
        """Train through to the end, or until a signal comes."""
        state, epochs = self._state, self._config.epochs
        bar = TrainingBar(epochs * self._n_batches, state.step, epochs, progress)
        try:
            with self._interrupts, bar:
                if state.step == 0:
                    self._call(hooks, None)
                while state.epoch < epochs and not state.stopped_early:
                    self._train_epoch(bar)
                    metrics = self._finish_epoch()
                    bar.epoch(metrics)
                    self._call(hooks, metrics)
                    self._stop_if_asked()
                self._check_weights()
                state.is_finished = True
                self._saver.save(state)
        except _StopRequested:
            self._interrupts.stop(f"training was interrupted after step {state.step}; {self._saver}.")

    def _train_epoch(self, bar: TrainingBar) -> None:
        state, model, optimizer, objective = self._state, self._task.model, self._state.optimizer, self._task.objective
        interrupts, saver, forward = self._interrupts, self._saver, self._task.forward
        model.train()
        # Every epoch has a stream of its own, so that nothing done between two epochs can change the run.
        torch.manual_seed(derive_seed(self._config.seed, "network", state.epoch))
        source = self._sources.batches.epoch(state.epoch, state.batch)
        if state.batch:
            set_generator_states(state.generators, self._task.device)
        self._begun = time.perf_counter() - state.seconds
        used_rate = None
        try:
            for batch in source:
                if (rate := self._rate(state.step)) != used_rate:
                    set_rate(optimizer, rate)
                    used_rate = rate
                optimizer.zero_grad()
                outputs = forward(batch)
                loss = objective.loss(outputs, batch.targets)
                state.sums.add(loss, outputs, batch.targets)
                loss.backward()
                optimizer.step()
                state.batch += 1
                state.step += 1
                bar.step()
                if interrupts.received is not None:
                    self._stop_if_asked()
                elif saver.is_due(state.step):
                    self._save()
        except NonFiniteLoss as error:
            raise self._diverged(f"the training loss became {error.value}", error.batch) from None
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise ValueError(
                "batch norm cannot be trained on a batch of one example, as the last of an epoch is here: set "
                "`drop_last=True`, or another `batch_size`."
            ) from error
        state.seconds = time.perf_counter() - self._begun

    def _finish_epoch(self) -> EpochMetrics:
        """Measure the epoch, and make the state that of the next one's beginning."""
        state, config, sources = self._state, self._config, self._sources
        is_last = state.epoch + 1 == config.epochs
        try:
            train = state.sums.mean()
        except NonFiniteLoss as error:
            raise self._diverged(f"the training loss became {error.value}", error.batch) from None
        if config.train_metrics == "evaluated":
            train = self._evaluate("training", sources.train_examples)
        enough = config.stop_at_train_accuracy is not None and train.accuracy >= config.stop_at_train_accuracy
        due = (state.epoch + 1) % config.evaluate_every == 0 or is_last or enough
        test = None
        if sources.test_examples is not None and due:
            test = self._evaluate("test", sources.test_examples)
        seconds = time.perf_counter() - self._begun
        metrics = EpochMetrics(state.epoch + 1, train, test, seconds)
        state.history.append(metrics)
        state.stopped_early = enough
        state.epoch, state.batch, state.seconds = state.epoch + 1, 0, 0.0
        state.sums = Sums(self._task.objective)
        return metrics

    def _evaluate(self, what: str, examples: Examples) -> Measurement:
        task = self._task
        try:
            batches = examples.epoch(self._state.epoch)
            return evaluate(task.model, task.measured_forward, batches, task.objective, self._stop_if_asked)
        except NonFiniteLoss as error:
            raise self._diverged(f"the {what} loss is {error.value}") from None

    def _call(self, hooks: Sequence[Hook], metrics: EpochMetrics | None) -> None:
        state = self._state
        for hook in hooks:
            self._task.model.eval()
            hook(TrainingMoment(self._task.model, state.epoch, state.step, metrics))

    def _stop_if_asked(self) -> None:
        """Save the run and leave it, if a signal has come."""
        if self._interrupts.received is not None:
            self._save()
            raise _StopRequested

    def _save(self) -> None:
        state = self._state
        self._check_weights()
        if state.batch:
            state.seconds = time.perf_counter() - self._begun
        try:
            self._saver.save(state)
        except NonFiniteLoss as error:
            raise self._diverged(f"the training loss became {error.value}", error.batch) from None

    def _check_weights(self) -> None:
        """A step can spoil the weights although its own loss was finite."""
        for name, parameter in self._task.model.named_parameters():
            if parameter.requires_grad and not bool(torch.isfinite(parameter.detach()).all()):
                raise self._diverged(f"the parameter {name} became NaN or infinite", max(self._state.batch - 1, 0))

    def _rate(self, step: int) -> float:
        config = self._config
        return config.optimizer.lr * config.schedule.factor(step / self._n_batches, config.epochs)

    def _diverged(self, what: str, batch: int | None = None) -> TrainingDiverged:
        """The error that says where; by default at the last step that was done."""
        state = self._state
        step = state.step - state.batch + batch if batch is not None else max(state.step - 1, 0)
        return TrainingDiverged(
            f"{what} at step {step + 1} (epoch {step // self._n_batches + 1}) with learning rate "
            f"{self._rate(step):.6g}; {self._saver}. A smaller learning rate may help, or a look at the data."
        )
