"""Which solver a machine uses under its memory budget, and the report of what it did."""

import time
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64
from sklearn.exceptions import ConvergenceWarning

from neuralpath._memory import format_memory
from neuralpath.estimators.cholesky import Factor, SingularKernel, factorize
from neuralpath.estimators.conjugate_gradients import NegativeDirection, conjugate_gradients
from neuralpath.estimators.inputs import checked_count, checked_tolerance
from neuralpath.estimators.kernel_products import check_symmetric, dense_kernel, make_symmetric, rounding
from neuralpath.estimators.kernel_tiles import KernelTiles, held
from neuralpath.estimators.lowest import lowest_eigenvalue, smallest_ridge
from neuralpath.estimators.nystrom import Nystrom, nystrom

SOLVERS = ("auto", "cholesky", "cg")

DEFAULT_RANK = 256
"""Rank of the preconditioner, at most: its pass costs as much as some ten iterations with ten classes."""

_CG_COLUMNS = 6  # n-vectors for each right-hand side: coefficients, residual, direction, image and what is between
_NYSTROM_COLUMNS = 3  # n-vectors for each of the rank


@dataclass(frozen=True, slots=True)
class SolverOptions:
    """How to solve; ``budget`` is in bytes, ``rank`` None is chosen by the size of the kernel."""

    solver: str
    tol: float
    max_iter: int
    rank: int | None
    budget: int
    seed: int

    def __post_init__(self) -> None:
        if self.solver not in SOLVERS:
            raise ValueError(f"`solver` must be one of {', '.join(map(repr, SOLVERS))}, got {self.solver!r}.")
        checked_tolerance(self.tol)
        checked_count("max_iter", self.max_iter, least=1)
        if self.rank is not None:
            checked_count("rank", self.rank, least=0)


@dataclass(frozen=True, slots=True, eq=False)
class SolveReport:
    """What a fit did.

    ``residuals`` are the true ones, of (K + ridge I) a = y relative to y, one for each column of the targets.
    ``passes`` counts runs through the whole kernel, that of the preconditioner included; ``kernel`` says what a pass
    does, and ``choice`` why this solver was taken.
    """

    solver: str
    converged: bool
    iterations: int
    passes: int
    residuals: Float64[np.ndarray, " k"]
    tol: float | None  # None for the exact solver, which has no tolerance
    rank: int
    seconds: float
    kernel: str
    choice: str

    def __str__(self) -> str:
        end = "converged" if self.converged else "NOT converged"
        work = f"{end} in {self.iterations} iterations, rank {self.rank}, tol {self.tol:.0e}, " if self.tol else ""
        return (
            f"{self.solver}: {work}largest relative residual {self.residuals.max(initial=0.0):.1e}, "
            f"{self.seconds:.1f} s; kernel {self.kernel}; {self.choice}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """Coefficients, and the factor where the solver has one."""

    coefficients: Float64[np.ndarray, "n k"]
    factor: Factor | None
    report: SolveReport


def solve(kernel: KernelTiles, targets: Float64[np.ndarray, "n k"], ridge: float, options: SolverOptions) -> Solved:
    """Solve (K + ridge I) a = y, by Cholesky where the matrix fits the budget, else by conjugate gradients.

    Raises: MemoryError where the chosen solver needs more than the budget; SingularKernel; ValueError for a kernel
    that is not symmetric or not finite.
    """
    n, k = targets.shape
    needed = 8 * n * n + kernel.working_bytes + 32 * n * k
    budget = options.budget
    fits = needed <= budget
    sizes = f"the matrix takes {format_memory(needed)} of a budget of {format_memory(budget)}"
    if options.solver == "cholesky" and not fits:
        raise MemoryError(
            f"the exact solver needs {format_memory(needed)} for {n:,} examples, more than the memory budget of "
            f"{format_memory(budget)}: give memory={needed} or more, or take solver='cg', or a sketch."
        )
    choice = "as asked" if options.solver != "auto" else sizes
    if options.solver == "cholesky" or (options.solver == "auto" and fits):
        return _exactly(kernel, targets, ridge, choice)
    return _iteratively(kernel, targets, ridge, options, choice)


def _exactly(kernel: KernelTiles, targets: Float64[np.ndarray, "n k"], ridge: float, choice: str) -> Solved:
    begun = time.perf_counter()
    matrix = dense_kernel(kernel)
    if not kernel.symmetric:
        check_symmetric(matrix, rounding(kernel.itemsize))
        make_symmetric(matrix)
    factor = factorize(matrix, ridge)
    coefficients = factor.solve(targets)
    gap = targets - factor.kernel_times(coefficients) - ridge * coefficients
    residuals = _relative(gap, targets)
    report = SolveReport(
        "cholesky", True, 0, 1, residuals, None, 0, time.perf_counter() - begun, "whole in memory", choice
    )
    return Solved(coefficients, factor, report)


def _iteratively(
    kernel: KernelTiles, targets: Float64[np.ndarray, "n k"], ridge: float, options: SolverOptions, choice: str
) -> Solved:
    begun = time.perf_counter()
    n, k = targets.shape
    rank = min(n // 8, DEFAULT_RANK) if options.rank is None else min(options.rank, n)
    needed = 8 * n * (_CG_COLUMNS * k + _NYSTROM_COLUMNS * rank) + kernel.working_bytes
    if needed > options.budget:
        raise MemoryError(
            f"conjugate gradients need {format_memory(needed)} for {n:,} examples, {k} columns and a preconditioner of "
            f"rank {rank}, more than the memory budget of {format_memory(options.budget)}: give memory={needed} or "
            "more, or a smaller `rank`, or take a sketch."
        )
    if kernel.holdable and needed + kernel.held_bytes <= options.budget:
        kernel = held(kernel)
    # Two columns are looked at in any case: they show a kernel that is not symmetric or not finite.
    approximation = nystrom(kernel, min(max(rank, 2), n), options.seed)
    preconditioner = approximation if rank else Nystrom(torch.zeros(0).double(), torch.zeros(n, 0).double())
    largest = float(approximation.eigenvalues.max()) if len(approximation.eigenvalues) else 0.0
    if largest + ridge <= 0:
        raise SingularKernel(
            "the kernel with `ridge`=0 is not positive definite: no direction that was looked at has a positive "
            "energy. Are the inputs all 0?"
        )
    try:
        solution = conjugate_gradients(
            kernel, torch.from_numpy(targets), ridge, preconditioner, tol=options.tol, max_iter=options.max_iter
        )
    except NegativeDirection as found:
        raise SingularKernel(_not_definite(kernel, ridge, found, largest or 1.0, options.tol)) from found
    residuals = solution.residuals.numpy()
    report = SolveReport(
        "cg", bool((residuals <= options.tol).all()), solution.iterations, solution.passes + 1, residuals, options.tol,
        rank, time.perf_counter() - begun, kernel.origin, choice,
    )  # fmt: skip
    if not report.converged:
        _warn(report, ridge, largest, options)
    return Solved(solution.coefficients.numpy(), None, report)


def _not_definite(kernel: KernelTiles, ridge: float, found: NegativeDirection, largest: float, tol: float) -> str:
    """The message for a matrix that is not positive definite, with the ridge that makes it so."""
    lowest = lowest_eigenvalue(kernel, largest)
    least = (
        f"above {ridge - found.energy:.3g}" if lowest is None else f"{smallest_ridge(lowest, largest, tol):.3g} or more"
    )
    return (
        f"the kernel with `ridge`={ridge:g} is not positive definite: a direction has the energy {found.energy:.2g}. "
        f"The ridge must be {least}. Or compute the kernel in float64, or remove duplicate inputs."
    )


def _warn(report: SolveReport, ridge: float, largest: float, options: SolverOptions) -> None:
    slow = int((report.residuals > options.tol).sum())
    if report.iterations < options.max_iter:
        enough = smallest_ridge(0.0, largest, options.tol)
        advice = f"the residual no longer falls: raise `ridge` (now {ridge:g}) to {enough:.2g}, or raise `tol`"
    else:
        advice = f"raise `max_iter` (now {options.max_iter}), `rank` (now {report.rank}) or `ridge` (now {ridge:g})"
    warnings.warn(
        f"conjugate gradients stopped after {report.iterations} iterations with {slow} of {len(report.residuals)} "
        f"columns above the tolerance: the largest relative residual is {report.residuals.max():.1e}, `tol` is "
        f"{options.tol:.0e}. {advice[0].upper()}{advice[1:]}.",
        ConvergenceWarning, stacklevel=5,
    )  # fmt: skip


def _relative(gap: Float64[np.ndarray, "n k"], targets: Float64[np.ndarray, "n k"]) -> Float64[np.ndarray, " k"]:
    norms = np.linalg.norm(targets, axis=0)
    return np.linalg.norm(gap, axis=0) / np.where(norms > 0, norms, 1.0)
