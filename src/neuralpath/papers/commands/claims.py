"""`neuralpath claims`: what became of the papers' claims, from the runs of a folder."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from neuralpath.commands import UserError
from neuralpath.papers.commands.results import name_damage, record_folders

if TYPE_CHECKING:
    from neuralpath.papers.claims import Costs, Evidence


@dataclass(frozen=True)
class Claims:
    """Judge every claim of the papers by the runs of a folder, and write the table."""

    folder: tyro.conf.Positional[Path]
    """Output folder of `neuralpath run`, or a folder of records such as the repository's `results/`."""
    out: Path | None = None
    """Page to write; `CLAIMS.md` in the folder by default."""
    records: Path | None = None
    """Folder of records in which finished runs count too."""
    cost: bool = True
    """Use --no-cost to leave out runs whose time is not known yet, in place of estimating it."""

    def run(self) -> int:
        """Judge, write, and say how many hold."""
        if not self.folder.is_dir():
            raise UserError(f"there is no folder {self.folder}.")
        from neuralpath._files import write_atomically
        from neuralpath.papers.claims import ANALYSES, Costs, claims_markdown, gather, judge_all, summary
        from neuralpath.papers.experiments import read_sweeps
        from neuralpath.papers.runs import RunError, Store, with_dependencies

        page = self.out or self.folder / "CLAIMS.md"
        try:
            sweeps, problems = read_sweeps(self.folder)
            for problem in problems:
                print(f"neuralpath: {problem}", file=sys.stderr)
            store = Store(self.folder, record_folders(self.folder, self.records))
            name_damage(with_dependencies(tuple(task for sweep in sweeps for task in sweep.tasks)), store)
            evidence = gather(sweeps, store, Costs.read(self.folder))
            if self.cost:
                for costs in _estimated(evidence):  # kept as they come, since measuring may take minutes
                    costs.write(self.folder)
                    evidence = evidence.with_costs(costs)
            judged = judge_all(evidence)
        except RunError as error:
            raise UserError(str(error)) from error
        try:
            write_atomically(page, claims_markdown(judged, evidence, self.folder / ANALYSES).encode())
        except OSError as error:
            raise UserError(f"{page} cannot be written: {error.strerror}.") from error
        print(f"{page}: {summary(judged)}")
        return 0


def _estimated(evidence: "Evidence") -> "Iterator[Costs]":
    """Times of everything that was not run, then those of the papers' scale; unknown speeds are measured."""
    from neuralpath import data
    from neuralpath.papers.claims import judge_all
    from neuralpath.papers.experiments import NAMES, get
    from neuralpath.papers.runs import Calibration, with_dependencies

    tasks = {task: None for name in NAMES for task in evidence.unfinished(name)}
    tasks |= {task: None for one in judge_all(evidence) for aspect in one.aspects for task in aspect.would_take}
    papers = {name: with_dependencies(get(name).tasks(get(name).presets["paper"])) for name in NAMES}
    unknown = {task.name for task in tasks} - set(evidence.costs.seconds) | set(papers) - set(evidence.costs.papers)
    if unknown:
        print("neuralpath: estimating what was not run; speeds are measured once", file=sys.stderr)
    calibration = Calibration(data.cache_folder() / "calibration.json")
    costs = evidence.costs.with_measured(tuple(tasks), {}, calibration)
    yield costs
    for name, several in papers.items():
        costs = costs.with_measured(tuple(tasks), {name: several}, calibration)
        yield costs
