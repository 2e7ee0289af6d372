"""Attempts to get out of the sandbox by system calls: run in it by an interpreter, each function with the names below.

An attempt that gets out says so by returning something true, or is seen from outside.
"""

import contextlib
import ctypes
import fcntl
import mmap
import os
import pty
import signal
import socket
import struct
import subprocess
import sys

libc = ctypes.CDLL(None, use_errno=True)
OUT, HOME, VICTIM = os.environ["OUT"], os.environ["HOME"], int(os.environ["VICTIM"])
PORT, UDP, CANARY = int(os.environ["PORT"]), int(os.environ["UDP"]), os.environ["CANARY"]
KEY = f"{HOME}/.ssh/id_rsa".encode()
EMPTY = f"{OUT}/empty".encode()
AT = -100
ARM = os.uname().machine == "aarch64"


def call(x86, arm, *arguments):
    return libc.syscall(arm if ARM else x86, *arguments) >= 0


def read(path):
    with open(path, "rb") as file:
        return file.read(99) or b"opened"


def connect(family, kind, protocol=0, address=("127.0.0.1", PORT)):
    with socket.socket(family, kind, protocol) as end:
        end.settimeout(0.5)
        end.connect(address)
        end.send(CANARY.encode())
        return True


def say(family, kind, protocol, address, flags=0):
    with socket.socket(family, kind, protocol) as end:
        end.sendto(CANARY.encode(), flags, address)
        return address[1] == PORT


def handle():
    known = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
    number = ctypes.c_int()
    call(303, 264, AT, os.fsencode(HOME), known, ctypes.byref(number), 0)
    return call(304, 265, os.open("/", os.O_RDONLY), known, 0)


def passed():
    """A descriptor of the outside, by a socket outside that would send one."""
    return connect(socket.AF_UNIX, socket.SOCK_STREAM, 0, os.environ["SOCK"])


def typed():
    _own, other = pty.openpty()
    with open(os.ttyname(other), "rb", buffering=0) as terminal:
        return fcntl.ioctl(terminal, 0x5412, b"x") == 0


def ring():
    made = libc.syscall(217 if ARM else 248, b"user", CANARY.encode(), b"x", 1, -4)
    return made >= 0


def inner():
    """Another sandbox in this one, whose rules are wider."""
    attr = struct.pack("QQQ", 1, 0, 0)
    rules = libc.syscall(444, attr, 24, 0)
    libc.syscall(446, rules, 0)
    return read(KEY)


def by_thread():
    import threading

    said = []
    one = threading.Thread(target=lambda: said.append(os.path.exists(KEY)))
    one.start()
    one.join()
    return said[0]


def memory(pid):
    base = ctypes.create_string_buffer(8)
    here = (ctypes.c_void_p * 2)(ctypes.addressof(base), 8)
    there = (ctypes.c_void_p * 2)(0x400000, 8)
    return call(310, 270, pid, here, 1, there, 1, 0)


def inherited():
    """Descriptors that were left open: whatever is not a pipe, nothing or one of ours. `libffi` holds its own file for `ctypes`."""
    for number in range(3, 64):
        try:
            found = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if os.path.basename(found).startswith("libffi.so."):
            continue
        if found.startswith("/") and not found.startswith(("/proc", "/dev/null", os.getcwd())):
            return found
    return ""


def writable(*paths):
    """The first of these that can be opened for writing."""
    for path in paths:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            continue
        return path
    return ""


def listed(top):
    return [os.path.join(top, name) for name in os.listdir(top)]


def nameless(target):
    """A file without a name that is given one elsewhere."""
    number = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o700)
    return libc.linkat(AT, f"/proc/self/fd/{number}".encode(), AT, os.fsencode(target), 0x400) == 0


def copied():
    """A program that has no file."""
    number = os.memfd_create("x")
    with open("/bin/cat", "rb") as file:
        os.write(number, file.read())
    program = [f"/proc/self/fd/{number}", KEY]
    return subprocess.run(program, pass_fds=(number,), capture_output=True).stdout


def descriptors():
    """Try the descriptors of all processes outside: by name, and taken over. Their mounts tell which these are."""
    found = []
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            if pid == 1 or os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt"):
                continue
        with contextlib.suppress(OSError):
            found += [os.readlink(name) for name in listed(f"/proc/{pid}/fd")]
        try:
            held = os.pidfd_open(pid)
        except OSError:
            continue
        found += [number for number in range(8) if call(438, 438, held, number, 0)]
    return found


def supervisor(attempt):
    """Try the process that confined this one, if that is not the sandbox's own."""
    pid = int(os.environ["SUPERVISOR"])
    return pid != 1 and attempt(pid)


def owned():
    """A signal for input that comes, sent to a process outside."""
    end, other = socket.socketpair()
    fcntl.fcntl(end, fcntl.F_SETOWN, VICTIM)
    fcntl.fcntl(end, 10, signal.SIGKILL)
    fcntl.fcntl(end, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    other.send(b"x")


def old_calls():
    """The calls of 32-bit programs, whose numbers are others: getpid."""
    if ARM:
        return False
    code = mmap.mmap(-1, 4096, prot=7)
    code.write(bytes((0xB8, 20, 0, 0, 0, 0xCD, 0x80, 0xC3)))
    run = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    child = os.fork()
    if child == 0:
        os._exit(7 if run() > 0 else 3)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def high_bits():
    """Arguments of which the kernel takes the lower half only."""
    _own, other = pty.openpty()
    return call(16, 29, other, ctypes.c_ulong(0x5412 | 1 << 32), b"x")


def kept(name):
    """Read one of the variables that lead to agents and keys."""
    return any(
        word in name for word in ("TOKEN", "PASS", "API_KEY", "SSH_A", "GPG_", "DBUS", "XAUTH")
    )


OUTER = (f"{OUT}/linked", ".git/hooks/pre-push")
TREES = (
    "/proc/sys/kernel",
    "/proc/sys/vm",
    "/proc/sys/net/ipv4",
    "/sys/kernel",
    "/sys/power",
    "/sys/fs/cgroup",
)

open("owner", "w").close()
ATTEMPTS = (
    inherited,
    copied,
    descriptors,
    old_calls,
    high_bits,
    owned,
    lambda: nameless(OUTER[0]),
    lambda: nameless(OUTER[1]),
    lambda: os.link("ok", OUTER[1]),
    lambda: libc.syscall(276 if ARM else 316, AT, b"ok", AT, b".git/config", 2) >= 0,
    lambda: libc.syscall(276 if ARM else 316, AT, b".git", AT, b"sub", 2) >= 0,
    lambda: supervisor(lambda pid: writable(*(f"/proc/{pid}/fd/{number}" for number in range(64)))),
    lambda: supervisor(lambda pid: call(101, 117, 0x4206, pid, 0, 0)),
    lambda: supervisor(lambda pid: read(f"/proc/{pid}/environ")),
    lambda: supervisor(memory),
    lambda: writable(*(path for top in TREES if os.path.isdir(top) for path in listed(top))),
    lambda: writable(
        "/dev/fuse",
        "/dev/kvm",
        "/dev/vhost-vsock",
        "/dev/net/tun",
        "/dev/uinput",
        "/dev/loop-control",
    ),
    lambda: [name for name in os.environ if kept(name)],
    lambda: os.listdir(f"/proc/self/fd/{os.open(HOME, os.O_PATH)}/.ssh"),
    lambda: os.write(os.open("/proc/self/uid_map", os.O_WRONLY), b"0 0 1"),
    lambda: os.write(os.open("/proc/self/setgroups", os.O_WRONLY), b"allow"),
    lambda: fcntl.ioctl(os.open("/proc/self/ns/user", os.O_RDONLY), 0xB702) and False,
    lambda: call(272, 97, 0x80),
    lambda: call(272, 97, 0x02000000),
    lambda: (
        libc.syscall(220 if ARM else 56, ctypes.c_ulong(0x10000000 | 17 | 1 << 33), 0, 0, 0, 0) >= 0
    ),
    lambda: not ARM and libc.syscall(0x40000000 | 39) > 0,
    lambda: call(427, 427, 0, 0, None, 0),
    lambda: call(430, 430, b"overlay", 0),
    lambda: call(203, 122, VICTIM, 8, struct.pack("Q", 1)),
    lambda: call(144, 119, VICTIM, 3, struct.pack("i", 0)),
    lambda: call(314, 274, VICTIM, struct.pack("IIQiIQQQ", 48, 0, 0, 19, 0, 0, 0, 0), 0),
    lambda: call(256, 238, VICTIM, 1, struct.pack("Q", 1), struct.pack("Q", 1)),
    lambda: call(129, 138, VICTIM, 0, bytes(128)),
    lambda: call(234, 131, VICTIM, VICTIM, 0),
    lambda: os.setpgid(VICTIM, 0) or True,
    lambda: call(440, 440, os.pidfd_open(VICTIM), None, 0, 20, 0),
    lambda: say(socket.AF_INET6, socket.SOCK_DGRAM, 0, ("::1", UDP)),
    lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, 0, "\0/tmp/.X11-unix/X0"),
    lambda: connect(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, f"{HOME}/agent.sock"),
    lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58).fileno() > 0,
    lambda: socket.socket(16, socket.SOCK_RAW, 15).sendto(b"add@/x\0ACTION=add\0", (0, 1)),
    lambda: connect(socket.AF_INET, socket.SOCK_STREAM),
    lambda: connect(socket.AF_INET6, socket.SOCK_STREAM, 0, ("::ffff:127.0.0.1", PORT)),
    lambda: connect(socket.AF_INET, socket.SOCK_STREAM, 262),
    lambda: connect(socket.AF_INET, socket.SOCK_STREAM, 132),
    lambda: connect(43, socket.SOCK_STREAM),
    lambda: say(socket.AF_INET, socket.SOCK_DGRAM, 0, ("127.0.0.1", UDP)),
    lambda: say(socket.AF_INET, socket.SOCK_STREAM, 0, ("127.0.0.1", PORT), 0x20000000),
    lambda: say(socket.AF_INET6, socket.SOCK_DGRAM, 0, ("::ffff:127.0.0.1", UDP)),
    lambda: say(socket.AF_INET, socket.SOCK_DGRAM, 136, ("127.0.0.1", UDP)),
    lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, 0, f"\0{CANARY}"),
    lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, 0, f"{HOME}/agent.sock"),
    lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, 0, f"/proc/self/root{HOME}/agent.sock"),
    lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, 0, "outer.sock"),
    lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, 0, "sub/relative.sock"),
    lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, 0, "two\nlines.sock"),
    lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, 0, f"{HOME}/moved.sock"),
    passed,
    lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).fileno() > 0,
    lambda: socket.socket(17, socket.SOCK_RAW, 3).fileno() > 0,
    lambda: socket.socket(40, socket.SOCK_STREAM).fileno() > 0,
    lambda: socket.socket(38, socket.SOCK_SEQPACKET).fileno() > 0,
    lambda: socket.socket(31, socket.SOCK_RAW, 1).fileno() > 0,
    lambda: call(272, 97, 0x10000000),
    lambda: call(272, 97, 0x20000),
    lambda: call(272, 97, 0x40000000),
    lambda: call(272, 97, 0x20000000),
    lambda: libc.syscall(220 if ARM else 56, 0x10000000 | 17, 0, 0, 0, 0) >= 0,
    lambda: libc.syscall(435, struct.pack("Q", 0x10000000) + bytes(80), 88) >= 0,
    lambda: call(308, 268, os.open("/proc/1/ns/mnt", os.O_RDONLY), 0),
    lambda: call(308, 268, os.open(f"/proc/{VICTIM}/ns/net", os.O_RDONLY), 0),
    lambda: call(308, 268, os.pidfd_open(VICTIM), 0x20000),
    lambda: call(165, 40, b".", EMPTY, b"", 4096, None),
    lambda: call(165, 40, None, b"/", b"", 1, None),
    lambda: call(166, 39, os.fsencode(HOME) + b"/.ssh", 2),
    lambda: call(428, 428, AT, b"/", 1),
    lambda: call(429, 429, AT, b"/", AT, EMPTY, 0),
    lambda: call(430, 430, b"tmpfs", 0),
    lambda: call(442, 442, AT, b"/", 0x8000, struct.pack("QQQQ", 0, 1, 0, 0), 32),
    lambda: call(155, 41, b".", b"sub3"),
    lambda: call(161, 51, b"/"),
    handle,
    lambda: call(321, 280, 5, bytes(128), 128),
    lambda: call(298, 241, struct.pack("II", 1, 128) + bytes(120), 0, -1, -1, 0),
    lambda: call(323, 282, 1),
    lambda: call(425, 425, 8, bytes(120)),
    ring,
    lambda: call(250, 219, 0, -3, 0),
    lambda: call(249, 218, b"user", b"x", None, -3),
    lambda: call(175, 105, b"", 0, b""),
    lambda: call(313, 273, 0, b"", 0),
    lambda: call(246, 104, 0, 0, 0, 0),
    lambda: call(169, 142, 0xFEE1DEAD, 672274793, 0x89ABCDEF, 0),
    lambda: call(163, 89, b"ok"),
    lambda: call(103, 116, 3, ctypes.create_string_buffer(99), 99),
    lambda: call(300, 262, 0, 0),
    lambda: call(172, 219, 3) and not ARM,
    lambda: call(101, 117, 16, VICTIM, 0, 0),
    lambda: call(101, 117, 0x4206, VICTIM, 0, 0),
    lambda: memory(VICTIM),
    lambda: call(438, 438, os.pidfd_open(VICTIM), 0, 0),
    lambda: call(424, 424, os.pidfd_open(VICTIM), 0, None, 0),
    lambda: os.kill(VICTIM, 0) or True,
    lambda: os.kill(os.getppid(), 0) and False,
    lambda: call(302, 261, VICTIM, 7, struct.pack("QQ", 3, 3), None),
    lambda: call(141, 140, 0, VICTIM, 19),
    lambda: read(f"/proc/{VICTIM}/mem"),
    lambda: read(f"/proc/{VICTIM}/environ"),
    lambda: os.readlink(f"/proc/{VICTIM}/cwd"),
    typed,
    inner,
    by_thread,
    lambda: read(KEY),
    lambda: os.open(KEY, os.O_PATH) and read(f"/proc/self/fd/{os.open(KEY, os.O_PATH)}"),
    lambda: os.link(KEY, "key"),
    lambda: os.rename(f"{OUT}/file", "file"),
    lambda: libc.syscall(276 if ARM else 316, AT, b"ok", AT, f"{OUT}/file".encode(), 2) >= 0,
    lambda: os.sendfile(1, os.open(KEY, os.O_RDONLY), 0, 100),
    lambda: os.open(f"{OUT}/made", os.O_TMPFILE | os.O_RDWR) > 0,
    lambda: os.open(OUT, os.O_TMPFILE | os.O_RDWR, 0o600) > 0,
    lambda: os.mknod("device", 0o60666, os.makedev(254, 0)) or True,
    lambda: os.setxattr(f"{OUT}/file", "user.x", b"1") or True,
    lambda: os.utime(f"{OUT}/file", (1, 1)) or True,
    lambda: os.chmod(f"{OUT}/file", 0o777) or True,
    lambda: os.truncate(f"{OUT}/file", 0) or True,
    lambda: os.setuid(0) if os.getuid() else False,
    lambda: os.chmod("owner", 0o4755) or True,
    lambda: os.fchmod(os.open("owner", os.O_RDWR), 0o4755) or True,
    lambda: libc.syscall(452, AT, b"owner", 0o4755, 0) >= 0,
    lambda: os.open("owner1", os.O_CREAT | os.O_WRONLY, 0o4755) > 0,
    lambda: os.open(".", os.O_TMPFILE | os.O_RDWR, 0o4755) > 0,
    lambda: os.mknod("owner2", 0o104755) or True,
    lambda: libc.syscall(437, AT, b"owner3", struct.pack("QQQ", 0o101, 0o4755, 0), 24) >= 0,
)

for at, attempt in enumerate(ATTEMPTS):
    try:
        got = attempt()
    except (OSError, ValueError, AttributeError):
        got = False
    if got:
        print(f"python attempt {at}: GOT OUT: {got!r:.200}")
print(f"{len(ATTEMPTS)} attempts made")
sys.stdout.flush()
os._exit(0)
