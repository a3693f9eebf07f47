"""Kernels of convolutional networks on subsets of CIFAR-10: accuracy and time.

    python benchmarks/cifar_kernels.py --data-dir ../shared/data [--part subset large]

`subset`: kernel classification of 1,000 test images from 1,000 training images, 16 x 16, with the CNTK (pooling) and
with GCONV's path kernel before and after training on these images. `large`: the same kernels between 100 images of
32 x 32, timed. The accuracies hold for these subsets and say nothing beyond them. Every ridge is chosen by
leave-one-out on training images. Results are kept in benchmarks/results/cifar_kernels.json.
"""

import argparse
import json
import time

import numpy
import torch

import neuralpath as npath
from measure import RESULTS, save, set_threads
from neuralpath import KernelClassifier, nets
from neuralpath.papers.experiments.specs import DataSpec
from neuralpath.training import Adam, TrainingConfig, train

CHANNELS, HIDDEN, EPOCHS = (16, 16, 32, 32), (64, 64), 100
RIDGES = [10.0**power for power in range(-9, 1)]  # times the mean of the diagonal


def network(size):
    generator = torch.Generator().manual_seed(0)
    return nets.GCONV((3, size, size), 10, channels=CHANNELS, hidden=HIDDEN, bias=False, generator=generator)


def trained(splits, size):
    """The network after training, and its test accuracy."""
    learnt = network(size)
    config = TrainingConfig(epochs=EPOCHS, optimizer=Adam(1e-3))
    accuracy = train(learnt, splits.train, splits.test, config).last.test.accuracy
    print(f"the network itself, {len(splits.train):,} images, {EPOCHS} epochs: {accuracy:.1%}", flush=True)
    return learnt, accuracy


def kernels(random, learnt, x):
    """The kernel functions between two batches, by the names of the table."""
    before, after = npath.trace(random, x[:1]), npath.trace(learnt, x[:1])
    return {
        "CNTK": lambda a, b: npath.limit_tangent_kernel(before, a, b, progress=False),
        "NPK before training": lambda a, b: npath.path_kernel(before, a, b, normalize=True, progress=False),
        "NPK after training": lambda a, b: npath.path_kernel(after, a, b, normalize=True, progress=False),
    }


def classified(own, cross, splits):
    """Test accuracy with the ridge that leaving one training image out prefers."""
    scale = float(own.diagonal().mean())
    own, cross = numpy.asarray(own / scale, numpy.float64), numpy.asarray(cross / scale, numpy.float64)
    labels = splits.train.labels.numpy()
    ridge = KernelClassifier("precomputed", 1e-2).fit(own, labels).ridge_path(RIDGES).best_ridge
    machine = KernelClassifier("precomputed", ridge).fit(own, labels)
    return float(machine.score(cross, splits.test.labels.numpy())), ridge


def subset(data_dir, size, n):
    splits = DataSpec("cifar10", n_train=n, n_test=n, size=size).load(data_dir)
    learnt, accuracy = trained(splits, size)
    train_images, test_images = splits.train.images, splits.test.images
    rows = {}
    for name, kernel in kernels(network(size), learnt, train_images).items():
        kernel(train_images[:2], None)  # compiled
        begun = time.perf_counter()
        own, cross = kernel(train_images, None), kernel(test_images, train_images)
        seconds = time.perf_counter() - begun
        kernel_accuracy, ridge = classified(own, cross, splits)
        rows[name] = {"accuracy": kernel_accuracy, "ridge / mean diagonal": ridge, "seconds": seconds}
        print(f"{name:20} {kernel_accuracy:.1%}  ridge {ridge:.0e} of the diagonal  {seconds:.0f} s", flush=True)
    return {
        "images": [n, n], "size": size, "channels": CHANNELS, "dtype": str(train_images.dtype),
        "network accuracy": accuracy, "kernels": rows,
    }  # fmt: skip


def large(data_dir, size, n):
    images = DataSpec("cifar10", n_train=n, n_test=10, size=size).load(data_dir).train.images
    rows = {}
    for name, kernel in kernels(network(size), network(size), images).items():
        if name == "NPK after training":
            continue  # other weights, the same task
        kernel(images[:2], None)
        begun = time.perf_counter()
        matrix = kernel(images, None)
        seconds = time.perf_counter() - begun
        assert torch.isfinite(matrix).all()
        assert torch.equal(matrix, matrix.T)
        rows[name] = {"seconds": seconds, "seconds per pair": seconds / (n * (n + 1) / 2)}
        print(f"{name:20} {n} images of {size} x {size}: {seconds:.1f} s", flush=True)
    return {"images": n, "size": size, "channels": CHANNELS, "dtype": str(images.dtype), "kernels": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--part", choices=("subset", "large"), nargs="*", default=("subset", "large"))
    parser.add_argument("--n", type=int, default=1000, help="training images of the subset, and test images")
    parser.add_argument("--n-large", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    set_threads(arguments.threads)
    path = RESULTS / "cifar_kernels.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    parts = {
        "subset": lambda: subset(arguments.data_dir, 16, arguments.n),
        "large": lambda: large(arguments.data_dir, 32, arguments.n_large),
    }
    for part in arguments.part:
        results[part] = parts[part]()
        save("cifar_kernels", {name: results[name] for name in parts if name in results})


if __name__ == "__main__":
    main()
