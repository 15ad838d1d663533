"""Devices: measurement of the latency and memory of networks on the runtimes of this or another machine.

A device is a runtime with its settings, named for example `onnxruntime-cpu-2t`. A worker is the process that
loads and runs networks, on this machine or, over ssh, on another one. A run is one forward pass; a window is
a short series of runs of one network. A plan has the settings of a measurement, such as the number of
windows.
"""

from nas_rlm.devices.device import Device
from nas_rlm.devices.profiler import Failure, Measurement, measure

__all__ = ["Device", "Failure", "Measurement", "measure"]
