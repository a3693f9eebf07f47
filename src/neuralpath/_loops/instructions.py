"""Instructions for the compiled loops that a compiler does not produce by itself, built as LLVM code.

`popcount`: the number of set bits, as one machine instruction.

`weigh_block`, `mix_block`: products of ROWS positions of one image with LANES positions of another, in registers:

                     positions of the second image: LANES = 16, one vector register
                     masks2[start2], masks2[start2 + 1], ...
   masks1[start1    ] |  o  o  o  o  o  o  o  o  o  o  o  o  o  o  o  o     one entry of the first image is copied
   masks1[start1 + 1] |  o  o  o  o  o  o  o  o  o  o  o  o  o  o  o  o     to all lanes, and multiplies the vector;
   masks1[start1 + 2] |  o  o  o  o  o  o  o  o  o  o  o  o  o  o  o  o     row r is stored at
   masks1[start1 + 3] |  o  o  o  o  o  o  o  o  o  o  o  o  o  o  o  o     out[to + r * out_step]

A compiler vectorizes such loops too, but it asks again at every row how long the row is and whether arrays overlap, and
it loads the vector again for each row. Both take longer than the products.

`transpose`: an 8 x 8 block is loaded as 8 vectors and stored as its 8 columns. Interleaving vectors k and k + 4 doubles
the length of the runs of one column; after three rounds every vector is a column:

        round 0   a0 a1 a2 a3 ...    rows a, b, ..., h
        round 1   a0 e0 a1 e1 ...    rows a and e interleaved, b and f, ...
        round 2   a0 c0 e0 g0 ...
        round 3   a0 b0 c0 d0 e0 f0 g0 h0    column 0

All arrays have one axis and no gaps; nothing is checked. The functions are unwrapped before they become intrinsics: the
checks of annotations that the tests put around every function of the package cannot be compiled.
"""

import inspect
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic

ROWS, LANES = 4, 16  # positions of the first and of the second image in a block
SIDE = 8  # rows and columns of a block that `transpose` takes

# Entries of two vectors of 8, numbered 0-7 and 8-15, interleaved: the first and the second half of the result.
_LOW = [0, 8, 1, 9, 2, 10, 3, 11]
_HIGH = [4, 12, 5, 13, 6, 14, 7, 15]


def _popcount(typing_context, word):
    """Number of set bits of a word, inside compiled code."""

    def generate(context, builder, signature, args):
        return builder.ctpop(args[0])

    return word(word), generate


class _Block:
    """Builds the instructions of one call; arrays, tuples and numbers are named by their argument's index."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any) -> None:
        self._context, self.builder, self._types, self._args = context, builder, signature.args, args

    def load(self, array: int, start: Any) -> Any:
        """Sixteen entries from ``start`` on."""
        run, size = self._run(array, start)
        return self.builder.load(run, align=size)

    def store(self, array: int, start: Any, values: Any) -> None:
        """Write sixteen entries from ``start`` on."""
        run, size = self._run(array, start)
        self.builder.store(values, run, align=size)

    def load_all_lanes(self, array: int, at: Any) -> Any:
        """One entry, in all lanes."""
        return self.spread(self.builder.load(self.builder.gep(self._data(array), [at])))

    def row(self, start: int, step: int, row: int) -> Any:
        """The index at which a row starts."""
        begin = self._args[start]
        return self.builder.add(begin, self.builder.mul(ir.Constant(begin.type, row), self._args[step]))

    def items(self, group: int) -> list[Any]:
        """The entries of a tuple."""
        return [self.builder.extract_value(self._args[group], k) for k in range(self._types[group].count)]

    def spread(self, number: Any) -> Any:
        """The same number in all lanes."""
        empty = ir.Constant(ir.VectorType(number.type, LANES), ir.Undefined)
        single = self.builder.insert_element(empty, number, ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return self.builder.shuffle_vector(single, single, zeros)

    def multiply_add(self, first: Any, second: Any, third: Any) -> Any:
        """``first * second + third``, in one instruction if the processor has it."""
        may_fuse = ("contract",)
        return self.builder.fadd(self.builder.fmul(first, second, flags=may_fuse), third, flags=may_fuse)

    def popcount(self, words: Any) -> Any:
        """Number of set bits of the word in each lane."""
        kind = ir.FunctionType(words.type, [words.type])
        name = f"llvm.ctpop.v{LANES}{words.type.element}"
        return self.builder.call(get_or_insert_function(self.builder.module, kind, name), [words])

    def _data(self, array: int) -> Any:
        return self._context.make_array(self._types[array])(self._context, self.builder, self._args[array]).data

    def _run(self, array: int, start: Any) -> tuple[Any, int]:
        """A pointer to sixteen entries of an array, and the bytes of an entry."""
        number = self._context.get_data_type(self._types[array].dtype)
        pointer = self.builder.gep(self._data(array), [start])
        run = self.builder.bitcast(pointer, ir.VectorType(number, LANES).as_pointer())
        return run, self._context.get_abi_sizeof(number)


def _weigh_block(typing_context, out, to, out_step, source, at, step, masks1, starts1, masks2, starts2, factor, shift):
    """``out = (source * factor + shift) * overlap``, inside compiled code.

    Rows of ``out`` start at ``to`` and are ``out_step`` apart, those of ``source`` at ``at``, ``step`` apart. For each
    word of a position, the tuples ``starts1`` and ``starts2`` have its start in ``masks1`` and ``masks2``.
    """

    def generate(context, builder, signature, args):
        block = _Block(context, builder, signature, args)
        masks, firsts = [block.load(8, start) for start in block.items(9)], block.items(7)
        factor, shift = block.spread(args[10]), block.spread(args[11])
        # Unrolled: the loops here run while the code is built, and leave straight-line instructions behind.
        for row in range(ROWS):
            counts = []
            for mask, first in zip(masks, firsts, strict=True):
                word = block.load_all_lanes(6, builder.add(first, ir.Constant(first.type, row)))
                counts.append(block.popcount(builder.and_(mask, word)))
            while len(counts) > 1:  # pairwise, so that additions do not wait for each other
                counts.append(builder.add(counts.pop(0), counts.pop(0)))
            values = block.multiply_add(block.load(3, block.row(4, 5, row)), factor, shift)
            overlap = builder.sitofp(counts[0], values.type)
            block.store(0, block.row(1, 2, row), builder.fmul(values, overlap))
        return context.get_dummy_value()

    whole = types.intp
    arguments = (out, whole, whole, source, whole, whole, masks1, starts1, masks2, starts2, factor, factor)
    return types.void(*arguments), generate


def _mix_block(typing_context, out, to, out_step, values1, starts1, values2, starts2, factor):
    """``out = factor * sum over channels of value * value'``, inside compiled code; arguments as above."""

    def generate(context, builder, signature, args):
        block = _Block(context, builder, signature, args)
        factor = block.spread(args[7])
        channels = [builder.fmul(block.load(5, start), factor) for start in block.items(6)]
        firsts = block.items(4)
        for row in range(ROWS):
            total = None
            for channel, first in zip(channels, firsts, strict=True):
                value = block.load_all_lanes(3, builder.add(first, ir.Constant(first.type, row)))
                total = builder.fmul(value, channel) if total is None else block.multiply_add(value, channel, total)
            block.store(0, block.row(1, 2, row), total)
        return context.get_dummy_value()

    whole = types.intp
    return types.void(out, whole, whole, values1, starts1, values2, starts2, factor), generate


def _transpose(typing_context, out, out_base, out_starts, out_first, values, base, starts, first):
    """Read a block as 8 runs of memory and write its columns as 8 runs, inside compiled code.

    Run k starts at entry ``base + starts[first + k]`` of ``values``, column j at entry
    ``out_base + out_starts[out_first + j]`` of ``out``.
    """

    def generate(context, builder, signature, args):
        def data(k):
            return context.make_array(signature.args[k])(context, builder, args[k]).data

        def run(array, shift, positions, begin, k):
            at = builder.add(args[begin], ir.Constant(args[begin].type, k))
            start = builder.add(args[shift], builder.load(builder.gep(data(positions), [at])))
            return builder.bitcast(builder.gep(data(array), [start]), vector.as_pointer())

        number = context.get_data_type(signature.args[0].dtype)
        size = context.get_abi_sizeof(number)
        vector = ir.VectorType(number, SIDE)
        block = [builder.load(run(4, 5, 6, 7, k), align=size) for k in range(SIDE)]
        masks = [ir.Constant(ir.VectorType(ir.IntType(32), SIDE), mask) for mask in (_LOW, _HIGH)]
        half = SIDE // 2
        # Interleave rows k and k + 4 three times, as drawn above.
        for _ in range(SIDE.bit_length() - 1):
            block = [builder.shuffle_vector(block[k], block[k + half], mask) for k in range(half) for mask in masks]
        for j, column in enumerate(block):
            builder.store(column, run(0, 1, 2, 3, j), align=size)
        return context.get_dummy_value()

    whole = types.intp
    return types.void(out, whole, out_starts, whole, values, whole, starts, whole), generate


popcount, weigh_block, mix_block, transpose = (
    intrinsic(inspect.unwrap(function)) for function in (_popcount, _weigh_block, _mix_block, _transpose)
)
