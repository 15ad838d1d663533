"""Devices: what a network takes in time and memory where it runs."""

from nas_rlm.devices.device import Device
from nas_rlm.devices.profiler import Failure, Measurement, measure

__all__ = ["Device", "Failure", "Measurement", "measure"]
