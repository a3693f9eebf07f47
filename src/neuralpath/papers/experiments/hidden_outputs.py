"""Experiment `hidden-outputs`: hidden layers of a ReLU network, and of one with reversed gates and a random input."""

from base64 import b64decode, b64encode
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from neuralpath._configs import ADDED_LATER
from neuralpath.papers.experiments import seed_tables as tables
from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.label_noise import FITTED_CNN
from neuralpath.papers.experiments.seed_tables import Seeds
from neuralpath.papers.experiments.settings import check_integers, check_shares
from neuralpath.papers.experiments.specs import FIVE_SEEDS, PAPER_CNN, DataSpec, NetSpec, TrainingRecipe, data_of_seed
from neuralpath.papers.experiments.summary_items import Pictures, SummaryItem
from neuralpath.papers.experiments.trained import TrainGated, TrainNetwork
from neuralpath.papers.runs import Task, Weights

if TYPE_CHECKING:
    from torch import Tensor, nn

    from neuralpath.papers.runs import RunDirectory

REVERSED = "FL, reversed gates, random input"

Picture = tuple[tuple[float, ...], ...]


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
        """As `Task.label`."""
        return f"hidden layers of {self.gated.task.label}"

    def run(self, directory: "RunDirectory") -> dict[str, Any]:
        """As `Task.run`."""
        source, gated_source = self.network.task, self.gated.task
        assert isinstance(source, TrainNetwork)
        assert isinstance(gated_source, TrainGated)
        test = source.data.load(directory.data_dir).test
        x = test.images[: self.n_images]
        network, gated = source.make(), gated_source.make()
        network.load_state_dict(directory.weights_of(source, self.network.which))
        gated.load_state_dict(directory.weights_of(gated_source, self.gated.which))
        seen = gated.value_input(x)
        layers, output = hidden_layers(network, network, x)
        value_layers, value_output = hidden_layers(gated, gated.value, x)

        def filters(layers: "list[Tensor]", index: int) -> list[dict[str, Any]]:
            return [pack_images(layer[index, : self.n_channels].numpy()) for layer in layers]

        return {
            "images": [
                {
                    "label": int(test.labels[index]),
                    "answers": [int(outputs[index].argmax()) for outputs in (output, value_output)],
                    "image": pack_images(x[index].mean(0, keepdim=True).numpy()),
                    "layers": filters(layers, index),
                    "value_input": pack_images(seen[index].mean(0, keepdim=True).numpy()),
                    "value_layers": filters(value_layers, index),
                }
                for index in range(len(x))
            ]
        }


def hidden_layers(model: "nn.Module", part: "nn.Module", x: "Tensor") -> "tuple[list[Tensor], Tensor]":
    """The output of each ReLU of a part of the model (or of the gate that replaces it), and the model's output."""
    import torch
    from torch import nn

    model.eval()
    with torch.no_grad():
        model(x)  # a gated network tries its parts out on the first batch, which must not be recorded
        outputs: list[Tensor] = []
        hooks = [
            module.register_forward_hook(lambda _, __, output: outputs.append(output))
            for module in part.modules()
            if isinstance(module, nn.ReLU)
        ]
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
            raise ValueError(
                "`net` must be convolutions of equal width without dense hidden layers, so that their gates can be "
                f"reversed; got {self.net.label}."
            )
        check_integers(1, source_epochs=self.source_epochs, n_images=self.n_images, n_channels=self.n_channels)
        check_integers(1, measured_every=self.measured_every)
        if self.source_accuracy is not None:
            check_shares(source_accuracy=self.source_accuracy)
        elif self.measured_every > 1:
            raise ValueError("`measured_every` is of networks that are trained until they fit a share of their labels.")
        check_integers(1, **{"recipe.epochs": self.recipe.epochs})  # the best of them is drawn


def relu_network(config: HiddenOutputsConfig, seed: int) -> TrainNetwork:
    """The standard network."""
    if config.source_accuracy is None:
        training = config.recipe.training(config.source_epochs)
    else:
        training = config.recipe.training_until(config.source_accuracy, config.source_epochs, config.measured_every)
    return TrainNetwork(data_of_seed(config.data, seed), config.net, training, seed)


def rows_of(config: HiddenOutputsConfig) -> dict[str, Seeds]:
    """The standard network, the one of the figure, and what lies between them."""
    backwards = tuple(reversed(range(len(config.net.channels))))
    relu = {seed: relu_network(config, seed) for seed in config.seeds}
    which, training = _gates_of(config), config.recipe.training()
    gated = {seed: network.gated("FL", training, which=which) for seed, network in relu.items()}
    reverse = {seed: replace(task, gate_order=backwards) for seed, task in gated.items()}
    random = {seed: replace(task, value_input="random") for seed, task in reverse.items()}
    return {"ReLU": relu, "FL": gated, "FL, reversed gates": reverse, REVERSED: random}


def _gates_of(config: HiddenOutputsConfig) -> str:
    """The epoch of the standard network whose gates are taken."""
    return "best" if config.source_accuracy is None else "last"


def _drawing(config: HiddenOutputsConfig) -> DrawHiddenLayers:
    rows, seed = rows_of(config), config.seeds[0]
    network, gated = Weights(rows["ReLU"][seed], _gates_of(config)), Weights(rows[REVERSED][seed], "best")
    return DrawHiddenLayers(network, gated, config.n_images, config.n_channels)


def tasks(config: HiddenOutputsConfig) -> tuple[Task, ...]:
    """The networks, and the drawing of the first seed."""
    return (*tables.each_once(rows_of(config).values()), _drawing(config))


def summary(config: HiddenOutputsConfig, results: Results) -> tuple[SummaryItem, ...]:
    """Accuracies, comparisons, and the pictures."""
    rows = rows_of(config)
    about = f"{config.data.label} {config.net.label}"

    def figure(row: str) -> tables.Printed | None:
        regime = "reversed gates and random input" if row == REVERSED else row
        return tables.printed(architecture="CNN 4x128", dataset=config.data.name, regime=regime)

    cells = [({"network": row}, runs, figure(row)) for row, runs in rows.items()]
    pairs = tables.pairs_of(rows, [(REVERSED, "ReLU"), (REVERSED, "FL"), ("FL, reversed gates", "FL")])
    return (
        tables.accuracy_table(f"Reversed gates and a random input: {about}", cells, results),
        tables.comparisons(f"What reversing and the random input cost: {about}", pairs, results),
        *_pictures(config, results, about),
    )


def _pictures(config: HiddenOutputsConfig, results: Results, about: str) -> tuple[Pictures, ...]:
    drawing = _drawing(config)
    if drawing not in results:
        return ()
    pictures = []
    for number, image in enumerate(results[drawing]["images"], start=1):
        rows = {"test image": unpack_images(image["image"])}
        rows |= {f"ReLU, layer {n}": unpack_images(layer) for n, layer in enumerate(image["layers"], start=1)}
        rows["input of the weights"] = unpack_images(image["value_input"])
        rows |= {f"reversed, layer {n}": unpack_images(layer) for n, layer in enumerate(image["value_layers"], start=1)}
        note = (
            f"Class {image['label']}; the ReLU network says {image['answers'][0]}, the weights with reversed gates say "
            f"{image['answers'][1]}. The first filters of each layer; of colors the mean."
        )
        pictures.append(Pictures(f"Hidden layers, test image {number}: {about}", rows, note))
    return tuple(pictures)


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


def unpack_images(packed: dict[str, Any]) -> tuple[Picture, ...]:
    """The images, with values from 0 to 1."""
    shape = (packed["count"], packed["height"], packed["width"])
    levels = np.frombuffer(b64decode(packed["pixels"]), dtype=np.uint8).reshape(shape) / 255
    return tuple(tuple(tuple(row) for row in image) for image in levels.tolist())


EXPERIMENT = Experiment(
    name="hidden-outputs",
    description="hidden-layer pictures: ReLU network beside one with reversed gates and a fixed random input",
    source="P2 fig. 5, P3 fig. 3",
    config=HiddenOutputsConfig,
    presets={
        "smoke": HiddenOutputsConfig(
            DataSpec("digits", n_train=100, n_test=50),
            NetSpec("gconv", channels=(4,) * 3, hidden=()),
            TrainingRecipe("adam", 1e-2, epochs=1),
            source_epochs=2,
        ),
        "cpu": HiddenOutputsConfig(
            FITTED_CNN.data,
            FITTED_CNN.net,
            FITTED_CNN.recipe,
            FITTED_CNN.upstream_epochs,
            FITTED_CNN.seeds,
            source_accuracy=FITTED_CNN.clean_accuracy,
            measured_every=FITTED_CNN.measured_every,
        ),
        "paper": HiddenOutputsConfig(
            DataSpec("cifar10"), PAPER_CNN, TrainingRecipe(epochs=100), source_epochs=100, seeds=FIVE_SEEDS
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
