import pytest

from nas_rlm.devices import Device
from nas_rlm.devices.device import RUNTIMES
from nas_rlm.devices.runtimes import RUNTIMES as LOADERS


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("onnxruntime", Device("onnxruntime")),
        ("onnxruntime-cpu-1t", Device("onnxruntime")),
        ("openvino-cpu-4t-b8", Device("openvino", threads=4, batch=8)),
        ("torch-compile-cpu-2t", Device("torch-compile", threads=2)),
        ("torch-compile", Device("torch-compile")),
        ("torch-cuda-b32", Device("torch", "cuda", batch=32)),
    ],
)
def test_names(name, expected):
    assert Device.named(name) == expected
    assert Device.named(str(expected)) == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("onnxruntim", "no runtime 'onnxruntim'; did you mean onnxruntime"),
        ("", "'' is no device: expected a runtime"),
        ("torch-cpu-1t-x", "is no device"),
        ("torch-cpu-0t", "has 0 threads"),
        ("torch-cpu-1t-b99999999", "batch of 99999999"),
        ("ncnn-cuda", "on cuda there are onnxruntime, torch, torch-compile"),
        ("torch-cuda-2t", "on cuda there are .* without threads"),
        ("../x-cpu-1t", "is no device"),
    ],
)
def test_what_is_no_device(name, message):
    with pytest.raises(ValueError, match=message):
        Device.named(name)


def test_every_runtime_has_a_loader():
    assert set(RUNTIMES) == set(LOADERS)
