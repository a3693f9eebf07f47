"""Finding a cluster, with messages that help; what needs a real one is in `test_faults.py`."""

import json
import sys
from types import SimpleNamespace

import pytest

from kernels.storage.stores import BUDGET, inputs
from neuralpath import _cluster as cluster
from neuralpath._cluster import ClusterError, connect
from neuralpath.kernels.storage import cluster_tiles
from neuralpath.kernels.storage.cluster_tiles import Cluster
from neuralpath.kernels.storage.storing import write_kernel
from neuralpath.kernels.stored_kernels import make_recipe


def test_a_scheduler_that_does_not_answer_is_named_soon():
    with pytest.raises(ClusterError, match=r"no scheduler answers at tcp://127.0.0.1:9 within 0.5 s: is `dask"):
        connect("tcp://127.0.0.1:9", timeout=0.5)


@pytest.mark.parametrize("place", ["127.0.0.1", "none.json"])
def test_what_is_no_address_and_no_file_is_refused(place):
    with pytest.raises(
        ClusterError, match=rf"{place!r} is neither the address of a scheduler, such as tcp://host:8786"
    ):
        connect(place)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '"tcp://x:1"'])
def test_what_is_no_scheduler_file_is_refused(text, tmp_path):
    (tmp_path / "file.json").write_text(text)
    with pytest.raises(ClusterError, match="is no scheduler file: it has no address"):
        connect(tmp_path / "file.json")


def test_the_address_is_read_from_a_scheduler_file(tmp_path):
    (tmp_path / "file.json").write_text(json.dumps({"address": "tcp://here:1"}))
    assert cluster._address(tmp_path / "file.json") == "tcp://here:1"


def test_without_distributed_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ClusterError, match=r"pip install dask distributed \(from a clone: .* \"\.\[scale\]\"\)\.$"):
        connect("tcp://127.0.0.1:9")


def client_with(**worker):
    here = {"python": "3.11.7.final.0", "distributed": "1", "torch": "2", "neuralpath": "0.1"}
    versions = {"client": {"packages": here}, "workers": {"tcp://w:1": {"packages": {**here, **worker}}}}
    return SimpleNamespace(get_versions=lambda check, packages: versions)


def test_other_versions_are_named():
    cluster._refuse_other_versions(client_with(python="3.11.2.final.0"))
    with pytest.raises(ClusterError, match=r"python is 3.12 on the worker tcp://w:1 and 3.11 here"):
        cluster._refuse_other_versions(client_with(python="3.12.1.final.0"))
    with pytest.raises(ClusterError, match=r"neuralpath is missing on the worker tcp://w:1 and 0.1 here\. Start the"):
        cluster._refuse_other_versions(client_with(neuralpath=None))


class ScatterFails:
    """A client that cannot send anything."""

    status = "closed"

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def scheduler_info(self, n_workers):
        return {"workers": {"tcp://w:1": {}}}

    def scatter(self, *_, **__):
        raise self.error


def unpicklable():
    """What Dask raises: all that was to be sent, and the reason behind it."""
    error = TypeError("Could not serialize object", "tensor([0.0, 0.0, 0.0])")
    error.__cause__ = TypeError("cannot pickle '_thread.lock' object")
    return error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            Exception("ModuleNotFoundError(\"No module named 'layers.mine'\")"),
            r"the workers cannot import 'layers.mine', which the model needs.* Put its code into the file of the model",
        ),
        (unpicklable(), r"cannot be sent to the workers: TypeError: cannot pickle '_thread.lock' object\.$"),
        (ConnectionError("gone"), r"the connection to the cluster is lost: gone\. Run the same once more"),
    ],
)
def test_what_does_not_reach_the_workers_is_explained(error, message, tmp_path):
    recipe = make_recipe("linear", None, inputs())
    with pytest.raises(ClusterError, match=message):
        write_kernel(tmp_path / "K.zarr", recipe, Cluster(ScatterFails(error)), memory=BUDGET, threads=1)


def test_a_worker_that_comes_later_and_lacks_a_package_is_explained():
    future = SimpleNamespace(result=lambda: __import__("no_such_package"))
    run = object.__new__(cluster_tiles._Run)
    with pytest.raises(ClusterError, match="the workers cannot import 'no_such_package', which the model needs"):
        run.result(future)
