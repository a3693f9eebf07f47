r"""The initializations of the papers, for any module with linear and convolution layers.

.. math:: \sigma = c / \sqrt{\text{fan}}

Symbols: :math:`c` is ``scale``; ``fan`` is one of:

- ``"in"``: the layer's own fan-in, input channels per group times window positions.
- ``"width"``: the paper's w, or w times the window. This is the layer's fan-in, except for the first linear or
  convolution layer that the module registers, where it is the number of outputs times the window. So the variance does
  not depend on the dimension of the data: if all hidden widths are w, every layer has the variance c²/w (dense) or
  c²/(w·window) (convolution). A single layer has no hidden units and keeps its fan-in.

Reference: "Deep Learning is Composite Kernel Learning", theorem 5.1 (sigma for dense and conv layers).
"""

import difflib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import is_lazy

from neuralpath._checks import check_number

T = TypeVar("T")
ModuleT = TypeVar("ModuleT", bound=nn.Module)
Weight = Float[Tensor, "outputs *rest"]
Bias = Float[Tensor, " n_biases"] | None
Transposed = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
LinearLayer = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d | Transposed


@dataclass(frozen=True, slots=True)
class Fans:
    """The two fans of one layer: its fan-in, and the fan of ``fan="width"``."""

    fan_in: int
    """Input channels per group times window positions."""
    width: int
    """The fan-in; for the first layer, the number of outputs times window positions."""


class Initialization(ABC):
    """An initialization of the weights and biases of a linear or convolution layer."""

    @abstractmethod
    def fill(self, weight: Weight, bias: Bias, fans: Fans, generator: torch.Generator | None) -> None:
        """Fill `weight` and `bias` (None if there is none) in place; called without gradient recording.

        Draws come from `generator`; None is torch's global generator.
        """


@dataclass(frozen=True)
class GlorotUniform(Initialization):
    """Uniform on ±sqrt(6 / (fan-in + fan-out)), biases 0: Keras's default, used by the papers' notebooks.

    >>> layer = initialize(nn.Linear(100, 50), GlorotUniform(), torch.Generator().manual_seed(0))
    >>> bool(layer.weight.abs().max() <= (6 / 150) ** 0.5), bool((layer.bias == 0).all())
    (True, True)
    """

    def fill(self, weight: Weight, bias: Bias, fans: Fans, generator: torch.Generator | None) -> None:
        nn.init.xavier_uniform_(weight, generator=generator)
        _zero(bias)


@dataclass(frozen=True)
class _Scaled(Initialization):
    """An initialization with standard deviation scale / sqrt(fan)."""

    scale: float | int = math.sqrt(2.0)
    fan: Literal["width", "in"] = "width"

    def __post_init__(self) -> None:
        check_number("scale", self.scale)
        if self.fan not in ("width", "in"):
            raise ValueError(f'`fan` must be "width" or "in", got {self.fan!r}.')

    def _sigma(self, fans: Fans) -> float:
        return self.scale / math.sqrt(fans.width if self.fan == "width" else fans.fan_in)


@dataclass(frozen=True)
class Gaussian(_Scaled):
    """Independent normal weights of standard deviation scale / sqrt(fan), biases 0.

    Args:
        scale: The factor c.
        fan: ``"width"`` or ``"in"``, see the module `neuralpath.nets.initialization`.

    >>> layer = initialize(nn.Linear(100, 100), Gaussian(scale=1.0, fan="in"), torch.Generator().manual_seed(0))
    >>> bool(0.09 < layer.weight.std() < 0.11)
    True
    """

    def fill(self, weight: Weight, bias: Bias, fans: Fans, generator: torch.Generator | None) -> None:
        weight.normal_(0.0, self._sigma(fans), generator=generator)
        _zero(bias)


@dataclass(frozen=True)
class RandomSign(_Scaled):
    """Weights scale / sqrt(fan) with independent fair signs, biases 0: the papers' symmetric Bernoulli.

    Args:
        scale, fan: As in `Gaussian`.

    >>> layer = initialize(nn.Linear(100, 100), RandomSign(scale=1.0, fan="in"), torch.Generator().manual_seed(0))
    >>> layer.weight.abs().unique().tolist() == [torch.tensor(0.1).item()]
    True
    """

    def fill(self, weight: Weight, bias: Bias, fans: Fans, generator: torch.Generator | None) -> None:
        weight.bernoulli_(0.5, generator=generator).mul_(2).sub_(1).mul_(self._sigma(fans))
        _zero(bias)


@dataclass(frozen=True)
class TorchDefault(Initialization):
    """The default of `torch.nn.Linear` and the convolutions, drawn from the given generator.

    >>> layer = initialize(nn.Linear(100, 50), TorchDefault(), torch.Generator().manual_seed(0))
    >>> bool(layer.weight.abs().max() <= 0.1)
    True
    """

    def fill(self, weight: Weight, bias: Bias, fans: Fans, generator: torch.Generator | None) -> None:
        nn.init.kaiming_uniform_(weight, a=math.sqrt(5.0), generator=generator)
        if bias is not None:
            # As in torch: for a transposed convolution this is not the fan-in.
            bound = 1.0 / math.sqrt(weight[0].numel())
            bias.uniform_(-bound, bound, generator=generator)


INITIALIZATIONS: dict[str, type[Initialization]] = {
    "glorot": GlorotUniform,
    "gaussian": Gaussian,
    "random-sign": RandomSign,
    "torch": TorchDefault,
}
"""Initializations with their default settings, by name."""


def initialize(module: ModuleT, init: Initialization | str, generator: torch.Generator | None = None) -> ModuleT:
    """Initialize every part of a module, in place, and return the module.

    Linear and convolution layers follow `init`; batch norm is reset to weight 1, bias 0 and new running statistics; on
    any other part that owns parameters, ``reset_parameters()`` is called. The parts are visited in the order in which
    the module registers them, so equal modules and equal generators give equal values. Values are drawn in the dtype of
    the parameters: for weights in double precision, convert the module first.

    Args:
        module: Any module.
        init: An initialization, or a name in `INITIALIZATIONS`.
        generator: Source of every draw, on the module's device; by default torch's global generator.

    Raises:
        ValueError: If parts own parameters and cannot be reset, or have no shapes yet; then nothing has changed.

    Example:
        >>> net = initialize(nn.Linear(3, 2), RandomSign(scale=1, fan="in"), torch.Generator())
        >>> bool((net.weight.abs() == 3 ** -0.5).all()), net.bias.tolist()
        (True, [0.0, 0.0])
    """
    if isinstance(init, str):
        init = look_up(INITIALIZATIONS, init, "init")()
    if not isinstance(init, Initialization):
        raise TypeError(f"`init` must be an Initialization or the name of one, got {type(init).__name__}.")
    _check_resettable(module)
    layers = [part for part in module.modules() if isinstance(part, LinearLayer)]
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, LinearLayer):
                is_first = len(layers) > 1 and part is layers[0]
                init.fill(part.weight, part.bias, _fans(part, is_first), generator)
            elif isinstance(part, _NormBase):
                part.reset_parameters()
            elif _owned(part):
                _reset_other(part, generator)
    return module


def _fans(layer: LinearLayer, is_first: bool) -> Fans:
    if isinstance(layer, nn.Linear):
        fan_in, width = layer.in_features, layer.out_features
    else:
        window = math.prod(layer.kernel_size)
        fan_in, width = layer.in_channels // layer.groups * window, layer.out_channels * window
    return Fans(fan_in=fan_in, width=width if is_first else fan_in)


def _zero(bias: Tensor | None) -> None:
    if bias is not None:
        bias.zero_()


def _owned(part: nn.Module) -> dict[str, nn.Parameter]:
    return dict(part.named_parameters(recurse=False))


def _check_resettable(module: nn.Module) -> None:
    stuck = []
    for path, part in module.named_modules():
        owned = _owned(part)
        label = f"{path or 'the module itself'} ({type(part).__name__})"
        if any(is_lazy(parameter) for parameter in owned.values()):
            raise ValueError(f"`module`: {label} has no shapes yet; run the module on an example first.")
        is_known = not owned or callable(getattr(part, "reset_parameters", None))
        if isinstance(part, LinearLayer):  # a reparametrized one (weight norm, pruning) has other parameters
            is_known = "weight" in owned and set(owned) <= {"weight", "bias"}
        if not is_known:
            stuck.append(f"{label} with {', '.join(owned) or 'no weight of its own'}")
    if stuck:
        problem = f"parts whose parameters cannot be initialized: {'; '.join(stuck)}"
        raise ValueError(f"`module` has {problem}. Give them a method `reset_parameters()`.")


def _reset_other(part: Any, generator: torch.Generator | None) -> None:
    """Call ``part.reset_parameters()``; with a generator, seed the global one from it during the call."""
    if generator is None:
        part.reset_parameters()
        return
    seed = torch.randint(2**62, (), generator=generator, device=generator.device).item()
    devices = {parameter.device for parameter in _owned(part).values() if parameter.device.type == "cuda"}
    with torch.random.fork_rng(devices=sorted(devices, key=str)):
        torch.manual_seed(int(seed))
        part.reset_parameters()


def look_up(table: Mapping[str, T], name: str, what: str) -> T:
    """The entry of a table of lower-case names; an unknown name is refused with the closest known one."""
    key = name.lower().replace("_", "-")
    if key in table:
        return table[key]
    nearest = difflib.get_close_matches(key, table, n=1)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    raise ValueError(f"`{what}`: {name!r} is unknown.{hint} Known: {', '.join(table)}.")
