"""The table of supported operations, and helpers of its entries."""

from collections.abc import Callable, Sequence
from typing import Any

from neuralpath.graph import nodes as n
from neuralpath.graph.builder import Builder, Refused, Signal

Handler = Callable[..., Any]

OPERATIONS: dict[Any, Handler] = {}  # from a torch operation to the function that turns it into nodes


def reads(*operations: Any) -> Callable[[Handler], Handler]:
    """Enter a function in the table, for one or more operations."""

    def enter(handler: Handler) -> Handler:
        for operation in operations:
            OPERATIONS[operation] = handler
        return handler

    return enter


def label_of(build: Builder, label: str) -> str:
    """A functional call is named after its operation, a module after itself."""
    return "" if build.place and build.place_is_layer else label


def for_each(value: Any, n_axes: int) -> list[int]:
    """One number for each axis, from one for all or one for each."""
    values = list(value) if isinstance(value, Sequence) else [value]
    return values * n_axes if len(values) == 1 else values


def with_defaults(arguments: tuple[Any, ...], *defaults: Any) -> tuple[Any, ...]:
    """Positional arguments of an operation, with the defaults of those that are left out at the end."""
    return (*arguments, *defaults[len(arguments) :])


def check_batched(x: Any, n_space: int, what: str) -> None:
    """Refuse values that are not ``(channels, *space)`` with ``n_space`` axes of space."""
    if not isinstance(x, Signal):
        raise Refused(f"{what} whose weight depends on the input")
    if len(x.shape) != n_space + 1:
        raise Refused(f"{what} over {n_space} axes of values of shape {x.shape}: expected (channels, *space)")


def without(x: Signal, axes: Sequence[int]) -> n.Shape:
    """The shape of an example with some axes left out."""
    return tuple(size for axis, size in enumerate(x.shape) if axis not in axes)


BOTH_DEPEND = "multiplies two values that both depend on the input"
BATCH_STATISTICS = "batch norm with the batch's own statistics; keep running ones and call `model.eval()`"
INNER_SOFTMAX = "softmax couples the units, and later layers read them"
_SOFTMAX = "softmax couples the units; return the logits and apply it outside the model"
_OWN_STATISTICS = "it divides by statistics of the example itself, so it is not linear for fixed gates"
_DROPOUT = "it draws random numbers; if this is dropout, call `model.eval()` first"
_TRANSPOSED = "transposed convolutions are not supported; use upsampling and a convolution"

SOFTMAXES = frozenset({"softmax", "_softmax", "log_softmax", "_log_softmax"})
"""At the end of a model a softmax can be cut off; before other layers it cannot, so it gets another reason there."""

REASONS: dict[str, str] = {
    **dict.fromkeys(SOFTMAXES, _SOFTMAX),
    **dict.fromkeys(("layer_norm", "native_layer_norm", "rms_norm"), _OWN_STATISTICS),
    **dict.fromkeys(("group_norm", "native_group_norm", "instance_norm"), _OWN_STATISTICS),
    **dict.fromkeys(("dropout", "native_dropout", "bernoulli", "rand", "rand_like", "randn_like"), _DROPOUT),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _TRANSPOSED),
    "_native_batch_norm_legit": BATCH_STATISTICS,
    "scaled_dot_product_attention": "attention multiplies values that both depend on the input",
    "embedding": "it looks up rows by an integer input; only real-valued signals have paths",
}
"""Why well-known operations are not supported, and what to use instead, by their names in torch."""

# Operations that have no paths in any form.
WITHOUT_PATHS = {name for name, reason in REASONS.items() if reason == _OWN_STATISTICS}
WITHOUT_PATHS |= {"scaled_dot_product_attention", "embedding"}
