"""Explicit path features and path values, path by path, for networks small enough to list them."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from neuralpath.graph import (
    Gates,
    PathGraph,
    checked_graph,
    chosen_output,
    no_paths_through,
    nodes as n,
    refuse_repeated,
    walk,
)
from neuralpath.paths.inputs import Batch, Network, checked_gates

PATH_LIMIT = 100_000  # paths times outputs that are listed by default: about a second and 100 MB


@dataclass(frozen=True, slots=True, eq=False)
class PathTable:
    """One row for each partial path: the unit that it has reached, its weights, its value and its features."""

    unit: Int[Tensor, " path"]
    weights: Int[Tensor, "path step"]  # number of the weight at each step, -1 beyond the path's last
    value: Float[Tensor, " path"]
    feature: Float[Tensor, "batch path"]

    def take(self, rows: Int[Tensor, " rows"], unit: Int[Tensor, " rows"]) -> "PathTable":
        """A selection of the paths, continued to other units."""
        return PathTable(unit, self.weights[rows], self.value[rows], self.feature[:, rows])

    def times(self, factor: Float[Tensor, "#batch path"]) -> "PathTable":
        """The features multiplied by a factor."""
        return PathTable(self.unit, self.weights, self.value, self.feature * factor)

    def with_weight(self, number: Int[Tensor, " path"], value: Float[Tensor, " path"]) -> "PathTable":
        """Every path extended by one weight."""
        weights = torch.cat([self.weights, number[:, None]], dim=1)
        return PathTable(self.unit, weights, self.value * value, self.feature)


def _stack(tables: "tuple[PathTable, ...] | list[PathTable]") -> PathTable:
    steps = max(table.weights.shape[1] for table in tables)
    pad = torch.nn.functional.pad
    return PathTable(
        torch.cat([t.unit for t in tables]),
        torch.cat([pad(t.weights, (0, steps - t.weights.shape[1]), value=-1) for t in tables]),
        torch.cat([t.value for t in tables]),
        torch.cat([t.feature for t in tables], dim=1),
    )


class Enumeration:
    """Lists the paths into each unit, with their features for a batch and their values."""

    def __init__(self, graph: PathGraph, x: Batch, gates: Gates) -> None:
        self._x = x
        self._gates = gates
        self._state = graph.state
        sizes = [_weight_count(node) for node in graph.weights()]
        starts = torch.tensor([0, *sizes]).cumsum(0).tolist()
        self._first = {node.name: start for node, start in zip(graph.weights(), starts, strict=False)}

    def _signal(self, signal: Float[Tensor, "batch *shape"]) -> PathTable:
        feature = signal.flatten(1)
        n_units = feature.shape[1]
        nothing = torch.empty(n_units, 0, dtype=torch.int64)
        return PathTable(torch.arange(n_units), nothing, self._x.new_ones(n_units), feature)

    def input(self, node: n.InputNode) -> PathTable:
        return self._signal(self._x)

    def constant(self, node: n.ConstantNode) -> PathTable:
        value = node.value.evaluate(self._state).to(self._x)
        return self._signal(value.expand(self._x.shape[0], *node.shape))

    def linear(self, node: n.LinearNode, paths: PathTable) -> PathTable:
        source, target, number = _linear_edges(node)
        rows, edges = _join(paths.unit, source)
        weight = node.weight.evaluate(self._state).reshape(-1)[number[edges]]
        return paths.take(rows, target[edges]).with_weight(self._first[node.name] + number[edges], weight)

    def bias(self, node: n.BiasNode, paths: PathTable) -> PathTable:
        number = torch.arange(_weight_count(node)).reshape(node.value_shape).expand(node.shape).reshape(-1)
        value = node.value.evaluate(self._state).reshape(-1)[number]
        starts = self._signal(self._x.new_ones(self._x.shape[0], node.n_units))
        return _stack([paths, starts.with_weight(self._first[node.name] + number, value)])

    def gate(self, node: n.GateNode, paths: PathTable) -> PathTable:
        return paths.times(self._gates[node.name].flatten(1)[:, paths.unit].to(paths.feature.dtype))

    def activation(self, node: n.ActivationNode, paths: PathTable) -> PathTable:
        raise no_paths_through(node)

    def scale(self, node: n.ScaleNode, paths: PathTable) -> PathTable:
        factor = node.factor.evaluate(self._state).to(paths.feature)
        return paths.times(factor.expand(node.shape).reshape(1, -1)[:, paths.unit])

    def add(self, node: n.AddNode, *branches: PathTable) -> PathTable:
        return _stack(branches)

    def concat(self, node: n.ConcatNode, *branches: PathTable) -> PathTable:
        starts = torch.tensor([0, *node.sizes]).cumsum(0) * node.n_positions
        moved = [PathTable(b.unit + s, b.weights, b.value, b.feature) for b, s in zip(branches, starts, strict=False)]
        return _stack(moved)

    def select(self, node: n.SelectNode, paths: PathTable) -> PathTable:
        source, target = _select_edges(node)
        rows, edges = _join(paths.unit, source)
        return paths.take(rows, target[edges])

    def average_pool(self, node: n.AveragePoolNode, paths: PathTable) -> PathTable:
        matrix = torch.ones(1, 1, dtype=torch.float64)
        for axis_matrix in node.matrices:
            matrix = torch.kron(matrix, axis_matrix)
        out, position = matrix.nonzero(as_tuple=True)
        factor = matrix[out, position]
        source, target, factor = _in_each_channel(node.shape[0], tuple(matrix.shape), position, out, factor)
        rows, edges = _join(paths.unit, source)
        return paths.take(rows, target[edges]).times(factor[edges][None].to(paths.feature))

    def max_pool(self, node: n.MaxPoolNode, paths: PathTable) -> PathTable:
        positions = node.positions
        n_in = int(torch.tensor(node.in_space).prod())
        out, place = (positions >= 0).nonzero(as_tuple=True)
        position = positions[out, place]
        source, target, position = _in_each_channel(node.shape[0], (positions.shape[0], n_in), position, out, position)
        rows, edges = _join(paths.unit, source)
        chosen = self._gates[node.name].flatten(1)[:, target[edges]] == position[edges]
        return paths.take(rows, target[edges]).times(chosen.to(paths.feature.dtype))

    def reshape(self, node: n.ReshapeNode, paths: PathTable) -> PathTable:
        return paths


def _weight_count(node: n.LinearNode | n.BiasNode) -> int:
    shape = node.weight_shape if isinstance(node, n.LinearNode) else node.value_shape
    return int(torch.Size(shape).numel())


def _join(units: Int[Tensor, " path"], source: Int[Tensor, " edge"]) -> tuple[Tensor, Tensor]:
    """Every pair of a path and an edge that starts where the path ends, in the order of the paths."""
    order = source.argsort(stable=True)
    size = int(torch.cat([units, source]).max()) + 1
    counts = torch.bincount(source, minlength=size)
    first = counts.cumsum(0) - counts
    copies = counts[units]
    rows = torch.arange(len(units)).repeat_interleave(copies)
    within = torch.arange(len(rows)) - (copies.cumsum(0) - copies)[rows]
    return rows, order[first[units[rows]] + within]


def _linear_edges(node: n.LinearNode) -> tuple[Tensor, Tensor, Tensor]:
    """Source unit, target unit and number of the weight for every connection of a linear node, outputs in order."""
    out, per_group = node.weight_shape[:2]
    in_space = node.in_space
    tables = tuple(w.table(size) for w, size in zip(node.windows, in_space, strict=True))
    positions = n.window_positions(tables, in_space)
    target_position, place = (positions >= 0).nonzero(as_tuple=True)
    position = positions[target_position, place]
    n_in, n_out, window = int(torch.Size(in_space).numel()), positions.shape[0], positions.shape[1]
    target_channel, channel = torch.cartesian_prod(torch.arange(out), torch.arange(per_group)).T
    source_channel = (target_channel // (out // node.groups)) * per_group + channel
    source = source_channel[:, None] * n_in + position
    target = target_channel[:, None] * n_out + target_position
    number = (target_channel * per_group + channel)[:, None] * window + place
    return source.reshape(-1), target.reshape(-1), number.reshape(-1)


def _select_edges(node: n.SelectNode) -> tuple[Tensor, Tensor]:
    source = torch.zeros(1, dtype=torch.int64)
    for index, size in zip(node.indices, node.in_shape, strict=True):
        index = torch.arange(size) if index is None else index
        source = torch.where((source[:, None] < 0) | (index < 0), -1, source[:, None] * size + index).reshape(-1)
    target = (source >= 0).nonzero()[:, 0]
    return source[target], target


def _in_each_channel(
    channels: int, shape: tuple[int, ...], position: Tensor, out: Tensor, extra: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Connections between positions, repeated for each channel, as connections between units."""
    channel = torch.arange(channels)[:, None]
    source = (channel * shape[1] + position).reshape(-1)
    target = (channel * shape[0] + out).reshape(-1)
    return source, target, extra.repeat(channels)


def path_features(
    network: Network,
    x: Batch,
    *,
    gates: Gates | None = None,
    bundled: bool = False,
    outputs: int | None = None,
    limit: int = PATH_LIMIT,
) -> Float[Tensor, "batch path"]:
    r"""The neural path feature (NPF) of each example, path by path.

    .. math:: \phi_x(p) = x(\text{start of } p) \cdot A(x, p) \cdot \text{constants on } p

    A path that starts at a bias has the signal 1.

    Args:
        network: A module or its path graph.
        x: The examples.
        gates: The gates to use instead of those that ``x`` opens.
        bundled: Sum the paths that use the same weights. Then inner products of features are the neural path kernel.
        outputs: The index of the output unit whose paths are listed; ``None`` where all outputs share their paths.
        limit: The largest number of paths, times outputs, that is listed.

    Raises:
        ValueError: There are more paths than ``limit``, weights are tied, or the outputs do not share their paths and
            ``outputs`` is not given.

    Reference: P1 definition 2.1, P2 definitions 3.3 and 3.6. Cost: the number of paths, times the batch.

    >>> import neuralpath as npath
    >>> x = torch.randn(5, 3, dtype=torch.float64)
    >>> graph = npath.trace(npath.nets.FC(3, width=4, depth=3).double(), x[:1])
    >>> features = npath.paths.path_features(graph, x)
    >>> features.shape, bool(torch.allclose(features @ features.T, npath.path_kernel(graph, x)))
    (torch.Size([5, 48]), True)
    """
    graph = checked_graph(network, x=x)
    refuse_repeated(graph, "the path feature")
    unit = chosen_output(graph, outputs)
    paths = _listed(graph, x, checked_gates(graph, x, gates), limit)
    rows = (paths.unit == unit).nonzero()[:, 0]
    features = paths.feature[:, rows]
    if not bundled:
        return features
    bundle = torch.unique(paths.weights[rows], dim=0, return_inverse=True)[1]
    return features.new_zeros(len(x), int(bundle.max()) + 1).index_add(1, bundle, features)


def path_values(
    graph: PathGraph, *, bundled: bool = False, outputs: int | None = None, limit: int = PATH_LIMIT
) -> Float[Tensor, "path *outputs"]:
    r"""The neural path value (NPV): the product of the weights on each path.

    .. math:: v(p) = \prod_{w \in p} w

    Paths have the order of ``path_features``, so the network's output is
    ``path_features(graph, x) @ path_values(graph)``. Differentiable in the model's parameters.

    Args:
        graph: The path graph, as ``trace`` returns it.
        bundled: One value for each set of paths that use the same weights, as in ``path_features``.
        outputs: The index of one output unit; ``None`` gives a column for each where there are several.
        limit: The largest number of paths, times outputs, that is listed.

    Raises:
        ValueError: As ``path_features``.

    Reference: P1 definition 2.1, P2 definition 3.5 (with the constants in the features, not here).

    >>> import neuralpath as npath
    >>> model, x = npath.nets.FC(3, width=4, depth=3).double(), torch.randn(5, 3, dtype=torch.float64)
    >>> graph = npath.trace(model, x[:1])
    >>> output = npath.paths.path_features(graph, x) @ npath.paths.path_values(graph)
    >>> bool(torch.allclose(output, model(x)[:, 0]))
    True
    """
    refuse_repeated(graph, "the path value")
    first = chosen_output(graph, outputs)
    like = next(iter(graph.params.values()), torch.zeros(()))
    x = torch.zeros(1, *graph.input_shape, dtype=like.dtype, device=like.device)
    paths = _listed(graph, x, graph.gates(x), limit)
    units = range(graph.n_outputs) if outputs is None else [first]
    columns = [(paths.unit == unit).nonzero()[:, 0] for unit in units]
    if bundled:
        bundle = torch.unique(paths.weights[columns[0]], dim=0, return_inverse=True)[1]
        # One path of each bundle: all of them have the same value.
        member = torch.zeros(int(bundle.max()) + 1, dtype=torch.int64).scatter(0, bundle, torch.arange(len(bundle)))
        columns = [rows[member] for rows in columns]
    values = torch.stack([paths.value[rows] for rows in columns], dim=1)
    return values[:, 0] if values.shape[1] == 1 else values


def _listed(graph: PathGraph, x: Batch, gates: Gates, limit: int) -> PathTable:
    if graph.n_paths * graph.n_outputs > limit:
        raise ValueError(
            f"the network has {graph.n_paths:,} paths into each of {graph.n_outputs} output(s), more than the limit of "
            f"{limit:,}: raise `limit=`, or use `path_kernel`, `log_active_paths` or `path_sketch`, which list none."
        )
    return walk(graph, Enumeration(graph, x, gates))
