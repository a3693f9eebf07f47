"""Signals: handlers of the user's are respected and come back."""

import signal

import pytest

from neuralpath.training import Terminated, train
from neuralpath.training.interrupts import Interrupts

NUMBERS = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def handlers_stay():
    """Whatever a test does, the handlers are those it found."""
    before = [signal.getsignal(number) for number in NUMBERS]
    yield
    after = [signal.getsignal(number) for number in NUMBERS]
    for number, handler in zip(NUMBERS, before, strict=True):
        signal.signal(number, handler)
    assert after == before


@pytest.mark.parametrize("number", NUMBERS)
def test_handlers_come_back(number, net, data, config, interrupt_at):
    before = [signal.getsignal(number) for number in NUMBERS]
    with pytest.raises((KeyboardInterrupt, Terminated), match="after step 4; no checkpoint was kept, as no `folder`"):
        train(net("fc"), *data, config, augment=interrupt_at(3, number))
    assert [signal.getsignal(number) for number in NUMBERS] == before
    train(net("fc"), *data, config)
    assert [signal.getsignal(number) for number in NUMBERS] == before


@pytest.mark.parametrize("number", NUMBERS)
def test_a_users_handler_gets_the_signal_after_the_run_is_saved(number, net, data, config, tmp_path, interrupt_at):
    seen = []
    before = signal.signal(number, lambda number, frame: seen.append((number, len(list(tmp_path.iterdir())))))
    try:
        with pytest.raises((KeyboardInterrupt, Terminated)):
            train(net("fc"), *data, config, folder=tmp_path, augment=interrupt_at(3, number))
    finally:
        signal.signal(number, before)
    assert seen == [(number, 2)]


def test_ignored_signals_stay_ignored(net, data, config, interrupt_at):
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        result = train(net("fc"), *data, config, augment=interrupt_at(3, signal.SIGTERM))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert result.n_steps == 21


def test_a_second_interrupt_stops_at_once():
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        assert interrupts.received == signal.SIGINT
        with pytest.raises(KeyboardInterrupt, match="at the second interrupt"):
            signal.raise_signal(signal.SIGINT)
