"""Compilation of the inner loops."""

import inspect
from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function with numba, without the interpreter's lock and with C's rules for arithmetic.

    The function is unwrapped first: checks of annotations, which the tests put around every function of the
    package, cannot be compiled.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        return njit(nogil=True, error_model="numpy", **options)(inspect.unwrap(function))

    return decorate
