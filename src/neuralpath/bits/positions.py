"""Gates and masks of images in the layout of the compiled loops."""

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor

from neuralpath.bits.packed import Words, pack


def pack_positions(gates: Bool[Tensor, "batch channel position"], height: int) -> Words:
    """Gates with the channels packed, in the layout (batch, y, word, x)."""
    words = pack(gates.transpose(1, 2).contiguous())
    batch, n_positions, n_words = words.shape
    return np.ascontiguousarray(words.reshape(batch, height, n_positions // height, n_words).swapaxes(2, 3))


def arrange_positions(masks: Float[Tensor, "batch channel position"], height: int) -> np.ndarray:
    """Masks that are no bits, in the layout (batch, y, channel, x)."""
    batch, channels, n_positions = masks.shape
    return masks.reshape(batch, channels, height, n_positions // height).transpose(1, 2).contiguous().numpy()
