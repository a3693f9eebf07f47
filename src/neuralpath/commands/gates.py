"""`neuralpath gates`: how much of what a model has learned is in its gates."""

import json
import sys
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from neuralpath.commands.arguments import ModelOnData
from neuralpath.commands.errors import UserError, user_errors
from neuralpath.commands.models import is_file_name

if TYPE_CHECKING:
    from neuralpath.training import GatingInformation


@dataclass(frozen=True, kw_only=True)
class GatesCommand(ModelOnData):
    """Train new weights with a model's gates, and with random gates, and report the accuracy they recover."""

    train: int | None = None
    """First train the model itself for this many epochs, with the same settings as the new weights."""
    epochs: int = 20
    """Epochs of each training of new weights."""
    batch_size: int = 32
    """Examples in each step."""
    lr: float = 1e-3
    """Learning rate of Adam."""
    no_layers: bool = False
    """Skip the part that changes the gates of one layer at a time, which trains three networks for each layer."""
    no_label_energy: bool = False
    """Skip the label energies, which take some seconds for image networks."""
    hyperplanes: Path | None = None
    """PNG file for a picture of each gate's hyperplane (needs the extra `report`); only for a model whose gates are
    linear in the input, such as LinearGatedFC."""
    folder: Path | None = None
    """Folder for checkpoints; an interrupted run resumes from them."""
    threads: int | None = None
    """Threads of torch; all by default."""
    json: bool = False
    """Print one JSON object instead of tables."""

    def run(self) -> int:
        """Measure, and print tables or JSON."""
        from neuralpath._resources import check_threads, pinned_threads

        for flag, number in (("--epochs", self.epochs), ("--train", self.train)):
            if number is not None and number < 1:
                raise UserError(f"{flag} must be at least 1, got {number}.")
        with user_errors(ValueError):
            check_threads(1 if self.threads is None else self.threads, "--threads")
        if self.hyperplanes is not None and self.hyperplanes.is_dir():
            raise UserError(f"{self.hyperplanes} is a folder; give --hyperplanes a file.")
        with nullcontext() if self.threads is None else pinned_threads(self.threads):
            report = self._measure()
        if self.json:
            print(json.dumps({**asdict(report), "share_recovered": report.share_recovered}, indent=2))
        else:
            _print(report)
        return 0

    def _measure(self) -> "GatingInformation":
        from neuralpath._hashing import weights_digest
        from neuralpath.gating import draw_hyperplanes
        from neuralpath.training import Adam, TrainingConfig, TrainingDiverged, gating_information, train

        loaded = self.load_data()
        with user_errors(ValueError):
            config = TrainingConfig(self.epochs, self.batch_size, Adam(self.lr), seed=self.seed)
        n_classes = len(loaded.train.labels.unique())
        model = self.load_model(loaded.train.images.shape[1:], n_classes=n_classes)
        if self.weights is None and self.train is None:
            has = "has the weights of its file" if is_file_name(self.model) else "has random weights"
            hint = "load trained weights with --weights, or train it first with --train EPOCHS"
            print(f"{self.model} {has}; {hint}", file=sys.stderr)
        with user_errors(TypeError, ValueError, TrainingDiverged):
            if self.train is not None:
                folder = None if self.folder is None else self.folder / "model"
                identity = None if self.weights is None else {"weights": weights_digest(model)}
                own = replace(config, epochs=self.train)
                train(model, loaded.train, loaded.test, own, folder=folder, identity=identity)
            if self.hyperplanes is not None:
                try:
                    draw_hyperplanes(model, loaded.train.images[:2], self.hyperplanes)
                except OSError as error:
                    problem = f"{self.hyperplanes} cannot be written: {error.strerror or error}"
                    raise UserError(f"{problem}; give --hyperplanes another file.") from error
            return gating_information(
                model, loaded.train, loaded.test, config, layers=not self.no_layers,
                label_energy=not self.no_label_energy, folder=self.folder,
            )  # fmt: skip


_ENERGY_NOTE = (
    "Label energy: \N{GREEK SMALL LETTER NU} = y' (H + jitter)^-1 y, with the labels y of one class against the others "
    "and the path kernel H, of trace 1, of {} training examples; the mean over classes. It is smaller if H suits the "
    "labels better. Compare it within one network over training; it does not rank different networks."
)


def _print(report: "GatingInformation") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table("network", "test accuracy", "label energy", title="Accuracy in the gates", title_justify="left")
    energies = ["" if e is None else f"{e:.4g}" for e in (report.label_energy, report.random_label_energy)]
    table.add_row("the model", f"{report.model:.2%}")
    table.add_row("new weights with its gates", f"{report.gates:.2%}", energies[0])
    table.add_row("new weights with random gates", f"{report.random_gates:.2%}", energies[1])
    console.print(table)
    sentence = "The model is no better than random gates."
    if report.share_recovered is not None:
        sentence = f"Of what the model gains over random gates, its gates recover {report.share_recovered:.0%}."
    console.print(sentence)
    if report.no_label_energy is not None:
        console.print(f"No label energy: {report.no_label_energy.removesuffix('.')}.", markup=False)
    else:
        console.print(_ENERGY_NOTE.format(report.n_energy_examples), style="dim", markup=False)
    if not report.layers:
        return
    losses = Table(title="Points of accuracy lost when one layer's gates are changed", title_justify="left")
    changes = ("random", "permuted", "open")
    losses.add_column("layer")
    for change in changes:
        losses.add_column(change, justify="right")
    for gate in dict.fromkeys(layer.gate for layer in report.layers):
        by_change: dict[str, float] = {r.change: r.accuracy for r in report.layers if r.gate == gate}
        losses.add_row(gate, *(f"{100 * (report.gates - by_change[change]):.2f}" for change in changes))
    console.print(losses)
