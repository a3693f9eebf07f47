"""Figures as PDF and PNG files."""

import math
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from neuralpath.papers.experiments import Curves, Distribution, HeatMaps, Pictures
from neuralpath.papers.report.markup import POWER
from neuralpath.papers.report.payloads import Figure, band, scale_of, styles_of

# Colors of the page's light theme, each with a contrast of 4.5 or more against white, and line styles as a second mark
PALETTE = ("#2563a8", "#c2410c", "#0f766e", "#9333a8", "#a16207", "#be123c", "#475569", "#4d7c0f")
DASHES = ("solid", "dashed", "dotted", "dashdot")


def draw(figure: Figure, folder: Path, name: str) -> tuple[Path, ...]:
    """Write ``name.pdf`` and ``name.png`` in a folder, and return their paths."""
    from matplotlib import rc_context

    canvas = _make(figure)
    canvas.suptitle(mathtext(figure.title), fontsize=11)
    paths = tuple(folder / f"{name}.{suffix}" for suffix in ("pdf", "png"))
    with rc_context({"pdf.fonttype": 42}):  # TrueType: some publishers refuse matplotlib's own Type 3
        for path in paths:
            # Without a date, the same runs give the same bytes.
            canvas.savefig(path, dpi=200, metadata={"CreationDate": None} if path.suffix == ".pdf" else None)
    return paths


def mathtext(words: str) -> str:
    r"""Words with their exponents raised, as matplotlib writes formulas.

    >>> print(mathtext("K^V of 10 $"))
    K$^{\mathrm{V}}$ of 10 \$
    """
    return POWER.sub(lambda match: f"$^{{\\mathrm{{{match[1].strip('()')}}}}}$", words.replace("$", r"\$"))


def _make(figure: Figure) -> Any:
    makers: dict[type, Callable[[Any], Any]] = {Curves: _curves, Distribution: _distribution, HeatMaps: _heat_maps}
    return makers.get(type(figure), _pictures)(figure)


def _canvas(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(canvas)  # no window, no global state
    return canvas


def _curves(figure: Curves) -> Any:
    canvas = _canvas(7, 4.2)
    axes = canvas.subplots()
    for curve, (number, dash_number) in zip(figure.curves, styles_of(figure), strict=True):
        color, dash = PALETTE[number % len(PALETTE)], DASHES[dash_number % len(DASHES)]
        marker, label = "o" if len(curve.x) <= 12 else None, mathtext(curve.name)
        axes.plot(curve.x, curve.y, label=label, color=color, linestyle=dash, marker=marker, markersize=3)
        if (edges := band(curve, figure.log_y)) is not None:
            axes.fill_between(curve.x, *edges, color=color, alpha=0.15, linewidth=0)
    _finish(axes, figure.x_label, figure.y_label, figure.lines)
    if figure.log_x:
        axes.set_xscale("log")
        _label_logarithmic(axes.xaxis, (x for curve in figure.curves for x in curve.x))
    elif all(float(x).is_integer() for curve in figure.curves for x in curve.x):
        axes.xaxis.get_major_locator().set_params(integer=True)  # epochs and layers have no halves between them
    if figure.log_y:
        axes.set_yscale("log")
        _label_logarithmic(axes.yaxis, axes.get_ylim())
    longest = max((len(curve.name) for curve in figure.curves), default=1)
    columns = max(1, min(len(figure.curves), 100 // (longest + 8)))
    canvas.legend(loc="outside lower center", frameon=False, fontsize=8, ncols=columns)  # never on the curves
    return canvas


def _label_logarithmic(axis: Any, values: Iterable[float]) -> None:
    """Ticks at the values if they are few, otherwise at 1, 2, 5 or at powers of ten, by the range."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

    known = sorted({value for value in values if math.isfinite(value) and value > 0})
    axis.set_minor_formatter(NullFormatter())
    if not known:
        return
    spread = math.log10(known[-1] / known[0])
    if 2 < len(known) <= 10 and all(high / low > 1.25 for low, high in pairwise(known)):
        axis.set_major_locator(FixedLocator(known))
        axis.set_minor_locator(NullLocator())
    elif spread < 2:
        axis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if spread < 1 else (1.0, 2.0, 5.0)))
    else:
        return
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}" if value < 1e6 else f"{value:.2g}"))


def _distribution(figure: Distribution) -> Any:
    canvas = _canvas(max(7, 0.7 * len(figure.groups)), 4.2)
    axes = canvas.subplots()
    for column, values in enumerate(figure.groups.values()):
        # Points of a group side by side, in order: none hides another, and every drawing is the same.
        offsets = [0.5 * (index / max(len(values) - 1, 1) - 0.5) for index in range(len(values))]
        axes.plot([column + offset for offset in offsets], values, "o", markersize=3, color=PALETTE[0], alpha=0.7)
        if values:
            axes.hlines(sum(values) / len(values), column - 0.35, column + 0.35, color=PALETTE[1], linewidth=1.5)
    turned = {"rotation": 30, "ha": "right"} if len(figure.groups) > 4 else {}
    axes.set_xticks(range(len(figure.groups)), figure.groups, **turned)
    _finish(axes, "", figure.y_label, figure.lines)
    return canvas


def _heat_maps(figure: HeatMaps) -> Any:
    canvas = _canvas(1 + 3.6 * len(figure.maps), 4)
    all_axes = canvas.subplots(1, len(figure.maps), squeeze=False)[0]
    low, high = scale_of(figure)
    for axes, (name, rows) in zip(all_axes, figure.maps.items(), strict=True):
        image = axes.imshow(rows, vmin=low, vmax=high, cmap="viridis", interpolation="nearest")
        axes.set_title(name, fontsize=9)
        middles = {} if figure.classes is None else class_middles(figure.classes)
        axes.set_xticks(list(middles.values()), list(middles))
        axes.set_yticks(list(middles.values()), list(middles))
        axes.tick_params(length=0)
    canvas.colorbar(image, ax=list(all_axes), shrink=0.8)
    return canvas


def class_middles(classes: tuple[int, ...]) -> dict[int, float]:
    """The mean row of each class, for its label."""
    return {label: fmean(row for row, other in enumerate(classes) if other == label) for label in sorted(set(classes))}


def _pictures(figure: Pictures) -> Any:
    n_columns = max(map(len, figure.rows.values()))
    canvas = _canvas(2 + 0.9 * n_columns, 0.5 + 0.95 * len(figure.rows))
    grid = canvas.subplots(len(figure.rows), n_columns, squeeze=False)
    for axes_row, (name, images) in zip(grid, figure.rows.items(), strict=True):
        for axes in axes_row:
            axes.set_axis_off()
        for axes, image in zip(axes_row, images, strict=False):
            axes.imshow(image, cmap="gray", interpolation="nearest")
        axes_row[0].text(-0.1, 0.5, name, transform=axes_row[0].transAxes, ha="right", va="center", fontsize=8)
    return canvas


def _finish(axes: Any, x_label: str, y_label: str, lines: Any) -> None:
    for name, value in (lines or {}).items():
        axes.axhline(value, color="#666", linestyle="--", linewidth=1)
        position = {"xy": (1.005, value), "xycoords": ("axes fraction", "data"), "va": "center"}
        axes.annotate(mathtext(name), **position, fontsize=7, color="#444")
    axes.set_xlabel(mathtext(x_label))
    axes.set_ylabel(mathtext(y_label))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
