"""Attempts to get past a single layer of the sandbox, run by an interpreter of its own, which gets its targets as text.

Each attempt is real: with no layer at all it gets out. What is loaded is loaded before the layer is there, so that the
interpreter may lie where the user of the attempts cannot read.
"""

import contextlib
import ctypes
import ctypes.util
import errno
import fcntl
import importlib
import json
import os
import pty
import socket
import struct
import sys

WORLD = json.loads(sys.argv[1])
sys.path.append(WORLD["confine"])
confine = importlib.import_module("confine")

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
OUT, HOME, WORK, SHM = (WORLD[name] for name in ("out", "home", "work", "shm"))
VICTIM, PORT, UDP, FREE = (WORLD[name] for name in ("victim", "port", "udp", "free"))
ARM = os.uname().machine == "aarch64"
AT = -100
LOOPBACK = "127.0.0.1"


def call(x86, arm, *arguments):
    """A system call; what the filter answers is no other error's number here."""
    result = libc.syscall(arm if ARM else x86, *arguments)
    refused = ctypes.get_errno() in (errno.EPERM, errno.ENOSYS, errno.EACCES, errno.EAFNOSUPPORT)
    return result >= 0 or not refused


def write(path, how="w"):
    with open(path, how) as file:
        file.write("evil\n")
    return True


def read(path):
    with open(path, "rb") as file:
        return file.read(9)


def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as end:
        end.settimeout(1)
        end.connect(address)
        return True


def listen():
    """On the network of the machine, as far as this is it."""
    with socket.socket() as end:
        end.bind((LOOPBACK, FREE))
        return os.readlink("/proc/self/ns/net") == WORLD["net"]


def say(protocol=0):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, protocol) as end:
        end.sendto(b"x", (LOOPBACK, UDP))
        return os.readlink("/proc/self/ns/net") == WORLD["net"]


def fast():
    with socket.socket() as end:
        end.sendto(b"x", 0x20000000, (LOOPBACK, PORT))
        return os.readlink("/proc/self/ns/net") == WORLD["net"]


def nice_of_all():
    """Lower all priorities, but only as a user without other processes: it would reach all processes of root, or of the tests' user."""
    if not WORLD["is_made_up"]:
        return False
    os.setpriority(os.PRIO_USER, 0, 19)
    return True


def typed():
    """In the terminal of a pair: what it is for is refused for all."""
    _own, other = pty.openpty()
    call = libc.ioctl(other, ctypes.c_ulong(0x541C), b"\x0c")
    return call >= 0 or ctypes.get_errno() not in (errno.EPERM, errno.EACCES)


def bounds():
    """Rights of root that a program could get, but for those that are left to root."""
    with open("/proc/self/status") as status:
        left = next(int(line.split()[1], 16) for line in status if line.startswith("CapBnd"))
    return left & ~sum(1 << number for number in confine._KEPT_CAPS)


def lease():
    """On a file outside that is its user's own: who opens it waits."""
    held = os.open(f"{OUT}/leased", os.O_RDONLY)
    fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    return True


def as_owner():
    os.chmod(f"{WORK}/owned", 0o4755)
    return True


def mode_made():
    os.close(os.open(f"{WORK}/made", os.O_CREAT | os.O_WRONLY, 0o4755))
    return True


def segment():
    return libc.shmget(WORLD["segment"], 64, 0) >= 0


def nested():
    """A child in namespaces of its own, by the old call and the new one."""
    child = libc.syscall(220 if ARM else 56, ctypes.c_ulong(0x10000000 | 17), 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    return child > 0


def nested_anew():
    attr = struct.pack("Q", 0x10000000) + bytes(24) + struct.pack("Q", 17) + bytes(48)
    child = libc.syscall(435, attr, 88)
    if child == 0:
        os._exit(0)
    return child > 0


ATTEMPTS = {
    # Files outside, by what names and opens.
    "write": lambda: write(f"{OUT}/file", "a"),
    "make": lambda: write(f"{OUT}/made"),
    "truncate": lambda: os.truncate(f"{OUT}/file", 0) or True,
    "remove": lambda: os.unlink(f"{OUT}/remove") or True,
    "folder": lambda: os.mkdir(f"{OUT}/folder") or True,
    "link to": lambda: os.symlink("x", f"{OUT}/linked") or True,
    "pipe": lambda: os.mkfifo(f"{OUT}/pipe") or True,
    "take in": lambda: os.rename(f"{OUT}/take", f"{WORK}/taken") or True,
    "put out": lambda: os.rename(f"{WORK}/put", f"{OUT}/put") or True,
    "hard link in": lambda: os.link(f"{OUT}/file", f"{WORK}/hard") or True,
    "hard link out": lambda: os.link(f"{WORK}/ok", f"{OUT}/hard") or True,
    "exchange": lambda: (
        libc.syscall(
            276 if ARM else 316, AT, f"{OUT}/swap".encode(), AT, f"{WORK}/swap".encode(), 2
        )
        >= 0
    ),
    # Files outside, by what changes no content.
    "mode": lambda: os.chmod(f"{OUT}/file", 0o640) or True,
    "times": lambda: os.utime(f"{OUT}/file", (1, 1)) or True,
    "attribute": lambda: os.setxattr(f"{OUT}/file", "user.x", b"1") or True,
    # These places are guarded.
    "secret": lambda: read(f"{HOME}/.ssh/id"),
    "secret by root": lambda: read(f"/proc/self/root{HOME}/.ssh/id"),
    "secret names": lambda: os.listdir(f"{HOME}/.ssh"),
    "secret in work": lambda: read(f"{WORK}/.env"),
    "hook": lambda: write(f"{WORK}/.git/hooks/pre-commit"),
    "hooks away": lambda: os.rename(f"{WORK}/.git", f"{WORK}/g") or True,
    # These places are shared.
    "other temporary": lambda: os.path.exists(WORLD["tmp_file"]),
    "shared memory": lambda: read(SHM),
    "segment": segment,
    "terminal": lambda: os.close(os.open(WORLD["tty"], os.O_RDWR | os.O_NOCTTY)) or True,
    # Processes.
    "seen": lambda: os.path.exists(f"/proc/{VICTIM}/cmdline"),
    "signal": lambda: os.kill(VICTIM, 0) or True,
    "environment": lambda: read(f"/proc/{VICTIM}/environ"),
    "memory": lambda: os.close(os.open(f"/proc/{VICTIM}/mem", os.O_RDONLY)) or True,
    "files of": lambda: os.listdir(f"/proc/{VICTIM}/root"),
    "taken over": lambda: libc.syscall(438, os.pidfd_open(VICTIM), 0, 0) >= 0,
    "trace": lambda: libc.ptrace(0x4206, VICTIM, 0, 0) == 0,
    "processors": lambda: os.sched_setaffinity(VICTIM, {0}) or True,
    "class": lambda: os.sched_setscheduler(VICTIM, os.SCHED_BATCH, os.sched_param(0)) or True,
    "limits": lambda: (
        libc.syscall(261 if ARM else 302, VICTIM, 4, struct.pack("QQ", 0, 0), None) >= 0
    ),
    "nice": lambda: os.setpriority(os.PRIO_PROCESS, VICTIM, 19) or True,
    "nice of all": nice_of_all,
    # This class does not exist: nothing is changed if it is not refused.
    "disk of all": lambda: call(251, 30, 3, 0, 7 << 13),
    # The network.
    "tcp": lambda: connect(socket.AF_INET, (LOOPBACK, PORT)),
    "listen": listen,
    "udp": say,
    "udp lite": lambda: say(136),
    "fast open": fast,
    "abstract": lambda: connect(socket.AF_UNIX, f"\0{WORLD['abstract']}"),
    "socket": lambda: connect(socket.AF_UNIX, f"{OUT}/sock"),
    "bound elsewhere": lambda: connect(socket.AF_UNIX, f"{WORK}/moved.sock"),
    # The kernel.
    "other network": lambda: socket.socket(40, socket.SOCK_STREAM).fileno() >= 0,
    "user space": lambda: call(272, 97, 0x10000000),
    "mounts": lambda: call(272, 97, 0x10020000),
    "child space": nested,
    "child space anew": nested_anew,
    "enter": lambda: call(308, 268, -1, 0),
    "mount": lambda: call(165, 40, None, None, b"", 4096, None),
    "keys": lambda: call(248, 217, None, b"x", b"x", 1, -4),
    "key ring": lambda: call(250, 219, 0, -3, 0),
    "faults": lambda: call(323, 282, 1),
    "rings": lambda: call(425, 425, 0, None),
    "programs": lambda: call(321, 280, 99, None, 0),
    "counters": lambda: call(298, 241, None, 0, -1, -1, 0),
    "typing": typed,
    "lease": lease,
    "bounds": bounds,
    "kernel settings": lambda: (
        os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)) or True
    ),
    "disk": lambda: os.close(os.open(WORLD["disk"], os.O_RDONLY)) or True,
    "rights of owners": lambda: not os.statvfs("/").f_flag & os.ST_NOSUID,
    "owner": as_owner,
    "owner made": mode_made,
}


def stay(child, _is_command):
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 255)


def no_new_privileges():
    confine._check(libc.prctl(38, 1, 0, 0, 0), "no new privileges")


def namespaces():
    sockets = [*WORLD["sockets"], *confine.sockets_of_others(WORLD["write"])]
    has_user = not confine._unshare(False)
    confine._go_on_below(stay, is_command=False)
    kinds = ("write", "pin", "keep", "hide", "empty", "show")
    paths = {kind: WORLD[kind] for kind in kinds}
    confine._cover(paths, WORLD["tmp"], sockets)
    confine._drop_capabilities(() if has_user else confine._KEPT_CAPS)


def capabilities():
    confine._drop_capabilities(confine._KEPT_CAPS if os.geteuid() == 0 else ())


def landlock(abi=0, *, is_full=False, online=False):
    writable = [*WORLD["write"], *(("/tmp", "/dev/shm", "/dev/pts") if is_full else ())]
    capabilities()
    no_new_privileges()
    confine._landlock(
        abi or confine.landlock_abi(),
        writable,
        [*WORLD["hide"], *WORLD["empty"]],
        WORLD["show"],
        is_full=is_full,
        online=online,
    )


def system_calls(*, is_full, online=False):
    no_new_privileges()
    confine._set_filter(confine._filter(is_full=is_full, online=online, sockets=False))


def whole(abi=0, level="full", network="off"):
    if abi:
        vars(confine)["landlock_abi"] = lambda: abi
    words = [f"level:{level}", f"network:{network}", f"tmp:{WORLD['tmp']}"]
    for kind in ("write", "pin", "keep", "hide", "empty", "show"):
        words += [f"{kind}:{path}" for path in WORLD[kind]]
    words += [f"socket:{path}" for path in WORLD["sockets"]]
    confine.confine(words, stay)


LAYERS = {
    "none": lambda: None,
    "namespaces": namespaces,
    "capabilities": capabilities,
    "landlock": landlock,
    "landlock in the whole": lambda: landlock(is_full=True),
    **{f"landlock {abi}": lambda abi=abi: landlock(abi) for abi in range(1, 7)},
    "filter": lambda: system_calls(is_full=True),
    "filter of landlock alone": lambda: system_calls(is_full=False),
    "whole": whole,
    **{f"whole with landlock {abi}": lambda abi=abi: whole(abi) for abi in range(1, 7)},
    "whole with the network": lambda: whole(network="on"),
    "landlock alone": lambda: whole(level="landlock"),
}


def tried(attempt):
    """Whether an attempt gets out, in a process of its own."""
    heard, told = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(OSError):
            os.write(told, b"1" if attempt() else b"0")
        os._exit(0)
    os.close(told)
    os.waitpid(child, 0)
    said = os.read(heard, 1)
    os.close(heard)
    return said == b"1"


def main():
    os.setsid()
    if WORLD["user"] != os.geteuid():
        os.setgroups([])
        os.setresgid(WORLD["user"], WORLD["user"], WORLD["user"])
        os.setresuid(WORLD["user"], WORLD["user"], WORLD["user"])
        # A program of this user that was started normally has this flag.
        libc.prctl(4, 1, 0, 0, 0)
    os.chdir(WORK)
    answer = os.dup(1)
    LAYERS[WORLD["layer"]]()
    wanted = WORLD["tried"] or ATTEMPTS
    got_out = [name for name, attempt in ATTEMPTS.items() if name in wanted and tried(attempt)]
    os.write(answer, json.dumps(got_out).encode())


main()
