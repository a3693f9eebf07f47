"""Kernels of infinite width against neural-tangents, in one run; answers are compared before they are timed.

python benchmarks/limit_kernel.py --neural-tangents PYTHON   # PYTHON is that of an environment as in
                                                             # tests/reference/requirements.txt

Dense: 784 inputs, n = 2000, six layers of weights. Images: four convolutions of 3 x 3 with ReLUs, global average
pooling, one dense layer; 3 channels of 16 x 16 and of 32 x 32. All in single precision, symmetric, with the same inputs
for both, whose calls take turns. The peer has the batch size that suits it best, found first, and only the upper half
of its tiles to compute.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import measure
import neuralpath as npath
from neuralpath.kernels.limit.fused_chains import ConvolutionStep, DenseStep, LimitChain
from neuralpath.kernels.limit.fused_kernels import TANGENT, dense_kernel, fused_image_kernels, prepare_images
from peers.process import RECIPE, Peer

DEPTH, LAYERS = 6, 4


def dense_network() -> nn.Module:
    return npath.nets.FC(784, 8, DEPTH)


def image_network() -> nn.Module:
    layers: list[nn.Module] = []
    for channels in (3, *[4] * (LAYERS - 1)):
        layers += [nn.Conv2d(channels, 4, 3, padding=1, bias=False), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1, bias=False))


OUTPUT = DenseStep(2.0, slope=None)


def dense_loops(x: Tensor) -> Tensor:
    """The fused kernel alone, without plan, estimate and tiles."""
    return dense_kernel([DenseStep(1.0), *[DenseStep(2.0)] * (DEPTH - 2), OUTPUT], TANGENT, x)


def image_loops(x: Tensor) -> Tensor:
    same = {"before": (1, 1), "after": (1, 1)}
    steps = [ConvolutionStep((3, 3), 2.0 if index else 1.0, **same) for index in range(LAYERS)]
    return fused_image_kernels(prepare_images(LimitChain(tuple(steps), True, (OUTPUT,)), x)).tangent


@dataclass(frozen=True)
class Case:
    """A network, its inputs, what the peer is to do, and the batch sizes that it may take (0: all at once)."""

    what: str
    build: Callable[[], nn.Module]
    loops: Callable[[Tensor], Tensor]
    shape: tuple[int, ...]
    batches: tuple[int, ...]
    repeats: int
    options: dict[str, int] = field(default_factory=dict)

    def peer(self, python: str, x: Tensor, **options: object) -> Peer:
        """The peer at work on this case, with as many threads as this process."""
        return Peer(python, self.what, {"x": x.numpy()}, threads=torch.get_num_threads(), **self.options, **options)


DENSE = Case("limit-dense", dense_network, dense_loops, (2000, 784), (0, 250, 500, 1000), 15, {"depth": DEPTH})
IMAGES = (
    Case("limit-images", image_network, image_loops, (12, 3, 16, 16), (0, 2, 4, 6), 5, {"layers": LAYERS}),
    Case("limit-images", image_network, image_loops, (4, 3, 32, 32), (0, 1, 2), 3, {"layers": LAYERS}),
)


def inputs(shape: Sequence[int]) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)) / shape[1] ** 0.5


def difference(ours: Tensor, theirs: np.ndarray) -> float:
    """The largest, relative to the largest entry."""
    other = torch.from_numpy(theirs).double()
    return ((ours.double() - other).abs().max() / other.abs().max()).item()


def check(python: str, case: Case, x: Tensor) -> float:
    """Compare both kernels of a few examples in double precision."""
    few = x[:4].double()
    graph = npath.trace(case.build().double(), few[:1])
    with case.peer(python, few, dtype="float64") as peer:
        found = peer.kernels()
    worst = max(
        difference(npath.limit_output_kernel(graph, few), found["output"]),
        difference(npath.limit_tangent_kernel(graph, few), found["tangent"]),
    )
    assert worst < 1e-6, f"{case.what}: the kernels differ by {worst:.1e} in double precision"
    return worst


def seconds_by_batch(python: str, case: Case, x: Tensor) -> dict[int, float]:
    found = {}
    for batch in case.batches:
        with case.peer(python, x, batch=batch) as peer:
            found[batch] = peer.seconds()
    return found


MEMORY = """
import sys
sys.path.insert(0, {folder!r})
import limit_kernel as benchmark, measure
measure.set_threads({threads})
x = benchmark.inputs({shape})
graph = npath.trace(benchmark.{build}(), x[:1])
npath.limit_tangent_kernel(graph, x[:2])
"""


def own_memory(case: Case) -> int:
    setup = MEMORY.format(
        folder=str(measure.RESULTS.parent), threads=torch.get_num_threads(), shape=case.shape, build=case.build.__name__
    )
    return measure.peak_memory(setup, "npath.limit_tangent_kernel(graph, x)")


def compare(python: str, case: Case) -> dict[str, Any]:
    x = inputs(case.shape)
    graph = npath.trace(case.build(), x[:1])
    double = check(python, case, x)
    tried = seconds_by_batch(python, case, x)
    batch = min(tried, key=lambda size: tried[size])
    ours = theirs = loops = float("inf")
    with case.peer(python, x, batch=batch) as peer:
        answer = peer.kernels()["tangent"]
        single = max(difference(k, answer) for k in (npath.limit_tangent_kernel(graph, x), case.loops(x)))
        # An angle is the root of a small difference, which the peer rounds to single precision in each layer.
        assert single < 2e-3, f"{case.what}: the kernels differ by {single:.1e} in single precision"
        for _ in range(case.repeats):
            begun = time.perf_counter()
            npath.limit_tangent_kernel(graph, x)
            ours = min(ours, time.perf_counter() - begun)
            theirs = min(theirs, peer.seconds())
            begun = time.perf_counter()
            case.loops(x)
            loops = min(loops, time.perf_counter() - begun)
    n = case.shape[0]
    row = {
        "what": case.what, "shape": list(case.shape), "difference_double": double, "difference_single": single,
        "seconds": ours, "peer_seconds": theirs, "ratio": theirs / ours, "loops_seconds": loops,
        "loops_ratio": theirs / loops, "seconds_per_entry": ours / n**2,
        "peer_seconds_per_entry": theirs / n**2, "peer_batch": batch or n,
        "peer_seconds_by_batch": {str(size or n): seconds for size, seconds in tried.items()},
        "peak_bytes": own_memory(case), "peer_peak_bytes": peer.peak_memory, **peer.versions,
    }  # fmt: skip
    print(
        f"{case.what} {' x '.join(map(str, case.shape))}: {1e3 * ours:.1f} ms against {1e3 * theirs:.1f} ms, ratio "
        f"{theirs / ours:.1f} (loops alone {1e3 * loops:.1f} ms, ratio {theirs / loops:.1f}; the peer's best batch "
        f"{row['peer_batch']}); {1e6 * ours / n**2:.3g} us an entry "
        f"against {1e6 * theirs / n**2:.3g} us; peak {row['peak_bytes'] / 2**20:.1f} MiB against "
        f"{row['peer_peak_bytes'] / 2**20:.1f} MiB; differences {double:.1e} (double), {single:.1e} (single)",
        flush=True,
    )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neural-tangents", metavar="PYTHON", help="python of an environment with neural-tangents")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    python = arguments.neural_tangents
    if not python:
        parser.error(f"--neural-tangents is needed.\n{RECIPE}")
    measure.set_threads(arguments.threads)
    results = {"dense": compare(python, DENSE), "images": [compare(python, case) for case in IMAGES]}
    measure.save("limit_kernel", results)


if __name__ == "__main__":
    main()
