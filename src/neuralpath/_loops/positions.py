"""Gates and masks of images in the layout of the compiled loops."""

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from neuralpath._loops.blocks import LANES
from neuralpath._loops.image_loops import SHORT_WORD
from neuralpath._loops.packed import pack

PAGE = 4096
"""Bytes: a processor takes places that are nearly a multiple of it apart for the same, and lets one wait."""


def n_short_words(n_channels: int) -> int:
    """Words that hold the gates of one position: one, two, or a multiple of four."""
    words = -(-n_channels // SHORT_WORD)
    return words if words <= 2 else -(-words // 4) * 4


def pack_positions(gates: Bool[Tensor, "batch channel position"], height: int) -> NDArray[np.uint32]:
    """Gates with the channels packed, in the layout (batch, y, word, x)."""
    long = pack(gates.transpose(1, 2).contiguous())
    batch, n_positions = long.shape[:2]
    found = long.astype("<u8", copy=False).view("<u4")
    n_words = n_short_words(gates.shape[1])
    words = np.zeros((batch, height, n_words, n_positions // height), np.uint32)
    filled = min(n_words, found.shape[2])
    words[:, :, :filled] = found[:, :, :filled].reshape(batch, height, -1, filled).swapaxes(2, 3)
    return words


def arrange_positions(masks: Float[Tensor, "batch channel position"], height: int) -> np.ndarray:
    """Masks that are no bits, in the layout (batch, y, channel, x)."""
    batch, channels, n_positions = masks.shape
    return masks.reshape(batch, channels, height, n_positions // height).transpose(1, 2).contiguous().numpy()


def block_step(side: int, itemsize: int) -> int:
    """Entries from the beginning of one block to that of the next, for values of so many bytes."""
    step = -(-side * side // LANES) * LANES
    while step * itemsize % PAGE < PAGE // 16:
        step += LANES
    return step
