"""Models of users' files: run as Python runs a module, and taken out again so that they can be sent to a cluster."""

import pickle
import sys
import textwrap

import pytest
import torch
from distributed.protocol import pickle as dask_pickle
from torch import nn

from neuralpath import nets
from neuralpath.cli import main
from neuralpath.commands import UserError
from neuralpath.commands.models import load_model, load_weights

DATACLASS = textwrap.dedent("""
    from __future__ import annotations

    from dataclasses import dataclass

    from torch import nn

    @dataclass
    class Config:
        width: int = 4

    class Net(nn.Module):
        def __init__(self, config: Config):
            super().__init__()
            self.config = config
            self.first, self.last = nn.Linear(12, config.width), nn.Linear(config.width, 2)

        def forward(self, x):
            return self.last(self.first(x).relu())

    def make_net(width: int = 4):
        return Net(Config(width))

    def makes_a_class():
        @dataclass
        class Other:
            width: int = 5

        return Net(Other())
""")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "with_dataclass.py"
    path.write_text(DATACLASS)
    return path


@pytest.fixture(autouse=True)
def nothing_is_left():
    modules, path = dict(sys.modules), list(sys.path)
    yield
    left = {name for name, module in sys.modules.items() if modules.get(name) is not module}
    for name in left & {"neighbor"}:
        del sys.modules[name]
    assert not left & {"with_dataclass", "_with_dataclass", "random", "_random"}
    assert sys.path == path


@pytest.mark.parametrize("name", ["make_net", "makes_a_class"])
def test_dataclasses_with_annotations_as_text(name, file, capsys):
    assert main(["inspect", f"{file}:{name}", "--input-shape", "12"]) == 0
    assert "Net is supported" in capsys.readouterr().out


def test_a_model_of_a_file_is_pickled_with_its_code(file):
    model = load_model(f"{file}:make_net", (12,), ["width=3"])
    sent = dask_pickle.dumps(model)
    file.unlink()  # a worker does not have it
    received = pickle.loads(sent)
    x = torch.rand(2, 12)
    assert torch.equal(received(x), model(x))
    assert received.config.width == 3


def test_a_file_that_is_called_as_a_module_of_python(tmp_path):
    import random

    path = tmp_path / "random.py"
    path.write_text(DATACLASS + "\nimport random\nassert hasattr(random, 'shuffle')\n")
    assert load_model(f"{path}:make_net", (12,), []).config.width == 4
    assert sys.modules["random"] is random


def test_a_file_may_import_its_neighbors_also_while_it_makes_the_model(tmp_path):
    (tmp_path / "neighbor.py").write_text("import with_dataclass\nwidth = with_dataclass.Config().width + 3\n")
    path = tmp_path / "with_dataclass.py"
    path.write_text(DATACLASS + "\ndef late():\n    import neighbor\n    return Net(Config(neighbor.width))\n")
    assert load_model(f"{path}:late", (12,), []).first.out_features == 7


@pytest.mark.parametrize("end", ["1 / 0", "raise SystemExit(2)", "import sys; sys.path.clear(); 1 / 0"])
def test_nothing_is_left_of_a_file_that_fails(end, file, monkeypatch):
    file.write_text(f"{DATACLASS}\n{end}\n")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        with pytest.raises(UserError, match=r"could not be imported \(line \d+\): (ZeroDivisionError|SystemExit)"):
            load_model(f"{file}:make_net", (12,), [])


def test_weights_of_a_lazy_model_have_the_shapes_of_the_file(tmp_path):
    made = nn.Sequential(nn.Linear(12, 4), nn.ReLU(), nn.Linear(4, 2))
    torch.save(made.state_dict(), tmp_path / "w.pt")
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.Linear(4, 2))
    load_weights(model, tmp_path / "w.pt")
    x = torch.rand(3, 12)
    assert torch.equal(model(x), made(x))
    with pytest.raises(UserError, match=r"2.weight has the shape \(2, 4\), not \(3, 4\)"):
        load_weights(nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.Linear(4, 3)), tmp_path / "w.pt")


@pytest.mark.parametrize("change", [torch.Tensor.to_sparse, lambda weight: weight.to("meta")], ids=["sparse", "meta"])
def test_weights_that_are_no_dense_tensors_are_one_line(change, tmp_path, capsys):
    path = tmp_path / "w.pt"
    state = nets.FC((1, 8, 8), width=4, depth=2).state_dict()
    name = next(iter(state))
    torch.save({**state, name: change(state[name])}, path)
    place = ["--data", "digits", "--count", "5", "--out", str(tmp_path / "K.npy")]
    assert main(["kernel", "fc", "--set", "width=4", "depth=2", "--weights", str(path), *place]) == 1
    error = capsys.readouterr().err
    assert f"neuralpath: {path} does not hold the values of {name} as a dense tensor" in error
    assert "Traceback" not in error


def test_a_model_whose_eval_returns_nothing(file):
    file.write_text(f"{DATACLASS}\nclass Quiet(Net):\n    def eval(self):\n        super().eval()\n"
                    "\ndef quiet():\n    return Quiet(Config())\n")  # fmt: skip
    assert not load_model(f"{file}:quiet", (12,), []).training


@pytest.mark.parametrize("width", ["10000000000000", "1000000000000000000000000000"])
def test_a_network_that_no_memory_holds_is_one_line(width, capsys):
    assert main(["inspect", "fc", "--input-shape", "12", "--set", f"width={width}", "depth=3"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "Traceback" not in error
    assert f"width={width} depth=3" in error
