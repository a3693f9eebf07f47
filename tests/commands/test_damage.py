"""Damaged files in folders of runs and of records: named by every command, replaced by `collect`, no traceback."""

import json
import shutil

import pytest

from neuralpath.cli import main

SMALL = ["--parts.0.seeds", "0", "--parts.0.regimes", "ReLU", "FL", "--parts.0.sources", "true", "--only", "digits-fc"]
WEIGHTS = "best.safetensors"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damage")
    assert run(folder / "runs") == 0
    assert main(["papers", "export", str(folder / "runs"), "--records", str(folder / "records")]) == 0
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


def kept(folder):
    """What must be the same however often a run was done."""
    return {path.name: path.read_bytes() for path in folder.glob("runs/*.json") if not path.name.endswith("about.json")}


def spoil(path):
    path.write_bytes(path.read_bytes()[:1000] + bytes(2000) + path.read_bytes()[3000:])


def truncate(path):
    path.write_bytes(path.read_bytes()[:5000])


def truncate_old(path):
    """Of weights from before there were checksums."""
    truncate(path)
    path.with_name(f"{path.name}.sha256").unlink()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("record.json", b"[]"), ("record.json", b"{"), ("failed.json", b"{}"), ("failed.json", b"[1]"),
        ("metrics.jsonl", b"\xff\xfe\x00"), (".", b"a file"),
    ],
)  # fmt: skip
def test_status_and_report_name_a_damaged_run_and_run_repeats_it(runs, file, content, capsys):
    folder = one(runs, "*-FL-*")
    record = (folder / "record.json").read_bytes()
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
    assert (folder / "record.json").read_bytes() == record
    assert main(["papers", "status", str(runs)]) == 0
    assert "2 of 2 runs finished\n" in capsys.readouterr().out


@pytest.mark.parametrize("how", [spoil, truncate])
def test_damaged_weights_are_named_and_never_trained_on(runs, how, capsys):
    record = (one(runs, "*-FL-*") / "record.json").read_bytes()
    shutil.rmtree(one(runs, "*-FL-*"))
    weights = one(runs, "*-relu-*") / "weights" / WEIGHTS
    how(weights)
    assert main(["papers", "status", str(runs)]) == 0
    assert f"{weights} is damaged: its checksum is wrong" in capsys.readouterr().out
    assert run(runs) == 0
    assert f"{weights} is damaged: its checksum is wrong" in capsys.readouterr().err
    assert (one(runs, "*-FL-*") / "record.json").read_bytes() == record


@pytest.mark.parametrize("how", [spoil, truncate])
def test_collect_leaves_damaged_weights_and_says_so(runs, tmp_path, how, capsys):
    weights = one(runs, "*-relu-*") / "weights" / WEIGHTS
    how(weights)
    assert main(["papers", "export", str(runs), "--records", str(tmp_path / "new")]) == 0
    captured = capsys.readouterr()
    assert "2 new records, 0 new files of weights" in captured.out
    assert f"{weights} is damaged: its checksum is wrong: it is left" in captured.err
    assert not list((tmp_path / "new" / "weights").iterdir())


def test_collect_copies_the_checksum_of_weights(records):
    weights = one(records / "weights", f"*.{WEIGHTS}")
    assert weights.name in (records / "weights" / f"{weights.name}.sha256").read_text()


def test_a_damaged_record_is_named_by_every_command_repeated_and_replaced(records, tmp_path, capsys):
    before, path = kept(records), one(records / "runs", "*-FL-*[0-9a-f].json")
    about = json.loads(path.with_name(f"{path.stem}.about.json").read_text())
    path.write_text("[]")
    problem = f"{path} is no record of a run"
    for command in ("status", "show"):
        assert main(["papers", command, str(records)]) == 0
        captured = capsys.readouterr()
        assert problem in captured.out + captured.err, command
    assert main(["papers", "export", str(records), "--csv", str(tmp_path / "runs.csv")]) == 0
    assert problem in capsys.readouterr().err
    assert main(["papers", "claims", str(records), "--out", str(tmp_path / "CLAIMS.md")]) == 0
    assert problem in capsys.readouterr().err
    assert main(["papers", "report", str(records), "--no-figures", "--out", str(tmp_path / "page.html")]) == 0
    assert problem in capsys.readouterr().err
    assert path.name in (tmp_path / "page.html").read_text()
    assert run(tmp_path / "fresh", "--records", records) == 0
    assert problem in capsys.readouterr().err
    assert main(["papers", "export", str(tmp_path / "fresh"), "--records", str(records)]) == 0
    said = capsys.readouterr().out
    assert "1 new records, 0 new files of weights" in said
    assert f"replaced: {problem}" in said
    assert kept(records) == before
    again = json.loads(path.with_name(f"{path.stem}.about.json").read_text())
    assert again["command"] != about["command"]  # the record's own, not that of the run before


@pytest.mark.parametrize("how", [spoil, truncate, truncate_old])
def test_damaged_weights_among_the_records_are_replaced(runs, records, how, capsys):
    weights = one(records / "weights", f"*.{WEIGHTS}")
    before = weights.read_bytes()
    how(weights)
    assert main(["papers", "export", str(runs), "--records", str(records)]) == 0
    said = capsys.readouterr().out
    assert "0 new records, 1 new files of weights" in said
    assert f"replaced: {weights} is damaged" in said
    assert weights.read_bytes() == before
    assert main(["papers", "export", str(runs), "--records", str(records)]) == 0
    assert "0 new records, 0 new files of weights" in capsys.readouterr().out


def test_a_damaged_file_about_the_machine_is_named_and_not_kept(runs, tmp_path, capsys):
    about = one(runs, "*-FL-*") / "about.json"
    about.write_text('{"versions": [1]}')
    assert main(["papers", "export", str(runs), "--records", str(tmp_path / "new")]) == 0
    assert f"{about} is damaged: it is left" in capsys.readouterr().err
    assert len(list((tmp_path / "new" / "runs").glob("*.about.json"))) == 1
