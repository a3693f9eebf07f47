"""Running a network while taking down which operations read its parameters.

Found by operation, not by module: each call of a torch function that reads a parameter, and whose gradient is known in
factors, gets a stand-in for the parameter. So autograd's graph of the output still leads to a parameter itself only
where it is read in a way that is not known, and that is how such parameters are found, whatever the data.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge
from torch.overrides import TorchFunctionMode

from neuralpath.kernels.tangent.convolution import run_fast
from neuralpath.kernels.tangent.network import Network, flat_outputs
from neuralpath.kernels.tangent.rules import (
    COMMUTATIVE,
    SAME_ORDER,
    Form,
    Matrix,
    is_transpose,
    needs_signal,
    read_call,
)


class TooLarge(Exception):
    """The values of a run take more memory than they may."""


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One operation that reads parameters: what went in, where the gradient comes back, and the form of each."""

    signal: Tensor | None
    version: int  # of the signal when it was read
    edge: GradientEdge
    result: Tensor  # like the result, without its values
    forms: tuple[tuple[str, Form], ...]

    @property
    def overwritten(self) -> bool:
        """Whether the signal was changed in place after it was read."""
        return self.signal is not None and self.signal._version != self.version


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A run: the outputs, with autograd's graph behind them, and the operations that read parameters."""

    outputs: Tensor
    calls: tuple[Call, ...]
    unread: frozenset[str]  # parameters with a use that is not among the calls
    bytes_per_example: int  # of all values on the way


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """A parameter, or a view of it."""

    name: str
    tensor: Tensor
    transposed: bool = False


class _Recorder(TorchFunctionMode):
    """Takes down the calls that read some parameters of a network, for a batch of a known size."""

    def __init__(self, parameters: Mapping[str, Tensor], n_examples: int, room: int | None) -> None:
        super().__init__()
        self._room = room
        self._sources = {id(tensor): _Source(name, tensor) for name, tensor in parameters.items()}
        self._n_examples = n_examples
        self.calls: list[Call] = []
        self.differentiates = False
        self.bytes = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # Arguments inside lists are not looked at: their use is then not known, which is safe.
        arguments = (*args, *kwargs.values())
        sources = [self._sources[id(arg)] for arg in arguments if id(arg) in self._sources]
        # A network that differentiates itself reads its parameters once more, on the way back.
        self.differentiates |= func is torch.autograd.grad
        out = self._recorded(func, args, kwargs, sources) if sources and torch.is_grad_enabled() else None
        if out is None:
            out = run_fast(func, args, kwargs)
            if len(sources) == 1 and isinstance(out, Tensor) and out.requires_grad:
                self._note_view(func, args, sources[0], out)
        if isinstance(out, Tensor) and not sources:
            self._count(out)
        return out

    def _count(self, out: Tensor) -> None:
        self.bytes += out.nbytes
        if self._room is not None and self.bytes > self._room:
            raise TooLarge

    def _note_view(self, func: Any, args: Any, source: _Source, out: Tensor) -> None:
        if func in SAME_ORDER and not source.transposed and out.numel() == source.tensor.numel():
            self._sources[id(out)] = _Source(source.name, out)
        elif source.tensor.ndim == 2 and is_transpose(func, args):
            self._sources[id(out)] = _Source(source.name, out, not source.transposed)

    def _recorded(self, func: Any, args: Any, kwargs: Any, sources: list[_Source]) -> Any:
        """The call's result with stand-ins for parameters, or nothing where it is not known."""
        # Where both operands could be the signal, as in a batch of one, it is the one that is no parameter.
        is_turned = func in COMMUTATIVE and len(args) == 2 and id(args[0]) in self._sources
        read = read_call(func, args[::-1] if is_turned else args, kwargs)
        if read is None or read.signal.ndim == 0 or read.signal.shape[0] != self._n_examples:
            return None
        forms: list[tuple[str, Form]] = []
        stand_ins: dict[int, Tensor] = {}
        for tensor, form in read.forms:
            source = self._sources.get(id(tensor))
            if source is None or sum(s.tensor is tensor for s in sources) > 1 or read.signal is tensor:
                continue
            if source.transposed:
                if not isinstance(form, Matrix):
                    continue
                form = Matrix(not form.transposed)
            forms.append((source.name, form))
            stand_ins[id(tensor)] = tensor.detach().requires_grad_()
        if not forms:
            return None
        signal = read.signal.detach() if any(needs_signal(form) for _, form in forms) else None
        version = 0 if signal is None else signal._version
        out = run_fast(
            func,
            tuple(stand_ins.get(id(arg), arg) for arg in args),
            {key: stand_ins.get(id(arg), arg) for key, arg in kwargs.items()},
            stand_ins.values(),
        )
        self.calls.append(
            Call(signal, version, get_gradient_edge(out), out.new_empty(()).expand(out.shape), tuple(forms))
        )
        self._count(out)
        return out


def record(network: Network, x: Tensor, names: Iterable[str], room: int | None = None) -> Recording:
    """Run a network on a batch and take down how the named parameters are read.

    Raises: TooLarge if the values on the way take more than ``room`` bytes.
    """
    parameters = {name: network.parameters[name] for name in names}
    recorder = _Recorder(parameters, len(x), room)
    with recorder:
        y = network.run(x)
    outputs = flat_outputs(y, len(x), x)
    left = _leaves(outputs)
    unread = {name for name, tensor in parameters.items() if id(tensor) in left or recorder.differentiates}
    for call in recorder.calls:
        if call.overwritten:
            unread.update(name for name, _ in call.forms)
    return Recording(outputs, tuple(recorder.calls), frozenset(unread), recorder.bytes // len(x))


def _leaves(y: Tensor) -> set[int]:
    """Identities of the tensors that gradients of ``y`` are summed into."""
    if y.grad_fn is None:
        return {id(y)} if y.requires_grad else set()
    seen: set[Node] = set()
    waiting: list[Node] = [y.grad_fn]
    found: set[int] = set()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if (leaf := getattr(node, "variable", None)) is not None:
            found.add(id(leaf))
        waiting.extend(edge[0] for edge in node.next_functions if edge[0] is not None)
    return found
