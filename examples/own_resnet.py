"""A ResNet of one's own: from an `nn.Module` to its paths, its gates and its path kernel.

Nothing of the network below is known to the library. `trace` finds gates, weights and skips by the operations that run.
"""

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import neuralpath as npath

SMALL = "NEURALPATH_SMALL" in os.environ  # the tests run every example on little data
digits = npath.data.load("digits")  # 8x8 handwritten digits, embedded in scikit-learn: nothing is downloaded
train = npath.data.Split(digits.train.images[:200], digits.train.labels[:200]) if SMALL else digits.train
torch.manual_seed(0)


# %% A network as anyone would write it: functional ReLUs, a projected skip, batch norm, a max pool.
class Block(nn.Module):
    """Two convolutions and a skip around them; where the number of channels changes, the skip is a 1x1 convolution."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(n_out)
        self.skip = nn.Identity() if n_in == n_out else nn.Conv2d(n_in, n_out, 1, bias=False)

    def forward(self, z: Tensor) -> Tensor:
        """The block's output, gated after the sum."""
        inside = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(z)))))
        return F.relu(inside + self.skip(z))


class SmallResNet(nn.Module):
    """Three residual blocks on 8x8 images."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.blocks1 = Block(width, width)
        self.blocks2 = nn.Sequential(Block(width, 2 * width), Block(2 * width, 2 * width))
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of ten classes."""
        z = self.blocks1(F.relu(self.stem(x)))
        z = self.blocks2(F.max_pool2d(z, 2))
        return self.head(z.mean((2, 3)))


model = SmallResNet(width=2 if SMALL else 12)

# %% Is it supported? The report never raises; for an unsupported model it names every reason.
model.eval()  # batch norm with the statistics of a batch is no network of paths
print(npath.supported(model, train.images[:1]))

# %% The network as gates, weights and paths. A graph follows its model: what comes below needs no second `trace`.
graph = npath.trace(model, train.images[:1])
print(f"{len(graph.gate_names)} layers of gates: {', '.join(graph.gate_names)}")
print(f"{graph.n_paths:,} paths into each output")

# %% Which sub-network does a digit switch on, and how do two of them overlap? Before training, then after it.
shown = npath.data.balanced_subset(train, 1 if SMALL else 10, torch.Generator().manual_seed(0))
order = shown.labels.argsort(stable=True)
images, labels = shown.images[order], shown.labels[order]
same_class = (labels[:, None] == labels[None, :]).float()


def path_cosines() -> Tensor:
    """The path kernel, scaled to ones on its diagonal.

    With unit weights the kernel of a deep network leaves every range of numbers: `normalize` divides each layer by its
    fan-in.
    """
    kernel = npath.path_kernel(graph, images, normalize=True)
    lengths = kernel.diagonal().sqrt()
    return kernel / lengths / lengths[:, None]


before = path_cosines()
config = npath.training.TrainingConfig(epochs=1 if SMALL else 8)
result = npath.training.train(model, train, digits.test, config)
model.eval()
after = path_cosines()
alignments = [float(npath.centered_alignment(cosines, same_class)) for cosines in (before, after)]
accuracy = result.last.test.accuracy
print(f"test accuracy {accuracy:.1%}")
print(f"alignment of the path kernel with the classes: {alignments[0]:.3f} before training, {alignments[1]:.3f} after")

# %% Gates that no training digit opens are of no use to it, and could be cut out.
dead = npath.dead_gates(graph, train.images)
for name in graph.gate_names:
    print(f"{name:24} {int(dead[name].sum()):4} of {dead[name].numel()} gates are dead")

# %% The digits sorted by class. Before training almost every pair shares almost all of its paths; afterwards the digits
# of a class share more of them than others do: blocks on the diagonal.
figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
for axis, cosines, title in zip(axes, (before, after), ("before training", "after training"), strict=True):
    image = axis.imshow(cosines.numpy(), vmin=0, vmax=1, cmap="magma")
    axis.set(title=title, xticks=[], yticks=[], xlabel="digits 0 … 9")
figure.colorbar(image, ax=axes, label="cosine of path features")
picture = Path("own_resnet.png")
figure.savefig(picture, dpi=120)
print(f"picture: {picture}")
