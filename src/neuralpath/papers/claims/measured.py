"""Checks of quantities that are measured, not accuracies: ratios, distances, powers."""

import math
from collections.abc import Mapping

from neuralpath.papers.claims.checks import Check
from neuralpath.papers.claims.compared import counted
from neuralpath.papers.claims.rules import above, exactly, too_few, within
from neuralpath.papers.experiments import Spread, paired

Values = Mapping[int, float]
"""A positive quantity by seed."""

A_FACTOR = "a factor of"
"""What the figure of a comparison by logarithms is: the second quantity is the first times it."""


def _describe(value: Spread, what: str = "seed") -> str:
    """A mean with its standard error."""
    error = "" if value.error is None else f" ± {value.error:.2g}"
    return f"{value.mean:.3g}{error} ({counted(value.n, what)})"


_LEAST = 1e-12
"""What counts for a quantity that is 0, or so small that it is rounding."""


def logarithms(values: Values) -> dict[int, float]:
    """Of a positive quantity by seed."""
    return {seed: math.log(max(value, _LEAST)) for seed, value in values.items()}


def is_smaller(where: str, first: Values, second: Values) -> tuple[Check, ...]:
    """A check that a positive quantity is smaller in the first case than in the second, by its logarithm and by seed.

    None where no seed has both.
    """
    found = paired(logarithms(second), logarithms(first))
    if found is None:
        return ()
    fall, n = found.difference, found.difference.n
    means = [Spread.of([values[seed] for seed in found.seeds]).mean for values in (second, first)]
    error = "" if fall.error is None else f", log ratio {-fall.mean:.3g} ± {fall.error:.2g}"
    ours = f"{means[0]:.3g} to {means[1]:.3g}{error} ({counted(n, 'seed')})"
    return (Check(where, ours, above(fall), value=math.exp(-fall.mean), value_is=A_FACTOR, aside=too_few(None, n)),)


def lies_within(where: str, values: Values, low: float, high: float) -> tuple[Check, ...]:
    """A check that the mean over seeds lies within bounds; none without a value."""
    if not values:
        return ()
    ours = Spread.of(list(values.values()))
    return (Check(where, _describe(ours), within(ours, low, high), value=ours.mean, aside=too_few(None, ours.n)),)


def is_exact(where: str, ours: str, holds: bool, n_seeds: int) -> tuple[Check, ...]:
    """A check of a statement that every run must fulfil; none without a run."""
    return (Check(where, ours, exactly(holds), aside=too_few(None, n_seeds)),) if n_seeds else ()
