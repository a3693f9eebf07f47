"""Gate overlap by layer in random networks, against its limit and the conjecture of P2 section 7."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.random_labels import cosines_of, next_angles, overlaps_in_the_limit
from neuralpath.papers.experiments.seed_tables import finished, mean_curves, spread
from neuralpath.papers.experiments.settings import check_given, check_integers
from neuralpath.papers.experiments.specs import DataSpec
from neuralpath.papers.experiments.statistics import Spread
from neuralpath.papers.experiments.summary_items import Cell, Curve, Curves, SummaryItem, Table
from neuralpath.papers.experiments.trained import seeded
from neuralpath.papers.runs import Task

if TYPE_CHECKING:
    from torch import Tensor, nn

    from neuralpath.papers.runs import RunDirectory

Features = Literal["relu", "linear"]


@dataclass(frozen=True)
class GateOverlaps(Task):
    """The share of gates that pairs of examples open together, layer by layer, in a random network without biases."""

    data: DataSpec
    features: Features
    """Whether the network that makes the gates has ReLUs, or passes its pre-activations on unchanged."""
    n_examples: int
    width: int
    n_layers: int
    seed: int = 0

    @property
    def label(self) -> str:
        """As `Task.label`."""
        return f"overlaps {self.data.label} {self.features} w{self.width} l{self.n_layers} seed{self.seed}"

    def make(self) -> "nn.Sequential":
        """The layers of a random network, weights of variance 2 / width; of variance 1 / width where it is linear."""
        from neuralpath import nets

        init = nets.Gaussian(1.0 if self.features == "linear" else math.sqrt(2.0))
        generator = seeded(self.seed, "overlapping network")
        return nets.FC(self.data.shape, self.width, self.n_layers + 1, init=init, generator=generator).layers

    def run(self, directory: "RunDirectory") -> dict[str, Any]:
        """As `Task.run`."""
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
        measured.append(
            {
                "overlap": float(overlap.mean()),
                "least": float(overlap.min()),
                "opened": float(opened.mean()),
                "angle": float(angle.mean()),
                "limit": float(limit.mean()),
                "by_angle": float(by_angle.mean()),
                "off_the_angle": float((overlap - by_angle).square().mean().sqrt()),
                "off_the_limit": float((overlap - limit).square().mean().sqrt()),
                "product": float(product.mean()),
                "product_in_the_limit": float(in_the_limit.mean()),
            }
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


_DATA = DataSpec("mnist")


@dataclass(frozen=True)
class BaseKernelsConfig:
    """Gate overlap by layer at random initialization, its limit, and how the product of overlaps decays with depth."""

    data: DataSpec = _DATA
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


def tasks(config: BaseKernelsConfig) -> tuple[Task, ...]:
    """A run for each kind of features, width and seed."""
    return tuple(
        _task(config, features, width, seed)
        for features in config.features
        for width in config.widths
        for seed in config.seeds
    )


def _task(config: BaseKernelsConfig, features: Features, width: int, seed: int) -> GateOverlaps:
    return GateOverlaps(config.data, features, config.n_examples, width, config.n_layers, seed)


_Runs = dict[int, list[dict[str, Any]]]


def summary(config: BaseKernelsConfig, results: Results) -> tuple[SummaryItem, ...]:
    """For each kind of features the overlaps by layer and their products, and the law of the limit."""
    note = finished(tasks(config), results)
    parts: list[SummaryItem] = []
    for features in config.features:
        runs = {
            width: [results[task] for seed in config.seeds if (task := _task(config, features, width, seed)) in results]
            for width in config.widths
        }
        parts.append(_table(config, features, runs, note))
        parts += _figures(config, features, runs, note)
    return (*parts, _law(config))


def _table(config: BaseKernelsConfig, features: Features, runs: _Runs, note: str) -> Table:
    def cell(found: list[dict[str, Any]], layer: int, name: str) -> Spread | None:
        factor = 1 if name == "angle" else 100
        return spread(factor * run["layers"][layer - 1][name] for run in found)

    names = ("overlap", "limit", "off_the_angle", "off_the_limit", "angle", "product", "product_in_the_limit")
    rows: list[tuple[Cell, ...]] = [
        (width, layer, *(cell(found, layer, name) for name in names))
        for width, found in runs.items()
        for layer in _shown_layers(config.n_layers)
    ]
    return Table(
        f"Gate overlap of pairs by layer, {features} features",
        (
            "width",
            "layer",
            "overlap in %",
            "limit",
            "root mean square off (π-θ)/2π",
            "off the limit",
            "angle of the inputs",
            "product of 2 x overlap in %",
            "its limit",
        ),
        tuple(rows),
        "The overlap should tend to (π-θ)/2π, with θ the angle between the layer's inputs, as the width grows; and, it "
        f"is conjectured, to 1/2 with depth. {note}",
    )


def _figures(config: BaseKernelsConfig, features: Features, runs: _Runs, note: str) -> list[Curves]:
    def by_layer(name: str) -> tuple[Curve, ...]:
        return mean_curves(
            {
                f"w = {width}": [{float(k): layer[name] for k, layer in enumerate(run["layers"], 1)} for run in found]
                for width, found in runs.items()
            }
        )

    def in_the_limit(name: str) -> tuple[Curve, ...]:
        every = [run for found in runs.values() for run in found][:1]  # the same for all: of the examples alone
        return mean_curves(
            {"infinite width": [{float(k): layer[name] for k, layer in enumerate(run["layers"], 1)} for run in every]}
        )

    return [
        Curves(
            f"Gate overlap, {features} features",
            "layer",
            "share of gates that a pair opens together",
            (*by_layer("overlap"), *in_the_limit("limit")),
            lines={"conjectured": 0.5},
            note=note,
        ),
        Curves(
            f"Product of twice the overlaps, {features} features",
            "layer",
            "mean over pairs",
            (*by_layer("product"), *in_the_limit("product_in_the_limit")),
            log="xy" if features == "relu" else "y",
            note=note,
        ),
    ]


def _law(config: BaseKernelsConfig) -> Table:
    """The limit alone, for orthogonal inputs: at depth l the angle is about 3π / l, so products fall as l^-3."""
    import torch

    angle = torch.tensor(math.pi / 2, dtype=torch.float64)
    log_product, rows, logs = 0.0, [], {}
    shown_layers = _shown_layers(config.limit_layers)
    for layer in range(1, config.limit_layers + 1):
        overlap = float((math.pi - angle) / (2 * math.pi))
        log_product += math.log(2 * overlap)
        logs[layer] = log_product
        if layer in shown_layers:
            power = (log_product - logs[layer // 2]) / math.log(layer / (layer // 2)) if layer > 1 else None
            rows.append((layer, float(angle), float(angle) * layer / (3 * math.pi), overlap, log_product, power))
        angle = next_angles(angle)
    return Table(
        "The limit with depth, for orthogonal inputs and ReLU features",
        ("layer", "angle", "angle · l / 3π", "overlap", "log of the product", "power of l from half the depth"),
        tuple(rows),
        "Overlaps tend to 1/2, so slowly that their product still tends to 0, not exponentially but as the power -3 of "
        "the depth. With linear features the angle stays, and the product falls exponentially.",
    )


def _shown_layers(n_layers: int) -> list[int]:
    layers = [1, 2, 3]
    while layers[-1] < n_layers:
        layers.append(min(n_layers, 4 if layers[-1] == 3 else 2 * layers[-1]))
    return [layer for layer in layers if layer <= n_layers]


_PAPER = BaseKernelsConfig()

EXPERIMENT = Experiment(
    name="base-kernels",
    description="gate overlap by layer in random networks against its limit, and how products decay with depth",
    source="P2 section 7",
    config=BaseKernelsConfig,
    presets={
        "smoke": BaseKernelsConfig(
            data=DataSpec("digits"), n_examples=30, widths=(32, 512), n_layers=6, limit_layers=256, seeds=(0, 1, 2)
        ),
        "cpu": _PAPER,
        "paper": _PAPER,
    },
    reduced={
        "smoke": "embedded digits, 6 layers, two widths",
        "cpu": "not smaller: the paper has no experiment, only the statement and the conjecture",
    },
    tasks=tasks,
    summary=summary,
)

run = EXPERIMENT.run
