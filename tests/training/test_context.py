"""Changes of the process during a run, and that they are undone."""

import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import torch
from neuralpath.training.context import reused_memory

def faults(n_batches):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(n_batches):
        (torch.ones(12_000_000) * 2).sum()  # 46 MiB each
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(open("/proc/self/statm").read().split()[1])

faults(2)
first = resident()
outside = faults(20)
with reused_memory():
    faults(2)
    kept, inside = resident() - first, faults(20)
print(outside, inside, kept, resident() - first, resource.getpagesize())
"""

ON_GLIBC = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="about the allocator of glibc")


def run_program(**environment):
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return map(int, run.stdout.split())


@ON_GLIBC
def test_memory_is_kept_from_batch_to_batch_and_given_back():
    outside, inside, kept, left, page = run_program()
    batch = 2 * 48_000_000 // page
    assert outside > 15 * batch
    assert inside < 3 * batch  # where the heap begins is random, and it may grow once more
    assert kept > 0.9 * batch
    assert left < batch / 4


@ON_GLIBC
def test_settings_of_the_user_stand():
    outside, inside, *_ = run_program(MALLOC_MMAP_THRESHOLD_="1000000")
    assert inside > 0.9 * outside
