"""The attempts of a hostile program in the place of `rg`, which gets its targets as text; it prints which of them succeeded.

Each attempt is real: with no sandbox at all it gets out. What is imported is imported first, for in the sandbox nothing can be.
"""

import ctypes
import fcntl
import json
import os
import socket
import struct
import sys

WORLD = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
OUT, WORK, HOME, SHM, TMP = (WORLD[name] for name in ("out", "work", "home", "shm", "tmp"))
VICTIM, PORT, RULES = (WORLD[name] for name in ("victim", "port", "rules"))
ARM = os.uname().machine == "aarch64"
LOOPBACK = "127.0.0.1"


def write(path, flags=os.O_WRONLY):
    return os.write(os.open(path, flags | os.O_NONBLOCK), b"evil\n") > 0


def read(path):
    with open(path, "rb") as file:
        return b"key" in file.read(4096)


def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as end:
        end.settimeout(1)
        end.connect(address)
        return True


def say():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        return end.sendto(b"x", (LOOPBACK, PORT)) == 1


def forked():
    child = os.fork()
    if child == 0:
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def spawned():
    return os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", ":"], {}), 0)[1] == 0


def flags():
    """The flag that nobody asks for when a file was read, on one that is its user's own."""
    held = os.open(f"{WORK}/own", os.O_RDONLY)
    fcntl.ioctl(held, 0x40086602, struct.pack("l", 0x80))
    return True


def read_by_links():
    """Read through links that a command in the background puts on the way."""
    return read(f"{WORK}/link/id") or read(f"{WORK}/linked")


def lock():
    fcntl.flock(os.open(f"{WORK}/own", os.O_RDONLY), fcntl.LOCK_EX)
    return True


def ask_for_signal():
    fcntl.fcntl(os.open(WORK, os.O_RDONLY), fcntl.F_SETOWN, VICTIM)
    return True


def segment():
    return libc.shmget(WORLD["segment"], 64, 0) >= 0


def call(x86, arm, *arguments):
    return libc.syscall(arm if ARM else x86, *arguments) >= 0


ATTEMPTS = {
    "write in what is searched": lambda: write(f"{WORK}/own"),
    "append": lambda: write(f"{WORK}/own", os.O_WRONLY | os.O_APPEND),
    "empty": lambda: os.close(os.open(f"{WORK}/own", os.O_RDONLY | os.O_TRUNC)) or True,
    "cut": lambda: os.truncate(f"{WORK}/own", 0) or True,
    "make": lambda: write(f"{WORK}/made", os.O_WRONLY | os.O_CREAT),
    "folder": lambda: os.mkdir(f"{WORK}/folder") or True,
    "pipe": lambda: write(f"{WORK}/pipe", os.O_RDWR),
    "remove": lambda: os.unlink(f"{WORK}/gone") or True,
    "rename": lambda: os.rename(f"{WORK}/moved", f"{WORK}/moved2") or True,
    "link": lambda: os.link(f"{WORK}/own", f"{WORK}/hard") or True,
    "link to": lambda: os.symlink("x", f"{WORK}/soft") or True,
    "mode": lambda: os.chmod(f"{WORK}/own", 0o640) or True,
    "mode outside": lambda: os.chmod(f"{OUT}/file", 0o640) or True,
    "owner": lambda: os.chown(f"{WORK}/own", -1, os.getegid()) or True,
    "times": lambda: os.utime(f"{OUT}/file", (1, 1)) or True,
    "attribute": lambda: os.setxattr(f"{WORK}/own", "user.x", b"1") or True,
    "flags": flags,
    "lock": lock,
    "write outside": lambda: write(f"{OUT}/file"),
    "temporary": lambda: write(f"{TMP}/made", os.O_WRONLY | os.O_CREAT),
    "shared memory": lambda: write(SHM),
    "rules": lambda: write(f"/proc/self/fd/{RULES}"),
    "given rules": lambda: os.write(RULES, b"evil") > 0,
    "segment": segment,
    "key": lambda: read(f"{HOME}/.ssh/id"),
    "key by root": lambda: read(f"/proc/self/root{HOME}/.ssh/id"),
    "key by links": read_by_links,
    "key by root in what is searched": lambda: read(f"{WORK}/root{HOME}/.ssh/id"),
    "key that is shut": lambda: read(f"{WORK}/shut/key"),
    "beside": lambda: read(f"{OUT}/beside"),
    "names outside": lambda: len(os.listdir(HOME)) > 0,
    "above": lambda: read("../out/beside"),
    "environment": lambda: read(f"/proc/{VICTIM}/environ"),
    "memory": lambda: os.close(os.open(f"/proc/{VICTIM}/mem", os.O_RDONLY)) or True,
    "trace": lambda: libc.ptrace(0x4206, VICTIM, 0, 0) == 0,
    "signal": lambda: os.kill(VICTIM, 0) or True,
    "signal to a thread": lambda: call(200, 130, VICTIM, 0),
    "ask for a signal": ask_for_signal,
    "nice": lambda: os.setpriority(os.PRIO_PROCESS, VICTIM, 19) or True,
    "processors": lambda: os.sched_setaffinity(VICTIM, {0}) or True,
    "fork": forked,
    "start": spawned,
    "tcp": lambda: connect(socket.AF_INET, (LOOPBACK, PORT)),
    "udp": say,
    "socket": lambda: connect(socket.AF_UNIX, f"{OUT}/sock"),
    "socket in what is searched": lambda: connect(socket.AF_UNIX, f"{WORK}/sock"),
    "abstract": lambda: connect(socket.AF_UNIX, f"\0{WORLD['abstract']}"),
    "become": lambda: os.execv("/bin/sh", ["sh", "-c", 'echo "[\\"become\\"]" >&9']),
}
MUST = {
    "own": lambda: read(f"{WORK}/own"),
    "deep": lambda: read(f"{WORK}/deep/own"),
    "names": lambda: "own" in os.listdir(WORK),
    "rules": lambda: read(f"/proc/self/fd/{RULES}"),
}
"""The places that a search needs."""


def tried(attempt):
    try:
        return bool(attempt())
    except (OSError, RuntimeError):
        return False


def main():
    os.dup2(1, 9)
    got_out = [f"cannot read {name}" for name, attempt in MUST.items() if not tried(attempt)]
    got_out += [name for name, attempt in ATTEMPTS.items() if name != "become" and tried(attempt)]
    os.write(9, json.dumps(got_out).encode() + b"\n")
    tried(ATTEMPTS["become"])


main()
