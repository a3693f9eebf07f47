"""Write regression.npz: infinite-width regression of some networks in cases.py, by neural-tangents in float64.

`gradient_descent_mse` at t=None is the end of gradient flow on the squared loss with the tangent kernel, from 0.
The environment is that of make_reference.py:

    ENV/bin/python tests/reference/make_regression.py

For each network: training and test inputs, targets of two columns, and the outputs on the test inputs, once with the
kernel as it is and once with RIDGE added to its diagonal.
"""

from pathlib import Path

import numpy as np

VALUES = Path(__file__).with_name("regression.npz")
SEED = 20240301
N_TRAIN, N_TEST, RIDGE = 9, 4, 0.05
SHAPES = {"dense_relu_3": (10,), "dense_leaky_5": (10,), "images8_zero_pooled": (3, 8, 8)}


def draw(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Inputs whose inner products are near 1, rounded so that they are short to store."""
    values = random.normal(size=(N_TRAIN + N_TEST, *shape)) / np.sqrt(shape[0])
    return np.round(values * 1024) / 1024


def main() -> None:
    """Compute and write everything."""
    # Imported here, since the tests read this folder's modules without neural-tangents; `make_reference` comes before
    # it and puts a stub in the place of one of its modules.
    from cases import CASES
    from make_reference import build
    from neural_tangents import predict

    random = np.random.default_rng(SEED)
    arrays = {"ridge": np.array(RIDGE)}
    for name, shape in SHAPES.items():
        case = next(case for case in CASES if case.name == name)
        inputs = draw(shape, random)
        targets = np.round(random.normal(size=(N_TRAIN, 2)) * 1024) / 1024
        gains = [gain for _, gain in case.neural_tangents_gains(channels=shape[0])]
        (_, _, kernel_fn), _ = build(case.layers, shape[-1], gains)
        x = np.moveaxis(inputs, 1, -1)
        train, test = x[:N_TRAIN], x[N_TRAIN:]
        kernel, cross = kernel_fn(train, train, "ntk"), kernel_fn(test, train, "ntk")
        arrays[f"{name}/inputs"], arrays[f"{name}/targets"] = inputs.astype(np.float32), targets.astype(np.float32)
        for key, ridge in (("outputs", 0.0), ("ridged", RIDGE)):
            fitted = predict.gradient_descent_mse(kernel, targets, diag_reg=ridge, diag_reg_absolute_scale=True)
            _, outputs = fitted(t=None, fx_train_0=0.0, fx_test_0=0.0, k_test_train=cross)
            arrays[f"{name}/{key}"] = np.asarray(outputs)
        print(name, float(np.linalg.cond(np.asarray(kernel))))
    np.savez_compressed(VALUES, **arrays)


if __name__ == "__main__":
    main()
