import pytest

from neuralpath.kernels.storage import stored_tiles


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of 16 rows, of blocks of 8, so that small kernels have many."""
    from neuralpath.kernels.path import chain

    monkeypatch.setattr(chain, "ROW_BLOCK", 8)
    monkeypatch.setattr(stored_tiles, "STORED_SIDE", 16)
