"""Gate overlap by layer in random networks, against its limit and the conjecture of P2 section 7."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.grids import Course, Grid, counted, figure, finished_runs, grid, part_of, tasks_of
from neuralpath.papers.experiments.random_labels import cosines_of, next_angles, overlaps_in_the_limit
from neuralpath.papers.experiments.settings import check_given, check_integers
from neuralpath.papers.experiments.specs import DataSpec
from neuralpath.papers.experiments.statistics import Runs, Spread, spread
from neuralpath.papers.experiments.summary_items import Curves, SummaryItem, Table
from neuralpath.papers.experiments.trained import seeded
from neuralpath.papers.runs import RunDirectory, Task

if TYPE_CHECKING:
    from torch import Tensor, nn

Features = Literal["relu", "linear"]


@dataclass(frozen=True)
class GateOverlaps(Task):
    """The share of gates that pairs of examples open together, layer by layer, in a random network without biases."""

    data: DataSpec
    features: Features  # whether the network that makes the gates has ReLUs, or passes pre-activations on unchanged
    n_examples: int
    width: int
    n_layers: int
    seed: int = 0

    @property
    def label(self) -> str:
        return f"overlaps {self.data.label} {self.features} w{self.width} l{self.n_layers} seed{self.seed}"

    def make(self) -> "nn.Sequential":
        """The layers of a random network, weights of variance 2 / width; 1 / width where features are linear."""
        from neuralpath import nets

        init = nets.Gaussian(1.0 if self.features == "linear" else math.sqrt(2.0))
        generator = seeded(self.seed, "overlapping network")
        return nets.FC(self.data.shape, self.width, self.n_layers + 1, init=init, generator=generator).layers

    def run(self, directory: RunDirectory) -> dict[str, Any]:
        from neuralpath.data import balanced_subset

        train, per_class = self.data.load(directory.data_dir).train, self.n_examples // self.data.n_outputs
        # The same examples for all seeds and widths, so that they differ in the network alone.
        x = balanced_subset(train, per_class, seeded(self.data.seed, "overlapping examples")).images
        return {"layers": _measured(self.make(), x, self.features == "linear")}


def _measured(layers: "nn.Sequential", x: "Tensor", is_linear: bool) -> list[dict[str, float]]:
    """For each layer, over all pairs: overlap, angle of the inputs, their limits, and products of all layers so far.

    An overlap is ``<G, G'> / w``, at most about a half; products are of twice the overlaps.
    """
    import torch

    pairs = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
    walked = gates_and_inputs(layers, x, is_linear)
    limits = overlaps_in_the_limit(cosines_of(x)[pairs], len(walked), linear=is_linear)
    product = in_the_limit = torch.ones(int(pairs.sum()), dtype=torch.float64)
    measured = []
    for (gates, inputs), limit in zip(walked, limits, strict=True):
        opened, angle = gates.double(), cosines_of(inputs).acos()[pairs]
        overlap = (opened @ opened.T / opened.shape[1])[pairs]
        by_angle = (math.pi - angle) / (2 * math.pi)
        product, in_the_limit = product * 2 * overlap, in_the_limit * 2 * limit
        averaged = {"overlap": overlap, "opened": opened, "angle": angle, "limit": limit, "by_angle": by_angle}
        averaged |= {"product": product, "product_in_the_limit": in_the_limit}
        distances = {"off_the_angle": overlap - by_angle, "off_the_limit": overlap - limit}
        measured.append(
            {"least": float(overlap.min())}
            | {name: float(values.mean()) for name, values in averaged.items()}
            | {name: float(values.square().mean().sqrt()) for name, values in distances.items()}
        )
    return measured


def gates_and_inputs(layers: "nn.Sequential", x: "Tensor", is_linear: bool) -> "list[tuple[Tensor, Tensor]]":
    """The gates of each gate layer, and what went into the weights before it."""
    import torch
    from torch import nn

    walked, z, inputs = [], x.flatten(1), x
    with torch.no_grad():
        for layer in layers:
            if isinstance(layer, nn.ReLU):
                walked.append((z > 0, inputs))
                z = z if is_linear else layer(z)
            else:
                z, inputs = layer(z), z
    return walked


@dataclass(frozen=True)
class BaseKernelsConfig:
    """Gate overlap by layer at random initialization, its limit, and how the product of overlaps decays with depth."""

    data: DataSpec = field(default=DataSpec("mnist"))
    features: tuple[Features, ...] = ("relu", "linear")
    """Feature networks with ReLUs, and linear ones, whose angles do not change with depth."""
    n_examples: int = 200
    widths: tuple[int, ...] = (128, 512, 1024)
    n_layers: int = 64
    """Gate layers."""
    limit_layers: int = 4096
    """Layers to which the limit alone is followed, for the law by which it decays."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)

    def __post_init__(self) -> None:
        check_given(features=self.features, widths=self.widths)
        check_integers(1, widths=self.widths, n_layers=self.n_layers, limit_layers=self.limit_layers)
        check_integers(self.data.n_outputs, n_examples=self.n_examples)  # of each class at least one


def _grid(config: BaseKernelsConfig) -> Grid:
    task = partial(GateOverlaps, config.data, n_examples=config.n_examples, n_layers=config.n_layers)
    return grid(task, config.seeds, features=config.features, width=config.widths)


def tasks(config: BaseKernelsConfig) -> tuple[Task, ...]:
    """A run for each kind of features, width and seed."""
    return tasks_of(_grid(config))


def summary(config: BaseKernelsConfig, results: Results) -> tuple[SummaryItem, ...]:
    """For each kind of features the overlaps by layer and their products, and the law of the limit."""
    runs = finished_runs(_grid(config), results)
    items: list[SummaryItem] = []
    for features in config.features:
        by_width = part_of(runs, features)
        items += [_table(config, features, by_width), *_figures(features, by_width)]
    return (*counted(items, tasks(config), results), _law(config))


def _table(config: BaseKernelsConfig, features: Features, by_width: dict[int, Runs]) -> Table:
    columns = {
        "overlap in %": "overlap",
        "limit": "limit",
        "root mean square off (π-θ)/2π": "off_the_angle",
        "off the limit": "off_the_limit",
        "angle of the inputs": "angle",
        "product of 2 x overlap in %": "product",
        "its limit": "product_in_the_limit",
    }

    def cell(runs: Runs, layer: int, name: str) -> Spread | None:
        factor = 1 if name == "angle" else 100
        return spread(factor * run["layers"][layer - 1][name] for run in runs.values())

    rows = [
        {"width": width, "layer": layer} | {title: cell(runs, layer, name) for title, name in columns.items()}
        for width, runs in by_width.items()
        for layer in _shown_layers(config.n_layers)
    ]
    note = "It should tend to (π-θ)/2π with the width, θ the angle of the inputs, and is conjectured to tend to 1/2."
    return Table.of(f"Gate overlap of pairs by layer, {features} features", rows, note)


def _figures(features: Features, by_width: dict[int, Runs]) -> list[Curves]:
    # The limit depends on the examples alone, so it is the same in all runs.
    first = [run for runs in by_width.values() for run in runs.values()][:1]

    def by_layer(runs: Iterable[dict[str, Any]], name: str) -> Course:
        return [{float(k): layer[name] for k, layer in enumerate(run["layers"], 1)} for run in runs]

    def courses(name: str, limit: str) -> dict[str, Course]:
        by_name = {f"w = {width}": by_layer(runs.values(), name) for width, runs in by_width.items()}
        return {**by_name, "infinite width": by_layer(first, limit)}

    overlaps, products = courses("overlap", "limit"), courses("product", "product_in_the_limit")
    share, title = "share of gates that a pair opens together", f"Product of twice the overlaps, {features} features"
    return [
        figure(f"Gate overlap, {features} features", "layer", share, overlaps, lines={"conjectured": 0.5}),
        figure(title, "layer", "mean over pairs", products, log="xy" if features == "relu" else "y"),
    ]


def _law(config: BaseKernelsConfig) -> Table:
    """The limit alone, for orthogonal inputs: at depth l the angle is about 3π / l, so products fall as l^-3."""
    import torch

    angle, rows = torch.tensor(math.pi / 2, dtype=torch.float64), []
    logs = [0.0]  # of the product of twice the overlaps, after each layer
    shown_layers = _shown_layers(config.limit_layers)
    for layer in range(1, config.limit_layers + 1):
        overlap, half = float((math.pi - angle) / (2 * math.pi)), layer // 2
        logs.append(logs[-1] + math.log(2 * overlap))
        if layer in shown_layers:
            power = (logs[layer] - logs[half]) / math.log(layer / half) if half else None
            rows.append((layer, float(angle), float(angle) * layer / (3 * math.pi), overlap, logs[layer], power))
        angle = next_angles(angle)
    return Table(
        "The limit with depth, for orthogonal inputs and ReLU features",
        ("layer", "angle", "angle · l / 3π", "overlap", "log of the product", "power of l from half the depth"),
        tuple(rows),
        "Overlaps tend to 1/2, so slowly that their product still tends to 0, not exponentially but as the power -3 of "
        "the depth. With linear features the angle stays, and the product falls exponentially.",
    )


def _shown_layers(n_layers: int) -> list[int]:
    """Powers of two, 3 and the last layer."""
    return sorted({2**power for power in range(n_layers.bit_length())} | {min(3, n_layers), n_layers})


EXPERIMENT = Experiment(
    name="base-kernels",
    description="gate overlap by layer in random networks against its limit, and how products decay with depth",
    source="P2 section 7",
    config=BaseKernelsConfig,
    presets={
        "smoke": BaseKernelsConfig(
            data=DataSpec("digits"), n_examples=30, widths=(32, 512), n_layers=6, limit_layers=256, seeds=(0, 1, 2)
        ),
        **dict.fromkeys(("cpu", "paper"), BaseKernelsConfig()),
    },
    reduced={
        "smoke": "embedded digits, 6 layers, two widths",
        "cpu": "not smaller: the paper has no experiment, only the statement and the conjecture",
    },
    tasks=tasks,
    summary=summary,
)
