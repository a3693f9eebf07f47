"""The loop against one written by hand, its metrics, its hooks and its refusals."""

import dataclasses
import functools
import io
import math
import pathlib
import threading

import pytest
import rich.console
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from neuralpath import training
from neuralpath.data import Split, binary_task
from neuralpath.training import SGD, Adam, Cosine, Measurement, PiecewiseLinear, RMSprop, TrainingDiverged
from neuralpath.training.batches import derive_seed
from neuralpath.training.metrics import COUNTED_AT_ONCE

train = functools.partial(training.train, checkpoint_seconds=0)  # a checkpoint at the end of each epoch


def by_hand(model, split, config, optimizer, loss):
    """The plain loop: the same batches, and nothing else of the library."""
    n_batches = -(-len(split) // config.batch_size)
    for epoch in range(config.epochs):
        generator = torch.Generator().manual_seed(derive_seed(config.seed, "order", epoch))
        for number, rows in enumerate(torch.randperm(len(split), generator=generator).split(config.batch_size)):
            for group in optimizer.param_groups:
                group["lr"] = config.optimizer.lr * config.schedule.factor(epoch + number / n_batches, config.epochs)
            optimizer.zero_grad()
            loss(model(split.images[rows]), split.labels[rows]).backward()
            optimizer.step()
    return model


TORCH = {
    "adam": (
        Adam(3e-3, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.01),
        lambda p: torch.optim.Adam(p, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.01),
    ),
    "adamw": (Adam(3e-3, weight_decay=0.1, decoupled=True), lambda p: torch.optim.AdamW(p, weight_decay=0.1)),
    "sgd": (SGD(0.05), lambda p: torch.optim.SGD(p)),
    "momentum": (
        SGD(0.05, momentum=0.9, weight_decay=0.01),
        lambda p: torch.optim.SGD(p, momentum=0.9, weight_decay=0.01),
    ),
    "nesterov": (SGD(0.05, momentum=0.9, nesterov=True), lambda p: torch.optim.SGD(p, momentum=0.9, nesterov=True)),
    "rmsprop": (
        RMSprop(2e-3, alpha=0.9, eps=1e-6, momentum=0.5, weight_decay=0.01),
        lambda p: torch.optim.RMSprop(p, alpha=0.9, eps=1e-6, momentum=0.5, weight_decay=0.01),
    ),
}


@pytest.mark.parametrize("schedule", [Cosine(), PiecewiseLinear(epochs=(0, 1, 3), factors=(0.2, 1, 0.1))])
@pytest.mark.parametrize("name", TORCH)
def test_optimizers_are_torchs_own(name, schedule, net, blobs, config):
    """Fused steps round differently, so the comparison is in double precision, with an error far below a step."""
    settings, make = TORCH[name]
    config = dataclasses.replace(config, optimizer=settings, schedule=schedule)
    split = blobs(52, dtype=torch.float64)
    expected = net("fc").double()
    by_hand(expected, split, config, make(list(expected.parameters())), F.cross_entropy)
    model = net("fc").double()
    train(model, split, None, config)
    for ours, theirs, start in zip(model.parameters(), expected.parameters(), net("fc").parameters(), strict=True):
        moved = (theirs - start.double()).abs().max()
        assert moved > 1e-3
        assert (ours - theirs).abs().max() <= 1e-9 * moved


def test_losses_and_labels(blobs, config):
    split = blobs(52, dtype=torch.float64)
    signs = binary_task(split, 0, 1)
    cases = {
        ("squared", split): lambda f, y: 0.5 * ((f - torch.eye(3, dtype=f.dtype)[y]) ** 2).sum(1).mean(),
        ("cross-entropy", split): lambda f, y: (f.logsumexp(1) - f[torch.arange(len(y)), y]).mean(),
        ("squared", signs): lambda f, y: 0.5 * ((f[:, 0] - y) ** 2).mean(),
        ("cross-entropy", signs): lambda f, y: torch.log(1 + torch.exp(-y * f[:, 0])).mean(),
    }
    for (loss, data), by_formula in cases.items():
        n_outputs = 3 if data is split else 1
        chosen = dataclasses.replace(config, loss=loss, optimizer=SGD(0.05), train_metrics="evaluated")
        models = [nn.Sequential(nn.Flatten(), nn.Linear(16, n_outputs)).double() for _ in range(2)]
        models[1].load_state_dict(models[0].state_dict())
        result = train(models[0], data, data, chosen)
        by_hand(models[1], data, chosen, torch.optim.SGD(models[1].parameters()), by_formula)
        torch.testing.assert_close(models[0][1].weight, models[1][1].weight, rtol=1e-12, atol=1e-13)
        with torch.no_grad():
            outputs = models[0](data.images)
            answers = outputs.argmax(1) if data is split else torch.where(outputs[:, 0] > 0, 1.0, -1.0)
            assert result.last.test.loss == pytest.approx(float(by_formula(outputs, data.labels)), rel=1e-12)
        assert result.last.test.accuracy == float((answers == data.labels).double().mean())
        assert result.last.train == result.last.test


def test_running_metrics_are_those_of_the_forward_passes(net, blobs, config):
    """Also when correct answers are counted several times in an epoch."""
    split = blobs(2 * COUNTED_AT_ONCE + 9)
    model, losses, correct = net("fc"), [], 0
    config = dataclasses.replace(config, epochs=1, batch_size=1)
    result = train(model, split, None, config)
    again = net("fc")
    optimizer = torch.optim.Adam(again.parameters(), fused=True)
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(derive_seed(0, "order", 0)))
    for rows in order.split(1):
        optimizer.zero_grad()
        outputs = again(split.images[rows])
        loss = F.cross_entropy(outputs, split.labels[rows])
        losses.append(loss.item() * len(rows))
        correct += int((outputs.argmax(1) == split.labels[rows]).sum())
        loss.backward()
        optimizer.step()
    assert result.last.train == Measurement(sum(losses) / len(split), correct / len(split))


def test_every_batch_order_is_another_and_comes_from_the_seed(net, data, config):
    seen = []

    def augment(images, generator):
        seen.append(images)
        return images

    for seed in (0, 0, 1):
        train(net("fc"), data[0], None, dataclasses.replace(config, seed=seed), augment=augment)
    epochs = [torch.cat(seen[i : i + 7]) for i in range(0, len(seen), 7)]
    assert torch.equal(torch.cat(epochs[:3]), torch.cat(epochs[3:6]))
    distinct = [*epochs[:3], *epochs[6:]]
    assert all(not torch.equal(a, b) for i, a in enumerate(distinct) for b in distinct[:i])
    whole = data[0].images.flatten(1)
    for epoch in distinct:  # every example once
        assert torch.equal(epoch.flatten(1).sum(1).sort().values, whole.sum(1).sort().values)


def test_the_global_generator_matters_neither_way(net, data, config, same_state):
    models = []
    for seed in (1, 2):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            before = torch.get_rng_state()
            models.append(net("dropout-and-batch-norm"))
            train(models[-1], *data, config, hooks=[lambda moment, n=seed: torch.rand(n)])
            assert torch.equal(torch.get_rng_state(), before)
    same_state(*models)


def test_augmentation_draws_from_the_seed_alone(net, data, config, same_state):
    drawn = []

    def augment(images, generator):
        drawn.append(float(torch.rand((), generator=generator)))
        return images * drawn[-1]

    models = [net("fc") for _ in range(3)]
    train(models[0], *data, config, augment=augment)
    train(models[1], *data, config, augment=augment)
    assert drawn[:21] == drawn[21:]
    assert len(set(drawn)) == 21  # another draw for every batch of every epoch
    train(models[2], *data, config)
    same_state(models[0], models[1])
    with pytest.raises(AssertionError):
        same_state(models[0], models[2])


def test_modes_threads_and_frozen_parameters_stay(net, data, config):
    model = net("dropout-and-batch-norm").eval()
    model[5].weight.requires_grad_(False)
    model[3].train()
    before, threads = model[5].weight.clone(), torch.get_num_threads()
    seen = []
    train(model, *data, config, hooks=[lambda moment: seen.append((moment.model.training, torch.get_num_threads()))])
    assert torch.equal(model[5].weight, before)
    assert [module.training for module in model] == [False, False, False, True] + [False] * 6
    assert seen == [(False, 1)] * 4
    assert torch.get_num_threads() == threads


def test_hooks_see_every_epoch(net, data, config):
    moments = []
    result = train(net("fc"), *data, config, hooks=[moments.append])
    assert [(moment.epoch, moment.step) for moment in moments] == [(0, 0), (1, 7), (2, 14), (3, 21)]
    assert moments[0].metrics is None
    assert tuple(moment.metrics for moment in moments[1:]) == result.history


def test_early_stop_best_and_last(net, blobs, config, tmp_path):
    data = blobs(60), blobs(40, seed=1)
    config = dataclasses.replace(config, epochs=60, optimizer=Adam(1e-2), stop_at_train_accuracy=0.9, evaluate_every=50)
    result = train(net("fc"), *data, config, folder=tmp_path)
    assert result.stopped_early
    assert len(result.history) < 50
    assert result.last.train.accuracy >= 0.9 > result.history[-2].train.accuracy
    assert result.last.test is not None  # measured although its turn had not come
    assert train(net("fc"), *data, config, folder=tmp_path) == result
    every = train(
        net("fc"), *data, dataclasses.replace(config, evaluate_every=1, stop_at_train_accuracy=None, epochs=5)
    )
    accuracies = [metrics.test.accuracy for metrics in every.history]
    assert every.best == every.history[accuracies.index(max(accuracies))]
    alone = train(net("fc"), data[0], None, config)
    assert alone.best.train.accuracy == max(metrics.train.accuracy for metrics in alone.history)


def test_no_epochs(net, data, config, same_state):
    model = net("fc")
    result = train(model, *data, dataclasses.replace(config, epochs=0))
    assert (result.history, result.last, result.best, result.n_steps) == ((), None, None, 0)
    same_state(model, net("fc"))


def test_drop_last(net, data, config):
    assert train(net("fc"), *data, dataclasses.replace(config, drop_last=True)).n_steps == 18


def test_in_another_thread(net, data, config, tmp_path, same_state):
    """Handlers of signals can be set in the main thread only; elsewhere a run does without."""
    model, other, results = net("fc"), net("fc"), []
    train(model, *data, config)
    thread = threading.Thread(target=lambda: results.append(train(other, *data, config, folder=tmp_path)))
    thread.start()
    thread.join()
    assert results[0].n_steps == 21
    same_state(model, other)


@pytest.mark.parametrize("kind", ["loss", "gradient"])
def test_a_loss_that_is_not_finite_stops_the_run(kind, net, data, config, tmp_path, interrupt_at):
    class Failing(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner, self.calls = inner, 0

        def forward(self, x):
            outputs = self.inner(x)
            self.calls += self.training
            if self.training and self.calls == 12 and kind == "loss":
                return outputs * math.nan
            if self.training and self.calls == 12:  # a finite value with an infinite gradient
                return outputs + (outputs - outputs.detach()).abs().add(0.0).sqrt()
            return outputs

    model = Failing(net("fc"))
    step = "step 12" if kind == "loss" else "step 13"
    config = dataclasses.replace(config, optimizer=SGD(0.125))
    with pytest.raises(TrainingDiverged, match=rf"nan at {step} \(epoch 2\) .* 0\.125; .* of epoch 1\."):
        train(model, *data, config, folder=tmp_path)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".safetensors"]
    if kind == "loss":  # found before the step, so the weights are still good
        assert all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())
    good = Failing(net("fc"))
    good.calls = 100
    assert train(good, *data, config, folder=tmp_path).n_steps == 21


def test_spoilt_weights_are_never_saved(data, config, tmp_path):
    """The loss of a step may be finite although the step itself spoils the weights."""

    class Spoiling(nn.Linear):
        def forward(self, x):
            return super().forward(x.flatten(1)) + (self.weight - self.weight.detach()).abs().sqrt().sum()

    config = dataclasses.replace(config, epochs=1, batch_size=52)
    with pytest.raises(TrainingDiverged, match=r"parameter weight became NaN or infinite at step 1 .* no checkpoint"):
        train(Spoiling(16, 3), *data, config, folder=tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(TrainingDiverged, match=r"weight became NaN.*`folder`"):
        train(Spoiling(16, 3), data[0], None, config)


def test_a_test_loss_that_is_not_finite_stops_the_run(net, data, config):
    class Failing(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x) if self.training or len(x) == 1 else self.inner(x) / 0

    with pytest.raises(TrainingDiverged, match=r"the test loss is nan at step 7 \(epoch 1\)"):
        train(Failing(net("fc")), *data, config)


class Failing(nn.Linear):
    def __init__(self, kind):
        super().__init__(16, 3)
        self.kind = kind

    def forward(self, x):
        if self.kind is AttributeError:
            return self.missing
        raise self.kind


def refusals(net, blobs):
    split = blobs(20)
    images, labels = split.images, split.labels
    wide = labels.clone()
    wide[4] = 3
    spoilt = images.clone()
    spoilt[2, 0, 0, 0] = math.inf
    pairs = TensorDataset(images, wide)
    fc, one_output = net("fc"), nn.Sequential(nn.Flatten(), nn.Linear(16, 1))
    return {
        r"`train_data\.labels` must lie between 0 and 2.*got 3 at index 4, and 1 such": (fc, Split(images, wide), None),
        r"`test_data\.labels` must lie between 0 and 2": (fc, split, Split(images, wide)),
        r"`labels` must lie between 0 and 2": (fc, DataLoader(pairs, batch_size=20), None),
        r"`train_data.images` has no examples": (fc, Split(images[:0], labels[:0]), None),
        r"`test_data.images` has no examples": (fc, split, Split(images[:0], labels[:0])),
        r"`train_data` has no batches": (fc, [], None),
        r"`train_data.images` has NaN or infinity in 1 of 20 examples": (fc, Split(spoilt, labels), None),
        r"`train_data.images` must have the dtype": (fc, Split(images.double(), labels), None),
        r"nothing to train": (nn.Flatten(), split, None),
        r"`train_data.labels` of -1 and \+1": (fc, Split(images, labels.float() * 2 - 1), None),
        r"must be -1 or \+1, got 2.0 at": (one_output, Split(images, labels.float()), None),
        r"class numbers \(int64\) or": (fc, Split(images, labels.int()), None),
        r"`model` must return a tensor of shape \(batch, outputs\)": (nn.Conv2d(1, 1, 1), split, None),
        r"but torch\.float32 in `test_data`": (fc, split, Split(images, labels.float())),
        r"must yield pairs \(images, labels\)": (fc, [images], None),
        r"`train_data` must be .*Split, or a loader": (fc, images, None),
        r"`train_data\.labels` must have the shape \(20,\), .* got a int64 tensor of "
        r"shape \(20, 1\); use `train_data\.labels\.flatten\(\)`": (fc, Split(images, labels[:, None]), None),
        r"`test_data\.labels` must have the shape \(20,\)": (fc, split, Split(images, labels[:, None].expand(-1, 2))),
        r"`labels` must have the shape \(5,\), .* got a int64 tensor of shape \(5, 1\)": (
            fc,
            DataLoader(TensorDataset(images, labels[:, None]), batch_size=5),
            None,
        ),
        r"could not run on one example of `test_data`, a float32 tensor of shape \(1, 1, 5, 5\)": (
            fc,
            split,
            Split(torch.rand(20, 1, 5, 5), labels),
        ),
        r"could not run on one example of `test_data`, a float32 tensor of shape \(1, 1, 6, 6\)": (
            fc,
            split,
            DataLoader(TensorDataset(torch.rand(20, 1, 6, 6), labels), batch_size=5),
        ),
        r"labels are torch\.int64 in `train_data`, but torch\.float32 in `test_data`": (
            fc,
            split,
            DataLoader(TensorDataset(images, labels.float()), batch_size=5),
        ),
        r"could not run on one example of `train_data`, .*: 'Failing' object has no attribute 'missing'": (
            Failing(AttributeError),
            split,
            None,
        ),
        r"could not run on one example of `train_data`, .*: KeyError": (Failing(KeyError), split, None),
    }


def test_data_that_does_not_fit_is_refused(net, blobs, config, without_type_checks):
    for message, arguments in refusals(net, blobs).items():
        with pytest.raises((TypeError, ValueError), match=message):
            train(*arguments, config)


def test_nothing_is_trained_before_the_test_loader_is_looked_at(net, blobs, config):
    split, steps = blobs(20), []
    tests = DataLoader(TensorDataset(split.images, split.labels.float()), batch_size=5)
    model = net("fc")
    model.register_forward_hook(lambda module, args, y: steps.append(module.training))
    with pytest.raises(TypeError, match="`test_data`"):
        train(model, split, tests, config)
    assert not any(steps)


def test_a_network_for_images_of_any_size_may_be_tested_on_others(blobs, config):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    test = Split(torch.rand(9, 1, 7, 7), torch.arange(9) % 3)
    assert train(model, blobs(20), test, config).last.test is not None


def test_a_loader_that_can_be_read_once_only_is_refused(net, blobs, config):
    split = blobs(16)

    class Once(list):
        def __iter__(self):
            while self:
                yield self.pop()

    loader = Once([(split.images, split.labels)])
    with pytest.raises(ValueError, match="no batches"):
        train(net("fc"), loader, None, config)


def test_an_identity_that_is_no_json_is_refused(net, blobs, config):
    with pytest.raises(TypeError, match=r"`identity` .*PosixPath"):
        train(net("fc"), blobs(16), None, config, identity={"place": pathlib.PosixPath("x")})


def test_drop_last_that_leaves_nothing_is_refused(net, blobs, config):
    with pytest.raises(ValueError, match="`drop_last` leaves no batch: there are 5 examples"):
        train(net("fc"), blobs(5), None, dataclasses.replace(config, drop_last=True))


def test_progress_bar(net, data, config, capsys, monkeypatch):
    train(net("fc"), *data, config)
    assert capsys.readouterr().err == ""  # not a terminal
    screen = io.StringIO()
    terminal = rich.console.Console(file=screen, force_terminal=True, width=100)
    monkeypatch.setattr("neuralpath._progress.Console", lambda stderr: terminal)
    train(net("fc"), *data, config, progress=True)
    shown = screen.getvalue()
    for part in ("epoch 3/3", "test", "21/21"):
        assert part in shown
