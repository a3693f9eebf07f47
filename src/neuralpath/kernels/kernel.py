"""The interface of every kernel: a frozen object of a network and settings, called on one or two batches."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, fields
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from neuralpath._checks import check_batch, describe
from neuralpath._cluster import connect
from neuralpath._hashing import repr_without_addresses, tensor_digest, text_digest
from neuralpath._resources import memory_budget, pinned_threads
from neuralpath.graph import PathGraph, as_graph
from neuralpath.kernels.storage.stored_kernel import Parts, StoredKernel, open_kernel
from neuralpath.kernels.storage.storing import STORED_SIDE, Computation, write_kernel
from neuralpath.kernels.storage.verification import Verification, refuse_other_kernel, verify
from neuralpath.kernels.tiling import Cost, Tile, TiledKernel, make_plan

Batch1 = Shaped[Tensor, "batch1 *shape"]
Batch2 = Shaped[Tensor, "batch2 *shape"]

LINEAR_SIDE = 1024
"""Rows of a tile of the linear kernel: large enough for matrix products at full speed."""


class Kernel(ABC):
    """A kernel: a function of two examples, computed for all pairs of one or two batches.

    A subclass is a frozen dataclass of a network and settings. It defines `tiles`; everything else follows from it.
    Kernels are immutable, so scikit-learn's `clone` returns the same object.

    >>> import neuralpath as npath
    >>> x = torch.randn(6, 3)
    >>> kernel = npath.PathKernel(npath.nets.FC(3, width=8, depth=3), normalize=True)
    >>> matrix = kernel(x)
    >>> bool(torch.allclose(kernel.diagonal(x), matrix.diagonal()))
    True
    >>> bool(torch.allclose(kernel(x[:2], x), matrix[:2]))
    True
    """

    @abstractmethod
    def tiles(self, x1: Batch1, x2: Batch2 | None = None, *, memory: int | None = None) -> TiledKernel:
        """The kernel matrix as tiles that are computed on demand, for kernels beyond memory.

        Args:
            x1: Examples of the rows.
            x2: Examples of the columns; None: the same batch, and only tiles on and above the diagonal.
            memory: Budget in bytes for the computation; None: half of the free memory.
        """

    def __call__(
        self, x1: Batch1, x2: Batch2 | None = None, *, memory: int | None = None, progress: bool | None = None
    ) -> Shaped[Tensor, "..."]:
        """The kernel matrix of two batches, or of one batch with itself.

        Args:
            x1: Examples of the rows.
            x2: Examples of the columns; None: the same batch.
            memory: Budget in bytes for the computation; None: half of the free memory.
            progress: Whether to show a progress bar; None: on a terminal, for long computations.

        Raises:
            OverflowError: An entry exceeds the range of the dtype.
            BudgetTooSmall: One pair of examples needs more than `memory`.
            MemoryError: The matrix itself exceeds the free memory.
        """
        return self.tiles(x1, x2, memory=memory).filled(progress)

    def diagonal(self, x: Shaped[Tensor, "batch *shape"], *, memory: int | None = None) -> Float[Tensor, " batch"]:
        """The kernel of each example with itself, computed in small blocks on the diagonal.

        Args:
            x: Examples.
            memory: Budget in bytes for the computation; None: half of the free memory.
        """
        return self.tiles(x, memory=memory).diagonal()

    def store(
        self,
        path: str | Path,
        x1: Batch1,
        x2: Batch2 | None = None,
        *,
        memory: int | None = None,
        threads: int | None = None,
        cluster: str | Path | None = None,
        tile_side: int = STORED_SIDE,
        progress: bool | None = None,
        on_message: Callable[[str], None] = lambda message: None,
    ) -> StoredKernel:
        """Compute the kernel matrix into a folder, tile by tile; call it again to resume after an interruption.

        Only the upper half of a symmetric matrix is stored. A tile is written whole, with a checksum, or not at all.
        Tiles that are computed on the same kind of processor are equal bit for bit, whichever process computes them.

        Args:
            path: Folder of the zarr array, such as `K.zarr`; needs the extra `scale`.
            x1: Examples of the rows.
            x2: Examples of the columns; None: the same batch.
            memory: Budget in bytes for the computation; None: half of the free memory. The store keeps it, since the
                rounding depends on it.
            threads: Threads for one tile; None: torch's number. The store keeps it, for the same reason.
            cluster: Address of a Dask scheduler, `tcp://host:port`, or its scheduler file. Its workers compute the
                tiles, and this process writes them. None: compute here.
            tile_side: Rows of a stored tile, at least, for a new store.
            progress: Whether to show a progress bar; None: on a terminal, for long computations.
            on_message: Called with notes for the user, such as the number of tiles.

        Raises:
            StoreError: The folder holds the kernel of other inputs, weights or settings (the message names them), or
                cannot be written.
            ClusterError: The cluster cannot be used.

        >>> import tempfile
        >>> x = torch.randn(5, 3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     stored = LinearKernel().store(f"{folder}/K.zarr", x)
        ...     bool(torch.equal(stored.filled(), x @ x.T)), stored.complete
        (True, True)
        """
        make = partial(self.tiles, _own_copy(x1), None if x2 is None else _own_copy(x2))
        how = Computation(memory, threads, tile_side, progress, on_message)
        with nullcontext() if cluster is None else connect(cluster) as client:
            return write_kernel(Path(path), make, self._fingerprint(x1, x2), how, client)

    def verify(
        self,
        path: str | Path,
        x1: Batch1,
        x2: Batch2 | None = None,
        *,
        n_tiles: int = 8,
        generator: torch.Generator | None = None,
        progress: bool | None = None,
    ) -> Verification:
        """Check a stored kernel: the checksum of every tile, and the values of a random sample of tiles.

        Args:
            path: Folder that `store` has written.
            x1: The examples of the rows.
            x2: The examples of the columns, if the store has them.
            n_tiles: Number of tiles to compute again and compare.
            generator: Random generator that draws these tiles.
            progress: Whether to show a progress bar; None: on a terminal, for long computations.

        Raises:
            StoreError: There is no store, or it holds another kernel.

        >>> import tempfile
        >>> x = torch.randn(5, 3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = LinearKernel().store(f"{folder}/K.zarr", x)
        ...     LinearKernel().verify(f"{folder}/K.zarr", x).good
        True
        """
        stored = open_kernel(path)
        refuse_other_kernel(stored, self._fingerprint(x1, x2))
        make = partial(self.tiles, x1, x2, memory=stored.description.memory)
        with pinned_threads(stored.description.threads):
            return verify(stored, make, n_tiles=n_tiles, generator=generator, progress=progress)

    def settings(self) -> Parts:
        """Everything that the kernel depends on, as text and digests by name: class, settings, network, weights."""
        parts: dict[str, str | dict[str, str]] = {"kernel": type(self).__name__}
        for setting in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            value = getattr(self, setting.name)
            if isinstance(value, nn.Module | PathGraph):
                module = value.model if isinstance(value, PathGraph) else value
                parts[setting.name] = text_digest(repr_without_addresses(module))[:16]
                parts["weights"] = {name: tensor_digest(tensor) for name, tensor in module.named_parameters()}
                parts["buffers"] = {name: tensor_digest(tensor) for name, tensor in module.named_buffers()}
            elif setting.init:
                parts[setting.name] = repr_without_addresses(value)
        return parts

    def _fingerprint(self, x1: Tensor, x2: Tensor | None) -> Parts:
        return {
            "neuralpath": version("neuralpath"),
            "torch": torch.__version__,
            **self.settings(),
            "inputs": tensor_digest(x1),
            "second inputs": "none" if x2 is None else tensor_digest(x2),
        }

    def __sklearn_clone__(self) -> "Kernel":
        return self


class GraphKernel(Kernel):
    """A kernel of a network that is read as a graph; a subclass is a frozen dataclass with the field `network`."""

    network: nn.Module | PathGraph

    def __post_init__(self) -> None:
        if not isinstance(self.network, nn.Module | PathGraph):
            raise TypeError(f"`network` must be an nn.Module or a PathGraph, got {describe(self.network)}.")

    def graph(self, x: Shaped[Tensor, "batch *shape"]) -> PathGraph:
        """The network as a graph. A module is traced on the first example, once for each shape and dtype of examples.

        Args:
            x: Examples.
        """
        if isinstance(self.network, PathGraph):
            return self.network
        traced: dict[Any, PathGraph] = self.__dict__.setdefault("_traced", {})
        key = (tuple(x.shape[1:]), x.dtype, x.device) if isinstance(x, Tensor) else None
        if key not in traced:
            traced[key] = as_graph(self.network, x, "x1")
        return traced[key]

    def __getstate__(self) -> dict[str, Any]:
        # Traced graphs stay behind when a kernel is sent to a worker, which traces its own.
        return {name: value for name, value in self.__dict__.items() if name != "_traced"}


@dataclass(frozen=True, eq=False)
class LinearKernel(Kernel):
    """The linear kernel: inner products of the flattened examples (their Gram matrix).

    >>> LinearKernel()(torch.tensor([[1.0, 2.0], [0.0, 1.0]]))
    tensor([[5., 2.],
            [2., 1.]])
    """

    def tiles(self, x1: Batch1, x2: Batch2 | None = None, *, memory: int | None = None) -> TiledKernel:
        shape = tuple(x1.shape[1:]) if isinstance(x1, Tensor) else ()
        check_batch("x1", x1, shape)
        if x2 is not None:
            check_batch("x2", x2, shape)
            check_same_kind(x1, x2)
        rows = x1.detach().reshape(len(x1), -1)
        columns = rows if x2 is None else x2.detach().reshape(len(x2), -1)

        def compute(tile: Tile) -> Float[Tensor, "rows columns"]:
            return rows[tile.rows] @ columns[tile.columns].T

        cost = Cost(2 * x1.element_size(), 0, LINEAR_SIDE**2)
        plan = make_plan(len(rows), len(columns), cost, memory_budget(memory), symmetric=x2 is None)
        return TiledKernel("linear kernel", plan, compute, x1.dtype, x1.device)


def check_same_kind(x1: Shaped[Tensor, "batch1 ..."], x2: Shaped[Tensor, "batch2 ..."]) -> None:
    """Refuse two batches of different dtypes or on different devices."""
    kind1, kind2 = (f"{x.dtype} on {x.device}" for x in (x1, x2))
    if kind1 != kind2:
        raise ValueError(f"`x1` and `x2` must have one dtype and device, got {kind1} and {kind2}.")


def _own_copy(x: Shaped[Tensor, "batch ..."]) -> Shaped[Tensor, "batch ..."]:
    """A tensor with memory of its own: pickling a slice would send the whole tensor that it is part of."""
    x = x.detach()
    return x.clone() if x.untyped_storage().nbytes() > x.nbytes else x
