"""Data: tables of measured architectures in the public schema, their splits, texts and importers."""

from nas_rlm.data.splits import split
from nas_rlm.data.tables import Row, Table, data_directory, read, write

__all__ = ["Row", "Table", "data_directory", "read", "split", "write"]
