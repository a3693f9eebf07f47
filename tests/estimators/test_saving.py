"""Machines in files: they come back as they were, nothing in a file is run, and what is not in it is asked for."""

import json
import pickle
from fractions import Fraction

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from sklearn.exceptions import NotFittedError

from estimators.random_data import exponential, graph, kernels, network, rows
from neuralpath import nets
from neuralpath.estimators.classifier import KernelClassifier
from neuralpath.estimators.regressor import KernelRegressor
from neuralpath.estimators.saving import FORMAT
from neuralpath.estimators.sketch_estimators import SketchClassifier, SketchRegressor

X, X_TEST = rows(20), rows(6, seed=1)
Y = rows(20, 2, seed=2)
WORDS = np.array(["ant", "bee", "cow"])[np.arange(20) % 3]


def _fitted(name):
    """A fitted machine, and what it needs to be loaded."""
    return {
        "linear": lambda: (KernelRegressor(ridge=np.float64(0.1)).fit(X, Y), {}),
        "one column": lambda: (KernelRegressor(ridge=1).fit(X, Y[:, 0]), {}),
        "function": lambda: (KernelRegressor(exponential, 0.1).fit(X, Y), {"kernel": exponential}),
        "module": lambda: (KernelRegressor("tangent", 0.1, model=network()).fit(X, Y), {"model": network()}),
        "graph": lambda: (
            KernelRegressor("path", model=graph(), input_shape=(5,), normalize=True).fit(X, Y), {"model": graph()}
        ),
        "float32 and cg": lambda: (KernelRegressor(ridge=0.1, solver="cg").fit(X.astype(np.float32), Y), {}),
        "words": lambda: (KernelClassifier(exponential).fit(X, WORDS), {"kernel": exponential}),
        "objects": lambda: (KernelClassifier(targets="arora").fit(X, WORDS.astype(object)), {}),
        "sketch": lambda: (
            SketchRegressor(graph(), n_features=32, random_state=3).fit(X, Y), {"model": graph()}
        ),
        "sketched classes": lambda: (SketchClassifier(ridge=0.3).fit(X, np.arange(20) % 4), {}),
    }[name]()  # fmt: skip


NAMES = [
    "linear", "one column", "function", "module", "graph", "float32 and cg", "words", "objects", "sketch",
    "sketched classes",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_machine_is_the_saved_one(name, tmp_path):
    machine, needed = _fitted(name)
    machine.save(tmp_path / "machine")
    loaded = type(machine).load(tmp_path / "machine", **needed)
    np.testing.assert_array_equal(loaded.predict(X_TEST), machine.predict(X_TEST))
    assert loaded.predict(X_TEST).dtype == machine.predict(X_TEST).dtype
    mine, theirs = machine.get_params(), loaded.get_params()
    assert set(mine) == set(theirs)
    assert all(mine[key] == theirs[key] for key in mine)
    if hasattr(machine, "report_"):
        assert str(loaded.report_) == str(machine.report_)
        assert loaded.factor_ is None
    if hasattr(machine, "moments_"):  # and it can go on
        extra = (X_TEST, Y[:6]) if name == "sketch" else (X_TEST, np.arange(6) % 4)
        np.testing.assert_array_equal(
            loaded.partial_fit(*extra).predict(X_TEST), machine.partial_fit(*extra).predict(X_TEST)
        )


def test_the_factor_is_saved_if_asked_for(tmp_path):
    machine = KernelRegressor(exponential, 0.1).fit(X, Y)
    machine.save(tmp_path / "with", with_factor=True)
    machine.save(tmp_path / "without")
    loaded = KernelRegressor.load(tmp_path / "with", kernel=exponential)
    for one, other in zip(
        loaded.predict(X_TEST, return_std=True), machine.predict(X_TEST, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(loaded.leave_one_out().predictions, machine.leave_one_out().predictions)
    np.testing.assert_allclose(
        loaded.ridge_path([1.0]).coefficients, machine.ridge_path([1.0]).coefficients, rtol=1e-12
    )
    with pytest.raises(ValueError, match="save it with `with_factor=True`"):
        KernelRegressor.load(tmp_path / "without", kernel=exponential).predict(X_TEST, return_std=True)


def test_a_precomputed_kernel_is_not_in_the_file(tmp_path):
    kernel, cross, _ = kernels(20, 5)
    machine = KernelRegressor("precomputed").fit(kernel, Y)
    machine.save(tmp_path / "machine")
    np.testing.assert_array_equal(KernelRegressor.load(tmp_path / "machine").predict(cross), machine.predict(cross))
    assert (tmp_path / "machine").stat().st_size < 8 * 20 * 20


def test_what_is_not_in_the_file_is_asked_for(tmp_path):
    path = tmp_path / "machine"
    KernelRegressor("tangent", model=network()).fit(X, Y).save(path)
    with pytest.raises(ValueError, match=r"fitted with a `model` that is not in the file.*load\(path, model=...\)"):
        KernelRegressor.load(path)
    with pytest.raises(ValueError, match="without a `kernel` of its own"):
        KernelRegressor.load(path, model=network(), kernel=exponential)
    KernelRegressor(exponential).fit(X, Y).save(path)
    with pytest.raises(ValueError, match="fitted with a `kernel` that is not in the file"):
        KernelRegressor.load(path)


def test_a_model_with_other_weights_is_refused_where_they_matter(tmp_path):
    path = tmp_path / "machine"
    KernelRegressor("tangent", model=network()).fit(X, Y).save(path)
    with pytest.raises(ValueError, match=r"when the machine was fitted, it differs in its weights \(.*weight"):
        KernelRegressor.load(path, model=network(seed=1))
    machine = KernelRegressor("limit-tangent", model=graph()).fit(X, Y)
    machine.save(path)
    loaded = KernelRegressor.load(path, model=network(seed=1))
    np.testing.assert_allclose(loaded.predict(X_TEST), machine.predict(X_TEST), rtol=1e-12)


def test_other_machines_other_formats_and_damage_are_refused(tmp_path):
    path = tmp_path / "machine"
    with pytest.raises(FileNotFoundError, match="there is no file"):
        KernelRegressor.load(path)
    KernelRegressor().fit(X, Y).save(path)
    with pytest.raises(ValueError, match=r"holds a KernelRegressor: load it with `KernelRegressor.load`"):
        KernelClassifier.load(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="is damaged, or no machine"):
        KernelRegressor.load(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="is damaged, or no machine"):
        KernelRegressor.load(path)
    save_file({"a": np.zeros(2)}, path)
    with pytest.raises(ValueError, match="is damaged, or no machine"):
        KernelRegressor.load(path)
    save_file({"a": np.zeros(2)}, path, {"neuralpath.machine": json.dumps({"format": FORMAT + 1})})
    with pytest.raises(ValueError, match=f"has format {FORMAT + 1}, this version reads format {FORMAT}"):
        KernelRegressor.load(path)


def test_nothing_is_unpickled(tmp_path, monkeypatch):
    path = tmp_path / "machine"
    path.write_bytes(pickle.dumps({"a": 1}))
    monkeypatch.setattr(pickle, "loads", lambda *_: pytest.fail("unpickled"))
    monkeypatch.setattr(pickle, "load", lambda *_: pytest.fail("unpickled"))
    monkeypatch.setattr(torch, "load", lambda *_: pytest.fail("unpickled"))
    with pytest.raises(ValueError, match="is damaged, or no machine"):
        KernelRegressor.load(path)
    KernelClassifier().fit(X, WORDS).save(path)
    KernelClassifier.load(path)
    with safe_open(path, "numpy") as file:
        assert "dual_coef_" in file.keys()  # noqa: SIM118  (not a mapping)


@pytest.mark.usefixtures("without_type_checks")
def test_what_cannot_be_saved_is_said(tmp_path):
    with pytest.raises(NotFittedError):
        KernelRegressor().save(tmp_path / "machine")
    with pytest.raises(ValueError, match="`ridge` must be a number or a word to be saved, got a Fraction"):
        KernelRegressor(ridge=Fraction(1, 3)).fit(X, Y).save(tmp_path / "machine")
    dates = np.array(["2020-01-01", "2021-01-01"] * 10, dtype="datetime64[D]")
    machine = KernelClassifier().fit(X, np.arange(20) % 2)
    machine.classes_ = np.unique(dates)
    with pytest.raises(ValueError, match="`classes_` must be numbers or words to be saved"):
        machine.save(tmp_path / "machine")
    assert not (tmp_path / "machine").exists()


@pytest.mark.parametrize("make", [
    lambda model: KernelRegressor("path", 0.1, model=model), lambda model: KernelRegressor("tangent", 0.1, model=model),
    lambda model: KernelClassifier("path", 0.1, model=model), lambda model: SketchRegressor(model, n_features=16),
    lambda model: SketchClassifier(model, n_features=16),
])  # fmt: skip
def test_examples_in_the_shape_of_a_module_need_no_input_shape(make, tmp_path):
    model = nets.GCONV((1, 4, 4), channels=(3,), hidden=()).double()
    images, labels = rows(8, 16).reshape(8, 1, 4, 4), np.arange(8) % 2
    machine = make(model).fit(images, labels)
    expected = machine.predict(images)
    assert np.array_equal(machine.predict(images.reshape(8, 16)), expected)  # rows of the same numbers
    given = make(model).set_params(input_shape=(1, 4, 4)).fit(images.reshape(8, 16), labels)
    assert np.array_equal(given.predict(images), expected)
    machine.save(tmp_path / "machine")
    again = type(machine).load(tmp_path / "machine", model=model)
    assert np.array_equal(again.predict(images), expected)
    with pytest.raises(ValueError, match="could not run on"):  # what the fit before saw does not count
        machine.fit(images.reshape(8, 16), labels)
