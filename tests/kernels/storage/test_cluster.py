"""Finding a cluster, with messages that help; what needs a real one is in `test_faults.py`."""

import json
import sys
import threading
from types import SimpleNamespace

import pytest

from neuralpath import _cluster as cluster
from neuralpath._cluster import ClusterError, connect
from neuralpath.kernels.storage.cluster_tiles import _pickled, _result


def test_a_scheduler_that_does_not_answer_is_named_soon():
    with pytest.raises(ClusterError, match=r"tcp://127.0.0.1:9 .*0.5 s"):
        connect("tcp://127.0.0.1:9", timeout=0.5)


@pytest.mark.parametrize("place", ["127.0.0.1", "none.json"])
def test_what_is_no_address_and_no_file_is_refused(place):
    with pytest.raises(ClusterError, match=rf"{place!r}"):
        connect(place)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '"tcp://x:1"'])
def test_what_is_no_scheduler_file_is_refused(text, tmp_path):
    (tmp_path / "file.json").write_text(text)
    with pytest.raises(ClusterError, match=r"file\.json"):
        connect(tmp_path / "file.json")


def test_the_address_is_read_from_a_scheduler_file(tmp_path):
    (tmp_path / "file.json").write_text(json.dumps({"address": "tcp://here:1"}))
    assert cluster._address(tmp_path / "file.json") == "tcp://here:1"


def test_without_distributed_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ClusterError, match=r"pip install dask distributed .*\[scale\]"):
        connect("tcp://127.0.0.1:9")


def client_with(**worker):
    here = {"python": "3.11.7.final.0", "distributed": "1", "torch": "2", "neuralpath": "0.1"}
    versions = {"client": {"packages": here}, "workers": {"tcp://w:1": {"packages": {**here, **worker}}}}
    return SimpleNamespace(get_versions=lambda check, packages: versions)


def test_other_versions_are_named():
    cluster._refuse_other_versions(client_with(python="3.11.2.final.0"))
    with pytest.raises(ClusterError, match=r"python is 3.12 on the worker tcp://w:1 and 3.11 here"):
        cluster._refuse_other_versions(client_with(python="3.12.1.final.0"))
    with pytest.raises(ClusterError, match=r"neuralpath is missing on the worker tcp://w:1 and 0.1 here"):
        cluster._refuse_other_versions(client_with(neuralpath=None))


@pytest.mark.parametrize(
    ("error", "message"),
    [(ModuleNotFoundError("No module named 'layers.mine'"), "'layers.mine'"), (ConnectionError("gone"), "gone")],
)
def test_errors_of_workers_are_explained(error, message):
    def result(timeout):
        raise error

    with pytest.raises(ClusterError, match=message):
        _result(SimpleNamespace(status="running"), SimpleNamespace(result=result))


def test_a_model_that_cannot_be_pickled_is_explained():
    lock = threading.Lock()
    with pytest.raises(ClusterError, match="cannot pickle"):
        _pickled(lambda: lock)
