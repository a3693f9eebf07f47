"""Computing a kernel into a store: begun, stopped at any time, and gone on with."""

import math
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from neuralpath._locks import AlreadyLocked, exclusive_lock
from neuralpath._memory import format_memory
from neuralpath._progress import progress_bar
from neuralpath.kernels.storage.description import Description
from neuralpath.kernels.storage.same_kernel import Say, refuse_other_blocks, refuse_other_corners, refuse_other_kernel
from neuralpath.kernels.storage.store import StoredKernel, StoreError, check_extra, create_kernel, find_kernel
from neuralpath.kernels.storage.stored_tiles import Engine, Recipe, check_threads, pinned_threads, stored_plan
from neuralpath.kernels.tiling.estimate import Estimate, format_time
from neuralpath.kernels.tiling.plan import Plan, Tile
from neuralpath.kernels.tiling.tiled_kernel import TiledKernel

TILE_SECONDS = 30.0
"""Work of a stored tile, at most: so much is lost when it is stopped."""


def write_kernel(
    folder: Path,
    recipe: Recipe,
    engine: Engine,
    *,
    memory: int | None = None,
    threads: int | None = None,
    progress: bool | None = None,
    say: Say = lambda message: None,
) -> StoredKernel:
    """Compute the tiles of a kernel that are not in the store yet, and return the store when it is complete.

    A tile is written while the next is computed. A new store gets tiles of about half a minute of work at most, by the
    estimate; one that is gone on with keeps its own. ``say`` gets the estimate, and what else a user should know.

    A fingerprint does not see all that a model computes with, such as its code or a number that is a plain attribute.
    So a part of a store that is there is computed again and compared, of a complete one too.

    Raises: StoreError if zarr is not installed, the folder holds another kernel, or cannot be written to; tiles that
    are there stay good. ValueError for a number of threads that no machine has.
    """
    check_extra()  # before a folder is made
    if threads is not None:
        check_threads(threads)
    with _held(folder):
        kernel = find_kernel(folder, read_only=False)
        if kernel is not None:
            memory, threads = _same(kernel, recipe, memory, threads)
        memory = engine.memory() if memory is None else memory
        threads = engine.threads() if threads is None else threads
        with pinned_threads(threads):  # what is computed once for all tiles depends on it too
            tiled = recipe.make(memory=memory)
            if kernel is not None and kernel.complete:
                refuse_other_corners(kernel, tiled)
                say(f"{folder} is complete.")
                return kernel
            if kernel is not None:
                refuse_other_blocks(kernel, tiled, say)
            estimate = tiled.estimate()
            if kernel is None:
                kernel = _begun(folder, recipe, tiled, estimate, memory, threads)
            missing = kernel.missing()
            _announce(kernel, estimate, missing, engine, say)
        _refuse_small_disk(kernel, missing)
        left = sum(tile.n_pairs(kernel.symmetric) for tile in missing)
        with progress_bar(left, folder.name, progress) as step, _writer(kernel) as write:
            for tile, values in engine.computed(recipe, tiled, missing, memory, threads):
                write(tile, values)
                step(tile.n_pairs(kernel.symmetric))
        return kernel


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """The folder for this process alone, without what a killed one left half written; a new one is not left empty."""
    is_new = not folder.exists()
    with _explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        with _explained(folder):
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
    """Errors of the file system with what to do about them."""
    try:
        yield
    except AlreadyLocked as error:
        raise StoreError(f"another process is writing {folder}: wait for it, or give another name.") from error
    except FileExistsError as error:
        raise StoreError(f"{folder} is a file, not the folder of a stored kernel: give another name.") from error
    except OSError as error:
        kernel = find_kernel(folder, read_only=True) if (folder / "zarr.json").is_file() else None
        there = "" if kernel is None else f" {kernel.n_finished} of {kernel.n_tiles} tiles are there and good."
        raise StoreError(
            f"{folder} cannot be written to: {error.strerror}.{there} Make room or choose another place, and run the "
            "same once more; it goes on from the finished tiles."
        ) from error


def _begun(
    folder: Path, recipe: Recipe, tiled: TiledKernel, estimate: Estimate, memory: int, threads: int
) -> StoredKernel:
    plan = tiled.plan
    description = Description(
        tiled.what, plan.symmetric, (plan.block1, plan.block2), memory, threads, recipe.fingerprint.parts
    )
    tiles = bounded_plan(stored_plan(plan, tiled.dtype.itemsize), plan, estimate.seconds)
    with _explained(folder):
        return create_kernel(folder, tiles, tiled.dtype, description)


def bounded_plan(stored: Plan, computed: Plan, seconds: float) -> Plan:
    """The tiles of a store, fewer blocks of the computation each where one would be longer work than is bearable.

    ``seconds`` are those of the whole kernel. A tile stays a whole number of blocks, so its values stay the same.
    """
    side = math.isqrt(int(TILE_SECONDS * computed.n_pairs / seconds)) if seconds > 0 else max(stored.n1, stored.n2)
    block1, block2 = (
        min(block, own * max(1, side // own))
        for block, own in ((stored.block1, computed.block1), (stored.block2, computed.block2))
    )
    itemsize = stored.tile_bytes // (stored.block1 * stored.block2)
    return replace(stored, block1=block1, block2=block2, tile_bytes=block1 * block2 * itemsize)


def _same(kernel: StoredKernel, recipe: Recipe, memory: int | None, threads: int | None) -> tuple[int, int]:
    """Budget and threads of a store that is gone on with: its own, since the rounding depends on them."""
    refuse_other_kernel(kernel, recipe)
    own = kernel.description
    if memory not in (None, own.memory):
        raise StoreError(
            f"{kernel.folder} was begun with a memory budget of {own.memory} bytes, on which its tiles depend: "
            "leave the budget out, or begin in another folder."
        )
    if threads not in (None, own.threads):
        raise StoreError(
            f"{kernel.folder} was begun with {own.threads} thread(s) for a tile, on which its rounding depends: "
            "leave the number out, or begin in another folder."
        )
    return own.memory, own.threads


def _announce(kernel: StoredKernel, estimate: Estimate, missing: list[Tile], engine: Engine, say: Say) -> None:
    share = sum(tile.n_pairs(kernel.symmetric) for tile in missing) / kernel.plan.n_pairs
    there = "" if len(missing) == kernel.n_tiles else f"{kernel.n_tiles - len(missing)} of them are there; "
    say(
        f"{kernel.plan.n_pairs:,} pairs in {kernel.n_tiles:,} tiles of {kernel.plan.block1} x {kernel.plan.block2}; "
        f"{there}{engine}: about {format_time(share * estimate.seconds)} of computing, "
        f"{format_memory(estimate.tile_bytes)} of memory and {format_memory(_bytes(kernel, missing))} on the disk"
    )


def _bytes(kernel: StoredKernel, tiles: list[Tile]) -> int:
    return len(tiles) * kernel.plan.tile_bytes


def _refuse_small_disk(kernel: StoredKernel, missing: list[Tile]) -> None:
    free, needed = shutil.disk_usage(kernel.folder).free, _bytes(kernel, missing)
    if needed > free:
        raise StoreError(
            f"{kernel.folder} needs {format_memory(needed)} on the disk, where {format_memory(free)} are free: make "
            "room, or give another place."
        )


@contextmanager
def _writer(kernel: StoredKernel) -> Iterator[Callable[[Tile, Tensor], None]]:
    """A function that writes a tile in the background and waits for the one before; at the end all are on the disk."""
    pending: list[Future[None]] = []

    def finish() -> None:
        with _explained(kernel.folder):
            while pending:
                pending.pop().result()

    def write(tile: Tile, values: Tensor) -> None:
        finish()
        pending.append(pool.submit(kernel.write, tile, values))

    with ThreadPoolExecutor(1) as pool:
        yield write
        finish()
