"""Running a network, and recording which operations read its parameters.

Parameters are found by operation, not by module. Each call of a torch function that reads a parameter, and that has a
rule (``rules.py``), gets a detached *stand-in* for the parameter. Autograd's graph of the output then leads to a
parameter itself only where an operation without a rule reads it. These parameters go the general path.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge
from torch.overrides import TorchFunctionMode

from neuralpath._checks import describe
from neuralpath.kernels.tangent import rules, winograd
from neuralpath.kernels.tangent.rules import FilterForm, Form, MatrixForm, read_call

Parameters = Collection[str] | Callable[[str], bool]
"""Which parameters: a collection of their names, or a function that is true for the names to use."""


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A function of a batch, and the tensors that it reads, each once; they are those of the moment of a call."""

    parameters: Callable[[], dict[str, Tensor]]
    buffers: Callable[[], dict[str, Tensor]]
    run: Callable[..., Any]  # the output for a batch; a second argument has tensors that replace some of these


def module_network(model: nn.Module) -> Network:
    """A module as the user wrote it; it runs on copies of its input and buffers, since it may change them."""
    names = {id(tensor): name for name, tensor in (*model.named_buffers(), *model.named_parameters())}
    # From the name of each tensor to all attributes of modules that are this tensor: several if it is tied.
    attributes: dict[str, list[str]] = {name: [] for name in names.values()}
    for path, module in model.named_modules():  # a shared module appears once
        for name, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            attributes[names[id(tensor)]].append(f"{path}.{name}" if path else name)
    is_compiled = any(hasattr(m, "_orig_mod") or m._compiled_call_impl is not None for m in model.modules())

    def run(x: Tensor, tensors: Mapping[str, Tensor] | None = None) -> Any:
        tensors = {**{name: buffer.clone() for name, buffer in model.named_buffers()}, **(tensors or {})}
        replaced = {attribute: tensor for name, tensor in tensors.items() for attribute in attributes[name]}
        # Compiled code runs as it was written: its operations are recorded one by one.
        with torch.compiler.set_stance("force_eager") if is_compiled else nullcontext():
            if not replaced:
                return model(x.clone())
            # Ties are in `replaced` already; torch's own handling leaves a module with two names without tensors.
            return torch.func.functional_call(model, replaced, (x.clone(),), tie_weights=False)

    return Network(lambda: dict(model.named_parameters()), lambda: dict(model.named_buffers()), run)


def checked_parameters(model: nn.Module, params: Parameters | None) -> tuple[str, ...]:
    """Names of the parameters that a kernel sums over; refuses a model that is in training mode."""
    _refuse_training_mode(model)
    own = dict(model.named_parameters())
    trained = [name for name, parameter in own.items() if parameter.requires_grad]
    if params is None or callable(params):
        chosen = [name for name in trained if params is None or params(name)]
    else:
        first_names = {id(parameter): name for name, parameter in own.items()}
        names = {name: first_names[id(p)] for name, p in model.named_parameters(remove_duplicate=False)}
        for name in params:
            if name not in names:
                near = get_close_matches(str(name), names, n=1, cutoff=0.0)
                hint = f"; the nearest is {near[0]!r}." if near else ", which has none."
                raise ValueError(f"`params` has {name!r}, which is no parameter of `model`{hint}")
        requested = {names[name] for name in params}
        if frozen := sorted(requested.difference(trained)):
            raise ValueError(f"`params` has {_listed(frozen)}, which needs no gradient: call `requires_grad_()` on it.")
        chosen = [name for name in trained if name in requested]
    if not chosen:
        reason = "parameters that need gradients" if params is None else "parameters that `params` selects"
        raise ValueError(f"`model` has no {reason}, so it has no tangent kernel.")
    if lazy := [name for name in chosen if isinstance(own[name], nn.parameter.UninitializedParameter)]:
        raise ValueError(f"`model` has no values yet for {_listed(lazy)}: run it once on a batch first.")
    if complex_valued := [name for name in chosen if own[name].is_complex()]:
        raise ValueError(f"`model` has complex numbers in {_listed(complex_valued)}: leave it out with `params=`.")
    return tuple(chosen)


def _refuse_training_mode(model: nn.Module) -> None:
    norms, random = [], []
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and (module.training or module.running_mean is None):
            norms.append(name)
        is_dropout = isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0
        if module.training and (is_dropout or isinstance(module, nn.RReLU)):
            random.append(name)
    if norms:
        raise ValueError(
            f"`model` mixes the examples of a batch, whose statistics batch norm at {_listed(norms)} uses; call "
            "`model.eval()`, with `track_running_stats` on."
        )
    if random:
        raise ValueError(f"`model` is in training mode, where {_listed(random)} is random: call `model.eval()` first.")


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} others" if len(names) > 3 else "")


def flat_outputs(y: Any, n_examples: int, x: Tensor) -> Tensor:
    """The outputs as a matrix, one row for each example; refuses anything but one real tensor, the batch first."""
    if not isinstance(y, Tensor) or not y.is_floating_point():
        raise TypeError(f"`model` must return one floating-point tensor, such as logits, got {describe(y)}.")
    is_squeezed = n_examples == 1 and y.ndim < 2  # such a model drops the batch axis of a single example
    if not is_squeezed and (y.ndim == 0 or y.shape[0] != n_examples):
        raise ValueError(f"`model` must return the batch first, but for {describe(x)} it returned {describe(y)}.")
    return y.reshape(n_examples, -1)


def outputs_in_double(network: Network, x: Tensor) -> Tensor:
    """The outputs in double precision, without gradients."""
    tensors = {
        name: tensor.detach().double() if tensor.is_floating_point() else tensor.clone()
        for name, tensor in {**network.buffers(), **network.parameters()}.items()
    }
    with torch.no_grad():
        y = network.run(x.double() if x.is_floating_point() else x, tensors)
    return flat_outputs(y, len(x), x)


@dataclass(frozen=True, slots=True, eq=False)
class LayerCall:
    """One operation that reads parameters, with what their gradients need."""

    signal: Tensor | None  # the input of the layer, None if no form needs it
    signal_version: int  # torch counts changes in place
    edge: GradientEdge  # of the layer's result, where its gradient is taken
    result: Tensor  # like the layer's result, without its values
    forms: tuple[tuple[str, Form], ...]  # by the names of the parameters


@dataclass(frozen=True, slots=True, eq=False)
class RecordedRun:
    """A forward pass: its outputs, attached to autograd's graph, and the operations that read parameters."""

    outputs: Tensor
    calls: tuple[LayerCall, ...]
    unread: frozenset[str]  # parameters with a use that is not among the calls
    bytes_per_example: int  # of all intermediate values


@dataclass(frozen=True, slots=True, eq=False)
class _ParameterView:
    """A parameter, or a view of it."""

    name: str
    tensor: Tensor
    transposed: bool = False


class _Recorder(TorchFunctionMode):
    """Records the calls that read some parameters of a network, for a batch of a known size."""

    def __init__(self, parameters: Mapping[str, Tensor], n_examples: int, max_bytes: int | None) -> None:
        super().__init__()
        self._max_bytes = max_bytes
        self._views = {id(tensor): _ParameterView(name, tensor) for name, tensor in parameters.items()}
        self._n_examples = n_examples
        self.calls: list[LayerCall] = []
        self.differentiates = False
        self.bytes = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # Parameters inside lists are missed; they then count as unread, which is safe.
        views = [self._views[id(arg)] for arg in (*args, *kwargs.values()) if id(arg) in self._views]
        # A network that differentiates itself reads its parameters once more in its backward pass.
        self.differentiates |= func is torch.autograd.grad
        out = self._recorded(func, args, kwargs, views) if views and torch.is_grad_enabled() else None
        is_recorded = out is not None
        if not is_recorded:
            out = run_operation(func, args, kwargs)
            if len(views) == 1 and isinstance(out, Tensor) and out.requires_grad:
                view = views[0]
                if func in rules.SAME_ORDER and not view.transposed and out.numel() == view.tensor.numel():
                    self._views[id(out)] = _ParameterView(view.name, out)
                elif view.tensor.ndim == 2 and rules.is_transpose(func, args):
                    self._views[id(out)] = _ParameterView(view.name, out, not view.transposed)
        if isinstance(out, Tensor) and (is_recorded or not views):  # a view of a parameter takes no memory
            self.bytes += out.nbytes
            if self._max_bytes is not None and self.bytes > self._max_bytes:
                raise MemoryError("the values of the run take more memory than they may")
        return out

    def _recorded(self, func: Any, args: Any, kwargs: Any, views: list[_ParameterView]) -> Any:
        """The call's result with stand-ins for parameters, or None without a rule."""
        # Where both operands could be the signal, as in a batch of one, it is the one that is no parameter.
        is_swapped = func in rules.COMMUTATIVE and len(args) == 2 and id(args[0]) in self._views
        read = read_call(func, args[::-1] if is_swapped else args, kwargs)
        if read is None or read.signal.ndim == 0 or read.signal.shape[0] != self._n_examples:
            return None
        forms: list[tuple[str, Form]] = []
        stand_ins: dict[int, Tensor] = {}
        for tensor, form in read.forms:
            view = self._views.get(id(tensor))
            if view is None or sum(v.tensor is tensor for v in views) > 1 or read.signal is tensor:
                continue
            if view.transposed:
                if not isinstance(form, MatrixForm):
                    continue
                form = MatrixForm(not form.transposed)
            forms.append((view.name, form))
            stand_ins[id(tensor)] = tensor.detach().requires_grad_()
        if not forms:
            return None
        signal = read.signal.detach() if any(form.needs_signal for _, form in forms) else None
        version = 0 if signal is None else signal._version
        args = tuple(stand_ins.get(id(arg), arg) for arg in args)
        kwargs = {key: stand_ins.get(id(arg), arg) for key, arg in kwargs.items()}
        out = run_operation(func, args, kwargs, stand_ins.values())
        result = out.new_empty(()).expand(out.shape)
        self.calls.append(LayerCall(signal, version, get_gradient_edge(out), result, tuple(forms)))
        return out


def run_operation(function: Any, args: Any, kwargs: Any, stand_ins: Collection[Tensor] = ()) -> Any:
    """Call a torch function; 3 x 3 convolutions with many channels run by a faster algorithm (``winograd.py``)."""
    if function is F.conv2d and not torch.is_autocast_enabled("cpu"):
        read = read_call(function, args, kwargs)
        if read is not None:
            (weight, form), *biases = read.forms
            # The faster algorithm has no gradient by the weight.
            is_constant = not weight.requires_grad or any(weight is tensor for tensor in stand_ins)
            tensors = read.signal, weight, *(bias for bias, _ in biases)
            assert isinstance(form, FilterForm)
            # Strided memory of one dtype, and of no class that gives operations another meaning.
            is_plain = all(type(t) in (Tensor, nn.Parameter) and t.layout == torch.strided for t in tensors)
            is_plain &= all(tensor.dtype == weight.dtype for tensor in tensors)
            if is_constant and is_plain and form.geometry.uses_winograd(read.signal, weight.shape[0]):
                out = winograd.convolution(read.signal, weight, form.geometry.padding)
                return out + biases[0][0][:, None, None] if biases else out
    return function(*args, **kwargs)


def record_run(network: Network, x: Tensor, names: Iterable[str], max_bytes: int | None = None) -> RecordedRun:
    """Run a network on a batch and record the operations that read the named parameters."""
    own = network.parameters()
    parameters = {name: own[name] for name in names}
    with _Recorder(parameters, len(x), max_bytes) as recorder:
        y = network.run(x)
    outputs = flat_outputs(y, len(x), x)
    leaves = _leaves(outputs)
    unread = {name for name, tensor in parameters.items() if id(tensor) in leaves or recorder.differentiates}
    for call in recorder.calls:
        if call.signal is not None and call.signal._version != call.signal_version:  # changed in place since the call
            unread.update(name for name, _ in call.forms)
    return RecordedRun(outputs, tuple(recorder.calls), frozenset(unread), recorder.bytes // len(x))


def _leaves(y: Tensor) -> set[int]:
    """Identities of the tensors that gradients of ``y`` are accumulated into."""
    if y.grad_fn is None:
        return {id(y)} if y.requires_grad else set()
    seen: set[Node] = set()
    stack: list[Node | None] = [y.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            stack.extend(edge[0] for edge in node.next_functions)
    return {id(getattr(node, "variable", None)) for node in seen}  # nodes that accumulate have a variable
