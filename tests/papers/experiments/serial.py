"""Perform works and what they need, in this process; results of all of them."""

from neuralpath.papers.runs import sweep
from neuralpath.papers.runs.work import with_needs


def perform(works, folder):
    return sweep.perform(with_needs(tuple(works)), folder, progress=False)
