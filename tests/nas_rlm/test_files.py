import os
import stat
from pathlib import Path

import pytest

from nas_rlm.files import alone, atomic, check_folder, check_target, read_text, write_text


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "a.txt"
    write_text(path, "first")
    with pytest.raises(RuntimeError), atomic(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError("power cut")
    assert path.read_text() == "first"
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_links_are_followed(tmp_path):
    write_text(tmp_path / "real.txt", "old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    write_text(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"


def test_devices_are_written_through():
    write_text("/dev/null", "gone")
    assert not os.path.isfile("/dev/null")


def test_targets_that_cannot_be_written(tmp_path):
    write_text(tmp_path / "file", "")
    for path in (tmp_path, tmp_path / "file" / "below.csv", ""):
        with pytest.raises(ValueError, match=r"is a folder|is a file, not a folder"):
            check_target(path)
    if os.path.isdir("/proc/self"):
        with pytest.raises(
            ValueError, match=r"'/proc/self/x.csv' cannot be written \(.*\): expected a place"
        ):
            check_target("/proc/self/x.csv")
        with pytest.raises(ValueError, match=r"'/proc/self/x.csv' cannot be written"):
            write_text("/proc/self/x.csv", "")
        reading, writing = os.pipe()
        check_target(f"/proc/self/fd/{writing}")
        write_text(f"/proc/self/fd/{writing}", "through")
        assert os.read(reading, 20) == b"through"
        os.close(reading)
        os.close(writing)
    check_target(tmp_path / "file")
    check_target(tmp_path / "a" / "b.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert not (tmp_path / "a").exists()


def test_folders_that_cannot_be_used(tmp_path):
    write_text(tmp_path / "full" / "file", "")
    for path, message in (
        (tmp_path / "full", "is not empty"),
        (tmp_path / "full" / "file", "is a file: expected a new or empty folder"),
        (tmp_path / "full" / "file" / "below", "is a file, not a folder"),
    ):
        with pytest.raises(ValueError, match=message):
            check_folder(path)
    (tmp_path / "empty").mkdir()
    check_folder(tmp_path / "empty")


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder where nobody can write")
def test_folders_where_nobody_can_write():
    for check in (check_folder, check_target):
        with pytest.raises(ValueError, match="'/proc/new' cannot be written"):
            check("/proc/new")


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    (tmp_path / "a.txt").write_bytes("\ufeffcell\n".encode())
    assert read_text(tmp_path / "a.txt", "cells") == "cell\n"
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"b\.txt' is not text in UTF-8: expected cells"):
        read_text(tmp_path / "b.txt", "cells")


def test_links_that_lead_to_themselves(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for check in (check_target, check_folder):
        with pytest.raises(ValueError, match="is a link that leads to itself"):
            check(tmp_path / "loop")


def test_long_names(tmp_path):
    write_text(tmp_path / ("a" * 250), "kept")
    assert (tmp_path / ("a" * 250)).read_text() == "kept"


def test_one_process_at_a_time(tmp_path):
    out = tmp_path / "t.parquet"
    with alone(out):
        with alone(tmp_path / "other"):
            pass
        with pytest.raises(ValueError, match=r"another process writes to .*t\.parquet' now"), alone(out):
            pass
    with alone(out):
        assert not any(tmp_path.iterdir())
