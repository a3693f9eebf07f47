"""The flags of commands that run a model on a data set."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from neuralpath.commands.errors import UserError, check_seed, user_errors
from neuralpath.commands.models import load_model, load_weights

if TYPE_CHECKING:
    import torch
    from torch import nn

    from neuralpath.data import Dataset, Split


@dataclass(frozen=True, kw_only=True)
class ModelOnData:
    """The flags that name a model and a data set."""

    model: tyro.conf.Positional[str]
    """`file.py:NAME`, where NAME is a torch module or a callable that returns one; or one of: fc, vconv, gconv,
    circular-cnn, residual-fc, davidnet."""
    data: str
    """digits, mnist, fashion-mnist, cifar10 or cifar100."""
    weights: Path | None = None
    """Weights of the model: a safetensors file or a state dict of torch. By default the model keeps its own."""
    set: tuple[str, ...] = ()
    """Arguments of the callable, such as `width=128 depth=6`."""
    data_dir: Path | None = None
    """Folder with the data; then $NEURALPATH_DATA and the cache folder."""
    seed: int = 0
    """Seed of all randomness, such as the weights of built-in networks."""

    def load_data(self) -> "Dataset":
        """Load the data set; a wrong seed is refused first."""
        from neuralpath import data

        check_seed(self.seed)
        with user_errors(ValueError):
            return data.load(self.data, data_dir=self.data_dir)

    def load_model(
        self, input_shape: tuple[int, ...], *, n_classes: int | None = None, dtype: "torch.dtype | None" = None
    ) -> "nn.Module":
        """Build the model, with the weights of --weights, for the arguments of `models.load_model`."""
        import torch

        torch.manual_seed(self.seed)
        model = load_model(self.model, input_shape, self.set, n_classes=n_classes)
        if dtype is not None:
            model = model.to(dtype)  # before the weights are read, so that weights in double precision are not rounded
        if self.weights is not None:
            load_weights(model, self.weights)
        return model


def first_examples(split: "Split", count: int | None) -> "Split":
    """The first examples of a part of a data set; all of them if ``count`` is None."""
    if count is not None and not 0 < count <= len(split):
        raise UserError(f"--count must be from 1 to {len(split):,}, got {count}.")
    return type(split)(split.images[:count], split.labels[:count])
