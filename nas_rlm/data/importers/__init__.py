"""Importers: a module for each benchmark's published files, with a function that reads them into rows."""

from nas_rlm.data.importers.registry import FORMATS, import_benchmark

__all__ = ["FORMATS", "import_benchmark"]
