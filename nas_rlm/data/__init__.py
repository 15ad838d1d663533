"""Data: the public schema of measured architectures, and splits that no architecture straddles."""

from nas_rlm.data.tables import Row, Table, data_directory, read, split, write

__all__ = ["Row", "Table", "data_directory", "read", "split", "write"]
