"""Experiment `linear-gating`: gates from a network without activations, against ReLU and DL."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from neuralpath.papers.experiments import seed_tables as tables, specs
from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.hidden_outputs import pack_images, unpack_images
from neuralpath.papers.experiments.seed_tables import Seeds
from neuralpath.papers.experiments.settings import check_integers, check_positive, chosen_parts
from neuralpath.papers.experiments.specs import DataSpec, NetSpec, TrainingRecipe, data_of_seed
from neuralpath.papers.experiments.summary_items import Pictures, SummaryItem
from neuralpath.papers.experiments.trained import TrainingRun, TrainNetwork, run_training, seeded
from neuralpath.papers.runs import Task
from neuralpath.training import TrainingConfig

if TYPE_CHECKING:
    from neuralpath.gating import GatedNetwork
    from neuralpath.papers.runs import RunDirectory

NOTE = (
    "DLGN: the feature network has no activations, every gate is a hyperplane in the space of images; the papers print "
    "no figure for it, and for DL only the mean over 24 orders of the gates and both inputs, which is in `gate-orders`."
)
PICTURES_NOTE = (
    "Normals of the first gates of every layer, each on its own scale with 0 in the middle grey; of a convolution the "
    "gates in the middle of the image; of colors the mean."
)
_HYPERPLANES = "hyperplanes"


@dataclass(frozen=True)
class TrainLinearGated(TrainingRun):
    """Train a deep linearly gated network; the result also has the hyperplanes of its gates, as pictures."""

    data: DataSpec
    net: NetSpec
    training: TrainingConfig
    seed: int = 0
    beta: float = 10.0
    """Steepness of the soft gates."""
    n_pictures: int = 0
    """Gates of each layer whose hyperplanes are stored."""

    def __post_init__(self) -> None:
        if self.net.family not in ("fc", "gconv"):
            raise ValueError(f"`net` must be fc or gconv, whose pools are linear, got {self.net.family}.")

    @property
    def label(self) -> str:
        return self._named("DLGN")

    def make(self) -> "GatedNetwork":
        """The network before training."""
        from neuralpath.gates import SoftGate
        from neuralpath.gating import LinearGatedCNN, LinearGatedFC

        net = self.net
        options: dict[str, Any] = {"gate": SoftGate(self.beta), "bias": net.bias, "init": net.init}
        options["generator"] = seeded(self.seed, "linear gates")
        if net.family == "fc":
            return LinearGatedFC(self.data.shape, net.width, net.depth, self.data.n_outputs, **options)
        return LinearGatedCNN(self.data.shape, self.data.n_outputs, channels=net.channels, hidden=net.hidden, **options)

    def run(self, directory: "RunDirectory") -> dict[str, Any]:
        from neuralpath.gating import gate_hyperplanes

        model = self.make()
        result = run_training(model, self, directory)
        if self.n_pictures:
            # The normals of the first gates of every layer; of color images the mean over the colors.
            example = self.data.load(directory.data_dir).test.images[:4]
            result[_HYPERPLANES] = {
                plane.gate: pack_images(plane.normals[: self.n_pictures].mean(1).numpy(), signed=True)
                for plane in gate_hyperplanes(model.eval(), example)
            }
        return result


@dataclass(frozen=True)
class LinearGatingPart:
    """One network on one data set."""

    name: str
    data: DataSpec
    net: NetSpec
    recipe: TrainingRecipe
    seeds: tuple[int, ...] = (0, 1, 2)


@dataclass(frozen=True)
class LinearGatingConfig:
    """Fully connected and convolutional parts."""

    parts: tuple[LinearGatingPart, ...]
    only: tuple[str, ...] = ()
    """Names of the parts to run, fc or cnn; all by default."""
    beta: float = 10.0
    """Steepness of the soft gates, of the linear feature network and of DL."""
    n_pictures: int = 8
    """Gates of each layer whose hyperplanes are shown, of the first seed."""

    def __post_init__(self) -> None:
        chosen_parts(self.parts, self.only)  # which refuses unknown names
        check_positive(beta=self.beta)
        check_integers(0, n_pictures=self.n_pictures)


def rows_of(config: LinearGatingConfig, part: LinearGatingPart) -> dict[str, Seeds]:
    """ReLU, DL and the deep linearly gated network, by seed."""
    net, training, beta = part.net, part.recipe.training(), config.beta
    data = {seed: data_of_seed(part.data, seed) for seed in part.seeds}
    relu = {seed: TrainNetwork(data[seed], net, training, seed) for seed in part.seeds}
    gated = {seed: network.gated("DL", training, beta=beta) for seed, network in relu.items()}
    linear = {seed: TrainLinearGated(data[seed], net, training, seed, beta) for seed in part.seeds}
    first = part.seeds[0]
    return {"ReLU": relu, "DL": gated, "DLGN": linear | {first: replace(linear[first], n_pictures=config.n_pictures)}}


def tasks(config: LinearGatingConfig) -> tuple[Task, ...]:
    """All runs."""
    parts = chosen_parts(config.parts, config.only)
    return tables.each_once(runs for part in parts for runs in rows_of(config, part).values())


def summary(config: LinearGatingConfig, results: Results) -> tuple[SummaryItem, ...]:
    """For each part accuracies, comparisons, curves, and the hyperplanes."""
    items: list[SummaryItem] = []
    for part in chosen_parts(config.parts, config.only):
        rows, about = rows_of(config, part), f"{part.data.label} {part.net.label}"
        figure = tables.printed(paper="P3", where="section 4.1", dataset=part.data.name, regime="ReLU")
        cells = [({"network": name}, runs, figure if name == "ReLU" else None) for name, runs in rows.items()]
        pairs = tables.pairs_of(rows, [("DLGN", "ReLU"), ("DLGN", "DL")])
        items += [
            tables.accuracy_table(f"Linear gates: {about}", cells, results, NOTE),
            tables.comparisons(f"Linear gates compared: {about}", pairs, results),
            tables.accuracy_figure(f"Linear gates, test accuracy: {about}", rows, results),
        ]
        for result in tables.results_by_seed(rows["DLGN"], results).values():
            if planes := {gate: unpack_images(packed) for gate, packed in result.get(_HYPERPLANES, {}).items()}:
                items.append(Pictures(f"Hyperplanes of the linear gates: {about}", planes, PICTURES_NOTE))
    return tuple(items)


_FC = LinearGatingPart("fc", specs.MNIST, NetSpec("fc", 128, 5), TrainingRecipe(epochs=20))
_CNN = LinearGatingPart("cnn", specs.CIFAR_PART, specs.CIFAR_CNN, TrainingRecipe(epochs=30), seeds=(0,))
_SMOKE_FC = LinearGatingPart("fc", specs.SMOKE_DATA, specs.SMOKE_FC, TrainingRecipe("adam", 3e-3, epochs=4))
_SMOKE_CNN = LinearGatingPart(
    "cnn", DataSpec("digits", n_train=100, n_test=50), specs.plain_cnn(4, 2), specs.SMOKE_RECIPE, seeds=(0,)
)
_PAPER_FC = replace(_FC, recipe=TrainingRecipe(epochs=100), seeds=specs.FIVE_SEEDS)
_PAPER_CNN = replace(_PAPER_FC, name="cnn", data=specs.CIFAR, net=specs.PAPER_CNN)
EXPERIMENT = Experiment(
    name="linear-gating",
    description="deep linearly gated network against ReLU and DL, with the hyperplanes of its gates",
    source="P3 section 5",
    config=LinearGatingConfig,
    presets={
        "smoke": LinearGatingConfig(parts=(_SMOKE_FC, _SMOKE_CNN)),
        "cpu": LinearGatingConfig(parts=(_FC, _CNN)),
        "paper": LinearGatingConfig(parts=(_PAPER_FC, _PAPER_CNN)),
    },
    reduced={
        "smoke": "digits, small networks, a few epochs",
        "cpu": "MNIST: 20 epochs, 3 seeds. CIFAR-10: 32 filters (papers: 128), 10,000 images (50,000), 30 epochs (to "
        "about 100 % training accuracy), after which the ReLU network has fitted 43 % of its training labels, 1 seed",
    },
    tasks=tasks,
    summary=summary,
)
