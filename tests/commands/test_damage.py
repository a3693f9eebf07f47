"""Damaged files in folders of runs and of records: named by every command, replaced by `export`, no traceback."""

import json
import shutil

import pytest

from neuralpath.cli import main
from neuralpath.papers.runs import read_archive, write_archive

SMALL = ["--parts.0.seeds", "0", "--parts.0.regimes", "ReLU", "FL", "--parts.0.sources", "true", "--only", "digits-fc"]
WEIGHTS = "best.safetensors"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damage")
    assert run(folder / "runs") == 0
    assert export(folder / "runs", folder / "records", "--weights", one(folder / "runs", "*-relu-*").name) == 0
    return folder


@pytest.fixture
def runs(made, tmp_path):
    return shutil.copytree(made / "runs", tmp_path / "runs")


@pytest.fixture
def records(made, tmp_path):
    return shutil.copytree(made / "records", tmp_path / "records")


def run(out, *more):
    return main(["papers", "run", "regimes", "--out", str(out), "--jobs", "1", *SMALL, *map(str, more)])


def one(folder, pattern):
    [found] = folder.glob(pattern)
    return found


def export(runs, records, *more):
    return main(["papers", "export", str(runs), "--records", str(records), *more])


def results(folder):
    """The results of an output folder or of a folder of records, which must not depend on how often a run was done."""
    found = [json.loads(path.read_bytes()) for path in folder.glob("*/record.json")]
    found += [record for path in folder.glob("*.jsonl.gz") for record in read_archive(path).records.values()]
    return {record["name"]: record.get("result") for record in found}


def spoil(path):
    path.write_bytes(path.read_bytes()[:1000] + bytes(2000) + path.read_bytes()[3000:])


def truncate(path):
    path.write_bytes(path.read_bytes()[:5000])


@pytest.mark.parametrize(
    ("file", "content"),
    [("record.json", b"[]"), ("record.json", b"{"), ("metrics.jsonl", b"\xff\xfe\x00"), (".", b"a file")],
)
def test_status_and_report_name_a_damaged_run_and_run_repeats_it(runs, file, content, capsys):
    folder, before = one(runs, "*-FL-*"), results(runs)
    if file == ".":
        shutil.rmtree(folder)
        folder.write_bytes(content)
    else:
        (folder / "record.json").unlink()
        (folder / file).write_bytes(content)
    assert main(["papers", "status", str(runs)]) == 0
    said = capsys.readouterr().out
    assert "1 of 2 runs finished" in said
    assert f"damaged  {folder} is damaged" in said
    if file == "metrics.jsonl":
        assert main(["papers", "report", str(runs), "--no-figures"]) == 0
        assert f"{folder} is damaged" in capsys.readouterr().err
    assert run(runs) == 0
    assert f"{folder} is damaged" in capsys.readouterr().err
    assert results(runs) == before
    assert main(["papers", "status", str(runs)]) == 0
    assert "2 of 2 runs finished\n" in capsys.readouterr().out


@pytest.mark.parametrize("how", [spoil, truncate])
def test_damaged_weights_are_named_and_never_trained_on(runs, how, capsys):
    before = results(runs)
    shutil.rmtree(one(runs, "*-FL-*"))
    weights = one(runs, "*-relu-*") / "weights" / WEIGHTS
    how(weights)
    assert main(["papers", "status", str(runs)]) == 0
    assert f"{weights} is damaged: its checksum is wrong" in capsys.readouterr().out
    assert run(runs) == 0
    assert f"{weights} is damaged: its checksum is wrong" in capsys.readouterr().err
    assert results(runs) == before


@pytest.mark.parametrize("how", [spoil, truncate])
def test_export_leaves_damaged_weights_and_says_so(runs, tmp_path, how, capsys):
    network = one(runs, "*-relu-*")
    weights = network / "weights" / WEIGHTS
    how(weights)
    assert export(runs, tmp_path / "new", "--weights", network.name) == 0
    captured = capsys.readouterr()
    assert "2 new records, 1 new files of weights" in captured.out
    assert f"{weights} is damaged: its checksum is wrong: it is not copied" in captured.err
    assert [path.name for path in (tmp_path / "new" / "weights").glob("*.safetensors")] == [
        f"{network.name}.last.safetensors"
    ]


def test_a_damaged_record_is_named_by_every_command_repeated_and_replaced(records, tmp_path, capsys):
    before, path = results(records), one(records, "*.jsonl.gz")
    archive = read_archive(path)
    [name] = [name for name in archive.records if "-FL-" in name]
    command = archive.records[name]["provenance"]["command"]
    archive.records[name]["result"]["n_steps"] += 1
    write_archive(path, archive)
    problem = f"the record {name} in {path} is damaged"
    for arguments in (["status"], ["show"], ["export", "--csv", str(tmp_path / "runs.csv")],
                      ["claims", "--out", str(tmp_path / "CLAIMS.md")],
                      ["report", "--no-figures", "--out", str(tmp_path / "page.html")]):  # fmt: skip
        assert main(["papers", arguments[0], str(records), *arguments[1:]]) == 0
        captured = capsys.readouterr()
        assert problem in captured.out + captured.err, arguments
    assert name in (tmp_path / "page.html").read_text()
    assert run(tmp_path / "fresh", "--records", records) == 0
    assert problem in capsys.readouterr().err
    assert export(tmp_path / "fresh", records) == 0
    said = capsys.readouterr().out
    assert "1 new records, 0 new files of weights" in said
    assert f"replaced: the record {name}" in said
    assert results(records) == before
    assert read_archive(path).records[name]["provenance"]["command"] != command  # that of the new run


@pytest.mark.parametrize("how", [spoil, truncate])
def test_damaged_weights_among_the_records_are_replaced(runs, records, how, capsys):
    network = one(runs, "*-relu-*")
    weights = one(records / "weights", f"*.{WEIGHTS}")
    before = weights.read_bytes()
    how(weights)
    assert export(runs, records, "--weights", network.name) == 0
    said = capsys.readouterr().out
    assert "0 new records, 1 new files of weights" in said
    assert f"replaced: {weights} is damaged" in said
    assert weights.read_bytes() == before
    assert export(runs, records, "--weights", network.name) == 0
    assert "0 new records, 0 new files of weights" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["status", "show", "report", "claims"])
def test_a_folder_from_before_this_format_is_refused_in_one_line(tmp_path, command, capsys):
    (tmp_path / "some-run").mkdir()
    (tmp_path / "some-run" / "config.json").write_text("{}")
    assert main(["papers", command, str(tmp_path)]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert str(tmp_path) in line
    assert "format 1" in line
