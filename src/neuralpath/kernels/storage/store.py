"""Kernels in files: a folder with a zarr array, one chunk a tile, the upper half only where the kernel is symmetric."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from neuralpath._memory import available_memory, format_memory
from neuralpath.kernels.storage.description import FORMAT, Description, read_description
from neuralpath.kernels.storage.fingerprint import Fingerprint
from neuralpath.kernels.tiling.fill import fill
from neuralpath.kernels.tiling.plan import Plan, Tile
from neuralpath.kernels.tiling.workspace import large_empty

if TYPE_CHECKING:
    from zarr import Array

    ZarrArray = Array[Any]
else:
    ZarrArray = Any  # an extra, imported where it is used

_KEY = "neuralpath"


class StoreError(ValueError):
    """A stored kernel cannot be used; the message says why and what to do."""


class StoredKernel:
    """A kernel in a file, read tile by tile; iterate to get each tile and its values.

    It is used like a kernel that is computed in tiles (``plan``, ``values``, ``filled``), and every function of this
    library that takes a kernel matrix takes it too. Only tiles on and above the diagonal of a symmetric kernel are
    there; the lower half is read from them. Every tile is checked against its checksum when it is read.
    """

    def __init__(self, folder: Path, array: ZarrArray, description: Description) -> None:
        self.folder, self.description = folder, description
        self._array = array
        chunk1, chunk2 = array.chunks
        n1, n2 = array.shape
        self.plan = Plan(n1, n2, chunk1, chunk2, description.symmetric, chunk1 * chunk2 * array.dtype.itemsize)

    @property
    def what(self) -> str:
        """Name of the kernel."""
        return self.description.what

    @property
    def symmetric(self) -> bool:
        """Whether it is the kernel of one batch with itself."""
        return self.description.symmetric

    @property
    def fingerprint(self) -> Fingerprint:
        """What it was computed from."""
        return Fingerprint(self.description.fingerprint)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self.plan.n1, self.plan.n2

    @property
    def ndim(self) -> int:
        """Always 2."""
        return 2

    @cached_property
    def dtype(self) -> torch.dtype:
        """The dtype of its tensors."""
        return getattr(torch, str(self._array.dtype))

    @property
    def device(self) -> torch.device:
        """Where its tensors are: main memory."""
        return torch.device("cpu")

    def __len__(self) -> int:
        return self.plan.n1

    def __repr__(self) -> str:
        state = "" if self.complete else f", {self.n_finished} of {self.n_tiles} tiles"
        dtype = str(self.dtype).removeprefix("torch.")
        return f"StoredKernel({str(self.folder)!r}, {self.what}, {self.shape[0]} x {self.shape[1]} {dtype}{state})"

    @cached_property
    def n_tiles(self) -> int:
        """Number of tiles of the whole kernel."""
        return sum(1 for _ in self.plan.tiles())

    @property
    def n_finished(self) -> int:
        """Number of tiles that are there."""
        return self.n_tiles - len(self.missing())

    @property
    def complete(self) -> bool:
        """Whether every tile is there."""
        return not self.missing()

    def missing(self) -> list[Tile]:
        """Tiles that are still to be computed."""
        return [tile for tile in self.plan.tiles() if not self.file_of(tile).is_file()]

    def file_of(self, tile: Tile) -> Path:
        """The file that holds a tile of ``plan``."""
        row, column = tile.rows.start // self.plan.block1, tile.columns.start // self.plan.block2
        return self.folder / "c" / str(row) / str(column)  # zarr's default encoding of keys

    def __iter__(self) -> Iterator[tuple[Tile, Float[Tensor, "_rows _columns"]]]:
        for tile in self.plan.tiles():
            yield tile, self.values(tile)

    def values(self, tile: Tile) -> Float[Tensor, "_rows _columns"]:
        """Any block of the kernel, in the lower half too.

        Raises: StoreError if a tile that it needs is not there or damaged.
        """
        out = torch.empty(tile.shape, dtype=self.dtype)
        for rows, columns in self._grid(tile):
            mirrored = self.symmetric and columns.start // self.plan.block2 < rows.start // self.plan.block1
            part = self._read(columns, rows).T if mirrored else self._read(rows, columns)
            out[_within(rows, tile.rows), _within(columns, tile.columns)] = part
        return out

    def rows(self, indices: Sequence[int] | Int[Tensor, " _rows"] | slice) -> Float[Tensor, "_rows _columns"]:
        """Some rows of the kernel, in the order given.

        Cost: all tiles of the rows of tiles that they are in.
        Raises: IndexError for rows that are not there; StoreError as ``values``.
        """
        wanted = _row_numbers(indices, self.plan.n1)
        out = torch.empty(len(wanted), self.plan.n2, dtype=self.dtype)
        strips = wanted // self.plan.block1
        for strip in strips.unique().tolist():
            rows = slice(strip * self.plan.block1, min((strip + 1) * self.plan.block1, self.plan.n1))
            chosen = torch.nonzero(strips == strip)[:, 0]
            for start in range(0, self.plan.n2, self.plan.block2):
                columns = slice(start, min(start + self.plan.block2, self.plan.n2))
                out[chosen, columns] = self.values(Tile(rows, columns))[wanted[chosen] - rows.start]
        return out

    def filled(self, progress: bool | None = None) -> Float[Tensor, "batch1 batch2"]:
        """The whole kernel in memory.

        Raises: MemoryError if it is more than what is free; StoreError if it is not complete, or damaged.
        """
        size = self.plan.n1 * self.plan.n2 * self.dtype.itemsize
        if size > available_memory():
            raise MemoryError(
                f"the {self.what} in {self.folder} takes {format_memory(size)}, more than the "
                f"{format_memory(available_memory())} that are free: use its tiles or its rows."
            )
        out = large_empty(self.shape, self.dtype, self.device)
        fill(out, self.plan, self.values, what=self.what, show=progress)
        return out

    def to_array(self) -> np.ndarray:
        """The whole kernel as a numpy array; refused as ``filled`` is."""
        return self.filled().numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError(f"{self.folder} is a file: an array of it is always a copy.")
        return self.to_array().astype(dtype or self._array.dtype, copy=False)

    def write(self, tile: Tile, values: Float[Tensor, "_rows _columns"]) -> None:
        """Put a tile of ``plan`` in its place; when this returns, it is on the disk."""
        self._array[tile.rows, tile.columns] = values.numpy()

    def _grid(self, tile: Tile) -> Iterator[tuple[slice, slice]]:
        """A block cut at the borders of tiles."""
        for rows in _cut(tile.rows, self.plan.block1):
            for columns in _cut(tile.columns, self.plan.block2):
                yield rows, columns

    def _read(self, rows: slice, columns: slice) -> Float[Tensor, "_rows _columns"]:
        """A part of one tile that is stored."""
        file = self.file_of(Tile(rows, columns))
        if not file.is_file():
            raise StoreError(
                f"{self.folder} is not finished: {self.n_finished} of {self.n_tiles} tiles are there. Run the command "
                "that began it once more; it goes on from them."
            )
        try:
            return torch.from_numpy(np.asarray(self._array[rows, columns]))
        except (ValueError, RuntimeError, OSError) as error:  # a wrong checksum, too few bytes, or a bad disk
            raise StoreError(
                f"a tile of {self.folder} is damaged ({error}): remove the file {file} and run the command that made "
                "the store once more; only that tile is computed again."
            ) from error


def open_kernel(path: str | Path) -> StoredKernel:
    """Open a kernel that `neuralpath kernel --store` or `store_kernel` has written, for reading.

    Raises: StoreError if it is not one, or was written by another version of the format.

    >>> import tempfile, torch, neuralpath as npath
    >>> x = torch.randn(5, 3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = npath.store_kernel(f"{folder}/K.zarr", "linear", None, x)
    ...     kernel = open_kernel(f"{folder}/K.zarr")
    ...     kernel.complete, tuple(kernel.filled().shape)
    (True, (5, 5))
    """
    kernel = find_kernel(Path(path), read_only=True)
    if kernel is None:
        raise StoreError(f"there is no stored kernel at {path}; `neuralpath kernel --store` makes one.")
    return kernel


def find_kernel(folder: Path, *, read_only: bool) -> StoredKernel | None:
    """The kernel in a folder, or ``None`` if there is none and one may be made there.

    Raises: StoreError if the folder holds anything else.
    """
    zarr_array = _zarr_array()
    if not (folder / "zarr.json").is_file():
        if folder.is_dir() and any(not name.name.startswith("zarr.json") for name in folder.iterdir()):
            raise StoreError(f"{folder} holds other files and is no stored kernel: give another name.")
        if folder.exists() and not folder.is_dir():
            raise StoreError(f"{folder} is a file, not the folder of a stored kernel: give another name.")
        return None
    try:
        array = zarr_array.open_array(folder, read_only=read_only)
        attributes: Any = array.attrs.get(_KEY)
        form = attributes["format"]
    except Exception as error:  # damaged metadata makes zarr fail in any way
        raise StoreError(f"{folder} is no kernel of neuralpath: its zarr.json is damaged, or another's.") from error
    if form != FORMAT:
        raise StoreError(
            f"{folder} has format {form}, this version reads format {FORMAT}: use the version of neuralpath that wrote "
            "it, or compute the kernel again into another folder."
        )
    try:
        return StoredKernel(folder, array, read_description(attributes))
    except ValueError as error:  # a field that is missing or wrong, or an array that is no matrix
        raise StoreError(
            f"{folder / 'zarr.json'} is damaged: {error}. Put it back from a copy, or compute the kernel again into "
            "another folder."
        ) from error


def create_kernel(folder: Path, plan: Plan, dtype: torch.dtype, description: Description) -> StoredKernel:
    """A store without tiles; ``plan`` are those that it will have."""
    name = str(dtype).removeprefix("torch.")
    chunks = (plan.block1, plan.block2)
    array = _zarr_array().create_array(folder, (plan.n1, plan.n2), chunks, name, {_KEY: asdict(description)})
    return StoredKernel(folder, array, description)


def check_extra() -> None:
    """Refuse to begin where zarr is not installed.

    Raises: StoreError that names what to install.
    """
    _zarr_array()


def _zarr_array() -> Any:
    try:
        from neuralpath.kernels.storage import zarr_array
    except ImportError as error:
        raise StoreError(
            "stored kernels need the package zarr: pip install zarr (from a clone: "
            'pip install -c constraints.txt ".[scale]").'
        ) from error
    return zarr_array


def _cut(part: slice, block: int) -> Iterator[slice]:
    start = part.start
    while start < part.stop:
        stop = min((start // block + 1) * block, part.stop)
        yield slice(start, stop)
        start = stop


def _within(inner: slice, outer: slice) -> slice:
    return slice(inner.start - outer.start, inner.stop - outer.start)


def _row_numbers(indices: Sequence[int] | Tensor | slice, n: int) -> Int[Tensor, " _rows"]:
    if isinstance(indices, slice):
        return torch.arange(n)[indices]
    wanted = torch.as_tensor(indices, dtype=torch.int64).reshape(-1)
    if bool(((wanted < -n) | (wanted >= n)).any()):
        raise IndexError(f"rows go from 0 to {n - 1}, got {int(wanted.min())} to {int(wanted.max())}.")
    return wanted % n
