"""The idx format of MNIST: a magic number, the sizes of the axes, then one byte a value."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8

from neuralpath.data._errors import DamagedFile
from neuralpath.data._files import pickle_hint, require_size

_UNSIGNED_BYTE = 0x08  # the magic number's third byte gives the type of the values, its fourth the axes


def magic_number(n_axes: int) -> int:
    """Magic number of an idx file of bytes: 2049 for labels, 2051 for images."""
    return _UNSIGNED_BYTE << 8 | n_axes


def header_size(n_axes: int) -> int:
    """Bytes before the first value."""
    return 4 + 4 * n_axes


def parse_idx(where: str, contents: bytes, shape: Sequence[int]) -> UInt8[np.ndarray, "..."]:
    """Array of an uncompressed idx file that is expected to have a given shape.

    `where` is what errors call the file; `shape` has the number of examples first.

    Raises: DamagedFile for a wrong magic number, wrong sizes in the header, or a length that does not fit.
    """
    shape = tuple(shape)
    expected = magic_number(len(shape))
    magic = int.from_bytes(contents[:4], "big")
    if len(contents) < 4 or magic != expected:
        found = f"{magic}" if len(contents) >= 4 else f"only {len(contents)} bytes"
        raise DamagedFile(
            f"{where} is not an idx file of {len(shape)} axes: "
            f"expected the magic number {expected}, found {found}{pickle_hint(contents)}."
        )
    start = header_size(len(shape))
    announced = tuple(int.from_bytes(contents[at : at + 4], "big") for at in range(4, start, 4))
    if announced != shape and len(contents) >= start:
        raise DamagedFile(f"{where} announces {_times(announced)} values, expected {_times(shape)}.")
    require_size(where, contents, start + math.prod(shape))
    return np.frombuffer(contents, np.uint8, offset=start).reshape(shape)


def _times(shape: tuple[int, ...]) -> str:
    return "x".join(str(size) for size in shape)
