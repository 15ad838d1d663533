import json
import os

from nas_rlm.utils.json_lines import append_records, read_lines, truncate_after


def test_records_are_appended_and_read_back(tmp_path):
    path = tmp_path / "log.jsonl"
    assert read_lines(path) == ([], b"")
    records = [{"arch": "é\n", "values": [1.5, None]}, {"arch": "", "values": []}]
    first = append_records(path, records)
    second = append_records(path, records[:1])
    assert path.read_bytes() == b"".join([*first, *second])
    lines, incomplete = read_lines(path)
    assert [json.loads(line) for line in lines] == [*records, records[0]] and incomplete == b""
    assert append_records(path, []) == [] and read_lines(path)[0] == lines


def test_an_incomplete_last_line_is_removed(tmp_path):
    path = tmp_path / "log.jsonl"
    append_records(path, [{"a": i} for i in range(3)])
    content = path.read_bytes()
    for end in range(len(content)):
        path.write_bytes(content[:end])
        lines, incomplete = read_lines(path)
        assert b"".join(lines) + incomplete == content[:end]
        assert not incomplete.endswith(b"\n") and all(line.endswith(b"\n") for line in lines)
        truncate_after(path, lines)
        append_records(path, [{"a": i} for i in range(len(lines), 3)])
        assert path.read_bytes() == content


def test_records_are_on_disk_when_they_are_returned(tmp_path, monkeypatch):
    path, synced = tmp_path / "log.jsonl", []
    monkeypatch.setattr(os, "fsync", lambda _: synced.append(path.read_bytes()))
    lines = append_records(path, [{"a": 1}, {"a": 2}])
    assert synced == [b"".join(lines)]
