"""The tangent kernel against explicit Jacobians and against neural-tangents; answers are compared before timing.

Jacobians by torch.func come in two forms: the usual one has two arguments and makes a Jacobian for each batch, also
where both are the same; the other makes one and uses it twice. Both are timed, in turn with ours.

python benchmarks/tangent_kernel.py                      # against torch.func
python benchmarks/tangent_kernel.py --neural-tangents P  # too; P is the python of an environment as in
                                                         # tests/reference/requirements.txt
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap
from torch.utils.flop_counter import FlopCounterMode

import measure
from neuralpath import nets
from neuralpath.kernels.tangent.tangent_kernel import tangent_kernel
from peers.process import Peer

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
    """The papers' convolutions with global average pooling, for color images of 32 x 32, one output."""
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


def multiplications(model: nn.Module, x: Tensor) -> int:
    """Of a forward and backward pass by the definition, which per-example gradients need as well."""
    with FlopCounterMode(display=False) as counter:
        forward_backward(model, x)
    return counter.get_total_flops() // 2


MATRIX = torch.ones(2048, 2048)


def matrix_product() -> None:
    """What the machine does at its best."""
    torch.mm(MATRIX, MATRIX)


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
            "matrix_product": matrix_product,
        },
        repeats,
    )
    memory, count = peaks(build, n), multiplications(model, x)
    row = {
        "network": build.__name__, "n": n, "relative_error": error,
        **{f"{name}_seconds": seconds for name, seconds in times.items()},
        "ratio_one_jacobian": times["one_jacobian"] / times["ours"],
        "ratio_two_jacobians": times["two_jacobians"] / times["ours"],
        "in_forward_backward_passes": times["ours"] / times["forward_backward"],
        "multiplications": count, "multiplications_per_second": len(MATRIX) ** 3 / times["matrix_product"],
        "peak_bytes": memory["tangent_kernel"], "jacobian_peak_bytes": memory["jacobian_contraction"],
    }  # fmt: skip
    print(
        f"{build.__name__} n={n}: {1e3 * times['ours']:.1f} ms against {1e3 * times['two_jacobians']:.1f} ms of "
        f"torch.func with two arguments, ratio {row['ratio_two_jacobians']:.2f}, and "
        f"{1e3 * times['one_jacobian']:.1f} ms with one Jacobian used twice, ratio "
        f"{row['ratio_one_jacobian']:.2f}; {row['in_forward_backward_passes']:.2f} "
        f"forward-backward passes; {count / 1e9:.1f}e9 multiplications by the definition, which take "
        f"{1e3 * count / row['multiplications_per_second']:.1f} ms at the speed of a large matrix product; peak "
        f"{row['peak_bytes'] / 2**20:.0f} MiB against {row['jacobian_peak_bytes'] / 2**20:.0f} MiB (one Jacobian); "
        f"relative error {error:.1e}"
    )
    return row


def against_neural_tangents(python: str, n: int, repeats: int) -> dict:
    """Both in turn, the peer in a process of its own environment that stays alive; the fastest calls count."""
    model, x = mlp(n)
    weights = {f"weight{k}": p.detach().T.numpy() for k, p in enumerate(model.parameters())}
    with Peer(python, "empirical", {"x": x.numpy(), **weights}, threads=torch.get_num_threads()) as peer:
        theirs = torch.from_numpy(peer.kernels()["tangent"])
        error = float((tangent_kernel(model, x) - theirs).abs().max() / theirs.abs().max())
        assert error < 1e-4, f"the kernels differ by {error:.1e}"
        best = best_theirs = float("inf")
        for _ in range(repeats):
            begun = time.perf_counter()
            tangent_kernel(model, x)
            best = min(best, time.perf_counter() - begun)
            best_theirs = min(best_theirs, peer.seconds())
    ours_peak = peaks(mlp, n, ("tangent_kernel",))["tangent_kernel"]
    row = {
        "network": "mlp", "n": n, "relative_difference": error, "ours_seconds": best,
        "neural_tangents_seconds": best_theirs, "ratio": best_theirs / best,
        "peak_bytes": ours_peak, "neural_tangents_peak_bytes": peer.peak_memory, **peer.versions,
    }  # fmt: skip
    print(
        f"mlp n={n}: {1e3 * best:.1f} ms against {1e3 * best_theirs:.1f} ms of neural-tangents, ratio "
        f"{row['ratio']:.2f}; peak {ours_peak / 2**20:.0f} MiB against {peer.peak_memory / 2**20:.0f} MiB; relative "
        f"difference {error:.1e}"
    )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neural-tangents", metavar="PYTHON", help="python of an environment with neural-tangents")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    measure.set_threads(arguments.threads)
    results = {"mlp": against_jacobians(mlp, 256, 3), "gconv": against_jacobians(gconv, 32, REPEATS)}
    if arguments.neural_tangents:
        results["neural_tangents"] = against_neural_tangents(arguments.neural_tangents, 512, 30)
    measure.save("tangent_kernel", results)


if __name__ == "__main__":
    main()
