"""Warnings of columns of CSV files that are not used, and whose names are nearly those of objectives."""

from __future__ import annotations

import re
from difflib import get_close_matches

from nas_rlm.data.objective_kinds import KINDS, VALID_NAME

MIN_SIMILARITY = 0.75  # of a column's name and the kind of an objective that it may mean
LATENCY_WORDS = ("time", "runtime", "lat", "latency", "duration", "inference")
MILLISECONDS, SECONDS, BYTES = "milliseconds", "seconds", "bytes"
TIME_UNITS = {
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "millisecond", MILLISECONDS), MILLISECONDS),
    **dict.fromkeys(("us", "µs", "μs", "usec", "usecs", "micros", "microseconds"), "microseconds"),
    **dict.fromkeys(("ns", "nsec", "nanos", "nanoseconds"), "nanoseconds"),
    **dict.fromkeys(("s", "sec", "secs", "second", SECONDS), SECONDS),
}
MEMORY = "memory"
MEMORY_WORDS = (MEMORY, "mem", "ram", "rss")
MEMORY_UNITS = {
    **dict.fromkeys(("b", "byte", BYTES), BYTES),
    **dict.fromkeys(("k", "kb", "kib", "kilobytes"), "kilobytes"),
    **dict.fromkeys(("m", "mb", "mib", "megabytes"), "megabytes"),
    **dict.fromkeys(("g", "gb", "gib", "gigabytes"), "gigabytes"),
}
_WORD_ENDS = re.compile(r"[_ .()\[\]/-]+")


def is_unnamed_latency(column: str) -> bool:
    """Return whether a column is called like a latency, but not like one of a device.

    Examples:
        >>> [is_unnamed_latency(column) for column in ("runtime_ms", "latency/pixel3")]
        [True, False]
    """
    return "/" not in column and all(word in (*LATENCY_WORDS, *TIME_UNITS) for word in _words(column))


def column_hint(column: str, of_programs: bool) -> str:
    """Return a warning of an unused column whose name is nearly that of an objective; empty for another.

    Examples:
        >>> column_hint("memory_kb", of_programs=True)
        "column 'memory_kb' is not used; is this memory in kilobytes? Convert it to bytes, in a column memory"

    Args:
        column: name of the column.
        of_programs: whether times are those of programs, not latencies of a device.
    """
    words = _words(column)
    units = [TIME_UNITS[word] for word in words if word in TIME_UNITS]
    sizes = [MEMORY_UNITS[word] for word in words if word in MEMORY_UNITS]
    start = re.split(r"[/_ .(-]", column)[0]
    kind = next(iter(get_close_matches(start.lower(), KINDS, n=1, cutoff=MIN_SIMILARITY)), "")
    if sizes and any(word in MEMORY_WORDS for word in words):
        advice = f"Give --objective {MEMORY}={column}"
        if sizes[0] != BYTES:
            advice = f"Convert it to {BYTES}, in a column {MEMORY}"
        return f"column {column!r} is not used; is this memory in {sizes[0]}? {advice}"
    is_time = kind == "time"  # which is of programs
    if is_time or is_unnamed_latency(column) or any(unit != SECONDS for unit in units):
        unit = units[0] if units else MILLISECONDS
        values, name = ("times", "time") if of_programs else ("latencies", "latency/mydevice")
        advice = f"{'Give' if of_programs else 'Name the device:'} --objective {name}={column}"
        if unit != MILLISECONDS:
            advice = f"Convert them to {MILLISECONDS}, in a column with the name {name}"
        return f"column {column!r} is not used; are these {values} in {unit}? {advice}"
    if not kind:
        return ""
    rest = column[len(start) :].strip("/_ .()-")
    name = f"{kind}/{rest}" if rest else kind
    if not VALID_NAME.fullmatch(name):
        name = kind
    if name == column:
        return f"column {column!r} is not used: it has no number"
    return (
        f"column {column!r} is not used; did you mean {name}? Rename it, or give --objective {name}={column}"
    )


def _words(column: str) -> list[str]:
    """Return the words of a column's name in lower case."""
    return [word for word in _WORD_ENDS.split(column.lower()) if word]
