"""The tangent kernel against explicit Jacobians and against neural-tangents; answers are compared before timing.

python benchmarks/tangent_kernel.py                      # against torch.func
python benchmarks/tangent_kernel.py --neural-tangents P  # too; P is the python of an environment as in
                                                         # tests/reference/requirements.txt
"""

import argparse
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

import measure
from neuralpath import nets
from neuralpath.tangent.kernel import tangent_kernel

REPEATS = 7


def jacobian_contraction(model: nn.Module, x1: Tensor, x2: Tensor | None = None) -> Tensor:
    """The usual way with torch.func: a Jacobian for each batch, then one product for each parameter."""
    params = {name: p.detach() for name, p in model.named_parameters()}

    def jacobian(x: Tensor) -> list[Tensor]:
        found = vmap(jacrev(lambda given, one: functional_call(model, given, (one[None],))[0]), (None, 0))(params, x)
        return [entry.flatten(2) for entry in found.values()]

    one = jacobian(x1)
    two = one if x2 is None else jacobian(x2)
    kernel = sum(torch.einsum("naf,mbf->nmab", a, b) for a, b in zip(one, two, strict=True))
    return kernel.diagonal(dim1=2, dim2=3).mean(-1)


def mlp(n: int) -> tuple[nn.Module, Tensor]:
    """784 inputs, width 512, four layers of weights, one output."""
    generator = torch.Generator().manual_seed(0)
    model = nets.FC(784, 512, 4, 1, init=nets.Gaussian(), generator=generator)
    return model, torch.randn(n, 784, generator=generator)


def gconv(n: int) -> tuple[nn.Module, Tensor]:
    """The papers' convolutions with global average pooling, for colour images of 32 x 32, one output."""
    generator = torch.Generator().manual_seed(0)
    model = nets.GCONV((3, 32, 32), 1, generator=generator)
    return model, torch.rand(n, 3, 32, 32, generator=generator)


def interleaved(ways: dict[str, Callable[[], object]], repeats: int = REPEATS) -> dict[str, float]:
    """Seconds of the fastest call of each, called in turn, after one call that warms up."""
    best = {}
    for name, way in ways.items():
        way()
        best[name] = float("inf")
    for _ in range(repeats):
        for name, way in ways.items():
            begun = time.perf_counter()
            way()
            best[name] = min(best[name], time.perf_counter() - begun)
    return best


def check(model: nn.Module, x: Tensor) -> float:
    """Compare with the Jacobians of some examples in float64, and return the relative error."""
    exact = jacobian_contraction(model.double(), x[:8].double())
    found = tangent_kernel(model.float(), x)[:8, :8].double()
    error = float((found - exact).abs().max() / exact.abs().max())
    assert error < 1e-4, f"the kernels differ by {error:.1e}"
    return error


def forward_backward(model: nn.Module, x: Tensor) -> None:
    torch.autograd.grad(model(x).sum(), list(model.parameters()))


PEAK = """
import sys
sys.path.insert(0, {folder!r})
import tangent_kernel as benchmark
torch.set_num_threads({threads})
model, x = benchmark.{build}({n})
benchmark.{way}(model, x[:2])
"""


WAYS = ("tangent_kernel", "jacobian_contraction")


def peaks(build: Callable[[int], tuple[nn.Module, Tensor]], n: int, ways: tuple[str, ...] = WAYS) -> dict[str, int]:
    """Bytes that each way takes at its peak, in a process of its own."""
    found = {}
    for way in ways:
        setup = PEAK.format(
            folder=str(Path(__file__).parent), threads=torch.get_num_threads(), build=build.__name__, n=n, way=way
        )
        found[way] = measure.peak_memory(setup, f"benchmark.{way}(model, x)")
    return found


def against_jacobians(build: Callable[[int], tuple[nn.Module, Tensor]], n: int, repeats: int) -> dict:
    model, x = build(n)
    error = check(model, x)
    times = interleaved(
        {
            "ours": lambda: tangent_kernel(model, x),
            "one_jacobian": lambda: jacobian_contraction(model, x),
            "two_jacobians": lambda: jacobian_contraction(model, x, x),
            "forward_backward": lambda: forward_backward(model, x),
        },
        repeats,
    )
    memory = peaks(build, n)
    row = {
        "network": build.__name__, "n": n, "relative_error": error,
        **{f"{name}_seconds": seconds for name, seconds in times.items()},
        "ratio_one_jacobian": times["one_jacobian"] / times["ours"],
        "ratio_two_jacobians": times["two_jacobians"] / times["ours"],
        "in_forward_backward_passes": times["ours"] / times["forward_backward"],
        "peak_bytes": memory["tangent_kernel"], "jacobian_peak_bytes": memory["jacobian_contraction"],
    }  # fmt: skip
    print(
        f"{build.__name__} n={n}: {1e3 * times['ours']:.1f} ms against {1e3 * times['one_jacobian']:.1f} ms with one "
        f"Jacobian, ratio {row['ratio_one_jacobian']:.2f} ({row['ratio_two_jacobians']:.2f} with one for each batch); "
        f"{row['in_forward_backward_passes']:.2f} forward-backward passes; peak {row['peak_bytes'] / 2**20:.0f} MiB "
        f"against {row['jacobian_peak_bytes'] / 2**20:.0f} MiB; relative error {error:.1e}"
    )
    return row


PEER = """
import sys, time, types

# neural_tangents imports its `experimental` module, which needs TensorFlow and is not used here.
sys.modules["neural_tangents.experimental"] = types.ModuleType("neural_tangents.experimental")
import jax
import neural_tangents as nt
import numpy as np

folder = sys.argv[1]
given = np.load(folder + "/given.npz")
x = jax.numpy.asarray(given["x"])
params = [jax.numpy.asarray(given[f"weight{k}"]) for k in range(len(given.files) - 1)]

def network(params, x):
    for weight in params[:-1]:
        x = jax.nn.relu(x @ weight)
    return x @ params[-1]

implementation = nt.NtkImplementation.STRUCTURED_DERIVATIVES
kernel = jax.jit(nt.empirical_ntk_fn(network, trace_axes=(-1,), vmap_axes=0, implementation=implementation))

def peak():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

before = peak()
np.save(folder + "/kernel.npy", np.asarray(kernel(x, None, params)))
for line in sys.stdin:
    begun = time.perf_counter()
    kernel(x, None, params).block_until_ready()
    print(time.perf_counter() - begun, peak() - before, nt.__version__, jax.__version__, flush=True)
"""
"""neural-tangents' empirical kernel of a bias-free ReLU network: one call for each line that it reads."""


def against_neural_tangents(python: str, n: int, repeats: int) -> dict:
    """Both in turn, the peer in a process of its own environment that stays alive; the fastest calls count."""
    model, x = mlp(n)
    with tempfile.TemporaryDirectory() as folder:
        weights = {f"weight{k}": p.detach().T.numpy() for k, p in enumerate(model.parameters())}
        np.savez(f"{folder}/given.npz", x=x.numpy(), **weights)
        with subprocess.Popen(
            [python, "-c", PEER, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as peer:
            assert peer.stdin is not None
            assert peer.stdout is not None

            def call() -> list[str]:
                peer.stdin.write("again\n")
                peer.stdin.flush()
                return peer.stdout.readline().split()

            seconds, memory, version, jax = call()
            theirs = torch.from_numpy(np.load(f"{folder}/kernel.npy"))
            ours = tangent_kernel(model, x)
            error = float((ours - theirs).abs().max() / theirs.abs().max())
            assert error < 1e-4, f"the kernels differ by {error:.1e}"
            best, best_theirs = float("inf"), float(seconds)
            for _ in range(repeats):
                begun = time.perf_counter()
                tangent_kernel(model, x)
                best = min(best, time.perf_counter() - begun)
                best_theirs = min(best_theirs, float(call()[0]))
            peer.stdin.close()
    ours_peak = peaks(mlp, n, ("tangent_kernel",))["tangent_kernel"]
    row = {
        "network": "mlp", "n": n, "relative_difference": error, "neural_tangents": version, "jax": jax,
        "ours_seconds": best, "neural_tangents_seconds": best_theirs, "ratio": best_theirs / best,
        "peak_bytes": ours_peak, "neural_tangents_peak_bytes": int(memory),
    }  # fmt: skip
    print(
        f"mlp n={n}: {1e3 * best:.1f} ms against {1e3 * best_theirs:.1f} ms of neural-tangents, ratio "
        f"{row['ratio']:.2f}; peak {ours_peak / 2**20:.0f} MiB against {int(memory) / 2**20:.0f} MiB (with its "
        f"compiler); relative difference {error:.1e}"
    )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neural-tangents", metavar="PYTHON", help="python of an environment with neural-tangents")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    measure.set_threads(arguments.threads)
    results = {
        "mlp": against_jacobians(mlp, 256, 3),
        "gconv": against_jacobians(gconv, 32, REPEATS),
    }
    if arguments.neural_tangents:
        results["neural_tangents"] = against_neural_tangents(arguments.neural_tangents, 512, 30)
    measure.save("tangent_kernel", results)


if __name__ == "__main__":
    main()
