"""`neuralpath papers status`, `show` and `export`: the state and the results of a folder of runs."""

import csv
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from neuralpath._configs import to_json
from neuralpath.commands import UserError

if TYPE_CHECKING:
    from neuralpath.papers.experiments import Sweep
    from neuralpath.papers.runs import Store, Task


@dataclass(frozen=True, kw_only=True)
class FolderCommand:
    """The flags of commands that read the runs of a folder."""

    folder: tyro.conf.Positional[Path]
    """Output folder of `neuralpath papers run`, or a folder of records such as the repository's `results/`."""
    records: Path | None = None
    """Another folder of records; runs that are finished there count too."""


@dataclass(frozen=True, kw_only=True)
class StatusCommand(FolderCommand):
    """Print how many runs of a folder are finished, and which ones failed."""

    def run(self) -> int:
        """Print one line for each sweep and for each failed or unfinished run."""
        from neuralpath.papers.runs import problems_of, read_metrics, with_dependencies

        store = open_store(self.folder, self.records)
        for sweep in read_folder(self.folder):
            tasks = with_dependencies(sweep.tasks)
            unfinished = [task for task in tasks if not store.is_finished(task)]
            preset = f" ({sweep.preset})" if sweep.preset else ""
            print(f"{sweep.experiment.name}{preset}: {len(tasks) - len(unfinished)} of {len(tasks)} runs finished")
            for task in unfinished:
                n_done, is_running = len(read_metrics(store.folder(task))), store.is_running(task)
                if (failure := store.failure(task)) is not None:
                    print(f"  failed   {task.name}: {failure}")
                elif n_done or is_running:
                    state = "running" if is_running else "stopped"
                    print(f"  {state}  {task.name}: step {n_done} of {task.n_steps}")
            for problem in problems_of(tasks, store):
                print(f"  damaged  {problem}")
        return 0


@dataclass(frozen=True, kw_only=True)
class ShowCommand(FolderCommand):
    """Print the tables of a folder's experiments, with the papers' figures beside ours."""

    def run(self) -> int:
        """Print the tables."""
        from neuralpath.papers.commands.run import print_summary
        from neuralpath.papers.runs import with_dependencies

        store = open_store(self.folder, self.records)
        for sweep in read_folder(self.folder):
            print_damage(with_dependencies(sweep.tasks), store)
            print_summary(sweep.summary(store))
        return 0


@dataclass(frozen=True)
class ExportCommand:
    """Export the finished runs of a folder: as a CSV table, as records to keep, or both."""

    folder: tyro.conf.Positional[Path]
    """Output folder of `neuralpath papers run`, or a folder of records."""
    csv: Path | None = None
    """CSV file to write: one row for each run, with its settings, then its figures in columns named `result.`…"""
    records: Path | None = None
    """Folder of records to add to, such as the repository's `results/`: one compressed file for each experiment. With
    --csv, runs that are finished in this folder are in the table too."""
    weights: tuple[str, ...] = ()
    """Names of runs whose last and best weights are added to --records, such as the network of the gate explorer."""

    def run(self) -> int:
        """Write the records and the table, and print what was written."""
        from neuralpath.papers.experiments import collect

        if self.csv is None and self.records is None:
            raise UserError("nothing to export: give --csv FILE, --records FOLDER, or both.")
        store = open_store(self.folder, None)
        if self.records is not None:
            done = collect(read_folder(self.folder), store, self.records, self.weights)
            print(f"{self.records}: {done.n_records} new records, {done.n_weights} new files of weights")
            for problem in done.replaced:
                print(f"  replaced: {problem}")
            print_problems(done.damaged)
        if self.csv is not None:
            self._write_csv(self.csv, store if self.records is None else open_store(self.folder, self.records))
        return 0

    def _write_csv(self, path: Path, store: "Store") -> None:
        from neuralpath.papers.runs import results_of, with_dependencies

        names: dict[Task, dict[str, None]] = {}  # of the experiments of each run: sweeps may overlap
        for sweep in read_folder(self.folder):
            for task in with_dependencies(sweep.tasks):
                names.setdefault(task, {})[sweep.experiment.name] = None
        print_damage(tuple(names), store)
        finished = results_of(tuple(names), store)
        rows = [_row(", ".join(names[task]), task, result) for task, result in finished.items()]
        headings = list(dict.fromkeys(name for row in rows for name in row))
        try:
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, headings)
                writer.writeheader()
                writer.writerows(rows)
        except OSError as error:
            raise UserError(f"{path} cannot be written: {error.strerror}.") from error
        print(f"{path}: {len(rows)} runs")


def open_store(folder: Path, records: Path | None, data_dir: Path | None = None) -> "Store":
    """Open the runs of a folder; a `UserError` if there is none."""
    from neuralpath.papers.runs import Store

    if not folder.is_dir():
        what = f"{folder} is no folder" if folder.exists() else f"there is no folder {folder}"
        raise UserError(f"{what}; name the output folder of `neuralpath papers run`.")
    return Store(folder, records, data_dir)


def read_folder(folder: Path) -> "list[Sweep]":
    """Read the sweeps of a folder, by `read_sweeps`; problems go to standard error."""
    from neuralpath.papers.experiments import read_sweeps

    sweeps, problems = read_sweeps(folder)
    print_problems(problems)
    return sweeps


def print_damage(tasks: "tuple[Task, ...]", store: "Store") -> None:
    """Print to standard error which runs are damaged, and therefore count as unfinished."""
    from neuralpath.papers.runs import problems_of

    print_problems(problems_of(tasks, store))


def print_problems(problems: Iterable[str]) -> None:
    """Print problems to standard error."""
    for problem in problems:
        print(f"neuralpath: {problem}", file=sys.stderr)


def _row(experiments: str, task: "Task", result: dict[str, Any]) -> dict[str, Any]:
    # A setting and a figure may share a name: a kernel, and the accuracy of this kernel.
    figures = {name: value for name, value in result.items() if not isinstance(value, list)}
    columns = {**_flat("", to_json(task)), **_flat("result.", figures)}
    return {"experiment": experiments, "run": task.name, **columns}


def _flat(prefix: str, record: dict[str, Any]) -> dict[str, Any]:
    """A nested record as columns with dotted names; lists as JSON."""
    columns: dict[str, Any] = {}
    for name, entry in record.items():
        if isinstance(entry, dict):
            columns |= _flat(f"{prefix}{name}.", entry)
        else:
            columns[f"{prefix}{name}"] = json.dumps(entry) if isinstance(entry, list) else entry
    return columns
