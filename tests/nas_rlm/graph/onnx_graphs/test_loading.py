import os

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from nas_rlm.graph.onnx_graphs.loading import load
from nas_rlm.text import from_onnx
from tests.nas_rlm.graph.small_models import small_model


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"GIF89a", bytes(100), b"<ir_version: 10>", b"\x08\x0a", bytes(range(256))),
        onnx.ModelProto(ir_version=10).SerializeToString(),
        onnx.TensorProto(dims=[2], data_type=1).SerializeToString(),
    ],
)
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"m\.onnx"):
        load(path)


def test_missing_files_and_directories(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no ONNX file at .*m\.onnx"):
        load(tmp_path / "m.onnx")
    with pytest.raises(ValueError, match="is a directory"):
        load(tmp_path)


class BytesPath:
    def __fspath__(self):
        return b"m.onnx"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (None, "None"),
        (3, "3"),
        (b"m.onnx", "a bytes"),
        (bytearray(9), "a bytearray"),
        (BytesPath(), "a bytes"),
        (["m.onnx"], "a list"),
        (onnx.GraphProto(), "a GraphProto"),
    ],
)
def test_other_objects_are_refused(source, name):
    with pytest.raises(
        ValueError, match=f"^{name} is not an ONNX model: expected a model or the path"
    ) as error:
        load(source)
    assert ("onnx.load_model_from_string" in str(error.value)) == (name == "a bytes")


def test_pipes_and_devices_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.onnx")
    (tmp_path / "device.onnx").symlink_to("/dev/zero")
    (tmp_path / "link.onnx").symlink_to(tmp_path / "nothing")
    for name in ("pipe", "device"):
        with pytest.raises(ValueError, match=rf"{name}\.onnx' is a pipe or device: expected an ONNX file"):
            load(tmp_path / f"{name}.onnx")
    with pytest.raises(FileNotFoundError, match="no ONNX file at"):
        load(tmp_path / "link.onnx")


def test_truncated_files_are_refused(tmp_path):
    model = small_model("y = MatMul(x, w)", "float[2,8] x", {"w": (8, 8)})
    content = model.SerializeToString()
    path = tmp_path / "m.onnx"
    for size in range(1, len(content), 17):
        path.write_bytes(content[:size])
        try:
            from_onnx(path)
        except ValueError as error:
            assert "m.onnx" in str(error) and "\n" not in str(error)


@pytest.mark.parametrize("value", [np.array(2.5, np.float32), np.array([2, 4]), np.array(3, np.int32)])
def test_values_in_external_data_are_part_of_the_text(tmp_path, value):
    body = "r = Reshape(x, c) y = Relu(r)" if value.ndim else "k = Cast<to=1>(c) y = Mul(x, k)"
    model = small_model(body, "float[8] x", {"c": value})
    expected = from_onnx(model)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="c.bin", size_threshold=0)
    assert from_onnx(tmp_path / "m.onnx") == expected
    (tmp_path / "c.bin").write_bytes(b"")
    with pytest.raises(ValueError, match=r"m\.onnx.*external data for 'c' that cannot be read"):
        from_onnx(tmp_path / "m.onnx")


def test_external_data_outside_of_the_directory_are_not_read(tmp_path):
    (tmp_path / "secret.bin").write_bytes(np.array([2, 4]).tobytes())
    model = small_model("r = Reshape(x, c) y = Relu(r)", "float[8] x", {"c": np.array([2, 4])})
    tensor = model.graph.initializer[0]
    onnx.external_data_helper.set_external_data(tensor, "../secret.bin")
    tensor.ClearField("raw_data")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match="external data for 'c' that cannot be read"):
        from_onnx(tmp_path / "models" / "m.onnx")


@pytest.mark.parametrize(
    "entries",
    [{}, {"offset": "8"}, {"length": str(2**30)}, {"offset": "-1"}, {"length": "-1"}, {"length": "many"}],
)
@pytest.mark.parametrize("dims", [[2], []])
def test_external_data_of_a_small_tensor_are_not_read_from_a_large_file(tmp_path, entries, dims):
    with (tmp_path / "large.bin").open("wb") as file:
        file.truncate(2**36)
    tensor = onnx.TensorProto(name="c", data_type=7, dims=dims, data_location=onnx.TensorProto.EXTERNAL)
    for key, value in {"location": "large.bin", **entries}.items():
        tensor.external_data.add(key=key, value=value)
    model = small_model("r = Reshape(x, c) y = Relu(r)", "float[8] x", {"c": tensor})
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match="external data for 'c' that cannot be read"):
        from_onnx(tmp_path / "m.onnx")


@pytest.mark.parametrize("dims", [[-1], [2, -3], [2**62, 4], [2**32, 2**32]])
@pytest.mark.parametrize("dtype", [1, 7])
def test_external_data_of_an_impossible_shape_are_not_read(tmp_path, dims, dtype):
    (tmp_path / "c.bin").write_bytes(bytes(64))
    tensor = onnx.TensorProto(name="c", data_type=dtype, dims=dims, data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="c.bin")
    model = small_model("y = Add(x, c)", "float[8] x", {"c": tensor})
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match=r"m\.onnx.*the initialiser 'c' has the shape"):
        from_onnx(tmp_path / "m.onnx")


def test_a_model_is_returned_as_it_is():
    model = small_model("y = Relu(x)", "float[4] x", {"w": numpy_helper.from_array(np.zeros(2), "w")})
    assert load(model) is model


@pytest.mark.parametrize("dims", [[2], [5000], [5000, 2]])
@pytest.mark.parametrize("dtype", [0, 99])
@pytest.mark.parametrize("kind", ["initializer", "constant", "sparse"])
def test_values_of_no_type_are_refused(dims, dtype, kind):
    tensor = onnx.TensorProto(name="c", data_type=dtype, dims=dims)
    model = small_model("y = Add(x, c)", "float[8] x", {"c": tensor})
    if kind != "initializer":
        del model.graph.initializer[:]
        sparse = onnx.SparseTensorProto(values=tensor, dims=dims)
        value = {"sparse_value": sparse} if kind == "sparse" else {"value": tensor}
        model.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["c"], **value))
    with pytest.raises(ValueError, match=r"type|no valid values"):
        from_onnx(model)
