"""The known data sets: their files, the published checksums, and the addresses for downloads.

Where the checksums come from:

- MNIST and Fashion-MNIST: SHA-256 of the uncompressed idx files, as recorded in public code and computed
  from complete copies; the checksums of the compressed files are those that users of the download pages rely on
  (the MD5s are printed in Fashion-MNIST's own readme).
- CIFAR-10: SHA-256 of the six members, as recorded in public code and computed from a complete copy.
- CIFAR-100: SHA-256 of the two members, as recorded in public code (torchvision for Ruby, whose sums for
  CIFAR-10 agree with the above). They were not computed from a copy here.
"""

import difflib
import hashlib
import math
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

EMBEDDED = "digits"  # comes with scikit-learn, so there is no file to find or to download


class DataError(ValueError):
    """A data set is missing, damaged, refused or could not be downloaded; the message says what to do."""


class DamagedFile(DataError):
    """A file exists, but its contents are wrong."""


class PickledData(DataError):
    """Only the pickled version of a data set is there, which is never opened."""


@dataclass(frozen=True, slots=True)
class Checksum:
    """A published checksum.

    Args:
        algorithm: Name of the hash function.
        digest: Its value, in hexadecimal digits.
    """

    algorithm: Literal["md5", "sha256"]
    digest: str

    def matches(self, contents: bytes) -> bool:
        """Whether contents have this checksum.

        Args:
            contents: All bytes.
        """
        return hashlib.new(self.algorithm, contents, usedforsecurity=False).hexdigest() == self.digest


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a data set, uncompressed.

    Args:
        name: Name of the file.
        shape: Shape of its array of bytes, number of examples first.
        checksum: Checksum of the uncompressed contents.
    """

    name: str
    shape: tuple[int, ...]
    checksum: Checksum

    @property
    def n_values(self) -> int:
        """Number of bytes without any header."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Download:
    """One file as it is offered for download.

    Args:
        name: Name of the file, which is appended to the address of a mirror.
        size: Number of bytes.
        checksum: Checksum of the file as it is downloaded.
    """

    name: str
    size: int
    checksum: Checksum


@dataclass(frozen=True, kw_only=True)
class _Source:
    """The description of a data set: what the two file formats have in common."""

    name: str
    class_names: tuple[str, ...]
    folders: tuple[str, ...]
    downloads: tuple[Download, ...]
    mirrors: tuple[str, ...]
    refused: tuple[str, ...] = ()

    def fetch_command(self, data_dir: str | os.PathLike[str] | None = None) -> str:
        """The command that downloads the data set, for messages."""
        flag = "" if data_dir is None else f" --data-dir {shlex.quote(os.fspath(data_dir))}"
        return f"`neuralpath data fetch {self.name}{flag}`"

    def pickled_refusal(self, path: str, command: str) -> str:
        """The message that refuses the pickled version and names the one that can be read."""
        return (
            f"{self.name}: {path} is the pickled Python version, which is refused because unpickling can run "
            f"code; get {self.downloads[0].name} with {command} or from {self.mirrors[0]}."
        )


@dataclass(frozen=True, kw_only=True)
class IdxSource(_Source):
    """A data set of four idx files, each compressed with gzip or not.

    Args:
        name: Name of the data set.
        class_names: Names of its classes, in the order of the labels.
        folders: Folders that are searched below a data folder, besides the folder itself.
        downloads: The files to download.
        mirrors: Addresses that the names of the downloads are appended to.
        refused: Names of files and folders of the pickled version, which is never opened.
        train_images: File of the training images.
        train_labels: File of the training labels.
        test_images: File of the test images.
        test_labels: File of the test labels.
    """

    train_images: DataFile
    train_labels: DataFile
    test_images: DataFile
    test_labels: DataFile

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All files of the data set."""
        return (self.train_images, self.train_labels, self.test_images, self.test_labels)


@dataclass(frozen=True, kw_only=True)
class CifarSource(_Source):
    """A data set in CIFAR's binary layout: each record has label bytes, then a plane of red, green and blue.

    Args:
        name: Name of the data set.
        class_names: Names of its classes, in the order of the labels.
        folders: Folders that are searched below a data folder, besides the folder itself.
        downloads: The files to download.
        mirrors: Addresses that the names of the downloads are appended to.
        refused: Names of files and folders of the pickled version, which is never opened.
        archives: Names that the tar archive may have.
        member_folder: The folder that the archive unpacks to.
        n_label_bytes: Label bytes of a record; the last one is the label.
        side: Height and width of an image.
        train: Files of the training examples.
        test: Files of the test examples.
    """

    archives: tuple[str, ...]
    member_folder: str
    n_label_bytes: int
    side: int
    train: tuple[DataFile, ...]
    test: tuple[DataFile, ...]

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All files of the data set."""
        return self.train + self.test


Source: TypeAlias = IdxSource | CifarSource


def _sha256(digest: str) -> Checksum:
    return Checksum("sha256", digest)


def _md5(digest: str) -> Checksum:
    return Checksum("md5", digest)


def _data_file(name: str, shape: tuple[int, ...], digest: str) -> DataFile:
    return DataFile(name, shape, _sha256(digest))


def _mnist_source(
    *, digests: tuple[str, ...], downloads: tuple[tuple[int, Checksum], ...], **settings: Any
) -> IdxSource:
    """MNIST or Fashion-MNIST, whose files have equal names and shapes but different sizes and checksums."""
    names = [f"{part}-{kind}" for part in ("train", "t10k") for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")]
    shapes = [(60_000, 28, 28), (60_000,), (10_000, 28, 28), (10_000,)]
    files = [DataFile(name, shape, _sha256(digest)) for name, shape, digest in zip(names, shapes, digests, strict=True)]
    return IdxSource(
        train_images=files[0],
        train_labels=files[1],
        test_images=files[2],
        test_labels=files[3],
        downloads=tuple(Download(f"{name}.gz", *item) for name, item in zip(names, downloads, strict=True)),
        **settings,
    )


MNIST = _mnist_source(
    name="mnist",
    class_names=tuple("0123456789"),
    folders=("mnist", "MNIST/raw", "MNIST"),
    digests=(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    downloads=(
        (9_912_422, _sha256("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609")),
        (28_881, _sha256("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c")),
        (1_648_877, _sha256("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6")),
        (4_542, _sha256("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6")),
    ),
    mirrors=("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    refused=("mnist.pkl.gz", "mnist.pkl"),
)

FASHION_MNIST = _mnist_source(
    name="fashion-mnist",
    class_names=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    folders=("fashion-mnist", "fashion_mnist", "fashion", "FashionMNIST/raw", "FashionMNIST"),
    digests=(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    downloads=(
        (26_421_880, _md5("8d4fb7e6c68d591d4c3dfef9ec88bf0d")),
        (29_515, _md5("25c81989df183df01b3e8a0aad5dffbe")),
        (4_422_102, _md5("bef4ecab320f06d8554ea6380940ec79")),
        (5_148, _md5("bb300cfdad3c16e7a12a480ee83cd310")),
    ),
    mirrors=(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    ),
)


def _cifar_source(n_classes: int, *, size: int, digest: str, **settings: Any) -> CifarSource:
    """CIFAR-10 or CIFAR-100, from the size and the checksum of the archive and the settings in which they differ."""
    name = f"cifar-{n_classes}"
    return CifarSource(
        name=f"cifar{n_classes}",
        folders=(f"cifar{n_classes}", name, f"CIFAR{n_classes}", f"CIFAR-{n_classes}"),
        archives=(f"{name}-binary.tar.gz", f"{name}-binary.tar"),
        side=32,
        downloads=(Download(f"{name}-binary.tar.gz", size, _sha256(digest)),),
        mirrors=("https://www.cs.toronto.edu/~kriz/",),
        **settings,
    )


CIFAR10 = _cifar_source(
    10,
    size=170_052_171,
    digest="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    class_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    member_folder="cifar-10-batches-bin",
    n_label_bytes=1,
    train=tuple(
        _data_file(f"data_batch_{number}.bin", (10_000, 3073), digest)
        for number, digest in (
            (1, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
            (2, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
            (3, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
            (4, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
            (5, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
        )
    ),
    test=(
        _data_file(
            "test_batch.bin", (10_000, 3073), "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"
        ),
    ),
    refused=("cifar-10-python.tar.gz", "cifar-10-batches-py"),
)

# In the order of the fine labels.
_CIFAR100_CLASSES = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
    camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup
    dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower
    leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid
    otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray
    road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
    sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
    wardrobe whale willow_tree wolf woman worm
"""

CIFAR100 = _cifar_source(
    100,
    size=168_513_733,
    digest="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    class_names=tuple(_CIFAR100_CLASSES.split()),
    member_folder="cifar-100-binary",
    n_label_bytes=2,  # coarse, then fine
    train=(
        _data_file("train.bin", (50_000, 3074), "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),
    ),
    test=(_data_file("test.bin", (10_000, 3074), "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),),
    refused=("cifar-100-python.tar.gz", "cifar-100-python"),
)

SOURCES: Mapping[str, Source] = MappingProxyType(
    {source.name: source for source in (MNIST, FASHION_MNIST, CIFAR10, CIFAR100)}
)


def names(sources: Mapping[str, Source] = SOURCES) -> tuple[str, ...]:
    """Names of the data sets that `load` knows.

    Args:
        sources: Descriptions of the known data sets.

    >>> names()
    ('digits', 'mnist', 'fashion-mnist', 'cifar10', 'cifar100')
    """
    return (EMBEDDED, *sources)


def lookup(name: str, sources: Mapping[str, Source]) -> Source:
    """The description of a data set. The embedded digits have none.

    Raises: DataError for an unknown name, with the known ones.
    """
    if name == EMBEDDED:
        raise DataError(f"{EMBEDDED} comes with scikit-learn and has no file of its own: load it directly.")
    if name not in sources:
        close = difflib.get_close_matches(name, names(sources), n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise DataError(f"No data set is called {name!r}; known are {', '.join(names(sources))}.{hint}")
    return sources[name]
