"""The generators are tested too: what they draw must be able to show a fault."""

from hypothesis import given, settings
from torch import nn

from strategies import dense_networks

SEEN: list[tuple] = []


@given(dense_networks())
@settings(max_examples=200)
def _collect(drawn):
    model, x = drawn.build()
    gates = []
    for module in model.modules():
        if isinstance(module, nn.ReLU):
            module.register_forward_pre_hook(lambda _, args: gates.append((args[0] > 0).double()))
    model(x)
    SEEN.append((drawn.sizes, drawn.bias, gates))


def test_draws_cover_what_the_laws_are_about():
    SEEN.clear()
    _collect()
    hidden = [sizes[1:-1] for sizes, _, _ in SEEN]
    assert any(len(set(widths)) > 1 for widths in hidden)
    assert {len(widths) for widths in hidden} >= {1, 2, 3}
    assert {bias for _, bias, _ in SEEN} == {True, False}
    states = {bool(g) for _, _, gates in SEEN for layer in gates for g in layer.flatten()}
    assert states == {True, False}
    partial = [
        layer
        for _, _, gates in SEEN
        for layer in gates
        if 0 < (layer[0] * layer[1]).sum() < min(layer[0].sum(), layer[1].sum())
    ]
    assert len(partial) > 5  # overlaps that are neither zero nor full
