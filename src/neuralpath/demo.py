"""The demonstration: a small network on the embedded digits, before and after training, seen as paths."""

import math
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from neuralpath import data, nets
from neuralpath.graph.path_graph import PathGraph
from neuralpath.graph.trace import trace
from neuralpath.readings.counts import active_paths, shared_paths

WIDTH, DEPTH = 64, 4
EPOCHS, BATCH, RATE = 30, 32, 1e-3
SHOWN = 6  # digits in the tables


def run(out: Path, seed: int) -> None:
    """Train, and print how many paths the network has, how many each digit opens, and how many two share."""
    console = Console()
    out.mkdir(parents=True, exist_ok=True)
    digits = data.load("digits")
    generator = torch.Generator().manual_seed(seed)
    model = nets.FC(digits.train.images.shape[1:], WIDTH, DEPTH, digits.n_classes, generator=generator)
    graph = trace(model, digits.train.images[:1])
    console.print(f"[bold]A fully connected ReLU network[/bold] of width {WIDTH} and depth {DEPTH} on 8x8 digits\n")
    console.print(str(graph), highlight=False, soft_wrap=True)
    console.print(f"\nIt is a sum over {graph.n_paths:,} paths into each output.\n")
    x, y = _one_of_each(digits.test, SHOWN)
    _show_paths(console, graph, x, y, "before training")
    _train(model, digits.train, generator)
    with torch.no_grad():
        accuracy = (model(digits.test.images).argmax(1) == digits.test.labels).float().mean()
    console.print(f"\nTrained for {EPOCHS} epochs: test accuracy {accuracy:.1%}\n")
    _show_paths(console, graph, x, y, "after training")


def _one_of_each(split: data.Split, n_classes: int) -> tuple[Float[Tensor, "digit 1 8 8"], Int[Tensor, " digit"]]:
    """The first two examples of each of the first classes, in the order of the classes."""
    rows = [int(i) for label in range(n_classes // 2) for i in (split.labels == label).nonzero()[:2, 0]]
    return split.images[rows], split.labels[rows]


def _train(model: nn.Module, split: data.Split, generator: torch.Generator) -> None:
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(split), generator=generator).split(BATCH):
            optimiser.zero_grad()
            F.cross_entropy(model(split.images[rows]), split.labels[rows]).backward()
            optimiser.step()


def _show_paths(
    console: Console, graph: PathGraph, x: Float[Tensor, "digit 1 8 8"], y: Int[Tensor, " digit"], when: str
) -> None:
    total = math.log(graph.n_paths)
    active = active_paths(graph, x) - total
    shared = shared_paths(graph, x) - total
    table = Table(title=f"Paths {when}: active for a digit, and shared by two, in % of all", title_justify="left")
    for heading in ("digit", "active", *(f"with {label}" for label in y.tolist())):
        table.add_column(heading, justify="right")
    for row, label in enumerate(y.tolist()):
        cells = (_percent(shared[row, column]) for column in range(len(y)))
        table.add_row(str(label), _percent(active[row]), *cells)
    console.print(table)


def _percent(log_share: Float[Tensor, ""]) -> str:
    return f"{100 * math.exp(float(log_share)):.2f}"
