"""Shapes of a model's inputs: their notation, and models whose open dimensions get a size."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping, Sequence

import onnx
from onnx import AttributeProto, GraphProto, TensorShapeProto, ValueInfoProto

from nas_rlm.utils.validation import suggest
from search_spaces.wording import counted

OPTION = "--input-shape"
MAX_SIZE = 2**31 - 1  # of a dimension
_SHAPE = re.compile(r"(?P<name>.+):(?P<sizes>[0-9]+(x[0-9]+)*)", re.ASCII | re.DOTALL)
_SUGGESTED_SIZES = {1: 3, 2: 224, 3: 224}  # of images, by dimension
_SUGGESTED_LENGTH = 128  # of other inputs

Shape = tuple[int, ...]


def parse_input_shape(text: str) -> tuple[str, Shape]:
    """Return the name and the shape that a text such as `images:1x3x224x224` gives an input.

    Examples:
        >>> parse_input_shape("serving_default_x:0:1x3x224x224")
        ('serving_default_x:0', (1, 3, 224, 224))

    Args:
        text: name of the input, a colon, and the sizes of its dimensions with `x` between them. The name may
            contain colons.

    Raises:
        ValueError: the text is malformed, or a size is not in the range from 1 to MAX_SIZE.
    """
    match = _SHAPE.fullmatch(text)
    sizes = tuple(int(size) for size in match["sizes"].split("x")) if match else ()
    if match is None or not all(1 <= size <= MAX_SIZE for size in sizes):
        raise ValueError(
            f"{text!r} is not the shape of an input: expected NAME:SIZES, with x between sizes of at least 1,"
            " such as images:1x3x224x224"
        )
    return match["name"], sizes


def input_shapes(model: onnx.ModelProto) -> dict[str, tuple[int | None, ...] | None]:
    """Return the shape of each input that is not an initialiser, by name.

    Args:
        model: the model.

    Returns:
        None for the size of an open dimension, and for an input without a shape or that is not a tensor.
    """
    return {value.name: _shape(value) for value in _inputs(model.graph)}


def inputs_only(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a small model with the inputs of a model that are not initialisers, and nothing else."""
    return onnx.ModelProto(graph=GraphProto(input=_inputs(model.graph)))


def forget_computed_shapes(model: onnx.ModelProto) -> None:
    """Remove the shapes of inner values and outputs from a model, whose inputs have changed."""
    del model.graph.value_info[:]
    for output in model.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")


def apply_input_shapes(
    model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]] | None, batch: int = 1
) -> onnx.ModelProto:
    """Return a model whose inputs have given shapes, and whose open batch dimension has a given size.

    The batch dimension is the first one of an input with several dimensions, unless its symbolic name is also
    that of a later dimension of an input whose first one is open. Dimensions with the same symbolic name get
    the same size. Other dimensions without a given size stay open, see `check_input_shapes`.

    Examples:
        >>> model = onnx.parser.parse_model(
        ...     '<ir_version: 10, opset_import: ["": 21]>'
        ...     "g (float[batch, 3, h, w] x) => (float[batch, 3, h, w] y) { y = Relu(x) }"
        ... )
        >>> closed = apply_input_shapes(model, {"x": (1, 3, 64, 64)}, batch=8)
        >>> input_shapes(closed)
        {'x': (8, 3, 64, 64)}

    Args:
        model: the model, which is not changed.
        shapes: shapes of inputs by name.
        batch: size of open batch dimensions that have no given size, or a given size of 1.

    Returns:
        A copy in which the shapes of outputs are inferred anew, or the model itself if no size changes.

    Raises:
        ValueError: the model has no such input, or a shape contradicts the model, another shape or the batch.
    """
    check_mapping(shapes)
    inputs = {value.name: value for value in _inputs(model.graph)}
    given = {name: _checked_shape(name, shape) for name, shape in (shapes or {}).items()}
    for name, shape in given.items():
        if name not in inputs:
            raise ValueError(f"the model has no input {name!r}; {suggest(name, inputs)}")
        _check_given(inputs[name], shape)
    batch_dims = _batch_dims(inputs)
    sizes = _symbol_sizes(inputs, given, batch_dims, batch)
    resolved: dict[str, list[int | None]] = {}
    for name, value in inputs.items():
        shape_or_none = given.get(name, _shape(value))
        if shape_or_none is None:
            continue
        resolved[name] = list(shape_or_none)
        for i, dim in enumerate(value.type.tensor_type.shape.dim):
            if _is_open(dim) and dim.dim_param in sizes:
                resolved[name][i] = sizes[dim.dim_param]
            elif (name, i) in batch_dims:
                resolved[name][i] = _batch_size(name, resolved[name][i], batch)
    if all(_shape(inputs[name]) == tuple(shape) for name, shape in resolved.items()):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value in _inputs(copy.graph):
        if value.name in resolved:
            _set_shape(value, resolved[value.name])
    _update_shapes(copy, sizes)
    return copy


def check_input_shapes(model: onnx.ModelProto) -> None:
    """Check that the size of each dimension of each input is known.

    Raises:
        ValueError: an input has no shape, or has an open dimension; the message has the first one, and the
            options for all.
    """
    problems, options = [], []
    known_symbols = set[str]()  # whose sizes follow from the options before
    for value in _inputs(model.graph):
        shape = _shape(value)
        if shape is None and value.type.HasField("tensor_type"):
            problems.append(f"input {value.name!r} has no shape")
            options.append(f"{OPTION} {value.name}:1x3x224x224")
        if shape is None or None not in shape:
            continue
        symbols = [dim.dim_param for dim in value.type.tensor_type.shape.dim if _is_open(dim)]
        position = shape.index(None)
        problems.append(
            f"input {value.name!r} has an open dimension {position}"
            + (f" ({symbols[0]!r})" if symbols[0] else "")
        )
        if not all(symbol in known_symbols for symbol in symbols):
            options.append(f"{OPTION} {value.name}:{_suggested_shape(shape)}")
            known_symbols.update(filter(None, symbols))
    if problems:
        raise ValueError(f"{problems[0]}: give {' '.join(options)}")


def select_shapes(
    models: Sequence[onnx.ModelProto], shapes: Mapping[str, Sequence[int]] | None
) -> list[dict[str, Sequence[int]]]:
    """Return for each model the shapes of its own inputs.

    Args:
        models: the models.
        shapes: shapes of inputs by name.

    Raises:
        ValueError: no model has an input of a name.
    """
    check_mapping(shapes)
    names = [{value.name for value in _inputs(model.graph)} for model in models]
    for name in shapes or {}:
        if not any(name in own for own in names):
            raise ValueError(f"no model has an input {name!r}; {suggest(name, set().union(*names))}")
    return [{name: shape for name, shape in (shapes or {}).items() if name in own} for own in names]


def check_mapping(shapes: Mapping[str, Sequence[int]] | None) -> None:
    """Check that shapes are given by name.

    Raises:
        ValueError: they are not.
    """
    if shapes is not None and not isinstance(shapes, Mapping):
        raise ValueError(
            f"shapes is of type {type(shapes).__name__}: expected the shapes of inputs by name, such as"
            ' {"x": (1, 3, 224, 224)}'
        )


def _inputs(graph: GraphProto) -> list[ValueInfoProto]:
    """Return the inputs of a graph that are not initialisers."""
    initializer_names = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in initializer_names]


def _is_open(dim: TensorShapeProto.Dimension) -> bool:
    """Return whether a dimension has no size; some exporters write -1 or 0."""
    return not dim.HasField("dim_value") or dim.dim_value < 1


def _shape(value: ValueInfoProto) -> tuple[int | None, ...] | None:
    """Return the shape of a value, with None for open dimensions; None for a value without a shape."""
    if not (value.type.HasField("tensor_type") and value.type.tensor_type.HasField("shape")):
        return None
    return tuple(None if _is_open(dim) else dim.dim_value for dim in value.type.tensor_type.shape.dim)


def _set_shape(value: ValueInfoProto, shape: Sequence[int | None]) -> None:
    """Set the known sizes of a value's dimensions."""
    tensor_type = value.type.tensor_type
    if not tensor_type.HasField("shape"):
        tensor_type.shape.dim.extend(TensorShapeProto.Dimension() for _ in shape)
    for dim, size in zip(tensor_type.shape.dim, shape, strict=True):
        if size is not None:
            dim.dim_value = size


def _shape_text(shape: Sequence[int | None]) -> str:
    return "x".join("?" if size is None else str(size) for size in shape)


def _suggested_shape(shape: Sequence[int | None]) -> str:
    """Return an example of a shape with the known sizes of an input."""
    defaults = _SUGGESTED_SIZES if len(shape) == 4 else {}
    return _shape_text(
        [
            size
            if size is not None
            else defaults.get(i, 1 if i == 0 and len(shape) > 1 else _SUGGESTED_LENGTH)
            for i, size in enumerate(shape)
        ]
    )


def _example(name: str, shape: Sequence[int | None], given: Shape = ()) -> str:
    """Return a valid shape of an input for a message, with given sizes where its own are open."""
    if not shape:
        return "no shape, since it is a scalar"
    sizes = [size if own is None else own for own, size in zip(shape, given, strict=True)] if given else shape
    return f"a shape such as {name}:{_suggested_shape(sizes)}"


def _checked_shape(name: str, shape: Sequence[int]) -> Shape:
    """Return a given shape as integers.

    Raises:
        ValueError: a size is not an integer of at least 1.
    """
    try:
        sizes = tuple(operator.index(size) for size in shape)
    except TypeError:
        sizes = (0,)
    if not all(1 <= size <= MAX_SIZE for size in sizes):
        raise ValueError(
            f"the shape of input {name!r} is {shape!r}:"
            " expected integers of at least 1, such as (1, 3, 224, 224)"
        )
    return sizes


def _check_given(value: ValueInfoProto, given: Shape) -> None:
    """Check a given shape against the input's own.

    Raises:
        ValueError: the input is not a tensor, or its rank or a fixed size differs.
    """
    if not value.type.HasField("tensor_type"):
        raise ValueError(
            f"input {value.name!r} is not a tensor and has no shape, {_shape_text(given)} was given"
        )
    shape = _shape(value)
    if shape is None:
        return
    if len(given) != len(shape):
        raise ValueError(
            f"the shape {_shape_text(given)} of input {value.name!r} has {counted(len(given), 'size')}, and"
            " in the file"
            f" {len(shape)}: expected {_example(value.name, shape)}"
        )
    for i, (size, own) in enumerate(zip(given, shape, strict=True)):
        if own is not None and size != own:
            raise ValueError(
                f"the shape {_shape_text(given)} of input {value.name!r} has the size {size} in dimension"
                f" {i}, which is {own} in the file: expected {_example(value.name, shape, given)}"
            )


def _open_dims(inputs: Mapping[str, ValueInfoProto]) -> Iterator[tuple[str, int, int, str]]:
    """Yield the name, position, rank and symbolic name of each open dimension of the inputs."""
    for name, value in inputs.items():
        dims = value.type.tensor_type.shape.dim
        for i, dim in enumerate(dims):
            if _is_open(dim):
                yield name, i, len(dims), dim.dim_param


def _batch_dims(inputs: Mapping[str, ValueInfoProto]) -> set[tuple[str, int]]:
    """Return the open dimensions that are the batch, as names of inputs and positions."""
    dims = list(_open_dims(inputs))
    open_first = {name for name, i, _, _ in dims if i == 0}
    not_batch = {symbol for name, i, _, symbol in dims if i > 0 and name in open_first}
    symbols = {
        symbol
        for _, i, rank, symbol in dims
        if i == 0 and symbol and symbol not in not_batch and (rank > 1 or "batch" in symbol.lower())
    }
    return {
        (name, i)
        for name, i, rank, symbol in dims
        if symbol in symbols or (not symbol and i == 0 and rank > 1)
    }


def _batch_size(name: str, given: int | None, batch: int) -> int:
    """Return the size of an input's batch dimension that has a given size.

    Raises:
        ValueError: the given size is neither 1 nor the batch.
    """
    if given in (None, 1):
        return batch
    if batch not in (1, given):
        raise ValueError(
            f"input {name!r} has a batch of {given} in the given shapes, expected 1 or the batch size {batch}"
        )
    return given or batch


def _symbol_sizes(
    inputs: Mapping[str, ValueInfoProto],
    given: Mapping[str, Shape],
    batch_dims: set[tuple[str, int]],
    batch: int,
) -> dict[str, int]:
    """Return the sizes of symbolic names, those of batches included.

    Raises:
        ValueError: given shapes contradict each other.
    """
    sources: dict[str, tuple[int, str, int]] = {}
    ambiguous = set[str]()
    for name, i, _, symbol in _open_dims(inputs):
        if not symbol or name not in given:
            continue
        size, first_name, position = sources.setdefault(symbol, (given[name][i], name, i))
        if given[name][i] != size and first_name == name:
            ambiguous.add(symbol)  # some exporters name all open dimensions alike
        elif given[name][i] != size:
            raise ValueError(
                f"the shapes give dimension {i} of input {name!r} the size {given[name][i]} and dimension"
                f" {position} of input {first_name!r} {size}: expected one size, since both are {symbol!r}"
                " in the file"
            )
    sizes = {symbol: size for symbol, (size, _, _) in sources.items() if symbol not in ambiguous}
    for symbol in {symbol for name, i, _, symbol in _open_dims(inputs) if symbol and (name, i) in batch_dims}:
        given_size, source, _ = sources.get(symbol, (1, "", 0))
        sizes[symbol] = _batch_size(source, given_size, batch)
    return sizes


def _update_shapes(model: onnx.ModelProto, sizes: Mapping[str, int]) -> None:
    """Remove the shapes of inner values after shapes of inputs have changed; sizes of outputs become open.

    Nothing is inferred here: shape inference of ONNX runs native code, which a damaged file can crash.
    """
    for graph in (model.graph, *subgraphs(model.graph)):
        del graph.value_info[:]
    for function in model.functions:
        del function.value_info[:]
    for k, value in enumerate(model.graph.output):
        for i, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
            else:
                dim.dim_param = f"output{k}_{i}"


def subgraphs(graph: GraphProto) -> Iterator[GraphProto]:
    """Yield the graphs in attributes of a graph's nodes, at any depth."""
    for node in graph.node:
        for attribute in node.attribute:
            nested = [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs
            for subgraph in nested:
                yield subgraph
                yield from subgraphs(subgraph)
