import pytest

from neuralpath.tiles import stored_tiles


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of 16 rows, of blocks of 8, so that small kernels have many."""
    from neuralpath.readings.pairs import chain

    monkeypatch.setattr(chain, "ROW_BLOCK", 8)
    monkeypatch.setattr(stored_tiles, "STORED_SIDE", 16)
