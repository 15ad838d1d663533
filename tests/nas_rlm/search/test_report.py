import json
import re
import shutil
import subprocess

import numpy as np
import pytest

import search_spaces
from nas_rlm.search.feasibility import estimate_feasibility
from nas_rlm.search.loop import search
from nas_rlm.search.report import command_line, graph_view, render_report, report_info
from nas_rlm.search.result import SearchResult
from nas_rlm.search.settings import SearchSettings
from nas_rlm.text import from_architecture
from tests.nas_rlm.stubs import StubPredictor

SPACE = search_spaces.get("nasbench201")
PAIR = ("accuracy", "latency/pixel3")
SETTINGS = SearchSettings("nasbench201", PAIR, ("latency/pixel3@0.9<=12",), population=12, generations=5)


@pytest.fixture(scope="module")
def result():
    return search(SPACE, StubPredictor(), SETTINGS)


@pytest.fixture(scope="module")
def info(result):
    feasibility = estimate_feasibility(SPACE, StubPredictor(), SETTINGS, 20)
    return report_info(SPACE, result, [(12, 1.0), (60, 2.0)], (80.0, 40.0), feasibility)


def test_the_page_has_all_evaluated_architectures_and_the_front(info, result):
    assert info["names"] == result.architectures
    assert info["feasible"] == result.feasible.tolist()
    assert [one["index"] for one in info["front"]] == result.front.tolist()
    assert [one["file"] for one in info["front"]][:2] == ["front/000.onnx", "front/001.onnx"]
    np.testing.assert_allclose(info["points"], result.medians, rtol=1e-5)
    quantiles = [one["quantiles"] for one in info["front"]]
    np.testing.assert_allclose(quantiles, result.values[result.front], rtol=1e-5)
    assert [o["reference"] for o in info["objectives"]] == [80, 40]
    assert not any(one["is_known"] for one in info["front"])
    assert "latency/pixel3@0.9 ≤ 12" in info["feasibility"]
    embedded = re.search(
        r'<script id="data" type="application/json">(.*?)</script>', render_report(info), re.S
    )
    assert json.loads(embedded[1]) == json.loads(json.dumps(info))


def test_names_are_data_not_markup(result):
    names = ["</script><script>alert(1)</script>", *result.architectures[1:]]
    malicious = SearchResult(SETTINGS, names, result.values, {names[0]: "failed"})
    assert "<script>alert" not in render_report(report_info(SPACE, malicious))


def test_the_command_line_repeats_the_settings():
    settings = SearchSettings(
        *("nasbench201", ("accuracy", "skips"), ("flops<=3", "skips>=1"), "local", 10, 4, 7, "abc"),
        maximised=("skips",),
        functions=("skips=my file.py:skips",),
    )
    assert command_line(settings).splitlines()[0] == (
        "nas-rlm search --space nasbench201 --objectives accuracy,skips --constraint 'flops<=3' 'skips>=1'"
        " --function 'skips=my file.py:skips' --maximise skips --algorithm local --population 10"
        " --generations 4 --seed 7 --out DIR"
    )
    measured = SearchSettings("nasbench201", ("latency/box",), device="box", budget=20)
    assert "--measure box --budget 20 --out DIR" in command_line(measured)


def test_a_graph_lists_the_inputs_of_each_operator_by_function():
    cell = SPACE.parse("|nor_conv_3x3~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|avg_pool_3x3~2|")
    found = graph_view(from_architecture(SPACE, cell))
    network = found[""]["nodes"]
    assert network[0]["reads"] == [-1]
    assert [node["label"] for node in network[-3:]] == ["GlobalAveragePool", "Flatten", "Gemm"]
    called = {node["calls"] for body in found.values() for node in body["nodes"]} - {""}
    assert called == set(found) - {""}
    labels = [node["label"] for body in found.values() for node in body["nodes"]]
    assert "AveragePool 3×3" in labels and "Constant" not in labels
    assert all(
        -1 <= r < k for body in found.values() for k, n in enumerate(body["nodes"]) for r in n["reads"]
    )


@pytest.mark.parametrize("objectives", [PAIR, PAIR[:1], (*PAIR, "latency/eyeriss")])
def test_a_browser_renders_the_page(tmp_path, objectives):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium is installed")
    settings = SearchSettings("nasbench201", objectives, population=12, generations=5)
    result = search(SPACE, StubPredictor(), settings)
    info = report_info(SPACE, result, [(12, 1.0), (60, 2.0)], [80.0, 40.0, 11.0][: len(objectives)])
    clicks = """<script>
    const fronts = document.querySelectorAll("#plot .front");
    fronts[fronts.length - 1].dispatchEvent(new Event("click"));
    document.querySelector("#graph .calls").dispatchEvent(new Event("click"));
    fronts[0].dispatchEvent(new MouseEvent("mousemove", {clientX: 5, clientY: 5}));
    </script>"""
    path = tmp_path / "report.html"
    path.write_text(render_report(info).replace("</body>", clicks + "</body>"))
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", path.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    body = shown[shown.index("<body>") :]
    assert 0 < body.count('class="point front') <= len(result.front)
    assert len(re.findall(r'class="point[ "]', body)) > len(result.front)
    assert 'class="point front selected"' in body
    assert len(re.findall("<button", body)) == 2  # the network, and a function of it
    assert "Conv" in body[body.index('id="graph"') :]
    names = [name for name in result.architectures if f"<code>{name}</code>" in body]
    assert len(names) == (2 if len(result.front) > 1 else 1)
    assert "<polyline" in body and "visibility: visible" in body
