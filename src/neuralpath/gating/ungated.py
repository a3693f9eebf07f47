"""Nonlinear operations that are no gates, found while a network runs, so that they are refused and not left in place.

A value network keeps everything but its gates. An activation that has no gate (ELU, tanh, ``torch.where(q > 0, …)``)
would go on with its own pre-activations, and nobody would notice. So every tensor is followed from the input to the
output of one run, by torch's own operations, whatever they are called in Python.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from neuralpath.gating.places import Places
from neuralpath.gating.spellings import SPELLINGS

_LINEAR = frozenset({
    "add", "sub", "rsub", "neg", "positive", "mul", "div", "true_divide", "addcmul", "addcdiv", "lerp", "where",
    "masked_fill", "deg2rad", "rad2deg", "ldexp", "conj_physical",
})  # fmt: skip
"""Elementwise operations that are linear in each value, as long as what selects is a constant."""

_COPIES = frozenset({"clone", "_to_copy", "copy", "_reshape_copy"})
"""Operations that only put values elsewhere; those that give another view of the same memory need no name."""

_COUPLED = frozenset({
    "_softmax", "_log_softmax", "_safe_softmax", "logsumexp", "glu", "log_sigmoid_forward", "hardswish", "prelu",
    "_prelu_kernel", "rrelu_with_noise", "topk", "sort", "kthvalue", "median", "nanmedian", "mode", "amin", "aminmax",
    "cummax", "cummin", "logcumsumexp", "fractional_max_pool2d", "fractional_max_pool3d", "mkldnn_rnn_layer",
    "_native_multi_head_attention", "_transformer_encoder_layer_fwd", "norm", "linalg_vector_norm", "std", "std_mean",
    "var", "var_mean", "prod", "cumprod", "_cdist_forward", "_pdist_forward", "renorm", "linalg_matrix_exp",
    "fake_quantize_per_tensor_affine_cachemask", "fake_quantize_per_channel_affine_cachemask", "native_layer_norm",
    "native_group_norm", "native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm", "_fused_rms_norm",
})  # fmt: skip
"""Operations that torch does not call elementwise, and that are no more linear."""

_PRODUCTS = frozenset({"mul", "div", "true_divide", "addcmul", "addcdiv", "mm", "bmm", "matmul", "dot", "mv"})
"""Operations that are linear in each of two values, and not in both together."""

_ATTENTION = "_scaled_dot_product"

_LINKS = frozenset({"_softmax", "_log_softmax", "sigmoid", "log_sigmoid_forward", "tanh", "softplus", "exp"})
"""What may be a network's last operation: it makes probabilities or bounded numbers of outputs, and gates nothing."""

_NORMALIZATIONS = frozenset({
    "batch_norm", "instance_norm", "layer_norm", "group_norm", "rms_norm", "normalize", "local_response_norm",
})  # fmt: skip


@cache
def _elementwise() -> frozenset[str]:
    """The names of all operations that torch marks as elementwise."""
    packets = ((name, getattr(torch.ops.aten, name)) for name in dir(torch.ops.aten))
    return frozenset(
        _without_in_place(name)
        for name, packet in packets
        if hasattr(packet, "overloads")
        and any(torch.Tag.pointwise in getattr(packet, overload).tags for overload in packet.overloads())
    )


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of the values in a piece of memory."""

    of_input: bool = False
    of_weights: bool = False
    inside: frozenset[str] = frozenset()
    """Operations without gates that these values went through, with others behind them."""
    last: frozenset[str] = frozenset()
    """The one that they come from, as far as it may be a network's last."""

    @property
    def is_signal(self) -> bool:
        """Whether they are more than the input, or a function of it, and more than weights."""
        return self.of_input and self.of_weights


def _together(known: Iterable[_Known]) -> _Known:
    all_known = list(known)
    return _Known(
        any(k.of_input for k in all_known), any(k.of_weights for k in all_known),
        frozenset().union(*(k.inside for k in all_known)), frozenset().union(*(k.last for k in all_known)),
    )  # fmt: skip


class _Unwrapped(TorchDispatchMode):
    """Shows a tensor without what ``torch.func`` has wrapped around it, as operations get it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by torch in place of ``func``."""
        self.tensor: Tensor = args[0]
        return func(*args, **(kwargs or {}))


def _unwrapped(tensor: Tensor) -> Tensor:
    with _Unwrapped() as mode:
        tensor.detach()
    return mode.tensor


class _Operations(TorchDispatchMode):
    """Follows what torch computes, operation by operation."""

    def __init__(self, *, linear: bool) -> None:
        super().__init__()
        self._linear = linear
        self.function: str | None = None  # as the network calls it
        self.place = ""
        self.is_trusted = False  # a gate or a normalization is running
        self._known: dict[int, tuple[StorageWeakRef, _Known]] = {}

    def know(self, tensor: Tensor, known: _Known | None) -> None:
        """Remember what is known of a tensor's memory."""
        if (memory := _memory(tensor)) is None:
            return
        if known is None:
            self._known.pop(memory._cdata, None)
        else:
            self._known[memory._cdata] = (StorageWeakRef(memory), known)

    def known(self, tensor: Tensor) -> _Known | None:
        """What is known of a tensor: nothing of constants."""
        memory = _memory(tensor)
        there, known = (None, None) if memory is None else self._known.get(memory._cdata, (None, None))
        return None if there is None or there.expired() else known

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by torch in place of ``func``."""
        kwargs = kwargs or {}
        given = [tensor for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, Tensor)]
        before = [(tensor, known) for tensor in given if (known := self.known(tensor)) is not None]
        result = func(*args, **kwargs)
        name = _name(func)
        if not before or name.endswith("_like") or name.startswith("new_"):
            return result
        found = [tensor for tensor in tree_leaves(result) if isinstance(tensor, Tensor)]
        after = self._after(name, before, found)
        for tensor in (*found, *_written(func, args, kwargs)):
            if func._schema.is_mutable or self.known(tensor) is None:  # another view of what is known stays what it is
                self.know(tensor, after)
        return result

    def _after(self, name: str, before: list[tuple[Tensor, _Known]], found: list[Tensor]) -> _Known:
        together = _together(known for _, known in before)
        if name in _COPIES and all(tensor.is_floating_point() for tensor, _ in before):
            return together
        inside = together.inside | together.last
        if self.is_trusted or not any(tensor.is_floating_point() for tensor in found):
            return replace(together, inside=inside, last=frozenset())
        signals = [tensor for tensor, known in before if known.is_signal]
        label = f"{self.function or name}{self.place}"
        if any(not tensor.is_floating_point() for tensor in signals):
            chosen = f"{label} (with a mask or positions that depend on the values)"
            return replace(together, inside=inside | {chosen}, last=frozenset())
        squared = name == "mul" and len(signals) > 1 and signals[0] is signals[1]
        multiplied = self._linear and name in _PRODUCTS and len(signals) > 1
        if not together.is_signal or not (_is_nonlinear(name) or squared or multiplied):
            return replace(together, inside=inside, last=frozenset())
        if name in _LINKS:
            return replace(together, inside=inside, last=frozenset({label}))
        return replace(together, inside=inside | {label}, last=frozenset())


class _Functions(TorchFunctionMode):
    """Says which of torch's functions a network is calling, and what of them is a gate."""

    def __init__(self, operations: _Operations, places: Places, *, linear: bool) -> None:
        super().__init__()
        self._operations = operations
        self._places = places
        self._trusted = frozenset({"batch_norm"}) if linear else _NORMALIZATIONS

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by torch in place of ``func``."""
        kwargs = kwargs or {}
        operations = self._operations
        name = getattr(func, "__name__", str(func)).strip("_")
        spelling = SPELLINGS.get(func)
        is_gate = spelling is not None and spelling.read(args, kwargs) is not None
        operations.function, operations.place = name, self._places.here
        operations.is_trusted = is_gate or name in self._trusted
        try:
            result = func(*args, **kwargs)
        finally:
            operations.function, operations.place, operations.is_trusted = None, "", False
        if is_gate:  # the positions that a max pool picks are gates, and given ones take their place
            for part in tree_leaves(result):
                if isinstance(part, Tensor) and not part.is_floating_point():
                    operations.know(_unwrapped(part), None)
        return result


class UngatedOperations:
    """Finds the nonlinear operations without gates that lie between a network's input and its output.

    An operation counts where it acts on values that depend on the input and on parameters, and its result reaches
    the output. So these do not: functions of the input alone, in front of all parameters; functions of parameters
    alone; looks at the values that change nothing; dropout; normalizations by torch's functions (they divide by
    statistics, as batch norm does while it is trained); products and quotients of two values; and, as a network's
    very last operation, a soft-max, log-soft-max, sigmoid, log-sigmoid, tanh, softplus or exponential function.

    With ``linear`` products and quotients of two values count, and normalizations but batch norm.
    """

    def __init__(self, places: Places, *, linear: bool = False) -> None:
        self._operations = _Operations(linear=linear)
        self._functions = _Functions(self._operations, places, linear=linear)

    @contextmanager
    def watch(self, module: nn.Module, x: Tensor) -> Iterator[None]:
        """Follow the values of a run of ``module`` on ``x``; enter it within the modes that change what runs."""
        for parameter in module.parameters():
            self._operations.know(_unwrapped(parameter), _Known(of_weights=True))
        self._operations.know(_unwrapped(x), _Known(of_input=True))
        with self._operations, self._functions:
            yield

    def between(self, output: Any) -> list[str]:
        """The operations, by name and place, behind which something else leads to this output."""
        parts = (_unwrapped(part) for part in tree_leaves(output) if isinstance(part, Tensor))
        known = (self._operations.known(part) for part in parts)
        return sorted(frozenset().union(*(k.inside for k in known if k is not None)))


def _memory(tensor: Tensor) -> torch.UntypedStorage | None:
    """Where a tensor's values are; sparse ones are in no one place."""
    try:
        return tensor.untyped_storage()
    except NotImplementedError:
        return None


def _is_nonlinear(name: str) -> bool:
    if name in _COUPLED or name.startswith(_ATTENTION):
        return True
    return name in _elementwise() and name not in _LINEAR | _COPIES


def _name(func: Any) -> str:
    return _without_in_place(func.overloadpacket.__name__)


def _without_in_place(name: str) -> str:
    return name if name.startswith("__") else name.removesuffix("_")


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    """The arguments that an operation writes into."""
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[index] if index < len(args) else kwargs.get(argument.name)
            yield from (part for part in tree_leaves(value) if isinstance(part, Tensor))
