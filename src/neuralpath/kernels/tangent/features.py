"""The tangent features of a batch: the gradients of every output by every parameter, in factors."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath.kernels.tangent.gradients import Convolved, Gradients, Outer, Written, difference, joined, some_examples
from neuralpath.kernels.tangent.network import Network
from neuralpath.kernels.tangent.recording import Call, Recording, record
from neuralpath.kernels.tangent.rules import Affine, Filter, Matrix


class ChangedReading(RuntimeError):
    """A network reads a parameter otherwise for one batch than for another."""


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """Gradients of a batch, for each parameter a sum of terms.

    ``paired`` are matrices that are compared position by position, the terms of one parameter being different blocks
    of it; ``summed`` are those whose terms add up to the gradient, which is written out row by row; ``written`` has
    all small parameters side by side.
    """

    paired: dict[str, tuple[Outer, ...]] = field(default_factory=dict)
    summed: dict[str, tuple[Gradients, ...]] = field(default_factory=dict)
    written: Float[Tensor, "batch output entry"] | None = None

    def __getitem__(self, rows: slice) -> "Features":
        return Features(
            {name: tuple(some_examples(part, rows) for part in parts) for name, parts in self.paired.items()},
            {name: tuple(some_examples(part, rows) for part in parts) for name, parts in self.summed.items()},
            None if self.written is None else self.written[rows],
        )

    def __sub__(self, other: "Features") -> "Features":
        """Features of the difference of two networks that read the same signals."""
        written = self.written
        if written is not None and other.written is not None:
            written = written - other.written
        return Features(
            {
                name: tuple(difference(a, b) for a, b in zip(parts, other.paired[name], strict=True))
                for name, parts in self.paired.items()
            },
            {
                name: tuple(difference(a, b) for a, b in zip(parts, other.summed[name], strict=True))
                for name, parts in self.summed.items()
            },
            written,
        )

    def with_written(self, gradients: Float[Tensor, "batch output entry"]) -> "Features":
        """The same with further gradients that are written out."""
        both = gradients if self.written is None else torch.cat([self.written, gradients], 2)
        return replace(self, written=both)


def in_sequence(parts: Sequence[Features]) -> Features:
    """Features of batches behind each other as those of one."""
    first = parts[0]
    if len(parts) == 1:
        return first
    written = [part.written for part in parts if part.written is not None]
    return Features(
        {
            name: tuple(joined([part.paired[name][i] for part in parts]) for i in range(len(terms)))
            for name, terms in first.paired.items()
        },
        {
            name: tuple(joined([part.summed[name][i] for part in parts]) for i in range(len(terms)))
            for name, terms in first.summed.items()
        },
        torch.cat(written) if written else None,
    )


def features_of(
    network: Network, x: Tensor, names: Sequence[str], paired: frozenset[str], outputs: Sequence[int]
) -> Features:
    """The gradients of some outputs by the named parameters; those in ``paired`` as matrices by position.

    Cost: a forward pass and, for each output, a backward pass that stops at the layers' results.
    Raises: ChangedReading if a parameter is read in a way that was not seen before.
    """
    if not names:
        return Features()
    recording = record(network, x, names)
    if recording.unread:
        raise ChangedReading(
            f"`model` reads {', '.join(map(repr, sorted(recording.unread)))} otherwise for this batch of {len(x)} than "
            "for another one, so its gradients by layer are not known; make its forward pass the same for all inputs."
        )
    return recorded_features(recording, recorded_terms(recording, outputs), paired)


def recorded_terms(recording: Recording, outputs: Sequence[int]) -> dict[str, list[Gradients]]:
    """The terms of the gradients of some outputs, each by itself."""
    deltas = output_gradients(recording, [_one_hot(recording.outputs, output) for output in outputs])
    return terms_of(recording.calls, deltas)


def recorded_features(
    recording: Recording, terms: Mapping[str, Sequence[Gradients]], paired: frozenset[str]
) -> Features:
    """Features from the terms of all parameters that were recorded."""
    return assembled(terms, paired, _biases(recording.calls, paired))


def output_gradients(recording: Recording, cotangents: Sequence[Tensor]) -> list[Float[Tensor, "batch output ..."]]:
    """For each call, the gradient by its result of the outputs combined by each cotangent."""
    y, calls = recording.outputs, recording.calls
    if not calls:
        return []
    rows: list[list[Tensor]] = [[] for _ in calls]
    for index, cotangent in enumerate(cotangents):
        found: Sequence[Tensor | None] = torch.autograd.grad(
            y, [call.edge for call in calls], cotangent,
            retain_graph=index + 1 < len(cotangents), allow_unused=True,
        ) if y.requires_grad else [None] * len(calls)  # fmt: skip
        for row, gradient in zip(rows, found, strict=True):
            row.append(gradient)  # type: ignore[arg-type]  # None is mended below
    return [_stacked(row, call) for row, call in zip(rows, calls, strict=True)]


def _stacked(row: Sequence[Tensor | None], call: Call) -> Tensor:
    # An operation that the output does not depend on has no gradient.
    filled = [torch.zeros_like(call.result) if gradient is None else gradient.detach() for gradient in row]
    return filled[0][:, None] if len(filled) == 1 else torch.stack(filled, 1)


def _one_hot(y: Tensor, output: int) -> Tensor:
    cotangent = torch.zeros_like(y)
    cotangent[:, output] = 1
    return cotangent


def terms_of(calls: Sequence[Call], deltas: Sequence[Tensor]) -> dict[str, list[Gradients]]:
    """The terms of each parameter's gradient, one for each of its uses."""
    terms: dict[str, list[Gradients]] = {}
    for call, delta in zip(calls, deltas, strict=True):
        for name, form in call.forms:
            signal = delta if call.signal is None else call.signal  # a form that needs none gets any
            terms.setdefault(name, []).append(form.gradients(signal, delta))
    return terms


def assembled(
    terms: Mapping[str, Sequence[Gradients]], paired: frozenset[str], biases: Mapping[str, str] = MappingProxyType({})
) -> Features:
    """Features from the terms of each parameter; ``biases`` are taken in by the weights that they belong to."""
    absorbed = set(biases.values())
    features = Features()
    written: list[Tensor] = []
    for name, parts in terms.items():
        if name in absorbed:
            continue
        if name in paired:
            features.paired[name] = _blocks(parts, name in biases)
        elif all(isinstance(part, Written) for part in parts):
            written.append(_total([part.values for part in parts if isinstance(part, Written)]))
        else:
            features.summed[name] = tuple(parts)
    return Features(features.paired, features.summed, torch.cat(written, 2) if written else None)


def _total(tensors: Sequence[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.stack(list(tensors)).sum(0)


def _biases(calls: Sequence[Call], paired: frozenset[str]) -> dict[str, str]:
    """Paired weights with the bias of the same layer, where each has no other use: one more column of the matrix."""
    counts = Counter(name for call in calls for name, _ in call.forms)
    found = {}
    for call in calls:
        match call.forms:
            case ((weight, Matrix() | Filter()), (bias, Affine(factor=None))):
                if weight in paired and counts[weight] == counts[bias] == 1:
                    found[weight] = bias
    return found


def _blocks(parts: Sequence[Gradients], bias: bool) -> tuple[Outer, ...]:
    """The blocks of a matrix, for each the positions of all uses behind each other."""
    uses = [part.outers() if isinstance(part, Convolved) else [part] for part in parts]
    blocks = []
    for terms in zip(*uses, strict=True):
        outers = [term for term in terms if isinstance(term, Outer)]
        first = outers[0]
        delta = first.delta if len(outers) == 1 else torch.cat([o.delta for o in outers], 2)
        signal = first.signal if len(outers) == 1 else torch.cat([o.signal for o in outers], 1)
        blocks.append(Outer(delta, signal, first.transposed, bias))
    return tuple(blocks)
