"""A data set in memory: images and labels, split into training and test examples."""

from dataclasses import dataclass

from jaxtyping import Float, Int64
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)  # eq=False: tensors have no single truth value
class Split:
    """Images and their labels.

    Args:
        images: Values from 0 to 1.
        labels: Class numbers (int64), or -1 and +1 (floating point) in a two-class task.

    Raises:
        ValueError: If the numbers of images and labels differ.
    """

    images: Float[Tensor, "batch channels height width"]
    labels: Int64[Tensor, "batch"] | Float[Tensor, "batch"]

    def __post_init__(self) -> None:
        n_images, n_labels = self.images.shape[0], self.labels.shape[0]
        if n_images != n_labels:
            raise ValueError(
                f"`images` and `labels` must have the same length, got {n_images} and {n_labels}; "
                "select the same examples from both."
            )

    def __len__(self) -> int:
        return self.images.shape[0]


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A data set with its authors' split into training and test examples.

    Args:
        name: Name of the data set.
        train: Training examples.
        test: Test examples.
        class_names: ``class_names[label]`` is the name of a class.

    Raises:
        ValueError: If a label is not the number of a class.
    """

    name: str
    train: Split
    test: Split
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        for part, split in (("train", self.train), ("test", self.test)):
            if len(split) and not 0 <= int(split.labels.min()) <= int(split.labels.max()) < self.n_classes:
                raise ValueError(
                    f"`{part}` labels of {self.name} must lie between 0 and {self.n_classes - 1}, "
                    f"got {int(split.labels.min())} to {int(split.labels.max())}; "
                    "`class_names` must name every class."
                )

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)
