"""Which images does the network see as alike.

The nearest training digits of a test digit, by four measures: the path kernel (the cosine of path features, which are
pixels times active paths), the active paths that two digits share, normalized, their plain number, which favors digits
that open many gates, and the distance of pixels, which knows nothing of the network.
"""

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import torch

import neuralpath as npath

SMALL = "NEURALPATH_SMALL" in os.environ  # the tests run every example on little data
N_NEIGHBORS = 6
digits = npath.data.load("digits")
train = npath.data.Split(digits.train.images[:200], digits.train.labels[:200]) if SMALL else digits.train

# %% A fully connected network, trained.
model = npath.nets.FC(
    (1, 8, 8), width=16 if SMALL else 64, depth=4, n_outputs=10, generator=torch.Generator().manual_seed(0)
)
graph = npath.trace(model, train.images[:1])
x, y = digits.test.images, digits.test.labels
MEASURES = ("kernel", "gates", "paths", "input")


def shares_of_own_class() -> dict[str, float]:
    """How many of a test digit's neighbors are of its class, by each measure."""
    shares = {}
    for measure in MEASURES:
        found = npath.nearest(graph, x, train.images, N_NEIGHBORS, by=measure)
        shares[measure] = float((train.labels[found.indices] == y[:, None]).double().mean())
    return shares


before = shares_of_own_class()
npath.training.train(model, train, digits.test, npath.training.TrainingConfig(epochs=2 if SMALL else 20))
model.eval()
after = shares_of_own_class()
print(f"of the {N_NEIGHBORS} nearest training digits, so many are of the test digit's class:")
for measure in MEASURES:
    print(f"  by {measure:7} {before[measure]:.1%} before training, {after[measure]:.1%} after")

# %% Of interest are the digits that the network gets wrong: whose sub-network do they switch on?
with torch.no_grad():
    answers = model(x).argmax(1)
wrong = (answers != y).nonzero()[:, 0]
print(f"{len(wrong)} of {len(y)} test digits are taken for another")
queries = wrong[:3] if len(wrong) >= 3 else torch.arange(3)
found = {m: npath.nearest(graph, x[queries], train.images, N_NEIGHBORS, by=m) for m in MEASURES}

# %% One query to a block of four rows. Green is the class of the query, red any other.
figure, axes = plt.subplots(
    len(queries) * len(MEASURES), N_NEIGHBORS + 1, figsize=(7.6, 1.15 * len(queries) * len(MEASURES)),
    layout="constrained",
)  # fmt: skip
for axis in axes.flat:
    axis.set(xticks=[], yticks=[])
for block, query in enumerate(queries.tolist()):
    for row, measure in enumerate(MEASURES):
        line = axes[block * len(MEASURES) + row]
        line[0].imshow(x[query, 0].numpy(), cmap="gray_r")
        line[0].set_ylabel(measure)
        line[0].set_title(f"a {int(y[query])}, seen as {int(answers[query])}" if row == 0 else "", fontsize=8)
        for axis, index in zip(line[1:], found[measure].indices[block].tolist(), strict=True):
            label = int(train.labels[index])
            color = "#1a7f37" if label == int(y[query]) else "#b42318"
            axis.imshow(train.images[index, 0].numpy(), cmap="gray_r")
            axis.set_title(str(label), fontsize=8, color=color)
            axis.spines[:].set_color(color)
picture = Path("alike_images.png")
figure.savefig(picture, dpi=120)
print(f"picture: {picture}")
