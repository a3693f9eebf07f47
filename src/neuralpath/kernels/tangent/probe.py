"""What must hold before a tangent kernel is computed, found on two examples: the check by replay.

The network runs on the examples together (a small batch as a whole) and alone: outputs that differ mean that it mixes
examples or depends on chance. Each parameter's inner products from layer factors are compared with those of autograd's
own gradients, and a parameter for which they differ goes the general way.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath._checks import describe
from neuralpath.kernels.tangent.contraction import add_inner_products
from neuralpath.kernels.tangent.features import (
    Features,
    assembled,
    output_gradients,
    recorded_features,
    recorded_terms,
    terms_of,
)
from neuralpath.kernels.tangent.gradients import combined, some_examples
from neuralpath.kernels.tangent.layout import Size as KernelSize, Terms, paired_parameters
from neuralpath.kernels.tangent.network import Network, double, flat_outputs
from neuralpath.kernels.tangent.recording import Recording, TooLarge, record

_log = logging.getLogger("neuralpath")

COMPARED_AT_ONCE = 2**20
"""Entries of examples that are compared with another example at once, so that no copy of a batch is made."""


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """What two examples show of a network."""

    known: tuple[str, ...]  # parameters whose gradients are known in factors
    general: tuple[str, ...]  # parameters that go the general way
    n_outputs: int
    dtype: torch.dtype
    terms: Terms  # of the known parameters
    run_bytes: int  # of all values of an example on the way through the network
    features: Features | None = None  # of the whole first batch, where that was looked at and all is known


@dataclass(frozen=True, slots=True, eq=False)
class _Sample:
    """A run on some examples, the two in question among them."""

    recording: Recording
    pair: slice  # where those two are
    is_whole: bool  # whether it is the whole first batch


def probe_network(
    network: Network, x1: Tensor, x2: Tensor | None, names: Sequence[str], output: int | None, joint: bool,
    *, room: int = 0,
) -> Probe:  # fmt: skip
    """Look at a network on the first and the last example, or the last that differs from the first.

    Of two equal examples a network that mixes them gives what each has alone, so that nothing would show.

    A single batch whose values on the way take no more than ``room`` bytes is run as a whole, so that the gradients
    that are checked are the very ones that the kernel is made of.

    Raises: TypeError or ValueError where the network cannot run on them, linear_nodes examples or depends on chance.
    """
    last = x1 if x2 is None else x2
    batch, place = _last_other(x1, last)
    examples = x1[:1], batch[place : place + 1]
    sample = _whole_sample(network, x1, place, names, room) if x2 is None else None
    if sample is None:
        x = torch.cat(examples)
        if len(x1) == 2 or len(last) == 2:
            x = torch.cat([x, x[:1]])  # a size that no block has: an axis of that size cannot pass for the batch
        sample = _Sample(_recorded(network, x, names), slice(0, 2), is_whole=False)
    recording = sample.recording
    together = recording.outputs[sample.pair]
    if not bool(torch.isfinite(together).all()):
        raise ValueError("`model` gives NaN or infinity for finite inputs, so it has no gradient there.")
    alone = [_alone(network, x, together, len(recording.outputs)) for x in examples]
    _check_examples_apart(network, torch.cat(examples), together, alone)
    n_outputs = together.shape[1]
    if output is not None and not 0 <= output < n_outputs:
        raise ValueError(f"`outputs` must be 'mean', 'full' or an index from 0 to {n_outputs - 1}, got {output}.")
    factors = _factors(together, output)
    known = [name for name in names if name not in recording.unread]
    terms, tested = _terms(sample, factors, output)
    terms = {name: parts for name, parts in terms.items() if name in known}
    size = KernelSize(len(x1), len(last), n_outputs if output is None else 1, joint)
    paired = paired_parameters(terms, size)
    differing = _differing(network, tested, paired, alone, factors, known)
    for name in differing:
        _log.warning("gradients of %r by layer do not replay; they are found the general way", name)
    general = tuple(name for name in names if name in recording.unread or name in differing)
    return Probe(
        tuple(name for name in known if name not in differing),
        general,
        n_outputs,
        recording.outputs.dtype,
        {name: parts for name, parts in terms.items() if name not in differing},
        recording.bytes_per_example,
        recorded_features(recording, terms, paired) if sample.is_whole and not general else None,
    )


def _last_other(x1: Tensor, last: Tensor) -> tuple[Tensor, int]:
    """Where the last example is that differs from the first one: in ``last``, else in ``x1``, else the last one."""
    first = x1[0]
    if not torch.equal(last[-1], first):
        return last, len(last) - 1
    n_rows = max(1, COMPARED_AT_ONCE // max(1, first.numel()))
    for batch in (last, x1) if last is not x1 else (x1,):
        for stop in range(len(batch), 0, -n_rows):
            part = batch[max(0, stop - n_rows) : stop]
            others = torch.nonzero((part != first).reshape(len(part), -1).any(1))
            if len(others):
                return batch, stop - len(part) + int(others[-1, 0])
    return last, len(last) - 1


def _whole_sample(network: Network, x: Tensor, place: int, names: Sequence[str], room: int) -> _Sample | None:
    """A run on a whole batch, or nothing if that takes too much memory or cannot be done.

    The two examples in question are the first one and that at ``place``.
    """
    if len(x) < 2 or x.nbytes > room:
        return None
    try:
        return _Sample(record(network, x, names, room), slice(0, place + 1, place), is_whole=True)
    except TooLarge:
        return None
    except Exception as error:  # two examples will show it too, or some later part of the batch
        _log.debug("the whole batch does not run: %s", error)
        return None


def _terms(sample: _Sample, factors: Float[Tensor, " output"], output: int | None) -> tuple[Terms, Terms]:
    """The terms of what was run, and those of the two examples for the outputs combined."""
    recording = sample.recording
    if not sample.is_whole:
        cotangent = factors.expand_as(recording.outputs)
        terms = terms_of(recording.calls, output_gradients(recording, [cotangent]))
        return terms, {name: [some_examples(part, sample.pair) for part in parts] for name, parts in terms.items()}
    chosen = list(range(len(factors))) if output is None else [output]
    terms = recorded_terms(recording, chosen)
    return terms, {
        name: [combined(some_examples(part, sample.pair), factors[chosen]) for part in parts]
        for name, parts in terms.items()
    }


def _recorded(network: Network, x: Tensor, names: Sequence[str]) -> Recording:
    try:
        recording = record(network, x, names)
    except Exception as error:
        if isinstance(error, TypeError | ValueError) and str(error).startswith("`model`"):
            raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ValueError(
            f"`model` could not run on two examples, {describe(x)}; give inputs of the shape and dtype that it takes. "
            f"It said: {type(error).__name__}: {lines[0] if lines else 'no message'}"
        ) from error
    return recording


def _alone(network: Network, x: Tensor, like: Tensor, n_together: int) -> Tensor:
    """The output for one example by itself, or, for a network that cannot, for copies of it.

    Their number is not that of the examples that ran together: an output whose first axis is another one, and only was
    of that size, shows itself.

    Raises: ValueError if the batch is not the first axis of the output.
    """
    try:
        y = flat_outputs(network.run(x), 1, x)
        if y.shape[1] == like.shape[1]:
            return y
    except Exception as error:
        _log.debug("a batch of one does not run: %s", error)
    copies = torch.cat([x] * (3 if n_together == 2 else 2))
    return flat_outputs(network.run(copies), len(copies), copies)[:1]


def _check_examples_apart(network: Network, x: Tensor, together: Tensor, alone: Sequence[Tensor]) -> None:
    """Refuse a network whose output for an example depends on the other examples, or on chance.

    Raises: ValueError, also if the batch is not the first axis of the output.
    """
    separate = torch.cat([y.detach() for y in alone])
    if _close(together.detach(), separate):
        return
    more = torch.cat([x, x[:1]])
    with torch.no_grad():
        # An output that is not batch-first may look like one on two examples, and then like mixing; not on three.
        flat_outputs(network.run(more), len(more), more)
        one, two = (flat_outputs(network.run(x), len(x), x) for _ in range(2))
    if not _close(one, two):
        _refuse_chance()
    try:
        # Large terms may cancel: rounding then looks like mixing, but not in double precision.
        exact, parts = double(network, x), [double(network, x[i : i + 1]) for i in range(2)]
    except Exception:  # a network that insists on its own dtype is judged in it
        _refuse_mixing()
    if not _close(exact[:2], torch.cat(parts)):
        _refuse_mixing()


def _close(one: Tensor, two: Tensor) -> bool:
    if one.shape != two.shape:
        return False
    tolerance = 4096 * torch.finfo(one.dtype).eps  # sums of thousands of terms over some tens of layers
    return bool((one - two).abs().max() <= tolerance * torch.maximum(one.abs().max(), two.abs().max()))


def _refuse_chance() -> NoReturn:
    raise ValueError(
        "`model` gives two outputs for the same batch, so it depends on chance or on a state that it changes; a "
        "tangent kernel needs a function of the input: call `model.eval()`, or take dropout and noise out."
    )


def _refuse_mixing() -> NoReturn:
    raise ValueError(
        "`model` mixes the examples of a batch: its output for an example changes with the other examples, so no "
        "example has a gradient of its own. Usual causes: batch norm that uses the batch's statistics (call "
        "`model.eval()`), or an operation along the first axis."
    )


def _factors(y: Tensor, output: int | None) -> Float[Tensor, " output"]:
    """How outputs are combined for the comparison: the one in question, or all with random factors."""
    row = torch.zeros(y.shape[1], dtype=torch.float64)
    if output is None:
        row = torch.randn(row.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    else:
        row[output] = 1
    return row.to(y)


def _differing(
    network: Network, terms: Terms, paired: frozenset[str], alone: Sequence[Tensor], factors: Tensor,
    known: Sequence[str],
) -> list[str]:  # fmt: skip
    """The parameters for which factors and autograd's own gradients have other inner products."""
    parameters = network.parameters
    gradients = [
        torch.autograd.grad(y, [parameters[name] for name in known], factors[None], allow_unused=True)
        if y.requires_grad and known else [None] * len(known)
        for y in alone
    ]  # fmt: skip
    grams = {}
    for name, one, two in zip(known, *gradients, strict=True):
        exact = factors.new_zeros(2, 2)
        if one is not None and two is not None:
            a, b = one.flatten(), two.flatten()
            mixed = a @ b
            exact = torch.stack([a @ a, mixed, mixed, b @ b]).view(2, 2).to(factors)
        elif one is not None or two is not None:
            exact = exact.fill_(torch.nan)  # read for one example only: nothing by layer equals it
        found = factors.new_zeros(2, 2)
        if name in terms:
            features = assembled({name: terms[name]}, paired)
            add_inner_products(found, features, features, joint=False)
        grams[name] = exact, found
    return _unequal(grams)


def _unequal(grams: Mapping[str, tuple[Tensor, Tensor]]) -> list[str]:
    if not grams:
        return []
    exact = torch.stack([pair[0] for pair in grams.values()])
    error = (exact - torch.stack([pair[1] for pair in grams.values()])).abs()
    sizes = exact.diagonal(dim1=1, dim2=2).sqrt()
    own = sizes[:, :, None] * sizes[:, None, :]
    total = sizes.square().nan_to_num().sum(0).sqrt()
    eps = torch.finfo(exact.dtype).eps
    # Relative to the parameter's own share; a share that is rounding of the whole cannot be judged, and does not count.
    wrong = ~((error <= 2**14 * eps * own) | (error <= 64 * eps * total[:, None] * total))
    return [name for name, bad in zip(grams, wrong.flatten(1).any(1).tolist(), strict=True) if bad]
