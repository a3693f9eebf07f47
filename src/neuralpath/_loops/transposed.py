"""Transposing small blocks of a matrix in registers, which no compiler makes of a loop."""

import inspect
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

SIDE = 8
"""Rows and columns of a block."""

_LOW = [0, 8, 1, 9, 2, 10, 3, 11]
_HIGH = [4, 12, 5, 13, 6, 14, 7, 15]


def _transpose(
    typing_context: Any, out: Any, out_base: Any, out_places: Any, out_first: Any,
    values: Any, base: Any, places: Any, first: Any,
) -> Any:  # fmt: skip
    """Read a block as 8 runs of memory and write its columns as 8 runs, inside compiled code.

    Run k begins at entry ``base + places[first + k]`` of ``values``, column j goes to entry
    ``out_base + out_places[out_first + j]`` of ``out``. All arrays have one axis and no gaps; nothing is checked.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def data(k: int) -> Any:
            return context.make_array(signature.args[k])(context, builder, args[k]).data

        def run(array: int, shift: int, positions: int, begin: int, k: int) -> Any:
            at = builder.add(args[begin], ir.Constant(args[begin].type, k))
            start = builder.add(args[shift], builder.load(builder.gep(data(positions), [at])))
            return builder.bitcast(builder.gep(data(array), [start]), vector.as_pointer())

        number = context.get_data_type(signature.args[0].dtype)
        size = context.get_abi_sizeof(number)
        vector = ir.VectorType(number, SIDE)
        block = [builder.load(run(4, 5, 6, 7, k), align=size) for k in range(SIDE)]
        masks = [ir.Constant(ir.VectorType(ir.IntType(32), SIDE), mask) for mask in (_LOW, _HIGH)]
        half = SIDE // 2
        # Entries of rows k and k + 4 in turn: runs of a column's entries become twice as long, and whole after three.
        for _ in range(SIDE.bit_length() - 1):
            block = [builder.shuffle_vector(block[k], block[k + half], mask) for k in range(half) for mask in masks]
        for j, column in enumerate(block):
            builder.store(column, run(0, 1, 2, 3, j), align=size)
        return context.get_dummy_value()

    whole = types.intp
    return types.void(out, whole, out_places, whole, values, whole, places, whole), generate


# Unwrapped for the same reason as in `compiled`.
transpose: Any = intrinsic(inspect.unwrap(_transpose))
