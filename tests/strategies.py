"""What hypothesis draws: small networks with batches that keep clear of gate boundaries."""

from dataclasses import dataclass

import torch
from hypothesis import assume, strategies as st
from torch import Tensor, nn

from neuralpath import nets


@st.composite
def widths(draw: st.DrawFn, max_hidden: int = 3) -> list[int]:
    """Layer sizes of a fully connected network with one output, unequal in general."""
    hidden = draw(st.lists(st.integers(1, 5), min_size=1, max_size=max_hidden))
    return [draw(st.integers(1, 4)), *hidden, 1]


def _far_from_boundaries(model: nn.Module, x: Tensor) -> bool:
    closest = []
    hooks = [
        module.register_forward_pre_hook(lambda _, args: closest.append(args[0].abs().min().item()))
        for module in model.modules()
        if isinstance(module, nn.ReLU)
    ]
    with torch.no_grad():
        model(x)
    for hook in hooks:
        hook.remove()
    return min(closest, default=1.0) > 1e-6


@dataclass(frozen=True)
class DenseDraw:
    """A drawn network. It is built in the test, not while drawing: run-time type checks use `random`."""

    sizes: tuple[int, ...]
    bias: bool
    batch: int
    seed: int

    def build(self) -> tuple[nn.Module, Tensor]:
        """The network in float64 and a batch for it; rejects draws near a gate's boundary."""
        generator = torch.Generator().manual_seed(self.seed)
        model = nets.FC(self.sizes[0], self.sizes[1:-1], bias=self.bias, init=nets.Gaussian(), generator=generator)
        model = model.double().eval()
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.data.normal_(generator=generator)
        x = torch.randn(self.batch, self.sizes[0], generator=generator, dtype=torch.float64)
        assume(_far_from_boundaries(model, x))
        return model, x


def dense_networks(*, bias: bool | None = None) -> st.SearchStrategy[DenseDraw]:
    """Fully connected ReLU networks with two to four examples."""
    return st.builds(
        DenseDraw,
        sizes=widths().map(tuple),
        bias=st.booleans() if bias is None else st.just(bias),
        batch=st.integers(2, 4),
        seed=st.integers(0, 2**31 - 1),
    )
