"""`neuralpath run`: do an experiment; every field of its config is a flag."""

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from neuralpath.commands import UserError


@dataclass(frozen=True)
class Run:
    """Do an experiment: all its runs, each once, and print what they show. `neuralpath run NAME --help` has all."""

    name: tyro.conf.Positional[str]
    """The experiment; `neuralpath experiments` lists them."""

    def run(self) -> int:
        """As the flags of an experiment depend on its name, `run_experiment` parses them."""
        return run_experiment([self.name])


@dataclass(frozen=True)
class Options:
    """Where and how the runs are done."""

    out: Path = Path("runs")
    """Output folder; runs that are finished there are not repeated, interrupted ones go on."""
    preset: Literal["smoke", "cpu", "paper"] = "smoke"
    """Seconds on the digits; hours on two cores; the papers' scale."""
    jobs: int | None = None
    """ProcessExecutor, each with one thread; one for each core by default."""
    cluster: str | None = None
    """Address or scheduler file of a Dask cluster that sees the output folder, in place of processes here."""
    records: Path | None = None
    """Folder of records, such as the repository's `results/`: runs that are finished there count too."""
    data_dir: Path | None = None
    """Folder with the data; then $NEURALPATH_DATA and the cache folder."""
    retry_failed: bool = False
    """Do runs again that have failed before."""
    dry_run: bool = False
    """Only list the runs."""


def run_experiment(args: Sequence[str]) -> int:
    """Parse what follows `neuralpath run NAME` and do it."""
    from neuralpath.papers.experiments import get

    name, *rest = args
    try:
        experiment = get(name)
    except ValueError as error:
        raise UserError(str(error)) from error
    preset = _preset(rest)
    kind = experiment.config

    def entry(
        options: Annotated[Options, tyro.conf.arg(name="")],
        config: Annotated[kind, tyro.conf.arg(name="")] = experiment.presets[preset],  # type: ignore[valid-type]
    ) -> tuple[Options, Any]:
        return options, config

    reduced = experiment.reduced.get(preset, "")
    try:
        options, config = tyro.cli(
            entry,
            prog=f"neuralpath run {name}",
            description=f"{experiment.description} ({experiment.source}). Defaults of --preset {preset}. {reduced}",
            args=rest,
            config=(tyro.conf.AvoidSubcommands, tyro.conf.FlagCreatePairsOff),
        )
    except ValueError as error:  # of a config that refuses a value
        raise UserError(str(error)) from error
    command = shlex.join(["neuralpath", "run", *args])
    return _execute(experiment, config, options, command)


def _preset(args: Sequence[str]) -> Any:
    """The preset that the arguments name, the last one as with every flag; tyro checks it again, with a message."""
    preset = "smoke"
    for index, argument in enumerate(args):
        value = argument.partition("=")[2] if argument.startswith("--preset=") else None
        if argument == "--preset" and index + 1 < len(args):
            value = args[index + 1]
        if value in ("smoke", "cpu", "paper"):
            preset = value
    return preset


def _execute(experiment: Any, config: Any, options: Options, command: str) -> int:
    from neuralpath._cluster import silence_logs
    from neuralpath.data import DataError
    from neuralpath.papers.commands.tables import print_summary
    from neuralpath.papers.experiments import Sweep, check_data, check_memory, run
    from neuralpath.papers.runs import RunError, Store, with_dependencies

    if options.cluster is not None:
        silence_logs()
    jobs = options.jobs if options.jobs is not None else os.cpu_count() or 1
    if jobs < 1:
        raise UserError(f"--jobs must be at least 1, got {jobs}.")
    try:
        sweep = Sweep(experiment, config, options.preset, command)
        tasks = sweep.tasks
        if options.dry_run:
            print(*(task.name for task in with_dependencies(tasks)), sep="\n")
            return 0
        check_data(with_dependencies(tasks), options.data_dir)
        if options.cluster is None:
            check_memory(tasks, Store(options.out, options.records, options.data_dir), jobs)
    except ValueError as error:  # of runs, networks or data that cannot be made of these settings; nothing has begun
        raise UserError(str(error)) from error
    try:
        shown = run(
            sweep, options.out, jobs=jobs, records=options.records, data_dir=options.data_dir,
            cluster=options.cluster, retry_failed=options.retry_failed,
        )  # fmt: skip
    except (RunError, DataError) as error:
        raise UserError(str(error)) from error
    except KeyboardInterrupt:
        print(f"neuralpath: interrupted; to go on: {command}", file=sys.stderr)
        return 130
    print_summary(shown)
    print(f"\nThe runs are in {options.out}; `neuralpath show {options.out}` prints this again.")
    return 0
