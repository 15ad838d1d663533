"""What a confined process may still do; system calls and rights against the kernel's headers."""

import ctypes
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nas_rlm.programs import sandbox
from nas_rlm.programs.python_runner import missing_layers

REFUSED = {
    *("socket", "fork", "vfork", "execve", "execveat"),
    *("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal"),
    *("ptrace", "process_vm_readv", "process_vm_writev"),
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr"),
    *("setxattrat", "removexattrat", "file_setattr"),
    *("utime", "utimes", "futimesat", "utimensat"),
    *("setsid", "setpgid", "prctl", "shmget", "semget", "msgget", "mq_open"),
    *("add_key", "request_key", "keyctl", "setpriority", "ioprio_set"),
    *("io_uring_setup", "bpf", "mount", "setns", "unshare", "chroot"),
}
REFUSED_FOR_OTHERS = {
    *("prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"),
}
# Calls that older headers lack; the numbers of recent ones are the same on all machines.
RECENT_CALLS = {"fchmodat2": 452, "setxattrat": 463, "removexattrat": 466, "file_setattr": 469}

SCRIPT = """
import ctypes, errno, os, resource, sys
sys.addaudithook = lambda hook: None
import sandbox
library = ctypes.CDLL(None, use_errno=True)
number = dict(zip({names!r}, {numbers!r}))
limit = ctypes.byref((ctypes.c_uint64 * 2)(2**40, 2**40))
zeros = (ctypes.c_uint64 * 8)()
assert "seccomp" in sandbox.confine(2**31, 10)
try:
    result = {call}
except OSError as error:
    os._exit(42 if error.errno == errno.EPERM else 1)
os._exit(42 if result == -1 and ctypes.get_errno() == errno.EPERM else 0)
"""

needs_sandbox = pytest.mark.skipif(bool(missing_layers()), reason="the system does not confine programs")


def exit_code(call):
    """42 if a call in a confined process is refused, 0 if it succeeds."""
    names = ("setxattrat", "file_setattr", "add_key", "ioprio_set")
    machines = {"x86_64": (463, 469, 248, 251), "aarch64": (463, 469, 217, 30)}
    script = SCRIPT.format(names=names, numbers=machines[platform.machine()], call=call)
    directory = Path(sandbox.__file__).parent
    return subprocess.run([sys.executable, "-B", "-c", script], cwd=directory).returncode


@needs_sandbox
@pytest.mark.parametrize(
    "call",
    [
        "resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (9, 9))",
        "library.prlimit(os.getppid(), 7, limit, None)",
        "os.setpriority(os.PRIO_PROCESS, os.getppid(), 5)",
        "os.setpriority(os.PRIO_PGRP, 0, 5)",
        "os.sched_setaffinity(os.getppid(), {0})",
        "os.sched_setscheduler(os.getppid(), os.SCHED_BATCH, os.sched_param(0))",
        "library.syscall(number['ioprio_set'], 1, os.getppid(), 3 << 13)",
        "library.syscall(number['add_key'], b'user', b'k', b'v', 1, -4)",
        "library.syscall(number['setxattrat'], -100, sys.executable.encode(), 0, b'user.a', zeros, 16)",
        "library.syscall(number['file_setattr'], -100, sys.executable.encode(), zeros, 24, 0)",
    ],
)
def test_control_of_other_processes_and_attributes_is_refused(call):
    assert exit_code(call) == 42


@needs_sandbox
@pytest.mark.parametrize(
    "call",
    [
        "resource.getrlimit(resource.RLIMIT_NOFILE)",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (9, 9))",
        "os.sched_setaffinity(0, os.sched_getaffinity(0))",
        "os.getpriority(os.PRIO_PROCESS, 0)",
        "open('/dev/null', 'w').write('x') - 1",
        "len(open('/dev/urandom', 'rb').read(3)) - 3",
    ],
)
def test_a_process_may_read_and_reduce_its_own_limits_and_read_files(call):
    assert exit_code(call) == 0


@needs_sandbox
def test_commands_to_devices_are_refused():
    if _landlock_version() < 5:
        pytest.skip("this kernel's Landlock cannot restrict commands to devices")
    call = "library.ioctl(os.open('/dev/urandom', os.O_RDONLY), 0x80045200, zeros)"  # reads the entropy count
    script = "import ctypes, os, sys\nsys.addaudithook = lambda hook: None\nimport sandbox\n"
    script += "library = ctypes.CDLL(None, use_errno=True)\nzeros = (ctypes.c_uint64 * 8)()\n"
    script += f"assert {call} == 0\nsandbox.confine(2**31, 10)\n"
    script += f"assert {call} == -1 and ctypes.get_errno() == 13\nos._exit(42)"
    directory = Path(sandbox.__file__).parent
    assert subprocess.run([sys.executable, "-B", "-c", script], cwd=directory).returncode == 42


def _landlock_version():
    library = ctypes.CDLL(None)
    return library.syscall(sandbox.LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), 1)


def header(*paths):
    """The content of the first of the kernel's headers that is installed."""
    for path in map(Path("/usr/include").joinpath, paths):
        if path.is_file():
            return path.read_text()
    pytest.skip(f"the kernel's header {paths[0]} is not installed")


@pytest.mark.parametrize(
    ("machine", "elf_machine", "paths"),
    [
        ("x86_64", 62, ("x86_64-linux-gnu/asm/unistd_64.h", "asm/unistd_64.h")),
        ("aarch64", 183, ("asm-generic/unistd.h",)),
    ],
)
def test_system_calls_have_the_numbers_of_the_kernel_headers(machine, elf_machine, paths):
    numbers = {name: int(number) for name, number in re.findall(r"__NR_(\w+)\s+(\d+)\b", header(*paths))}
    numbers = RECENT_CALLS | numbers
    architecture, clones, refused, refused_for_others = sandbox.SYSCALLS[machine]
    assert architecture == elf_machine | 0xC0000000  # 64 bits, little-endian
    assert clones == (numbers["clone"], numbers["clone3"])
    assert sorted(refused) == sorted(numbers[name] for name in REFUSED if name in numbers)
    assert sorted(refused_for_others) == sorted(numbers[name] for name in REFUSED_FOR_OTHERS)


@pytest.mark.parametrize(
    ("kind", "rights", "names"),
    [
        ("ACCESS_FS", sandbox.WRITE_RIGHTS, {1: "WRITE_FILE|REMOVE_.*|MAKE_.*", 2: "REFER"}),
        ("ACCESS_FS", sandbox.WRITE_RIGHTS, {3: "TRUNCATE", 5: "IOCTL_DEV"}),
        ("ACCESS_NET", sandbox.TCP_RIGHTS, {4: "BIND_TCP|CONNECT_TCP"}),
        ("SCOPE", sandbox.SCOPES, {6: "ABSTRACT_UNIX_SOCKET|SIGNAL"}),
    ],
)
def test_landlock_rights_are_those_of_the_kernel_headers(kind, rights, names):
    defined = re.findall(rf"LANDLOCK_{kind}_(\w+)\s+\(1ULL << (\d+)\)", header("linux/landlock.h"))
    for version, pattern in names.items():
        bits = [1 << int(bit) for name, bit in defined if re.fullmatch(pattern, name)]
        if bits:  # older headers lack the rights of newer versions
            assert rights[version] == sum(bits)
