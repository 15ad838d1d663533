import shutil

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from nas_rlm.devices import onnx_files
from nas_rlm.devices.onnx_files import content_digest, load_with_weights
from tests.nas_rlm.devices.networks import model_of

GRAPH = "g (float[1, 80] x) => (float[1, 90] y) { y = MatMul(x, w) }"


def save(directory, external=True):
    directory.mkdir(exist_ok=True)
    model = model_of(GRAPH, w=(80, 90))
    onnx.save(
        model, directory / "m.onnx", save_as_external_data=external, location="m.data", size_threshold=0
    )
    return directory / "m.onnx"


def test_copies_have_the_same_digest(tmp_path):
    path = save(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    shutil.copy(path, tmp_path / "a" / "other.onnx")
    digests = {content_digest(p) for p in (path, tmp_path / "b" / "m.onnx", tmp_path / "a" / "other.onnx")}
    assert len(digests) == 1


def test_changed_weights_change_the_digest(tmp_path):
    path = save(tmp_path)
    before = content_digest(path)
    content = bytearray((tmp_path / "m.data").read_bytes())
    content[100] ^= 1
    (tmp_path / "m.data").write_bytes(content)
    assert content_digest(path) != before
    inside = save(tmp_path / "c", external=False)
    before = content_digest(inside)
    model = onnx.load(inside)
    model.graph.node[0].name = "renamed"
    onnx.save(model, inside)
    assert content_digest(inside) != before


def test_small_tensors_and_tensors_of_attributes_count(tmp_path):
    model = model_of(
        "g (float[2] x) => (float[2] y) { c = Constant<value = float[2] {1, 2}>() y = Add(x, c) }"
    )
    model.graph.node[0].attribute[0].t.CopyFrom(numpy_helper.from_array(np.array([1, 2], np.float32)))
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="d", size_threshold=0, convert_attribute=True)
    before = content_digest(path)
    (tmp_path / "d").write_bytes(np.array([1, 3], np.float32).tobytes())
    assert content_digest(path) != before
    value = load_with_weights(path).graph.node[0].attribute[0].t
    assert numpy_helper.to_array(value).tolist() == [1, 3]


def test_external_data_that_cannot_be_read_is_refused(tmp_path):
    path = save(tmp_path)
    (tmp_path / "m.data").write_bytes(b"short")
    with pytest.raises(ValueError, match=r"'m\.data', which has 5 bytes: expected at least 28,800"):
        content_digest(path)
    (tmp_path / "m.data").unlink()
    with pytest.raises(ValueError, match=r"external data in 'm\.data': expected a file in its directory"):
        content_digest(path)
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].external_data[0].value = "../m.data"
    (tmp_path / "below").mkdir()
    (tmp_path / "m.data").write_bytes(bytes(28_800))
    onnx.save(model, tmp_path / "below" / "m.onnx")
    with pytest.raises(ValueError, match=r"'\.\./m\.data': expected a file in its directory"):
        content_digest(tmp_path / "below" / "m.onnx")


def test_models_too_large_for_one_piece_are_refused(tmp_path, monkeypatch):
    path = save(tmp_path)
    monkeypatch.setattr(onnx_files, "MAX_MODEL_BYTES", 28_900)
    with pytest.raises(ValueError, match="bytes with its external data, more than the limit of 28,900"):
        content_digest(path)
