"""What tells one computation from another: a digest of each thing that the result depends on."""

from collections.abc import Mapping
from dataclasses import dataclass

from neuralpath._hashing import text_digest

Parts = Mapping[str, str | Mapping[str, str]]

SHOWN = 3
"""Names of one kind that a message lists."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Words and digests by part; a part such as the weights may have names of its own below it."""

    parts: Parts

    def digest(self) -> str:
        """One digest of all parts."""
        return text_digest(repr(sorted((name, _plain(part)) for name, part in self.parts.items())))

    def differences(self, other: "Fingerprint") -> list[str]:
        """What differs, a phrase for each part: ``self`` is what was, ``other`` what is now."""
        names = [*self.parts, *(name for name in other.parts if name not in self.parts)]
        found = ((name, self.parts.get(name, {}), other.parts.get(name, {})) for name in names)
        return [_difference(name, was, now) for name, was, now in found if was != now]


def _difference(name: str, was: str | Mapping[str, str], now: str | Mapping[str, str]) -> str:
    if isinstance(was, str) and isinstance(now, str):
        return f"{name} (was {was}, is {now})"
    was, now = _plain(was), _plain(now)
    changed = sorted(key for key in {*was, *now} if was.get(key) != now.get(key))
    more = f", and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
    return f"{name} ({', '.join(changed[:SHOWN])}{more})"


def _plain(part: str | Mapping[str, str]) -> dict[str, str]:
    return {"": part} if isinstance(part, str) else dict(part)
