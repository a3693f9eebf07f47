"""Pictures of hidden layers: a ReLU network beside weights with reversed gates and one fixed random input."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from neuralpath.experiments.accuracies import Seeds, accuracy, beside, comparisons, finished
from neuralpath.experiments.experiment import Experiment, Results
from neuralpath.experiments.gate_orders import CIFAR_CNN, CIFAR_PART
from neuralpath.experiments.grey import pack_images, unpack_images
from neuralpath.experiments.printed import printed
from neuralpath.experiments.recipes import Recipe, data_of_seed
from neuralpath.experiments.settings import check_integers
from neuralpath.experiments.shown import Cell, Pictures, Shown, Table
from neuralpath.experiments.specs import DataSpec, NetSpec
from neuralpath.experiments.trained import TrainGated, TrainNetwork, ValueInputName
from neuralpath.runs.work import Weights, Work

if TYPE_CHECKING:
    from torch import Tensor, nn

    from neuralpath.runs.calibration import Calibration
    from neuralpath.runs.place import Place

REVERSED = "FL, reversed gates, random input"


@dataclass(frozen=True)
class DrawHiddenLayers(Work):
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
        """As `Work.label`."""
        return f"hidden layers of {self._gated.label}"

    @property
    def _network(self) -> TrainNetwork:
        assert isinstance(self.network.work, TrainNetwork)
        return self.network.work

    @property
    def _gated(self) -> TrainGated:
        assert isinstance(self.gated.work, TrainGated)
        return self.gated.work

    def perform(self, place: "Place") -> dict[str, Any]:
        """As `Work.perform`."""
        test = self._network.data.load(place.data_dir).test
        x = test.images[: self.n_images]
        network = self._network.make()
        network.load_state_dict(place.weights_of(self._network, self.network.which))
        gated = self._gated.make()
        gated.load_state_dict(place.weights_of(self._gated, self.gated.which))
        seen = gated.value_input(x)
        own, own_output = hidden_layers(network, network, x)
        other, other_output = hidden_layers(gated, gated.value, x)
        return {
            "images": [
                {
                    "label": int(test.labels[index]),
                    "answers": [int(output[index].argmax()) for output in (own_output, other_output)],
                    "image": _packed(x[index].mean(0, keepdim=True)),
                    "layers": [_packed(layer[index, : self.n_channels]) for layer in own],
                    "value_input": _packed(seen[index].mean(0, keepdim=True)),
                    "value_layers": [_packed(layer[index, : self.n_channels]) for layer in other],
                }
                for index in range(len(x))
            ]
        }

    def seconds(self, calibration: "Calibration") -> float:
        """As `Work.seconds`: a few forward passes, and reading the data."""
        return 5.0

    def memory(self) -> int:
        """As `Work.memory`."""
        return self._network.data.n_bytes + (64 << 20)


def hidden_layers(model: "nn.Module", part: "nn.Module", x: "Tensor") -> "tuple[list[Tensor], Tensor]":
    """What comes out of each ReLU of a part of the model (behind gates: what takes its place), and the output."""
    import torch
    from torch import nn

    model.eval()
    with torch.no_grad():
        model(x)  # a gated network tries its parts out on the first batch, which must not be seen here
    found: list[Tensor] = []
    hooks = [
        module.register_forward_hook(lambda _, __, output: found.append(output.detach()))
        for module in part.modules()
        if isinstance(module, nn.ReLU)
    ]
    try:
        with torch.no_grad():
            output = model(x)
    finally:
        for hook in hooks:
            hook.remove()
    return found, output


def _packed(images: "Tensor") -> dict[str, Any]:
    return pack_images(images.numpy())


@dataclass(frozen=True)
class Config:
    """A convolutional network, and how long its gates are used."""

    data: DataSpec
    net: NetSpec
    recipe: Recipe
    """Of the weights behind the gates."""
    source_epochs: int
    """Epochs of the ReLU network whose gates they take."""
    seeds: tuple[int, ...] = (0, 1, 2)
    n_images: int = 2
    """Test images whose hidden layers are shown, for the first seed."""
    n_channels: int = 4
    """Filters of each layer that are shown."""

    def __post_init__(self) -> None:
        if self.net.family not in ("vconv", "gconv") or self.net.hidden or len(set(self.net.channels)) > 1:
            raise ValueError(
                "`net` must be convolutions of equal width without dense hidden layers, so that their gates can be "
                f"reversed; got {self.net.label}."
            )
        check_integers(1, source_epochs=self.source_epochs, n_images=self.n_images, n_channels=self.n_channels)
        check_integers(1, **{"recipe.epochs": self.recipe.epochs})  # the best of them is drawn


def relu_network(config: Config, seed: int) -> TrainNetwork:
    """The standard network."""
    training = replace(config.recipe, epochs=config.source_epochs).training()
    return TrainNetwork(data_of_seed(config.data, seed), config.net, training, seed)


def rows_of(config: Config) -> dict[str, Seeds]:
    """The standard network, the one of the figure, and what lies between them."""
    backwards = tuple(reversed(range(len(config.net.channels))))

    def gated(order: tuple[int, ...] | None, value_input: ValueInputName) -> Seeds:
        return {
            seed: TrainGated(
                data_of_seed(config.data, seed), config.net, config.recipe.training(), "FL", seed,
                Weights(relu_network(config, seed), "best"), order, value_input,
            )
            for seed in config.seeds
        }  # fmt: skip

    return {
        "ReLU": {seed: relu_network(config, seed) for seed in config.seeds},
        "FL": gated(None, "image"),
        "FL, reversed gates": gated(backwards, "image"),
        REVERSED: gated(backwards, "random"),
    }


def _drawing(config: Config) -> DrawHiddenLayers:
    seed = config.seeds[0]
    work = rows_of(config)[REVERSED][seed]
    network = Weights(relu_network(config, seed), "best")
    return DrawHiddenLayers(network, Weights(work, "best"), config.n_images, config.n_channels)


def works(config: Config) -> tuple[Work, ...]:
    """The networks, and the drawing of the first seed."""
    return (*(work for runs in rows_of(config).values() for work in runs.values()), _drawing(config))


def shown(config: Config, results: Results) -> tuple[Shown, ...]:
    """Accuracies, comparisons, and the pictures."""
    rows = rows_of(config)
    about = f"{config.data.label} {config.net.label}"
    table: list[tuple[Cell, ...]] = []
    for name, runs in rows.items():
        best = accuracy(runs, results)
        figure = printed(regime={REVERSED: "reversed gates and random input"}.get(name, name), architecture="CNN 4x128")
        known = figure if config.data.name == "cifar10" else None
        table.append((
            name, best, *beside(best, known), accuracy(runs, results, "last"),
            accuracy(runs, results, "last", "train_accuracy"),
        ))  # fmt: skip
    note = f"Test accuracy, mean ± standard deviation (seeds). {finished(rows.values(), results)}"
    pairs = {f"{name} - {other}": (rows[name], rows[other]) for name, other in
             ((REVERSED, "ReLU"), (REVERSED, "FL"), ("FL, reversed gates", "FL"))}  # fmt: skip
    columns = ("network", "best epoch %", "paper %", "difference", "last epoch %", "training %")
    return (
        Table(f"Reversed gates and a random input: {about}", columns, tuple(table), note),
        comparisons(f"What reversing and the random input cost: {about}", pairs, results),
        *_pictures(config, results, about),
    )


def _pictures(config: Config, results: Results, about: str) -> tuple[Pictures, ...]:
    drawing = _drawing(config)
    if drawing not in results:
        return ()
    made = []
    for number, image in enumerate(results[drawing]["images"], start=1):
        rows = {"test image": unpack_images(image["image"])}
        rows |= {f"ReLU, layer {n}": unpack_images(layer) for n, layer in enumerate(image["layers"], start=1)}
        rows["input of the weights"] = unpack_images(image["value_input"])
        rows |= {f"reversed, layer {n}": unpack_images(layer) for n, layer in enumerate(image["value_layers"], start=1)}
        note = (
            f"Class {image['label']}; the ReLU network says {image['answers'][0]}, the weights behind reversed gates "
            f"say {image['answers'][1]}. The first filters of each layer; of colours the mean."
        )
        made.append(Pictures(f"Hidden layers, test image {number}: {about}", rows, note))
    return tuple(made)


EXPERIMENT = Experiment(
    name="hidden-outputs",
    summary="hidden-layer pictures: ReLU network beside one with reversed gates and a fixed random input",
    source="P2 fig. 5, P3 fig. 3",
    config=Config,
    presets={
        "smoke": Config(
            DataSpec("digits", n_train=100, n_test=50), NetSpec("gconv", channels=(4,) * 3, hidden=()),
            Recipe("adam", 1e-2, epochs=1), source_epochs=2,
        ),
        "cpu": Config(CIFAR_PART, CIFAR_CNN, Recipe(epochs=10), source_epochs=30, seeds=(0,)),
        "paper": Config(
            DataSpec("cifar10"), NetSpec("gconv", channels=(128,) * 4, hidden=()), Recipe(epochs=100),
            source_epochs=100, seeds=(0, 1, 2, 3, 4),
        ),
    },
    reduced={
        "smoke": "100 digits, three convolutions of 4 filters",
        "cpu": "32 filters (papers: 128), 10,000 images (50,000), 1 seed; 30 epochs for the ReLU network and "
        "10 behind its gates (to about 100 % training accuracy), after which they have fitted 43 % and 46 to 48 % of "
        "their training labels",
    },
    works=works,
    shown=shown,
)  # fmt: skip

run = EXPERIMENT.run
