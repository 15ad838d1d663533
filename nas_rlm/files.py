"""Atomic writes, locks and checks of paths; files are complete or do not exist."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

ASSETS = Path(__file__).parent / "assets"  # shipped models and tables of constants
RECIPES = Path(__file__).parent / "recipes"  # shipped training recipes
NO_CSV_SUFFIXES = (".json", ".jsonl", ".ndjson", ".parquet", ".xlsx")  # of tables that are no CSV files


class NotWritableError(ValueError):
    """A path that cannot be written to.

    Args:
        path: the path.
        reason: why, as the operating system says.
    """

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return (
            f"{str(self.path)!r} cannot be written ({self.reason}): expected a path in a writable directory"
        )


def check_target(path: str | os.PathLike[str]) -> None:
    """Check, before any work is done, that a file can be written at a path.

    Raises:
        ValueError: the path is a directory, lies below a file, or cannot be written to.
    """
    target = _checked_target(path)
    if not _is_special(target):
        check_writable(path)


def check_new_directory(path: str | os.PathLike[str]) -> None:
    """Check, before any work is done, that a path can be used as a new directory.

    Raises:
        ValueError: the path is a file or lies below one, the directory is not empty, or it cannot be written
            to.
    """
    directory = Path(path)
    check_no_link_cycle(directory)
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"{str(path)!r} is a file: expected a new or empty directory")
    if directory.is_dir() and any(directory.iterdir()):
        raise ValueError(f"{str(path)!r} is not empty: expected a new or empty directory")
    _check_parents(directory)
    check_writable(directory)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Check that files can be written to a directory, or to its nearest parent that exists.

    Raises:
        NotWritableError: the directory is not writable, or a part of the path is a link to nothing.
    """
    target = Path(path).absolute()
    for part in (target, *target.parents):
        if part.is_symlink() and not part.exists():
            raise NotWritableError(
                path, f"{str(part)!r} is a link to {str(part.readlink())!r}, which is missing"
            )
    directory = next(parent for parent in (target, *target.parents) if parent.is_dir())
    try:
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise NotWritableError(path, str(error.strerror)) from None


def check_no_link_cycle(path: Path) -> None:
    """Check that the symbolic links of a path do not form a cycle.

    Raises:
        ValueError: the links form a cycle.
    """
    try:
        path.resolve()
    except (OSError, RuntimeError):
        raise ValueError(f"{str(path)!r} is a link that leads to itself") from None


def _checked_target(path: str | os.PathLike[str]) -> Path:
    """Return a path, checked not to be a directory and not to have a file as parent."""
    target = Path(path)
    try:
        if not str(path).strip() or target.is_dir():
            raise ValueError(f"{str(path)!r} is a directory: expected the name of a file to write")
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be written: {error}") from None
    check_no_link_cycle(target)
    _check_parents(target)
    return target


def _check_parents(path: Path) -> None:
    """Check that no parent of a path is a file."""
    for parent in path.parents:
        if parent.exists() and not parent.is_dir():
            raise ValueError(f"{str(path)!r} cannot be created: {str(parent)!r} is a file, not a directory")


def _is_special(target: Path) -> bool:
    """Return whether a path is a pipe, a device or the like, which is written to instead of replaced."""
    return target.is_relative_to("/dev") or (target.exists() and not target.is_file())


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    r"""Yield a temporary path, which replaces `path` if the block ends without an error.

    Links are followed. A pipe or device is written to instead of replaced. A replaced file keeps its
    permissions, and a new one has those that the umask allows.

    Examples:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as directory:
        ...     path = Path(directory) / "front.csv"
        ...     with atomic_write(path) as temporary:
        ...         _ = temporary.write_text("arch,accuracy\n")
        ...     path.read_text()
        'arch,accuracy\n'

    Raises:
        ValueError: the path cannot be written to.
    """
    target = _checked_target(path).absolute()
    is_special = _is_special(target)
    target = target if is_special else target.resolve()
    directory = Path(tempfile.gettempdir()) if is_special else target.parent
    try:
        directory.mkdir(parents=True, exist_ok=True)
        temporary = directory / f".{target.name[:32]}.{secrets.token_hex(4)}{target.suffix}"
        permissions = _create(temporary, None if is_special else target)
    except OSError as error:
        raise NotWritableError(path, str(error.strerror)) from None
    try:
        yield temporary
        if is_special:
            with open(target, "ab") as file:
                file.write(temporary.read_bytes())
        else:
            _wait_until_on_disk(temporary)  # else a power failure could leave an empty file
            os.chmod(temporary, permissions)
            os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_directory(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary directory, which becomes `path` if the block ends without an error.

    Raises:
        ValueError: the path is not that of a new or empty directory.
    """
    check_new_directory(path)
    target = Path(path).absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f".{target.name[:32]}.{secrets.token_hex(4)}"
    temporary.mkdir()
    try:
        yield temporary
        os.replace(temporary, target.resolve())
    except OSError as error:
        raise NotWritableError(path, str(error.strerror)) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _create(temporary: Path, target: Path | None) -> int:
    """Create an empty file, and return the permissions that it should have once it replaces a target.

    Args:
        temporary: the file.
        target: the file to replace, which need not exist; None for none.
    """
    is_private = target is None or target.exists()  # a replaced file may be private
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600 if is_private else 0o666))
    return stat.S_IMODE((target if target is not None and is_private else temporary).stat().st_mode)


def _wait_until_on_disk(path: Path) -> None:
    """Return when the content of a file is on disk."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def exclusive_lock(path: str | os.PathLike[str]) -> Iterator[None]:
    """Lock a file or directory within a `with` block, against other processes of this user on this machine.

    Raises:
        ValueError: another process holds the lock.
    """
    digest = hashlib.sha256(str(Path(path).resolve()).encode()).hexdigest()[:20]
    user = getattr(os, "getuid", int)()
    lock = FileLock(Path(tempfile.gettempdir()) / f"nas-rlm-{user}-{digest}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(
            f"another process is writing to {str(path)!r}: wait until it ends, or use another path"
        ) from None
    try:
        yield
    finally:
        lock.release()


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file atomically."""
    with atomic_write(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file atomically, in UTF-8; invalid Unicode, as in some file names, is escaped."""
    write_bytes(path, text.encode(errors="backslashreplace"))


def read_text(path: str | os.PathLike[str], expected: str) -> str:
    """Read a text file in UTF-8, with or without a byte order mark.

    Args:
        path: path of the file.
        expected: description of a valid file, for error messages.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the path is a directory, or the file is not text.
    """
    try:
        return Path(path).read_text("utf-8-sig")
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {str(path)!r}: expected {expected}") from None
    except IsADirectoryError:
        raise ValueError(f"{str(path)!r} is a directory: expected a file with {expected}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{str(path)!r} is not text in UTF-8: expected {expected}") from None
