"""Worker process that runs networks: it reads requests from standard input and writes replies to its output.

    python -m nas_rlm.devices.worker

A runtime that crashes ends only this process. On another machine it is started over ssh.
"""

from __future__ import annotations

import gc
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import onnx

from nas_rlm.devices.device import Device
from nas_rlm.devices.runtimes import Run, check, load, version_of
from nas_rlm.devices.serving import Handlers, serve_on_stdio

MIN_WARMUP_RUNS, MIN_WARMUP_SECONDS = 3, 0.3
MIN_RUNS_PER_WINDOW, MAX_RUNS = 3, 5000  # the maximum holds for the warm-up as well


class Worker:
    """Loads and times networks; the methods are request handlers.

    A network whose kernels fail makes the GPU unusable to this process. Then the process ends, so that a new
    one measures the others.
    """

    def __init__(self) -> None:
        self.networks: dict[int, Run] = {}
        self.device = Device("onnxruntime")

    def open(self, device: str) -> dict[str, Any]:
        """Set the device of this process, and return a description of the machine.

        Args:
            device: name of the device.

        Raises:
            ValueError: the device is not available here.
        """
        self.device = Device.parse(device)
        check(self.device)
        allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
        if self.device.device_type == "cpu" and allowed:
            os.sched_setaffinity(0, allowed[: self.device.threads])
        gc.disable()
        return {
            "processor": _processor_name(),
            **self._accelerator(),
            "cores": os.cpu_count(),
            "system": platform.platform(),
            "python": platform.python_version(),
            "runtime": version_of(self.device.runtime),
            "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        }

    def _accelerator(self) -> dict[str, str]:
        """Return the name of the GPU, if networks run on it."""
        if self.device.device_type != "cuda":
            return {}
        import torch

        return {"gpu": torch.cuda.get_device_name()}

    def load(self, number: int, content: bytes) -> dict[str, Any]:
        """Load a network and do the warm-up runs.

        Args:
            number: number that identifies the network in later requests.
            content: bytes of the ONNX file.

        Returns:
            `memory`: growth of the peak memory of the process in bytes, valid only for its first network.
        """
        model = onnx.load_model_from_string(content)
        memory_before = _resident_bytes()
        run = load(model, self.device)
        start = time.perf_counter()
        for runs in range(MAX_RUNS):
            run()
            if runs >= MIN_WARMUP_RUNS and time.perf_counter() - start > MIN_WARMUP_SECONDS:
                break
        self.networks[number] = run
        return {"memory": max(0, _peak_bytes() - memory_before)}

    def window(self, number: int, seconds: float) -> dict[str, Any]:
        """Run a network repeatedly for a measurement window.

        Args:
            number: number of the network.
            seconds: length of the window.

        Returns:
            `times`: the duration of each run in seconds.
        """
        run, start = self.networks[number], time.perf_counter()
        times: list[float] = []
        while len(times) < MIN_RUNS_PER_WINDOW or (
            time.perf_counter() - start < seconds and len(times) < MAX_RUNS
        ):
            times.append(run())
        return {"times": times}


def _processor_name() -> str:
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _resident_bytes() -> int:
    """Return the resident memory of this process and reset its peak; the peak where there is no /proc."""
    status = Path("/proc/self/statm")
    if status.is_file():
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        return int(status.read_text().split()[1]) * resource.getpagesize()
    return _peak_bytes()


def _peak_bytes() -> int:
    """Return the peak resident memory of this process since `_resident_bytes`."""
    status = Path("/proc/self/status")
    if status.is_file():
        (line,) = (entry for entry in status.read_text().splitlines() if entry.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _end_without_gpu(handler: Callable[..., dict[str, Any]], worker: Worker) -> Callable[..., dict[str, Any]]:
    """Return a handler that ends the process if an error has made its GPU unusable."""

    @wraps(handler)
    def handle(**arguments: Any) -> dict[str, Any]:
        try:
            return handler(**arguments)
        except Exception as error:
            if worker.device.device_type == "cuda" and not _gpu_answers():
                print(str(error).strip().splitlines()[0], file=sys.stderr, flush=True)
                os._exit(1)
            raise

    return handle


def _gpu_answers() -> bool:
    """Return whether this process can still use its GPU."""
    import torch

    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def handlers() -> Handlers:
    """Return the request handlers of a new worker."""
    worker = Worker()
    return {
        "open": worker.open,
        "load": _end_without_gpu(worker.load, worker),
        "window": _end_without_gpu(worker.window, worker),
    }


if __name__ == "__main__":
    serve_on_stdio(handlers())
