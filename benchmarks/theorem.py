"""The theorem in figures: how fast the value tangent kernel tends to its expectation, and to which limits.

python benchmarks/theorem.py                  # everything: widths 16 to 4096, a few minutes on two cores
python benchmarks/theorem.py --widest 256     # less
python benchmarks/theorem.py --figure f.png   # a figure too (needs matplotlib)
"""

import argparse
import math
import time
from pathlib import Path

import torch

import measure
import neuralpath as npath
from neuralpath import nets
from neuralpath.kernels.concentrating import concentration, fitted_power, printed_variance_bound
from neuralpath.kernels.dynamics import KernelDynamics, Steps
from neuralpath.kernels.limit.limit_kernel import limit_path_kernel, limit_tangent_kernel
from neuralpath.kernels.random_values import random_signs, random_weights, value_kernel
from neuralpath.paths.conditioning import eigenvalue_bound
from neuralpath.paths.switching import SwitchRecorder

WIDTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
EXAMPLES = 8
WIDE = 128

# Widths are those of every hidden layer; gates are those of a random network of the same shape.
FAMILIES = {
    "FC": (lambda width, seed: nets.FC(16, width, 4, init=nets.Gaussian(), generator=seed), (16,)),
    "CNN": (
        lambda width, seed: nets.CircularCNN(12, width, 3, 1, window=3, init=nets.Gaussian(), generator=seed),
        (12,),
    ),
    "residual": (
        lambda width, seed: nets.ResidualFC(16, width, 2, 1, init=nets.Gaussian(), generator=seed),
        (16,),
    ),
}


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draws_of(width: int) -> int:
    """Draws at a width: many where they are cheap."""
    return max(6, min(64, 16384 // width))


def root_mean_square_law(widths, samples) -> dict:
    law = fitted_power(widths, [sample.square() for sample in samples])
    return {"exponent": law.exponent / 2, "standard_error": law.standard_error / 2}


def distance_against_width(widths) -> dict:
    """Distance of one draw from its expectation (root mean square, relative), and ratios of their eigenvalues."""
    families = {}
    for name, (build, shape) in FAMILIES.items():
        x = torch.randn(EXAMPLES, *shape, generator=generator(1))
        rows, samples = [], []
        for width in widths:
            model = build(width, generator(2))
            graph = npath.trace(model, x[:1])
            drawn = concentration(graph, x, draws_of(width), generator=generator(width))
            samples.append(drawn.distances)
            distance, spread = math.sqrt(drawn.relative_variance), float(drawn.distances.std())
            low, high = (float(ends.mean()) for ends in drawn.spectrum_ratios.aminmax(dim=1))
            rows.append({
                "width": width, "draws": len(drawn.distances), "distance": distance, "distance_std": spread,
                "spectrum_ratio_low": low, "spectrum_ratio_high": high,
            })  # fmt: skip
            print(
                f"{name:9} w={width:5}: distance {distance:.4f} (spread {spread:.4f}), times sqrt(w) "
                f"{distance * math.sqrt(width):.2f}; eigenvalues over expected ones from {low:.3f} to {high:.3f}"
            )
        record = {"rows": rows}
        # Where the distance is of order 1 the law has not set in yet.
        for label, first in (("all widths", 0), (f"widths from {WIDE}", WIDE)):
            chosen = [k for k, width in enumerate(widths) if width >= first]
            if len(chosen) >= 2:
                record[label] = root_mean_square_law([widths[k] for k in chosen], [samples[k] for k in chosen])
                print(
                    f"{name:9} {label}: falls as w^({record[label]['exponent']:.3f} ± "
                    f"{record[label]['standard_error']:.3f})"
                )
        families[name] = record
    return families


def variance_against_depth(width: int = 128, depths=(2, 4, 8, 16, 32, 64), n_draws: int = 1000) -> dict:
    """Open gates, random signs: the measured variance beside the bound that P0 theorem 4.1 prints (erratum E13)."""
    rows = []
    x = torch.ones(1, 8, dtype=torch.float64)
    for depth in depths:
        layers = [torch.nn.Linear(8 if k == 0 else width, width, bias=False) for k in range(depth - 1)]
        model = torch.nn.Sequential(*layers, torch.nn.Linear(width, 1, bias=False)).double()
        drawn = concentration(
            npath.trace(model, x), x, n_draws, generator=generator(depth), weight_variance=1 / width, draw=random_signs
        )
        bound = printed_variance_bound(8, width, depth, 1 / width)
        expected, variance = float(drawn.expected), float(drawn.variance)
        rows.append({
            "depth": depth, "relative_variance": variance / expected**2, "bound": bound / expected**2,
            "ratio": variance / bound, "over_depth_by_width": variance / expected**2 * width / depth,
        })  # fmt: skip
        print(
            f"open gates w={width} d={depth:2}: relative variance {rows[-1]['relative_variance']:.4f} "
            f"({rows[-1]['over_depth_by_width']:.2f} d/w), printed bound {rows[-1]['bound']:.4f}, measured / bound "
            f"{rows[-1]['ratio']:.1f}"
        )
    return {"width": width, "draws": n_draws, "rows": rows}


def two_limits(widths, depth: int = 4) -> dict:
    """C35: gates of the same weights tend to one limit, gates of others to another (weights of variance 2 / w)."""
    x = torch.randn(EXAMPLES, 6, generator=generator(3))
    x = x / x.norm(dim=1, keepdim=True)
    rows, own = [], {"dependent": [], "independent": []}
    for width in widths:
        model = nets.FC(6, width, depth)
        graph = npath.trace(model, x[:1])
        limits = {
            "dependent": limit_tangent_kernel(graph, x, progress=False),
            "independent": depth * 2 ** (depth - 1) * 6 * limit_path_kernel(graph, x, progress=False),
        }
        distances = {(kind, limit): [] for kind in limits for limit in limits}
        seed, n_draws = generator(width), draws_of(width)
        for _ in range(n_draws):
            nets.initialize(model, nets.Gaussian(), seed)
            weights = random_weights(graph, generator=seed, weight_variance=2 / width)
            drawn = {"dependent": value_kernel(graph, x), "independent": value_kernel(graph, x, weights=weights)}
            for kind, limit in distances:
                distances[kind, limit].append((drawn[kind] - limits[limit]).norm() / limits[limit].norm())
        row = {"width": width, "draws": n_draws}
        for (kind, limit), values in distances.items():
            row[f"{kind}_to_{limit}_limit"] = float(torch.stack(values).square().mean().sqrt())
        for kind, values in own.items():
            values.append(torch.stack(distances[kind, kind]))
        rows.append(row)
        print(
            f"w={width:5}: dependent weights are {row['dependent_to_dependent_limit']:.4f} from K^(d) and "
            f"{row['dependent_to_independent_limit']:.4f} from d*Sigma*prod; independent ones "
            f"{row['independent_to_dependent_limit']:.4f} and {row['independent_to_independent_limit']:.4f}"
        )
    apart = float((limits["dependent"] - limits["independent"]).norm() / limits["dependent"].norm())
    laws = {kind: root_mean_square_law(widths, values) for kind, values in own.items()}
    print(
        f"the two limits are {apart:.4f} apart; the distances from their own fall as "
        + " and ".join(f"w^({law['exponent']:.3f} ± {law['standard_error']:.3f}) ({k})" for k, law in laws.items())
    )
    return {"depth": depth, "rows": rows, "between_limits": apart, **laws}


def lazy_training(widths, n_steps: int = 100) -> dict:
    """C36: gates that flip and change of the kernel in training, against width, for two sizes of the first layer.

    Weights of variance 2 / w everywhere, as in the theorem, and 2 / fan-in, which differ in the first layer only.
    """
    x = torch.randn(EXAMPLES, 6, generator=generator(4))
    y = torch.randn(EXAMPLES, 1, generator=generator(5))
    records = {}
    for kind, init in (("2 / w everywhere", nets.Gaussian()), ("2 / fan-in", nets.Gaussian(fan="in"))):
        rows, flipped, moved = [], [], []
        for width in widths:
            model = nets.FC(6, width, 3)
            graph = npath.trace(model, x[:1])
            samples: dict[str, list[float]] = {"flips": [], "kernel": [], "prediction": []}
            for seed in range(4):
                nets.initialize(model, init, generator(seed))
                for name, value in _trained(model, graph, x, y, n_steps).items():
                    samples[name].append(value)
            flipped.append(torch.tensor(samples["flips"]).clamp(min=1e-6))
            moved.append(torch.tensor(samples["kernel"]))
            rows.append({"width": width, **{name: sum(v) / len(v) for name, v in samples.items()}})
            print(
                f"{kind:16} w={width:5}: {rows[-1]['flips']:.4f} of the gates differ in the end, the kernel moved by "
                f"{rows[-1]['kernel']:.4f}, the fixed kernel's prediction is off by {rows[-1]['prediction']:.4f}"
            )
        flips, kernel = fitted_power(widths, flipped), fitted_power(widths, moved)
        print(f"{kind:16} gates change as w^({flips.exponent:.2f}), the kernel as w^({kernel.exponent:.2f})")
        records[kind] = {"rows": rows, "flips_exponent": flips.exponent, "kernel_exponent": kernel.exponent}
    return records


def _trained(model, graph, x, y, n_steps: int) -> dict[str, float]:
    recorder = SwitchRecorder()
    recorder.feed(graph.gates(x))
    f0, kernel = model(x).detach(), value_kernel(graph, x)
    dynamics = KernelDynamics(kernel)
    rate = 0.1 * dynamics.largest_rate
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(n_steps):
        optimizer.zero_grad()
        (0.5 * (model(x) - y).square().sum()).backward()
        optimizer.step()
    recorder.feed(graph.gates(x))
    predicted = dynamics.train(y, Steps(n_steps, rate), initial=f0)
    return {
        "flips": float(recorder.switches().fraction.mean()),
        "kernel": float((value_kernel(graph, x) - kernel).norm() / kernel.norm()),
        "prediction": float((predicted - model(x).detach()).norm() / (y - f0).norm()),
    }


def eigenvalue_inequality(n_networks: int = 100) -> dict:
    """P1 proposition 3.3 on small random networks: how many hold it, and how much slack there is."""
    slacks, violations = [], 0
    x = torch.randn(4, 4, generator=generator(6), dtype=torch.float64)
    model = nets.FC(4, 6, 3).double()
    graph = npath.trace(model, x[:1])
    for seed in range(n_networks):
        nets.initialize(model, nets.Gaussian(), generator(seed))
        sides = eigenvalue_bound(graph, x)
        violations += int((sides.tangent > sides.bound + 1e-12 * sides.bound[0]).any())
        if sides.tangent[-1] > 1e-9 * sides.tangent[0]:
            slacks.append(float(sides.bound[-1] / sides.tangent[-1]))
    slack = torch.tensor(slacks)
    print(
        f"smallest eigenvalue: {violations} of {n_networks} networks violate rho_min(K) <= rho_min(H) rho_max(dv dv'); "
        f"right over left from {float(slack.min()):.1f} to {float(slack.max()):.1f}, median {float(slack.median()):.1f}"
    )
    return {
        "networks": n_networks, "violations": violations, "regular": len(slacks), "least_slack": float(slack.min()),
        "median_slack": float(slack.median()), "largest_slack": float(slack.max()),
    }  # fmt: skip


def draw_figure(results: dict, path: Path) -> None:
    from matplotlib import pyplot  # an extra, not needed for the table

    figure, axes = pyplot.subplots(1, 3, figsize=(13, 5))
    for name, family in results["distance"].items():
        rows = family["rows"]
        axes[0].loglog(
            [r["width"] for r in rows],
            [r["distance"] for r in rows],
            "o-",
            label=f"{name}: w^{family['all widths']['exponent']:.2f}",
        )
    axes[0].set(xlabel="width", ylabel="|K - E K| / |E K|", title="One draw and its expectation")
    rows = results["depth"]["rows"]
    depths = [r["depth"] for r in rows]
    axes[1].loglog(depths, [r["relative_variance"] for r in rows], "o-", label="measured")
    axes[1].loglog(depths, [r["bound"] for r in rows], "--", label="printed bound (P0 theorem 4.1)")
    axes[1].set(xlabel="depth", ylabel="relative variance", title=f"Open gates, width {results['depth']['width']}")
    rows = results["limits"]["rows"]
    for kind in ("dependent", "independent"):
        for limit, style in (("dependent", "o-"), ("independent", "s--")):
            axes[2].loglog(
                [r["width"] for r in rows], [r[f"{kind}_to_{limit}_limit"] for r in rows], style,
                label=f"{kind} weights to the {limit} limit",
            )  # fmt: skip
    axes[2].set(xlabel="width", ylabel="relative distance", title="Two limits")
    for axis in axes:
        axis.set_xscale("log", base=2)
        axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.18))
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widest", type=int, default=WIDTHS[-1])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--figure", type=Path, help="file to draw the figure into")
    arguments = parser.parse_args()
    measure.set_threads(arguments.threads)
    widths = tuple(width for width in WIDTHS if width <= arguments.widest)
    begun = time.perf_counter()
    results = {
        "distance": distance_against_width(widths),
        "depth": variance_against_depth(),
        "limits": two_limits(widths),
        "training": lazy_training(tuple(width for width in widths if 32 <= width <= 1024)),
        "smallest_eigenvalue": eigenvalue_inequality(),
    }
    results["seconds"] = time.perf_counter() - begun
    print(f"{results['seconds']:.0f} s")
    measure.save("theorem", results)
    if arguments.figure:
        draw_figure(results, arguments.figure)


if __name__ == "__main__":
    main()
