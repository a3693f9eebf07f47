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


_PEAK = """
import ctypes, gc, torch, neuralpath as npath

def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))

{setup}
gc.collect()
ctypes.CDLL(None).malloc_trim(0)  # freed memory that the set-up left would be used again, and not be seen
with open("/proc/self/clear_refs", "w") as reset:
    reset.write("5")  # forget the peak of the set-up, which holds the compiler's
before = status("VmRSS")
{code}
print(status("VmHWM") - before)
"""


def peak_memory(setup: str, code: str) -> int:
    """Bytes that some code takes at its peak beyond what the process holds after a set-up (Linux)."""
    program = _PEAK.format(setup=setup, code=code)
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
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
