"""Devices: what a network takes in time and memory where it runs."""

from .device import Device
from .protocol import Failure, Measurement, measure

__all__ = ["Device", "Failure", "Measurement", "measure"]
