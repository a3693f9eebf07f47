"""`neuralpath demo`: the main job on data that is always there."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Demo:
    """Train a small network on scikit-learn's digits and show its gates, paths and kernels."""

    out: Path = Path("demo")
    """Folder for the pictures."""
    seed: int = 0
    """Seed of the weights and of the order of the examples."""

    def run(self) -> int:
        """Run the demonstration."""
        from neuralpath import demo

        demo.run(self.out, self.seed)
        return 0
