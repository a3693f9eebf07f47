"""The input of the value network: the image, all ones, or one fixed random image."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

ValueInput = Callable[[Tensor], Tensor]
"""From a batch to the input of the value network."""


def image(x: Float[Tensor, "batch *shape"]) -> Float[Tensor, "batch *shape"]:
    """The batch itself."""
    return x


def ones(x: Float[Tensor, "batch *shape"]) -> Float[Tensor, "batch *shape"]:
    """All ones: the batch acts only through the gates."""
    return torch.ones_like(x)


class RandomImage(nn.Module):
    """One fixed image of standard normal pixels for every example.

    The image is drawn when the first batch determines its shape, or in the constructor if ``shape`` is given. It is a
    buffer: it moves with the module and is part of the state dict. Loading a state dict from before the first batch,
    which has no image, keeps the current image.

    Args:
        seed: Seed of the image.
        shape: Shape of the image; None takes that of the first batch.

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
        """The image, repeated for each example of ``x``."""
        if self.image is None:
            self._draw(x)
        assert self.image is not None
        if self.image.shape != x.shape[1:]:
            shapes = f"{tuple(self.image.shape)}, but the examples have {tuple(x.shape[1:])}"
            raise ValueError(f"the fixed random image of the value network has the shape {shapes}.")
        # A copy, since a network may write into its input.
        return self.image.to(x.dtype).expand_as(x).clone()

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _draw(self, x: Tensor) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        self.image = torch.randn(x.shape[1:], generator=generator).to(x)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Load an image before this module has one, and keep the image if the state dict has none."""
        stored = state_dict.get(f"{prefix}image")
        if stored is None:
            return
        if isinstance(stored, Tensor) and self.image is None:
            self.image = torch.empty_like(stored)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        """The seed."""
        return f"seed={self.seed}"


def drawn_late(module: nn.Module) -> frozenset[str]:
    """Names that a state dict of the module may lack: images that are drawn with the first batch."""
    parts = module.named_modules(remove_duplicate=False)
    return frozenset(f"{path}.image".lstrip(".") for path, part in parts if isinstance(part, RandomImage))


def as_value_input(value_input: str | ValueInput) -> ValueInput:
    """The function for the name of a value input; a callable is returned unchanged."""
    if callable(value_input):
        return value_input
    named: dict[str, Callable[[], ValueInput]] = {"image": lambda: image, "ones": lambda: ones, "random": RandomImage}
    if value_input not in named:
        raise ValueError(f"`value_input` must be one of {', '.join(named)} or a function, got {value_input!r}.")
    return named[value_input]()
