"""Computing a kernel into a store: stopped and gone on with, refused with other things, verified."""

import shutil
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from kernels.storage.stores import BUDGET, begin, contents, inputs, network, tiles_of
from neuralpath import nets
from neuralpath.kernels.storage import same_kernel, storing
from neuralpath.kernels.storage.store import StoredKernel, StoreError, open_kernel
from neuralpath.kernels.storage.stored_tiles import ThisMachine, stored_plan
from neuralpath.kernels.storage.storing import TILE_SECONDS, bounded_plan, write_kernel
from neuralpath.kernels.stored_kernels import make_recipe, verify_kernel
from neuralpath.kernels.tiling.estimate import Estimate
from neuralpath.kernels.tiling.plan import Plan
from neuralpath.kernels.tiling.tiled_kernel import TiledKernel
from unprivileged import unprivileged

pytestmark = pytest.mark.usefixtures("small_tiles")


@pytest.fixture
def undisturbed(tmp_path):
    begin(tmp_path / "undisturbed.zarr")
    return contents(tmp_path / "undisturbed.zarr")


class Stops(ThisMachine):
    """Stops after some tiles."""

    def __init__(self, n_tiles: int, error: BaseException) -> None:
        self.left, self.error = n_tiles, error

    def computed(self, *arguments):
        for pair in super().computed(*arguments):
            if self.left == 0:
                raise self.error
            self.left -= 1
            yield pair


@pytest.mark.parametrize("n_tiles", [0, 1, 7, 14])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError("no memory")])
def test_stopped_work_goes_on_from_the_finished_tiles(n_tiles, error, tmp_path, undisturbed):
    folder, recipe = tmp_path / "K.zarr", make_recipe("path", network(), inputs())
    with pytest.raises(type(error)):
        write_kernel(folder, recipe, Stops(n_tiles, error), memory=BUDGET, threads=1)
    assert open_kernel(folder).n_finished == n_tiles
    counting = Stops(15 - n_tiles, AssertionError("a finished tile is computed again"))
    said = []
    assert write_kernel(folder, recipe, counting, say=said.append).complete
    assert counting.left == 0
    assert contents(folder) == undisturbed
    if n_tiles:
        assert f"{n_tiles} of them are there" in said[0]


def estimated(monkeypatch, seconds):
    monkeypatch.setattr(TiledKernel, "estimate", lambda self: Estimate(seconds, 2**20, 2**20))


def test_a_tile_is_half_a_minute_of_work_at_most(tmp_path, monkeypatch, undisturbed):
    whole = open_kernel(tmp_path / "undisturbed.zarr").filled()
    estimated(monkeypatch, 2485.0)  # a second for each pair: 5 x 5 pairs would do, but the blocks are 8 x 8
    said = []
    recipe = make_recipe("path", network(), inputs())
    with pytest.raises(KeyboardInterrupt):
        write_kernel(tmp_path / "K.zarr", recipe, Stops(3, KeyboardInterrupt()), memory=BUDGET, threads=1)
    estimated(monkeypatch, 1e-3)  # another machine, or a better estimate: the store's own tiles are kept
    kernel = begin(tmp_path / "K.zarr", say=said.append)
    assert (kernel.plan.block1, kernel.plan.block2, kernel.n_tiles) == (8, 8, 45)
    assert "3 of them are there" in said[0]
    assert torch.equal(kernel.filled(), whole)
    assert verified(tmp_path / "K.zarr").good


@given(
    n=st.integers(1, 5000), block=st.integers(1, 300), symmetric=st.booleans(),
    per_pair=st.floats(1e-9, 1e3, allow_nan=False),
)  # fmt: skip
def test_bounded_tiles_are_whole_blocks_and_within_the_bound(n, block, symmetric, per_pair):
    block = min(block, n)
    plan = Plan(n, n, block, block, symmetric, 0)
    stored = stored_plan(plan, 4)
    bounded = bounded_plan(stored, plan, per_pair * plan.n_pairs)
    side = bounded.block1
    assert bounded.block1 == bounded.block2
    assert side % block == 0 or side == n
    assert block <= side <= stored.block1
    assert side == block or per_pair * side**2 <= TILE_SECONDS * (1 + 1e-9)
    larger = min(side + block, n)
    assert side == stored.block1 or per_pair * (larger + 1) ** 2 > TILE_SECONDS * (1 - 1e-9)
    assert bounded.tile_bytes == 4 * side**2


def test_a_folder_that_was_there_stays_where_nothing_is_begun(tmp_path, monkeypatch):
    def fails(_):
        raise MemoryError("no memory")

    monkeypatch.setattr(TiledKernel, "estimate", fails)
    (tmp_path / "old.zarr").mkdir()
    for name in ("old.zarr", "new.zarr"):
        with pytest.raises(MemoryError):
            begin(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["old.zarr"]


def test_the_estimate_comes_first_and_the_rest_is_its_share(tmp_path, monkeypatch):
    monkeypatch.setattr(storing, "TILE_SECONDS", 1e9)
    estimated(monkeypatch, 600.0)
    said = []
    begin(tmp_path / "K.zarr", say=said.append)
    assert said == [
        "2,485 pairs in 15 tiles of 16 x 16; on this machine: about 10 min of computing, 1.0 MiB of memory and "
        "15.0 KiB on the disk"
    ]
    for tile in tiles_of(tmp_path / "K.zarr")[1:]:
        tile.unlink()
    begin(tmp_path / "K.zarr", say=said.append)
    assert "1 of them are there; on this machine: about 9 min" in said[1]
    begin(tmp_path / "K.zarr", say=said.append)
    assert said[2] == f"{tmp_path / 'K.zarr'} is complete."


def changed_weight():
    model = network()
    with torch.no_grad():
        model.layers.linear2.weight[0, 0] += 1e-6
    return model


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": changed_weight()}, r"What differs: weights \(layers.linear2.weight\)\. Give"),
        ({"x1": inputs(seed=9)}, r"What differs: inputs \(was 70x6 float32 \w+, is 70x6 float32 \w+\)\. Give"),
        ({"x1": inputs(69)}, r"What differs: inputs \(was 70x6 .*, is 69x6"),
        ({"x1": inputs().double(), "model": network().double()}, r"is 70x6 float64 .*; weights \(layers.linear1"),
        ({"name": "tangent"}, r"What differs: kernel \(was path, is tangent\)"),
        ({"normalize": True}, r"What differs: normalize \(was false, is true\)"),
        ({"x2": inputs(3)}, r"What differs: second inputs \(was none, is 3x6"),
        ({"model": nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 1))}, r"model \(was .*; weights \(0.bias"),
        ({"memory": BUDGET + 1}, "was begun with a memory budget of 100000000 bytes"),
        ({"threads": 2}, r"was begun with 1 thread\(s\)"),
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
    with pytest.raises(StoreError, match=r"What differs: torch \(was .*, is 0.0\)"):
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
    settings = {"name": "tangent", "memory": 20_000}  # several tiles
    begin(tmp_path / "K.zarr", model=Scaled(1.0), **settings)
    tiles_of(tmp_path / "K.zarr")[-1].unlink()
    with pytest.raises(StoreError, match=r"differs by .* the code of the model or a number in it"):
        begin(tmp_path / "K.zarr", model=Scaled(2.0), **settings)
    assert begin(tmp_path / "K.zarr", model=Scaled(1.0), **settings).complete


@pytest.mark.parametrize("name", ["tangent", "path"])
def test_a_complete_store_is_of_this_model_or_refused(name, tmp_path):
    folder, said = tmp_path / "K.zarr", []
    begin(folder, name=name, model=Scaled(1.0))
    before = contents(folder)
    for gain in (3.0, 1.001):
        with pytest.raises(StoreError, match=r"differs by .* a number in it \(an attribute .* Begin in another folder"):
            begin(folder, name=name, model=Scaled(gain), say=said.append)
    assert said == []
    assert contents(folder) == before
    assert begin(folder, name=name, model=Scaled(1.0), say=said.append).complete
    assert said == [f"{folder} is complete."]


def test_a_change_that_the_last_examples_alone_show_is_noticed(tmp_path):
    x = inputs()
    x[-1] = 10.0
    begin(tmp_path / "K.zarr", name="tangent", model=Clipped(100.0), x1=x)
    with pytest.raises(StoreError, match="differs by"):
        begin(tmp_path / "K.zarr", name="tangent", model=Clipped(5.0), x1=x)


def test_few_entries_of_a_complete_store_are_computed_again_and_a_block_where_they_differ(tmp_path, monkeypatch):
    kernel = begin(tmp_path / "K.zarr")
    computed, values = [], TiledKernel.values

    def other(self, tile):
        """Few entries at a time are computed in a way that rounds otherwise."""
        computed.append(tile.shape)
        return values(self, tile) * (1.01 if tile.shape == (2, 2) else 1.0)

    monkeypatch.setattr(TiledKernel, "values", other)
    assert begin(tmp_path / "K.zarr").complete
    assert computed == [(8, 8), (6, 6)]  # of the first tile and of the last
    monkeypatch.setattr(same_kernel, "CORNER", 2)
    computed.clear()
    assert begin(tmp_path / "K.zarr").complete
    assert computed == [(2, 2), (8, 8), (2, 2), (6, 6)]
    first = next(kernel.plan.tiles())
    kernel.write(first, 1.5 * kernel.values(first))
    with pytest.raises(StoreError, match=rf"or the tile {kernel.file_of(first)} is wrong"):
        begin(tmp_path / "K.zarr")


def test_a_damaged_tile_of_a_complete_store_is_named(tmp_path):
    begin(tmp_path / "K.zarr")
    file = tiles_of(tmp_path / "K.zarr")[0]
    file.write_bytes(b"nothing")
    with pytest.raises(StoreError, match=rf"is damaged .* remove the file {file}"):
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
    assert same_kernel.relative_gap(torch.tensor([stored]), torch.tensor([computed])) == gap


@pytest.mark.parametrize("threads", [0, -2, 1025, 100_000])
def test_numbers_of_threads_that_no_machine_has_are_refused(threads, tmp_path):
    with pytest.raises(ValueError, match=f"`threads` must be from 1 to 1024, got {threads}; one for each processor"):
        begin(tmp_path / "K.zarr", threads=threads)
    assert list(tmp_path.iterdir()) == []


def test_two_processes_do_not_write_one_store(tmp_path):
    folder, recipe = tmp_path / "K.zarr", make_recipe("path", network(), inputs())

    class Rival(ThisMachine):
        def computed(self, *arguments):
            with pytest.raises(StoreError, match="another process is writing"):
                write_kernel(folder, recipe, ThisMachine())
            return super().computed(*arguments)

    assert write_kernel(folder, recipe, Rival()).complete


def test_a_full_disk_keeps_the_finished_tiles(tmp_path, undisturbed, monkeypatch):
    folder = tmp_path / "K.zarr"
    write, left = StoredKernel.write, iter(range(4))

    def full(self, tile, values):
        if next(left, None) is None:
            raise OSError(28, "No space left on device")
        write(self, tile, values)

    with monkeypatch.context() as patch:
        patch.setattr(StoredKernel, "write", full)
        with pytest.raises(StoreError, match=r"No space left on device. 4 of 15 tiles are there and good. Make room"):
            begin(folder)
    with monkeypatch.context() as patch:
        patch.setattr(storing.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 100, 0))
        with pytest.raises(StoreError, match=r"needs .* on the disk, where 0 bytes are free"):
            begin(folder)
    begin(folder)
    assert contents(folder) == undisturbed


def test_a_read_only_folder_is_named():
    with tempfile.TemporaryDirectory() as folder:  # not below pytest's, which only its owner may enter
        Path(folder).chmod(0o555)
        with unprivileged(), pytest.raises(StoreError, match="cannot be written to: Permission denied"):
            begin(Path(folder) / "K.zarr")


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("text")
    with pytest.raises(StoreError, match="cannot be written to: Not a directory"):
        begin(tmp_path / "file" / "K.zarr")


def test_a_kernel_beyond_its_dtype_is_refused(tmp_path):
    with pytest.raises(OverflowError, match="the path kernel passes the range of float32: normalize"):
        begin(tmp_path / "K.zarr", x1=1e25 * inputs())
    assert open_kernel(tmp_path / "K.zarr").n_finished == 0


def test_threads_of_torch_stay_as_they_were(tmp_path):
    before = torch.get_num_threads()
    model, x = nets.GCONV((1, 3, 2), 2, channels=(4,)), torch.rand(9, 1, 3, 2)
    kernel = begin(tmp_path / "K.zarr", threads=3, model=model, x1=x)
    assert kernel.description.threads == 3
    assert torch.get_num_threads() == before


def verified(folder, n_tiles=99, **changes):
    given = {"name": "path", "model": network(), "x1": inputs(), **changes}
    return verify_kernel(folder, given["name"], given["model"], given["x1"], n_tiles=n_tiles)


def test_verify_finds_nothing_in_a_good_store(tmp_path):
    begin(tmp_path / "K.zarr")
    found = verified(tmp_path / "K.zarr", 4)
    assert found.good
    assert str(found).splitlines() == [
        "15 of 15 tiles are there; 15 have the right checksum", "4 computed again: 4 equal bit for bit",
    ]  # fmt: skip
    assert verified(tmp_path / "K.zarr").n_recomputed == 15
    with pytest.raises(StoreError, match=r"What differs: inputs"):
        verified(tmp_path / "K.zarr", x1=inputs(seed=3))
    with pytest.raises(ValueError, match="`n_tiles` must be 0 or more"):
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
    assert "To repair, remove these files" in str(found)
    for file in (*found.damaged, *found.wrong, *found.rounded):
        file.unlink()
    assert verified(folder).n_missing == 3
    begin(folder)
    assert contents(folder) == undisturbed
