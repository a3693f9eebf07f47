"""From a plain ``torch.nn.Module`` to a path graph, through ``torch.export``."""

import contextlib
import io
import logging
import operator
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.export.graph_signature import InputKind, InputSpec, OutputKind

from neuralpath._checks import describe
from neuralpath._resources import without_autocast
from neuralpath.graph import nodes as n
from neuralpath.graph.builder import Builder, NoPaths, Refused, Signal
from neuralpath.graph.nodes import ComputedOperand, Leaf, Literal, Operand, named_tensors, number_of, own_names
from neuralpath.graph.operations import INNER_SOFTMAX, OPERATIONS, REASONS, SOFTMAXES, WITHOUT_PATHS
from neuralpath.graph.path_graph import PathGraph
from neuralpath.graph.preconditions import (
    EXPORT_BATCH,
    check_example,
    check_model,
    in_evaluation,
    output_problems,
    repeated,
)
from neuralpath.graph.replay import check_replay
from neuralpath.graph.reports import SupportReport, UnsupportedOperation, UnsupportedPart, first_line


@without_autocast()
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
    graph, unsupported = _read(model, example)
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
        graph, unsupported = _read(model, example)
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
        raise TypeError(
            f"`network` must be a torch.nn.Module, or its PathGraph as `trace(model, example)` returns it, got "
            f"{describe(network)}."
        )
    check_example(name, x)
    assert isinstance(x, Tensor)
    return trace(network, x[:1])


def report_on(graph: PathGraph, unsupported: Iterable[UnsupportedPart] = ()) -> SupportReport:
    """The report on a graph and on the unsupported parts of its model."""
    notes = [
        f"{node.operation} at {node.name!r} is not a gate: path quantities do not support it"
        for node in graph.nodes
        if isinstance(node, n.ActivationNode)
    ]
    if (tied := graph.tied_parameter()) is not None:
        notes.append(
            f"{tied[0]!r} is a weight at both {tied[1]!r} and {tied[2]!r}: path quantities do not support that"
        )
    unsupported = tuple(dict.fromkeys(unsupported))
    return SupportReport(type(graph.model).__name__, len(graph.nodes), graph.gate_names, unsupported, tuple(notes))


def _read(model: nn.Module, example: Any) -> tuple[PathGraph, list[UnsupportedPart]]:
    """The graph, and the unsupported parts; where there are any, the graph is only good for the report."""
    check_model(model)
    check_example("example", example)
    with in_evaluation(model) as problems:
        problems = [*problems, *output_problems(model, example)]
        try:
            program = _export(model, repeated(example))
        except ValueError as error:
            raise ValueError(" Besides, ".join([str(error), *(f"{p.reason}." for p in problems)])) from error
    graph, unsupported = _translate(model, program, example.dtype)
    return graph, [*unsupported, *problems]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide what torch prints while it exports: its own warnings and pages of an unfinished graph."""
    # Torch's handlers write to the error stream as it was when torch was loaded, past any redirection.
    loggers = [
        logging.getLogger(name) for name in tuple(logging.root.manager.loggerDict) if name.split(".")[0] == "torch"
    ]
    handlers = {handler for logger in loggers for handler in logger.handlers}
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


def _export(model: nn.Module, batch: Tensor) -> torch.export.ExportedProgram:
    try:
        with _quiet():
            program = torch.export.export(model, (batch,), strict=False)
            # In-place operations become functional ones. With gradients torch would decompose some activations.
            with torch.inference_mode():
                return program.run_decompositions({})
    except Exception as error:
        raise ValueError(
            f"torch.export does not support `model` ({type(model).__name__}). Usual causes: an `if` or a loop that "
            "depends on the values of the input, a batch size that is written into the model (it is run on "
            f"{EXPORT_BATCH} examples), or Python code outside torch. It said: {first_line(error)}"
        ) from error


def _translate(
    model: nn.Module, program: torch.export.ExportedProgram, dtype: torch.dtype
) -> tuple[PathGraph, list[UnsupportedPart]]:
    build = Builder(named_tensors(model), EXPORT_BATCH, dtype)
    values: dict[torch.fx.Node, Any] = {}
    unsupported: list[UnsupportedPart] = []
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    names = own_names(model)
    for fx_node in program.graph.nodes:
        if fx_node.op == "placeholder":
            values[fx_node] = _placeholder(build, fx_node, specs[fx_node.name], program.constants, names)
        elif fx_node.op == "output":
            returned = [values[arg] for arg in _returned(program, fx_node) if isinstance(arg, torch.fx.Node)]
        else:
            values[fx_node] = _value(build, fx_node, values, unsupported)
    result = next((value for value in returned if isinstance(value, Signal)), None)
    if result is None:
        raise ValueError("`model` returns something that does not depend on its input.")
    return PathGraph(n.needed_nodes(build.nodes, result.name), result.name, model), unsupported


def _returned(program: torch.export.ExportedProgram, fx_node: torch.fx.Node) -> list[Any]:
    """What the model returns; the export may list, before it, inputs and buffers that the model changes."""
    outputs: Any = fx_node.args[0]
    specs = program.graph_signature.output_specs
    return [arg for arg, spec in zip(outputs, specs, strict=True) if spec.kind == OutputKind.USER_OUTPUT]


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
    build: Builder, fx_node: torch.fx.Node, values: dict[torch.fx.Node, Any], unsupported: list[UnsupportedPart]
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
            raise _without_rule(fx_node)
        result = OPERATIONS[fx_node.target](build, *args, **kwargs)
    except Exception as error:
        # An unexpected error of a rule is reported like any other reason, with the module and the line.
        reason = str(error) if isinstance(error, Refused) else f"this use is not supported ({first_line(error)})"
        unsupported.append(
            UnsupportedPart(
                _operation_name(fx_node), reason, build.place, _source_line(fx_node), isinstance(error, NoPaths)
            )
        )
        return _stand_in(build, fx_node)
    return result


def _without_rule(fx_node: torch.fx.Node) -> Refused:
    name = _operation_name(fx_node)
    if name in SOFTMAXES and _is_read_by_layers(fx_node):
        return NoPaths(INNER_SOFTMAX)
    reason = REASONS.get(name, "this operation is not supported")
    return NoPaths(reason) if name in WITHOUT_PATHS else Refused(reason)


def _is_read_by_layers(fx_node: torch.fx.Node) -> bool:
    """Whether a value is combined with others on its way to the output, by weights or by a product."""
    return any(
        len(user.all_input_nodes) > 1 or _is_read_by_layers(user) for user in fx_node.users if user.op != "output"
    )


def _call(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ComputedOperand:
    """A function of tensors that do not depend on the input; numbers stay tensors, like all other operands."""
    if function in (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default):
        return ComputedOperand(number_of, args)
    return ComputedOperand(function, args, kwargs)


def _stand_in(build: Builder, fx_node: torch.fx.Node) -> Any:
    """A signal in place of an unsupported one, so that the rest of the model is still checked."""

    def signal(fake: Any) -> Any:
        shape = list(fake.shape) if isinstance(fake, Tensor) else []
        if EXPORT_BATCH in shape:
            shape.remove(EXPORT_BATCH)  # most often the first axis; where the model has moved the batch, another
        return build.append(n.ConstantNode, tuple(shape), label="unsupported", value=Literal(0.0))

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
