"""Kernels in files: what is read is what was computed, and what is damaged is refused."""

import json

import numpy as np
import pytest
import torch
import zarr
from hypothesis import HealthCheck, given, settings, strategies as st

import neuralpath as npath
from kernels.storage.stores import BUDGET, N, begin, contents, inputs, network, tiles_of
from neuralpath.kernels.named_kernels import KERNEL_NAMES, named_tiles
from neuralpath.kernels.storage import store as stores
from neuralpath.kernels.storage.store import StoreError, open_kernel
from neuralpath.kernels.tiling.plan import Tile

pytestmark = pytest.mark.usefixtures("small_tiles")


@pytest.fixture
def kernel(tmp_path):
    return begin(tmp_path / "K.zarr")


@pytest.mark.parametrize("name", KERNEL_NAMES)
@pytest.mark.parametrize("cross", [False, True])
def test_a_store_holds_the_kernel_bit_for_bit(name, cross, tmp_path):
    second = inputs(33, seed=5) if cross else None
    kernel = begin(tmp_path / "K.zarr", name=name, x2=second)
    expected = named_tiles(name, network(), inputs(), second, memory=BUDGET)
    whole = torch.empty(expected.plan.n1, expected.plan.n2)
    for tile, values in expected:
        whole[tile.rows, tile.columns] = values
        if not cross:
            whole[tile.columns, tile.rows] = values.T
    assert kernel.complete
    assert kernel.symmetric == (not cross)
    assert kernel.dtype == torch.float32
    assert torch.equal(kernel.filled(), whole)
    assert torch.equal(open_kernel(str(tmp_path / "K.zarr")).filled(), whole)


def test_only_the_upper_half_is_stored(kernel):
    rows = {path.parent.name: sorted(int(p.name) for p in path.parent.iterdir()) for path in tiles_of(kernel.folder)}
    assert rows == {str(i): list(range(i, 5)) for i in range(5)}
    assert kernel.n_tiles == 15


def test_other_readers_find_a_zarr_array(kernel):
    array, whole = zarr.open_array(kernel.folder, mode="r"), kernel.to_array()
    upper = np.triu_indices(N)
    assert np.array_equal(array[:][upper], whole[upper])
    assert np.isnan(array[N - 1, 0])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(data=st.data())
def test_any_rows_and_any_block(kernel, data):
    whole = kernel.filled()
    rows = data.draw(st.lists(st.integers(-N, N - 1), max_size=6))
    assert torch.equal(kernel.rows(rows), whole[rows])
    a, b, c, d = (data.draw(st.integers(0, N)) for _ in range(4))
    tile = Tile(slice(min(a, b), max(a, b)), slice(min(c, d), max(c, d)))
    assert torch.equal(kernel.values(tile), whole[tile.rows, tile.columns])


def test_rows_by_slice_and_tensor_and_beyond(kernel):
    whole = kernel.filled()
    assert torch.equal(kernel.rows(slice(10, 40, 3)), whole[10:40:3])
    assert torch.equal(kernel.rows(torch.tensor([69, 0])), whole[[69, 0]])
    with pytest.raises(IndexError, match="rows go from 0 to 69, got 3 to 70"):
        kernel.rows([3, 70])


def test_it_is_an_array_and_a_tiled_kernel(kernel):
    whole = kernel.filled()
    assert np.array_equal(np.asarray(kernel), whole.numpy())
    assert np.asarray(kernel, dtype=np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="always a copy"):
        np.array(kernel, copy=False)
    assert (len(kernel), kernel.shape, kernel.ndim) == (N, (N, N), 2)
    assert sum(tile.n_pairs(True) for tile, _ in kernel) == kernel.plan.n_pairs
    assert all(torch.equal(values, whole[tile.rows, tile.columns]) for tile, values in kernel)
    assert "70 x 70 float32)" in repr(kernel)


def test_whole_kernels_beyond_memory_are_refused(kernel, monkeypatch):
    monkeypatch.setattr(stores, "available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match=r"takes 19.1 KiB, more than the 1000 bytes that are free: use its tiles"):
        kernel.filled()


def test_everything_that_takes_a_kernel_takes_a_stored_one(tmp_path):
    x = torch.randn(20, 30, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    kernel = begin(tmp_path / "K.zarr", name="linear", model=None, x1=x)
    cross = begin(tmp_path / "C.zarr", name="linear", model=None, x1=x[:3], x2=x)
    matrix, y = kernel.filled(), torch.randn(20, dtype=torch.float64)
    for quantity in (npath.spectrum, npath.condition_number):
        assert torch.equal(quantity(kernel), quantity(matrix))
    for quantity in (npath.label_energy, npath.alignment):
        assert torch.equal(quantity(kernel, y), quantity(matrix, y))
    split, expected = (npath.label_energy_by_eigenvector(k, y) for k in (kernel, matrix))
    assert torch.equal(split.contributions, expected.contributions)
    for quantity in (npath.alignment, npath.centered_alignment, npath.spectrum_ratio):
        assert torch.equal(quantity(kernel, kernel), quantity(matrix, matrix))
        assert torch.equal(quantity(matrix, kernel), quantity(matrix, matrix))
    one, two = npath.KernelDynamics(kernel), npath.KernelDynamics(matrix)
    assert torch.equal(one.train(y, 3.0), two.train(y, 3.0))
    assert torch.equal(one.test(cross, y, 3.0), two.test(cross.filled(), y, 3.0))
    with pytest.raises(ValueError, match="must be a square matrix"):
        npath.spectrum(cross)


@pytest.mark.parametrize("damage", ["flipped", "short", "empty", "no checksum"])
def test_a_damaged_tile_is_refused_with_what_to_do(damage, kernel):
    file = tiles_of(kernel.folder)[3]
    data = bytearray(file.read_bytes())
    data[17] ^= 1
    file.write_bytes({"flipped": data, "short": data[:100], "empty": b"", "no checksum": data[:-4]}[damage])
    with pytest.raises(StoreError, match=rf"a tile of .* is damaged .*remove the file {file}"):
        open_kernel(kernel.folder).filled()


def test_a_store_that_is_not_finished_says_so(kernel):
    tiles_of(kernel.folder)[3].unlink()
    opened = open_kernel(kernel.folder)
    assert not opened.complete
    assert "14 of 15 tiles" in repr(opened)
    with pytest.raises(StoreError, match="is not finished: 14 of 15 tiles are there"):
        opened.filled()


def test_half_a_tile_that_a_killed_process_left_is_no_tile(kernel):
    before = contents(kernel.folder)
    file = tiles_of(kernel.folder)[3]
    file.rename(file.with_name(file.name + ".part"))
    assert open_kernel(kernel.folder).n_finished == 14
    begin(kernel.folder)
    assert contents(kernel.folder) == before


def test_what_is_no_store_is_refused(tmp_path, kernel):
    with pytest.raises(StoreError, match="there is no stored kernel at"):
        open_kernel(tmp_path / "none.zarr")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("text")
    with pytest.raises(StoreError, match="holds other files"):
        begin(tmp_path / "other")
    with pytest.raises(StoreError, match="is a file, not the folder"):
        begin(tmp_path / "other" / "file")
    zarr.create_array(tmp_path / "a.zarr", shape=(3, 3), dtype="float32")
    with pytest.raises(StoreError, match="is no kernel of neuralpath"):
        open_kernel(tmp_path / "a.zarr")
    (kernel.folder / "zarr.json").write_text("{")
    with pytest.raises(StoreError, match=r"its zarr.json is damaged"):
        open_kernel(kernel.folder)


MISSING = object()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("threads", MISSING, "'threads' is missing"),
        ("block", MISSING, "'block' is missing"),
        ("fingerprint", MISSING, "'fingerprint' is missing"),
        ("color", "red", "'color' is not known"),
        ("block", None, "'block' must be two whole numbers from 1, not None"),
        ("block", [8], "'block' must be two whole numbers from 1"),
        ("block", [0, 8], "'block' must be two whole numbers from 1"),
        ("threads", "two", "'threads' must be a whole number from 1, not 'two'"),
        ("memory", True, "'memory' must be a whole number from 1, not True"),
        ("symmetric", 1, "'symmetric' must be true or false, not 1"),
        ("what", None, "'what' must be words"),
        ("fingerprint", {"weights": {"a": 3}}, "'fingerprint' must be digests by name"),
        ("fingerprint", ["a"], "'fingerprint' must be digests by name"),
    ],
)
def test_a_field_that_is_missing_or_wrong_is_named(field, value, message, kernel):
    file = kernel.folder / "zarr.json"
    record = json.loads(file.read_text())
    described = record["attributes"]["neuralpath"]
    described[field] = value
    record["attributes"]["neuralpath"] = {key: entry for key, entry in described.items() if entry is not MISSING}
    file.write_text(json.dumps(record))
    before = contents(kernel.folder)
    for use in (lambda: open_kernel(kernel.folder), lambda: begin(kernel.folder)):
        with pytest.raises(StoreError, match=rf"{file} is damaged: {message}.* compute the kernel again into another"):
            use()
    assert contents(kernel.folder) == before


def test_an_array_that_is_no_matrix_is_refused(kernel, tmp_path):
    record = json.loads((kernel.folder / "zarr.json").read_text())
    zarr.create_array(tmp_path / "a.zarr", shape=(3,), dtype="float32", attributes=record["attributes"])
    with pytest.raises(StoreError, match=r"zarr.json is damaged: not enough values"):
        open_kernel(tmp_path / "a.zarr")


def test_a_store_of_another_version_is_refused_with_what_to_do(kernel):
    file = kernel.folder / "zarr.json"
    record = json.loads(file.read_text())
    record["attributes"]["neuralpath"]["format"] = 99
    file.write_text(json.dumps(record))
    with pytest.raises(StoreError, match="has format 99, this version reads format 1: use the version of neuralpath"):
        open_kernel(kernel.folder)
    with pytest.raises(StoreError, match="has format 99"):
        begin(kernel.folder)


def test_without_zarr_the_extra_is_named(kernel, monkeypatch):
    import sys

    import neuralpath.kernels.storage

    monkeypatch.setitem(sys.modules, "zarr", None)
    monkeypatch.delitem(sys.modules, "neuralpath.kernels.storage.zarr_array")
    monkeypatch.delattr(neuralpath.kernels.storage, "zarr_array")
    with pytest.raises(StoreError, match=r"the package zarr: pip install zarr \(from a clone: .* \"\.\[scale\]\"\)"):
        open_kernel(kernel.folder)


def test_every_file_of_a_store_is_written_durably(tmp_path, monkeypatch):
    from neuralpath.kernels.storage import zarr_array

    written, write = [], zarr_array.write_atomically
    monkeypatch.setattr(zarr_array, "write_atomically", lambda path, data: written.append(path) or write(path, data))
    begin(tmp_path / "K.zarr")
    assert sorted(written) == sorted(path for path in (tmp_path / "K.zarr").rglob("*") if path.is_file())
