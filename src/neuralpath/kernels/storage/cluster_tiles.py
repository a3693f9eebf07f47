"""Tiles on a Dask cluster. Workers compute, and the client writes: no file system is shared.

A tile goes over the network once, to the client, whose disk and line are thus the limit: about a hundred megabytes a
second on common ones, which is 25 million pairs of float32 a second.
"""

import re
import threading
import uuid
from collections.abc import Iterable, Iterator
from itertools import islice
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath._cluster import ClusterError
from neuralpath._memory import DEFAULT_SHARE, memory_budget
from neuralpath.kernels.storage.stored_tiles import Recipe, pinned_threads, stored_tile
from neuralpath.kernels.tiling.plan import Tile
from neuralpath.kernels.tiling.tiled_kernel import TiledKernel

if TYPE_CHECKING:
    from distributed import Client, Future

    TileFuture = Future[np.ndarray]
else:
    Client = TileFuture = Any  # an extra, imported where it is used

AHEAD = 3
"""Tiles for each worker that are under way, so that none waits for the client; more would fill its memory."""

ATTEMPTS = 5
"""How often a tile is sent again whose workers were lost before it is given up."""

PATIENCE = 600.0
"""Seconds without any worker after which the work is given up; queues of clusters are slow."""


class Cluster:
    """The workers of a Dask cluster. Each computes one tile at a time, on as many threads as all of them have."""

    def __init__(self, client: Client, *, patience: float = PATIENCE) -> None:
        self.client, self.patience = client, patience

    def memory(self) -> int:
        """Half of what the smallest worker may take; where none has a limit, half of what is free here."""
        limits = [worker["memory_limit"] for worker in self._workers().values() if worker.get("memory_limit")]
        return memory_budget(int(DEFAULT_SHARE * min(limits)) if limits else None)

    def threads(self) -> int:
        """As many as the worker with the fewest has."""
        return min((worker["nthreads"] for worker in self._workers().values()), default=1)

    def __str__(self) -> str:
        return f"on {len(self._workers())} workers"

    def computed(
        self, recipe: Recipe, kernel: TiledKernel, tiles: Iterable[Tile], memory: int, threads: int
    ) -> Iterator[tuple[Tile, Float[Tensor, "_rows _columns"]]]:
        """Each tile with its values, as they come; a lost worker costs the tiles that it had not finished.

        Raises: ClusterError if the scheduler is lost, no worker comes back, a tile loses every worker it runs on, or
        the workers cannot import what the model needs.
        """
        run = _Run(self.client, recipe, memory, threads)
        waiting, tried = enumerate(tiles), dict[int, int]()
        under_way: dict[int, tuple[Tile, TileFuture]] = {}
        try:
            while True:
                room = AHEAD * max(1, len(self._workers())) - len(under_way)
                for number, tile in islice(waiting, max(0, room)):
                    under_way[number] = tile, run.submit(number, tile)
                if not under_way:
                    return
                number = self._next_done(run)
                tile, future = under_way.pop(number)
                values = run.result(future)
                if values is not None:
                    yield tile, values
                    continue
                tried[number] = tried.get(number, 0) + 1
                self._refuse_lost(tile, tried[number])
                self._wait_for_worker()
                under_way[number] = tile, run.submit(number, tile, again=True)
        finally:
            run.close(future for _, future in under_way.values())

    def _next_done(self, run: "_Run") -> int:
        waited = 0.0
        while True:
            try:
                return run.done.get(timeout=1.0)
            except Empty:
                self._refuse_closed()
                waited = 0.0 if self._workers() else waited + 1.0
            if waited >= self.patience:
                raise self._no_workers()

    def _wait_for_worker(self) -> None:
        try:
            self.client.wait_for_workers(1, timeout=self.patience)
        except TimeoutError as error:
            raise self._no_workers() from error

    def _no_workers(self) -> ClusterError:
        return ClusterError(
            f"all workers are lost, and none has come for {self.patience:g} s. Finished tiles are stored: start "
            "workers and run the same once more."
        )

    def _refuse_lost(self, tile: Tile, attempts: int) -> None:
        self._refuse_closed()
        if attempts >= ATTEMPTS:
            raise ClusterError(
                f"the tile of rows {tile.rows.start} to {tile.rows.stop} and columns {tile.columns.start} to "
                f"{tile.columns.stop} has lost its worker {attempts} times: is the memory of the workers too small? "
                "Finished tiles are stored; run the same once more, with a smaller memory budget in another folder."
            )

    def _refuse_closed(self) -> None:
        if self.client.status != "running":
            raise ClusterError(
                "the scheduler is lost. Finished tiles are stored: start it again, and run the same once more."
            )

    def _workers(self) -> dict[str, Any]:
        return dict(self.client.scheduler_info(n_workers=-1)["workers"])


class _Run:
    """One kernel on a cluster: its recipe is sent once, and tiles name it."""

    def __init__(self, client: Client, recipe: Recipe, memory: int, threads: int) -> None:
        self.client, self.recipe, self.memory, self.threads = client, recipe, memory, threads
        self.name = f"neuralpath-{uuid.uuid4().hex[:12]}"
        self.done: Queue[int] = Queue()  # numbers of tiles, each once for each time that it was asked for
        self._attempt = 0
        self._shared = self._share()

    def _share(self) -> TileFuture:
        try:
            return self.client.scatter([self.recipe.make], broadcast=True, hash=False)[0]
        except OSError as error:
            raise _lost(error) from error
        except Exception as error:  # Dask keeps the words of what a worker met, and not its kind
            raise _unreadable(error) from error

    def submit(self, number: int, tile: Tile, *, again: bool = False) -> TileFuture:
        """Ask for a tile; where it was lost with all workers that had the recipe, that is sent again too."""
        if again and self._shared.status != "finished":
            self._shared = self._share()
        self._attempt += 1
        edges = (tile.rows.start, tile.rows.stop, tile.columns.start, tile.columns.stop)
        future = self.client.submit(
            tile_on_worker, self.name, self._shared, self.memory, self.threads, edges,
            key=f"{self.name}-{self._attempt}", pure=False,
        )  # fmt: skip
        future.add_done_callback(lambda _: self.done.put(number))
        return future

    def result(self, future: TileFuture) -> Float[Tensor, "_rows _columns"] | None:
        """The values of a tile; ``None`` if it was lost with its workers."""
        from distributed import CancelledError, KilledWorker

        try:
            return torch.from_numpy(future.result())
        except (CancelledError, KilledWorker):
            return None
        except OSError as error:
            raise _lost(error) from error
        except ImportError as error:  # of a worker that came later
            raise _unreadable(error) from error

    def close(self, futures: Iterable[TileFuture]) -> None:
        """Tell the scheduler that nothing more is wanted."""
        if self.client.status == "running":
            self.client.cancel([*futures, self._shared])


def _lost(error: OSError) -> ClusterError:
    return ClusterError(f"the connection to the cluster is lost: {error}. Run the same once more.")


def _unreadable(error: Exception) -> ClusterError:
    """The error for a recipe that does not reach the workers: mostly its model needs a file that is only here."""
    missing = re.search(r"No module named '([^']+)'", str(error))
    if missing is None:
        root: BaseException = error
        while root.__cause__ is not None:  # what Dask raises shows all that was to be sent
            root = root.__cause__
        return ClusterError(f"the model and the inputs cannot be sent to the workers: {type(root).__name__}: {root}.")
    return ClusterError(
        f"the workers cannot import {missing[1]!r}, which the model needs: No module named {missing[1]!r}. Put its "
        "code into the file of the model, which is sent to them, or install it where they run, or start them with its "
        "folder in PYTHONPATH."
    )


_one_at_a_time = threading.Lock()
_made: dict[str, TiledKernel] = {}


def tile_on_worker(name: str, make: Any, memory: int, threads: int, edges: tuple[int, int, int, int]) -> np.ndarray:
    """A tile, computed in a worker; what is common to all tiles of a kernel is made with the first of them.

    One at a time in a process, on a fixed number of threads, so that the rounding does not depend on the worker.
    """
    tile = Tile(slice(edges[0], edges[1]), slice(edges[2], edges[3]))
    with _one_at_a_time, pinned_threads(threads):
        if name not in _made:
            _made.clear()
            _made[name] = make(memory=memory)
        return stored_tile(_made[name], tile).numpy()
