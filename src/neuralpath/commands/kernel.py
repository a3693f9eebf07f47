"""`neuralpath kernel`: a kernel of a model on a data set, written to a file tile by tile."""

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from neuralpath.commands.errors import UserError
from neuralpath.commands.models import load_model, load_weights

if TYPE_CHECKING:
    from torch import Tensor, nn

    from neuralpath.tiles.kernel import TiledKernel

KernelName = Literal["path", "expected-tangent", "tangent", "limit-tangent", "limit-output", "limit-path"]


@dataclass(frozen=True)
class Kernel:
    """Compute a kernel of a model on a data set and write it to a file, tile by tile."""

    model: tyro.conf.Positional[str]
    """`file.py:callable` that returns a torch module, or one of: fc, vconv, gconv, circular-cnn, residual-fc,
    davidnet."""
    data: str
    """digits, mnist, fashion-mnist, cifar10 or cifar100."""
    out: Path
    """File to write: `K.npy`, or `K.zarr` (needs the extra `scale`)."""
    kernel: KernelName = "path"
    """The path kernel; the expected tangent kernel for random weights of variance 2 / fan-in behind the model's gates;
    the tangent kernel of the model as it is, the mean over its outputs; or a limit of infinite width, for which the
    model gives the structure only."""
    count: int | None = None
    """Number of examples, from the first on; all by default."""
    split: Literal["train", "test"] = "train"
    """Part of the data set."""
    weights: Path | None = None
    """Weights for the model, a safetensors file or a state dict of torch; otherwise those that the callable gives."""
    set: tuple[str, ...] = ()
    """Arguments of the callable, such as `width=128 depth=6`."""
    normalise: bool = False
    """Divide every mix by its fan-in, for path kernels of deep networks."""
    double: bool = False
    """Compute in float64 instead of float32."""
    memory: str | None = None
    """Memory budget, such as `8GiB`; half of what is free by default."""
    data_dir: Path | None = None
    """Folder with the data; then $NEURALPATH_DATA and the cache folder."""
    seed: int = 0
    """Seed of the random weights of our own networks."""

    def run(self) -> int:
        """Compute, write, and say where the kernel is."""
        import torch

        from neuralpath import data
        from neuralpath.tiles.memory import memory_budget, parse_memory

        if self.out.suffix not in (".npy", ".zarr"):
            raise UserError(f"--out must end in .npy or .zarr, got {self.out}.")
        try:
            budget = memory_budget(None if self.memory is None else parse_memory(self.memory))
            split = getattr(data.load(self.data, data_dir=self.data_dir), self.split)
        except ValueError as error:
            raise UserError(str(error)) from error
        if self.count is not None and not 0 < self.count <= len(split):
            raise UserError(f"--count must be from 1 to {len(split):,}, got {self.count}.")
        x = split.images[: self.count]
        torch.manual_seed(self.seed)
        model = load_model(self.model, x.shape[1:], self.set)
        if self.weights is not None:
            load_weights(model, self.weights)
        dtype = torch.float64 if self.double else torch.float32
        if self.normalise and self.kernel != "path":
            raise UserError(f"--normalise is for --kernel path; the kernel {self.kernel!r} has a scale of its own.")
        try:
            _write(self._tiled(model.to(dtype), x.to(dtype), budget), self.out)
        except (TypeError, ValueError, MemoryError, OverflowError) as error:
            raise UserError(str(error)) from error
        print(self.out)
        return 0

    def _tiled(self, model: "nn.Module", x: "Tensor", budget: int) -> "TiledKernel":
        import neuralpath as npath

        if self.kernel == "tangent":
            return npath.tangent_kernel_tiles(model, x, memory=budget)
        graph = npath.trace(model, x[:1])
        if self.kernel == "path":
            return npath.path_kernel_tiles(graph, x, normalise=self.normalise, memory=budget)
        tiles: dict[str, Callable[..., TiledKernel]] = {
            "expected-tangent": npath.expected_tangent_kernel_tiles,
            "limit-tangent": npath.limit_tangent_kernel_tiles,
            "limit-output": npath.limit_output_kernel_tiles,
            "limit-path": npath.limit_path_kernel_tiles,
        }
        return tiles[self.kernel](graph, x, memory=budget)


def _write(tiled: "TiledKernel", out: Path) -> None:
    """Write tile by tile to a file beside the target, and put it in place when it is whole."""
    part = out.with_name(out.name + ".part")
    store, finish = _sink(tiled, part)
    try:
        _write_tiles(tiled, store, out.name)
    except BaseException:  # an interruption too: half a kernel is of no use
        _remove(part)
        raise
    finish()
    _remove(out)
    os.replace(part, out)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _write_tiles(tiled: "TiledKernel", store: Any, name: str) -> None:
    import torch

    from neuralpath.tiles.fill import progress_bar

    plan = tiled.plan
    print(f"{plan}; {tiled.estimate()}", file=sys.stderr)
    with progress_bar(plan.n_pairs, name, None if sys.stderr.isatty() else False) as step:
        for tile, values in tiled:
            if not bool(torch.isfinite(values).all()):
                raise OverflowError("the kernel passes the range of its dtype: use --normalise or --double.")
            store[tile.rows, tile.columns] = values.numpy()
            store[tile.columns, tile.rows] = values.T.numpy()
            step(tile.n_pairs(plan.symmetric))


def _sink(tiled: "TiledKernel", part: Path) -> tuple[Any, Callable[[], None]]:
    """Something to write tiles into, and what completes it."""
    import numpy as np

    plan = tiled.plan
    shape, dtype = (plan.n1, plan.n2), str(tiled.dtype).removeprefix("torch.")
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        if part.name.endswith(".npy.part"):
            array = np.lib.format.open_memmap(part, mode="w+", dtype=dtype, shape=shape)
            return array, array.flush
    except OSError as error:
        raise UserError(f"{part.parent} cannot be written to: {error.strerror}.") from error
    try:
        import zarr
    except ImportError as error:
        raise UserError("a .zarr file needs the package zarr: pip install 'neuralpath[scale]'.") from error
    chunks = (min(plan.block1, shape[0]), min(plan.block2, shape[1]))
    return zarr.create_array(store=str(part), shape=shape, chunks=chunks, dtype=dtype, overwrite=True), lambda: None
