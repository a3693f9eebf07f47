import signal
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from neuralpath import nets
from neuralpath.data import Split
from neuralpath.training import TrainingConfig


def make_blobs(n: int, n_classes: int = 3, side: int = 4, seed: int = 0, dtype: torch.dtype = torch.float32) -> Split:
    """Images around one random image for each class: easy to learn, but not at once."""
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(n_classes, 1, side, side, generator=torch.Generator().manual_seed(99), dtype=dtype)
    labels = torch.randint(n_classes, (n,), generator=generator)
    return Split(centers[labels] + 1.5 * torch.randn(n, 1, side, side, generator=generator, dtype=dtype), labels)


def make_net(kind: str, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if kind == "fc":
            return nets.FC((1, 4, 4), 12, 3, 3)
        if kind == "dropout-and-batch-norm":
            return nn.Sequential(
                nn.Conv2d(1, 4, 3, padding=1),
                nn.BatchNorm2d(4),
                nn.ReLU(),
                nn.Dropout(0.3),
                nn.Flatten(),
                nn.Linear(64, 8),
                nn.BatchNorm1d(8),
                nn.ReLU(),
                nn.Dropout(0.5),
                nn.Linear(8, 3),
            )
        if kind == "tied":
            net = nn.Sequential(
                nn.Flatten(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)
            )
            net[3].weight = net[1].weight
            return net
    raise ValueError(kind)


class InterruptAt:
    """An augmentation that changes nothing but sends a signal to the process at one call, once."""

    def __init__(self, call: int, number: signal.Signals = signal.SIGINT) -> None:
        self.call = call
        self.number = number
        self.calls = 0

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        if self.calls == self.call:
            signal.raise_signal(self.number)
        self.calls += 1
        return images + 0.1 * torch.randn(images.shape, generator=generator, dtype=images.dtype)


def assert_same_state(one: nn.Module, two: nn.Module) -> None:
    """Equal bit for bit: NaN equals NaN, and 0 does not equal -0."""
    first, second = one.state_dict(), two.state_dict()
    assert list(first) == list(second)
    for name, tensor in first.items():
        ours, theirs = tensor.contiguous().view(-1), second[name].contiguous().view(-1)
        assert ours.numpy().tobytes() == theirs.numpy().tobytes(), name


@pytest.fixture(autouse=True)
def interrupts_arrive():
    """A shell lets what it starts in the background ignore Ctrl-C, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def blobs() -> Callable[..., Split]:
    return make_blobs


@pytest.fixture
def net() -> Callable[..., nn.Module]:
    return make_net


@pytest.fixture
def interrupt_at() -> type[InterruptAt]:
    return InterruptAt


@pytest.fixture
def same_state() -> Callable[[nn.Module, nn.Module], None]:
    return assert_same_state


@pytest.fixture
def config() -> TrainingConfig:
    """Three epochs of seven batches, the last of them smaller."""
    return TrainingConfig(epochs=3, batch_size=8, threads=1, evaluation_batch_size=16)


@pytest.fixture
def data() -> tuple[Split, Split]:
    return make_blobs(52), make_blobs(40, seed=1)
