"""The choice of a solver under a memory budget, and the report of what it did."""

import time
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64
from sklearn.exceptions import ConvergenceWarning

from neuralpath._checks import check_integer, check_number
from neuralpath._resources import format_memory
from neuralpath.estimators.cholesky import Factor, SingularKernel, factorize
from neuralpath.estimators.conjugate_gradients import Nystrom, conjugate_gradients, nystrom
from neuralpath.estimators.tiles import KernelMatrix, cached, check_symmetric, dense_kernel, make_symmetric

SOLVERS = ("auto", "cholesky", "cg")

DEFAULT_RANK = 256  # largest one of the preconditioner: its pass costs as much as ten iterations with ten classes
_CG_COLUMNS = 6  # n-vectors for each right-hand side: coefficients, residual, direction, image and temporaries
_NYSTROM_COLUMNS = 3  # n-vectors for each unit of rank


@dataclass(frozen=True, slots=True)
class SolverOptions:
    """Settings of a solver; ``budget`` is in bytes, ``rank=None`` depends on the size of the kernel."""

    solver: str
    tol: float
    max_iter: int
    rank: int | None
    budget: int
    seed: int

    def __post_init__(self) -> None:
        if self.solver not in SOLVERS:
            raise ValueError(f"`solver` must be one of {', '.join(map(repr, SOLVERS))}, got {self.solver!r}.")
        if check_number("tol", self.tol) >= 1:
            raise ValueError(f"`tol` must be a relative residual between 0 and 1, got {self.tol!r}.")
        check_integer("max_iter", self.max_iter)
        if self.rank is not None:
            check_integer("rank", self.rank, 0)


@dataclass(frozen=True, slots=True, eq=False)
class SolveReport:
    """What a fit did; the attribute ``report_`` of a fitted estimator. ``print`` it for one line of text.

    Args:
        solver: ``"cholesky"`` or ``"cg"``.
        converged: Whether all residuals are below ``tol``; always true for Cholesky.
        residuals: True residuals of (K + ridge I) a = y relative to y, one for each column of the targets.
        seconds: Time of the fit.
        kernel: What a pass over the kernel does, such as "computed in each pass".
        reason: Why this solver was taken.
        passes: Passes over the whole kernel, including the pass of the preconditioner.
        iterations: Iterations of conjugate gradients.
        tol: Tolerance of conjugate gradients, None for Cholesky.
        rank: Rank of the preconditioner.
    """

    solver: str
    converged: bool
    residuals: Float64[np.ndarray, " k"]
    seconds: float
    kernel: str
    reason: str
    passes: int = 1
    iterations: int = 0
    tol: float | None = None
    rank: int = 0

    def __str__(self) -> str:
        end = "converged" if self.converged else "NOT converged"
        steps = f"{end} in {self.iterations} iterations, rank {self.rank}, tol {self.tol:.0e}, " if self.tol else ""
        return (
            f"{self.solver}: {steps}largest relative residual {self.residuals.max(initial=0.0):.1e}, "
            f"{self.seconds:.1f} s; kernel {self.kernel}; {self.reason}"
        )


Targets = Float64[np.ndarray, "n k"]
Solved = tuple[Targets, Factor | None, SolveReport]
"""Coefficients, the Cholesky factor if the solver was exact, and the report."""


def solve(kernel: KernelMatrix, targets: Targets, ridge: float, options: SolverOptions) -> Solved:
    """Solve (K + ridge I) a = y, by Cholesky if the matrix fits the budget, else by conjugate gradients."""
    n, k = targets.shape
    needed, budget = 8 * n * n + kernel.working_bytes + 32 * n * k, options.budget
    fits = needed <= budget
    if options.solver == "cholesky" and not fits:
        problem = f"the exact solver needs {format_memory(needed)} for {n:,} examples"
        advice = f"give memory={needed} or more, or use solver='cg' or a sketch"
        raise MemoryError(f"{problem}, the budget is {format_memory(budget)}: {advice}.")
    memory = f"the matrix takes {format_memory(needed)} of a budget of {format_memory(budget)}"
    reason = memory if options.solver == "auto" else "as requested"
    if options.solver == "cholesky" or (options.solver == "auto" and fits):
        return _solve_exactly(kernel, targets, ridge, reason)
    return _iterate(kernel, targets, ridge, options, reason)


def _solve_exactly(kernel: KernelMatrix, targets: Targets, ridge: float, reason: str) -> Solved:
    start = time.perf_counter()
    matrix = dense_kernel(kernel)
    if not kernel.symmetric:
        check_symmetric(matrix, kernel.itemsize)
        make_symmetric(matrix)
    factor = factorize(matrix, ridge)
    coefficients = factor.solve(targets)
    residual = targets - factor.kernel_times(coefficients) - ridge * coefficients
    norms = np.linalg.norm(targets, axis=0)
    relative = np.linalg.norm(residual, axis=0) / np.where(norms > 0, norms, 1.0)
    seconds = time.perf_counter() - start
    return coefficients, factor, SolveReport("cholesky", True, relative, seconds, "whole in memory", reason)


def _iterate(kernel: KernelMatrix, targets: Targets, ridge: float, options: SolverOptions, reason: str) -> Solved:
    start = time.perf_counter()
    n, k = targets.shape
    rank = min(n // 8, DEFAULT_RANK) if options.rank is None else min(options.rank, n)
    needed = 8 * n * (_CG_COLUMNS * k + _NYSTROM_COLUMNS * rank) + kernel.working_bytes
    if needed > options.budget:
        problem = f"conjugate gradients need {format_memory(needed)} for {n:,} examples, {k} columns and rank {rank}"
        advice = f"give memory={needed} or more, or a smaller `rank`, or use a sketch"
        raise MemoryError(f"{problem}, the budget is {format_memory(options.budget)}: {advice}.")
    if kernel.cacheable and needed + kernel.cached_bytes <= options.budget:
        kernel = cached(kernel)
    # At least two columns are computed: they reveal a kernel that is not symmetric or not finite.
    approximation = nystrom(kernel, min(max(rank, 2), n), options.seed)
    preconditioner = approximation if rank else Nystrom(torch.zeros(0).double(), torch.zeros(n, 0).double())
    largest = float(approximation.eigenvalues.max()) if len(approximation.eigenvalues) else 0.0
    if largest + ridge <= 0:
        raise SingularKernel("the kernel with `ridge`=0 is not positive definite. Are all inputs 0?")
    coefficients, relative, iterations, passes = conjugate_gradients(
        kernel, torch.from_numpy(targets), ridge, preconditioner, tol=options.tol, max_iter=options.max_iter
    )
    converged, seconds = bool((relative <= options.tol).all()), time.perf_counter() - start
    counts = passes + 1, iterations, options.tol, rank
    report = SolveReport("cg", converged, relative.numpy(), seconds, kernel.origin, reason, *counts)
    if not report.converged:
        _warn(report, ridge, largest, options)
    return coefficients.numpy(), None, report


def _warn(report: SolveReport, ridge: float, largest: float, options: SolverOptions) -> None:
    above = int((report.residuals > options.tol).sum())
    if report.iterations < options.max_iter:
        # Rounding leaves a residual of about eps * largest eigenvalue / ridge.
        enough = 4 * np.finfo(np.float64).eps * largest / options.tol
        advice = f"The residual no longer falls: raise `ridge` (now {ridge:g}) to {enough:.2g}, or raise `tol`"
    else:
        advice = f"Raise `max_iter` (now {options.max_iter}), `rank` (now {report.rank}) or `ridge` (now {ridge:g})"
    problem = f"{report.iterations} iterations left {above} of {len(report.residuals)} columns above the tolerance"
    largest_residual = f"the largest relative residual is {report.residuals.max():.1e}, `tol` is {options.tol:.0e}"
    text = f"conjugate gradients: {problem}; {largest_residual}. {advice}."
    warnings.warn(text, ConvergenceWarning, stacklevel=5)
