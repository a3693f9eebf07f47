"""SHA-256 digests of tensors, modules, texts and JSON values.

Records on the disk depend on these digests: a change of one of these functions is a change of format.
"""

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # torch takes a second to import, which texts and JSON values do not need
    from torch import Tensor, nn


def sha256(data: bytes | memoryview) -> str:
    """Hexadecimal SHA-256 of bytes."""
    return digest_of(data, "sha256")


def digest_of(data: bytes | memoryview, algorithm: str) -> str:
    """Hexadecimal digest of bytes; algorithms other than SHA-256 are for checksums that others have published."""
    return hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()


def text_digest(text: str) -> str:
    """Hexadecimal SHA-256 of a text."""
    return sha256(text.encode())


def canonical_json(value: Any) -> bytes:
    """JSON with one spelling for equal values.

    >>> canonical_json({"b": 1, "a": [2.0, None]})
    b'{"a":[2.0,null],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def json_digest(value: Any) -> str:
    """Hexadecimal SHA-256 of a JSON value, independent of the order of its keys."""
    return sha256(canonical_json(value))


def _tensor_bytes(tensor: "Tensor") -> memoryview:
    """The bytes of a tensor's values, in row-major order."""
    import torch

    values = tensor.detach().cpu().contiguous().reshape(-1)
    return values.view(torch.uint8).numpy().data  # as bytes: numpy has no bfloat16


def tensor_digest(tensor: "Tensor") -> str:
    """Shape and dtype of a tensor in words, and the first 16 digits of the SHA-256 of its bytes.

    >>> import torch
    >>> tensor_digest(torch.zeros(2, 3))
    '2x3 float32 9d908ecfb6b256de'
    """
    shape = "x".join(map(str, tensor.shape)) or "scalar"
    return f"{shape} {str(tensor.dtype).removeprefix('torch.')} {sha256(_tensor_bytes(tensor))[:16]}"


def tensors_digest(*tensors: "Tensor") -> str:
    """Hexadecimal SHA-256 of the dtypes, shapes and bytes of tensors; about a second for a gigabyte."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(_tensor_bytes(tensor))
    return digest.hexdigest()


def weights_digest(module: "nn.Module") -> str:
    """Hexadecimal SHA-256 of all tensors of a module's state, with their names, shapes and dtypes."""
    import torch

    lines = []
    for name, tensor in module.state_dict().items():
        if isinstance(tensor, torch.Tensor):
            flat = tensor.detach().cpu().reshape(-1).view(torch.uint8)
            lines.append(f"{name} {tensor.dtype} {tuple(tensor.shape)} {tensors_digest(flat)}\n")
    return text_digest("".join(lines))


def repr_without_addresses(value: object) -> str:
    """The `repr` of a value without memory addresses, which differ between processes.

    >>> repr_without_addresses([sha256])
    '[<function sha256>]'
    """
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
