"""Products of small blocks, four positions by sixteen, in registers.

A compiler vectorizes loops too, but asks again at every row of an image how long it is and whether arrays overlap, and
reads the same words again for each row; both take longer than the work.
"""

import inspect
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic

ROWS, LANES = 4, 16
"""Positions of the one image and of the other whose pairs are a block."""


class _Block:
    """Builds the instructions of one call; arrays have one axis and no gaps, and nothing is checked.

    Arrays, tuples and numbers are named by their places among the arguments.
    """

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any) -> None:
        self._context, self.builder, self._types, self._args = context, builder, signature.args, args

    def vector(self, array: int) -> ir.VectorType:
        """The type of a run of an array's entries."""
        return ir.VectorType(self._number(array), LANES)

    def load(self, array: int, start: Any) -> Any:
        """Sixteen entries from ``start`` on."""
        return self.builder.load(self._run(array, start), align=self._size(array))

    def store(self, array: int, start: Any, values: Any) -> None:
        """Write sixteen entries from ``start`` on."""
        self.builder.store(values, self._run(array, start), align=self._size(array))

    def load_one(self, array: int, at: Any) -> Any:
        """One entry, in all lanes."""
        return self.spread(self.builder.load(self.builder.gep(self._data(array), [at])))

    def row(self, start: int, step: int, row: int) -> Any:
        """Where a row begins."""
        begin = self._args[start]
        return self.builder.add(begin, self.builder.mul(ir.Constant(begin.type, row), self._args[step]))

    def items(self, group: int) -> list[Any]:
        """The entries of a tuple."""
        return [self.builder.extract_value(self._args[group], k) for k in range(self._types[group].count)]

    def spread(self, number: Any) -> Any:
        """The same number in all lanes."""
        kind = ir.VectorType(number.type, LANES)
        first = ir.Constant(ir.IntType(32), 0)
        single = self.builder.insert_element(ir.Constant(kind, ir.Undefined), number, first)
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return self.builder.shuffle_vector(single, single, zeros)

    def multiply_add(self, one: Any, two: Any, three: Any) -> Any:
        """``one * two + three``, in one instruction where there is one."""
        may_fuse = ("contract",)
        return self.builder.fadd(self.builder.fmul(one, two, flags=may_fuse), three, flags=may_fuse)

    def popcount(self, words: Any) -> Any:
        """Set bits of the word in each lane."""
        kind = ir.FunctionType(words.type, [words.type])
        name = f"llvm.ctpop.v{LANES}{words.type.element}"
        return self.builder.call(get_or_insert_function(self.builder.module, kind, name), [words])

    def _number(self, array: int) -> Any:
        return self._context.get_data_type(self._types[array].dtype)

    def _size(self, array: int) -> int:
        size: int = self._context.get_abi_sizeof(self._number(array))
        return size

    def _data(self, array: int) -> Any:
        return self._context.make_array(self._types[array])(self._context, self.builder, self._args[array]).data

    def _run(self, array: int, start: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(self._data(array), [start]), self.vector(array).as_pointer())


def _weigh_block(
    typing_context: Any, out: Any, to: Any, out_step: Any, source: Any, at: Any, step: Any, masks1: Any, starts1: Any,
    masks2: Any, starts2: Any, factor: Any, shift: Any,
) -> Any:  # fmt: skip
    """``out = (source * factor + shift) * overlap``, inside compiled code.

    Rows of ``out`` begin at ``to`` and are ``out_step`` apart, those of ``source`` at ``at``, ``step`` apart. The words
    of the positions begin in ``masks1`` and ``masks2`` where ``starts1`` and ``starts2`` say, for each word.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        block = _Block(context, builder, signature, args)
        masks, firsts = [block.load(8, start) for start in block.items(9)], block.items(7)
        factor, shift = block.spread(args[10]), block.spread(args[11])
        for row in range(ROWS):
            counts = []
            for mask, first in zip(masks, firsts, strict=True):
                word = block.load_one(6, builder.add(first, ir.Constant(first.type, row)))
                counts.append(block.popcount(builder.and_(mask, word)))
            while len(counts) > 1:
                counts.append(builder.add(counts.pop(0), counts.pop(0)))
            values = block.multiply_add(block.load(3, block.row(4, 5, row)), factor, shift)
            overlap = builder.sitofp(counts[0], block.vector(0))
            block.store(0, block.row(1, 2, row), builder.fmul(values, overlap))
        return context.get_dummy_value()

    whole = types.intp
    arguments = (out, whole, whole, source, whole, whole, masks1, starts1, masks2, starts2, factor, factor)
    return types.void(*arguments), generate


def _mix_block(
    typing_context: Any, out: Any, to: Any, out_step: Any, values1: Any, starts1: Any, values2: Any, starts2: Any,
    factor: Any,
) -> Any:  # fmt: skip
    """``out = factor * sum over channels of value * value'``, inside compiled code; arguments as above."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        block = _Block(context, builder, signature, args)
        factor = block.spread(args[7])
        channels = [builder.fmul(block.load(5, start), factor) for start in block.items(6)]
        firsts = block.items(4)
        for row in range(ROWS):
            total = None
            for channel, first in zip(channels, firsts, strict=True):
                one = block.load_one(3, builder.add(first, ir.Constant(first.type, row)))
                total = builder.fmul(one, channel) if total is None else block.multiply_add(one, channel, total)
            block.store(0, block.row(1, 2, row), total)
        return context.get_dummy_value()

    whole = types.intp
    return types.void(out, whole, whole, values1, starts1, values2, starts2, factor), generate


# Unwrapped for the same reason as in `compiled`.
weigh_block: Any = intrinsic(inspect.unwrap(_weigh_block))
mix_block: Any = intrinsic(inspect.unwrap(_mix_block))
