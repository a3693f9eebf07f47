"""A sweep on a Dask cluster: an experiment's runs, and then the tiles of one kernel, on several processes or machines.

The cluster here is two processes of this machine. On a real one only the address changes: start `dask scheduler` and
`dask worker` (or reach Slurm or Kubernetes through Dask), in an environment that has neuralpath, with an output folder
that all workers see.
"""

# %%
import sys
from pathlib import Path

import torch
from distributed import LocalCluster

import neuralpath as npath
from neuralpath.cli import main


# %% One job is one command; each run of it becomes one task. What is finished is not done again: stop the script at any
# time and start it again, or lose a worker, and it goes on.
def run_sweep(address: str, out: Path) -> None:
    """All gating regimes on the digits, at the smallest scale, as `neuralpath papers run` does them."""
    if main(["papers", "run", "regimes", "--preset", "smoke", "--out", str(out), "--cluster", address]) != 0:
        sys.exit("the sweep has failed; its message is above")
    main(["papers", "status", str(out)])


# %% A kernel is a grid of tiles: the workers compute them, this process writes each to the store as it comes. The store
# has a checksum for each tile, and goes on from the finished ones.
def compute_kernel(address: str, store: Path) -> npath.StoredKernel:
    """The path kernel of the digits, tile by tile."""
    x = npath.data.load("digits").train.images
    model = npath.nets.FC((1, 8, 8), width=64, depth=4, generator=torch.Generator().manual_seed(0))
    memory = 2**23  # 8 MiB: a small budget, so that there are several tiles to share
    kernel = npath.PathKernel(model).store(store, x, memory=memory, threads=1, cluster=address)
    print(npath.PathKernel(model).verify(store, x))
    here = npath.path_kernel(npath.trace(model, x[:1]), x)
    gap = float((kernel.filled() - here).abs().max() / here.max())
    print(f"off the kernel that is computed here: at most {gap:.1e} of its largest entry")
    return kernel


# %% The workers import this file too, so that what starts them must not run there.
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        run_sweep(cluster.scheduler_address, Path("dask_runs"))
        compute_kernel(cluster.scheduler_address, Path("dask_kernel.zarr"))
    print("look at the runs again with: neuralpath papers show dask_runs")
