"""Experiment `residual`: the regimes on a residual network, with the image or ones as input of the weights."""

from dataclasses import dataclass, replace

from neuralpath.papers.experiments import seed_tables as tables
from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.seed_tables import Seeds
from neuralpath.papers.experiments.settings import check_positive
from neuralpath.papers.experiments.specs import CIFAR_PART, FIVE_SEEDS, DataSpec, NetSpec, TrainingRecipe, data_of_seed
from neuralpath.papers.experiments.summary_items import SummaryItem
from neuralpath.papers.experiments.trained import GatedRegime, TrainNetwork, ValueInputName
from neuralpath.papers.runs import Task


@dataclass(frozen=True)
class ResidualConfig:
    """DavidNet, its recipe, and the regimes."""

    data: DataSpec
    net: NetSpec
    recipe: TrainingRecipe
    """SGD at a constant rate, as P2 has it."""
    regimes: tuple[GatedRegime, ...] = ("FL", "FR-II", "FR-DI", "DL")
    inputs: tuple[ValueInputName, ...] = ("image", "ones")
    """Inputs of the gated weights."""
    seeds: tuple[int, ...] = (0, 1, 2)
    beta: float = 10.0
    """Steepness of the soft gates of DL."""

    def __post_init__(self) -> None:
        check_positive(beta=self.beta)


def rows_of(config: ResidualConfig) -> dict[tuple[str, str], Seeds]:
    """Runs by regime and input, then by seed; FL takes the gates of the ReLU network."""
    training = config.recipe.training()
    relu = {seed: TrainNetwork(data_of_seed(config.data, seed), config.net, training, seed) for seed in config.seeds}
    rows: dict[tuple[str, str], Seeds] = {("ReLU", "image"): relu}
    for regime in config.regimes:
        gated = {seed: network.gated(regime, training, beta=config.beta) for seed, network in relu.items()}
        for value_input in config.inputs:
            rows[regime, value_input] = {seed: replace(task, value_input=value_input) for seed, task in gated.items()}
    return rows


def tasks(config: ResidualConfig) -> tuple[Task, ...]:
    """All runs."""
    return tables.each_once(rows_of(config).values())


def summary(config: ResidualConfig, results: Results) -> tuple[SummaryItem, ...]:
    """Accuracies, comparisons and curves."""
    rows, about = rows_of(config), f"{config.data.label} {config.net.label}"
    cells = [({"regime": regime, "input": seen}, runs, None) for (regime, seen), runs in rows.items()]
    note = (
        "The network has batch norm: the gates are those of evaluation mode, the gated weights are trained with the "
        "batch's own statistics. The papers show this network in a figure without numbers."
    )
    compared = (("FL", "ReLU"), ("DL", "ReLU"), ("FR-II", "ReLU"), ("FR-II", "FR-DI"), ("FR-II", "FL"))
    inputs = [((regime, "ones"), (regime, "image")) for regime in config.regimes]
    regimes = [((first, "image"), (second, "image")) for first, second in compared]
    pairs = tables.pairs_of(rows, [*inputs, *regimes])
    named = {" ".join(row): runs for row, runs in rows.items()}
    return (
        tables.accuracy_table(f"Residual network: {about}", cells, results, note),
        tables.comparisons(f"Residual network, regimes compared: {about}", pairs, results),
        tables.accuracy_figure(f"Residual network, test accuracy: {about}", named, results),
    )


def _davidnet(width: int) -> NetSpec:
    """As in the cifar10-fast project: no biases, torch's own initialization."""
    return NetSpec("davidnet", width=width, bias=False, init="torch")


EXPERIMENT = Experiment(
    name="residual",
    description="DavidNet in 4 regimes x {image, ones}",
    source="P2 section 6",
    config=ResidualConfig,
    presets={
        "smoke": ResidualConfig(
            DataSpec("digits", n_train=60, n_test=50, size=32), _davidnet(2), TrainingRecipe("sgd", 0.1, 30, epochs=1)
        ),
        "cpu": ResidualConfig(
            CIFAR_PART, _davidnet(16), TrainingRecipe("sgd", 0.5, 256, epochs=24, precision="bfloat16"), seeds=(0,)
        ),
        "paper": ResidualConfig(
            DataSpec("cifar10"), _davidnet(64), TrainingRecipe("sgd", 0.5, 256, epochs=100), seeds=FIVE_SEEDS
        ),
    },
    reduced={
        "smoke": "60 digits with each pixel repeated to 32x32, DavidNet of width 2, 1 epoch",
        "cpu": "DavidNet of width 16 (papers: 64), 10,000 images (50,000), 24 epochs (not printed), 1 seed "
        "(5), products in bfloat16",
    },
    tasks=tasks,
    summary=summary,
)
