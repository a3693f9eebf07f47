"""Kernel machines on real MNIST: the path kernel of learnt gates against other kernels, then all 60,000 examples.

    python benchmarks/mnist_kernels.py --data-dir ../shared/data [--part table|all|million]

`table`: test accuracy of kernel classification with 10,000 training examples. `all`: the learnt path kernel on all
60,000 by conjugate gradients, n x n never in memory. `million`: a linear machine on random-sign features of paths, one
pass over a million shifted copies. Gates are learnt on the examples that the machine sees; every ridge is chosen by
leave-one-out on training examples alone. Results are kept in benchmarks/results/mnist_kernels.json.
"""

import argparse
import json
import resource
import time

import torch

from measure import RESULTS, save, set_threads
from neuralpath import KernelClassifier, SketchClassifier, data, nets
from neuralpath.training import Adam, TrainingConfig, train

WIDTH, DEPTH, EPOCHS = 128, 6, 10
SMALL_WIDTH, SMALL_DEPTH = 32, 4  # of the sketches: each feature of each example is a pass through the network
RIDGES = [10.0**power for power in range(-9, 1)]  # times the mean of the diagonal
N_CHOICE = 3000  # examples on which the ridge is chosen
BUDGET = 16 << 30


def network(width=WIDTH, depth=DEPTH):
    return nets.FC((1, 28, 28), width, depth, 10, generator=torch.Generator().manual_seed(0))


def trained(mnist, n_train, width=WIDTH, depth=DEPTH):
    """A network with gates learnt on the first examples, those that the machines see, and its test accuracy."""
    learnt = network(width, depth)
    epochs = EPOCHS * len(mnist.train) // n_train // 2 if n_train < len(mnist.train) else EPOCHS
    config = TrainingConfig(epochs=epochs, optimizer=Adam(3e-4), threads=1)
    some = data.Split(mnist.train.images[:n_train], mnist.train.labels[:n_train])
    accuracy = train(learnt, some, mnist.test, config).last.test.accuracy
    print(f"the network itself, {n_train:,} examples, {epochs} epochs: {accuracy:.2%}", flush=True)
    return learnt, {"accuracy": accuracy, "epochs": epochs, "width": width, "depth": depth}


def flat(split, n=None):
    return split.images[:n].flatten(1), split.labels[:n].numpy()


def make(kernel, model, ridge, **settings):
    # Path kernels of deep networks are scaled by the fan-in of each layer; the other kernels have a scale of their own.
    shape = None if model is None else (1, 28, 28)
    return KernelClassifier(
        kernel, ridge, model=model, input_shape=shape, normalize=kernel == "path", memory=BUDGET, **settings
    )


def chosen_ridge(kernel, model, x, y, largest=False):
    """Best of the ridges by leave-one-out on some training examples, as a multiple of the kernel's mean diagonal.

    With ``largest`` the largest of those whose errors are within a standard error of the fewest: chance cannot tell
    them apart, and conjugate gradients solve it soonest.
    """
    some = make(kernel, model, 1e-3).fit(x[:N_CHOICE].double(), y[:N_CHOICE])
    scale = float(some.factor_.kernel().diagonal().mean())
    path = some.ridge_path([share * scale for share in RIDGES])
    if not largest:
        return path.best_ridge / scale, scale
    fewest = path.error_rates.min()
    bound = fewest + (fewest * (1 - fewest) / N_CHOICE) ** 0.5
    return max(share for share, rate in zip(RIDGES, path.error_rates, strict=True) if rate <= bound), scale


def table(mnist, n_train, n_test):
    learnt, about = trained(mnist, n_train)
    random = network()
    x, y = flat(mnist.train, n_train)
    test, labels = flat(mnist.test, n_test)
    x, test = x.double(), test.double()  # a ridge of a millionth of the diagonal is below single precision
    rows = {}
    for name, kernel, model in (
        ("linear", "linear", None),
        ("limit NTK", "limit-tangent", random),
        ("NPK of random gates", "path", random),
        ("NPK of learnt gates", "path", learnt),
    ):
        begun = time.perf_counter()
        share, scale = chosen_ridge(kernel, model, x, y)
        machine = make(kernel, model, share * scale).fit(x, y)
        fitted = time.perf_counter() - begun
        accuracy = float(machine.score(test, labels))
        rows[name] = {
            "accuracy": accuracy, "ridge / mean diagonal": share, "seconds to fit": fitted,
            "seconds": time.perf_counter() - begun, "leave-one-out error": machine.leave_one_out().error_rate,
        }  # fmt: skip
        print(f"{name:22} {accuracy:.2%}  ridge {share:.0e} of the diagonal  {rows[name]['seconds']:.0f} s", flush=True)
    return {"training examples": n_train, "test examples": n_test, "network": about, "kernels": rows}


def everything(mnist, n_train, n_test):
    """The learnt path kernel on all examples; tiles are computed again in every pass."""
    learnt, about = trained(mnist, n_train)
    x, y = flat(mnist.train, n_train)
    test, labels = flat(mnist.test, n_test)
    share, scale = chosen_ridge("path", learnt, x, y, largest=True)
    begun = time.perf_counter()
    machine = make("path", learnt, share * scale, solver="cg", tol=1e-3, max_iter=100).fit(x, y)
    fitted = time.perf_counter() - begun
    accuracy = float(machine.score(test, labels))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(machine.report_)
    print(f"all {n_train:,}: {accuracy:.2%}, {fitted:.0f} s to fit, peak {peak / 2**30:.1f} GiB", flush=True)
    return {
        "training examples": n_train, "network": about, "accuracy": accuracy, "ridge / mean diagonal": share,
        "seconds to fit": fitted,
        "peak bytes of the process": peak, "passes": machine.n_iter_, "report": str(machine.report_),
    }  # fmt: skip


def million(mnist, n_examples, n_features):
    learnt, about = trained(mnist, len(mnist.train), SMALL_WIDTH, SMALL_DEPTH)
    test, labels = flat(mnist.test)
    machine = SketchClassifier(learnt, n_features, 1.0, input_shape=(1, 28, 28), normalize=True)
    rows = {}
    for n in (len(mnist.train), n_examples):
        begun = time.perf_counter()
        batches = ((images.flatten(1), labels.numpy()) for images, labels in data.shifted_copies(mnist.train, n))
        machine.fit_batches(batches, classes=range(10))
        seconds = time.perf_counter() - begun
        rows[n] = {"seconds": seconds, "accuracy": float(machine.score(test, labels))}
        print(f"{n:,} examples, {n_features} features: {rows[n]['accuracy']:.2%}, {seconds:.0f} s", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"features": n_features, "network": about, "examples": rows, "peak bytes of the process": peak}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--part", choices=("table", "all", "million"), nargs="*", default=("table", "all", "million"))
    parser.add_argument("--n-train", type=int, default=10_000, help="training examples of the table")
    parser.add_argument("--n-all", type=int, default=60_000)
    parser.add_argument("--n-test", type=int, default=10_000)
    parser.add_argument("--n-million", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    set_threads(arguments.threads)
    mnist = data.load("mnist", data_dir=arguments.data_dir)
    path = RESULTS / "mnist_kernels.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    parts = {
        "table": lambda: table(mnist, arguments.n_train, arguments.n_test),
        "all": lambda: everything(mnist, arguments.n_all, arguments.n_test),
        "million": lambda: million(mnist, arguments.n_million, arguments.features),
    }
    for part in arguments.part:
        results[part] = parts[part]()
        save("mnist_kernels", {name: results[name] for name in parts if name in results})


if __name__ == "__main__":
    main()
