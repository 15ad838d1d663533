"""Data: tables of measured architectures in the public schema, their splits, texts and importers.

A table has a row for each measured architecture or program. The notation of an architecture is its string in
the benchmark's format, the `arch_str` of its row. From it, the search space generates the text, which the
model reads, and the key, which is equal for architectures that compute the same function. An objective is a
quantity such as `accuracy` or `latency/pixel3`; the targets of a row are its values of objectives. The group
of a program is the problem that it solves: a split may keep groups together.
"""

from nas_rlm.data.splits import split
from nas_rlm.data.tables import Row, Table, data_directory, read, write

__all__ = ["Row", "Table", "data_directory", "read", "split", "write"]
