"""Runtimes: each loads an ONNX model and gives what runs it once. They are imported when asked for."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from nas_rlm.devices.device import Device
from nas_rlm.graph.reader import inlined

CONVERTED = 300  # seconds that a converter may take
Run = Callable[[], float]  # runs a network once: the seconds that it took


def load(model: onnx.ModelProto, device: Device) -> Run:
    """A network, ready to run on a device.

    Args:
        model: with weights and one input, whose first dimension is the batch.
        device: where it runs, with the number of threads that the process may use.

    Raises:
        ValueError: the runtime cannot run the model.
    """
    flat = batched(inlined(model), device.batch)
    shape = [d.dim_value for d in flat.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return RUNTIMES[device.runtime][2](flat, x, device)


def check(device: Device) -> None:
    """Refuse a device that is not here.

    Raises:
        ValueError: its runtime, or what converts networks for it, is not installed, or there is no GPU.
    """
    for module in RUNTIMES[device.runtime][1]:
        if importlib.util.find_spec(module) is None:
            extra = device.runtime.partition("-")[0]
            raise ValueError(
                f"{device.runtime} needs {module}, which is not installed: pip install 'nas-rlm[{extra}]'"
            )
    if device.runtime == "onnxruntime" and device.place == "cuda":
        import onnxruntime

        if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
            raise ValueError("this onnxruntime has no CUDA: expected onnxruntime-gpu")
    elif device.place == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise ValueError("torch finds no CUDA device here")


def version_of(runtime: str) -> str:
    """Which version of a runtime is installed."""
    distribution = RUNTIMES[runtime][0]
    try:
        return f"{distribution} {version(distribution)}"
    except PackageNotFoundError:
        return f"{distribution} unknown"


def batched(model: onnx.ModelProto, batch: int) -> onnx.ModelProto:
    """A copy that reads so many examples at once.

    Raises:
        ValueError: it does not read one tensor of float and a known size.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    held = {t.name for t in copy.graph.initializer}
    inputs = [i for i in copy.graph.input if i.name not in held]
    dims = list(inputs[0].type.tensor_type.shape.dim) if len(inputs) == 1 else []
    if (
        not dims
        or inputs[0].type.tensor_type.elem_type != onnx.TensorProto.FLOAT
        or not all(d.HasField("dim_value") for d in dims[1:])
    ):
        raise ValueError(
            f"the model reads {', '.join(i.name for i in inputs) or 'nothing'}: expected one tensor of float,"
            " of a known size but for the batch, and weights as initialisers"
        )
    dims[0].dim_value = batch
    del copy.graph.input[:]
    copy.graph.input.append(inputs[0])
    del copy.graph.value_info[:]
    for output in copy.graph.output:
        output.type.tensor_type.ClearField("shape")
    used = {node.domain for node in copy.graph.node}
    kept = [o for o in copy.opset_import if o.domain in used or o.domain in ("", "ai.onnx")]
    del copy.opset_import[:]
    copy.opset_import.extend(kept)
    return copy


def _timed(run: Callable[[], Any]) -> Run:
    """Wall time of a call that returns when it is done."""

    def once() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return once


def _onnxruntime(model: onnx.ModelProto, x: np.ndarray, device: Device) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = device.threads, 1
    options.log_severity_level = 3
    provider = "CPUExecutionProvider" if device.place == "cpu" else "CUDAExecutionProvider"
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=[provider])
    bound = session.io_binding()
    where = device.place
    bound.bind_ortvalue_input(
        session.get_inputs()[0].name, onnxruntime.OrtValue.ortvalue_from_numpy(x, where)
    )
    bound.bind_output(session.get_outputs()[0].name, where)

    def run() -> None:
        session.run_with_iobinding(bound)
        bound.synchronize_outputs()

    return _timed(run)


def _openvino(model: onnx.ModelProto, x: np.ndarray, device: Device) -> Run:
    import openvino

    core = openvino.Core()
    settings = {
        "INFERENCE_NUM_THREADS": device.threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = core.compile_model(
        core.read_model(model.SerializeToString()), "CPU", settings
    ).create_infer_request()
    request.set_input_tensor(openvino.Tensor(x))
    return _timed(request.infer)


def _ncnn(model: onnx.ModelProto, x: np.ndarray, device: Device) -> Run:
    import ncnn

    if device.batch > 1:
        raise ValueError("ncnn runs one example at a time: expected a batch of 1")
    import pnnx

    net = ncnn.Net()
    net.opt.num_threads, net.opt.use_vulkan_compute = device.threads, False
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(model, f"{folder}/m.onnx")
        shape = "[" + ",".join(map(str, x.shape)) + "]"
        converter = str(Path(pnnx.__file__).parent / "pnnx")
        _converted([converter, "m.onnx", f"inputshape={shape}f32", "fp16=0"], folder, "m.ncnn.bin")
        if net.load_param(f"{folder}/m.ncnn.param") or net.load_model(f"{folder}/m.ncnn.bin"):
            raise ValueError("ncnn cannot load what pnnx made of the model")
    image = ncnn.Mat(x[0])

    def run() -> None:
        extractor = net.create_extractor()
        extractor.input("in0", image)
        failed, _ = extractor.extract("out0")
        if failed:
            raise ValueError(f"ncnn stopped with code {failed}")

    return _timed(run)


def _mnn(model: onnx.ModelProto, x: np.ndarray, device: Device) -> Run:
    import MNN

    with tempfile.TemporaryDirectory() as folder:
        onnx.save(model, f"{folder}/m.onnx")
        # The package's own command installs a tracker when it starts; what it calls does not.
        convert = [sys.executable, "-c", "import _tools, sys; _tools.mnnconvert(sys.argv)"]
        named = ["--modelFile", "m.onnx", "--MNNModel", "m.mnn", "--bizCode", "nas"]
        _converted([*convert, "-f", "ONNX", *named], folder, "m.mnn")
        setting = {"backend": "CPU", "numThread": device.threads, "precision": "high"}
        manager = MNN.nn.create_runtime_manager((setting,))
        net = MNN.nn.load_module_from_file(f"{folder}/m.mnn", [], [], runtime_manager=manager)
    image = MNN.expr.const(x.flatten().tolist(), list(x.shape), MNN.expr.NCHW)
    return _timed(lambda: net.forward([image])[0].read())


def _torch(model: onnx.ModelProto, x: np.ndarray, device: Device) -> Run:
    import torch

    from nas_rlm.graph.torch_module import to_torch

    torch.set_num_threads(device.threads)
    module: Any = to_torch(model).eval().to(device.place)
    image = torch.from_numpy(x).to(device.place)
    if device.runtime == "torch-compile":
        module = torch.compile(module)
    with torch.inference_mode():
        module(image)
    if device.place == "cuda":
        return _on_cuda(module, image)

    def run() -> None:
        with torch.inference_mode():
            module(image)

    return _timed(run)


def _on_cuda(module: Any, image: Any) -> Run:
    """A CUDA graph of the network, timed by events, so that launching it does not count."""
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        module(image)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def once() -> float:
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    return once


def _litert(model: onnx.ModelProto, x: np.ndarray, device: Device) -> Run:
    import litert_torch
    import torch
    from ai_edge_litert.interpreter import Interpreter

    from nas_rlm.graph.torch_module import to_torch

    with tempfile.TemporaryDirectory() as folder:
        litert_torch.convert(to_torch(model).eval(), (torch.from_numpy(x),)).export(f"{folder}/m.tflite")
        content = (Path(folder) / "m.tflite").read_bytes()
    net = Interpreter(model_content=content, num_threads=device.threads)
    net.allocate_tensors()
    net.set_tensor(net.get_input_details()[0]["index"], x)
    return _timed(net.invoke)


def _converted(command: list[str], folder: str, wanted: str) -> None:
    """Run a converter that should leave a file.

    Raises:
        ValueError: it does not.
    """
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=CONVERTED)
    if done.returncode or not (Path(folder) / wanted).is_file():
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise ValueError(
            f"{Path(command[0]).name} cannot convert the model: code {done.returncode} {' '.join(said)}"
        )


# Each runtime's distribution, the modules that it needs, and its loader.
RUNTIMES: dict[str, tuple[str, tuple[str, ...], Callable[[onnx.ModelProto, np.ndarray, Device], Run]]] = {
    "onnxruntime": ("onnxruntime", ("onnxruntime",), _onnxruntime),
    "openvino": ("openvino", ("openvino",), _openvino),
    "ncnn": ("ncnn", ("ncnn", "pnnx"), _ncnn),
    "litert": ("ai-edge-litert", ("ai_edge_litert", "litert_torch"), _litert),
    "mnn": ("MNN", ("MNN",), _mnn),
    "torch": ("torch", ("torch",), _torch),
    "torch-compile": ("torch", ("torch",), _torch),
}
