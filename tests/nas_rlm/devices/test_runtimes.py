import gc
import importlib.util
import weakref
from contextlib import contextmanager

import numpy as np
import onnx
import pytest
import torch

from nas_rlm.devices import Device, runtimes
from nas_rlm.devices.runtimes import LOADERS, check, load, set_batch_size
from nas_rlm.graph.onnx_graphs.input_shapes import apply_input_shapes, input_shapes
from tests.nas_rlm.devices.networks import SPACE, cells, encoder, model_of


@pytest.fixture(scope="module")
def model():
    return SPACE.to_onnx(cells(1)[0], weights=True)


@pytest.mark.parametrize("name", [name for name in LOADERS if name != "torch-compile"])
def test_each_runtime_runs_a_network(name, model):
    if not all(map(importlib.util.find_spec, LOADERS[name].modules)):
        pytest.skip(f"{name} is not installed")
    if name == "mnn":
        pytest.skip("its converter dies of an illegal instruction on some processors")
    run = load(model, Device(name))
    assert all(1e-6 < run() < 10 for _ in range(3))


def test_missing_runtimes_and_gpus_are_reported(monkeypatch):
    check(Device("torch-compile"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="torch finds no CUDA device here"):
        check(Device("torch", "cuda"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name == "ncnn" else None)
    with pytest.raises(ValueError, match=r"ncnn needs pnnx, .*: pip install 'nas-rlm\[ncnn\]'"):
        check(Device("ncnn"))


@pytest.mark.parametrize("batch", [1, 3])
def test_the_batch_size_is_set(batch, model):
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    changed = set_batch_size(onnx.inliner.inline_local_functions(model), batch)
    session = ort.InferenceSession(changed.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.zeros((batch, 3, 32, 32), np.float32)
    assert session.run(None, {session.get_inputs()[0].name: x})[0].shape == (batch, 10)
    assert session.get_inputs()[0].shape[0] == batch


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ("float[1, 3, 8] x, float[1, 8] z, float[1] t", [(4, 3, 8), (4, 8), (1,)]),
        ("float[1, 3] x, float[5, 3] z", [(4, 3), (5, 3)]),
        ("float[4, 3] x, float[1, 3] z", [(4, 3), (1, 3)]),
        ("float[n, 3] x, float[1, 3] z, float[n] t", [(4, 3), (1, 3), (4,)]),
    ],
)
def test_a_fixed_batch_of_one_is_replaced(inputs, expected):
    model = model_of(f"g ({inputs}) => (float[a] y) <int64[1] s = {{-1}}> {{ y = Reshape(x, s) }}")
    assert list(input_shapes(set_batch_size(model, 4)).values()) == expected
    fixed = [tuple(size or 1 for size in shape) for shape in input_shapes(model).values()]
    assert list(input_shapes(set_batch_size(model, 1)).values()) == fixed


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("float[8, 3] x", "the model has a fixed batch of 8: expected an open one, 1 or 4"),
        ("float[3] x", "no input has a batch dimension: expected a batch size of 1 and not 4"),
    ],
)
def test_another_fixed_batch_is_refused(inputs, message):
    model = model_of(f"g ({inputs}) => (float[a] y) <int64[1] s = {{-1}}> {{ y = Reshape(x, s) }}")
    with pytest.raises(ValueError, match=message):
        load(model, Device("torch", batch_size=4))


MODELS = {
    "float16": "g (float16[N, 3] x) => (float16[N, 3] y) { y = Relu(x) }",
    "double": "g (double[N, 3] x) => (double[N, 3] y) { y = Relu(x) }",
    "uint8": "g (uint8[N, 3] x) => (float[N, 3] y) { y = Cast<to=1>(x) }",
    "int8": "g (int8[N, 3] x) => (float[N, 3] y) { y = Cast<to=1>(x) }",
    "bool": "g (bool[N, 3] x) => (bool[N, 3] y) { y = Not(x) }",
    "scalars": "g (float[N, 3] x, float a, int64 k) => (float[N, 3] y, int64 m) { y = Mul(x, a) m = Neg(k) }",
    "unused input": "g (float[N, 3] x, int64[N] unused) => (float[N, 3] y) { y = Relu(x) }",
    "initialiser": "g (float[N, 3] x, float[3] w) => (float[N, 3] y) { y = Mul(x, w) }",
    "lengths": "g (float[5, 1, 3] x, int32[1] lens) => (float[5, 1, 1, 2] y)"
    " { y = RNN<hidden_size=2>(x, wi, wh, , lens) }",
    "outputs": "g (float[N, 3] x) => (float[N, k] a, int64[N, k] b, bool[N, 3] c)"
    " <int64[1] s = {2}> { a, b = TopK(x, s) c = IsNaN(x) }",
    "open output": "g (float[N, 3] x) => (int64[2, found] y) { y = NonZero(x) }",
    "sequence": "g (float[N, 3] x) => (seq(float[N, 1]) y) { y = SplitToSequence<axis=1>(x) }",
}


def model_by_name(name):
    if name == "text encoder":
        return apply_input_shapes(encoder(), {"input_ids": (2, 6)})
    return model_of(MODELS[name], w=(3,), wi=(1, 2, 3), wh=(1, 2, 2))


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("name", [*(name for name in MODELS if name != "sequence"), "text encoder"])
def test_inputs_and_outputs_of_any_kind(runtime, name):
    pytest.importorskip(runtime, reason=f"{runtime} is not installed")
    run = load(model_by_name(name), Device(runtime))
    assert all(0 < run() < 10 for _ in range(3))


@pytest.mark.parametrize(
    "name", [*(name for name in MODELS if name not in ("lengths", "open output", "sequence")), "text encoder"]
)
def test_torch_takes_inputs_of_any_kind(name):
    run = load(model_by_name(name), Device("torch"))
    assert all(0 < run() < 10 for _ in range(3))


def test_sequences_as_outputs():
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    run = load(model_by_name("sequence"), Device("onnxruntime"))
    assert all(0 < run() < 10 for _ in range(3))


@pytest.mark.parametrize("runtime", ["ncnn", "mnn", "litert"])
@pytest.mark.parametrize("name", ["float16", "uint8", "scalars", "text encoder"])
def test_other_runtimes_name_the_inputs_that_they_take(runtime, name):
    if not all(map(importlib.util.find_spec, LOADERS[runtime].modules)):
        pytest.skip(f"{runtime} is not installed")
    with pytest.raises(
        ValueError, match=f"{runtime} takes networks with one float32 tensor as input, this one reads "
    ):
        load(model_by_name(name), Device(runtime))


def test_openvino_errors_have_their_reason():
    pytest.importorskip("openvino", reason="openvino is not installed")
    with pytest.raises(ValueError, match="No conversion rule found for operations: util::SequenceMark"):
        load(model_by_name("sequence"), Device("openvino"))


def test_more_threads_than_processors_are_refused(monkeypatch):
    monkeypatch.setattr(runtimes, "num_processors", lambda: 2)
    check(Device("torch", threads=2))
    with pytest.raises(
        ValueError,
        match=r"torch-cpu-64t-b2 needs 64 processors, this process may use 2: .* at most torch-cpu-2t-b2",
    ):
        check(Device("torch", threads=64, batch_size=2))


class Replayed:
    """A CUDA graph or event, without a GPU."""

    def __init__(self, **_):
        pass

    def record(self):
        pass

    replay = synchronize = record

    def elapsed_time(self, _):
        return 2.0


def test_a_cuda_graph_keeps_the_memory_that_it_reads(monkeypatch):
    @contextmanager
    def graph(_):
        yield

    for name, value in (("CUDAGraph", Replayed), ("Event", Replayed), ("graph", graph)):
        monkeypatch.setattr(torch.cuda, name, value)
    module, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    kept = weakref.ref(module), weakref.ref(x)
    run = runtimes._CudaGraphRun(module, [x])
    del module, x
    gc.collect()
    assert all(reference() is not None for reference in kept)
    assert run() == 0.002
