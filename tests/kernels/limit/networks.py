"""The networks of the stored reference values as torch modules, as narrow as can be: widths do not matter."""

from torch import Tensor, nn

from reference import cases as c

WIDTH = 2


class Erf(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.erf()


class Skip(nn.Module):
    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inside(x)


def torch_network(layers: tuple[c.Layer, ...], channels: int, size: int) -> nn.Sequential:
    """A network in float64 for images of so many channels, rows and columns (vectors: size 1)."""
    modules, _, _ = _modules(layers, channels, size)
    return nn.Sequential(*modules).double()


def weighted(layers: tuple[c.Layer, ...]) -> list[c.Dense | c.Conv]:
    """The layers with weights, in order."""
    weights = []
    for layer in layers:
        weights += weighted(layer.layers) if isinstance(layer, c.Skip) else []
        weights += [layer] if isinstance(layer, c.Dense | c.Conv) else []
    return weights


def _modules(layers: tuple[c.Layer, ...], channels: int, size: int) -> tuple[list[nn.Module], int, int]:
    modules: list[nn.Module] = []
    for layer in layers:
        match layer:
            case c.Dense():
                modules.append(nn.Linear(channels, WIDTH, bias=layer.bias > 0))
                channels = WIDTH
            case c.Conv():
                sides = (layer.before, layer.after) * 2
                modules.append(nn.CircularPad2d(sides) if layer.circular else nn.ZeroPad2d(sides))
                modules.append(nn.Conv2d(channels, WIDTH, layer.window, layer.stride, bias=layer.bias > 0))
                channels, size = WIDTH, (size + layer.before + layer.after - layer.window) // layer.stride + 1
            case c.Activation(kind=kind):
                kinds = {"relu": nn.ReLU(), "leaky": nn.LeakyReLU(layer.slope), "gelu": nn.GELU(), "erf": Erf()}
                modules.append(kinds[kind])
            case c.AveragePool():
                modules.append(nn.AvgPool2d(layer.window, layer.stride))
                size = (size - layer.window) // layer.stride + 1
            case c.GlobalAverage():
                modules += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
            case c.Flatten():
                modules.append(nn.Flatten())
                channels *= size**2
            case c.Skip():
                inside, channels, size = _modules(layer.layers, channels, size)
                modules.append(Skip(nn.Sequential(*inside)))
    return modules, channels, size
