"""Where in a module an operation runs: names of gates, the same as those of ``trace``."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


class Places:
    """Follows a module's calls, so that what runs can be named after where it runs."""

    def __init__(self) -> None:
        self._stack: list[tuple[str, bool]] = []
        self._uses: dict[str, int] = {}

    @contextmanager
    def follow(self, module: nn.Module) -> Iterator[None]:
        """Watch a module's calls while the context lasts."""
        hooks = []
        for path, part in module.named_modules():
            place = (path, _is_layer(part))
            hooks.append(part.register_forward_pre_hook(self._entering(place)))
            hooks.append(part.register_forward_hook(self._leaving, always_call=True))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _entering(self, place: tuple[str, bool]) -> Any:
        return lambda module, args: self._stack.append(place)

    def _leaving(self, module: nn.Module, args: Any, output: Any) -> None:
        self._stack.pop()

    @property
    def here(self) -> str:
        """Words for the module that runs now: nothing in the outermost one."""
        path = self._stack[-1][0] if self._stack else ""
        return f" in {path!r}" if path else ""

    def name(self, operation: str) -> str:
        """A new name for an operation that runs now: its layer's, or the module's with the operation's own.

        The second use of ``relu`` is ``relu#2``.
        """
        path, is_layer = self._stack[-1] if self._stack else ("", False)
        name = path if is_layer and path else f"{path}.{operation}" if path else operation
        count = self._uses[name] = self._uses.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"


def _is_layer(part: nn.Module) -> bool:
    """Whether a module is one of torch's own layers, which run one operation."""
    home = type(part).__module__
    return home.startswith("torch.nn.modules.") and home != "torch.nn.modules.container"
