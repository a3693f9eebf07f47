"""What runs that were not done would take, kept beside the records so that tables do not depend on the machine."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from neuralpath._files import write_atomically
from neuralpath.kernels import format_time
from neuralpath.papers.runs import RunError, Task

FILE = "costs.json"


@dataclass(frozen=True)
class Costs:
    """Estimated seconds on one core by the name of a run, from speeds measured on the machine that the runs ran on."""

    seconds: dict[str, float] = field(default_factory=dict)
    papers: dict[str, float] = field(default_factory=dict)
    """By experiment: all runs of the preset `paper`."""

    @staticmethod
    def read(folder: Path) -> "Costs":
        """Those that a folder of records keeps; none where it has no such file.

        Raises: RunError if the file is damaged.
        """
        try:
            kept = json.loads((folder / FILE).read_bytes())
            return Costs(*({str(k): float(v) for k, v in kept[name].items()} for name in ("seconds", "papers")))
        except FileNotFoundError:
            return Costs()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(f"{folder / FILE} cannot be read ({error}); delete it, and it is made anew.") from error

    def write(self, folder: Path) -> None:
        """Keep them.

        Raises: RunError.
        """
        text = json.dumps({"seconds": self.seconds, "papers": self.papers}, indent=1, sort_keys=True) + "\n"
        try:
            write_atomically(folder / FILE, text.encode())
        except OSError as error:
            raise RunError(f"{folder / FILE} cannot be written: {error.strerror}.") from error

    def of(self, tasks: Sequence[Task]) -> str:
        """For people: the time of these runs together on one core."""
        known = [self.seconds.get(task.name) for task in tasks]
        if not known or None in known:
            return "a time that was not estimated"
        return f"about {format_time(sum(value for value in known if value is not None))} on one core"

    def of_paper(self, name: str) -> str:
        """The same for an experiment at the papers' scale."""
        return format_time(self.papers[name]) if name in self.papers else "not estimated"
