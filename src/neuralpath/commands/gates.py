"""`neuralpath gates`: how much of what a model has learnt sits in its gates."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from neuralpath.commands.errors import UserError
from neuralpath.commands.models import load_model, load_weights

if TYPE_CHECKING:
    from neuralpath.training.information import GatingInformation


@dataclass(frozen=True)
class Gates:
    """Train new weights behind a model's gates, and behind random gates, and report what is recovered."""

    model: tyro.conf.Positional[str]
    """`file.py:callable` that returns a torch module, or one of: fc, vconv, gconv, circular-cnn, residual-fc,
    davidnet."""
    data: str
    """digits, mnist, fashion-mnist, cifar10 or cifar100."""
    weights: Path | None = None
    """Weights of the trained model, a safetensors file or a state dict of torch; otherwise those that the callable
    gives it."""
    set: tuple[str, ...] = ()
    """Arguments of the callable, such as `width=128 depth=6`."""
    epochs: int = 20
    """Epochs of each training."""
    batch_size: int = 32
    """Examples of a step."""
    rate: float = 1e-3
    """Learning rate of Adam."""
    no_layers: bool = False
    """Leave out the part that changes the gates of one layer at a time, three trainings for each."""
    hyperplanes: Path | None = None
    """For a model whose gates are linear in the input, such as LinearGatedFC: write each gate's hyperplane as a
    picture to this PNG file (needs the extra `report`)."""
    folder: Path | None = None
    """Folder for checkpoints: a run that was interrupted goes on from there."""
    json: bool = False
    """Print one JSON object instead of tables."""
    data_dir: Path | None = None
    """Folder with the data; then $NEURALPATH_DATA and the cache folder."""
    seed: int = 0
    """Seed of all that is drawn."""

    def run(self) -> int:
        """Measure, and print tables or JSON."""
        import torch

        from neuralpath import data
        from neuralpath.gating.hyperplanes import draw_hyperplanes
        from neuralpath.training import Adam, CheckpointError, TrainingConfig, TrainingDiverged
        from neuralpath.training.information import gating_information

        try:
            config = TrainingConfig(
                epochs=self.epochs, batch_size=self.batch_size, optimiser=Adam(self.rate), seed=self.seed
            )
            if self.epochs < 1:
                raise ValueError(f"--epochs must be at least 1, got {self.epochs}.")
            loaded = data.load(self.data, data_dir=self.data_dir)
        except ValueError as error:
            raise UserError(str(error)) from error
        torch.manual_seed(self.seed)
        model = load_model(self.model, loaded.train.images.shape[1:], self.set)
        if self.weights is not None:
            load_weights(model, self.weights)
        try:
            if self.hyperplanes is not None:
                draw_hyperplanes(model, loaded.train.images[:2], self.hyperplanes)
            found = gating_information(
                model, loaded.train, loaded.test, config, layers=not self.no_layers, folder=self.folder
            )
        except (TypeError, ValueError, CheckpointError, TrainingDiverged) as error:
            raise UserError(str(error)) from error
        if self.json:
            print(json.dumps({**asdict(found), "share_recovered": found.share_recovered}, indent=2))
        else:
            _show(found)
        return 0


def _show(found: "GatingInformation") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table("network", "test accuracy", "label energy", title="What the gates hold", title_justify="left")
    for name, accuracy, energy in (
        ("the model", found.model, None),
        ("new weights behind its gates", found.gates, found.label_energy),
        ("new weights behind random gates", found.random_gates, found.random_label_energy),
    ):
        table.add_row(name, f"{accuracy:.2%}", "" if energy is None else f"{energy:.4g}")
    console.print(table)
    share = found.share_recovered
    console.print(
        "The model is no better than random gates." if share is None
        else f"Of what the model gains over random gates, its gates recover {share:.0%}."
    )  # fmt: skip
    if found.no_label_energy is not None:
        console.print(f"No label energy: {found.no_label_energy}", highlight=False)
    if not found.layers:
        return
    losses = Table(title="Points of accuracy lost when one layer's gates are changed", title_justify="left")
    for heading in ("layer", "random", "permuted", "open"):
        losses.add_column(heading, justify="left" if heading == "layer" else "right")
    for gate in dict.fromkeys(layer.gate for layer in found.layers):
        by_change = {layer.change: layer.accuracy for layer in found.layers if layer.gate == gate}
        lost = (f"{100 * (found.gates - by_change[change]):.2f}" for change in ("random", "permuted", "open"))
        losses.add_row(gate, *lost)
    console.print(losses)
