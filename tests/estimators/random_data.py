"""Small data, kernels and networks for the tests of estimators."""

from functools import cache

import numpy as np
import torch

import neuralpath as npath
from neuralpath import nets
from neuralpath.kernels.tiling import Cost, TiledKernel, make_plan

F64 = torch.float64


def rows(n, d=5, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def kernels(n, n_test, rank=None, seed=0):
    """A kernel of the given rank on n + n_test points: its training block, and its test rows."""
    features = np.random.default_rng(seed).normal(size=(n + n_test, rank or n + n_test + 2)) / 2
    kernel = features @ features.T
    return kernel[:n, :n].copy(), kernel[n:, :n].copy(), np.diagonal(kernel)[n:].copy()


def exponential(x1, x2):
    """A kernel function that is strictly positive definite, and whose spectrum falls quickly."""
    return np.exp(-0.5 * ((x1[:, None] - x2[None]) ** 2).sum(-1))


@cache
def network(seed=0):
    torch.manual_seed(seed)
    return nets.FC(5, width=16, depth=3).double()


@cache
def graph(seed=0):
    """The graph of the network; tracing takes longer than anything else here."""
    return npath.trace(network(seed), torch.zeros(1, 5, dtype=F64))


def path_kernel():
    return npath.PathKernel(graph())


def tiled(matrix, side, *, symmetric, dtype=F64):
    """A matrix as a kernel that is computed in tiles."""
    values = torch.as_tensor(matrix).to(dtype)
    plan = make_plan(*values.shape, Cost(8, 0, side**2), 10**9, symmetric=symmetric)
    return TiledKernel(
        "test kernel", plan, lambda tile: values[tile.rows, tile.columns].clone(), dtype, torch.device("cpu")
    )
