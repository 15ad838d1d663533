import numpy as np
import onnx
import onnx.parser
import pytest
import torch

import search_spaces
from nas_rlm.graph.torch_module import to_torch
from tests.nas_rlm.training_runs import losses

ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

HEAD = '<ir_version: 10, opset_import: ["":21]> g (float[1,4,6,6] x) => (float[1,C,H,W] y) '


def run(model, x):
    """What onnxruntime computes, with one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {model.graph.input[0].name: x})[0]


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


def test_module_is_trainable():
    space = search_spaces.get("nasbench201")
    cell = "|nor_conv_3x3~0|+|nor_conv_1x1~0|skip_connect~1|+|avg_pool_3x3~0|none~1|nor_conv_3x3~2|"
    module = to_torch(space.to_onnx(space.parse(cell), weights=True))
    torch.manual_seed(0)
    x, labels = torch.randn(32, 3, 32, 32), torch.arange(32) % 10
    found = losses(module, x, labels, 6)
    assert found[-1] < 0.7 * found[0]
    assert sum(p.numel() for p in module.parameters()) == space.params(space.parse(cell))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y = Erf(x)", "Erf is not supported: expected one of Add, "),
        ("s = Shape(x) y = Reshape(x, s)", "Shape is not supported"),
        ("y = Conv(x, x)", "input 1 of Conv is computed: expected a constant"),
        ('y = MaxPool<kernel_shape=[2,2],auto_pad="SAME_UPPER">(x)', "auto_pad SAME_UPPER is not supported"),
        (
            "y = MaxPool<kernel_shape=[2,2],pads=[1,0,0,1]>(x)",
            r"pads \[1, 0, 0, 1\] of MaxPool are asymmetric",
        ),
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
    with pytest.raises(ValueError, match="expected one input, weights as initialisers"):
        to_torch(space.to_onnx(space.sample(np.random.default_rng(0))))
