"""Shapes of matrix products and Einsum."""

from __future__ import annotations

from onnx import TensorProto

from nas_rlm.graph.onnx_graphs.shapes.registry import OperatorCall, shape_of
from nas_rlm.graph.onnx_graphs.tensors import FLOAT, Dim, Dims, Tensor, broadcast, broadcast_dims
from search_spaces.wording import counted

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
        raise ValueError(
            f"the equation {equation!r} has {counted(len(terms), 'input')}: expected {len(shapes)}"
        )
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
