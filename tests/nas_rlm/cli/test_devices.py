import json

import pytest

from nas_rlm.cli import main
from nas_rlm.devices.known import known_devices
from tests.nas_rlm.cli.commands import refused


def test_the_list_has_a_line_for_each_device(capsys, layer_checkpoint):
    assert main(["devices", "--model", str(layer_checkpoint)]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["device", "error", "learnt", "from", "quantity", "description"]
    i = lines.index("phone CPU")
    name, error, *learnt = lines[i + 1].split()
    assert name == "latency/cortexA76cpu" and error.endswith("%")
    assert " ".join(learnt).startswith("40 networks of 3 families ms, one input Cortex-A76, Google Pixel 4")
    j = lines.index("other devices")
    assert lines[j + 1].startswith("latency/mybox ")
    assert not any(line.startswith("latency/pixel3") for line in lines)  # not of networks of any family
    assert main(["devices", "--model", str(layer_checkpoint), "--every"]) == 0
    assert "latency/pixel3" in capsys.readouterr().out


def names_of(capsys, *options):
    assert main(["devices", *options, "--json"]) == 0
    return {device["name"] for device in json.loads(capsys.readouterr().out)}


def test_devices_are_selected(capsys, shipped_rlm):
    assert names_of(capsys, "*PIXEL*") == {"pixel2", "pixel3", "cortexA76cpu", "adreno630gpu"}
    assert names_of(capsys, "latency/fpga") == {"fpga"}
    of_space = names_of(capsys, "--space", "ofa_mbv3")
    assert "v100_64" in of_space and "pixel3" not in of_space
    assert names_of(capsys, "--kind", "phone gpu") == {"adreno630gpu", "adreno640gpu"}
    assert names_of(capsys, "google pixel 4") == {"cortexA76cpu"}
    assert names_of(capsys, "adreno phone") == {"adreno630gpu", "adreno640gpu"}
    assert names_of(capsys, "phone") >= {"pixel3", "samsung_a50", "cortexA76cpu", "adreno640gpu"}
    assert all(name.startswith("rtx3090") for name in names_of(capsys, "rtx3090 channels"))
    assert names_of(capsys, "Pixel3") == {"pixel3"}  # a name is not a part of other names
    assert "no device of the kind 'toaster': expected a part of " in refused(
        capsys, "devices", "--kind", "toaster"
    )
    both = names_of(capsys, "v100*", "--space", "ofa_mbv3", "--kind", "GPU")
    assert both == {"v100_1", "v100_32", "v100_64"}
    assert "knows no device of the space 'fbnt'; did you mean fbnet" in refused(
        capsys, "devices", "--space", "fbnt"
    )
    assert "no device of nas is one of x* --space fbnet" in refused(
        capsys, "devices", "x*", "--space", "fbnet"
    )


def test_similar_names_are_suggested(capsys, layer_checkpoint):
    line = refused(capsys, "devices", "mybx", "--model", str(layer_checkpoint))
    assert "is one of mybx; did you mean mybox? (nas-rlm devices --every lists all)" in line
    assert "--model DIR" not in line
    assert "did you mean mybox?" in refused(
        capsys, "devices", "latency/mybx", "--model", str(layer_checkpoint)
    )
    line = refused(capsys, "devices", "Pixle3", "--space", "fbnet")
    assert "did you mean pixel3" in line
    assert line.endswith("nas-rlm devices --every lists all, --model DIR those of your own model)")
    assert "did you mean" not in refused(capsys, "devices", "mybx*")


def test_json_has_the_records(capsys, layer_checkpoint):
    assert main(["devices", "--model", str(layer_checkpoint), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    records = [device.to_dict() for device in known_devices(layer_checkpoint)]
    assert found == json.loads(json.dumps(records))
    assert list(found[0]) == [
        *("objective", "name", "description", "device_class", "quantity", "any_network", "sources")
    ]
    assert list(found[0]["sources"][0]) == [
        *("space", "networks", "labels", "families", "relative_error", "within_10_percent", "protocol")
    ]


def test_the_default_is_short(capsys, shipped_rlm):
    assert main(["devices"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) < 55
    assert any(line.startswith("latency/cortexA76cpu") for line in shown)
    assert "fbnet 27" in shown[-1] and "--every lists them" in shown[-1]


def test_a_model_without_devices_says_so(capsys):
    assert main(["devices", "--model", "programs"]) == 0
    assert capsys.readouterr().out == "the model programs knows no device\n"


@pytest.mark.parametrize("model", ["nope", "nas/nope"])
def test_a_bad_model_gets_one_error(capsys, model):
    assert repr(model) in refused(capsys, "devices", "--model", model)
