"""Starts of the program that spare its imports: a process that has done them forks, and the fork is the program.

A fork has what a new process has: a session and a controlling terminal of its own, its environment, its folder, the
signals as Python sets them, streams as Python makes them, and the end of an interpreter. What modules read of the
environment when they are imported is as in a plain start. How long the program takes to start, and what it is while it
imports, is seen only in a start of the file itself.

One process forks for all tests, also where several processes run them: the first of these that needs it
starts it, in the folder of sockets that `share` names for all, and it ends when the process that made the folder ends.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import gc
import hashlib
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

POSSIBLE = hasattr(os, "pidfd_open")
_LONGEST_REQUEST_BYTES = 100_000
_END = struct.Struct("<qq")
"""What is told of the end of a program: its status, and its processor time in microseconds."""
_LAZILY = (
    "PIL.Image",
    "PIL.PngImagePlugin",
    "anyio._backends._asyncio",
    "anyio.streams.tls",
    "bs4",
    "concurrent.futures.thread",
    "encodings.utf_8_sig",
    "httpcore2",
    "importlib.readers",
    "markdown_it",
    "markdownify",
    "openai.resources.chat.completions",
    "pygments.lexers.configs",
    "pygments.lexers.data",
    "pygments.lexers.diff",
    "pygments.lexers.javascript",
    "pygments.lexers.python",
    "pygments.lexers.shell",
    "pypdf",
    "tenacity.asyncio",
    "textual.layouts.factory",
    "textual.layouts.horizontal",
    "textual.layouts.stream",
    "textual.pilot",
    "tomlkit",
    "truststore",
)
"""Modules that nearly every run of the program imports while it works, or many tests do, besides its own."""


class Forked:
    """A program that was forked, with the methods of `subprocess.Popen` that a terminal needs.

    Attributes:
        used_s: the processor time of all that ended meanwhile, with the processes that they started and waited for, in seconds.
    """

    used_s: ClassVar[float] = 0.0

    def __init__(self, told: int) -> None:
        self._told = os.fdopen(told, "rb", buffering=0)
        pid = self._told.read(8)
        assert pid, "the process that forks has ended"
        self.pid = int.from_bytes(pid, "little")
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while the program runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the program; return its exit code.

        Raises:
            TimeoutExpired: the program still runs after so many seconds.
        """
        if self._code is None:
            with selectors.DefaultSelector() as looks:
                looks.register(self._told, selectors.EVENT_READ)
                if not looks.select(timeout):
                    raise subprocess.TimeoutExpired("kimi-tui", timeout or 0)
            status, used_us = _END.unpack(self._told.read(_END.size))
            self._code = os.waitstatus_to_exitcode(status)
            self._told.close()
            Forked.used_s += used_us / 1e6
        return self._code


class Meeting(NamedTuple):
    """The place where the processes that run tests meet the one that forks."""

    folder: str
    """The folder of the sockets, one for each environment."""
    lives: int
    """The id of the process that made the folder; the process that forks ends with it."""


_meeting: list[Meeting] = []


def meeting() -> Meeting:
    """Return the meeting of this process: the one given by `share`, else one of its own."""
    if not _meeting:
        folder = tempfile.mkdtemp(prefix="forks-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _meeting.append(Meeting(folder, os.getpid()))
    return _meeting[0]


def share(told: Sequence[Any]) -> None:
    """Let this process use the meeting of others.

    Args:
        told: the `meeting` of the process that outlives all of them.
    """
    _meeting[:] = [Meeting(*told)]


@functools.cache
def _forking(environment: tuple[tuple[str, str], ...]) -> socket.socket:
    """Return a connection to a process that forks, and start that process if there is none."""
    where = meeting()
    name = hashlib.sha256(repr(environment).encode()).hexdigest()[:16]
    address = f"{where.folder}/{name}"
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        try:
            listening.bind(f"{address}.{os.getpid()}")
            listening.listen(64)
            # Only one process can make this link; the others find a socket that listens already.
            os.link(f"{address}.{os.getpid()}", address)
        except FileExistsError:
            pass
        else:
            _start(listening, where.lives, dict(environment))
    ours.connect(address)
    return ours


def _start(listening: socket.socket, lives: int, environment: Mapping[str, str]) -> None:
    """Start the process that forks, at a socket that listens, without waiting for its end."""
    # The process has a terminal without a reader, so that Python makes its streams for one.
    master, slave = os.openpty()
    given = [listening.fileno(), master]
    process = subprocess.Popen(
        [sys.executable, "-P", __file__, *map(str, (*given, lives))],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
        pass_fds=given,
        start_new_session=True,
    )
    os.close(slave)
    os.close(master)
    # The process may outlive this one, which is intended: Python must not warn of it.
    process.returncode = 0


def forked(
    command: Sequence[str],
    code: str,
    terminal: int,
    environment: Mapping[str, str],
    folder: Path,
    plain: Mapping[str, str],
) -> Forked:
    """Start code in a fork, as `command` would run it.

    Args:
        command: the arguments that the program sees.
        code: Python code that runs it.
        terminal: the descriptor of its controlling terminal.
        environment: all of its environment.
        folder: its working directory.
        plain: the environment of a plain start.
    """
    told, tells = os.pipe()
    request = json.dumps([list(command), code, dict(environment), str(folder)]).encode()
    assert len(request) <= _LONGEST_REQUEST_BYTES
    socket.send_fds(_forking(tuple(plain.items())), [request], [terminal, tells])
    os.close(tells)
    return Forked(told)


def import_all() -> None:
    """Import all of the program, and what nearly every run of it imports."""
    import kimi_tui

    for module in pkgutil.walk_packages(kimi_tui.__path__, "kimi_tui."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in _LAZILY:
        importlib.import_module(name)


def _serve(listening: socket.socket, terminal: int, lives: int) -> str:
    """Fork for each request as long as a process lives; return, in a fork, the code to run.

    Args:
        listening: the socket for requests.
        terminal: a descriptor that forks close.
        lives: the id of that process.
    """
    running: dict[int, tuple[int, int]] = {}
    looks = selectors.DefaultSelector()
    looks.register(listening, selectors.EVENT_READ)
    try:
        over = os.pidfd_open(lives)
    except ProcessLookupError:
        return ""
    looks.register(over, selectors.EVENT_READ)
    while True:
        for key, _ in looks.select():
            if key.fd == over:
                return ""
            if key.fileobj is listening:
                looks.register(listening.accept()[0], selectors.EVENT_READ)
                continue
            if key.fd in running:
                pid, tells = running.pop(key.fd)
                looks.unregister(key.fd)
                os.close(key.fd)
                _, status, used = os.wait4(pid, 0)
                used_us = int((used.ru_utime + used.ru_stime) * 1e6)
                with contextlib.suppress(BrokenPipeError):
                    os.write(tells, _END.pack(status, used_us))
                os.close(tells)
                continue
            channel = cast(socket.socket, key.fileobj)
            request, given, *_ = socket.recv_fds(channel, _LONGEST_REQUEST_BYTES, 2)
            if not request:
                looks.unregister(channel)
                channel.close()
                continue
            screen, tells = given
            pid = os.fork()
            if not pid:
                for other in [*looks.get_map().values()]:
                    if isinstance(other.fileobj, socket.socket):
                        other.fileobj.close()
                    else:
                        os.close(other.fd)
                looks.close()
                for _, told in running.values():
                    os.close(told)
                os.close(tells)
                os.close(terminal)
                return _exec_command(screen, *json.loads(request))
            os.close(screen)
            os.write(tells, pid.to_bytes(8, "little"))
            watched = os.pidfd_open(pid)
            running[watched] = pid, tells
            looks.register(watched, selectors.EVENT_READ)


def _exec_command(
    terminal: int, command: list[str], code: str, environment: dict[str, str], folder: str
) -> str:
    os.setsid()
    for number in range(3):
        os.dup2(terminal, number)
    os.close(terminal)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = command
    if site := os.environ.get("PYTHONPATH"):
        runpy.run_path(f"{site}/sitecustomize.py")
    return code


if __name__ == "__main__":
    gc.disable()
    import_all()
    # A plain start also freezes what was imported. A collection in a fork would copy all of it, page by page, which takes a
    # third of a short run.
    gc.freeze()
    _given, _terminal, _lives = map(int, sys.argv[1:])
    os.set_inheritable(_given, False)
    os.set_inheritable(_terminal, False)
    if _code := _serve(socket.socket(fileno=_given), _terminal, _lives):
        gc.enable()
        exec(compile(_code, "<string>", "exec"), {"__name__": "__main__"})
