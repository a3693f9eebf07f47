"""Run tasks and their dependencies, in this process; results of all of them."""

from neuralpath.papers.runs import sweep
from neuralpath.papers.runs.task import with_dependencies


def run_tasks(tasks, folder):
    return sweep.run_tasks(with_dependencies(tuple(tasks)), folder, progress=False)
