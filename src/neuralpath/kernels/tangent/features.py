r"""The tangent features of a batch: the gradients of its outputs by every parameter, mostly in factors.

A row of the Jacobian of all outputs by all parameters would be one feature vector. It is never written out. A parameter
is stored in one of three places, by the algorithm that computes its inner products (``contraction.py``)::

    by_position["fc.weight"]   one FactoredGradient for each block of the matrix (each group of a convolution)
        signal   batch x position x d_in             inputs of the layer, one row for each position
        delta    batch x output x position x d_out   gradients of the outputs by the layer's result
        If the layer has a bias that is used nowhere else, the bias is a further column, with the signal 1.
        A parameter with several uses has the positions of all of them on one axis:

            position     0 ... T1-1    T1 ... T1+T2-1      sum over positions = sum over uses, so the inner products
            signal    |  use 1       |  use 2         |    of two examples also have the pairs of different uses
            delta     |  use 1       |  use 2         |

    by_row["conv.weight"]      one LayerGradient for each use; the gradient of the parameter is their sum
        signal   batch x channels x height x width
        delta    batch x output x d_out x height' x width'

    explicit                   batch x output x entry
        |  bn.weight  |  bn.bias  | ... |  parameters on the general path  |     side by side on the last axis
"""

import logging
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from neuralpath.kernels.tangent import gradients as g
from neuralpath.kernels.tangent.gradients import FactoredGradient, LayerGradient, Uses, Vectors
from neuralpath.kernels.tangent.recording import LayerCall, Network, RecordedRun, flat_outputs
from neuralpath.kernels.tangent.rules import AffineForm, FilterForm, MatrixForm

_log = logging.getLogger("neuralpath")


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """Gradients of a batch; the module's drawing shows what is stored where."""

    by_position: dict[str, tuple[FactoredGradient, ...]] = field(default_factory=dict)
    by_row: dict[str, tuple[LayerGradient, ...]] = field(default_factory=dict)
    explicit: Vectors | None = None

    def __getitem__(self, rows: slice) -> "Features":
        return self._mapped((), lambda gradient: gradient.examples(rows), lambda explicit: explicit[rows])

    def __sub__(self, other: "Features") -> "Features":
        """Features of the difference of two networks whose layers have the same inputs."""
        return self._mapped((other,), lambda gradient, subtracted: gradient.minus(subtracted), torch.sub)

    def joined(self, others: "FeatureSets") -> "Features":
        """Features of this batch and of further batches as those of one batch."""
        if not others:
            return self
        return self._mapped(others, lambda first, *rest: first.joined(rest), lambda *tensors: torch.cat(tensors))

    def _mapped(self, others: "FeatureSets", gradient: Callable[..., Any], explicit: Callable[..., Any]) -> "Features":
        """Features whose entries are functions of the corresponding entries here and in others."""
        batches, places = (self, *others), []
        for place in ("by_position", "by_row"):
            first, *rest = (getattr(features, place) for features in batches)
            places.append({name: tuple(map(gradient, uses, *(r[name] for r in rest))) for name, uses in first.items()})
        tensors = [features.explicit for features in batches if features.explicit is not None]
        return Features(places[0], places[1], explicit(*tensors) if tensors else None)


FeatureSets = tuple[Features, ...]
"""Features of one batch for one or several functions: a network, or the two parts of its gradient."""


@dataclass(eq=False)
class FeatureCache:
    """Features of the examples of two batches; computed once for all of them if ``is_kept``, else when asked for."""

    x1: Tensor
    x2: Tensor | None
    compute: Callable[[Tensor], FeatureSets]
    run_size: int  # examples in a run of the network
    is_kept: bool
    first: FeatureSets | None = None  # of all of `x1`
    second: FeatureSets | None = None  # of all of `x2`
    _last_rows: tuple[slice, FeatureSets] | None = field(default=None, init=False)

    def rows(self, rows: slice) -> FeatureSets:
        """Features of some examples of the first batch."""
        if self.is_kept:
            self.first = self.first or self._computed(self.x1)
            return tuple(features[rows] for features in self.first)
        if self._last_rows is None or self._last_rows[0] != rows:  # tiles come row by row
            self._last_rows = rows, self._computed(self.x1[rows])
        return self._last_rows[1]

    def columns(self, columns: slice) -> FeatureSets:
        """Features of some examples of the second batch, or of the only one."""
        x2 = self.x1 if self.x2 is None else self.x2
        if not self.is_kept:
            return self._computed(x2[columns])
        if self.x2 is None:
            return self.rows(columns)
        self.second = self.second or self._computed(x2)
        return tuple(features[columns] for features in self.second)

    def _computed(self, x: Tensor) -> FeatureSets:
        with torch.inference_mode(False), torch.enable_grad():
            first, *rest = [self.compute(part) for part in x.split(self.run_size)]
        return tuple(features.joined(tuple(others)) for features, *others in zip(first, *rest, strict=True))


def one_hot(outputs: Sequence[int], y: Float[Tensor, "batch output"]) -> Float[Tensor, "row output"]:
    """Rows that select one output each."""
    return F.one_hot(torch.tensor(outputs, device=y.device), y.shape[1]).to(y.dtype)


def layer_gradients(run: RecordedRun, rows: Float[Tensor, "row output"]) -> dict[str, list[LayerGradient]]:
    """For each parameter the gradients of its uses, by a backward pass for each combination of outputs in ``rows``."""
    y, calls = run.outputs, run.calls
    deltas: list[list[Tensor]] = [[] for _ in calls]
    for index, row in enumerate(rows):
        gradients: Sequence[Tensor | None] = [None] * len(calls)
        if calls and y.requires_grad:
            edges, is_last = [call.edge for call in calls], index + 1 == len(rows)
            gradients = torch.autograd.grad(y, edges, row.expand_as(y), retain_graph=not is_last, allow_unused=True)
        for parts, call, gradient in zip(deltas, calls, gradients, strict=True):
            # An operation that the output does not depend on has no gradient.
            parts.append(torch.zeros_like(call.result) if gradient is None else gradient.detach())
    terms: dict[str, list[LayerGradient]] = {}
    for call, parts in zip(calls, deltas, strict=True):
        delta = parts[0][:, None] if len(parts) == 1 else torch.stack(parts, 1)
        for name, form in call.forms:
            signal = delta if call.signal is None else call.signal  # a form that needs no signal ignores it
            terms.setdefault(name, []).append(form.gradient(signal, delta))
    return terms


def assemble(terms: Mapping[str, Uses], by_position: frozenset[str], calls: Sequence[LayerCall] = ()) -> Features:
    """Features from the gradients of each parameter's uses; ``calls`` tell which biases are columns of weights."""
    biases = _bias_columns(calls, by_position)
    features = Features()
    explicit: list[Tensor] = []
    for name, uses in terms.items():
        if name in biases.values():
            continue
        if name in by_position:
            features.by_position[name] = _blocks(uses, name in biases)
        elif all(isinstance(use, g.ExplicitGradient) for use in uses):
            deltas = [use.delta for use in uses]
            explicit.append(deltas[0] if len(deltas) == 1 else torch.stack(deltas).sum(0))
        else:
            features.by_row[name] = tuple(uses)
    return replace(features, explicit=torch.cat(explicit, 2) if explicit else None)


def _bias_columns(calls: Sequence[LayerCall], by_position: frozenset[str]) -> dict[str, str]:
    """From a weight to the bias of the same layer, where neither has another use."""
    counts = Counter(name for call in calls for name, _ in call.forms)
    biases = {}
    for call in calls:
        match call.forms:
            case ((weight, MatrixForm() | FilterForm()), (bias, AffineForm(factor=None))):
                if weight in by_position and counts[weight] == counts[bias] == 1:
                    biases[weight] = bias
    return biases


def _blocks(uses: Uses, bias: bool) -> tuple[FactoredGradient, ...]:
    """The blocks of a matrix; each has the positions of all uses on one axis."""
    by_use: list[list[Any]] = [use.as_matrices() if isinstance(use, g.ConvolutionGradient) else [use] for use in uses]
    blocks: list[FactoredGradient] = []
    for block, *others in zip(*by_use, strict=True):
        if others:
            delta = torch.cat([block.delta, *(other.delta for other in others)], 2)
            block = replace(block, delta=delta, signal=torch.cat([block.signal, *(o.signal for o in others)], 1))
        blocks.append(replace(block, bias=bias))
    return tuple(blocks)


def general_gradients(network: Network, x: Tensor, names: Sequence[str], outputs: Sequence[int]) -> Vectors:
    """Gradients by parameters on the general path, written out; by ``vmap`` if torch can batch all operations."""
    own = network.parameters()
    params = {name: own[name].detach() for name in names}

    def of_one(params: dict[str, Tensor], example: Tensor) -> Tensor:
        return flat_outputs(network.run(example[None], params), 1, example[None])[0, list(outputs)]

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch names the operations that it batches slowly
            jacobians = torch.func.vmap(torch.func.jacrev(of_one), in_dims=(None, 0))(params, x)
    except Exception as error:  # whatever torch cannot batch; an error of the network itself appears again in the loop
        _log.info("torch.func.vmap cannot batch the network (%s): gradients example by example", type(error).__name__)
        return torch.stack([_gradients_of_one(network, example[None], names, outputs) for example in x])
    return torch.cat([jacobians[name].flatten(2) for name in names], 2).detach()


def _gradients_of_one(network: Network, x: Tensor, names: Sequence[str], outputs: Sequence[int]) -> Tensor:
    own = network.parameters()
    parameters = [own[name] for name in names]
    y = flat_outputs(network.run(x), 1, x)[0]
    if not y.requires_grad:
        return y.new_zeros(len(outputs), sum(p.numel() for p in parameters))
    rows = []
    for output in outputs:
        gradients = torch.autograd.grad(y[output], parameters, retain_graph=True, materialize_grads=True)
        rows.append(torch.cat([gradient.detach().flatten() for gradient in gradients]))
    return torch.stack(rows)
