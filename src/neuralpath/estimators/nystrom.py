"""A low-rank picture of a kernel from one pass over it, to precondition conjugate gradients with."""

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from neuralpath.estimators.kernel_products import kernel_times, not_symmetric, rounding
from neuralpath.estimators.kernel_tiles import KernelTiles


@dataclass(frozen=True, slots=True, eq=False)
class Nystrom:
    r"""A Nyström approximation :math:`U \Lambda U^\top` of a kernel, and the preconditioner that goes with it.

    .. math:: P^{-1} = U \frac{\lambda_r + \mu}{\Lambda + \mu} U^\top + (I - U U^\top)

    Symbols: :math:`\mu` is the ridge, :math:`\lambda_r` the smallest eigenvalue that is kept.
    Reference: Frangella, Tropp and Udell, "Randomized Nyström preconditioning", 2023, section 5.
    """

    eigenvalues: Float64[Tensor, " rank"]  # largest first
    eigenvectors: Float64[Tensor, "n rank"]

    def precondition(self, residual: Float64[Tensor, "n k"], ridge: float) -> Float64[Tensor, "n k"]:
        """The preconditioner times some columns. Cost: 4 n k rank."""
        if not len(self.eigenvalues):
            return residual
        along = self.eigenvectors.T @ residual
        gain = (self.eigenvalues[-1] + ridge) / (self.eigenvalues + ridge) - 1
        return residual + self.eigenvectors @ (gain[:, None] * along)


def nystrom(kernel: KernelTiles, rank: int, seed: int) -> Nystrom:
    r"""Nyström approximation of a square kernel by its product with random orthonormal columns.

    .. math:: K \approx (K \Omega) (\Omega^\top K \Omega)^{+} (K \Omega)^\top

    Cost: one pass over the kernel, n^2 rank multiplications, and O(n rank^2); memory of 3 n rank numbers.
    Raises: ValueError if the kernel is not symmetric, which shows in :math:`\Omega^\top K \Omega`, or not finite.
    """
    n = kernel.shape[0]
    test = torch.randn(n, rank, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    test = torch.linalg.qr(test).Q
    product = kernel_times(kernel, test)
    core = test.T @ product
    dtype = torch.float32 if kernel.itemsize <= 4 else torch.float64
    size = float(core.abs().max())
    gap = float((core - core.T).abs().max())
    if not kernel.symmetric and gap > rounding(kernel.itemsize) * size:
        raise ValueError(not_symmetric(gap / size, rounding(kernel.itemsize)))
    values, vectors = torch.linalg.eigh(0.5 * (core + core.T))
    # Directions that are rounding only would be blown up by the inverse.
    kept = values > n * torch.finfo(dtype).eps * values[-1].clamp(min=0)
    half = product @ (vectors[:, kept] / values[kept].sqrt())
    left, singular, _ = torch.linalg.svd(half, full_matrices=False)
    return Nystrom(singular.square(), left)
