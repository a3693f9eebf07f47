"""`neuralpath experiments`: the list, with what each costs on this machine."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tyro
from rich.table import Table

from neuralpath.commands import UserError
from neuralpath.papers.commands.tables import make_console

if TYPE_CHECKING:
    from neuralpath.papers.runs import Calibration


@dataclass(frozen=True)
class Experiments:
    """List the experiments with their cost on this machine, estimated from speeds that are measured once.

    The first time that takes a few minutes; what has been measured is kept, also when it is interrupted.
    """

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Only these experiments; all by default."""
    cost: bool = True
    """Use --no-cost to list them without measuring."""

    def run(self) -> int:
        """Print the list."""
        from neuralpath.papers.experiments import NAMES, PRESETS, get

        table = Table(title="Experiments: core hours for each preset, and runs" if self.cost else "Experiments")
        for heading in ("name", "what", "from", *PRESETS):
            table.add_column(heading, no_wrap=heading == "name")
        calibration = _calibration() if self.cost else None
        console = make_console()
        try:
            experiments = [get(name) for name in self.names or NAMES]
        except ValueError as error:
            raise UserError(str(error)) from error
        for experiment in experiments:
            if calibration is not None:
                print(f"measuring the steps of {experiment.name} ...", file=sys.stderr)
            costs = [_cost(experiment, preset, calibration) for preset in PRESETS]
            table.add_row(experiment.name, experiment.description, experiment.source, *costs)
        console.print(table)
        console.print("`neuralpath run NAME --preset P --out DIR` does one; `neuralpath run NAME --help` has more.")
        return 0


def _calibration() -> "Calibration":
    from neuralpath import data
    from neuralpath.papers.runs import Calibration

    return Calibration(data.cache_folder() / "calibration.json")


def _cost(experiment: Any, preset: str, calibration: "Calibration | None") -> str:
    from neuralpath.kernels import format_time
    from neuralpath.papers.runs import with_dependencies

    tasks = with_dependencies(experiment.tasks(experiment.presets[preset]))
    if calibration is None:
        return f"{len(tasks)} runs"
    seconds = sum(task.seconds(calibration) for task in tasks)
    return f"{format_time(seconds)}, {len(tasks)} runs"
