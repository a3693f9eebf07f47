"""Settings of experiments that are refused before any run begins, and parts of data that are as large as they say."""

import math
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path

import pytest

from neuralpath.papers.experiments import Sweep, read_sweeps
from neuralpath.papers.experiments.experiment import PRESETS
from neuralpath.papers.experiments.registry import NAMES, get
from neuralpath.papers.experiments.settings import (
    check_given,
    check_integers,
    check_positive,
    check_seeds,
    check_shares,
)
from neuralpath.papers.experiments.specs import _CLASS_SIZES, DataSpec, NetSpec
from neuralpath.papers.runs import Store


@pytest.mark.parametrize(
    "bad",
    [
        {"width": 0}, {"width": -3}, {"depth": 0}, {"channels": (4, 0)}, {"hidden": (-1,)},
        {"family": "gconv", "channels": ()},
    ],
)  # fmt: skip
def test_networks_that_cannot_be_made_are_refused_by_the_name_of_the_setting(bad):
    with pytest.raises(ValueError, match=f"`{list(bad)[-1]}`"):
        NetSpec(**bad)


@pytest.mark.parametrize("name", ["family", "init"])
def test_unknown_names_are_refused_where_types_are_not_checked(name):
    spec = NetSpec()
    object.__setattr__(spec, name, "unknown")
    with pytest.raises(ValueError, match=f"`{name}` must be one of .*, got 'unknown'"):
        spec.__post_init__()


def test_a_network_without_hidden_layers_is_one():
    assert NetSpec("fc", depth=1, channels=()).label == "fc-w128-d1"


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"n_train": 25}, r"`n_train` must be a multiple of 10 .* got 25"),
        ({"n_test": 19}, r"`n_test` must be a multiple of 10 .* got 19"),
        ({"n_train": 5}, "`n_train` must be a multiple of 10"),
        ({"n_train": 25, "classes": (4, 7)}, "`n_train` must be a multiple of 2"),
        ({"name": "cifar100", "n_train": 150}, "`n_train` must be a multiple of 100"),
        ({"n_train": 1340}, r"`n_train` must be a multiple of 10 up to 1,330 for digits, .* got 1340\. .* all 1,437"),
        ({"n_test": 270}, "`n_test` must be a multiple of 10 up to 260 for digits"),
        ({"name": "mnist", "n_train": 54_220}, "`n_train` must be a multiple of 10 up to 54,210 for mnist"),
        ({"n_train": 400, "classes": (4, 7)}, r"`n_train` .* up to 286 for 4 and 7 of digits, .* got 400.* all 296"),
        ({"n_train": 288, "classes": (4, 7)}, r"`n_train` .* up to 286 for 4 and 7 of digits"),
        ({"n_test": 54, "classes": (4, 7)}, r"`n_test` .* up to 52 for 4 and 7 of digits"),
        ({"name": "mnist", "n_train": 11_686, "classes": (7, 4)}, "`n_train` .* up to 11,684 for 7 and 4 of mnist"),
        ({"classes": (4, 4)}, "`classes` must be two of 0 to 9"),
        ({"classes": (4, 10)}, "`classes` must be two of 0 to 9"),
        ({"classes": (-1, 4)}, "`classes` must be two of 0 to 9"),
    ],
)
def test_parts_of_data_that_cannot_be_had_are_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        DataSpec(**bad)


@pytest.mark.parametrize(
    "spec",
    [
        DataSpec("digits", n_train=20, n_test=10), DataSpec("digits", n_train=1330, n_test=260),
        DataSpec("digits", n_train=26, n_test=4, classes=(7, 4)),
        DataSpec("digits", n_train=286, n_test=52, classes=(4, 7)),
    ],
)  # fmt: skip
def test_a_part_has_as_many_images_as_it_says(spec):
    examples = spec.load()
    assert (len(examples.train), len(examples.test)) == (spec.n_train, spec.n_test)
    for split in examples:
        assert len({int((split.labels == label).sum()) for label in split.labels.unique()}) == 1


def test_the_sizes_of_classes_are_those_of_the_data():
    assert _CLASS_SIZES["digits"] == tuple(tuple(split.labels.bincount().tolist()) for split in DataSpec().load())
    n_images = {"digits": (1437, 360), "mnist": (60_000, 10_000), "fashion-mnist": (60_000, 10_000)}
    n_images |= {"cifar10": (50_000, 10_000), "cifar100": (50_000, 10_000)}
    assert {name: DataSpec(name).n_images for name in _CLASS_SIZES} == n_images
    for name, sizes in _CLASS_SIZES.items():
        assert {len(split) for split in sizes} == {100 if name == "cifar100" else 10}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("preset", PRESETS)
def test_presets_pass_the_checks_of_sweeps(name, preset):
    experiment = get(name)
    assert Sweep(experiment, experiment.presets[preset], preset).tasks


def test_the_repository_has_a_record_of_every_run_of_the_presets():
    """Fingerprints of tasks are those of the records, so no finished run would be repeated."""
    results = Path(__file__).parents[3] / "results"
    sweeps, problems = read_sweeps(results)
    assert not problems
    names = {sweep.name for sweep in sweeps}
    presets = [Sweep(get(name), get(name).presets["cpu"], "cpu") for name in NAMES]
    assert {sweep.name for sweep in presets} <= names
    store = Store(results)
    assert all(store.is_finished(task) for sweep in presets for task in sweep.tasks)


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_without_seeds_is_refused(name):
    experiment = get(name)
    config = experiment.presets["smoke"]
    if hasattr(config, "seeds"):
        config, where = replace(config, seeds=()), "seeds"
    else:
        config, where = replace(config, parts=(replace(config.parts[0], seeds=()), *config.parts[1:])), "parts.0.seeds"
    with pytest.raises(ValueError, match=f"`{where}` is empty: give at least one"):
        Sweep(experiment, config)


def _numbers(config, path=()):
    """Where in a config there are numbers or tuples of them; of several parts in the first."""
    for part in fields(config):
        value, here = getattr(config, part.name), (*path, part.name)
        first = value[0] if isinstance(value, tuple) and value else value
        if part.name in ("seed", "order_seed"):  # any integer will do: it is hashed with what it is used for
            continue
        if isinstance(first, int | float) and not isinstance(first, bool):
            yield here, value
        elif is_dataclass(first):
            yield from _numbers(first, here)


def _with(config, path, number):
    value = getattr(config, path[0])
    first = value[0] if isinstance(value, tuple) else value
    changed = _with(first, path[1:], number) if path[1:] else number
    return replace(config, **{path[0]: (changed, *value[1:]) if isinstance(value, tuple) else changed})


@pytest.mark.parametrize("name", NAMES)
def test_numbers_that_mean_nothing_are_refused_before_any_run_by_the_name_of_the_setting(name):
    experiment = get(name)
    config = experiment.presets["smoke"]
    for path, value in _numbers(config):
        is_whole = isinstance(value[0] if isinstance(value, tuple) else value, int)
        for bad in (-1,) if is_whole else (-1.0, math.nan):
            with pytest.raises(ValueError, match=path[-1]):
                _ = Sweep(experiment, _with(config, path, bad)).tasks


def test_numbers_that_are_checked():
    check_integers(1, width=1, widths=(), more=(1, 2))
    for bad in (0, -1, (1, 0), True):
        with pytest.raises(ValueError, match="`width` must be"):
            check_integers(1, width=bad)
    check_positive(lr=0.5)
    for bad in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="`lr` must be a finite number above 0"):
            check_positive(lr=bad)
    check_shares(part=1.0)
    for bad in (0.0, -0.5, 1.5, float("nan")):
        with pytest.raises(ValueError, match="`part` must be a share above 0 and up to 1"):
            check_shares(part=bad)
    check_given(seeds=(0,))
    with pytest.raises(ValueError, match="`seeds` is empty"):
        check_given(seeds=())


@dataclass(frozen=True)
class Inner:
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Outer:
    inner: tuple[Inner, ...]


def test_seeds_are_found_at_any_depth():
    check_seeds(Outer((Inner((0,)),)))
    with pytest.raises(ValueError, match=r"`inner\.1\.seeds` is empty"):
        check_seeds(Outer((Inner((0,)), Inner(()))))
    with pytest.raises(ValueError, match=r"`inner\.0\.seeds` must differ, .*got \(0, 1, 0\)"):
        check_seeds(Outer((Inner((0, 1, 0)),)))
    with pytest.raises(ValueError, match=r"`inner\.0\.seeds` must be integers of at least 0, got \(0, -1\)"):
        check_seeds(Outer((Inner((0, -1)),)))
