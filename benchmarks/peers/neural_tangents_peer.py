"""neural-tangents as a peer: it runs in an environment of its own, and does as it is told line by line.

    PYTHON neural_tangents_peer.py limit-dense --given FILE --depth 6
    PYTHON neural_tangents_peer.py limit-images --given FILE --layers 4
    PYTHON neural_tangents_peer.py empirical --given FILE

PYTHON is that of an environment as in tests/reference/requirements.txt. FILE is an .npz with the inputs ``x`` (images
as batch, channel, y, x) and, for ``empirical``, ``weight0``, ``weight1``, … of a bias-free ReLU network, each (inputs,
outputs). It compiles, makes one call, and prints a line of JSON: versions, and the bytes that this call took at its
peak, beyond what the process held after compilation. Then it answers each line that it reads by one of JSON:

    time         seconds of one call
    answer FILE  writes the kernel: ``tangent`` and, for limits, ``output``

Limits are in the parametrization of tests/reference/cases.py: gain 1 in the first layer and 2 in all others.
"""

# ruff: noqa: E402
import argparse
import json
import math
import os
import sys
import time
import types
from collections.abc import Callable
from typing import Any, NamedTuple

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("what", choices=["limit-dense", "limit-images", "empirical"])
parser.add_argument("--given", required=True)
parser.add_argument("--depth", type=int, help="dense layers")
parser.add_argument("--layers", type=int, help="convolutions of 3 x 3, before pooling and a dense layer")
parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
parser.add_argument("--batch", type=int, default=0, help="rows and columns that are computed at once; 0: all")
parser.add_argument("--threads", type=int, default=2)
arguments = parser.parse_args()

# The thread pool of jax has a thread for each processor that the process may use when it is first imported.
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.threads])
# neural_tangents imports its `experimental` module, which needs TensorFlow and is not used here: a stub comes first.
sys.modules["neural_tangents.experimental"] = types.ModuleType("neural_tangents.experimental")

import jax
import neural_tangents as nt
import numpy as np
from neural_tangents import stax

jax.config.update("jax_enable_x64", arguments.dtype == "float64")

Kernels = dict[str, Any]


class Work(NamedTuple):
    """The call that is timed, compiled already, and one for all that is compared."""

    timed: Callable[[], Kernels]
    everything: Callable[[], Kernels]


def compiled(function: Callable[..., Kernels], *arrays: np.ndarray) -> Callable[..., Kernels]:
    """Compile without a call, so that the first call's memory is the call's alone."""
    return jax.jit(function).lower(*arrays).compile()


def limit(layers: list, x: np.ndarray) -> Work:
    """The kernels of a network of infinite width."""
    _, _, kernel_fn = stax.serial(*layers)

    def make(names: tuple[str, ...]) -> Callable[[], Kernels]:
        if not arguments.batch:
            whole = compiled(lambda a: kernel_fn(a, None, names)._asdict(), x)
            return lambda: whole(x)
        parts = [x[start : start + arguments.batch] for start in range(0, len(x), arguments.batch)]
        tile = compiled(lambda a, b: kernel_fn(a, b, names)._asdict(), parts[0], parts[0])

        def in_batches() -> Kernels:
            # The upper half of the tiles, as a user would who knows that the kernel is symmetric.
            tiles = {(i, j): tile(a, b) for i, a in enumerate(parts) for j, b in enumerate(parts) if i <= j}
            places = range(len(parts))
            return {
                name: np.block([[tiles[i, j][name] if i <= j else tiles[j, i][name].T for j in places] for i in places])
                for name in names
            }

        return in_batches

    return Work(make(("ntk",)), lambda: make(("nngp", "ntk"))())


def limit_dense(x: np.ndarray) -> Work:
    """Dense layers with ReLUs between them."""
    layers = [stax.Dense(1, math.sqrt(x.shape[1]))]
    for _ in range(arguments.depth - 1):
        layers += [stax.Relu(), stax.Dense(1, math.sqrt(2))]
    return limit(layers, x)


def limit_images(x: np.ndarray) -> Work:
    """Convolutions with zero padding and ReLUs, then global average pooling and a dense layer."""
    layers = []
    for index in range(arguments.layers):
        gain = 2 if index else x.shape[1]
        layers += [stax.Conv(1, (3, 3), padding="SAME", W_std=math.sqrt(gain)), stax.Relu()]
    return limit([*layers, stax.GlobalAvgPool(), stax.Dense(1, math.sqrt(2))], np.moveaxis(x, 1, -1))


def empirical(x: np.ndarray, weights: list[np.ndarray]) -> Work:
    """The kernel of a finite network with structured derivatives, traced over its outputs."""
    params = [jax.numpy.asarray(weight) for weight in weights]

    def network(params: list[jax.Array], x: jax.Array) -> jax.Array:
        for weight in params[:-1]:
            x = jax.nn.relu(x @ weight)
        return x @ params[-1]

    kernel_fn = nt.empirical_ntk_fn(
        network, trace_axes=(-1,), vmap_axes=0, implementation=nt.NtkImplementation.STRUCTURED_DERIVATIVES
    )
    kernel = compiled(lambda x, params: {"ntk": kernel_fn(x, None, params)}, x, params)

    def call() -> Kernels:
        return kernel(x, params)

    return Work(call, call)


def status(field: str) -> int:
    """Bytes that Linux counts for this process."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def first_call(work: Work) -> int:
    """Bytes at the peak of the first call."""
    with open("/proc/self/clear_refs", "w") as reset:
        reset.write("5")  # forget the peak of the compiler
    before = status("VmRSS")
    jax.block_until_ready(work.timed())
    return status("VmHWM") - before


def respond(line: str, work: Work) -> dict[str, float]:
    """Do what a line asks for."""
    command, *rest = line.split(maxsplit=1)
    if command == "answer":
        names = {"nngp": "output", "ntk": "tangent"}
        found = work.everything()
        np.savez(rest[0].strip(), **{names[name]: np.asarray(found[name]) for name in found if name in names})
        return {}
    if command == "time":
        begun = time.perf_counter()
        jax.block_until_ready(work.timed())
        return {"seconds": time.perf_counter() - begun}
    raise ValueError(f"no such command: {command}")


def main() -> None:
    """Warm up, then answer."""
    given = np.load(arguments.given, allow_pickle=False)
    arrays = {name: given[name].astype(arguments.dtype) for name in given.files}
    x = arrays.pop("x")
    if arguments.what == "limit-dense":
        work = limit_dense(x)
    elif arguments.what == "limit-images":
        work = limit_images(x)
    else:
        work = empirical(x, [arrays[f"weight{k}"] for k in range(len(arrays))])
    first = {"neural_tangents": nt.__version__, "jax": jax.__version__, "peak_bytes": first_call(work)}
    print(json.dumps(first), flush=True)
    for line in sys.stdin:
        print(json.dumps(respond(line, work)), flush=True)


if __name__ == "__main__":
    main()
