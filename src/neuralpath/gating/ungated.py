"""Detection of nonlinear operations without gates, which would silently keep the value network's own nonlinearity.

A value network keeps all its operations except its gates. An activation without a gate (ELU, tanh,
``torch.where(q > 0, …)``) would continue to use its own pre-activations. To refuse it, two modes follow one run:

    _Functions   (torch function mode)  knows which Python function runs where, and whether it is a gate
    _Operations  (torch dispatch mode)  follows every tensor by its memory, from the input and the weights to the output
"""

from collections.abc import Iterator
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

from neuralpath.gating.modes import ModuleStack
from neuralpath.gating.spellings import SPELLINGS

_LINEAR = frozenset({
    "add", "sub", "rsub", "neg", "positive", "mul", "div", "true_divide", "addcmul", "addcdiv", "lerp", "where",
    "masked_fill", "deg2rad", "rad2deg", "ldexp", "conj_physical",
})  # fmt: skip
"""Elementwise operations that are linear in each value, if masks are constant."""

_COPIES = frozenset({"clone", "_to_copy", "copy", "_reshape_copy"})  # views of the same memory need no entry

_COUPLED = frozenset({
    "_softmax", "_log_softmax", "_safe_softmax", "logsumexp", "glu", "log_sigmoid_forward", "hardswish", "prelu",
    "_prelu_kernel", "rrelu_with_noise", "topk", "sort", "kthvalue", "median", "nanmedian", "mode", "amin", "aminmax",
    "cummax", "cummin", "logcumsumexp", "fractional_max_pool2d", "fractional_max_pool3d", "mkldnn_rnn_layer",
    "_native_multi_head_attention", "_transformer_encoder_layer_fwd", "norm", "linalg_vector_norm", "std", "std_mean",
    "var", "var_mean", "prod", "cumprod", "_cdist_forward", "_pdist_forward", "renorm", "linalg_matrix_exp",
    "fake_quantize_per_tensor_affine_cachemask", "fake_quantize_per_channel_affine_cachemask", "native_layer_norm",
    "native_group_norm", "native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm", "_fused_rms_norm",
})  # fmt: skip
"""Nonlinear operations that torch does not mark as elementwise."""

_PRODUCTS = frozenset({"mul", "div", "true_divide", "addcmul", "addcdiv", "mm", "bmm", "matmul", "dot", "mv"})
"""Operations that are linear in each of two values, but not in both together."""


_LINKS = frozenset({"_softmax", "_log_softmax", "sigmoid", "log_sigmoid_forward", "tanh", "softplus", "exp"})
"""Operations that may come last in a network: they turn outputs into probabilities or bounded numbers."""

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
class _Origin:
    """The origin of the values in a piece of memory."""

    of_input: bool = False
    of_weights: bool = False
    inside: frozenset[str] = frozenset()  # operations without gates before the last operation
    last: frozenset[str] = frozenset()  # the last operation, if it may come last in a network

    @property
    def is_signal(self) -> bool:
        """Whether they depend on both the input and weights."""
        return self.of_input and self.of_weights


class _Operations(TorchDispatchMode):
    """Follows the values that torch computes, operation by operation."""

    def __init__(self, *, linear: bool) -> None:
        super().__init__()
        self._linear = linear
        self.function: str | None = None  # the Python function that the network calls
        self.location = ""
        self.is_trusted = False  # a gate or a normalization is running
        self._origins: dict[int, tuple[StorageWeakRef, _Origin]] = {}

    def set_origin(self, tensor: Tensor, origin: _Origin | None) -> None:
        """Remember the origin of a tensor's memory; None forgets it."""
        if (memory := _memory(tensor)) is None:
            return
        if origin is None:
            self._origins.pop(memory._cdata, None)
        else:
            self._origins[memory._cdata] = (StorageWeakRef(memory), origin)

    def origin(self, tensor: Tensor) -> _Origin | None:
        """The origin of a tensor, None for constants."""
        memory = _memory(tensor)
        reference, origin = (None, None) if memory is None else self._origins.get(memory._cdata, (None, None))
        return None if reference is None or reference.expired() else origin

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        arguments = [tensor for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, Tensor)]
        before = [(tensor, origin) for tensor in arguments if (origin := self.origin(tensor)) is not None]
        result = func(*args, **kwargs)
        name = _without_in_place(func.overloadpacket.__name__)
        if not before or name.endswith("_like") or name.startswith("new_"):
            return result
        outputs = [tensor for tensor in tree_leaves(result) if isinstance(tensor, Tensor)]
        after = self._after(name, before, outputs)
        for tensor in (*outputs, *_written(func, args, kwargs)):
            if func._schema.is_mutable or self.origin(tensor) is None:  # a view keeps the origin of its memory
                self.set_origin(tensor, after)
        return result

    def _after(self, name: str, before: list[tuple[Tensor, _Origin]], outputs: list[Tensor]) -> _Origin:
        origins = [origin for _, origin in before]
        union = _Origin(
            of_input=any(part.of_input for part in origins),
            of_weights=any(part.of_weights for part in origins),
            inside=frozenset().union(*(part.inside for part in origins)),
            last=frozenset().union(*(part.last for part in origins)),
        )
        if name in _COPIES and all(tensor.is_floating_point() for tensor, _ in before):
            return union
        later = replace(union, inside=union.inside | union.last, last=frozenset())
        if self.is_trusted or not any(tensor.is_floating_point() for tensor in outputs):
            return later
        signals = [tensor for tensor, origin in before if origin.is_signal]
        label = f"{self.function or name}{self.location}"
        if any(not tensor.is_floating_point() for tensor in signals):
            label = f"{label} (with a mask or positions that depend on the values)"
            return replace(later, inside=later.inside | {label})
        squared = name == "mul" and len(signals) > 1 and signals[0] is signals[1]
        multiplied = self._linear and name in _PRODUCTS and len(signals) > 1
        if not union.is_signal or not (_is_nonlinear(name) or squared or multiplied):
            return later
        if name in _LINKS:
            return replace(later, last=frozenset({label}))
        return replace(later, inside=later.inside | {label})


class _Functions(TorchFunctionMode):
    """Tells which of torch's functions a network is calling, and whether it is a gate."""

    def __init__(self, operations: _Operations, stack: ModuleStack, *, linear: bool) -> None:
        super().__init__()
        self._operations = operations
        self._module_stack = stack
        self._trusted = frozenset({"batch_norm"}) if linear else _NORMALIZATIONS

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        operations = self._operations
        name = getattr(func, "__name__", str(func)).strip("_")
        spelling = SPELLINGS.get(func)
        is_gate = spelling is not None and spelling.read(args, kwargs) is not None
        operations.function, operations.location = name, self._module_stack.here
        operations.is_trusted = is_gate or name in self._trusted
        try:
            result = func(*args, **kwargs)
        finally:
            operations.function, operations.location, operations.is_trusted = None, "", False
        if is_gate:  # the positions that a max pool picks are gates, which will be replaced
            for part in tree_leaves(result):
                if isinstance(part, Tensor) and not part.is_floating_point():
                    operations.set_origin(torch.func.debug_unwrap(part), None)
        return result


class UngatedOperations:
    """Finds the nonlinear operations without gates between a network's input and its output.

    An operation counts if it acts on values that depend on the input and on parameters, and its result reaches the
    output. These do not count: functions of the input alone, before all parameters; functions of parameters alone;
    values that are computed but not used; dropout; normalizations by torch's functions (they divide by statistics, as
    batch norm does in training mode); products and quotients of two values; and, as a network's very last operation,
    a soft-max, log-soft-max, sigmoid, log-sigmoid, tanh, softplus or exponential function.

    With ``linear``, products and quotients of two values count too, and normalizations except batch norm.
    """

    def __init__(self, stack: ModuleStack, *, linear: bool = False) -> None:
        self._operations = _Operations(linear=linear)
        self._functions = _Functions(self._operations, stack, linear=linear)

    @contextmanager
    def watch(self, module: nn.Module, x: Tensor) -> Iterator[None]:
        """Follow the values of a run of ``module`` on ``x``; enter it inside the modes that replace operations."""
        for parameter in module.parameters():
            self._operations.set_origin(torch.func.debug_unwrap(parameter), _Origin(of_weights=True))
        self._operations.set_origin(torch.func.debug_unwrap(x), _Origin(of_input=True))
        with self._operations, self._functions:
            yield

    def between(self, output: Any) -> list[str]:
        """The operations, by name and location, that influence this output through other operations."""
        parts = (torch.func.debug_unwrap(part) for part in tree_leaves(output) if isinstance(part, Tensor))
        origins = (self._operations.origin(part) for part in parts)
        return sorted(frozenset().union(*(origin.inside for origin in origins if origin is not None)))


def _memory(tensor: Tensor) -> torch.UntypedStorage | None:
    """The memory of a tensor's values; None for sparse tensors."""
    try:
        return tensor.untyped_storage()
    except NotImplementedError:
        return None


def _is_nonlinear(name: str) -> bool:
    is_coupled = name in _COUPLED or name.startswith("_scaled_dot_product")  # attention
    return is_coupled or (name in _elementwise() and name not in _LINEAR | _COPIES)


def _without_in_place(name: str) -> str:
    return name if name.startswith("__") else name.removesuffix("_")


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    """The arguments that an operation writes into."""
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[index] if index < len(args) else kwargs.get(argument.name)
            yield from (part for part in tree_leaves(value) if isinstance(part, Tensor))
