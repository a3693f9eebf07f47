"""Small grey images in a record: eight bits a pixel, as text."""

from base64 import b64decode, b64encode
from typing import Any

import numpy as np
from jaxtyping import Float

Picture = tuple[tuple[float, ...], ...]


def pack_images(images: Float[np.ndarray, "image height width"], *, signed: bool = False) -> dict[str, Any]:
    """As plain JSON values, each image on its own scale: from its least to its largest value, or with 0 in the middle.

    An image that has one value only becomes black, or with ``signed`` the middle.
    """
    count, height, width = images.shape
    low, high = (edge((1, 2), keepdims=True) for edge in (images.min, images.max))
    if signed:
        high = np.maximum(high, -low)
        low = -high
    size = np.where(high > low, high - low, 1.0)
    shares = np.where(high > low, (images - low) / size, 0.5 if signed else 0.0)
    levels = np.rint(255 * shares).astype(np.uint8)
    return {"count": count, "height": height, "width": width, "pixels": b64encode(levels.tobytes()).decode()}


def unpack_images(packed: dict[str, Any]) -> tuple[Picture, ...]:
    """The images, with values from 0 to 1."""
    shape = (packed["count"], packed["height"], packed["width"])
    levels = np.frombuffer(b64decode(packed["pixels"]), dtype=np.uint8).reshape(shape) / 255
    return tuple(tuple(tuple(row) for row in image) for image in levels.tolist())
