"""The path kernel against the way of floating-point matrix products; answers are compared before they are timed.

python benchmarks/path_kernel.py            # everything but the full MNIST kernel
python benchmarks/path_kernel.py --mnist DIR   # n = 60,000 too, with MNIST in DIR
"""

import argparse
import math
import time

import numpy as np
import torch
from numba import prange

import measure
import neuralpath as npath
from neuralpath._loops.compiled import compiled
from neuralpath._loops.dense import PackedLayers, multiply_by_overlaps
from neuralpath._loops.instructions import popcount

DENSE = [(128, 6), (256, 10), (1024, 6)]
N_DENSE = 8192


@compiled(parallel=True)
def _popcounts(words, repeats, totals):
    for thread in prange(totals.shape[0]):
        total = np.uint64(0)
        for repeat in range(repeats):
            for i in range(words.shape[0]):
                total += popcount(words[i] & (words[i] + np.uint64(repeat)))
        totals[thread] = total


def popcount_peak(threads: int) -> float:
    """Population counts of 64-bit words a second, from the first-level cache, on all threads."""
    words = np.random.default_rng(0).integers(0, 2**63, 2048, dtype=np.uint64)
    totals, repeats = np.zeros(threads, np.uint64), 20_000
    return threads * repeats * len(words) / measure.best_time(lambda: _popcounts(words, repeats, totals))


def by_products(layers, gram=None):
    """The usual way: a matrix product for each layer, multiplied together."""
    kernel = gram
    for layer in layers:
        overlap = layer @ layer.T
        kernel = overlap if kernel is None else kernel.mul_(overlap)
    return kernel


def dense(width: int, depth: int, peak: float) -> dict:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N_DENSE, 784, generator=generator)
    model = npath.nets.FC(784, width, depth, init=npath.nets.Gaussian(), generator=generator)
    graph = npath.trace(model, x[:1])
    gates = graph.gates(x)
    layers = [layer.float() for layer in gates.layers.values()]
    packed = PackedLayers.of(tuple(gates.layers.values()))
    tiles = packed.tiles(0, N_DENSE)
    scales = [1.0 / width] * len(layers)
    ones = torch.ones(N_DENSE, N_DENSE)

    def bits():
        ones.fill_(1.0)
        multiply_by_overlaps(ones, packed, 0, tiles, scales, skip_below=0)
        return ones

    exact = [(layer[:64].double() @ layer.double().T) / width for layer in layers]
    upper = torch.triu(torch.ones(64, N_DENSE, dtype=torch.bool))
    torch.testing.assert_close(bits()[:64][upper].double(), math.prod(exact)[upper], rtol=1e-6, atol=0)
    whole = npath.path_kernel(graph, x, gates1=gates)
    expected = (x[:64].double() @ x.double().T) * math.prod(exact) * float(width) ** len(layers)
    assert (whole[:64].double() - expected).abs().max() <= 1e-5 * expected.abs().max()
    fill = measure.best_time(lambda: ones.fill_(1.0))
    ours, theirs = measure.best_time(bits) - fill, measure.best_time(lambda: by_products(layers))
    whole_ours = measure.best_time(lambda: npath.path_kernel(graph, x, gates1=gates))
    whole_theirs = measure.best_time(lambda: by_products(layers, x @ x.T))
    counts = N_DENSE * (N_DENSE + 1) / 2 * packed.rows.shape[1]
    row = {
        "width": width, "depth": depth, "n": N_DENSE,
        "gates_seconds": ours, "gates_products_seconds": theirs, "gates_ratio": theirs / ours,
        "call_seconds": whole_ours, "call_products_seconds": whole_theirs, "call_ratio": whole_theirs / whole_ours,
        "share_of_popcount_peak": counts / ours / peak,
    }  # fmt: skip
    print(
        f"dense w={width} d={depth} n={N_DENSE}: gates {ours:.3f} s against {theirs:.3f} s, ratio {theirs / ours:.1f}; "
        f"whole call {whole_ours:.2f} s against {whole_theirs:.2f} s, ratio {whole_theirs / whole_ours:.1f}; "
        f"{counts / ours / peak:.0%} of the population count peak"
    )
    return row


def by_einsum(x1, gates1, x2, gates2):
    """A network of 3x3 convolutions with global average pooling and dense layers, for one pair of images."""
    height, width = x1.shape[1:]
    pair = torch.einsum("ci,cj->ij", x1.flatten(1), x2.flatten(1))
    for one, two in zip(gates1, gates2, strict=True):
        if one.ndim == 1:
            pair = pair.mean() if pair.ndim else pair
            pair = pair * (one @ two)
            continue
        padded = torch.nn.functional.pad(pair.reshape(height, width, height, width), (1, 1) * 4)
        pair = sum(
            padded[dy : dy + height, dx : dx + width, dy : dy + height, dx : dx + width]
            for dy in range(3)
            for dx in range(3)
        ).reshape(height * width, height * width)
        overlap = torch.einsum("ci,cj->ij", one.flatten(1), two.flatten(1))
        pair = pair * overlap
    return pair


def convolution(n: int = 12) -> dict:
    generator = torch.Generator().manual_seed(0)
    model = npath.nets.GCONV((3, 32, 32), 10, generator=generator)
    x = torch.rand(n, 3, 32, 32, generator=generator)
    graph = npath.trace(model, x[:1])
    gates = graph.gates(x)

    def einsum_pair(i: int, j: int) -> torch.Tensor:
        return by_einsum(
            x[i], [g[i].float() for g in gates.layers.values()], x[j], [g[j].float() for g in gates.layers.values()]
        )

    kernel = npath.path_kernel(graph, x)
    for i, j in ((0, 0), (0, 1), (2, 5)):
        torch.testing.assert_close(kernel[i, j], einsum_pair(i, j), rtol=1e-4, atol=0)
    pairs = n * (n + 1) // 2
    ours = measure.best_time(lambda: npath.path_kernel(graph, x, gates1=gates)) / pairs  # theirs has the gates too
    with_gates = measure.best_time(lambda: npath.path_kernel(graph, x)) / pairs
    theirs = measure.best_time(lambda: [einsum_pair(0, j) for j in range(4)]) / 4
    print(
        f"GCONV 32x32, {n} images: {1e3 * ours:.2f} ms a pair against {1e3 * theirs:.1f} ms, "
        f"ratio {theirs / ours:.1f}; with the network's pass that finds the gates {1e3 * with_gates:.2f} ms"
    )
    return {
        "images": n, "seconds_per_pair": ours, "seconds_per_pair_with_gates": with_gates,
        "einsum_seconds_per_pair": theirs, "ratio": theirs / ours,
    }  # fmt: skip


def exponent(sizes: list[int], values: list[float]) -> float:
    """Slope of the logarithms: how a cost grows with n."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def growth() -> dict:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(16384, 784, generator=generator)
    graph = npath.trace(npath.nets.FC(784, 128, 6, generator=generator), x[:1])
    sizes = [2048, 4096, 8192, 16384]
    times = [measure.best_time(lambda n=n: npath.path_kernel(graph, x[:n]), repeats=2) for n in sizes]
    sketches = [
        measure.best_time(
            lambda n=n: npath.path_sketch(graph, x[:n], 64, generator=torch.Generator().manual_seed(0)), repeats=2
        )
        for n in sizes
    ]
    result = {
        "n": sizes, "kernel_seconds": times, "kernel_exponent": exponent(sizes, times),
        "sketch_seconds": sketches, "sketch_exponent": exponent(sizes, sketches),
    }  # fmt: skip
    print(
        f"growth with n: kernel n^{result['kernel_exponent']:.2f}, sketch of 64 features "
        f"n^{result['sketch_exponent']:.2f} (n = {sizes[0]} to {sizes[-1]})"
    )
    return result


MEMORY = {
    "dense chain, 20,000 x 784, tiles": """
x = torch.rand(20000, 784)
graph = npath.trace(npath.nets.FC(784, 128, 6), x[:1])
kernel = npath.PathKernel(graph)
""",
    "image chain, GCONV 32x32, 64 images": """
x = torch.rand(64, 3, 32, 32)
graph = npath.trace(npath.nets.GCONV((3, 32, 32), 10), x[:1])
kernel = npath.PathKernel(graph)
""",
    "any graph, GCONV 32x32 with biases, 8 images": """
conv = lambda i, o: torch.nn.Sequential(torch.nn.Conv2d(i, o, 3, padding=1), torch.nn.ReLU())
head = [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 10)]
x = torch.rand(8, 3, 32, 32)
graph = npath.trace(torch.nn.Sequential(conv(3, 64), conv(64, 64), conv(64, 64), *head), x[:1])
kernel = npath.ExpectedTangentKernel(graph)
""",
}
MEMORY_WARM_UP = "for _ in kernel.tiles(x[:2]): pass"


def memory() -> dict:
    """Peak memory of each way to compute a kernel, the result not held, against the budget."""
    rows = []
    for what, setup in MEMORY.items():
        for budget in (2**27, 2**28):
            work = f"for _ in kernel.tiles(x, memory={budget}): pass"
            used = measure.peak_memory(setup + MEMORY_WARM_UP, work)
            rows.append({"what": what, "budget": budget, "peak": used})
            print(f"{what}: budget {budget / 2**20:.0f} MiB, peak {used / 2**20:.0f} MiB")
    return {"rows": rows}


def mnist(folder: str, budget: int = 8 * 2**30) -> dict:
    """The kernel of the whole training set, streamed through tiles and reduced to its trace and mean."""
    x = npath.data.load("mnist", data_dir=folder).train.images
    generator = torch.Generator().manual_seed(0)
    graph = npath.trace(npath.nets.FC((1, 28, 28), 128, 6, generator=generator), x[:1])
    begun = time.perf_counter()
    trace = total = 0.0
    for tile, values in npath.PathKernel(graph, normalize=True).tiles(x, memory=budget):
        same = tile.rows == tile.columns
        trace += values.diagonal().double().sum().item() if same else 0.0
        total += values.double().sum().item() * (1 if same else 2)
    seconds = time.perf_counter() - begun
    probe = npath.path_kernel(graph, x[:100], normalize=True)
    assert trace > 100 * probe.diagonal().min()
    print(f"MNIST n={len(x):,}, w=128, d=6: {seconds:.1f} s for {len(x) ** 2:,} entries within 8 GiB")
    return {"n": len(x), "seconds": seconds, "trace": trace, "mean": total / len(x) ** 2, "budget": budget}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mnist", metavar="DIR", help="folder with MNIST: run n = 60,000 too")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    measure.set_threads(arguments.threads)
    peak = popcount_peak(arguments.threads)
    print(f"population count peak: {peak / 1e9:.1f} billion words a second on {arguments.threads} threads")
    results = {
        "popcount_peak": peak,
        "dense": [dense(width, depth, peak) for width, depth in DENSE],
        "convolution": convolution(),
        "growth": growth(),
        "memory": memory(),
    }
    if arguments.mnist:
        results["mnist"] = mnist(arguments.mnist)
    measure.save("path_kernel", results)


if __name__ == "__main__":
    main()
