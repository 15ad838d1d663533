"""The name of a device: a runtime, where it computes, with how many threads and on how many examples."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nas_rlm.utils.validation import hint

RUNTIMES = ("onnxruntime", "openvino", "ncnn", "litert", "mnn", "torch", "torch-compile")
ON_CUDA = ("onnxruntime", "torch", "torch-compile")
MOST_THREADS, MOST_BATCH = 1024, 65_536
EXAMPLE = "onnxruntime-cpu-1t, openvino-cpu-2t or torch-cuda-b32"

_NAME = re.compile(r"(?P<runtime>[a-z-]+?)(-(?P<place>cpu|cuda))?(-(?P<threads>\d+)t)?(-b(?P<batch>\d+))?")


@dataclass(frozen=True)
class Device:
    """Where and how networks run.

    >>> str(Device.named("onnxruntime"))
    'onnxruntime-cpu-1t'
    >>> Device.named("torch-cuda-b32")
    Device(runtime='torch', place='cuda', threads=1, batch=32)

    Args:
        runtime: one of `RUNTIMES`.
        place: cpu or cuda.
        threads: that compute one network, on a cpu.
        batch: examples at once.
    """

    runtime: str
    place: str = "cpu"
    threads: int = 1
    batch: int = 1

    @classmethod
    def named(cls, name: str) -> Device:
        """From a name such as `EXAMPLE`; one thread and one example where it does not say.

        Raises:
            ValueError: no such device.
        """
        found = _NAME.fullmatch(name)
        if found is None:
            raise ValueError(f"{name!r} is no device: expected a runtime, place and threads: {EXAMPLE}")
        runtime, place = found["runtime"], found["place"] or "cpu"
        if runtime not in RUNTIMES:
            raise ValueError(f"there is no runtime {runtime!r}; {hint(runtime, RUNTIMES)}")
        if place == "cuda" and (runtime not in ON_CUDA or found["threads"]):
            raise ValueError(
                f"{name!r} is no device: on cuda there are {', '.join(ON_CUDA)}, without threads"
            )
        threads, batch = int(found["threads"] or 1), int(found["batch"] or 1)
        if not (1 <= threads <= MOST_THREADS and 1 <= batch <= MOST_BATCH):
            raise ValueError(
                f"{name!r} has {threads} threads and a batch of {batch}:"
                f" expected 1 to {MOST_THREADS} and 1 to {MOST_BATCH:,}"
            )
        return cls(runtime, place, threads, batch)

    def __str__(self) -> str:
        threads = f"-{self.threads}t" if self.place == "cpu" else ""
        batch = f"-b{self.batch}" if self.batch > 1 else ""
        return f"{self.runtime}-{self.place}{threads}{batch}"
