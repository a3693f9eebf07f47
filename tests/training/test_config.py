"""Settings: what they mean, what is refused, and that they can be flags."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
import tyro
from hypothesis import given, strategies as st

from neuralpath._configs import to_json
from neuralpath.training import SGD, Adam, Cosine, PiecewiseLinear, RMSprop, StepDecay, TrainingConfig


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (Adam, {"lr": np.float32(1e-3)}, "`lr` must be a plain number, such as float"),
        (SGD, {"lr": torch.tensor(0.1)}, "`lr` must be a plain number, such as float"),
        (TrainingConfig, {"stop_at_train_accuracy": np.float32(0.9)}, "`stop_at_train_accuracy` must be a plain"),
        (TrainingConfig, {"optimizer": Adam}, r"`optimizer` must be one of Adam\(\.\.\.\), SGD"),
        (TrainingConfig, {"optimizer": "adam"}, r"of `neuralpath\.training`, got 'adam'"),
        (TrainingConfig, {"schedule": Cosine}, r"`schedule` must be one of Constant\(\.\.\.\), StepDecay"),
    ],
)
@pytest.mark.usefixtures("without_type_checks")
def test_settings_of_another_kind_are_refused_by_their_own_names(kind, settings, message):
    with pytest.raises(TypeError, match=message):
        kind(**settings)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (TrainingConfig, {"batch_size": 0}, "`batch_size` must be an integer of at least 1, got 0"),
        (TrainingConfig, {"epochs": -1}, "`epochs` must be an integer of at least 0, got -1"),
        (TrainingConfig, {"seed": -1}, "`seed`"),
        (TrainingConfig, {"threads": 0}, "`threads` must be an integer of at least 1"),
        (TrainingConfig, {"gate_memory": 0}, "`gate_memory`"),
        (TrainingConfig, {"loss": "hinge"}, "`loss` must be one of cross-entropy, squared, got 'hinge'"),
        (TrainingConfig, {"precision": "half"}, "`precision` must be one of full, bfloat16, got 'half'"),
        (TrainingConfig, {"train_metrics": "none"}, "`train_metrics` must be one of"),
        (TrainingConfig, {"stop_at_train_accuracy": 99.0}, "`stop_at_train_accuracy` .* got 99.0"),
        (Adam, {"lr": math.nan}, "`lr` must be a finite number of at least 0, got nan"),
        (Adam, {"betas": (0.9, 1.0)}, "`betas` must be two numbers"),
        (Adam, {"weight_decay": -1.0}, "`weight_decay`"),
        (SGD, {"momentum": 1.0}, "`momentum` must lie from 0 to below 1"),
        (SGD, {"nesterov": True}, "`nesterov` needs a `momentum` above 0"),
        (RMSprop, {"alpha": 1.5}, "`alpha` must lie from 0 to below 1"),
        (RMSprop, {"eps": -1.0}, "`eps`"),
        (StepDecay, {"at": (3.0, 1.0)}, "`at` must be rising numbers of epochs"),
        (StepDecay, {"at": (1.0,), "factor_each": 0.0}, "`factor_each` must be a positive"),
        (Cosine, {"floor": 2.0}, "`floor` must lie between 0 and 1"),
        (Cosine, {"warmup": -1.0}, "`warmup` must be a number of epochs"),
        (PiecewiseLinear, {"epochs": (0.0, 1.0), "factors": (1.0,)}, "`epochs` and `factors` .* got 2 and 1"),
        (PiecewiseLinear, {"epochs": (0.0,), "factors": (-1.0,)}, "`factors` must be finite numbers"),
    ],
)
def test_settings_that_are_refused(kind, settings, message, without_type_checks):
    with pytest.raises(ValueError, match=message):
        kind(**settings)


def test_integers_of_numpy_and_torch_become_plain_ones(without_type_checks):
    settings = {"epochs": 3, "batch_size": 4, "seed": 5, "threads": 1, "gate_memory": 7, "evaluate_every": 2}
    plain = TrainingConfig(**settings)
    for make in (np.int64, np.uint8, torch.tensor):
        config = TrainingConfig(**{name: make(value) for name, value in settings.items()})
        assert config == plain
        assert all(type(getattr(config, name)) is int for name in settings)
        assert json.dumps(to_json(config)) == json.dumps(to_json(plain))
    for other in (3.0, np.float64(3.0), True, "3", None):
        with pytest.raises(ValueError, match="`epochs` must be an integer of at least 0, got"):
            TrainingConfig(epochs=other)


def test_factors_by_hand():
    assert [StepDecay(at=(1, 3), factor_each=0.5).factor(t, 9) for t in (0.0, 0.99, 1.0, 2.9, 3.0, 9.0)] == [
        1,
        1,
        0.5,
        0.5,
        0.25,
        0.25,
    ]
    cosine = Cosine(floor=0.2, warmup=2)
    assert cosine.factor(1.0, 10) == 0.5
    assert cosine.factor(2.0, 10) == 1.0
    assert cosine.factor(6.0, 10) == pytest.approx(0.6, abs=1e-15)
    assert cosine.factor(10.0, 10) == pytest.approx(0.2, abs=1e-15)
    lines = PiecewiseLinear(epochs=(1, 5, 6), factors=(0.5, 1, 0))
    assert [lines.factor(t, 9) for t in (0.0, 1.0, 3.0, 5.5, 6.0, 8.0)] == [0.5, 0.5, 0.75, 0.5, 0, 0]


@given(st.floats(0, 30), st.integers(0, 30), st.floats(0, 1), st.floats(0, 40))
def test_a_cosine_stays_between_its_floor_and_one(time, epochs, floor, warmup):
    factor = Cosine(floor=floor, warmup=warmup).factor(time, epochs)
    assert 0 <= factor <= 1
    assert factor >= floor - 1e-15 or time < warmup


def test_settings_are_flags():
    """As a command line gets them, with the kinds of optimizer and schedule as words."""
    flags = ["--epochs", "3", "--stop-at-train-accuracy", "0.9"]
    kinds = ["optimizer:sgd", "--optimizer.momentum", "0.9", "schedule:step-decay", "--schedule.at", "1", "2"]
    parsed = tyro.cli(TrainingConfig, args=[*flags, *kinds])
    assert parsed == TrainingConfig(
        epochs=3, stop_at_train_accuracy=0.9, optimizer=SGD(momentum=0.9), schedule=StepDecay(at=(1, 2))
    )


def test_settings_load_without_torch():
    code = "import sys; from neuralpath.training.config import TrainingConfig; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_records_as_json():
    assert to_json(SGD()) == {"kind": "SGD", "lr": 0.1, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0}
    assert to_json({"a": (Cosine(),)}) == {"a": [{"kind": "Cosine", "floor": 0.0, "warmup": 0.0}]}


def test_configs_are_hashable_and_compare():
    assert len({TrainingConfig(), TrainingConfig(), TrainingConfig(optimizer=SGD(1e-3))}) == 2
