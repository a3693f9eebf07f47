import re
from pathlib import Path

import pytest

from neuralpath import data


def test_order_is_data_dir_then_environment_then_cache(
    tiny_idx, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, environment = tmp_path / "given", tmp_path / "environment"
    monkeypatch.setenv("NEURALPATH_DATA", str(environment))
    given.mkdir()
    for root in (cache, environment, given):
        folder = tiny_idx.write(root / "tiny")
        assert data.find("tiny", given, sources=tiny_idx.sources) == folder


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data.cache_folder() == tmp_path / "neuralpath"
    monkeypatch.setenv("HOME", str(tmp_path))
    for unusable in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unusable)
        assert data.cache_folder() == tmp_path / ".cache" / "neuralpath"


def test_missing_set_names_the_places_and_the_command(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEURALPATH_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(data.DataError) as caught:
        data.find("mnist", tmp_path)
    message = str(caught.value)
    assert "\n" not in message
    for expected in (
        f"{tmp_path}, ",
        f"{tmp_path / 'nowhere'} (does not exist)",
        str(cache),
        "MNIST/raw",
        f"`neuralpath data fetch mnist --data-dir {tmp_path}`",
        "$NEURALPATH_DATA",
    ):
        assert expected in message


def test_data_dir_must_exist(tiny_idx, tmp_path: Path, cache: Path) -> None:
    tiny_idx.write(cache / "tiny")
    with pytest.raises(data.DataError, match=re.escape(f"{tmp_path / 'nowhere'} does not exist")):
        data.find("tiny", tmp_path / "nowhere", sources=tiny_idx.sources)
    with pytest.raises(data.DataError, match="does not exist"):
        data.check(tmp_path / "nowhere", sources=tiny_idx.sources)


def test_data_dir_must_be_a_folder(tiny_idx, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(data.DataError, match="file is a file"):
        data.find("tiny", tmp_path / "file", sources=tiny_idx.sources)


def test_home_is_expanded(tiny_idx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tiny_idx.write(tmp_path / "sets" / "tiny")
    assert data.find("tiny", "~/sets", sources=tiny_idx.sources) == folder


def test_two_sets_with_the_same_file_names_are_told_apart(tiny_idx, other_idx, tmp_path: Path) -> None:
    sources = {**tiny_idx.sources, **other_idx.sources}
    other_idx.write(tmp_path)
    assert data.find("other", tmp_path, sources=sources) == tmp_path
    with pytest.raises(data.DataError, match="tiny was not found"):
        data.find("tiny", tmp_path, sources=sources)
    statuses = {result.name: result.status for result in data.check(tmp_path, sources=sources)}
    assert statuses == {"digits": "found", "tiny": "missing", "other": "found"}


def test_complete_copy_is_preferred_to_an_incomplete_one(tiny_idx, tmp_path: Path, cache: Path) -> None:
    tiny_idx.write(tmp_path / "tiny")
    (tmp_path / "tiny" / "t10k-labels-idx1-ubyte.gz").unlink()
    folder = tiny_idx.write(cache)
    assert data.find("tiny", tmp_path, sources=tiny_idx.sources) == folder


def test_stray_file_is_not_taken_for_a_set(tmp_path: Path) -> None:
    (tmp_path / "train.bin").write_bytes(b"tokens of a language model")
    with pytest.raises(data.DataError, match="cifar100 was not found"):
        data.find("cifar100", tmp_path)


def test_file_with_the_name_of_a_folder_is_not_taken_for_it(tmp_path: Path) -> None:
    for name in ("mnist", "cifar10"):
        (tmp_path / name).touch()
        with pytest.raises(data.DataError, match=f"{name} was not found"):
            data.find(name, tmp_path)


def test_check_reports_each_set(tiny_idx, tiny_cifar, tmp_path: Path, unchanged) -> None:
    sources = {**tiny_idx.sources, **tiny_cifar.sources}
    folder = tiny_idx.write(tmp_path / "tiny")
    unchanged()
    digits, idx, cifar = data.check(tmp_path, sources=sources)
    assert (digits.name, digits.status, digits.path) == ("digits", "found", None)
    assert (idx.name, idx.status, idx.path) == ("tiny", "found", folder)
    assert "4 files" in idx.detail
    assert (cifar.name, cifar.status, cifar.path) == ("small", "missing", None)


def test_digits_have_no_place() -> None:
    with pytest.raises(data.DataError, match="digits comes with scikit-learn"):
        data.find("digits")
