"""Run tasks and their dependencies, in this process; results of all of them."""

from neuralpath.papers.runs import with_dependencies
from papers.runs import small_tasks


def run_tasks(tasks, folder):
    return small_tasks.run_tasks(with_dependencies(tuple(tasks)), folder, progress=False)
