"""The kernels of this library by name."""

from difflib import get_close_matches
from typing import Any

from jaxtyping import Float
from torch import Tensor

from neuralpath.kernels.kernel import Kernel, LinearKernel
from neuralpath.kernels.limit.limit_kernel import LimitKernel, LimitKind
from neuralpath.kernels.path.path_kernel import ExpectedTangentKernel, PathKernel
from neuralpath.kernels.tangent.tangent_kernel import TangentKernel
from neuralpath.kernels.tiling.tiled_kernel import TiledKernel

_LIMITS: dict[str, LimitKind] = {"limit-tangent": "ntk", "limit-output": "nngp", "limit-path": "path"}

KERNEL_NAMES = ("path", "expected-tangent", "tangent", *_LIMITS, "linear")


def named_kernel(name: str, network: Any, *, normalize: bool = False) -> Kernel:
    """A kernel by its name, with default settings.

    Args:
        name: One of `KERNEL_NAMES`.
        network: Its network; the linear kernel needs none.
        normalize: Normalize the path kernel.
    """
    check_kernel_name(name, normalize=normalize)
    if name == "path":
        return PathKernel(network, normalize=normalize)
    if name == "linear":
        return LinearKernel()
    if name in _LIMITS:
        return LimitKernel(network, kind=_LIMITS[name])
    return TangentKernel(network) if name == "tangent" else ExpectedTangentKernel(network)


def named_tiles(
    name: str,
    model: Any,
    x1: Float[Tensor, "batch1 *shape"],
    x2: Float[Tensor, "batch2 *shape"] | None = None,
    *,
    memory: int | None = None,
    normalize: bool = False,
) -> TiledKernel:
    """The tiles of a kernel by its name."""
    return named_kernel(name, model, normalize=normalize).tiles(x1, x2, memory=memory)


def check_kernel_name(name: object, *, normalize: bool = False) -> None:
    """Refuse an unknown name, and ``normalize`` where it has no meaning."""
    if name not in KERNEL_NAMES:
        near = get_close_matches(str(name), KERNEL_NAMES, n=1, cutoff=0.4)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"no kernel is called {name!r}; there are {', '.join(KERNEL_NAMES)}.{hint}")
    if normalize and name != "path":
        raise ValueError(f"normalizing is for the kernel 'path'; the kernel {name!r} has a scale of its own.")
