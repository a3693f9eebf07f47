"""How each parameter's inner products are found: by pairs of positions, or from gradients that are written out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neuralpath.kernels.tangent.gradients import Convolved, Gradients, Outer, Written

PAIR_OVERHEAD = 16
"""Multiplications that reading and writing one pair of positions costs as much as."""

Terms = Mapping[str, Sequence[Gradients]]


@dataclass(frozen=True, slots=True)
class Size:
    """Sizes of the kernel: examples on both sides, outputs, and whether all pairs of outputs are wanted."""

    n1: int
    n2: int
    n_outputs: int
    joint: bool

    @property
    def output_pairs(self) -> int:
        """Pairs of outputs that are compared."""
        return self.n_outputs**2 if self.joint else self.n_outputs


@dataclass(frozen=True, slots=True)
class _Shape:
    """A parameter as blocks of a matrix, and the positions that it is applied at."""

    positions: int
    blocks: int
    n_rows: int
    n_columns: int
    writing: float  # multiplications for writing out an example's gradient by one output

    def pair_cost(self, size: Size) -> float:
        """Multiplications for a pair of examples, by pairs of positions."""
        pairs = size.output_pairs
        return self.blocks * self.positions**2 * (self.n_columns + pairs * (self.n_rows + PAIR_OVERHEAD))

    def row_cost(self, size: Size) -> float:
        """Multiplications for a pair of examples, its share of writing the gradients out included."""
        entries = self.blocks * self.n_rows * self.n_columns
        return size.output_pairs * entries + size.n_outputs * self.writing * (1 / size.n1 + 1 / size.n2)


def _shape(parts: Sequence[Gradients]) -> _Shape | None:
    """The shape of a parameter whose uses are all alike, so that their positions can stand behind each other."""
    alike = {
        ("matrix", part.transposed, part.delta.shape[3], part.signal.shape[2]) if isinstance(part, Outer)
        else ("window", part.geometry.groups, *part.group_shape) if isinstance(part, Convolved)
        else ("other",)
        for part in parts
    }  # fmt: skip
    positions = sum(part.n_positions for part in parts if not isinstance(part, Written))
    match tuple(alike):
        case (("matrix", _, n_rows, n_columns),):
            return _Shape(positions, 1, n_rows, n_columns, positions * n_rows * n_columns)
        case (("window", groups, n_rows, n_columns),):
            only = parts[0] if len(parts) == 1 else None
            plain = positions * groups * n_rows * n_columns
            writing = only.writing_cost if isinstance(only, Convolved) else plain
            return _Shape(positions, groups, n_rows, n_columns, writing)
        case _:
            return None


def paired_parameters(terms: Terms, size: Size) -> frozenset[str]:
    """The parameters that are cheaper by pairs of positions than from gradients that are written out."""
    shapes = {name: _shape(parts) for name, parts in terms.items()}
    return frozenset(
        name
        for name, shape in shapes.items()
        # With one position there is nothing to gain from writing out, whatever the estimate.
        if shape is not None and (shape.positions == 1 or shape.pair_cost(size) <= shape.row_cost(size))
    )


def feature_bytes(terms: Terms, paired: frozenset[str], n_outputs: int) -> int:
    """Bytes of an example's gradients in factors."""
    total = 0
    for name, parts in terms.items():
        shape = _shape(parts)
        item = parts[0].dtype.itemsize
        if name in paired and shape is not None:
            total += item * shape.positions * shape.blocks * (shape.n_columns + n_outputs * shape.n_rows)
            continue
        for part in parts:
            if isinstance(part, Written):
                total += item * n_outputs * part.n_entries
            else:
                total += item * (part.signal[0].numel() + n_outputs * part.delta[0, 0].numel())
    return total


def pair_cost(terms: Terms, paired: frozenset[str], size: Size) -> float:
    """Multiplications for a pair of examples."""
    total = 0.0
    for name, parts in terms.items():
        shape = _shape(parts)
        if shape is None:
            total += size.output_pairs * parts[0].n_entries
        else:
            total += shape.pair_cost(size) if name in paired else shape.row_cost(size)
    return total
