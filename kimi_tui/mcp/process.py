"""The program of a `stdio` server as a child process: below a supervisor (`tools.supervisor`), in the sandbox if it has one.

What it writes to standard error goes to a file of bounded size. At its end every process that it started is ended, too.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from kimi_tui.app_paths import make_private
from kimi_tui.filesystem import open_regular
from kimi_tui.foreign_text import one_line
from kimi_tui.tools.prepared import SupervisedCommand, started_alone

_CLOSE_S = 2.0
"""Seconds that a server has to end after its standard input was closed, and again after SIGTERM."""
_KILL_S = 3.0
_BLOCK_BYTES = 64 << 10
_LOG_BYTES = 1 << 20
_TAIL_BLOCKS = 4
_SLOW_S = 0.02
"""Seconds between two blocks of a flood on standard error: the server waits for its reader."""


@dataclass(frozen=True, slots=True)
class ServerStart:
    """How the program is started.

    Attributes:
        argv: the full path of the program, and its arguments.
        environ: its variables.
        work_dir: the folder in which it runs.
        words: the words with which the supervisor confines it; empty for none.
    """

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    work_dir: Path
    words: tuple[str, ...] = ()


class ServerProcess:
    """A running program. Start and close it in a thread.

    Args:
        start: how it is started.
        log: the file for its standard error; what was in it is replaced.

    Attributes:
        stdin, stdout: the descriptors of its standard input and output; whoever uses them closes them.

    Raises:
        OSError: it could not be started.
    """

    def __init__(self, start: ServerStart, log: Path) -> None:
        theirs_in, self.stdin = os.pipe()
        self.stdout, theirs_out = os.pipe()
        errors, theirs_errors = os.pipe()
        command = SupervisedCommand(
            start.argv, str(start.work_dir), start.environ, start.words, uuid4().hex
        )
        try:
            started = started_alone(
                command, stdin=theirs_in, stdout=theirs_out, stderr=theirs_errors
            )
        except BaseException:
            for one in (self.stdin, self.stdout, errors):
                os.close(one)
            raise
        finally:
            for one in (theirs_in, theirs_out, theirs_errors):
                os.close(one)
        self._process, self._orders = started.process, started.orders
        self._reports = started.reports
        self._heard = b""
        self._hearing = threading.Lock()
        self._tail: deque[bytes] = deque(maxlen=_TAIL_BLOCKS)
        self._reader = threading.Thread(
            target=self._keep_errors, args=(errors, log), name="mcp stderr", daemon=True
        )
        self._reader.start()

    @property
    def last_words(self) -> str:
        """The last line that it wrote to standard error, cleaned and shortened."""
        text = b"".join([*self._tail])[-4096:].decode("utf-8", "replace")
        lines = [line for line in map(one_line, text.splitlines()) if line]
        return lines[-1][:200] if lines else ""

    def ended(self, timeout_s: float) -> str:
        """Wait for the end of the program; return it in words, empty if it has not ended in time."""
        with self._hearing:
            return self._ended(timeout_s)

    def _ended(self, timeout_s: float) -> str:
        deadline = time.monotonic() + timeout_s
        waiter = select.poll()
        waiter.register(self._reports, select.POLLIN)
        while True:
            for line in self._heard.split(b"\n")[:-1]:
                kind, _, rest = line.decode("utf-8", "replace").partition(" ")
                number, _, why = rest.partition(" ")
                if kind == "E":
                    return f"it could not be started: {one_line(why) or _strerror(number)}"
                if kind == "X":
                    return "it ended" if number == "0" else f"it ended with exit code {number}"
            if not waiter.poll(max(deadline - time.monotonic(), 0) * 1000):
                return ""
            data = os.read(self._reports, 4096)
            if not data:
                return "it ended"
            self._heard = (self._heard + data)[-_BLOCK_BYTES:]

    def close(self) -> None:
        """End the program and everything that it started: by the end of its input, then SIGTERM, then SIGKILL."""
        with self._hearing:
            if not self._ended(_CLOSE_S):
                self._order("T")
                self._ended(_CLOSE_S)
            self._kill()

    def _kill(self) -> None:
        self._order("K")
        deadline = time.monotonic() + _KILL_S
        waiter = select.poll()
        waiter.register(self._reports, select.POLLIN)
        while b"\nL " not in b"\n" + self._heard and time.monotonic() < deadline:
            if not waiter.poll(max(deadline - time.monotonic(), 0) * 1000):
                break
            data = os.read(self._reports, 4096)
            if not data:
                break
            self._heard += data
        self._order("Q")
        os.close(self._orders)
        os.close(self._reports)
        try:
            self._process.wait(_KILL_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(1.0)

    def _order(self, code: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._orders, code.encode())

    def _keep_errors(self, errors: int, log: Path) -> None:
        """Write standard error to the file: its first part, then only the end of it is kept in memory."""
        n_written, file = 0, -1
        with contextlib.suppress(OSError):
            make_private(log.parent)
            file = open_regular(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        while data := os.read(errors, _BLOCK_BYTES):
            self._tail.append(data)
            n_written += len(data)
            if file >= 0 and n_written <= _LOG_BYTES:
                with contextlib.suppress(OSError):
                    os.write(file, data)
            elif n_written > _LOG_BYTES:
                time.sleep(_SLOW_S)
        for one in (errors, file):
            if one >= 0:
                os.close(one)


def _strerror(number: str) -> str:
    return os.strerror(int(number)) if number.isdecimal() and len(number) < 5 else number
