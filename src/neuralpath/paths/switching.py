r"""Switching of gates along a training trajectory.

Between two switching instants the gates of all examples stay, and with them the path features; at each of them some
gate of some example opens or closes (P1 definition 3.1). A recorder is fed with the gates after every step or epoch and
counts what has flipped since it was fed last. A gate that flips twice in between is not seen, so the counts of a coarse
record are lower bounds of those of a finer one. A flip counts also where it changes no feature because every path
through the gate is closed elsewhere.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from neuralpath._checks import describe
from neuralpath._loops import Words, pack, use_bits
from neuralpath.graph import GATES_CHUNK, FiniteForward, Gates, PathGraph, as_graph, check_input, check_tensors, walk

State: TypeAlias = Words | Shaped[Tensor, "batch unit"]


@dataclass(frozen=True, slots=True, eq=False)
class GateSwitches:
    """Gate flips by epoch, layer and example, as a recorder has counted them.

    ``flips`` has the number of gates that differ from what they were at the feeding before, summed over the feedings
    of an epoch. ``instants`` is the number of feedings of an epoch at which some gate of some example had flipped, of
    ``fed`` in all: the switching instants, as far as they were seen. ``gates`` are the gates of each layer.
    """

    names: tuple[str, ...]
    gates: tuple[int, ...]
    epochs: tuple[int, ...]
    flips: Int[Tensor, "epoch layer batch"]
    instants: Int[Tensor, " epoch"]
    fed: Int[Tensor, " epoch"]

    def __post_init__(self) -> None:
        if tuple(self.flips.shape[:2]) != (len(self.epochs), len(self.names)):
            raise ValueError(
                f"`flips` must have a row for each of {len(self.epochs)} epochs and {len(self.names)} layers, got "
                f"{describe(self.flips)}."
            )

    @property
    def per_epoch(self) -> Int[Tensor, " epoch"]:
        """Flips of each epoch, over all layers and examples."""
        return self.flips.sum((1, 2))

    @property
    def per_layer(self) -> Int[Tensor, "epoch layer"]:
        """Flips of each epoch and layer, over all examples."""
        return self.flips.sum(2)

    @property
    def per_example(self) -> Int[Tensor, "epoch batch"]:
        """Flips of each epoch and example, over all layers."""
        return self.flips.sum(1)

    @property
    def fraction(self) -> Float[Tensor, "epoch layer"]:
        """Flips of each epoch and layer for each gate and example; above 1 where gates flip more than once."""
        sizes = torch.tensor(self.gates, dtype=torch.float64) * self.flips.shape[2]
        return self.per_layer / sizes


class SwitchRecorder:
    """Counts gate flips while a network trains; fed with the gates of the same inputs after every step or epoch.

    The first feeding is where counting starts. Hard gates are kept packed, 64 to a word, and compared by population
    counts. Any other gate is open where it is above ``threshold``: soft and leaky gates flip when they cross it. A
    gate of a max pool flips when its unit picks another position.

    Reference: P1 definition 3.1. Cost: linear in the gates for each feeding; memory for the gates of one feeding, and
    one number for each epoch, layer and example.

    >>> import neuralpath as npath
    >>> model, x = npath.nets.FC(3, width=8, depth=3), torch.randn(5, 3)
    >>> graph, recorder = npath.trace(model, x[:1]), SwitchRecorder()
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> recorder.feed(graph.gates(x), epoch=0)
    >>> hook = optimizer.register_step_post_hook(lambda *_: recorder.feed(graph.gates(x), epoch=0))
    >>> for _ in range(3):
    ...     optimizer.zero_grad()
    ...     model(x).square().sum().backward()
    ...     optimizer.step()
    >>> switches = recorder.switches()
    >>> switches.names == graph.gate_names, switches.fed
    (True, tensor([3]))
    """

    def __init__(self, *, threshold: float = 0.5) -> None:
        if not 0 <= threshold < float("inf"):
            raise ValueError(f"`threshold` must be 0 or a positive finite number, got {threshold}.")
        self._threshold = threshold
        self._names: tuple[str, ...] | None = None
        self._shapes: tuple[torch.Size, ...] = ()
        self._last: list[State] = []
        self._flips: dict[int, Int[Tensor, "layer batch"]] = {}
        self._instants: dict[int, int] = {}
        self._fed: dict[int, int] = {}

    def feed(self, gates: Gates, epoch: int = 0) -> None:
        """Compare gates with those of the feeding before, and count the flips for an epoch.

        Raises: TypeError if they are no ``Gates``; ValueError if they are of other nodes, shapes or numbers of examples
        than before, or of a network without gates.
        """
        self._check(gates)
        now = [self._state(layer) for layer in gates.layers.values()]
        if self._last:
            flips = torch.stack([_flips(one, two) for one, two in zip(self._last, now, strict=True)])
            zeros = torch.zeros_like(flips)
            self._flips[epoch] = self._flips.get(epoch, zeros) + flips
            self._instants[epoch] = self._instants.get(epoch, 0) + int(bool(flips.any()))
            self._fed[epoch] = self._fed.get(epoch, 0) + 1
        self._last = now

    def switches(self) -> GateSwitches:
        """What has been counted so far, epochs in the order in which they were first fed.

        Raises: ValueError before the second feeding, when there was nothing to compare.
        """
        if self._names is None or not self._flips:
            raise ValueError("nothing has been compared yet: feed the recorder at least twice.")
        return GateSwitches(
            names=self._names,
            gates=tuple(shape[1:].numel() for shape in self._shapes),
            epochs=tuple(self._flips),
            flips=torch.stack(list(self._flips.values())),
            instants=torch.tensor(list(self._instants.values())),
            fed=torch.tensor(list(self._fed.values())),
        )

    def _check(self, gates: Gates) -> None:
        if not isinstance(gates, Gates):
            raise TypeError(f"`gates` must be `Gates`, as `graph.gates(x)` returns them, got {describe(gates)}.")
        shapes = tuple(layer.shape for layer in gates.layers.values())
        if self._names is None:
            if not shapes:
                raise ValueError("`gates` is of a network without gates: nothing can switch.")
            self._names, self._shapes = gates.names, shapes
        elif (gates.names, shapes) != (self._names, self._shapes):
            raise ValueError(
                "`gates` must be of the same network and inputs at every feeding, first of the shapes "
                f"{_described(self._names, self._shapes)}, now {_described(gates.names, shapes)}."
            )

    def _state(self, layer: Shaped[Tensor, "batch ..."]) -> State:
        flat = layer.flatten(1)
        if flat.is_floating_point():
            flat = flat > self._threshold
        # A copy, where it is not packed: the caller may write into its own gates.
        return pack(flat) if use_bits(flat) else flat.clone()


def _described(names: tuple[str, ...], shapes: tuple[torch.Size, ...]) -> str:
    return ", ".join(f"{name}: {tuple(shape)}" for name, shape in zip(names, shapes, strict=True))


def _flips(one: State, two: State) -> Int[Tensor, " batch"]:
    """Number of gates that differ, for each example."""
    if isinstance(one, Tensor):
        return torch.ne(one, torch.as_tensor(two)).sum(1).cpu()
    return torch.from_numpy(np.bitwise_count(one ^ two).sum(axis=1, dtype=np.int64))


@torch.no_grad()
def gate_switches(
    network: nn.Module | PathGraph,
    x: Float[Tensor, "batch *shape"],
    checkpoints: Iterable[Mapping[str, Tensor]],
    *,
    threshold: float = 0.5,
) -> GateSwitches:
    """Gate flips from each checkpoint of a network to the next, on the same inputs; epoch k leads to checkpoint k.

    A checkpoint is a mapping from names to tensors, as ``model.state_dict()`` gives it; one that is kept while training
    goes on must be a copy. What the graph does not read is ignored. The model itself is left as it is.
    Reference: P1 definition 3.1. Cost: one forward pass for each checkpoint; one checkpoint is held at a time.
    Raises: ValueError for fewer than two checkpoints, or one that lacks a tensor of the network or has another shape;
    as ``graph.gates`` for inputs that do not fit.

    >>> import neuralpath as npath
    >>> model, x = npath.nets.FC(3, width=16, depth=3), torch.randn(5, 3)
    >>> negative = {name: -weight for name, weight in model.state_dict().items()}
    >>> switches = gate_switches(npath.trace(model, x[:1]), x, [model.state_dict(), negative])
    >>> switches.fraction[0, 0]  # every gate of the first layer has flipped
    tensor(1., dtype=torch.float64)
    """
    graph = as_graph(network, x)
    check_input("x", x, graph)
    recorder = SwitchRecorder(threshold=threshold)
    for number, checkpoint in enumerate(checkpoints):
        recorder.feed(_gates_at(graph, x, _tensors_of(graph, checkpoint, number)), epoch=number)
    return recorder.switches()


def _tensors_of(graph: PathGraph, checkpoint: Mapping[str, Tensor], number: int) -> dict[str, Tensor]:
    """The tensors of a checkpoint that the graph reads, by the graph's own names."""
    own = graph.state
    given = {graph.aliases.get(name, name): tensor for name, tensor in checkpoint.items()}
    missing = sorted(set(own) - set(given))
    if missing:
        raise ValueError(f"`checkpoints[{number}]` lacks tensors that the network reads: {', '.join(missing)}.")
    for name, tensor in own.items():
        if not isinstance(given[name], Tensor) or given[name].shape != tensor.shape:
            raise ValueError(
                f"`checkpoints[{number}][{name!r}]` must be a tensor of shape {tuple(tensor.shape)}, got "
                f"{describe(given[name])}."
            )
    return {name: given[name].to(tensor) for name, tensor in own.items()}


def _gates_at(graph: PathGraph, x: Float[Tensor, "batch *shape"], state: dict[str, Tensor]) -> Gates:
    check_tensors(graph.nodes, state)
    recorded: dict[str, list[Shaped[Tensor, "batch ..."]]] = {name: [] for name in graph.gate_names}
    for chunk in x.split(GATES_CHUNK):
        walk(graph, FiniteForward(graph.nodes, chunk, state, record=lambda name, gate: recorded[name].append(gate)))
    return Gates({name: torch.cat(parts) for name, parts in recorded.items()})
