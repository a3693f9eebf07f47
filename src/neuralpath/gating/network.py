"""The deep gated network: a feature network computes the gates, a value network has the weights."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from neuralpath._checks import check_batch, describe
from neuralpath.gates import HardGate, LinearGate
from neuralpath.gating.matching import GateOrder, GateTransforms, Matching, as_order, match_gates
from neuralpath.gating.modes import Recording
from neuralpath.gating.spellings import GateFunction
from neuralpath.gating.swapping import GateLayers, check_examples, check_module, run_replacing, run_under, sample_gates
from neuralpath.gating.value_inputs import ValueInput, as_value_input
from neuralpath.graph import Gates

_SETTINGS = frozenset({"gate", "gate_order", "gate_transform", "linear_feature", "train_feature"})

_UNGATED = (
    "the value network has nonlinear operations that are not gates: {}. They would keep their own nonlinearity for any "
    "gates. Use gates instead: ReLU, leaky ReLU, PReLU, ReLU6, SiLU, GELU, Hardswish, Mish, or max pools."
)
_NOT_LINEAR = "`linear_feature` is set, but the feature network has nonlinear operations: {}."


class GatedNetwork(nn.Module):
    r"""A value network whose gates come from a feature network.

    .. math:: q^F_l = \Theta^F_l z^F_{l-1}, \quad z^F_l = \chi_r(q^F_l), \quad
              z^V_l = (\Theta^V_l z^V_{l-1}) \odot G(q^F_{\pi(l)})

    Symbols: :math:`G` is ``gate``, :math:`\pi` is ``gate_order``, :math:`\chi_r` the feature network's own activation.
    Gates are found by operation and matched in the order in which they run; a max pool of the value network reads the
    positions that the feature network's pool picks. The output is that of the value network. The feature network's own
    output is not used, so layers after its last gate get no gradient. Both networks become parts of this module,
    ``.feature`` and ``.value``; with ``train_feature=False`` the former is frozen and put into evaluation mode.

    Every nonlinear operation of the value network must be a gate. Other activations (ELU, tanh, ``q * (q > 0)``,
    ``torch.where(q > 0, q, 0)``, soft-max, attention) are refused by name, since they would use the value network's
    own pre-activations. Exceptions are functions of the input alone, before the first weight; normalizations by
    torch's own functions; products of two values; and as the very last operation a soft-max, log-soft-max, sigmoid,
    log-sigmoid, tanh, softplus or exponential function. A feature network may have any operations, unless it is linear.

    Reference: P1 section 5, P2 section 6, P3 section 4; `decouple` builds the regimes of the papers.

    Args:
        feature: The network that computes the gates.
        value: The network that has the weights. It may be wider if ``gate_transform`` tiles the masks.
        gate: Computes gates from the feature network's pre-activations: ``HardGate()``, ``SoftGate(beta, factor)`` or
            any function that treats every example separately. None takes each activation's own gate: hard for ReLU.
        gate_order: The feature network's gate for each gate of the value network: a permutation (from 0),
            ``"reversed"``, or a mapping by index or name; ``match(x)`` shows the names.
        gate_transform: Changes masks between the networks, for example ``TileGates(shift=2)``; one for all gates, or a
            mapping from gates of the value network.
        value_input: The input of the value network: ``"image"``, ``"ones"``, ``"random"`` (one fixed image, see
            `RandomImage`), or a function of the batch. A function that is a module becomes a part of this one.
        linear_feature: Whether the feature network's activations return their input unchanged: the deep linearly gated
            network of P3 section 5.
        train_feature: Whether the feature network is trained too; needs gates that are not hard.

    Raises:
        TypeError, ValueError: An argument is invalid, or (at the first batch) the networks' gates do not match, or the
            value network has nonlinear operations that are not gates.

    Example:
        >>> make = lambda: nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> network = GatedNetwork(make(), make())
        >>> network(torch.randn(5, 3)).shape
        torch.Size([5, 2])
        >>> [name for name, p in network.named_parameters() if p.requires_grad]
        ['value.0.weight', 'value.0.bias', 'value.2.weight', 'value.2.bias']
    """

    def __init__(
        self,
        feature: nn.Module,
        value: nn.Module,
        *,
        gate: GateFunction | None = None,
        gate_order: GateOrder | None = None,
        gate_transform: GateTransforms | None = None,
        value_input: str | ValueInput = "image",
        linear_feature: bool = False,
        train_feature: bool = False,
    ) -> None:
        super().__init__()
        _check_arguments(feature, value, gate, gate_transform, train_feature)
        self.feature = feature
        self.value = value
        self.gate = gate
        self.gate_order = as_order(gate_order)
        self.gate_transform = gate_transform
        self.value_input = as_value_input(value_input)
        self.linear_feature = linear_feature
        self.train_feature = train_feature
        self._matchings: dict[Any, Matching] = {}
        if not train_feature:
            feature.requires_grad_(False)
            feature.eval()

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse to change the settings with which the gates were matched."""
        if name in _SETTINGS and name in self.__dict__:
            raise AttributeError(f"`{name}` of a GatedNetwork cannot be changed; make a new one from its parts.")
        super().__setattr__(name, value)

    @property
    def gates_fixed(self) -> bool:
        """Whether the gates of an example never change while the network is trained."""
        return not self.train_feature and not any(part.training for part in self.feature.modules())

    def train(self, mode: bool = True) -> "GatedNetwork":
        """Set training or evaluation mode; a feature network that is not trained stays in evaluation mode."""
        super().train(mode)
        if not self.train_feature:
            self.feature.eval()
        return self

    def match(self, x: Float[Tensor, "batch *shape"]) -> Matching:
        """The source of each gate of the value network, for examples of this shape; ``print`` it to see a table.

        It runs both networks on two examples of ``x`` and changes nothing. The first batch of each shape calls it.

        Raises:
            ValueError: The gates do not match (the message has both shapes), or the value network, or a linear feature
                network, has nonlinear operations that are not gates.
        """
        check_examples(x)
        key = (tuple(x.shape[1:]), self.feature.training, self.value.training)
        if key not in self._matchings:
            self._matchings[key] = self._matched(x)
        return self._matchings[key]

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _matched(self, x: Tensor) -> Matching:
        check_batch("x", x, tuple(x.shape[1:]))
        refused = _NOT_LINEAR if self.linear_feature else None
        feature = sample_gates(self.feature, x, self.gate, linear=self.linear_feature, refused=refused)
        value = sample_gates(self.value, self.value_input(x), refused=_UNGATED)
        if self.train_feature and not any(layer.is_floating_point() for layer in feature.layers):
            raise ValueError(
                "`train_feature` is set, but the feature network's own gates are hard and have no gradient; give "
                "`gate=SoftGate(10)`."
            )
        return match_gates(feature, value, self.gate_order, self.gate_transform)

    def gates(self, x: Float[Tensor, "batch *shape"]) -> Gates:
        """The gates of the value network for a batch, by the names of its own gates, in its own order.

        Hard gates are boolean, others floating-point; max pools have int64 positions. Gradients flow through gates only
        with ``train_feature``; otherwise they are constants, for gradients in ``x`` too.
        """
        return Gates(dict(zip(self.match(x).names, self._gate_layers(x), strict=True)))

    def _gate_layers(self, x: Tensor) -> tuple[Tensor, ...]:
        matching = self.match(x)
        kind, trained = x.device.type, self.train_feature
        # The rounding of autocast would move some pre-activations across 0, and so change fixed gates.
        is_rounded = not trained and torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
        full_precision = torch.autocast(kind, enabled=False) if is_rounded else nullcontext()
        with nullcontext() if trained else torch.no_grad(), full_precision:
            recording = Recording(self.gate, linear=self.linear_feature)
            # A copy, since a network may write into its input, which the value network needs too.
            first = next(self.feature.parameters(), x)
            run_under(recording, self.feature, x.to(first.dtype, copy=True) if is_rounded else x.clone())
            if len(recording.layers) != matching.n_feature_gates:
                counts = f"{len(recording.layers)} gate operations on this batch, but {matching.n_feature_gates} when"
                causes = "values of the batch, or torch.compile hides torch.relu_, F.leaky_relu_ and F.hardswish"
                raise RuntimeError(f"the feature network ran {counts} its gates were matched; causes: {causes}.")
            return matching.arrange(recording.layers)

    def value_output(self, x: Float[Tensor, "batch *shape"], gates: GateLayers) -> Float[Tensor, "batch *out"]:
        """The output for given gates: the value network alone, differentiable in its weights and in soft gates.

        Args:
            x: Examples, the input of this network; ``value_input`` is applied here.
            gates: The result of ``gates(x)``, or a sequence of tensors in that order. Hard gates may be boolean, or 0
                and 1 as floats, which is faster.

        Raises:
            ValueError, TypeError: A gate does not fit; the message has its index and both shapes.
        """
        return run_replacing(self.value, self.value_input(x), gates)

    def forward(self, x: Float[Tensor, "batch *shape"]) -> Float[Tensor, "batch *out"]:
        """The value network's output for the examples ``x``, with the gates of the feature network."""
        return self.value_output(x, self._gate_layers(x))

    def extra_repr(self) -> str:
        """The settings that are not modules."""
        settings = {"gate": self.gate, "gate_order": self.gate_order, "gate_transform": self.gate_transform}
        texts = [f"{name}={value}" for name, value in settings.items() if value is not None]
        if not isinstance(self.value_input, nn.Module):
            texts.append(f"value_input={getattr(self.value_input, '__name__', self.value_input)}")
        return ", ".join([*texts, f"linear_feature={self.linear_feature}", f"train_feature={self.train_feature}"])


def _check_arguments(feature: Any, value: Any, gate: object, transform: object, train_feature: bool) -> None:
    for name, network in (("feature", feature), ("value", value)):
        check_module(name, network)
        check_not_gated(name, network)
    owned = {id(parameter): name for name, parameter in feature.named_parameters()}
    for name, parameter in value.named_parameters():
        if id(parameter) in owned:
            raise ValueError(
                f"`feature` and `value` share a parameter, {owned[id(parameter)]!r} and {name!r}: their weights must "
                "be separate; give one of them as `copy.deepcopy(model)`."
            )
    if gate is not None and (not callable(gate) or isinstance(gate, type)):
        got = repr(gate) if isinstance(gate, str | type) else describe(gate)
        raise TypeError(f"`gate` must be None, or a function such as `HardGate()` or `SoftGate(beta)`, got {got}.")
    if train_feature and isinstance(gate, HardGate | LinearGate):
        raise ValueError(f"`train_feature` is set, but {gate} has no gradient; give `gate=SoftGate(10)`.")
    for entry in transform.values() if isinstance(transform, Mapping) else () if transform is None else (transform,):
        if not callable(entry):
            expected = "a function such as `TileGates(shift=2)`, or a mapping from gates to functions"
            raise TypeError(f"`gate_transform` must be {expected}; got {describe(entry)}.")


def check_not_gated(name: str, module: nn.Module) -> None:
    """Refuse a network whose gates and weights are already separate."""
    for path, part in module.named_modules():
        if isinstance(part, GatedNetwork):
            what = f"is a {type(part).__name__}" if not path else f"has a part {path!r} that is a {type(part).__name__}"
            raise TypeError(f"`{name}` {what}, whose gates and weights are already separate; give plain networks.")
