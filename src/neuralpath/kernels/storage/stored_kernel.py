"""Kernel matrices in files: a zarr array with one chunk for each tile, only the upper half of a symmetric matrix."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from neuralpath._progress import progress_bar
from neuralpath.kernels.tiling import Plan, Tile, fill, large_empty, refuse_large_result

if TYPE_CHECKING:
    from zarr import Array

    ZarrArray = Array[Any]
else:
    ZarrArray = Any  # an extra, imported where it is used

FORMAT = 2
"""Number of the layout of a store; another layout is refused."""

Parts = Mapping[str, str | Mapping[str, str]]
"""Everything that a kernel was computed from: text and digests by name; weights and buffers have names of their own."""

_KEY = "neuralpath"


class StoreError(ValueError):
    """A stored kernel cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Description:
    """The attributes of the zarr array: what the kernel is, and all that the rounding of its tiles depends on."""

    what: str
    symmetric: bool
    block: tuple[int, int]
    memory: int
    threads: int
    fingerprint: Parts
    format: int = FORMAT

    def is_valid(self) -> bool:
        """Whether the attributes, which are read from a file, have the right types and ranges."""
        counts = (*self.block, self.memory, self.threads)
        is_counted = len(self.block) == 2 and all(type(count) is int and count > 0 for count in counts)
        has_types = isinstance(self.what, str) and isinstance(self.symmetric, bool)
        return is_counted and has_types and isinstance(self.fingerprint, Mapping)


class StoredKernel:
    """A kernel matrix in a folder, read tile by tile; iterate over (tile, values) pairs.

    It has the interface of a kernel that is computed in tiles (``plan``, ``values``, ``filled``), and every function of
    this library that takes a kernel matrix takes it. Only tiles on and above the diagonal of a symmetric kernel are
    stored; the lower half is read from them. Every tile is checked against its checksum when it is read.
    `open_kernel` and `Kernel.store` make it.

    Args:
        folder: Folder of the store.
        array: The zarr array with the tiles.
        description: What the kernel is and how its tiles were computed.
    """

    def __init__(self, folder: Path, array: ZarrArray, description: Description) -> None:
        self.folder, self.description = folder, description
        self._array = array
        chunk1, chunk2 = array.chunks
        n1, n2 = array.shape
        self.plan = Plan(n1, n2, chunk1, chunk2, description.symmetric, chunk1 * chunk2 * array.dtype.itemsize)
        self.name, self.symmetric = description.what, description.symmetric
        self.shape, self.ndim = (n1, n2), 2
        self.dtype: torch.dtype = getattr(torch, str(array.dtype))
        self.device = torch.device("cpu")

    def __len__(self) -> int:
        return self.plan.n1

    def __repr__(self) -> str:
        state = "" if self.complete else f", {self.n_finished} of {self.n_tiles} tiles"
        dtype = str(self.dtype).removeprefix("torch.")
        return f"StoredKernel({str(self.folder)!r}, {self.name}, {self.shape[0]} x {self.shape[1]} {dtype}{state})"

    @cached_property
    def n_tiles(self) -> int:
        """Number of tiles of the whole kernel."""
        return sum(1 for _ in self.plan.tiles())

    @property
    def n_finished(self) -> int:
        """Number of stored tiles."""
        return self.n_tiles - len(self.missing())

    @property
    def complete(self) -> bool:
        """Whether every tile is stored."""
        return not self.missing()

    def missing(self) -> list[Tile]:
        """Tiles that are not stored yet."""
        return [tile for tile in self.plan.tiles() if not self.file_of(tile).is_file()]

    def file_of(self, tile: Tile) -> Path:
        """The file that holds a tile of ``plan``."""
        row, column = tile.rows.start // self.plan.block1, tile.columns.start // self.plan.block2
        return self.folder / "c" / str(row) / str(column)  # zarr's default encoding of keys

    def __iter__(self) -> Iterator[tuple[Tile, Float[Tensor, "_rows _columns"]]]:
        for tile in self.plan.tiles():
            yield tile, self.values(tile)

    def values(self, tile: Tile) -> Float[Tensor, "_rows _columns"]:
        """Any block of the kernel matrix, in the lower half too.

        Args:
            tile: Rows and columns of the block.

        Raises:
            StoreError: A tile that it needs is missing or damaged.
        """
        out = torch.empty(tile.shape, dtype=self.dtype)
        for rows, columns in product(_cut(tile.rows, self.plan.block1), _cut(tile.columns, self.plan.block2)):
            mirrored = self.symmetric and columns.start // self.plan.block2 < rows.start // self.plan.block1
            part = self._read(columns, rows).T if mirrored else self._read(rows, columns)
            inner = Tile(rows, columns).shifted(-tile.rows.start, -tile.columns.start)
            out[inner.rows, inner.columns] = part
        return out

    def rows(self, indices: Sequence[int] | Int[Tensor, " _rows"] | slice) -> Float[Tensor, "_rows _columns"]:
        """Rows of the kernel matrix, in the order of the indices.

        Cost: reads every tile that these rows cross.

        Args:
            indices: Row numbers, or a slice.

        Raises:
            IndexError: There is no such row.
            StoreError: Tiles are missing or damaged.
        """
        numbers = _row_numbers(indices, self.plan.n1)
        out = torch.empty(len(numbers), self.plan.n2, dtype=self.dtype)
        strips = numbers // self.plan.block1
        for rows in _cut(slice(0, self.plan.n1), self.plan.block1):
            chosen = torch.nonzero(strips == rows.start // self.plan.block1)[:, 0]
            for columns in _cut(slice(0, self.plan.n2), self.plan.block2) if len(chosen) else ():
                out[chosen, columns] = self.values(Tile(rows, columns))[numbers[chosen] - rows.start]
        return out

    def filled(self, progress: bool | None = None) -> Float[Tensor, "batch1 batch2"]:
        """The whole kernel matrix in memory.

        Args:
            progress: Whether to show a progress bar; None: on a terminal, for long reads.

        Raises:
            MemoryError: It exceeds the free memory.
            StoreError: Tiles are missing or damaged.
        """
        refuse_large_result(self.name, self.shape, self.dtype, self.device, "use its tiles or its rows")
        out = large_empty(self.shape, self.dtype, self.device)
        with progress_bar(self.plan.n_pairs, self.name, progress) as step:
            fill(out, self.plan, self.values, step)
        return out

    def to_array(self) -> np.ndarray:
        """The whole kernel matrix as a numpy array, as `filled`."""
        return self.filled().numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError(f"`copy=False` is impossible: an array of {self.folder} is always a copy.")
        return self.to_array().astype(dtype or self._array.dtype, copy=False)

    def write(self, tile: Tile, values: Float[Tensor, "_rows _columns"]) -> None:
        """Write a tile of the plan; when this returns, it is on the disk."""
        self._array[tile.rows, tile.columns] = values.numpy()

    def _read(self, rows: slice, columns: slice) -> Float[Tensor, "_rows _columns"]:
        """A part of one stored tile."""
        file = self.file_of(Tile(rows, columns))
        if not file.is_file():
            raise StoreError(
                f"{self.folder} is not complete: {self.n_finished} of {self.n_tiles} tiles are stored. Run the command "
                "that began it again; it resumes from them."
            )
        try:
            return torch.from_numpy(np.asarray(self._array[rows, columns]))
        except (ValueError, RuntimeError, OSError) as error:  # a wrong checksum, too few bytes, or a bad disk
            advice = f"remove the file {file} and run the command that made the store again"
            raise StoreError(f"a tile is damaged ({error}): {advice}.") from error


def open_kernel(path: str | Path) -> StoredKernel:
    """Open a stored kernel for reading.

    Args:
        path: Folder that `Kernel.store` or `neuralpath kernel --store` has written.

    Raises:
        StoreError: It is not a stored kernel, or another version of the format.

    >>> import tempfile, torch, neuralpath as npath
    >>> x = torch.randn(5, 3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = npath.LinearKernel().store(f"{folder}/K.zarr", x)
    ...     kernel = open_kernel(f"{folder}/K.zarr")
    ...     kernel.complete, tuple(kernel.filled().shape)
    (True, (5, 5))
    """
    kernel = find_kernel(Path(path), read_only=True)
    if kernel is None:
        raise StoreError(f"there is no stored kernel at {path}; `neuralpath kernel --store` makes one.")
    return kernel


def find_kernel(folder: Path, *, read_only: bool) -> StoredKernel | None:
    """The kernel in a folder, or None if there is none and one may be made there; refuses any other folder."""
    zarr_array = _zarr_array()
    if not (folder / "zarr.json").is_file():
        if folder.is_dir() and any(not name.name.startswith("zarr.json") for name in folder.iterdir()):
            raise StoreError(f"{folder} holds other files, not a stored kernel: give another name.")
        if folder.exists() and not folder.is_dir():
            raise StoreError(f"{folder} is a file, not the folder of a stored kernel: give another name.")
        return None
    try:
        array = zarr_array.open_array(folder, read_only=read_only)
        attributes: Any = array.attrs[_KEY]
        number = attributes["format"]
    except Exception as error:  # zarr raises errors of many kinds for damaged metadata
        raise StoreError(f"{folder} is not a kernel of neuralpath: its zarr.json is damaged, or another's.") from error
    if number != FORMAT:
        raise StoreError(f"{folder} has format {number}, not format {FORMAT}: use the version that wrote it.")
    try:
        description = Description(**{**attributes, "block": tuple(attributes["block"])})
        if not description.is_valid():
            raise ValueError("an attribute has a wrong value")
        return StoredKernel(folder, array, description)
    except (TypeError, KeyError, ValueError, AttributeError) as error:  # attributes are wrong, or it is not a matrix
        file = folder / "zarr.json"
        raise StoreError(f"{file} is damaged ({error}): restore it, or use another folder.") from error


def create_kernel(folder: Path, plan: Plan, dtype: torch.dtype, description: Description) -> StoredKernel:
    """A store without tiles, in an empty folder."""
    name = str(dtype).removeprefix("torch.")
    chunks = (plan.block1, plan.block2)
    array = _zarr_array().create_array(folder, (plan.n1, plan.n2), chunks, name, {_KEY: asdict(description)})
    return StoredKernel(folder, array, description)


def _zarr_array() -> Any:
    try:
        from neuralpath.kernels.storage import zarr_array
    except ImportError as error:
        command = 'pip install zarr (from a clone: pip install -c constraints.txt ".[scale]")'
        raise StoreError(f"stored kernels need the package zarr: {command}.") from error
    return zarr_array


def _cut(part: slice, block: int) -> list[slice]:
    """A range, cut at the multiples of a block size."""
    first = part.start // block * block
    return [slice(max(i, part.start), min(i + block, part.stop)) for i in range(first, part.stop, block)]


def _row_numbers(indices: Sequence[int] | Tensor | slice, n: int) -> Int[Tensor, " _rows"]:
    if isinstance(indices, slice):
        return torch.arange(n)[indices]
    numbers = torch.as_tensor(indices, dtype=torch.int64).reshape(-1)
    if bool(((numbers < -n) | (numbers >= n)).any()):
        raise IndexError(f"rows go from 0 to {n - 1}, got {int(numbers.min())} to {int(numbers.max())}.")
    return numbers % n
