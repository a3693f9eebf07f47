"""Computing a kernel into a store: interrupted and resumed, refused with other arguments, verified."""

import shutil
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

import neuralpath as npath
from kernels.storage.stores import BUDGET, begin, contents, inputs, network, path_kernel, tiles_of
from neuralpath import nets
from neuralpath.kernels import StoredKernel, TangentKernel, TiledKernel, open_kernel
from neuralpath.kernels.storage import storing
from neuralpath.kernels.storage.stored_kernel import StoreError
from neuralpath.kernels.storage.storing import MOST_BLOCKS, stored_plan
from neuralpath.kernels.storage.verification import refuse_other_corners, relative_gap
from neuralpath.kernels.tiling import Plan
from unprivileged import unprivileged


@pytest.fixture
def undisturbed(tmp_path):
    begin(tmp_path / "undisturbed.zarr")
    return contents(tmp_path / "undisturbed.zarr")


@pytest.fixture
def stop_after(monkeypatch):
    """Make the computation of tiles fail after a number of tiles; returns the tiles that were computed."""
    assembled = TiledKernel.assembled

    def install(n_tiles: int, error: BaseException) -> list:
        computed = []

        def stopping(self, tile):
            if len(computed) == n_tiles:
                raise error
            computed.append(tile)
            return assembled(self, tile)

        monkeypatch.setattr(TiledKernel, "assembled", stopping)
        return computed

    return install


@pytest.mark.parametrize("n_tiles", [0, 1, 7, 14])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError("no memory")])
def test_an_interrupted_store_is_resumed_from_the_finished_tiles(n_tiles, error, tmp_path, undisturbed, stop_after):
    folder, notes = tmp_path / "K.zarr", []
    stop_after(n_tiles, error)
    with pytest.raises(type(error)):
        begin(folder)
    assert open_kernel(folder).n_finished == n_tiles
    computed = stop_after(15 - n_tiles, AssertionError("a finished tile is computed again"))
    assert begin(folder, memory=None, threads=None, on_message=notes.append).complete
    assert len(computed) == 15 - n_tiles
    assert contents(folder) == undisturbed
    assert (f"{n_tiles} of them are stored" in notes[0]) == (n_tiles > 0)


@given(n=st.integers(1, 5000), block=st.integers(1, 300), side=st.integers(1, 600), symmetric=st.booleans())
def test_stored_tiles_are_a_bounded_number_of_whole_blocks(n, block, side, symmetric):
    block = min(block, n)
    stored = stored_plan(Plan(n, n, block, block, symmetric, 0), side)
    assert stored.block1 == stored.block2
    assert stored.block1 % block == 0 or stored.block1 == n
    assert stored.block1 <= MOST_BLOCKS * block
    assert stored.block1 >= min(side, n, MOST_BLOCKS * block)


def test_the_size_of_tiles_does_not_change_their_values(tmp_path):
    stores = [begin(tmp_path / f"{side}.zarr", tile_side=side) for side in (8, 32)]
    assert [stored.plan.block1 for stored in stores] == [8, 32]
    assert torch.equal(stores[0].filled(), stores[1].filled())
    assert begin(tmp_path / "8.zarr", tile_side=32).plan.block1 == 8  # a store keeps its tiles


def test_a_folder_that_was_there_stays_if_nothing_is_begun(tmp_path):
    (tmp_path / "old.zarr").mkdir()
    for name in ("old.zarr", "new.zarr"):
        with pytest.raises(MemoryError):
            begin(tmp_path / name, memory=10)
    assert [path.name for path in tmp_path.iterdir()] == ["old.zarr"]


def test_notes_tell_the_number_of_tiles_and_the_size(tmp_path):
    notes = []
    begin(tmp_path / "K.zarr", on_message=notes.append)
    assert notes == ["2,485 pairs in 15 tiles of 16 x 16; 15.0 KiB to write"]
    for tile in tiles_of(tmp_path / "K.zarr")[1:]:
        tile.unlink()
    begin(tmp_path / "K.zarr", on_message=notes.append)
    assert "1 of them are stored" in notes[1]
    begin(tmp_path / "K.zarr", on_message=notes.append)
    assert notes[2] == f"{tmp_path / 'K.zarr'} is complete."


def changed_weight():
    model = network()
    with torch.no_grad():
        model.layers.linear2.weight[0, 0] += 1e-6
    return model


OTHER = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kernel": npath.PathKernel(changed_weight())}, r"weights \(layers.linear2.weight\)"),
        ({"x1": inputs(seed=9)}, r": inputs \(was 70x6 float32 \w+, is 70x6 float32 \w+\)"),
        ({"x1": inputs(69)}, r": inputs \(was 70x6 .*, is 69x6"),
        ({"x1": inputs().double(), "kernel": npath.PathKernel(network().double())}, r"weights \(.*is 70x6 float64"),
        ({"kernel": TangentKernel(network())}, r"kernel \(was PathKernel, is TangentKernel\)"),
        ({"kernel": path_kernel(normalize=True)}, r": normalize \(was False, is True\)"),
        ({"x2": inputs(3)}, r": second inputs \(was none, is 3x6"),
        ({"kernel": npath.PathKernel(OTHER)}, r"network \(was .*; weights \(0.bias"),
        ({"memory": BUDGET + 1}, "memory=2000, got 2001"),
        ({"threads": 2}, "threads=1, got 2"),
    ],
)
def test_another_kernel_is_refused_and_what_differs_is_named(changes, message, tmp_path, undisturbed):
    folder = tmp_path / "undisturbed.zarr"
    with pytest.raises(StoreError, match=message):
        begin(folder, **changes)
    assert contents(folder) == undisturbed


def test_versions_are_part_of_the_fingerprint(tmp_path, monkeypatch):
    begin(tmp_path / "K.zarr")
    monkeypatch.setattr(torch, "__version__", "0.0")
    with pytest.raises(StoreError, match=r"torch \(was .*, is 0.0\)"):
        begin(tmp_path / "K.zarr")


class Scaled(nn.Module):
    """A number in it, or its code, may change while repr, weights and inputs stay."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 1, bias=False)
        with torch.no_grad():
            self.layer.weight.fill_(0.5)
        self.scale = scale

    def forward(self, x):
        return self.layer(torch.relu(self.scale * x))


class Clipped(Scaled):
    """The number matters for large inputs only."""

    def forward(self, x):
        return self.layer(x.clamp(max=self.scale))


def test_a_change_of_the_models_code_is_noticed(tmp_path):
    x = inputs(600)  # the tangent kernel computes blocks of 512
    begin(tmp_path / "K.zarr", TangentKernel(Scaled(1.0)), x)
    tiles_of(tmp_path / "K.zarr")[-1].unlink()
    with pytest.raises(StoreError, match=r"differs by .* the code of the model or a number in it"):
        begin(tmp_path / "K.zarr", TangentKernel(Scaled(2.0)), x)
    assert begin(tmp_path / "K.zarr", TangentKernel(Scaled(1.0)), x).complete


@pytest.mark.parametrize("kind", [TangentKernel, npath.PathKernel])
def test_a_complete_store_is_of_this_model_or_refused(kind, tmp_path):
    folder, notes = tmp_path / "K.zarr", []
    begin(folder, kind(Scaled(1.0)), memory=10**8)
    before = contents(folder)
    for gain in (3.0, 1.001):
        with pytest.raises(StoreError, match=r"differs by .* attribute"):
            begin(folder, kind(Scaled(gain)), memory=10**8, on_message=notes.append)
    assert notes == []
    assert contents(folder) == before
    assert begin(folder, kind(Scaled(1.0)), memory=10**8, on_message=notes.append).complete
    assert notes == [f"{folder} is complete."]


def test_a_change_that_the_last_examples_alone_show_is_noticed(tmp_path):
    x = inputs()
    x[-1] = 10.0
    begin(tmp_path / "K.zarr", TangentKernel(Clipped(100.0)), x)
    with pytest.raises(StoreError, match="differs by"):
        begin(tmp_path / "K.zarr", TangentKernel(Clipped(5.0)), x)


def test_few_entries_of_a_complete_store_are_computed_again_and_a_block_if_they_differ(tmp_path, monkeypatch):
    kernel = begin(tmp_path / "K.zarr")
    computed, values = [], TiledKernel.values

    def other(self, tile):
        """Another method computes few entries at a time, with other rounding."""
        computed.append(tile.shape)
        return values(self, tile) * (1.01 if tile.shape == (2, 2) else 1.0)

    monkeypatch.setattr(TiledKernel, "values", other)
    assert begin(tmp_path / "K.zarr").complete
    assert computed == [(8, 8), (6, 6)]  # of the first tile and of the last
    computed.clear()
    refuse_other_corners(kernel, path_kernel().tiles(inputs(), memory=BUDGET), corner=2)
    assert computed == [(2, 2), (8, 8), (2, 2), (6, 6)]
    first = next(kernel.plan.tiles())
    kernel.write(first, 1.5 * kernel.values(first))
    with pytest.raises(StoreError, match=rf"{kernel.file_of(first)} is wrong"):
        begin(tmp_path / "K.zarr")


def test_a_damaged_tile_of_a_complete_store_is_named(tmp_path):
    begin(tmp_path / "K.zarr")
    file = tiles_of(tmp_path / "K.zarr")[0]
    file.write_bytes(b"nothing")
    with pytest.raises(StoreError, match=rf"damaged.*{file}"):
        begin(tmp_path / "K.zarr")


@pytest.mark.parametrize(
    ("stored", "computed", "gap"),
    [
        ([1.0, -4.0], [1.0, -4.0], 0.0),
        ([1.0, -5.0], [1.0, -4.0], 0.25),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([1.0, 0.0], [0.0, 0.0], float("inf")),
        ([1.0, 2.0], [float("nan"), 2.0], float("inf")),
        ([1.0, 2.0], [float("inf"), 2.0], float("inf")),
        ([float("nan"), 2.0], [1.0, 2.0], float("inf")),
    ],
)
def test_the_gap_of_numbers_that_are_none_is_infinite(stored, computed, gap):
    assert relative_gap(torch.tensor([stored]), torch.tensor([computed])) == gap


@pytest.mark.parametrize("threads", [0, -2, 1025, 100_000])
def test_numbers_of_threads_that_no_machine_has_are_refused(threads, tmp_path):
    with pytest.raises(ValueError, match=f"`threads` .*1 to 1024, got {threads}"):
        begin(tmp_path / "K.zarr", threads=threads)
    assert list(tmp_path.iterdir()) == []


def test_two_processes_do_not_write_one_store(tmp_path):
    folder, errors = tmp_path / "K.zarr", []

    def rival(_):
        with pytest.raises(StoreError, match="another process") as caught:
            begin(folder)
        errors.append(caught)

    assert begin(folder, on_message=rival).complete
    assert errors


def test_a_full_disk_keeps_the_finished_tiles(tmp_path, undisturbed, monkeypatch):
    folder = tmp_path / "K.zarr"
    write, left = StoredKernel.write, iter(range(4))

    def full(self, tile, values):
        if next(left, None) is None:
            raise OSError(28, "No space left on device")
        write(self, tile, values)

    with monkeypatch.context() as patch:
        patch.setattr(StoredKernel, "write", full)
        with pytest.raises(StoreError, match="No space left on device"):
            begin(folder)
    assert open_kernel(folder).n_finished == 4
    with monkeypatch.context() as patch:
        patch.setattr(storing.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 100, 0))
        with pytest.raises(StoreError, match="0 bytes"):
            begin(folder)
    begin(folder)
    assert contents(folder) == undisturbed


def test_a_read_only_folder_is_named():
    with tempfile.TemporaryDirectory() as folder:  # not below pytest's, which only its owner may enter
        Path(folder).chmod(0o555)
        with unprivileged(), pytest.raises(StoreError, match="Permission denied"):
            begin(Path(folder) / "K.zarr")


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("text")
    with pytest.raises(StoreError, match="Not a directory"):
        begin(tmp_path / "file" / "K.zarr")


def test_a_kernel_beyond_its_dtype_is_refused(tmp_path):
    with pytest.raises(OverflowError, match=r"path kernel .*float32.*`normalize=True`"):
        begin(tmp_path / "K.zarr", x1=1e25 * inputs())
    assert open_kernel(tmp_path / "K.zarr").n_finished == 0


def test_threads_of_torch_stay_as_they_were(tmp_path):
    before = torch.get_num_threads()
    model, x = nets.GCONV((1, 3, 2), 2, channels=(4,)), torch.rand(9, 1, 3, 2)
    kernel = begin(tmp_path / "K.zarr", npath.PathKernel(model), x, threads=3)
    assert kernel.description.threads == 3
    assert torch.get_num_threads() == before


def verified(folder, n_tiles=99, x=None):
    return path_kernel().verify(folder, inputs() if x is None else x, n_tiles=n_tiles)


def test_verify_finds_nothing_in_a_good_store(tmp_path):
    begin(tmp_path / "K.zarr")
    found = verified(tmp_path / "K.zarr", 4)
    assert found.good
    assert str(found).splitlines() == [
        "15 of 15 tiles are stored; 15 have the right checksum",
        "4 computed again: 4 equal bit for bit",
    ]
    assert verified(tmp_path / "K.zarr").n_recomputed == 15
    with pytest.raises(StoreError, match="inputs"):
        verified(tmp_path / "K.zarr", x=inputs(seed=3))
    with pytest.raises(ValueError, match=r"`n_tiles` .*-1"):
        verified(tmp_path / "K.zarr", -1)


def test_verify_finds_flipped_bytes_wrong_values_and_rounding(tmp_path, undisturbed):
    folder = tmp_path / "K.zarr"
    kernel = begin(folder)
    flipped = tiles_of(folder)[2]
    data = bytearray(flipped.read_bytes())
    data[100] ^= 4
    flipped.write_bytes(data)
    tiles = list(kernel.plan.tiles())
    kernel.write(tiles[7], kernel.values(tiles[7]) * 1.01)
    kernel.write(tiles[8], kernel.values(tiles[8]) * (1 + 1e-6))
    found = verified(folder)
    assert not found.good
    assert found.damaged == (flipped,)
    assert set(found.wrong) == {kernel.file_of(tiles[7])}
    assert set(found.rounded) == {kernel.file_of(tiles[8])}
    assert all(str(file) in str(found) for file in (*found.damaged, *found.wrong))
    for file in (*found.damaged, *found.wrong, *found.rounded):
        file.unlink()
    assert verified(folder).n_missing == 3
    begin(folder)
    assert contents(folder) == undisturbed
