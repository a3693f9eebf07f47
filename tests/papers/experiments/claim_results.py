"""Results as runs would give them, made up so that a claim holds or not."""

import math
from dataclasses import replace
from functools import cache

from neuralpath.papers.claims.costs import Costs
from neuralpath.papers.claims.evidence import Evidence, Found
from neuralpath.papers.experiments import label_noise
from neuralpath.papers.experiments.kernel_draws import ApproachLimits, DrawKernels, TrainLazily
from neuralpath.papers.experiments.kernel_fits import FitKernel
from neuralpath.papers.experiments.kernel_parts import TraceKernelParts
from neuralpath.papers.experiments.label_energy import TraceLabelEnergy
from neuralpath.papers.experiments.linear_gating import TrainLinearGated
from neuralpath.papers.experiments.memorising import FitPair
from neuralpath.papers.experiments.registry import get
from neuralpath.papers.experiments.sweeps import Sweep
from neuralpath.papers.experiments.trained import TrainGated, TrainNetwork
from neuralpath.papers.experiments.widened import WidenValue
from neuralpath.papers.runs.work import with_needs

ACCURACIES = {"ReLU": 80.0, "DL": 78.5, "FL": 79.6, "FR-II": 67.0, "FR-DI": 67.1, "random-labels": 62.0,
              "random-pixels": 61.0, "DLGN": 78.0}  # fmt: skip


def evidence(name, made, *, config=None, keep=lambda work: True):
    """A sweep of an experiment at its cpu preset, with the result that ``made`` gives for each run that is kept."""
    experiment = get(name)
    config = experiment.presets["cpu"] if config is None else config
    sweep = Sweep(experiment, config, "cpu", f"neuralpath run {name} --preset cpu --out runs")
    works = works_of(name, config)
    results = {work: made(work) for work in works if keep(work)}
    found = Found(sweep, {work: result for work, result in results.items() if result is not None}, works)
    return Evidence({name: (found,)}, {}, Costs())


@cache
def works_of(name, config):
    return with_needs(get(name).works(config))


def together(*several):
    return Evidence({name: found for one in several for name, found in one.found.items()}, {}, Costs())


def wobble(work):
    """What seeds change, a tenth of a point, the same in every run for the same regime and seed."""
    return 0.05 * math.sin(1 + getattr(work, "seed", 0) + len(work.label))


def trained(best, last=None, train=99.0):
    """As `trained.training_result`, of two epochs; accuracies in per cent."""
    values = [{"train_accuracy": train / 100, "test_accuracy": accuracy / 100, "train_loss": 0.1, "test_loss": 0.1}
              for accuracy in (best, best if last is None else last)]  # fmt: skip
    epochs = [{"epoch": number, **one} for number, one in enumerate(values, start=1)]
    return {"epochs": epochs, "best_epoch": 1, "best": epochs[0], "last": epochs[1], "stopped_early": False,
            "n_steps": 2}  # fmt: skip


def kind_of(work):
    """The row of a table that a run belongs to."""
    if isinstance(work, TrainLinearGated):
        return "DLGN"
    if isinstance(work, TrainNetwork):
        return "ReLU" if work.data.variant == "true" else "source"
    source = work.gates.work.data.variant if work.regime == "FL" else "true"
    return work.regime if source == "true" else source


def accuracies(changes=None, *, fitted=95.0, where=lambda work: True):
    """Runs of networks by regime; ``changes`` are other accuracies, for the runs that ``where`` chooses."""

    def made(work):
        if not isinstance(work, TrainNetwork | TrainGated | TrainLinearGated):
            return {"images": []}
        kind = kind_of(work)
        if kind == "source":
            return trained(10.0, train=fitted)
        values = {**ACCURACIES, **(changes or {})} if where(work) else ACCURACIES
        return trained(values[kind] + wobble(work))

    return made


def by_stage(accuracy):
    def made(work):
        if isinstance(work, TrainNetwork):
            return trained(80.0)
        return trained(accuracy(int(work.gates.which.removeprefix("epoch-"))))

    return made


def moved_gates(penalty):
    """Accuracy behind gates in some order, with some input, shifted or tiled, as ``penalty(work)`` says."""

    def made(work):
        if isinstance(work, TrainNetwork):
            return trained(80.0)
        return trained(ACCURACIES[work.regime] + wobble(work) - penalty(work)) if isinstance(work, TrainGated) else {}

    return made


def noisy(part, values):
    """Of `label-noise`: (best, last) accuracies by model; a number stands for both."""
    by_work = {
        work: (noise, model)
        for noise in part.noises
        for seed in part.seeds
        for model, work in label_noise.models(part, noise, seed).items()
    }

    def made(work):
        if work not in by_work:
            return None
        noise, model = by_work[work]
        value = values(model, noise)
        best, last = value if isinstance(value, tuple) else (value, value)
        return trained(best + wobble(work), last + wobble(work))

    return made


def only_part(name, part_name):
    config = get(name).presets["cpu"]
    return replace(config, only=(part_name,))


def parts(ratio, cross=0.0, fixed=0.0):
    """Of `kernel-parts`."""

    def made(work):
        assert isinstance(work, TraceKernelParts)
        feature = ratio * (1 + 0.01 * work.seed) if work.regime == "DL" else fixed
        sizes = {"value": 1.0, "feature": feature, "cross": cross}
        point = {name: {"trace": size, "frobenius": size} for name, size in sizes.items()}
        return {"measured": [{"epoch": epoch, **point} for epoch in range(3)], **trained(97.0)}

    return made


def energies(first, last):
    def made(work):
        assert isinstance(work, TraceLabelEnergy)
        factor = 1 + 0.05 * work.seed
        return {"measured": [{"epoch": 0, "energy": first * factor}, {"epoch": 50, "energy": last * factor**2}]}

    return made


def regressions(accuracy, distance=lambda work: 1 / work.repeats, gap=0.0, spread=0.0):
    """Of `kernels`: accuracies in per cent by kind, and the distance of widened networks from their kernel."""

    def made(work):
        if isinstance(work, FitKernel):
            return {"test_accuracy": (accuracy[work.kernel] + wobble(work)) / 100, "train_accuracy": 1.0, "ridge": 0.1}
        if isinstance(work, WidenValue):
            return {"diverged": False, "network": 0.9 + (gap + spread * (work.seed - 1)) / 100, "kernel": 0.9,
                    "distance": distance(work) * (1 + 0.05 * work.seed)}  # fmt: skip
        return trained(accuracy[kind_of(work)] + wobble(work))

    return made


def drawn(distance, approach=lambda work: 2 / math.sqrt(work.width), power=-0.5, off=0.7):
    """Of `theorem`."""

    def made(work):
        factor = 1 + 0.02 * work.seed
        if isinstance(work, DrawKernels):
            return {"distance": distance(work) * factor, "distances": [], "eigenvalue_ratios": [0.9, 1.1],
                    "mean_off_in_errors": off * factor}  # fmt: skip
        if isinstance(work, ApproachLimits):
            own, other = approach(work) * factor, 0.5 * factor
            return {"distance": {"dependent": {"dependent": own, "independent": other},
                                 "independent": {"dependent": other, "independent": own}},
                    "distances": {"dependent": [own], "independent": [own]}, "between_limits": 0.5}  # fmt: skip
        assert isinstance(work, TrainLazily)
        values = [work.width**power * (1 + 0.02 * (k + work.seed)) for k in range(3)]
        return {"flips": values, "kernel": values, "prediction": values, "loss": values}

    return made


def overlapping(off, last=0.47):
    """Of `base-kernels`: the deviation from the angle's overlap by width, and the last layer's overlap."""

    def made(work):
        factor = 1 + 0.02 * work.seed
        layers = [{"overlap": overlap, "off_the_angle": off(work.width) * factor}
                  for overlap in (0.3, 0.4, last - 1e-3 * work.seed)]  # fmt: skip
        return {"layers": layers}

    return made


def memorised(steps, diagonal=1.0, suppression=lambda depth: 0.9**depth, ratio=1.0, losses=(1.8, 0.0), diverged=False):
    """Of `memorisation`: steps to a tenth of the error as a function of width and depth, None for never.

    The errors that are left differ by depth, but only as rounding does.
    """

    def made(work):
        if isinstance(work, FitPair):
            return {"outputs": [0.4, 0.2], "loss": losses[work.bias]}
        factor = 1 + 0.02 * work.seed
        limit = suppression(work.depth)
        count = steps(work.width, work.depth)
        count = None if count is None else round(count * factor)
        return {
            "entries": {
                "diagonal_mean": diagonal, "diagonal_deviation": factor / math.sqrt(work.width), "pairs_mean": 0.1,
                "suppression": ratio * limit * factor, "suppression_in_the_limit": limit,
            },
            "errors": [1.0, 1e-7 * work.depth * factor], "diverged": diverged and count is None,
            "reached": {"0.5": None if count is None else max(1, count // 3), "0.1": count},
        }  # fmt: skip

    return made
