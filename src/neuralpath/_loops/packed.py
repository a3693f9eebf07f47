"""Boolean gates packed into 64-bit words."""

import os

import numba
import numpy as np
import torch
from jaxtyping import Bool
from numpy.typing import NDArray
from torch import Tensor

WORD = 64

Words = NDArray[np.uint64]


def use_bits(*tensors: Tensor | None) -> bool:
    """Whether population counts on the processor are to be used: hard gates, in main memory, with numba on.

    Numba is off where ``NUMBA_DISABLE_JIT`` or ``NEURALPATH_NUMBA=0`` says so; matrix products then do the same.
    """
    if getattr(numba.config, "DISABLE_JIT", 0) or os.environ.get("NEURALPATH_NUMBA") == "0":
        return False
    return all(t is not None and t.dtype == torch.bool and t.device.type == "cpu" for t in tensors)


def n_words(n_units: int) -> int:
    """Words that hold so many gates."""
    return -(-n_units // WORD)


def pack(gates: Bool[Tensor, "*rows unit"]) -> Words:
    """Pack the last axis into words; gates beyond the last are closed, so that they never count.

    >>> pack(torch.tensor([[True, False, True]])).tolist()
    [[5]]
    """
    bytes_ = np.packbits(gates.numpy(), axis=-1, bitorder="little")
    missing = n_words(gates.shape[-1]) * 8 - bytes_.shape[-1]
    if missing:
        bytes_ = np.concatenate([bytes_, np.zeros((*bytes_.shape[:-1], missing), np.uint8)], axis=-1)
    return np.ascontiguousarray(bytes_).view("<u8").astype(np.uint64, copy=False)


def unpack(words: Words, n_units: int) -> Bool[Tensor, "*rows unit"]:
    """The inverse of ``pack``."""
    bits = np.unpackbits(words.astype("<u8", copy=False).view(np.uint8), axis=-1, bitorder="little", count=n_units)
    return torch.from_numpy(bits.astype(bool))
