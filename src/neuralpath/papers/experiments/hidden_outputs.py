"""Experiment `hidden-outputs`: hidden layers of a ReLU network, and of one with reversed gates and a random input."""

from base64 import b64decode, b64encode
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from neuralpath._configs import ADDED_LATER
from neuralpath.papers.experiments import seed_tables as tables, specs
from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.label_noise import FITTED_CNN
from neuralpath.papers.experiments.seed_tables import Seeds
from neuralpath.papers.experiments.settings import check_integers, check_shares
from neuralpath.papers.experiments.specs import DataSpec, NetSpec, TrainingRecipe, data_of_seed
from neuralpath.papers.experiments.summary_items import Pictures, SummaryItem
from neuralpath.papers.experiments.trained import TrainGated, TrainNetwork
from neuralpath.papers.runs import Task, Weights

if TYPE_CHECKING:
    from torch import Tensor, nn

    from neuralpath.papers.runs import RunDirectory

REVERSED = "FL, reversed gates, random input"


@dataclass(frozen=True)
class DrawHiddenLayers(Task):
    """The outputs of the hidden layers of two trained networks on test images."""

    network: Weights
    """Of a `TrainNetwork`."""
    gated: Weights
    """Of a `TrainGated`."""
    n_images: int = 2
    n_channels: int = 4
    """Filters of each layer that are drawn."""

    @property
    def label(self) -> str:
        return f"hidden layers of {self.gated.task.label}"

    def run(self, directory: "RunDirectory") -> dict[str, Any]:
        source, gated_source = self.network.task, self.gated.task
        assert isinstance(source, TrainNetwork)
        assert isinstance(gated_source, TrainGated)
        test = source.data.load(directory.data_dir).test
        x = test.images[: self.n_images]
        network, gated = source.make(), gated_source.make()
        network.load_state_dict(directory.weights_of(source, self.network.which))
        gated.load_state_dict(directory.weights_of(gated_source, self.gated.which))
        layers, output = hidden_layers(network, network, x)
        value_layers, value_output = hidden_layers(gated, gated.value, x)

        def filters(layers: "list[Tensor]", index: int) -> list[dict[str, Any]]:
            return [pack_images(layer[index, : self.n_channels].numpy()) for layer in layers]

        images = []
        for index, (image, seen) in enumerate(zip(x, gated.value_input(x), strict=True)):
            inputs = [pack_images(colors.mean(0, keepdim=True).numpy()) for colors in (image, seen)]
            answers = [int(outputs[index].argmax()) for outputs in (output, value_output)]
            drawn = {"label": int(test.labels[index]), "answers": answers, "image": inputs[0], "value_input": inputs[1]}
            images.append(drawn | {"layers": filters(layers, index), "value_layers": filters(value_layers, index)})
        return {"images": images}


def hidden_layers(model: "nn.Module", part: "nn.Module", x: "Tensor") -> "tuple[list[Tensor], Tensor]":
    """The output of each ReLU of a part of the model (or of the gate that replaces it), and the model's output."""
    import torch
    from torch import nn

    model.eval()
    with torch.no_grad():
        model(x)  # a gated network tries its parts out on the first batch, which must not be recorded
        outputs: list[Tensor] = []
        relus = [module for module in part.modules() if isinstance(module, nn.ReLU)]
        hooks = [relu.register_forward_hook(lambda _, __, output: outputs.append(output)) for relu in relus]
        output = model(x)
    for hook in hooks:
        hook.remove()
    return outputs, output


@dataclass(frozen=True)
class HiddenOutputsConfig:
    """A convolutional network, and how long its gates are used."""

    data: DataSpec
    net: NetSpec
    recipe: TrainingRecipe
    """Recipe of the gated weights."""
    source_epochs: int
    """Epochs of the ReLU network whose gates they take: those of its best epoch on the test data."""
    seeds: tuple[int, ...] = (0, 1, 2)
    n_images: int = 2
    """Test images whose hidden layers are shown, for the first seed."""
    n_channels: int = 4
    """Filters of each layer that are shown."""
    source_accuracy: float | None = field(default=None, metadata=ADDED_LATER)
    """The ReLU network is trained until it fits this share of its labels, at most for its epochs; its gates are then
    those of its last epoch."""
    measured_every: int = field(default=1, metadata=ADDED_LATER)
    """Epochs of such a network between measurements, as in `label-noise`."""

    def __post_init__(self) -> None:
        if self.net.family not in ("vconv", "gconv") or self.net.hidden or len(set(self.net.channels)) > 1:
            needed = "`net` must be convolutions of equal width without dense hidden layers"
            raise ValueError(f"{needed}, so that their gates can be reversed; got {self.net.label}.")
        check_integers(1, source_epochs=self.source_epochs, n_images=self.n_images, n_channels=self.n_channels)
        # At least one epoch of the gated weights, since the best of them is drawn.
        check_integers(1, measured_every=self.measured_every, **{"recipe.epochs": self.recipe.epochs})
        if self.source_accuracy is not None:
            check_shares(source_accuracy=self.source_accuracy)
        elif self.measured_every > 1:
            raise ValueError("`measured_every` is of networks that are trained until they fit a share of their labels.")

    @property
    def gates_from(self) -> str:
        """The epoch of the ReLU network whose gates are taken."""
        return "best" if self.source_accuracy is None else "last"


def relu_network(config: HiddenOutputsConfig, seed: int) -> TrainNetwork:
    """The standard network."""
    training = config.recipe.training_until(config.source_accuracy, config.source_epochs, config.measured_every)
    return TrainNetwork(data_of_seed(config.data, seed), config.net, training, seed)


def rows_of(config: HiddenOutputsConfig) -> dict[str, Seeds]:
    """The standard network, the one of the figure, and what lies between them."""
    backwards, training = tuple(reversed(range(len(config.net.channels)))), config.recipe.training()
    relu = {seed: relu_network(config, seed) for seed in config.seeds}
    gated = {seed: network.gated("FL", training, which=config.gates_from) for seed, network in relu.items()}
    reverse = {seed: replace(task, gate_order=backwards) for seed, task in gated.items()}
    random = {seed: replace(task, value_input="random") for seed, task in reverse.items()}
    return {"ReLU": relu, "FL": gated, "FL, reversed gates": reverse, REVERSED: random}


def _drawing(config: HiddenOutputsConfig) -> DrawHiddenLayers:
    rows, seed = rows_of(config), config.seeds[0]
    network, gated = Weights(rows["ReLU"][seed], config.gates_from), Weights(rows[REVERSED][seed], "best")
    return DrawHiddenLayers(network, gated, config.n_images, config.n_channels)


def tasks(config: HiddenOutputsConfig) -> tuple[Task, ...]:
    """The networks, and the drawing of the first seed."""
    return (*tables.each_once(rows_of(config).values()), _drawing(config))


def summary(config: HiddenOutputsConfig, results: Results) -> tuple[SummaryItem, ...]:
    """Accuracies, comparisons, and the pictures."""
    rows, about = rows_of(config), f"{config.data.label} {config.net.label}"

    def figure(row: str) -> tables.Printed | None:
        regime = "reversed gates and random input" if row == REVERSED else row
        return tables.printed(architecture="CNN 4x128", dataset=config.data.name, regime=regime)

    cells = [({"network": row}, runs, figure(row)) for row, runs in rows.items()]
    pairs = tables.pairs_of(rows, [(REVERSED, "ReLU"), (REVERSED, "FL"), ("FL, reversed gates", "FL")])
    items: list[SummaryItem] = [
        tables.accuracy_table(f"Reversed gates and a random input: {about}", cells, results),
        tables.comparisons(f"What reversing and the random input cost: {about}", pairs, results),
    ]
    for number, image in enumerate(results.get(_drawing(config), {"images": []})["images"], start=1):
        packed = {"test image": image["image"]}
        packed |= {f"ReLU, layer {n}": layer for n, layer in enumerate(image["layers"], start=1)}
        packed["input of the weights"] = image["value_input"]
        packed |= {f"reversed, layer {n}": layer for n, layer in enumerate(image["value_layers"], start=1)}
        pictures = {name: unpack_images(layer) for name, layer in packed.items()}
        note = (
            f"Class {image['label']}; the ReLU network says {image['answers'][0]}, the weights with reversed gates say "
            f"{image['answers'][1]}. The first filters of each layer; of colors the mean."
        )
        items.append(Pictures(f"Hidden layers, test image {number}: {about}", pictures, note))
    return tuple(items)


def pack_images(images: Float[np.ndarray, "image height width"], *, signed: bool = False) -> dict[str, Any]:
    """As plain JSON values, each image on its own scale: from its least to its largest value, or with 0 in the middle.

    An image that has one value only becomes black, or with ``signed`` the middle.
    """
    count, height, width = images.shape
    low, high = (edge((1, 2), keepdims=True) for edge in (images.min, images.max))
    if signed:
        high = np.maximum(high, -low)
        low = -high
    size = np.where(high > low, high - low, 1.0)
    shares = np.where(high > low, (images - low) / size, 0.5 if signed else 0.0)
    levels = np.rint(255 * shares).astype(np.uint8)
    return {"count": count, "height": height, "width": width, "pixels": b64encode(levels.tobytes()).decode()}


def unpack_images(packed: dict[str, Any]) -> tuple[tuple[tuple[float, ...], ...], ...]:
    """The images, with values from 0 to 1."""
    shape = (packed["count"], packed["height"], packed["width"])
    levels = np.frombuffer(b64decode(packed["pixels"]), dtype=np.uint8).reshape(shape) / 255
    return tuple(tuple(tuple(row) for row in image) for image in levels.tolist())


_FITTED = HiddenOutputsConfig(
    FITTED_CNN.data, FITTED_CNN.net, FITTED_CNN.recipe, FITTED_CNN.upstream_epochs, FITTED_CNN.seeds
)
_SMOKE_DATA = DataSpec("digits", n_train=100, n_test=50)
EXPERIMENT = Experiment(
    name="hidden-outputs",
    description="hidden-layer pictures: ReLU network beside one with reversed gates and a fixed random input",
    source="P2 fig. 5, P3 fig. 3",
    config=HiddenOutputsConfig,
    presets={
        "smoke": HiddenOutputsConfig(_SMOKE_DATA, specs.plain_cnn(4, 3), specs.SMOKE_RECIPE, source_epochs=2),
        "cpu": replace(_FITTED, source_accuracy=FITTED_CNN.clean_accuracy, measured_every=FITTED_CNN.measured_every),
        "paper": HiddenOutputsConfig(
            specs.CIFAR, specs.PAPER_CNN, TrainingRecipe(epochs=100), source_epochs=100, seeds=specs.FIVE_SEEDS
        ),
    },
    reduced={
        "smoke": "100 digits, three convolutions of 4 filters",
        "cpu": "64 filters (papers: 128), 10,000 images of 16x16 pixels (50,000 of 32x32), 1 seed; the ReLU network to "
        "95 % of its labels or 200 epochs, 20 epochs gated by it (to about 100 % training accuracy), Adam 1e-3 "
        "(3e-4), products in bfloat16",
    },
    tasks=tasks,
    summary=summary,
)
