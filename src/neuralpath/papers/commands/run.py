"""`neuralpath papers list` and `run`: the experiments, each with one flag for each field of its config."""

import os
import shlex
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import tyro
from rich.console import Console
from rich.table import Table as RichTable

from neuralpath.commands import UserError, user_errors

if TYPE_CHECKING:
    from neuralpath.papers.experiments import SummaryItem

_FILE_WIDTH = 160  # columns of tables that go to a file instead of a terminal
PresetName = Literal["smoke", "cpu", "paper"]


@dataclass(frozen=True)
class ListCommand:
    """List the experiments, with the number of runs of each preset."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Only these experiments; all by default."""

    def run(self) -> int:
        """Print the list."""
        from neuralpath.papers.experiments import NAMES, PRESETS, get
        from neuralpath.papers.runs import with_dependencies

        with user_errors(ValueError):
            experiments = [get(name) for name in self.names or NAMES]
        table = RichTable(title="Experiments")
        for heading in ("name", "what", "from", *PRESETS):
            table.add_column(heading, no_wrap=heading == "name")
        for experiment in experiments:
            sweeps = [with_dependencies(experiment.tasks(experiment.presets[preset])) for preset in PRESETS]
            runs = (f"{len(tasks)} runs" for tasks in sweeps)
            table.add_row(experiment.name, experiment.description, experiment.source, *runs)
        console = _console()
        console.print(table)
        console.print("`neuralpath papers run NAME --preset P --out DIR` runs one; with --help it lists its flags.")
        return 0


@dataclass(frozen=True)
class RunCommand:
    """Run an experiment and print its tables; `neuralpath papers run NAME --help` lists the flags of an experiment."""

    name: tyro.conf.Positional[str]
    """The experiment; `neuralpath papers list` lists them."""

    def run(self) -> int:
        """Run the experiment; `run_experiment` parses its flags, which depend on its name."""
        return run_experiment([self.name])


@dataclass(frozen=True)
class RunOptions:
    """Where and how the runs of an experiment are done."""

    out: Path = Path("runs")
    """Output folder; finished runs in it are not repeated, interrupted runs are resumed."""
    preset: PresetName = "smoke"
    """Seconds on the digits; hours on two cores; the papers' scale."""
    jobs: int | None = None
    """Processes, each with one thread; one for each core by default."""
    cluster: str | None = None
    """Address or scheduler file of a Dask cluster that sees the output folder, instead of local processes."""
    records: Path | None = None
    """Folder of records, such as the repository's `results/`; runs that are finished there are not repeated."""
    data_dir: Path | None = None
    """Folder with the data; then $NEURALPATH_DATA and the cache folder."""
    retry_failed: bool = False
    """Repeat runs that failed before."""
    dry_run: bool = False
    """Only list the runs."""


def run_experiment(args: Sequence[str]) -> int:
    """Parse the arguments after `neuralpath papers run`, a name and its flags, and run the experiment."""
    from neuralpath.papers.experiments import get

    name, *flags = args
    with user_errors(ValueError):
        experiment = get(name)
    preset = _preset(flags)
    config_type = experiment.config

    def entry(
        options: Annotated[RunOptions, tyro.conf.arg(name="")],
        config: Annotated[config_type, tyro.conf.arg(name="")] = experiment.presets[preset],  # type: ignore[valid-type]
    ) -> tuple[RunOptions, Any]:
        return options, config

    defaults = f"Defaults of --preset {preset}. {experiment.reduced.get(preset, '')}"
    with user_errors(ValueError):  # from a config that refuses a value
        options, config = tyro.cli(
            entry,
            prog=f"neuralpath papers run {name}",
            description=f"{experiment.description} ({experiment.source}). {defaults}",
            args=flags,
            config=(tyro.conf.AvoidSubcommands, tyro.conf.FlagCreatePairsOff),
        )
    return _run_sweep(experiment, config, options, shlex.join(["neuralpath", "papers", "run", *args]))


def _preset(flags: Sequence[str]) -> Any:
    """The preset that the flags name, the last one as with every flag; tyro checks it again, with a message."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--preset", nargs="?")
    preset = parser.parse_known_args(flags)[0].preset
    return preset if preset in get_args(PresetName) else "smoke"


def _run_sweep(experiment: Any, config: Any, options: RunOptions, command: str) -> int:
    from neuralpath._cluster import silence_logs
    from neuralpath.data import DataError
    from neuralpath.papers.experiments import Sweep, check_tasks
    from neuralpath.papers.runs import with_dependencies

    if options.cluster is not None:
        silence_logs()
    jobs = options.jobs if options.jobs is not None else os.cpu_count() or 1
    if jobs < 1:
        raise UserError(f"--jobs must be at least 1, got {jobs}.")
    with user_errors(ValueError):  # runs, networks or data that these settings do not allow; nothing has started
        sweep = Sweep(experiment, config, options.preset, command)
        tasks = with_dependencies(sweep.tasks)
        if options.dry_run:
            print(*(task.name for task in tasks), sep="\n")
            return 0
        check_tasks(tasks, options.data_dir)
    try:
        with user_errors(DataError):
            others = {name: getattr(options, name) for name in ("records", "data_dir", "cluster", "retry_failed")}
            items = sweep.run(options.out, jobs=jobs, **others)
    except KeyboardInterrupt:
        print(f"neuralpath: interrupted; to resume: {command}", file=sys.stderr)
        return 130
    print_summary(items)
    print(f"\nThe runs are in {options.out}; `neuralpath papers show {options.out}` prints this again.")
    return 0


def print_summary(items: "Sequence[SummaryItem]") -> None:
    """Print the tables of an experiment; figures are only named, since the report draws them."""
    from neuralpath.papers.experiments import Table

    console = _console()
    tables = [item for item in items if isinstance(item, Table)]
    figures = [item.title for item in items if not isinstance(item, Table)]
    for table in tables:
        rich = RichTable(title=table.title, title_justify="left")
        for index, column in enumerate(table.columns):
            is_text = all(isinstance(row[index], str) for row in table.rows)
            rich.add_column(column, justify="left" if is_text else "right")
        for row in table.rows:
            cells = ("-" if cell is None else cell for cell in row)
            rich.add_row(*(f"{cell:.5g}" if isinstance(cell, float) else str(cell) for cell in cells))
        console.print(rich)
        if table.note:
            console.print(table.note, style="dim")
        console.print()
    if sum("runs are finished" in table.note for table in tables) > 1:
        console.print("Each table counts the runs that it reads; one run may be in several tables.", style="dim")
    if figures:
        console.print(f"Figures, drawn by `neuralpath papers report`: {'; '.join(figures)}.", style="dim")


def _console() -> Console:
    """A console as wide as the terminal; a file has no edge, so no word is cut there."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_FILE_WIDTH)
