"""Blocks for users' own spaces agree with PyTorch modules: texts, parameters and multiply-accumulates."""

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from nas_rlm import from_onnx, from_torch
from search_spaces import blocks
from search_spaces.graph import Graph

CHANNELS, SIDE = 16, 16
ACTIVATIONS = {
    "none": nn.Identity(),
    "elu": nn.ELU(),
    "gelu": nn.GELU(),
    "hardsigmoid": nn.Hardsigmoid(),
    "hardswish": nn.Hardswish(),
    "leaky_relu": nn.LeakyReLU(),
    "mish": nn.Mish(),
    "relu": nn.ReLU(),
    "relu6": nn.ReLU6(),
    "sigmoid": nn.Sigmoid(),
    "silu": nn.SiLU(),
    "tanh": nn.Tanh(),
}


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2).contiguous()


def norm_of(name, c):
    kinds = {
        "batch": lambda: nn.BatchNorm2d(c),
        "group": lambda: nn.GroupNorm(8, c),
        "instance": lambda: nn.InstanceNorm2d(c, affine=True),
        "layer": lambda: LayerNorm2d(c),
        "none": nn.Identity,
    }
    return kinds[name]()


def conv_norm(c_in, c_out, kernel=3, stride=1, groups=1, norm="batch", activation="relu"):
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=norm == "none"),
        norm_of(norm, c_out),
        ACTIVATIONS[activation],
    )


class SqueezeExcitation(nn.Module):
    def __init__(self, c, hidden, activation, gate):
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(c, hidden, 1), nn.Conv2d(hidden, c, 1)
        self.activation, self.gate = ACTIVATIONS[activation], ACTIVATIONS[gate]

    def forward(self, x):
        return self.gate(self.fc2(self.activation(self.fc1(F.adaptive_avg_pool2d(x, 1))))) * x


class Residual(nn.Module):
    """A body, a shortcut that may be a projection, and an activation."""

    def __init__(self, body, shortcut=None, activation="none"):
        super().__init__()
        self.body, self.shortcut, self.activation = body, shortcut or nn.Identity(), ACTIVATIONS[activation]

    def forward(self, x):
        return self.activation(self.body(x) + self.shortcut(x))


def inverted_residual(c_in, c_out, kernel, stride, expansion, squeeze, activation, gate):
    inner = c_in * expansion
    layers = [conv_norm(c_in, inner, 1, activation=activation)] if expansion != 1 else []
    layers.append(conv_norm(inner, inner, kernel, stride, inner, activation=activation))
    if squeeze:
        inside = "relu" if gate == "hardsigmoid" else activation
        layers.append(SqueezeExcitation(inner, blocks.make_divisible(inner * squeeze), inside, gate))
    body = nn.Sequential(*layers, conv_norm(inner, c_out, 1, activation="none"))
    return Residual(body) if stride == 1 and c_in == c_out else body


class Attention(nn.Module):
    def __init__(self, features, heads, bias=True):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(features, features, bias=bias) for _ in range(4))

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = (f(x).reshape(b, n, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(b, n, c))


def mlp(features, hidden, activation="gelu"):
    return nn.Sequential(nn.Linear(features, hidden), ACTIVATIONS[activation], nn.Linear(hidden, features))


def transformer_block(features, heads, expansion=4):
    return nn.Sequential(
        Residual(nn.Sequential(nn.LayerNorm(features), Attention(features, heads))),
        Residual(nn.Sequential(nn.LayerNorm(features), mlp(features, features * expansion))),
    )


class PatchEmbedding(nn.Module):
    def __init__(self, c, features, patch, positions=True):
        super().__init__()
        self.projection = nn.Conv2d(c, features, patch, patch)
        self.positions = nn.Parameter(torch.zeros(1, (SIDE // patch) ** 2, features)) if positions else None

    def forward(self, x):
        x = self.projection(x).flatten(2).transpose(1, 2)
        return x if self.positions is None else x + self.positions


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(1)


def pooled(*layers):
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), *layers)


def head(g, x, name, *arguments, **options):
    """A block, followed by a classifier."""
    return blocks.classifier(g, getattr(blocks, name)(g, x, *arguments, **options), 10)


def image_case(module, c_out, name, *arguments, **options):
    return (
        lambda: nn.Sequential(module(), pooled(nn.Linear(c_out, 10))),
        lambda g, x: head(g, x, name, *arguments, **options),
    )


def token_case(module, layers):
    return (
        lambda: nn.Sequential(PatchEmbedding(CHANNELS, 32, 4), module(), Mean(), nn.Linear(32, 10)),
        lambda g, x: blocks.classifier(g, layers(g, blocks.patch_embedding(g, x, 32, 4)), 10),
    )


def vision_transformer():
    blocks_ = [transformer_block(32, 4) for _ in range(3)]
    return nn.Sequential(
        PatchEmbedding(CHANNELS, 32, 4, False), *blocks_, nn.LayerNorm(32), Mean(), nn.Linear(32, 10)
    )


def write_vision_transformer(g, x):
    x = blocks.patch_embedding(g, x, 32, 4, positions=False)
    for _ in range(3):
        x = blocks.transformer_block(g, x, 4)
    return blocks.classifier(g, x, 10, norm="layer")


CASES = {
    **{
        f"activation {name}": image_case(
            lambda name=name: conv_norm(CHANNELS, 8, 3, 2, activation=name),
            8,
            "conv_norm",
            8,
            3,
            2,
            activation=name,
        )
        for name in ACTIVATIONS
    },
    **{
        f"norm {name}": image_case(
            lambda name=name: conv_norm(CHANNELS, 24, 5, norm=name), 24, "conv_norm", 24, 5, norm=name
        )
        for name in blocks.NORMS
    },
    "grouped": image_case(lambda: conv_norm(CHANNELS, 32, groups=4), 32, "conv_norm", 32, groups=4),
    "depthwise separable": image_case(
        lambda: nn.Sequential(conv_norm(CHANNELS, CHANNELS, 5, 2, CHANNELS), conv_norm(CHANNELS, 24, 1)),
        24,
        "depthwise_separable",
        24,
        5,
        2,
    ),
    "squeeze-and-excitation": image_case(
        lambda: SqueezeExcitation(CHANNELS, 8, "silu", "sigmoid"),
        CHANNELS,
        "squeeze_excitation",
        8,
        "silu",
        "sigmoid",
    ),
    **{
        f"inverted residual {arguments}": image_case(
            lambda arguments=arguments: inverted_residual(CHANNELS, *arguments),
            arguments[0],
            "inverted_residual",
            *arguments[:5],
            activation=arguments[5],
            gate=arguments[6],
        )
        for arguments in [
            (CHANNELS, 3, 1, 6, 0, "relu6", "hardsigmoid"),
            (CHANNELS, 5, 1, 4, 0.25, "hardswish", "hardsigmoid"),
            (24, 5, 2, 3, 0.25, "relu", "hardsigmoid"),
            (24, 3, 1, 1, 0.25, "silu", "sigmoid"),
            (CHANNELS, 7, 1, 2, 0, "silu", "sigmoid"),
        ]
    },
    "basic block": image_case(
        lambda: Residual(
            nn.Sequential(conv_norm(CHANNELS, CHANNELS), conv_norm(CHANNELS, CHANNELS, activation="none")),
            activation="relu",
        ),
        CHANNELS,
        "basic_block",
        CHANNELS,
    ),
    "projected basic block": image_case(
        lambda: Residual(
            nn.Sequential(conv_norm(CHANNELS, 32, 3, 2), conv_norm(32, 32, activation="none")),
            conv_norm(CHANNELS, 32, 1, 2, activation="none"),
            "relu",
        ),
        32,
        "basic_block",
        32,
        2,
    ),
    "bottleneck block": image_case(
        lambda: Residual(
            nn.Sequential(
                conv_norm(CHANNELS, 16, 1),
                conv_norm(16, 16, 3, 2, 4),
                conv_norm(16, 64, 1, activation="none"),
            ),
            conv_norm(CHANNELS, 64, 1, 2, activation="none"),
            "relu",
        ),
        64,
        "bottleneck_block",
        64,
        2,
        groups=4,
    ),
    "hidden classifier": (
        lambda: pooled(nn.Linear(CHANNELS, 24), nn.Hardswish(), nn.Linear(24, 10)),
        lambda g, x: blocks.classifier(g, x, 10, 24, "hardswish"),
    ),
    "linear without bias": (
        lambda: pooled(nn.Linear(CHANNELS, 12, bias=False)),
        lambda g, x: blocks.linear(g, g.op("Flatten", g.op("GlobalAveragePool", x)), 12, bias=False),
    ),
    "attention": token_case(lambda: Attention(32, 4), lambda g, x: blocks.attention(g, x, 4)),
    "attention without bias": token_case(
        lambda: Attention(32, 2, False), lambda g, x: blocks.attention(g, x, 2, bias=False)
    ),
    "mlp": token_case(lambda: mlp(32, 64, "relu"), lambda g, x: blocks.mlp(g, x, 64, "relu")),
    "transformer block": token_case(
        lambda: transformer_block(32, 8), lambda g, x: blocks.transformer_block(g, x, 8)
    ),
    "vision transformer": (vision_transformer, write_vision_transformer),
}


KINDS = ("activation", "norm", "inverted residual")  # of several cases, whose sum is exported at once
GROUPS = {
    **{kind: [name for name in CASES if name.startswith(f"{kind} ")] for kind in KINDS},
    **{name: [name] for name in CASES if not name.startswith(KINDS)},
}


class Sum(nn.Module):
    def __init__(self, modules):
        super().__init__()
        self.parts = nn.ModuleList(modules)

    def forward(self, x):
        first, *others = (part(x) for part in self.parts)
        return sum(others, first)


def written(*names):
    """The graph of the sum of cases, and its model."""
    graph = Graph((1, CHANNELS, SIDE, SIDE))
    first, *others = (CASES[name][1](graph, graph.input) for name in names)
    for other in others:
        first = graph.op("Add", first, other)
    return graph, graph.build(graph.checked_output(first))


@pytest.mark.parametrize("name", CASES)
def test_parameters_and_multiply_accumulates_are_those_of_pytorch(name):
    module, (graph, _) = CASES[name][0]().eval(), written(name)
    assert graph.params == sum(p.numel() for p in module.parameters())
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        module(torch.zeros(1, CHANNELS, SIDE, SIDE))
    assert graph.macs == counter.get_total_flops() // 2


@pytest.mark.parametrize("names", GROUPS.values(), ids=GROUPS)
def test_texts_are_those_of_pytorch(names):
    module, (_, model) = Sum(CASES[name][0]() for name in names), written(*names)
    assert from_onnx(model) == from_torch(module, torch.zeros(1, CHANNELS, SIDE, SIDE))


@pytest.mark.parametrize("name", CASES)
def test_networks_run_with_any_batch_size(name):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    graph = Graph((3, CHANNELS, SIDE, SIDE), weights=True)
    out = CASES[name][1](graph, graph.input)
    model = graph.build(out)
    onnx.checker.check_model(model, full_check=True)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    images = np.random.default_rng(0).standard_normal(graph.input_shape).astype(np.float32)
    (logits,) = session.run(None, {"x": images})
    assert logits.shape == out.shape
    assert np.isfinite(logits).all() and not np.allclose(logits[0], logits[1])


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda g, x: blocks.activate(g, x, "rleu"), "no activation 'rleu'; did you mean 'relu'"),
        (lambda g, x: blocks.normalize(g, x, "bach"), "no normalization 'bach'; did you mean 'batch'"),
        (lambda g, x: blocks.normalize(g, x, "group", 5), "5 groups do not divide 16 channels"),
        (lambda g, x: blocks.attention(g, x, 4), r"attention reads tokens, not the shape \[1, 16, 16, 16\]"),
        (lambda g, x: blocks.transformer_block(g, x, 4), "a transformer block reads tokens"),
        (
            lambda g, x: blocks.attention(g, blocks.patch_embedding(g, x, 30, 4), 4),
            "4 heads do not",
        ),
        (
            lambda g, x: blocks.patch_embedding(g, blocks.patch_embedding(g, x, 8, 4), 8, 4),
            r"reads images, signals or volumes, not tokens of shape \[1, 16, 8\]",
        ),
        (lambda g, x: blocks.patch_embedding(g, x, 8, 32), "larger than the padded image"),
        (lambda g, x: blocks.squeeze_excitation(g, blocks.patch_embedding(g, x, 8, 4), 8), "reads images"),
        (lambda g, x: blocks.normalize(g, blocks.patch_embedding(g, x, 8, 4), "batch"), "reads images"),
        (lambda g, x: blocks.normalize(g, g.op("Flatten", x), "group"), "not vectors of shape"),
        (lambda g, x: blocks.conv_norm(g, x, 10, groups=4), "4 groups do not divide the channels 16 and 10"),
    ],
)
def test_arguments_that_do_not_fit(write, message):
    graph = Graph((1, CHANNELS, SIDE, SIDE))
    with pytest.raises(ValueError, match=message):
        write(graph, graph.input)


LENGTH = 64


class Signals(nn.Module):
    """An inverted residual with squeeze-and-excitation, a group norm, a pool and patches, on signals."""

    def __init__(self):
        super().__init__()
        inner = 3 * CHANNELS
        self.expansion = nn.Sequential(
            *(nn.Conv1d(CHANNELS, inner, 1, bias=False), nn.BatchNorm1d(inner), nn.ReLU6()),
            *(
                nn.Conv1d(inner, inner, 5, padding=2, groups=inner, bias=False),
                nn.BatchNorm1d(inner),
                nn.ReLU6(),
            ),
        )
        self.gate = nn.Sequential(
            *(nn.AdaptiveAvgPool1d(1), nn.Conv1d(inner, 16, 1), nn.ReLU(), nn.Conv1d(16, inner, 1)),
            nn.Hardsigmoid(),
        )
        self.projection = nn.Sequential(nn.Conv1d(inner, CHANNELS, 1, bias=False), nn.BatchNorm1d(CHANNELS))
        self.group = nn.Sequential(
            nn.Conv1d(CHANNELS, 32, 3, 2, 1, bias=False),
            nn.GroupNorm(8, 32),
            nn.ReLU(),
            nn.MaxPool1d(3, 2, 1),
        )
        self.patches = nn.Conv1d(32, 24, 4, 4)
        self.head = nn.Linear(24, 10)

    def forward(self, x):
        y = self.expansion(x)
        x = x + self.projection(self.gate(y) * y)
        return self.head(self.patches(self.group(x)).transpose(1, 2).mean(1))


def write_signals(g, x):
    x = blocks.inverted_residual(g, x, CHANNELS, 5, 1, 3, squeeze=1 / 3)
    x = g.pool("MaxPool", blocks.conv_norm(g, x, 32, 3, 2, norm="group"), 3, 2, padded=True)
    return blocks.classifier(g, blocks.patch_embedding(g, x, 24, 4, positions=False), 10)


def residual_signals():
    body = nn.Sequential(
        *(nn.Conv1d(CHANNELS, 32, 3, 2, 1, bias=False), nn.BatchNorm1d(32), nn.ReLU()),
        *(nn.Conv1d(32, 32, 3, padding=1, bias=False), nn.BatchNorm1d(32)),
    )
    shortcut = nn.Sequential(nn.Conv1d(CHANNELS, 32, 1, 2, bias=False), nn.BatchNorm1d(32))
    head = nn.Sequential(nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 10))
    return nn.Sequential(Residual(body, shortcut, "relu"), head)


def volumes():
    return nn.Sequential(
        *(nn.Conv3d(CHANNELS, 8, 3, 2, 1, bias=False), nn.BatchNorm3d(8), nn.ReLU()),
        *(nn.AvgPool3d(2, 2, count_include_pad=False), nn.Conv3d(8, 16, (1, 3, 3), 1, (0, 1, 1)), nn.SiLU()),
        *(nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(16, 10)),
    )


def write_volumes(g, x):
    x = g.pool("AveragePool", blocks.conv_norm(g, x, 8, stride=2), 2, 2)
    x = blocks.activate(g, g.conv(x, 16, (1, 3, 3), bias=True), "silu")
    return blocks.classifier(g, x, 10)


def vectors():
    layers = nn.Linear(CHANNELS, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 24), nn.GELU()
    return nn.Sequential(*layers, nn.Linear(24, 10))


def write_vectors(g, x):
    x = blocks.activate(g, blocks.normalize(g, blocks.linear(g, x, 32)))
    return blocks.classifier(g, x, 10, 24, "gelu")


OTHER_INPUTS = {
    "signals": ((LENGTH,), Signals, write_signals),
    "residual signals": (
        (LENGTH,),
        residual_signals,
        lambda g, x: blocks.classifier(g, blocks.basic_block(g, x, 32, 2), 10),
    ),
    "volumes": ((8, 12, 16), volumes, write_volumes),
    "vectors": ((), vectors, write_vectors),
}


@pytest.mark.parametrize("name", OTHER_INPUTS)
def test_networks_on_other_inputs_are_those_of_pytorch(name):
    sizes, module, write = OTHER_INPUTS[name]
    graph, module = Graph((1, CHANNELS, *sizes)), module().eval()
    model = graph.build(graph.checked_output(write(graph, graph.input)))
    example = torch.zeros(1, CHANNELS, *sizes)
    assert graph.params == sum(p.numel() for p in module.parameters())
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        module(example)
    assert graph.macs == counter.get_total_flops() // 2
    assert from_onnx(model) == from_torch(module, example)


def test_make_divisible():
    assert [blocks.make_divisible(c) for c in (1, 11, 12, 20, 35.9)] == [8, 16, 16, 24, 40]


def test_dropout_is_no_part_of_the_text():
    def text(ratio):
        graph = Graph((1, 8))
        return from_onnx(graph.build(blocks.classifier(graph, blocks.dropout(graph, graph.input, ratio), 3)))

    assert text(0.5) == text(0.0)
    for ratio in (1, -0.1):
        with pytest.raises(ValueError, match=f"the ratio of dropout is {ratio}: expected a number from 0 to"):
            text(ratio)
