"""Variants of one computation have one text, other computations have others, and no rule changes a result."""

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from nas_rlm.text import from_onnx
from tests.nas_rlm.graph.small_models import small_model, vectors

X = "float[2,3,4,6] x"
ROWS = "float[2,5,8] x"
FLAG = {"yes": np.array([True]), "no": np.array([False])}
NUMBERS = {f"k{n}": np.array(n, np.float32) for n in (0, 1, 2, 3)} | {"half": np.array(0.5, np.float32)}
ROOT = {"root": np.array(2**0.5, np.float32), "inverse": np.array(0.5**0.5, np.float32)}


# By rule: inputs, weights, bodies of one text, and bodies each of which has another text.
RULES = {
    "cast": (
        X,
        {},
        ["y = Relu(x)", "a = Cast<to=1>(x) y = Relu(a)", "a = Identity(x) b = Relu(a) y = Identity(b)"],
        ["a = Cast<to=10>(x) b = Relu(a) y = Cast<to=1>(b)"],
    ),
    "neutral": (
        X,
        NUMBERS,
        [
            "y = Relu(x)",
            "a = Add(x, k0) y = Relu(a)",
            "a = Add(k0, x) y = Relu(a)",
            "a = Mul(k1, x) y = Relu(a)",
            "a = Div(x, k1) b = Sub(a, k0) y = Relu(b)",
        ],
        [
            *("a = Add(x, k1) y = Relu(a)", "a = Mul(x, k0) y = Relu(a)", "a = Sub(k0, x) y = Relu(a)"),
            *("a = Div(k1, x) y = Relu(a)", "a = Sub(x, k1) y = Relu(a)", "a = Mul(x, k2) y = Relu(a)"),
        ],
    ),
    "transpose": (
        X,
        {},
        [
            "a = Transpose<perm=[1,2,3,0]>(x) y = Relu(a)",
            "t = Transpose<perm=[1,0,2,3]>(x) a = Transpose<perm=[0,2,3,1]>(t) y = Relu(a)",
            "t = Transpose<perm=[1,2,3,0]>(x) a = Transpose<perm=[0,1,2,3]>(t) y = Relu(a)",
            "t = Transpose(x) a = Transpose<perm=[2,1,0,3]>(t) y = Relu(a)",
        ],
        ["a = Transpose<perm=[3,0,1,2]>(x) y = Relu(a)", "a = Transpose(x) y = Relu(a)"],
    ),
    "mean": (
        X,
        vectors(a=[2, 3], b=[-1, -2], c=[1], d=[1, 2]),
        ["y = GlobalAveragePool(x)", "y = ReduceMean(x, a)", "y = ReduceMean<keepdims=1>(x, b)"],
        [
            "y = ReduceMean(x, c)",
            "y = ReduceMean<keepdims=0>(x, a)",
            "y = ReduceMean(x, d)",
            "y = ReduceMax(x, a)",
        ],
    ),
    "mean without dimensions": (
        X,
        vectors(a=[2, 3], c=[1, 2], s=[2, 3], i=[0, -1]),
        [
            "p = GlobalAveragePool(x) y = Flatten(p)",
            "y = ReduceMean<keepdims=0>(x, a)",
            "p = ReduceMean(x, a) y = Reshape(p, s)",
            "p = GlobalAveragePool(x) y = Squeeze(p, a)",
            "p = GlobalAveragePool(x) y = Reshape(p, i)",
            "t = Transpose<perm=[0,2,3,1]>(x) y = ReduceMean<keepdims=0>(t, c)",
        ],
        ["y = ReduceMean<keepdims=0>(x, c)", "y = GlobalAveragePool(x)"],
    ),
    "axes of sums": (
        X,
        vectors(a=[1, 2], b=[-2, 1], c=[2, 3], d=[1, 3]),
        [
            "y = ReduceSum<keepdims=0>(x, a)",
            "y = ReduceSum<keepdims=0>(x, b)",
            "t = Transpose<perm=[0,3,1,2]>(x) y = ReduceSum<keepdims=0>(t, c)",
        ],
        [
            *("y = ReduceSum<keepdims=0>(x, c)", "y = ReduceSum(x, a)", "y = ReduceProd<keepdims=0>(x, a)"),
            "t = Transpose<perm=[3,0,1,2]>(x) y = ReduceSum<keepdims=0>(t, c)",
        ],
    ),
    "flatten": (
        X,
        vectors(a=[2, 72], b=[2, -1], c=[0, -1], d=[2, 3, 24], e=[72, 2]),
        [
            "a1 = Relu(x) y = Flatten(a1)",
            "a1 = Relu(x) y = Reshape(a1, a)",
            "a1 = Relu(x) y = Reshape(a1, b)",
            "a1 = Relu(x) y = Reshape(a1, c)",
            "a1 = Relu(x) b1 = Reshape(a1, d) y = Reshape(b1, b)",
            "a1 = Relu(x) b1 = Reshape(a1, d) y = Flatten(b1)",
            "a1 = Relu(x) y = Flatten<axis=-3>(a1)",
            "a1 = Relu(x) b1 = Flatten(a1) y = Flatten<axis=-1>(b1)",
        ],
        ["a1 = Relu(x) y = Flatten<axis=2>(a1)", "a1 = Relu(x) y = Reshape(a1, e)"],
    ),
    "unsqueeze": (
        X,
        vectors(a=[1, 3], b=[-3, 1], c=[1, 2], s=[2, 1, 3, 1, 4, 6]),
        ["y = Unsqueeze(x, a)", "y = Unsqueeze(x, b)"],
        ["y = Unsqueeze(x, c)", "y = Relu(x)"],
    ),
    "reshape": (
        X,
        vectors(a=[2, 12, 6], b=[2, -1, 6], c=[0, 12, -1], d=[-1, 12, 6], e=[2, 6, 12], f=[6, 24]),
        [
            "r = Relu(x) y = Reshape(r, a)",
            "r = Relu(x) y = Reshape(r, b)",
            "r = Relu(x) y = Reshape(r, c)",
            "r = Relu(x) y = Reshape<allowzero=1>(r, d)",
            "r = Relu(x) s = Reshape(r, e) y = Reshape(s, a)",
            "r = Relu(x) s = Reshape(r, f) y = Reshape(s, b)",
        ],
        ["r = Relu(x) y = Reshape(r, e)", "r = Relu(x) y = Flatten(r)"],
    ),
    "slices": (
        X,
        vectors(
            **{"s0": [0], "s1": [1], "e2": [2], "e9": [9], "big": [2**62], "a1": [1], "a3": [3], "m1": [-1]},
            **{"two": [2], "p": [1, 0], "q": [9, 2], "r": [3, 1]},
        ),
        [
            "a = Slice(x, s0, e2, a1) y = Slice(a, s1, e9, a3)",
            "a = Slice(x, s1, big, m1) y = Slice(a, s0, e2, a1)",
            "y = Slice(x, p, q, r)",
            "b = Slice(x, s0, e9, two) a = Slice(b, s0, e2, a1, s1) y = Slice(a, s1, big, m1)",
        ],
        [
            "a = Slice(x, s0, e2, a1) y = Slice(a, s0, e2, a3)",
            "a = Slice(x, s0, e2, a1) b = Slice(a, s1, e9, a3) y = Slice(b, s1, e9, a1)",
            "a = Slice(x, s0, e2, a1) y = Slice(a, s1, e9, a3, two)",
            "y = Slice(x, s0, e2, a1)",
        ],
    ),
    "pads": (
        X,
        vectors(p=[0, 0, 1, 1, 0, 0, 2, 2], q=[1, 1, 2, 2], a=[2, 3], b=[3, 2], z=[0] * 8) | NUMBERS,
        [
            "y = Pad(x, p)",
            "y = Pad(x, p, k0)",
            "y = Pad(x, q, , a)",
            "y = Pad(x, q, k0, b)",
            "o = Pad(x, z) y = Pad(o, p)",
        ],
        ['y = Pad<mode="reflect">(x, p)', "y = Pad(x, p, k1)", "y = Pad(x, z)"],
    ),
    "convolution": (
        X,
        {"w": (5, 3, 3, 3), "p": np.array([0, 0, 1, 1, 0, 0, 1, 1]), **NUMBERS, "q": np.array([0, 0, 1, 1])}
        | {"a": np.array([2, 3]), "r": np.array([0, 1, 0, 0, 0, 1, 0, 0])},
        [
            "y = Conv<pads=[1,1,1,1]>(x, w)",
            "o = Pad(x, p) y = Conv(o, w)",
            "o = Pad(x, p, k0) y = Conv(o, w)",
            'y = Conv<auto_pad="SAME_UPPER", kernel_shape=[3,3]>(x, w)',
            'y = Conv<auto_pad="SAME_LOWER", dilations=[1,1]>(x, w)',
            'o = Pad(x, p) y = Conv<auto_pad="VALID">(o, w)',
        ],
        [
            "o = Pad(x, p, k1) y = Conv(o, w)",
            'o = Pad<mode="edge">(x, p) y = Conv(o, w)',
            "y = Conv(x, w)",
            "y = Conv<pads=[0,1,1,1]>(x, w)",
            'y = Conv<auto_pad="SAME_UPPER", strides=[2,2]>(x, w)',
        ],
    ),
    "pool": (
        X,
        {},
        [
            "y = AveragePool<kernel_shape=[2,2]>(x)",
            "y = AveragePool<kernel_shape=[2,2], count_include_pad=1>(x)",
            'y = AveragePool<kernel_shape=[2,2], auto_pad="VALID">(x)',
        ],
        [
            "y = AveragePool<kernel_shape=[2,2], pads=[1,1,1,1], count_include_pad=1>(x)",
            "y = AveragePool<kernel_shape=[2,2], pads=[1,1,1,1]>(x)",
            "y = MaxPool<kernel_shape=[2,2]>(x)",
            "y = LpPool<kernel_shape=[2,2]>(x)",
        ],
    ),
    "HardSwish": (
        X,
        NUMBERS | {"six": np.array(6, np.float32)},
        [
            "y = HardSwish(x)",
            "g = HardSigmoid<alpha=0.16666667>(x) y = Mul(x, g)",
            "g = HardSigmoid<alpha=0.16666667, beta=0.5>(x) y = Mul(g, x)",
        ],
        [
            "g = HardSigmoid(x) y = Mul(x, g)",
            "g = HardSigmoid<alpha=0.16666667, beta=0.4>(x) y = Mul(x, g)",
            "r = Relu(x) g = HardSigmoid<alpha=0.16666667>(x) y = Mul(r, g)",
        ],
    ),
    "Gelu": (
        X,
        NUMBERS | ROOT,
        [
            "y = Gelu(x)",
            "d = Div(x, root) e = Erf(d) a = Add(e, k1) m = Mul(x, a) y = Mul(m, half)",
            "d = Mul(x, inverse) e = Erf(d) a = Add(k1, e) m = Mul(x, half) y = Mul(m, a)",
            "d = Div(x, root) e = Erf(d) a = Add(e, k1) m = Mul(half, a) y = Mul(x, m)",
        ],
        [
            'y = Gelu<approximate="tanh">(x)',
            "d = Div(x, k2) e = Erf(d) a = Add(e, k1) m = Mul(x, a) y = Mul(m, half)",
            "d = Div(x, root) e = Erf(d) a = Add(e, k2) m = Mul(x, a) y = Mul(m, half)",
            "d = Div(x, root) e = Erf(d) a = Add(e, k1) m = Mul(x, a) y = Mul(m, k3)",
            "r = Relu(x) d = Div(x, root) e = Erf(d) a = Add(e, k1) m = Mul(r, a) y = Mul(m, half)",
        ],
    ),
    "Gemm": (
        "float[4,8] x",
        {"w": (8, 5), "b": (5,), "c": (4, 5), "d": (4, 1)},
        ["y = Gemm(x, w, b)", "m = MatMul(x, w) y = Add(m, b)", "m = MatMul(x, w) y = Add(b, m)"],
        ["m = MatMul(x, w) y = Mul(m, b)", "m = MatMul(x, w) y = Add(m, d)", "y = Gemm<alpha=0.5>(x, w, b)"],
    ),
    "linear layer on rows": (
        ROWS,
        {"w": (8, 4), "b": (4,), "v": (4, 8), **vectors(m=[-1, 8], n=[2, 5, 4], o=[10, 8], p=[5, 2, 4])},
        [
            "m1 = MatMul(x, w) y = Add(m1, b)",
            "r = Reshape(x, m) g = Gemm(r, w, b) y = Reshape(g, n)",
            "r = Reshape(x, o) g = Gemm<transB=1>(r, v, b) y = Reshape(g, n)",
            "r = Flatten<axis=2>(x) h = MatMul(r, w) g = Add(h, b) y = Reshape(g, n)",
        ],
        [
            "r = Reshape(x, m) g = Gemm(r, w, b) y = Reshape(g, p)",
            "r = Reshape(x, m) g = Gemm<beta=0.5>(r, w, b) y = Reshape(g, n)",
            "y = MatMul(x, w)",
        ],
    ),
    "concat": (
        X,
        {"e": np.zeros((2, 0, 4, 6), np.float32)},
        [
            "r = Relu(x) y = Concat<axis=1>(x, r)",
            "r = Relu(x) y = Concat<axis=-3>(x, r)",
            "r = Relu(x) y = Concat<axis=1>(x, e, r)",
            "s = Concat<axis=1>(x) r = Relu(s) y = Concat<axis=1>(s, r)",
        ],
        ["r = Relu(x) y = Concat<axis=1>(r, x)", "r = Relu(x) y = Concat<axis=2>(x, r)"],
    ),
    "split": (
        X,
        vectors(n=[3, 3], m=[2, 4]),
        [
            "a, b = Split<axis=3, num_outputs=2>(x) y = Mul(a, b)",
            "a, b = Split<axis=-1>(x, n) y = Mul(a, b)",
        ],
        ["a, b = Split<axis=2, num_outputs=2>(x) y = Mul(a, b)", "a, y = Split<axis=3>(x, m)"],
    ),
    "expand": (
        "float[2,1,6] x",
        vectors(a=[2, 3, 6], b=[3, 1], c=[1, 3, 1], d=[1, 1, 1], e=[2, 2, 6], f=[2, 1, 6]),
        ["y = Expand(x, a)", "y = Expand(x, b)", "y = Expand(x, c)", "t = Tile(x, d) y = Expand(t, a)"],
        ["y = Expand(x, e)", "y = Tile(x, c)", "y = Expand(x, f)"],
    ),
    "clip": (
        X,
        NUMBERS | {"v": np.array([0], np.float32), "low": np.array(-np.inf, np.float32)},
        ["y = Clip(x, k0, k2)", "y = Clip(x, v, k2)"],
        ["y = Clip(x, k0, k3)", "y = Clip(x, k1, k2)", "y = Clip(x, k0)", "y = Clip(x, , k2)"],
    ),
    "where": (
        X,
        FLAG | NUMBERS | {"both": np.array([True, False, True, False, True, False])},
        [
            "r = Relu(x) y = Sigmoid(r)",
            "r = Relu(x) w = Where(yes, r, k0) y = Sigmoid(w)",
            "r = Relu(x) w = Where(no, k0, r) y = Sigmoid(w)",
        ],
        [
            "r = Relu(x) w = Where(both, r, k0) y = Sigmoid(w)",
            "r = Relu(x) w = Where(no, r, k0) y = Sigmoid(w)",
        ],
    ),
    "softmax": (
        X,
        {},
        ["y = Softmax(x)", "y = Softmax<axis=3>(x)", "y = Softmax<axis=-1>(x)"],
        ["y = Softmax<axis=1>(x)", "y = LogSoftmax(x)"],
    ),
    "recurrent": (
        "float[7,2,5] x",
        {"w": (1, 64, 5), "r": (1, 64, 16), "h": np.zeros((1, 2, 16), np.float32), "s": (1, 2, 16)}
        | {"n": np.array([7, 7], np.int32), "m": np.array([7, 6], np.int32), "b": (1, 128)},
        [
            "y = LSTM<hidden_size=16>(x, w, r, b)",
            "y = LSTM<hidden_size=16>(x, w, r, b, n)",
            "y = LSTM<hidden_size=16>(x, w, r, b, n, h, h)",
            'y = LSTM<hidden_size=16, direction="forward">(x, w, r, b, , h, h)',
        ],
        [
            "y = LSTM<hidden_size=16>(x, w, r, b, m)",
            "y = LSTM<hidden_size=16>(x, w, r, b, , s, h)",
            "y = LSTM<hidden_size=16>(x, w, r)",
            'y = LSTM<hidden_size=16, direction="reverse">(x, w, r, b)',
        ],
    ),
    "resize": (
        X,
        {"s": np.array([1, 1, 2, 2], np.float32), "e": np.zeros(0, np.float32), "i": np.ones(4, np.float32)}
        | vectors(t=[2, 3, 8, 12]),
        [
            "y = Resize(x, , s)",
            "y = Resize(x, e, s)",
            "y = Resize<extrapolation_value=1.0, cubic_coeff_a=-0.5>(x, e, s)",
            "o = Resize(x, , i) y = Resize(o, , s)",
        ],
        [
            'y = Resize<mode="linear">(x, , s)',
            'y = Resize<coordinate_transformation_mode="asymmetric">(x, , s)',
            "y = Resize(x, , i)",
        ],
    ),
    "dropout": (
        X,
        NUMBERS | {"yes": np.array(True)},
        ["y = Relu(x)", "d = Dropout(x) y = Relu(d)", "d, m = Dropout(x, half) y = Relu(d)"],
        ["d, m = Dropout(x, half) c = Cast<to=1>(m) y = Relu(c)"],
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_variants_have_one_text_and_other_computations_have_others(rule):
    inputs, weights, same, others = RULES[rule]

    def text(body):
        used = {n: v for n, v in weights.items() if f"({n}" in body or f" {n}," in body or f" {n})" in body}
        return from_onnx(small_model(body, inputs, used, outputs="float[A] y"))

    expected = text(same[0])
    assert {body: text(body) for body in same} == dict.fromkeys(same, expected)
    other_texts = [text(body) for body in others]
    assert expected not in other_texts
    assert len(set(other_texts)) == len(others)
    parsed = onnx.parser.parse_model(expected)
    onnx.checker.check_model(parsed)
    assert from_onnx(parsed) == expected


class Chain:
    """A chain of operators on one value, whose elements are computed operator by operator."""

    def __init__(self, draw):
        self.draw, self.nodes, self.tensors, self.weights = draw, [], [], []
        rng = np.random.default_rng(0)
        self.arrays = {"x": rng.standard_normal((2, 3, 4, 6)).astype(np.float32)}
        self.name = "x"

    @property
    def shape(self):
        return self.arrays[self.name].shape

    def integer(self, low, high):
        return self.draw(st.integers(low, high))

    def axis(self):
        """An axis, counted from either end."""
        rank = len(self.shape)
        return self.integer(-rank, rank - 1)

    def constant(self, values, dtype=np.int64):
        name = f"c{len(self.tensors)}"
        self.arrays[name] = np.array(values, dtype)
        self.tensors.append(numpy_helper.from_array(self.arrays[name], name))
        return name

    def add(self, kind, *inputs, outputs=1, **attributes):
        names = [f"t{len(self.nodes)}_{k}" for k in range(outputs)]
        node = helper.make_node(kind, list(inputs), names, **attributes)
        typed = [helper.make_tensor_value_info(n, 0, None) for n in names]
        given = {n: self.arrays[n] for n in inputs if n}
        infos = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in given.items()
        ]
        graph = helper.make_graph([node], "node", infos, typed)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        results = ReferenceEvaluator(model).run(None, given)
        self.arrays |= dict(zip(names, results, strict=True))
        self.nodes.append(node)
        self.name = names[0]
        return names

    def scalar(self):
        return self.constant(self.draw(st.sampled_from([0.0, 1.0, 0.5, -2.0])), np.float32)

    def step(self):
        x, shape, rank = self.name, self.shape, len(self.shape)
        kind = self.draw(st.sampled_from(STEPS if rank else POINTWISE))
        if kind == "Transpose":
            self.add(kind, x, perm=self.draw(st.permutations(range(rank))))
        elif kind == "Reshape":
            k = self.integer(0, rank)
            targets = [[*shape[:k], -1], [*shape[:k], 1, *shape[k:]], shape[::-1], [-1], [-1, *shape[-1:]]]
            self.add(kind, x, self.constant(self.draw(st.sampled_from(targets))))
        elif kind == "Flatten":
            self.add(kind, x, axis=self.integer(-rank, rank))
        elif kind == "Squeeze" and 1 in shape:
            self.add(kind, x, self.constant([shape.index(1)]))
        elif kind == "Unsqueeze" and rank < 6:
            self.add(kind, x, self.constant([self.integer(-rank - 1, rank)]))
        elif kind == "Slice":
            axis, step = self.axis(), self.draw(st.sampled_from([1, 1, 2, -1]))
            start, end = (0, self.draw(st.sampled_from([1, shape[axis], 2**40, -1])))
            start, end = (-1, -(2**40)) if step < 0 else (start, end)
            if end != -1 or shape[axis] > 1:
                self.add(kind, x, *(self.constant([v]) for v in (start, end, axis, step)))
        elif kind == "Pad":
            pads = [self.integer(0, 1) if max(shape) < 12 else 0 for _ in range(2 * rank)]
            self.add(kind, x, self.constant(pads), self.scalar())
        elif kind.startswith("Reduce"):
            self.add(kind, x, self.constant([self.axis()]), keepdims=self.integer(0, 1))
        elif kind in ("Add", "Mul", "Sub", "Div"):
            other = self.scalar()
            if kind != "Div" or self.arrays[other]:
                self.add(kind, *((x, other) if self.integer(0, 1) or kind == "Div" else (other, x)))
        elif kind in ("Concat", "Split") and rank and max(shape) < 12:
            axis = self.axis()
            if kind == "Concat":
                self.add(kind, x, x, axis=axis)
            elif shape[axis] > 1:
                first, second = self.add(kind, x, outputs=2, axis=axis, num_outputs=2)
                self.add("Concat", second, first, axis=axis)
        elif kind == "Expand" and rank and max(shape) < 12:
            target = [2 if d == 1 and self.integer(0, 1) else d for d in shape]
            self.add(kind, x, self.constant(target))
        elif kind in ("Softmax", "Relu", "Identity", "HardSwish"):
            self.add(kind, x, **({"axis": self.axis()} if kind == "Softmax" else {}))
        elif kind == "Gelu":
            erf = self.add("Erf", self.add("Div", x, self.constant(2**0.5, np.float32))[0])[0]
            gate = self.add("Add", erf, self.constant(1, np.float32))[0]
            self.add("Mul", self.add("Mul", x, gate)[0], self.constant(0.5, np.float32))
        elif kind == "Linear" and rank >= 2 and not self.weights and shape[-1] != 7:
            self.weights = [
                np.random.default_rng(1).standard_normal((shape[-1], 7)).astype(np.float32),
                np.random.default_rng(2).standard_normal(7).astype(np.float32),
            ]
            weight, bias = (self.constant(w, np.float32) for w in self.weights)
            if rank == 2 and self.integer(0, 1):
                self.add("Gemm", x, weight, bias)
            else:
                self.add("Add", self.add("MatMul", x, weight)[0], bias)

    def model(self):
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.arrays["x"].shape)]
        outputs = [helper.make_tensor_value_info(self.name, TensorProto.FLOAT, self.shape)]
        graph = helper.make_graph(self.nodes, "chain", inputs, outputs, self.tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


POINTWISE = ("Add", "Mul", "Sub", "Div", "Relu", "Identity", "HardSwish", "Gelu", "Unsqueeze")
STEPS = (
    *POINTWISE,
    *("Transpose", "Transpose", "Reshape", "Reshape", "Flatten", "Squeeze", "Slice", "Slice", "Pad"),
    *("ReduceMean", "ReduceSum", "ReduceMax", "Concat", "Split", "Expand", "Softmax", "Linear"),
)


@given(st.data())
def test_a_text_computes_what_the_model_computes(data):
    chain = Chain(data.draw)
    chain.add("Relu", "x")
    for _ in range(data.draw(st.integers(2, 8))):
        chain.step()
    text = from_onnx(chain.model(), outlined=False)
    parsed = onnx.parser.parse_model(text)
    given_arrays = {}
    for value in parsed.graph.input:
        shape = tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
        fits = [a for w in chain.weights for a in (w, w.T) if a.shape == shape]
        given_arrays[value.name] = fits[0] if value.name.startswith("W") else chain.arrays["x"]
    (found,) = ReferenceEvaluator(parsed).run(None, given_arrays)
    expected = chain.arrays[chain.name]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
