"""Shapes of convolutions and pools."""

from __future__ import annotations

from onnx import TensorProto

from nas_rlm.graph.onnx_graphs.shapes.registry import OperatorCall, shape_of
from nas_rlm.graph.onnx_graphs.tensors import INT64, Dim, Dims, Tensor, product
from search_spaces.wording import counted

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
        raise ValueError(f"an image of {counted(len(x), 'dimension')} with a weight of shape {list(w)}")
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
    noun = "channel" if channels == 1 else "channels"
    description = (
        f"{counted(groups, 'group reads', 'groups read')} {channels} {noun} with a weight of shape {list(w)}"
    )
    if groups < 1 or (type(w[0]) is int and w[0] % groups):
        raise ValueError(f"{description}: expected groups of equal size")
    if type(channels) is int and type(w[1]) is int and channels != w[1] * groups:
        raise ValueError(f"{description}: expected {counted(w[1] * groups, 'channel')}")
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
        raise ValueError(
            f"strides, dilations, pads or kernel do not fit an image of {counted(n, 'spatial dimension')}"
        )
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
        raise ValueError(f"an image of {counted(len(x), 'dimension')} with a weight of shape {list(w)}")
    if type(x[1]) is int and type(w[0]) is int and (x[1] != w[0] or groups < 1 or w[0] % groups):
        raise ValueError(
            f"{counted(groups, 'group reads', 'groups read')} {counted(x[1], 'channel')} with a weight of"
            f" shape {list(w)}"
        )
    strides, dilations = call.attribute("strides", (1,) * n), call.attribute("dilations", (1,) * n)
    mode, pads = call.attribute("auto_pad", b"NOTSET"), call.attribute("pads", (0,) * (2 * n))
    extra, given = call.attribute("output_padding", (0,) * n), call.attribute("output_shape", ())
    if not len(strides) == len(dilations) == len(extra) == n or len(pads) != 2 * n:
        raise ValueError(
            f"strides, dilations or pads do not fit an image of {counted(n, 'spatial dimension')}"
        )
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
        raise ValueError(f"input 0 has {counted(len(x), 'dimension')}: expected an image")
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
        raise ValueError(f"input 0 has {counted(len(x), 'dimension')}: expected an image")
    channels, sides = (x[-1], x[1:-1]) if call.attribute("channels_last", 0) else (x[1], x[2:])
    is_known = type(channels) is int and channels % CHANNEL_BLOCK == 0
    return [Tensor(dtype, (x[0], channels if is_known else None, *sides))]


@shape_of("com.microsoft.nchwc.ReorderOutput")
def _from_blocks(call: OperatorCall) -> list[Tensor]:
    x, dtype = call.shape(0), call.input(0).dtype
    if x is None:
        return [Tensor(dtype, None)]
    if len(x) < 3:
        raise ValueError(f"input 0 has {counted(len(x), 'dimension')}: expected an image")
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
        raise ValueError(f"scales {list(scales)} for an input of {counted(len(x), 'dimension')}")
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
