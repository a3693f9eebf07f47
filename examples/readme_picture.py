"""Draw the README's picture: the path kernel of digits before and after training, and what the gates alone can do.

Written for a light and for a dark page, to the folder `docs/images` of the repository or to one that is named:

    python examples/readme_picture.py [FOLDER]
"""

# %%
import os
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

import neuralpath as npath

SMALL = "NEURALPATH_SMALL" in os.environ  # the tests run every example on little data
FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "images"
SEEDS = (0, 1) if SMALL else (0, 1, 2, 3, 4)
CONFIG = npath.training.TrainingConfig(epochs=1 if SMALL else 30, threads=1)
REGIMES = {
    "ReLU": "the network itself",
    "FL": "its gates, new weights",
    "DL": "soft gates, learnt along",
    "FR-II": "gates of random weights",
}
PAGES = {
    "light": {"page": "#ffffff", "ink": "#1f2328", "faint": "#d0d7de", "strong": "#0969da", "weak": "#8c959f"},
    "dark": {"page": "#0d1117", "ink": "#e6edf3", "faint": "#30363d", "strong": "#4493f8", "weak": "#7d8590"},
}
digits = npath.data.load("digits")


# %% For each seed a network, its training, and new weights behind gates of three kinds.
def make_network(seed: int) -> npath.nets.FC:
    """A fully connected network of width 64 with four layers of weights, without biases."""
    return npath.nets.FC((1, 8, 8), 64, 4, n_outputs=10, generator=torch.Generator().manual_seed(seed))


def accuracy(model: nn.Module, seed: int) -> float:
    """Test accuracy after training, in percent."""
    config = npath.training.TrainingConfig(epochs=CONFIG.epochs, threads=CONFIG.threads, seed=seed)
    return 100 * npath.training.train(model, digits.train, digits.test, config).last.test.accuracy


accuracies: dict[str, list[float]] = {regime: [] for regime in REGIMES}
for seed in SEEDS:
    model = make_network(seed)
    accuracies["ReLU"].append(accuracy(model, seed))
    for regime in ("FL", "DL", "FR-II"):
        generator = torch.Generator().manual_seed(100 + seed)
        accuracies[regime].append(accuracy(npath.decouple(model, regime, generator=generator), seed))

# %% The path kernel of the first network, on digits that are sorted by class.
some = npath.data.balanced_subset(digits.train, 5 if SMALL else 20, torch.Generator().manual_seed(0))
images = some.images[some.labels.argsort(stable=True)]


def cosines(network: nn.Module) -> Tensor:
    """The path kernel, scaled to ones on its diagonal."""
    kernel = npath.path_kernel(npath.trace(network, images[:1]), images)
    lengths = kernel.diagonal().sqrt()
    return kernel / lengths / lengths[:, None]


network = make_network(SEEDS[0])
kernels = {"before training": cosines(network)}
accuracy(network, SEEDS[0])
kernels["after training"] = cosines(network)


# %% Two pictures of the same figures, in colors that suit the page.
def draw(page: str) -> Path:
    """The kernels on the left, the accuracies on the right."""
    colors = PAGES[page]
    ink = {"text.color": colors["ink"], "axes.labelcolor": colors["ink"], "axes.titlecolor": colors["ink"]}
    ticks = {"xtick.color": colors["ink"], "ytick.color": colors["ink"], "axes.edgecolor": colors["faint"]}
    with plt.rc_context({**ink, **ticks, "axes.facecolor": colors["page"], "font.size": 10}):
        figure = plt.figure(figsize=(11, 3.5), layout="constrained", facecolor=colors["page"])
        left, right = figure.subfigures(1, 2, width_ratios=[1.35, 1])
        for part in (left, right):
            part.set_facecolor(colors["page"])
        _draw_kernels(left, colors["faint"])
        _draw_accuracies(right, colors)
        FOLDER.mkdir(parents=True, exist_ok=True)
        path = FOLDER / f"digits-{page}.png"
        figure.savefig(path, dpi=160, facecolor=colors["page"])
    plt.close(figure)
    return path


def _draw_kernels(part, faint: str) -> None:  # type: ignore[no-untyped-def]
    axes = part.subplots(1, 2)
    n_each = len(images) // 10
    middles = [n_each * (digit + 0.5) - 0.5 for digit in range(10)]
    for axis, (title, kernel) in zip(axes, kernels.items(), strict=True):
        shown = axis.imshow(kernel.numpy(), vmin=0, vmax=1, cmap="magma", interpolation="nearest")
        axis.set_title(title, fontsize=10)
        axis.set_xticks(middles, range(10))
        axis.set_yticks(middles, range(10))
        axis.tick_params(length=0, labelsize=8)
    bar = part.colorbar(shown, ax=axes, shrink=0.82, ticks=[0, 0.5, 1])
    bar.outline.set_edgecolor(faint)
    part.suptitle("Shared paths of digits 0 to 9: cosine of path features", fontsize=11)


def _draw_accuracies(part, colors: dict[str, str]) -> None:  # type: ignore[no-untyped-def]
    axis = part.subplots()
    for row, (regime, values) in enumerate(accuracies.items()):
        color = colors["weak"] if regime == "FR-II" else colors["strong"]
        mean = sum(values) / len(values)
        axis.plot(values, [row] * len(values), "o", color=color, alpha=0.45, markersize=6, markeredgewidth=0)
        axis.plot([mean, mean], [row - 0.26, row + 0.26], color=color, linewidth=2.5)
        axis.annotate(f"{mean:.1f} %", (mean, row - 0.3), ha="center", va="bottom", fontsize=9)
    axis.set_yticks(range(len(REGIMES)), REGIMES.values())
    axis.set_ylim(len(REGIMES) - 0.5, -0.75)
    axis.set_xlabel("test accuracy, %")
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x", color=colors["faint"], linewidth=0.7)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.set_axisbelow(True)
    part.suptitle("Keep the gates, throw the weights away", fontsize=11)


pictures = [draw(page) for page in PAGES]
for regime, values in accuracies.items():
    print(f"{REGIMES[regime]:26} {' '.join(f'{value:.1f}' for value in values)} %")
print(*pictures, sep="\n")
