"""Boolean gates packed into words: 64-bit words for dense layers, 32-bit words for the positions of images.

dense layer    (batch, word)          bit b of word w is unit 64 w + b:   | 63 ... 1 0 | 127 ... 65 64 | ...
image          (batch, y, word, x)    bit b of word w is channel 32 w + b, for all x of a row one after the other,
                                      so that one vector register loads the same word of neighboring positions
"""

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from neuralpath._loops.image_loops import SHORT_WORD

WORD = 64

Words = NDArray[np.uint64]


def n_words(n_units: int) -> int:
    """Number of words for ``n_units`` gates."""
    return -(-n_units // WORD)


def pack(gates: Bool[Tensor, "*rows unit"]) -> Words:
    """Pack the last axis into words; the unused bits of the last word are 0, so that they never count.

    >>> import torch
    >>> pack(torch.tensor([[True, False, True]])).tolist()
    [[5]]
    """
    bytes_ = np.packbits(gates.numpy(), axis=-1, bitorder="little")
    missing = n_words(gates.shape[-1]) * 8 - bytes_.shape[-1]
    if missing:
        bytes_ = np.concatenate([bytes_, np.zeros((*bytes_.shape[:-1], missing), np.uint8)], axis=-1)
    return np.ascontiguousarray(bytes_).view("<u8").astype(np.uint64, copy=False)


def n_short_words(n_channels: int) -> int:
    """Number of words for the gates of one position: one, two, or a multiple of four, as `weigh_block` takes them."""
    words = -(-n_channels // SHORT_WORD)
    return words if words <= 2 else -(-words // 4) * 4


def pack_positions(gates: Bool[Tensor, "batch channel position"], height: int) -> NDArray[np.uint32]:
    """Gates with the channels packed, in the layout (batch, y, word, x)."""
    long = pack(gates.transpose(1, 2).contiguous())
    batch, n_positions = long.shape[:2]
    short = long.astype("<u8", copy=False).view("<u4")
    n_words = n_short_words(gates.shape[1])
    words = np.zeros((batch, height, n_words, n_positions // height), np.uint32)
    filled = min(n_words, short.shape[2])
    words[:, :, :filled] = short[:, :, :filled].reshape(batch, height, -1, filled).swapaxes(2, 3)
    return words


def arrange_positions(masks: Float[Tensor, "batch channel position"], height: int) -> np.ndarray:
    """Masks that are numbers, in the layout (batch, y, channel, x)."""
    batch, channels, n_positions = masks.shape
    return masks.reshape(batch, channels, height, n_positions // height).transpose(1, 2).contiguous().numpy()
