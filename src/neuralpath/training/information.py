"""Gating information: how much of what a model has learned is in its gates."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from neuralpath._checks import describe
from neuralpath._hashing import repr_without_addresses, text_digest, weights_digest
from neuralpath.data import Split
from neuralpath.gating import GatedNetwork, GateTransform, decouple, sample_gates
from neuralpath.nets import Initialization, initialize
from neuralpath.training.batches import derive_seed
from neuralpath.training.config import TrainingConfig
from neuralpath.training.label_energies import LabelEnergies, label_energies
from neuralpath.training.loop import train
from neuralpath.training.training_task import check_task

Change = Literal["random", "permuted", "open"]


@dataclass(frozen=True)
class LayerAccuracy:
    """Test accuracy of new weights with the gates of one layer changed."""

    gate: str  # name of the layer
    change: Change  # its gates are those of a random network, permuted channels, or all open
    accuracy: float


@dataclass(frozen=True)
class GatingInformation:
    """Test accuracies of a model, of new weights with its gates, and of new weights with random gates.

    Args:
        model: Test accuracy of the model.
        gates: Test accuracy of new weights, trained with the model's gates fixed (P1 definition 5.1).
        random_gates: Test accuracy of new weights, trained with the gates of a random network fixed.
        layers: Test accuracies with the gates of a single layer changed.
        label_energy: Label energy of the path kernel with the model's gates, the mean over classes, each against the
            others. It falls during the training of one network as the gates adapt to the labels. It does not rank
            different networks.
        random_label_energy: The same with random gates.
        no_label_energy: Why there is no label energy: not requested, model not supported by `trace`, or images too
            large.
        n_energy_examples: Number of training examples for the label energies, equally many of each class.
    """

    model: float
    gates: float
    random_gates: float
    layers: tuple[LayerAccuracy, ...]
    label_energy: float | None
    random_label_energy: float | None
    no_label_energy: str | None
    n_energy_examples: int = 0

    @property
    def share_recovered(self) -> float | None:
        """``(gates - random_gates) / (model - random_gates)``; None if the model is not better than random gates."""
        gain = self.model - self.random_gates
        return (self.gates - self.random_gates) / gain if gain > 0 else None


def gating_information(
    model: nn.Module,
    train_data: Split,
    test_data: Split,
    config: TrainingConfig | None = None,
    *,
    init: Initialization | str = "glorot",
    layers: bool = True,
    label_energy: bool = True,
    folder: Path | str | None = None,
    progress: bool | None = None,
) -> GatingInformation:
    """Gating information: how much of what a trained model knows is in its gates.

    The measure (P1 definition 5.1) is the test accuracy of new weights that are trained with the gates fixed to those
    of the model (regime FL). It is compared with the model itself, and with new weights and the gates of a random
    network (FR-II). The label energies of the path kernel with both gates use up to 300 training examples, fewer for
    large images.

    With ``layers``, the training is repeated with the gates of a single layer changed: gates of the random network,
    permuted channels (the same permutation for every example), or all gates open. Max pools are left out. For a
    `GatedNetwork`, the gates and layers are those of its value network.

    The accuracies are those of the last epoch. All randomness comes from ``config.seed``.

    Args:
        model: A trained model with gates, which is not changed.
        train_data: Training data of the new weights.
        test_data: Data for the accuracies.
        config: How the new weights are trained; None for the defaults.
        init: Initialization of the new weights, see `neuralpath.nets.initialize`.
        layers: Whether to repeat the training for each layer and change.
        label_energy: Whether to compute the label energies.
        folder: Folder for checkpoints, so that an interrupted call can be resumed. A folder is for one model with its
            weights.
        progress: Whether to show progress bars; None: on a terminal.

    Raises:
        ValueError, TypeError: If model and data do not fit, or the model has no gates, or activations that are not
            gates.
        CheckpointError: If the folder belongs to another model or other settings.

    Cost: two trainings, and three more for each layer; fixed gates are computed once for each. The label energies need
    two path kernels in double precision: less than a second for a fully connected network, some seconds with
    convolutions, half a minute for the largest images.

    >>> import torch
    >>> from neuralpath import data, nets
    >>> digits = data.load("digits")
    >>> model = nets.FC((1, 8, 8), width=16, depth=2, n_outputs=10, generator=torch.Generator().manual_seed(0))
    >>> subset = data.Split(digits.test.images[:100], digits.test.labels[:100])
    >>> information = gating_information(model, subset, subset, TrainingConfig(epochs=1, threads=1), layers=False)
    >>> 0 <= information.gates <= 1, information.layers
    (True, ())
    """
    config = config or TrainingConfig()
    if config.epochs < 1:
        raise ValueError(f"`config` must train for at least one epoch, got {config.epochs}.")
    _check_arguments(model, train_data, test_data)
    identity = None
    if folder is not None:  # what the trainings depend on, besides the description of every run
        digest = text_digest(repr_without_addresses(model))
        identity = {"model": digest, "weights": weights_digest(model), "init": repr_without_addresses(init)}

    def accuracy(network: nn.Module, name: str) -> float:
        run_folder = None if folder is None else Path(folder) / name
        result = train(network, train_data, test_data, config, folder=run_folder, identity=identity, progress=progress)
        assert result.last is not None
        assert result.last.test is not None
        return result.last.test.accuracy

    trained = copy.deepcopy(model).eval()
    task = check_task(trained.requires_grad_(True), train_data, test_data, config)
    model_accuracy = task.evaluate(task.batches("test").epoch(0)).accuracy
    learned, random = (
        _with_new_weights(trained, init, derive_seed(config.seed, "gating information", use), random_gates=is_random)
        for use, is_random in (("value", False), ("random", True))
    )
    examples = train_data.images[:2].to(next(learned.parameters()))
    learned.match(examples)  # refuses a model without gates before any training
    untrained = copy.deepcopy(learned)
    energies = LabelEnergies(reason="it was not requested")
    if label_energy:
        energies = label_energies(learned, random, train_data, config.seed, progress)
    gates = accuracy(learned, "gates")
    random_gates = accuracy(random, "random-gates")
    changed = []
    if layers:
        for gate, change, network in networks_with_changed_layer(untrained, random.feature, examples, config.seed):
            changed.append(LayerAccuracy(gate, change, accuracy(network, f"{gate.replace('/', '-')}-{change}")))
    return GatingInformation(model_accuracy, gates, random_gates, tuple(changed), *energies)


def _check_arguments(model: object, train_data: object, test_data: object) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be a torch.nn.Module (of a graph, `graph.model`), got {describe(model)}.")
    for name, data in (("train_data", train_data), ("test_data", test_data)):
        if not isinstance(data, Split):
            raise TypeError(f"`{name}` must be a neuralpath.data.Split, in memory, got {describe(data)}.")


def _with_new_weights(trained: nn.Module, init: Initialization | str, seed: int, *, random_gates: bool) -> GatedNetwork:
    """New weights with the gates of the model, or of a network with random weights."""
    generator = torch.Generator().manual_seed(seed)
    if not isinstance(trained, GatedNetwork):
        return decouple(trained, "FR-II" if random_gates else "FL", init=init, generator=generator)
    network = copy.deepcopy(trained)
    if random_gates:
        initialize(network.feature, init, generator)
    return _rebuilt(network, value=initialize(network.value, init, generator).requires_grad_(True))


def _rebuilt(network: GatedNetwork, **changes: Any) -> GatedNetwork:
    """A gated network with fixed gates and the parts and settings of another one, with some changes."""
    names = ("feature", "value", "gate", "gate_order", "gate_transform", "value_input", "linear_feature")
    return GatedNetwork(**{name: getattr(network, name) for name in names} | changes)


def networks_with_changed_layer(
    network: GatedNetwork, random: nn.Module, x: Float[Tensor, "batch *shape"], seed: int
) -> Iterator[tuple[str, Change, GatedNetwork]]:
    """For each layer of the value network's gates and each change, the network with that layer changed.

    All networks have the weights, the order and the transforms of gates of ``network``. A changed layer takes its gates
    from ``random``, a network like the feature network, or its own gates are changed after the layer's transform.
    """
    pairs, n_feature_gates = network.match(x).pairs, network.match(x).n_feature_gates
    spaces = sample_gates(network.value, network.value_input(x)).in_spaces
    for index, (pair, space) in enumerate(zip(pairs, spaces, strict=True)):
        if space is not None:
            continue  # a max pool
        for change in get_args(Change):
            copied = copy.deepcopy(network)
            feature = copied.feature
            order: dict[int | str, int | str] = {i: other.source for i, other in enumerate(pairs)}
            transforms: dict[int | str, GateTransform] = {
                i: other.transform for i, other in enumerate(pairs) if other.transform is not None
            }
            if change == "random":
                feature = _SideBySide([feature, copy.deepcopy(random)])
                order[index] = n_feature_gates + pair.source
            else:
                permutation = derive_seed(seed, "permutation", index) if change == "permuted" else None
                transforms[index] = _Changed(pair.transform, permutation)
            changed = _rebuilt(copied, feature=feature, gate_order=order, gate_transform=transforms)
            yield pair.value_name, change, changed


class _SideBySide(nn.ModuleList):
    """Networks that run one after the other, so that a value network can take gates from all."""

    def forward(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch ..."]:
        return [network(x.clone()) for network in self][-1]


@dataclass(frozen=True)
class _Changed:
    """After the layer's own transform: one permutation of the channels for all examples, or all gates open."""

    first: GateTransform | None
    seed: int | None  # of the permutation; None opens all gates

    def __call__(self, gate: Shaped[Tensor, "batch ..."], shape: tuple[int, ...]) -> Shaped[Tensor, "batch ..."]:
        gate = gate if self.first is None else self.first(gate, shape)
        if self.seed is None:
            return torch.ones_like(gate)
        order = torch.randperm(gate.shape[1], generator=torch.Generator().manual_seed(self.seed))
        return gate[:, order.to(gate.device)]
