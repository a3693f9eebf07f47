"""How much of what a model has learnt sits in its gates."""

import copy
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from neuralpath._checks import describe
from neuralpath.data import Split
from neuralpath.gating import GatedNetwork, decouple
from neuralpath.graph import PathGraph
from neuralpath.nets import Initialization, initialize
from neuralpath.training.changed_layers import Change, changed_networks
from neuralpath.training.config import TrainingConfig
from neuralpath.training.evaluation import TensorExamples, evaluate
from neuralpath.training.identity import printed, text_digest, weights_digest
from neuralpath.training.label_energies import LabelEnergies, label_energies
from neuralpath.training.loop import train
from neuralpath.training.seeds import derive_seed
from neuralpath.training.setting_up import check_task


@dataclass(frozen=True)
class LayerAccuracy:
    """Test accuracy of the gates when those of one layer are changed, the others kept."""

    gate: str
    change: Change
    accuracy: float


@dataclass(frozen=True)
class GatingInformation:
    """Test accuracies of a model, of its gates with new weights, and of random gates; and what each layer adds."""

    model: float
    gates: float
    """Of new weights trained behind the model's gates: P1 definition 5.1."""
    random_gates: float
    layers: tuple[LayerAccuracy, ...]
    label_energy: float | None
    """Of the path kernel with the model's gates, the mean over classes, each against the others. It follows one network
    through training, where it falls as the gates come to suit the labels; it does not order different networks."""
    random_label_energy: float | None
    no_label_energy: str | None
    """Why there is none: it was left out, the model cannot be read as a path graph, or its images are too large."""
    n_energy_examples: int = 0
    """On how many training examples both energies were measured, equally many of each class."""

    @property
    def share_recovered(self) -> float | None:
        """How far the gates go from random gates to the model; None where the model is no better than random gates."""
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
    """How much of what a trained model knows is in its gates.

    The measure (P1 definition 5.1) is the test accuracy of new weights that are trained behind the model's gates, the
    gates held fixed (regime FL). Beside it: the model itself, the same with the gates of a network with random weights
    (FR-II), and the label energy of the path kernel with either gates, on up to 300 training examples, fewer where
    images are large; the result says how many. With ``layers``, training is repeated with the
    gates of one layer changed and all others kept: those of the random network, its channels permuted (the same way
    for every example), or all open; max pools are left alone. Of a `GatedNetwork` the gates are those that its value
    network gets, and so are the layers.

    ``model`` is not changed. Accuracies are those of the last epoch. Everything is drawn from ``config.seed``.

    Args:
        model: Any trained model with gates.
        train_data: What the new weights are trained on.
        test_data: What is measured.
        config: How the new weights are trained.
        init: How new weights are drawn, see `neuralpath.nets.initialize`.
        layers: Whether to repeat training for each layer and change, three times as often as there are layers.
        label_energy: Whether to measure the label energies.
        folder: Where training keeps checkpoints; a call that was interrupted then goes on where it was. A folder is for
            one model with its weights: another one is refused.
        progress: Whether to show bars; by default on a terminal.

    Raises:
        ValueError, TypeError: If model and data do not fit, the model has no gates, or has activations that are none.
        CheckpointError: If the folder holds the trainings for another model, or others.

    Cost: two trainings, and three more for each layer with gates; fixed gates are computed once for each. The label
    energies take two path kernels in double precision, less than a second for a fully connected network and some
    seconds with convolutions; for the largest images half a minute.

    >>> import torch
    >>> from neuralpath import data, nets
    >>> digits = data.load("digits")
    >>> model = nets.FC((1, 8, 8), width=16, depth=2, n_outputs=10, generator=torch.Generator().manual_seed(0))
    >>> few = data.Split(digits.test.images[:100], digits.test.labels[:100])
    >>> found = gating_information(model, few, few, TrainingConfig(epochs=1, threads=1), layers=False)
    >>> 0 <= found.gates <= 1, found.layers
    (True, ())

    """
    config = config or TrainingConfig()
    if config.epochs < 1:
        raise ValueError(f"`config` must train for at least one epoch, got {config.epochs}.")
    place = None if folder is None else Path(folder)
    _refuse_other(model, train_data, test_data)
    identity = None if place is None else _identity(model, init)

    def accuracy(network: nn.Module, name: str) -> float:
        result = train(
            network, train_data, test_data, config, folder=None if place is None else place / name, identity=identity,
            progress=progress,
        )  # fmt: skip
        assert result.last is not None
        assert result.last.test is not None
        return result.last.test.accuracy

    trained = copy.deepcopy(model).eval()
    reference = _accuracy(trained, train_data, test_data, config)
    learnt = _behind_own_gates(trained, init, config)
    random = _behind_random_gates(trained, init, config)
    few = train_data.images[:2].to(next(learnt.parameters()))
    learnt.match(few)  # what has no gates is refused before long work
    untrained = copy.deepcopy(learnt)
    energies = LabelEnergies(reason="it was left out")
    if label_energy:
        energies = label_energies(learnt, random, train_data, config.seed, progress)
    gates = accuracy(learnt, "gates")
    random_gates = accuracy(random, "random-gates")
    changed = []
    if layers:
        for gate, change, network in changed_networks(untrained, random.feature, few, config.seed):
            changed.append(LayerAccuracy(gate, change, accuracy(network, f"{gate.replace('/', '-')}-{change}")))
    return GatingInformation(
        reference, gates, random_gates, tuple(changed), energies.learnt, energies.random, energies.reason,
        energies.n_examples,
    )  # fmt: skip


def _identity(model: nn.Module, init: Initialization | str) -> dict[str, str]:
    """What the trainings for a model depend on, besides what is known of every run."""
    return {"model": text_digest(printed(model)), "weights": weights_digest(model), "init": printed(init)}


def _refuse_other(model: object, train_data: object, test_data: object) -> None:
    """Refuse what is no module, and data that are not in memory."""
    if not isinstance(model, nn.Module):
        hint = "; give the model that you traced" if isinstance(model, PathGraph) else ""
        raise TypeError(f"`model` must be a torch.nn.Module, got {describe(model)}{hint}.")
    for name, data in (("train_data", train_data), ("test_data", test_data)):
        if not isinstance(data, Split):
            raise TypeError(
                f"`{name}` must be a neuralpath.data.Split, images and labels in memory, got {describe(data)}; of a "
                "loader, put the batches together with `torch.cat`."
            )


def _behind_own_gates(trained: nn.Module, init: Initialization | str, config: TrainingConfig) -> GatedNetwork:
    generator = _generator(config, "value")
    if not isinstance(trained, GatedNetwork):
        return decouple(trained, "FL", init=init, generator=generator)
    return _frozen(copy.deepcopy(trained), init, generator)


def _behind_random_gates(trained: nn.Module, init: Initialization | str, config: TrainingConfig) -> GatedNetwork:
    generator = _generator(config, "random")
    if not isinstance(trained, GatedNetwork):
        return decouple(trained, "FR-II", init=init, generator=generator)
    network = copy.deepcopy(trained)
    initialize(network.feature, init, generator)
    return _frozen(network, init, generator)


def _frozen(network: GatedNetwork, init: Initialization | str, generator: torch.Generator) -> GatedNetwork:
    """A gated network with its gates fixed, and new value weights."""
    return GatedNetwork(
        network.feature, initialize(network.value, init, generator).requires_grad_(True), gate=network.gate,
        gate_order=network.gate_order, gate_transform=network.gate_transform, value_input=network.value_input,
        linear_feature=network.linear_feature,
    )  # fmt: skip


def _accuracy(model: nn.Module, train_data: Split, test_data: Split, config: TrainingConfig) -> float:
    """Of the model as it is on the test data, by the same measure that training uses."""
    task = check_task(model.requires_grad_(True), train_data, test_data, config)
    assert isinstance(task.test, Split)
    examples = TensorExamples(task.test.images, task.targets["test"], config.evaluation_batch_size)
    return evaluate(model, task.measured_forward, examples.epoch(0), task.objective).accuracy


def _generator(config: TrainingConfig, use: str) -> torch.Generator:
    return torch.Generator().manual_seed(derive_seed(config.seed, "gating information", use))
