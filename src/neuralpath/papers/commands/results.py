"""`neuralpath status`, `show`, `export` and `collect`: what is in a folder of runs, and what is kept of it."""

import csv
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from neuralpath.commands import UserError

if TYPE_CHECKING:
    from neuralpath.papers.experiments import Sweep
    from neuralpath.papers.runs import Store, Task


@dataclass(frozen=True)
class Status:
    """How far the sweeps of a folder are, and what has failed."""

    folder: tyro.conf.Positional[Path]
    """Output folder of `neuralpath run`."""
    records: Path | None = None
    """Folder of records in which finished runs count too."""

    def run(self) -> int:
        """Print a line for each sweep and for each run that has failed or is on its way."""
        from neuralpath.papers.runs import is_finished, problems_of, read_metrics, with_dependencies

        store = _store(self.folder, self.records)
        for sweep in _sweeps(self.folder):
            tasks = with_dependencies(sweep.tasks)
            unfinished = [task for task in tasks if not is_finished(store, task)]
            preset = f" ({sweep.preset})" if sweep.preset else ""
            print(f"{sweep.experiment.name}{preset}: {len(tasks) - len(unfinished)} of {len(tasks)} runs finished")
            for task in unfinished:
                failure = store.failure(task)
                n_done = len(read_metrics(store.folder(task)))
                if failure is not None:
                    print(f"  failed   {task.name}: {failure['error']}")
                elif store.is_running(task):
                    print(f"  running  {task.name}: step {n_done} of {task.n_steps}")
                elif n_done:
                    print(f"  stopped  {task.name}: step {n_done} of {task.n_steps}")
            for problem in problems_of(tasks, store):
                print(f"  damaged  {problem}")
        return 0


@dataclass(frozen=True)
class Show:
    """Tables of the sweeps of a folder, with the papers' figures beside ours."""

    folder: tyro.conf.Positional[Path]
    """Output folder of `neuralpath run`, or a folder of records."""
    records: Path | None = None
    """Folder of records in which finished runs count too."""

    def run(self) -> int:
        """Print them."""
        from neuralpath.papers.commands.tables import print_summary
        from neuralpath.papers.runs import RunError, with_dependencies

        store = _store(self.folder, self.records)
        for sweep in _sweeps(self.folder):
            name_damage(with_dependencies(sweep.tasks), store)
            try:
                print_summary(sweep.summary(store))
            except RunError as error:
                raise UserError(str(error)) from error
        return 0


@dataclass(frozen=True)
class Export:
    """One row for each finished run of a folder: its settings, and after `result.` its last and best figures."""

    folder: tyro.conf.Positional[Path]
    """Output folder of `neuralpath run`, or a folder of records."""
    csv: Path
    """File to write."""
    records: Path | None = None
    """Folder of records in which finished runs count too."""

    def run(self) -> int:
        """Write the file and say where it is."""
        store = _store(self.folder, self.records)
        rows = [dict(_row(names, task, result)) for names, task, result in _finished(self.folder, store)]
        columns = list(dict.fromkeys(name for row in rows for name in row))
        try:
            with self.csv.open("w", newline="") as file:
                writer = csv.DictWriter(file, columns)
                writer.writeheader()
                writer.writerows(rows)
        except OSError as error:
            raise UserError(f"{self.csv} cannot be written: {error.strerror}.") from error
        print(f"{self.csv}: {len(rows)} runs")
        return 0


@dataclass(frozen=True)
class Collect:
    """Copy the records of finished runs, and small weights that other runs read, to a folder that is kept."""

    folder: tyro.conf.Positional[Path]
    """Output folder of `neuralpath run`."""
    records: Path
    """Folder of records, such as the repository's `results/`."""

    def run(self) -> int:
        """Copy, and say what."""
        from neuralpath.papers.experiments import collect
        from neuralpath.papers.runs import RunError, Store

        sweeps = _sweeps(self.folder)
        try:
            done = collect(sweeps, Store(self.folder), self.records)
        except RunError as error:
            raise UserError(str(error)) from error
        print(f"{self.records}: {done.n_records} new records, {done.n_weights} new files of weights")
        for problem in done.replaced:
            print(f"  replaced: {problem}")
        for name in done.too_big:
            print(f"  too big to keep: weights of {name}")
        for problem in done.damaged:
            print(f"neuralpath: {problem}", file=sys.stderr)
        return 0


def name_damage(tasks: "tuple[Task, ...]", store: "Store") -> None:
    """Say on standard error what is damaged of runs, and therefore counts as not finished."""
    from neuralpath.papers.runs import problems_of

    for problem in problems_of(tasks, store):
        print(f"neuralpath: {problem}", file=sys.stderr)


def record_folders(folder: Path, records: Path | None) -> tuple[Path, ...]:
    """Where records are looked for: in a folder of runs itself, which may be one of records, and in another."""
    return (folder,) if records is None else (folder, records)


def _finished(folder: Path, store: "Store") -> "Iterator[tuple[str, Task, dict[str, Any]]]":
    """Finished runs, each once though sweeps overlap, with the names of the experiments that have them."""
    from neuralpath.papers.runs import results_of, with_dependencies

    names: dict[Task, dict[str, None]] = {}
    for sweep in _sweeps(folder):
        for task in with_dependencies(sweep.tasks):
            names.setdefault(task, {})[sweep.experiment.name] = None
    name_damage(tuple(names), store)
    for task, result in results_of(tuple(names), store).items():
        yield ", ".join(names[task]), task, result


def _row(experiments: str, task: "Task", result: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    from neuralpath._configs import to_json

    yield "experiment", experiments
    yield "run", task.name
    yield from _flat("", to_json(task))
    # Settings and results may have one name: a kernel by its name, and its accuracy.
    yield from _flat("result.", {name: value for name, value in result.items() if not isinstance(value, list)})


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Nested records as columns with dotted names; lists as JSON."""
    for name, entry in value.items():
        if isinstance(entry, dict):
            yield from _flat(f"{prefix}{name}.", entry)
        else:
            yield f"{prefix}{name}", json.dumps(entry) if isinstance(entry, list) else entry


def _store(folder: Path, records: Path | None) -> "Store":
    """Runs of an output folder; one of records is both."""
    from neuralpath.papers.runs import RunError, Store

    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}.")
    try:
        return Store(folder, record_folders(folder, records))
    except RunError as error:
        raise UserError(str(error)) from error


def _sweeps(folder: Path) -> "list[Sweep]":
    from neuralpath.papers.experiments import read_sweeps
    from neuralpath.papers.runs import RunError

    try:
        sweeps, problems = read_sweeps(folder)
    except RunError as error:
        raise UserError(str(error)) from error
    for problem in problems:
        print(f"neuralpath: {problem}", file=sys.stderr)
    return sweeps
