"""`neuralpath neighbors`: the training examples that a model treats as most similar to test examples, as a picture."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuralpath.commands.arguments import ModelOnData, first_examples
from neuralpath.commands.errors import UserError, user_errors

if TYPE_CHECKING:
    from torch import Tensor

    from neuralpath.data import Split
    from neuralpath.paths import Neighbors

# The measures of `nearest`, with their names and the forms of their values in the picture.
MEASURES = {
    "kernel": ("path kernel", "cosine {:.3f}"),
    "gates": ("shared paths, normalized", "share {:.3f}"),
    "paths": ("number of shared paths", "e^{:.1f} paths"),
    "input": ("pixels", "distance {:.2f}"),
}
SAME, OTHER = "#1a7f37", "#b42318"  # colors of neighbors of the query's class, and of other classes


@dataclass(frozen=True, kw_only=True)
class NeighborsCommand(ModelOnData):
    """Draw the training examples that a model treats as most similar to test examples.

    The picture has four rows for each test example: by the path kernel, the cosine of path features (pixels times
    active paths); by the normalized number of shared active paths; by the plain number, which favors examples that
    open many gates; and by the distance of pixels, without the model.
    """

    out: Path
    """Picture file to write, such as `neighbors.png` (needs the extra `report`); without an ending it is a PNG."""
    queries: tuple[int, ...] = (0, 1, 2)
    """Numbers of the test examples."""
    k: int = 8
    """Neighbors of each."""
    count: int | None = None
    """Number of training examples to search, from the first on; all by default."""
    normalize: bool = False
    """Divide every linear node by its fan-in, for path kernels of deep networks."""
    memory: str | None = None
    """Memory budget, such as `8GiB`; half of what is free by default."""

    def run(self) -> int:
        """Search, draw, and print how many neighbors have their query's label."""
        from neuralpath._resources import memory_budget, parse_memory
        from neuralpath.graph import trace
        from neuralpath.paths import nearest

        if self.out.is_dir():
            raise UserError(f"--out {self.out} is a folder: name a picture file, such as {self.out / 'neighbors.png'}.")
        out = self.out if self.out.suffix else self.out.with_name(f"{self.out.name}.png")
        with user_errors(ValueError):
            memory = memory_budget(None if self.memory is None else parse_memory(self.memory))
        loaded = self.load_data()
        train, test = first_examples(loaded.train, self.count), loaded.test
        if not self.queries or not all(0 <= query < len(test) for query in self.queries):
            queries = ", ".join(map(str, self.queries)) or "none"
            raise UserError(f"--queries must be numbers of test examples, from 0 to {len(test) - 1}, got {queries}.")
        model = self.load_model(train.images.shape[1:])
        images, labels = test.images[list(self.queries)], test.labels[list(self.queries)]
        with user_errors(TypeError, ValueError, MemoryError, OverflowError):
            graph = trace(model, train.images[:1])
            search = partial(nearest, graph, images, train.images, self.k, memory=memory)
            rankings = [search(by=by, normalize=self.normalize and by == "kernel") for by in MEASURES]
        _draw(images, labels, train, rankings, out)
        for neighbors in rankings:
            same = (train.labels[neighbors.indices] == labels[:, None]).double().mean()
            print(f"{MEASURES[neighbors.by][0]}: {float(same):.0%} of the neighbors have their query's label")
        print(out)
        return 0


def _draw(queries: "Tensor", labels: "Tensor", train: "Split", rankings: "list[Neighbors]", out: Path) -> None:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        command = 'pip install matplotlib (from a clone: pip install -c constraints.txt ".[report]")'
        raise UserError(f"a picture needs the package matplotlib: {command}.") from error
    k, n_queries = rankings[0].indices.shape[1], len(queries)
    figure = Figure(figsize=(1.15 * (k + 2), 1.45 * len(rankings) * n_queries + 0.3), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(len(rankings) * n_queries, k + 2, width_ratios=[1.6, 0.75, *[1] * k])
    for number in range(n_queries):
        top = len(rankings) * number
        query = figure.add_subplot(grid[top : top + len(rankings), 0])
        _image(query, queries[number], f"query: {int(labels[number])}", 11)
        for row, neighbors in enumerate(rankings):
            measure, form = MEASURES[neighbors.by]
            name = figure.add_subplot(grid[top + row, 1])
            name.axis("off")
            name.text(1.0, 0.5, measure.replace(" ", "\n"), ha="right", va="center", fontsize=8)
            for rank in range(k):
                index = int(neighbors.indices[number, rank])
                label, value = int(train.labels[index]), float(neighbors.values[number, rank])
                axes = figure.add_subplot(grid[top + row, 2 + rank])
                color = SAME if label == int(labels[number]) else OTHER
                _image(axes, train.images[index], str(label), 9, color)
                axes.set_xlabel(form.format(value), fontsize=6.5, labelpad=2)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=140)
    except (OSError, ValueError) as error:  # a folder that cannot be written, or an ending that is no picture's
        raise UserError(f"--out {out} cannot be written: {error}") from error


def _image(axes: Any, image: "Tensor", title: str, size: float, color: str = "black") -> None:
    """An image with a title, grey or in color."""
    pixels = image.movedim(0, -1).clamp(0, 1).numpy()
    axes.imshow(pixels[..., 0] if pixels.shape[-1] == 1 else pixels, cmap="gray_r", vmin=0, vmax=1)
    axes.set_title(title, fontsize=size, color=color, pad=2)
    axes.set(xticks=[], yticks=[])
    for side in axes.spines.values():
        side.set_color(color)
        side.set_linewidth(1.2 if color != "black" else 0.8)
