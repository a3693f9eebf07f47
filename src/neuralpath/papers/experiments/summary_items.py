"""What an experiment has to show, as plain values, from which the terminal, CSV files, figures and the page draw."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from neuralpath.papers.experiments.statistics import Cell as Cell


@dataclass(frozen=True)
class Table:
    """Rows of cells; where the papers print a figure it has a column of its own, and one for the difference."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    @staticmethod
    def of(title: str, rows: "Sequence[Mapping[str, Cell]]", note: str = "") -> "Table":
        """A table from rows, each a dictionary from columns to cells.

        >>> Table.of("Squares", [{"x": 2, "square": 4}, {"x": 3, "square": 9}]).rows
        ((2, 4), (3, 9))
        """
        return Table(title, tuple(rows[0] if rows else ()), tuple(tuple(row.values()) for row in rows), note)

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row of {self.title!r} has {len(row)} cells, not {len(self.columns)}: {row}.")


@dataclass(frozen=True)
class Curve:
    """Values against x, with a band of one standard deviation where there are several seeds."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    deviation: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Curves:
    """Curves in one pair of axes."""

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    note: str = ""
    log: Literal["", "x", "y", "xy"] = ""  # the logarithmic axes
    lines: Mapping[str, float] | None = None  # horizontal lines, such as a paper's figure

    @property
    def log_x(self) -> bool:
        """Whether the x axis is logarithmic."""
        return "x" in self.log

    @property
    def log_y(self) -> bool:
        """Whether the y axis is logarithmic."""
        return "y" in self.log


@dataclass(frozen=True)
class Distribution:
    """All values of several groups, one point each, such as accuracies over gate orders."""

    title: str
    y_label: str
    groups: Mapping[str, tuple[float, ...]]
    lines: Mapping[str, float] | None = None
    note: str = ""


@dataclass(frozen=True)
class HeatMaps:
    """Matrices side by side on one scale, such as kernels before and after training, rows sorted by class."""

    title: str
    maps: Mapping[str, tuple[tuple[float, ...], ...]]
    classes: tuple[int, ...] | None = None  # of each row
    note: str = ""


@dataclass(frozen=True)
class Pictures:
    """Rows of gray images, such as hidden layers, each scaled by itself."""

    title: str
    rows: Mapping[str, tuple[tuple[tuple[float, ...], ...], ...]]
    note: str = ""


SummaryItem = Table | Curves | Distribution | HeatMaps | Pictures
