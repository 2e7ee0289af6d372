"""Targets for attempts to get out of a sandbox: sockets, a process and shared memory, of this user or of one without rights."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
USERS = ["root", "another"] if os.geteuid() == 0 else ["this one"]
"""The users that make attempts, as parameters of a fixture."""


def number_of(user: str) -> int:
    """Return the number of one of `USERS`. No process outside the tests belongs to the user `another`."""
    made_up = 0x5A000000 + int.from_bytes(os.urandom(3), "big")
    return made_up if user == "another" else os.geteuid()


def run_as(user: int) -> dict[str, Any]:
    """Return the arguments with which `subprocess` runs a program as a user; none for the user that runs the tests."""
    return {} if user == os.geteuid() else {"user": user, "group": user, "extra_groups": []}


@contextmanager
def targets(name: str) -> Iterator[tuple[Path, ExitStack]]:
    """Make a folder in this checkout, and a stack for all other resources of one test; both are removed afterwards."""
    base = Path(tempfile.mkdtemp(dir=ROOT, prefix=f".sandbox-{name}-"))
    try:
        with ExitStack() as held:
            yield base, held
    finally:
        shutil.rmtree(base)


def give(paths: Iterable[Path], user: int) -> None:
    """Give files to a user."""
    for path in paths:
        os.chown(path, user, user if user != os.geteuid() else -1, follow_symlinks=False)


def socket_at(
    held: ExitStack, family: int, address: object, kind: int = socket.SOCK_STREAM
) -> socket.socket:
    """Return a socket that is bound to an address, and listens if its kind can."""
    made = held.enter_context(socket.socket(family, kind))
    made.bind(address)  # pyright: ignore[reportArgumentType]
    if kind == socket.SOCK_STREAM:
        made.listen(64)
    return made


def port_at(held: ExitStack, kind: int = socket.SOCK_STREAM) -> int:
    """Return the port of a socket of this machine alone."""
    return socket_at(held, socket.AF_INET, ("127.0.0.1", 0), kind).getsockname()[1]


def shared_segment(held: ExitStack, mode: int) -> int:
    """Return the key of a System V segment of shared memory."""
    key = int.from_bytes(os.urandom(3), "big") | 0x6C000000
    segment = ctypes.CDLL(None).shmget(key, 64, 0o1000 | mode)
    held.callback(ctypes.CDLL(None).shmctl, segment, 0, None)
    return key


def sleeping(held: ExitStack, user: int, token: str) -> int:
    """Return the id of a process of a user with a variable that no other user may read."""
    process = subprocess.Popen(
        ["/bin/sleep", "600"], env={"TOKEN": token}, start_new_session=True, **run_as(user)
    )
    held.callback(process.wait)
    held.callback(process.kill)
    return process.pid
