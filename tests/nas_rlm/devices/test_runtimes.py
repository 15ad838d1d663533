import importlib.util

import numpy as np
import onnx
import pytest
import torch

from nas_rlm.devices import Device
from nas_rlm.devices.runtimes import LOADERS, check, load, set_batch_size
from tests.nas_rlm.devices.networks import SPACE, cells


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


def test_a_model_of_two_inputs_is_refused():
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["":21]>'
        "g (float[1,3] x, float[1,3] z) => (float[1,3] y) { y = Add(x, z) }"
    )
    with pytest.raises(ValueError, match="the model reads x, z: expected one float tensor"):
        set_batch_size(model, 1)
