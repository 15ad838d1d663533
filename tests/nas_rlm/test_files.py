import os
import stat
from pathlib import Path

import pytest

from nas_rlm.files import (
    atomic_directory,
    atomic_write,
    check_new_directory,
    check_target,
    check_writable,
    exclusive_lock,
    read_text,
    write_text,
)


def test_a_file_is_written_completely_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "a.txt"
    write_text(path, "first")
    with pytest.raises(RuntimeError), atomic_write(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError("power cut")
    assert path.read_text() == "first"
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"]


@pytest.mark.parametrize(("umask", "permissions"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_a_new_file_has_the_permissions_that_the_umask_allows(tmp_path, umask, permissions):
    before = os.umask(umask)
    try:
        write_text(tmp_path / "a.txt", "text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == permissions


@pytest.mark.parametrize("permissions", [0o600, 0o664, 0o444, 0o755])
def test_a_replaced_file_keeps_its_permissions(tmp_path, permissions):
    path = tmp_path / "a.txt"
    path.write_text("old")
    path.chmod(permissions)
    with atomic_write(path) as temporary:
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
        temporary.write_text("new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == permissions


def test_a_file_is_on_disk_before_it_replaces_another(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    synced = []

    def fsync(descriptor):
        synced.append((os.pread(descriptor, 9, 0), path.read_text()))

    monkeypatch.setattr(os, "fsync", fsync)
    write_text(path, "new")
    assert synced == [(b"new", "old")]
    assert path.read_text() == "new"


def test_links_are_followed(tmp_path):
    write_text(tmp_path / "real.txt", "old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    write_text(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"


def test_devices_are_not_replaced():
    write_text("/dev/null", "gone")
    assert not os.path.isfile("/dev/null")


def test_targets_that_cannot_be_written_are_rejected(tmp_path):
    write_text(tmp_path / "file", "")
    for path in (tmp_path, tmp_path / "file" / "below.csv", ""):
        with pytest.raises(ValueError, match=r"is a directory|is a file, not a directory"):
            check_target(path)
    if os.path.isdir("/proc/self"):
        with pytest.raises(ValueError, match=r"'/proc/self/x.csv' cannot be written \(.*\): expected a path"):
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


def test_directories_that_cannot_be_used_are_rejected(tmp_path):
    write_text(tmp_path / "full" / "file", "")
    for path, message in (
        (tmp_path / "full", "is not empty"),
        (tmp_path / "full" / "file", "is a file: expected a new or empty directory"),
        (tmp_path / "full" / "file" / "below", "is a file, not a directory"),
    ):
        with pytest.raises(ValueError, match=message):
            check_new_directory(path)
    (tmp_path / "empty").mkdir()
    check_new_directory(tmp_path / "empty")


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a directory without write permission")
def test_directories_without_write_permission_are_rejected():
    for check in (check_new_directory, check_target):
        with pytest.raises(ValueError, match="'/proc/new' cannot be written"):
            check("/proc/new")


def test_a_byte_order_mark_is_dropped(tmp_path):
    (tmp_path / "a.txt").write_bytes("\ufeffcell\n".encode())
    assert read_text(tmp_path / "a.txt", "cells") == "cell\n"
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"b\.txt' is not text in UTF-8: expected cells"):
        read_text(tmp_path / "b.txt", "cells")


def test_links_that_lead_to_themselves_are_rejected(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for check in (check_target, check_new_directory):
        with pytest.raises(ValueError, match="is a link that leads to itself"):
            check(tmp_path / "loop")


def test_a_link_to_nothing_is_rejected(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for path in (tmp_path / "link", tmp_path / "link" / "below"):
        with pytest.raises(ValueError, match=r"link' is a link to '.*nowhere', which is missing"):
            check_writable(path)


def test_long_names(tmp_path):
    write_text(tmp_path / ("a" * 250), "text")
    assert (tmp_path / ("a" * 250)).read_text() == "text"


def test_a_lock_is_held_once_at_a_time(tmp_path):
    out = tmp_path / "t.parquet"
    with exclusive_lock(out):
        with exclusive_lock(tmp_path / "other"):
            pass
        with (
            pytest.raises(ValueError, match=r"another process is writing to .*t\.parquet'"),
            exclusive_lock(out),
        ):
            pass
    with exclusive_lock(out):
        assert not any(tmp_path.iterdir())


def test_a_directory_is_written_completely_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "model"
    with pytest.raises(RuntimeError), atomic_directory(path) as temporary:
        write_text(temporary / "a.txt", "half")
        raise RuntimeError("power cut")
    assert [*path.parent.iterdir()] == []
    path.mkdir()
    with atomic_directory(path) as temporary:
        write_text(temporary / "a.txt", "text")
    assert (path / "a.txt").read_text() == "text"
    with pytest.raises(ValueError, match="is not empty"), atomic_directory(path):
        pass
