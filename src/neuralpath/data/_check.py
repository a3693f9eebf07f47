"""Which data sets are there, and whether they are whole."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from neuralpath.data._contents import read_verified
from neuralpath.data._errors import DataError
from neuralpath.data._places import find, search_roots
from neuralpath.data._sources import EMBEDDED, SOURCES, Source


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What is known of one data set: `path` is its folder or archive, `detail` one line for people."""

    name: str
    status: Literal["found", "missing", "damaged"]
    path: Path | None
    detail: str


def check(
    data_dir: str | os.PathLike[str] | None = None,
    *,
    sources: Mapping[str, Source] = SOURCES,
) -> list[CheckResult]:
    """Look for every known data set and verify all files of those that are there.

    Cost: reads every file once; a few seconds for all of them.
    Raises: DataError if `data_dir` is given and is no folder.

    >>> from neuralpath import data
    >>> [(found.name, found.status) for found in data.check(sources={})]
    [('digits', 'found')]
    """
    search_roots(data_dir)
    embedded = CheckResult(EMBEDDED, "found", None, "comes with scikit-learn")
    return [embedded, *(_check_one(source, data_dir, sources) for source in sources.values())]


def _check_one(source: Source, data_dir: str | os.PathLike[str] | None, sources: Mapping[str, Source]) -> CheckResult:
    try:
        place = find(source.name, data_dir, sources=sources)
    except DataError as error:
        return CheckResult(source.name, "missing", None, str(error))
    try:
        n_files = len(read_verified(source, place))
    except DataError as error:
        return CheckResult(source.name, "damaged", place, str(error))
    return CheckResult(source.name, "found", place, f"all {n_files} files have their published checksums")
