"""For the page's tests: folders of made-up records, and figures of every kind."""

from dataclasses import replace

from neuralpath.papers.claims.rows import VERDICTS, ClaimRow
from neuralpath.papers.experiments import Sweep
from neuralpath.papers.experiments.registry import get
from neuralpath.papers.experiments.statistics import Spread
from neuralpath.papers.experiments.summary_items import Curve, Curves, Distribution, HeatMaps, Pictures, Table
from neuralpath.papers.report.contents import Contents, RunStatus, SweepContents
from neuralpath.papers.runs.store import Store
from neuralpath.papers.runs.task import with_dependencies

SMALL = ["--parts.0.seeds", "0", "--parts.0.regimes", "ReLU", "FL", "--parts.0.sources", "true", "--only", "digits-fc"]
"""Of `neuralpath papers run regimes`: two runs of a second."""

COMMAND = "neuralpath papers run regimes --out runs"
VERSIONS = {"neuralpath": "0.1.0", "torch": "2.13.0"}


def small_sweep(n_seeds=1):
    """The fully connected part of the smoke preset, with all its regimes."""
    experiment = get("regimes")
    config = experiment.presets["smoke"]
    part = replace(config.parts[0], seeds=tuple(range(n_seeds)))
    return Sweep(
        experiment, replace(config, parts=(part,), only=()), "smoke", "neuralpath papers run regimes --out runs"
    )


def about(versions=VERSIONS, seconds=1.5):
    return {"started": "2026-01-02T03:04:05+00:00", "command": COMMAND, "python": "3.11.7",
            "versions": versions, "system": "Linux x86_64", "cpus": 2, "seconds": seconds}  # fmt: skip


def made_up_result(number, n_epochs=40):
    epochs = [
        {"epoch": epoch, "train_loss": 1 / epoch, "train_accuracy": 1 - 0.5 / epoch, "test_loss": 1.1 / epoch,
         "test_accuracy": 0.9 - 0.4 / epoch + 1e-3 * (number % 7)}
        for epoch in range(1, n_epochs + 1)
    ]  # fmt: skip
    return {"epochs": epochs, "best_epoch": n_epochs, "best": epochs[-1], "last": epochs[-1], "stopped_early": False,
            "n_steps": 100}  # fmt: skip


def write_made_up(folder, sweep, n_finished=None, versions=lambda number: VERSIONS):
    """Records as the engine writes them, for the first runs of a sweep; gives the store."""
    store = Store(folder, None)
    store.make()
    sweep.write(folder)
    for number, task in enumerate(with_dependencies(sweep.tasks)[:n_finished]):
        store.begin(task)
        store.write(task, "finished", result=made_up_result(number), provenance=about(versions(number)))
    return Store(folder, folder)


def figures_of_every_kind():
    ramp = tuple(float(x) for x in range(1, 9))
    image = tuple(tuple(float(x * y) for x in range(6)) for y in range(6))
    square = tuple(tuple(1.0 / (1 + abs(i - j)) for j in range(6)) for i in range(6))
    return (
        Curves("Curves with bands", "epoch", "accuracy",
               (Curve("one <seed>", ramp, ramp), Curve("several", ramp, ramp[::-1], (0.5,) * 8)),
               lines={"paper & co": 4.0}),
        Curves("Logarithmic", "width", "variance", (Curve("measured", ramp, ramp, (5.0,) * 8),), lines={"bound": 2.0},
               log="xy"),
        Curves("One point", "epoch", "accuracy", (Curve("alone", (1.0,), (2.0,), (0.1,)),)),
        Distribution("Over gate orders", "accuracy", {"FL image": ramp, "FL ones": (3.0,)}, {"ReLU": 5.0}),
        HeatMaps("Kernels", {"before training": square, "after training": square}, (0, 0, 1, 1, 2, 2)),
        HeatMaps("Without classes", {"only": square}),
        Pictures("Hidden layers", {"image": (image,), "layer 1": (image, image)}),
        Curves("Nothing yet", "epoch", "accuracy", ()),
        Table("A <table>", ("regime", "ours", "paper %", "difference"),
              (("FL", Spread.of([1.0, 2.0]), "97.10 ± 0.09", -1.25), ("DL", None, None, None)), "A note."),
    )  # fmt: skip


def contents_of_every_kind(n_finished=1):
    sweep = small_sweep()
    tasks = with_dependencies(sweep.tasks)
    runs = [
        RunStatus(task, "finished", 5, about(), headline="90.00 %")
        if number < n_finished
        else RunStatus(task, "begun", 2, {})
        for number, task in enumerate(tasks)
    ]
    runs[-1] = RunStatus(tasks[-1], "failed", 0, {}, error="ValueError: <no> luck")
    return Contents((SweepContents(sweep, tuple(runs), figures_of_every_kind()),), ())


def some_claims():
    return [
        ClaimRow(f"C{number}", f"claim {number}", "97.1", "96.9", "-0.2", verdict, "three seeds")
        for number, verdict in enumerate(VERDICTS, start=1)
    ]
