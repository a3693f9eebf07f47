"""Gates: the factor that an activation multiplies its pre-activation with.

An activation of the form ``chi(q) = q * gamma(q)`` is a gate ``gamma`` on the signal ``q``. ReLU is the hard gate;
leaky ReLU, SiLU and GELU are gates with other values. Only the tables at the end of this module say which torch
operations are gates.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor


@dataclass(frozen=True)
class HardGate:
    """ReLU: 1 where q > 0, strictly, else 0 (torch's own gradient at 0 is 0 too).

    >>> HardGate()(torch.tensor([-1.0, 0.0, 2.0]))
    tensor([False, False,  True])
    """

    def __call__(self, q: Float[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
        """Gate values of the pre-activations ``q``."""
        return q > 0


@dataclass(frozen=True)
class SoftGate:
    """Soft gate ``factor * sigmoid(beta * q)``; SiLU is the one with ``beta = 1``.

    Its derivative is ``beta * gamma(q) * (1 - gamma(q) / factor)``. The papers use ``beta`` 8 or 10 and ``factor`` 1,
    their notebooks ``1.1 * sigmoid(4 q)``.

    Args:
        beta: The steepness, positive.
        factor: The value of the open gate, positive.

    >>> SoftGate(beta=8.0)(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([3.3535e-04, 5.0000e-01, 9.9966e-01])
    """

    beta: float
    factor: float = 1.0

    def __post_init__(self) -> None:
        for name, value in (("beta", self.beta), ("factor", self.factor)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"`{name}` of a soft gate must be a positive finite number, got {value}.")

    def __call__(self, q: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Gate values of the pre-activations ``q``."""
        gate = torch.sigmoid(self.beta * q)
        return gate if self.factor == 1.0 else self.factor * gate


@dataclass(frozen=True)
class LeakyGate:
    """Leaky ReLU: 1 where q > 0, else ``slope``.

    Args:
        slope: The value of the closed gate.

    >>> LeakyGate(0.25)(torch.tensor([-1.0, 2.0]))
    tensor([0.2500, 1.0000])
    """

    slope: float

    def __call__(self, q: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Gate values of the pre-activations ``q``."""
        return torch.where(q > 0, torch.ones_like(q), torch.full_like(q, self.slope))


@dataclass(frozen=True)
class LinearGate:
    """The gate that is always open: the activation is the identity.

    >>> LinearGate()(torch.tensor([-1.0, 2.0]))
    tensor([True, True])
    """

    def __call__(self, q: Float[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
        """Gate values of the pre-activations ``q``."""
        return torch.ones_like(q, dtype=torch.bool)


@dataclass(frozen=True)
class ClippedGate:
    """ReLU6 and its variants, ``min(max(q, 0), upper) / q``: 1 between 0 and ``upper``, ``upper / q`` above it."""

    upper: float = 6.0

    def __call__(self, q: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Gate values of the pre-activations ``q``."""
        # The denominator stays away from 0 so that the unused branch has no infinite gradient.
        return torch.where(q > 0, self.upper / q.clamp(min=self.upper), torch.zeros_like(q))


@dataclass(frozen=True)
class GeluGate:
    """GELU: the normal distribution function of q, exact (``"none"``) or by torch's approximation (``"tanh"``)."""

    approximate: str = "none"

    def __call__(self, q: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Gate values of the pre-activations ``q``."""
        if self.approximate == "tanh":
            return 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (q + 0.044715 * q**3)))
        return 0.5 * (1 + torch.erf(q / math.sqrt(2)))


@dataclass(frozen=True)
class HardswishGate:
    """Hardswish: ``min(max(q + 3, 0), 6) / 6``."""

    def __call__(self, q: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Gate values of the pre-activations ``q``."""
        return torch.clamp(q + 3, 0, 6) / 6


@dataclass(frozen=True)
class MishGate:
    """Mish: ``tanh(softplus(q))``."""

    def __call__(self, q: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Gate values of the pre-activations ``q``."""
        return torch.tanh(torch.nn.functional.softplus(q))


Gate = HardGate | SoftGate | LeakyGate | LinearGate | ClippedGate | GeluGate | HardswishGate | MishGate


def apply_gate(
    q: Float[Tensor, "*shape"], gate: Shaped[Tensor, "*shape"], *, in_place: bool = False
) -> Float[Tensor, "*shape"]:
    """The activation ``q * gate``; a closed (boolean) hard gate gives 0 even where ``q`` is infinite, as ReLU does.

    >>> apply_gate(torch.tensor([-2.0, 3.0]), HardGate()(torch.tensor([-2.0, 3.0])))
    tensor([0., 3.])
    """
    if gate.dtype == torch.bool:
        return q.masked_fill_(~gate, 0) if in_place else q.masked_fill(~gate, 0)
    return q.mul_(gate) if in_place else q * gate


def _clamp(min: Any = None, max: Any = None) -> Gate | None:  # torch's own argument names
    if min != 0:
        return None
    if max is None or max == math.inf:
        return HardGate()
    return ClippedGate(float(max)) if max > 0 else None


def _rrelu(lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: Any = None) -> Gate | None:
    return None if training else LeakyGate((lower + upper) / 2)


aten = torch.ops.aten

GATE_OPERATIONS: dict[Any, Callable[..., Gate | None]] = {
    aten.relu.default: HardGate,
    aten.relu6.default: ClippedGate,
    aten.clamp.default: _clamp,
    aten.clamp_min.default: _clamp,
    aten.clip.default: _clamp,
    aten.threshold.default: lambda threshold, value: HardGate() if threshold == 0 == value else None,
    aten.hardtanh.default: lambda min_val=-1, max_val=1: _clamp(min_val, max_val),
    aten.leaky_relu.default: lambda negative_slope=0.01: LeakyGate(float(negative_slope)),
    aten.rrelu.default: _rrelu,
    aten.silu.default: lambda: SoftGate(1.0),
    aten.gelu.default: lambda approximate="none": GeluGate(approximate),
    aten.hardswish.default: HardswishGate,
    aten.mish.default: MishGate,
}
"""From a torch operation to the gate it applies, given the operation's arguments after the first.

``None`` means that these arguments make it something else (``clamp(min=1)``). In-place operations count as their
functional versions. The next two tables need the model's tensors, so their users resolve them: ``trace`` by operation,
``gating`` by every name that an operation has in Python (``gating/spellings.py``).
"""

GATING_MAXIMUM = frozenset(
    {aten.maximum.default, aten.max.other, aten.clamp_min.Tensor, aten.clamp.Tensor, aten.clip.Tensor}
)
"""Operations that are a ReLU when their other operand is the constant 0."""

PARAMETRIC_GATES = frozenset({aten.prelu.default})
"""Operations that are a leaky gate whose slope is a tensor of the model."""

_POOLS = ("max_pool{}d", "max_pool{}d_with_indices", "adaptive_max_pool{}d")
_WINDOWS = (getattr(aten, pool.format(n)).default for pool in _POOLS for n in (1, 2, 3))
MAXIMUM_POOLS = frozenset({aten.amax.default, aten.max.dim, *_WINDOWS})
"""Operations that pick one position of a window, or of all space: a gate with one mask for each output position."""

_UNGATED = (
    "abs celu clamp cos elu erf exp hardshrink hardsigmoid hardtanh log_sigmoid selu sigmoid sin softplus softshrink "
    "square tanh threshold"
)
UNGATED_ACTIVATIONS = frozenset(getattr(aten, name).default for name in _UNGATED.split())
"""Elementwise functions that are not gates: ``trace`` keeps them, path quantities refuse them by name."""
