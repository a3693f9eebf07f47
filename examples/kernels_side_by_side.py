"""NPK, NTK and CNTK side by side: the kernels of one architecture, and what each can classify.

- The path kernel (NPK) compares the sub-networks that two images switch on; here of a random and of a trained network.
- The tangent kernel (NTK) compares gradients; here of the same two networks.
- In the limit of infinite width the tangent kernel is a function of the architecture alone; of a convolutional network
  it is called CNTK.
"""

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor

import neuralpath as npath

SMALL = "NEURALPATH_SMALL" in os.environ  # the tests run every example on little data
digits = npath.data.load("digits")
generator = torch.Generator().manual_seed(0)

# %% Few labeled digits, where a good kernel matters; they are sorted by class for the picture. The trained network
# sees these digits only, too.
train = npath.data.balanced_subset(digits.train, 3 if SMALL else 20, generator)
order = train.labels.argsort(stable=True)
train = npath.data.Split(train.images[order], train.labels[order])
test = npath.data.balanced_subset(digits.test, 3, generator) if SMALL else digits.test

# %% One architecture: convolutions, global average pooling, a dense layer. Without biases, as in the theory.
channels = (4, 4) if SMALL else (16, 16, 16)


def make_network() -> npath.nets.GCONV:
    """The architecture with random weights; a generator of its own makes every call give the same ones."""
    return npath.nets.GCONV((1, 8, 8), 10, channels=channels, hidden=(), generator=torch.Generator().manual_seed(1))


random_network, trained_network = make_network(), make_network()
config = npath.training.TrainingConfig(epochs=2 if SMALL else 80, batch_size=10, optimizer=npath.training.Adam(lr=3e-3))
trained = npath.training.train(trained_network, train, test, config)
network_accuracy = trained.last.test.accuracy

# %% Each kernel is an object. `KernelClassifier` computes it and fits by ridge regression on the classes; `ridge_path`
# has the leave-one-out error of many ridges from one eigendecomposition, so no data is set aside. With unit weights a
# path kernel is huge: `normalize` divides each layer by its fan-in.
kernels = {
    "pixels": npath.LinearKernel(),
    "NPK, random gates": npath.PathKernel(random_network, normalize=True),
    "NPK, trained gates": npath.PathKernel(trained_network, normalize=True),
    "NTK, random network": npath.TangentKernel(random_network),
    "NTK, trained network": npath.TangentKernel(trained_network),
    "CNTK, infinite width": npath.LimitKernel(random_network),
}
same_class = (train.labels[:, None] == train.labels[None, :]).float()
matrices: dict[str, Tensor] = {}
accuracies: dict[str, float] = {}
print(f"{'kernel':22} alignment  ridge    test accuracy")
for label, kernel in kernels.items():
    matrices[label] = kernel(train.images)
    scale = float(matrices[label].diagonal().mean())
    ridges = scale * np.logspace(-5, 0, 11)
    classifier = npath.KernelClassifier(kernel, ridge=ridges[-1]).fit(train.images, train.labels)
    best = classifier.ridge_path(ridges).best_ridge
    classifier.set_params(ridge=best).fit(train.images, train.labels)
    accuracies[label] = float(classifier.score(test.images, test.labels))
    alignment = float(npath.centered_alignment(matrices[label], same_class))
    print(f"{label:22} {alignment:9.3f}  {best / scale:7.0e}  {accuracies[label]:.1%}")
print(f"{'the trained network':22} {'':9}  {'':7}  {network_accuracy:.1%}")

# %% The same digits in the eyes of each kernel. What all digits have in common is taken away (the kernel is centered),
# and the rest is scaled to ones on the diagonal.
centering = torch.eye(len(train)) - 1 / len(train)
figure, axes = plt.subplots(2, 3, figsize=(9.5, 6.6), layout="constrained")
for axis, (label, matrix) in zip(axes.flat, matrices.items(), strict=True):
    centered = centering @ matrix @ centering
    lengths = centered.diagonal().sqrt()
    image = axis.imshow((centered / lengths / lengths[:, None]).numpy(), vmin=-1, vmax=1, cmap="RdBu_r")
    axis.set(title=f"{label}: {accuracies[label]:.1%}", xticks=[], yticks=[])
figure.colorbar(image, ax=axes, label="cosine after centering", shrink=0.8)
picture = Path("kernels_side_by_side.png")
figure.savefig(picture, dpi=120)
print(f"picture: {picture}")
