"""Shapes of operators that sample, draw random values or transform signals."""

from __future__ import annotations

from onnx import TensorProto

from nas_rlm.graph.onnx_graphs.shapes.arrays import open_shape
from nas_rlm.graph.onnx_graphs.shapes.registry import OperatorCall, checked_axis, shape_of
from nas_rlm.graph.onnx_graphs.tensors import FLOAT, Tensor, divide, product
from search_spaces.wording import counted


@shape_of("GridSample")
def _grid_sample(call: OperatorCall) -> list[Tensor]:
    x, grid, dtype = call.shape(0), call.shape(1), call.input(0).dtype
    return [Tensor(dtype, (*x[:2], *grid[1:-1]) if x and grid else None)]


@shape_of("AffineGrid")
def _affine_grid(call: OperatorCall) -> list[Tensor]:
    sizes, dtype = call.input(1).integers, call.input(0).dtype
    return [Tensor(dtype, (sizes[0], *sizes[2:], len(sizes) - 2) if sizes else None)]


@shape_of("RandomNormal", "RandomUniform")
def _random(call: OperatorCall) -> list[Tensor]:
    return [Tensor(call.attribute("dtype", FLOAT), tuple(call.attributes["shape"]))]


@shape_of("Multinomial")
def _multinomial(call: OperatorCall) -> list[Tensor]:
    x = call.shape(0, rank=2)
    return [
        Tensor(
            call.attribute("dtype", TensorProto.INT32),
            (x[0] if x else None, call.attribute("sample_size", 1)),
        )
    ]


@shape_of("Col2Im")
def _col2im(call: OperatorCall) -> list[Tensor]:
    x, image, block = call.shape(0, rank=3), call.input(1).integers, call.input(2).integers
    channels = divide(x[1], product(block)) if x and block else None
    sides = image or open_shape(call.input(1))
    if sides is None:
        sides = None, None
    return [Tensor(call.input(0).dtype, (x[0] if x else None, channels, *sides))]


@shape_of("CenterCropPad")
def _center_crop_pad(call: OperatorCall) -> list[Tensor]:
    x, sizes = call.input(0), call.input(1).integers
    if x.shape is None or sizes is None:
        return [Tensor(x.dtype, None if x.shape is None else (None,) * len(x.shape))]
    axes = [checked_axis(a, len(x.shape)) for a in call.attribute("axes", range(len(x.shape)))]
    if len(axes) != len(sizes):
        raise ValueError(f"{counted(len(sizes), 'size')} for {counted(len(axes), 'axis', 'axes')}")
    out = list(x.shape)
    for a, d in zip(axes, sizes, strict=True):
        out[a] = d
    return [Tensor(x.dtype, tuple(out))]


@shape_of("Det")
def _det(call: OperatorCall) -> list[Tensor]:
    shape = call.shape(0)
    return [Tensor(call.input(0).dtype, None if shape is None else shape[:-2])]


@shape_of("HannWindow", "HammingWindow", "BlackmanWindow")
def _window(call: OperatorCall) -> list[Tensor]:
    size = call.input(0).integers
    return [Tensor(call.attribute("output_datatype", FLOAT), (size[0] if size else None,))]


@shape_of("MelWeightMatrix")
def _mel(call: OperatorCall) -> list[Tensor]:
    bins, length = call.input(0).integers, call.input(1).integers
    half = length[0] // 2 + 1 if length and type(length[0]) is int else None
    return [Tensor(call.attribute("output_datatype", FLOAT), (half, bins[0] if bins else None))]


@shape_of("DFT")
def _dft(call: OperatorCall) -> list[Tensor]:
    x, dtype = call.shape(0), call.input(0).dtype
    if x is None:
        return [Tensor(dtype, None)]
    given = call.optional(2)
    axis_values = given.integers if given is not None else (call.attribute("axis", -2),)
    if not axis_values or type(axis_values[0]) is not int:
        return [Tensor(dtype, (None,) * len(x))]
    axis = checked_axis(axis_values[0], len(x))
    out = list(x)
    length = call.optional(1)
    sizes = length.integers if length is not None else (x[axis],)
    side = sizes[0] if sizes else None
    if call.attribute("onesided", 0):
        if call.attribute("inverse", 0):
            side = None if type(side) is not int else (side if length is not None else 2 * (side - 1))
        else:
            side = side // 2 + 1 if type(side) is int else None
    out[axis] = side
    out[-1] = 1 if call.attribute("onesided", 0) and call.attribute("inverse", 0) else 2
    return [Tensor(dtype, tuple(out))]


@shape_of("STFT")
def _stft(call: OperatorCall) -> list[Tensor]:
    x, dtype = call.shape(0), call.input(0).dtype
    step = call.input(1).integers
    length = call.input(3).integers if call.has(3) else None
    if length is None and call.has(2):
        window = call.shape(2)
        length = window[:1] if window else None
    if x is None or not step or not length or not all(type(d) is int for d in (x[1], step[0], length[0])):
        return [Tensor(dtype, (x[0] if x else None, None, None, 2))]
    bins = length[0] // 2 + 1 if call.attribute("onesided", 1) else length[0]  # type: ignore[operator]
    frames = (x[1] - length[0]) // step[0] + 1  # type: ignore[operator]
    return [Tensor(dtype, (x[0], frames, bins, 2))]
