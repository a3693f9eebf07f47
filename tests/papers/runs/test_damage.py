"""What is damaged in a folder of runs, or of records, is named, put aside and done again; it never decides a result."""

import json
import os
import shutil

import pytest

from neuralpath.papers.runs.run_directory import read_metrics
from neuralpath.papers.runs.store import DamagedRecord, Store, _checksum, read_about, read_record
from neuralpath.papers.runs.sweep import SweepFailed, problems_of, run_tasks
from neuralpath.papers.runs.task import Weights, with_dependencies
from neuralpath.papers.runs.tensors import DamagedTensors
from papers.runs.small_tasks import Counting

BASE = Counting("base")
CHILD = Counting("child", reads=(Weights(BASE),))


def overwrite(path):
    """Other bytes at the end: the file still loads, and holds another number."""
    path.write_bytes(path.read_bytes()[:-4] + b"\x00\x00\xc8\x42")


def cut(path):
    path.write_bytes(path.read_bytes()[:10])


def record_without_result(folder):
    """With a checksum that is right."""
    task = Counting("base")
    store = Store(folder.parent)
    store.finish(task, {}, {})
    body = json.loads((folder / "record.json").read_text())
    del body["sha256"], body["result"]
    (folder / "record.json").write_text(json.dumps({"sha256": _checksum(body), **body}))


def unfinished(folder, file, content):
    (folder / "record.json").unlink()
    (folder / file).write_bytes(content)


def as_a_file(folder):
    shutil.rmtree(folder)
    folder.write_text("not a folder")


def as_a_broken_link(folder):
    shutil.rmtree(folder)
    folder.symlink_to("nowhere")


DAMAGE = {
    "a record that is a list": (lambda folder: (folder / "record.json").write_text("[]"), "no JSON object"),
    "a record that is a number": (lambda folder: (folder / "record.json").write_text("1"), "no JSON object"),
    "a record without its parts": (lambda folder: (folder / "record.json").write_text("{}"), "`sha256` is missing"),
    "a record without a result": (record_without_result, "`result` is missing"),
    "a record with infinity": (
        lambda folder: (folder / "record.json").write_text(
            (folder / "record.json").read_text().replace('"start": 0', '"start": Infinity')
        ),
        "checksum",
    ),
    "a record of endless lists": (lambda folder: (folder / "record.json").write_text("[" * 100_000), "no record"),
    "a failure that is empty": (lambda folder: unfinished(folder, "failed.json", b"{}"), "failed.json does not say"),
    "a failure that is a list": (lambda folder: unfinished(folder, "failed.json", b"[1]"), "failed.json does not say"),
    "a failure that is no text": (
        lambda folder: unfinished(folder, "failed.json", b"\xff"),
        "failed.json does not say",
    ),
    "metrics that are no text": (lambda folder: unfinished(folder, "metrics.jsonl", b"\xff\xfe\x00"), "cannot be read"),
    "a config that is a list": (lambda folder: unfinished(folder, "config.json", b"[]"), "of another run"),
    "a file in place of the folder": (as_a_file, "no directory"),
    "a link to nowhere": (as_a_broken_link, "no directory"),
}


def damaged_runs(tmp_path, how):
    run_tasks([BASE], tmp_path, progress=False)
    before = (tmp_path / BASE.name / "record.json").read_bytes()
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
    assert (tmp_path / BASE.name / "record.json").read_bytes() == before


@pytest.mark.parametrize("name", DAMAGE)
def test_what_is_damaged_can_be_told_before_it_is_repeated(tmp_path, name):
    how, problem = DAMAGE[name]
    damaged_runs(tmp_path, how)
    store = Store(tmp_path)
    assert store.failure(BASE) is None
    assert isinstance(read_metrics(store.folder(BASE)), list)
    [said] = problems_of((BASE,), store)
    assert problem in said
    assert said.endswith("`neuralpath papers run` repeats the run")
    with store.lock(BASE):  # what a process has in its hands is on its way, not damaged
        assert problems_of((BASE,), store) == []


@pytest.mark.parametrize("how", [overwrite, cut])
def test_damaged_weights_are_never_read_and_their_run_is_repeated(tmp_path, capfd, how):
    run_tasks([BASE], tmp_path, progress=False)
    record = (tmp_path / BASE.name / "record.json").read_bytes()
    how(tmp_path / BASE.name / "weights" / "last.safetensors")
    store = Store(tmp_path)
    assert not store.has(Weights(BASE))
    [problem] = problems_of(with_dependencies((CHILD,)), store)
    assert "last.safetensors is damaged: its checksum is wrong" in problem
    assert run_tasks([CHILD], tmp_path)[CHILD]["start"] == 3.0
    assert "last.safetensors is damaged: its checksum is wrong" in capfd.readouterr().err
    assert (tmp_path / "quarantine" / f"{BASE.name}-1" / "weights" / "last.safetensors").exists()
    assert (tmp_path / BASE.name / "record.json").read_bytes() == record
    assert store.has(Weights(BASE))


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
    with pytest.raises(DamagedTensors, match=f"{file} is damaged: its checksum is wrong; --retry-failed does the run"):
        store.directory(CHILD).weights_of(BASE, "last")
    store.begin(CHILD)
    store.fail(CHILD, "DamagedTensors: it was cut", "", {})
    with pytest.raises(SweepFailed):
        run_tasks([CHILD], tmp_path, progress=False)
    assert run_tasks([CHILD], tmp_path, retry_failed=True, progress=False)[CHILD]["start"] == 3.0


def test_weights_of_an_unfinished_run_are_looked_at_when_it_goes_on(tmp_path):
    store = Store(tmp_path)
    run_tasks([BASE], tmp_path, progress=False)
    (tmp_path / BASE.name / "record.json").unlink()
    overwrite(tmp_path / BASE.name / "weights" / "last.safetensors")
    assert "last.safetensors is damaged" in store.begin(BASE)


def records_of(tmp_path, *, with_sums=True):
    """A folder of records with the base network and its weights."""
    run_tasks([BASE], tmp_path / "first", progress=False)
    records = tmp_path / "records"
    (records / "weights").mkdir(parents=True)
    shutil.copy(tmp_path / "first" / BASE.name / "record.json", records / f"{BASE.name}.json")
    source = tmp_path / "first" / BASE.name / "weights"
    for path in source.iterdir():
        if with_sums or path.suffix != ".sha256":
            shutil.copy(path, records / "weights" / f"{BASE.name}.{path.name}")
    return records


@pytest.mark.parametrize("with_sums", [True, False])
def test_weights_among_the_records_count_with_checksum_or_whole(tmp_path, with_sums):
    records = records_of(tmp_path, with_sums=with_sums)
    assert run_tasks([CHILD], tmp_path / "out", records=records, progress=False)[CHILD]["start"] == 3.0
    assert not (tmp_path / "out" / BASE.name).exists()


@pytest.mark.parametrize(("with_sums", "how"), [(True, overwrite), (True, cut), (False, cut)])
def test_damaged_weights_among_the_records_are_named_and_made_again(tmp_path, capfd, with_sums, how):
    records = records_of(tmp_path, with_sums=with_sums)
    file = records / "weights" / f"{BASE.name}.last.safetensors"
    how(file)
    before = file.read_bytes()
    assert run_tasks([CHILD], tmp_path / "out", records=records)[CHILD]["start"] == 3.0
    said = capfd.readouterr().err
    assert f"{file} is damaged" in said
    assert "`neuralpath papers export` puts the new file in its place" in said
    assert file.read_bytes() == before  # they are only read
    assert (tmp_path / "out" / BASE.name / "record.json").exists()


@pytest.mark.parametrize("content", ["[]", "{}", "", "[1", '{"sha256": 3}'])
def test_a_damaged_record_among_the_records_is_named_and_its_run_repeated(tmp_path, capfd, content):
    records = records_of(tmp_path)
    (records / f"{BASE.name}.json").write_text(content)
    store = Store(tmp_path / "out", records)
    with pytest.raises(DamagedRecord):
        store.result(BASE)
    [problem] = problems_of((BASE,), store)
    assert f"{records / BASE.name}.json is no record of a run" in problem
    assert run_tasks([BASE], tmp_path / "out", records=records)[BASE]["squares"] == [1, 4, 9]
    said = capfd.readouterr().err
    assert f"{records / BASE.name}.json is no record of a run" in said
    assert "the run is repeated" in said


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


@pytest.mark.parametrize(
    ("content", "is_good"),
    [("{}", True), ('{"versions": {"torch": "2"}}', True), ("[]", False), ("1", False), ('{"versions": [1]}', False),
     ('{"versions": {"torch": [2]}}', False), ("\xff", False)],
)  # fmt: skip
def test_what_is_kept_of_the_machine_is_a_record_of_names(tmp_path, content, is_good):
    (tmp_path / "about.json").write_bytes(content.encode("latin-1"))
    assert (read_about(tmp_path / "about.json") is not None) == is_good
