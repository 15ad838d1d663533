import json

import pytest

from nas_rlm.data.device_names import DESCRIPTIONS, device_class, quantity_of


@pytest.mark.parametrize(
    ("objective", "quantity"),
    [
        ("latency/pixel3", "ms, one input"),
        ("latency/i7_12700h", "ms, one input"),
        ("latency/titanx_256", "ms, a batch of 256"),
        ("latency/5090_amp_nchw_pt291", "ms an image at the largest batch size"),
        ("latency/a100_gpu", "ms, a batch of 1,024-token sequences"),
        ("latency/torch-cuda-b32", "ms, a batch of 32"),
        ("latency/mybox", "ms"),
        ("memory/mybox", "bytes"),
        ("accuracy", "%"),
        ("params", ""),
    ],
)
def test_quantities_of_latencies(objective, quantity):
    assert quantity_of(objective) == quantity


def test_each_description_has_a_class():
    found = {name: device_class(name) for name in json.loads(DESCRIPTIONS.read_text(encoding="utf-8"))}
    assert all(0 < len(text.split()) <= 2 for text in found.values())
    assert (found["pixel3"], found["a100"]) == ("phone", "data-centre GPU")
    assert device_class("mybox") == ""
