"""Claims checked against a folder of runs: what is missing is named, and the page holds every row."""

from dataclasses import replace

import pytest

from neuralpath.cli import main
from neuralpath.papers.claims.all_claims import check_claim, check_claims, claims_markdown, verdict_counts
from neuralpath.papers.claims.rows import Records, read_records
from neuralpath.papers.experiments import Sweep
from neuralpath.papers.experiments.registry import NAMES, get, read_sweeps
from neuralpath.papers.experiments.trained import TrainGated, TrainNetwork
from neuralpath.papers.runs.store import Store
from papers.claims import made_up_results as made_up
from papers.claims.made_up_results import accuracies, records
from papers.experiments.serial import run_tasks


def _read(folder, runs=None):
    return read_records(read_sweeps(folder)[0], Store(folder, runs or folder))


def test_there_is_a_row_for_every_claim_and_a_claim_for_every_experiment():
    rows = check_claims(Records({}))
    assert [row.number for row in rows] == [f"C{number}" for number in range(1, 39)]
    assert {name for row in rows for name in row.experiments} == set(NAMES)


def test_without_runs_exact_claims_hold_and_others_are_not_tested():
    rows = {row.number: row for row in check_claims(Records({}))}
    exact = {number for number, row in rows.items() if row.is_exact}
    assert exact == {"C1", "C3", "C5", "C7", "C18", "C19", "C20", "C21", "C38"}
    assert {number for number, row in rows.items() if row.verdict == "holds"} == exact
    assert not any(row.verdict == "does not hold" for row in rows.values())
    assert rows["C9"].verdict == "not tested here"
    assert "`regimes` was not run." in rows["C9"].reason
    assert rows["C23"].verdict == "holds in part"  # the test suite verifies its exact part
    assert verdict_counts(tuple(rows.values())).startswith("9 verified by the test suite; the other 29: 0 holds, ")


@pytest.fixture(scope="module")
def sweep():
    """A smoke sweep under another preset's name, so that it counts."""
    experiment = get("regimes")
    part = experiment.presets["smoke"].parts[0]
    small = replace(part.data, n_train=100, n_test=50)
    part = replace(part, data=small, recipe=replace(part.recipe, epochs=1), regimes=("ReLU", "FL"), sources=("true",))
    config = replace(experiment.presets["smoke"], parts=(part,))
    return Sweep(experiment, config, "cpu", "neuralpath papers run regimes")


@pytest.fixture(scope="module")
def runs(sweep, tmp_path_factory):
    folder = tmp_path_factory.mktemp("claims") / "runs"
    sweep.run(folder, jobs=1)
    return folder


def test_no_claim_holds_while_runs_are_missing():
    on_mnist = records("regimes", accuracies(None), keep=lambda task: task.data.name == "mnist")
    row = check_claim("C9", on_mnist)
    assert row.verdict == "holds in part"
    assert {one.outcome for one in row.comparisons if one.counts} == {"supports"}
    assert "`regimes` is not finished" in row.reason


def test_no_claim_is_refuted_while_runs_are_missing():
    on_mnist = records("regimes", accuracies({"FL": 70.0}), keep=lambda task: task.data.name == "mnist")
    row = check_claim("C9", on_mnist)
    assert row.verdict == "not tested here"
    assert row.differs
    assert "could still support it" in row.reason
    assert "Contradicted, FL - ReLU: mnist fc-w128-d6 Adam" in row.reason


def test_real_runs_are_compared(runs):
    rows = {row.number: row for row in check_claims(_read(runs))}
    assert len(rows) == 38
    assert rows["C9"].ours.startswith("FL - ReLU: ")
    assert "% [digits-100 fc-w32-d4 Adam; does not count]" in rows["C9"].ours  # its ReLU network has fitted little
    assert rows["C27"].verdict == "not tested here"


def test_the_command_writes_a_page_with_all_rows_and_the_analyses(runs, tmp_path, capsys):
    (runs / "analyses").mkdir(exist_ok=True)
    (runs / "analyses" / "C9.md").write_text("Because of the digits.\n")
    page = tmp_path / "page.md"
    assert main(["papers", "claims", str(runs), "--out", str(page)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{page}: 9 verified by the test suite; the other 29: ")
    text = page.read_text()
    assert printed.strip().removeprefix(f"{page}: ") + ".\n" in text
    assert [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| C")] == [
        f"| C{number}" for number in range(1, 39)
    ]
    assert "| number | claim | paper | ours | difference | verdict |" in text
    assert "Because of the digits." in text.partition("### C9:")[2].partition("### C10:")[0]
    assert "- `neuralpath papers run regimes --out runs`: 6 of 6 runs are finished (`regimes-" in text
    assert "- `neuralpath papers run theorem --preset cpu --out runs`: not run" in text
    assert "| regimes | cpu | 6 of 6 |" in text
    again = tmp_path / "again.md"
    assert main(["papers", "claims", str(runs), "--out", str(again)]) == 0
    assert again.read_bytes() == page.read_bytes()


def test_smoke_sweeps_do_not_count(sweep, runs, tmp_path):
    replace(sweep, preset="smoke").write(tmp_path)
    found = _read(tmp_path, runs)
    assert found.of("regimes") == ()
    rows = check_claims(found)
    reason = next(row.reason for row in rows if row.number == "C9")
    assert "`regimes` was run only with the preset smoke" in reason
    assert "`regimes` was not run" not in reason
    text = claims_markdown(rows, found)
    assert "| regimes | smoke only | - |" in text
    assert "`neuralpath papers run regimes --preset cpu --out runs`: not run, except with the preset smoke" in text
    assert "`neuralpath papers run theorem --preset cpu --out runs`: not run\n" in text
    assert _read(runs).of("regimes") != ()


def test_smoke_settings_never_count_however_they_were_started(tmp_path):
    experiment = get("base-kernels")
    config = experiment.presets["smoke"]
    sweep = Sweep(experiment, config)  # from a call in Python, without a preset's name
    found = read_records([sweep], Store(tmp_path))
    assert found.of("base-kernels") == ()
    assert found.smoke_only == {"base-kernels"}
    other = Sweep(experiment, replace(config, seeds=(7,)))
    found = read_records([sweep, other], Store(tmp_path))
    assert [one.sweep for one in found.of("base-kernels")] == [other]
    page = claims_markdown(check_claims(found), found)
    assert f"- `base-kernels` with its own settings, run from Python: 0 of {len(other.tasks)} runs are" in page
    assert "--preset --out" not in page


def test_folders_without_runs_are_refused(tmp_path, capsys):
    assert main(["papers", "claims", str(tmp_path / "nowhere")]) == 1
    assert str(tmp_path / "nowhere") in capsys.readouterr().err
    assert main(["papers", "claims", str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err


def test_overlapping_sweeps_count_once():
    first, second = (
        records("regimes", accuracies(), config=replace(get("regimes").presets["cpu"], only=only)).of("regimes")
        for only in ((), ("mnist-fc-adam",))
    )
    both, alone = Records({"regimes": (*first, *second)}), Records({"regimes": first})
    assert check_claim("C9", both).parts == check_claim("C9", alone).parts
    page = claims_markdown(check_claims(both), both)
    assert page.count("| FL - ReLU | mnist fc-w128-d6 Adam |") == 1


def _fits(invented, real):
    """Whether all that was made up is there in a real result, in the same form."""
    if isinstance(invented, dict):
        return isinstance(real, dict) and all(key in real and _fits(invented[key], real[key]) for key in invented)
    if isinstance(invented, list):
        return isinstance(real, list) and all(_fits(invented[0], one) for one in real[:1] if invented)
    return isinstance(real, type(invented)) or (isinstance(invented, float) and isinstance(real, int))


def test_made_up_results_of_networks_have_the_form_of_real_ones(runs):
    (found,) = _read(runs).of("regimes")
    for task, result in found.results.items():
        assert isinstance(task, TrainNetwork | TrainGated)
        assert _fits(made_up.trained(80.0), result)


FORMS = {
    "theorem": made_up.drawn(lambda task: 0.1),
    "memorization": made_up.memorized(lambda width, depth: None),  # so few steps get nowhere
    "base-kernels": made_up.overlapping(lambda width: 0.1),
    "kernel-parts": made_up.parts(0.5, 0.5, 0.5),
    "label-energy": made_up.energies(10.0, 3.0),
    "kernels": made_up.regressions({"linear": 80.0, "FR-II": 80.0}),
}


@pytest.mark.parametrize("name", FORMS)
def test_made_up_results_of_other_runs_have_the_form_of_real_ones(name, tmp_path):
    first = {}
    for task in get(name).tasks(get(name).presets["smoke"]):
        if not task.dependencies and not isinstance(task, TrainNetwork):  # one of each kind that needs no other run
            first.setdefault(type(task), task)
    for kind, task in first.items():
        assert _fits(FORMS[name](task), run_tasks((task,), tmp_path / kind.__name__)[task]), kind
