"""Kernels in files: what is read is what was computed, and what is damaged is refused."""

import json

import numpy as np
import pytest
import torch
import zarr
from hypothesis import HealthCheck, given, settings, strategies as st

import neuralpath as npath
from kernels.storage.stores import N, begin, contents, inputs, network, path_kernel, tiles_of
from neuralpath.kernels import Tile, open_kernel, tiling
from neuralpath.kernels.storage.stored_kernel import StoreError

KERNELS = {
    "path": path_kernel(),
    "expected tangent": npath.ExpectedTangentKernel(network()),
    "tangent": npath.kernels.TangentKernel(network()),
    "linear": npath.LinearKernel(),
}


@pytest.fixture
def kernel(tmp_path):
    return begin(tmp_path / "K.zarr")


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("cross", [False, True])
def test_a_store_holds_the_kernel_bit_for_bit(name, cross, tmp_path):
    second = inputs(33, seed=5) if cross else None
    kernel = begin(tmp_path / "K.zarr", KERNELS[name], x2=second)
    expected = KERNELS[name].tiles(inputs(), second, memory=kernel.description.memory)
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
    with pytest.raises(IndexError, match="0 to 69, got 3 to 70"):
        kernel.rows([3, 70])


def test_it_is_an_array_and_a_tiled_kernel(kernel):
    whole = kernel.filled()
    assert np.array_equal(np.asarray(kernel), whole.numpy())
    assert np.asarray(kernel, dtype=np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="`copy"):
        np.array(kernel, copy=False)
    assert (len(kernel), kernel.shape, kernel.ndim) == (N, (N, N), 2)
    assert sum(tile.n_pairs(True) for tile, _ in kernel) == kernel.plan.n_pairs
    assert all(torch.equal(values, whole[tile.rows, tile.columns]) for tile, values in kernel)
    assert "70 x 70 float32)" in repr(kernel)


def test_whole_kernels_beyond_memory_are_refused(kernel, monkeypatch):
    monkeypatch.setattr(tiling, "available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match=r"19.1 KiB.*1000 bytes"):
        kernel.filled()


def test_everything_that_takes_a_kernel_takes_a_stored_one(tmp_path):
    x = torch.randn(20, 30, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    kernel = begin(tmp_path / "K.zarr", npath.LinearKernel(), x)
    cross = begin(tmp_path / "C.zarr", npath.LinearKernel(), x[:3], x)
    matrix, y = kernel.filled(), torch.randn(20, dtype=torch.float64)
    for quantity in (npath.spectrum, npath.kernels.condition_number):
        assert torch.equal(quantity(kernel), quantity(matrix))
    for quantity in (npath.label_energy, npath.alignment):
        assert torch.equal(quantity(kernel, y), quantity(matrix, y))
    split, expected = (npath.kernels.label_energy_by_eigenvector(k, y) for k in (kernel, matrix))
    assert torch.equal(split.contributions, expected.contributions)
    for quantity in (npath.alignment, npath.centered_alignment, npath.kernels.spectrum_ratio):
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
    with pytest.raises(StoreError, match=rf"damaged.*{file}"):
        open_kernel(kernel.folder).filled()


def test_a_store_that_is_not_finished_says_so(kernel):
    tiles_of(kernel.folder)[3].unlink()
    opened = open_kernel(kernel.folder)
    assert not opened.complete
    assert "14 of 15 tiles" in repr(opened)
    with pytest.raises(StoreError, match="14 of 15"):
        opened.filled()


def test_half_a_tile_that_a_killed_process_left_is_no_tile(kernel):
    before = contents(kernel.folder)
    file = tiles_of(kernel.folder)[3]
    file.rename(file.with_name(file.name + ".part"))
    assert open_kernel(kernel.folder).n_finished == 14
    begin(kernel.folder)
    assert contents(kernel.folder) == before


def test_what_is_no_store_is_refused(tmp_path, kernel):
    with pytest.raises(StoreError, match=r"none\.zarr"):
        open_kernel(tmp_path / "none.zarr")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("text")
    with pytest.raises(StoreError, match="other"):
        begin(tmp_path / "other")
    with pytest.raises(StoreError, match="is a file"):
        begin(tmp_path / "other" / "file")
    zarr.create_array(tmp_path / "a.zarr", shape=(3, 3), dtype="float32")
    with pytest.raises(StoreError, match=r"a\.zarr"):
        open_kernel(tmp_path / "a.zarr")
    (kernel.folder / "zarr.json").write_text("{")
    with pytest.raises(StoreError, match=r"zarr.json"):
        open_kernel(kernel.folder)


MISSING = object()


def with_attribute(folder, name, value):
    """Change or remove an attribute of a store."""
    file = folder / "zarr.json"
    record = json.loads(file.read_text())
    attributes = {**record["attributes"]["neuralpath"], name: value}
    record["attributes"]["neuralpath"] = {key: entry for key, entry in attributes.items() if entry is not MISSING}
    file.write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threads", MISSING),
        ("block", MISSING),
        ("fingerprint", MISSING),
        ("color", "red"),
        ("block", None),
        ("block", [8]),
        ("block", [0, 8]),
        ("threads", "two"),
        ("memory", True),
        ("symmetric", 1),
        ("what", None),
        ("fingerprint", ["a"]),
    ],
)
def test_a_missing_or_wrong_attribute_is_refused(name, value, kernel):
    with_attribute(kernel.folder, name, value)
    before = contents(kernel.folder)
    for use in (lambda: open_kernel(kernel.folder), lambda: begin(kernel.folder)):
        with pytest.raises(StoreError, match=rf"{kernel.folder / 'zarr.json'} is damaged"):
            use()
    assert contents(kernel.folder) == before


def test_an_array_that_is_no_matrix_is_refused(kernel, tmp_path):
    record = json.loads((kernel.folder / "zarr.json").read_text())
    zarr.create_array(tmp_path / "a.zarr", shape=(3,), dtype="float32", attributes=record["attributes"])
    with pytest.raises(StoreError, match=r"zarr.json is damaged"):
        open_kernel(tmp_path / "a.zarr")


@pytest.mark.parametrize(("number", "message"), [(1, "format 1.*format 2"), (99, "format 99.*format 2")])
def test_a_store_of_another_version_is_refused(number, message, kernel):
    with_attribute(kernel.folder, "format", number)
    for use in (open_kernel, begin):
        with pytest.raises(StoreError, match=message) as caught:
            use(kernel.folder)
        assert "\n" not in str(caught.value)


def test_without_zarr_the_extra_is_named(kernel, monkeypatch):
    import sys

    import neuralpath.kernels.storage

    monkeypatch.setitem(sys.modules, "zarr", None)
    monkeypatch.delitem(sys.modules, "neuralpath.kernels.storage.zarr_array")
    monkeypatch.delattr(neuralpath.kernels.storage, "zarr_array")
    with pytest.raises(StoreError, match=r"pip install zarr .*\[scale\]"):
        open_kernel(kernel.folder)


def test_every_file_of_a_store_is_written_durably(tmp_path, monkeypatch):
    from neuralpath.kernels.storage import zarr_array

    written, write = [], zarr_array.write_atomically
    monkeypatch.setattr(zarr_array, "write_atomically", lambda path, data: written.append(path) or write(path, data))
    begin(tmp_path / "K.zarr")
    assert sorted(written) == sorted(path for path in (tmp_path / "K.zarr").rglob("*") if path.is_file())
