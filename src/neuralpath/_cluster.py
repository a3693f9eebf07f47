"""A Dask cluster that is running already: finding it, and saying clearly what is wrong with it."""

import json
import logging
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client
else:
    Client = Any  # an extra, imported where it is used

TIMEOUT = 15.0  # seconds in which a scheduler must answer, and then have a worker
# What must have one version on the scheduler's workers and here: code and tensors are sent between them.
MUST_AGREE = ("python", "distributed", "torch", "neuralpath")


class ClusterError(RuntimeError):
    """A cluster cannot be used; the message says why and what to do."""


def connect(place: str | Path, *, timeout: float = TIMEOUT) -> Client:
    """A client of the Dask scheduler at an address, ``tcp://host:port``, or named by a scheduler file.

    Use it as a context manager, so that it is closed. The workers' versions of Python, Dask, torch and this library
    are compared with those here. Whoever reaches a scheduler can run code on its workers: keep it in a trusted network,
    or protect it with Dask's TLS settings, which are followed for addresses that begin with ``tls://``.
    """
    address = _address(place)
    try:
        from distributed import Client as DaskClient
    except ImportError as error:
        command = 'pip install dask distributed (from a clone: pip install -c constraints.txt ".[scale]")'
        raise ClusterError(f"a cluster needs the packages dask and distributed: {command}.") from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of versions that differ, which are refused below with more to say
        try:
            client = DaskClient(address, timeout=timeout, set_as_default=False, name="neuralpath")
        except (OSError, TimeoutError, ValueError) as error:
            hint = "is `dask scheduler` running there, and can this machine reach it?"
            raise ClusterError(f"no scheduler answers at {address} within {timeout:g} s: {hint}") from error
    try:
        client.wait_for_workers(1, timeout=timeout)
        _refuse_other_versions(client)
    except BaseException as error:
        client.close()
        if not isinstance(error, TimeoutError):
            raise
        hint = f"start some with `dask worker {address}`, in an environment that has neuralpath"
        raise ClusterError(f"the scheduler at {address} has no workers after {timeout:g} s: {hint}.") from error
    return client


def silence_logs() -> None:
    """For command lines: what goes wrong in a cluster is told by an error of ours, without Dask's tracebacks."""
    with suppress(ImportError):  # which `connect` explains
        import distributed  # noqa: F401 (sets the levels of its loggers, one by one, when it is imported)
    for name in ("tornado", "asyncio", *logging.root.manager.loggerDict):
        if name.split(".")[0] in ("distributed", "tornado", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _address(place: str | Path) -> str:
    """The address that is given, or that stands in a scheduler file."""
    if "://" in str(place):
        return str(place)
    path = Path(place)
    if not path.is_file():
        files = "a scheduler file, as `dask scheduler --scheduler-file` writes it"
        raise ClusterError(
            f"{str(place)!r} is neither the address of a scheduler, such as tcp://host:8786, nor {files}."
        )
    try:
        return str(json.loads(path.read_text())["address"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ClusterError(f"{path} is no scheduler file: it has no address of a scheduler.") from error


def _refuse_other_versions(client: Client) -> None:
    versions: Any = client.get_versions(check=False, packages=[name for name in MUST_AGREE if name != "python"])
    here = _versions(versions["client"])
    problems = [
        f"{name} is {there or 'missing'} on the worker {address} and {here[name]} here"
        for address, record in versions["workers"].items()
        for name, there in _versions(record).items()
        if there != here[name]
    ]
    if problems:
        more = f"; and {len(problems) - 4} more" if len(problems) > 4 else ""
        raise ClusterError(
            f"versions differ: {'; '.join(problems[:4])}{more}. Start the workers in the same environment as this."
        )


def _versions(record: Mapping[str, Any]) -> dict[str, str | None]:
    versions = {name: record["packages"].get(name) for name in MUST_AGREE}
    # Pickled functions are read by the same minor version of Python.
    versions["python"] = ".".join(str(versions["python"] or sys.version).split(".")[:2])
    return versions
