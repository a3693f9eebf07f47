"""Two processes against one on a sweep of eight equal runs: the records are compared, then the times.

    python benchmarks/sweep.py [--repeats 3]

Prints the ratio of the times; half is the best that two cores can do. Writes benchmarks/results/sweep.json.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from neuralpath.papers.experiments.specs import DataSpec, NetSpec
from neuralpath.papers.experiments.trained import TrainNetwork
from neuralpath.papers.runs import Store, sweep_store
from neuralpath.training.config import Adam, TrainingConfig

RESULTS = Path(__file__).parent / "results" / "sweep.json"


def sweep(epochs):
    training = TrainingConfig(epochs=epochs, optimizer=Adam(1e-3))
    return [TrainNetwork(DataSpec("digits"), NetSpec(width=128, depth=6), training, seed=seed) for seed in range(8)]


def timed(tasks, jobs):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        begin = time.perf_counter()
        sweep_store(tasks, Store(out), jobs=jobs, progress=False)
        seconds = time.perf_counter() - begin
        return seconds, {
            path.parent.name: json.loads(path.read_bytes())["result"] for path in out.glob("*/record.json")
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args()
    timed(sweep(1)[:1], 1)  # imports torch and scikit-learn
    tasks = sweep(arguments.epochs)
    times = {1: [], 2: []}
    for _ in range(arguments.repeats):
        records = {}
        for jobs in times:
            seconds, records[jobs] = timed(tasks, jobs)
            times[jobs].append(seconds)
        assert records[1] == records[2], "one and two processes have written different records"
    one, two = min(times[1]), min(times[2])
    print(f"8 runs of {arguments.epochs} epochs: --jobs 1 {one:.1f} s, --jobs 2 {two:.1f} s, ratio {two / one:.2f}")
    RESULTS.write_text(json.dumps({"seconds": {"jobs 1": one, "jobs 2": two}, "ratio": two / one}, indent=1) + "\n")


if __name__ == "__main__":
    main()
