r"""The exact solver: the Cholesky factor of K + ridge I in float64, in the memory of one matrix.

LAPACK reads and writes one triangle only. The factor L overwrites the lower triangle; the upper triangle keeps the
kernel, whose diagonal is stored apart. So the kernel can be restored, for example for another ridge::

    L11  K12  K13
    L21  L22  K23       and  diagonal = (K11, K22, K33)
    L31  L32  L33
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from scipy.linalg import blas, lapack

COLUMNS = 512  # processed together, which bounds the additional memory to n times this many numbers


class SingularKernel(ValueError):
    """The kernel plus its ridge has no inverse to working precision."""


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """A kernel K and the Cholesky factor L of K + ridge I, in one array."""

    packed: Float64[np.ndarray, "n n"]  # L on and below the diagonal, K above it
    diagonal: Float64[np.ndarray, " n"]  # of K
    ridge: float

    def solve(self, targets: Float64[np.ndarray, "n k"]) -> Float64[np.ndarray, "n k"]:
        """(K + ridge I)^-1 times k columns. Cost: 2 n^2 k."""
        solution, _ = lapack.dpotrs(self.packed, np.asfortranarray(targets), lower=1)
        return np.ascontiguousarray(solution)

    def half_solve(self, targets: Float64[np.ndarray, "n k"]) -> Float64[np.ndarray, "n k"]:
        """L^-1 times k columns: their squares sum to the quadratic form of (K + ridge I)^-1. Cost: n^2 k."""
        return blas.dtrsm(1.0, self.packed, np.asfortranarray(targets), lower=1)

    def inverse_diagonal(self, columns: int = COLUMNS) -> Float64[np.ndarray, " n"]:
        """The diagonal of (K + ridge I)^-1. Cost: n^3, in the memory of n times ``columns`` numbers."""
        n = len(self.diagonal)
        result = np.empty(n)
        for part in _parts(n, columns):
            identity = np.zeros((n, part.stop - part.start), order="F")
            identity[part].flat[:: part.stop - part.start + 1] = 1
            half = blas.dtrsm(1.0, self.packed, identity, lower=1, overwrite_b=1)
            result[part] = np.einsum("ij,ij->j", half, half)
        return result

    def kernel_times(self, vectors: Float64[np.ndarray, "n k"]) -> Float64[np.ndarray, "n k"]:
        """K times k columns."""
        product = blas.dsymm(1.0, self.packed, np.asfortranarray(vectors), lower=0)
        return product + (self.diagonal - np.diagonal(self.packed))[:, None] * vectors

    def kernel(self, columns: int = COLUMNS) -> Float64[np.ndarray, "n n"]:
        """K as a new array, copied from the upper triangle ``columns`` columns at a time."""
        matrix = self.packed.copy(order="F")
        for part in _parts(len(matrix), columns):
            block = np.triu(matrix[part, part], 1)
            matrix[part.stop :, part] = matrix[part, part.stop :].T
            matrix[part, part] = block + block.T
        np.fill_diagonal(matrix, self.diagonal)
        return matrix


def factorize(matrix: Float64[np.ndarray, "n n"], ridge: float, *, name: str = "kernel") -> Factor:
    r"""The Cholesky factor of K + ridge I; the symmetric array K is overwritten. Messages call K ``name``.

    K + ridge I counts as singular to working precision if LAPACK cannot factorize it, or if its estimated reciprocal
    condition number is below n times the rounding of float64: then no digit of a solution would be correct.
    """
    packed = matrix.T  # K is symmetric; this view has LAPACK's memory order, so nothing is copied
    n = len(packed)
    rounding = n * float(np.finfo(np.float64).eps)
    diagonal = np.diagonal(packed).copy()
    norm = max(float(np.abs(packed[:, part]).sum(0).max()) for part in _parts(n, COLUMNS))
    np.fill_diagonal(packed, diagonal + ridge)
    _, info = lapack.dpotrf(packed, lower=1, overwrite_a=1, clean=0)
    if info == 0 and lapack.dpocon(packed, norm + ridge, uplo="L")[0] >= rounding:
        return Factor(packed, diagonal, ridge)
    if not diagonal.mean() > 0:
        problem = f"not positive definite: the mean of its diagonal is {diagonal.mean():.3g}. Are all inputs 0?"
        raise SingularKernel(f"the {name} with `ridge`={ridge:g} is {problem}")
    # The 1-norm bounds every eigenvalue in absolute value, and the 1-norm of an inverse is at most sqrt(n) / lowest.
    raise SingularKernel(
        f"the {name} with `ridge`={ridge:g} is singular to working precision or has a negative eigenvalue. Give "
        f"ridge={2 * rounding * n**0.5 * norm:.3g}, enough if no eigenvalue is negative beyond rounding in float64; "
        f"ridge={1.01 * norm:.3g} is enough for any matrix. Or remove duplicate inputs, or use float64."
    )


def _parts(n: int, columns: int) -> Iterator[slice]:
    return (slice(start, min(start + columns, n)) for start in range(0, n, columns))
