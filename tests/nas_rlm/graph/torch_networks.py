"""Networks of our spaces as torch modules, written the way their authors' training code is."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def conv_bn_relu(c_in: int, c_out: int, kernel: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, kernel, padding=kernel // 2, bias=False), nn.BatchNorm2d(c_out), nn.ReLU()
    )


def relu_conv_bn(c_in: int, c_out: int, kernel: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.ReLU(),
        nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(c_out),
    )


class Zero(nn.Module):
    def __init__(self, stride: int = 1) -> None:
        super().__init__()
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        return x.mul(0.0) if self.stride == 1 else x[:, :, :: self.stride, :: self.stride].mul(0.0)


class Cell201(nn.Module):
    def __init__(self, ops: Sequence[str], c: int) -> None:
        super().__init__()
        kinds = {
            "none": Zero,
            "skip_connect": nn.Identity,
            "nor_conv_1x1": lambda: relu_conv_bn(c, c, 1),
            "nor_conv_3x3": lambda: relu_conv_bn(c, c, 3),
            "avg_pool_3x3": lambda: nn.AvgPool2d(3, 1, 1, count_include_pad=False),
        }
        self.edges = nn.ModuleList(kinds[op]() for op in ops)

    def forward(self, x: Tensor) -> Tensor:
        nodes, edges = [x], iter(self.edges)
        for i in range(1, 4):
            nodes.append(sum(next(edges)(nodes[j]) for j in range(i)))
        return nodes[-1]


class Reduction201(nn.Module):
    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__()
        self.conv_a, self.conv_b = relu_conv_bn(c_in, c_out, 3, 2), relu_conv_bn(c_out, c_out, 3)
        self.downsample = nn.Sequential(nn.AvgPool2d(2, 2), nn.Conv2d(c_in, c_out, 1, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        return self.downsample(x) + self.conv_b(self.conv_a(x))


class Network201(nn.Module):
    """NAS-Bench-201's network of a cell, its six operators in the order of the notation."""

    def __init__(self, ops: Sequence[str], cells_per_stage: int = 5) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)]
        for c in (16, 32, 64):
            if c > 16:
                layers.append(Reduction201(c // 2, c))
            layers += [Cell201(ops, c) for _ in range(cells_per_stage)]
        self.body = nn.Sequential(*layers, nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.classifier = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        return self.classifier(y.view(y.size(0), -1))


class Cell101(nn.Module):
    """A cell of five vertices: 3x3 and pool after the input, 1x1 after both, all to the output."""

    def __init__(self, c_in: int, c: int) -> None:
        super().__init__()
        halves = c // 2
        self.to_conv, self.conv = conv_bn_relu(c_in, halves, 1), conv_bn_relu(halves, halves, 3)
        self.to_pool = conv_bn_relu(c_in, halves, 1)
        self.pool, self.mix = nn.MaxPool2d(3, 1, 1), conv_bn_relu(halves, halves, 1)
        self.shortcut = conv_bn_relu(c_in, c, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.conv(self.to_conv(x))
        b = self.mix(a + self.pool(self.to_pool(x)))
        return torch.cat([a, b], 1) + self.shortcut(x)


class Network101(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_bn_relu(3, 128, 3)]
        before = 128
        for stack in range(3):
            if stack:
                layers.append(nn.MaxPool2d(2, 2))
            for _ in range(3):
                layers.append(Cell101(before, 128 * 2**stack))
                before = 128 * 2**stack
        self.body, self.classifier = nn.Sequential(*layers), nn.Linear(512, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.body(x).mean((2, 3)))


class FactorizedReduce(nn.Module):
    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__()
        self.relu = nn.ReLU()
        self.conv_1 = nn.Conv2d(c_in, c_out // 2, 1, 2, bias=False)
        self.conv_2 = nn.Conv2d(c_in, c_out // 2, 1, 2, bias=False)
        self.bn = nn.BatchNorm2d(c_out)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(x)
        return self.bn(torch.cat([self.conv_1(x), self.conv_2(x[:, :, 1:, 1:])], dim=1))


def separable(c: int, kernel: int, stride: int, dilation: int, repeats: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for k in range(repeats):
        pad = dilation * (kernel // 2)
        layers += [
            nn.ReLU(),
            nn.Conv2d(c, c, kernel, 1 if k else stride, pad, dilation, groups=c, bias=False),
            nn.Conv2d(c, c, 1, bias=False),
            nn.BatchNorm2d(c),
        ]
    return nn.Sequential(*layers)


def darts_operator(name: str, c: int, stride: int) -> nn.Module:
    if name == "none":
        return Zero(stride)
    if name == "skip_connect":
        return nn.Identity() if stride == 1 else FactorizedReduce(c, c)
    if name == "avg_pool_3x3":
        return nn.AvgPool2d(3, stride, 1, count_include_pad=False)
    if name == "max_pool_3x3":
        return nn.MaxPool2d(3, stride, 1)
    kernel = int(name[-1])
    return separable(c, kernel, stride, 2, 1) if name[:3] == "dil" else separable(c, kernel, stride, 1, 2)


class DartsCell(nn.Module):
    def __init__(self, cell, c_before: int, c_in: int, c: int, reduces: bool, reduced: bool) -> None:
        super().__init__()
        self.first = FactorizedReduce(c_before, c) if reduced else relu_conv_bn(c_before, c, 1)
        self.second = relu_conv_bn(c_in, c, 1)
        self.cell = cell
        self.edges = nn.ModuleList(darts_operator(o, c, 2 if reduces and i < 2 else 1) for o, i in cell.edges)

    def forward(self, before: Tensor, x: Tensor) -> Tensor:
        values = [self.first(before), self.second(x)]
        for k in range(0, len(self.edges), 2):
            (_, i), (_, j) = self.cell.edges[k : k + 2]
            values.append(self.edges[k](values[i]) + self.edges[k + 1](values[j]))
        return torch.cat([values[i] for i in self.cell.concat], 1)


class NetworkDarts(nn.Module):
    def __init__(self, genotype) -> None:
        super().__init__()
        c = 3 * genotype.width
        self.stem = nn.Sequential(nn.Conv2d(3, c, 3, padding=1, bias=False), nn.BatchNorm2d(c))
        before, now, width, reduced = c, c, genotype.width, False
        self.cells = nn.ModuleList()
        for i in range(genotype.depth):
            reduces = i in (genotype.depth // 3, 2 * genotype.depth // 3)
            width *= 2 if reduces else 1
            cell = genotype.reduce if reduces else genotype.normal
            self.cells.append(DartsCell(cell, before, now, width, reduces, reduced))
            before, now, reduced = now, len(cell.concat) * width, reduces
        self.pool, self.classifier = nn.AdaptiveAvgPool2d(1), nn.Linear(now, 10)

    def forward(self, x: Tensor) -> Tensor:
        before = x = self.stem(x)
        for cell in self.cells:
            before, x = x, cell(before, x)
        y = self.pool(x)
        return self.classifier(y.view(y.size(0), -1))


def rounded(channels: float) -> int:
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near


class Squeeze(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(c, rounded(c // 4), 1), nn.Conv2d(rounded(c // 4), c, 1)
        self.relu, self.gate = nn.ReLU(), nn.Hardsigmoid()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.expand(self.relu(self.reduce(x.mean((2, 3), keepdim=True)))))


class Inverted(nn.Module):
    def __init__(self, c_in, c, stride, kernel, expansion, activation, has_squeeze) -> None:
        super().__init__()
        wide = rounded(c_in * expansion)
        layers: list[nn.Module] = []
        if expansion > 1:
            layers += [nn.Conv2d(c_in, wide, 1, bias=False), nn.BatchNorm2d(wide), activation()]
        depthwise = nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False)
        layers += [depthwise, nn.BatchNorm2d(wide), activation()]
        layers += [Squeeze(wide)] if has_squeeze else []
        self.body = nn.Sequential(*layers, nn.Conv2d(wide, c, 1, bias=False), nn.BatchNorm2d(c))
        self.adds = stride == 1 and c_in == c

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.adds else self.body(x)


class MobileNetV3(nn.Module):
    """A subnet of Once-for-All's MobileNetV3: kernels and expansions of 20 places, five depths."""

    def __init__(self, kernels: Sequence[int], expansions: Sequence[int], depths: Sequence[int]) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(3, 16, 3, 2, 1, bias=False),
            nn.BatchNorm2d(16),
            nn.Hardswish(),
            Inverted(16, 16, 1, 3, 1, nn.ReLU, False),
        ]
        before = 16
        stages = ((24, 2, 0, 0), (40, 2, 0, 1), (80, 2, 1, 0), (112, 1, 1, 1), (160, 2, 1, 1))
        for k, ((c, stride, swish, has_squeeze), depth) in enumerate(zip(stages, depths, strict=True)):
            for i in range(depth):
                place = 4 * k + i
                activation = nn.Hardswish if swish else nn.ReLU
                layers.append(
                    Inverted(
                        before,
                        c,
                        1 if i else stride,
                        kernels[place],
                        expansions[place],
                        activation,
                        bool(has_squeeze),
                    )
                )
                before = c
        layers += [nn.Conv2d(160, 960, 1, bias=False), nn.BatchNorm2d(960), nn.Hardswish()]
        layers += [nn.AdaptiveAvgPool2d(1), nn.Conv2d(960, 1280, 1, bias=False), nn.Hardswish()]
        self.body, self.classifier = nn.Sequential(*layers, nn.Flatten()), nn.Linear(1280, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.body(x))
