"""Checks of arguments at the public boundary, with messages that say what to do."""

import torch
from jaxtyping import Shaped
from torch import Tensor


def describe(x: object) -> str:
    """A value in a few words for a message: type, shape and dtype, never its contents."""
    if isinstance(x, Tensor):
        return f"a {str(x.dtype).removeprefix('torch.')} tensor of shape {tuple(x.shape)}"
    return f"a {type(x).__name__}"


def check_batch(name: str, x: object, shape: tuple[int, ...], *, dtype: torch.dtype | None = None) -> None:
    """Refuse what is not a batch of finite floating-point examples of the given shape, and dtype if one is given."""
    expected = f"a floating-point tensor of shape (batch, {', '.join(map(str, shape))})"
    if not isinstance(x, Tensor):
        raise TypeError(f"`{name}` must be {expected}, got {describe(x)}.")
    if not x.is_floating_point():
        raise TypeError(
            f"`{name}` must be {expected}, got {describe(x)}; convert it, for example with `{name}.float()`."
        )
    if dtype is not None and x.dtype != dtype:
        raise TypeError(
            f"`{name}` must have the dtype of the network's parameters, {dtype}, got {describe(x)}; convert it with "
            f"`{name}.to({dtype})`, or the model with `model.to({x.dtype})`."
        )
    if tuple(x.shape[1:]) != shape or x.ndim == 0:
        hint = " (a single example needs a batch axis: `x[None]`)" if tuple(x.shape) == shape else ""
        raise ValueError(f"`{name}` must be {expected}, got {describe(x)}{hint}.")
    if x.shape[0] == 0:
        raise ValueError(f"`{name}` has no examples: expected a batch of at least one.")
    check_finite(name, x)


def check_finite(name: str, x: Shaped[Tensor, "batch ..."]) -> None:
    """Refuse NaN and infinity, naming the first example that has one."""
    if bool(torch.isfinite(x.sum())):
        return  # one pass without a copy; large finite numbers can have no finite sum, and need the closer look
    finite = torch.isfinite(x).flatten(1).all(1) if x.ndim > 1 else torch.isfinite(x)
    if not bool(finite.all()):
        index = int(torch.nonzero(~finite)[0, 0])
        count = int((~finite).sum())
        raise ValueError(
            f"`{name}` has NaN or infinity in {count} of {x.shape[0]} examples, the first at index {index}; "
            "remove or mend them."
        )
