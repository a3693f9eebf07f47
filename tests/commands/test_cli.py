import errno
import json
import subprocess
import sys
import textwrap

import pytest
import torch

from neuralpath.cli import main
from neuralpath.papers.commands.results import StatusCommand
from neuralpath.training import Terminated

GOOD = textwrap.dedent("""
    from torch import nn

    def make_net(width=4):
        return nn.Sequential(nn.Flatten(), nn.Linear(12, width), nn.ReLU(), nn.Linear(width, 2))

    def make_bad():
        return nn.Sequential(nn.Linear(12, 4), nn.LayerNorm(4), nn.Softmax(1))

    def make_softplus():
        return nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.Softplus(), nn.Linear(4, 2))

    def fails():
        raise RuntimeError("no such luck")

    def not_a_module():
        return 3

    def ends_itself():
        raise SystemExit(3)

    class EndsWhileRunning(nn.Module):
        def forward(self, x):
            raise SystemExit(4)

    number = 3

    instance = make_net(5)
""")


@pytest.fixture
def model_file(tmp_path):
    path = tmp_path / "my_model.py"
    path.write_text(GOOD)
    return path


def test_a_folder_that_may_not_be_read_is_named(tmp_path, capsys, monkeypatch):
    def refused(self):
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path))

    monkeypatch.setattr(StatusCommand, "run", refused)
    assert main(["papers", "status", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"neuralpath: {tmp_path}: Permission denied\n"


def test_sigterm_during_training_ends_with_its_own_status(capsys, monkeypatch):
    def stopped(*args, **settings):
        raise Terminated("stopped after step 3")

    monkeypatch.setattr("neuralpath.training.train", stopped)
    assert main(["gates", "fc", "--data", "digits", "--set", "width=4", "depth=2", "--train", "1"]) == 143
    said = capsys.readouterr().err
    assert "sys.exit" not in said


def test_inspect_one_of_ours_as_a_table(capsys):
    assert main(["inspect", "fc", "--input-shape", "784", "--set", "width=128", "depth=6"]) == 0
    out = capsys.readouterr().out
    assert "paths into one output: 26,938,034,880,512" in out
    assert "FC is supported" in out


def test_inspect_a_users_file_as_json(model_file, capsys):
    assert main(["inspect", f"{model_file}:make_net", "--input-shape", "3", "4", "--set", "width=5", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["supported"]
    assert record["n_paths"] == 12 * 5 + 5 + 1
    assert record["gates"] == {"2": 5}
    assert [node["kind"] for node in record["nodes"]][:3] == ["input", "reshape", "linear"]


def test_a_file_may_hold_the_model_itself(model_file, capsys):
    assert main(["inspect", f"{model_file}:instance", "--input-shape", "12", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gates"] == {"2": 5}
    assert main(["inspect", f"{model_file}:instance", "--input-shape", "12", "--set", "width=3"]) == 1
    assert "leave out --set" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("widht=16", "fc has no argument 'widht'. Did you mean 'width'? --set takes: width, depth=None"),
        ("width=abc", "fc: `width` must be an integer or a sequence such as (8, 16), got 'abc'."),
        ("bias=maybe", "fc: `bias` must be True or False, got 'maybe'."),
        ("generator=1", "fc has no argument 'generator'."),
        ("width=0", "`width` must be an integer of at least 1, got 0. --set takes: width, depth=None"),
        ("init=glorott", "Did you mean 'glorot'?"),
    ],
)
def test_arguments_of_our_networks_are_explained(setting, message, capsys):
    settings = ["width=4", "depth=2", setting]
    assert main(["inspect", "fc", "--input-shape", "12", "--set", *settings]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_callable_with_any_arguments_takes_them(tmp_path):
    (tmp_path / "free.py").write_text(
        "from torch import nn\ndef make(*sizes, **more):\n    return nn.Linear(more['n'], 1)\n"
    )
    assert main(["inspect", f"{tmp_path / 'free.py'}:make", "--input-shape", "3", "--set", "n=3"]) == 0


def test_inspect_a_model_that_cannot_be_read(model_file, capsys):
    assert main(["inspect", f"{model_file}:make_bad", "--input-shape", "12", "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert [entry["operation"] for entry in record["unreadable"]] == ["layer_norm", "softmax"]
    assert main(["inspect", f"{model_file}:make_bad", "--input-shape", "12"]) == 1
    assert "not supported: 2 problems" in capsys.readouterr().out


def test_inspect_a_model_without_paths(model_file, capsys):
    assert main(["inspect", f"{model_file}:make_softplus", "--input-shape", "12"]) == 0
    assert "no path goes through an activation that is not a gate" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nowhere.py:net", "there is no file 'nowhere.py'"),
        ("{file}:nothing", "has no 'nothing'. Callables in it: EndsWhileRunning, ends_itself, fails, make_bad"),
        ("{file}", "{file}:NAME"),
        ("{file}:number", "'number' in {file} is a int"),
        ("{file}:fails", "fails in {file} failed (line 14): RuntimeError: no such luck"),
        ("{file}:not_a_module", "returned a int, not a torch.nn.Module"),
        ("{file}:ends_itself", "ends_itself in {file} failed (line 20): SystemExit: 3"),
        ("{file}:EndsWhileRunning", "EndsWhileRunning called sys.exit(4) while it ran"),
        ("fc", "fc needs width. --set takes: width, depth=None, n_outputs=1, bias=False, init='glorot'."),
        ("gcon", "gconv"),
    ],
)
def test_mistakes_with_the_model_are_one_line(model, message, model_file, capsys):
    assert main(["inspect", model.format(file=model_file), "--input-shape", "12"]) == 1
    error = capsys.readouterr().err
    assert message.format(file=model_file) in error
    assert "Traceback" not in error
    assert error.count("\n") == 1


def test_wrong_settings_and_shapes(model_file, capsys):
    assert main(["inspect", f"{model_file}:make_net", "--input-shape", "12", "--set", "wide=3"]) == 1
    assert "has no argument 'wide'. Did you mean 'width'? --set takes: width=4." in capsys.readouterr().err
    assert main(["inspect", f"{model_file}:make_net", "--input-shape", "12", "--set", "width"]) == 1
    assert "--set takes name=value" in capsys.readouterr().err
    assert main(["inspect", f"{model_file}:make_net", "--input-shape", "13"]) == 1
    assert "could not run on `example`" in capsys.readouterr().err


@pytest.mark.parametrize("sizes", [["-4"], ["3", "0"], ["999999999999", "999999999999"]])
def test_shapes_that_no_example_has(sizes, model_file, capsys):
    assert main(["inspect", f"{model_file}:make_net", "--input-shape", *sizes]) == 1
    error = capsys.readouterr().err
    assert error.startswith("neuralpath: --input-shape")
    assert error.count("\n") == 1


@pytest.mark.parametrize("seed", ["-1", "99999999999999999999999"])
def test_demo_refuses_a_seed_that_torch_does_not_take(seed, tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path / "demo"), "--seed", seed]) == 1
    assert f"--seed takes a number from 0 to 9223372036854775807, got {seed}" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["", "below"])
def test_demo_refuses_a_folder_that_cannot_be(place, model_file, capsys):
    assert main(["demo", "--out", str(model_file / place)]) == 1
    error = capsys.readouterr().err
    assert f"--out {model_file / place}" in error
    assert error.count("\n") == 1


def test_inspect_traces_once(model_file, monkeypatch):
    calls = []
    export = torch.export.export
    monkeypatch.setattr(torch.export, "export", lambda *args, **kwargs: calls.append(1) or export(*args, **kwargs))
    assert main(["inspect", f"{model_file}:make_net", "--input-shape", "12"]) == 0
    assert len(calls) == 1


def test_a_file_that_does_not_import(tmp_path, capsys):
    path = tmp_path / "broken.py"
    path.write_text("import torch\nx = 1 / 0\n")
    assert main(["inspect", f"{path}:net", "--input-shape", "3"]) == 1
    assert f"{path} could not be imported (line 2): ZeroDivisionError" in capsys.readouterr().err


def test_bad_usage_is_two(capsys):
    assert main(["inspect"]) == 2
    assert main(["nonsense"]) == 2
    capsys.readouterr()
    assert main(["kernal", "fc"]) == 2
    assert capsys.readouterr().err == "neuralpath: there is no command 'kernal': did you mean kernel?\n"
    for arguments, command in ((["run", "regimes"], "papers run"), (["papers", "lst"], "papers list")):
        assert main(arguments) == 2
        assert f"did you mean {command}?" in capsys.readouterr().err
    assert main(["inspect", "fc", "--input-shape", "many"]) == 2
    assert "input-shape" in capsys.readouterr().err


def test_data_check_and_fetch_speak_plainly(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("NEURALPATH_DATA", raising=False)
    assert main(["data", "check"]) == 0
    assert "missing" in capsys.readouterr().out
    assert main(["data", "check", "--json"]) == 0
    assert {row["name"] for row in json.loads(capsys.readouterr().out)} >= {"mnist", "cifar10"}
    assert main(["data", "fetch", "mnits"]) == 1
    assert "mnist" in capsys.readouterr().err
    assert main(["data", "check", "--data-dir", str(tmp_path / "none")]) == 1
    assert "Traceback" not in capsys.readouterr().err


def test_demo_shows_the_path_view(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path / "demo")]) == 0
    out = capsys.readouterr().out
    assert "16,777,216 paths" in out
    assert "before training" in out
    assert "after training" in out


def test_version_and_help_do_not_load_torch():
    for args in (
        "['--version']",
        "['--help']",
        "['inspect', '--help']",
        "['data', 'fetch', '--help']",
        "['papers', '--help']",
    ):
        code = f"import sys; from neuralpath.cli import main; main({args}); sys.exit('torch' in sys.modules)"
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        assert result.stdout.strip()


def test_kernel_is_written_as_npy_and_zarr(tmp_path, capsys):
    import numpy as np

    from neuralpath.kernels import open_kernel

    arguments = ["--data", "digits", "--count", "12", "--set", "width=8", "depth=3"]
    assert main(["kernel", "fc", "--out", str(tmp_path / "K.npy"), *arguments]) == 0
    assert "pairs in" in capsys.readouterr().err  # the plan, with its memory, comes first
    kernel = np.load(tmp_path / "K.npy")
    assert kernel.shape == (12, 12)
    assert np.array_equal(kernel, kernel.T)
    assert np.linalg.eigvalsh(kernel.astype(float))[0] > -1e-4 * np.trace(kernel)
    assert main(["kernel", "fc", "--out", str(tmp_path / "K.zarr"), *arguments]) == 0
    assert np.array_equal(open_kernel(tmp_path / "K.zarr"), kernel)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["K.npy", "K.zarr"]


def test_kernel_with_weights_of_a_file(tmp_path, capsys):
    import numpy as np
    from safetensors.torch import save_file

    from neuralpath import nets

    model = nets.FC((1, 8, 8), 8, 3)
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    arguments = ["kernel", "fc", "--data", "digits", "--count", "5", "--set", "width=8", "depth=3"]
    weights = ["--weights", str(tmp_path / "w.safetensors")]
    assert main([*arguments, *weights, "--out", str(tmp_path / "a.npy"), "--seed", "1"]) == 0
    assert main([*arguments, *weights, "--out", str(tmp_path / "b.npy"), "--seed", "2"]) == 0
    assert np.array_equal(np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy"))
    assert main([*arguments[:-2], "width=9", "depth=3", *weights, "--out", str(tmp_path / "c.npy")]) == 1
    assert "does not fit the model: layers.linear1.weight has the shape (8, 64), not (9, 64)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--out", "K.txt"], "--out must end in .npy or .zarr"),
        (["--memory", "much"], "much"),
        (["--memory", "10"], "give at least memory="),
        (["--count", "0"], "--count must be from 1 to 1,437"),
        (["--data", "digit"], "digits"),
        (["--weights", "none.safetensors"], "none.safetensors cannot be read as a safetensors file"),
    ],
)
def test_kernel_mistakes_are_one_line_and_leave_nothing(change, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = {"--data": "digits", "--out": "K.npy", "--count": "4", **dict([change])}
    flags = [word for pair in arguments.items() for word in pair]
    assert main(["kernel", "fc", *flags, "--set", "width=8", "depth=3"]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == []
