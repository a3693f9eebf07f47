"""Figures as JSON values, which the page's scripts draw."""

import math
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from neuralpath.papers.experiments import Curve, Curves, Distribution, HeatMaps, Pictures

Figure = Curves | Distribution | HeatMaps | Pictures

N_COLORS, N_DASHES = 8, 4  # colors and line styles of the style sheet and of the drawings
_NAMES = ("ReLU", "DL", "FL", "FR-II", "FR-DI", "FL random labels", "FL random pixels")
REGIMES = {name: color for color, name in enumerate(_NAMES)}
INPUTS = {"image": 0, "ones": 1}  # line styles of the value network's inputs
DIGITS = 5  # significant digits of a drawn value: more than a screen shows, and half the size of a full double


def is_empty(figure: Figure) -> bool:
    """Whether there is nothing to draw yet."""
    if isinstance(figure, Curves):
        return not any(_finite(curve.y) for curve in figure.curves)
    if isinstance(figure, Distribution):
        return not any(_finite(values) for values in figure.groups.values())
    if isinstance(figure, HeatMaps):
        return not any(figure.maps.values())
    return not any(figure.rows.values())


def payload(figure: Figure) -> dict[str, Any]:
    """The figure as JSON for the script that draws it."""
    if isinstance(figure, Curves):
        axes = {"xLabel": figure.x_label, "yLabel": figure.y_label, "logX": figure.log_x, "logY": figure.log_y}
        curves = []
        for curve, (color, dash) in zip(figure.curves, styles_of(figure), strict=True):
            drawn: dict[str, Any] = {"name": curve.name, "x": _rounded(curve.x), "y": _rounded(curve.y)}
            if (edges := band(curve, figure.log_y)) is not None:
                drawn |= {"lower": _rounded(edges[0]), "upper": _rounded(edges[1])}
            curves.append(drawn | {"color": color, "dash": dash})
        return {"kind": "curves", **axes, "lines": _lines(figure.lines), "curves": curves}
    if isinstance(figure, Distribution):
        groups = [{"name": name, "values": _rounded(values)} for name, values in figure.groups.items()]
        return {"kind": "distribution", "yLabel": figure.y_label, "lines": _lines(figure.lines), "groups": groups}
    if isinstance(figure, HeatMaps):
        maps = [{"name": name, "z": [_rounded(row) for row in rows]} for name, rows in figure.maps.items()]
        return {"kind": "heat-maps", "classes": figure.classes, "range": scale_of(figure), "maps": maps}
    rows = [{"name": name, "images": [_image(image) for image in images]} for name, images in figure.rows.items()]
    return {"kind": "pictures", "rows": rows}


def styles_of(figure: Curves) -> list[tuple[int, int]]:
    """Numbers of the color and of the line style of each curve.

    A regime has the same color in every figure. If the names are all pairs from two lists ("d = 2, drawn"), one list
    sets the color and the other the line style. Curves after the eighth repeat the colors with another style.

    >>> styles_of(Curves("", "", "", tuple(Curve(name, (), ()) for name in ("ReLU", "FR-II", "other"))))
    [(0, 0), (3, 0), (1, 0)]
    """
    names = [curve.name for curve in figure.curves]
    if pairs := _pairs(names):
        return pairs
    known = {name: style for name in names if (style := _regime(name)) is not None}
    taken = {color for color, _ in known.values()}
    free = (number for number in count() if number not in taken)
    return [known[name] if name in known else divmod(next(free), N_COLORS)[::-1] for name in names]


def _regime(name: str) -> tuple[int, int] | None:
    """Style of a regime, possibly with its value network's input; None for other names."""
    regime, _, seen = name.rpartition(" ")
    if seen in INPUTS and regime in REGIMES:
        return REGIMES[regime], INPUTS[seen]
    return (REGIMES[name], 0) if name in REGIMES else None


def _pairs(names: Sequence[str]) -> list[tuple[int, int]]:
    parts = [tuple(name.rsplit(", ", 1)) for name in names]
    if not all(len(part) == 2 for part in parts):
        return []
    firsts, seconds = (list(dict.fromkeys(part[k] for part in parts)) for k in (0, 1))
    if not len(set(parts)) == len(parts) == len(firsts) * len(seconds) or min(len(firsts), len(seconds)) < 2:
        return []
    if len(firsts) <= N_COLORS and len(seconds) <= N_DASHES:
        return [(firsts.index(first), seconds.index(second)) for first, second in parts]
    if len(seconds) <= N_COLORS and len(firsts) <= N_DASHES:
        return [(seconds.index(second), firsts.index(first)) for first, second in parts]
    return []


def band(curve: Curve, log_y: bool) -> tuple[list[float], list[float]] | None:
    """Lower and upper edge, one deviation from the mean; None for one seed."""
    if curve.deviation is None:
        return None
    points = list(zip(curve.y, curve.deviation, strict=True))
    # On a logarithmic axis the lower edge must be positive: it is at least a tenth of the mean.
    lower = [max(y - spread, 0.1 * y) if log_y else y - spread for y, spread in points]
    return lower, [y + spread for y, spread in points]


def scale_of(figure: HeatMaps) -> tuple[float, float]:
    """Smallest and largest value of all maps."""
    skip = leaves_diagonal_out(figure)  # it would make all other entries dark
    rows = [(index, row) for rows in figure.maps.values() for index, row in enumerate(rows)]
    values = _finite(value for i, row in rows for j, value in enumerate(row) if not (skip and i == j))
    return (min(values), max(values)) if values else (0.0, 1.0)


def leaves_diagonal_out(figure: HeatMaps) -> bool:
    """Whether the color scale leaves out the diagonal: rows and columns are the same examples."""
    sizes = {len(rows) for rows in figure.maps.values()} | {len(row) for rows in figure.maps.values() for row in rows}
    return figure.classes is not None and sizes == {len(figure.classes)} and len(figure.classes) > 2


def grey(image: Sequence[Sequence[float]]) -> list[list[int]]:
    """An image scaled by itself to 0…255; a constant one is 0."""
    low, high = min(map(min, image)), max(map(max, image))
    size = high - low or 1.0
    return [[round(255 * (value - low) / size) for value in row] for row in image]


def _lines(lines: Mapping[str, float] | None) -> list[dict[str, Any]]:
    return [{"name": name, "y": value} for name, value in (lines or {}).items() if math.isfinite(value)]


def _image(image: Sequence[Sequence[float]]) -> dict[str, Any]:
    pixels = bytes(value for row in grey(image) for value in row)
    return {"width": len(image[0]), "height": len(image), "pixels": b64encode(pixels).decode()}


def _rounded(values: Iterable[float]) -> list[float | None]:
    """Values with the digits that can be seen; NaN and infinity become gaps."""
    return [float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in values]


def _finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]
