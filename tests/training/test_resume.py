"""A run that is stopped and goes on ends as if it had never been stopped, bit for bit."""

import dataclasses
import functools
import random
import signal
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from neuralpath import training
from neuralpath.training import SGD, Adam, Constant, Cosine, PiecewiseLinear, RMSprop, StepDecay, Terminated

train = functools.partial(training.train, checkpoint_seconds=0)  # a checkpoint at the end of each epoch

OPTIMIZERS = {
    "adam": Adam(),
    "adam-decoupled": Adam(weight_decay=0.1, decoupled=True),
    "adam-decay": Adam(weight_decay=0.1),
    "sgd": SGD(),
    "momentum": SGD(lr=0.05, momentum=0.9, weight_decay=1e-3),
    "nesterov": SGD(lr=0.05, momentum=0.9, nesterov=True),
    "rmsprop": RMSprop(),
    "rmsprop-momentum": RMSprop(momentum=0.9, weight_decay=1e-2),
}
SCHEDULES = {
    "constant": Constant(),
    "steps": StepDecay(at=(1, 2), factor_each=0.3),
    "cosine": Cosine(warmup=0.5),
    "piecewise": PiecewiseLinear(epochs=(0, 1, 3), factors=(0.1, 1, 0)),
}
N_STEPS = 21


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_resumes_exactly(optimizer, net, data, config, tmp_path, interrupt_at, same_state):
    config = dataclasses.replace(config, optimizer=OPTIMIZERS[optimizer])
    whole = net("dropout-and-batch-norm")
    expected = train(whole, *data, config, augment=interrupt_at(-1))
    for call in random.Random(optimizer).sample(range(7, 14), 2):
        with pytest.raises(KeyboardInterrupt):
            train(net("dropout-and-batch-norm"), *data, config, folder=tmp_path, augment=interrupt_at(call))
    model = net("dropout-and-batch-norm", 1)  # weights of its own, which must all be replaced
    result = train(model, *data, config, folder=tmp_path, augment=interrupt_at(-1))
    same_state(model, whole)
    assert result == expected
    assert result.n_steps == N_STEPS


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_resumes_exactly(schedule, net, data, config, tmp_path, interrupt_at, same_state):
    config = dataclasses.replace(config, schedule=SCHEDULES[schedule], train_metrics="evaluated", evaluate_every=2)
    whole = net("fc")
    expected = train(whole, *data, config, augment=interrupt_at(-1))
    with pytest.raises(KeyboardInterrupt):
        train(net("fc"), *data, config, folder=tmp_path, augment=interrupt_at(10))
    model = net("fc", 5)
    assert train(model, *data, config, folder=tmp_path, augment=interrupt_at(-1)) == expected
    same_state(model, whole)
    assert [metrics.test is None for metrics in expected.history] == [True, False, False]


def test_the_schedules_and_optimizers_of_these_tests_differ(net, data, config):
    """Else the tests above could not tell whether a setting is kept."""
    ends = []
    for change in [{"optimizer": o} for o in OPTIMIZERS.values()] + [{"schedule": s} for s in SCHEDULES.values()][1:]:
        model = net("fc")
        train(model, *data, dataclasses.replace(config, **change))
        ends.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    assert all(not torch.equal(a, b) for i, a in enumerate(ends) for b in ends[:i])


@pytest.mark.parametrize(("kind", "number"), [("fc", signal.SIGINT), ("tied", signal.SIGTERM)])
def test_interrupted_at_every_batch(kind, number, net, data, config, tmp_path, interrupt_at, same_state):
    """Also at the first and last batch of an epoch."""
    whole = net(kind)
    expected = train(whole, *data, config, augment=interrupt_at(-1))
    for call in range(N_STEPS):
        folder = tmp_path / str(call)
        with pytest.raises((KeyboardInterrupt, Terminated), match=f"after step {call};"):
            train(net(kind), *data, config, folder=folder, augment=interrupt_at(call, number))
        model = net(kind, 3 if call >= 7 else 0)  # before the first checkpoint the weights are the model's own
        assert train(model, *data, config, folder=folder, augment=interrupt_at(-1)) == expected
        same_state(model, whole)


def test_double_precision_resumes_exactly(net, blobs, config, tmp_path, interrupt_at, same_state):
    data = blobs(52, dtype=torch.float64), blobs(40, seed=1, dtype=torch.float64)
    whole = net("dropout-and-batch-norm").double()
    train(whole, *data, config, augment=interrupt_at(-1))
    with pytest.raises(KeyboardInterrupt):
        train(net("dropout-and-batch-norm").double(), *data, config, folder=tmp_path, augment=interrupt_at(9))
    model = net("dropout-and-batch-norm", 1).double()
    train(model, *data, config, folder=tmp_path, augment=interrupt_at(-1))
    same_state(model, whole)


@pytest.mark.parametrize("where", ["measurement", "hook"])
def test_interruption_between_the_steps_and_the_checkpoint(where, net, data, config, tmp_path, same_state):
    """The epoch is repeated, and hooks are called again for it."""

    class Interrupting(nn.Module):
        def __init__(self, inner, after):
            super().__init__()
            self.inner, self.left = inner, after

        def forward(self, x):
            if not self.training and len(x) > 1:
                self.left -= 1
                if self.left == 0:
                    signal.raise_signal(signal.SIGINT)
            return self.inner(x)

    def hook(moment):
        if moment.epoch == 2 and where == "hook":
            signal.raise_signal(signal.SIGINT)

    whole = Interrupting(net("dropout-and-batch-norm"), 0)
    expected = train(whole, *data, config)
    stopped = Interrupting(net("dropout-and-batch-norm"), 4 if where == "measurement" else 0)
    with pytest.raises(KeyboardInterrupt, match=r"interrupted after step 14; .*epoch 1"):
        train(stopped, *data, config, folder=tmp_path, hooks=[hook])
    seen = []
    model = Interrupting(net("dropout-and-batch-norm", 2), 0)
    result = train(model, *data, config, folder=tmp_path, hooks=[lambda moment: seen.append(moment.epoch)])
    assert seen == [2, 3]
    assert result == expected
    same_state(model, whole)


def test_a_finished_run_is_not_run_again(net, data, config, tmp_path, same_state):
    whole = net("fc")
    expected = train(whole, *data, config, folder=tmp_path)
    before = sorted((path.name, path.stat().st_mtime_ns) for path in tmp_path.iterdir())
    model = net("fc", 1)
    seen = []
    assert train(model, *data, config, folder=tmp_path, hooks=[seen.append]) == expected
    same_state(model, whole)
    assert not seen
    assert sorted((path.name, path.stat().st_mtime_ns) for path in tmp_path.iterdir()) == before


def test_buffers_that_are_not_saved_by_torch_resume_too(data, config, tmp_path, interrupt_at, same_state):
    class Drifting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(16, 3)
            self.register_buffer("calls", torch.zeros(()), persistent=False)

        def forward(self, x):
            if self.training:
                self.calls += 1
            return self.layer(x.flatten(1)) * (1 + self.calls / 10)

    def make():
        torch.manual_seed(0)
        return Drifting()

    with torch.random.fork_rng():
        whole = make()
        train(whole, *data, config, augment=interrupt_at(-1))
        with pytest.raises(KeyboardInterrupt):
            train(make(), *data, config, folder=tmp_path, augment=interrupt_at(9))
        model = make()
        train(model, *data, config, folder=tmp_path, augment=interrupt_at(-1))
    same_state(model, whole)
    assert model.calls == whole.calls == N_STEPS


@pytest.mark.parametrize("kind", ["plain", "generator", "sampler", "workers"])
def test_a_users_loader_resumes_exactly(kind, net, data, config, tmp_path, same_state):
    split, test = data
    generator = torch.Generator().manual_seed(1)

    class Noisy(TensorDataset):
        """A data set whose transform draws from torch's global generator."""

        def __getitem__(self, index):
            image, label = super().__getitem__(index)
            return image + 0.1 * torch.randn(image.shape), label

    examples = Noisy(split.images, split.labels)
    settings = {
        "plain": {"shuffle": True},
        "generator": {"shuffle": True, "generator": generator},
        "sampler": {"sampler": RandomSampler(examples, generator=generator)},
        "workers": {"shuffle": True, "num_workers": 2},
    }[kind]
    loader = DataLoader(examples, batch_size=8, **settings)
    tests = DataLoader(TensorDataset(test.images, test.labels), batch_size=16)

    class Stopping(nn.Module):
        def __init__(self, inner, at):
            super().__init__()
            self.inner, self.left = inner, at

        def forward(self, x):
            if self.training:
                if self.left == 0:
                    signal.raise_signal(signal.SIGINT)
                self.left -= 1
            return self.inner(x)

    whole = Stopping(net("dropout-and-batch-norm"), -1)
    expected = train(whole, loader, tests, config)
    torch.rand(3)  # the run does not depend on the state that it finds
    with pytest.raises(KeyboardInterrupt):
        train(Stopping(net("dropout-and-batch-norm"), 10), loader, tests, config, folder=tmp_path)
    model = Stopping(net("dropout-and-batch-norm", 1), -1)
    assert train(model, loader, tests, config, folder=tmp_path) == expected
    same_state(model, whole)


@pytest.mark.parametrize("kind", ["plain", "generator", "sampler"])
@pytest.mark.parametrize("at", ["in an epoch", "in a measurement"])
def test_a_shuffled_test_loader_is_measured_in_the_same_order(kind, at, net, data, config, tmp_path):
    """Orders are shown by losses: in another order they are rounded in another way."""
    split, test = data
    config = dataclasses.replace(config, epochs=4, train_metrics="evaluated")

    def make(part):
        generator = torch.Generator().manual_seed(5)
        examples = TensorDataset(part.images, part.labels)
        settings = {
            "plain": {"shuffle": True},
            "generator": {"shuffle": True, "generator": generator},
            "sampler": {"sampler": RandomSampler(examples, generator=generator)},
        }[kind]
        return DataLoader(examples, batch_size=8, **settings)

    seen = []

    class Stopping(nn.Module):
        def __init__(self, inner, at):
            super().__init__()
            self.inner, self.left = inner, at

        def forward(self, x):
            counted = self.training if at == "in an epoch" else not self.training and len(x) > 1
            if counted and self.left >= 0:
                if self.left == 0:
                    signal.raise_signal(signal.SIGINT)
                self.left -= 1
            if not self.training and len(x) == 8:
                seen.append(float(x.sum()))
            return self.inner(x)

    expected = train(Stopping(net("fc"), -1), make(split), make(test), config)
    orders = set(seen)
    torch.rand(3)
    with pytest.raises(KeyboardInterrupt):
        train(Stopping(net("fc"), 17), make(split), make(test), config, folder=tmp_path)
    seen.clear()
    assert train(Stopping(net("fc", 1), -1), make(split), make(test), config, folder=tmp_path) == expected
    assert set(seen) <= orders
    assert len(orders) > 20  # every epoch has an order of its own, so that the test above can fail


def test_a_run_goes_on_with_the_threads_it_began_with(net, data, config, tmp_path, interrupt_at):
    config = dataclasses.replace(config, threads=None)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        with pytest.raises(KeyboardInterrupt):
            train(net("fc"), *data, config, folder=tmp_path, augment=interrupt_at(9))
        torch.set_num_threads(2)
        seen = []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            hooks = [lambda moment: seen.append(torch.get_num_threads())]
            train(net("fc"), *data, config, folder=tmp_path, augment=interrupt_at(-1), hooks=hooks)
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
