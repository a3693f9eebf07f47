"""Gate flips along a training trajectory.

Between two switching instants the gates of all examples are constant, and with them the path features; at an instant
some gate of some example opens or closes (P1 definition 3.1). A recorder compares the gates after every step or epoch
with those of the update before. It misses a gate that flips twice in between, so the counts of a coarse record are
lower bounds of those of a finer one. A flip also counts where no feature changes because every path through the gate
is closed elsewhere.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from neuralpath._checks import describe
from neuralpath._loops import Words, pack, use_bits
from neuralpath.graph import Gates, PathGraph, checked_graph, compute_gates
from neuralpath.paths.inputs import Batch, Network

PackedLayer: TypeAlias = Words | Shaped[Tensor, "batch unit"]


@dataclass(frozen=True, slots=True, eq=False)
class GateSwitches:
    """Gate flips by layer, epoch and example, as a ``SwitchRecorder`` counts them.

    Args:
        epochs: The epochs, in the order in which the recorder saw them.
        flips: For each gate layer the number of gates that differ from the update before, by epoch and example, summed
            over the updates of the epoch.
        n_gates: The number of gates of each layer.
        instants: For each epoch the number of updates at which some gate of some example had flipped: the switching
            instants, as far as the recorder saw them.
        n_updates: For each epoch the number of updates.
    """

    epochs: tuple[int, ...]
    flips: dict[str, Int[Tensor, "epoch batch"]]
    n_gates: dict[str, int]
    instants: Int[Tensor, " epoch"]
    n_updates: Int[Tensor, " epoch"]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the gate layers, in the order of the network."""
        return tuple(self.flips)

    @property
    def per_epoch(self) -> Int[Tensor, " epoch"]:
        """Flips of each epoch, over all layers and examples."""
        return self.per_example.sum(1)

    @property
    def per_layer(self) -> dict[str, Int[Tensor, " epoch"]]:
        """Flips of each layer by epoch, over all examples."""
        return {name: flips.sum(1) for name, flips in self.flips.items()}

    @property
    def per_example(self) -> Int[Tensor, "epoch batch"]:
        """Flips of each epoch and example, over all layers."""
        return torch.stack(tuple(self.flips.values())).sum(0)

    @property
    def fraction(self) -> dict[str, Float[Tensor, " epoch"]]:
        """Flips of each layer by epoch, for each gate and example; above 1 where gates flip more than once."""
        return {
            name: flips.sum(1) / torch.tensor(self.n_gates[name] * flips.shape[1], dtype=torch.float64)
            for name, flips in self.flips.items()
        }

    @property
    def mean_fraction(self) -> Float[Tensor, " epoch"]:
        """The mean of ``fraction`` over the layers, by epoch."""
        return torch.stack(tuple(self.fraction.values()), dim=1).mean(1)


class SwitchRecorder:
    """Counts gate flips while a network trains: update it with the gates of the same inputs after every step or epoch.

    Counting starts at the first update. Hard gates are stored as bits, 64 to a word, and compared by population counts.
    A gate of a max pool flips when its unit picks another position.

    Args:
        threshold: A soft or leaky gate is open above this value, and flips when it crosses it.

    Reference: P1 definition 3.1. Cost: linear in the gates for each update; memory for the gates of one update, and one
    number for each epoch, layer and example.

    Raises:
        ValueError: ``threshold`` is negative or not finite.

    >>> import neuralpath as npath
    >>> model, x = npath.nets.FC(3, width=8, depth=3), torch.randn(5, 3)
    >>> graph, recorder = npath.trace(model, x[:1]), SwitchRecorder()
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> recorder.update(graph.gates(x), epoch=0)
    >>> hook = optimizer.register_step_post_hook(lambda *_: recorder.update(graph.gates(x), epoch=0))
    >>> for _ in range(3):
    ...     optimizer.zero_grad()
    ...     model(x).square().sum().backward()
    ...     optimizer.step()
    >>> switches = recorder.switches()
    >>> switches.names == graph.gate_names, switches.n_updates
    (True, tensor([3]))
    """

    def __init__(self, *, threshold: float = 0.5) -> None:
        if not 0 <= threshold < float("inf"):
            raise ValueError(f"`threshold` must be 0 or a positive finite number, got {threshold}.")
        self._threshold = threshold
        self._shapes: dict[str, torch.Size] = {}
        self._last: dict[str, PackedLayer] = {}
        self._flips: dict[int, dict[str, Int[Tensor, " batch"]]] = {}
        self._instants: dict[int, int] = {}
        self._n_updates: dict[int, int] = {}

    def update(self, gates: Gates, epoch: int = 0) -> None:
        """Compare gates with those of the update before, and count the flips.

        Args:
            gates: The gates of the same inputs as at the first update.
            epoch: The epoch that the flips are counted for.

        Raises:
            TypeError: ``gates`` is not ``Gates``.
            ValueError: The gates have other layers, shapes or numbers of examples than before, or there are none.
        """
        self._check(gates)
        now = {name: self._packed(layer) for name, layer in gates.layers.items()}
        if self._last:
            flips = {name: _differing(self._last[name], layer) for name, layer in now.items()}
            before = self._flips.get(epoch)
            self._flips[epoch] = flips if before is None else {name: before[name] + flips[name] for name in flips}
            self._instants[epoch] = self._instants.get(epoch, 0) + any(bool(layer.any()) for layer in flips.values())
            self._n_updates[epoch] = self._n_updates.get(epoch, 0) + 1
        self._last = now

    def switches(self) -> GateSwitches:
        """The flips counted so far, epochs in the order in which they were first seen.

        Raises:
            ValueError: There were fewer than two updates, so that nothing has been compared.
        """
        if not self._flips:
            raise ValueError("nothing has been compared yet: update the recorder at least twice.")
        epochs = self._flips.values()
        return GateSwitches(
            epochs=tuple(self._flips),
            flips={name: torch.stack([flips[name] for flips in epochs]) for name in self._shapes},
            n_gates={name: shape[1:].numel() for name, shape in self._shapes.items()},
            instants=torch.tensor(list(self._instants.values())),
            n_updates=torch.tensor(list(self._n_updates.values())),
        )

    def _check(self, gates: Gates) -> None:
        if not isinstance(gates, Gates):
            raise TypeError(f"`gates` must be `Gates`, as `graph.gates(x)` returns them, got {describe(gates)}.")
        shapes = {name: layer.shape for name, layer in gates.layers.items()}
        if not shapes:
            raise ValueError("`gates` is of a network without gates: nothing can switch.")
        if not self._shapes:
            self._shapes = shapes
        elif tuple(shapes.items()) != tuple(self._shapes.items()):
            change = f"the shapes were {_listed(self._shapes)} and are now {_listed(shapes)}"
            raise ValueError(f"`gates` must be of the same network and inputs at every update: {change}.")

    def _packed(self, layer: Shaped[Tensor, "batch ..."]) -> PackedLayer:
        flat = layer.flatten(1)
        if flat.is_floating_point():
            flat = flat > self._threshold
        # A copy, where it is not packed: the caller may write into its own gates.
        return pack(flat) if use_bits(flat) else flat.clone()


def _listed(shapes: Mapping[str, torch.Size]) -> str:
    return ", ".join(f"{name}: {tuple(shape)}" for name, shape in shapes.items())


def _differing(before: PackedLayer, now: PackedLayer) -> Int[Tensor, " batch"]:
    """Number of gates that differ, for each example."""
    if isinstance(before, Tensor):
        return torch.ne(before, torch.as_tensor(now)).sum(1).cpu()
    return torch.from_numpy(np.bitwise_count(before ^ now).sum(axis=1, dtype=np.int64))


@torch.no_grad()
def gate_switches(
    network: Network, x: Batch, checkpoints: Iterable[Mapping[str, Tensor]], *, threshold: float = 0.5
) -> GateSwitches:
    """Gate flips from each checkpoint of a network to the next, on the same inputs.

    Args:
        network: A module or its path graph. The module itself is left as it is.
        x: The examples.
        checkpoints: Mappings from names to tensors, as ``model.state_dict()`` returns them, copied if training
            continues. Tensors that the graph does not read are ignored. Epoch k leads to checkpoint k.
        threshold: A soft or leaky gate is open above this value.

    Reference: P1 definition 3.1. Cost: one forward pass for each checkpoint; one checkpoint is in memory at a time.

    Raises:
        ValueError: There are fewer than two checkpoints, one lacks a tensor of the network or has another shape, or
            ``x`` does not fit the network.

    >>> import neuralpath as npath
    >>> model, x = npath.nets.FC(3, width=16, depth=3), torch.randn(5, 3)
    >>> negative = {name: -weight for name, weight in model.state_dict().items()}
    >>> switches = gate_switches(model, x, [model.state_dict(), negative])
    >>> switches.fraction["layers.relu1"]  # every gate of the first layer has flipped
    tensor([1.], dtype=torch.float64)
    """
    graph = checked_graph(network, x=x)
    recorder = SwitchRecorder(threshold=threshold)
    for index, checkpoint in enumerate(checkpoints):
        recorder.update(compute_gates(graph, x, _tensors_of(graph, checkpoint, index)), epoch=index)
    return recorder.switches()


def _tensors_of(graph: PathGraph, checkpoint: Mapping[str, Tensor], index: int) -> dict[str, Tensor]:
    """The tensors of a checkpoint that the graph reads, by the graph's own names."""
    own = graph.state
    tensors = {graph.aliases.get(name, name): tensor for name, tensor in checkpoint.items()}
    if missing := sorted(set(own) - set(tensors)):
        raise ValueError(f"`checkpoints[{index}]` lacks tensors that the network reads: {', '.join(missing)}.")
    for name, tensor in own.items():
        if not isinstance(tensors[name], Tensor) or tensors[name].shape != tensor.shape:
            place, shape = f"checkpoints[{index}][{name!r}]", tuple(tensor.shape)
            raise ValueError(f"`{place}` must be a tensor of shape {shape}, got {describe(tensors[name])}.")
    return {name: tensors[name].to(tensor) for name, tensor in own.items()}
