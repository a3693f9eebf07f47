"""Classes as numbers to regress on."""

import numpy as np
from jaxtyping import Float64, Int
from sklearn.utils.multiclass import check_classification_targets

TARGETS = ("centered", "arora")

TRUE_CLASS, OTHER_CLASS = 0.9, -0.1
"""Targets of Arora et al. 2019: for ten classes, one-hot less 1/10."""


def class_numbers(y: np.ndarray) -> tuple[np.ndarray, Int[np.ndarray, " n"]]:
    """The classes in order, and the number of each example's class.

    Raises: ValueError for labels that are not classes, or are all of one class.
    """
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    check_classification_targets(labels)
    if labels.ndim != 1:
        raise ValueError(f"`y` must have one class for each example, got shape {labels.shape}.")
    classes, numbers = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"`y` has one class only, {classes.tolist()[0]!r}: a classifier needs examples of at least two classes."
        )
    return classes, numbers


def class_targets(
    numbers: Int[np.ndarray, " n"], n_classes: int, targets: str
) -> tuple[Float64[np.ndarray, "n k"], Float64[np.ndarray, " k"]]:
    """A column for each class, and the offset that is taken off before fitting and added to the scores.

    ``centered``: one-hot, and the shares of the classes; ``arora``: 0.9 and -0.1, without an offset.
    Raises: ValueError for another name.
    """
    if targets not in TARGETS:
        raise ValueError(f"`targets` must be one of {', '.join(map(repr, TARGETS))}, got {targets!r}.")
    one_hot = np.eye(n_classes)[numbers]
    if targets == "centered":
        return one_hot, one_hot.mean(0)
    return np.where(one_hot > 0, TRUE_CLASS, OTHER_CLASS), np.zeros(n_classes)


def decisions(scores: Float64[np.ndarray, "n k"]) -> Float64[np.ndarray, "n *k"]:
    """Scores as scikit-learn wants them: for two classes, by how much the second is ahead."""
    return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores
