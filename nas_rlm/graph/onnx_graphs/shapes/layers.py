"""Shapes of convolutions, pools, matrix products, recurrent layers and attention."""

from __future__ import annotations

from onnx import TensorProto

from nas_rlm.graph.onnx_graphs.shapes.registry import OperatorCall, checked_axis, shape_of
from nas_rlm.graph.onnx_graphs.tensors import (
    FLOAT,
    INT64,
    Dim,
    Dims,
    Tensor,
    broadcast,
    broadcast_dims,
    product,
)

CONVOLUTIONS = {  # positions of image and weight, and of the bias
    "Conv": (0, 1, 2),
    "ConvInteger": (0, 1, None),
    "QLinearConv": (0, 3, 8),
    "DeformConv": (0, 1, 3),
    "com.microsoft.FusedConv": (0, 1, 2),
    "com.microsoft.NhwcConv": (0, 1, 2),
    "com.microsoft.NhwcFusedConv": (0, 1, 2),
    "com.microsoft.QLinearConv": (0, 3, 8),
    "com.microsoft.nchwc.Conv": (0, 1, 2),
}
CHANNELS_LAST = ("com.microsoft.NhwcConv", "com.microsoft.NhwcFusedConv", "com.microsoft.NhwcMaxPool")
CHANNEL_BLOCK = 16  # onnxruntime pads the channels of com.microsoft.nchwc to blocks of at most this size
# Operators that multiply two matrices: positions of these.
PRODUCTS = {
    "MatMul": (0, 1),
    "MatMulInteger": (0, 1),
    "QLinearMatMul": (0, 3),
    "com.microsoft.QLinearMatMul": (0, 3),
    "com.microsoft.FusedMatMul": (0, 1),
    "com.microsoft.FusedMatMulActivation": (0, 1),
    "com.microsoft.TransposeMatMul": (0, 1),
    "com.microsoft.MatMulIntegerToFloat": (0, 1),
    "com.microsoft.MatMulInteger16": (0, 1),
    "com.microsoft.DynamicQuantizeMatMul": (0, 1),
    "com.microsoft.GemmFloat8": (0, 1),
}
GEMMS = {"Gemm": (0, 1), "com.microsoft.FusedGemm": (0, 1), "com.microsoft.QGemm": (0, 3)}
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1, "com.microsoft.DynamicQuantizeLSTM": 4}


def convolution_inputs(kind: str) -> tuple[int, int]:
    """Return the positions of the image and the weight among the inputs of a convolution."""
    return CONVOLUTIONS[kind][:2]


def is_channels_last(call: OperatorCall) -> bool:
    """Return True if the channels of the image are the last dimension."""
    return call.kind in CHANNELS_LAST or bool(call.attribute("channels_last", 0))


@shape_of(*CONVOLUTIONS)
def _conv(call: OperatorCall) -> list[Tensor]:
    image, weight, bias = CONVOLUTIONS[call.kind]
    x, w = call.shape(image), call.shape(weight)
    dtype = call.input(image).dtype
    if call.kind == "ConvInteger":
        dtype = TensorProto.INT32
    elif len(call.inputs) > 7 and call.kind.endswith("QLinearConv"):
        dtype = call.input(7).dtype
    if w is None or x is None:
        rank = len(x or w or ())
        return [Tensor(dtype, (None,) * rank if rank else None)]
    if len(x) != len(w) or len(x) < 3:
        raise ValueError(f"an image of {len(x)} dimensions with a weight of shape {list(w)}")
    is_last = is_channels_last(call)
    channels, sides = (x[-1], x[1:-1]) if is_last else (x[1], x[2:])
    _check_conv(call, channels, w)
    if bias is not None and len(call.inputs) > bias and (b := call.inputs[bias]) is not None:
        shape = b.known_shape
        if shape is not None and type(w[0]) is int and shape != (w[0],):
            raise ValueError(
                f"a weight of shape {list(w)} has a bias of shape {list(shape)}: expected [{w[0]}]"
            )
    spatial = window_sides(call, sides, w[2:])
    return [Tensor(dtype, (x[0], *spatial, w[0]) if is_last else (x[0], w[0], *spatial))]


def _check_conv(call: OperatorCall, channels: Dim, w: Dims) -> None:
    """Refuse channels, groups or a kernel that do not fit the weight."""
    groups = call.attribute("group", 1)
    kernel = call.attribute("kernel_shape", w[2:])
    description = f"{groups} groups read {channels} channels with a weight of shape {list(w)}"
    if groups < 1 or (type(w[0]) is int and w[0] % groups):
        raise ValueError(f"{description}: expected groups of equal size")
    if type(channels) is int and type(w[1]) is int and channels != w[1] * groups:
        raise ValueError(f"{description}: expected {w[1] * groups} channels")
    if (
        any(type(d) is int and d != k for d, k in zip(w[2:], kernel, strict=False))
        or len(kernel) != len(w) - 2
    ):
        raise ValueError(f"{description} and kernel_shape {list(kernel)}: expected {list(w[2:])}")


def window_sides(call: OperatorCall, sides: Dims, kernel: Dims) -> Dims:
    """Return the spatial sizes of the output of a convolution or pool.

    Raises:
        ValueError: attributes have the wrong length, or the window is larger than the image.
    """
    n = len(sides)
    strides, dilations = call.attribute("strides", (1,) * n), call.attribute("dilations", (1,) * n)
    mode, ceil = call.attribute("auto_pad", b"NOTSET"), call.attribute("ceil_mode", 0)
    pads = call.attribute("pads", (0,) * (2 * n)) if mode == b"NOTSET" else (0,) * (2 * n)
    if not len(strides) == len(dilations) == len(kernel) == n or len(pads) != 2 * n:
        raise ValueError(f"strides, dilations, pads or kernel do not fit an image of {n} spatial dimensions")
    if min((*strides, *dilations), default=1) < 1:
        raise ValueError(f"strides {list(strides)} and dilations {list(dilations)}: expected at least 1")
    out: list[Dim] = []
    for k in range(n):
        side, size = sides[k], kernel[k]
        if mode in (b"SAME_UPPER", b"SAME_LOWER"):
            out.append(-(-side // strides[k]) if type(side) is int else side if strides[k] == 1 else None)
            continue
        if type(size) is int and type(side) is str:
            is_same = strides[k] == 1 and pads[k] + pads[k + n] == dilations[k] * (size - 1)
            out.append(side if is_same else None)
            continue
        if type(side) is not int or type(size) is not int:
            out.append(None)
            continue
        room = side + pads[k] + pads[k + n] - dilations[k] * (size - 1) - 1
        steps = -(-room // strides[k]) if ceil else room // strides[k]
        if ceil and steps * strides[k] >= side + pads[k]:
            steps -= 1  # a window has to begin within the image or its left padding
        if steps < 0:
            raise ValueError(
                f"a window of {size} with dilation {dilations[k]} is larger than the padded image of"
                f" {side + pads[k] + pads[k + n]}"
            )
        out.append(steps + 1)
    return tuple(out)


@shape_of("ConvTranspose", "com.microsoft.ConvTransposeWithDynamicPads")
def _conv_transpose(call: OperatorCall) -> list[Tensor]:
    x, w, dtype = call.shape(0), call.shape(1), call.input(0).dtype
    if x is None or w is None or call.has(3):
        return [Tensor(dtype, None if x is None else (None,) * len(x))]
    n, groups = len(x) - 2, call.attribute("group", 1)
    if len(x) != len(w) or n < 1:
        raise ValueError(f"an image of {len(x)} dimensions with a weight of shape {list(w)}")
    if type(x[1]) is int and type(w[0]) is int and (x[1] != w[0] or groups < 1 or w[0] % groups):
        raise ValueError(f"{groups} groups read {x[1]} channels with a weight of shape {list(w)}")
    strides, dilations = call.attribute("strides", (1,) * n), call.attribute("dilations", (1,) * n)
    mode, pads = call.attribute("auto_pad", b"NOTSET"), call.attribute("pads", (0,) * (2 * n))
    extra, given = call.attribute("output_padding", (0,) * n), call.attribute("output_shape", ())
    if not len(strides) == len(dilations) == len(extra) == n or len(pads) != 2 * n:
        raise ValueError(f"strides, dilations or pads do not fit an image of {n} spatial dimensions")
    out: list[Dim] = []
    for k in range(n):
        side, size = x[2 + k], w[2 + k]
        if given:
            out.append(given[-n:][k])
        elif type(side) is not int or type(size) is not int:
            out.append(None)
        elif mode in (b"SAME_UPPER", b"SAME_LOWER"):
            out.append(side * strides[k])
        else:
            used = (0, 0) if mode == b"VALID" else (pads[k], pads[k + n])
            out.append(strides[k] * (side - 1) + extra[k] + (size - 1) * dilations[k] + 1 - sum(used))
            if out[-1] < 1:  # type: ignore[operator]
                raise ValueError(f"the padding {list(pads)} removes the entire image")
    return [Tensor(dtype, (x[0], product((w[1], groups)), *out))]


@shape_of("MaxPool", "AveragePool", "LpPool", "com.microsoft.QLinearAveragePool", "com.microsoft.NhwcMaxPool")
@shape_of("com.microsoft.nchwc.MaxPool", "com.microsoft.nchwc.AveragePool")
def _pool(call: OperatorCall) -> list[Tensor]:
    x, dtype = call.shape(0), call.input(0).dtype
    if x is None:
        return [Tensor(dtype, None), Tensor(INT64, None)]
    if len(x) < 3:
        raise ValueError(f"input 0 has {len(x)} dimensions: expected an image")
    if is_channels_last(call):
        shape: Dims = (x[0], *window_sides(call, x[1:-1], call.attributes["kernel_shape"]), x[-1])
    else:
        shape = (*x[:2], *window_sides(call, x[2:], call.attributes["kernel_shape"]))
    return [Tensor(dtype, shape), Tensor(INT64, shape)]


@shape_of("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "com.microsoft.QLinearGlobalAveragePool")
@shape_of("com.microsoft.nchwc.GlobalAveragePool", "com.microsoft.nchwc.GlobalMaxPool")
def _global_pool(call: OperatorCall) -> list[Tensor]:
    x, dtype = call.shape(0), call.input(0).dtype
    if x is None:
        return [Tensor(dtype, None)]
    if call.attribute("channels_last", 0):
        return [Tensor(dtype, (x[0], *[1] * (len(x) - 2), x[-1]))]
    return [Tensor(dtype, (*x[:2], *[1] * (len(x) - 2)))]


@shape_of("com.microsoft.nchwc.ReorderInput")
def _to_blocks(call: OperatorCall) -> list[Tensor]:
    x, dtype = call.shape(0), call.input(0).dtype
    if x is None:
        return [Tensor(dtype, None)]
    if len(x) < 3:
        raise ValueError(f"input 0 has {len(x)} dimensions: expected an image")
    channels, sides = (x[-1], x[1:-1]) if call.attribute("channels_last", 0) else (x[1], x[2:])
    is_known = type(channels) is int and channels % CHANNEL_BLOCK == 0
    return [Tensor(dtype, (x[0], channels if is_known else None, *sides))]


@shape_of("com.microsoft.nchwc.ReorderOutput")
def _from_blocks(call: OperatorCall) -> list[Tensor]:
    x, dtype = call.shape(0), call.input(0).dtype
    if x is None:
        return [Tensor(dtype, None)]
    if len(x) < 3:
        raise ValueError(f"input 0 has {len(x)} dimensions: expected an image")
    channels = call.attribute("channels", 0)
    if channels < 1 or (type(x[1]) is int and channels > x[1]):
        raise ValueError(f"channels is {channels} for an input of shape {list(x)}: expected 1 to {x[1]}")
    is_last = call.attribute("channels_last", 0)
    return [Tensor(dtype, (x[0], *x[2:], channels) if is_last else (x[0], channels, *x[2:]))]


@shape_of("com.microsoft.nchwc.Upsample")
def _upsample_blocks(call: OperatorCall) -> list[Tensor]:
    x, dtype = call.shape(0), call.input(0).dtype
    scales = call.attribute("scales", ())
    if x is None:
        return [Tensor(dtype, None)]
    if len(scales) != len(x):
        raise ValueError(f"scales {list(scales)} for an input of {len(x)} dimensions")
    return [Tensor(dtype, tuple([product(pair) for pair in zip(x, scales, strict=True)]))]


@shape_of("MaxUnpool")
def _max_unpool(call: OperatorCall) -> list[Tensor]:
    x, dtype = call.shape(0), call.input(0).dtype
    if x is None:
        return [Tensor(dtype, None)]
    given = call.optional(2)
    if given is not None:
        return [Tensor(dtype, given.integers or (None,) * len(x))]
    n, kernel = len(x) - 2, call.attributes["kernel_shape"]
    strides, pads = call.attribute("strides", (1,) * n), call.attribute("pads", (0,) * (2 * n))
    sides = [
        (d - 1) * strides[k] + kernel[k] - pads[k] - pads[k + n] if type(d) is int else None
        for k, d in enumerate(x[2:])
    ]
    return [Tensor(dtype, (*x[:2], *sides))]


@shape_of("MaxRoiPool", "RoiAlign")
def _roi_pool(call: OperatorCall) -> list[Tensor]:
    x, rois = call.shape(0, rank=4), call.shape(1, rank=2)
    sides = call.attribute("pooled_shape") or (
        call.attribute("output_height", 1),
        call.attribute("output_width", 1),
    )
    return [Tensor(call.input(0).dtype, (rois[0] if rois else None, x[1] if x else None, *sides))]


def product_shapes(call: OperatorCall) -> tuple[Dims | None, Dims | None]:
    """Return the shapes of the two matrices of a product, transposed as the operator reads them."""
    left, right = PRODUCTS[call.kind]
    a, b = call.shape(left), call.shape(right)
    for name, is_left in (("transBatchA", True), ("transBatchB", False)):
        shape = a if is_left else b
        if call.attribute(name, 0) and shape is not None and len(shape) > 1:
            moved = (*shape[1:-1], shape[0], shape[-1])
            a, b = (moved, b) if is_left else (a, moved)
    flag = "transA", "transB"
    if call.attribute(flag[0], 0) and a is not None and len(a) > 1:
        a = (*a[:-2], a[-1], a[-2])
    if call.attribute(flag[1], 0) and b is not None and len(b) > 1:
        b = (*b[:-2], b[-1], b[-2])
    return a, b


@shape_of(*PRODUCTS)
def _matmul(call: OperatorCall) -> list[Tensor]:
    a, b = product_shapes(call)
    dtype = call.input(0).dtype
    if call.kind == "MatMulInteger" or call.kind.endswith("MatMulInteger16"):
        dtype = TensorProto.INT32
    elif call.kind.endswith("QLinearMatMul"):
        dtype = call.input(7).dtype
    elif call.kind.endswith("MatMulIntegerToFloat"):
        dtype = call.input(2).dtype
    if a is None or b is None:
        return [Tensor(dtype, None)]
    return [Tensor(dtype, _product_shape(a, b))]


def _product_shape(a: Dims, b: Dims) -> Dims:
    """Return the shape of a matrix product with NumPy's rules."""
    if not a or not b:
        raise ValueError("a scalar: expected matrices or vectors")
    inner_b = b[-2] if len(b) > 1 else b[0]
    if type(a[-1]) is int and type(inner_b) is int and a[-1] != inner_b:
        raise ValueError(f"matrices of shapes {list(a)} and {list(b)} do not fit each other")
    batch = broadcast([a[:-2], b[:-2]]) or ()
    return (*batch, *a[-2:-1], *b[-1:]) if len(b) > 1 else (*batch, *a[-2:-1])


@shape_of("com.microsoft.MatMulNBits", "com.microsoft.MatMulBnb4", "com.microsoft.MatMulFpQ4")
def _packed_matmul(call: OperatorCall) -> list[Tensor]:
    a = call.shape(0)
    columns = call.attribute("N")
    if columns is None and call.has(3):  # MatMulFpQ4 has the shape of the matrix as an input
        sizes = call.input(3).integers
        columns = sizes[-1] if sizes else None
    return [Tensor(call.input(0).dtype, None if a is None else (*a[:-1], columns))]


def gemm_sizes(call: OperatorCall) -> tuple[Dim, Dim, Dim, Dim]:
    """Return rows, inner size of the left and of the right matrix, and columns of a Gemm."""
    left, right = GEMMS[call.kind]
    a, b = call.shape(left, rank=2) or (None, None), call.shape(right, rank=2) or (None, None)
    rows, inner = a[::-1] if call.attribute("transA", 0) else a
    inner_right, columns = b[::-1] if call.attribute("transB", 0) else b
    return rows, inner, inner_right, columns


@shape_of(*GEMMS)
def _gemm(call: OperatorCall) -> list[Tensor]:
    rows, inner, inner_right, columns = gemm_sizes(call)
    if type(inner) is int and type(inner_right) is int and inner != inner_right:
        raise ValueError(f"matrices with inner sizes {inner} and {inner_right} do not fit each other")
    bias = call.optional(6 if call.kind.endswith("QGemm") else 2)
    if bias is not None and bias.known_shape is not None and type(columns) is int:
        last = bias.known_shape[-1:] or (1,)
        if last[0] not in (1, columns):
            raise ValueError(f"a bias of shape {list(bias.known_shape)}: expected [{columns}]")
    dtype = call.input(0).dtype
    if call.kind.endswith("QGemm"):
        dtype = call.input(8).dtype if call.has(8) else FLOAT
    return [Tensor(dtype, (rows, columns))]


def einsum_terms(equation: str, shapes: list[Dims]) -> tuple[list[str], str, dict[str, Dim]]:
    """Return the labels of the inputs, those of the output, and the size of each label.

    An ellipsis becomes labels 0, 1, … for its dimensions, counted from the right.

    Raises:
        ValueError: the equation does not fit the shapes.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise ValueError(f"the equation {equation!r} has {len(terms)} inputs: expected {len(shapes)}")
    sizes: dict[str, list[Dim]] = {}
    expanded, most = [], 0
    for term, shape in zip(terms, shapes, strict=True):
        hidden = len(shape) - len(term.replace("...", "")) if "..." in term else 0
        if hidden < 0 or ("..." not in term and len(term) != len(shape)) or hidden > 9:
            raise ValueError(f"{term!r} of the equation {equation!r} does not fit the shape {list(shape)}")
        most = max(most, hidden)
        labels = term.replace("...", "".join(str(k) for k in range(hidden))[::-1])
        expanded.append(labels)
        for label, d in zip(labels, shape, strict=True):
            sizes.setdefault(label, []).append(d)
    merged = {label: broadcast_dims(dims, shapes) for label, dims in sizes.items()}
    ellipsis = "".join(str(k) for k in range(most))[::-1]
    if not arrow:
        once = sorted(x for x in set(left) if x.isalpha() and left.count(x) == 1)
        right = ("..." if "..." in left else "") + "".join(once)
    output = right.replace("...", ellipsis)
    if not set(output) <= set(merged):
        raise ValueError(f"the output of the equation {equation!r} has a label that no input has")
    return expanded, output, merged


@shape_of("Einsum")
def _einsum(call: OperatorCall) -> list[Tensor]:
    shapes = [call.shape(k) for k in range(len(call.inputs))]
    dtype = call.input(0).dtype
    if any(s is None for s in shapes):
        return [Tensor(dtype, None)]
    equation = call.attributes["equation"].decode("utf-8", "replace")
    _, output, sizes = einsum_terms(equation, [s for s in shapes if s is not None])
    return [Tensor(dtype, tuple([sizes[label] for label in output]))]


@shape_of("LSTM", "GRU", "RNN", "com.microsoft.DynamicQuantizeLSTM")
def _recurrent(call: OperatorCall) -> list[Tensor]:
    x, dtype = call.shape(0, rank=3), call.input(0).dtype
    directions = 2 if call.attribute("direction", b"forward") == b"bidirectional" else 1
    r = call.shape(2)
    hidden = call.attribute("hidden_size") or (r[-1] if r else None)
    steps, batch = (x[0], x[1]) if x else (None, None)
    w = call.shape(1)
    gates = GATES[call.kind]
    if call.kind in ("LSTM", "GRU", "RNN") and w is not None and type(hidden) is int and x is not None:
        if len(w) != 3 or w[1] not in (gates * hidden, None) or w[0] not in (directions, None):
            raise ValueError(f"a weight of shape {list(w)}: expected [{directions},{gates * hidden},inputs]")
        if type(w[2]) is int and type(x[2]) is int and w[2] != x[2]:
            raise ValueError(f"inputs of size {x[2]} with a weight of shape {list(w)}")
    if call.attribute("layout", 0):
        steps, batch = batch, steps
        state: Dims = (batch, directions, hidden)
        sequence: Dims = (batch, steps, directions, hidden)
    else:
        state, sequence = (directions, batch, hidden), (steps, directions, batch, hidden)
    return [Tensor(dtype, sequence), Tensor(dtype, state), Tensor(dtype, state)][: call.num_outputs]


@shape_of("Attention")
def _attention(call: OperatorCall) -> list[Tensor]:
    sizes = attention_sizes(call)
    dtype = call.input(0).dtype
    query = call.shape(0)
    batch, heads, steps, keys, _, value_width = sizes
    if query is not None and len(query) == 3:
        shape: Dims = (batch, steps, product((heads, value_width)))
    else:
        shape = (batch, heads, steps, value_width)
    key_heads = (call.shape(1) or (None, None))[1] if query is None or len(query) == 4 else None
    key_heads = call.attribute("kv_num_heads", key_heads)
    outputs = [
        Tensor(dtype, shape),
        Tensor(dtype, (batch, key_heads, keys, sizes[4])),
        Tensor(dtype, (batch, key_heads, keys, value_width)),
        Tensor(dtype, (batch, heads, steps, keys)),
    ]
    return outputs[: call.num_outputs]


def attention_sizes(call: OperatorCall) -> tuple[Dim, Dim, Dim, Dim, Dim, Dim]:
    """Return batch, heads of queries, steps, keys, and width of keys and values of a head of Attention."""
    q, k, v = call.shape(0), call.shape(1), call.shape(2)
    if q is None or k is None or v is None:
        return (None,) * 6
    past = call.shape(4) if call.has(4) else None
    if len(q) == 4 and len(k) == len(v) == 4:
        batch, heads, steps, width = q
        keys, value_width = k[2], v[3]
    elif len(q) == 3:
        heads, key_heads = call.attribute("q_num_heads"), call.attribute("kv_num_heads")
        if not heads or not key_heads:
            raise ValueError("inputs of 3 dimensions: expected q_num_heads and kv_num_heads")
        batch, steps = q[:2]
        width, value_width = divide(q[2], heads), divide(v[2], key_heads)
        keys = k[1]
    else:
        raise ValueError("expected queries, keys and values of 3 or 4 dimensions")
    if past is not None:
        keys = add(keys, past[2])
    return batch, heads, steps, keys, width, value_width


def divide(a: Dim, b: Dim) -> Dim:
    """Return a / b; None if one is unknown or they are not divisible."""
    return a // b if type(a) is int and type(b) is int and b and a % b == 0 else None


def add(a: Dim, b: Dim) -> Dim:
    """Return a + b; None if one is unknown."""
    return a + b if type(a) is int and type(b) is int else a if b == 0 else None


@shape_of("LinearAttention", "com.microsoft.LinearAttention")
def _linear_attention(call: OperatorCall) -> list[Tensor]:
    batch, steps, heads, key_heads, width, value_width = linear_attention_sizes(call)
    dtype, past = call.input(0).dtype, call.optional(3)
    state: Dims = (batch, key_heads, width, value_width)
    outputs = [Tensor(dtype, (batch, steps, product((heads, value_width))))]
    return [*outputs, Tensor(dtype if past is None else past.dtype, state)][: call.num_outputs]


def linear_attention_sizes(call: OperatorCall) -> tuple[Dim, Dim, Dim, Dim, Dim, Dim]:
    """Return batch, steps, heads of queries and keys, and width of keys and values of LinearAttention."""
    q, k, v = (call.shape(position, rank=3) or (None,) * 3 for position in range(3))
    heads, key_heads = call.attribute("q_num_heads"), call.attribute("kv_num_heads")
    if not heads or not key_heads or heads % key_heads:
        raise ValueError(
            f"q_num_heads is {heads} and kv_num_heads is {key_heads}: expected a multiple of kv_num_heads"
        )
    for name, shape, number in (("queries", q, heads), ("keys", k, key_heads), ("values", v, key_heads)):
        if type(shape[2]) is int and shape[2] % number:
            raise ValueError(f"{name} of shape {list(shape)}: expected {number} heads of equal size")
    width, key_width = divide(q[2], heads), divide(k[2], key_heads)
    if width is not None and key_width is not None and width != key_width:
        raise ValueError(f"heads of queries of size {width} and of keys of size {key_width}")
    return q[0], q[1], heads, key_heads, width or key_width, divide(v[2], key_heads)


@shape_of("CausalConvWithState", "com.microsoft.CausalConvWithState")
def _causal_conv(call: OperatorCall) -> list[Tensor]:
    x, w, dtype = call.shape(0), call.shape(1), call.input(0).dtype
    if x is None or w is None:
        return [Tensor(dtype, x), Tensor(dtype, None)][: call.num_outputs]
    if len(x) != len(w) or len(x) < 3:
        raise ValueError(f"an input of {len(x)} dimensions with a weight of shape {list(w)}")
    if (type(x[1]) is int and w[0] not in (x[1], None)) or w[1] not in (1, None):
        raise ValueError(f"{x[1]} channels with a weight of shape {list(w)}: expected [{x[1]},1,…]")
    state = (*x[:-1], add(w[-1], -1))
    return [Tensor(dtype, x), Tensor(dtype, state)][: call.num_outputs]


@shape_of("RotaryEmbedding")
def _rotary(call: OperatorCall) -> list[Tensor]:
    return [Tensor(call.input(0).dtype, call.shape(0))]


@shape_of("com.microsoft.Attention", "com.microsoft.QAttention")
def _contrib_attention(call: OperatorCall) -> list[Tensor]:
    x, w = call.shape(0, rank=3), call.shape(1, rank=2)
    widths = call.attribute("qkv_hidden_sizes")
    width = widths[2] if widths else divide(w[1], 3) if w else None
    dtype = call.input(3 if call.kind.endswith("QAttention") else 0).dtype
    past = call.shape(8 if call.kind.endswith("QAttention") else 4) if call.num_outputs > 1 else None
    heads = call.attribute("num_heads")
    steps = None if x is None else add(x[1], past[3]) if past else x[1]
    present: Dims = (2, x[0] if x else None, heads, steps, divide(width, heads))
    return [Tensor(dtype, (*(x[:2] if x else (None, None)), width)), Tensor(dtype, present)][
        : call.num_outputs
    ]


@shape_of("com.microsoft.MultiHeadAttention", "com.microsoft.GroupQueryAttention")
@shape_of("com.microsoft.DecoderMaskedMultiHeadAttention")
def _multi_head_attention(call: OperatorCall) -> list[Tensor]:
    x, dtype = call.shape(0), call.input(0).dtype
    heads = call.attribute("num_heads")
    batch, steps, keys, width, value_width = contrib_attention_sizes(call)
    key_heads = call.attribute("kv_num_heads", heads)
    shape = None if x is None else (batch, steps, product((heads, value_width)))
    present = Tensor(dtype, (batch, key_heads, keys, width))
    present_values = Tensor(dtype, (batch, key_heads, keys, value_width))
    return [Tensor(dtype, shape), present, present_values][: call.num_outputs]


def contrib_attention_sizes(call: OperatorCall) -> tuple[Dim, Dim, Dim, Dim, Dim]:
    """Return batch, steps, keys, and width of keys and values of a head of onnxruntime's attention."""
    x = call.shape(0)
    heads = call.attribute("num_heads")
    is_grouped = call.kind.endswith("GroupQueryAttention")
    key_heads = call.attribute("kv_num_heads", heads)
    past = 3 if is_grouped else 6
    if x is None:
        return (None,) * 5
    batch, steps = x[0], x[1]
    past_shape = call.shape(past) if call.has(past) else None
    if len(x) == 5:  # queries, keys and values of each head, packed
        return batch, steps, steps, x[4], x[4]
    if not call.has(1):  # packed in one tensor
        width = divide(x[2], add(heads, product((2, key_heads))))
        keys = steps
        value_width = width
    else:
        k = call.shape(1)
        width = divide(x[2], heads)
        if k is None:
            return batch, steps, None, width, width
        if len(k) == 5:
            keys, value_width = k[1], k[4]
        elif len(k) == 4:
            keys, value_width = k[2], k[3]
        else:
            keys = k[1]
            v = call.shape(2) if call.has(2) else None
            value_width = divide(v[2], key_heads) if v is not None and len(v) == 3 else width
        v4 = call.shape(2) if call.has(2) else None
        if v4 is not None and len(v4) == 4:
            value_width = v4[3]
    if past_shape is not None and len(past_shape) == 4:
        # A buffer that present and past share has room for all keys.
        keys = past_shape[2] if is_grouped and call.num_outputs < 2 else add(keys, past_shape[2])
    return batch, steps, keys, width, value_width


@shape_of("com.microsoft.EmbedLayerNormalization")
def _embed_layer_norm(call: OperatorCall) -> list[Tensor]:
    ids, table = call.shape(0, rank=2), call.shape(2, rank=2)
    width = table[1] if table else None
    dtype = call.input(2).dtype
    batch = ids[0] if ids else None
    outputs = [Tensor(dtype, (*(ids or (None, None)), width)), Tensor(TensorProto.INT32, (batch,))]
    return [*outputs, Tensor(dtype, (*(ids or (None, None)), width))][: call.num_outputs]


@shape_of("com.microsoft.GatherBlockQuantized")
def _gather_quantized(call: OperatorCall) -> list[Tensor]:
    data, indices = call.shape(0), call.shape(1)
    if data is None or indices is None:
        return [Tensor(call.input(2).dtype, None)]
    axis = checked_axis(call.attribute("gather_axis", 0), len(data))
    return [Tensor(call.input(2).dtype, (*data[:axis], *indices, *data[axis + 1 :]))]


@shape_of("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def _loss(call: OperatorCall) -> list[Tensor]:
    x, labels, dtype = call.shape(0), call.shape(1), call.input(0).dtype
    reduced = call.attribute("reduction", b"mean") != b"none"
    return [Tensor(dtype, () if reduced else labels), Tensor(dtype, x)][: call.num_outputs]
