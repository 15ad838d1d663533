"""Importers: one module for each publisher's file format. Each reads files into rows."""

from nas_rlm.data.importers.registry import FORMATS, import_benchmark

__all__ = ["FORMATS", "import_benchmark"]
