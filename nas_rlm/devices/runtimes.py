"""Runtimes: each loads an ONNX model and returns a function that times one run.

The packages of runtimes are imported when they are first used.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

from nas_rlm.devices.device import Device
from nas_rlm.devices.example_inputs import Inputs, describe_inputs, example_inputs
from nas_rlm.devices.processors import num_processors
from nas_rlm.graph.onnx_graphs.input_shapes import apply_input_shapes, forget_computed_shapes
from nas_rlm.graph.onnx_graphs.loading import inline_functions

CONVERTER_TIMEOUT = 300  # seconds
Run = Callable[[], float]  # runs a network once and returns the duration in seconds


def load(model: onnx.ModelProto, device: Device) -> Run:
    """Load a model on a device, ready to run on example inputs.

    Args:
        model: a model with weights, whose inputs have no open dimensions except the batch.
        device: the runtime, device type, number of threads and batch size.

    Returns:
        A function that runs the model once and returns the duration in seconds.

    Raises:
        ValueError: the runtime cannot run the model.
    """
    flat = set_batch_size(inline_functions(model), device.batch_size)
    return LOADERS[device.runtime].load(flat, example_inputs(flat), device)


def check(device: Device) -> None:
    """Check that a device is available to this process.

    Raises:
        ValueError: the runtime or its converter is not installed, there is no GPU, or there are fewer
            processors than threads.
    """
    if device.device_type == "cpu" and device.threads > (available := num_processors()):
        raise ValueError(
            f"{device} needs {device.threads} processors, this process may use {available}:"
            f" expected at most {replace(device, threads=available)}"
        )
    for module in LOADERS[device.runtime].modules:
        if importlib.util.find_spec(module) is None:
            extra = device.runtime.partition("-")[0]
            raise ValueError(
                f"{device.runtime} needs {module}, which is not installed: pip install 'nas-rlm[{extra}]'"
            )
    if device.runtime == "onnxruntime" and device.device_type == "cuda":
        import onnxruntime

        if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
            raise ValueError("this onnxruntime was built without CUDA: expected onnxruntime-gpu")
    elif device.device_type == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise ValueError("torch finds no CUDA device here")


def version_of(runtime: str) -> str:
    """Return the name of a runtime's distribution and its installed version."""
    distribution = LOADERS[runtime].distribution
    try:
        return f"{distribution} {version(distribution)}"
    except PackageNotFoundError:
        return f"{distribution} unknown"


def set_batch_size(model: onnx.ModelProto, batch_size: int) -> onnx.ModelProto:
    """Return a copy of a model whose inputs have this batch size.

    Open batch dimensions get the batch size. Where the first input of several dimensions has a fixed batch of
    1, a batch size above 1 replaces it, and the first dimensions of the other inputs that are 1.

    Args:
        model: the model.
        batch_size: number of examples in each run.

    Raises:
        ValueError: the batch size is above 1, and the model has another fixed batch or none.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(apply_input_shapes(model, None, batch_size))
    initializers = {t.name for t in copy.graph.initializer}
    inputs = [i for i in copy.graph.input if i.name not in initializers]
    if batch_size > 1:
        _set_fixed_batch(inputs, batch_size)
    del copy.graph.input[:]
    copy.graph.input.extend(inputs)
    forget_computed_shapes(copy)
    domains = {"", "ai.onnx", *(node.domain for node in copy.graph.node)}
    opset_imports = [o for o in copy.opset_import if o.domain in domains]
    del copy.opset_import[:]
    copy.opset_import.extend(opset_imports)
    return copy


def _set_fixed_batch(inputs: Sequence[onnx.ValueInfoProto], batch_size: int) -> None:
    """Replace a fixed batch of 1 in the inputs, unless they have the batch size already.

    Raises:
        ValueError: they have another batch or none.
    """
    batch_dims = [dims[0] for i in inputs if len(dims := i.type.tensor_type.shape.dim) > 1]
    if not batch_dims:
        raise ValueError(f"no input has a batch dimension: expected a batch size of 1 and not {batch_size}")
    fixed = batch_dims[0].dim_value
    if fixed not in (1, batch_size):
        raise ValueError(f"the model has a fixed batch of {fixed}: expected an open one, 1 or {batch_size}")
    for dim in batch_dims:
        if fixed == dim.dim_value == 1:
            dim.dim_value = batch_size


def _single_input(inputs: Inputs, device: Device) -> np.ndarray:
    """Return the input of a network for runtimes that take one image.

    Raises:
        ValueError: the network reads something else.
    """
    arrays = list(inputs.values())
    if len(arrays) != 1 or arrays[0].dtype != np.float32 or not arrays[0].ndim:
        raise ValueError(
            f"{device.runtime} takes networks with one float32 tensor as input, this one reads"
            f" {describe_inputs(inputs)}: expected onnxruntime, openvino or torch for other inputs"
        )
    return arrays[0]


def _timed(run: Callable[[], Any]) -> Run:
    """Return a function that measures the wall time of a synchronous call."""

    def run_once() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return run_once


def _load_onnxruntime(model: onnx.ModelProto, inputs: Inputs, device: Device) -> Run:
    """Load a model into ONNX Runtime, with inputs and outputs bound to the device."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = device.threads, 1
    options.log_severity_level = 3
    provider = "CPUExecutionProvider" if device.device_type == "cpu" else "CUDAExecutionProvider"
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=[provider])
    binding = session.io_binding()
    for name, x in inputs.items():
        value = onnxruntime.OrtValue.ortvalue_from_numpy(x, device.device_type)
        binding.bind_ortvalue_input(name, value)
    for output in session.get_outputs():
        binding.bind_output(output.name, device.device_type)

    def run() -> None:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    return _timed(run)


def _load_openvino(model: onnx.ModelProto, inputs: Inputs, device: Device) -> Run:
    """Load a model into OpenVINO, in float32."""
    import openvino

    core = openvino.Core()
    settings = {
        "INFERENCE_NUM_THREADS": device.threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    try:
        compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", settings)
    except RuntimeError as error:  # its first lines are places in the source code
        lines = [
            line for line in str(error).splitlines() if not line.startswith(("Exception from", "Check '"))
        ]
        raise ValueError(" ".join(lines) or str(error)) from None
    request = compiled.create_infer_request()
    for port in compiled.inputs:  # without those that no operator reads
        name = next(name for name in port.names if name in inputs)
        request.set_tensor(port, openvino.Tensor(inputs[name]))
    return _timed(request.infer)


def _load_ncnn(model: onnx.ModelProto, inputs: Inputs, device: Device) -> Run:
    """Convert a model with pnnx and load it into ncnn, in float32."""
    import ncnn

    if device.batch_size > 1:
        raise ValueError("ncnn runs one example at a time: expected a batch size of 1")
    x = _single_input(inputs, device)
    import pnnx

    net = ncnn.Net()
    net.opt.num_threads, net.opt.use_vulkan_compute = device.threads, False
    with tempfile.TemporaryDirectory() as directory:
        onnx.save(model, f"{directory}/m.onnx")
        shape = "[" + ",".join(map(str, x.shape)) + "]"
        converter = str(Path(pnnx.__file__).parent / "pnnx")
        _run_converter([converter, "m.onnx", f"inputshape={shape}f32", "fp16=0"], directory, "m.ncnn.bin")
        if net.load_param(f"{directory}/m.ncnn.param") or net.load_model(f"{directory}/m.ncnn.bin"):
            raise ValueError("ncnn cannot load the model that pnnx converted")
    image = ncnn.Mat(x[0])

    def run() -> None:
        extractor = net.create_extractor()
        extractor.input("in0", image)
        status, _ = extractor.extract("out0")
        if status:
            raise ValueError(f"ncnn stopped with code {status}")

    return _timed(run)


def _load_mnn(model: onnx.ModelProto, inputs: Inputs, device: Device) -> Run:
    """Convert a model and load it into MNN, in float32."""
    import MNN

    x = _single_input(inputs, device)
    with tempfile.TemporaryDirectory() as directory:
        onnx.save(model, f"{directory}/m.onnx")
        # The package's own command installs a usage tracker; the function behind it does not.
        convert = [sys.executable, "-c", "import _tools, sys; _tools.mnnconvert(sys.argv)"]
        files = ["--modelFile", "m.onnx", "--MNNModel", "m.mnn", "--bizCode", "nas"]
        _run_converter([*convert, "-f", "ONNX", *files], directory, "m.mnn")
        settings = {"backend": "CPU", "numThread": device.threads, "precision": "high"}
        manager = MNN.nn.create_runtime_manager((settings,))
        net = MNN.nn.load_module_from_file(f"{directory}/m.mnn", [], [], runtime_manager=manager)
    image = MNN.expr.const(x.flatten().tolist(), list(x.shape), MNN.expr.NCHW)
    return _timed(lambda: net.forward([image])[0].read())


def _load_torch(model: onnx.ModelProto, inputs: Inputs, device: Device) -> Run:
    """Convert a model to a torch module, which the runtime `torch-compile` compiles."""
    import torch

    from nas_rlm.graph.torch_module import to_torch
    from nas_rlm.graph.torch_modules.fixed_sizes import fix_sizes

    torch.set_num_threads(device.threads)
    tensors = [torch.from_numpy(x) for x in inputs.values()]
    module: Any = to_torch(model).eval()
    if device.device_type == "cuda":
        module = fix_sizes(module, tensors).to(device.device_type)
        tensors = [x.to(device.device_type) for x in tensors]
    if device.runtime == "torch-compile":
        module = torch.compile(module)
    with torch.inference_mode():
        module(*tensors)
    if device.device_type == "cuda":
        return _CudaGraphRun(module, tensors)

    def run() -> None:
        with torch.inference_mode():
            module(*tensors)

    return _timed(run)


class _CudaGraphRun:
    """A run of a CUDA graph of a module, timed by events, so that launch overhead does not count.

    Args:
        module: the module on the GPU.
        tensors: its inputs.
    """

    def __init__(self, module: Any, tensors: Sequence[Any]) -> None:
        import torch

        self.memory = module, tensors  # the graph reads weights and inputs at their addresses
        self.graph = torch.cuda.CUDAGraph()
        with torch.inference_mode(), torch.cuda.graph(self.graph):
            module(*tensors)
        self.start, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def __call__(self) -> float:
        """Replay the graph and return the duration in seconds."""
        self.start.record()
        self.graph.replay()
        self.end.record()
        self.end.synchronize()
        return float(self.start.elapsed_time(self.end)) / 1e3


def _load_litert(model: onnx.ModelProto, inputs: Inputs, device: Device) -> Run:
    """Convert a model by way of torch and load it into LiteRT."""
    import litert_torch
    import torch
    from ai_edge_litert.interpreter import Interpreter

    from nas_rlm.graph.torch_module import to_torch

    x = _single_input(inputs, device)
    with tempfile.TemporaryDirectory() as directory:
        litert_torch.convert(to_torch(model).eval(), (torch.from_numpy(x),)).export(f"{directory}/m.tflite")
        content = (Path(directory) / "m.tflite").read_bytes()
    net = Interpreter(model_content=content, num_threads=device.threads)
    net.allocate_tensors()
    net.set_tensor(net.get_input_details()[0]["index"], x)
    return _timed(net.invoke)


def _run_converter(command: list[str], directory: str, output: str) -> None:
    """Run a converter.

    Args:
        command: the converter and its arguments.
        directory: where it runs.
        output: name of the file that it must write there.

    Raises:
        ValueError: the converter fails or does not write the file.
    """
    result = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=CONVERTER_TIMEOUT)
    if result.returncode or not (Path(directory) / output).is_file():
        last_line = (result.stderr.strip() or result.stdout.strip()).splitlines()[-1:]
        raise ValueError(
            f"{Path(command[0]).name} cannot convert the model:"
            f" code {result.returncode} {' '.join(last_line)}"
        )


class Loader(NamedTuple):
    """How a runtime loads models.

    Args:
        distribution: its distribution on PyPI.
        modules: modules that must be installed.
        load: loads a model with example inputs on a device.
    """

    distribution: str
    modules: tuple[str, ...]
    load: Callable[[onnx.ModelProto, Inputs, Device], Run]


LOADERS = {
    "onnxruntime": Loader("onnxruntime", ("onnxruntime",), _load_onnxruntime),
    "openvino": Loader("openvino", ("openvino",), _load_openvino),
    "ncnn": Loader("ncnn", ("ncnn", "pnnx"), _load_ncnn),
    "litert": Loader("ai-edge-litert", ("ai_edge_litert", "litert_torch"), _load_litert),
    "mnn": Loader("MNN", ("MNN",), _load_mnn),
    "torch": Loader("torch", ("torch",), _load_torch),
    "torch-compile": Loader("torch", ("torch",), _load_torch),
}
