"""Devices: measurement of the latency and memory of networks on the runtimes of this or another machine."""

from nas_rlm.devices.device import Device
from nas_rlm.devices.profiler import Failure, Measurement, measure

__all__ = ["Device", "Failure", "Measurement", "measure"]
