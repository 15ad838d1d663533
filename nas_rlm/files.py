"""Files that are whole or not there."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

ASSETS = Path(__file__).parent / "assets"  # shipped models and tables of constants
RECIPES = Path(__file__).parent / "recipes"


def check_target(path: str | os.PathLike[str]) -> None:
    """Refuse, before any work is done, a path at which no file can be written.

    Raises:
        ValueError: the path is a folder, or it lies below a file or where one may not write.
    """
    target = _checked(path)
    if not _is_special(target):
        check_writable(path)


def _checked(path: str | os.PathLike[str]) -> Path:
    """A path at which a file can be, as far as its name tells."""
    target = Path(path)
    try:
        if not str(path).strip() or target.is_dir():
            raise ValueError(f"{str(path)!r} is a folder: expected the name of a file to write")
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be written: {error}") from None
    check_links(target)
    _check_parents(target)
    return target


def _is_special(target: Path) -> bool:
    """Whether it is a pipe, a device or the like, and is written through instead of replaced."""
    return target.is_relative_to("/dev") or (target.exists() and not target.is_file())


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a path where nobody can write: into the folder, or into the nearest one above that there is."""
    target = Path(path).absolute()
    folder = next(one for one in (target, *target.parents) if one.is_dir())
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _refusal(path, error) from None


def _refusal(path: str | os.PathLike[str], error: OSError) -> ValueError:
    return ValueError(
        f"{str(path)!r} cannot be written ({error.strerror}): expected a place in a folder of yours"
    )


def check_folder(path: str | os.PathLike[str]) -> None:
    """Refuse, before any work is done, a folder that holds something.

    Raises:
        ValueError: the path is a file or below one, the folder is not empty, or one may not write there.
    """
    folder = Path(path)
    check_links(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{str(path)!r} is a file: expected a new or empty folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"{str(path)!r} is not empty: expected a new or empty folder")
    _check_parents(folder)
    check_writable(folder)


def check_links(path: Path) -> None:
    """Refuse a path whose links go in circles."""
    try:
        path.resolve()
    except (OSError, RuntimeError):
        raise ValueError(f"{str(path)!r} is a link that leads to itself") from None


def _check_parents(path: Path) -> None:
    for parent in path.parents:
        if parent.exists() and not parent.is_dir():
            raise ValueError(f"{str(path)!r} cannot be made: {str(parent)!r} is a file, not a folder")


@contextmanager
def atomic(path: str | os.PathLike[str]) -> Iterator[Path]:
    r"""A temporary path beside `path` that takes its place if the block ends without an error.

    Links are followed; what is no regular file (a pipe, a device) is written through instead of replaced.

    >>> with atomic("front.csv") as temporary:
    ...     temporary.write_text("arch,accuracy\n")
    """
    target = _checked(path).absolute()
    special = _is_special(target)
    target = target if special else target.resolve()
    folder = Path(tempfile.gettempdir()) if special else target.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=f".{target.name[:32]}.", suffix=target.suffix)
    except OSError as error:
        raise _refusal(path, error) from None
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        if special:
            with open(target, "ab") as opened:
                opened.write(temporary.read_bytes())
        else:
            os.chmod(temporary, 0o644)
            os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def alone(path: str | os.PathLike[str]) -> Iterator[None]:
    """Within it no other process of this machine's user is within the same for a file or a folder.

    Raises:
        ValueError: another one is.
    """
    digest = hashlib.sha256(str(Path(path).resolve()).encode()).hexdigest()[:20]
    user = getattr(os, "getuid", int)()
    lock = FileLock(Path(tempfile.gettempdir()) / f"nas-rlm-{user}-{digest}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(
            f"another process writes to {str(path)!r} now: wait for its end, or choose another name"
        ) from None
    try:
        yield
    finally:
        lock.release()


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file whole."""
    with atomic(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file whole, in UTF-8; what is no Unicode, as names of files can be, as its number."""
    write_bytes(path, text.encode(errors="backslashreplace"))


def read_text(path: str | os.PathLike[str], expected: str) -> str:
    """A text file in UTF-8, with or without a byte order mark.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no text; the message says what was expected.
    """
    try:
        return Path(path).read_text("utf-8-sig")
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {str(path)!r}: expected {expected}") from None
    except IsADirectoryError:
        raise ValueError(f"{str(path)!r} is a folder: expected a file with {expected}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{str(path)!r} is not text in UTF-8: expected {expected}") from None
