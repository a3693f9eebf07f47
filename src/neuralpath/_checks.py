"""Checks of arguments of public functions, with messages that say what to do."""

import math
import operator
from numbers import Real

import torch
from jaxtyping import Shaped
from torch import Tensor


def describe(x: object) -> str:
    """A short description of a value for a message: type, shape and dtype, never its contents."""
    if isinstance(x, Tensor):
        return f"a {str(x.dtype).removeprefix('torch.')} tensor of shape {tuple(x.shape)}"
    return f"a {type(x).__name__}"


def check_batch(name: str, x: object, shape: tuple[int, ...], *, dtype: torch.dtype | None = None) -> None:
    """Refuse what is not a batch of finite floating-point examples of this shape, and of this dtype unless None."""
    expected = f"a floating-point tensor of shape (batch, {', '.join(map(str, shape))})"
    if not isinstance(x, Tensor) or not x.is_floating_point():
        hint = f"; convert it, for example with `{name}.float()`" if isinstance(x, Tensor) else ""
        raise TypeError(f"`{name}` must be {expected}, got {describe(x)}{hint}.")
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
    if is_finite(x):
        return
    values = torch.func.debug_unwrap(x)
    if values.shape != x.shape:  # a batch of batches, inside `vmap`
        raise ValueError(f"`{name}` has NaN or infinity; remove or replace them.")
    finite = torch.isfinite(values).reshape(len(values), -1).all(1)
    index, count = int(torch.nonzero(~finite)[0, 0]), int((~finite).sum())
    raise ValueError(
        f"`{name}` has NaN or infinity in {count} of {x.shape[0]} examples, the first at index {index}; "
        "remove or replace them."
    )


def is_finite(x: Shaped[Tensor, "..."]) -> bool:
    """Whether a tensor has neither NaN nor infinity, in one pass without a copy."""
    if not x.is_floating_point() or not x.numel():
        return bool(torch.isfinite(x).all())
    # The smallest and the largest value are NaN where any value is. Inside `torch.func` transforms no value can be
    # read, so the wrapped tensor is checked, which has the values of all examples.
    return all(math.isfinite(end) for end in torch.func.debug_unwrap(x).detach().aminmax())


def check_number(name: str, value: object, hint: str = "", *, or_zero: bool = False) -> float:
    """A positive finite number, or 0 where that is allowed; ``hint`` says what else may be passed."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"`{name}` must be a number{hint}, got {describe(value)}.")
    number = float(value)
    if not math.isfinite(number) or number < 0 or (number == 0 and not or_zero):
        raise ValueError(f"`{name}` must be {'0 or ' if or_zero else ''}positive and finite{hint}, got {value}.")
    return number


def as_integer(value: object) -> int | None:
    """A plain integer, also from integers of numpy and torch; None for anything else."""
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def check_integer(name: str, value: object, least: int = 1) -> int:
    """`value` as a plain integer of at least `least`; integers of numpy and torch are accepted."""
    number = as_integer(value)
    if number is None or number < least:
        raise ValueError(f"`{name}` must be an integer of at least {least}, got {value!r}.")
    return number
