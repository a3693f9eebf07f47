r"""The tangent features of a batch: the gradients of its outputs by every parameter, mostly in factors.

A row of the Jacobian of all outputs by all parameters would be one feature vector. It is never written out. A parameter
is stored in one of three places, by the algorithm that computes its inner products (``contraction.py``)::

    by_position["fc.weight"]   one FactoredGradient for each block of the matrix (each group of a convolution)
        signal   batch x position x d_in             inputs of the layer, one row for each position
        delta    batch x output x position x d_out   gradients of the outputs by the layer's result
        If the layer has a bias that is used nowhere else, the bias is a further column, with the signal 1.
        A parameter with several uses has the positions of all of them on one axis.

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
from types import MappingProxyType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath.kernels.tangent.gradients import ConvolutionGradient, ExplicitGradient, FactoredGradient, LayerGradient
from neuralpath.kernels.tangent.recording import LayerCall, Network, RecordedRun, flat_outputs, record_run
from neuralpath.kernels.tangent.rules import AffineForm, FilterForm, MatrixForm

_log = logging.getLogger("neuralpath")


class ChangedForwardPass(RuntimeError):
    """A network reads a parameter by different operations in different batches."""


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """Gradients of a batch; the module's drawing shows what is stored where."""

    by_position: dict[str, tuple[FactoredGradient, ...]] = field(default_factory=dict)
    by_row: dict[str, tuple[LayerGradient, ...]] = field(default_factory=dict)
    explicit: Float[Tensor, "batch output entry"] | None = None

    def __getitem__(self, rows: slice) -> "Features":
        return self._mapped((), lambda gradient: gradient.examples(rows), lambda explicit: explicit[rows])

    def __sub__(self, other: "Features") -> "Features":
        """Features of the difference of two networks whose layers have the same inputs."""
        return self._mapped((other,), lambda gradient, subtracted: gradient.minus(subtracted), torch.sub)

    def joined(self, others: Sequence["Features"]) -> "Features":
        """Features of this batch and of further batches as those of one batch."""
        if not others:
            return self
        return self._mapped(others, lambda first, *rest: first.joined(rest), lambda *tensors: torch.cat(tensors))

    def _mapped(
        self, others: Sequence["Features"], gradient: Callable[..., Any], explicit: Callable[..., Tensor]
    ) -> "Features":
        """Features whose entries are functions of the corresponding entries here and in others."""

        def each(*same: Mapping[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
            return {
                name: tuple(gradient(*uses) for uses in zip(*(gradients[name] for gradients in same), strict=True))
                for name in same[0]
            }

        every = (self, *others)
        tensors = [features.explicit for features in every if features.explicit is not None]
        return Features(
            each(*(features.by_position for features in every)),
            each(*(features.by_row for features in every)),
            explicit(*tensors) if tensors else None,
        )


def batch_features(
    network: Network,
    x: Tensor,
    outputs: Sequence[int],
    by_layer: Sequence[str],
    by_position: frozenset[str],
    general: Sequence[str],
) -> Features:
    """The gradients of some outputs by the parameters ``by_layer`` and ``general`` (by layer, or on the general path).

    Cost: a forward pass and, for each output, a backward pass that stops at the layers' results.

    Raises:
        ChangedForwardPass: A parameter is read by an operation that the probe of the network did not see.
    """
    features = Features()
    if by_layer:
        run = record_run(network, x, by_layer)
        if run.unread:
            raise ChangedForwardPass(
                f"`model` reads {', '.join(map(repr, sorted(run.unread)))} by different operations in this batch of "
                f"{len(x)} than in the first examples, so its gradients by layer are not known; make its forward pass "
                "the same for all inputs."
            )
        terms = layer_gradients(run, one_hot(run.outputs, outputs))
        features = assemble(terms, by_position, bias_columns(run.calls, by_position))
    if general:
        gradients = general_gradients(network, x, general, outputs)
        explicit = gradients if features.explicit is None else torch.cat([features.explicit, gradients], 2)
        features = replace(features, explicit=explicit)
    return features


def one_hot(y: Float[Tensor, "batch output"], outputs: Sequence[int]) -> list[Tensor]:
    """Cotangents that select one output each."""
    cotangents = [torch.zeros_like(y) for _ in outputs]
    for cotangent, output in zip(cotangents, outputs, strict=True):
        cotangent[:, output] = 1
    return cotangents


def layer_gradients(run: RecordedRun, cotangents: Sequence[Tensor]) -> dict[str, list[LayerGradient]]:
    """For each parameter the gradients of its uses, for the outputs combined by each cotangent."""
    y, calls = run.outputs, run.calls
    deltas: list[list[Tensor]] = [[] for _ in calls]
    for index, cotangent in enumerate(cotangents):
        gradients: Sequence[Tensor | None] = [None] * len(calls)
        if calls and y.requires_grad:
            edges = [call.edge for call in calls]
            is_last = index + 1 == len(cotangents)
            gradients = torch.autograd.grad(y, edges, cotangent, retain_graph=not is_last, allow_unused=True)
        for rows, call, gradient in zip(deltas, calls, gradients, strict=True):
            # An operation that the output does not depend on has no gradient.
            rows.append(torch.zeros_like(call.result) if gradient is None else gradient.detach())
    terms: dict[str, list[LayerGradient]] = {}
    for call, rows in zip(calls, deltas, strict=True):
        delta = rows[0][:, None] if len(rows) == 1 else torch.stack(rows, 1)
        for name, form in call.forms:
            signal = delta if call.signal is None else call.signal  # a form that needs no signal ignores it
            terms.setdefault(name, []).append(form.gradient(signal, delta))
    return terms


def assemble(
    terms: Mapping[str, Sequence[LayerGradient]],
    by_position: frozenset[str],
    biases: Mapping[str, str] = MappingProxyType({}),
) -> Features:
    """Features from the gradients of each parameter's uses; ``biases`` maps a weight to the bias that is its column."""
    columns = set(biases.values())
    features = Features()
    explicit: list[Tensor] = []
    for name, uses in terms.items():
        if name in columns:
            continue
        if name in by_position:
            features.by_position[name] = _blocks(uses, name in biases)
        elif all(isinstance(use, ExplicitGradient) for use in uses):
            deltas = [use.delta for use in uses]
            explicit.append(deltas[0] if len(deltas) == 1 else torch.stack(deltas).sum(0))
        else:
            features.by_row[name] = tuple(uses)
    return replace(features, explicit=torch.cat(explicit, 2) if explicit else None)


def bias_columns(calls: Sequence[LayerCall], by_position: frozenset[str]) -> dict[str, str]:
    """From a weight to the bias of the same layer, where neither has another use."""
    counts = Counter(name for call in calls for name, _ in call.forms)
    biases = {}
    for call in calls:
        match call.forms:
            case ((weight, MatrixForm() | FilterForm()), (bias, AffineForm(factor=None))):
                if weight in by_position and counts[weight] == counts[bias] == 1:
                    biases[weight] = bias
    return biases


def _blocks(uses: Sequence[LayerGradient], bias: bool) -> tuple[FactoredGradient, ...]:
    """The blocks of a matrix; each has the positions of all uses on one axis."""
    matrices = [use.as_matrices() if isinstance(use, ConvolutionGradient) else [use] for use in uses]
    blocks = []
    for same_block in zip(*matrices, strict=True):
        factors = [matrix for matrix in same_block if isinstance(matrix, FactoredGradient)]
        first = factors[0]
        delta = first.delta if len(factors) == 1 else torch.cat([f.delta for f in factors], 2)
        signal = first.signal if len(factors) == 1 else torch.cat([f.signal for f in factors], 1)
        blocks.append(FactoredGradient(delta, signal, first.transposed, bias))
    return tuple(blocks)


def general_gradients(
    network: Network, x: Tensor, names: Sequence[str], outputs: Sequence[int]
) -> Float[Tensor, "batch output entry"]:
    """Gradients by parameters that are read by operations without a rule, written out for each example.

    By ``torch.func.vmap`` if torch can batch all operations of the network, otherwise example by example.
    """
    params = {name: network.parameters[name].detach() for name in names}

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


def _gradients_of_one(
    network: Network, x: Tensor, names: Sequence[str], outputs: Sequence[int]
) -> Float[Tensor, "output entry"]:
    parameters = [network.parameters[name] for name in names]
    y = flat_outputs(network.run(x), 1, x)[0]
    if not y.requires_grad:
        return y.new_zeros(len(outputs), sum(p.numel() for p in parameters))
    rows = []
    for output in outputs:
        gradients = torch.autograd.grad(y[output], parameters, retain_graph=True, materialize_grads=True)
        rows.append(torch.cat([gradient.detach().flatten() for gradient in gradients]))
    return torch.stack(rows)
