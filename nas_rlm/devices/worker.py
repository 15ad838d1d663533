"""The process in which networks run: it reads requests from its input and writes replies to its output.

    python -m nas_rlm.devices.worker

A runtime that crashes takes this process along and no other, and on another machine it is started by ssh.
"""

from __future__ import annotations

import gc
import os
import platform
import resource
import sys
import time
from pathlib import Path
from typing import Any

import onnx

from nas_rlm.devices.device import Device
from nas_rlm.devices.runtimes import Run, check, load, version_of
from nas_rlm.devices.serving import Answers, serve_standard

WARM, MOST_WARM = 3, 0.3  # runs, and seconds, before any counts
FEWEST, MOST = 3, 5000  # runs in a window


class Worker:
    """The networks that a process holds, by number."""

    def __init__(self) -> None:
        self.networks: dict[int, Run] = {}
        self.device = Device("onnxruntime")

    def open(self, device: str) -> dict[str, Any]:
        """Settle on a device, and tell of the machine."""
        self.device = Device.named(device)
        check(self.device)
        allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
        if self.device.place == "cpu" and allowed:
            os.sched_setaffinity(0, allowed[: self.device.threads])
        gc.disable()
        return {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "system": platform.platform(),
            "python": platform.python_version(),
            "runtime": version_of(self.device.runtime),
            "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        }

    def load(self, number: int, content: bytes) -> dict[str, Any]:
        """Load a network and run it until it is warm; `memory` is true of the first one of a process."""
        model = onnx.load_model_from_string(content)
        before = _resident()
        run = load(model, self.device)
        start = time.perf_counter()
        for done in range(MOST):
            run()
            if done >= WARM and time.perf_counter() - start > MOST_WARM:
                break
        self.networks[number] = run
        return {"memory": max(0, _peak() - before)}

    def window(self, number: int, seconds: float) -> dict[str, Any]:
        """Run a network for some seconds: how long each run took."""
        run, start = self.networks[number], time.perf_counter()
        times: list[float] = []
        while len(times) < FEWEST or (time.perf_counter() - start < seconds and len(times) < MOST):
            times.append(run())
        return {"times": times}


def _processor() -> str:
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _resident() -> int:
    """Bytes that this process holds now, or at most so far where the system does not say."""
    status = Path("/proc/self/statm")
    if status.is_file():
        # A new peak counts from here on.
        Path("/proc/self/clear_refs").write_text("5")
        return int(status.read_text().split()[1]) * resource.getpagesize()
    return _peak()


def _peak() -> int:
    """The most bytes that this process has held since `_resident`."""
    status = Path("/proc/self/status")
    if status.is_file():
        (line,) = (one for one in status.read_text().splitlines() if one.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def answers() -> Answers:
    """What a worker can be asked for."""
    worker = Worker()
    return {"open": worker.open, "load": worker.load, "window": worker.window}


if __name__ == "__main__":
    serve_standard(answers())
