"""nn-Meter's dataset of latencies, and its graphs as ONNX models."""

from nas_rlm.data.importers.nn_meter.dataset import read_rows

__all__ = ["read_rows"]
