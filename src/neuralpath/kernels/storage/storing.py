"""Computing a kernel into a store, which can be interrupted at any time and resumed."""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from neuralpath._files import AlreadyLocked, exclusive_lock
from neuralpath._progress import progress_bar
from neuralpath._resources import check_threads, format_memory, memory_budget, pinned_threads
from neuralpath.kernels.storage import stored_kernel as store
from neuralpath.kernels.storage.cluster_tiles import Client, cluster_tiles, worker_memory, worker_threads
from neuralpath.kernels.storage.stored_kernel import Parts, StoredKernel, StoreError
from neuralpath.kernels.storage.verification import refuse_other_kernel, refuse_other_values
from neuralpath.kernels.tiling import Plan, Tile, TiledKernel

STORED_SIDE = 256
"""Rows of a stored tile, at least: smaller tiles make too many files."""

MOST_BLOCKS = 8
"""Blocks of the computation along a side of a stored tile, at most: an interruption loses the unfinished tile."""


@dataclass(frozen=True, slots=True)
class Computation:
    """How a kernel is computed into a store; the arguments of `Kernel.store`."""

    memory: int | None
    threads: int | None
    side: int
    progress: bool | None
    on_message: Callable[[str], None]


def write_kernel(
    folder: Path, make: Callable[..., TiledKernel], fingerprint: Parts, how: Computation, client: Client | None
) -> StoredKernel:
    """Compute the missing tiles of a kernel into a store, and return it when it is complete; see `Kernel.store`.

    A fingerprint does not see everything that a model computes with, such as its code or a number in a plain attribute.
    Therefore a part of an existing store, also of a complete one, is computed again and compared. `make` makes the
    tiles from the budget, its keyword `memory`; it is pickled for a cluster.
    """
    memory, threads, on_message = how.memory, how.threads, how.on_message
    if threads is not None:
        check_threads(threads)
    with _locked(folder):
        stored = store.find_kernel(folder, read_only=False)
        if stored is not None:
            refuse_other_kernel(stored, fingerprint)
            memory, threads = _resumed_settings(stored, memory, threads)
        if memory is None:
            memory = memory_budget() if client is None else worker_memory(client)
        if threads is None:
            threads = torch.get_num_threads() if client is None else worker_threads(client)
        with pinned_threads(threads):  # values that all tiles share depend on it too
            kernel = make(memory=memory)
            if stored is not None:
                refuse_other_values(stored, kernel, on_message)
                if stored.complete:
                    on_message(f"{folder} is complete.")
                    return stored
        if stored is None:
            block = (kernel.plan.block1, kernel.plan.block2)
            description = store.Description(kernel.name, kernel.plan.symmetric, block, memory, threads, fingerprint)
            with _explained(folder):
                stored = store.create_kernel(folder, stored_plan(kernel.plan, how.side), kernel.dtype, description)
        missing = stored.missing()
        on_message(_summary(stored, len(missing)))
        if client is None:
            computed = _tiles_here(kernel, missing, threads)
        else:
            computed = cluster_tiles(client, make, missing, memory, threads)
        n_pairs = sum(tile.n_pairs(stored.symmetric) for tile in missing)
        with progress_bar(n_pairs, folder.name, how.progress) as step, _background_writer(stored) as write:
            for tile, values in computed:
                write(tile, values)
                step(tile.n_pairs(stored.symmetric))
        return stored


def _tiles_here(kernel: TiledKernel, tiles: list[Tile], threads: int) -> Iterator[tuple[Tile, Tensor]]:
    for tile in tiles:
        with pinned_threads(threads):
            yield tile, kernel.assembled(tile).cpu()


def stored_plan(plan: Plan, side: int = STORED_SIDE) -> Plan:
    """The tiles of a store: whole blocks of the computation, so that their values do not depend on the tile size."""
    sides = ((plan.block1, plan.n1), (plan.block2, plan.n2))
    block1, block2 = (min(block * min(MOST_BLOCKS, max(1, -(-side // block))), n) for block, n in sides)
    return replace(plan, block1=block1, block2=block2)


def _resumed_settings(stored: StoredKernel, memory: int | None, threads: int | None) -> tuple[int, int]:
    """The budget and the threads of a store, on which its rounding depends."""
    own = stored.description
    for name, value, own_value in (("memory", memory, own.memory), ("threads", threads, own.threads)):
        if value not in (None, own_value):
            raise StoreError(
                f"{stored.folder} was begun with {name}={own_value}, got {value}, and its rounding depends on it: "
                f"leave `{name}` out, or use another folder."
            )
    return own.memory, own.threads


def _summary(stored: StoredKernel, n_missing: int) -> str:
    """What is to be done, in words; refuses what the disk has no space for."""
    plan, n_stored = stored.plan, stored.n_tiles - n_missing
    free, needed = shutil.disk_usage(stored.folder).free, n_missing * plan.block1 * plan.block2 * stored.dtype.itemsize
    if needed > free:
        raise StoreError(f"{stored.folder} needs {format_memory(needed)} on the disk; {format_memory(free)} are free.")
    resumed = f"; {n_stored:,} of them are stored" if n_stored else ""
    tiles = f"{stored.n_tiles:,} tiles of {plan.block1} x {plan.block2}{resumed}"
    return f"{plan.n_pairs:,} pairs in {tiles}; {format_memory(needed)} to write"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """The folder for this process alone, without partial files of a killed process; a new folder is not left empty."""
    is_new = not folder.exists()
    with ExitStack() as stack:
        with _explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(exclusive_lock(folder))
            for part in folder.rglob("*.part"):
                part.unlink()
        try:
            yield
        finally:
            if is_new:
                with suppress(OSError):  # it is not empty
                    folder.rmdir()


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Errors of the file system with advice."""
    try:
        yield
    except AlreadyLocked as error:
        raise StoreError(f"another process is writing {folder}: wait for it, or use another folder.") from error
    except FileExistsError as error:
        raise StoreError(f"{folder} is a file, not the folder of a stored kernel: use another name.") from error
    except OSError as error:
        advice = "Finished tiles stay; free some space, or use another folder, and run the same again"
        raise StoreError(f"{folder} cannot be written: {error.strerror}. {advice}.") from error


@contextmanager
def _background_writer(stored: StoredKernel) -> Iterator[Callable[[Tile, Tensor], None]]:
    """A function that writes a tile in the background after waiting for the one before; in the end all are on disk."""
    pending: list[Future[None]] = []

    def finish() -> None:
        with _explained(stored.folder):
            while pending:
                pending.pop().result()

    def write(tile: Tile, values: Tensor) -> None:
        finish()
        pending.append(pool.submit(stored.write, tile, values))

    with ThreadPoolExecutor(1) as pool:
        yield write
        finish()
