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
from neuralpath.papers import experiments
from neuralpath.papers.experiments import Table, TrainGated, TrainNetwork, label_energy, regimes
from neuralpath.papers.report import WITHIN_ONE_NETWORK, cosine_maps, cosines, draw, write_report
from neuralpath.papers.runs import Store
from neuralpath.paths import log_active_paths, log_shared_paths
from neuralpath.training import ENERGY_JITTER, gates_energy

WIDTH, DEPTH = 64, 4
RECIPE = experiments.TrainingRecipe("adam", 1e-3, batch_size=32, epochs=30)
N_SHOWN = 6  # digits in the tables
PER_CLASS = 20  # digits of each class in the picture of the kernel
GATES = {
    "FL": "of the trained network",
    "DL": "soft, trained at the same time",
    "FR-DI": "random, of the same weights",
    "FR-II": "random, of other weights",
}


def run(out: Path, seed: int) -> None:
    """Train as `neuralpath papers run` does, print how many paths the digits open and share, and write the page."""
    console = Console()
    store = Store(out / "runs")
    # All regimes on the digits with one seed; without biases, as in the theory.
    net = experiments.NetSpec("fc", width=WIDTH, depth=DEPTH, bias=False)
    spec = experiments.DataSpec("digits")
    part = regimes.RegimesPart("digits", spec, (net,), RECIPE, seeds=(seed,), keep=(0,))
    config = regimes.RegimesConfig((part,), gates_from="last")
    task = regimes.relu_network(part, net, seed)
    digits = data.load("digits")
    model = task.make()
    graph = trace(model, digits.train.images[:1])
    console.print(f"[bold]A fully connected ReLU network[/bold] of width {WIDTH} and depth {DEPTH} on 8x8 digits\n")
    console.print(str(graph), highlight=False, soft_wrap=True)
    console.print(f"\nIt is a sum over {graph.n_paths:,} paths into each output.\n")
    # Two examples of each of the first classes, in the order of the classes.
    rows = [int(i) for label in range(N_SHOWN // 2) for i in (digits.test.labels == label).nonzero()[:2, 0]]
    x, y = digits.test.images[rows], digits.test.labels[rows]
    sorted_digits = data.balanced_subset(digits.train, PER_CLASS, torch.Generator().manual_seed(seed))
    order = sorted_digits.labels.argsort(stable=True)
    images, labels = sorted_digits.images[order], sorted_digits.labels[order]
    _show_paths(console, graph, x, y, "before training")
    before = path_kernel(graph, images)
    # The regimes, and the label energy of two classes during training; finished runs are not repeated.
    energy = replace(label_energy.EXPERIMENT.presets["smoke"], seeds=(seed,))
    for experiment, settings in ((regimes.EXPERIMENT, config), (label_energy.EXPERIMENT, energy)):
        experiments.Sweep(experiment, settings, command=f"neuralpath demo --seed {seed}").run(store.out, jobs=1)
    model.load_state_dict(store.directory(task).weights_of(task, "last"))
    accuracy = _accuracy(store, task)
    console.print(f"\nTrained for {RECIPE.epochs} epochs: test accuracy {accuracy:.1%}\n")
    _show_paths(console, graph, x, y, "after training")
    after = path_kernel(graph, images)
    same = (labels[:, None] == labels[None, :]).float()
    start, end = (float(centered_alignment(cosines(kernel), same)) for kernel in (before, after))
    console.print(f"\nCentered alignment of the path kernel with the classes: {start:.3f} before, {end:.3f} after.")
    kernel = cosine_maps({"before training": before, "after training": after}, labels)
    *_, picture = draw(kernel, out, "path_kernel")
    console.print(f"The path kernel of {len(labels)} digits, sorted by class: {picture}\n")
    table = _regimes(model, accuracy, config, store, sorted_digits, seed)
    printed = RichTable(title=f"Gates of one network, weights of another. {table.title}", title_justify="left")
    for heading in table.columns:
        printed.add_column(heading, justify="left" if heading in ("regime", "gates") else "right")
    for row in table.rows:
        printed.add_row(*(f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row))
    console.print(printed)
    console.print(table.note, highlight=False)
    page, title = out / "report.html", "The digits, seen as paths"
    written = write_report(store, page, figures=out / "figures", title=title, kernel=kernel, summary=(table,))
    console.print(f"\nThe same as a page, with a gate explorer: [bold]{written.page}[/bold]", soft_wrap=True)


def _accuracy(store: Store, task: TrainGated | TrainNetwork) -> float:
    """Test accuracy after the last epoch."""
    result = store.result(task)
    assert result is not None
    return float(result["last"]["test_accuracy"])


def _regimes(
    trained: nn.Module, accuracy: float, config: regimes.RegimesConfig, store: Store, split: data.Split, seed: int
) -> Table:
    """Accuracy and label energy of every regime: the gates of one network with the weights of another."""
    own = gates_energy(decouple(trained, "FL", generator=torch.Generator().manual_seed(seed)), split)
    lines = [("ReLU", "its own, trained with it", f"{accuracy:.1%}", own)]
    rows = regimes.rows_of(config, config.parts[0], config.parts[0].nets[0])
    for regime, gates in GATES.items():
        task = rows[regime][seed]
        assert isinstance(task, TrainGated)
        directory = store.directory(task)
        network = task.make(directory)
        network.load_state_dict(directory.weights_of(task, "last"))
        lines.append((regime, gates, f"{_accuracy(store, task):.1%}", gates_energy(network, split)))
    n_classes = len(split.labels.unique())
    note = (
        "* Label energy: y' (H + jitter)^-1 y, where H is the path kernel of the gates, scaled to trace 1, on "
        f"{len(split)} training digits, {len(split) // n_classes} of each class. The jitter is "
        f"{ENERGY_JITTER:g} of its mean eigenvalue. y is 1 for the digits of a class and -1 for the others; the energy "
        f"is the mean over the {n_classes} classes. {WITHIN_ONE_NETWORK}"
    )
    title = "The digits: test accuracy, and label energy of the gates' path kernel"
    return Table(title, ("regime", "gates", "accuracy", "label energy*"), tuple(lines), note)


def _show_paths(
    console: Console, graph: PathGraph, x: Float[Tensor, "digit 1 8 8"], y: Int[Tensor, " digit"], when: str
) -> None:
    total = math.log(graph.n_paths)
    # For each digit: the share of active paths, then the shares of those that it shares with each digit, in percent.
    log_shares = torch.cat([log_active_paths(graph, x)[:, None], log_shared_paths(graph, x)], dim=1) - total
    table = RichTable(title=f"Paths {when}: active for a digit, and shared by two, in % of all", title_justify="left")
    for heading in ("digit", "active", *(f"with {label}" for label in y.tolist())):
        table.add_column(heading, justify="right")
    for label, row in zip(y.tolist(), log_shares.tolist(), strict=True):
        table.add_row(str(label), *(f"{100 * math.exp(log_share):.2f}" for log_share in row))
    console.print(table)
