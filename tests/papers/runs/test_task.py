from dataclasses import dataclass, field

import pytest

from neuralpath._configs import ADDED_LATER, to_json
from neuralpath.papers.experiments.specs import DataSpec, NetSpec
from neuralpath.papers.experiments.trained import TrainGated, TrainNetwork
from neuralpath.papers.runs.task import Weights, with_dependencies
from neuralpath.training.config import TrainingConfig
from papers.runs.small_tasks import Counting


def test_equal_tasks_have_one_name_and_a_change_of_anything_another():
    first = TrainNetwork(DataSpec("digits"), NetSpec(), TrainingConfig(epochs=3), seed=1)
    same = TrainNetwork(DataSpec("digits"), NetSpec(), TrainingConfig(epochs=3), seed=1)
    assert first == same
    assert first.name == same.name
    others = [
        TrainNetwork(DataSpec("digits"), NetSpec(), TrainingConfig(epochs=3), seed=2),
        TrainNetwork(DataSpec("digits", noise=0.1), NetSpec(), TrainingConfig(epochs=3), seed=1),
        TrainNetwork(DataSpec("digits"), NetSpec(bias=False), TrainingConfig(epochs=3), seed=1),
        TrainNetwork(DataSpec("digits"), NetSpec(), TrainingConfig(epochs=3, evaluate_every=2), seed=1),
    ]
    assert len({task.fingerprint for task in (first, *others)}) == 5


def test_fingerprints_do_not_change_between_versions():
    # The names of the runs in `results/`: a change here would make every finished run count as missing.
    network = TrainNetwork(DataSpec("mnist"), NetSpec("fc", 128, 6), TrainingConfig(epochs=40), seed=0)
    gated = TrainGated(DataSpec("mnist"), NetSpec("fc", 128, 6), TrainingConfig(epochs=40), "FL", 0, Weights(network))
    assert network.name == "mnist-fc-w128-d6-relu-adam0.001-e40-seed0-2f74b9d55c"
    assert gated.name == "mnist-fc-w128-d6-FL-of-last-adam0.001-e40-seed0-cb1baa3068"


def test_a_field_that_came_later_leaves_old_fingerprints_alone():
    @dataclass(frozen=True)
    class Settings:
        size: int = 1
        late: str = field(default="no", metadata=ADDED_LATER)

    assert to_json(Settings(2)) == {"kind": "Settings", "size": 2}
    assert to_json(Settings(2, "yes")) == {"kind": "Settings", "size": 2, "late": "yes"}


def test_needs_come_before_what_needs_them_and_once():
    base = Counting("base")
    left, right = (
        Counting("left", reads=(Weights(base),)),
        Counting("right", reads=(Weights(base), Weights(base, "best"))),
    )
    top = Counting("top", reads=(Weights(left), Weights(right)))
    assert [task.name_of for task in with_dependencies((top, right))] == ["base", "left", "right", "top"]


def test_names_are_safe_for_files():
    task = Counting("a/b c: ü*")
    assert task.name.startswith("counting-a-b-c-")
    assert "/" not in task.name


@pytest.mark.parametrize("bad", [{"noise": 1.5}, {"n_train": 0}, {"size": 3}])
def test_bad_specs_are_refused_by_field(bad):
    with pytest.raises(ValueError, match=f"`{next(iter(bad))}`"):
        DataSpec(**{"name": "digits", **bad})
