"""What a process gives up when it confines itself: writing files, networks, starting and ending processes.

Several layers, of which each machine has some: limits of the operating system, Landlock and namespaces on
Linux, and everywhere a hook within the interpreter. It is made for careless programs and for hostile ones
that go through Python; it is no fortress against code made to break out of an interpreter.

Only the standard library: this file is run by processes that see nothing else.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from typing import Any

FILES = 64  # that are open at a time
NEW_USER, NEW_NET, NEW_PID = 0x10000000, 0x40000000, 0x20000000
PARENT_DIES, NO_NEW_PRIVILEGES, KILL = 1, 38, 9
# Landlock's system calls, and what it is to refuse by the version that first could.
CREATE, ADD, RESTRICT = 444, 445, 446
WRITES = {1: 0b1111111110010, 2: 1 << 13, 3: 1 << 14}  # write, remove, make; refer; truncate
TCP = {4: 0b11}  # bind, connect
SCOPES = {6: 0b11}  # abstract sockets and signals beyond itself
WRITE_FILE, BENEATH = 0b10, 1
# Audit events, by how their names begin, see the table in Python's documentation.
REFUSED = (
    *(
        "ctypes.",
        "os.chflags",
        "os.chmod",
        "os.chown",
        "os.exec",
        "os.fork",
        "os.kill",
        "os.link",
        "os.mkdir",
    ),
    *("os.posix_spawn", "os.remove", "os.rename", "os.rmdir", "os.setxattr", "os.spawn", "os.symlink"),
    *("os.system", "os.truncate", "os.utime", "pty.spawn", "shutil.", "signal.pthread_kill", "socket."),
    "subprocess.",
)


def separate() -> None:
    """Leave the machine's network and processes behind, where the system lets one; the next child does."""
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        if library.unshare(NEW_USER | NEW_NET | NEW_PID):
            library.unshare(NEW_NET | NEW_PID)


def end_with_parent() -> None:
    """Be killed when the parent is."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DIES, KILL)


def confine(memory: int, seconds: int) -> None:
    """Give up, for good, whatever a program that computes does not need.

    Args:
        memory: bytes of address space.
        seconds: of computing.
    """
    limits = {"AS": memory, "CPU": seconds, "FSIZE": 0, "NOFILE": FILES, "CORE": 0, "NPROC": FILES}
    for name, most in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}", None)
        if kind is not None:
            held = resource.getrlimit(kind)[1]
            most = most if held == resource.RLIM_INFINITY else min(most, held)
            try:
                resource.setrlimit(kind, (most, most))
            except (ValueError, OSError):  # macOS knows some of them and sets none
                continue
    _landlock()
    sys.addaudithook(_refuse)


def _landlock() -> None:
    """Refuse to write and to connect, below Python, where the kernel has Landlock."""
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None, use_errno=True)
    version = library.syscall(CREATE, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return
    handled = [
        sum(bits for first, bits in kind.items() if first <= version) for kind in (WRITES, TCP, SCOPES)
    ]
    rules = (ctypes.c_uint64 * 3)(*handled)
    size = 8 * (1 + (version >= 4) + (version >= 6))
    ruleset = library.syscall(CREATE, ctypes.byref(rules), ctypes.c_size_t(size), 0)
    if ruleset < 0:
        return
    nothing = os.open(os.devnull, os.O_RDWR)
    allowed = (ctypes.c_char * 12).from_buffer_copy(
        WRITE_FILE.to_bytes(8, sys.byteorder) + nothing.to_bytes(4, sys.byteorder)
    )
    library.syscall(ADD, ruleset, BENEATH, ctypes.byref(allowed), 0)
    library.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    library.syscall(RESTRICT, ruleset, 0)
    os.close(nothing)
    os.close(ruleset)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        path, _, flags = arguments
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        if writes and path != os.devnull and not isinstance(path, int):
            raise PermissionError(f"a measured program may not write {path!r}")
    elif event.startswith(REFUSED):
        raise PermissionError(f"a measured program may not do {event}")
