"""What is damaged in a folder of runs, or of records, is named, put aside and done again; it never decides a result."""

import gzip
import json
import os
import shutil

import pytest

from neuralpath._hashing import json_digest
from neuralpath.papers.runs.records import Archive, DamagedRecord, read_archive, read_record, write_archive
from neuralpath.papers.runs.run_directory import DamagedTensors, read_metrics
from neuralpath.papers.runs.store import Store
from neuralpath.papers.runs.sweep import problems_of
from neuralpath.papers.runs.task import RunError, Weights, with_dependencies
from papers.runs.small_tasks import Counting, archive_runs, finished, run_tasks

BASE = Counting("base")
CHILD = Counting("child", reads=(Weights(BASE),))


def overwrite(path):
    """Other bytes at the end: the file still loads, and holds another number."""
    path.write_bytes(path.read_bytes()[:-4] + b"\x00\x00\xc8\x42")


def cut(path):
    path.write_bytes(path.read_bytes()[:10])


def changed(path, **entries):
    """Other entries, with a right checksum; None removes one."""
    record = {**json.loads(path.read_bytes()), **entries}
    record = {name: value for name, value in record.items() if name != "sha256" and value is not None}
    path.write_text(json.dumps({**record, "sha256": json_digest(record)}))


def unfinished(folder, metrics):
    changed(folder / "record.json", state="started")
    (folder / "metrics.jsonl").write_bytes(metrics)


def as_a_file(folder):
    shutil.rmtree(folder)
    folder.write_text("not a folder")


def as_a_broken_link(folder):
    shutil.rmtree(folder)
    folder.symlink_to("nowhere")


DAMAGE = {
    "a record that is a list": (lambda folder: (folder / "record.json").write_text("[]"), "not a JSON object"),
    "a record that is a number": (lambda folder: (folder / "record.json").write_text("1"), "not a JSON object"),
    "a record without entries": (lambda folder: (folder / "record.json").write_text("{}"), "format None"),
    "a record of format 1": (lambda folder: changed(folder / "record.json", format=1), "has format 1"),
    "a record without a result": (lambda folder: changed(folder / "record.json", result=None), "`result` is missing"),
    "a record in no state": (lambda folder: changed(folder / "record.json", state="odd"), "`state`"),
    "a failure without an error": (
        lambda folder: changed(folder / "record.json", state="failed"),
        "`error` is missing",
    ),
    "a record with infinity": (
        lambda folder: (folder / "record.json").write_text(
            (folder / "record.json").read_text().replace('"start": 0', '"start": Infinity')
        ),
        "checksum",
    ),
    "a record with another number": (
        lambda folder: (folder / "record.json").write_text(
            (folder / "record.json").read_text().replace('"start": 0', '"start": 1')
        ),
        "checksum",
    ),
    "a record of another run": (
        lambda folder: changed(folder / "record.json", task={"kind": "Counting"}),
        "of another run",
    ),
    "a record of endless lists": (lambda folder: (folder / "record.json").write_text("[" * 100_000), "not a record"),
    "no record": (lambda folder: (folder / "record.json").unlink(), "record.json is missing"),
    "metrics that are no text": (lambda folder: unfinished(folder, b"\xff\xfe\x00"), "cannot be read"),
    "a file in place of the folder": (as_a_file, "not a directory"),
    "a link to nowhere": (as_a_broken_link, "not a directory"),
}


def damaged_runs(tmp_path, how):
    run_tasks([BASE], tmp_path, progress=False)
    before = finished(tmp_path)
    how(tmp_path / BASE.name)
    return before


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_directory_is_named_put_aside_and_its_run_repeated(tmp_path, capfd, name):
    how, problem = DAMAGE[name]
    before = damaged_runs(tmp_path, how)
    assert run_tasks([CHILD], tmp_path)[CHILD]["start"] == 3.0
    said = capfd.readouterr().err
    assert problem in said
    assert f"{tmp_path / BASE.name} is damaged" in said
    assert os.path.lexists(tmp_path / "quarantine" / f"{BASE.name}-1")
    assert finished(tmp_path)[BASE.name] == before[BASE.name]


@pytest.mark.parametrize("name", DAMAGE)
def test_what_is_damaged_can_be_told_before_it_is_repeated(tmp_path, name):
    how, problem = DAMAGE[name]
    damaged_runs(tmp_path, how)
    store = Store(tmp_path)
    assert store.failure(BASE) is None
    assert isinstance(read_metrics(store.folder(BASE)), list)
    [said] = problems_of((BASE,), store)
    assert problem in said
    assert said.endswith("repeats the run")
    with store.lock(BASE):  # what a process has in its hands is on its way, not damaged
        assert problems_of((BASE,), store) == []


@pytest.mark.parametrize("how", [overwrite, cut])
def test_damaged_weights_are_never_read_and_their_run_is_repeated(tmp_path, capfd, how):
    run_tasks([BASE], tmp_path, progress=False)
    record = finished(tmp_path)[BASE.name]
    how(tmp_path / BASE.name / "weights" / "last.safetensors")
    store = Store(tmp_path)
    assert store.weights_path(BASE, "last") is None
    [problem] = problems_of(with_dependencies((CHILD,)), store)
    assert "last.safetensors is damaged: its checksum is wrong" in problem
    assert run_tasks([CHILD], tmp_path)[CHILD]["start"] == 3.0
    assert "last.safetensors is damaged: its checksum is wrong" in capfd.readouterr().err
    assert (tmp_path / "quarantine" / f"{BASE.name}-1" / "weights" / "last.safetensors").exists()
    assert finished(tmp_path)[BASE.name] == record
    assert store.weights_path(BASE, "last") is not None


def test_damaged_weights_that_nobody_reads_any_more_repeat_nothing(tmp_path):
    run_tasks([CHILD], tmp_path, progress=False)
    cut(tmp_path / BASE.name / "weights" / "last.safetensors")
    run_tasks([CHILD], tmp_path, progress=False)
    assert not (tmp_path / "quarantine").exists()


def test_weights_that_are_damaged_while_they_are_read_fail_by_name_and_a_retry_mends_them(tmp_path):
    run_tasks([BASE], tmp_path, progress=False)
    store = Store(tmp_path)
    file = tmp_path / BASE.name / "weights" / "last.safetensors"
    cut(file)
    with pytest.raises(
        DamagedTensors, match=f"{file} is damaged: its checksum is wrong; --retry-failed repeats the run"
    ):
        store.directory(CHILD).weights_of(BASE, "last")
    store.begin(CHILD)
    store.write(CHILD, "failed", error="DamagedTensors: it was cut", trace="", provenance={})
    with pytest.raises(RunError, match="it was cut"):
        run_tasks([CHILD], tmp_path, progress=False)
    assert run_tasks([CHILD], tmp_path, retry_failed=True, progress=False)[CHILD]["start"] == 3.0


def test_weights_of_an_unfinished_run_are_looked_at_when_it_goes_on(tmp_path):
    store = Store(tmp_path)
    run_tasks([BASE], tmp_path, progress=False)
    changed(tmp_path / BASE.name / "record.json", state="started")
    overwrite(tmp_path / BASE.name / "weights" / "last.safetensors")
    [message] = store.begin(BASE)
    assert "last.safetensors is damaged" in message


def records_of(tmp_path):
    """A folder of records with the base network and its weights."""
    run_tasks([BASE], tmp_path / "first", progress=False)
    return archive_runs(tmp_path / "first", tmp_path / "records", (BASE,), weights=(BASE,))


@pytest.mark.parametrize("how", [overwrite, cut, lambda file: file.with_name(f"{file.name}.sha256").unlink()])
def test_damaged_weights_among_the_records_are_named_and_made_again(tmp_path, capfd, how):
    records = records_of(tmp_path)
    file = records / "weights" / f"{BASE.name}.last.safetensors"
    how(file)
    before = file.read_bytes()
    assert run_tasks([CHILD], tmp_path / "out", records=records)[CHILD]["start"] == 3.0
    said = capfd.readouterr().err
    assert str(file) in said
    assert "the run is repeated" in said
    assert file.read_bytes() == before  # they are only read
    assert (tmp_path / "out" / BASE.name / "record.json").exists()


@pytest.mark.parametrize("how", ["result", "format", "task", "cut"])
def test_a_damaged_record_in_an_archive_is_named_and_its_run_repeated(tmp_path, capfd, how):
    records = records_of(tmp_path)
    path = records / "small.jsonl.gz"
    if how == "cut":
        path.write_bytes(path.read_bytes()[:-20])
        assert "is damaged after line" in read_archive(path).problems[0]
    else:
        archive = read_archive(path)
        archive.records[BASE.name][how] = 3
        write_archive(path, archive)
        store = Store(tmp_path / "out", records)
        assert store.result(BASE) is None
        [problem] = problems_of((BASE,), store)
        assert f"{BASE.name} in {path}" in problem
    assert run_tasks([BASE], tmp_path / "out", records=records)[BASE]["squares"] == [1, 4, 9]
    said = capfd.readouterr().err
    assert how == "cut" or ("small.jsonl.gz" in said and "the run is repeated" in said)


def test_lines_of_an_archive_that_are_no_records_are_named(tmp_path):
    path = tmp_path / "small.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"name": "a", "x": 1}\n[]\n{"experiment": "e"}\nno JSON\n'))
    archive = read_archive(path)
    assert (list(archive.records), archive.sweeps) == (["a"], [{"experiment": "e"}])
    assert [problem.split(" of ")[0] for problem in archive.problems] == ["line 2", "line 4"]


def test_equal_contents_give_an_archive_of_equal_bytes(tmp_path):
    for name, records in (
        ("a", {"x": {"name": "x"}, "y": {"name": "y"}}),
        ("b", {"y": {"name": "y"}, "x": {"name": "x"}}),
    ):
        write_archive(tmp_path / name, Archive([{"experiment": "e"}], records))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("file", ["some-run/config.json", "runs/some-run.about.json"])
def test_a_folder_from_before_this_format_is_refused_in_one_line(tmp_path, file):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text("{}")
    for store in (lambda: Store(tmp_path), lambda: Store(tmp_path / "out", tmp_path)):
        with pytest.raises(RunError, match=rf"^{tmp_path} has runs of format 1[^\n]*format 2"):
            store()


def test_a_line_after_one_that_a_full_disk_has_cut_is_not_lost(tmp_path):
    store = Store(tmp_path)
    store.make()
    store.begin(BASE)
    directory = store.directory(BASE)
    directory.add_metrics(1, {"square": 1})
    with (directory.folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "squ')
    directory.add_metrics(2, {"square": 4})
    assert [line["square"] for line in directory.metrics()] == [1, 4]


@pytest.mark.parametrize(
    "line", [b"\xff\xfe", b"[]", b"3", b"{}", b'{"step": "one"}', b'{"step": [1]}', b"[" * 100_000]
)
def test_lines_that_are_no_metrics_are_passed_over(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 2}\n' + line + b'\n{"step": 1}\n')
    assert read_metrics(tmp_path) == [{"step": 1}, {"step": 2}]


def test_a_record_that_is_good_is_read(tmp_path):
    run_tasks([BASE], tmp_path, progress=False)
    assert read_record(tmp_path / BASE.name / "record.json", BASE)["result"]["squares"] == [1, 4, 9]
    with pytest.raises(DamagedRecord, match="of another run"):
        read_record(tmp_path / BASE.name / "record.json", CHILD)
