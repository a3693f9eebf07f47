"""Kernels by name in files: computed tile by tile, here or on a cluster, gone on with, and verified."""

from functools import partial
from importlib.metadata import version
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from neuralpath._cluster import connect
from neuralpath._hashing import repr_without_addresses, tensor_digest, text_digest
from neuralpath.graph import PathGraph
from neuralpath.kernels.named_kernels import check_kernel_name, named_tiles
from neuralpath.kernels.storage.cluster_tiles import Cluster
from neuralpath.kernels.storage.fingerprint import Fingerprint
from neuralpath.kernels.storage.same_kernel import Say
from neuralpath.kernels.storage.store import StoredKernel, open_kernel
from neuralpath.kernels.storage.stored_tiles import Recipe, ThisMachine
from neuralpath.kernels.storage.storing import write_kernel
from neuralpath.kernels.storage.verify import Verification, verify


def store_kernel(
    path: str | Path,
    name: str,
    model: nn.Module | PathGraph | None,
    x1: Float[Tensor, "batch1 *shape"],
    x2: Float[Tensor, "batch2 *shape"] | None = None,
    *,
    normalize: bool = False,
    memory: int | None = None,
    threads: int | None = None,
    cluster: str | Path | None = None,
    progress: bool | None = None,
    say: Say = lambda message: None,
) -> StoredKernel:
    """Compute a kernel into a file, tile by tile; stopped at any time, the same call goes on from the finished tiles.

    ``name``, ``model``, ``x1``, ``x2`` and ``normalize`` are those of ``named_tiles``. Of a symmetric kernel the upper
    half is stored. A tile is there when it is whole on the disk, and has a checksum. ``memory`` (bytes for the work;
    default: half of what is free) and ``threads`` (for one tile; default: torch's) are kept with the store, since the
    rounding depends on them; a store that is gone on with has its own. ``cluster`` is the address of a Dask scheduler,
    ``tcp://host:port``, or its scheduler file: the tiles are then computed by its workers, and written here.
    ``say`` is called with the estimate before the work begins.

    Tiles that are computed on the same kind of processor are equal bit for bit, whichever process computes them.

    Cost: that of the kernel, and n * (n + 1) / 2 numbers on the disk for a symmetric one.
    Raises: StoreError if the folder holds a kernel of other inputs, weights or settings (the message says what
    differs), or cannot be written to; ClusterError if the cluster cannot be used; and as the kernel's own function.

    >>> import tempfile
    >>> x = torch.randn(5, 3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kernel = store_kernel(f"{folder}/K.zarr", "linear", None, x)
    ...     bool(torch.equal(kernel.filled(), x @ x.T)), kernel.complete
    (True, True)
    """
    recipe = make_recipe(name, model, x1, x2, normalize=normalize)
    if cluster is None:
        return write_kernel(
            Path(path), recipe, ThisMachine(), memory=memory, threads=threads, progress=progress, say=say
        )
    with connect(cluster) as client:
        return write_kernel(
            Path(path), recipe, Cluster(client), memory=memory, threads=threads, progress=progress, say=say
        )


def verify_kernel(
    path: str | Path,
    name: str,
    model: nn.Module | PathGraph | None,
    x1: Float[Tensor, "batch1 *shape"],
    x2: Float[Tensor, "batch2 *shape"] | None = None,
    *,
    normalize: bool = False,
    n_tiles: int = 8,
    generator: torch.Generator | None = None,
    progress: bool | None = None,
) -> Verification:
    """Check a stored kernel: the checksum of every tile, and the values of some, drawn at random, by computing them.

    Raises: StoreError if the store is not there, or was computed from anything else.

    >>> import tempfile
    >>> x = torch.randn(5, 3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = store_kernel(f"{folder}/K.zarr", "linear", None, x)
    ...     verify_kernel(f"{folder}/K.zarr", "linear", None, x).good
    True
    """
    recipe = make_recipe(name, model, x1, x2, normalize=normalize)
    return verify(open_kernel(path), recipe, n_tiles=n_tiles, generator=generator, progress=progress)


def make_recipe(
    name: str,
    model: nn.Module | PathGraph | None,
    x1: Float[Tensor, "batch1 *shape"],
    x2: Float[Tensor, "batch2 *shape"] | None = None,
    *,
    normalize: bool = False,
) -> Recipe:
    """How a kernel is computed, and the fingerprint of everything that it depends on."""
    check_kernel_name(name, normalize=normalize)
    module = model.model if isinstance(model, PathGraph) else model
    parts: dict[str, str | dict[str, str]] = {
        "neuralpath": version("neuralpath"),
        "torch": torch.__version__,
        "kernel": name,
        "normalize": str(normalize).lower(),
        "inputs": tensor_digest(x1),
        "second inputs": "none" if x2 is None else tensor_digest(x2),
    }
    if name == "linear":
        model = None  # it reads the inputs alone
    elif module is not None:
        parts["model"] = text_digest(repr_without_addresses(module))[:16]
        parts["weights"] = {key: tensor_digest(tensor) for key, tensor in module.named_parameters()}
        parts["buffers"] = {key: tensor_digest(tensor) for key, tensor in module.named_buffers()}
    make = partial(named_tiles, name, model, _alone(x1), None if x2 is None else _alone(x2), normalize=normalize)
    return Recipe(make, Fingerprint(parts))


def _alone(x: Float[Tensor, "batch *shape"]) -> Float[Tensor, "batch *shape"]:
    """A tensor that is no part of a larger one, all of which would be pickled with it."""
    x = x.detach()
    return x.clone() if x.untyped_storage().nbytes() > x.nbytes else x
