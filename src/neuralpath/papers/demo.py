"""The demonstration: the paths of a small network on the embedded digits, before and after training."""

import math
from dataclasses import replace
from pathlib import Path

import torch
from jaxtyping import Float, Int
from rich.console import Console
from rich.table import Table as RichTable
from torch import Tensor, nn

from neuralpath import data
from neuralpath.gating import decouple
from neuralpath.graph import PathGraph, trace
from neuralpath.kernels import centered_alignment, path_kernel
from neuralpath.papers.experiments import (
    DataSpec,
    NetSpec,
    Sweep,
    Table,
    TrainGated,
    TrainingRecipe,
    TrainNetwork,
    label_energy,
    regimes,
)
from neuralpath.papers.report import WITHIN_ONE_NETWORK, cosine_maps, cosines, draw, write_report
from neuralpath.papers.runs import Store
from neuralpath.paths import log_active_paths, log_shared_paths
from neuralpath.training import ENERGY_JITTER, gates_energy

WIDTH, DEPTH = 64, 4
RECIPE = TrainingRecipe("adam", 1e-3, batch_size=32, epochs=30)
N_SHOWN = 6
"""Digits in the tables."""
PER_CLASS = 20
"""Digits of each class in the picture of the kernel."""
GATES = {
    "FL": "of the trained network",
    "DL": "soft, trained at the same time",
    "FR-DI": "random, of the same weights",
    "FR-II": "random, of other weights",
}


def run(out: Path, seed: int) -> None:
    """Train as `neuralpath papers run` does, print how many paths the digits open and share, and write the page.

    Args:
        out: Folder for the page, the figures and the runs.
        seed: Seed of the weights and of the order of the examples.
    """
    console = Console()
    out.mkdir(parents=True, exist_ok=True)
    store, config = Store(out / "runs"), _config(seed)
    part = config.parts[0]
    task = regimes.relu_network(part, part.nets[0], seed)
    digits = data.load("digits")
    model = task.make()
    graph = trace(model, digits.train.images[:1])
    console.print(f"[bold]A fully connected ReLU network[/bold] of width {WIDTH} and depth {DEPTH} on 8x8 digits\n")
    console.print(str(graph), highlight=False, soft_wrap=True)
    console.print(f"\nIt is a sum over {graph.n_paths:,} paths into each output.\n")
    x, y = _pairs_of_digits(digits.test, N_SHOWN)
    sorted_digits = data.balanced_subset(digits.train, PER_CLASS, torch.Generator().manual_seed(seed))
    order = sorted_digits.labels.argsort(stable=True)
    images, labels = sorted_digits.images[order], sorted_digits.labels[order]
    _show_paths(console, graph, x, y, "before training")
    before = path_kernel(graph, images)
    _run_sweeps(config, seed, store.out)
    model.load_state_dict(store.directory(task).weights_of(task, "last"))
    accuracy = _accuracy(store, task)
    console.print(f"\nTrained for {RECIPE.epochs} epochs: test accuracy {accuracy:.1%}\n")
    _show_paths(console, graph, x, y, "after training")
    after = path_kernel(graph, images)
    same = (labels[:, None] == labels[None, :]).float()
    shares = [float(centered_alignment(cosines(kernel), same)) for kernel in (before, after)]
    console.print(
        f"\nCentered alignment of the path kernel with the classes: {shares[0]:.3f} before, {shares[1]:.3f} after."
    )
    kernel = cosine_maps({"before training": before, "after training": after}, labels)
    *_, picture = draw(kernel, out, "path_kernel")
    console.print(f"The path kernel of {len(labels)} digits, sorted by class: {picture}\n")
    table = _regimes(model, accuracy, config, store, sorted_digits, seed)
    _print_table(console, table)
    page, title = out / "report.html", "The digits, seen as paths"
    written = write_report(store, page, figures=out / "figures", title=title, kernel=kernel, summary=(table,))
    console.print(f"\nThe same as a page, with a gate explorer: [bold]{written.page}[/bold]", soft_wrap=True)


def _config(seed: int) -> regimes.RegimesConfig:
    """All regimes on the digits with one seed; without biases, as in the theory."""
    net = NetSpec("fc", width=WIDTH, depth=DEPTH, bias=False)
    part = regimes.RegimesPart("digits", DataSpec("digits"), (net,), RECIPE, seeds=(seed,), keep=(0,))
    return regimes.RegimesConfig((part,), gates_from="last")


def _run_sweeps(config: regimes.RegimesConfig, seed: int, folder: Path) -> None:
    """Run what is not finished: the regimes, and the label energy of two classes during training."""
    command = f"neuralpath demo --seed {seed}"
    energy = replace(label_energy.EXPERIMENT.presets["smoke"], seeds=(seed,))
    for experiment, settings in ((regimes.EXPERIMENT, config), (label_energy.EXPERIMENT, energy)):
        Sweep(experiment, settings, command=command).run(folder, jobs=1)


def _accuracy(store: Store, task: TrainGated | TrainNetwork) -> float:
    """Test accuracy after the last epoch."""
    result = store.result(task)
    assert result is not None
    return float(result["last"]["test_accuracy"])


def _pairs_of_digits(split: data.Split, n_shown: int) -> tuple[Float[Tensor, "digit 1 8 8"], Int[Tensor, " digit"]]:
    """Two examples of each of the first classes, in the order of the classes."""
    rows = [int(i) for label in range(n_shown // 2) for i in (split.labels == label).nonzero()[:2, 0]]
    return split.images[rows], split.labels[rows]


def _regimes(
    trained: nn.Module, accuracy: float, config: regimes.RegimesConfig, store: Store, split: data.Split, seed: int
) -> Table:
    """Accuracy and label energy of every regime: the gates of one network with the weights of another."""
    own = gates_energy(decouple(trained, "FL", generator=torch.Generator().manual_seed(seed)), split)
    lines = [("ReLU", "its own, trained with it", f"{accuracy:.1%}", own)]
    part = config.parts[0]
    rows = regimes.rows_of(config, part, part.nets[0])
    for regime, gates in GATES.items():
        task = rows[regime][seed]
        assert isinstance(task, TrainGated)
        directory = store.directory(task)
        network = task.make(directory)
        network.load_state_dict(directory.weights_of(task, "last"))
        energy = gates_energy(network, split)
        lines.append((regime, gates, f"{_accuracy(store, task):.1%}", energy))
    n_classes = len(split.labels.unique())
    note = (
        "* Label energy: y' (H + jitter)^-1 y, where H is the path kernel of the gates, scaled to trace 1, on "
        f"{len(split.labels)} training digits, {len(split.labels) // n_classes} of each class. The jitter is "
        f"{ENERGY_JITTER:g} of its mean eigenvalue. y is 1 for the digits of a class and -1 for the others; the energy "
        f"is the mean over the {n_classes} classes. {WITHIN_ONE_NETWORK}"
    )
    title = "The digits: test accuracy, and label energy of the gates' path kernel"
    return Table(title, ("regime", "gates", "accuracy", "label energy*"), tuple(lines), note)


def _print_table(console: Console, table: Table) -> None:
    printed = RichTable(title=f"Gates of one network, weights of another. {table.title}", title_justify="left")
    for heading in table.columns:
        printed.add_column(heading, justify="left" if heading in ("regime", "gates") else "right")
    for row in table.rows:
        printed.add_row(*(f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row))
    console.print(printed)
    console.print(table.note, highlight=False)


def _show_paths(
    console: Console, graph: PathGraph, x: Float[Tensor, "digit 1 8 8"], y: Int[Tensor, " digit"], when: str
) -> None:
    total = math.log(graph.n_paths)
    active = log_active_paths(graph, x) - total
    shared = log_shared_paths(graph, x) - total
    table = RichTable(title=f"Paths {when}: active for a digit, and shared by two, in % of all", title_justify="left")
    for heading in ("digit", "active", *(f"with {label}" for label in y.tolist())):
        table.add_column(heading, justify="right")
    for row, label in enumerate(y.tolist()):
        cells = (_percent(shared[row, column]) for column in range(len(y)))
        table.add_row(str(label), _percent(active[row]), *cells)
    console.print(table)


def _percent(log_share: Float[Tensor, ""]) -> str:
    return f"{100 * math.exp(float(log_share)):.2f}"
