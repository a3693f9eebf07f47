"""Arguments of the tangent kernel, checked: the model, the batches, the outputs and the parameters."""

from collections.abc import Callable, Collection
from difflib import get_close_matches

import torch
from torch import Tensor, nn

from neuralpath._checks import check_finite, describe
from neuralpath.graph import PathGraph, own_names

Parameters = Collection[str] | Callable[[str], bool]
"""Which parameters: a collection of their names, or a function that says yes or no to a name."""


def check_model(model: object) -> None:
    """Refuse what is no module, and modules that depend on the batch or on chance, by name."""
    if not isinstance(model, nn.Module):
        hint = "; give the model that you traced" if isinstance(model, PathGraph) else ""
        raise TypeError(f"`model` must be a torch.nn.Module, got {describe(model)}{hint}.")
    norms = [
        name for name, module in model.named_modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and (module.training or module.running_mean is None)
    ]  # fmt: skip
    if norms:
        raise ValueError(
            f"`model` mixes the examples of a batch: batch norm at {_listed(norms)} uses the batch's own statistics, "
            "so no example has a gradient of its own; call `model.eval()`, with `track_running_stats` on."
        )
    random = [
        name for name, module in model.named_modules()
        if module.training
        and (isinstance(module, nn.RReLU) or (isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0))
    ]  # fmt: skip
    if random:
        raise ValueError(f"`model` is in training mode, where {_listed(random)} is random: call `model.eval()` first.")


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} others" if len(names) > 3 else "")


def check_examples(name: str, x: object) -> None:
    """Refuse what is no batch of finite examples."""
    expected = "a tensor with the batch as its first axis"
    if not isinstance(x, Tensor):
        raise TypeError(f"`{name}` must be {expected}, got {describe(x)}.")
    if x.ndim == 0:
        raise ValueError(f"`{name}` must be {expected}, got {describe(x)}.")
    if len(x) == 0:
        raise ValueError(f"`{name}` has no examples: expected a batch of at least one.")
    # A sum is cheap, and finite only if its terms are; only one that is not needs the closer look.
    if not x.is_floating_point() or not bool(torch.isfinite(x.sum())):
        check_finite(name, x)


def check_batches(x1: object, x2: object | None) -> None:
    """Refuse batches that are no batches, or not alike."""
    check_examples("x1", x1)
    if x2 is None:
        return
    check_examples("x2", x2)
    assert isinstance(x1, Tensor)
    assert isinstance(x2, Tensor)
    if x1.shape[1:] != x2.shape[1:] or x1.dtype != x2.dtype or x1.device != x2.device:
        raise ValueError(
            f"`x1` and `x2` must have examples of one shape, dtype and device, got {describe(x1)} on {x1.device} and "
            f"{describe(x2)} on {x2.device}."
        )


def check_outputs(outputs: object) -> int | None:
    """The index of the output, or none for all of them. Raises: ValueError or TypeError if it is neither."""
    if isinstance(outputs, bool) or not isinstance(outputs, str | int):
        raise TypeError(f"`outputs` must be 'mean', 'full' or the index of an output, got {describe(outputs)}.")
    if isinstance(outputs, int):
        return outputs
    if outputs not in ("mean", "full"):
        raise ValueError(f"`outputs` must be 'mean', 'full' or the index of an output, got {outputs!r}.")
    return None


def selected(model: nn.Module, params: Parameters | None) -> tuple[str, ...]:
    """Names of the parameters that the kernel sums over.

    Raises: ValueError for names that the model does not have, parameters that need no gradient, or none at all.
    """
    names = own_names(model)
    own = dict(model.named_parameters())
    trained = [name for name, parameter in own.items() if parameter.requires_grad]
    if isinstance(params, str):
        raise TypeError(f"`params` must be a collection of names or a function, got the string {params!r}: use a list.")
    if params is None:
        chosen = trained
    elif callable(params):
        chosen = [name for name in trained if params(name)]
    else:
        given = list(params)
        for name in given:
            if names.get(name) not in own:
                near = get_close_matches(str(name), [n for n in names if names[n] in own], n=1, cutoff=0.0)
                raise ValueError(
                    f"`params` has {name!r}, which is no parameter of `model`"
                    + (f"; the nearest is {near[0]!r}." if near else ", which has none.")
                )
        wanted = {names[name] for name in given}
        if frozen := sorted(wanted - set(trained)):
            raise ValueError(
                f"`params` has {_listed(frozen)}, which needs no gradient: call `requires_grad_()` on it first."
            )
        chosen = [name for name in trained if name in wanted]
    if not chosen:
        reason = "has no parameters that need gradients" if params is None else "has none of the parameters in `params`"
        raise ValueError(f"`model` {reason}, so it has no tangent kernel.")
    if unready := [name for name in chosen if isinstance(own[name], nn.parameter.UninitializedParameter)]:
        raise ValueError(f"`model` has no values yet for {_listed(unready)}: run it once on a batch first.")
    if complex_valued := [name for name in chosen if own[name].is_complex()]:
        raise ValueError(f"`model` has complex numbers in {_listed(complex_valued)}: leave it out with `params=`.")
    return tuple(chosen)
