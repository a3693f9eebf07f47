"""The check by replay that precedes every tangent kernel, on two examples.

The network runs on the two examples together (or on the whole batch, if that is small) and on each alone. Outputs that
differ mean that it mixes examples or is stochastic. For each parameter, the inner products of the gradients by layer
are compared with those of autograd's own gradients. A parameter for which they differ goes the general path.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath._checks import describe
from neuralpath.kernels.tangent.contraction import Terms, add_inner_products, cheaper_by_position
from neuralpath.kernels.tangent.features import Features, assemble, general_gradients, layer_gradients, one_hot
from neuralpath.kernels.tangent.recording import Network, RecordedRun, flat_outputs, outputs_in_double, record_run

_log = logging.getLogger("neuralpath")

COMPARED_ENTRIES = 2**20
"""Entries of examples that are compared with another example at once, so that no copy of a batch is made."""


class ChangedForwardPass(RuntimeError):
    """A network reads a parameter by different operations in different batches."""


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """What two examples show of a network, for one kernel."""

    by_layer: tuple[str, ...]  # parameters whose gradients the layers give
    general: Mapping[str, int]  # parameters on the general path, with their numbers of entries
    by_position: frozenset[str]  # parameters whose inner products are cheaper by position than by row
    terms: Terms  # gradients of the parameters in `by_layer`; later steps read their shapes
    outputs: tuple[int, ...]  # the outputs that are differentiated
    joint: bool  # whether the kernel has all pairs of outputs
    dtype: torch.dtype
    run_bytes: int  # of an example's intermediate values in a forward pass
    features: Features | None = None  # of the whole first batch, if it ran as a whole

    def with_general(self, names: Collection[str], network: Network) -> "Probe":
        """The same with further parameters on the general path."""
        general = {k: p.numel() for k, p in network.parameters().items() if k in self.general or k in names}
        return replace(
            self,
            by_layer=tuple(name for name in self.by_layer if name not in general),
            general=general,
            by_position=self.by_position.difference(general),
            terms={name: uses for name, uses in self.terms.items() if name not in general},
            features=None if general else self.features,
        )

    def features_of(self, network: Network, x: Tensor) -> Features:
        """Features of a batch, with each parameter on its path."""
        features = Features()
        if self.by_layer:
            run = record_run(network, x, self.by_layer)
            if run.unread:
                raise ChangedForwardPass(
                    f"`model` reads {', '.join(map(repr, sorted(run.unread)))} by other operations in a batch of "
                    f"{len(x)} than in the first examples; make its forward pass the same for all inputs."
                )
            terms = layer_gradients(run, one_hot(self.outputs, run.outputs))
            features = assemble(terms, self.by_position, run.calls)
        if self.general:
            gradients = general_gradients(network, x, tuple(self.general), self.outputs)
            explicit = gradients if features.explicit is None else torch.cat([features.explicit, gradients], 2)
            features = replace(features, explicit=explicit)
        return features


def probe_network(
    network: Network, x1: Tensor, x2: Tensor | None, names: Sequence[str], outputs: str | int, *, max_bytes: int = 0
) -> Probe:
    """Check a network on the first example and on the last one that differs from it; two equal ones would hide mixing.

    A single batch whose intermediate values take at most ``max_bytes`` runs as a whole, so that the checked gradients
    are those that the kernel is made of. Refuses a network that cannot run, mixes examples or is stochastic.
    """
    last = x1 if x2 is None else x2
    batch, index = _last_different(x1, last)
    examples = x1[:1], batch[index : index + 1]
    run = None
    if x2 is None and len(x1) > 1 and x1.nbytes <= max_bytes:
        try:
            run = record_run(network, x1, names, max_bytes)
        except Exception as error:  # too large; or two examples will show it too, or a later part of the batch
            _log.debug("the whole batch does not run: %r", error)
    is_whole = run is not None
    pair = slice(0, index + 1, index) if is_whole else slice(0, 2)  # where the two examples are in the run
    if run is None:
        x = torch.cat(examples)
        if len(x1) == 2 or len(last) == 2:
            x = torch.cat([x, x[:1]])  # a size that no batch has: an axis of that size cannot pass for the batch
        run = _run(network, x, names)
    together = run.outputs[pair]
    if not bool(torch.isfinite(together).all()):
        raise ValueError("`model` gives NaN or infinity for finite inputs, so it has no gradient there.")
    alone = [_output_alone(network, x, together, len(run.outputs)) for x in examples]
    _check_independence(network, torch.cat(examples), together, alone)
    chosen, factors = _chosen_outputs(outputs, together)
    terms: Terms = layer_gradients(run, one_hot(chosen, run.outputs) if is_whole else factors[None])
    in_pair = {name: [use.examples(pair) for use in uses] for name, uses in terms.items()}
    if is_whole:
        in_pair = {name: [use.combined(factors[list(chosen)]) for use in uses] for name, uses in in_pair.items()}
    by_layer = tuple(name for name in names if name not in run.unread)
    terms = {name: uses for name, uses in terms.items() if name in by_layer}
    joint = outputs == "full"
    by_position = cheaper_by_position(terms, len(x1), len(last), len(chosen), joint=joint)
    parameters = {name: parameter for name, parameter in network.parameters().items() if name in by_layer}
    wrong = _wrong_gradients(parameters, in_pair, by_position, alone, factors)
    for name in wrong:
        _log.warning("gradients of %r by layer differ from autograd's; they are computed on the general path", name)
    general = run.unread.union(wrong)
    features = assemble(terms, by_position, run.calls) if is_whole and not general else None
    dtype, run_bytes = run.outputs.dtype, run.bytes_per_example
    probe = Probe(by_layer, {}, by_position, terms, chosen, joint, dtype, run_bytes, features)
    return probe.with_general(general, network)


def _last_different(x1: Tensor, last: Tensor, compared_entries: int = COMPARED_ENTRIES) -> tuple[Tensor, int]:
    """The last example that differs from the first, in ``last`` or else in ``x1``, as a batch and an index."""
    first = x1[0]
    if not torch.equal(last[-1], first):
        return last, len(last) - 1
    n_rows = max(1, compared_entries // max(1, first.numel()))
    for batch in (last, x1) if last is not x1 else (x1,):
        for stop in range(len(batch), 0, -n_rows):
            part = batch[max(0, stop - n_rows) : stop]
            different = torch.nonzero((part != first).reshape(len(part), -1).any(1))
            if len(different):
                return batch, stop - len(part) + int(different[-1, 0])
    return last, len(last) - 1


def _chosen_outputs(outputs: str | int, y: Float[Tensor, "pair output"]) -> tuple[tuple[int, ...], Tensor]:
    """The outputs to differentiate, and the combination of them that is compared: with random factors, if several."""
    n_outputs = y.shape[1]
    if not isinstance(outputs, int):
        generator = torch.Generator().manual_seed(0)
        return tuple(range(n_outputs)), torch.randn(n_outputs, generator=generator, dtype=torch.float64).to(y)
    if not 0 <= outputs < n_outputs:
        raise ValueError(f"`outputs` must be 'mean', 'full' or an index from 0 to {n_outputs - 1}, got {outputs}.")
    return (outputs,), one_hot([outputs], y)[0]


def _run(network: Network, x: Tensor, names: Sequence[str]) -> RecordedRun:
    try:
        return record_run(network, x, names)
    except Exception as error:
        if isinstance(error, TypeError | ValueError) and str(error).startswith("`model`"):
            raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
        raise ValueError(f"`model` could not run on two examples, {describe(x)}: {reason}") from error


def _output_alone(network: Network, x: Tensor, like: Tensor, n_together: int) -> Tensor:
    """The output for one example alone, or for copies of it if the network cannot run on one."""
    try:
        y = flat_outputs(network.run(x), 1, x)
        if y.shape[1] == like.shape[1]:
            return y
    except Exception as error:
        _log.debug("a batch of one does not run: %s", error)
    # Not as many as ran together: this reveals an output whose first axis is not the batch but had its size.
    copies = torch.cat([x] * (3 if n_together == 2 else 2))
    return flat_outputs(network.run(copies), len(copies), copies)[:1]


def _check_independence(network: Network, x: Tensor, together: Tensor, alone: Sequence[Tensor]) -> None:
    """Refuse a network whose output for an example depends on the other examples, or is stochastic."""
    separate = torch.cat([y.detach() for y in alone])
    if _close(together.detach(), separate):
        return
    more = torch.cat([x, x[:1]])
    with torch.no_grad():
        # An output that is not batch-first may look like one on two examples, and then like mixing; not on three.
        flat_outputs(network.run(more), len(more), more)
        first, second = (flat_outputs(network.run(x), len(x), x) for _ in range(2))
    if not _close(first, second):
        raise ValueError(
            "`model` gives two different outputs for the same batch, so it is stochastic or changes its own state; "
            "call `model.eval()`, or remove dropout and noise."
        )
    with suppress(Exception):  # a network that runs in one dtype only is judged in it
        # Large terms may cancel: rounding then looks like mixing, but not in double precision.
        parts = torch.cat([outputs_in_double(network, x[i : i + 1]) for i in range(2)])
        if _close(outputs_in_double(network, x)[:2], parts):
            return
    raise ValueError(
        "`model` mixes the examples of a batch: its output for an example changes with the other examples, so no "
        "example has a gradient of its own. Call `model.eval()`, or look for an operation along the first axis."
    )


def _close(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape:
        return False
    tolerance = 4096 * torch.finfo(a.dtype).eps  # sums of thousands of terms over some tens of layers
    return bool((a - b).abs().max() <= tolerance * torch.maximum(a.abs().max(), b.abs().max()))


def _wrong_gradients(
    parameters: Mapping[str, Tensor],
    terms: Terms,
    by_position: frozenset[str],
    alone: Sequence[Tensor],
    factors: Tensor,
) -> list[str]:
    """The parameters for which gradients by layer and autograd's own gradients have different inner products."""
    tensors = list(parameters.values())
    gradients: list[Sequence[Tensor | None]] = []
    for y in alone:
        needs_pass = y.requires_grad and tensors
        by_parameter = torch.autograd.grad(y, tensors, factors[None], allow_unused=True) if needs_pass else None
        gradients.append(by_parameter or [None] * len(tensors))
    # Gram matrices of the two examples, for each parameter.
    exact = factors.new_zeros(len(tensors), 2, 2)
    by_layer = torch.zeros_like(exact)
    for k, (name, first, second) in enumerate(zip(parameters, *gradients, strict=True)):
        if first is not None and second is not None:
            a, b = first.flatten(), second.flatten()
            product = a @ b
            exact[k] = torch.stack([a @ a, product, product, b @ b]).view(2, 2)
        elif first is not None or second is not None:
            exact[k] = torch.nan  # read for one example only: no gradient by layer equals it
        if name in terms:
            features = assemble({name: terms[name]}, by_position)
            add_inner_products(by_layer[k], features, features, joint=False)
    error, norms = (exact - by_layer).abs(), exact.diagonal(dim1=1, dim2=2).sqrt()
    total = norms.square().nan_to_num().sum(0).sqrt()
    eps = torch.finfo(exact.dtype).eps
    # Relative to the parameter's own share. A share within the rounding of the whole cannot be judged and is accepted.
    is_equal = error <= 2**14 * eps * norms[:, :, None] * norms[:, None, :]
    is_equal |= error <= 64 * eps * total[:, None] * total
    return [name for name, equal in zip(parameters, is_equal.flatten(1).all(1).tolist(), strict=True) if not equal]
