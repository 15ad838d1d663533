import json

import pytest

from nas_rlm.cli import main
from nas_rlm.devices.known import known_devices
from tests.nas_rlm.cli.commands import refused


def test_the_list_has_descriptions_sources_and_errors(capsys, layer_checkpoint):
    assert main(["devices", "--model", str(layer_checkpoint)]) == 0
    lines = capsys.readouterr().out.splitlines()
    i = next(i for i, line in enumerate(lines) if line.startswith("latency/cortexA76cpu"))
    assert "phone CPU" in lines[i]
    assert "any family" in lines[i + 1]
    assert "mynets" in lines[i + 2]
    assert "40 labels of 3 families" in lines[i + 2]
    assert lines[i + 2].endswith("within 10 %, families left out")
    j = lines.index("latency/mybox")
    assert "mynets" in lines[j + 2]
    k = next(k for k, line in enumerate(lines) if line.startswith("latency/pixel3"))
    assert lines[k + 1] == "  learnt from –"


def test_json_has_the_records(capsys, layer_checkpoint):
    assert main(["devices", "--model", str(layer_checkpoint), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    records = [device.to_dict() for device in known_devices(layer_checkpoint)]
    assert found == json.loads(json.dumps(records))
    assert list(found[0]) == ["objective", "name", "description", "any_network", "sources"]
    assert list(found[0]["sources"][0]) == [
        *("space", "networks", "labels", "families", "relative_error", "within_10_percent", "protocol")
    ]


def test_the_default_is_the_shipped_model(capsys, shipped_rlm):
    assert main(["devices"]) == 0
    shown = capsys.readouterr().out
    assert "latency/pixel3  phone (Google Pixel 3)" in shown
    assert "error –" in shown
    assert "latency/cortexA76cpu" in shown and "families left out" in shown


def test_a_model_without_devices_says_so(capsys):
    assert main(["devices", "--model", "programs"]) == 0
    assert capsys.readouterr().out == "the model programs knows no device\n"


@pytest.mark.parametrize("model", ["nope", "nas/nope"])
def test_a_bad_model_gets_one_error(capsys, model):
    assert repr(model) in refused(capsys, "devices", "--model", model)
