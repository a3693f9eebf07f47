"""From a plain ``torch.nn.Module`` to a path graph, through ``torch.export``."""

import contextlib
import io
import logging
import operator
import os
import re
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.export.graph_signature import InputKind, OutputKind

from neuralpath._checks import describe
from neuralpath._resources import without_autocast
from neuralpath.graph import nodes as n, preconditions
from neuralpath.graph.builder import Builder, NoPaths, Refused, Signal
from neuralpath.graph.nodes import ComputedOperand, Leaf, Literal, Operand, named_tensors, number_of, own_names
from neuralpath.graph.operations import table
from neuralpath.graph.path_graph import PathGraph, check_input
from neuralpath.graph.replay import check_replay
from neuralpath.graph.reports import SupportReport, UnsupportedOperation, UnsupportedPart, first_line

Program = torch.export.ExportedProgram
FxValues = dict[torch.fx.Node, Any]  # a signal, an operand, or a tuple of them


def trace(model: nn.Module, example: Float[Tensor, "batch ..."]) -> PathGraph:
    """The path graph of a module.

    ``torch.export`` runs the model on a batch made of ``example``, and each operation becomes a node (found by
    operation, so reused, functional and in-place ReLUs all count). Then the graph is replayed: its output must be the
    model's, at several batch sizes and with random weights too. Neither the model nor ``example`` is changed.

    Args:
        model: A module in evaluation mode that maps one batch to one tensor.
        example: One or more examples, with the batch as the first axis.

    Raises:
        UnsupportedOperation: The model's operations, mode or output are not supported; the message and ``.report`` list
            everything that is not.
        ReplayMismatch: The graph does not compute what the model computes.
        TypeError, ValueError: ``model`` or ``example`` cannot be used, with the reason.

    >>> model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 2, bias=False))
    >>> trace(model, torch.randn(1, 3)).n_paths
    12
    """
    return _traced(model, example, "example")


@without_autocast()
def _traced(model: nn.Module, example: Any, name: str) -> PathGraph:
    graph, unsupported = _read(model, example, name)
    if unsupported:
        raise UnsupportedOperation(report_on(graph, unsupported))
    check_replay(graph, model, example)
    return graph


@without_autocast()
def supported(model: nn.Module, example: Float[Tensor, "batch ..."]) -> SupportReport:
    """Whether ``trace`` supports a model, and everything that it does not support; never raises.

    Args:
        model: The module to check.
        example: One or more examples, with the batch as the first axis.

    >>> print(supported(nn.Sequential(nn.Linear(2, 3), nn.Softmax(1)), torch.ones(1, 2)))
    Sequential is not supported: 1 problem.
    operation  module  line  reason
    ---------  ------  ----  ---------------------------------------------------------------------------
    softmax    1             softmax couples the units; return the logits and apply it outside the model
    """
    name = type(model).__name__
    try:
        graph, unsupported = _read(model, example, "example")
        if not unsupported:
            check_replay(graph, model, example)
    except Exception as error:  # a report says what went wrong instead of raising it
        return SupportReport(name, 0, (), error=str(error))
    return report_on(graph, unsupported)


def as_graph(network: object, x: object, name: str = "x") -> PathGraph:
    """The path graph of a network: itself, or a module traced on the first example of a batch.

    Args:
        network: A module or its path graph.
        x: The examples that the network is about to be read on.
        name: The name of the argument ``x``, for error messages.

    Raises:
        TypeError: ``network`` is neither a module nor a path graph.
        ValueError: ``trace`` does not support the module, or ``x`` is no batch for it.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> graph = as_graph(model, torch.randn(8, 3))
    >>> graph.n_paths, as_graph(graph, None) is graph
    (17, True)
    """
    if isinstance(network, PathGraph):
        return network
    if not isinstance(network, nn.Module):
        raise TypeError(f"`network` must be a torch.nn.Module or its PathGraph, got {describe(network)}.")
    return _traced(network, preconditions.check_example(name, x)[:1], name)


def checked_graph(network: object, **batches: object) -> PathGraph:
    """The path graph that `as_graph` gives for the first batch, and which all batches fit; later ones may be None.

    >>> checked_graph(nn.Linear(3, 1), x1=torch.ones(2, 3), x2=None).input_shape
    (3,)
    """
    (first_name, first), *others = batches.items()
    graph = as_graph(network, first, first_name)
    check_input(first_name, first, graph)
    for name, x in others:
        if x is not None:
            check_input(name, x, graph)
    return graph


def report_on(graph: PathGraph, unsupported: Iterable[UnsupportedPart] = ()) -> SupportReport:
    """The report on a graph and on the unsupported parts of its model."""
    ungated = [node for node in graph.nodes if isinstance(node, n.ActivationNode)]
    notes = [f"{node.operation} at {node.name!r} is not a gate: path quantities do not support it" for node in ungated]
    if (tied := graph.tied_parameter()) is not None:
        name, first, second = map(repr, tied)
        notes.append(f"{name} is a weight at both {first} and {second}: path quantities do not support that")
    unsupported = tuple(dict.fromkeys(unsupported))
    return SupportReport(type(graph.model).__name__, len(graph.nodes), graph.gate_names, unsupported, tuple(notes))


def _read(model: nn.Module, example: Any, name: str) -> tuple[PathGraph, list[UnsupportedPart]]:
    """The graph, and the unsupported parts; where there are any, the graph is only good for the report."""
    preconditions.check_model(model)
    preconditions.check_example(name, example)
    with preconditions.in_evaluation(model) as problems:
        problems = [*problems, *preconditions.output_problems(model, example, name)]
        try:
            program = _export(model, preconditions.repeated(example))
        except ValueError as error:
            raise ValueError(" Besides, ".join([str(error), *(f"{p.reason}." for p in problems)])) from error
    graph, unsupported = _translate(model, program, example.dtype)
    return graph, [*unsupported, *problems]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide what torch prints while it exports: its own warnings and pages of an unfinished graph."""
    # Torch's handlers write to the error stream as it was when torch was loaded, past any redirection.
    names = [name for name in tuple(logging.root.manager.loggerDict) if name.split(".")[0] == "torch"]
    handlers = {handler for name in names for handler in logging.getLogger(name).handlers}
    for handler in handlers:
        handler.addFilter(_is_asked_for)
    try:
        # The model has run before, so what the model itself prints has been printed already.
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for handler in handlers:
            handler.removeFilter(_is_asked_for)


def _is_asked_for(record: logging.LogRecord) -> bool:
    """Whether the user asked torch for this message (TORCH_LOGS); errors are reported in our own words."""
    return record.levelno < logging.WARNING


def _export(model: nn.Module, batch: Tensor) -> Program:
    try:
        with _quiet():
            program = torch.export.export(model, (batch,), strict=False)
            if all(_has_rule(node) for node in program.graph.nodes):
                return program
            # In-place operations become functional ones, rare views common ones; on a small model this takes most of
            # the time. With gradients torch would decompose some activations.
            with torch.inference_mode():
                return program.run_decompositions({})
    except Exception as error:
        raise ValueError(
            "torch.export does not support `model`: an `if` or a loop that depends on the values of the input, a batch "
            f"size that is written into the model, or Python code outside torch? It said: {first_line(error)}"
        ) from error


def _has_rule(fx_node: torch.fx.Node) -> bool:
    return fx_node.op != "call_function" or fx_node.target is operator.getitem or fx_node.target in table.OPERATIONS


def _translate(model: nn.Module, program: Program, dtype: torch.dtype) -> tuple[PathGraph, list[UnsupportedPart]]:
    build = Builder(named_tensors(model), preconditions.EXPORT_BATCH, dtype)
    values: FxValues = {}
    unsupported: list[UnsupportedPart] = []
    signature, names = program.graph_signature, own_names(model)
    specs = {spec.arg.name: spec for spec in signature.input_specs}
    for fx_node in program.graph.nodes:
        spec = specs.get(fx_node.name)
        if fx_node.op == "output":
            # The export may list, before what the model returns, inputs and buffers that the model changes.
            outputs = zip(fx_node.args[0], signature.output_specs, strict=True)
            returned = [values.get(arg) for arg, spec in outputs if spec.kind == OutputKind.USER_OUTPUT]
        elif spec is None:
            values[fx_node] = _value(build, fx_node, values, unsupported)
        elif spec.kind == InputKind.USER_INPUT:
            values[fx_node] = build.append(n.InputNode, tuple(fx_node.meta["val"].shape[1:]), label="input")
        elif spec.kind == InputKind.CONSTANT_TENSOR:  # written in the model's code
            values[fx_node] = Literal(program.constants[str(spec.target)])
        else:
            values[fx_node] = Leaf(names[str(spec.target)], spec.kind == InputKind.PARAMETER)
    result = next((value for value in returned if isinstance(value, Signal)), None)
    if result is None:
        raise ValueError("`model` returns something that does not depend on its input.")
    return PathGraph(n.needed_nodes(build.nodes, result.name), result.name, model), unsupported


def _value(build: Builder, fx_node: torch.fx.Node, values: FxValues, unsupported: list[UnsupportedPart]) -> Any:
    args: Any = torch.fx.map_arg(fx_node.args, lambda arg: values[arg])
    kwargs: Any = torch.fx.map_arg(fx_node.kwargs, lambda arg: values[arg])
    if fx_node.target is operator.getitem and not isinstance(args[0], Operand):
        return args[0][args[1]]
    if not any(isinstance(values[source], Signal) for source in fx_node.all_input_nodes):
        if fx_node.target in (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default):
            return ComputedOperand(number_of, tuple(args))  # numbers stay tensors, like all other operands
        return ComputedOperand(cast(Any, fx_node.target), tuple(args), kwargs)
    build.place, build.place_is_layer = _module_of(fx_node)
    try:
        if fx_node.target not in table.OPERATIONS:
            raise _without_rule(fx_node)
        return table.OPERATIONS[fx_node.target](build, *args, **kwargs)
    except Exception as error:
        # An unexpected error of a rule is reported like any other reason, with the module and the line.
        reason = str(error) if isinstance(error, Refused) else f"this use is not supported ({first_line(error)})"
        place = build.place, _source_line(fx_node)
        unsupported.append(UnsupportedPart(_operation_name(fx_node), reason, *place, isinstance(error, NoPaths)))
        return _stand_in(build, fx_node)


def _without_rule(fx_node: torch.fx.Node) -> Refused:
    name = _operation_name(fx_node)
    if name in table.SOFTMAXES and _is_read_by_layers(fx_node):
        return NoPaths(table.INNER_SOFTMAX)
    reason = table.REASONS.get(name, "this operation is not supported")
    return NoPaths(reason) if name in table.WITHOUT_PATHS else Refused(reason)


def _is_read_by_layers(fx_node: torch.fx.Node) -> bool:
    """Whether a value is combined with others on its way to the output, by weights or by a product."""
    users = [user for user in fx_node.users if user.op != "output"]
    return any(len(user.all_input_nodes) > 1 or _is_read_by_layers(user) for user in users)


def _stand_in(build: Builder, fx_node: torch.fx.Node) -> Any:
    """A signal in place of an unsupported one, so that the rest of the model is still checked."""

    def signal(fake: Any) -> Any:
        shape = list(fake.shape) if isinstance(fake, Tensor) else []
        if preconditions.EXPORT_BATCH in shape:
            shape.remove(preconditions.EXPORT_BATCH)  # most often the first axis, but a model may move it
        return build.append(n.ConstantNode, tuple(shape), label="unsupported", value=Literal(0.0))

    fake = fx_node.meta.get("val")
    return tuple(signal(f) for f in fake) if isinstance(fake, list | tuple) else signal(fake)


def _operation_name(fx_node: torch.fx.Node) -> str:
    target: Any = fx_node.target
    return str(getattr(target, "_opname", getattr(target, "__name__", target)))


def _module_of(fx_node: torch.fx.Node) -> tuple[str, bool]:
    """Path of the innermost module that runs an operation, and whether it is one of torch's own."""
    path, kind = [("", ""), *fx_node.meta.get("nn_module_stack", {}).values()][-1]
    kind = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
    is_container = kind.startswith("torch.nn.modules.container.")
    return path, kind.startswith("torch.nn.modules.") and not is_container


def _source_line(fx_node: torch.fx.Node) -> str:
    frames = re.findall(r'File "([^"]+)", line (\d+)', fx_node.meta.get("stack_trace") or "")
    own = [(path, line) for path, line in frames if not path.startswith(os.path.dirname(torch.__file__))]
    return f"{os.path.basename(own[-1][0])}:{own[-1][1]}" if own else ""
