"""The results in the repository: the records are whole, and the table of claims is what they give."""

import shlex
from pathlib import Path

import pytest

from neuralpath.papers.claims import ANALYSES, check_claims, claims_markdown, read_records
from neuralpath.papers.experiments import NAMES, read_sweeps
from neuralpath.papers.runs import Store, archives, read_archive, with_dependencies, write_archive

RESULTS = Path(__file__).parents[2] / "results"
MOST_FILES, MOST_BYTES = 40, 4_000_000


@pytest.fixture(scope="module")
def sweeps():
    sweeps, problems = read_sweeps(RESULTS)
    assert not problems
    return sweeps


@pytest.fixture(scope="module")
def tasks(sweeps):
    return with_dependencies([task for sweep in sweeps for task in sweep.tasks])


@pytest.fixture(scope="module")
def contents():
    return {path.name: read_archive(path) for path in archives(RESULTS)}


@pytest.fixture(scope="module")
def records(sweeps):
    return read_records(sweeps, Store(RESULTS))


@pytest.fixture(scope="module")
def rows(records):
    return check_claims(records, RESULTS / ANALYSES)


def test_the_results_are_few_and_small():
    files = [path for path in RESULTS.rglob("*") if path.is_file()]
    assert len(files) <= MOST_FILES
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES
    assert {path.name for path in archives(RESULTS)} == {f"{name}.jsonl.gz" for name in NAMES}


def test_every_record_is_whole_and_of_a_task_of_an_experiment(tasks, contents):
    names = [name for archive in contents.values() for name in archive.records]
    assert len(names) == len(set(names)) == 1161
    assert set(names) <= {task.name for task in tasks}
    store = Store(RESULTS)
    assert sum(store.record(task) is not None for task in tasks) == 1161  # which checks checksums and fingerprints
    for archive in contents.values():
        assert archive.problems == []
        assert all({"started", "seconds"} <= set(record["provenance"]) for record in archive.records.values())


def test_archives_have_the_bytes_that_their_contents_give(tmp_path, contents):
    for name, archive in contents.items():
        write_archive(tmp_path / name, archive)
        assert (tmp_path / name).read_bytes() == (RESULTS / name).read_bytes(), name


def test_weights_are_of_finished_runs(contents):
    names = {name for archive in contents.values() for name in archive.records}
    for path in (RESULTS / "weights").glob("*.safetensors"):
        assert path.stem.rpartition(".")[0] in names, path.name


def test_no_file_names_a_folder_of_one_machine(contents):
    for archive in contents.values():
        provenances = [record["provenance"] for record in archive.records.values()]
        for entry in (*archive.sweeps, *provenances):
            words = shlex.split(entry["command"])
            values = [word.partition("=")[2] if word.startswith("--") else word for word in words]
            assert not [value for value in values if value.startswith(("/", "~", ".."))]


def test_the_table_of_claims_is_what_the_records_give(records, rows):
    page = claims_markdown(rows, records)
    assert (RESULTS / "CLAIMS.md").read_text() == page, "`neuralpath papers claims results` writes it again"


def test_where_ours_differs_there_is_an_analysis(rows):
    missing = [row.number for row in rows if row.differs and not row.analysis]
    assert not missing, f"{ANALYSES}/ has no text for {missing}"
