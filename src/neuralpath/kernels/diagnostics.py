"""Diagnostics of any kernel matrix: label energy, spectrum, condition number, alignments.

They compute in float64 and return the kernel's dtype, without gradients. A kernel is a symmetric matrix of float32 or
float64. Symmetric means up to ``ROUNDING``, relative to the largest entry; the symmetric part is used. An eigenvalue
below ``n * eps`` times the largest, with ``eps`` that of the kernel's own dtype, is indistinguishable from 0, and the
kernel is singular to working precision.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Float64, Real
from torch import Tensor

from neuralpath._checks import describe


@runtime_checkable
class FillableMatrix(Protocol):
    """A kernel matrix that is stored or computed elsewhere: a stored kernel, or the tiles of a kernel."""

    def filled(self) -> Tensor:
        """The whole matrix in memory."""
        ...


KernelValues = Float[Tensor, "n n"] | Float[np.ndarray, "n n"] | FillableMatrix
Labels = Real[Tensor, "n *columns"] | Real[np.ndarray, "n *columns"]

ROUNDING = {torch.float32: 1e-5, torch.float64: 1e-12}
"""By how much a kernel of each dtype may differ from its transpose, relative to its largest entry."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelEnergySplit:
    """The label energy by eigenvectors, largest eigenvalue first; a column for each column of the labels."""

    eigenvalues: Float[Tensor, " n"]
    """Eigenvalues of the kernel of trace 1."""
    projections: Float[Tensor, "n *columns"]
    """Squared inner products of the labels with the eigenvectors."""
    contributions: Float[Tensor, "n *columns"]
    """``projections / eigenvalues``; their sum is the label energy."""

    def __post_init__(self) -> None:
        if self.projections.shape != self.contributions.shape or len(self.projections) != len(self.eigenvalues):
            parts = ", ".join(describe(part) for part in (self.eigenvalues, self.projections, self.contributions))
            raise ValueError(f"`eigenvalues`, `projections` and `contributions` must have equal rows, got {parts}.")

    @property
    def total(self) -> Float[Tensor, "*columns"]:
        """The label energy."""
        return self.contributions.sum(0)


def label_energy(kernel: KernelValues, y: Labels, *, jitter: float = 0.0) -> Float[Tensor, "*columns"]:
    r"""Energy of the labels in the inverse of a kernel of trace 1: small where the kernel suits the labels.

    .. math:: \nu = y^\top \hat H^{-1} y = \sum_i (u_i^\top y)^2 / \hat\rho_i, \qquad \hat H = H / \mathrm{trace}(H)

    Symbols: :math:`H` is ``kernel``, of any scale; :math:`\hat\rho_i, u_i` are the eigenvalues, which sum to 1, and
    the orthonormal eigenvectors of :math:`\hat H`.

    Reference: P1 section 6, "NPK during training"; P0 figure 3.
    Assumes: a positive definite kernel to working precision: no eigenvalue, after jitter, below n * eps times the
    largest, with eps that of the kernel's dtype. Relative error: about eps times the condition number.
    Cost: one eigendecomposition, O(n^3).

    Args:
        kernel: A square kernel matrix as a tensor, an array, or an object with ``filled()``, such as a stored kernel.
        y: Labels, one for each example, or several columns of them, such as one-hot classes.
        jitter: Adds this share of the mean eigenvalue, 1/n, to every eigenvalue of :math:`\hat H`. The trace is that of
            ``kernel`` without jitter.

    Returns:
        The energy, or one value for each column of ``y``.

    Raises:
        ValueError: The kernel is not square, symmetric and finite, is zero, has an eigenvalue that is negative beyond
            rounding, or is singular to working precision (the message suggests a jitter); or the labels do not fit.
        TypeError: Another dtype.

    >>> label_energy(torch.eye(3), torch.tensor([1.0, -1.0, 1.0]))
    tensor(9.)
    """
    split, dtype = _split(kernel, y, jitter)
    return split.total.to(dtype)


def label_energy_by_eigenvector(kernel: KernelValues, y: Labels, *, jitter: float = 0.0) -> LabelEnergySplit:
    r"""The label energy split over the eigenvectors of the kernel, largest eigenvalue first.

    .. math:: \nu = \sum_i (u_i^\top y)^2 / \hat\rho_i

    Symbols: as in ``label_energy``; :math:`\hat\rho_i` are ``eigenvalues``, :math:`(u_i^\top y)^2` are ``projections``,
    their quotients ``contributions``. Where eigenvalues coincide, only the sums of projections over equal ones have
    a meaning.
    Reference: P1 section 6. Cost: as ``label_energy``.

    Args:
        kernel: A square kernel matrix as a tensor, an array, or an object with ``filled()``.
        y: Labels, one for each example, or several columns of them.
        jitter: As for ``label_energy``.

    Raises:
        ValueError, TypeError: As ``label_energy``.

    >>> split = label_energy_by_eigenvector(torch.diag(torch.tensor([1.0, 3.0])), torch.tensor([1.0, 2.0]))
    >>> split.eigenvalues.tolist(), split.projections.tolist()
    ([0.75, 0.25], [4.0, 1.0])
    """
    split, dtype = _split(kernel, y, jitter)
    return LabelEnergySplit(*(t.to(dtype) for t in (split.eigenvalues, split.projections, split.contributions)))


def spectrum(kernel: KernelValues) -> Float[Tensor, " n"]:
    """Eigenvalues of a kernel, largest first.

    Eigenvalues of a singular kernel are subject to rounding and may be slightly negative. Cost: O(n^3).

    Args:
        kernel: A square kernel matrix as a tensor, an array, or an object with ``filled()``.

    Raises:
        ValueError: The kernel is not square, symmetric and finite.
        TypeError: Another dtype.

    >>> spectrum(torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
    tensor([3., 1.])
    """
    matrix, dtype = checked_kernel("kernel", kernel, zero_allowed=True)
    size = _size(matrix)
    return (torch.linalg.eigvalsh(matrix / size).flip(0) * size).to(dtype)


def condition_number(kernel: KernelValues) -> Float[Tensor, ""]:
    r"""Ratio of the largest to the smallest eigenvalue of a kernel.

    .. math:: \rho_{max}(H) / \rho_{min}(H)

    Infinite where the smallest eigenvalue is below n * eps times the largest, with eps that of the kernel's dtype: the
    kernel is then singular to working precision, and a finite number would be noise. Cost: O(n^3).

    Args:
        kernel: A square kernel matrix as a tensor, an array, or an object with ``filled()``.

    Raises:
        ValueError: As ``spectrum``; the kernel is zero, or has an eigenvalue that is negative beyond rounding.
        TypeError: Another dtype.

    >>> condition_number(torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
    tensor(3.)
    """
    matrix, dtype = checked_kernel("kernel", kernel)
    values = torch.linalg.eigvalsh(matrix / _size(matrix)).flip(0)
    refuse_indefinite(values, dtype)
    floor = len(values) * torch.finfo(dtype).eps * values[0]
    ratio = values[0] / values[-1] if values[-1] >= floor else values.new_tensor(torch.inf)
    return ratio.to(dtype)


def alignment(kernel: KernelValues, other: Labels | KernelValues) -> Float[Tensor, ""]:
    r"""Alignment of a kernel with labels or with a second kernel: the cosine between them as vectors.

    .. math:: \frac{\langle K, L \rangle_F}{\|K\|_F \|L\|_F}, \qquad L = Y Y^\top \text{ for labels } Y

    Reference: Cristianini et al., "On kernel-target alignment", 2001. Not centered: a constant kernel aligns with every
    kernel of non-negative entries; see ``centered_alignment``.
    Cost: O(n^2), times the number of label columns.

    Args:
        kernel: A square kernel matrix as a tensor, an array, or an object with ``filled()``.
        other: A label vector, a label matrix with a column for each class (one-hot), or a kernel. A square matrix is a
            kernel: give as many label columns as examples as their product, ``labels @ labels.T``.

    Raises:
        ValueError: A kernel is not square, symmetric and finite, does not fit the other, or one of them is zero.
        TypeError: Another dtype.

    >>> y = torch.tensor([1.0, -1.0, 1.0])
    >>> alignment(torch.outer(y, y), y), alignment(torch.eye(2), torch.ones(2, 2))
    (tensor(1.), tensor(0.7071))
    """
    matrix, dtype = checked_kernel("kernel", kernel)
    matrix = _unit(matrix)
    if isinstance(other, FillableMatrix) or getattr(other, "shape", None) == matrix.shape:
        second, _ = checked_kernel("other", other)
        return (matrix * _unit(second).to(matrix)).sum().to(dtype)
    labels = checked_labels("other", other, matrix).reshape(len(matrix), -1)
    if not bool(labels.any()):
        raise ValueError("`other` is zero: nothing aligns with labels that are all 0.")
    labels = labels / _size(labels)
    return ((labels * (matrix @ labels)).sum() / torch.linalg.matrix_norm(labels.T @ labels)).to(dtype)


def centered_alignment(kernel1: KernelValues, kernel2: KernelValues) -> Float[Tensor, ""]:
    r"""Centered kernel alignment (CKA) of two kernels on the same examples: 1 if equal up to scale, 0 if unrelated.

    .. math:: \frac{\langle CKC, CLC \rangle_F}{\|CKC\|_F \|CLC\|_F}, \qquad C = I - \tfrac1n 1 1^\top

    Symbols: :math:`K, L` are ``kernel1`` and ``kernel2``. Scaling either, or adding a constant to all its entries,
    changes nothing.
    Reference: Cortes, Mohri and Rostamizadeh 2012, definition 4; Kornblith et al. 2019, section 3. Cost: O(n^2).

    Args:
        kernel1: A square kernel matrix as a tensor, an array, or an object with ``filled()``. The result has its dtype.
        kernel2: A second kernel matrix.

    Raises:
        ValueError: A kernel is not square, symmetric and finite, they differ in size, or one is constant up to
            rounding.
        TypeError: Another dtype.

    >>> x = torch.tensor([[0.0], [1.0], [3.0]])
    >>> centered_alignment(x @ x.T, 2 * (x + 5) @ (x + 5).T)
    tensor(1.)
    """
    (matrix1, dtype1), (matrix2, dtype2) = checked_kernel("kernel1", kernel1), checked_kernel("kernel2", kernel2)
    if len(matrix1) != len(matrix2):
        raise ValueError(f"`kernel1` and `kernel2` must have one size, got {len(matrix1)} and {len(matrix2)} rows.")
    centered1, centered2 = _centered("kernel1", matrix1, dtype1), _centered("kernel2", matrix2, dtype2)
    return (centered1 * centered2.to(centered1)).sum().to(dtype1)


def as_tensor(kernel: object) -> object:
    """A matrix as a tensor, if it is an array or can be filled; anything else as it is."""
    if isinstance(kernel, np.ndarray):
        return torch.from_numpy(kernel)
    return kernel.filled() if isinstance(kernel, FillableMatrix) else kernel


@torch.no_grad()
def checked_kernel(
    name: str, kernel: KernelValues, *, zero_allowed: bool = False
) -> tuple[Float64[Tensor, "n n"], torch.dtype]:
    """The symmetric part of a kernel in float64, and the kernel's own dtype; refuses what is no kernel matrix."""
    values = as_tensor(kernel)
    if not isinstance(values, Tensor) or values.dtype not in ROUNDING:
        raise TypeError(f"`{name}` must be a float32 or float64 matrix, got {describe(values)}.")
    if values.ndim != 2 or values.shape[0] != values.shape[1] or values.shape[0] == 0:
        raise ValueError(f"`{name}` must be a square matrix, got {describe(values)}.")
    finite = torch.isfinite(values)
    if not bool(finite.all()):
        (row, column), count = torch.nonzero(~finite)[0].tolist(), int((~finite).sum())
        raise ValueError(f"`{name}` has NaN or infinity in {count} of its entries, as at row {row}, column {column}.")
    matrix = values.detach().double()
    size, gap = float(matrix.abs().max()), float((0.5 * matrix - 0.5 * matrix.T).abs().max()) * 2
    if gap > ROUNDING[values.dtype] * size:
        raise ValueError(
            f"`{name}` is not symmetric: entries differ from those across the diagonal by up to {gap / size:.1e} of "
            f"the largest, more than {ROUNDING[values.dtype]:.0e}. Give a kernel of one batch, not between two."
        )
    if size == 0 and not zero_allowed:
        raise ValueError(f"`{name}` is zero: every entry is 0.")
    return 0.5 * matrix + 0.5 * matrix.T, values.dtype


@torch.no_grad()
def checked_labels(name: str, y: object, matrix: Float64[Tensor, "n n"]) -> Float64[Tensor, "..."]:
    """Labels in float64 on the matrix's device; refuses those that do not fit it."""
    labels = as_tensor(y)
    if not isinstance(labels, Tensor) or labels.dtype == torch.bool or labels.is_complex():
        raise TypeError(f"`{name}` must be a tensor of numbers, got {describe(labels)}.")
    n = len(matrix)
    if labels.ndim not in (1, 2) or labels.shape[0] != n:
        shapes = f"({n},) or ({n}, columns), got {describe(labels)}"
        raise ValueError(f"`{name}` must have a label for each of the {n} examples of the kernel: shape {shapes}.")
    finite = torch.isfinite(labels).reshape(n, -1).all(1)
    if not bool(finite.all()):
        raise ValueError(f"`{name}` has NaN or infinity, first at index {int(torch.nonzero(~finite)[0, 0])}.")
    return labels.detach().to(matrix.device, torch.float64)


def _size(matrix: Float64[Tensor, "rows columns"]) -> Float64[Tensor, ""]:
    """The largest absolute entry, or 1; division by it keeps products of huge kernels in range."""
    size = matrix.abs().max()
    return torch.where(size > 0, size, torch.ones_like(size))


def _unit(matrix: Float64[Tensor, "n n"]) -> Float64[Tensor, "n n"]:
    """A matrix of Frobenius norm 1."""
    matrix = matrix / _size(matrix)
    return matrix / torch.linalg.matrix_norm(matrix)


def _centered(name: str, matrix: Float64[Tensor, "n n"], dtype: torch.dtype) -> Float64[Tensor, "n n"]:
    """A kernel minus the means of its rows and columns, of Frobenius norm 1."""
    matrix = matrix / _size(matrix)
    centered = matrix - matrix.mean(0, keepdim=True)
    centered = centered - centered.mean(1, keepdim=True)
    # The rounding of the entries themselves remains.
    rounding = torch.finfo(dtype).eps * torch.linalg.matrix_norm(matrix)
    if torch.linalg.matrix_norm(centered) <= 4 * rounding:
        raise ValueError(f"`{name}` is constant: centering leaves nothing of it; `alignment` does not center.")
    return _unit(centered)


def refuse_indefinite(values: Float64[Tensor, " n"], dtype: torch.dtype) -> None:
    """Refuse eigenvalues, largest first, that are negative beyond the rounding of a kernel of this dtype."""
    share = float(values[-1] / values.abs().max())
    if share < -max(len(values) * torch.finfo(dtype).eps, ROUNDING[dtype]):
        raise ValueError(f"`kernel` is not positive semi-definite: an eigenvalue is {share:.1e} of the largest.")


def _split(kernel: KernelValues, y: Labels, jitter: float) -> tuple[LabelEnergySplit, torch.dtype]:
    """The label energy by eigenvectors in float64, and the dtype of the kernel, whose rounding sets the floor."""
    matrix, dtype = checked_kernel("kernel", kernel)
    labels = checked_labels("y", y, matrix)
    if not 0 <= jitter < float("inf"):
        raise ValueError(f"`jitter` must be 0 or a positive finite number, got {jitter}.")
    n = len(matrix)
    matrix = matrix / _size(matrix)
    values, vectors = torch.linalg.eigh(matrix)
    refuse_indefinite(values.flip(0), dtype)
    values, vectors = values.flip(0) / matrix.trace() + jitter / n, vectors.flip(1)
    precision = n * torch.finfo(dtype).eps
    if values[-1] < precision * values[0]:
        largest, smallest = float(values[0]) - jitter / n, float(values[-1]) - jitter / n
        # A tenth more than needed, so that the printed digits do not round below it.
        enough = 1.1 * n * (precision * largest - smallest) / (1 - precision)
        raise ValueError(
            f"`kernel` is singular to working precision: an eigenvalue is {smallest / largest:.1e} of the largest, "
            f"below {n} times the rounding of {dtype}. Remove equal inputs, or pass `jitter=` ({enough:.1e} or more)."
        )
    projections = (vectors.T @ labels) ** 2
    inverse = (1 / values).reshape(-1, *(1,) * (labels.ndim - 1))
    return LabelEnergySplit(values, projections, projections * inverse), dtype
