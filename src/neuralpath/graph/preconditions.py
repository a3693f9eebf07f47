"""What ``trace`` requires of a model as a whole: it runs, in evaluation mode, and returns one tensor."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from neuralpath._checks import check_finite, describe
from neuralpath.graph.replay import run
from neuralpath.graph.reports import UnsupportedPart, first_line

EXPORT_BATCH = 3  # examples in the batch that is exported: torch bakes in 0 and 1, and 2 is common among other sizes
_STATEFUL = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd, nn.modules.instancenorm._InstanceNorm)


def check_model(model: Any) -> None:
    """Refuse what is not a module, has no weights yet, or hides its operations."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be a torch.nn.Module, got {describe(model)}.")
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):  # to run a lazy module would be to make them
            raise ValueError(f"`model` has no values yet for {name!r}: run it once on a batch first.")
    for name, part in model.named_modules():
        if isinstance(part, torch.jit.ScriptModule | nn.DataParallel):
            where = "`model`" if not name else f"the part {name!r} of `model`"
            kind = "was compiled by torch.jit" if isinstance(part, torch.jit.ScriptModule) else "is a DataParallel"
            raise TypeError(f"{where} {kind}, which hides its operations: give the module that it was made from.")


def check_example(name: str, example: Any) -> Tensor:
    """The example; what is not a batch of finite real numbers is refused."""
    expected = "a floating-point tensor with the batch as its first axis, such as x[:1]"
    if not isinstance(example, Tensor) or not example.is_floating_point():
        hint = "; convert it with `.float()`" if isinstance(example, Tensor) else ""
        raise TypeError(f"`{name}` must be {expected}, got {describe(example)}{hint}.")
    if example.ndim < 2:
        raise ValueError(f"`{name}` must be {expected}, got {describe(example)}; for one example use x[None].")
    if example.shape[0] == 0:
        raise ValueError(f"`{name}` has no examples (shape {tuple(example.shape)}): give a batch of at least one.")
    check_finite(name, example)
    return example


def repeated(example: Float[Tensor, "batch ..."]) -> Float[Tensor, "_repeats ..."]:
    """The batch that is exported, made of the first example."""
    return example.detach()[:1].expand(EXPORT_BATCH, *example.shape[1:]).contiguous()


@contextmanager
def in_evaluation(model: nn.Module) -> Iterator[list[UnsupportedPart]]:
    """Put a model in evaluation mode, unless no layer depends on it, and give what training mode makes unsupported."""
    stateful = [name for name, module in model.named_modules() if module.training and isinstance(module, _STATEFUL)]
    if not stateful:
        yield []
        return
    names, others = ", ".join(map(repr, stateful[:3])), " and others" * (len(stateful) > 3)
    reason = (
        f"`model` is in training mode, where {names}{others} (batch norm or dropout) depend on the batch or on "
        "randomness: call `model.eval()` first"
    )
    training = [module for module in model.modules() if module.training]
    try:
        for module in training:
            module.training = False
        yield [UnsupportedPart("training mode", reason)]
    finally:
        for module in training:
            module.training = True


def output_problems(model: nn.Module, example: Float[Tensor, "batch ..."], name: str) -> list[UnsupportedPart]:
    """What is wrong with the model's output; a model that does not run on the example is refused."""
    problem = _problem_of(model, example, name)
    # A model that squeezes drops the batch axis of a single example, or fails for it.
    if not problem or (len(example) == 1 and not _problem_of(model, repeated(example), name)):
        return []
    if isinstance(problem, ValueError):
        raise problem
    return [UnsupportedPart("output", problem)]


def _problem_of(model: nn.Module, example: Tensor, name: str) -> str | ValueError:
    try:
        y = run(model, example)
    except Exception as error:
        problem = ValueError(
            f"`model` could not run on `{name}`, {describe(example)}; give examples of the shape and dtype that it "
            f"takes. It said: {first_line(error)}"
        )
        problem.__cause__ = error
        return problem
    if not isinstance(y, Tensor):
        return (
            f"`model` must return one tensor, but it returned {describe(y)}; wrap it in a module that returns the "
            "tensor of interest, for example its logits"
        )
    if y.ndim == 0 or y.shape[0] != example.shape[0]:
        return f"`model` must return one row for each example, but for {describe(example)} it returned {describe(y)}"
    if y.ndim > 2:
        return f"`model` must return a shape (batch,) or (batch, outputs), but it returned {describe(y)}; flatten it"
    return ""
