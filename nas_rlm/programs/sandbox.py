"""What a process gives up when it confines itself: writing files, networks, starting and ending processes.

Several layers, of which each machine has some: limits of the operating system, namespaces, Landlock and
seccomp on Linux, and everywhere a hook within the interpreter, which tells a program what it may not do. What
the hook holds is no fortress against code made to break out of an interpreter; what Linux holds is.

Only the standard library: this file is run by processes that see nothing else.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import sys
from collections.abc import Callable
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
FILTER, MODE = 22, 2  # prctl's names of a filter of system calls
# What it answers: an error of no permission, of no such call.
ALLOW, DENY, UNKNOWN = 0x7FFF0000, 0x00050001, 0x00050026
LOAD, EQUAL, LARGER, HAS, ANSWER = 0x20, 0x15, 0x35, 0x45, 0x06  # its instructions
CALL, ARCHITECTURE, FIRST = 0, 4, 16  # where it finds a call's number and its first argument
OTHER_TABLE, THREAD = 0x40000000, 0x10000
# For each kind of machine what it is called, clone and clone3, and the calls that are refused: sockets,
# programs, signals and memory of others, attributes of files, sessions and what keeps a process alive without
# its parent, memory between processes, and what gets around a filter.
CALLS = {
    "x86_64": (
        0xC000003E,
        (56, 435),
        (
            *(41, 57, 58, 59, 322),
            *(62, 129, 200, 234, 297, 424, 101, 310, 311),
            *(90, 91, 268, 452, 92, 93, 94, 260, 188, 189, 190, 197, 198, 199, 132, 235, 261, 280),
            *(112, 109, 157),
            *(29, 64, 68, 240),
            *(425, 321, 165, 308, 272, 161),
        ),
    ),
    "aarch64": (
        0xC00000B7,
        (220, 435),
        (
            *(198, 221, 281),
            *(129, 138, 130, 131, 240, 424, 117, 270, 271),
            *(52, 53, 452, 54, 55, 5, 6, 7, 14, 15, 16, 88),
            *(157, 154, 167),
            *(194, 190, 186, 180),
            *(425, 280, 40, 268, 97, 51),
        ),
    ),
}
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


def separate() -> bool:
    """Leave the machine's network and processes behind, where the system lets one; the next child does."""
    if sys.platform != "linux":
        return False
    library = ctypes.CDLL(None)
    return not (library.unshare(NEW_USER | NEW_NET | NEW_PID) and library.unshare(NEW_NET | NEW_PID))


def end_with_parent() -> None:
    """Be killed when the parent is."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DIES, KILL)


def confine(memory: int, seconds: int) -> list[str]:
    """Give up, for good, whatever a program that computes does not need.

    Args:
        memory: bytes of address space.
        seconds: of computing.

    Returns:
        The layers below Python that hold: landlock, which keeps from writing, and seccomp, which keeps from
        networks and other processes.
    """
    limits = {"AS": memory, "CPU": seconds, "FSIZE": 0, "NOFILE": FILES, "CORE": 0, "NPROC": FILES}
    for name, most in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}", None)
        if kind is not None:
            hard = resource.getrlimit(kind)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            try:
                resource.setrlimit(kind, (most, most))
            except (ValueError, OSError):  # macOS knows some of them and sets none
                continue
    layers = {"landlock": _landlock, "seccomp": _seccomp} if sys.platform == "linux" else {}
    held = [name for name, layer in layers.items() if layer()]
    sys.addaudithook(_hook())
    return held


def _landlock() -> bool:
    """Refuse to write and to connect, where the kernel has Landlock."""
    library = ctypes.CDLL(None, use_errno=True)
    version = library.syscall(CREATE, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return False
    handled = [
        sum(bits for first, bits in kind.items() if first <= version) for kind in (WRITES, TCP, SCOPES)
    ]
    rules = (ctypes.c_uint64 * 3)(*handled)
    size = 8 * (1 + (version >= 4) + (version >= 6))
    ruleset = library.syscall(CREATE, ctypes.byref(rules), ctypes.c_size_t(size), 0)
    if ruleset < 0:
        return False
    nothing = os.open(os.devnull, os.O_RDWR)
    allowed = (ctypes.c_char * 12).from_buffer_copy(
        WRITE_FILE.to_bytes(8, sys.byteorder) + nothing.to_bytes(4, sys.byteorder)
    )
    library.syscall(ADD, ruleset, BENEATH, ctypes.byref(allowed), 0)
    library.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    failed = library.syscall(RESTRICT, ruleset, 0)
    os.close(nothing)
    os.close(ruleset)
    return not failed


def _seccomp() -> bool:
    """Refuse system calls, where their numbers are known."""
    if platform.machine() not in CALLS:
        return False
    architecture, (clone, clone3), refused = CALLS[platform.machine()]
    allow = 8 + len(refused)  # the places of the last three instructions
    deny, unknown = allow + 1, allow + 2
    # Each with what it compares to, and the places that follow if it is so and if not.
    steps = [
        (LOAD, ARCHITECTURE, 0, 0),
        (EQUAL, architecture, 2, deny),
        (LOAD, CALL, 0, 0),
        (LARGER, OTHER_TABLE, deny, 4),
        (EQUAL, clone3, unknown, 5),  # whose arguments cannot be read: clone is called in its place
        (EQUAL, clone, 6, 8),
        (LOAD, FIRST, 0, 0),
        (HAS, THREAD, allow, deny),
        *((EQUAL, number, deny, place + 1) for place, number in enumerate(refused, 8)),
        *((ANSWER, answer, 0, 0) for answer in (ALLOW, DENY, UNKNOWN)),
    ]

    class Step(ctypes.Structure):
        _fields_ = (
            ("code", ctypes.c_uint16),
            ("then", ctypes.c_uint8),
            ("otherwise", ctypes.c_uint8),
            ("value", ctypes.c_uint32),
        )

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_uint16), ("steps", ctypes.POINTER(Step)))

    # Jumps count from the next instruction.
    written = (Step * len(steps))(
        *(
            Step(
                code, *((then - i - 1, otherwise - i - 1) if code in (EQUAL, LARGER, HAS) else (0, 0)), value
            )
            for i, (code, value, then, otherwise) in enumerate(steps)
        )
    )
    library = ctypes.CDLL(None)
    library.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    return not library.prctl(FILTER, MODE, ctypes.byref(Program(len(steps), written)), 0, 0)


def _hook() -> Callable[[str, tuple[Any, ...]], None]:
    """What refuses within the interpreter; it goes by nothing that a program finds by its name."""
    refused, nothing, error = REFUSED, os.devnull, PermissionError
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if flags & writing and path != nothing and type(path) is not int:
                raise error(f"a measured program may not write {path!r}")
        elif event.startswith(refused):
            raise error(f"a measured program may not do {event}")

    return refuse
