"""What the value network sees: the image, all ones, or one fixed random image."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

ValueInput = Callable[[Tensor], Tensor]
"""From a batch to what the value network gets in its place."""


def image(x: Float[Tensor, "batch *shape"]) -> Float[Tensor, "batch *shape"]:
    """The batch itself."""
    return x


def ones(x: Float[Tensor, "batch *shape"]) -> Float[Tensor, "batch *shape"]:
    """All ones: the batch acts through the gates alone."""
    return torch.ones_like(x)


class RandomImage(nn.Module):
    """One fixed image of standard normal pixels for every example.

    It is drawn from ``seed`` when the first batch shows its shape, or at once where ``shape`` is given, and is a
    buffer from then on: it moves with the module, and a state dict holds it and brings it back. A state dict of before
    the first batch has no image, and leaves the one that there is.

    >>> image = RandomImage(seed=0)
    >>> fixed = image(torch.zeros(3, 1, 8, 8))
    >>> tuple(fixed.shape), bool((fixed[0] == fixed[2]).all())
    ((3, 1, 8, 8), True)
    """

    image: Tensor | None

    def __init__(self, seed: int = 0, shape: tuple[int, ...] | None = None) -> None:
        super().__init__()
        self.seed = seed
        self.register_buffer("image", None)
        if shape is not None:
            self._draw(torch.empty(1, *shape))

    def forward(self, x: Float[Tensor, "batch *shape"]) -> Float[Tensor, "batch *shape"]:
        """The image, once for each example."""
        if self.image is None:
            self._draw(x)
        assert self.image is not None
        if self.image.shape != x.shape[1:]:
            raise ValueError(
                f"the fixed random image of the value network has the shape {tuple(self.image.shape)}, but the "
                f"examples have {tuple(x.shape[1:])}."
            )
        # A copy, since a network may write into its input.
        return self.image.to(x.dtype).expand_as(x).clone()

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _draw(self, x: Tensor) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        self.image = torch.randn(x.shape[1:], generator=generator).to(x)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Make room for the image of a network that has seen a batch, when this one has not; and the other way."""
        stored = state_dict.get(f"{prefix}image")
        if stored is None:
            return  # there is nothing else to load, and nothing is missing
        if isinstance(stored, Tensor) and self.image is None:
            self.image = torch.empty_like(stored)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        """The seed."""
        return f"seed={self.seed}"


def drawn_late(module: nn.Module) -> frozenset[str]:
    """Names that a state dict of the module may have or not have: images that the first batch brings."""
    return frozenset(
        f"{path}.image" if path else "image"
        for path, part in module.named_modules(remove_duplicate=False)
        if isinstance(part, RandomImage)
    )


def as_value_input(value_input: str | ValueInput) -> ValueInput:
    """A function for the name of a value input; a callable stays what it is.

    Raises: ValueError for an unknown name.
    """
    if callable(value_input):
        return value_input
    named: dict[str, Callable[[], ValueInput]] = {"image": lambda: image, "ones": lambda: ones, "random": RandomImage}
    if value_input not in named:
        raise ValueError(
            f'`value_input` must be "image", "ones", "random" or a function of the batch, got {value_input!r}.'
        )
    return named[value_input]()
