r"""The exact way: (K + ridge I) by its Cholesky factor in float64, in the memory of one matrix.

LAPACK reads and writes one triangle only. The factor stands in the lower triangle of the array, the kernel goes on to
stand above the diagonal, and its diagonal is kept apart: so the kernel can be had back for another ridge.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from scipy.linalg import blas, lapack

COLUMNS = 512
"""Right-hand sides that are solved together where there are n of them: memory of n times so many."""


class SingularKernel(ValueError):
    """The kernel with its ridge has no inverse to working precision; the message names a ridge that works."""


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """A kernel K and the Cholesky factor L of K + ridge I, in one array.

    ``packed`` has L on and below its diagonal and K above; ``diagonal`` is that of K.
    """

    packed: Float64[np.ndarray, "n n"]
    diagonal: Float64[np.ndarray, " n"]
    ridge: float

    def solve(self, targets: Float64[np.ndarray, "n k"]) -> Float64[np.ndarray, "n k"]:
        """(K + ridge I)^-1 times some columns. Cost: 2 n^2 k."""
        solution, _ = lapack.dpotrs(self.packed, np.asfortranarray(targets), lower=1)
        return np.ascontiguousarray(solution)

    def half_solve(self, targets: Float64[np.ndarray, "n k"]) -> Float64[np.ndarray, "n k"]:
        """L^-1 times some columns: their squares sum to the quadratic form of (K + ridge I)^-1. Cost: n^2 k."""
        return blas.dtrsm(1.0, self.packed, np.asfortranarray(targets), lower=1)

    def inverse_diagonal(self) -> Float64[np.ndarray, " n"]:
        """The diagonal of (K + ridge I)^-1. Cost: n^3, in the memory of some columns."""
        n = len(self.diagonal)
        result = np.empty(n)
        for start in range(0, n, COLUMNS):
            stop = min(start + COLUMNS, n)
            columns = np.zeros((n, stop - start), order="F")
            columns[np.arange(start, stop), np.arange(stop - start)] = 1
            half = blas.dtrsm(1.0, self.packed, columns, lower=1, overwrite_b=1)
            result[start:stop] = np.einsum("ij,ij->j", half, half)
        return result

    def kernel_times(self, vectors: Float64[np.ndarray, "n k"]) -> Float64[np.ndarray, "n k"]:
        """K times some columns."""
        product = blas.dsymm(1.0, self.packed, np.asfortranarray(vectors), lower=0)
        return product + (self.diagonal - np.diagonal(self.packed))[:, None] * vectors

    def kernel(self) -> Float64[np.ndarray, "n n"]:
        """K as an array of its own."""
        matrix = self.packed.copy(order="F")
        _put_back(matrix, self.diagonal)
        return matrix


def factorize(matrix: Float64[np.ndarray, "n n"], ridge: float, *, what: str = "kernel") -> Factor:
    r"""The Cholesky factor of K + ridge I; the symmetric array K is overwritten. Messages call K ``what``.

    Singular to working precision is what LAPACK cannot factorize, or has an estimated reciprocal condition number
    below n times the rounding of float64: solutions would then have no correct digit.
    Cost: n^3 / 3. For a singular kernel a handful of factorizations more, to find the ridge that the message names.
    Raises: SingularKernel.
    """
    packed = matrix.T  # symmetric; in this view it has LAPACK's order of memory, and is not copied
    diagonal = np.diagonal(packed).copy()
    norm = max(float(np.abs(packed[:, part]).sum(0).max()) for part in _parts(len(packed)))
    if _factorized(packed, diagonal, ridge, norm):
        return Factor(packed, diagonal, ridge)
    enough = _smallest_ridge(packed, diagonal, ridge, norm)
    if enough is None:
        raise SingularKernel(
            f"the {what} with `ridge`={ridge:g} is not positive definite: the mean of its diagonal is "
            f"{diagonal.mean():.3g}, but a kernel's is positive. Are the inputs all 0?"
        )
    raise SingularKernel(
        f"the {what} with `ridge`={ridge:g} is singular to working precision (or negative in some direction), so the "
        f"coefficients are not determined. The smallest ridge that works, in powers of ten of its mean diagonal entry "
        f"{diagonal.mean():.3g}, is ridge={enough:.3g}. Or remove duplicate inputs, or compute it in float64."
    )


def _factorized(
    packed: Float64[np.ndarray, "n n"], diagonal: Float64[np.ndarray, " n"], ridge: float, norm: float
) -> bool:
    """Factorize in place; false, with the array as it may be, where the matrix is singular to working precision."""
    np.fill_diagonal(packed, diagonal + ridge)
    _, info = lapack.dpotrf(packed, lower=1, overwrite_a=1, clean=0)
    if info != 0:
        return False
    reciprocal, _ = lapack.dpocon(packed, norm + ridge, uplo="L")
    return bool(reciprocal >= len(packed) * np.finfo(np.float64).eps)


def _smallest_ridge(
    packed: Float64[np.ndarray, "n n"], diagonal: Float64[np.ndarray, " n"], ridge: float, norm: float
) -> float | None:
    """The smallest power of ten of the mean diagonal entry that works as a ridge, by trying; a tenth of it does not."""
    unit = float(diagonal.mean())
    if not unit > 0:
        return None
    # From below the rounding of the kernel's entries up to its norm, beyond which no eigenvalue is negative.
    exponents = range(-18, int(np.ceil(np.log10(norm / unit))) + 2)
    low, high = 0, len(exponents) - 1
    while low < high:
        middle = (low + high) // 2
        _put_back(packed, diagonal)
        tried = unit * 10.0 ** exponents[middle]
        works = tried > ridge and _factorized(packed, diagonal, tried, norm)
        low, high = (low, middle) if works else (middle + 1, high)
    return unit * 10.0 ** exponents[low]


def _put_back(packed: Float64[np.ndarray, "n n"], diagonal: Float64[np.ndarray, " n"]) -> None:
    """Write the kernel, which stands above the diagonal, over the factor."""
    for part in _parts(len(packed)):
        block = np.triu(packed[part, part], 1)
        packed[part.stop :, part] = packed[part, part.stop :].T
        packed[part, part] = block + block.T
    np.fill_diagonal(packed, diagonal)


def _parts(n: int) -> Iterator[slice]:
    return (slice(start, min(start + COLUMNS, n)) for start in range(0, n, COLUMNS))
