"""Gates that are given by hand: numbers at activations, positions inside their windows at max pools."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import nn

import neuralpath as npath
from neuralpath.graph.gate_checks import check_gates, check_layer
from neuralpath.graph.nodes import MaxPoolNode, Window, window_positions

pytestmark = pytest.mark.usefixtures("without_type_checks")


def _graph(*layers, shape):
    """A graph whose last gates are those of the layers before a dense one."""
    front = nn.Sequential(*layers, nn.Flatten())
    x = torch.randn(3, *shape)
    model = nn.Sequential(front, nn.Linear(front(x).shape[1], 1))
    return npath.trace(model, x[:1]), x


@pytest.fixture(scope="module")
def activated():
    return _graph(nn.Linear(3, 4), nn.ReLU(), shape=(3,))


READINGS = {
    "output": lambda graph, x, gates: npath.output(graph, x, gates=gates),
    "path_kernel": lambda graph, x, gates: npath.path_kernel(graph, x, gates1=gates),
    "path_features": lambda graph, x, gates: npath.path_features(graph, x, gates=gates),
    "path_sketch": lambda graph, x, gates: npath.path_sketch(graph, x, 2, generator=torch.Generator(), gates=gates),
}


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.int64, torch.complex64])
def test_gates_are_boolean_or_real(activated, reading, dtype):
    graph, x = activated
    gates = graph.gates(x)
    wrong = npath.Gates({gates.names[0]: gates[0].to(dtype)})
    name = "gates1" if reading == "path_kernel" else "gates"
    kind = str(dtype).removeprefix("torch.")
    message = rf"`{name}` at '0\.1' must be boolean or floating-point gates, got a {kind} tensor of shape \(3, 4\)"
    with pytest.raises(TypeError, match=message):
        READINGS[reading](graph, x, wrong)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_gates_are_finite(activated, value, dtype):
    graph, x = activated
    layer = graph.gates(x)[0].to(dtype)
    check_gates("gates", npath.Gates({graph.gate_names[0]: layer}), graph, 3)
    layer[1, 2] = value
    message = r"`gates1\['0\.1'\]` has NaN or infinity in 1 of 3 examples, the first at index 1"
    with pytest.raises(ValueError, match=message):
        npath.path_kernel(graph, x, gates1=npath.Gates({graph.gate_names[0]: layer}))


def test_large_finite_gates_pass(activated):
    graph, _ = activated
    layer = torch.full((3, 4), torch.finfo(torch.float32).max)  # their sum is infinite
    check_gates("gates", npath.Gates({graph.gate_names[0]: layer}), graph, 3)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own forward mode loads it
def test_gates_may_be_transformed(activated):
    """Values cannot be looked at inside of a transform, but behind it they are checked all the same."""
    graph, x = activated
    soft = torch.rand(2, 3, 4)

    def one(layer):
        return npath.output(graph, x, gates=npath.Gates({graph.gate_names[0]: layer}))

    each = torch.stack([one(layer) for layer in soft])
    assert torch.allclose(torch.func.vmap(one)(soft), each)
    assert torch.func.jacfwd(one)(soft[0]).shape == (3, 1, 3, 4)
    soft[1, 0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"`gates\['0\.1'\]` has NaN or infinity; remove"):
        torch.func.vmap(one)(soft)


POOLS = {
    "disjoint": (nn.MaxPool2d(2), (2, 4, 6)),
    "overlapping": (nn.MaxPool2d(3, 2, 1), (2, 5, 7)),
    "dilated": (nn.MaxPool2d((2, 3), 1, 1, dilation=2), (1, 6, 7)),
    "ceil": (nn.MaxPool2d(3, 2, ceil_mode=True), (1, 6, 6)),
    "line": (nn.MaxPool1d(3, 1, 1), (2, 9)),
    "wide": (nn.MaxPool1d(5, 1, 2), (1, 3)),
    "space": (nn.MaxPool3d((1, 2, 3), 1, (0, 1, 1)), (1, 2, 3, 4)),
    "adaptive": (nn.AdaptiveMaxPool2d((2, 3)), (2, 5, 7)),
    "all": (nn.AdaptiveMaxPool2d(1), (2, 3, 4)),
}


@pytest.mark.parametrize("name", POOLS)
def test_exactly_the_positions_of_each_window_pass(name):
    """Every position at every unit, against the listed windows."""
    pool, shape = POOLS[name]
    graph, x = _graph(pool, shape=shape)
    node = graph.gate_nodes[0]
    own = graph.gates(x)
    check_gates("gates", own, graph, 3)
    windows = window_positions(node.tables, node.in_space)
    example = own[0][:1]
    for unit in range(node.n_units):
        allowed = set(windows[unit % node.n_positions].tolist()) - {-1}
        found = set()
        for position in range(-1, torch.Size(node.in_space).numel() + 1):
            changed = example.clone()
            changed.view(-1)[unit] = position
            try:
                check_gates("gates", npath.Gates({own.names[0]: changed}), graph)
                found.add(position)
            except ValueError:
                continue
        assert found == allowed


def test_a_position_of_another_window_is_named():
    graph, x = _graph(nn.MaxPool2d(2), shape=(2, 4, 4))
    gates = graph.gates(x)
    wrong = gates[0].clone()
    wrong[2, 1, 0, 1] = 0
    message = (
        r"`gates` at '0\.0' must be positions inside the window of their unit: example 2 has 0 at unit \(1, 0, 1\), "
        r"whose window reads 2, 3, 6, 7\."
    )
    with pytest.raises(ValueError, match=message):
        npath.output(graph, x, gates=npath.Gates({gates.names[0]: wrong}))


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32, torch.bool])
def test_positions_are_int64(dtype):
    graph, x = _graph(nn.MaxPool2d(2), shape=(1, 2, 2))
    gates = graph.gates(x)
    with pytest.raises(TypeError, match=r"`gates` at '0\.0' must be int64 positions of a max pool, got a"):
        npath.output(graph, x, gates=npath.Gates({gates.names[0]: gates[0].to(dtype)}))


@pytest.mark.parametrize("chunk_positions", [1, 17, 64])
def test_every_part_of_a_batch_is_checked(chunk_positions):
    graph, x = _graph(nn.MaxPool2d(2), shape=(2, 4, 4))
    (node,), positions = graph.gate_nodes, graph.gates(x)[0]
    check_layer("gates", node, positions, chunk=chunk_positions)
    for example in range(3):
        wrong = positions.clone()
        wrong[example, 0, 1, 1] = 9
        with pytest.raises(ValueError, match=rf"`gates`.* {example} .* 9 .*\(0, 1, 1\).* 10,"):
            check_layer("gates", node, wrong, chunk=chunk_positions)


@settings(max_examples=60)
@given(
    size=st.integers(1, 12), window=st.integers(1, 5), stride=st.integers(1, 4), dilation=st.integers(1, 3),
    padding=st.integers(0, 2), ceil=st.booleans(), draw=st.randoms(use_true_random=False),
)  # fmt: skip
def test_drawn_windows(size, window, stride, dilation, padding, ceil, draw):
    sides = Window(window, stride, dilation, padding, padding), Window(2, 1)
    spaces = size, 4
    if any(side.n_out(n, ceil=ceil) < 1 for side, n in zip(sides, spaces, strict=True)):
        return
    tables = tuple(side.table(n, ceil=ceil) for side, n in zip(sides, spaces, strict=True))
    if any((table < 0).all(1).any() for table in tables):
        return  # a window of padding alone has no largest entry
    node = MaxPoolNode("pool", ("x",), (1, *map(len, tables)), tables, spaces, None)
    windows = window_positions(tables, spaces)
    chosen = [draw.choice([p for p in row if p >= 0]) for row in windows.tolist()]
    right = torch.tensor(chosen).reshape(1, *node.shape)
    check_layer("gates", node, right)
    unit = draw.randrange(len(chosen))
    others = sorted(set(range(-2, size * 4 + 2)) - set(windows[unit].tolist()))
    right.view(-1)[unit] = draw.choice([p for p in others if p != -1] + [-1])
    with pytest.raises(ValueError, match="`gates` at 'pool' must be positions"):
        check_layer("gates", node, right)
