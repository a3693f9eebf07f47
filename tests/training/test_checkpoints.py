"""Checkpoints on disk: whole or not there, verified, and of one run only."""

import dataclasses
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from safetensors.torch import load_file
from torch import nn

import neuralpath as npath
from neuralpath import nets, training
from neuralpath._hashing import json_digest, weights_digest
from neuralpath.training import CheckpointError, CheckpointWarning, load_weights
from neuralpath.training.checkpoints import CheckpointFolder, TrainingState, differences

train = functools.partial(training.train, checkpoint_seconds=0)  # a checkpoint at the end of each epoch


@pytest.fixture
def stopped(net, data, config, tmp_path, interrupt_at):
    """A folder with the checkpoint of epoch 2 (step 14), and the model at the end of the run."""
    with pytest.raises(KeyboardInterrupt):
        train(net("fc"), *data, config, folder=tmp_path, augment=interrupt_at(16))
    whole = net("fc")
    train(whole, *data, config, augment=interrupt_at(-1))
    return tmp_path, whole


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def pair(epoch):
    return [f"checkpoint-{epoch:06d}.{end}" for end in ("json", "safetensors")]


def resume(net, data, config, folder, interrupt_at, **arguments):
    model = net("fc", 1)
    train(model, *data, config, folder=folder, augment=interrupt_at(-1), **arguments)
    return model


def small_state(epoch=1):
    """A state whose weights are the number of its epoch."""
    model = nn.Linear(2, 3)
    with torch.no_grad():
        model.weight.fill_(epoch)
    return TrainingState(model, torch.optim.Adam(model.parameters()), epoch=epoch, step=10 * epoch)


def test_the_newest_checkpoint_is_there(stopped, net, data, config, interrupt_at, same_state):
    folder, whole = stopped
    assert names(folder) == pair(2)
    assert json.loads((folder / pair(2)[0]).read_text())["values"]["step"] == 14
    same_state(resume(net, data, config, folder, interrupt_at), whole)
    assert names(folder) == pair(3)


def test_after_some_seconds_and_after_the_last_epoch(net, data, config, tmp_path, monkeypatch):
    now, seen = 0.0, []
    monkeypatch.setattr("neuralpath.training.loop.time", SimpleNamespace(perf_counter=lambda: now))

    def hook(moment):
        nonlocal now
        now += 20
        seen.append(names(tmp_path))

    config = dataclasses.replace(config, epochs=5)
    train(net("fc"), *data, config, folder=tmp_path, checkpoint_seconds=50, hooks=[hook])
    assert seen == [[], [], [], pair(2), pair(2), pair(2)]
    assert names(tmp_path) == pair(5)
    with pytest.raises(ValueError, match=r"`checkpoint_seconds`.* got -1"):
        train(net("fc"), *data, config, checkpoint_seconds=-1)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-7])


def empty(path):
    path.write_bytes(b"")


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def replace_by_other_json(path):
    path.write_text('["not", "a", "checkpoint"]')


@pytest.mark.parametrize("end", ["json", "safetensors"])
@pytest.mark.parametrize("damage", [truncate, empty, flip_a_bit, replace_by_other_json, os.unlink])
def test_a_damaged_checkpoint_is_refused(end, damage, stopped, net, data, config, interrupt_at):
    folder, whole = stopped
    damage(folder / f"checkpoint-000002.{end}")
    if damage is os.unlink and end == "json":  # without its JSON there is no checkpoint: the run starts again
        model = resume(net, data, config, folder, interrupt_at)
        assert not torch.equal(model.layers.linear1.weight, whole.layers.linear1.weight)
        return
    with pytest.raises(CheckpointError, match=rf"checkpoint-000002\.{end} is damaged .*remove {folder}"):
        resume(net, data, config, folder, interrupt_at)


def test_files_of_a_killed_process_are_ignored_and_removed(stopped, net, data, config, interrupt_at, same_state):
    folder, whole = stopped
    (folder / "checkpoint-000003.safetensors").write_bytes(b"no JSON was written after it")
    (folder / "checkpoint-000003.json.1-1.part").write_bytes(b"{")
    (folder / pair(1)[0]).write_bytes(b"an older one that was not removed yet")
    same_state(resume(net, data, config, folder, interrupt_at), whole)
    assert names(folder) == pair(3)


def test_every_flipped_bit_is_detected(tmp_path):
    state = small_state(7)
    CheckpointFolder(tmp_path, {"model": []}).save(state)

    @settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.sampled_from(["json", "safetensors"]), st.floats(0, 1, exclude_max=True), st.integers(0, 7))
    def flip(end, where, bit):
        path = tmp_path / f"checkpoint-000007.{end}"
        whole = path.read_bytes()
        broken = bytearray(whole)
        broken[int(where * len(whole))] ^= 1 << bit
        path.write_bytes(broken)
        restored = small_state(0)
        try:
            CheckpointFolder(tmp_path, {"model": []}).restore(restored)
        except CheckpointError:
            pass
        else:  # a space that became another space has the same meaning
            assert (restored.epoch, restored.step) == (7, 70)
            assert torch.equal(restored.model.weight, state.model.weight)
        path.write_bytes(whole)

    flip()


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(
    stopped, net, data, config, interrupt_at, monkeypatch
):
    folder, _ = stopped

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=rf"{folder}.* No space left on device"):
        resume(net, data, config, folder, interrupt_at)
    assert names(folder) == pair(2)


def test_a_folder_that_is_removed_during_the_run_is_one_message(net, data, config, tmp_path):
    folder = tmp_path / "run"
    hooks = [lambda moment: moment.epoch == 1 and shutil.rmtree(folder)]
    with pytest.raises(CheckpointError, match=rf"{folder}, which was removed"):
        train(net("fc"), *data, config, folder=folder, hooks=hooks)


def test_the_safetensors_file_has_the_weights(net, data, config, tmp_path, same_state):
    model = net("dropout-and-batch-norm")
    train(model, *data, config, folder=tmp_path)
    saved = load_file(max(tmp_path.glob("*.safetensors")))
    other = net("dropout-and-batch-norm", 3)
    load_weights(other, {k.removeprefix("model."): v for k, v in saved.items() if k.startswith("model.")})
    same_state(other, model)
    values = json.loads(max(tmp_path.glob("*.json")).read_text())["values"]
    assert values["description"]["config"]["kind"] == "TrainingConfig"
    assert values["versions"]["torch"] == torch.__version__


def test_another_run_is_refused(stopped, net, data, config, blobs, interrupt_at):
    folder, _ = stopped
    other = dataclasses.replace(config, batch_size=4, seed=3)
    with pytest.raises(CheckpointError, match=r"config\.batch_size is 8 .* and 4 here; config\.seed is 0 .* and 3"):
        resume(net, data, other, folder, interrupt_at)
    with pytest.raises(CheckpointError, match=r"test\.sha256 is '"):
        resume(net, (data[0], blobs(40, seed=2)), config, folder, interrupt_at)
    with pytest.raises(CheckpointError, match=r"augment is 'InterruptAt' .* and None here"):
        train(net("fc"), *data, config, folder=folder)
    with pytest.raises(CheckpointError, match=r"identity\.width is None .* and 12 here"):
        resume(net, data, config, folder, interrupt_at, identity={"width": 12})


def gated(**settings):
    model = nets.FC((1, 4, 4), 6, 4, 3, generator=torch.Generator().manual_seed(0))
    return npath.decouple(model, "FL", generator=torch.Generator().manual_seed(1), **settings)


def test_another_order_of_gates_is_another_run(data, config, tmp_path, same_state):
    first = gated()
    result = train(first, *data, config, folder=tmp_path)
    other, same = (gated(gate_order="reversed") for _ in range(2))
    assert train(gated(gate_order="reversed"), *data, config) != result
    with pytest.raises(CheckpointError, match=r"model\[1\] is '.*' .* and '.*gate_order=reversed, .*' here"):
        train(other, *data, config, folder=tmp_path)
    same_state(other, same)  # a refused model keeps its weights
    again = gated()
    assert train(again, *data, config, folder=tmp_path) == result
    same_state(again, first)


def test_another_activation_is_another_run(data, config, tmp_path):
    def make(activation):
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), activation, nn.Linear(8, 3))

    train(make(nn.ReLU()), *data, config, folder=tmp_path)
    with pytest.raises(CheckpointError, match=r"model\[3\] is .*: ReLU\(\)' .* and .*: LeakyReLU\("):
        train(make(nn.LeakyReLU()), *data, config, folder=tmp_path)


def test_an_identity_distinguishes_first_weights(net, data, config, tmp_path, same_state):
    """Without one, a model that is made again with other random weights resumes the run."""
    whole = net("fc")
    train(whole, *data, config, folder=tmp_path, identity={"weights": weights_digest(net("fc"))})
    other = net("fc", 1)
    with pytest.raises(CheckpointError, match=r"identity\.weights is"):
        train(other, *data, config, folder=tmp_path, identity={"weights": weights_digest(other)})
    train(other, *data, config, folder=tmp_path, identity={"weights": weights_digest(net("fc"))})
    same_state(other, whole)


def test_differences_of_lists_are_the_first_only():
    assert differences(["a", "b"], ["a", "b"]) == []
    assert differences({"x": ["a", "b", "c"]}, {"x": ["a", "d", "e"]}) == ["x[1] is 'b' in the folder and 'd' here"]
    assert differences(["a"], ["a", "b"], "x") == ["x[1] is None in the folder and 'b' here"]


def test_weights_that_do_not_fit_are_named(net):
    model = net("fc")
    with pytest.raises(CheckpointError, match=r"missing: layers\.linear1\.weight, .*; unknown .*: 0\.weight"):
        load_weights(model, net("dropout-and-batch-norm").state_dict())
    weights = {name: tensor[:1] for name, tensor in model.state_dict().items()}
    with pytest.raises(CheckpointError, match=r"linear1\.weight \(float32 of shape \(1, 16\), the model has"):
        load_weights(model, weights)


@pytest.mark.parametrize(("number", "age"), [(1, "earlier"), (3, "later")])
def test_another_format_is_refused(number, age, tmp_path):
    CheckpointFolder(tmp_path, {"model": []}).save(small_state())
    path = tmp_path / pair(1)[0]
    record = json.loads(path.read_text())
    body = {"format": number, "tensors": record["tensors"], "values": record["values"]}
    path.write_text(json.dumps({"sha256": json_digest(body), **body}))
    with pytest.raises(CheckpointError, match=f"format {number} of an? {age} version, .* format 2"):
        CheckpointFolder(tmp_path, {"model": []}).restore(small_state())


def test_other_versions_warn_and_may_print_a_model_in_another_way(data, config, tmp_path, monkeypatch):
    train(gated(), *data, config, folder=tmp_path)
    monkeypatch.setattr("neuralpath.training.checkpoints.versions", lambda: {"torch": "99.0"})
    with pytest.warns(CheckpointWarning, match=r"rounding: .*torch is .* and '99\.0' here"):
        train(gated(gate_order="reversed"), *data, config, folder=tmp_path)


def test_two_runs_cannot_share_a_folder(net, data, config, tmp_path):
    with CheckpointFolder(tmp_path, {}).locked(), pytest.raises(CheckpointError, match=f"another process.* {tmp_path}"):
        train(net("fc"), *data, config, folder=tmp_path)


def test_a_folder_that_is_a_file_is_refused(net, data, config, tmp_path):
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(CheckpointError, match="file cannot be used: File exists"):
        train(net("fc"), *data, config, folder=path)


def test_state_that_is_not_a_tensor_is_refused_by_name(data, config, tmp_path):
    class WithExtra(torch.nn.Linear):
        def get_extra_state(self):
            return {"calls": 1}

        def set_extra_state(self, state):
            pass

    model = torch.nn.Sequential(torch.nn.Flatten(), WithExtra(16, 3))
    with pytest.raises(TypeError, match=r"'1\._extra_state', a dict"):
        train(model, *data, config, folder=tmp_path)


KILLED_WHILE_WRITING = """
import os, signal, sys
import torch
from pathlib import Path
from torch import nn
from neuralpath.training.checkpoints import CheckpointFolder, TrainingState

calls = int(sys.argv[2])

def counted(function):
    def call(*arguments, **keywords):
        global calls
        calls -= 1
        if calls == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **keywords)
    return call

folder = CheckpointFolder(Path(sys.argv[1]), {"model": []})
for epoch in range(1, 4):
    model = nn.Linear(2, 3)
    nn.init.constant_(model.weight, epoch)
    state = TrainingState(model, torch.optim.Adam(model.parameters()), epoch=epoch)
    if epoch == 3:
        os.replace, os.fsync, os.unlink = counted(os.replace), counted(os.fsync), counted(os.unlink)
    folder.save(state)
"""


@pytest.mark.slow
@pytest.mark.parametrize("call", range(1, 9))
def test_killed_at_every_point_of_a_write(call, tmp_path):
    """Two flushes and a rename for each file, then two removals: a whole checkpoint is left at every point."""
    command = [sys.executable, "-c", KILLED_WHILE_WRITING, str(tmp_path), str(call)]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    state = small_state(0)
    folder = CheckpointFolder(tmp_path, {"model": []})
    folder.restore(state)
    assert state.epoch == (2 if call <= 5 else 3)
    assert torch.equal(state.model.weight, torch.full((3, 2), float(state.epoch)))
    state.epoch = 4
    folder.save(state)
    assert names(tmp_path) == pair(4)
