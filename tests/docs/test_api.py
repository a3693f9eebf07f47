"""The API pages have every public name once, and each has an example that the doctests run."""

import importlib
import inspect
from collections import Counter

import pytest

from docs.pages import PAGES, hook
from docs.public_arguments import undocumented

api = hook("api")
NAMES = sorted(api.public_names())

# Records that a call returns, or describes data with: the example is that of the call.
SHOWN_BY = {
    "kernels.Concentration": "kernels.concentration",
    "paths.GateSwitches": "gate_switches",
    "training.GatingInformation": "gating_information",
    "kernels.LabelEnergySplit": "kernels.label_energy_by_eigenvector",
    "estimators.LeaveOneOut": "KernelRegressor",
    "kernels.LimitParts": "limit_tangent_parts",
    "paths.Neighbors": "nearest",
    "estimators.RidgePath": "KernelRegressor",
    "estimators.SolveReport": "KernelRegressor",
    "kernels.GradientSteps": "KernelDynamics",
    "StoredKernel": "Kernel",
    "SupportReport": "supported",
    "kernels.TangentParts": "tangent_parts",
    "kernels.Tile": "PathKernel",
    "kernels.TiledKernel": "PathKernel",
    "data.CheckResult": "data.check",
    "data.Checksum": "data.load",
    "data.CifarSource": "data.load",
    "data.DataFile": "data.load",
    "data.Dataset": "data.load",
    "data.Download": "data.load",
    "data.IdxSource": "data.load",
    "data.Split": "data.load",
    "nets.Fans": "nets.initialize",
    "nets.Initialization": "nets.initialize",
    "training.EpochMetrics": "training.train",
    "training.Measurement": "training.train",
    "training.TrainingMoment": "training.train",
    "training.TrainingResult": "training.train",
}
NO_EXAMPLE = ("neuralpath.data.fetch", "neuralpath.gating.draw_hyperplanes")  # a download, a picture file


def _object(name):
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def test_every_public_name_is_on_one_page():
    on_pages = Counter(api.names_on(page.read_text() for page in PAGES))
    assert sorted(on_pages) == NAMES
    assert {name for name, count in on_pages.items() if count > 1} == set()


@pytest.mark.parametrize("name", NAMES)
def test_public_name_is_documented_with_an_example(name):
    thing = _object(name)
    if not callable(thing):
        return  # a table of names, documented where it stands
    assert len(inspect.getdoc(thing) or "") > 20
    assert undocumented(thing) == [], f"{name}: no line under Args, and no docstring of the field"
    is_error = isinstance(thing, type) and issubclass(thing, BaseException)  # met, not called
    if is_error or name in NO_EXAMPLE:
        return
    shown_by = f"neuralpath.{SHOWN_BY.get(name.removeprefix('neuralpath.'), name.removeprefix('neuralpath.'))}"
    assert ">>>" in (inspect.getdoc(_object(shown_by)) or ""), f"{shown_by} has no example in its docstring"


def test_records_are_public_names():
    assert {f"neuralpath.{name}" for name in SHOWN_BY} <= set(NAMES)


def test_a_comment_without_names_is_refused():
    from mkdocs.exceptions import PluginError

    with pytest.raises(PluginError, match="nowhere have no public name"):
        api.with_names("<!-- public names of: nowhere -->", "page.md")
