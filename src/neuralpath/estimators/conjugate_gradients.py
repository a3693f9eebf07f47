"""Preconditioned conjugate gradients for many right-hand sides, on a kernel that is only multiplied with."""

import logging
import time
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from neuralpath.estimators.kernel_products import kernel_times
from neuralpath.estimators.kernel_tiles import KernelTiles
from neuralpath.estimators.nystrom import Nystrom

STAGNATION = 0.5
"""A restart is worth its passes if the one before it brought the true residual below this share."""

_log = logging.getLogger("neuralpath")


class NegativeDirection(ArithmeticError):
    """K + ridge I is not positive definite: ``energy`` is the quotient of a direction d, d (K + ridge I) d / d d."""

    def __init__(self, energy: float) -> None:
        super().__init__(f"a direction has the energy {energy:.3g}")
        self.energy = energy


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """Coefficients, and how good they are: true residuals relative to the targets, one for each column."""

    coefficients: Float64[Tensor, "n k"]
    residuals: Float64[Tensor, " k"]
    iterations: int
    passes: int  # over the kernel, the final check included


def conjugate_gradients(
    kernel: KernelTiles,
    targets: Float64[Tensor, "n k"],
    ridge: float,
    preconditioner: Nystrom,
    *,
    tol: float,
    max_iter: int,
) -> Solution:
    r"""Solve (K + ridge I) a = y for all columns at once; each goes its own way, and all share the passes.

    A column rests when its residual is below ``tol`` times its target's norm. What is reported is the true residual,
    from a pass at the end; where it is still above (the residual that the iteration carries along drifts by
    rounding), the iteration starts again from there, as long as that helps.

    Cost: a pass over the kernel for each iteration, n^2 k multiplications; memory of 6 n k numbers.
    Raises: NegativeDirection where the matrix shows not to be positive definite.
    """
    norms = torch.linalg.vector_norm(targets, dim=0)
    coefficients, residual = torch.zeros_like(targets), targets.clone()
    iterations = passes = 0
    relative = torch.where(norms > 0, 1.0, 0.0).double()
    while bool((relative > tol).any()) and iterations < max_iter:
        before = relative.max()
        iterations = _descend(kernel, ridge, preconditioner, coefficients, residual, tol * norms, iterations, max_iter)
        residual = targets - kernel_times(kernel, coefficients) - ridge * coefficients
        relative = torch.linalg.vector_norm(residual, dim=0) / torch.where(norms > 0, norms, 1.0)
        passes += 1
        if relative.max() > STAGNATION * before:
            break
    return Solution(coefficients, relative, iterations, passes + iterations)


def _descend(
    kernel: KernelTiles,
    ridge: float,
    preconditioner: Nystrom,
    coefficients: Float64[Tensor, "n k"],
    residual: Float64[Tensor, "n k"],
    goals: Float64[Tensor, " k"],
    iterations: int,
    max_iter: int,
) -> int:
    """Iterate until every column reaches its goal; ``coefficients`` and ``residual`` change in place."""
    begun = time.perf_counter()
    active = torch.nonzero(torch.linalg.vector_norm(residual, dim=0) > goals)[:, 0]
    rest = residual[:, active]
    direction = preconditioner.precondition(rest, ridge)
    energy = (rest * direction).sum(0)
    while len(active) and iterations < max_iter:
        image = kernel_times(kernel, direction) + ridge * direction
        curvature = (direction * image).sum(0)
        if bool((curvature <= 0).any()):
            raise NegativeDirection(float((curvature / direction.square().sum(0)).min()))
        step = energy / curvature
        coefficients[:, active] += step * direction
        rest = rest - step * image
        iterations += 1
        lengths = torch.linalg.vector_norm(rest, dim=0)
        _log.info(
            "conjugate gradients: iteration %d, %.1f s, %d of %d columns to go, largest residual %.1e of its goal",
            iterations, time.perf_counter() - begun, int((lengths > goals[active]).sum()), len(goals),
            float((lengths / goals[active]).max()),
        )  # fmt: skip
        going = lengths > goals[active]
        active, rest, direction, energy = active[going], rest[:, going], direction[:, going], energy[going]
        preconditioned = preconditioner.precondition(rest, ridge)
        fresh = (rest * preconditioned).sum(0)
        direction = preconditioned + (fresh / energy) * direction
        energy = fresh
    return iterations
