import numpy as np
import onnx
import onnx.parser
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import search_spaces
from nas_rlm.graph.torch_module import to_torch
from search_spaces import blocks
from search_spaces.graph import Graph
from tests.nas_rlm.training_runs import losses

ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

HEAD = '<ir_version: 10, opset_import: ["":21]> g (float[1,4,6,6] x) => (float[1,C,H,W] y) '


def run_all(model, arrays):
    """What onnxruntime computes of several inputs, with one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip([i.name for i in model.graph.input], arrays, strict=True)))


def run(model, x):
    return run_all(model, [x])[0]


def images(model, seed=0):
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    "name", [name for name in search_spaces.names() if search_spaces.get(name).input_type == "float"]
)
def test_module_computes_the_same_as_onnxruntime(name):
    space = search_spaces.get(name)
    model = space.to_onnx(space.sample(np.random.default_rng(0)), weights=True)
    x, module = images(model), to_torch(model).eval()
    with torch.inference_mode():
        found = module(torch.from_numpy(x)).numpy()
    expected = run(model, x)
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize(
    "body",
    [
        "y = Conv<pads=[0,1,2,0]>(x, w)",
        'y = Conv<strides=[2,1],dilations=[1,2],auto_pad="NOTSET">(x, w)',
        "y = AveragePool<kernel_shape=[3,3],pads=[1,1,1,1],count_include_pad=1>(x)",
        "y = AveragePool<kernel_shape=[2,2],strides=[4,4],ceil_mode=1>(x)",
        "y = AveragePool<kernel_shape=[2,2],dilations=[1,1]>(x)",
        "y = MaxPool<kernel_shape=[2,2],dilations=[2,3]>(x)",
        "y = MaxPool<kernel_shape=[3,2],strides=[1,2],pads=[1,1,1,1],dilations=[2,1],ceil_mode=1>(x)",
        "y = HardSigmoid<alpha=0.3,beta=0.4>(x)",
        "c = Constant<value_float=2.0>() z = Sub(c, x) y = Mul(z, c)",
        "a, b, c, d = Constants() y = Slice(x, a, b, c, d)",
        "l = Constant<value_float=0.0>() y = Clip(x, l)",
        "i = Identity(x) s = Sigmoid(i) y = Add(s, w2)",
    ],
)
def test_single_operators(body):
    constants = "a = Constant<value_ints=[1]>() b = Constant<value_ints=[5]>() "
    constants += "c = Constant<value_ints=[2]>() d = Constant<value_ints=[2]>()"
    body = body.replace("a, b, c, d = Constants()", constants)
    model = onnx.parser.parse_model(HEAD + "{" + body + "}")
    rng = np.random.default_rng(0)
    for name, shape in (("w", (3, 4, 3, 3)), ("w2", (1, 4, 1, 6))):
        values = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    x = images(model)
    found = to_torch(model)(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(found, run(model, x), rtol=1e-4, atol=1e-5)


BATCH_NORM = """<ir_version: 10, opset_import: ["":21]> g (float[8,4,6,6] x) => (float[8,4,6,6] y) {
    y = BatchNormalization<momentum=0.8, epsilon=0.01>(x, s, b, m, v)
}"""
BATCH_NORM_IN_TRAINING = """<ir_version: 10, opset_import: ["":21]>
g (float[8,4,6,6] x, float[4] s, float[4] b, float[4] m, float[4] v)
=> (float[8,4,6,6] y, float[4] mean, float[4] variance) {
    y, mean, variance = BatchNormalization<momentum=0.8, epsilon=0.01, training_mode=1>(x, s, b, m, v)
}"""


def test_batch_norm_in_training_computes_the_same_as_onnxruntime():
    rng = np.random.default_rng(0)
    statistics = {name: rng.uniform(0.5, 2, 4).astype(np.float32) for name in "sbmv"}
    x = rng.normal(3, 2, (8, 4, 6, 6)).astype(np.float32)
    model = onnx.parser.parse_model(BATCH_NORM)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in statistics.items())
    module = to_torch(model)
    found = module(torch.from_numpy(x)).detach().numpy()
    content = onnx.parser.parse_model(BATCH_NORM_IN_TRAINING).SerializeToString()
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    expected, mean, variance = session.run(None, {"x": x, **statistics})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    buffers = dict(module.named_buffers())
    np.testing.assert_allclose(buffers["batchnorm2d0.running_mean"], mean, rtol=1e-5)
    num_values = x.size / 4  # of a channel; torch's variance is unbiased
    new_variance = (variance - 0.8 * statistics["v"]) * num_values / (num_values - 1)
    expected_variance = 0.8 * statistics["v"] + new_variance
    np.testing.assert_allclose(buffers["batchnorm2d0.running_var"], expected_variance, rtol=1e-5)


def test_dropout_works_in_training_alone():
    graph = Graph((1, 400), weights=True)
    model = graph.build(blocks.dropout(graph, graph.input, 0.3))
    module, x = to_torch(model), torch.ones(1, 400)
    torch.manual_seed(0)
    kept = module.train()(x)
    assert 0.2 < (kept == 0).float().mean() < 0.4 and kept.max() == pytest.approx(1 / 0.7)
    assert torch.equal(module.eval()(x), x)
    assert run(model, x.numpy()) == pytest.approx(x.numpy())


def test_module_is_trainable():
    space = search_spaces.get("nasbench201")
    cell = "|nor_conv_3x3~0|+|nor_conv_1x1~0|skip_connect~1|+|avg_pool_3x3~0|none~1|nor_conv_3x3~2|"
    module = to_torch(space.to_onnx(space.parse(cell), weights=True))
    torch.manual_seed(0)
    x, labels = torch.randn(8, 3, 32, 32), torch.arange(8)
    found = losses(module, x, labels, 6)
    assert found[-1] < 0.7 * found[0]
    assert sum(p.numel() for p in module.parameters()) == space.params(space.parse(cell))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y = Hardmax(x)", "Hardmax is not supported: expected one of Abs, Add, "),
        (
            "l = Constant<value_ints=[1]>() y = Trilu(x, x)",
            "input 1 of Trilu is computed: expected a constant",
        ),
        (
            'y = Resize<antialias=1,mode="linear">(x, , x)',
            "antialias 1 of Resize is not supported: expected 0",
        ),
        ("y, i = MaxPool<kernel_shape=[2,2]>(x) z = Shape(i)", "output 1 of MaxPool is not supported"),
        (
            "y = AveragePool<kernel_shape=[2,2],dilations=[1,2]>(x)",
            r"dilations \[1, 2\] of AveragePool are not supported: expected none",
        ),
    ],
)
def test_unsupported_operators_are_named(body, message):
    with pytest.raises(ValueError, match=message):
        to_torch(onnx.parser.parse_model(HEAD + "{" + body + "}"))


def test_model_without_weights_is_refused():
    space = search_spaces.get("nasbench201")
    with pytest.raises(
        ValueError, match="reads the weight W16_3_3_3 as an input: expected weights as initialisers"
    ):
        to_torch(space.to_onnx(space.sample(np.random.default_rng(0))))


IMAGE = "float[2,4,6,6] x"
INTS = "s = Constant<value_ints=[{}]>() "
OPERATORS = [  # operator set, inputs, nodes
    (17, IMAGE, "y = Erf(x)"),
    (11, IMAGE, "y = Softmax(x)"),
    (17, IMAGE, "y = Softmax<axis=1>(x)"),
    (11, IMAGE, "y = ReduceSum<axes=[2,3],keepdims=0>(x)"),
    (17, IMAGE, "a = Constant<value_ints=[-1]>() y = ReduceSum(x, a)"),
    (17, IMAGE, "y = ReduceMean<axes=[1]>(x)"),
    (18, IMAGE, "a = Constant<value_ints=[1,2]>() y = ReduceL2<keepdims=0>(x, a)"),
    (17, IMAGE, "y = ReduceMax(x)"),
    (17, IMAGE, "y = ReduceProd<axes=[3,1],keepdims=0>(x)"),
    (11, IMAGE, "y = Unsqueeze<axes=[0,2]>(x)"),
    (17, IMAGE, "a = Constant<value_ints=[-1]>() z = Unsqueeze(x, a) y = Squeeze(z, a)"),
    (17, IMAGE, "y = Flatten<axis=2>(x)"),
    (17, IMAGE, "y = Transpose(x)"),
    (11, IMAGE, "y, z = Split<axis=1,split=[1,3]>(x)"),
    (17, IMAGE, "y, z = Split<axis=1>(x)"),
    (18, "float[2,7] x", "y, z, u = Split<axis=1,num_outputs=3>(x)"),
    (17, IMAGE, "y = LayerNormalization<axis=-1>(x, w6, v6)"),
    (17, IMAGE, "y = InstanceNormalization(x, w4, v4)"),
    (21, IMAGE, "y = GroupNormalization<num_groups=2>(x, w4, v4)"),
    (17, IMAGE, "y = LRN<size=3>(x)"),
    (17, IMAGE, "y = PRelu(x, w411)"),
    (17, IMAGE, "y = Gather<axis=2>(x, i)"),
    (17, IMAGE, "y = Gather<axis=1>(x, minus)"),
    (17, IMAGE, "y = Pow(x, w6)"),
    (17, IMAGE, "a = Abs(x) b = Sqrt(a) c = Ceil(b) z = Mod<fmod=1>(x, a) y = Div(c, z)"),
    (17, "int64[2,3] x", "y = Div(x, three)"),
    (17, "int64[2,3] x", "y = Mod(x, three)"),
    (17, "int64[2,3] x", "y = Gather(table, x)"),
    (17, "int64[2,3] x", "y = Cast<to=1>(x)"),
    (17, "int64[2,3] x", "a = Constant<value_int=1>() y = CumSum<exclusive=1,reverse=1>(x, a)"),
    (17, IMAGE, "c = Less(x, w6) y = Where(c, x, w6)"),
    (17, IMAGE, "y = MatMul(x, w63)"),
    (17, "float[2,6] x", "y = Gemm<alpha=0.5,beta=2.0>(x, w63, w3)"),
    (17, "float[6,2] x", "y = Gemm<transA=1>(x, w63)"),
    (17, "float[2,4,9] x", "y = Conv<strides=[2],pads=[1,0]>(x, k1)"),
    (17, IMAGE, 'y = Conv<strides=[2,2],auto_pad="SAME_UPPER">(x, k2)'),
    (17, IMAGE, 'y = Conv<auto_pad="SAME_LOWER",strides=[2,1]>(x, k2)'),
    (17, IMAGE, "k = Mul(k2, w1) z = ReduceMean(x) c = Mul(k, z) y = Conv<kernel_shape=[3,3]>(x, c)"),
    (17, IMAGE, "y = ConvTranspose<strides=[2,2],pads=[1,1,1,1],output_padding=[1,1]>(x, t2)"),
    (17, IMAGE, "y = ConvTranspose<strides=[2,2],pads=[0,1,1,0]>(x, t2)"),
    (17, IMAGE, "y = MaxPool<kernel_shape=[2,2],pads=[1,0,0,1]>(x)"),
    (17, IMAGE, 'y = MaxPool<kernel_shape=[3,3],strides=[2,2],auto_pad="SAME_UPPER">(x)'),
    (17, IMAGE, "y = AveragePool<kernel_shape=[3,3],pads=[1,0,0,1]>(x)"),
    (17, IMAGE, "y = AveragePool<kernel_shape=[3,3],pads=[1,0,0,1],count_include_pad=1>(x)"),
    (17, IMAGE, "y = GlobalMaxPool(x)"),
    (17, IMAGE, INTS.format("0,0,1,2,0,0,1,0") + "y = Pad(x, s)"),
    (17, IMAGE, INTS.format("0,0,1,2,0,0,1,0") + 'y = Pad<mode="reflect">(x, s)'),
    (17, IMAGE, INTS.format("0,1,0,2,0,0,0,0") + 'y = Pad<mode="edge">(x, s)'),
    (17, IMAGE, INTS.format("1,2,1,1") + "y = Tile(x, s)"),
    (17, IMAGE, INTS.format("3,1,1,1,1") + "y = Expand(x, s)"),
    (17, IMAGE, 'y = DepthToSpace<blocksize=2,mode="CRD">(x)'),
    (17, IMAGE, "y = DepthToSpace<blocksize=2>(x)"),
    (17, IMAGE, "y = SpaceToDepth<blocksize=2>(x)"),
    (17, IMAGE, 'y = Einsum<equation="nchw,hk->nkc">(x, w63)'),
    (17, IMAGE, "k = Constant<value_ints=[2]>() y, z = TopK<axis=1>(x, k)"),
    (17, IMAGE, "y = Trilu<upper=0>(x)"),
    (17, IMAGE, "y = ArgMax<axis=1,keepdims=0>(x)"),
    (17, "float[5,2,6] x", "y, h, c = LSTM<hidden_size=3>(x, lw, lr, lb)"),
    (17, "float[5,2,6] x", "y, h = GRU<hidden_size=3,linear_before_reset=1>(x, gw, gr, gb)"),
    (17, "float[5,2,6] x", "y, h = GRU<hidden_size=3>(x, gw, gr, gb)"),
    (17, "float[5,2,6] x", 'y, h = RNN<hidden_size=3,direction="reverse">(x, rw, rr, rb)'),
    (17, IMAGE, "s = Shape(x) y = ConstantOfShape(s)"),
    (17, IMAGE, "a = Constant<value_ints=[5]>() b = Constant<value_ints=[-99]>()"
                " c = Constant<value_ints=[3]>() d = Constant<value_ints=[-2]>() y = Slice(x, a, b, c, d)"),
    (17, "float[3,4] x, float[3,4] z", "y = Max(x, z) u = Sub(z, x)"),
]  # fmt: skip
OPERATORS += [
    (17, IMAGE, f'y = Resize<mode="{mode}",coordinate_transformation_mode="{alignment}">(x, , {scales})')
    for mode in ("nearest", "linear", "cubic")
    for alignment in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    for scales in ("double", "odd")
]
WEIGHTS = {
    "w1": (1,), "w3": (3,), "w4": (4,), "v4": (4,), "w6": (6,), "v6": (6,), "w411": (4, 1, 1), "w63": (6, 3),
    "table": (5, 3), "k1": (3, 4, 3), "k2": (3, 4, 3, 3), "t2": (4, 3, 3, 3), "lw": (1, 12, 6),
    "lr": (1, 12, 3),
    "lb": (1, 24), "gw": (1, 9, 6), "gr": (1, 9, 3), "gb": (1, 18), "rw": (1, 3, 6), "rr": (1, 3, 3),
    "rb": (1, 6),
}  # fmt: skip


def small_model(opset, inputs, body):
    """A model of the nodes of a text, with the weights that they read; values without readers are outputs."""
    text = f'<ir_version: 8, opset_import: ["":{opset}]> g ({inputs}) => () {{ {body} }}'
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    values = {name: rng.uniform(0.5, 1.5, shape).astype(np.float32) for name, shape in WEIGHTS.items()}
    values |= {"i": np.array([[0, -1], [2, 3]]), "minus": np.array(-1), "three": np.array(3)}
    values |= {"double": np.float32([1, 1, 2, 2]), "odd": np.float32([1, 1, 1.5, 0.5])}
    read = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(values[name]), name) for name in read if name in values
    )
    written = [name for node in model.graph.node for name in node.output]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in written if name not in read)
    return model


def example(model):
    rng = np.random.default_rng(1)
    arrays = []
    for value in model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        is_float = value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        arrays.append(
            rng.standard_normal(shape).astype(np.float32) if is_float else rng.integers(-5, 5, shape)
        )
    return arrays


@pytest.mark.parametrize(("opset", "inputs", "body"), OPERATORS)
def test_operators_compute_the_same_as_onnxruntime(opset, inputs, body):
    model = small_model(opset, inputs, body)
    arrays = example(model)
    expected = run_all(model, arrays)
    found = to_torch(model).eval()(*map(torch.from_numpy, arrays))
    assert isinstance(found, tuple) == (len(expected) > 1)
    for a, b in zip([found] if len(expected) == 1 else found, expected, strict=True):
        a = a.detach().numpy()
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


TOKENS = """<ir_version: 8, opset_import: ["":17]> g (float[N,4,6,6] x) => (float[N,4,36] y) {
    s = Shape(x) zero = Constant<value_int=0>() n = Gather(s, zero) axis = Constant<value_ints=[0]>()
    list = Unsqueeze(n, axis) c = Constant<value_ints=[4]>() rest = Constant<value_ints=[-1]>()
    target = Concat<axis=0>(list, c, rest) y = Reshape(x, target)
}"""


@pytest.mark.parametrize("batch", [1, 5])
def test_shapes_are_computed_at_run_time_without_breaks_for_compilers(batch):
    model = onnx.parser.parse_model(TOKENS)
    x = torch.randn(batch, 4, 6, 6)
    module = to_torch(model)
    assert torch.equal(module(x), x.reshape(batch, 4, 36))
    torch.export.export(module, (x,))  # fails where a shape depends on the values of tensors


def test_weights_through_identity_stay_shared_and_equal_biases_do_not():
    body = "w = Identity(w63) a = MatMul(x, w63) t = Transpose(w) b = MatMul(a, t) "
    body += "z = Identity(ones) c = Add(b, ones) y = Mul(c, z)"
    model = small_model(17, "float[2,6] x", body)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(6, np.float32), "ones"))
    module = to_torch(model)
    assert sorted(tuple(p.shape) for p in module.parameters()) == [(6,), (6,), (6, 3)]
    (x,) = example(model)
    np.testing.assert_allclose(module(torch.from_numpy(x)).detach(), run(model, x), rtol=1e-4)


class Operations(TorchDispatchMode):
    """Records the names of the operations that torch runs in its context."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "body",
    [
        "s = Shape(x) f = Cast<to=1>(s) y = ReduceSum<keepdims=1>(f)",
        "s = Shape(x) i = Constant<value_int=1>() n = Gather(s, i) f = Cast<to=1>(n) y = Div(x, f)",
    ],
)
def test_sizes_become_tensors_without_a_copy_which_a_cuda_graph_cannot_record(body):
    model = small_model(17, "float[N,4,8,8] x", body)
    module = to_torch(model).eval()
    with torch.inference_mode(), Operations() as operations:
        module(torch.ones(2, 4, 8, 8))
    assert operations.names and not {"lift_fresh", "_local_scalar_dense"} & set(operations.names)
