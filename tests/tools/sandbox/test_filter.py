"""The filter of system calls, run step by step for both kinds of machines: most of it cannot be tried on the one at hand."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from kimi_tui.tools.sandbox import confine

ALLOWED, KILLED = 0, -1
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
REFUSED = """bpf perf_event_open userfaultfd add_key request_key keyctl kexec_load init_module finit_module delete_module
    reboot swapon swapoff acct quotactl quotactl_fd settimeofday clock_settime adjtimex clock_adjtime sethostname
    setdomainname open_by_handle_at setns mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount
    fspick mount_setattr syslog lookup_dcookie vhangup fanotify_init"""
OF_CHANGES = """fork vfork creat mknod mknodat truncate ftruncate fallocate rename renameat renameat2 mkdir mkdirat rmdir
    unlink unlinkat link linkat symlink symlinkat chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes
    futimesat utimensat setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr setxattrat removexattrat
    file_setattr flock kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal ptrace process_vm_readv
    process_vm_writev pidfd_getfd pidfd_open setpriority ioprio_set sched_setparam sched_setscheduler sched_setaffinity
    sched_setattr shmget shmat shmctl semget semop semctl semtimedop msgget msgsnd msgrcv msgctl mq_open socket socketpair"""
ABSENT = "io_uring_setup io_uring_enter io_uring_register clone3 openat2"
TAKEN = "read write execve fork exit_group ioctl fcntl socket clone unshare prlimit64 setpriority chmod fchmodat openat"


def answer(steps: list[tuple[int, int, int, int]], words: dict[int, int]) -> int:
    """Return the answer of a filter program to a call whose data has these words at these places: an error's number, 0 or -1."""
    at, held = 0, 0
    while True:
        code, yes, no, value = steps[at]
        at += 1
        if code == 0x20:
            held = words.get(value, 0)
        elif code == 0x54:
            held &= value
        elif code == 0x06:
            return {0x7FFF0000: ALLOWED, 0x80000000: KILLED}.get(value, value & 0xFFFF)
        else:
            is_so = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
            at += yes if is_so else no


class Machine:
    """A filter for one kind of machine."""

    def __init__(
        self, name: str, *, is_full: bool = True, online: bool = False, searches: bool = False
    ) -> None:
        self.name = name
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "uname", lambda: SimpleNamespace(machine=name))
            self.steps = confine._filter(
                is_full=is_full, online=online, sockets=False, searches=searches
            )

    def __call__(self, number: int, *arguments: int, arch: int = 0) -> int:
        """Return the answer to a call."""
        words = {0: number, 4: arch or confine._ARCHES[self.name]}
        for place, argument in enumerate(arguments):
            words[16 + 8 * place] = argument & 0xFFFFFFFF
            words[20 + 8 * place] = argument >> 32
        return answer(self.steps, words)


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request: pytest.FixtureRequest) -> Machine:
    return Machine(request.param)


def numbers_of(machine: Machine) -> dict[str, int]:
    """Return the numbers of its calls, by the kernel's header."""
    header = HEADERS[machine.name]
    if not header.exists():
        pytest.skip(f"{header} is not there: no number was compared")
    found = re.finditer(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text(), re.M)
    return {one[1]: int(one[2]) for one in found}


def test_every_call_is_refused_by_its_number(machine: Machine) -> None:
    known = numbers_of(machine)
    for name in (*REFUSED.split(), *ABSENT.split()):
        # These calls are newer than the header.
        if name in known or name not in ("quotactl_fd", "mount_setattr"):
            wanted = errno.ENOSYS if name in ABSENT.split() else errno.EPERM
            assert machine(known[name], 1, 1, 1) == wanted, name
    there = [name for name in TAKEN.split() if name in known]
    assert [name for name in there if machine(known[name]) != ALLOWED] == ["socket"]


@pytest.mark.parametrize("name", ["x86_64", "aarch64"])
def test_a_search_has_only_calls_that_read(name: str) -> None:
    machine = Machine(name, is_full=False, searches=True)
    known = numbers_of(machine)
    refused = [call for call in OF_CHANGES.split() if call in known]
    assert [call for call in refused if machine(known[call], 1, 1, 1, 1) != errno.EPERM] == []
    taken = "read write mmap getdents64 newfstatat statx lseek futex readlinkat exit_group execve"
    assert [call for call in taken.split() if machine(known.get(call, 0), 1, 1, 1, 1)] == []
    numbers = set(confine._OF_CHANGES[name])
    assert len(numbers) == len(confine._OF_CHANGES[name])
    # Each is of a call that is named above, or younger than the header.
    assert {known[call] for call in refused} == {
        one for one in numbers if one <= max(known.values())
    }

    def said(call: str, *arguments: int) -> int:
        return machine(known[call], *arguments)

    for flags, wanted in (
        *((0, ALLOWED), (os.O_DIRECTORY | os.O_CLOEXEC, ALLOWED), (os.O_WRONLY, errno.EPERM)),
        *((os.O_RDWR, errno.EPERM), (os.O_TRUNC, errno.EPERM), (os.O_CREAT, errno.EPERM)),
        (0o20000000, errno.EPERM),
    ):
        assert said("openat", -100, 0, flags, 0o644) == wanted
        if name == "x86_64":
            assert said("open", 0, flags, 0o644) == wanted
    assert said("clone", 0x3D0F00) == ALLOWED
    assert said("clone", 17) == said("clone", 0x4111) == errno.EPERM
    assert said("clone", 0x10000 | 0x20000) == said("unshare", 0x20000) == errno.EPERM
    for request, wanted in ((0x5401, ALLOWED), (0x5451, ALLOWED), (0x5412, errno.EPERM)):
        assert said("ioctl", 3, request) == wanted
    assert said("ioctl", 3, 0x40086602) == said("fcntl", 3, 8) == said("fcntl", 3, 6) == errno.EPERM
    assert said("fcntl", 3, 2) == said("fcntl", 3, 3) == ALLOWED


def test_calls_of_other_programs_are_not_mistaken_for_these(machine: Machine) -> None:
    # 32-bit ones, and those of the x32 interface, have numbers of their own.
    for arch in (0x40000003, 0x40000028, 0xC000003E ^ 1):
        assert machine(0, arch=arch) == KILLED
    x32 = machine(0x40000000 | 39)
    assert x32 == (errno.ENOSYS if machine.name == "x86_64" else ALLOWED)


def test_what_depends_on_an_argument(machine: Machine) -> None:
    known = numbers_of(machine)

    def said(name: str, *arguments: int) -> int:
        return machine(known[name], *arguments)

    for flags in (0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert said("clone", flags | 17) == said("unshare", flags) == errno.EPERM
    assert said("clone", 0x3D0F00) == said("unshare", 0x400) == ALLOWED
    refused = (*(0x5412, 0x541C, 0x5423), *(0x50009401, 0x50009417, 0x5000943F, 0x4020BC10))
    for request in refused:
        # The kernel takes the lower half alone.
        assert said("ioctl", 3, request) == said("ioctl", 3, request | 1 << 32) == errno.EPERM
    assert said("ioctl", 3, 0x5401) == said("ioctl", 0x5412, 0x5413) == ALLOWED
    for command, wanted in ((1024, errno.EPERM), (1040, errno.EPERM), (1025, ALLOWED)):
        assert said("fcntl", 3, command) == wanted
    assert said("fchmodat", -100, 0, 0o4755) == said("fchmod", 3, 0o4755) == errno.EPERM
    assert said("fchmodat", -100, 0, 0o2755) == said("mknodat", -100, 0, 0o644) == ALLOWED
    assert said("mknodat", -100, 0, 0o104755) == errno.EPERM
    for flags, wanted in ((os.O_CREAT, errno.EPERM), (0o20000000, errno.EPERM), (0, ALLOWED)):
        assert said("openat", -100, 0, flags, 0o4755) == wanted
    assert said("openat", -100, 0, os.O_CREAT, 0o755) == ALLOWED
    assert said("prlimit64", 0, 7) == ALLOWED
    assert said("prlimit64", 5, 7) == errno.EPERM
    # The call names all processes of a user, or another process; the own process may be named as 0.
    assert said("setpriority", 2, 0, 5) == said("ioprio_set", 3, 0) == errno.EPERM
    assert said("setpriority", 0, 0, 5) == said("ioprio_set", 1, 0) == ALLOWED
    assert said("setpriority", 0, 5, 5) == said("ioprio_set", 1, 5) == errno.EPERM
    if machine.name == "x86_64":
        assert said("chmod", 0, 0o4755) == said("creat", 0, 0o4755) == errno.EPERM
        assert said("open", 0, os.O_CREAT, 0o4755) == said("mknod", 0, 0o4755) == errno.EPERM
        assert said("open", 0, 0, 0o4755) == ALLOWED


@pytest.mark.parametrize("name", ["x86_64", "aarch64"])
def test_kinds_of_sockets(name: str) -> None:
    whole, alone = Machine(name), Machine(name, is_full=False)
    known = numbers_of(whole)
    for family in range(50):
        wanted = ALLOWED if family in (1, 2, 10, 16) else errno.EAFNOSUPPORT
        assert whole(known["socket"], family, 1) == wanted
        is_other = wanted or family == 1
        assert alone(known["socket"], family, 1) == (errno.EAFNOSUPPORT if is_other else ALLOWED)
    for kind, protocol, wanted in ((1, 0, ALLOWED), (1, 6, ALLOWED), (0x80001, 6, ALLOWED)):
        assert alone(known["socket"], 2, kind, protocol) == wanted
    for kind, protocol in ((2, 0), (3, 1), (1, 262), (1, 132), (5, 132)):
        assert alone(known["socket"], 2, kind, protocol) == errno.EPERM
        assert whole(known["socket"], 2, kind, protocol) == ALLOWED
    # Data in the opening packet connects without being asked.
    for call, flags in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)):
        words = [0] * flags + [0x20000000]
        assert alone(known[call], *words) == errno.EPERM
        assert whole(known[call], *words) == alone(known[call], *[0] * 6) == ALLOWED


@pytest.mark.parametrize("searches", [False, True])
@pytest.mark.parametrize("name", ["x86_64", "aarch64"])
def test_a_call_that_is_made_for_each_file_is_compared_with_few_others(
    name: str, searches: bool
) -> None:
    machine = Machine(name, is_full=not searches, searches=searches)
    found = {number for code, _, _, number in machine.steps[:60] if code == 0x15}
    calls = [number for number, _ in confine._OPENS[name]]
    assert {*calls, confine._FCNTL[name], confine._IOCTL[name]} <= found
