"""Ctrl-C and SIGTERM: an exception with a message, and the program's own handlers stay."""

import functools
import signal

import pytest

from neuralpath import training
from neuralpath.training import Terminated

train = functools.partial(training.train, checkpoint_seconds=0)  # a checkpoint at the end of each epoch

NUMBERS = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def handlers_stay():
    """Whatever a test does, the handlers are the same afterwards."""
    before = [signal.getsignal(number) for number in NUMBERS]
    yield
    after = [signal.getsignal(number) for number in NUMBERS]
    for number, handler in zip(NUMBERS, before, strict=True):
        signal.signal(number, handler)
    assert after == before


@pytest.mark.parametrize("number", NUMBERS)
def test_the_message_names_the_step_and_the_checkpoint(number, net, data, config, interrupt_at, tmp_path, capsys):
    with pytest.raises((KeyboardInterrupt, Terminated), match=r"after step 3; no checkpoint .*`folder`"):
        train(net("fc"), *data, config, augment=interrupt_at(3, number))
    with pytest.raises((KeyboardInterrupt, Terminated), match=rf"after step 9; .*{tmp_path} is of epoch 1") as caught:
        train(net("fc"), *data, config, augment=interrupt_at(9, number), folder=tmp_path)
    if number == signal.SIGTERM:
        assert caught.value.code == 143
        assert "after step 9" in capsys.readouterr().err
    train(net("fc"), *data, config)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_handler_of_the_program_gets_the_signal(number, net, data, config, interrupt_at):
    seen = []
    before = signal.signal(number, lambda number, frame: seen.append(number))
    try:
        result = train(net("fc"), *data, config, augment=interrupt_at(3, number))
    finally:
        signal.signal(number, before)
    assert seen == [number]
    assert result.n_steps == 21


def test_ignored_signals_stay_ignored(net, data, config, interrupt_at):
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        result = train(net("fc"), *data, config, augment=interrupt_at(3, signal.SIGTERM))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert result.n_steps == 21
