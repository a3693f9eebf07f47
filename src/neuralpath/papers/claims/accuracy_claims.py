"""Claims about test accuracies with other gates: C8 to C11, C14, C23 to C25, C27, C28, C30 to C34."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, product

import neuralpath.papers.experiments as experiments
from neuralpath.papers.claims import bounds, estimates
from neuralpath.papers.claims.estimates import Comparison, Gap, Values, counted, printed_difference, robust, too_few
from neuralpath.papers.claims.rows import Part, Records, claim
from neuralpath.papers.experiments import Results, Spread, ValueInputName, accuracies, gate_orders, label_noise, regimes

# The regimes of gates


@dataclass(frozen=True)
class RegimeSetting:
    """One network on one data set with one optimizer, in all regimes that were run."""

    config: regimes.RegimesConfig
    part: regimes.RegimesPart
    net: experiments.NetSpec
    rows: dict[str, experiments.Seeds]
    results: Results

    @property
    def where(self) -> str:
        """Label for tables."""
        return f"{self.part.data.label} {self.net.label} {self.part.recipe.label}"

    def printed(self, regime: str) -> experiments.Printed | None:
        """The papers' accuracy."""
        return regimes.printed_accuracy(self.part.data, self.net, self.part.recipe.label, regime)

    def gap(self, first: str, second: str) -> Gap:
        """First minus second accuracy, beside the papers' difference."""
        ours = (accuracies(self.rows.get(row, {}), self.results) for row in (first, second))
        figure = printed_difference(self.printed(first), self.printed(second))
        return Gap.between(self.part.data, self.where, *ours, printed=figure)

    def not_below_relu(self, row: str, bound: float) -> list[Comparison]:
        """Compare a regime with the ReLU network: at most this many points below."""
        compared = self.gap(row, "ReLU").within(-bound)
        relu, other = (self.rows.get(name, {}) for name in ("ReLU", row))
        return estimates.against_fitted_relu(compared, relu, row, other, self.results)


def regime_settings(records: Records) -> Iterator[RegimeSetting]:
    """Every network of every sweep of `regimes`."""
    for sweep in records.of("regimes"):
        for part in sweep.config.chosen:
            for net in part.nets:
                yield RegimeSetting(sweep.config, part, net, regimes.rows_of(sweep.config, part, net), sweep.results)


@claim("accuracy of FR-II, in %", "ReLU - FR-II", "DL - FR-II")
def c8(records: Records, generalizes: Part, relu: Part, decoupled: Part) -> None:
    """C8: random gates generalize, worse than learned ones."""
    for setting in regime_settings(records):
        if ours := experiments.accuracy(setting.rows.get("FR-II", {}), setting.results):
            figures = estimates.beside(ours.mean, setting.printed("FR-II"))
            text, few = f"{ours.mean:.2f} ({counted(ours.n, 'seed')})", too_few(setting.part.data, ours.n)
            outcome = estimates.above(ours, bounds.ABOVE_GUESSING, single=bounds.SINGLE_SEED_ERROR)
            generalizes.append(Comparison(setting.where, text, outcome, **figures, excluded=few))
        relu += setting.gap("ReLU", "FR-II").above()
        decoupled += setting.gap("DL", "FR-II").above()


@claim("FL - ReLU")
def c9(records: Records, part: Part) -> None:
    """C9: learned gates recover the network."""
    for setting in regime_settings(records):
        part += setting.not_below_relu("FL", bounds.RECOVERED)


@claim("FR-II - FR-DI")
def c10(records: Records, part: Part) -> None:
    """C10: independent and dependent random gates are equal."""
    for setting in regime_settings(records):
        part += setting.gap("FR-II", "FR-DI").within(-bounds.NO_DIFFERENCE, bounds.NO_DIFFERENCE)


@claim("FR-II - FL random labels", "FR-II - FL random pixels")
def c14(records: Records, *parts: Part) -> None:
    """C14: gates learned on random data are worse than random gates, if the networks have fitted these data."""
    variants: tuple[experiments.Variant, ...] = ("random-labels", "random-pixels")
    for setting in regime_settings(records):
        goal = 100 * setting.config.source_accuracy
        for variant, part in zip(variants, parts, strict=True):
            sources = regimes.sources_of(setting.config, setting.part, setting.net).get(variant, {})
            reached = accuracies(sources, setting.results, "last", "train_accuracy").values()
            if not reached:
                continue
            compared = setting.gap("FR-II", f"FL {variant.replace('-', ' ')}").above()
            compared = estimates.with_fit(compared, "their networks", sources, setting.results)
            n_fitted = sum(value >= goal for value in reached)
            if n_fitted < len(reached):
                reason = f"{n_fitted} of {counted(len(reached), 'network')} fitted {goal:g} % of their random data"
                compared = [replace(comparison, excluded=reason) for comparison in compared]
            part += compared


@claim("DL - ReLU")
def c27(records: Records, part: Part) -> None:
    """C27: decoupled learning is near ReLU."""
    for setting in regime_settings(records):
        part += setting.not_below_relu("DL", bounds.DECOUPLED)


@claim("FL - ReLU", "DL - ReLU", "FL - FR-II", "ones - image")
def c28(records: Records, recovered: Part, decoupled: Part, learned: Part, ones: Part) -> None:
    """C28: C9, C24, C26 and C27 for a residual network."""
    for sweep in records.of("residual"):
        config, data = sweep.config, sweep.config.data
        where, bound = f"{data.label} {config.net.label}", robust(data)
        reached = {row: accuracies(runs, sweep.results) for row, runs in experiments.residual.rows_of(config).items()}
        fl, dl, fr, relu = (reached.get((regime, "image"), {}) for regime in ("FL", "DL", "FR-II", "ReLU"))
        recovered += Gap.between(data, where, fl, relu).within(-bounds.RECOVERED)
        decoupled += Gap.between(data, where, dl, relu).within(-bounds.DECOUPLED)
        learned += Gap.between(data, where, fl, fr).above()
        for regime in config.regimes:
            inputs = (reached.get((regime, value_input), {}) for value_input in ("ones", "image"))
            ones += Gap.between(data, f"{where} {regime}", *inputs).within(-bound, bound)


# Gates of other epochs, positions and kinds


@claim("FL, last stage - first", "FL, from stage to stage", "FL from below the CNTK to above")
def c11(records: Records, whole: Part, steps: Part, around: Part) -> None:
    """C11: gates improve with training; the printed CNTK stands beside the papers' own network and data only."""
    for sweep in records.of("stages"):
        config, paper = sweep.config, regimes.PAPER_GCONV
        data, where = config.data, f"{config.data.label} {config.net.label}"
        reached = {stage: accuracies(experiments.stages.gated(config, stage), sweep.results) for stage in config.stages}
        first, last = config.stages[0], config.stages[-1]
        figure = printed_difference(*(experiments.stages.printed_accuracy(config, stage) for stage in (last, first)))
        ends = f"{where}, epoch {last} - {first}", reached[last], reached[first]
        whole += Gap.between(data, *ends, printed=figure).above()
        for early, late in pairwise(config.stages):
            steps += Gap.between(data, f"{where}, epoch {late} - {early}", reached[late], reached[early]).above()
        cntk = config.cntk
        if cntk is None and (data, config.net) == (paper.data, paper.nets[0]):
            limit = experiments.printed(architecture="CNTK", dataset="CIFAR-10")
            cntk = None if limit is None else limit.accuracy
        if cntk is not None:
            for name, stage, sign in (("CNTK - first stage", first, -1.0), ("last stage - CNTK", last, 1.0)):
                estimate = experiments.spread(sign * (value - cntk) for value in reached[stage].values())
                around += Gap(data, f"{where}, {name}", estimate).above(named=0.0)


@claim("reversed gates and random input - ReLU")
def c25(records: Records, part: Part) -> None:
    """C25: reversed gates and a random input."""
    for sweep in records.of("hidden-outputs"):
        rows, data, results = experiments.hidden_outputs.rows_of(sweep.config), sweep.config.data, sweep.results
        relu, reverse = rows["ReLU"], rows[experiments.hidden_outputs.REVERSED]
        where, ours = f"{data.label} {sweep.config.net.label}", (accuracies(runs, results) for runs in (reverse, relu))
        compared = Gap.between(data, where, *ours, printed=0.0).within(-robust(data))
        part += estimates.against_fitted_relu(compared, relu, "reversed", reverse, results)


@claim("rotated masks - unchanged masks", "repeated masks - unchanged masks")
def c30(records: Records, rotated: Part, tiled: Part) -> None:
    """C30: rotated and tiled masks, against unchanged masks at the same width of the weights."""
    for sweep in records.of("tilings"):
        config, data, bound = sweep.config, sweep.config.data, robust(sweep.config.data)
        own, *shifts = config.shifts
        for regime in config.regimes:
            reached = {}
            for cell in product(config.shifts, config.tiles):
                reached[cell] = accuracies(experiments.tilings.gated(config, regime, *cell), sweep.results)
            for tile in config.tiles:
                where, unchanged = f"{data.label} {config.net.label} {regime}, width {tile}", reached[own, tile]
                for shift in shifts:
                    turned = f"{where}, rotated by {'-'.join(map(str, shift))}"
                    rotated += Gap.between(data, turned, reached[shift, tile], unchanged).within(-bound)
                if tile != config.tiles[0]:
                    tiled += Gap.between(data, where, unchanged, reached[own, config.tiles[0]]).within(-bound)


@claim("linear gates - ReLU")
def c34(records: Records, part: Part) -> None:
    """C34: linear feature networks."""
    for sweep in records.of("linear-gating"):
        for setting in experiments.chosen_parts(sweep.config.parts, sweep.config.only):
            rows = experiments.linear_gating.rows_of(sweep.config, setting)
            ours = (accuracies(rows[name], sweep.results) for name in ("DLGN", "ReLU"))
            where = f"{setting.data.label} {setting.net.label}"
            compared = Gap.between(setting.data, where, *ours).within(-bounds.DECOUPLED)
            part += estimates.against_fitted_relu(compared, rows["ReLU"], "DLGN", rows["DLGN"], sweep.results)


# Orders of the gate layers

ALL_REGIMES: tuple[experiments.GatedRegime, ...] = ("FL", "FR-II", "FR-DI", "DL")


@dataclass(frozen=True)
class OrderSetting:
    """One network with its gate layers in all orders, in one regime."""

    config: gate_orders.GateOrdersConfig
    part: gate_orders.GateOrdersPart
    regime: experiments.GatedRegime
    results: Results

    @property
    def where(self) -> str:
        """Label for tables."""
        return f"{self.part.data.label} {self.part.net.label}"

    def orders(self, value_input: ValueInputName) -> dict[int, float]:
        """Accuracies by the order of the gates, of the first seed."""
        return accuracies(gate_orders.by_order(self.config, self.part, self.regime, value_input), self.results)

    def seeds(self, value_input: ValueInputName) -> dict[int, float]:
        """Accuracies by seed, in the layers' own order."""
        return accuracies(gate_orders.by_seed(self.config, self.part, self.regime, value_input), self.results)

    def counted(self, n: int) -> str:
        """A number of orders."""
        return f"{counted(n, 'order')} of seed {self.part.seeds[0]}"


def _order_settings(records: Records) -> Iterator[OrderSetting]:
    """Every part of `gate-orders` in every regime that it has."""
    for sweep in records.of("gate-orders"):
        for part in sweep.config.chosen:
            for regime in ALL_REGIMES:
                if regime in (*part.regimes, *part.more_regimes):
                    yield OrderSetting(sweep.config, part, regime, sweep.results)


@claim(
    *(f"{regime} in all orders, in %" for regime in ALL_REGIMES),
    *(f"{regime}, other orders - own order" for regime in ALL_REGIMES),
)
def c23(records: Records, *parts: Part) -> None:
    """C23: the order of the gate layers does not matter."""
    for setting in _order_settings(records):
        index = ALL_REGIMES.index(setting.regime)
        all_orders, other_orders = parts[index], parts[index + len(ALL_REGIMES)]
        for value_input in setting.part.inputs:
            all_orders += _over_orders(setting, value_input)
            other_orders += _other_orders(setting, value_input)
        both = gate_orders.both_inputs(setting.config, setting.part, setting.regime, setting.results)
        if both is not None:  # what the papers print; it says nothing about single orders
            ours = Spread.of(both)
            text = f"{ours.mean:.2f} ({counted(ours.n, 'network')})"
            figures = estimates.beside(ours.mean, gate_orders.printed_accuracy(setting.part, setting.regime))
            excluded = "a mean over all orders and both inputs, as the papers' figure"
            where = f"{setting.where}, mean of both inputs"
            all_orders.append(Comparison(where, text, "inconclusive", **figures, excluded=excluded))


def _over_orders(setting: OrderSetting, value_input: ValueInputName) -> list[Comparison]:
    """Compare each order with the mean; a distance counts only if seeds alone do not move the accuracy as much."""
    data, values = setting.part.data, list(setting.orders(value_input).values())
    if not values:
        return []
    ours = Spread.of(values)
    deviation, farthest = ours.deviation or 0.0, max(abs(value - ours.mean) for value in values)
    seeds = experiments.spread(setting.seeds(value_input).values())
    measured = None if seeds is None else seeds.deviation
    noise = bounds.SINGLE_RUN_DEVIATION if measured is None else measured
    outcome: estimates.Outcome = "supports"
    if farthest > robust(data):
        is_doubtful = deviation > bounds.MARGIN * noise
        outcome = "contradicts" if deviation > bounds.SIGMAS * noise else "doubtful" if is_doubtful else "inconclusive"
    text = (
        f"{ours.mean:.2f}, farthest order {farthest:.2f} away ({setting.counted(ours.n)}; deviation over orders "
        f"{deviation:.2f}, over seeds {noise:.2f}{' assumed for one' if measured is None else ''})"
    )
    few = too_few(data, ours.n, least=bounds.MIN_ORDERS, noun="order")
    return [Comparison(f"{setting.where}, {value_input}", text, outcome, value=ours.mean, excluded=few)]


def _other_orders(setting: OrderSetting, value_input: ValueInputName) -> list[Comparison]:
    """Compare the mean of all other orders, with one seed, with the layers' own order over several seeds.

    The contribution of the seed is common to all other orders, so their number does not average it out: it enters the
    error with 1 - 1/n of its variance. How much of the deviation between seeds it makes is unknown; here it is all.
    """
    data, bound, orders = setting.part.data, robust(setting.part.data), setting.orders(value_input)
    others = experiments.spread(value for index, value in orders.items() if index != gate_orders.OWN)
    own = experiments.spread(setting.seeds(value_input).values())
    if others is None or own is None:
        return []
    error = None
    if own.deviation is not None and others.error is not None:
        error = math.hypot(own.deviation * math.sqrt(1 - 1 / own.n), others.error)
    few = too_few(data, own.n) or too_few(data, others.n, least=bounds.MIN_ORDERS - 1, noun="other order")
    estimate = Spread(others.mean - own.mean, None, error, own.n)
    compared = Gap(data, f"{setting.where}, {value_input}", estimate, excluded=few).within(-bound, bound)
    return [replace(comparison, ours=f"{comparison.ours}, {setting.counted(others.n)}") for comparison in compared]


@claim(*(f"{regime}, ones - image" for regime in ALL_REGIMES))
def c24(records: Records, *parts: Part) -> None:
    """C24: the value network's input does not matter; paired by order with one seed, and by seed in the own order."""
    inputs: tuple[ValueInputName, ...] = ("ones", "image")
    for setting in _order_settings(records):
        part, where = parts[ALL_REGIMES.index(setting.regime)], setting.where
        data, bound = setting.part.data, robust(setting.part.data)
        by_order = f"{where}, orders of seed {setting.part.seeds[0]}"
        part += Gap.between(data, by_order, *map(setting.orders, inputs), noun="order").within(-bound, bound)
        part += Gap.between(data, f"{where}, own order", *map(setting.seeds, inputs)).within(-bound, bound)


# Noisy labels


@dataclass(frozen=True)
class NoiseLevel:
    """One network at one level of label noise."""

    part: label_noise.LabelNoisePart
    noise: float
    results: Results

    def gap(self, first: str, second: str) -> Gap:
        """First minus second accuracy of models, such as ``M2``, ``M2 without noise``, ``M1 best`` or ``M1 end``."""
        where = f"{self.part.data.label} {self.part.net.label}, noise {round(100 * self.noise)} %"
        (ours, figure), (other_ours, other_figure) = map(self._accuracy, (first, second))
        return Gap.between(self.part.data, where, ours, other_ours, printed=printed_difference(figure, other_figure))

    def _accuracy(self, name: str) -> tuple[Values, experiments.Printed | None]:
        """Accuracies by seed, and the papers' figure; they print only the convolutional network on CIFAR-10."""
        row = name.removesuffix(" without noise")
        noise = self.noise if row == name else 0.0
        runs = label_noise.runs_of(self.part, noise) if noise in self.part.noises else {}
        model: label_noise.Model = row.split()[0]  # type: ignore[assignment]
        ours = accuracies(runs.get(model, {}), self.results, "last" if row.endswith("end") else "best")
        if self.part.data.name != "cifar10" or self.part.net.family != "gconv":
            return ours, None
        return ours, experiments.printed(paper="P3", where="table 2", regime=f"{row} noise {round(100 * noise)}")

    def with_upstream(self, comparisons: list[Comparison], upstream: label_noise.Model = "M1") -> list[Comparison]:
        """Add how much of its own labels the upstream network has fitted."""
        runs = label_noise.runs_of(self.part, self.noise)[upstream]
        return estimates.with_fit(comparisons, upstream, runs, self.results)


def _levels(records: Records) -> Iterator[NoiseLevel]:
    """Every level of noise of every network."""
    for sweep in records.of("label-noise"):
        for part in sweep.config.chosen:
            for noise in part.noises:
                yield NoiseLevel(part, noise, sweep.results)


@claim("M3 - M2")
def c31(records: Records, part: Part) -> None:
    """C31: random labels with fixed gates."""
    for level in _levels(records):
        part += level.with_upstream(level.gap("M3", "M2").within(-bounds.RANDOM_LABELS_COST), "M3 upstream")


@claim("M5 - M4", "M2 without noise - M4", "M3 without noise - M4")
def c32(records: Records, same: Part, below: Part, fixed: Part) -> None:
    """C32: random labels with free gates."""
    for level in _levels(records):
        if level.noise > 0:
            same += level.with_upstream(level.gap("M5", "M4").within(-bounds.SAME_GATES, bounds.SAME_GATES))
            below += level.with_upstream(level.gap("M2 without noise", "M4").above())
            fixed += level.with_upstream(level.gap("M3 without noise", "M4").above())


@claim("M1, peak - end", "M2 - end of M1")
def c33(records: Records, falls: Part, gates: Part) -> None:
    """C33: the best epoch of M1 against its last, and M2 against the last of M1."""
    for level in _levels(records):
        if level.noise > 0:
            falls += level.with_upstream(level.gap("M1 best", "M1 end").above(bounds.PEAK))
            gates += level.with_upstream(level.gap("M2", "M1 end").above(bounds.FAR_ABOVE))
