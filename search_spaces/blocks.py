"""Common layers and blocks for users' own spaces; each function writes one to a graph and returns its output.

Examples:
    >>> graph = Graph((1, 3, 32, 32))
    >>> x = conv_norm(graph, graph.input, 16, stride=2, activation="hardswish")
    >>> x = inverted_residual(graph, x, 24, expansion=4, squeeze=0.25)
    >>> classifier(graph, x, 10).shape
    (1, 10)

Parameters and multiply-accumulates are exact. The text of a network is that of the equivalent PyTorch module.
Images have the shape [batch, channels, height, width], signals [batch, channels, length], volumes [batch,
channels, depth, height, width], tokens [batch, tokens, features], and vectors [batch, features].
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt

from search_spaces.arguments import along_axes
from search_spaces.graph import Constant, Graph, Value, Weight
from search_spaces.notation import most_similar
from search_spaces.wording import counted

ACTIVATIONS: dict[str, Callable[[Graph, Value], Value]] = {
    "none": lambda graph, x: x,
    "elu": lambda graph, x: graph.op("Elu", x),
    "gelu": lambda graph, x: graph.op("Gelu", x),
    "hardsigmoid": lambda graph, x: graph.op("HardSigmoid", x, alpha=1 / 6),
    "hardswish": lambda graph, x: graph.op("HardSwish", x),
    "leaky_relu": lambda graph, x: graph.op("LeakyRelu", x),
    "mish": lambda graph, x: graph.op("Mish", x),
    "relu": lambda graph, x: graph.op("Relu", x),
    "relu6": lambda graph, x: graph.op("Clip", x, Constant(0.0), Constant(6.0)),
    "sigmoid": lambda graph, x: graph.op("Sigmoid", x),
    "silu": lambda graph, x: graph.op("Mul", x, graph.op("Sigmoid", x)),
    "tanh": lambda graph, x: graph.op("Tanh", x),
}
NORMS = ("batch", "group", "instance", "layer", "none")


def activate(graph: Graph, x: Value, activation: str = "relu") -> Value:
    """Write an activation.

    Args:
        graph: graph to write to.
        x: images or tokens.
        activation: one of `ACTIVATIONS`, such as `relu`, `relu6`, `hardswish`, `silu`, `gelu`, or `none`.

    Raises:
        ValueError: there is no such activation.
    """
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"no activation {activation!r}; did you mean {most_similar(activation, ACTIVATIONS)!r}?"
        )
    return ACTIVATIONS[activation](graph, x)


def dropout(graph: Graph, x: Value, ratio: float = 0.5) -> Value:
    """Write dropout, which works in training alone: the text of the network does not have it.

    Args:
        graph: graph to write to.
        x: any tensor.
        ratio: share of the elements that become zero in training.

    Raises:
        ValueError: the ratio is not from 0 to below 1.
    """
    if not 0 <= ratio < 1:
        raise ValueError(f"the ratio of dropout is {ratio!r}: expected a number from 0 to below 1")
    return graph.op("Dropout", x, Constant(float(ratio))) if ratio else x


def normalize(graph: Graph, x: Value, norm: str = "batch", groups: int = 8) -> Value:
    """Write a normalization with a scale and a bias for each channel.

    Args:
        graph: graph to write to.
        x: images, signals or volumes; vectors for `batch`; any of these and tokens for `layer`.
        norm: `batch`, `group`, `instance`, `layer` (over the channels of each position), or `none`.
        groups: number of groups of `group`.

    Raises:
        ValueError: there is no such normalization, or it does not fit the shape.
    """
    if norm not in NORMS:
        raise ValueError(f"no normalization {norm!r}; did you mean {most_similar(norm, NORMS)!r}?")
    if norm == "none":
        return x
    if norm == "layer":
        return _layer_norm(graph, x)
    if norm != "batch" or len(x.shape) > 2:
        _check_channels_first(x, f"normalization {norm!r}")
    if norm == "batch":
        return graph.batch_norm(x)
    if norm == "instance":
        return graph.op("InstanceNormalization", x, *_affine(graph, x.channels))
    if groups < 1 or x.channels % groups:
        raise ValueError(
            f"{counted(groups, 'group does', 'groups do')} not divide {counted(x.channels, 'channel')}"
        )
    rows = graph.op("Reshape", x, Constant((0, groups, -1)))
    ones, zeros = (graph.op("Expand", Constant(value), Constant((groups,))) for value in (1.0, 0.0))
    y = graph.op("Reshape", graph.op("InstanceNormalization", rows, ones, zeros), Constant((0, *x.shape[1:])))
    y.channels_first = True
    of_channels = x.channels, *[1] * (len(x.shape) - 2)
    y = graph.op("Mul", y, graph.weight(*of_channels, fill=1.0))
    return graph.op("Add", y, graph.weight(*of_channels, fill=0.0))


def conv_norm(
    graph: Graph,
    x: Value,
    channels: int,
    kernel: int = 3,
    stride: int = 1,
    groups: int = 1,
    norm: str = "batch",
    activation: str = "relu",
) -> Value:
    """Write a padded convolution, a normalization and an activation.

    The convolution has a bias if there is no normalization.

    Args:
        graph: graph to write to.
        x: images, signals or volumes.
        channels: output channels.
        kernel: kernel size.
        stride: stride.
        groups: groups of the convolution.
        norm: normalization, see `normalize`.
        activation: activation, see `activate`.
    """
    y = graph.conv(x, channels, kernel, stride, groups, bias=norm == "none")
    return activate(graph, normalize(graph, y, norm), activation)


def depthwise_separable(
    graph: Graph,
    x: Value,
    channels: int,
    kernel: int = 3,
    stride: int = 1,
    norm: str = "batch",
    activation: str = "relu",
) -> Value:
    """Write a depthwise and a pointwise convolution (MobileNet), each as `conv_norm`."""
    y = conv_norm(graph, x, x.channels, kernel, stride, x.channels, norm, activation)
    return conv_norm(graph, y, channels, 1, norm=norm, activation=activation)


def squeeze_excitation(
    graph: Graph, x: Value, hidden: int, activation: str = "relu", gate: str = "hardsigmoid"
) -> Value:
    """Write squeeze-and-excitation: channels are multiplied by a function of their means.

    Args:
        graph: graph to write to.
        x: images, signals or volumes.
        hidden: channels of the bottleneck.
        activation: activation of the bottleneck.
        gate: activation of the factors: `hardsigmoid` as in MobileNetV3, or `sigmoid` as in EfficientNet.
    """
    _check_channels_first(x, "squeeze-and-excitation")
    y = graph.conv(graph.op("GlobalAveragePool", x), hidden, 1, bias=True)
    y = graph.conv(activate(graph, y, activation), x.channels, 1, bias=True)
    return graph.op("Mul", x, activate(graph, y, gate))


def inverted_residual(
    graph: Graph,
    x: Value,
    channels: int,
    kernel: int = 3,
    stride: int = 1,
    expansion: float = 6,
    squeeze: float = 0,
    norm: str = "batch",
    activation: str = "relu6",
    gate: str = "hardsigmoid",
) -> Value:
    """Write an inverted residual block, MBConv: expansion, depthwise convolution and projection.

    The input is added if the shapes are equal. `expansion=1` leaves the expansion out.

    Args:
        graph: graph to write to.
        x: images, signals or volumes.
        channels: output channels.
        kernel: kernel size of the depthwise convolution.
        stride: stride of the depthwise convolution.
        expansion: channels of the depthwise convolution, relative to those of `x`.
        squeeze: channels of the bottleneck of squeeze-and-excitation relative to those of the depthwise
            convolution, rounded by `make_divisible`; 0 for none.
        norm: normalization, see `normalize`.
        activation: activation, see `activate`.
        gate: activation of squeeze-and-excitation.
    """
    inner = round(x.channels * expansion)
    y = x if expansion == 1 else conv_norm(graph, x, inner, 1, norm=norm, activation=activation)
    y = conv_norm(graph, y, inner, kernel, stride, inner, norm, activation)
    if squeeze:
        y = squeeze_excitation(
            graph, y, make_divisible(inner * squeeze), "relu" if gate == "hardsigmoid" else activation, gate
        )
    y = conv_norm(graph, y, channels, 1, norm=norm, activation="none")
    return graph.op("Add", x, y) if x.shape == y.shape else y


def basic_block(
    graph: Graph, x: Value, channels: int, stride: int = 1, norm: str = "batch", activation: str = "relu"
) -> Value:
    """Write a residual block of two 3x3 convolutions (ResNet-18).

    A pointwise convolution projects the shortcut where the shapes differ.
    """
    y = conv_norm(graph, x, channels, 3, stride, norm=norm, activation=activation)
    y = conv_norm(graph, y, channels, 3, norm=norm, activation="none")
    return _add_shortcut(graph, x, y, stride, norm, activation)


def bottleneck_block(
    graph: Graph,
    x: Value,
    channels: int,
    stride: int = 1,
    reduction: float = 4,
    groups: int = 1,
    kernel: int = 3,
    norm: str = "batch",
    activation: str = "relu",
) -> Value:
    """Write a residual bottleneck block (ResNet-50, and ResNeXt with groups).

    Args:
        graph: graph to write to.
        x: images, signals or volumes.
        channels: output channels.
        stride: stride of the middle convolution.
        reduction: output channels relative to those of the middle convolution.
        groups: groups of the middle convolution.
        kernel: kernel size of the middle convolution.
        norm: normalization, see `normalize`.
        activation: activation, see `activate`.
    """
    inner = round(channels / reduction)
    y = conv_norm(graph, x, inner, 1, norm=norm, activation=activation)
    y = conv_norm(graph, y, inner, kernel, stride, groups, norm, activation)
    y = conv_norm(graph, y, channels, 1, norm=norm, activation="none")
    return _add_shortcut(graph, x, y, stride, norm, activation)


def linear(graph: Graph, x: Value, features: int, bias: bool = True) -> Value:
    """Write a linear layer on the features of vectors or tokens."""
    if len(x.shape) == 2 and bias:
        return graph.linear(x, features)
    if len(x.shape) == 2:
        return graph.op("Gemm", x, graph.weight(features, x.channels), transB=1)
    y = graph.op("MatMul", x, graph.weight(x.shape[-1], features))
    return graph.op("Add", y, graph.weight(features, fill=0.0)) if bias else y


def patch_embedding(
    graph: Graph, x: Value, features: int, patch: int | tuple[int, ...], positions: bool = True
) -> Value:
    """Write a patch embedding: one token for each patch of an image (vision transformer) or of a signal.

    Args:
        graph: graph to write to.
        x: images, signals or volumes.
        features: features of a token.
        patch: size of a patch; a tuple has a size for each axis.
        positions: add learnt position embeddings.
    """
    _check_channels_first(x, "a patch embedding")
    sizes = along_axes(patch, len(x.shape) - 2, "the patch of a patch embedding")
    w, b = graph.weight(features, x.channels, *sizes), graph.weight(features, fill=0.0)
    y = graph.op("Conv", x, w, b, strides=sizes)
    number = prod(y.shape[2:])
    y = graph.op("Transpose", graph.op("Reshape", y, Constant((0, features, number))), perm=[0, 2, 1])
    return graph.op("Add", y, graph.weight(1, number, features)) if positions else y


def attention(graph: Graph, x: Value, heads: int, bias: bool = True) -> Value:
    """Write multi-head self-attention: projections to queries, keys and values, attention and a projection.

    Args:
        graph: graph to write to.
        x: tokens.
        heads: number of heads, which divides the features.
        bias: biases of the four projections.

    Raises:
        ValueError: the heads do not divide the features.
    """
    _check_tokens(x, "attention")
    _, number, features = x.shape
    if heads < 1 or features % heads:
        raise ValueError(
            f"{counted(heads, 'head does', 'heads do')} not divide {counted(features, 'feature')}"
        )
    scale = Constant(sqrt(1 / sqrt(features // heads)))

    def project(perm: list[int]) -> Value:
        y = graph.op(
            "Reshape", linear(graph, x, features, bias), Constant((0, number, heads, features // heads))
        )
        return graph.op("Transpose", y, perm=perm)

    queries, keys, values = project([0, 2, 1, 3]), project([0, 2, 3, 1]), project([0, 2, 1, 3])
    scores = graph.op("MatMul", graph.op("Mul", queries, scale), graph.op("Mul", keys, scale))
    y = graph.op("MatMul", graph.op("Softmax", scores), values)
    y = graph.op("Reshape", graph.op("Transpose", y, perm=[0, 2, 1, 3]), Constant((0, number, features)))
    return linear(graph, y, features, bias)


def mlp(graph: Graph, x: Value, hidden: int, activation: str = "gelu") -> Value:
    """Write two linear layers with an activation between them, on vectors or tokens."""
    return linear(graph, activate(graph, linear(graph, x, hidden), activation), x.shape[-1])


def transformer_block(
    graph: Graph, x: Value, heads: int, expansion: float = 4, activation: str = "gelu"
) -> Value:
    """Write a transformer block: attention and an MLP, each after a layer norm and with a shortcut.

    Args:
        graph: graph to write to.
        x: tokens.
        heads: number of heads, which divides the features.
        expansion: hidden features of the MLP relative to those of a token.
        activation: activation of the MLP.
    """
    _check_tokens(x, "a transformer block")
    x = graph.op("Add", x, attention(graph, _layer_norm(graph, x), heads))
    hidden = round(x.shape[-1] * expansion)
    return graph.op("Add", x, mlp(graph, _layer_norm(graph, x), hidden, activation))


def classifier(
    graph: Graph, x: Value, classes: int, hidden: int = 0, activation: str = "relu", norm: str = "none"
) -> Value:
    """Write a classifier head: the mean over all positions, and linear layers; return the logits.

    Args:
        graph: graph to write to.
        x: images, signals, volumes, tokens or vectors.
        classes: number of classes.
        hidden: features of a hidden layer; 0 for none.
        activation: activation of the hidden layer.
        norm: normalization before the mean, such as `layer` for transformers.
    """
    x = normalize(graph, x, norm)
    if len(x.shape) == 3 and not x.channels_first:
        x = graph.op("ReduceMean", x, Constant((1,)), keepdims=0)
    elif len(x.shape) > 2:
        x = graph.op("Flatten", graph.op("GlobalAveragePool", x))
    if hidden:
        x = activate(graph, graph.linear(x, hidden), activation)
    return graph.linear(x, classes)


def make_divisible(channels: float) -> int:
    """Round channels to the nearest multiple of 8, but not below 8 or below 90% of the channels."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near


def _add_shortcut(graph: Graph, x: Value, y: Value, stride: int, norm: str, activation: str) -> Value:
    """Write the activation of the sum of a block's output `y` and its input `x`, projected if needed."""
    if x.shape != y.shape:
        x = conv_norm(graph, x, y.channels, 1, stride, norm=norm, activation="none")
    return activate(graph, graph.op("Add", x, y), activation)


def _layer_norm(graph: Graph, x: Value) -> Value:
    """Write a layer norm over the features of tokens, or over the channels of each position of others."""
    axes = len(x.shape)
    if axes > 3 or x.channels_first:
        y = _layer_norm_last(graph, graph.op("Transpose", x, perm=[0, *range(2, axes), 1]))
        return graph.op("Transpose", y, perm=[0, axes - 1, *range(1, axes - 1)])
    return _layer_norm_last(graph, x)


def _layer_norm_last(graph: Graph, x: Value) -> Value:
    return graph.op("LayerNormalization", x, *_affine(graph, x.shape[-1]))


def _affine(graph: Graph, channels: int) -> tuple[Weight, Weight]:
    """Return a scale and a bias of a normalization."""
    return graph.weight(channels, fill=1.0), graph.weight(channels, fill=0.0)


def _check_channels_first(x: Value, what: str) -> None:
    """Refuse what is no image, signal or volume.

    Raises:
        ValueError: the value is a vector or a list of tokens.
    """
    if len(x.shape) < 4 and not x.channels_first:
        kind = "tokens" if len(x.shape) == 3 else "vectors"
        raise ValueError(f"{what} reads images, signals or volumes, not {kind} of shape {list(x.shape)}")


def _check_tokens(x: Value, what: str) -> None:
    """Refuse what is no list of tokens.

    Raises:
        ValueError: the value has another number of dimensions.
    """
    if len(x.shape) != 3 or x.channels_first:
        raise ValueError(f"{what} reads tokens, not the shape {list(x.shape)}: see patch_embedding")
