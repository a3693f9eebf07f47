r"""Training of a model with a fixed kernel on the squared loss.

The loss is :math:`L = c \sum_s \|f(x_s) - y_s\|^2`, with :math:`c` the ``loss_scale``. For a constant kernel
(the tangent kernel of a wide network, an expected or limit kernel, a path kernel times its constant) the error
:math:`e = f - y` on the training set obeys

.. math:: \dot e_t = -2c K e_t \quad\text{(gradient flow)}, \qquad
    e_{t+1} = (I - 2c \eta K) e_t \quad\text{(gradient descent with rate } \eta)

The default :math:`c = 1/2` is the papers' :math:`\dot e = -K e`, a sum over the examples. The mean over n examples of
half the square is ``loss_scale = 0.5 / n``; torch's ``MSELoss`` for n examples with k outputs is ``1 / (n * k)``.
A step of rate :math:`\eta` is a time of :math:`\eta`: t steps of a small rate are the flow at the time
:math:`\eta t`.
"""

from dataclasses import dataclass, field
from math import inf

import numpy as np
import torch
from jaxtyping import Float, Float64, Int, Real
from torch import Tensor

from neuralpath._checks import describe
from neuralpath.kernels import diagnostics
from neuralpath.kernels.diagnostics import FillableMatrix, KernelValues, Labels, checked_labels

Spectrum = Float64[Tensor, " n"]
Moments = Float64[Tensor, "*moments n"]
Before = Real[Tensor, "_batch *columns"] | float
"""Outputs before training: one number for all, or a tensor."""


@dataclass(frozen=True, slots=True, eq=False)
class GradientSteps:
    """A number of steps of gradient descent with one learning rate."""

    count: int | Int[Tensor, " moments"]
    """GradientSteps from the beginning of training; a vector for several moments."""
    rate: float
    """The learning rate."""

    def __post_init__(self) -> None:
        counts = torch.as_tensor(self.count)
        if counts.is_floating_point() or counts.dtype == torch.bool or counts.ndim > 1 or bool((counts < 0).any()):
            raise ValueError(f"`count` must be a number of steps or a vector of them, got {describe(self.count)}.")
        if not 0 < self.rate < inf:
            raise ValueError(f"`rate` must be a positive finite number, got {self.rate}.")


When = float | Real[Tensor, " moments"] | GradientSteps
"""A moment of training: a time of gradient flow (``math.inf`` for the end), a vector of times, or steps."""


@dataclass(frozen=True, slots=True, eq=False)
class KernelDynamics:
    r"""Training of a model with the fixed kernel :math:`K`, from one eigendecomposition.

    .. math:: f_t = y + e^{-2cKt} (f_0 - y), \qquad f_t(x) = f_0(x) + K_x K^{-1} (I - e^{-2cKt}) (y - f_0)

    Symbols: :math:`K` is ``kernel``, of the training set; :math:`c` is ``loss_scale``, see this module; :math:`K_x` is
    the kernel between a test input and the training set. Gradient descent has :math:`(I - 2c \eta K)^t` in the place of
    the exponential. The kernel may be singular: at an eigenvalue 0, :math:`(1 - e^{-2c\lambda t})/\lambda` is
    :math:`2ct`.

    **The end of training** (``math.inf``) needs a rank. Eigenvalues at or below ``cutoff`` times the largest count as
    0. The components of the error along them are never learned and take no part in test outputs, which are
    :math:`f_0(x) + K_x K^+ (y - f_0)` with the pseudo-inverse. ``rank`` is the number of eigenvalues above. At finite
    times nothing is cut off. After the time ``1 / (2 * loss_scale * cutoff * largest eigenvalue)`` rounding appears in
    the test outputs of a singular kernel.

    Targets and outputs are one column, or several that share the kernel. For outputs that do not share it, give the
    kernel of all pairs of (example, output) as one matrix and the targets as one column in the same order.

    Reference: P1 proposition 1.1; P0 equations 1 and 6.
    Cost: O(n^3) once, then O(n^2) for each moment and column. Computes in float64, returns the kernel's dtype.

    Args:
        kernel: The kernel of the training set: a tensor, an array, or an object with ``filled()``.
        loss_scale: :math:`c`; see the formulas at the top of this module.
        cutoff: The share of the largest eigenvalue that counts as 0. None for n * eps, with eps that of the kernel's
            dtype: the rounding of the eigenvalues.

    Raises:
        ValueError: The kernel is not square, symmetric, finite and positive semi-definite up to rounding.
        TypeError: Another dtype.

    >>> dynamics = KernelDynamics(torch.diag(torch.tensor([1.0, 2.0])))
    >>> dynamics.train(torch.tensor([1.0, 1.0]), 1.0)  # 1 - e^-1 and 1 - e^-2
    tensor([0.6321, 0.8647])
    >>> dynamics.train(torch.tensor([1.0, 1.0]), GradientSteps(2, rate=0.5))
    tensor([0.7500, 1.0000])
    """

    kernel: KernelValues = field(repr=False)
    loss_scale: float = 0.5
    cutoff: float | None = None
    dtype: torch.dtype = field(init=False)
    eigenvalues: Float64[Tensor, " n"] = field(init=False, repr=False)  # smallest first
    eigenvectors: Float64[Tensor, "n n"] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        matrix, dtype = diagnostics.checked_kernel("kernel", self.kernel, zero_allowed=True)
        if not 0 < self.loss_scale < inf:
            raise ValueError(f"`loss_scale` must be a positive finite number, got {self.loss_scale}.")
        if self.cutoff is not None and not 0 <= self.cutoff < 1:
            raise ValueError(f"`cutoff` must be a share of the largest eigenvalue, from 0 to 1, got {self.cutoff}.")
        values, vectors = torch.linalg.eigh(matrix)
        if bool(matrix.any()):
            diagnostics.refuse_indefinite(values.flip(0), dtype)
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "eigenvalues", values.clamp(min=0))
        object.__setattr__(self, "eigenvectors", vectors)

    @property
    def rank(self) -> int:
        """Number of eigenvalues above the cutoff: the directions that are learned in the end."""
        return int(self._learnable().sum())

    @property
    def largest_rate(self) -> float:
        r"""The largest stable learning rate, :math:`1 / (c \lambda_{max})`: gradient descent converges below it.

        At this rate one direction oscillates forever; beyond it the error grows. Infinite for a zero kernel.
        """
        largest = float(self.eigenvalues[-1])
        return 1 / (self.loss_scale * largest) if largest > 0 else inf

    @torch.no_grad()
    def train(self, y: Labels, when: When, *, initial: Before = 0.0) -> Float[Tensor, "..."]:
        """Outputs on the training set at a moment of training.

        Args:
            y: Targets of the training set.
            when: A time of gradient flow, ``math.inf`` for the end, a vector of times, or ``GradientSteps``.
            initial: Outputs before training.

        Returns:
            The outputs; several moments are on a new first axis.

        Raises:
            ValueError: Targets or initial outputs do not fit the kernel, or a time is negative.
            OverflowError: Gradient descent with too large a rate has exceeded the range.
        """
        targets = checked_labels("y", y, self.eigenvectors)
        missing = self._missing(targets, initial)
        remains, _ = self._after(when)
        left = self.eigenvectors @ (remains.unsqueeze(-1) * missing)
        return self._result(targets - left.reshape(*remains.shape[:-1], *targets.shape))

    @torch.no_grad()
    def test(
        self,
        cross: Float[Tensor, "test n"] | Float[np.ndarray, "test n"] | FillableMatrix,
        y: Labels,
        when: When,
        *,
        initial: Before = 0.0,
        initial_test: Before = 0.0,
    ) -> Float[Tensor, "..."]:
        """Outputs on other inputs at a moment of training.

        Args:
            cross: The kernel between these inputs and the training set, in that order and of the scale of ``kernel``.
            y: Targets of the training set.
            when: As for ``train``.
            initial: Outputs before training on the training set.
            initial_test: Outputs before training on these inputs.

        Returns:
            The outputs; several moments are on a new first axis.

        Raises:
            ValueError, OverflowError: As ``train``; or ``cross`` or ``initial_test`` does not fit.
        """
        targets = checked_labels("y", y, self.eigenvectors)
        matrix = self._checked_cross(cross)
        shape = (len(matrix), *targets.shape[1:])
        before = _outputs("initial_test", initial_test, shape, targets)
        missing = self._missing(targets, initial)
        _, gained = self._after(when)
        step = (matrix.to(targets) @ self.eigenvectors) @ (gained.unsqueeze(-1) * missing)
        return self._result(before + step.reshape(*gained.shape[:-1], *shape))

    def _missing(self, targets: Float64[Tensor, "n *columns"], initial: Before) -> Float64[Tensor, "n column"]:
        """The initial error with its sign changed, y - f_0, in the basis of eigenvectors."""
        start = _outputs("initial", initial, tuple(targets.shape), targets)
        return self.eigenvectors.T @ (targets - start).reshape(len(targets), -1)

    def _learnable(self) -> Tensor:
        cutoff = len(self.eigenvalues) * torch.finfo(self.dtype).eps if self.cutoff is None else self.cutoff
        return self.eigenvalues > cutoff * self.eigenvalues[-1]

    def _after(self, when: When) -> tuple[Moments, Moments]:
        """For each eigenvalue l the factor r that remains of the error at a moment, and (1 - r) / l."""
        factor = 2 * self.loss_scale
        speeds = factor * self.eigenvalues
        after = _after_steps(speeds, when) if isinstance(when, GradientSteps) else self._after_time(speeds, when)
        return after[0], factor * after[1]

    def _after_time(self, speeds: Spectrum, time: float | Real[Tensor, " moments"]) -> tuple[Moments, Moments]:
        times = torch.as_tensor(time, dtype=torch.float64).to(speeds).unsqueeze(-1)
        if times.ndim > 2 or not bool((times >= 0).all()):
            raise ValueError("`when` must be a time, 0 or later, or a vector of them; `math.inf` is the end of it.")
        ended, learnable = times.isinf(), self._learnable()
        elapsed = torch.where(ended, 0, times)
        remains, gained = _saturating(-speeds * elapsed, speeds, elapsed)
        in_the_end = torch.where(learnable, 1 / speeds, 0)
        return torch.where(ended, (~learnable).to(speeds), remains), torch.where(ended, in_the_end, gained)

    def _checked_cross(self, cross: object) -> Float[Tensor, "test n"]:
        n, matrix = len(self.eigenvalues), diagnostics.as_tensor(cross)
        if not isinstance(matrix, Tensor) or not matrix.is_floating_point():
            raise TypeError(f"`cross` must be a kernel between test inputs and training set, got {describe(matrix)}.")
        if matrix.ndim != 2 or matrix.shape[1] != n:
            raise ValueError(f"`cross` must have {n} columns, one for each training example, got {describe(matrix)}.")
        if not bool(torch.isfinite(matrix).all()):
            raise ValueError("`cross` has NaN or infinity.")
        return matrix

    def _result(self, outputs: Float64[Tensor, "..."]) -> Float[Tensor, "..."]:
        if not bool(torch.isfinite(outputs).all()):
            advice = f"use a rate below the `largest_rate`, {self.largest_rate:.3g}, or fewer steps"
            raise OverflowError(f"the outputs exceed the range, since gradient descent diverges: {advice}.")
        return outputs.to(self.dtype)


def _after_steps(speeds: Spectrum, steps: GradientSteps) -> tuple[Moments, Moments]:
    counts = torch.as_tensor(steps.count).to(speeds).unsqueeze(-1)
    shrink = steps.rate * speeds
    # By logarithms where a step does not overshoot, so that slow directions lose no digits; else the power itself.
    slow = shrink < 1
    remains, gained = _saturating(counts * torch.log1p(-torch.where(slow, shrink, 0)), speeds, steps.rate * counts)
    power = torch.where(slow, 0, 1 - shrink) ** counts
    return torch.where(slow, remains, power), torch.where(slow, gained, (1 - power) / torch.where(slow, 1, speeds))


def _saturating(
    log_remains: Moments, speeds: Spectrum, elapsed: Float64[Tensor, "*moments 1"]
) -> tuple[Moments, Moments]:
    """The factor r = exp(log_remains) and (1 - r) / speed, which is the elapsed time where r is still 1."""
    tiny = -log_remains < torch.finfo(torch.float64).eps  # beyond it the limit is as exact as the quotient
    gained = torch.where(tiny, elapsed, -torch.expm1(log_remains) / torch.where(speeds > 0, speeds, 1))
    return log_remains.exp(), gained


def _outputs(name: str, value: Before, shape: tuple[int, ...], like: Float64[Tensor, "..."]) -> Float64[Tensor, "..."]:
    """Outputs before training, in a tensor of this shape."""
    outputs = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
    if outputs.dtype == torch.bool or outputs.is_complex() or (outputs.ndim > 0 and tuple(outputs.shape) != shape):
        raise ValueError(f"`{name}` must be a number or outputs of shape {shape}, got {describe(value)}.")
    if not bool(torch.isfinite(outputs).all()):
        raise ValueError(f"`{name}` has NaN or infinity.")
    return outputs.to(like).expand(shape)
