"""`neuralpath kernel`: compute a kernel of a model on a data set into a file, or verify one."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from neuralpath.commands.arguments import ModelOnData, first_examples
from neuralpath.commands.errors import UserError, user_errors

if TYPE_CHECKING:
    from torch import Tensor, nn

    from neuralpath.kernels import Kernel, TiledKernel

KernelName = Literal["path", "expected-tangent", "tangent", "limit-tangent", "limit-output", "limit-path", "linear"]


@dataclass(frozen=True, kw_only=True)
class KernelCommand(ModelOnData):
    """Compute a kernel of a model on a data set and write it to a file, tile by tile."""

    store: Path | None = None
    """Folder to write, such as `K.zarr` (needs the extra `scale`). After an interruption the same command resumes from
    the finished tiles; `neuralpath.open_kernel` reads it."""
    out: Path | None = None
    """File to write in one run: `K.npy`. With `K.zarr` it is the same as --store."""
    verify: Path | None = None
    """Check a folder that --store has written with the same arguments: that no tile is missing, all checksums, and the
    values of a sample of tiles."""
    tiles: int = 8
    """With --verify: number of random tiles to compute again."""
    kernel: KernelName = "path"
    """The path kernel; the expected tangent kernel for random weights of variance 2 / fan-in and the model's gates; the
    tangent kernel of the model, averaged over its outputs; a kernel of infinite width, which uses only the structure of
    the model; or inner products of the inputs."""
    count: int | None = None
    """Number of examples, starting with the first; all by default."""
    split: Literal["train", "test"] = "train"
    """Part of the data set."""
    normalize: bool = False
    """Divide every linear node by its fan-in, for path kernels of deep networks."""
    double: bool = False
    """Compute in float64 instead of float32."""
    memory: str | None = None
    """Memory budget, such as `8GiB`; half of the free memory by default. A store keeps its first budget."""
    threads: int | None = None
    """Threads for a tile of a store; all by default. A store keeps its first number."""
    cluster: str | None = None
    """With --store: compute the tiles on a Dask cluster, `tcp://host:port` or a scheduler file, instead of here."""

    def run(self) -> int:
        """Compute the kernel, write it and print its path; or verify it."""
        import torch

        from neuralpath._cluster import ClusterError
        from neuralpath._resources import memory_budget, parse_memory

        store = self._store()
        with user_errors(ValueError):
            memory = None if self.memory is None else memory_budget(parse_memory(self.memory))
        dtype = torch.float64 if self.double else torch.float32
        x = first_examples(getattr(self.load_data(), self.split), self.count).images.to(dtype)
        model = self.load_model(x.shape[1:], dtype=dtype)
        with user_errors(TypeError, ValueError, MemoryError, OverflowError, ClusterError):
            kernel = make_kernel(self.kernel, model, normalize=self.normalize)
            if self.verify is not None:
                result = kernel.verify(self.verify, x, n_tiles=self.tiles)
                print(result)
                return 0 if result.good and result.complete else 1
            if store is not None:
                self._to_store(store, kernel, x, memory)
            else:
                assert self.out is not None
                _to_npy(self.out, kernel.tiles(x, memory=memory))
        print(store or self.out)
        return 0

    def _store(self) -> Path | None:
        """The folder of the store, if there is one; refuses flags that contradict each other."""
        targets = {"--store": self.store, "--out": self.out, "--verify": self.verify}
        flags = [flag for flag, path in targets.items() if path is not None]
        if len(flags) != 1:
            raise UserError(f"give one of --store, --out and --verify, got {' and '.join(flags) or 'none of them'}.")
        out, store = self.out, self.store
        if out is not None and out.suffix == ".zarr":
            store = out
        elif out is not None:
            if out.suffix != ".npy":
                raise UserError(f"--out must end in .npy or .zarr, got {out}.")
            if out.is_dir():
                raise UserError(f"{out} cannot be written: it is a folder; give --out the name of a file.")
            above = next((folder for folder in out.parents if folder.exists()), None)
            if above is not None and not above.is_dir():
                raise UserError(f"{out} cannot be written: {above} is not a folder.")
        if store is None and (self.cluster is not None or self.threads is not None):
            raise UserError("--cluster and --threads are for --store.")
        for flag, number, least in (("--threads", self.threads, 1), ("--tiles", self.tiles, 0)):
            if number is not None and number < least:
                raise UserError(f"{flag} must be {least} or more, got {number}.")
        return store

    def _to_store(self, store: Path, kernel: "Kernel", x: "Tensor", memory: int | None) -> None:
        from neuralpath._cluster import silence_logs

        if self.cluster is not None:
            silence_logs()
        try:
            kernel.store(store, x, memory=memory, threads=self.threads, cluster=self.cluster, on_message=_print_note)
        except KeyboardInterrupt:
            from neuralpath.kernels import find_kernel

            begun = find_kernel(store, read_only=True)
            done = "" if begun is None else f"{begun.n_finished:,} of {begun.n_tiles:,} tiles are finished in {store}"
            _print_note(f"{done}; the same command resumes there" if done else f"{store} has not been begun")
            raise


def _print_note(message: str) -> None:
    print(message, file=sys.stderr)


def make_kernel(name: KernelName, network: "nn.Module", *, normalize: bool) -> "Kernel":
    """The kernel object for a name on the command line."""
    from neuralpath import kernels

    if normalize and name != "path":
        raise UserError(f"--normalize is for --kernel path, got {name!r}, which has a scale of its own.")
    makers: dict[str, Callable[[nn.Module], Kernel]] = {
        "path": partial(kernels.PathKernel, normalize=normalize),
        "expected-tangent": kernels.ExpectedTangentKernel,
        "tangent": kernels.TangentKernel,
        "limit-tangent": partial(kernels.LimitKernel, kind="ntk"),
        "limit-output": partial(kernels.LimitKernel, kind="nngp"),
        "limit-path": partial(kernels.LimitKernel, kind="path"),
        "linear": lambda _: kernels.LinearKernel(),
    }
    return makers[name](network)


def _to_npy(out: Path, tiles: "TiledKernel") -> None:
    from neuralpath._files import replacing

    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(out) as part:
            _write_npy(tiles, part, out.name)
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}.") from error


def _write_npy(tiles: "TiledKernel", part: Path, label: str) -> None:
    import numpy as np

    from neuralpath._progress import progress_bar
    from neuralpath.kernels import refuse_overflow

    plan, dtype = tiles.plan, str(tiles.dtype).removeprefix("torch.")
    array = np.lib.format.open_memmap(part, mode="w+", dtype=dtype, shape=(plan.n1, plan.n2))
    if hasattr(os, "posix_fallocate"):  # a mapped file has holes, and a full disk would kill the process in one of them
        with part.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, part.stat().st_size)
    _print_note(str(plan))
    with progress_bar(plan.n_pairs, label) as step:
        for tile, values in tiles:
            refuse_overflow(values, tiles.name, tiles.overflow_hint or "use --double")
            array[tile.rows, tile.columns] = values.numpy()
            array[tile.columns, tile.rows] = values.T.numpy()
            step(tile.n_pairs(plan.symmetric))
    array.flush()
