"""What a store holds besides its array: what the kernel is, and how its tiles are computed."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from neuralpath.kernels.storage.fingerprint import Parts

FORMAT = 1
"""Number of the layout of a store; one of another layout is refused."""


@dataclass(frozen=True, slots=True)
class Description:
    """What a store holds besides its array: what the kernel is, and how its tiles are computed.

    Rounding depends on the size of the blocks and, for some kernels, on the number of threads; the memory budget
    decides on the blocks. So they are kept, and every tile is computed alike, whenever and wherever it is.
    """

    what: str
    symmetric: bool
    block: tuple[int, int]
    memory: int
    threads: int
    fingerprint: Parts
    format: int = FORMAT


def read_description(attributes: Mapping[str, Any]) -> Description:
    """A description from what a file holds, which may be anything.

    Raises: ValueError that names a field that is missing, is not known, or is not what it should be.
    """
    names = [field.name for field in fields(Description)]
    missing = [field.name for field in fields(Description) if field.default is MISSING and field.name not in attributes]
    unknown = [name for name in attributes if name not in names]
    if missing or unknown:
        problems = [f"{name!r} is missing" for name in missing] + [f"{name!r} is not known" for name in unknown]
        raise ValueError(", ".join(problems))
    for name, value in attributes.items():
        expected, is_right = _EXPECTED[name]
        if not is_right(value):
            raise ValueError(f"{name!r} must be {expected}, not {value!r}")
    return Description(**{**attributes, "block": tuple(attributes["block"])})


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_parts(value: Any) -> bool:
    """Whether it is words by name, which may have words by name in their place."""
    return isinstance(value, Mapping) and all(
        isinstance(part, str) or (isinstance(part, Mapping) and all(isinstance(text, str) for text in part.values()))
        for part in value.values()
    )


_COUNT = "a whole number from 1", _is_count
_EXPECTED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "what": ("words", lambda value: isinstance(value, str)),
    "symmetric": ("true or false", lambda value: isinstance(value, bool)),
    "block": (
        "two whole numbers from 1",
        lambda value: isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_count, value)),
    ),
    "memory": _COUNT,
    "threads": _COUNT,
    "fingerprint": ("digests by name", _is_parts),
    "format": _COUNT,
}
