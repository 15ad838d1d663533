"""Confinement of the current process: no writing, no network, no control of other processes.

The layers are resource limits; on Linux, also namespaces, Landlock and seccomp, where the kernel supports
them; and an audit hook of the interpreter, which gives clear error messages. The audit hook does not stop
code that is written to break out of the interpreter; the layers of the kernel do.

This file uses only the standard library, because it is imported by processes without other packages.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

MAX_OPEN_FILES = MAX_PROCESSES = 64
CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWPID, CLONE_THREAD = 0x10000000, 0x40000000, 0x20000000, 0x10000
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
SECCOMP_MODE_FILTER = 2
# Landlock: system calls, and the rights to restrict by the version of the kernel interface that has them.
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
LANDLOCK_GET_VERSION = 1
# Write, remove, make; refer; truncate; commands to devices.
WRITE_RIGHTS = {1: 0b1111111110010, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
TCP_RIGHTS = {4: 0b11}  # bind, connect
SCOPES = {6: 0b11}  # abstract sockets and signals outside the sandbox
RIGHT_WRITE_FILE, RULE_PATH_BENEATH = 0b10, 1
# Seccomp: actions of a filter, with the error number where there is one.
ACTION_ALLOW, ACTION_EPERM, ACTION_ENOSYS = 0x7FFF0000, 0x00050001, 0x00050026
# BPF instructions, and the offsets of what they load.
BPF_LOAD, BPF_JUMP_EQUAL, BPF_JUMP_GREATER_EQUAL, BPF_JUMP_ANY_BIT, BPF_RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
BPF_JUMPS = (BPF_JUMP_EQUAL, BPF_JUMP_GREATER_EQUAL, BPF_JUMP_ANY_BIT)
OFFSET_SYSCALL, OFFSET_ARCHITECTURE, OFFSET_FIRST_ARGUMENT = 0, 4, 16
X32_SYSCALLS = 0x40000000  # the first number of a second system call table of x86-64
# For each machine: its audit architecture; the numbers of clone and clone3; the system calls to refuse, which
# are sockets and programs, signals and access to other processes, attributes of files, sessions and what
# outlives the parent, shared memory and queues, keys, priorities, and io_uring, bpf and other ways around a
# filter; and the calls to refuse unless their first argument, a process, is 0 for the caller: limits,
# scheduling and the choice of cores.
SYSCALLS = {
    "x86_64": (
        0xC000003E,
        (56, 435),
        (
            *(41, 57, 58, 59, 322),
            *(62, 129, 200, 234, 297, 424, 101, 310, 311),
            *(90, 91, 268, 452, 92, 93, 94, 260, 188, 189, 190, 197, 198, 199, 132, 235, 261, 280),
            *(463, 466, 469),
            *(112, 109, 157),
            *(29, 64, 68, 240),
            *(248, 249, 250),
            *(141, 251),
            *(425, 321, 165, 308, 272, 161),
        ),
        (302, 142, 144, 203, 314),
    ),
    "aarch64": (
        0xC00000B7,
        (220, 435),
        (
            *(198, 221, 281),
            *(129, 138, 130, 131, 240, 424, 117, 270, 271),
            *(52, 53, 452, 54, 55, 5, 6, 7, 14, 15, 16, 88),
            *(463, 466, 469),
            *(157, 154, 167),
            *(194, 190, 186, 180),
            *(217, 218, 219),
            *(140, 30),
            *(425, 280, 40, 268, 97, 51),
        ),
        (261, 118, 119, 122, 274),
    ),
}
# Prefixes of the refused audit events, see the table of audit events in Python's documentation.
REFUSED_EVENTS = (
    *("ctypes.", "os.chflags", "os.chmod", "os.chown", "os.exec", "os.fork", "os.kill", "os.link"),
    *("os.mkdir", "os.posix_spawn", "os.remove", "os.rename", "os.rmdir", "os.setxattr", "os.spawn"),
    *("os.symlink", "os.system", "os.truncate", "os.utime", "pty.spawn", "shutil.", "signal.pthread_kill"),
    *("socket.", "subprocess."),
)


def enter_namespaces() -> bool:
    """Enter a new network namespace, and a new process namespace in which the next child starts.

    Returns:
        Whether the system supports and allows it.
    """
    if sys.platform != "linux":
        return False
    library = ctypes.CDLL(None)
    return not (
        library.unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWPID)
        and library.unshare(CLONE_NEWNET | CLONE_NEWPID)
    )


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends, on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


def confine(memory_bytes: int, cpu_seconds: int) -> list[str]:
    """Restrict this process permanently: no writing, no network, no control of other processes.

    Args:
        memory_bytes: limit of the address space in bytes.
        cpu_seconds: limit of the CPU time in seconds.

    Returns:
        Names of the active layers of the operating system: `landlock` refuses writing, `seccomp` refuses
        networks and control of other processes.
    """
    _set_resource_limits(memory_bytes, cpu_seconds)
    layers = {"landlock": _apply_landlock, "seccomp": _apply_seccomp} if sys.platform == "linux" else {}
    active = [name for name, apply in layers.items() if apply()]
    sys.addaudithook(_make_audit_hook())
    return active


def _set_resource_limits(memory_bytes: int, cpu_seconds: int) -> None:
    """Set the limits of this process that the system supports."""
    limits = {"AS": memory_bytes, "CPU": cpu_seconds, "FSIZE": 0, "CORE": 0}
    limits |= {"NOFILE": MAX_OPEN_FILES, "NPROC": MAX_PROCESSES}
    for name, limit in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}", None)
        if kind is not None:
            hard = resource.getrlimit(kind)[1]
            limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            try:
                resource.setrlimit(kind, (limit, limit))
            except (ValueError, OSError):  # macOS has some of these limits but does not set them
                continue


def _apply_landlock() -> bool:
    """Refuse writing, except to the null device, and connections; return whether the kernel supports it."""
    library = ctypes.CDLL(None, use_errno=True)
    version = library.syscall(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), LANDLOCK_GET_VERSION)
    if version < 1:
        return False
    restricted = [
        sum(bits for since, bits in rights.items() if since <= version)
        for rights in (WRITE_RIGHTS, TCP_RIGHTS, SCOPES)
    ]
    attributes = (ctypes.c_uint64 * 3)(*restricted)
    size = 8 * (1 + (version >= 4) + (version >= 6))
    ruleset = library.syscall(LANDLOCK_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), 0)
    if ruleset < 0:
        return False
    null_device = os.open(os.devnull, os.O_RDWR)
    rule = (ctypes.c_char * 12).from_buffer_copy(
        RIGHT_WRITE_FILE.to_bytes(8, sys.byteorder) + null_device.to_bytes(4, sys.byteorder)
    )
    library.syscall(LANDLOCK_ADD_RULE, ruleset, RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    library.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    failed = library.syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0)
    os.close(null_device)
    os.close(ruleset)
    return not failed


def _apply_seccomp() -> bool:
    """Refuse the system calls in `SYSCALLS`; return whether that works on this machine."""
    if platform.machine() not in SYSCALLS:
        return False
    architecture, (clone, clone3), refused, refused_for_others = SYSCALLS[platform.machine()]
    check_process = 8 + len(refused) + len(refused_for_others)  # index of the last five instructions
    allow, deny, unknown = check_process + 2, check_process + 3, check_process + 4
    # Code, value, and the indices of the next instruction if the comparison holds and if not.
    program = [
        (BPF_LOAD, OFFSET_ARCHITECTURE, 0, 0),
        (BPF_JUMP_EQUAL, architecture, 2, deny),
        (BPF_LOAD, OFFSET_SYSCALL, 0, 0),
        (BPF_JUMP_GREATER_EQUAL, X32_SYSCALLS, deny, 4),
        # A filter cannot read the arguments of clone3; callers fall back to clone when it is unknown.
        (BPF_JUMP_EQUAL, clone3, unknown, 5),
        (BPF_JUMP_EQUAL, clone, 6, 8),
        (BPF_LOAD, OFFSET_FIRST_ARGUMENT, 0, 0),
        (BPF_JUMP_ANY_BIT, CLONE_THREAD, allow, deny),
        *((BPF_JUMP_EQUAL, number, deny, index + 1) for index, number in enumerate(refused, 8)),
        *(
            (BPF_JUMP_EQUAL, number, check_process, index + 1 if index + 1 < check_process else allow)
            for index, number in enumerate(refused_for_others, 8 + len(refused))
        ),
        (BPF_LOAD, OFFSET_FIRST_ARGUMENT, 0, 0),
        (BPF_JUMP_EQUAL, 0, allow, deny),
        *((BPF_RETURN, action, 0, 0) for action in (ACTION_ALLOW, ACTION_EPERM, ACTION_ENOSYS)),
    ]

    class Instruction(ctypes.Structure):
        _fields_ = (
            ("code", ctypes.c_uint16),
            ("jump_if_true", ctypes.c_uint8),
            ("jump_if_false", ctypes.c_uint8),
            ("value", ctypes.c_uint32),
        )

    class Filter(ctypes.Structure):
        _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(Instruction)))

    # Jumps are relative to the next instruction.
    instructions = (Instruction * len(program))(
        *(
            Instruction(code, *((if_true - i - 1, if_false - i - 1) if code in BPF_JUMPS else (0, 0)), value)
            for i, (code, value, if_true, if_false) in enumerate(program)
        )
    )
    library = ctypes.CDLL(None)
    library.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    bpf_filter = Filter(len(program), instructions)
    return not library.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(bpf_filter), 0, 0)


def _make_audit_hook() -> Callable[[str, tuple[Any, ...]], None]:
    """Return an audit hook that refuses events; its variables are local, so no program can change them."""
    refused, null_device, error = REFUSED_EVENTS, os.devnull, PermissionError
    write_flags = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if flags & write_flags and path != null_device and type(path) is not int:
                raise error(f"a measured program may not write {path!r}")
        elif event.startswith(refused):
            raise error(f"a measured program may not do {event}")

    return refuse
