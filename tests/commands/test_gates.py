"""`neuralpath gates`: the gating information of a model from the command line."""

import json

import pytest
import torch
from safetensors.torch import save_file

from neuralpath import nets
from neuralpath.cli import main


def test_the_gates_command(tmp_path, capsys):
    model = nets.FC((1, 8, 8), 8, 3, 10, generator=torch.Generator().manual_seed(0))
    save_file(model.state_dict(), tmp_path / "m.safetensors")
    torch.save(model.state_dict(), tmp_path / "m.pt")
    torch.save(model, tmp_path / "whole.pt")
    (tmp_path / "junk.pt").write_text("hello")
    arguments = ["gates", "fc", "--set", "width=8", "depth=3", "n_outputs=10", "--data", "digits", "--epochs", "1"]
    printed = []
    for file in ("m.safetensors", "m.pt"):
        assert main([*arguments, "--no-layers", "--json", "--weights", str(tmp_path / file)]) == 0
        printed.append(json.loads(capsys.readouterr().out))
    assert printed[0] == printed[1]
    assert set(printed[0]) >= {"model", "gates", "random_gates", "share_recovered", "label_energy", "layers"}
    assert main([*arguments, "--weights", str(tmp_path / "m.pt")]) == 0
    out = capsys.readouterr().out
    assert "new weights with its gates" in out
    assert "layers.relu2" in out
    for file in ("whole.pt", "junk.pt"):
        assert main([*arguments, "--weights", str(tmp_path / file)]) == 1
        assert file in capsys.readouterr().err
    assert main([*arguments, "--hyperplanes", str(tmp_path / "h.png")]) == 1
    assert "linear_feature=True" in capsys.readouterr().err


GATES = ["gates", "fc", "--set", "width=8", "depth=3", "--data", "digits", "--epochs", "1", "--no-layers"]


def test_an_untrained_model_is_told_and_can_be_trained(tmp_path, capsys):
    assert main([*GATES, "--no-label-energy", "--threads", "1", "--json"]) == 0
    out, err = capsys.readouterr()
    outputs, weights = err.splitlines()
    assert "fc has 10 outputs" in outputs
    assert "fc has random weights" in weights
    untrained = json.loads(out)
    assert untrained["label_energy"] is None
    arguments = [*GATES, "--train", "3", "--lr", "0.01", "--threads", "1", "--folder", str(tmp_path)]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert "random weights" not in err
    words = " ".join(out.split())
    assert "\N{GREEK SMALL LETTER NU} = y' (H + jitter)^-1 y" in words
    assert "of 300 training examples" in words
    assert (tmp_path / "model").is_dir()
    assert main([*arguments, "--no-label-energy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"] > untrained["model"] + 0.2


@pytest.mark.parametrize("seed", ["-1", "99999999999999999999"])
def test_seeds_that_torch_cannot_take_are_refused(seed, capsys):
    assert main([*GATES, "--seed", seed]) == 1
    assert f"--seed takes a number from 0 to 9223372036854775807, got {seed}." in capsys.readouterr().err


def test_a_picture_that_cannot_be_written_is_one_line(tmp_path, capsys):
    (tmp_path / "file").touch()
    (tmp_path / "mine.py").write_text(
        "from neuralpath import gating\ndef make(): return gating.LinearGatedFC((1, 8, 8), 6, 3, n_outputs=10)\n"
    )
    arguments = ["gates", f"{tmp_path / 'mine.py'}:make", "--data", "digits", "--epochs", "1", "--hyperplanes"]
    assert main([*arguments, str(tmp_path / "file" / "h.png")]) == 1
    assert "file/h.png cannot be written: " in capsys.readouterr().err.splitlines()[-1]
    assert main([*arguments, str(tmp_path)]) == 1
    assert f"{tmp_path} is a folder" in capsys.readouterr().err


def test_a_model_that_fails_is_one_line(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "class Mine(nn.Linear):\n"
        "    def forward(self, x): return self.missing\n"
        "def make(): return Mine(64, 10)\n"
    )
    assert main(["gates", f"{tmp_path / 'mine.py'}:make", "--data", "digits", "--epochs", "1"]) == 1
    assert "'Mine' object has no attribute 'missing'" in capsys.readouterr().err.splitlines()[-1]


def test_a_model_that_is_trained_first_belongs_to_its_weights(tmp_path, capsys):
    model = nets.FC((1, 8, 8), 8, 3, 10, generator=torch.Generator().manual_seed(0))
    arguments = [*GATES, "--no-label-energy", "--batch-size", "512", "--train", "1", "--threads", "1"]
    for number in range(2):
        torch.save(model.state_dict(), tmp_path / f"{number}.pt")
        with torch.no_grad():
            model.layers.linear1.weight.neg_()
    for number, result in ((0, 0), (0, 0), (1, 1)):
        weights = str(tmp_path / f"{number}.pt")
        assert main([*arguments, "--weights", weights, "--folder", str(tmp_path / "runs")]) == result
    assert "another run" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--train", "--epochs"])
def test_numbers_below_one_are_refused(flag, capsys):
    assert main([*GATES, flag, "0"]) == 1
    assert f"{flag} must be at least 1, got 0." in capsys.readouterr().err


@pytest.mark.parametrize("count", ["0", "100000"])
def test_threads_that_no_machine_has_are_refused(count, capsys):
    assert main([*GATES, "--threads", count]) == 1
    assert f"--threads must be from 1 to 1024, got {count};" in capsys.readouterr().err


def test_a_model_for_other_images_is_one_line(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def make(): return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))\n"
    )
    assert main(["gates", f"{tmp_path / 'mine.py'}:make", "--data", "digits", "--train", "1"]) == 1
    error = capsys.readouterr().err
    assert "`model` could not run on one example of `train_data`, a float32 tensor of shape (1, 1, 8, 8): " in error
    assert error.count("\n") == 1
