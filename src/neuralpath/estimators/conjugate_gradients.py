"""Preconditioned conjugate gradients for many right-hand sides, which only multiply with the kernel.

The preconditioner is a low-rank Nyström approximation of the kernel, from one pass over it.
"""

import logging
import time
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from neuralpath.estimators.cholesky import SingularKernel
from neuralpath.estimators.tiles import KernelMatrix, check_asymmetry, kernel_times

STAGNATION = 0.5  # the iteration restarts only if the previous run reduced the true residual below this share

_log = logging.getLogger("neuralpath")
Columns = Float64[Tensor, "n k"]
Goals = Float64[Tensor, " k"]


@dataclass(frozen=True, slots=True, eq=False)
class Nystrom:
    r"""A Nyström approximation :math:`U \Lambda U^\top` of a kernel, and its preconditioner.

    .. math:: P^{-1} = U \frac{\lambda_r + \mu}{\Lambda + \mu} U^\top + (I - U U^\top)

    Symbols: :math:`\mu` is the ridge, :math:`\lambda_r` the smallest eigenvalue of the approximation.
    Reference: Frangella, Tropp and Udell, "Randomized Nyström preconditioning", 2023, section 5.
    """

    eigenvalues: Float64[Tensor, " rank"]  # largest first
    eigenvectors: Float64[Tensor, "n rank"]

    def precondition(self, residual: Columns, ridge: float) -> Columns:
        """The preconditioner times k columns. Cost: 4 n k rank."""
        if not len(self.eigenvalues):
            return residual
        coordinates = self.eigenvectors.T @ residual
        gain = (self.eigenvalues[-1] + ridge) / (self.eigenvalues + ridge) - 1
        return residual + self.eigenvectors @ (gain[:, None] * coordinates)


def nystrom(kernel: KernelMatrix, rank: int, seed: int) -> Nystrom:
    r"""Nyström approximation of a square kernel by its product with random orthonormal columns.

    .. math:: K \approx (K \Omega) (\Omega^\top K \Omega)^{+} (K \Omega)^\top

    Cost: one pass over the kernel, n^2 rank multiplications, and O(n rank^2); memory of 3 n rank numbers.
    """
    n = kernel.shape[0]
    omega = torch.randn(n, rank, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    omega = torch.linalg.qr(omega).Q
    product = kernel_times(kernel, omega)
    core = omega.T @ product
    if not kernel.symmetric:
        check_asymmetry(float((core - core.T).abs().max()), float(core.abs().max()), kernel.itemsize)
    values, vectors = torch.linalg.eigh(0.5 * (core + core.T))
    # The inverse would amplify directions that are only rounding.
    dtype = torch.float32 if kernel.itemsize <= 4 else torch.float64
    significant = values > n * torch.finfo(dtype).eps * values[-1].clamp(min=0)
    half = product @ (vectors[:, significant] / values[significant].sqrt())
    left, singular, _ = torch.linalg.svd(half, full_matrices=False)
    return Nystrom(singular.square(), left)


def conjugate_gradients(
    kernel: KernelMatrix, targets: Columns, ridge: float, preconditioner: Nystrom, *, tol: float, max_iter: int
) -> tuple[Columns, Float64[Tensor, " k"], int, int]:
    r"""Solve (K + ridge I) a = y for all columns at once; each column has its own step sizes, all share the passes.

    Returns the coefficients, their true residuals relative to the targets, and the numbers of iterations and of passes.

    A column is done when its residual is below ``tol`` times the norm of its target. The recursively updated residual
    drifts by rounding, so a pass at the end computes the true one; if it is still too large, the iteration restarts
    from there as long as restarts reduce it. Each iteration needs a pass over the kernel; memory of 6 n k numbers.
    """
    norms = torch.linalg.vector_norm(targets, dim=0)
    coefficients, residual = torch.zeros_like(targets), targets.clone()
    iterations = passes = 0
    relative = torch.where(norms > 0, 1.0, 0.0).double()
    while bool((relative > tol).any()) and iterations < max_iter:
        before = relative.max()
        steps = range(iterations, max_iter)
        iterations = _descend((kernel, ridge, preconditioner), coefficients, residual, tol * norms, steps)
        residual = targets - kernel_times(kernel, coefficients) - ridge * coefficients
        relative = torch.linalg.vector_norm(residual, dim=0) / torch.where(norms > 0, norms, 1.0)
        passes += 1
        if relative.max() > STAGNATION * before:
            break
    return coefficients, relative, iterations, passes + iterations


def _descend(
    system: tuple[KernelMatrix, float, Nystrom], coefficients: Columns, residual: Columns, goals: Goals, steps: range
) -> int:
    """Iterate until each residual is below its goal; changes ``coefficients`` and returns the number of all steps."""
    (kernel, ridge, preconditioner), iterations, max_iter = system, steps.start, steps.stop
    start = time.perf_counter()
    active = torch.nonzero(torch.linalg.vector_norm(residual, dim=0) > goals)[:, 0]
    rest = residual[:, active]
    direction = preconditioner.precondition(rest, ridge)
    energy = (rest * direction).sum(0)
    while len(active) and iterations < max_iter:
        image = kernel_times(kernel, direction) + ridge * direction
        curvature = (direction * image).sum(0)
        if bool((curvature <= 0).any()):
            lowest_energy = float((curvature / direction.square().sum(0)).min())  # d (K + ridge I) d / d d
            problem = f"`ridge`={ridge:g} is not positive definite: a direction has the energy {lowest_energy:.2g}"
            raise SingularKernel(f"the kernel with {problem}. Give one above {ridge - lowest_energy:.3g}; or float64.")
        step = energy / curvature
        coefficients[:, active] += step * direction
        rest = rest - step * image
        iterations += 1
        lengths = torch.linalg.vector_norm(rest, dim=0)
        unfinished = lengths > goals[active]
        left, largest = f"{int(unfinished.sum())} of {len(goals)}", float((lengths / goals[active]).max())
        text = "conjugate gradients: iteration %d, %.1f s, %s columns left, largest residual %.1e of its goal"
        _log.info(text, iterations, time.perf_counter() - start, left, largest)
        active, rest = active[unfinished], rest[:, unfinished]
        direction, energy = direction[:, unfinished], energy[unfinished]
        preconditioned = preconditioner.precondition(rest, ridge)
        next_energy = (rest * preconditioned).sum(0)
        direction = preconditioned + (next_energy / energy) * direction
        energy = next_energy
    return iterations
