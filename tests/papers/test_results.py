"""The results that are kept in the repository: records are whole, and the table of claims is what they give."""

import hashlib
import json
import shlex
from pathlib import Path

import pytest

from neuralpath.papers.claims.analyses import ANALYSES, analysis
from neuralpath.papers.claims.costs import Costs
from neuralpath.papers.claims.evidence import gather
from neuralpath.papers.claims.judging import judge_all
from neuralpath.papers.claims.markdown import claims_markdown
from neuralpath.papers.experiments.collecting import LARGEST_WEIGHTS
from neuralpath.papers.experiments.registry import NAMES
from neuralpath.papers.experiments.sweeps import SWEEPS, read_sweeps
from neuralpath.papers.runs.store import Store, read_record
from neuralpath.papers.runs.task import canonical, with_dependencies

RESULTS = Path(__file__).parents[2] / "results"
RECORDS = sorted(path for path in (RESULTS / "runs").glob("*.json") if not path.name.endswith(".about.json"))


@pytest.fixture(scope="module")
def sweeps():
    found, problems = read_sweeps(RESULTS)
    assert not problems
    return found


@pytest.fixture(scope="module")
def found(sweeps):
    return gather(sweeps, Store(RESULTS, RESULTS), Costs.read(RESULTS))


def test_every_record_is_whole_and_is_what_its_name_says():
    assert RECORDS
    for path in RECORDS:
        body = read_record(path)  # which checks the checksum
        assert path.name == f"{body['name']}.json"
        identity = canonical({"format": body["format"], "task": body["task"]})
        assert hashlib.sha256(identity).hexdigest() == body["fingerprint"], path.name
        assert body["name"].endswith(body["fingerprint"][:10])


def test_every_record_belongs_to_an_experiment_and_says_how_it_was_made(sweeps):
    known = {task.name for sweep in sweeps for task in with_dependencies(sweep.tasks)}
    for path in RECORDS:
        assert path.stem in known, f"{path.name} is of no experiment in {SWEEPS}/"
        about = json.loads(path.with_suffix(".about.json").read_text())
        assert {"started", "seconds"} <= set(about)


def test_weights_are_small_and_of_runs_that_are_kept():
    names = {path.stem for path in RECORDS}
    for path in (RESULTS / "weights").glob("*.safetensors"):
        assert path.stat().st_size <= LARGEST_WEIGHTS
        assert path.stem.rpartition(".")[0] in names, path.name


def test_no_file_names_a_folder_of_one_machine():
    for path in (*(RESULTS / SWEEPS).glob("*.json"), *(RESULTS / "runs").glob("*.about.json")):
        words = shlex.split(json.loads(path.read_text())["command"])
        values = [word.partition("=")[2] if word.startswith("--") else word for word in words]
        assert not [value for value in values if value.startswith(("/", "~", ".."))], path.name


def test_the_table_of_claims_is_what_the_records_give(found):
    page = claims_markdown(judge_all(found), found, RESULTS / ANALYSES)
    assert (RESULTS / "CLAIMS.md").read_text() == page, "`neuralpath papers claims results` makes it anew"


def test_the_cost_of_everything_that_was_not_run_is_known(found):
    assert set(found.costs.papers) == set(NAMES)
    for name in NAMES:
        assert {task.name for task in found.unfinished(name)} <= set(found.costs.seconds), name


def test_where_ours_differs_there_is_an_analysis(found):
    for judged in judge_all(found):
        if judged.differs:
            assert analysis(judged.claim.number, RESULTS / ANALYSES), f"{ANALYSES}/{judged.claim.number}.md is missing"
