"""Kernel classification of MNIST with the path kernel of learned gates, up to all 60,000 examples.

    python examples/mnist_kernels.py [table] [all] [million]

- ``table``: kernels beside each other on 10,000 training examples.
- ``all``: the learned path kernel on all 60,000, by conjugate gradients; the kernel matrix is never in memory.
- ``million``: a linear classifier on random-sign features of paths, in one pass over a million shifted copies.

The gates are learned on the examples that the classifier sees, and the ridge is chosen by leave-one-out on training
examples. MNIST is looked for in ``$NEURALPATH_DATA`` and the cache folder; ``neuralpath data`` gets it.
"""

import os
import sys
import time

import torch
from torch import nn

import neuralpath as npath

SMALL = "NEURALPATH_SMALL" in os.environ  # the tests run every example on little data
PARTS = set(sys.argv[1:]) or {"table", "all", "million"}
RIDGES = [10.0**power for power in range(-9, 1)]  # in units of the mean diagonal entry
N_CHOICE = 200 if SMALL else 3000  # examples on which the ridge is chosen

dataset = npath.data.load("digits" if SMALL else "mnist")
shape = tuple(dataset.train.images.shape[1:])
x_test, y_test = dataset.test.images, dataset.test.labels.numpy()


def make_network(width: int = 128, depth: int = 6) -> nn.Module:
    """A fully connected network; every call gives the same weights."""
    return npath.nets.FC(shape, width, depth, 10, generator=torch.Generator().manual_seed(0))


def learned_network(n_train: int, width: int = 128, depth: int = 6) -> nn.Module:
    """A network with gates learned on the first examples."""
    network = make_network(width, depth)
    epochs = 2 if SMALL else 10 if n_train == len(dataset.train) else 5 * len(dataset.train) // n_train
    config = npath.training.TrainingConfig(epochs=epochs, optimizer=npath.training.Adam(3e-4), threads=1)
    examples = npath.data.Split(dataset.train.images[:n_train], dataset.train.labels[:n_train])
    accuracy = npath.training.train(network, examples, dataset.test, config).last.test.accuracy
    print(f"the network itself, {n_train:,} examples, {epochs} epochs: {accuracy:.2%}", flush=True)
    return network


def make_classifier(kernel: npath.Kernel, ridge: float, **settings: object) -> npath.KernelClassifier:
    """Kernel classification with a budget of 16 GiB."""
    return npath.KernelClassifier(kernel, ridge, memory=16 << 30, **settings)


def choose_ridge(kernel: npath.Kernel, x: torch.Tensor, y: object, largest: bool = False) -> float:
    """The best ridge by leave-one-out, or the largest within a standard error, which conjugate gradients solve fast."""
    classifier = make_classifier(kernel, 1e-3).fit(x[:N_CHOICE].double(), y[:N_CHOICE])
    scale = float(classifier.factor_.kernel().diagonal().mean())
    path = classifier.ridge_path([share * scale for share in RIDGES])
    if not largest:
        return path.best_ridge
    fewest = path.error_rates.min()
    bound = fewest + (fewest * (1 - fewest) / N_CHOICE) ** 0.5
    return scale * max(share for share, rate in zip(RIDGES, path.error_rates, strict=True) if rate <= bound)


accuracies: dict[str, float] = {}
if "table" in PARTS:
    n_train = 400 if SMALL else 10_000
    learned, random = learned_network(n_train), make_network()
    # In double precision, since a ridge of a millionth of the diagonal is below single precision.
    x, y = dataset.train.images[:n_train].double(), dataset.train.labels[:n_train].numpy()
    kernels = {
        "linear": npath.LinearKernel(),
        "limit NTK": npath.LimitKernel(random),
        "NPK of random gates": npath.PathKernel(random, normalize=True),
        "NPK of learned gates": npath.PathKernel(learned, normalize=True),
    }
    for name, kernel in kernels.items():
        start = time.perf_counter()
        classifier = make_classifier(kernel, choose_ridge(kernel, x, y)).fit(x, y)
        accuracies[name] = float(classifier.score(x_test.double(), y_test))
        print(f"{name:22} {accuracies[name]:.2%}  {time.perf_counter() - start:.0f} s", flush=True)

if "all" in PARTS:
    learned = learned_network(len(dataset.train))
    x, y = dataset.train.images, dataset.train.labels.numpy()
    kernel = npath.PathKernel(learned, normalize=True)
    ridge = choose_ridge(kernel, x, y, largest=True)
    start = time.perf_counter()
    classifier = make_classifier(kernel, ridge, solver="cg", tol=1e-3, max_iter=100).fit(x, y)
    seconds = time.perf_counter() - start
    accuracies["all"] = float(classifier.score(x_test, y_test))
    print(classifier.report_)
    print(f"all {len(x):,}: {accuracies['all']:.2%}, {seconds:.0f} s to fit", flush=True)

if "million" in PARTS:
    n_examples, n_features = (3000, 32) if SMALL else (1_000_000, 256)
    # A small network, since each feature of each example is a pass through it.
    learned = learned_network(len(dataset.train), width=32, depth=4)
    sketch = npath.SketchClassifier(learned, n_features, 1.0, normalize=True)
    start = time.perf_counter()
    copies = npath.data.shifted_copies(dataset.train, n_examples)
    sketch.fit_batches(((images, labels.numpy()) for images, labels in copies), classes=range(10))
    seconds = time.perf_counter() - start
    accuracies["million"] = float(sketch.score(x_test, y_test))
    print(f"{n_examples:,} examples, {n_features} features: {accuracies['million']:.2%}, {seconds:.0f} s", flush=True)
