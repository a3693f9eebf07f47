"""Experiment `stages`: FL with the gates of a network's early and later epochs."""

from dataclasses import dataclass
from itertools import pairwise

from neuralpath.papers.experiments import seed_tables as tables, specs
from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.regimes import NARROW_GCONV, PAPER_GCONV, RegimesPart, relu_network
from neuralpath.papers.experiments.seed_tables import Seeds, spread
from neuralpath.papers.experiments.settings import check_integers
from neuralpath.papers.experiments.specs import DataSpec, NetSpec, TrainingRecipe
from neuralpath.papers.experiments.statistics import paired
from neuralpath.papers.experiments.summary_items import Cell, Curves, SummaryItem, Table
from neuralpath.papers.experiments.trained import TrainNetwork
from neuralpath.papers.runs import Task


@dataclass(frozen=True)
class StagesConfig:
    """One network, the epochs whose gates are used, and the training of the gated weights."""

    data: DataSpec
    net: NetSpec
    recipe: TrainingRecipe
    """Of the ReLU network; with the recipe and the saved epochs of `regimes`, both share it."""
    stages: tuple[int, ...] = (10, 20, 30, 40, 50, 60)
    """Epochs whose gates are tried, 0 for those before training."""
    fl_epochs: int = 80
    """Epochs of the weights that each of them gates."""
    seeds: tuple[int, ...] = (0,)
    cntk: float | None = None
    """Accuracy in per cent of kernel regression with the CNTK, from `kernels`, for a line beside the papers' 77.43."""

    def __post_init__(self) -> None:
        check_integers(0, fl_epochs=self.fl_epochs)
        if not self.stages or list(self.stages) != sorted(set(self.stages) & set(range(self.recipe.epochs + 1))):
            known = f"epochs from 0 to {self.recipe.epochs} in rising order"
            raise ValueError(f"`stages` must be {known}, got {self.stages}.")


def network(config: StagesConfig, seed: int) -> TrainNetwork:
    """The ReLU network, which saves the weights of the stages."""
    part = RegimesPart("", config.data, (config.net,), config.recipe, keep=config.stages)
    return relu_network(part, config.net, seed)


def gated(config: StagesConfig, stage: int) -> Seeds:
    """Weights gated by one stage, by seed."""
    training = config.recipe.training(config.fl_epochs)
    return {seed: network(config, seed).gated("FL", training, which=f"epoch-{stage}") for seed in config.seeds}


def tasks(config: StagesConfig) -> tuple[Task, ...]:
    """The networks, then a run for each stage and seed."""
    relu = {seed: network(config, seed) for seed in config.seeds}
    return tables.each_once([relu, *(gated(config, stage) for stage in config.stages)])


def summary(config: StagesConfig, results: Results) -> tuple[SummaryItem, ...]:
    """Accuracy against the stage, the steps between stages, and the curves of every stage."""
    relu: Seeds = {seed: network(config, seed) for seed in config.seeds}
    stages = {stage: gated(config, stage) for stage in config.stages}
    about = f"{config.data.label} {config.net.label}"
    own = {stage: _accuracies_after(stage, relu, results) for stage in stages}
    best = {stage: tables.accuracies(runs, results) for stage, runs in stages.items()}
    last = {stage: tables.accuracies(runs, results, "last") for stage, runs in stages.items()}
    rows: list[dict[str, Cell]] = []
    for stage in stages:
        ours, end = (spread(reached[stage].values(), tables.DECIMALS) for reached in (best, last))
        row = {"gates of epoch": stage, "ReLU network then %": spread(own[stage].values()), "FL best epoch %": ours}
        rows.append({**row, **tables.beside(ours, printed_accuracy(config, stage)), "FL last epoch %": end})
    # Means over the seeds that both stages have.
    changes = [change for earlier, later in pairwise(best.values()) if (change := paired(later, earlier))]
    n_rises = sum(change.difference.mean > 0 for change in changes)
    rises = f"It rises in {n_rises} of {len(changes)} steps. " if changes else ""
    note = (
        f"Test accuracy of weights trained for {config.fl_epochs} epochs, gated by the ReLU network after this many "
        f"epochs; mean ± standard deviation (seeds). {rises}{tables.finished([relu, *stages.values()], results)}"
    )
    steps = {f"gates of epoch {b} - of epoch {a}": (stages[b], stages[a]) for a, b in pairwise(config.stages)}
    named = {f"epoch {stage}": runs for stage, runs in stages.items()}
    return (
        Table.of(f"Stages: {about}", rows, note),
        tables.comparisons("Stages: from one to the next", steps, results),
        _figure(config, {"FL, best epoch": best, "FL, last epoch": last, "ReLU network": own}, about),
        tables.accuracy_figure(f"Gated by each stage: {about}", named, results, "epoch of the weights"),
    )


def _accuracies_after(stage: int, relu: Seeds, results: Results) -> dict[int, float]:
    """Test accuracy in percent of the ReLU network after an epoch, by seed."""
    measured = {seed: result["epochs"] for seed, result in tables.results_by_seed(relu, results).items()}
    return {seed: 100 * e["test_accuracy"] for seed, epochs in measured.items() for e in epochs if e["epoch"] == stage}


def printed_accuracy(config: StagesConfig, stage: int) -> tables.Printed | None:
    """The papers' accuracy with the gates of an epoch; they print it of their first and last stage, 10 and 60."""
    number = {10: "1 (epoch 10)", 60: "6 (epoch 60)"}.get(stage, "")
    return tables.printed(paper="P1", where="section 6", dataset=config.data.name, regime=f"FL stage {number}")


def _figure(config: StagesConfig, reached: dict[str, dict[int, dict[int, float]]], about: str) -> Curves:
    """Accuracies, by stage and seed, against the stage."""
    named = {
        name: [{float(stage): values.get(seed) for stage, values in stages.items()} for seed in config.seeds]
        for name, stages in reached.items()
    }
    lines = {} if config.cntk is None else {"CNTK, ours": config.cntk}
    if figure := tables.printed(architecture="CNTK", dataset=config.data.name):
        lines["CNTK, papers (50,000 images)"] = figure.accuracy
    title, curves = f"Accuracy against the stage of the gates: {about}", tables.mean_curves(named)
    return Curves(title, "epoch of the gates", "test accuracy in %", curves, lines=lines or None)


def _of_regimes(part: RegimesPart, fl_epochs: int) -> StagesConfig:
    """The epochs that a part of `regimes` saves, so that both experiments share the network."""
    return StagesConfig(part.data, part.nets[0], part.recipe, part.keep, fl_epochs, part.seeds)


EXPERIMENT = Experiment(
    name="stages",
    description="FL from a ReLU network at several epochs, with the CNTK line",
    source="P1 fig. 2 left",
    config=StagesConfig,
    presets={
        "smoke": StagesConfig(
            specs.SMOKE_DATA, specs.SMOKE_FC, TrainingRecipe("adam", 3e-3, epochs=6), (0, 1, 6), 3, seeds=(0, 1, 2)
        ),
        "cpu": _of_regimes(NARROW_GCONV, fl_epochs=10),
        "paper": _of_regimes(PAPER_GCONV, fl_epochs=80),
    },
    reduced={
        "smoke": "400 digits, FC w=32 d=4, 6 epochs",
        "cpu": "16-16-32-32 channels and dense 64, 64 (papers: 64-64-128-128 and 256, 256), epochs 1 to 30 in place of "
        "10 to 60, 10 epochs of weights gated by each in place of 80, 1 seed in place of 5, products in bfloat16",
    },
    tasks=tasks,
    summary=summary,
)
