"""Records of runs: one JSON object each, in the directory of the run or as a line of an experiment's archive.

A record has these entries::

    format      version of the format
    name        name of the run
    task        its settings; their digest is the fingerprint of the run
    state       started, finished or failed
    result      of a finished run
    error       of a failed run, with its ``trace``
    provenance  start, command, seconds, versions and system
    sha256      checksum of all the others

An archive is a gzip file of JSON lines: first the sweeps of the experiment, then one record per line. Its bytes depend
on its contents alone (the lines are sorted, and gzip's time stamp is 0).
"""

import gzip
import json
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neuralpath._configs import to_json
from neuralpath._files import write_atomically
from neuralpath._hashing import canonical_json, json_digest
from neuralpath.papers.runs.task import FORMAT, RunError, Task, fingerprint_of

RECORD = "record.json"
ARCHIVE = ".jsonl.gz"

# The entries of a record in each state, besides those that all records have.
_ENTRIES: Any = {"started": {}, "finished": {"result": dict, "provenance": dict}, "failed": {"error": str}}


class DamagedRecord(RunError):
    """A record is not what was written, or is of another format; the message names it."""


def write_record(path: Path, task: Task, state: str, entries: Mapping[str, Any]) -> None:
    """Write the record of a run, with its checksum, readable by people."""
    record = {"format": FORMAT, "name": task.name, "task": to_json(task), "state": state, **entries}
    record["sha256"] = _checksum(record)
    write_atomically(path, (json.dumps(record, indent=1, sort_keys=True, allow_nan=False) + "\n").encode())


def read_record(path: Path, task: Task) -> dict[str, Any]:
    """The record in the directory of a run; `DamagedRecord` if the file is not a whole record of this task."""
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedRecord(f"{path} is not a record of a run ({error}).") from error
    return check_record(record, str(path), task)


def check_record(record: Any, where: str, task: Task) -> dict[str, Any]:
    """Parsed JSON, if it is a whole record of this task, else `DamagedRecord`; ``where`` names the file in messages."""
    if not isinstance(record, dict):
        raise DamagedRecord(f"{where} is not a record of a run (it is not a JSON object).")
    if record.get("format") != FORMAT:
        raise DamagedRecord(f"{where} has format {record.get('format')}; this version reads format {FORMAT}.")
    types = {"sha256": str, "name": str, "task": dict, **_ENTRIES.get(str(record.get("state")), {"state": dict})}
    if wrong := [name for name, kind in types.items() if not isinstance(record.get(name), kind)]:
        raise DamagedRecord(f"{where} is not a record of a run (`{wrong[0]}` is missing or has a wrong type).")
    if _checksum({name: value for name, value in record.items() if name != "sha256"}) != record["sha256"]:
        raise DamagedRecord(f"{where} is damaged: its checksum is wrong.")
    if (fingerprint := fingerprint_of(record["task"])) != task.fingerprint:
        raise DamagedRecord(f"{where} is of another run: its fingerprint is {fingerprint[:10]}….")
    return record


@dataclass
class Archive:
    """The contents of an experiment's archive; the records are checked when they are used."""

    sweeps: list[dict[str, Any]] = field(default_factory=list)
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By the name of the run."""
    problems: list[str] = field(default_factory=list)
    """Lines that cannot be read."""


def archives(folder: Path) -> list[Path]:
    """The archives of a folder of records."""
    return sorted(folder.glob(f"*{ARCHIVE}"))


def read_archive(path: Path) -> Archive:
    """Read an archive as far as it can be read."""
    archive, number = Archive(), 0
    try:
        with gzip.open(path) as file:
            for number, line in enumerate(file, 1):
                try:
                    entry = json.loads(line)
                except (ValueError, RecursionError):
                    entry = None
                if isinstance(entry, dict) and "experiment" in entry:
                    archive.sweeps.append(entry)
                elif isinstance(entry, dict) and isinstance(entry.get("name"), str):
                    archive.records[entry["name"]] = entry
                else:
                    archive.problems.append(f"line {number} of {path} is damaged: it is neither a sweep nor a record")
    except (OSError, EOFError, zlib.error) as error:
        archive.problems.append(f"{path} is damaged after line {number} ({error})")
    return archive


def archived(folder: Path) -> dict[str, tuple[Path, dict[str, Any]]]:
    """The unchecked records in the archives of a folder, each with its archive, by the name of the run."""
    contents = ((path, read_archive(path).records) for path in archives(folder))
    return {name: (path, record) for path, records in contents for name, record in records.items()}


def write_archive(path: Path, archive: Archive) -> None:
    """Write an archive; equal contents give equal bytes."""
    records = (archive.records[name] for name in sorted(archive.records))
    lines = [*sorted(map(canonical_json, archive.sweeps)), *map(canonical_json, records)]
    write_atomically(path, gzip.compress(b"".join(line + b"\n" for line in lines), compresslevel=9, mtime=0))


def _checksum(record: Mapping[str, Any]) -> str | None:
    """SHA-256 of a record's entries; None of values that no record has, such as infinity."""
    with suppress(ValueError):
        return json_digest(record)
    return None
