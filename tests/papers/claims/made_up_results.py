"""Results as runs would give them, made up so that a claim holds or not."""

import math
from dataclasses import replace
from functools import cache

from neuralpath.papers.claims.rows import Records, SweepRecords
from neuralpath.papers.experiments import Sweep, label_noise
from neuralpath.papers.experiments.kernel_draws import ApproachLimits, DrawKernels, TrainLazily
from neuralpath.papers.experiments.kernel_parts import TraceKernelParts
from neuralpath.papers.experiments.kernel_tasks import FitKernel, WidenValue
from neuralpath.papers.experiments.label_energy import TraceLabelEnergy
from neuralpath.papers.experiments.linear_gating import TrainLinearGated
from neuralpath.papers.experiments.random_labels import FitPair
from neuralpath.papers.experiments.registry import get
from neuralpath.papers.experiments.trained import TrainGated, TrainNetwork
from neuralpath.papers.runs.task import with_dependencies

ACCURACIES = {"ReLU": 80.0, "DL": 78.5, "FL": 79.6, "FR-II": 67.0, "FR-DI": 67.1, "random-labels": 62.0,
              "random-pixels": 61.0, "DLGN": 78.0}  # fmt: skip


def records(name, made, *, config=None, keep=lambda task: True):
    """A sweep of an experiment at its cpu preset, with the result that ``made`` gives for each run that is kept."""
    experiment = get(name)
    config = experiment.presets["cpu"] if config is None else config
    sweep = Sweep(experiment, config, "cpu", f"neuralpath papers run {name} --preset cpu --out runs")
    tasks = tasks_of(name, config)
    results = {task: made(task) for task in tasks if keep(task)}
    finished = {task: result for task, result in results.items() if result is not None}
    return Records({name: (SweepRecords(sweep, finished, tasks),)})


@cache
def tasks_of(name, config):
    return with_dependencies(get(name).tasks(config))


def together(*several):
    return Records({name: sweeps for one in several for name, sweeps in one.sweeps.items()})


def wobble(task):
    """What seeds change, a tenth of a point, the same in every run for the same regime and seed."""
    return 0.05 * math.sin(1 + getattr(task, "seed", 0) + len(task.label))


def trained(best, last=None, train=99.0):
    """As `trained.run_training`, of two epochs; accuracies in per cent."""
    values = [{"train_accuracy": train / 100, "test_accuracy": accuracy / 100, "train_loss": 0.1, "test_loss": 0.1}
              for accuracy in (best, best if last is None else last)]  # fmt: skip
    epochs = [{"epoch": number, **one} for number, one in enumerate(values, start=1)]
    return {"epochs": epochs, "best_epoch": 1, "best": epochs[0], "last": epochs[1], "stopped_early": False,
            "n_steps": 2}  # fmt: skip


def kind_of(task):
    """The row of a table that a run belongs to."""
    if isinstance(task, TrainLinearGated):
        return "DLGN"
    if isinstance(task, TrainNetwork):
        return "ReLU" if task.data.variant == "true" else "source"
    source = task.gates.task.data.variant if task.regime == "FL" else "true"
    return task.regime if source == "true" else source


def accuracies(changes=None, *, fitted=95.0, where=lambda task: True):
    """Runs of networks by regime; ``changes`` are other accuracies, for the runs that ``where`` chooses."""

    def made(task):
        if not isinstance(task, TrainNetwork | TrainGated | TrainLinearGated):
            return {"images": []}
        kind = kind_of(task)
        if kind == "source":
            return trained(10.0, train=fitted)
        values = {**ACCURACIES, **(changes or {})} if where(task) else ACCURACIES
        return trained(values[kind] + wobble(task))

    return made


def by_stage(accuracy):
    def made(task):
        if isinstance(task, TrainNetwork):
            return trained(80.0)
        return trained(accuracy(int(task.gates.which.removeprefix("epoch-"))))

    return made


def moved_gates(penalty):
    """Accuracy behind gates in some order, with some input, shifted or tiled, as ``penalty(task)`` says."""

    def made(task):
        if isinstance(task, TrainNetwork):
            return trained(80.0)
        return trained(ACCURACIES[task.regime] + wobble(task) - penalty(task)) if isinstance(task, TrainGated) else {}

    return made


def noisy(part, values):
    """Of `label-noise`: (best, last) accuracies by model; a number stands for both."""
    by_work = {
        task: (noise, model)
        for noise in part.noises
        for seed in part.seeds
        for model, task in label_noise.models(part, noise, seed).items()
    }

    def made(task):
        if task not in by_work:
            return None
        noise, model = by_work[task]
        value = values(model, noise)
        best, last = value if isinstance(value, tuple) else (value, value)
        return trained(best + wobble(task), last + wobble(task))

    return made


def only_part(name, part_name):
    config = get(name).presets["cpu"]
    return replace(config, only=(part_name,))


def parts(ratio, cross=0.0, fixed=0.0):
    """Of `kernel-parts`."""

    def made(task):
        assert isinstance(task, TraceKernelParts)
        feature = ratio * (1 + 0.01 * task.seed) if task.regime == "DL" else fixed
        sizes = {"value": 1.0, "feature": feature, "cross": cross}
        point = {name: {"trace": size, "frobenius": size} for name, size in sizes.items()}
        return {"measured": [{"epoch": epoch, **point} for epoch in range(3)], **trained(97.0)}

    return made


def energies(first, last):
    def made(task):
        assert isinstance(task, TraceLabelEnergy)
        factor = 1 + 0.05 * task.seed
        return {"measured": [{"epoch": 0, "energy": first * factor}, {"epoch": 50, "energy": last * factor**2}]}

    return made


def regressions(accuracy, distance=lambda task: 1 / task.repeats, gap=0.0, spread=0.0):
    """Of `kernels`: accuracies in per cent by kind, and the distance of widened networks from their kernel."""

    def made(task):
        if isinstance(task, FitKernel):
            return {"test_accuracy": (accuracy[task.kernel] + wobble(task)) / 100, "train_accuracy": 1.0, "ridge": 0.1}
        if isinstance(task, WidenValue):
            return {"diverged": False, "network": 0.9 + (gap + spread * (task.seed - 1)) / 100, "kernel": 0.9,
                    "distance": distance(task) * (1 + 0.05 * task.seed)}  # fmt: skip
        return trained(accuracy[kind_of(task)] + wobble(task))

    return made


def drawn(distance, approach=lambda task: 2 / math.sqrt(task.width), power=-0.5, off=0.7):
    """Of `theorem`."""

    def made(task):
        factor = 1 + 0.02 * task.seed
        if isinstance(task, DrawKernels):
            return {"distance": distance(task) * factor, "distances": [], "eigenvalue_ratios": [0.9, 1.1],
                    "mean_off_in_errors": off * factor}  # fmt: skip
        if isinstance(task, ApproachLimits):
            own, other = approach(task) * factor, 0.5 * factor
            return {"distance": {"dependent": {"dependent": own, "independent": other},
                                 "independent": {"dependent": other, "independent": own}},
                    "distances": {"dependent": [own], "independent": [own]}, "between_limits": 0.5}  # fmt: skip
        assert isinstance(task, TrainLazily)
        values = [task.width**power * (1 + 0.02 * (k + task.seed)) for k in range(3)]
        return {"flips": values, "kernel": values, "prediction": values, "loss": values}

    return made


def overlapping(off, last=0.47):
    """Of `base-kernels`: the deviation from the angle's overlap by width, and the last layer's overlap."""

    def made(task):
        factor = 1 + 0.02 * task.seed
        layers = [{"overlap": overlap, "off_the_angle": off(task.width) * factor}
                  for overlap in (0.3, 0.4, last - 1e-3 * task.seed)]  # fmt: skip
        return {"layers": layers}

    return made


def memorized(steps, diagonal=1.0, suppression=lambda depth: 0.9**depth, ratio=1.0, losses=(1.8, 0.0), diverged=False):
    """Of `memorization`: steps to a tenth of the error as a function of width and depth, None for never.

    The errors that are left differ by depth, but only as rounding does.
    """

    def made(task):
        if isinstance(task, FitPair):
            return {"outputs": [0.4, 0.2], "loss": losses[task.bias]}
        factor = 1 + 0.02 * task.seed
        limit = suppression(task.depth)
        count = steps(task.width, task.depth)
        count = None if count is None else round(count * factor)
        return {
            "entries": {
                "diagonal_mean": diagonal, "diagonal_deviation": factor / math.sqrt(task.width), "pairs_mean": 0.1,
                "suppression": ratio * limit * factor, "suppression_in_the_limit": limit,
            },
            "errors": [1.0, 1e-7 * task.depth * factor], "diverged": diverged and count is None,
            "reached": {"0.5": None if count is None else max(1, count // 3), "0.1": count},
        }  # fmt: skip

    return made
