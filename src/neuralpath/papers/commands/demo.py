"""`neuralpath demo`: the main job on data that is always there."""

from dataclasses import dataclass
from pathlib import Path

from neuralpath.commands import UserError, check_seed


@dataclass(frozen=True)
class Demo:
    """Train a small network on scikit-learn's digits, show its gates, paths and kernels, and write a page."""

    out: Path = Path("demo")
    """Folder for the page, the pictures and the runs; runs that are finished there are not repeated."""
    seed: int = 0
    """Seed of the weights and of the order of the examples."""

    def run(self) -> int:
        """Run the demonstration."""
        check_seed(self.seed)
        from neuralpath.papers.report import MissingExtra, require

        try:
            for package in ("matplotlib", "plotly"):  # before the folder is made and anything is trained
                require(package)
            self.out.mkdir(parents=True, exist_ok=True)
        except MissingExtra as error:
            raise UserError(str(error)) from error
        except OSError as error:
            raise UserError(f"--out {self.out} cannot be a folder for the pictures: {error.strerror}.") from error
        from neuralpath.papers import demo
        from neuralpath.papers.runs import RunError

        try:
            demo.run(self.out, self.seed)
        except RunError as error:
            raise UserError(str(error)) from error
        return 0
