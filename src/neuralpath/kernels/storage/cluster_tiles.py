"""Tiles on a Dask cluster: workers compute them, and the client writes them, without a shared file system.

The scheduler itself runs a tile again whose worker is lost. Each tile crosses the network once, to the client, whose
disk and connection are thus the limit: about a hundred megabytes a second, which is 25 million pairs of float32.
"""

import threading
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from neuralpath._cluster import ClusterError
from neuralpath._resources import DEFAULT_SHARE, memory_budget, pinned_threads
from neuralpath.kernels.tiling import Tile, TiledKernel

if TYPE_CHECKING:
    from distributed import Client as Client, Future

    TileFuture = Future[np.ndarray]
else:
    Client = TileFuture = Any  # an extra, imported where it is used

AHEAD = 3
"""Tiles in progress for each worker, so that none waits for the client; more would fill its memory."""

PATIENCE = 600.0
"""Seconds without any worker before giving up; the queues of clusters are slow."""


def worker_memory(client: Client) -> int:
    """Half of the memory limit of the smallest worker; if none has a limit, half of the free memory here."""
    limits = [worker["memory_limit"] for worker in _workers(client).values() if worker.get("memory_limit")]
    return memory_budget(int(DEFAULT_SHARE * min(limits)) if limits else None)


def worker_threads(client: Client) -> int:
    """Threads of the worker that has the fewest."""
    return min((worker["nthreads"] for worker in _workers(client).values()), default=1)


def cluster_tiles(
    client: Client, make: Callable[..., TiledKernel], tiles: Iterable[Tile], memory: int, threads: int
) -> Iterator[tuple[Tile, Tensor]]:
    """Each tile with its values, in the order in which they are finished."""
    from distributed import CancelledError, wait

    name = f"neuralpath-{uuid.uuid4().hex[:12]}"
    # As a task and as bytes: the scheduler can give it to workers that come later, and need not unpickle the model.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Dask advises to scatter large data, which workers can lose
        shared = client.submit(bytes, _pickled(make), key=name, pure=False)
    waiting, running = iter(tiles), dict[TileFuture, Tile]()
    idle = 0.0
    try:
        while True:
            for tile in islice(waiting, max(0, AHEAD * max(1, len(_workers(client))) - len(running))):
                edges = (tile.rows.start, tile.rows.stop, tile.columns.start, tile.columns.stop)
                args, key = (name, shared, memory, threads, edges), f"{name}-{edges}"
                running[client.submit(tile_on_worker, *args, key=key, pure=False)] = tile
            if not running:
                return
            try:
                with client.as_current():  # `wait` has no argument for the client
                    done = wait(list(running), timeout=1.0, return_when="FIRST_COMPLETED").done
            except TimeoutError:
                idle = 0.0 if _workers(client) else idle + 1.0
                if idle >= PATIENCE:
                    raise ClusterError(_RESUME.format(f"there has been no worker for {PATIENCE:g} s")) from None
                _check_running(client)
                continue
            except CancelledError:  # the scheduler is gone, and with it every task
                raise ClusterError(_RESUME.format("the connection to the scheduler is lost")) from None
            for future in done:
                yield running.pop(future), _result(client, future)
    finally:
        if client.status == "running":
            client.cancel([*running, shared])


_RESUME = "{}. Finished tiles are stored: start the cluster again, and run the same again."


def _pickled(make: Callable[..., TiledKernel]) -> bytes:
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(make))
    except Exception as error:  # an object that cannot be pickled raises errors of any kind
        raise ClusterError(f"the model and the inputs cannot be pickled for the workers: {error}.") from error


def _result(client: Client, future: TileFuture) -> Tensor:
    from distributed import CancelledError, KilledWorker

    try:
        return torch.from_numpy(future.result(timeout=PATIENCE))
    except KilledWorker as error:
        reason = f"a tile lost all its workers ({error}): is their memory too small for the budget?"
        raise ClusterError(_RESUME.format(reason)) from error
    except ImportError as error:
        raise ClusterError(
            f"the workers cannot import a module of the model: {error}. Put its code into the model's file, which is "
            "sent to them, install it on the workers, or add its folder to their PYTHONPATH."
        ) from error
    except (CancelledError, TimeoutError, OSError) as error:
        _check_running(client)
        raise ClusterError(_RESUME.format(f"the connection to the cluster is lost ({error})")) from error


def _check_running(client: Client) -> None:
    if client.status != "running":
        raise ClusterError(_RESUME.format("the scheduler is lost"))


def _workers(client: Client) -> dict[str, Any]:
    return dict(client.scheduler_info(n_workers=-1)["workers"])


_one_at_a_time = threading.Lock()
_kernels: dict[str, TiledKernel] = {}


def tile_on_worker(name: str, make: bytes, memory: int, threads: int, edges: tuple[int, int, int, int]) -> np.ndarray:
    """Compute a tile in a worker. The first tile of a kernel also prepares what all of its tiles share."""
    import cloudpickle

    tile = Tile(slice(edges[0], edges[1]), slice(edges[2], edges[3]))
    # One tile at a time, on a fixed number of threads, so that the rounding does not depend on the worker.
    with _one_at_a_time, pinned_threads(threads):
        if name not in _kernels:
            _kernels.clear()
            _kernels[name] = cloudpickle.loads(make)(memory=memory)
        return _kernels[name].assembled(tile).cpu().numpy()
