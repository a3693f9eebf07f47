"""The zarr array behind a stored kernel: one chunk a tile, with a checksum, each written durably."""

import asyncio
from pathlib import Path
from typing import Any

import zarr
from zarr.codecs import Crc32cCodec
from zarr.core.buffer import Buffer
from zarr.storage import LocalStore

from neuralpath._files import write_atomically


class DurableStore(LocalStore):
    """A folder in which a key appears only when its bytes are on the disk; zarr's own store does not wait for that."""

    async def set(self, key: str, value: Buffer) -> None:
        await asyncio.to_thread(self.set_sync, key, value)

    def set_sync(self, key: str, value: Buffer) -> None:
        """Write a key, and return when it is on the disk."""
        self._check_writable()
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, value.to_bytes())


def create_array(
    folder: Path, shape: tuple[int, int], chunks: tuple[int, int], dtype: str, attributes: dict[str, Any]
) -> zarr.Array[Any]:
    """A new array without chunks. They are not compressed: the last bits of a kernel are noise."""
    return zarr.create_array(
        DurableStore(folder), shape=shape, chunks=chunks, dtype=dtype, attributes=attributes, overwrite=False,
        compressors=[Crc32cCodec()], filters=None,
        fill_value=float("nan"),  # what other readers see where no tile is; a tile is finite, so it is always written
    )  # fmt: skip


def open_array(folder: Path, *, read_only: bool) -> zarr.Array[Any]:
    """An array that is there."""
    return zarr.open_array(DurableStore(folder, read_only=read_only), mode="r" if read_only else "r+", zarr_format=3)
