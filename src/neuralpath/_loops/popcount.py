"""The population count, as one machine instruction that the compiler can vectorize."""

import inspect
from typing import Any

from numba.extending import intrinsic


def _popcount(typing_context: Any, word: Any) -> Any:
    """Number of set bits of a word, inside compiled code."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return word(word), generate


# Unwrapped for the same reason as in `compiled`.
popcount: Any = intrinsic(inspect.unwrap(_popcount))
