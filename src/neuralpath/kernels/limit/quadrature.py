"""Expectations of any activation by numerical integration, to a checked accuracy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath._checks import describe
from neuralpath.kernels.limit.activations import Function, Numbers, Pair

# Standard deviations beyond which normal variables are left out: a share below 1e-17. The finer rule of a comparison
# reaches further, to detect functions that grow too fast.
REACH, WIDER_REACH = 8.6, 10.6
NODES_BASE, NODES_PER_DEVIATION = 15, 13  # initial nodes along an axis: enough for a soft gate of slope 1 (Theory)
MAX_NODES = 400  # along one axis, 125,000 evaluations per pair; activations that need more are refused
CHUNK = 2**21  # evaluations of the activation at once
COSINES = (-1.0, -0.7, 0.0, 0.4, 0.95, 1.0)  # where a rule is compared with a finer one

Rule = tuple[int, float]  # nodes along an axis and their reach


@dataclass(frozen=True)
class ByQuadrature:
    """An activation given as an elementwise torch function, smooth enough for a trapezoid rule.

    (q, q') is turned into two independent normal variables, symmetrically, and the product is summed over a grid. The
    error falls exponentially for smooth functions. The number of nodes is doubled until a finer rule agrees within
    ``accuracy`` for the variances at hand, relative to the activation's own size there. Values are computed in float64.

    Args:
        function: The activation, an elementwise function of a tensor.
        gate: The gate, with function(q) = q * gate(q). Path kernels and parts of the tangent kernel need it.
        accuracy: Largest relative error of an expectation.
        normalizer: Default of ``weight_variance`` for networks with this activation.
        name: Name for error messages.

    Raises:
        ValueError: On use, where the accuracy is not reached, as for functions with kinks or jumps, and for functions
            that are not elementwise.

    >>> import neuralpath as npath
    >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8]], dtype=torch.float64)
    >>> graph = npath.trace(npath.nets.FC(2, width=4, depth=2).double(), x[:1])
    >>> closed = npath.limit_output_kernel(graph, x, activation=npath.SoftGate(1.0))
    >>> integrated = npath.limit_output_kernel(graph, x, activation=ByQuadrature(torch.nn.functional.silu))
    >>> bool(torch.allclose(closed, integrated))
    True
    """

    function: Function
    gate: Function | None = None
    accuracy: float = 1e-9
    normalizer: float = 2.0
    name: str = "the activation"

    def __str__(self) -> str:
        return self.name

    @property
    def gated(self) -> bool:
        return self.gate is not None

    def __call__(self, q: Numbers) -> Numbers:
        return self._applied(self.function, q)

    def mean(self, v: Numbers) -> Numbers:
        n_nodes = self._nodes_for(v.double().reshape(-1), (Pair.SIGNALS,))
        nodes, weights = _axis(n_nodes, REACH)
        values = self._applied(self.function, v.double().sqrt()[..., None] * nodes.to(v.device))
        return (values * weights.to(v.device)).sum(-1).to(v.dtype)

    def moments(self, v: Numbers, w: Numbers, c: Numbers, pairs: Sequence[Pair]) -> list[Numbers]:
        n_nodes = self._nodes_for(torch.cat([v.double().reshape(-1), w.double().reshape(-1)]), pairs)
        v, w, flat = (t.double().expand(c.shape).reshape(-1) for t in (v, w, c))
        return [value.reshape(c.shape).to(c.dtype) for value in self._values_of((n_nodes, REACH), v, w, flat, pairs)]

    def _values_of(self, rule: Rule, v: Numbers, w: Numbers, c: Numbers, pairs: Sequence[Pair]) -> list[Numbers]:
        """``_rule`` in chunks of limited memory."""
        step = max(1, CHUNK // len(_disc(*rule)[2]))
        chunks = zip(v.split(step), w.split(step), c.split(step), strict=True)
        parts = [self._rule(rule, *chunk, pairs) for chunk in chunks]
        return [torch.cat(values) for values in zip(*parts, strict=True)]

    def _rule(self, rule: Rule, v: Numbers, w: Numbers, c: Numbers, pairs: Sequence[Pair]) -> list[Numbers]:
        """The trapezoid rule for vectors of variances and covariances."""
        along, across, weights = (t.to(c.device) for t in _disc(*rule))
        lengths = v.sqrt() * w.sqrt()
        cosine = torch.where(lengths > 0, c / lengths, 0.0).clamp(-1, 1)[:, None]
        common, own = ((1 + cosine) / 2).sqrt() * along, ((1 - cosine) / 2).sqrt() * across
        needed = {function for pair in pairs for function in pair.value}
        first = self._values(v.sqrt()[:, None] * (common + own), needed)
        second = self._values(w.sqrt()[:, None] * (common - own), needed)
        return [(first[f] * second[g]) @ weights for f, g in (pair.value for pair in pairs)]

    def _values(self, q: Float[Tensor, "pair node"], needed: set[str]) -> dict[str, Numbers]:
        values = {}
        if "slope" in needed:
            with torch.enable_grad():
                q = q.detach().requires_grad_()
                signal = self._applied(self.function, q)
                slopes = torch.autograd.grad(signal.sum(), q, allow_unused=True) if signal.requires_grad else (None,)
            if slopes[0] is None:
                raise ValueError(f"{self.name} has no derivative: write it in torch operations, without `detach`.")
            values, q = {"slope": slopes[0], "signal": signal.detach()}, q.detach()
        elif "signal" in needed:
            values["signal"] = self._applied(self.function, q)
        if "gate" in needed:
            assert self.gate is not None  # `check_gated` has been asked
            values["gate"] = self._applied(self.gate, q).to(q.dtype)
        return values

    def _applied(self, function: Function, q: Numbers) -> Tensor:
        """A function of a tensor; refused unless it returns a value for each entry."""
        y: object = function(q)
        if not isinstance(y, Tensor) or y.shape != q.shape:
            raise ValueError(f"{self.name} must be elementwise; for {describe(q)} it returned {describe(y)}.")
        return y

    def _nodes_for(self, variances: Float[Tensor, " _n"], pairs: Sequence[Pair]) -> int:
        """Nodes along an axis that reach the accuracy for the smallest, a middle and the largest of the variances."""
        low, high = (max(float(end), 0.0) for end in variances.aminmax())
        middle = math.sqrt(low * high)
        probes = product(((high, high), (middle, high), (low, low)), COSINES)
        points = [(v, w, cosine * math.sqrt(v * w)) for (v, w), cosine in probes]
        v, w, c = torch.tensor(points, dtype=torch.float64).T
        n_nodes = math.ceil(NODES_BASE + NODES_PER_DEVIATION * math.sqrt(high))
        error = math.inf
        while n_nodes <= MAX_NODES:
            values = self._values_of((n_nodes, REACH), v, w, c, pairs)
            finer = self._values_of((2 * n_nodes, WIDER_REACH), v, w, c, pairs)
            error = max(_difference(a, b) for a, b in zip(values, finer, strict=True))
            if error <= self.accuracy:
                return n_nodes
            n_nodes *= 2
        raise ValueError(
            f"{self.name} has an error of {error:.1e} at variances {low:.3g} to {high:.3g}, not {self.accuracy:.1e}: "
            "not smooth, or growing too fast. Give `activation` in closed form, or `ByQuadrature` a larger `accuracy`."
        )


def _difference(values: Float[Tensor, " _n"], finer: Float[Tensor, " _n"]) -> float:
    scale = max(float(finer.abs().max()), torch.finfo(finer.dtype).tiny)
    error = float((values - finer).abs().max()) / scale
    return math.inf if math.isnan(error) else error


@cache
def _axis(n_nodes: int, reach: float) -> tuple[Float[Tensor, " node"], Float[Tensor, " node"]]:
    """Nodes and weights of the trapezoid rule for one standard normal variable."""
    nodes = torch.linspace(-reach, reach, n_nodes, dtype=torch.float64)
    weights = torch.exp(-(nodes**2) / 2)
    return nodes, weights / weights.sum()


@cache
def _disc(n_nodes: int, reach: float) -> tuple[Float[Tensor, " node"], Float[Tensor, " node"], Float[Tensor, " node"]]:
    """Nodes and weights for two independent standard normal variables, without the negligible corners."""
    nodes, weights = _axis(n_nodes, reach)
    x, y = torch.meshgrid(nodes, nodes, indexing="ij")
    inside = x**2 + y**2 <= reach**2
    return x[inside], y[inside], torch.outer(weights, weights)[inside]
