"""Gates and masks of images in the layout of the compiled loops."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from neuralpath.bits.blocks import LANES
from neuralpath.bits.packed import pack

SHORT_WORD = 32
"""Bits of a word: counts have as many bits as values, so that a register holds as many of the one as of the other."""

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


class WindowSteps(NamedTuple):
    """The numbers of a convolution as the compiled loops want them, all in one array."""

    height: int
    size: int
    stride: int
    dilation: int
    before: int  # padding
    width: int
    size_x: int
    stride_x: int
    dilation_x: int
    before_x: int
    rows: int  # of the output
    columns: int
    side: int  # of a block: all x, x' of two rows, with the margin
    block: int  # entries from one block to the next: `block_step`

    @property
    def n_blocks(self) -> int:
        """Blocks that are needed at a time: of the rows of a window, their sum, and one to be written."""
        return (self.size - 1) * self.dilation + 3


def block_step(side: int, itemsize: int) -> int:
    """Entries from the beginning of one block to that of the next, for values of so many bytes."""
    step = -(-side * side // LANES) * LANES
    while step * itemsize % PAGE < PAGE // 16:
        step += LANES
    return step
