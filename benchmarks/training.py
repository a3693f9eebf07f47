"""Step times of training with fixed gates; results are compared before they are timed.

python benchmarks/training.py            # about three minutes on two cores
python benchmarks/training.py --rounds 3   # quicker, noisier

"plain": the feature network runs in every step, batches come from a DataLoader, Adam as torch makes it by default.
"by hand": the shortest loop over the same network, with gates unpacked beforehand, and the same optimizer as ours.
The variants take turns, and the fastest turn of each counts. With one thread the clock is that of the processor's work
for this process, so that other work on the machine matters little; with several it is the clock on the wall.
"""

import argparse
import copy
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import measure
from neuralpath import nets
from neuralpath.data import Split
from neuralpath.gating.network import GatedNetwork
from neuralpath.gating.regimes import decouple
from neuralpath.training import Adam, TrainingConfig, train
from neuralpath.training.batches import derive_seed

BATCH, RATE = 32, 3e-4


def random_split(n: int, shape: tuple[int, ...]) -> Split:
    generator = torch.Generator().manual_seed(0)
    return Split(torch.rand(n, *shape, generator=generator), torch.randint(10, (n,), generator=generator))


def config() -> TrainingConfig:
    return TrainingConfig(epochs=1, batch_size=BATCH, optimizer=Adam(RATE))


def clock() -> float:
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def ours(model: nn.Module, split: Split) -> float:
    """Seconds of an epoch; gates are computed before it, once for a whole run."""
    times = []
    train(model, split, None, config(), hooks=[lambda moment: times.append(clock())])
    return times[1] - times[0]


def plain(model: nn.Module, split: Split) -> float:
    loader = DataLoader(TensorDataset(split.images, split.labels), batch_size=BATCH, shuffle=True)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=RATE)
    model.train()
    begun = clock()
    for images, labels in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return clock() - begun


def by_hand(model: nn.Module, split: Split, gates: list[Tensor] | None = None) -> float:
    """The epoch that `ours` runs, in the same order."""
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=RATE, fused=True)
    generator = torch.Generator().manual_seed(derive_seed(0, "order", 0))
    model.train()
    begun = clock()
    for rows in torch.randperm(len(split), generator=generator).split(BATCH):
        optimizer.zero_grad()
        images, labels = split.images[rows], split.labels[rows]
        outputs = model(images) if gates is None else model.value_output(images, [gate[rows] for gate in gates])
        F.cross_entropy(outputs, labels).backward()
        optimizer.step()
    return clock() - begun


def unpacked_gates(model: GatedNetwork, split: Split) -> list[Tensor]:
    with torch.no_grad():
        blocks = [
            tuple(model.gates(images).layers.values()) for images in split.images.split(config().evaluation_batch_size)
        ]
    return [torch.cat(layers).float() for layers in zip(*blocks, strict=True)]


def check(model: nn.Module, split: Split, gates: list[Tensor] | None) -> None:
    """Ours and the loop by hand end with the same weights, bit for bit."""
    models = [copy.deepcopy(model) for _ in range(2)]
    ours(models[0], split)
    by_hand(models[1], split, gates)
    for (name, one), two in zip(models[0].named_parameters(), models[1].parameters(), strict=True):
        assert torch.equal(one, two), name


def step_times(variants: dict[str, Callable[[], float]], n_steps: int, rounds: int) -> dict[str, float]:
    """Seconds a step of each variant, which take turns."""
    best = dict.fromkeys(variants, float("inf"))
    for _ in range(rounds + 1):  # the first round warms up
        for name, run in variants.items():
            best[name] = min(best[name], run() / n_steps)
    return best


def compare(name: str, base: nn.Module, shape: tuple[int, ...], n_steps: int, rounds: int) -> dict:
    split = random_split(n_steps * BATCH, shape)
    network = decouple(base, "FL", generator=torch.Generator().manual_seed(1))
    gates = unpacked_gates(network, split)
    few = split.images[:BATCH]
    with torch.no_grad():  # the plain way computes the same function
        expected = network(few)
        torch.testing.assert_close(network.value_output(few, [gate[:BATCH] for gate in gates]), expected)
    check(network, split, gates)
    check(base, split, None)
    seconds = step_times(
        {
            "fixed gates, ours": lambda: ours(network, split),
            "fixed gates, plain": lambda: plain(network, split),
            "fixed gates, by hand": lambda: by_hand(network, split, gates),
            "ReLU, ours": lambda: ours(base, split),
            "ReLU, by hand": lambda: by_hand(base, split),
        },
        n_steps,
        rounds,
    )
    faster = seconds["fixed gates, plain"] / seconds["fixed gates, ours"]
    slower = {kind: seconds[f"{kind}, ours"] / seconds[f"{kind}, by hand"] - 1 for kind in ("fixed gates", "ReLU")}
    print(
        f"{name}: {1e3 * seconds['fixed gates, ours']:.3f} ms a step with fixed gates, plain way "
        f"{1e3 * seconds['fixed gates, plain']:.3f} ms, ratio {faster:.2f}; against a loop by hand "
        f"{slower['fixed gates']:+.1%} (fixed gates), {slower['ReLU']:+.1%} (ReLU network)"
    )
    return {
        "name": name, "batch": BATCH, "steps": n_steps, "seconds_per_step": seconds,
        "plain_to_ours": faster, "slower_than_by_hand": slower,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    measure.set_threads(arguments.threads)
    generator = torch.Generator().manual_seed(0)
    fc = nets.FC((1, 28, 28), 128, 6, 10, generator=generator)
    gconv = nets.GCONV((3, 32, 32), 10, generator=generator)
    results = [
        compare("FC 784-128x5-10", fc, (1, 28, 28), 100, 2 * arguments.rounds),
        compare("GCONV 32x32", gconv, (3, 32, 32), 3, max(2, arguments.rounds // 5)),
    ]
    measure.save("training", {"clock": "processor" if arguments.threads == 1 else "wall", "networks": results})


if __name__ == "__main__":
    main()
