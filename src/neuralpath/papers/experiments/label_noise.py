"""Experiment `label-noise`: training on noisy labels, then on true ones, with gates free or fixed."""

from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from neuralpath._configs import ADDED_LATER
from neuralpath.papers.experiments import seed_tables as tables, specs
from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.seed_tables import Seeds, spread
from neuralpath.papers.experiments.settings import check_integers, check_shares, chosen_parts
from neuralpath.papers.experiments.specs import DataSpec, NetSpec, TrainingRecipe, data_of_seed
from neuralpath.papers.experiments.summary_items import Cell, SummaryItem, Table
from neuralpath.papers.experiments.trained import TrainGated, TrainNetwork
from neuralpath.papers.runs import Task, Weights

Model = Literal["M1", "M2", "M3 upstream", "M3", "M4", "M5"]
MODELS: tuple[Model, ...] = get_args(Model)
UPSTREAM: tuple[Model, ...] = ("M1", "M3 upstream")
Levels = dict[float, dict[Model, Seeds]]
"""The runs of each level of noise, by model and seed."""
ABOUT = (
    "M1: ReLU network on noisy labels. M2: its gates fixed, weights on true labels. M3: M1's gates fixed, weights on "
    "100 % random labels, then on true ones. M4: M1 trained on with true labels. M5: M4's gates fixed, weights on true "
    "labels. Without noise there is no M4 and no M5."
)


@dataclass(frozen=True)
class LabelNoisePart:
    """One network on one data set."""

    name: str
    data: DataSpec
    net: NetSpec
    recipe: TrainingRecipe
    """Its epochs are those of training on true labels: M2, M4, M5, and M3 downstream."""
    noises: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75)
    """Shares of the training images that get a random label."""
    seeds: tuple[int, ...] = (0, 1, 2)
    upstream_epochs: int = 200
    """Largest number of epochs on noisy labels, for M1, and on random labels, for M3."""
    upstream_accuracy: float = 0.95
    """Upstream training ends when this share of its own, noisy labels is fitted."""
    clean_accuracy: float = 0.95
    """The same for M1 without noise; a higher share where the true labels are fitted within an epoch or two."""
    measured_every: int = field(default=1, metadata=ADDED_LATER)
    """Epochs upstream between measurements of the test data. Beyond 1 the share that is fitted is that of the epoch's
    own passes, which takes a convolutional network half the time of measuring all data after each epoch."""

    def __post_init__(self) -> None:
        if bad := [noise for noise in self.noises if not 0 <= noise <= 1]:
            raise ValueError(f"`noises` are shares from 0 to 1, got {bad}.")
        check_integers(1, upstream_epochs=self.upstream_epochs, measured_every=self.measured_every)
        check_shares(upstream_accuracy=self.upstream_accuracy, clean_accuracy=self.clean_accuracy)


@dataclass(frozen=True)
class LabelNoiseConfig:
    """Fully connected and convolutional parts."""

    parts: tuple[LabelNoisePart, ...]
    only: tuple[str, ...] = ()
    """Names of the parts to run; all by default."""

    def __post_init__(self) -> None:
        chosen_parts(self.parts, self.only)  # which refuses unknown names

    @property
    def chosen(self) -> tuple[LabelNoisePart, ...]:
        """The parts to run."""
        return chosen_parts(self.parts, self.only)


def models(part: LabelNoisePart, noise: float, seed: int) -> dict[Model, Task]:
    """The runs of one level of noise and one seed."""
    true = data_of_seed(part.data, seed)
    noisy = true if noise == 0 else data_of_seed(replace(part.data, noise=noise), seed)
    random = data_of_seed(replace(part.data, variant="random-labels"), seed)
    downstream = part.recipe.training()
    goals = (part.upstream_accuracy, part.clean_accuracy)
    until, clean = (part.recipe.training_until(goal, part.upstream_epochs, part.measured_every) for goal in goals)

    m1 = TrainNetwork(noisy, part.net, clean if noise == 0 else until, seed)
    gates = Weights(m1, "last")
    m2 = TrainGated(true, part.net, downstream, "FL", seed, gates)
    m3_upstream = TrainGated(random, part.net, until, "FL", seed, gates)
    m3 = replace(m2, start=Weights(m3_upstream, "last"))
    tasks: dict[Model, Task] = {"M1": m1, "M2": m2, "M3 upstream": m3_upstream, "M3": m3}
    if noise == 0:
        return tasks
    m4 = TrainNetwork(true, part.net, downstream, seed, start=gates)
    return {**tasks, "M4": m4, "M5": m4.gated("FL", downstream, which="last")}


def runs_of(part: LabelNoisePart, noise: float) -> dict[Model, Seeds]:
    """The runs of one level of noise, by model and seed."""
    by_seed = {seed: models(part, noise, seed) for seed in part.seeds}
    names = [model for model in MODELS if noise > 0 or model not in ("M4", "M5")]
    return {model: {seed: tasks[model] for seed, tasks in by_seed.items()} for model in names}


def tasks(config: LabelNoiseConfig) -> tuple[Task, ...]:
    """All runs, each once."""
    levels = (runs_of(part, noise) for part in config.chosen for noise in part.noises)
    return tables.each_once(runs for models in levels for runs in models.values())


def summary(config: LabelNoiseConfig, results: Results) -> tuple[SummaryItem, ...]:
    """For each part the accuracies, how far upstream training went, the claims' comparisons, and the curves."""
    items: list[SummaryItem] = []
    for part in config.chosen:
        levels = {noise: runs_of(part, noise) for noise in part.noises}
        about = f"{part.data.label} {part.net.label}"
        items += [
            _table(part, levels, results, about),
            _upstream_table(part, levels, results, about),
            tables.comparisons(f"Gates or weights: {about}", _pairs(levels), results),
            tables.accuracy_figure(f"Upstream, on noisy labels: {about}", _named(levels, UPSTREAM), results),
        ]
        for noise, runs in levels.items():
            title = f"Downstream, on true labels, after noise of {_percent(noise)}: {about}"
            items.append(tables.accuracy_figure(title, _named({noise: runs}, ("M2", "M3", "M4", "M5")), results))
    return tuple(items)


def _percent(noise: float) -> str:
    return f"{round(100 * noise)} %"


def _table(part: LabelNoisePart, levels: Levels, results: Results, about: str) -> Table:
    def printed(model: str, noise: float) -> tables.Printed | None:
        name, regime = "CNN 4x128" if part.net.family == "gconv" else "", f"{model} noise {round(100 * noise)}"
        return tables.printed(where="table 2", architecture=name, dataset=part.data.name, regime=regime)

    rows: list[dict[str, Cell]] = []
    for noise, runs in levels.items():
        for model in (model for model in runs if model != "M3 upstream"):
            best, last = (tables.accuracy(runs[model], results, when) for when in ("best", "last"))
            best_figure = printed("M1 best" if model == "M1" else model, noise)
            last_figure = printed("M1 end", noise) if model == "M1" else None
            row = {"noise": _percent(noise), "model": model, "best epoch %": best, **tables.beside(best, best_figure)}
            rows.append({**row, "last epoch %": last, **tables.beside(last, last_figure, ", last")})
    finished = tables.finished((seeds for runs in levels.values() for seeds in runs.values()), results)
    note = f"Accuracy on the true test labels, mean ± standard deviation (seeds). {ABOUT} {finished}"
    return Table.of(f"Label noise: {about}", rows, note)


def _upstream_table(part: LabelNoisePart, levels: Levels, results: Results, about: str) -> Table:
    rows: list[dict[str, Cell]] = []
    every = [(noise, model, runs[model]) for noise, runs in levels.items() for model in UPSTREAM]
    for noise, model, seeds in every:
        done = tables.results_by_seed(seeds, results).values()
        goal = part.clean_accuracy if noise == 0 and model == "M1" else part.upstream_accuracy
        peak, end = tables.accuracies(seeds, results), tables.accuracies(seeds, results, "last")
        fitted = spread(tables.accuracies(seeds, results, "last", "train_accuracy").values())
        row: dict[str, Cell] = {"noise": _percent(noise), "model": model, "fitted of its own labels %": fitted}
        row["goal %"] = f"{100 * goal:g}"
        row["epochs"] = spread(float(result["last"]["epoch"]) for result in done)
        row["epoch of the peak"] = spread(float(result["best_epoch"]) for result in done)
        row["test: peak - end"] = spread(peak[seed] - end[seed] for seed in peak)
        rows.append(row)
    passes = f" Fitted in its own passes, tested every {part.measured_every} epochs." if part.measured_every > 1 else ""
    note = (
        f"Upstream training ends at the goal, or after {part.upstream_epochs} epochs.{passes} M3 upstream fits 100 % "
        "random labels with the gates of M1; its test accuracy means nothing. "
        f"{tables.finished((seeds for _, _, seeds in every), results)}"
    )
    return Table.of(f"How far upstream training went: {about}", rows, note)


def _pairs(levels: Levels) -> dict[str, tuple[Seeds, Seeds]]:
    """M3 against M2, M5 against M4, M2 against M1, and M4 against M2 without noise: claims C31 to C33."""
    pairs: dict[str, tuple[Seeds, Seeds]] = {}
    for noise, runs in levels.items():
        same = tables.pairs_of(runs, (("M3", "M2"), ("M2", "M1"), ("M5", "M4")))
        pairs |= {f"{name}, noise {_percent(noise)}": pair for name, pair in same.items()}
        if "M4" in runs and 0.0 in levels:
            pairs[f"M4, noise {_percent(noise)} - M2, noise 0 %"] = (runs["M4"], levels[0.0]["M2"])
    return pairs


def _named(levels: Levels, models: tuple[Model, ...]) -> dict[str, Seeds]:
    """The runs of some models, by the names of their curves."""
    rows = [(model, noise) for model in models for noise in levels if model in levels[noise]]
    return {f"{model}, noise {_percent(noise)}": levels[noise][model] for model, noise in rows}


_MNIST = LabelNoisePart("mnist-fc", specs.MNIST, NetSpec("fc", 128, 6), TrainingRecipe(epochs=20), clean_accuracy=0.999)
_SMOKE = LabelNoisePart(
    "digits-fc", specs.SMOKE_DATA, specs.SMOKE_FC, TrainingRecipe("adam", 3e-3, epochs=3), (0.0, 0.5), upstream_epochs=8
)
FITTED_CNN = LabelNoisePart(
    "cifar10-cnn",
    DataSpec("cifar10", n_train=10_000, size=16),
    specs.plain_cnn(64),
    TrainingRecipe(lr=1e-3, epochs=20, precision="bfloat16"),
    noises=(0.0, 0.5),
    seeds=(0,),
    measured_every=5,
)
"""The CNN that fits its part of CIFAR-10 on two cores; `hidden-outputs` shares it."""
_PAPER_MNIST = replace(_MNIST, recipe=TrainingRecipe(epochs=100), seeds=specs.FIVE_SEEDS)
_PAPER_CNN = replace(_PAPER_MNIST, name="cifar10-cnn", data=specs.CIFAR, net=specs.PAPER_CNN, clean_accuracy=0.95)

EXPERIMENT = Experiment(
    name="label-noise",
    description="M1 to M5: training on noisy labels, then on true ones, with gates free or fixed",
    source="P3 table 2, fig. 5",
    config=LabelNoiseConfig,
    presets={
        "smoke": LabelNoiseConfig(parts=(replace(_SMOKE, upstream_accuracy=0.5, clean_accuracy=0.8),)),
        "cpu": LabelNoiseConfig(parts=(_MNIST, FITTED_CNN)),
        "paper": LabelNoiseConfig(parts=(_PAPER_CNN, _PAPER_MNIST)),
    },
    reduced={
        "smoke": "400 digits, noise 0 and 50 %, fitted to 50 %",
        "cpu": "the papers have CIFAR-10 only. MNIST, FC w=128 d=6: noise 0 to 75 %, 3 seeds, 20 epochs downstream; "
        "upstream training ends at 95 % of its labels, without noise at 99.9 %, or after 200 epochs. CIFAR-10: 10,000 "
        "images of 16x16 pixels (50,000 of 32x32), 64 filters (128), noise 0 and 50 %, 1 seed, upstream to 95 % or 200 "
        "epochs, Adam 1e-3 (3e-4, with which a fifth of the images would take more epochs), products in bfloat16",
    },
    tasks=tasks,
    summary=summary,
)
