"""`neuralpath kernel`: a kernel of a model on a data set, written to a file tile by tile, or verified."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from neuralpath.commands.arguments import UserError, check_seed, load_examples
from neuralpath.commands.models import load_model, load_weights

if TYPE_CHECKING:
    from torch import Tensor, nn

    from neuralpath.kernels import TiledKernel

KernelName = Literal["path", "expected-tangent", "tangent", "limit-tangent", "limit-output", "limit-path", "linear"]


@dataclass(frozen=True)
class KernelCommand:
    """Compute a kernel of a model on a data set and write it to a file, tile by tile."""

    model: tyro.conf.Positional[str]
    """`file.py:NAME`, a callable that returns a torch module or a module, or one of: fc, vconv, gconv, circular-cnn,
    residual-fc, davidnet."""
    data: str
    """digits, mnist, fashion-mnist, cifar10 or cifar100."""
    store: Path | None = None
    """Folder to write, such as `K.zarr` (needs the extra `scale`). Stopped at any time, the same command goes on from
    the finished tiles; `neuralpath.open_kernel` reads it."""
    out: Path | None = None
    """File to write at one go: `K.npy`. With `K.zarr` it is the same as --store."""
    verify: Path | None = None
    """Check a folder that --store has written with the same arguments: that all tiles are there, all checksums, and the
    values of some tiles."""
    tiles: int = 8
    """With --verify: how many tiles, drawn at random, are computed again."""
    kernel: KernelName = "path"
    """The path kernel; the expected tangent kernel for random weights of variance 2 / fan-in behind the model's gates;
    the tangent kernel of the model as it is, the mean over its outputs; a limit of infinite width, for which the
    model gives the structure only; or inner products of the inputs."""
    count: int | None = None
    """Number of examples, from the first on; all by default."""
    split: Literal["train", "test"] = "train"
    """Part of the data set."""
    weights: Path | None = None
    """Weights for the model, a safetensors file or a state dict of torch; otherwise those that the callable gives."""
    set: tuple[str, ...] = ()
    """Arguments of the callable, such as `width=128 depth=6`."""
    normalize: bool = False
    """Divide every linear node by its fan-in, for path kernels of deep networks."""
    double: bool = False
    """Compute in float64 instead of float32."""
    memory: str | None = None
    """Memory budget, such as `8GiB`; half of what is free by default. A store keeps that which it was begun with."""
    threads: int | None = None
    """Threads for a tile of a store; all by default. A store keeps the number that it was begun with."""
    cluster: str | None = None
    """With --store: compute the tiles on a Dask cluster, `tcp://host:port` or a scheduler file, instead of here."""
    data_dir: Path | None = None
    """Folder with the data; then $NEURALPATH_DATA and the cache folder."""
    seed: int = 0
    """Seed of the random weights of our own networks."""

    def run(self) -> int:
        """Compute, write, and say where the kernel is; or verify."""
        import torch

        from neuralpath._cluster import ClusterError
        from neuralpath._memory import memory_budget, parse_memory

        store = self._store()
        check_seed(self.seed)
        try:
            memory = None if self.memory is None else memory_budget(parse_memory(self.memory))
            x = load_examples(self.data, self.split, self.count, self.data_dir).images
        except ValueError as error:
            raise UserError(str(error)) from error
        torch.manual_seed(self.seed)
        dtype = torch.float64 if self.double else torch.float32
        # Before weights are read: those of a file in double precision are not to be rounded.
        model, x = load_model(self.model, x.shape[1:], self.set).to(dtype), x.to(dtype)
        if self.weights is not None:
            load_weights(model, self.weights)
        try:
            if self.verify is not None:
                return self._verify(self.verify, model, x)
            if store is not None:
                self._to_store(store, model, x, memory)
            else:
                assert self.out is not None
                self._to_npy(self.out, model, x, memory)
        except (TypeError, ValueError, MemoryError, OverflowError, ClusterError) as error:
            raise UserError(str(error)) from error
        print(store or self.out)
        return 0

    def _store(self) -> Path | None:
        """The store that is asked for, if one is; refuses flags that do not go together."""
        places = {"--store": self.store, "--out": self.out, "--verify": self.verify}
        given = [flag for flag, path in places.items() if path is not None]
        if len(given) != 1:
            raise UserError(f"give one of --store, --out and --verify, got {' and '.join(given) or 'none of them'}.")
        store = self.out if self.out is not None and self.out.suffix == ".zarr" else self.store
        if self.out is not None and self.out.suffix not in (".npy", ".zarr"):
            raise UserError(f"--out must end in .npy or .zarr, got {self.out}.")
        if self.out is not None and store is None:
            _check_place(self.out)
        if store is None and (self.cluster is not None or self.threads is not None):
            raise UserError("--cluster and --threads are for --store.")
        if self.threads is not None and self.threads < 1:
            raise UserError(f"--threads must be 1 or more, got {self.threads}.")
        if self.tiles < 0:
            raise UserError(f"--tiles must be 0 or more, got {self.tiles}.")
        return store

    def _to_store(self, store: Path, model: "nn.Module", x: "Tensor", memory: int | None) -> None:
        from neuralpath._cluster import silence_logs
        from neuralpath.kernels import store_kernel

        if self.cluster is not None:
            silence_logs()
        try:
            store_kernel(
                store, self.kernel, model, x, normalize=self.normalize, memory=memory, threads=self.threads,
                cluster=self.cluster, progress=None if sys.stderr.isatty() else False, say=_say,
            )  # fmt: skip
        except KeyboardInterrupt:
            _say(_kept(store))
            raise

    def _verify(self, store: Path, model: "nn.Module", x: "Tensor") -> int:
        from neuralpath.kernels import verify_kernel

        found = verify_kernel(store, self.kernel, model, x, normalize=self.normalize, n_tiles=self.tiles)
        print(found)
        return 0 if found.good and found.complete else 1

    def _to_npy(self, out: Path, model: "nn.Module", x: "Tensor", memory: int | None) -> None:
        from neuralpath.kernels import named_tiles

        tiled = named_tiles(self.kernel, model, x, memory=memory, normalize=self.normalize)
        # Beside the target, and put in place when it is whole: half a kernel is of no use. Under a name of its own for
        # each process, since another one may be writing the same kernel.
        part = out.with_name(f"{out.name}.{os.getpid()}.part")
        try:
            _write_npy(tiled, part, out.name)
            os.replace(part, out)
        except OSError as error:
            raise UserError(f"{out} cannot be written: {error.strerror}.") from error
        finally:
            part.unlink(missing_ok=True)


def _check_place(out: Path) -> None:
    """Refuse a place that no file can be put at, before any work."""
    if out.is_dir():
        raise UserError(f"{out} cannot be written: it is a folder; give --out the name of a file.")
    above = next((folder for folder in out.parents if folder.exists()), None)
    if above is not None and not above.is_dir():
        raise UserError(f"{out} cannot be written: {above} is not a folder.")


def _kept(store: Path) -> str:
    """What an interrupted command leaves."""
    from neuralpath.kernels import find_kernel

    kernel = find_kernel(store, read_only=True)
    if kernel is None:
        return f"{store} is not begun; the same command begins anew"
    n_finished = kernel.n_finished
    how = "goes on from them" if n_finished else "begins with the first"
    return f"{n_finished:,} of {kernel.n_tiles:,} tiles are finished in {store}; the same command {how}"


def _say(message: str) -> None:
    print(message, file=sys.stderr)


def _write_npy(tiled: "TiledKernel", part: Path, name: str) -> None:
    import numpy as np

    from neuralpath._progress import progress_bar
    from neuralpath.kernels import WAY_OUT, refuse_overflow

    plan = tiled.plan
    part.parent.mkdir(parents=True, exist_ok=True)
    dtype = str(tiled.dtype).removeprefix("torch.")
    array = np.lib.format.open_memmap(part, mode="w+", dtype=dtype, shape=(plan.n1, plan.n2))
    if hasattr(os, "posix_fallocate"):  # a mapped file has holes; the process would die where the disk cannot fill one
        with part.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, part.stat().st_size)
    _say(f"{plan}; {tiled.estimate()}")
    with progress_bar(plan.n_pairs, name, None if sys.stderr.isatty() else False) as step:
        for tile, values in tiled:
            refuse_overflow(values, tiled.what, WAY_OUT)
            array[tile.rows, tile.columns] = values.numpy()
            array[tile.columns, tile.rows] = values.T.numpy()
            step(tile.n_pairs(plan.symmetric))
    array.flush()
