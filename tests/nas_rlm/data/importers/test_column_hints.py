import pytest

from nas_rlm.data.importers.column_hints import column_hint, is_unnamed_latency


@pytest.mark.parametrize(
    ("column", "unit"),
    [
        *(("memory (MB)", "megabytes"), ("mem_kb", "kilobytes"), ("Memory KiB", "kilobytes")),
        *(("peak_rss_gb", "gigabytes"), ("ram [M]", "megabytes")),
    ],
)
def test_memory_in_other_units_is_to_be_converted(column, unit):
    expected = f"is this memory in {unit}? Convert it to bytes, in a column memory"
    assert column_hint(column, of_programs=True).endswith(expected)


def test_memory_in_bytes_is_to_be_named():
    hint = column_hint("memory_bytes", of_programs=False)
    assert hint.endswith("is this memory in bytes? Give --objective memory=memory_bytes")


def test_a_column_of_a_kind_gets_its_name():
    assert "did you mean memory/val?" in column_hint("memry_val", of_programs=True)
    assert column_hint("author", of_programs=True) == ""


def test_latencies_of_no_device_are_told_from_others():
    assert is_unnamed_latency("runtime_ms") and is_unnamed_latency("Time")
    assert not is_unnamed_latency("latency/pixel3") and not is_unnamed_latency("ms_of_pixel3")
