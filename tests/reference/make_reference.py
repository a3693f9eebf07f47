"""Write values.npz: infinite-width kernels of the networks in cases.py, by neural-tangents 0.6.5 in float64.

The environment is its own, since neural-tangents is frozen at versions that the package does not use:

    python3.11 -m venv ENV
    ENV/bin/python -m pip install --no-deps -r tests/reference/requirements.txt
    ENV/bin/python tests/reference/make_reference.py

Inputs are drawn once, from numpy's generator with a fixed seed, and stored too; images as (batch, channel, y, x).
The parametrization is that of cases.py, and the stored values are the very values that neural-tangents gives with
W_std^2 = the case's gain (times the input's channels in the first layer) and b_std^2 = its bias, the factor between the
two conventions thus being 1 in every case. test_values.py checks all of them with a recursion of its own.
"""

import math
import sys
import types
from pathlib import Path

# ruff: noqa: E402
# neural_tangents imports its `experimental` module, which needs TensorFlow and is not used here: a stub comes first.
sys.modules["neural_tangents.experimental"] = types.ModuleType("neural_tangents.experimental")

import jax
import numpy as np
from cases import CASES, Activation, AveragePool, Case, Conv, Dense, Flatten, GlobalAverage, Layer, Skip
from neural_tangents import stax

jax.config.update("jax_enable_x64", True)

VALUES = Path(__file__).with_name("values.npz")
SEED = 20240229


def draw_inputs() -> dict[str, np.ndarray]:
    """Small inputs, with values rounded so that they are short to store, and with similar and opposite ones among them.

    Vectors: a multiple, a negative and a close neighbor of the first; images: a rolled and a noisy copy.
    """
    random = np.random.default_rng(SEED)
    vectors = random.normal(size=(7, 10)) / math.sqrt(10)
    vectors[4], vectors[5], vectors[6] = 2 * vectors[0], -vectors[1], vectors[0] + 0.01 * vectors[2]
    images8 = random.normal(size=(4, 3, 8, 8)) / math.sqrt(3)
    images8[2] = np.roll(images8[0], (1, 2), axis=(1, 2))
    images8[3] = images8[1] + 0.1 * images8[3]
    images12 = random.normal(size=(3, 2, 12, 12)) / math.sqrt(2)
    inputs = {"vectors": vectors, "images8": images8, "images12": images12}
    return {name: np.round(values * 1024) / 1024 for name, values in inputs.items()}


def padding_of(layer: Conv, size: int) -> str:
    """The name that neural-tangents has for a padding; refuse one that it cannot say."""
    outputs = -(-size // layer.stride)
    missing = max((outputs - 1) * layer.stride + layer.window - size, 0)
    if (layer.before, layer.after) == (missing // 2, missing - missing // 2):
        return "CIRCULAR" if layer.circular else "SAME"
    if (layer.before, layer.after) == (0, 0):
        return "VALID"
    raise ValueError(f"neural-tangents has no name for the padding of {layer} on {size} positions.")


def build(layers: tuple[Layer, ...], size: int, gains: list[float]) -> tuple[tuple, int]:
    """The network of neural-tangents, and the size of its output's sides; takes its gains from the front of a list."""
    parts = []
    for layer in layers:
        match layer:
            case Dense():
                parts.append(stax.Dense(1, math.sqrt(gains.pop(0)), math.sqrt(layer.bias)))
            case Conv():
                parts.append(
                    stax.Conv(
                        1, (layer.window,) * 2, (layer.stride,) * 2, padding_of(layer, size),
                        W_std=math.sqrt(gains.pop(0)), b_std=math.sqrt(layer.bias),
                    )
                )  # fmt: skip
                size = (size + layer.before + layer.after - layer.window) // layer.stride + 1
            case Activation("relu"):
                parts.append(stax.Relu())
            case Activation("leaky"):
                parts.append(stax.LeakyRelu(layer.slope))
            case Activation("erf"):
                parts.append(stax.Erf())
            case Activation("gelu"):
                parts.append(stax.Gelu())
            case AveragePool():
                parts.append(stax.AvgPool((layer.window,) * 2, (layer.stride,) * 2))
                size = (size - layer.window) // layer.stride + 1
            case GlobalAverage():
                parts.append(stax.GlobalAvgPool())
            case Flatten():
                parts.append(stax.Flatten())
            case Skip():
                inner, _ = build(layer.layers, size, gains)
                parts.append(stax.serial(stax.FanOut(2), stax.parallel(stax.Identity(), inner), stax.FanInSum()))
            case _:
                raise ValueError(f"no such layer: {layer}")
    return stax.serial(*parts), size


def kernels(case: Case, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Output kernel (NNGP) and tangent kernel of a case."""
    gains = [gain for _, gain in case.neural_tangents_gains(channels=inputs.shape[1])]
    (_, _, kernel_fn), _ = build(case.layers, inputs.shape[-1], gains)
    x = np.moveaxis(inputs, 1, -1)  # neural-tangents has the channels last
    result = kernel_fn(x, x, ("nngp", "ntk"))
    return np.asarray(result.nngp), np.asarray(result.ntk)


def main() -> None:
    """Compute and write everything."""
    inputs = draw_inputs()
    arrays = {f"inputs/{name}": values.astype(np.float32) for name, values in inputs.items()}  # exact: 10 bits
    for case in CASES:
        arrays[f"{case.name}/output"], arrays[f"{case.name}/tangent"] = kernels(case, inputs[case.inputs])
        print(case.name)
    np.savez_compressed(VALUES, **arrays)


if __name__ == "__main__":
    main()
