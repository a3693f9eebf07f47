"""Compilation of the inner loops."""

import inspect
from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function with numba, without the interpreter's lock and with C's rules for arithmetic.

    With ``cache=True`` the result is kept on disk. Numba looks for changes in the function's own file only, so a cached
    function must call no compiled function of another file but the population count; and it can be no closure.

    The function is unwrapped first: checks of annotations, which the tests put around every function of the
    package, cannot be compiled.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        return njit(nogil=True, error_model="numpy", **options)(inspect.unwrap(function))

    return decorate
