import json

import numpy as np
import pytest
import torch

import search_spaces
from nas_rlm.data import snas
from nas_rlm.data.images import Images
from nas_rlm.data.omissions import Omissions
from nas_rlm.data.snas import Budget, TrainableNetwork, generate, read_rows, train_architecture

SPACE = search_spaces.get("snas")
SMALL = Budget(steps=2, batch_size=8, test_images=20, precision="float32")


@pytest.fixture(scope="module")
def images():
    """Images of two classes, which differ in brightness."""
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=200)
    pictures = (rng.integers(100, size=(200, 3, 32, 32)) + 150 * labels[:, None, None, None]).astype(np.uint8)
    return Images(pictures[:150], labels[:150], pictures[150:], labels[150:])


def test_the_trained_network_computes_the_same_as_the_onnx_model():
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    rng = np.random.default_rng(1)
    for _ in range(3):
        model = SPACE.to_onnx(SPACE.sample(rng), weights=True)
        x = rng.standard_normal((1, 3, 32, 32)).astype(np.float32)
        session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        (expected,) = session.run(None, {"x": x})
        with torch.inference_mode():
            outputs = TrainableNetwork(model).eval()(torch.from_numpy(x)).numpy()
        assert outputs == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_a_network_learns(images):
    architecture = SPACE.parse("w16_s2_c1_m1.0_r1|conv_3x3:0")
    record = train_architecture(architecture, images, Budget(steps=30, batch_size=16, test_images=50))
    assert record["val_accuracy"] > 90
    assert record["steps_ran"] == 30


def test_a_record_has_what_the_paper_lists(images, tmp_path):
    generate(images, tmp_path / "s.jsonl", 2, SMALL)
    record = json.loads((tmp_path / "s.jsonl").read_text().splitlines()[0])
    listed = {"uid", "val_accuracy", "params", "train_time_sec", "steps_ran", "precision", "batch_size"}
    assert {*listed, "arch_str", "flops"} <= set(record)
    architecture = SPACE.parse(record["arch_str"])
    assert record["params"] == SPACE.params(architecture)
    row = read_rows(tmp_path / "s.jsonl", Omissions())[0]
    assert (row.space, row.arch_str) == ("snas", record["arch_str"])
    assert row.targets["accuracy"] == record["val_accuracy"]


def without_times(path):
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in r.items() if k != "train_time_sec"} for r in records]


def test_an_interrupted_file_is_continued_with_the_same_records(images, tmp_path):
    generate(images, tmp_path / "complete.jsonl", 4, SMALL)
    generate(images, tmp_path / "cut.jsonl", 3, SMALL)
    path = tmp_path / "cut.jsonl"
    for cut in (20, 1):
        path.write_bytes(path.read_bytes()[:-cut])
        assert generate(images, path, 4, SMALL) == (4, 0)
        assert without_times(path) == without_times(tmp_path / "complete.jsonl")
    assert generate(images, path, 1, SMALL) == (4, 0)


def test_failed_networks_have_a_record(images, tmp_path, monkeypatch):
    def diverging(network, images, budget, index):
        yield 1.0
        if index == 1:
            yield float("nan")
        if index == 2:
            raise RuntimeError("out of memory\nlong trace")

    monkeypatch.setattr(snas, "_train", diverging)
    assert generate(images, tmp_path / "s.jsonl", 4, SMALL) == (4, 2)
    records = without_times(tmp_path / "s.jsonl")
    assert [r.get("error") for r in records] == [None, "the loss is nan at step 2", "out of memory", None]
    assert [r["val_accuracy"] is None for r in records] == [False, True, True, False]
    assert len(read_rows(tmp_path / "s.jsonl", Omissions())) == 2


def test_a_file_of_another_budget_is_not_changed(images, tmp_path):
    path = tmp_path / "s.jsonl"
    generate(images, path, 2, SMALL)
    before = path.read_bytes()
    other = Budget(steps=3, batch_size=8, test_images=20, precision="float32")
    with pytest.raises(ValueError, match="has records with steps 2, not 3"):
        generate(images, path, 3, other)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(reversed(lines)))
    with pytest.raises(ValueError, match="line 1 is not network 0 of seed 0"):
        generate(images, path, 3, SMALL)
    for content in ("notes\n", "notes without an end of line", '{"mine": 1}', "\n"):
        path.write_text(content)
        with pytest.raises(ValueError, match="line 1 is not a record"):
            generate(images, path, 3, SMALL)
        assert path.read_text() == content
    path.write_bytes(before)
    assert generate(images, path, 2, SMALL) == (2, 0)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps is 0, expected at least 1"),
        ({"seed": -1}, "seed is -1, expected 0 to"),
        ({"seed": 2**40}, "expected 0 to 4,294,967,295"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"precision": "float8"}, "'float8', expected bfloat16 or float32"),
        ({"device": "tpu"}, "'tpu', expected cpu or cuda"),
    ],
)
def test_invalid_budgets_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Budget(**changes)


def test_networks_of_other_operators_are_refused():
    space = search_spaces.get("ofa_mbv3")
    model = space.to_onnx(space.sample(np.random.default_rng(0)), weights=True)
    with pytest.raises(ValueError, match="cannot train the operator HardSwish; expected Conv"):
        TrainableNetwork(model)
