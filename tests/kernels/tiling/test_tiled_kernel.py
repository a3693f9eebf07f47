"""Estimates before the work, announcements of long work, and kernels put together from tiles."""

import logging
import math

import pytest
import torch

from neuralpath.kernels.tiling import estimate as estimates, tiled_kernel as kernels
from neuralpath.kernels.tiling.plan import Cost, Tile, make_plan
from neuralpath.kernels.tiling.tiled_kernel import TiledKernel


class Clock:
    """Time that passes only by work: so much at the first call, and so much for each pair."""

    def __init__(self, first: float, per_pair: float) -> None:
        self.now, self.first, self.per_pair, self.pairs = 0.0, first, per_pair, 0

    def work(self, tile: Tile) -> torch.Tensor:
        self.now += math.prod(tile.shape) * self.per_pair + self.first
        self.first, self.pairs = 0.0, self.pairs + math.prod(tile.shape)
        rows, columns = (torch.arange(s.start, s.stop, dtype=torch.float64) for s in (tile.rows, tile.columns))
        return rows[:, None] + columns[None, :] ** 2


@pytest.fixture
def kernel_of(monkeypatch):
    def build(n: int, first: float, per_pair: float, *, best: int = 64, symmetric: bool = True):
        clock = Clock(first, per_pair)
        monkeypatch.setattr(estimates.time, "perf_counter", lambda: clock.now)
        plan = make_plan(n, n, Cost(8, 0, best), 10**6, symmetric=symmetric, kept_bytes=100)
        return TiledKernel("test kernel", plan, clock.work, torch.float64, torch.device("cpu")), clock

    return build


@pytest.mark.parametrize(("n", "per_pair"), [(1, 1.0), (3, 1e-9), (50, 1e-3), (500, 0.1)])
def test_an_estimate_leaves_compilation_out(kernel_of, n, per_pair):
    kernel, _ = kernel_of(n, 30.0, per_pair)
    estimate = kernel.estimate()
    assert estimate.seconds == pytest.approx(per_pair * n * (n + 1) / 2)
    assert estimate.result_bytes == 8 * n * n
    assert estimate.tile_bytes == kernel.plan.tile_bytes + 100


class SlowCalls(Clock):
    """Each call costs something, the first of each shape compiles, and many pairs at once leave the caches."""

    def __init__(self, call: float, per_pair: float, *, compiling: float, cached: float = 1.0) -> None:
        super().__init__(0.0, per_pair)
        self.call, self.compiling, self.cached = call, compiling, cached
        self.seen: set[tuple[int, int]] = set()

    def work(self, tile: Tile) -> torch.Tensor:
        self.now += self.call + (0.0 if tile.shape in self.seen else self.compiling)
        if math.prod(tile.shape) < 4:
            self.now -= (1 - self.cached) * math.prod(tile.shape) * self.per_pair
        self.seen.add(tile.shape)
        return super().work(tile)


@pytest.mark.parametrize(
    ("n", "side", "call", "per_pair", "cached"),
    [
        (120, 32, 0.6, 2e-3, 1.0),  # a chain of convolutions whose calls are slow: once 73 minutes for 15 seconds
        (40, 4, 0.005, 0.03, 0.3),  # pairs one by one are three times as fast as many: once 8 seconds for 30
        (300, 4, 0.3, 0.03, 0.3),
        (5000, 256, 0.02, 1e-6, 1.0),
    ],
)
def test_slow_calls_compilation_and_caches_are_told_apart(n, side, call, per_pair, cached, monkeypatch):
    clock = SlowCalls(call, per_pair, compiling=2.0, cached=cached)
    monkeypatch.setattr(estimates.time, "perf_counter", lambda: clock.now)
    plan = make_plan(n, n, Cost(8, 0, side**2), 10**6, symmetric=True)
    kernel = TiledKernel("test kernel", plan, clock.work, torch.float64, torch.device("cpu"))
    found = kernel.estimate().seconds
    sampled = clock.now - 2.0 * len(clock.seen)
    clock.now = 0.0
    for _ in kernel:
        pass
    assert clock.now / 2 < found < 2 * clock.now
    assert sampled < 12 * call + 4


def test_a_sample_is_small_beside_the_work(kernel_of):
    kernel, clock = kernel_of(1000, 1.0, 1e-5, best=10**6)
    kernel.estimate()
    assert clock.pairs < 0.01 * kernel.plan.n_pairs
    kernel, clock = kernel_of(1000, 1.0, 1e-2, best=10**6)  # an hour and a half: worth a longer look
    kernel.estimate()
    assert 0.2 < clock.pairs * 1e-2 < 2


def test_long_work_is_announced_and_short_work_is_not(kernel_of, caplog, capsys):
    with caplog.at_level(logging.INFO, "neuralpath"):
        kernel_of(20, 1.0, 1e-4)[0].filled(progress=False)
        assert not caplog.records
        kernel_of(20, 1.0, 0.5)[0].filled(progress=False)
    assert [record.message for record in caplog.records] == [
        "test kernel: about 105 s, 612 bytes for the work and 3.1 KiB for the result"
    ]
    assert capsys.readouterr().err == ""
    kernel_of(20, 1.0, 0.5)[0].filled(progress=True)
    assert "test kernel: about 105 s" in capsys.readouterr().err


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_whole_is_made_of_its_tiles(kernel_of, symmetric):
    kernel, _ = kernel_of(20, 0.0, 0.0, best=9, symmetric=symmetric)
    index = torch.arange(20, dtype=torch.float64)
    expected = index[:, None] + index[None, :] ** 2
    if symmetric:
        expected = torch.triu(expected) + torch.triu(expected, 1).T
    assert torch.equal(kernel.filled(), expected)
    assert torch.equal(kernel.times(3.0).filled(), 3 * expected)


def test_a_result_beyond_memory_is_refused_before_the_work(kernel_of, monkeypatch):
    kernel, clock = kernel_of(100, 0.0, 1.0)
    monkeypatch.setattr(kernels, "available_memory", lambda: 50_000)
    with pytest.raises(MemoryError, match=r"100 x 100 examples takes 78.1 KiB, more than the 48.8 KiB .*path_sketch"):
        kernel.filled()
    assert clock.pairs == 0
