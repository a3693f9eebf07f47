"""Checkpoints on disk: whole or not there, and damage is found."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from safetensors.torch import load_file

from neuralpath.training import CheckpointError, CheckpointWarning, SaveEvery, load_weights, train
from neuralpath.training.checkpoints import Checkpoint, CheckpointFolder

EVERY_FIVE = SaveEvery(seconds=None, steps=5)


@pytest.fixture
def stopped(net, data, config, tmp_path, interrupt_at):
    """A folder with the checkpoints of steps 10 and 13, and the weights at the end of the run."""
    with pytest.raises(KeyboardInterrupt):
        train(net("fc"), *data, config, folder=tmp_path, save_every=EVERY_FIVE, augment=interrupt_at(12))
    whole = net("fc")
    train(whole, *data, config, augment=interrupt_at(-1))
    return tmp_path, whole


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def steps(folder):
    return [json.loads(path.read_text())["values"]["step"] for path in sorted(folder.glob("*.json"))]


def go_on(net, data, config, folder, interrupt_at):
    model = net("fc", 1)
    train(model, *data, config, folder=folder, save_every=EVERY_FIVE, augment=interrupt_at(-1))
    return model


def test_two_generations_are_kept(stopped):
    folder, _ = stopped
    assert names(folder) == [f"checkpoint-00000{n}.{end}" for n in (2, 3) for end in ("json", "safetensors")]
    assert steps(folder) == [10, 13]


def truncate(path):
    path.write_bytes(path.read_bytes()[:-7])


def empty(path):
    path.write_bytes(b"")


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def remove(path):
    path.unlink()


def replace_by_other_json(path):
    path.write_text('["not", "a", "checkpoint"]')


@pytest.mark.parametrize("end", ["json", "safetensors"])
@pytest.mark.parametrize("damage", [truncate, empty, flip_a_bit, remove, replace_by_other_json])
def test_the_checkpoint_before_a_damaged_one_is_used(end, damage, stopped, net, data, config, interrupt_at, same_state):
    folder, whole = stopped
    damage(folder / f"checkpoint-000003.{end}")
    if damage is remove and end == "json":  # as after a kill between the two files: not a checkpoint, nothing to tell
        model = go_on(net, data, config, folder, interrupt_at)
    else:
        with pytest.warns(CheckpointWarning, match=rf"checkpoint-000003\.{end} .*goes on from .*checkpoint-000002"):
            model = go_on(net, data, config, folder, interrupt_at)
    same_state(model, whole)


def test_a_damaged_checkpoint_never_takes_the_place_of_a_good_one(stopped, net, data, config, interrupt_at):
    folder, _ = stopped
    flip_a_bit(folder / "checkpoint-000003.safetensors")
    with pytest.warns(CheckpointWarning), pytest.raises(KeyboardInterrupt):
        train(net("fc"), *data, config, folder=folder, save_every=EVERY_FIVE, augment=interrupt_at(2))
    assert steps(folder) == [10, 13]
    assert names(folder) == [f"checkpoint-00000{n}.{end}" for n in (2, 4) for end in ("json", "safetensors")]


def test_only_damaged_checkpoints_are_refused(stopped, net, data, config, interrupt_at):
    folder, _ = stopped
    truncate(folder / "checkpoint-000002.json")
    flip_a_bit(folder / "checkpoint-000003.safetensors")
    with pytest.raises(CheckpointError, match=r"000003\.safetensors is damaged.*000002\.json is damaged.*No good"):
        go_on(net, data, config, folder, interrupt_at)


def test_leavings_of_a_kill_are_passed_over_and_removed(stopped, net, data, config, interrupt_at, same_state):
    folder, whole = stopped
    (folder / "checkpoint-000004.safetensors").write_bytes(b"no JSON came after it")
    (folder / "checkpoint-000004.json.part").write_bytes(b"{")
    same_state(go_on(net, data, config, folder, interrupt_at), whole)
    assert all(name.endswith((".json", ".safetensors")) for name in names(folder))
    assert len(names(folder)) == 4


def test_every_flipped_bit_is_found(tmp_path):
    tensors = {"weight": torch.arange(6.0).reshape(2, 3), "empty": torch.zeros(0), "scalar": torch.tensor(3)}

    @settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.sampled_from(["json", "safetensors"]), st.floats(0, 1, exclude_max=True), st.integers(0, 7))
    def flip(end, where, bit):
        with CheckpointFolder(tmp_path) as folder:
            folder.write(Checkpoint(tensors, {"step": 1, "loss": 0.1}))
            path = max(tmp_path.glob(f"*.{end}"))
            whole = path.read_bytes()
            broken = bytearray(whole)
            broken[int(where * len(whole))] ^= 1 << bit
            path.write_bytes(broken)
            try:
                found = CheckpointFolder(tmp_path).newest()
            except CheckpointError:
                found = None
            except Warning:  # pytest makes errors of warnings: the one before was used
                found = None
            if found is not None:  # a space that became another space says the same
                assert found.values == {"step": 1, "loss": 0.1}
                assert all(torch.equal(found.tensors[name], tensor) for name, tensor in tensors.items())
            path.write_bytes(whole)

    flip()


def test_a_checkpoint_that_cannot_be_written_leaves_the_others(stopped, net, data, config, interrupt_at, monkeypatch):
    folder, _ = stopped
    before = names(folder)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"checkpoint-000004\.json cannot be written: No space left on device"):
        go_on(net, data, config, folder, interrupt_at)
    assert names(folder) == before


@pytest.mark.parametrize("at", ["listing", "writing"])
def test_a_folder_that_is_removed_while_it_is_used_is_one_message(at, net, data, config, tmp_path, monkeypatch):
    folder = tmp_path / "run"

    def remove(*arguments, **keywords):
        shutil.rmtree(folder, ignore_errors=True)

    hooks = []
    if at == "listing":
        hooks = [lambda moment: moment.epoch == 1 and remove()]
    else:
        listed = CheckpointFolder._numbers
        monkeypatch.setattr(CheckpointFolder, "_numbers", lambda self: (listed(self), remove())[0])
    with pytest.raises(CheckpointError, match=r"the folder .*run was removed while the run was using it, .* Begin it"):
        train(net("fc"), *data, config, folder=folder, save_every=EVERY_FIVE, hooks=hooks)


def test_the_safetensors_file_holds_the_weights(net, data, config, tmp_path, same_state):
    model = net("dropout-and-batch-norm")
    train(model, *data, config, folder=tmp_path)
    saved = load_file(max(tmp_path.glob("*.safetensors")))
    other = net("dropout-and-batch-norm", 3)
    load_weights(other, {k.removeprefix("model."): v for k, v in saved.items() if k.startswith("model.")})
    same_state(other, model)
    record = json.loads(max(tmp_path.glob("*.json")).read_text())["values"]
    assert record["about"]["config"]["optimizer"]["kind"] == "Adam"
    assert record["versions"]["torch"] == torch.__version__


def test_the_config_of_another_run_is_refused(stopped, net, data, config, blobs, interrupt_at):
    folder, _ = stopped
    other = dataclasses.replace(config, batch_size=4, seed=3)
    with pytest.raises(CheckpointError, match=r"config\.batch_size is 8 there and 4 here; config\.seed is 0 there"):
        go_on(net, data, other, folder, interrupt_at)
    with pytest.raises(CheckpointError, match=r"test\.sha256 is '"):
        go_on(net, (data[0], blobs(40, seed=2)), config, folder, interrupt_at)
    with pytest.raises(CheckpointError, match=r"augment is 'InterruptAt' there and None here"):
        train(net("fc"), *data, config, folder=folder)
    with pytest.raises(CheckpointError, match=r"identity\.width is None there and 12 here"):
        train(net("fc"), *data, config, folder=folder, augment=interrupt_at(-1), identity={"width": 12})


def test_a_model_that_does_not_fit_is_refused_by_the_names_of_its_weights(stopped, net, data, config, interrupt_at):
    folder, _ = stopped
    with pytest.raises(CheckpointError, match=r"missing: 0\.weight, .* and 12 more; unknown to the model: layers\."):
        train(net("dropout-and-batch-norm"), *data, config, folder=folder, augment=interrupt_at(-1))
    model = net("fc")
    weights = {name: tensor[:1] for name, tensor in model.state_dict().items()}
    with pytest.raises(CheckpointError, match=r"linear1\.weight \(float32 of shape \(1, 16\), the model has"):
        load_weights(model, weights)


def test_a_newer_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("neuralpath.training.checkpoints.FORMAT", 2)
    with CheckpointFolder(tmp_path) as folder:
        folder.write(Checkpoint({}, {}))
        monkeypatch.undo()
        with pytest.raises(CheckpointError, match="has format 2, this version reads format 1"):
            folder.newest()


def test_two_runs_cannot_share_a_folder(net, data, config, tmp_path):
    with CheckpointFolder(tmp_path), pytest.raises(CheckpointError, match="another process is training in"):
        train(net("fc"), *data, config, folder=tmp_path)


def test_a_folder_that_is_a_file_is_refused(net, data, config, tmp_path):
    place = tmp_path / "file"
    place.touch()
    with pytest.raises(CheckpointError, match="file cannot be used: File exists"):
        train(net("fc"), *data, config, folder=place)


def test_state_that_is_no_tensor_is_refused_by_name(data, config, tmp_path):
    class WithExtra(torch.nn.Linear):
        def get_extra_state(self):
            return {"calls": 1}

        def set_extra_state(self, state):
            pass

    model = torch.nn.Sequential(torch.nn.Flatten(), WithExtra(16, 3))
    with pytest.raises(TypeError, match=r"'1\._extra_state', a dict: only tensors can be saved"):
        train(model, *data, config, folder=tmp_path)


KILLED_WHILE_WRITING = """
import os, signal, sys
import torch
from pathlib import Path
from neuralpath.training.checkpoints import Checkpoint, CheckpointFolder

calls, replace, fsync, unlink = int(sys.argv[2]), os.replace, os.fsync, os.unlink

def counted(function):
    def call(*arguments, **keywords):
        global calls
        calls -= 1
        if calls == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **keywords)
    return call

with CheckpointFolder(Path(sys.argv[1])) as folder:
    for step in range(3):
        folder.write(Checkpoint({"weight": torch.full((5,), float(step))}, {"step": step}))
    os.replace, os.fsync, os.unlink = counted(os.replace), counted(os.fsync), counted(os.unlink)
    folder.write(Checkpoint({"weight": torch.full((5,), 3.0)}, {"step": 3}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("call", range(1, 9))
def test_killed_at_every_point_of_a_write(call, tmp_path):
    """Two flushes and a rename for each file, then two removals: a good checkpoint is left at every point."""
    command = [sys.executable, "-c", KILLED_WHILE_WRITING, str(tmp_path), str(call)]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    with CheckpointFolder(tmp_path) as folder:
        found = folder.newest()
        assert found.values["step"] == (2 if call <= 5 else 3)
        assert torch.equal(found.tensors["weight"], torch.full((5,), float(found.values["step"])))
        folder.write(Checkpoint({}, {}))
    assert len(names(tmp_path)) == 4
