"""Data sets, networks and training recipes as frozen records, which become flags and are hashed."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from neuralpath._configs import ADDED_LATER
from neuralpath.papers.experiments.settings import check_given, check_integers
from neuralpath.papers.runs import Task
from neuralpath.training import SGD, Adam, Precision, TrainingConfig

if TYPE_CHECKING:
    import torch
    from torch import nn

    from neuralpath.data import Split

DatasetName = Literal["digits", "mnist", "fashion-mnist", "cifar10", "cifar100"]
Variant = Literal["true", "random-labels", "random-pixels"]
Family = Literal["fc", "vconv", "gconv", "davidnet"]
Init = Literal["glorot", "gaussian", "random-sign", "torch"]

_SHAPES: dict[str, tuple[int, int]] = {
    "digits": (1, 8), "mnist": (1, 28), "fashion-mnist": (1, 28), "cifar10": (3, 32), "cifar100": (3, 32),
}  # fmt: skip
"""Channels and side of an image."""

_CLASS_SIZES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "digits": ((136, 154, 151, 135, 143, 143, 151, 153, 138, 133), (42, 28, 26, 48, 38, 39, 30, 26, 36, 47)),
    "mnist": (
        (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    ),
    "fashion-mnist": ((6000,) * 10, (1000,) * 10),
    "cifar10": ((5000,) * 10, (1000,) * 10),
    "cifar100": ((500,) * 100, (100,) * 100),
}
"""Training and test images of each class: a part can have no more of each than the smallest of its classes has."""


class Examples(NamedTuple):
    """Training and test examples."""

    train: "Split"
    test: "Split"


@dataclass(frozen=True)
class DataSpec:
    """A data set, or a part or a variant of one. Test data are never changed but in size."""

    name: DatasetName = "digits"
    n_train: int | None = None
    """Number of training images, equally many of each class, drawn with the seed: a multiple of the number of classes;
    all by default."""
    n_test: int | None = None
    """Number of test images, in the same way."""
    size: int | None = None
    """Side of the images after averaging over equal squares, or after repeating each pixel; it must divide the side or
    be a multiple of it."""
    variant: Variant = "true"
    """Random labels: every training label redrawn; random pixels: every training image shuffled by its own order."""
    noise: float = 0.0
    """Share of the training images, chosen at random, that get a uniformly random label."""
    classes: tuple[int, int] | None = None
    """Two classes only, with labels -1 and +1."""
    seed: int = 0
    """Of subsets, variants and noise."""

    def __post_init__(self) -> None:
        if self.name not in _SHAPES:
            raise ValueError(f"`name` must be one of {', '.join(_SHAPES)}, got {self.name!r}.")
        side, last = _SHAPES[self.name][1], len(_CLASS_SIZES[self.name][0]) - 1
        if self.size is not None and (self.size < 1 or (side % self.size and self.size % side)):
            raise ValueError(f"`size` must divide the side {side} of images or be a multiple of it; got {self.size}.")
        if not 0 <= self.noise <= 1:
            raise ValueError(f"`noise` is a share from 0 to 1, got {self.noise!r}.")
        if self.classes is not None and not 0 <= min(self.classes) < max(self.classes) <= last:
            raise ValueError(f"`classes` must be two of 0 to {last} for {self.name}, got {self.classes}.")
        if self.classes is not None and (self.noise > 0 or self.variant == "random-labels"):
            raise ValueError("`classes` have labels -1 and +1, of which there are none with noise and no random ones.")
        source = self.name if self.classes is None else "{} and {} of {}".format(*self.classes, self.name)
        for setting, sizes in zip(("n_train", "n_test"), _CLASS_SIZES[self.name], strict=True):
            number = getattr(self, setting)
            sizes = sizes if self.classes is None else tuple(sizes[label] for label in self.classes)
            n, most = len(sizes), len(sizes) * min(sizes)
            if number is not None and (number % n or not 0 < number <= most):
                most_of = f"`{setting}` must be a multiple of {n} up to {most:,} for {source}, as many of each class"
                raise ValueError(f"{most_of}; got {number}. Leave it out for all {sum(sizes):,} images.")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        channels, side = _SHAPES[self.name]
        return channels, self.size or side, self.size or side

    @property
    def n_images(self) -> tuple[int, int]:
        """Numbers of training and of test images in the whole data set."""
        train, test = _CLASS_SIZES[self.name]
        return sum(train), sum(test)

    @property
    def n_classes(self) -> int:
        """Classes of the images."""
        return 2 if self.classes is not None else len(_CLASS_SIZES[self.name][0])

    @property
    def n_outputs(self) -> int:
        """Outputs of a network for it: one for two classes with signs."""
        return 1 if self.classes is not None else self.n_classes

    @property
    def label(self) -> str:
        """For the names of runs."""
        parts: list[str] = [self.name]
        parts += [] if self.n_train is None else [str(self.n_train)]
        parts += [] if self.size is None else [f"{self.size}px"]
        parts += [] if self.classes is None else ["{}v{}".format(*self.classes)]
        parts += [] if self.variant == "true" else [self.variant]
        parts += [] if self.noise == 0 else [f"noise{round(100 * self.noise)}"]
        return "-".join(parts)

    def load(self, data_dir: Path | None = None) -> Examples:
        """Read it and change it as said; the same object for the same spec in one process."""
        return _load(self, data_dir)


@dataclass(frozen=True)
class NetSpec:
    """One of the papers' networks."""

    family: Family = "fc"
    width: int = 128
    """Of the hidden layers of `fc`; channels of DavidNet's first layer."""
    depth: int = 6
    """Weight layers of `fc`."""
    channels: tuple[int, ...] = (64, 64, 128, 128)
    """Filters of the convolutions of `vconv` and `gconv`."""
    hidden: tuple[int, ...] = (256, 256)
    """Dense hidden layers of `vconv` and `gconv`."""
    bias: bool = True
    """Biases are trained in the papers' notebooks; the theory has none."""
    init: Init = "glorot"

    def __post_init__(self) -> None:
        for name, value, known in (("family", self.family, get_args(Family)), ("init", self.init, get_args(Init))):
            if value not in known:
                raise ValueError(f"`{name}` must be one of {', '.join(known)}, got {value!r}.")
        check_integers(1, width=self.width, depth=self.depth, channels=self.channels, hidden=self.hidden)
        if self.family in ("vconv", "gconv"):
            check_given(channels=self.channels)

    @property
    def label(self) -> str:
        """For the names of runs."""
        sizes = {"fc": f"w{self.width}-d{self.depth}", "davidnet": f"w{self.width}"}
        shape = f"{self.family}-{sizes.get(self.family) or '-'.join(map(str, self.channels))}"
        return shape + ("" if self.bias else "-nobias") + ("" if self.init == "glorot" else f"-{self.init}")

    def make(self, shape: tuple[int, int, int], n_outputs: int, generator: "torch.Generator") -> "nn.Module":
        """The network with weights drawn from the generator."""
        from neuralpath import nets

        common: dict[str, Any] = {"bias": self.bias, "init": self.init, "generator": generator}
        if self.family == "fc":
            return nets.FC(shape, self.width, self.depth, n_outputs, **common)
        if self.family == "davidnet":
            return nets.DavidNet(shape, n_outputs, width=self.width, **common)
        kind = nets.VCONV if self.family == "vconv" else nets.GCONV
        return kind(shape, n_outputs, channels=self.channels, hidden=self.hidden, **common)


@dataclass(frozen=True)
class TrainingRecipe:
    """Optimizer, rate, batches and epochs; all else as in the papers: a constant rate, cross-entropy."""

    optimizer: Literal["adam", "sgd"] = "adam"
    lr: float = 3e-4
    batch_size: int = 32
    epochs: int = 40
    precision: Precision = field(default="full", metadata=ADDED_LATER)
    """The papers' is full; bfloat16 makes an epoch of convolutions 1.6 times as fast (`benchmarks/precision.py`)."""

    def __post_init__(self) -> None:
        if self.optimizer not in ("adam", "sgd"):
            raise ValueError(f"`optimizer` must be adam or sgd, got {self.optimizer!r}.")
        self.training()  # which refuses bad numbers by their names

    @property
    def label(self) -> str:
        """For tables: the optimizer as the papers spell it."""
        return {"adam": "Adam", "sgd": "SGD"}[self.optimizer]

    def training(self, epochs: int | None = None) -> TrainingConfig:
        """For all epochs, or for another number; the training accuracy is that of the epoch's own passes."""
        optimizer = Adam(self.lr) if self.optimizer == "adam" else SGD(self.lr)
        epochs = self.epochs if epochs is None else epochs
        return TrainingConfig(epochs, self.batch_size, optimizer=optimizer, precision=self.precision)

    def training_until(self, accuracy: float | None, epochs: int, measured_every: int = 1) -> TrainingConfig:
        """Until the training accuracy reaches a share; without one for all epochs.

        It is measured by a pass of its own after each epoch, or if test data are measured less often, in its passes.
        """
        if accuracy is None:
            return self.training(epochs)
        measured: Literal["evaluated", "running"] = "evaluated" if measured_every == 1 else "running"
        training = replace(self.training(epochs), evaluate_every=measured_every, train_metrics=measured)
        return replace(training, stop_at_train_accuracy=accuracy)


def data_of_seed(data: DataSpec, seed: int) -> DataSpec:
    """The data of a run: what is drawn (a subset, random labels, noise) is drawn with the run's seed.

    A variant and the true data of the same seed are then of the same subset, and the whole true data are the same for
    all seeds, so that a network trained on them is shared.
    """
    is_drawn = data.n_train is not None or data.n_test is not None or data.variant != "true" or data.noise > 0
    return replace(data, seed=seed if is_drawn else 0)


def plain_cnn(width: int, depth: int = 4) -> NetSpec:
    """Convolutions of equal width without dense hidden layers."""
    return NetSpec("gconv", channels=(width,) * depth, hidden=())


FIVE_SEEDS = (0, 1, 2, 3, 4)
"""As many as the papers have."""
PAPER_CNN, CIFAR_CNN = plain_cnn(128), plain_cnn(32)
"""The papers' CNN 4x128, and the same with 32 filters, for two cores."""
MNIST, CIFAR, CIFAR_PART = DataSpec("mnist"), DataSpec("cifar10"), DataSpec("cifar10", n_train=10_000)
SMOKE_DATA, SMOKE_FC = DataSpec("digits", n_train=400), NetSpec("fc", 32, 4)
SMOKE_PART, SMOKE_RECIPE = DataSpec("digits", n_train=200, n_test=100), TrainingRecipe("adam", 1e-2, epochs=1)
"""Of the smallest presets, first fully connected, then convolutional."""


def check_tasks(tasks: Iterable[Task], data_dir: Path | None) -> None:
    """Find the data sets of tasks and make their networks, to refuse what cannot run before any run begins."""
    import torch

    from neuralpath import data

    specs = [(getattr(task, "data", None), getattr(task, "net", None)) for task in tasks]
    for name in sorted({spec.name for spec, _ in specs if isinstance(spec, DataSpec)} - {"digits"}):
        data.find(name, data_dir)
    fits = {(net, d.shape, d.n_outputs) for d, net in specs if isinstance(d, DataSpec) and isinstance(net, NetSpec)}
    for net, shape, n_outputs in fits:
        net.make(shape, n_outputs, torch.Generator())


@lru_cache(maxsize=1)
def _whole(name: DatasetName, data_dir: Path | None) -> Any:
    """The whole data set, read once; its subsets and variants share the images."""
    from neuralpath import data

    return data.load(name, data_dir=data_dir)


@lru_cache(maxsize=4)
def _load(spec: DataSpec, data_dir: Path | None) -> Examples:
    import torch

    from neuralpath import data
    from neuralpath.training import derive_seed

    whole = _whole(spec.name, data_dir)

    def drawn(use: str) -> "torch.Generator":
        return torch.Generator().manual_seed(derive_seed(spec.seed, "data", use))

    def part(split: "Split", number: int | None, use: str) -> "Split":
        if spec.classes is not None:
            split = data.binary_task(split, *spec.classes)
        if number is not None:
            split = data.balanced_subset(split, number // spec.n_classes, drawn(use))
        if spec.size is not None:
            split = replace(split, images=torch.nn.functional.adaptive_avg_pool2d(split.images, spec.size))
        return split

    train, test = part(whole.train, spec.n_train, "train subset"), part(whole.test, spec.n_test, "test subset")
    if spec.variant == "random-pixels":
        train = replace(train, images=data.random_pixels(train.images, drawn("pixels")))
    if spec.variant == "random-labels":
        train = replace(train, labels=data.random_labels(train.labels, spec.n_outputs, drawn("labels")))
    if spec.noise > 0:
        train = replace(train, labels=data.label_noise(train.labels, spec.noise, spec.n_outputs, drawn("noise")))
    return Examples(train, test)
