"""Files of nn-Meter's dataset."""

import json

import pytest

from nas_rlm.cli import main
from nas_rlm.data import read as read_table
from nas_rlm.data.importers.registry import import_benchmark
from nas_rlm.text.declarations import is_network_text
from tests.nas_rlm.data.importers.nn_meter.graphs import small_network


def entry(name="alexnet_1356", **changes):
    latencies = {
        **{"cortexA76cpu_tflite21": 148.164, "adreno640gpu_tflite21": 24.4851},
        **{"adreno630gpu_tflite21": 31.9324, "myriadvpu_openvino2019r2": None},
    }
    return {"id": name, **latencies, "graph": small_network().nodes, **changes}


def write(path, *entries):
    path.write_text("".join(e if isinstance(e, str) else json.dumps(e) + "\n" for e in entries))
    return path


def test_networks_have_the_latencies_of_each_device_and_their_family(tmp_path):
    path = write(
        tmp_path / "alexnets.jsonl", entry(), entry("mobilenetv3small_7", cortexA76cpu_tflite21="5.5")
    )
    first, second = import_benchmark("nn_meter", path)
    assert first.targets == {
        **{"latency/cortexA76cpu": 148.164, "latency/adreno640gpu": 24.4851},
        "latency/adreno630gpu": 31.9324,
    }
    assert (first.space, first.identifier, first.group) == ("nnmeter", "alexnet_1356", "alexnet")
    assert is_network_text(first.input) and not first.is_program
    assert second.group == "mobilenetv3" and second.targets["latency/cortexA76cpu"] == 5.5


def test_entries_that_are_not_valid_are_left_out(tmp_path):
    broken = small_network().nodes
    broken["relu"]["attr"]["type"] = "Erf"
    path = write(
        tmp_path / "alexnets.jsonl",
        *("{\n", "\n", "[1]\n", json.dumps({"id": "a_1"}) + "\n", json.dumps({"graph": {}}) + "\n"),
        *(entry("alexnet_2", graph=broken), entry("alexnet_3", graph=None), entry(4)),
        entry("alexnet_5", cortexA76cpu_tflite21=-1, adreno640gpu_tflite21="fast"),
    )
    with pytest.warns(UserWarning) as caught:
        (row,) = import_benchmark("nn_meter", path)
    assert row.targets == {"latency/adreno630gpu": 31.9324}
    messages = [str(w.message) for w in caught]
    assert any("7 entries are not valid" in m and "alexnets.jsonl line 1" in m for m in messages)
    assert any("latency/cortexA76cpu" in m and "alexnet_5: -1" in m for m in messages)
    assert any("latency/adreno640gpu" in m and "'fast'" in m for m in messages)


def test_the_reason_names_the_network_and_the_node(tmp_path):
    broken = small_network().nodes
    broken["relu"]["attr"]["type"] = "Erf"
    path = write(tmp_path / "alexnets.jsonl", entry("alexnet_2", graph=broken))
    with pytest.raises(ValueError, match=r"no measurements \(alexnets.jsonl line 1: alexnet_2: relu, Erf"):
        import_benchmark("nn_meter", path)


def test_a_directory_has_all_families(tmp_path, capsys):
    write(tmp_path / "alexnets.jsonl", entry())
    write(tmp_path / "resnets.jsonl", entry("resnet18_0"), entry("resnet50_1"))
    out = tmp_path / "t.parquet"
    assert main(["data", "import", "nn_meter", str(tmp_path), "--out", str(out)]) == 0
    assert [row.group for row in read_table(out).rows] == ["alexnet", "resnet", "resnet"]
    assert "3 rows" in capsys.readouterr().out


@pytest.mark.parametrize("content", ["", "\x00\x01", "a,b\n1,2\n", "[]\n"])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"x\.jsonl.*expected a file of nn-Meter's dataset"):
        import_benchmark("nn_meter", path)


def test_an_empty_directory_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has no \*\.jsonl"):
        import_benchmark("nn_meter", tmp_path)
