"""What all benchmarks share: timing, peak memory, and a record of the environment."""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy
import torch

import neuralpath

RESULTS = Path(__file__).parent / "results"


def best_time(function: Callable[[], Any], repeats: int = 3) -> float:
    """Seconds of the fastest of some calls, after one that warms up caches and compilers."""
    function()
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        function()
        times.append(time.perf_counter() - begun)
    return min(times)


def set_threads(count: int) -> None:
    """Use so many threads in torch and in compiled loops."""
    torch.set_num_threads(count)
    numba.set_num_threads(count)


def peak_memory(code: str) -> int:
    """Bytes of the largest resident size of a fresh process that runs some code, above the same without it."""
    prelude = "import resource, torch, neuralpath as npath\n"
    report = "\nprint(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"
    out = subprocess.run([sys.executable, "-c", prelude + code + report], capture_output=True, text=True, check=True)
    return int(out.stdout.splitlines()[-1])


def environment() -> dict[str, Any]:
    """Versions and sizes that a timing depends on; no names of hosts or users."""
    return {
        "neuralpath": neuralpath.__version__,
        "torch": torch.__version__,
        "numba": numba.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "processor": numba.core.registry.cpu_target.target_context.codegen()._get_host_cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def save(name: str, results: dict[str, Any]) -> None:
    """Write results beside the environment they were measured in."""
    RESULTS.mkdir(exist_ok=True)
    record = {"environment": environment(), "date": time.strftime("%Y-%m-%d"), **results}
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n")
