"""From a plain ``torch.nn.Module`` to a path graph, by way of ``torch.export``."""

import operator
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.export.graph_signature import InputKind, InputSpec, OutputKind

from neuralpath._checks import check_finite, describe
from neuralpath.graph import nodes as n
from neuralpath.graph.builder import Builder, Refused, Signal
from neuralpath.graph.operands import Call, Leaf, Literal, Operand, number_of
from neuralpath.graph.operations import OPERATIONS, REASONS
from neuralpath.graph.path_graph import PathGraph
from neuralpath.graph.replay import check_replay, run
from neuralpath.graph.support import SupportReport, Unreadable, UnsupportedOperation
from neuralpath.graph.tying import own_names

EXPORT_BATCH = 3
"""Examples in the batch that is exported: torch bakes in 0 and 1, and 2 is common among other sizes."""

_STATEFUL = (
    nn.modules.batchnorm._BatchNorm,
    nn.modules.dropout._DropoutNd,
    nn.modules.instancenorm._InstanceNorm,
)


def trace(model: nn.Module, example: Float[Tensor, "batch ..."]) -> PathGraph:
    """Read a model as a path graph.

    The model is exported with ``torch.export`` on a batch made of ``example``, its operations are turned into
    nodes (found by operation, so reused, functional and in-place ReLUs all count), and the graph is replayed:
    gates times weights must give what the model gives, at several batch sizes and with random weights too.
    Neither the model nor ``example`` is changed.

    Args:
        model: a module in evaluation mode that maps one batch to one tensor.
        example: one or more examples, with the batch as the first axis.

    Raises:
        UnsupportedOperation: some operations cannot be read; the message and ``.report`` list every one.
        ReplayMismatch: the graph does not compute what the model computes.
        TypeError, ValueError: ``model`` or ``example`` cannot be used, with the reason.

    >>> model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 2, bias=False))
    >>> trace(model, torch.randn(1, 3)).n_paths
    12

    """
    graph, unreadable = _read(model, example)
    if unreadable:
        raise UnsupportedOperation(report_on(graph, unreadable))
    check_replay(graph, model, example)
    return graph


def supported(model: nn.Module, example: Float[Tensor, "batch ..."]) -> SupportReport:
    """Whether ``trace`` can read a model, and everything that stands in the way; never raises.

    >>> print(supported(nn.Sequential(nn.Linear(2, 3), nn.Softmax(1)), torch.ones(1, 2)))
    Sequential cannot be read: 1 operation(s) are not supported.
    operation  module  line  why
    ---------  ------  ----  ------------------------------------------------------------------
    softmax    1             soft-max couples the units; return the logits and apply it outside
    """
    name = type(model).__name__
    try:
        graph, unreadable = _read(model, example)
        if not unreadable:
            check_replay(graph, model, example)
    except Exception as error:  # a report says what went wrong instead of raising it
        return SupportReport(name, 0, (), error=str(error))
    return report_on(graph, unreadable)


def report_on(graph: PathGraph, unreadable: Iterable[Unreadable] = ()) -> SupportReport:
    """What there is to say about a graph, and about what could not be read of its model."""
    notes = [
        f"{node.operation} at {node.name!r} is not a gate: the path readings refuse it"
        for node in graph.nodes
        if isinstance(node, n.ActivationNode)
    ]
    if (tied := graph.tied_parameter()) is not None:
        notes.append(f"{tied[0]!r} is a weight at both {tied[1]!r} and {tied[2]!r}: path readings refuse that")
    unreadable = tuple(dict.fromkeys(unreadable))
    return SupportReport(type(graph.model).__name__, len(graph.nodes), graph.gate_names, unreadable, tuple(notes))


def _read(model: nn.Module, example: Any) -> tuple[PathGraph, list[Unreadable]]:
    """The graph, and what could not be read of it (then the graph is only good for the report)."""
    _check_arguments(model, example)
    return _translate(model, _export(model, _repeated(example)), example.dtype)


def _repeated(example: Tensor) -> Tensor:
    """The batch that is exported, made of the first example."""
    return example.detach()[:1].expand(EXPORT_BATCH, *example.shape[1:]).contiguous()


def _check_arguments(model: Any, example: Any) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be a torch.nn.Module, got {describe(model)}.")
    expected = "a floating-point tensor with the batch as its first axis, such as x[:1]"
    if not isinstance(example, Tensor):
        raise TypeError(f"`example` must be {expected}, got {describe(example)}.")
    if not example.is_floating_point():
        raise TypeError(f"`example` must be {expected}, got {describe(example)}; convert it with `.float()`.")
    if example.ndim < 2:
        raise ValueError(f"`example` must be {expected}, got {describe(example)}; for one example use x[None].")
    if example.shape[0] == 0:
        raise ValueError(f"`example` has no examples (shape {tuple(example.shape)}): give a batch of at least one.")
    check_finite("example", example)
    stateful = [name for name, module in model.named_modules() if module.training and isinstance(module, _STATEFUL)]
    if stateful:
        raise ValueError(
            f"`model` is in training mode, where {', '.join(map(repr, stateful[:3]))}"
            f"{' and others' if len(stateful) > 3 else ''} (batch norm or dropout) depend on the batch or on "
            "chance: call `model.eval()` first."
        )
    try:
        _check_output(model, example)
    except (TypeError, ValueError):
        # A model that squeezes drops the batch axis of a single example, and may fail for it.
        if len(example) > 1 or not _takes(model, _repeated(example)):
            raise


def _takes(model: nn.Module, batch: Tensor) -> bool:
    try:
        _check_output(model, batch)
    except (TypeError, ValueError):
        return False
    return True


def _check_output(model: nn.Module, example: Tensor) -> None:
    try:
        y = run(model, example)
    except Exception as error:
        raise ValueError(
            f"`model` could not run on `example`, {describe(example)}; give an example of the shape and dtype that "
            f"it takes. It said: {_first_line(error)}"
        ) from error
    if not isinstance(y, Tensor):
        raise TypeError(
            f"`model` must return one tensor, but it returned {describe(y)}; wrap it in a module that returns the "
            "tensor of interest, for example its logits."
        )
    if y.ndim == 0 or y.shape[0] != example.shape[0]:
        raise ValueError(
            f"`model` must return one row for each example, but for {describe(example)} it returned {describe(y)}."
        )
    if y.ndim > 2:
        raise ValueError(
            f"`model` must return a shape (batch,) or (batch, outputs), but it returned {describe(y)}; flatten or "
            "pool the output in a wrapping module."
        )


def _export(model: nn.Module, batch: Tensor) -> torch.export.ExportedProgram:
    try:
        with warnings.catch_warnings():
            # torch's own export code uses names that torch has deprecated.
            warnings.simplefilter("ignore")
            program = torch.export.export(model, (batch,), strict=False)
            # Functional spellings of in-place operations. With gradients torch would take some activations apart.
            with torch.inference_mode():
                return program.run_decompositions({})
    except Exception as error:
        raise ValueError(
            f"torch.export cannot read `model` ({type(model).__name__}). Usual causes: an `if` or a loop that "
            "depends on the values of the input, or Python code outside torch. It said: " + _first_line(error)
        ) from error


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def _translate(
    model: nn.Module, program: torch.export.ExportedProgram, dtype: torch.dtype
) -> tuple[PathGraph, list[Unreadable]]:
    tensors = {
        **dict(model.named_buffers(remove_duplicate=False)),
        **dict(model.named_parameters(remove_duplicate=False)),
    }
    build = Builder(tensors, EXPORT_BATCH, dtype)
    values: dict[torch.fx.Node, Any] = {}
    unreadable: list[Unreadable] = []
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    names = own_names(model)
    for fx_node in program.graph.nodes:
        if fx_node.op == "placeholder":
            values[fx_node] = _placeholder(build, fx_node, specs[fx_node.name], program.constants, names)
        elif fx_node.op == "output":
            result = torch.fx.map_arg(_returned(program, fx_node), lambda arg: values[arg])
        else:
            values[fx_node] = _value(build, fx_node, values, unreadable)
    if not isinstance(result, Signal):
        raise ValueError("`model` returns something that does not depend on its input.")
    return PathGraph(tuple(_needed(build.nodes, result.name)), result.name, model), unreadable


def _returned(program: torch.export.ExportedProgram, fx_node: torch.fx.Node) -> Any:
    """What the model returns; the export may list, before it, inputs and buffers that the model changes."""
    outputs: Any = fx_node.args[0]
    specs = program.graph_signature.output_specs
    return next(arg for arg, spec in zip(outputs, specs, strict=True) if spec.kind == OutputKind.USER_OUTPUT)


def _placeholder(
    build: Builder, fx_node: torch.fx.Node, spec: InputSpec, constants: Mapping[str, Any], names: Mapping[str, str]
) -> Any:
    if spec.kind == InputKind.USER_INPUT:
        return build.append(n.InputNode, tuple(fx_node.meta["val"].shape[1:]), label="input")
    assert spec.target is not None  # only the user's inputs have none
    if spec.kind == InputKind.CONSTANT_TENSOR:  # a tensor written in the model's code
        return Literal(constants[spec.target])
    return Leaf(names[spec.target], spec.kind == InputKind.PARAMETER)


def _value(
    build: Builder, fx_node: torch.fx.Node, values: dict[torch.fx.Node, Any], unreadable: list[Unreadable]
) -> Any:
    args: Any = torch.fx.map_arg(fx_node.args, lambda arg: values[arg])
    kwargs: Any = torch.fx.map_arg(fx_node.kwargs, lambda arg: values[arg])
    if fx_node.target is operator.getitem and not isinstance(args[0], Operand):
        return args[0][args[1]]
    if not _has_signal((args, kwargs)):
        return _call(fx_node.target, tuple(args), kwargs)
    build.place, build.place_is_layer = _module_of(fx_node)
    try:
        if fx_node.target not in OPERATIONS:
            raise Refused(REASONS.get(_operation_name(fx_node), "there is no rule for this operation"))
        result = OPERATIONS[fx_node.target](build, *args, **kwargs)
    except Exception as error:
        # A rule that meets what it was not written for is a reason like any other, with its place.
        reason = str(error) if isinstance(error, Refused) else f"it could not be read ({_first_line(error)})"
        unreadable.append(Unreadable(_operation_name(fx_node), reason, build.place, _source_line(fx_node)))
        return _stand_in(build, fx_node)
    return result


def _call(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
    """A function of tensors that do not depend on the input; numbers stay tensors, so that all are alike."""
    if function in (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default):
        return Call(number_of, args)
    return Call(function, args, kwargs)


def _stand_in(build: Builder, fx_node: torch.fx.Node) -> Any:
    """A signal in place of an unreadable one, so that the rest of the model is still looked at."""

    def signal(fake: Any) -> Any:
        shape = tuple(fake.shape[1:]) if isinstance(fake, Tensor) else ()
        return build.append(n.ConstantNode, shape, label="unreadable", value=Literal(0.0))

    fake = fx_node.meta.get("val")
    return tuple(signal(f) for f in fake) if isinstance(fake, list | tuple) else signal(fake)


def _has_signal(args: Any) -> bool:
    if isinstance(args, dict):
        return any(_has_signal(arg) for arg in args.values())
    if isinstance(args, list | tuple):
        return any(_has_signal(arg) for arg in args)
    return isinstance(args, Signal)


def _operation_name(fx_node: torch.fx.Node) -> str:
    target: Any = fx_node.target
    return str(getattr(target, "_opname", getattr(target, "__name__", target)))


def _module_of(fx_node: torch.fx.Node) -> tuple[str, bool]:
    """Path of the innermost module that runs an operation, and whether it is one of torch's own."""
    stack = list(fx_node.meta.get("nn_module_stack", {}).values())
    if not stack:
        return "", False
    path, kind = stack[-1]
    kind = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
    is_container = kind.startswith("torch.nn.modules.container.")
    return path, kind.startswith("torch.nn.modules.") and not is_container


def _source_line(fx_node: torch.fx.Node) -> str:
    frames = re.findall(r'File "([^"]+)", line (\d+)', fx_node.meta.get("stack_trace") or "")
    torch_home = os.path.dirname(torch.__file__)
    own = [(path, line) for path, line in frames if not path.startswith(torch_home)]
    return f"{os.path.basename(own[-1][0])}:{own[-1][1]}" if own else ""


def _needed(nodes: list[n.Node], output: str) -> list[n.Node]:
    """The nodes that the output depends on, in order; the input stays even where nothing reads it."""
    needed = {output}
    kept = []
    for node in reversed(nodes):
        if node.name in needed or isinstance(node, n.InputNode):
            needed.update(node.inputs)
            kept.append(node)
    return kept[::-1]
