r"""The initializations of the papers, for their networks and for any module of linear and conv layers.

.. math:: \sigma = c / \sqrt{\text{fan}}

Symbols: :math:`c` is ``scale``; the fan is chosen by ``fan``:

- ``"in"``: the layer's own fan-in, input channels per group times window positions.
- ``"width"``: the paper's w, or w times the window. For every layer but the first this is the layer's
  fan-in, because its inputs *are* the hidden units below; for the first layer it is the number of its
  outputs times its window, so that the variance does not depend on the dimension of the data. Where
  all hidden widths are w, every layer has the variance c²/w (dense) or c²/(w·window) (convolution),
  first and output layer included. The first layer is the first linear or convolution layer in the
  order in which the module registers its parts; a module with one layer only has no hidden units, and
  that layer keeps its fan-in.

Reference: "Deep Learning is Composite Kernel Learning", theorem 5.1 (sigma for dense and conv layers).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import is_lazy

from neuralpath.nets._checks import look_up

ModuleT = TypeVar("ModuleT", bound=nn.Module)
Fan = Literal["width", "in"]
Mix = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d


@dataclass(frozen=True, slots=True)
class Fans:
    """The two fans of one layer; see the module's docstring."""

    fan_in: int
    width: int


class Initialization(ABC):
    """How a linear or convolution layer gets its first weights and biases."""

    @abstractmethod
    def fill(
        self,
        weight: Float[Tensor, "outputs *rest"],
        bias: Float[Tensor, " n_biases"] | None,
        fans: Fans,
        generator: torch.Generator | None,
    ) -> None:
        """Fill `weight` and `bias` in place; called without gradient recording."""


@dataclass(frozen=True)
class GlorotUniform(Initialization):
    """Uniform on ±sqrt(6 / (fan-in + fan-out)), biases 0: Keras's default, used by the papers' notebooks.

    >>> layer = initialize(nn.Linear(100, 50), GlorotUniform(), torch.Generator().manual_seed(0))
    >>> bool(layer.weight.abs().max() <= (6 / 150) ** 0.5), bool((layer.bias == 0).all())
    (True, True)
    """

    def fill(
        self,
        weight: Float[Tensor, "outputs *rest"],
        bias: Float[Tensor, " n_biases"] | None,
        fans: Fans,
        generator: torch.Generator | None,
    ) -> None:
        """Fill `weight` and `bias` in place."""
        nn.init.xavier_uniform_(weight, generator=generator)
        _zero(bias)


@dataclass(frozen=True)
class Gaussian(Initialization):
    """Independent normal weights of standard deviation scale / sqrt(fan), biases 0.

    >>> layer = initialize(nn.Linear(100, 100), Gaussian(scale=1.0, fan="in"), torch.Generator().manual_seed(0))
    >>> bool(0.09 < layer.weight.std() < 0.11)
    True
    """

    scale: float | int = math.sqrt(2.0)
    fan: Fan = "width"

    def __post_init__(self) -> None:
        _check_settings(self.scale, self.fan)

    def fill(
        self,
        weight: Float[Tensor, "outputs *rest"],
        bias: Float[Tensor, " n_biases"] | None,
        fans: Fans,
        generator: torch.Generator | None,
    ) -> None:
        """Fill `weight` and `bias` in place."""
        weight.normal_(0.0, _sigma(self.scale, self.fan, fans), generator=generator)
        _zero(bias)


@dataclass(frozen=True)
class RandomSign(Initialization):
    """Weights scale / sqrt(fan) with independent fair signs, biases 0: the papers' symmetric Bernoulli.

    >>> layer = initialize(nn.Linear(100, 100), RandomSign(scale=1.0, fan="in"), torch.Generator().manual_seed(0))
    >>> layer.weight.abs().unique().tolist() == [torch.tensor(0.1).item()]
    True
    """

    scale: float | int = math.sqrt(2.0)
    fan: Fan = "width"

    def __post_init__(self) -> None:
        _check_settings(self.scale, self.fan)

    def fill(
        self,
        weight: Float[Tensor, "outputs *rest"],
        bias: Float[Tensor, " n_biases"] | None,
        fans: Fans,
        generator: torch.Generator | None,
    ) -> None:
        """Fill `weight` and `bias` in place."""
        signs = weight.bernoulli_(0.5, generator=generator).mul_(2).sub_(1)
        signs.mul_(_sigma(self.scale, self.fan, fans))
        _zero(bias)


@dataclass(frozen=True)
class TorchDefault(Initialization):
    """What `torch.nn.Linear` and the convolutions do by themselves, but from the given generator.

    >>> layer = initialize(nn.Linear(100, 50), TorchDefault(), torch.Generator().manual_seed(0))
    >>> bool(layer.weight.abs().max() <= 0.1)
    True
    """

    def fill(
        self,
        weight: Float[Tensor, "outputs *rest"],
        bias: Float[Tensor, " n_biases"] | None,
        fans: Fans,
        generator: torch.Generator | None,
    ) -> None:
        """Fill `weight` and `bias` in place."""
        nn.init.kaiming_uniform_(weight, a=math.sqrt(5.0), generator=generator)
        if bias is not None:
            # Read from the weight as torch does: for a transposed convolution this is not the fan-in.
            bound = 1.0 / math.sqrt(weight[0].numel())
            bias.uniform_(-bound, bound, generator=generator)


INITIALIZATIONS: dict[str, type[Initialization]] = {
    "glorot": GlorotUniform,
    "gaussian": Gaussian,
    "random-sign": RandomSign,
    "torch": TorchDefault,
}
"""Names that stand for an initialization with its default settings."""


def initialize(module: ModuleT, init: Initialization | str, generator: torch.Generator | None = None) -> ModuleT:
    """Give every part of a module fresh values, in place, and return the module.

    Linear and convolution layers follow `init`; batch norm is reset to weight 1, bias 0 and fresh running
    statistics; any other part that owns parameters is asked to ``reset_parameters()``. The parts are
    visited in the order in which the module registers them, so equal modules and equal generators give
    equal values. Values are drawn in the dtype of the parameters: for weights in double precision,
    convert the module first.

    Args:
        module: Any module, also one with only a few linear layers among other parts.
        init: An initialization, or a name in `INITIALIZATIONS`.
        generator: Source of every draw, on the module's device; without it torch's global generator.

    Raises:
        ValueError: If parts own parameters and cannot be reset, or have no shapes yet; the parts are named
            and nothing has changed.

    Example:
        >>> net = initialize(nn.Linear(3, 2), RandomSign(scale=1, fan="in"), torch.Generator())
        >>> bool((net.weight.abs() == 3 ** -0.5).all()), net.bias.tolist()
        (True, [0.0, 0.0])

    """
    chosen = _as_initialization(init)
    _check_resettable(module)
    layers = [part for part in module.modules() if isinstance(part, Mix)]
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, Mix):
                is_first = len(layers) > 1 and part is layers[0]
                chosen.fill(part.weight, part.bias, _fans(part, is_first), generator)
            elif isinstance(part, _NormBase):
                part.reset_parameters()
            elif _owned(part):
                _reset_other(part, generator)
    return module


def _as_initialization(init: Initialization | str) -> Initialization:
    if isinstance(init, Initialization):
        return init
    if isinstance(init, str):
        return look_up(INITIALIZATIONS, init, "init")()
    raise TypeError(f"`init` must be an Initialization or a name of one, got {type(init).__name__}.")


def _fans(layer: Mix, is_first: bool) -> Fans:
    if isinstance(layer, nn.Linear):
        fan_in, width = layer.in_features, layer.out_features
    else:
        window = math.prod(layer.kernel_size)
        fan_in = layer.in_channels // layer.groups * window
        width = layer.out_channels * window
    return Fans(fan_in=fan_in, width=width if is_first else fan_in)


def _sigma(scale: float | int, fan: Fan, fans: Fans) -> float:
    return scale / math.sqrt(fans.width if fan == "width" else fans.fan_in)


def _zero(bias: Tensor | None) -> None:
    if bias is not None:
        bias.zero_()


def _check_settings(scale: float | int, fan: str) -> None:
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"`scale` must be positive and finite, got {scale!r}.")
    if fan not in ("width", "in"):
        raise ValueError(f'`fan` must be "width" or "in", got {fan!r}.')


def _owned(part: nn.Module) -> dict[str, nn.Parameter]:
    return dict(part.named_parameters(recurse=False))


def _check_resettable(module: nn.Module) -> None:
    stuck = []
    for path, part in module.named_modules():
        owned = _owned(part)
        label = f"{path or 'the module itself'} ({type(part).__name__})"
        if any(is_lazy(parameter) for parameter in owned.values()):
            raise ValueError(f"`module`: {label} has no shapes yet; run it on an example first.")
        # A reparametrized layer (weight norm, pruning) owns other names than these, or no weight at all.
        if isinstance(part, Mix):
            is_known = "weight" in owned and set(owned) <= {"weight", "bias"}
        else:
            is_known = not owned or callable(getattr(part, "reset_parameters", None))
        if not is_known:
            stuck.append(f"{label} with {', '.join(owned) or 'no weight of its own'}")
    if stuck:
        raise ValueError(
            f"`module` has parts whose parameters cannot be initialized: {'; '.join(stuck)}. "
            "Give them a method `reset_parameters()`, or initialize the other parts one by one."
        )


def _reset_other(part: nn.Module, generator: torch.Generator | None) -> None:
    """Call ``part.reset_parameters()``; with a generator, seed the global one from it for that long."""
    reset = part.reset_parameters
    assert callable(reset)
    if generator is None:
        reset()
        return
    seed = torch.randint(2**62, (), generator=generator, device=generator.device).item()
    with torch.random.fork_rng(devices=_devices(part)):
        torch.manual_seed(int(seed))
        reset()


def _devices(part: nn.Module) -> list[torch.device]:
    return sorted({p.device for p in _owned(part).values() if p.device.type == "cuda"}, key=str)
