"""Experiment `stages`: FL with the gates of a network's early and later epochs."""

from dataclasses import dataclass
from itertools import pairwise

from neuralpath.papers.experiments import seed_tables as tables
from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.regimes import NARROW_GCONV, PAPER_GCONV, RegimesPart, relu_network
from neuralpath.papers.experiments.seed_tables import Seeds
from neuralpath.papers.experiments.settings import check_integers
from neuralpath.papers.experiments.specs import DataSpec, NetSpec, TrainingRecipe
from neuralpath.papers.experiments.statistics import spread
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
        if not self.stages or list(self.stages) != sorted(set(self.stages)):
            raise ValueError(f"`stages` must be epochs in rising order, got {self.stages}.")
        if self.stages[0] < 0 or self.stages[-1] > self.recipe.epochs:
            raise ValueError(f"`stages` must be epochs from 0 to {self.recipe.epochs}, got {self.stages}.")


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
    networks = {seed: network(config, seed) for seed in config.seeds}
    return tables.each_once([networks, *(gated(config, stage) for stage in config.stages)])


def summary(config: StagesConfig, results: Results) -> tuple[SummaryItem, ...]:
    """Accuracy against the stage, the steps between stages, and the curves of every stage."""
    relu: Seeds = {seed: network(config, seed) for seed in config.seeds}
    stages = {stage: gated(config, stage) for stage in config.stages}
    about = f"{config.data.label} {config.net.label}"
    steps = {
        f"gates of epoch {later} - of epoch {earlier}": (stages[later], stages[earlier])
        for earlier, later in pairwise(config.stages)
    }
    named = {f"epoch {stage}": runs for stage, runs in stages.items()}
    return (
        _table(config, relu, stages, results, about),
        tables.comparisons("Stages: from one to the next", steps, results),
        _against_stage(config, relu, stages, results, about),
        tables.accuracy_figure(f"Gated by each stage: {about}", named, results, "epoch of the weights"),
    )


def _at(relu: Seeds, stage: int, results: Results) -> dict[int, float]:
    """Test accuracy in percent of the ReLU network after an epoch, by seed."""
    return {
        seed: 100 * epoch["test_accuracy"]
        for seed, result in tables.results_by_seed(relu, results).items()
        for epoch in result["epochs"]
        if epoch["epoch"] == stage
    }


def printed_accuracy(config: StagesConfig, stage: int) -> tables.Printed | None:
    """The papers' accuracy with the gates of an epoch; they print it of their first and last stage, 10 and 60."""
    number = {10: "1 (epoch 10)", 60: "6 (epoch 60)"}.get(stage, "")
    return tables.printed(paper="P1", where="section 6", dataset=config.data.name, regime=f"FL stage {number}")


def _table(config: StagesConfig, relu: Seeds, stages: dict[int, Seeds], results: Results, about: str) -> Table:
    rows: list[dict[str, Cell]] = []
    for stage, runs in stages.items():
        best = tables.accuracy(runs, results)
        rows.append(
            {
                "gates of epoch": stage,
                "ReLU network then %": spread(_at(relu, stage, results).values()),
                "FL best epoch %": best,
                **tables.beside(best, printed_accuracy(config, stage)),
                "FL last epoch %": tables.accuracy(runs, results, "last"),
            }
        )
    note = (
        f"Test accuracy of weights trained for {config.fl_epochs} epochs, gated by the ReLU network after this many "
        f"epochs; mean ± standard deviation (seeds). {_rises(stages, results)}"
        f"{tables.finished([relu, *stages.values()], results)}"
    )
    return Table.of(f"Stages: {about}", rows, note)


def _rises(stages: dict[int, Seeds], results: Results) -> str:
    """In how many of the steps the mean over common seeds rises."""
    reached = [tables.accuracies(runs, results) for runs in stages.values()]
    steps = [
        sum(later[seed] - earlier[seed] for seed in earlier.keys() & later.keys())
        for earlier, later in pairwise(reached)
        if earlier.keys() & later.keys()
    ]
    return f"It rises in {sum(step > 0 for step in steps)} of {len(steps)} steps. " if steps else ""


def _against_stage(config: StagesConfig, relu: Seeds, stages: dict[int, Seeds], results: Results, about: str) -> Curves:
    named = {
        f"FL, {when} epoch": [
            {float(stage): tables.accuracies(runs, results, when).get(seed) for stage, runs in stages.items()}
            for seed in config.seeds
        ]
        for when in ("best", "last")
    }
    named["ReLU network"] = [
        {float(stage): _at(relu, stage, results).get(seed) for stage in stages} for seed in config.seeds
    ]
    lines = {} if config.cntk is None else {"CNTK, ours": config.cntk}
    if figure := tables.printed(architecture="CNTK", dataset=config.data.name):
        lines["CNTK, papers (50,000 images)"] = figure.accuracy
    return Curves(
        f"Accuracy against the stage of the gates: {about}",
        "epoch of the gates",
        "test accuracy in %",
        tables.mean_curves(named),
        lines=lines or None,
    )


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
            DataSpec("digits", n_train=400),
            NetSpec("fc", 32, 4),
            TrainingRecipe("adam", 3e-3, epochs=6),
            stages=(0, 1, 6),
            fl_epochs=3,
            seeds=(0, 1, 2),
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
