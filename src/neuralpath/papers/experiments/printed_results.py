"""The figures that the papers print, to stand beside ours."""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class Printed:
    """One printed accuracy in per cent, with its spread where one is given."""

    paper: str
    where: str
    architecture: str
    optimizer: str
    dataset: str
    regime: str
    accuracy: float
    spread: float | None
    note: str


@cache
def all_printed() -> tuple[Printed, ...]:
    """Every printed figure."""
    text = files("neuralpath.papers.experiments").joinpath("printed.csv").read_text()
    return tuple(_parse(row) for row in csv.DictReader(text.splitlines()))


def _parse(row: dict[str, str]) -> Printed:
    numbers = {"accuracy": float(row.pop("accuracy")), "spread": float(row["spread"]) if row["spread"] else None}
    row.pop("spread")
    return Printed(**row, **numbers)  # type: ignore[arg-type]


def printed(**wanted: str) -> Printed | None:
    """The first figure with these fields, such as ``printed(paper="P1", regime="FL", …)``; None if there is none."""
    for figure in all_printed():
        if all(getattr(figure, name) == value for name, value in wanted.items()):
            return figure
    return None
