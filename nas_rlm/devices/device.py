"""Devices: a runtime, a device type, a number of threads and a batch size, which form a name."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nas_rlm.utils.validation import suggest

RUNTIMES = ("onnxruntime", "openvino", "ncnn", "litert", "mnn", "torch", "torch-compile")
CUDA_RUNTIMES = ("onnxruntime", "torch", "torch-compile")
MAX_THREADS, MAX_BATCH_SIZE = 1024, 65_536
EXAMPLE_NAMES = "onnxruntime-cpu-1t, openvino-cpu-2t or torch-cuda-b32"

_NAME = re.compile(
    r"(?P<runtime>[a-z-]+?)(-(?P<device_type>cpu|cuda))?(-(?P<threads>\d+)t)?(-b(?P<batch_size>\d+))?"
)


@dataclass(frozen=True)
class Device:
    """A runtime with a device type, a number of threads and a batch size; `str` returns its name.

    Examples:
        >>> str(Device.parse("onnxruntime"))
        'onnxruntime-cpu-1t'
        >>> Device.parse("torch-cuda-b32")
        Device(runtime='torch', device_type='cuda', threads=1, batch_size=32)

    Args:
        runtime: one of `RUNTIMES`.
        device_type: cpu or cuda.
        threads: number of threads on a CPU.
        batch_size: number of examples in each run.
    """

    runtime: str
    device_type: str = "cpu"
    threads: int = 1
    batch_size: int = 1

    @classmethod
    def parse(cls, name: str) -> Device:
        """Return the device with a name such as `onnxruntime-cpu-1t` or `torch-cuda-b32`.

        Args:
            name: a runtime, then optionally a device type, a number of threads and a batch size; by default a
                CPU, one thread and a batch size of 1.

        Raises:
            ValueError: the name is malformed, or the device is not supported.
        """
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(
                f"{name!r} is not a device: expected a runtime, device type and threads: {EXAMPLE_NAMES}"
            )
        runtime, device_type = match["runtime"], match["device_type"] or "cpu"
        if runtime not in RUNTIMES:
            raise ValueError(
                f"{name!r} is not a device: there is no runtime {runtime!r}; {suggest(runtime, RUNTIMES)};"
                f" expected a runtime, device type and threads: {EXAMPLE_NAMES}"
            )
        if device_type == "cuda" and (runtime not in CUDA_RUNTIMES or match["threads"]):
            raise ValueError(
                f"{name!r} is not a device: cuda supports {', '.join(CUDA_RUNTIMES)}, without threads"
            )
        threads, batch_size = int(match["threads"] or 1), int(match["batch_size"] or 1)
        if not (1 <= threads <= MAX_THREADS and 1 <= batch_size <= MAX_BATCH_SIZE):
            raise ValueError(
                f"{name!r} has {threads} threads and a batch size of {batch_size}:"
                f" expected 1 to {MAX_THREADS} and 1 to {MAX_BATCH_SIZE:,}"
            )
        return cls(runtime, device_type, threads, batch_size)

    def __str__(self) -> str:
        threads = f"-{self.threads}t" if self.device_type == "cpu" else ""
        batch_size = f"-b{self.batch_size}" if self.batch_size > 1 else ""
        return f"{self.runtime}-{self.device_type}{threads}{batch_size}"
