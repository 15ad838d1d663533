import pytest

from nas_rlm.devices import Device
from nas_rlm.devices.device import RUNTIMES
from nas_rlm.devices.runtimes import LOADERS


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("onnxruntime", Device("onnxruntime")),
        ("onnxruntime-cpu-1t", Device("onnxruntime")),
        ("openvino-cpu-4t-b8", Device("openvino", threads=4, batch_size=8)),
        ("torch-compile-cpu-2t", Device("torch-compile", threads=2)),
        ("torch-compile", Device("torch-compile")),
        ("torch-cuda-b32", Device("torch", "cuda", batch_size=32)),
    ],
)
def test_names_are_parsed_and_written(name, expected):
    assert Device.parse(name) == expected
    assert Device.parse(str(expected)) == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("onnxruntim", "no runtime 'onnxruntim'; did you mean onnxruntime"),
        ("", "'' is not a device: expected a runtime"),
        ("torch-cpu-1t-x", "is not a device"),
        ("torch-cpu-0t", "has 0 threads"),
        ("torch-cpu-1t-b99999999", "batch size of 99999999"),
        ("ncnn-cuda", "cuda supports onnxruntime, torch, torch-compile"),
        ("torch-cuda-2t", "cuda supports .* without threads"),
        ("../x-cpu-1t", "is not a device"),
    ],
)
def test_invalid_device_names_are_refused(name, message):
    with pytest.raises(ValueError, match=message):
        Device.parse(name)


def test_every_runtime_has_a_loader():
    assert set(RUNTIMES) == set(LOADERS)
