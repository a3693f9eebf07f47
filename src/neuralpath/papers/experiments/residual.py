"""Experiment `residual`: the regimes on a residual network, with the image or ones as input of the weights."""

from dataclasses import dataclass, replace

from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.seed_tables import Seeds, accuracy_cells, accuracy_figure, comparisons, finished
from neuralpath.papers.experiments.settings import check_positive
from neuralpath.papers.experiments.specs import DataSpec, NetSpec, TrainingRecipe, data_of_seed
from neuralpath.papers.experiments.summary_items import SummaryItem, Table
from neuralpath.papers.experiments.trained import GatedRegime, TrainGated, TrainNetwork, ValueInputName
from neuralpath.papers.runs import Task, Weights


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


def relu_network(config: ResidualConfig, seed: int) -> TrainNetwork:
    """The standard network, whose gates FL takes."""
    return TrainNetwork(data_of_seed(config.data, seed), config.net, config.recipe.training(), seed)


def rows_of(config: ResidualConfig) -> dict[tuple[str, str], Seeds]:
    """Runs by regime and input, then by seed."""
    rows: dict[tuple[str, str], Seeds] = {
        ("ReLU", "image"): {seed: relu_network(config, seed) for seed in config.seeds}
    }
    for regime in config.regimes:
        for value_input in config.inputs:
            rows[regime, value_input] = {seed: _gated(config, regime, value_input, seed) for seed in config.seeds}
    return rows


def _gated(config: ResidualConfig, regime: GatedRegime, value_input: ValueInputName, seed: int) -> TrainGated:
    gates = Weights(relu_network(config, seed), "best") if regime == "FL" else None
    data, training = data_of_seed(config.data, seed), config.recipe.training()
    task = TrainGated(data, config.net, training, regime, seed, gates, value_input=value_input)
    return replace(task, beta=config.beta) if regime == "DL" else task


def tasks(config: ResidualConfig) -> tuple[Task, ...]:
    """All runs."""
    return tuple(task for runs in rows_of(config).values() for task in runs.values())


def summary(config: ResidualConfig, results: Results) -> tuple[SummaryItem, ...]:
    """Accuracies, comparisons and curves."""
    rows = rows_of(config)
    about = f"{config.data.label} {config.net.label}"
    table = [
        {"regime": regime, "input": value_input, **accuracy_cells(runs, results, is_printed=False)}
        for (regime, value_input), runs in rows.items()
    ]
    note = (
        "Test accuracy, mean ± standard deviation (seeds). The network has batch norm: the gates are those of "
        "evaluation mode, the weights behind them are trained with the batch's own statistics. The papers show this "
        "network in a figure without numbers. "
        f"{finished(rows.values(), results)}"
    )
    named = {f"{regime} {value_input}": runs for (regime, value_input), runs in rows.items()}
    return (
        Table.of(f"Residual network: {about}", table, note),
        comparisons(f"Residual network, regimes compared: {about}", _pairs(config, rows), results),
        accuracy_figure(f"Residual network, test accuracy: {about}", named, results),
    )


def _pairs(config: ResidualConfig, rows: dict[tuple[str, str], Seeds]) -> dict[str, tuple[Seeds, Seeds]]:
    pairs = [
        *(((regime, "ones"), (regime, "image")) for regime in config.regimes),
        (("FL", "image"), ("ReLU", "image")),
        (("DL", "image"), ("ReLU", "image")),
        (("FR-II", "image"), ("ReLU", "image")),
        (("FR-II", "image"), ("FR-DI", "image")),
        (("FR-II", "image"), ("FL", "image")),
    ]
    return {
        f"{' '.join(first)} - {' '.join(second)}": (rows[first], rows[second])
        for first, second in pairs
        if first in rows and second in rows
    }


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
            DataSpec("cifar10", n_train=10_000),
            _davidnet(16),
            TrainingRecipe("sgd", 0.5, 256, epochs=24, precision="bfloat16"),
            seeds=(0,),
        ),
        "paper": ResidualConfig(
            DataSpec("cifar10"), _davidnet(64), TrainingRecipe("sgd", 0.5, 256, epochs=100), seeds=(0, 1, 2, 3, 4)
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

run = EXPERIMENT.run
