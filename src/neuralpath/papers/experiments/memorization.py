"""Experiment `memorization`: fitting random labels with fixed random gates, against depth and width (P0 2.3, 4.2)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.random_labels import REMAINING, FitPair, Inputs, Memorize
from neuralpath.papers.experiments.seed_tables import finished, mean_curves, spread
from neuralpath.papers.experiments.settings import check_given, check_integers, check_positive
from neuralpath.papers.experiments.specs import DataSpec
from neuralpath.papers.experiments.summary_items import Cell, Curve, Curves, SummaryItem, Table
from neuralpath.papers.runs import Task

_DATA = DataSpec("mnist")


@dataclass(frozen=True)
class MemorizationConfig:
    """Fixed random gates: training speed, spectrum and off-diagonal entries against depth and width."""

    data: DataSpec = _DATA
    inputs: tuple[Inputs, ...] = ("images", "sphere")
    """Where the inputs come from; all are scaled to length 1, and their labels are random signs."""
    n_examples: int = 200
    widths: tuple[int, ...] = (25, 100, 500)
    depths: tuple[int, ...] = (2, 3, 4, 6, 8, 12, 16, 20)
    n_steps: int = 1000
    """Steps of gradient descent over all examples."""
    lr: float = 0.1
    """Learning rate as a share of 1 / (largest eigenvalue of the kernel before training)."""
    pair_steps: int = 2000
    """Steps for the pair that cannot be memorized without biases."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)

    def __post_init__(self) -> None:
        check_given(inputs=self.inputs, widths=self.widths, depths=self.depths)
        check_integers(1, n_examples=self.n_examples, widths=self.widths, n_steps=self.n_steps)
        check_integers(1, pair_steps=self.pair_steps)
        check_integers(2, depths=self.depths)
        check_positive(lr=self.lr)


def tasks(config: MemorizationConfig) -> tuple[Task, ...]:
    """A run for each kind of input, width, depth and seed, and the pair with and without biases."""
    return (
        *(
            _task(config, inputs, width, depth, seed)
            for inputs in config.inputs
            for width in config.widths
            for depth in config.depths
            for seed in config.seeds
        ),
        *(_pair(config, bias, seed) for bias in (False, True) for seed in config.seeds),
    )


def _task(config: MemorizationConfig, inputs: Inputs, width: int, depth: int, seed: int) -> Memorize:
    return Memorize(config.data, inputs, config.n_examples, width, depth, config.n_steps, config.lr, seed)


def _pair(config: MemorizationConfig, bias: bool, seed: int) -> FitPair:
    return FitPair(32, 3, bias, config.pair_steps, seed)


def summary(config: MemorizationConfig, results: Results) -> tuple[SummaryItem, ...]:
    """Tables of speed, spectrum and entries, curves of each against depth, and the pair."""
    note = finished(tasks(config), results)
    parts: list[SummaryItem] = []
    for inputs in config.inputs:
        runs = {
            (width, depth): [
                results[task] for seed in config.seeds if (task := _task(config, inputs, width, depth, seed)) in results
            ]
            for width in config.widths
            for depth in config.depths
        }
        parts += [_speeds(config, inputs, runs, note), _entry_table(inputs, runs, note)]
        parts += _figures(config, inputs, runs, note)
    return (*parts, _pair_table(config, results, note))


_Runs = dict[tuple[int, int], list[dict[str, Any]]]


def _speeds(config: MemorizationConfig, inputs: Inputs, runs: _Runs, note: str) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for (width, depth), found in runs.items():
        reached = [[run["reached"][f"{share:g}"] for run in found] for share in REMAINING]
        rows.append(
            (
                width,
                depth,
                *(
                    cell
                    for steps in reached
                    for cell in (spread(steps), sum(step is None for step in steps) if found else None)
                ),
                spread(100 * run["errors"][-1] for run in found if run["errors"][-1] is not None),
                spread(100 * told[-1] for run in found if (told := run["predicted_by"]["expected"])),
                sum(run["diverged"] for run in found),
            )
        )
    return Table(
        f"Training behind fixed random gates ({inputs})",
        (
            "width",
            "depth",
            *(
                column
                for share in REMAINING
                for column in (f"steps to {100 * share:g} % of the error", f"runs that never got to {100 * share:g} %")
            ),
            "error left in %",
            "the expected kernel says",
            "diverged",
        ),
        tuple(rows),
        f"Random signs as labels for {config.n_examples} inputs of length 1; {config.n_steps} steps of gradient descent"
        f" with {config.lr:g} / (largest eigenvalue of the kernel). P0 says that more depth first helps and then "
        "hurts, without numbers. Means of steps are of the runs that got there; errors of about 1e-5 % are rounding. "
        f"{note}",
    )


def _entry_table(inputs: Inputs, runs: _Runs, note: str) -> Table:
    names = ("diagonal_mean", "diagonal_deviation", "suppression", "suppression_in_the_limit")
    rows: list[tuple[Cell, ...]] = [
        (
            width,
            depth,
            *(spread(run["entries"][name] for run in found) for name in names),
            spread(run["distance"] for run in found),
            spread(_condition(run, "expected") for run in found),
            spread(_condition(run, "drawn") for run in found),
        )
        for (width, depth), found in runs.items()
    ]
    return Table(
        f"Entries and spectrum of the kernel divided by d ({inputs})",
        (
            "width",
            "depth",
            "diagonal",
            "its deviation",
            "off-diagonal / inner product",
            "infinite width",
            "distance of the draw from its mean",
            "median / largest eigenvalue, mean",
            "of the draw",
        ),
        tuple(rows),
        f"The diagonal should tend to 1, and off-diagonal entries be suppressed by the product of overlaps. {note}",
    )


def _condition(run: dict[str, Any], name: str) -> float:
    """The median eigenvalue over the largest: how fast most directions are learned at the largest stable rate."""
    values = run["spectrum"][name]
    return float(values[len(values) // 2] / values[0])


def _figures(config: MemorizationConfig, inputs: Inputs, runs: _Runs, note: str) -> list[Curves]:
    def against_depth(read: Callable[[dict[str, Any]], float | None]) -> tuple[Curve, ...]:
        n_seeds = max((len(found) for found in runs.values()), default=0)
        return mean_curves(
            {
                f"w = {width}": [
                    {
                        float(depth): read(runs[width, depth][k])
                        for depth in config.depths
                        if k < len(runs[width, depth])
                    }
                    for k in range(n_seeds)
                ]
                for width in config.widths
            }
        )

    suppression = (
        *against_depth(lambda run: run["entries"]["suppression"]),
        *mean_curves(
            {
                "infinite width": [
                    {float(depth): run["entries"]["suppression_in_the_limit"]}
                    for (_, depth), found in runs.items()
                    for run in found
                ]
            }
        ),
    )
    return [
        Curves(
            f"Steps to {100 * min(REMAINING):g} % of the error ({inputs})",
            "depth",
            "steps of gradient descent",
            against_depth(lambda run: run["reached"][f"{min(REMAINING):g}"] or config.n_steps),
            log="y",
            note=f"Runs that never got there count with all their {config.n_steps} steps. {note}",
        ),
        Curves(
            f"Error left after training ({inputs})",
            "depth",
            "share of the first error",
            against_depth(lambda run: run["errors"][-1]),
            note,
            "y",
        ),
        Curves(
            f"Off-diagonal suppression ({inputs})",
            "depth",
            "entry over inner product of the inputs",
            suppression,
            note,
            "y",
        ),
        *(_courses(config, inputs, width, runs, note) for width in config.widths),
        *(_spectra(config, inputs, width, runs, note) for width in sorted({min(config.widths), max(config.widths)})),
    ]


def _courses(config: MemorizationConfig, inputs: Inputs, width: int, runs: _Runs, note: str) -> Curves:
    courses = {
        f"d = {depth}": [
            dict(zip(map(float, run["moments"]), run["errors"], strict=True)) for run in runs[width, depth]
        ]
        for depth in _few(config.depths)
    }
    return Curves(
        f"Training ({inputs}), w = {width}", "step", "share of the first error", mean_curves(courses), note, "xy"
    )


def _spectra(config: MemorizationConfig, inputs: Inputs, width: int, runs: _Runs, note: str) -> Curves:
    spectra = {
        f"d = {depth}, {name}": [
            {float(k): value for k, value in enumerate(run["spectrum"][name], 1)} for run in runs[width, depth]
        ]
        for name in ("expected", "drawn")
        for depth in _few(config.depths)
    }
    return Curves(
        f"Spectra of the kernel over d ({inputs}), w = {width}",
        "eigenvalue number",
        "eigenvalue",
        mean_curves(spectra),
        note,
        "xy",
    )


def _few(depths: tuple[int, ...], most: int = 4) -> tuple[int, ...]:
    """Up to four depths from the smallest to the largest: more curves in one figure are not legible."""
    ordered = sorted(set(depths))
    n = min(most, len(ordered))
    return tuple(ordered[round(k * (len(ordered) - 1) / max(n - 1, 1))] for k in range(n))


def _pair_table(config: MemorizationConfig, results: Results, note: str) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for bias in (False, True):
        runs = [results[task] for seed in config.seeds if (task := _pair(config, bias, seed)) in results]
        rows.append(
            (
                "with" if bias else "without",
                spread(run["outputs"][0] for run in runs),
                spread(run["outputs"][1] for run in runs),
                spread(run["loss"] for run in runs),
            )
        )
    return Table(
        "The pair (x, 1), (x / 2, -1)",
        ("biases", "f(x)", "f(x / 2)", "sum of squares"),
        tuple(rows),
        f"Without biases f(x / 2) = f(x) / 2, so that the sum of squares is at least 1.8, at f(x) = 0.4. {note}",
    )


_PAPER = MemorizationConfig()

EXPERIMENT = Experiment(
    name="memorization",
    description="how fast random labels are fitted behind fixed random gates, against depth and width",
    source="P0 sections 2.3 and 4.2",
    config=MemorizationConfig,
    presets={
        "smoke": MemorizationConfig(
            data=DataSpec("digits"),
            inputs=("images",),
            n_examples=20,
            widths=(8, 64),
            depths=(2, 6),
            n_steps=40,
            pair_steps=300,
            seeds=(0, 1, 2),
        ),
        "cpu": _PAPER,
        "paper": _PAPER,
    },
    reduced={"smoke": "embedded digits, 20 examples, few depths and steps"},
    tasks=tasks,
    summary=summary,
)

run = EXPERIMENT.run
