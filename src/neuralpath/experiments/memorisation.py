"""What fixed random gates can memorise, and how fast, against depth and width: P0 sections 2.3 and 4.2."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from neuralpath.experiments.experiment import Experiment, Results
from neuralpath.experiments.over_seeds import curves, finished, spread
from neuralpath.experiments.random_overlaps import cosines_of, overlaps_in_the_limit
from neuralpath.experiments.shown import Cell, Curve, Curves, Shown, Table
from neuralpath.experiments.specs import DataSpec
from neuralpath.experiments.trained import seeded
from neuralpath.runs.work import Work

if TYPE_CHECKING:
    from torch import Tensor

    from neuralpath.gating.network import GatedNetwork
    from neuralpath.graph.forward import Gates
    from neuralpath.runs.calibration import Calibration
    from neuralpath.runs.place import Place

Inputs = Literal["images", "sphere"]

REMAINING = (0.5, 0.1)
"""Shares of the first error whose first step is noted."""

N_STORED = 64
"""Moments of training whose error is stored, from the first step to the last in equal ratios."""


@dataclass(frozen=True)
class Memorise(Work):
    """Fit random labels behind fixed random gates by gradient descent, and compare kernel and expectation before."""

    data: DataSpec
    inputs: Inputs
    """Images of unit length, or as many points drawn uniformly from a sphere of as many dimensions."""
    n_examples: int
    width: int
    depth: int
    n_steps_trained: int
    rate: float
    """Learning rate as a share of 1 / (largest eigenvalue of the kernel before training)."""
    seed: int = 0

    @property
    def label(self) -> str:
        """As `Work.label`."""
        source = self.data.label if self.inputs == "images" else "sphere"
        return f"memorise {source} n{self.n_examples} w{self.width} d{self.depth} seed{self.seed}"

    def make(self) -> "GatedNetwork":
        """Gates of one random network, weights of another: random signs of variance 2 / width."""
        from neuralpath import nets
        from neuralpath.gating.regimes import decouple

        model = nets.FC(self.data.shape, self.width, self.depth)
        return decouple(model, "FR-II", init="random-sign", generator=seeded(self.seed, "memorising network"))

    def perform(self, place: "Place") -> dict[str, Any]:
        """As `Work.perform`."""
        x = self._points(place)
        y = _signs(self.n_examples, self.seed)
        network = self.make()
        gates = network.gates(x)
        kernels = _kernels(network, x, self.width)
        return {
            "entries": _entries(x, kernels["expected"] / self.depth, self.depth),
            "spectrum": {name: _spectrum(kernel / self.depth) for name, kernel in kernels.items()},
            "distance": float((kernels["drawn"] - kernels["expected"]).norm() / kernels["expected"].norm()),
            **_trained(network, x, y, gates, kernels, self.n_steps_trained, self.rate),
        }

    def seconds(self, calibration: "Calibration") -> float:
        """As `Work.seconds`."""
        import torch

        network, x = self.make(), torch.rand(self.n_examples, *self.data.shape)
        gates, y = network.gates(x), torch.ones(self.n_examples, 1)
        key = f"memorise {self.data.shape} n{self.n_examples} w{self.width} d{self.depth}"
        step = calibration.seconds(key, lambda: _descend(network, x, y, gates, 1e-9), repeats=2)
        whole = calibration.seconds(f"{key} kernels", lambda: _kernels(network, x, self.width), repeats=1)
        return self.n_steps_trained * step + whole

    def memory(self) -> int:
        """As `Work.memory`."""
        weights = 12 * self.width * (self.width * self.depth + self.data.shape[0] * self.data.shape[1] ** 2)
        return self.data.n_bytes + weights + 8 * self.n_examples * self.width * self.depth * 4

    def _points(self, place: "Place") -> "Tensor":
        import torch

        if self.inputs == "images":
            from neuralpath.data import balanced_subset

            train, per_class = self.data.load(place.data_dir).train, self.n_examples // self.data.n_outputs
            points = balanced_subset(train, per_class, seeded(self.seed, "memorised examples")).images
        else:
            points = torch.randn(self.n_examples, *self.data.shape, generator=seeded(self.seed, "memorised points"))
        return points / points.flatten(1).norm(dim=1)[:, None, None, None]


def _signs(n: int, seed: int) -> "Tensor":
    """Labels that have nothing to do with the inputs."""
    import torch

    return torch.randint(0, 2, (n, 1), generator=seeded(seed, "memorised labels")) * 2.0 - 1.0


def _kernels(network: "GatedNetwork", x: "Tensor", width: int) -> "dict[str, Tensor]":
    """The value tangent kernel as it was drawn, and its expectation, in float64."""
    from neuralpath.graph.trace import trace
    from neuralpath.readings.pairs.kernel import expected_tangent_kernel
    from neuralpath.theory.value_kernel import value_kernel

    gates, graph = network.gates(x), trace(network.value.eval(), x[:1])
    expected = expected_tangent_kernel(graph, x, gates1=gates, variance=2 / width, progress=False)
    return {"expected": expected.double(), "drawn": value_kernel(graph, x, gates1=gates).double()}


def _entries(x: "Tensor", kernel: "Tensor", depth: int) -> dict[str, float]:
    """Entries of the expected kernel over d: the diagonal, and what gates leave of the inputs' inner products.

    For unit inputs the diagonal tends to 1, and an off-diagonal entry to the inner product times the product of the
    layers' overlaps; ``limit`` is that product for infinite width.
    """
    import torch

    pairs = ~torch.eye(len(x), dtype=torch.bool)
    gram = cosines_of(x)
    overlaps = [2 * overlap[pairs] for overlap in overlaps_in_the_limit(gram, depth - 1)]
    gram = gram[pairs]
    # Weighted by the inner products themselves, since the quotient means nothing where they are near 0.
    weights = gram.abs() / gram.abs().sum()
    return {
        "diagonal_mean": float(kernel.diagonal().mean()),
        "diagonal_deviation": float(kernel.diagonal().std()),
        "pairs_mean": float(kernel[pairs].abs().mean()),
        "suppression": float((weights * kernel[pairs] / gram).sum()),
        "suppression_in_the_limit": float((weights * torch.stack(overlaps).prod(0)).sum()),
    }


def _spectrum(kernel: "Tensor") -> list[float]:
    from neuralpath.diagnostics import spectrum

    return [float(f"{value:.6g}") for value in spectrum(kernel).tolist()]


def _trained(
    network: "GatedNetwork", x: "Tensor", y: "Tensor", gates: "Gates", kernels: "dict[str, Tensor]", n_steps: int,
    rate: float,
) -> dict[str, Any]:  # fmt: skip
    """Gradient descent on half the sum of squares, beside what both kernels say for steps of the same size."""
    import torch

    from neuralpath.theory.dynamics import KernelDynamics, Steps

    size = rate / float(torch.linalg.eigvalsh(kernels["drawn"])[-1])
    with torch.no_grad():
        first = network.value_output(x, gates) - y
    moments = _moments(n_steps)
    errors: dict[int, float] = {0: 1.0}
    reached: dict[str, int | None] = {f"{share:g}": None for share in REMAINING}
    for step in range(1, n_steps + 1):
        before = _descend(network, x, y, gates, size)
        _note(reached, step - 1, before / float(first.norm()))
        if not before < float("inf"):
            break
        if step - 1 in moments:
            errors[step - 1] = before / float(first.norm())
    else:
        with torch.no_grad():
            errors[n_steps] = float((network.value_output(x, gates) - y).norm() / first.norm())
        _note(reached, n_steps, errors[n_steps])
    told = {}
    for name, kernel in kernels.items():
        left = KernelDynamics(kernel).train(y, Steps(torch.tensor(moments), size), initial=first + y) - y
        told[name] = [float(f"{value:.6g}") for value in (left.flatten(1).norm(dim=1) / first.double().norm()).tolist()]
    return {
        "moments": moments,
        "errors": [float(f"{errors[m]:.6g}") if m in errors else None for m in moments],
        "told_by": told,
        "reached": reached,
        "diverged": n_steps not in errors,
    }


def _descend(network: "GatedNetwork", x: "Tensor", y: "Tensor", gates: "Gates", size: float) -> float:
    """One step; the norm of the error before it."""
    import torch

    weights = [weight for weight in network.value.parameters() if weight.requires_grad]
    left = network.value_output(x, gates) - y
    for weight, slope in zip(weights, torch.autograd.grad(0.5 * left.square().sum(), weights), strict=True):
        weight.data.sub_(slope, alpha=size)
    return float(left.detach().norm())


def _note(reached: dict[str, int | None], step: int, share: float) -> None:
    for target in REMAINING:
        if reached[f"{target:g}"] is None and share <= target:
            reached[f"{target:g}"] = step


def _moments(n_steps: int) -> list[int]:
    ratio = n_steps ** (1 / max(1, N_STORED - 1))
    return sorted({0, n_steps, *(min(n_steps, round(ratio**k)) for k in range(N_STORED))})


@dataclass(frozen=True)
class FitPair(Work):
    """Fit x with the label 1 and x / 2 with the label -1: without biases f(x / 2) = f(x) / 2 whatever the weights."""

    width: int
    depth: int
    bias: bool
    n_steps_trained: int
    seed: int = 0

    @property
    def label(self) -> str:
        """As `Work.label`."""
        return f"fit-pair w{self.width} d{self.depth} {'bias' if self.bias else 'nobias'} seed{self.seed}"

    def perform(self, place: "Place") -> dict[str, Any]:
        """As `Work.perform`."""
        outputs, y = self._fitted(self.n_steps_trained)
        return {"outputs": outputs.flatten().tolist(), "loss": float((outputs - y).square().sum())}

    def seconds(self, calibration: "Calibration") -> float:
        """As `Work.seconds`."""
        key = f"fit-pair w{self.width} d{self.depth}"
        return calibration.seconds(key, lambda: self._fitted(20)) * self.n_steps_trained / 20

    def _fitted(self, n_steps: int) -> "tuple[Tensor, Tensor]":
        """Outputs for the pair after training, and the labels."""
        import torch

        from neuralpath import nets

        generator = seeded(self.seed, "pair")
        model = nets.FC(8, self.width, self.depth, bias=self.bias, generator=generator)
        x = torch.randn(1, 8, generator=generator)
        x, y = torch.cat([x, x / 2]), torch.tensor([[1.0], [-1.0]])
        optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(n_steps):
            optimiser.zero_grad()
            (model(x) - y).square().sum().backward()
            optimiser.step()
        with torch.no_grad():
            return model(x), y

    def memory(self) -> int:
        """As `Work.memory`."""
        return 32 * self.width**2 * self.depth


_DATA = DataSpec("mnist")


@dataclass(frozen=True)
class Config:
    """Fixed random gates: training speed, spectrum and off-diagonal entries against depth and width."""

    data: DataSpec = _DATA
    inputs: tuple[Inputs, ...] = ("images", "sphere")
    """Where the inputs come from; all are scaled to length 1, and their labels are random signs."""
    n_examples: int = 200
    widths: tuple[int, ...] = (25, 100, 500)
    depths: tuple[int, ...] = (2, 3, 4, 6, 8, 12, 16, 20)
    n_steps: int = 1000
    """Steps of gradient descent over all examples."""
    rate: float = 0.1
    """Learning rate as a share of 1 / (largest eigenvalue of the kernel before training)."""
    pair_steps: int = 2000
    """Steps for the pair that cannot be memorised without biases."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)


def works(config: Config) -> tuple[Work, ...]:
    """A run for each kind of input, width, depth and seed, and the pair with and without biases."""
    return (
        *(
            _work(config, inputs, width, depth, seed)
            for inputs in config.inputs
            for width in config.widths
            for depth in config.depths
            for seed in config.seeds
        ),
        *(_pair(config, bias, seed) for bias in (False, True) for seed in config.seeds),
    )


def _work(config: Config, inputs: Inputs, width: int, depth: int, seed: int) -> Memorise:
    return Memorise(config.data, inputs, config.n_examples, width, depth, config.n_steps, config.rate, seed)


def _pair(config: Config, bias: bool, seed: int) -> FitPair:
    return FitPair(32, 3, bias, config.pair_steps, seed)


def shown(config: Config, results: Results) -> tuple[Shown, ...]:
    """Tables of speed, spectrum and entries, curves of each against depth, and the pair."""
    note = finished(works(config), results)
    parts: list[Shown] = []
    for inputs in config.inputs:
        runs = {
            (width, depth): [
                results[work] for seed in config.seeds if (work := _work(config, inputs, width, depth, seed)) in results
            ]
            for width in config.widths
            for depth in config.depths
        }
        parts += [_speeds(config, inputs, runs, note), _entry_table(inputs, runs, note)]
        parts += _figures(config, inputs, runs, note)
    return (*parts, _pair_table(config, results, note))


_Runs = dict[tuple[int, int], list[dict[str, Any]]]


def _speeds(config: Config, inputs: Inputs, runs: _Runs, note: str) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for (width, depth), found in runs.items():
        halves = [run["reached"]["0.5"] for run in found]
        rows.append((
            width, depth, spread(halves), sum(half is None for half in halves) if found else None,
            spread(100 * run["errors"][-1] for run in found if run["errors"][-1] is not None),
            spread(100 * run["told_by"]["expected"][-1] for run in found), sum(run["diverged"] for run in found),
        ))  # fmt: skip
    return Table(
        f"Training behind fixed random gates ({inputs})",
        ("width", "depth", "steps to half the error", "runs that never got there", "error left in %",
         "the expected kernel says", "diverged"),
        tuple(rows),
        f"Random signs as labels for {config.n_examples} inputs of length 1; {config.n_steps} steps of gradient descent"
        f" with {config.rate:g} / (largest eigenvalue of the kernel). P0 says that more depth first helps and then "
        f"hurts, without numbers. {note}",
    )  # fmt: skip


def _entry_table(inputs: Inputs, runs: _Runs, note: str) -> Table:
    names = ("diagonal_mean", "diagonal_deviation", "suppression", "suppression_in_the_limit")
    rows: list[tuple[Cell, ...]] = [
        (width, depth, *(spread(run["entries"][name] for run in found) for name in names),
         spread(run["distance"] for run in found), spread(_condition(run, "expected") for run in found),
         spread(_condition(run, "drawn") for run in found))
        for (width, depth), found in runs.items()
    ]  # fmt: skip
    return Table(
        f"Entries and spectrum of the kernel divided by d ({inputs})",
        ("width", "depth", "diagonal", "its deviation", "off-diagonal / inner product", "infinite width",
         "distance of the draw from its mean", "median / largest eigenvalue, mean", "of the draw"),
        tuple(rows),
        f"The diagonal should tend to 1, and off-diagonal entries be suppressed by the product of overlaps. {note}",
    )  # fmt: skip


def _condition(run: dict[str, Any], name: str) -> float:
    """The median eigenvalue over the largest: how fast most directions are learnt at a rate that the largest sets."""
    values = run["spectrum"][name]
    return float(values[len(values) // 2] / values[0])


def _figures(config: Config, inputs: Inputs, runs: _Runs, note: str) -> list[Curves]:
    def against_depth(read: Callable[[dict[str, Any]], float | None]) -> tuple[Curve, ...]:
        n_seeds = max((len(found) for found in runs.values()), default=0)
        return curves({
            f"w = {width}": [
                {float(depth): read(runs[width, depth][k]) for depth in config.depths if k < len(runs[width, depth])}
                for k in range(n_seeds)
            ]
            for width in config.widths
        })  # fmt: skip

    courses = {
        f"w = {width}, d = {depth}": [
            dict(zip(map(float, run["moments"]), run["errors"], strict=True)) for run in found
        ]
        for (width, depth), found in runs.items()
    }  # fmt: skip
    spectra = {
        f"w = {width}, d = {depth}, {name}": [
            {float(k): value for k, value in enumerate(run["spectrum"][name], 1)} for run in found
        ]
        for (width, depth), found in runs.items()
        if width in (min(config.widths), max(config.widths))
        for name in ("expected", "drawn")
    }
    suppression = (
        *against_depth(lambda run: run["entries"]["suppression"]),
        *curves({
            "infinite width": [
                {float(depth): run["entries"]["suppression_in_the_limit"]}
                for (_, depth), found in runs.items() for run in found
            ]
        }),
    )  # fmt: skip
    return [
        Curves(
            f"Error left after training ({inputs})", "depth", "share of the first error",
            against_depth(lambda run: run["errors"][-1]), log_y=True, note=note,
        ),
        Curves(
            f"Off-diagonal suppression ({inputs})", "depth", "entry over inner product of the inputs", suppression,
            log_y=True, note=note,
        ),
        Curves(
            f"Training ({inputs})", "step", "share of the first error", curves(courses), log_x=True, log_y=True,
            note=note,
        ),
        Curves(
            f"Spectra of the kernel over d ({inputs})", "eigenvalue number", "eigenvalue", curves(spectra), log_x=True,
            log_y=True, note=note,
        ),
    ]  # fmt: skip


def _pair_table(config: Config, results: Results, note: str) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for bias in (False, True):
        runs = [results[work] for seed in config.seeds if (work := _pair(config, bias, seed)) in results]
        rows.append((
            "with" if bias else "without", spread(run["outputs"][0] for run in runs),
            spread(run["outputs"][1] for run in runs), spread(run["loss"] for run in runs),
        ))  # fmt: skip
    return Table(
        "The pair (x, 1), (x / 2, -1)",
        ("biases", "f(x)", "f(x / 2)", "sum of squares"),
        tuple(rows),
        f"Without biases f(x / 2) = f(x) / 2, so that the sum of squares is at least 1.8, at f(x) = 0.4. {note}",
    )


_PAPER = Config()

EXPERIMENT = Experiment(
    name="memorisation",
    summary="how fast random labels are fitted behind fixed random gates, against depth and width",
    source="P0 sections 2.3 and 4.2",
    config=Config,
    presets={
        "smoke": Config(
            data=DataSpec("digits"), inputs=("images",), n_examples=20, widths=(16, 128), depths=(2, 6), n_steps=40,
            pair_steps=300, seeds=(0, 1, 2),
        ),
        "cpu": replace(_PAPER, n_examples=100, n_steps=500, seeds=(0, 1, 2)),
        "paper": _PAPER,
    },
    reduced={
        "smoke": "embedded digits, 20 examples, few depths and steps",
        "cpu": "100 examples, 500 steps and three seeds in place of 200, 1,000 and five; the papers print no settings",
    },
    works=works,
    shown=shown,
)  # fmt: skip
