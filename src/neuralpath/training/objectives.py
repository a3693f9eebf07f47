"""Objectives: the loss that training minimizes and the count of correct answers, for each kind of labels and loss.

An objective has three methods. ``targets`` turns labels into the tensor that the loss compares outputs with, once for
all examples; it refuses labels that do not fit the number of outputs of ``probe``, and calls them ``name`` in messages.
``loss`` is the mean over the examples of a batch, ``n_correct`` the number of correct answers.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64, Shaped
from torch import Tensor

from neuralpath._checks import describe
from neuralpath.training.config import TrainingConfig

Labels = Int64[Tensor, " batch"] | Float[Tensor, " batch"]
Outputs = Float[Tensor, "batch n_outputs"]
Targets = Shaped[Tensor, "batch ..."]
Probe = Float[Tensor, "_examples n_outputs"]
Mean = Float[Tensor, ""]
Count = Int64[Tensor, ""]


class SoftmaxCrossEntropy:
    """Cross-entropy of the softmax with the class: ``log sum exp(outputs) - outputs[label]``."""

    def targets(self, labels: Labels, probe: Probe, name: str = "labels") -> Int64[Tensor, " batch"]:
        """The labels themselves."""
        _check_classes(labels, probe, name)
        return labels

    def loss(self, outputs: Outputs, targets: Int64[Tensor, " batch"]) -> Mean:
        """Mean over the examples."""
        return F.cross_entropy(outputs, targets)

    def n_correct(self, outputs: Outputs, targets: Int64[Tensor, " batch"]) -> Count:
        """Number of examples whose class has the largest output."""
        return (outputs.argmax(1) == targets).sum()


class OneHotSquares:
    """Half the squared distance of the outputs from the one-hot vector of the class."""

    def targets(self, labels: Labels, probe: Probe, name: str = "labels") -> Float[Tensor, "batch n_outputs"]:
        """One-hot vectors."""
        _check_classes(labels, probe, name)
        return F.one_hot(labels, probe.shape[1]).to(probe.dtype)

    def loss(self, outputs: Outputs, targets: Float[Tensor, "batch n_outputs"]) -> Mean:
        """Mean over the examples."""
        return F.mse_loss(outputs, targets, reduction="sum") * (0.5 / len(outputs))

    def n_correct(self, outputs: Outputs, targets: Float[Tensor, "batch n_outputs"]) -> Count:
        """Number of examples whose class has the largest output."""
        return (outputs.argmax(1) == targets.argmax(1)).sum()


class _Signs:
    """Labels -1 and +1 for one output. The sign of the output is the answer; 0 counts as -1."""

    def targets(self, labels: Labels, probe: Probe, name: str = "labels") -> Float[Tensor, "batch 1"]:
        """The labels as a column."""
        if probe.shape[1] != 1:
            raise ValueError(
                f"`{name}` of -1 and +1 need a model with one output, this one has {probe.shape[1]}; "
                "use class numbers (int64) for several outputs."
            )
        is_sign = (labels == 1) | (labels == -1)
        if not bool(is_sign.all()):
            index = int(torch.nonzero(~is_sign)[0, 0])
            raise ValueError(
                f"`{name}` of floating point must be -1 or +1, got {float(labels[index])} at index {index}; "
                "class numbers must be int64, `labels.long()`."
            )
        return labels[:, None].to(probe.dtype)

    def n_correct(self, outputs: Float[Tensor, "batch 1"], targets: Float[Tensor, "batch 1"]) -> Count:
        """Number of examples whose output has the sign of the label."""
        return ((outputs > 0) == (targets > 0)).sum()


class SignSquares(_Signs):
    """Half the squared distance of the output from the label -1 or +1."""

    def loss(self, outputs: Float[Tensor, "batch 1"], targets: Float[Tensor, "batch 1"]) -> Mean:
        """Mean over the examples."""
        return F.mse_loss(outputs, targets, reduction="sum") * (0.5 / len(outputs))


class Logistic(_Signs):
    """Cross-entropy of two classes with one output: ``log(1 + exp(-label * output))``."""

    def loss(self, outputs: Float[Tensor, "batch 1"], targets: Float[Tensor, "batch 1"]) -> Mean:
        """Mean over the examples."""
        return F.softplus(-targets * outputs).mean()


Objective = SoftmaxCrossEntropy | OneHotSquares | SignSquares | Logistic


def objective_for(config: TrainingConfig, labels: Labels) -> Objective:
    """The objective for the loss of the config and labels of this dtype."""
    if labels.dtype == torch.int64:
        return SoftmaxCrossEntropy() if config.loss == "cross-entropy" else OneHotSquares()
    if labels.is_floating_point():
        return Logistic() if config.loss == "cross-entropy" else SignSquares()
    raise TypeError(
        f"`labels` must be class numbers (int64) or -1 and +1 (floating point), got {describe(labels)}; "
        "convert them, for example with `labels.long()`."
    )


def _check_classes(labels: Labels, probe: Probe, name: str) -> None:
    n_outputs = probe.shape[1]
    is_class = (labels >= 0) & (labels < n_outputs)
    if not bool(is_class.all()):
        index = int(torch.nonzero(~is_class)[0, 0])
        raise ValueError(
            f"`{name}` must lie between 0 and {n_outputs - 1}, because the model has {n_outputs} outputs; "
            f"got {int(labels[index])} at index {index}, and {int((~is_class).sum())} such labels in all."
            + (" Labels for one output are -1 and +1, as floats." if n_outputs == 1 else "")
        )
