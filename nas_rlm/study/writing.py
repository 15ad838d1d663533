"""Errors of a study's own files, such as those of a full disk: they stop the study, no trial is to blame."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from nas_rlm.files import NotWritableError

FULL_DISK = (errno.ENOSPC, errno.EDQUOT)


class StorageError(OSError):
    """A file of a study cannot be written. Trials that run are evaluated again when the study goes on."""


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors of the operating system within a `with` block, which writes a file, into a `StorageError`.

    Args:
        path: the file, for the message.

    Raises:
        StorageError: the file cannot be written.
    """
    try:
        yield
    except StorageError:
        raise
    except NotWritableError as error:
        raise StorageError(storage_message(path, error.reason)) from error
    except OSError as error:
        raise StorageError(storage_message(path, error.strerror or str(error))) from error


@contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the lock of a file within a `with` block, against other processes.

    Args:
        path: the file, which is created.

    Raises:
        StorageError: the file cannot be created.
    """
    lock = FileLock(path)
    with writing(path):
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def check_disk(error: BaseException, directory: Path) -> None:
    """Refuse an error of a training that says that the disk is full.

    Args:
        error: the error.
        directory: directory of the trial, for errors that name no file.

    Raises:
        StorageError: the disk is full.
    """
    if isinstance(error, OSError) and error.errno in FULL_DISK:
        raise StorageError(storage_message(error.filename or directory, str(error.strerror))) from error


def storage_message(path: str | os.PathLike[str] | int, reason: str) -> str:
    """Return the message of a `StorageError`.

    Args:
        path: the file that cannot be written.
        reason: why.
    """
    return (
        f"{str(path)!r} cannot be written ({reason}), and the study stops: free disk space or change the"
        " permissions, and run the same again. Trials without a result are then evaluated again"
    )
