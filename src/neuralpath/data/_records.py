"""A data set in memory."""

from dataclasses import dataclass

from jaxtyping import Float, Int64
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)  # eq=False: tensors have no single truth value
class Split:
    """Images between 0 and 1 and their labels: class numbers, or -1 and +1 in a two-class task."""

    images: Float[Tensor, "batch channels height width"]
    labels: Int64[Tensor, "batch"] | Float[Tensor, "batch"]

    def __post_init__(self) -> None:
        n_images, n_labels = self.images.shape[0], self.labels.shape[0]
        if n_images != n_labels:
            raise ValueError(
                f"`images` and `labels` must be equally many, got {n_images} and {n_labels}; "
                "select the same examples from both."
            )

    def __len__(self) -> int:
        return self.images.shape[0]


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A data set as its authors split it; `class_names[label]` is the name of a label."""

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
