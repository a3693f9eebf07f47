"""Models as users write them, one for each way of writing that `trace` has to read."""

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neuralpath import nets


class ReusedReLU(nn.Module):
    """One ReLU module used twice, functional, method, in-place, clamp and maximum spellings; `x @ W + b`."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.first = nn.Linear(5, width)
        self.second = nn.Linear(width, width)
        self.relu = nn.ReLU(inplace=True)
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.bias = nn.Parameter(torch.randn(width))
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.last = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.first(x))
        x = self.relu(self.second(x))
        x = F.relu(x @ self.weight + self.bias)
        x = self.layers[0](x).relu()
        x = self.layers[1](x).relu_()
        x = torch.clamp(self.layers[2](x), min=0)
        x = torch.maximum(self.layers[3](x), torch.zeros(()))
        return self.last(x)


class BasicBlock(nn.Module):
    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.downsample = None
        if stride != 1 or n_in != n_out:
            self.downsample = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class ResNet18(nn.Module):
    """Torchvision's layout: 7x7 stem with stride 2, overlapping max pool, four stages of two basic blocks."""

    def __init__(self, width: int = 64, n_outputs: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        self.stages = nn.ModuleList(
            nn.Sequential(BasicBlock(a, b, 1 if i == 0 else 2), BasicBlock(b, b, 1))
            for i, (a, b) in enumerate(itertools.pairwise(widths))
        )
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(widths[-1], n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for stage in self.stages:
            x = stage(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))


class VGG(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        n_in = 3
        for size in (width, "M", 2 * width, "M", 2 * width, 2 * width, "M"):
            if size == "M":
                layers.append(nn.MaxPool2d(2, 2))
            else:
                layers += [nn.Conv2d(n_in, int(size), 3, padding=1), nn.BatchNorm2d(int(size)), nn.ReLU(True)]
                n_in = int(size)
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(3)
        self.classifier = nn.Sequential(
            nn.Linear(n_in * 9, 8), nn.ReLU(True), nn.Dropout(), nn.Linear(8, 8), nn.ReLU(True), nn.Linear(8, 4)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.avgpool(self.features(x))
        return self.classifier(x.view(x.size(0), -1))


class DenseBlock(nn.Module):
    """DenseNet: every layer sees the concatenation of all before it; transition with average pooling."""

    def __init__(self, growth: int = 3) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(4 + i * growth) for i in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(4 + i * growth, growth, 3, padding=1) for i in range(3))
        self.transition = nn.Conv2d(4 + 3 * growth, 5, 1)
        self.fc = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        features = [self.stem(x)]
        for norm, conv in zip(self.norms, self.convs, strict=True):
            features.append(conv(F.relu(norm(torch.cat(features, 1)))))
        x = F.avg_pool2d(self.transition(F.relu(torch.cat(features, 1))), 2)
        return self.fc(x.mean((2, 3)))


class InvertedResidual(nn.Module):
    """MobileNet: expand, depthwise with groups, project, ReLU6, skip."""

    def __init__(self) -> None:
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(3, 6, 1, bias=False), nn.BatchNorm2d(6), nn.ReLU6(inplace=True))
        self.depthwise = nn.Sequential(
            nn.Conv2d(6, 6, 3, padding=1, groups=6, bias=False), nn.BatchNorm2d(6), nn.ReLU6(inplace=True)
        )
        self.project = nn.Sequential(nn.Conv2d(6, 3, 1, bias=False), nn.BatchNorm2d(3))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x + self.project(self.depthwise(self.expand(x))))


class AllConvolutional(nn.Module):
    """Strides, dilation, groups and every padding mode of torch, `F.pad` too."""

    def __init__(self) -> None:
        super().__init__()
        self.zeros = nn.Conv2d(3, 4, 3, padding=1, stride=2)
        self.reflect = nn.Conv2d(4, 4, 3, padding=2, padding_mode="reflect", dilation=2)
        self.replicate = nn.Conv2d(4, 4, (3, 2), padding=(1, 2), padding_mode="replicate", groups=2)
        self.circular = nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular")
        self.same = nn.Conv2d(4, 4, (4, 3), padding="same", dilation=(1, 2))
        self.valid = nn.Conv2d(4, 4, 2, padding="valid")
        self.after_pad = nn.Conv2d(4, 5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.zeros(x))
        x = F.relu(self.reflect(x))
        x = F.relu(self.replicate(x))
        x = F.relu(self.circular(x))
        x = F.relu(self.same(x))
        x = F.relu(self.valid(x))
        x = F.relu(self.after_pad(F.pad(x, (1, 0, 2, 1))))
        return F.relu(F.pad(x, (0, 1), value=0.01)).amax((2, 3))


class EveryGate(nn.Module):
    """Activations that are gates, constants, negation, division, slices and splits of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.inp = nn.Conv1d(2, 8, 3, padding=1)
        self.prelu = nn.PReLU(4)
        self.mid = nn.Conv1d(8, 8, 3, padding=1)
        self.gain = nn.Parameter(torch.rand(8, 1))
        self.register_buffer("mean", torch.tensor([[0.3], [0.1]]))
        self.out = nn.Linear(8 * 3, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inp((x - self.mean) / 0.5)
        a, b = x.chunk(2, dim=1)
        x = torch.cat([self.prelu(a), -F.leaky_relu(b, 0.2)], dim=1)
        y = self.mid(1 - x * 0.7) * self.gain
        parts = [F.silu(y[:, :2]), F.gelu(y[:, 2:4]), F.gelu(y[:, 4:5], approximate="tanh"), F.relu6(3 * y[:, 5:])]
        y = torch.cat(parts, dim=1)
        y = F.hardswish(y) + F.mish(y)
        y = F.adaptive_avg_pool1d(y, 5)
        return self.out(F.max_pool1d(y, 2, 2, padding=1).flatten(1))


class Scalar(nn.Module):
    """One number for each example, as regression models return it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 5), nn.LeakyReLU(0.1), nn.Linear(5, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).squeeze(-1)


def _randomize_norms(model: nn.Module) -> nn.Module:
    """Batch norm statistics away from 0 and 1, so that a wrong rule for them shows."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(module.running_mean, -0.5, 0.5)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
    return model.eval()


MODELS = {
    "mlp": (ReusedReLU, (5,)),
    "resnet18": (lambda: ResNet18(width=4), (3, 40, 40)),
    "vgg": (VGG, (3, 32, 32)),
    "densenet": (DenseBlock, (3, 8, 8)),
    "mobilenet": (InvertedResidual, (3, 8, 8)),
    "all-convolutional": (AllConvolutional, (3, 16, 16)),
    "every-gate": (EveryGate, (2, 12)),
    "scalar": (Scalar, (4,)),
    "fc": (lambda: nets.FC((1, 4, 4), 8, 4, 3, bias=True), (1, 4, 4)),
    "vconv": (lambda: nets.VCONV((3, 8, 8), 4, channels=(4, 6), hidden=(7,), bias=True), (3, 8, 8)),
    "gconv": (lambda: nets.GCONV((3, 8, 8), 4, channels=(4, 6), hidden=(7,)), (3, 8, 8)),
    "circular": (lambda: nets.CircularCNN(6, 3, 2, 2, window=3, pooling="max"), (6,)),
    "residual": (lambda: nets.ResidualFC(4, 3, 2, 2, gamma_pre=0.5, gamma_post=[0.7, 1.3]), (4,)),
    "davidnet": (lambda: nets.DavidNet(width=2), (3, 32, 32)),
}
"""Name to a constructor and the shape of one example."""


def build(name: str, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Tensor]:
    """A model in evaluation mode and a batch of five examples for it."""
    constructor, shape = MODELS[name]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = _randomize_norms(constructor()).to(dtype)
        return model, torch.randn(5, *shape, dtype=dtype)
