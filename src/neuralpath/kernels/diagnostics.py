"""Diagnostics that act on any kernel matrix: label energy, spectrum, condition number, alignments.

All compute in float64 and return the kernel's dtype. They measure and are not differentiated: no gradient flows.
A kernel is a symmetric matrix of float32 or float64, or a stored one that fits into memory; symmetric means to
``ROUNDING``, relative to its largest entry, and what is used is its symmetric part. An eigenvalue below ``n * eps``
times the largest, with ``eps`` that of the kernel's own dtype, cannot be told from 0: the kernel is then singular to
working precision.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Real
from torch import Tensor

from neuralpath._checks import describe
from neuralpath.kernels.storage.store import StoredKernel

KernelMatrix = Float[Tensor, "n n"] | StoredKernel

ROUNDING = {torch.float32: 1e-5, torch.float64: 1e-12}
"""By how much a kernel of each dtype may differ from its transpose, relative to its largest entry."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelEnergySplit:
    """The label energy by eigenvectors, largest eigenvalue first; a column for each column of the labels.

    ``contributions`` are ``projections / eigenvalues``, where ``projections`` are the squared inner products of the
    labels with the eigenvectors.
    """

    eigenvalues: Float[Tensor, " n"]
    projections: Float[Tensor, "n *columns"]
    contributions: Float[Tensor, "n *columns"]

    def __post_init__(self) -> None:
        if self.projections.shape != self.contributions.shape or len(self.projections) != len(self.eigenvalues):
            raise ValueError(
                "`eigenvalues`, `projections` and `contributions` must have one row for each eigenvector, got "
                f"{describe(self.eigenvalues)}, {describe(self.projections)} and {describe(self.contributions)}."
            )

    @property
    def total(self) -> Float[Tensor, "*columns"]:
        """The label energy."""
        return self.contributions.sum(0)


def label_energy(
    kernel: KernelMatrix, y: Real[Tensor, "n *columns"], *, jitter: float = 0.0
) -> Float[Tensor, "*columns"]:
    r"""Energy of the labels in the inverse of a kernel of trace 1: small where the kernel suits the labels.

    .. math:: \nu = y^\top \hat H^{-1} y = \sum_i (u_i^\top y)^2 / \hat\rho_i, \qquad \hat H = H / \mathrm{trace}(H)

    Symbols: :math:`H` is ``kernel``, of any scale; :math:`\hat\rho_i, u_i` are the eigenvalues, which sum to 1, and
    the orthonormal eigenvectors of :math:`\hat H`. For labels with several columns, such as one-hot classes, one
    value for each column. ``jitter`` adds that share of the mean eigenvalue, 1/n, to every eigenvalue of
    :math:`\hat H`; the trace is that of ``kernel`` as it was given.

    Reference: P1 section 6, "NPK during training"; P0 figure 3.
    Assumes: a positive definite kernel to working precision: no eigenvalue, after jitter, below n * eps times the
    largest, with eps that of the kernel's dtype. Relative error: about eps times the condition number.
    Cost: one eigendecomposition, O(n^3).
    Raises: ValueError if the kernel is not square, symmetric and finite, is zero, has an eigenvalue that is negative
    beyond rounding, or is singular to working precision (the message names the jitter that would do), or if the labels
    do not fit; TypeError for other dtypes.

    >>> label_energy(torch.eye(3), torch.tensor([1.0, -1.0, 1.0]))
    tensor(9.)
    """
    matrix, labels = checked_kernel("kernel", kernel), checked_labels("y", y, kernel)
    return _split(matrix, labels, kernel.dtype, jitter).total.to(kernel.dtype)


def label_energy_by_eigenvector(
    kernel: KernelMatrix, y: Real[Tensor, "n *columns"], *, jitter: float = 0.0
) -> LabelEnergySplit:
    r"""The label energy split over the eigenvectors of the kernel, largest eigenvalue first.

    .. math:: \nu = \sum_i (u_i^\top y)^2 / \hat\rho_i

    Symbols: as in ``label_energy``; :math:`\hat\rho_i` are ``eigenvalues``, :math:`(u_i^\top y)^2` are ``projections``,
    their quotients ``contributions``. Where eigenvalues coincide, only the sums of projections over equal ones have
    a meaning.
    Reference: P1 section 6. Cost, Raises: as ``label_energy``.

    >>> split = label_energy_by_eigenvector(torch.diag(torch.tensor([1.0, 3.0])), torch.tensor([1.0, 2.0]))
    >>> split.eigenvalues.tolist(), split.projections.tolist()
    ([0.75, 0.25], [4.0, 1.0])
    """
    matrix, labels = checked_kernel("kernel", kernel), checked_labels("y", y, kernel)
    split = _split(matrix, labels, kernel.dtype, jitter)
    return LabelEnergySplit(*(t.to(kernel.dtype) for t in (split.eigenvalues, split.projections, split.contributions)))


def spectrum(kernel: KernelMatrix) -> Float[Tensor, " n"]:
    """Eigenvalues of a kernel, largest first.

    Those of a singular kernel come out as rounding leaves them, slightly negative at times.
    Cost: O(n^3). Raises: ValueError if the kernel is not square, symmetric and finite; TypeError for other dtypes.

    >>> spectrum(torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
    tensor([3., 1.])
    """
    matrix = checked_kernel("kernel", kernel, zero_allowed=True)
    size = _size(matrix)
    return (_eigenvalues(matrix / size) * size).to(kernel.dtype)


def condition_number(kernel: KernelMatrix) -> Float[Tensor, ""]:
    r"""Ratio of the largest to the smallest eigenvalue of a kernel.

    .. math:: \rho_{max}(H) / \rho_{min}(H)

    Infinite where the smallest eigenvalue is below n * eps times the largest, with eps that of the kernel's dtype: the
    kernel is then singular to working precision, and a finite number would be noise.
    Cost: O(n^3). Raises: as ``spectrum``; ValueError for a zero kernel, or for one with an eigenvalue that is negative
    beyond rounding.

    >>> condition_number(torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
    tensor(3.)
    """
    matrix = checked_kernel("kernel", kernel)
    values = _eigenvalues(matrix / _size(matrix))
    refuse_indefinite(values, kernel.dtype)
    floor = len(values) * torch.finfo(kernel.dtype).eps * values[0]
    ratio = values[0] / values[-1] if values[-1] >= floor else values.new_tensor(torch.inf)
    return ratio.to(kernel.dtype)


def alignment(kernel: KernelMatrix, other: Real[Tensor, "n *columns"] | StoredKernel) -> Float[Tensor, ""]:
    r"""Alignment of a kernel with labels or with a second kernel: the cosine between them as vectors.

    .. math:: \frac{\langle K, L \rangle_F}{\|K\|_F \|L\|_F}, \qquad L = Y Y^\top \text{ for labels } Y

    ``other`` is a label vector, a label matrix with a column for each class (one-hot), or a kernel. A square matrix is
    taken for a kernel: give as many label columns as examples as their product, ``labels @ labels.T``.
    Reference: Cristianini et al., "On kernel-target alignment", 2001. Not centered: a constant kernel aligns with every
    kernel of non-negative entries; see ``centered_alignment``.
    Cost: O(n^2), times the number of label columns.
    Raises: ValueError if a kernel is not square, symmetric and finite, does not fit, or if either is zero; TypeError
    for other dtypes.

    >>> y = torch.tensor([1.0, -1.0, 1.0])
    >>> alignment(torch.outer(y, y), y), alignment(torch.eye(2), torch.ones(2, 2))
    (tensor(1.), tensor(0.7071))
    """
    matrix = _unit(checked_kernel("kernel", kernel))
    if isinstance(other, StoredKernel) or (isinstance(other, Tensor) and other.shape == kernel.shape):
        second = _unit(checked_kernel("other", other)).to(matrix)
        return (matrix * second).sum().to(kernel.dtype)
    labels = checked_labels("other", other, kernel).reshape(len(kernel), -1)
    if not bool(labels.any()):
        raise ValueError("`other` is zero: nothing aligns with labels that are all 0.")
    labels = labels / _size(labels)
    return ((labels * (matrix @ labels)).sum() / torch.linalg.matrix_norm(labels.T @ labels)).to(kernel.dtype)


def centered_alignment(kernel1: KernelMatrix, kernel2: KernelMatrix) -> Float[Tensor, ""]:
    r"""Centered alignment of two kernels on the same examples (CKA): 1 for equal ones up to scale, 0 for unrelated.

    .. math:: \frac{\langle CKC, CLC \rangle_F}{\|CKC\|_F \|CLC\|_F}, \qquad C = I - \tfrac1n 1 1^\top

    Symbols: :math:`K, L` are ``kernel1`` and ``kernel2``. Scaling either, or adding a constant to all its entries,
    changes nothing.
    Reference: Cortes, Mohri and Rostamizadeh 2012, definition 4; Kornblith et al. 2019, section 3.
    Cost: O(n^2). The result has the dtype of ``kernel1``.
    Raises: ValueError if a kernel is not square, symmetric and finite, if they differ in size, or if one is constant
    after centering, to rounding; TypeError for other dtypes.

    >>> x = torch.tensor([[0.0], [1.0], [3.0]])
    >>> centered_alignment(x @ x.T, 2 * (x + 5) @ (x + 5).T)
    tensor(1.)
    """
    first, second = checked_kernel("kernel1", kernel1), checked_kernel("kernel2", kernel2)
    if len(first) != len(second):
        raise ValueError(
            f"`kernel1` and `kernel2` must be of the same examples, got {len(first)} and {len(second)} of them."
        )
    one = _centered("kernel1", first, kernel1.dtype)
    two = _centered("kernel2", second, kernel2.dtype)
    return (one * two.to(one)).sum().to(kernel1.dtype)


@torch.no_grad()
def checked_kernel(name: str, kernel: KernelMatrix, *, zero_allowed: bool = False) -> Float64[Tensor, "n n"]:
    """The symmetric part of a kernel in float64; refuses what is not a kernel matrix."""
    if isinstance(kernel, StoredKernel):
        kernel = kernel.filled()
    if not isinstance(kernel, Tensor) or kernel.dtype not in ROUNDING:
        raise TypeError(f"`{name}` must be a float32 or float64 matrix, got {describe(kernel)}.")
    if kernel.ndim != 2 or kernel.shape[0] != kernel.shape[1] or kernel.shape[0] == 0:
        raise ValueError(f"`{name}` must be a square matrix, got {describe(kernel)}.")
    finite = torch.isfinite(kernel)
    if not bool(finite.all()):
        row, column = torch.nonzero(~finite)[0].tolist()
        raise ValueError(
            f"`{name}` has NaN or infinity in {int((~finite).sum())} of its entries, the first at row {row}, column "
            f"{column}."
        )
    matrix = kernel.detach().double()
    size, gap = float(matrix.abs().max()), float((0.5 * matrix - 0.5 * matrix.T).abs().max()) * 2
    if gap > ROUNDING[kernel.dtype] * size:
        raise ValueError(
            f"`{name}` is not symmetric: entries differ from those across the diagonal by up to {gap / size:.1e} of "
            f"the largest, more than {ROUNDING[kernel.dtype]:.0e}. Give a kernel of one batch, not between two."
        )
    if size == 0 and not zero_allowed:
        raise ValueError(f"`{name}` is zero: every entry is 0.")
    return 0.5 * matrix + 0.5 * matrix.T


@torch.no_grad()
def checked_labels(name: str, y: Real[Tensor, "n *columns"], kernel: KernelMatrix) -> Float64[Tensor, "..."]:
    """Labels in float64 on the kernel's device; refuses those that do not fit it."""
    if not isinstance(y, Tensor) or y.dtype == torch.bool or y.is_complex():
        raise TypeError(f"`{name}` must be a tensor of numbers, got {describe(y)}.")
    n = len(kernel)
    if y.ndim not in (1, 2) or y.shape[0] != n:
        raise ValueError(
            f"`{name}` must have a label for each of the {n} examples of the kernel, with shape ({n},) or ({n}, "
            f"columns), got {describe(y)}."
        )
    finite = torch.isfinite(y).reshape(n, -1).all(1)
    if not bool(finite.all()):
        raise ValueError(f"`{name}` has NaN or infinity, first at index {int(torch.nonzero(~finite)[0, 0])}.")
    return y.detach().to(kernel.device, torch.float64)


def _size(matrix: Float64[Tensor, "rows columns"]) -> Float64[Tensor, ""]:
    """The largest absolute entry, or 1; dividing by it keeps products of huge kernels in range."""
    size = matrix.abs().max()
    return torch.where(size > 0, size, torch.ones_like(size))


def _unit(matrix: Float64[Tensor, "n n"]) -> Float64[Tensor, "n n"]:
    """A matrix of Frobenius norm 1."""
    matrix = matrix / _size(matrix)
    return matrix / torch.linalg.matrix_norm(matrix)


def _centered(name: str, matrix: Float64[Tensor, "n n"], dtype: torch.dtype) -> Float64[Tensor, "n n"]:
    """A kernel with the means of rows and columns taken off, of Frobenius norm 1."""
    matrix = matrix / _size(matrix)
    centered = matrix - matrix.mean(0, keepdim=True)
    centered = centered - centered.mean(1, keepdim=True)
    # Taking means off leaves the rounding of the entries themselves.
    rounding = torch.finfo(dtype).eps * torch.linalg.matrix_norm(matrix)
    if torch.linalg.matrix_norm(centered) <= 4 * rounding:
        raise ValueError(
            f"`{name}` is constant: nothing is left of it after centering, so it has no centered alignment; "
            "`alignment` does not center."
        )
    return _unit(centered)


def _eigenvalues(matrix: Float64[Tensor, "n n"]) -> Float64[Tensor, " n"]:
    """Eigenvalues, largest first."""
    return torch.linalg.eigvalsh(matrix).flip(0)


def refuse_indefinite(values: Float64[Tensor, " n"], dtype: torch.dtype) -> None:
    """Refuse eigenvalues, largest first, that are negative beyond the rounding of a kernel of this dtype."""
    share = float(values[-1] / values.abs().max())
    if share < -max(len(values) * torch.finfo(dtype).eps, ROUNDING[dtype]):
        raise ValueError(
            f"`kernel` is not positive semi-definite: its smallest eigenvalue is {share:.1e} of the largest in size, "
            "negative beyond rounding."
        )


def _split(
    matrix: Float64[Tensor, "n n"], labels: Float64[Tensor, "n *columns"], dtype: torch.dtype, jitter: float
) -> LabelEnergySplit:
    """The label energy by eigenvectors in float64; ``dtype`` is that of the kernel, whose rounding sets the floor."""
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
            f"`kernel` is singular to working precision: its smallest eigenvalue is {smallest / largest:.1e} of the "
            f"largest, below {n} times the rounding of {str(dtype).removeprefix('torch.')}. Remove duplicate inputs, "
            f"compute the kernel in float64, or pass `jitter=` ({enough:.1e} or more)."
        )
    projections = (vectors.T @ labels) ** 2
    inverse = (1 / values).reshape(-1, *(1,) * (labels.ndim - 1))
    return LabelEnergySplit(values, projections, projections * inverse)
