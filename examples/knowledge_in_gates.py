"""Whether a network's knowledge sits in its gates.

Two experiments with a trained network. First its weights are kept and the gates are those of another image: whom does
the answer follow? Then its gates are kept, and all weights behind them are drawn anew and trained.
"""

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import nn

import neuralpath as npath

SMALL = "NEURALPATH_SMALL" in os.environ  # the tests run every example on little data
digits = npath.data.load("digits")
train = npath.data.Split(digits.train.images[:200], digits.train.labels[:200]) if SMALL else digits.train
torch.manual_seed(0)

# %% A plain network of three hidden layers, and its training.
width = 8 if SMALL else 32
model = nn.Sequential(
    nn.Flatten(),
    nn.Linear(64, width), nn.ReLU(),
    nn.Linear(width, width), nn.ReLU(),
    nn.Linear(width, width), nn.ReLU(),
    nn.Linear(width, 10),
)  # fmt: skip
config = npath.training.TrainingConfig(epochs=2 if SMALL else 20)
npath.training.train(model, train, digits.test, config)
model.eval()

# %% The gates of one digit, the pixels of another. `recorded_gates` takes what a run opens, `run_with_gates` runs the
# module with other gates than its own. For fixed gates the network is linear in its input.
x, y = digits.test.images, digits.test.labels
other = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
differ = y != y[other]
with torch.no_grad():
    answers = npath.run_with_gates(model, x, npath.recorded_gates(model, x[other])).argmax(1)
follow_pixels = float((answers == y)[differ].double().mean())
follow_gates = float((answers == y[other])[differ].double().mean())
print(f"pixels of one digit, gates of another: the answer follows the pixels in {follow_pixels:.0%} of the cases,")
print(f"the gates in {follow_gates:.0%}, neither in {1 - follow_pixels - follow_gates:.0%}")

# %% The gates alone: they are frozen, all weights are drawn anew and trained behind them. Beside it the same with gates
# of a random network, and with one layer's gates changed at a time.
found = npath.gating_information(model, train, digits.test, config, layers=True)
print(f"the model                              {found.model:.1%}")
print(f"new weights behind its gates           {found.gates:.1%}")
print(f"new weights behind random gates        {found.random_gates:.1%}")
for layer in found.layers:
    print(f"gates of layer {layer.gate} {layer.change:10}             {layer.accuracy:.1%}")

# %% A layer whose change costs nothing keeps nothing that the others do not have. With 360 test digits and one
# seed a point of accuracy more or less is chance.
names = list(dict.fromkeys(layer.gate for layer in found.layers))
figure, axes = plt.subplots(figsize=(7.5, 3.6), layout="constrained")
changes = {"random": "of a random network", "permuted": "channels permuted", "open": "all open"}
for place, (change, label) in enumerate(changes.items()):
    heights = [100 * layer.accuracy for layer in found.layers if layer.change == change]
    axes.bar([number + 0.25 * (place - 1) for number in range(len(names))], heights, width=0.22, label=label)
for level, label, style in ((found.gates, "its own gates", "-"), (found.random_gates, "random gates", ":")):
    axes.axhline(100 * level, color="black", linestyle=style, linewidth=1, label=f"all layers: {label}")
axes.set(xticks=range(len(names)), xticklabels=[f"gates of layer {name}" for name in names])
axes.set(ylabel="test accuracy, %", ylim=(0, 100) if SMALL else (80, 100))
figure.legend(loc="outside right upper", frameon=False)
picture = Path("knowledge_in_gates.png")
figure.savefig(picture, dpi=120)
print(f"picture: {picture}")
