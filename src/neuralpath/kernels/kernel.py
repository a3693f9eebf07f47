"""The interface of every kernel: a frozen object with a network and settings, called on one or two batches."""

from abc import ABC, abstractmethod

from jaxtyping import Shaped
from torch import Tensor

from neuralpath._memory import memory_budget
from neuralpath.kernels.tiling.tiled_kernel import TiledKernel, refuse_overflow


class Kernel(ABC):
    """A kernel: a function of two examples, computed for all pairs of one or two batches.

    A subclass is a frozen dataclass of a network and settings. It says how its matrix is computed tile by tile
    (`tiles`); everything else follows from that.
    """

    overflow_hint = "give the inputs in float64"
    """What to do where the kernel passes the range of its dtype."""

    @abstractmethod
    def tiles(
        self, x1: Shaped[Tensor, "batch1 *shape"], x2: Shaped[Tensor, "batch2 *shape"] | None = None, *,
        memory: int | None = None,
    ) -> TiledKernel:  # fmt: skip
        """The matrix as tiles that are computed when they are asked for, within a memory budget in bytes."""

    def __call__(
        self, x1: Shaped[Tensor, "batch1 *shape"], x2: Shaped[Tensor, "batch2 *shape"] | None = None, *,
        memory: int | None = None, progress: bool | None = None,
    ) -> Shaped[Tensor, "batch1 batch2"]:  # fmt: skip
        """The kernel of two batches, or of one with itself."""
        tiles = self.tiles(x1, x2, memory=memory_budget(memory))
        kernel = tiles.filled(progress)
        refuse_overflow(kernel, tiles.what, self.overflow_hint)
        return kernel
