"""Finds Unix sockets of other programs whose paths the kernel does not report, as they are a way out of the sandbox.

A socket with its absolute path in `/proc/net/unix` is covered when a command starts (`confine.sockets_of_others`). A socket
that was bound by a relative name, was renamed since, or has a line end in its name, is found here by the inode that the
kernel reports, in the folders where it may be: those that the caller has listed, the home folder, the current folders of all
processes, and the folders of the other sockets. Sockets of sandboxed commands with a network namespace of their own are not
among them, so that one such command can talk to another.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterable, Iterator

from kimi_tui.filesystem import note_unread, unread_is_empty

_SOCK_DIAG, _BY_FAMILY, _DUMP, _DONE, _ERROR = 4, 20, 0x301, 3, 2
_NAME, _FILE = 0, 1
_HEADER, _MESSAGE, _ATTRIBUTE = 16, 16, 4
_READ_BYTES = 1 << 16
_WAIT_S = 1.0
_MOST_IN_A_FOLDER = 5000


def stray_sockets(seen: Iterable[str], home: str) -> list[str]:
    """Return the real paths of sockets whose paths the kernel does not report. It lists folders if there are any, so call it in a thread.

    Args:
        seen: sockets that were found in the work folder; all of them count if the kernel reports none.
        home: the home folder.
    """
    if sys.platform != "linux":
        return []
    try:
        bound = dict(_bound())
    except OSError as error:
        note_unread(error)
        return sorted(seen)
    stray = {number: name for number, name in bound.items() if not _is_in_place(name)}
    if not stray:
        return []
    folders = {home, *(os.path.dirname(name) for name in bound.values() if name.startswith("/"))}
    return sorted({*_those_of(stray, seen), *_those_of(stray, _sockets_in(folders | _current()))})


def _is_in_place(name: str) -> bool:
    if not name.startswith("/") or "\n" in name:
        return False
    with contextlib.suppress(OSError):
        return stat.S_ISSOCK(os.lstat(name).st_mode)
    return False


def _those_of(numbers: Iterable[int], paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        with contextlib.suppress(OSError):
            status = os.lstat(path)
            # The kernel reports the lower half of the number.
            if stat.S_ISSOCK(status.st_mode) and status.st_ino & 0xFFFFFFFF in numbers:
                yield os.path.realpath(path)


def _current() -> set[str]:
    """Return the current folders of the processes that can be examined."""
    found: set[str] = set()
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/{name}/cwd"))
    return found


def _sockets_in(folders: Iterable[str]) -> Iterator[str]:
    for folder in folders:
        with unread_is_empty(), os.scandir(folder) as listing:
            for _, item in zip(range(_MOST_IN_A_FOLDER), listing, strict=False):
                kinds = (item.is_file(follow_symlinks=False), item.is_dir(follow_symlinks=False))
                if not any(kinds) and not item.is_symlink():
                    yield item.path


def _bound() -> Iterator[tuple[int, str]]:
    """Yield the inode and the name of each socket that was bound to a file, from the kernel's list.

    Raises:
        OSError: the kernel gives no list.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as asked:
        asked.settimeout(_WAIT_S)
        wanted = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, 3, 0, 0)
        head = struct.pack("=IHHII", _HEADER + len(wanted), _BY_FAMILY, _DUMP, 1, 0)
        asked.sendto(head + wanted, (0, 0))
        while True:
            data = asked.recv(_READ_BYTES)
            while len(data) >= _HEADER:
                length, kind = struct.unpack_from("=IH", data)
                if kind == _DONE:
                    return
                if kind == _ERROR or length < _HEADER:
                    raise OSError("the kernel does not list sockets")
                yield from _of_message(data[_HEADER + _MESSAGE : length])
                data = data[(length + 3) & ~3 :]


def _of_message(data: bytes) -> Iterator[tuple[int, str]]:
    parts: dict[int, bytes] = {}
    while len(data) >= _ATTRIBUTE:
        length, kind = struct.unpack_from("=HH", data)
        if length < _ATTRIBUTE:
            return
        parts[kind] = data[_ATTRIBUTE:length]
        data = data[(length + 3) & ~3 :]
    if len(parts.get(_FILE, b"")) >= 4:
        name = os.fsdecode(parts.get(_NAME, b"").rstrip(b"\0"))
        yield struct.unpack_from("=I", parts[_FILE])[0], name
