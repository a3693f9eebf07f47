"""The kernels of this library by name, as tiles."""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Literal, get_args

from jaxtyping import Float
from torch import Tensor, nn

from neuralpath._checks import describe
from neuralpath.graph import PathGraph, trace
from neuralpath.kernels.kernel import LinearKernel
from neuralpath.kernels.limit.limit_kernel import (
    limit_output_kernel_tiles,
    limit_path_kernel_tiles,
    limit_tangent_kernel_tiles,
)
from neuralpath.kernels.path.path_kernel import ExpectedTangentKernel, PathKernel
from neuralpath.kernels.tangent.tangent_kernel import TangentKernel
from neuralpath.kernels.tiling.tiled_kernel import TiledKernel

KernelName = Literal["path", "expected-tangent", "tangent", "limit-tangent", "limit-output", "limit-path", "linear"]

KERNEL_NAMES: tuple[str, ...] = get_args(KernelName)

_OF_A_GRAPH: dict[str, Callable[..., TiledKernel]] = {
    "limit-tangent": limit_tangent_kernel_tiles,
    "limit-output": limit_output_kernel_tiles,
    "limit-path": limit_path_kernel_tiles,
}


def named_tiles(
    name: str,
    model: nn.Module | PathGraph | None,
    x1: Float[Tensor, "batch1 *shape"],
    x2: Float[Tensor, "batch2 *shape"] | None = None,
    *,
    memory: int | None = None,
    normalize: bool = False,
) -> TiledKernel:
    """A kernel by its name, as a plan and tiles, with the default settings of its own function.

    ``path``, ``expected-tangent``, ``tangent``, ``limit-tangent``, ``limit-output`` and ``limit-path`` are the kernels
    of these names; ``linear`` is the Gram matrix of the flattened inputs, which needs no model. ``model`` is a module
    or its graph; the tangent kernel differentiates, and so needs the module. ``normalize`` is for the path kernel.
    ``memory`` is a budget in bytes (default: half of what is free).

    Raises: ValueError for a name that is not known (the message has the nearest) or a setting that does not belong
    to the kernel; TypeError for a graph where a module is needed; and as the kernel's own function.

    >>> import torch
    >>> named_tiles("linear", None, torch.tensor([[1.0, 2.0], [0.0, 1.0]])).filled()
    tensor([[5., 2.],
            [2., 1.]])
    """
    check_kernel_name(name, normalize=normalize)
    if name == "linear":
        return LinearKernel().tiles(x1, x2, memory=memory)
    if name == "tangent":
        if not isinstance(model, nn.Module):
            raise TypeError(f"the kernel 'tangent' differentiates a model: give an nn.Module, got {describe(model)}.")
        return TangentKernel(model).tiles(x1, x2, memory=memory)
    if not isinstance(model, nn.Module | PathGraph):
        raise TypeError(f"the kernel {name!r} is that of an nn.Module or a PathGraph, got {describe(model)}.")
    graph = model if isinstance(model, PathGraph) else trace(model, x1[:1])
    if name == "path":
        return PathKernel(graph, normalize=normalize).tiles(x1, x2, memory=memory)
    if name == "expected-tangent":
        return ExpectedTangentKernel(graph).tiles(x1, x2, memory=memory)
    return _OF_A_GRAPH[name](graph, x1, x2, memory=memory)


def check_kernel_name(name: object, *, normalize: bool = False) -> None:
    """Refuse a name that no kernel has, with the nearest, and ``normalize`` where it has no meaning."""
    if name not in KERNEL_NAMES:
        near = get_close_matches(str(name), KERNEL_NAMES, n=1, cutoff=0.4)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"no kernel is called {name!r}; there are {', '.join(KERNEL_NAMES)}.{hint}")
    if normalize and name != "path":
        raise ValueError(f"normalizing is for the kernel 'path'; the kernel {name!r} has a scale of its own.")
