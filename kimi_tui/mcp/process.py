"""The program of a `stdio` server, or of an external agent, as a child process: below a supervisor (`tools.supervisor`), in the
sandbox if it has one.

What it writes to standard error goes to a file of bounded size. At its end every process that it started is ended, too.
`lines_of` reads what it writes to standard output.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from kimi_tui.app_paths import make_private, reason_of
from kimi_tui.display_names import signal_name
from kimi_tui.filesystem import open_regular
from kimi_tui.foreign_text import one_line
from kimi_tui.mcp.config import BadEntry
from kimi_tui.pipes import pipes
from kimi_tui.tools.prepared import SupervisedCommand, started_alone
from kimi_tui.tools.programs import find_program
from kimi_tui.tools.supervised import Supervised

log = logging.getLogger(__name__)

_CLOSE_S = 2.0
"""Seconds that a program has to end after its standard input was closed, and again after SIGTERM."""
_BLOCK_BYTES = 64 << 10
_LONGEST_LINE = 64 << 20
"""Bytes of a message; a program that sends a longer one is ended."""
_LOG_BYTES = 1 << 20
_TAIL_BLOCKS = 4
_NAMES_ERROR = re.compile(r"[\w.]{0,80}(?:Error|Exception|error)\b ?[:\[(]")
_END_S = 0.5
"""Seconds for the end of a program whose output has ended, and again for the rest of its standard error."""
_SLOW_S = 0.02
"""Seconds between two blocks of a flood on standard error: the server waits for its reader."""


class LineTooLong(Exception):
    """A program sent a longer line than any message; the text says so, as a clause."""


async def lines_of(source: asyncio.StreamReader) -> AsyncGenerator[bytes]:
    """Yield the lines of a program's output, without their ends, in linear time; a last line without an end is left out.

    Raises:
        LineTooLong: a line is too long.
    """
    parts: list[bytes] = []
    size = 0
    while chunk := await source.read(_BLOCK_BYTES):
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join([*parts, lines[0]])
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
        if size > _LONGEST_LINE:
            raise LineTooLong(f"it sent a message of more than {_LONGEST_LINE >> 20} MB")
        for line in lines:
            yield line


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
        (theirs_in, self.stdin), (self.stdout, theirs_out), (errors, theirs_errors) = pipes(3)
        mark = uuid4().hex
        command = SupervisedCommand(
            start.argv, str(start.work_dir), start.environ, start.words, mark
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
        self._name = os.path.basename(start.argv[0])
        self._supervised = Supervised(started, mark, is_confined=bool(start.words))
        self._hearing = threading.Lock()
        self._tail: deque[bytes] = deque(maxlen=_TAIL_BLOCKS)
        self._reader = threading.Thread(
            target=self._keep_errors, args=(errors, log), name="stderr of a program", daemon=True
        )
        self._reader.start()

    def how_ended(self) -> str:
        """Return how the program ended, whose output has ended, as a clause, with its last words on standard error."""
        how = self.ended(_END_S) or "it closed its output"
        # A process that the program left behind may hold standard error open.
        self._reader.join(_END_S)
        words = self._last_words()
        return f"{how}; its last output: {words}" if words else how

    def _last_words(self) -> str:
        """Return the line of standard error that says most: the last one that names an error, else the last one; cleaned and shortened."""
        text = b"".join([*self._tail])[-4096:].decode("utf-8", "replace")
        lines = [line for line in map(one_line, text.splitlines()) if line]
        errors = [line for line in lines if _NAMES_ERROR.match(line[:200])]
        return [*lines, *errors][-1][:200] if lines else ""

    def ended(self, timeout_s: float) -> str:
        """Wait for the end of the program; return it in words, empty if it has not ended in time."""
        with self._hearing:
            return self._ended(timeout_s)

    def _ended(self, timeout_s: float) -> str:
        try:
            code = self._supervised.exit_code(timeout_s)
        except OSError as error:
            return f"it could not be started: {reason_of(error)}"
        if code is None:
            return "it exited" if self._supervised.at_end else ""
        if code < 0:
            return f"it was killed by {signal_name(-code)}"
        return f"it exited with code {code}" if code else "it exited"

    def close(self) -> None:
        """End the program and everything that it started: by the end of its input, then SIGTERM, then SIGKILL."""
        with self._hearing, self._supervised as program:
            if not self._ended(_CLOSE_S):
                program.terminate()
                self._ended(_CLOSE_S)
            if program.kill_all() != 0:
                log.warning("%s stopped or ended its supervisor", self._name)
        self._reader.join(1.0)

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


class ServerStreams:
    """A `ServerProcess` with its pipes as streams of asyncio; `opened` makes one.

    Attributes:
        source: what the program writes to standard output.
        sink: its standard input.
    """

    def __init__(
        self,
        process: ServerProcess,
        source: asyncio.StreamReader,
        reading: asyncio.BaseTransport,
        sink: asyncio.StreamWriter,
    ) -> None:
        self.source = source
        self.sink = sink
        self._process = process
        self._reading = reading

    @classmethod
    async def opened(cls, start: ServerStart, log: Path) -> ServerStreams:
        """Start the program.

        Args:
            start, log: as for `ServerProcess`.

        Raises:
            OSError: it could not be started.
        """
        loop = asyncio.get_running_loop()
        process = await asyncio.to_thread(ServerProcess, start, log)
        source = asyncio.StreamReader(limit=_BLOCK_BYTES)
        reading, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(source),
            os.fdopen(process.stdout, "rb", buffering=0),
        )
        writing, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(process.stdin, "wb", buffering=0)
        )
        return cls(process, source, reading, asyncio.StreamWriter(writing, protocol, None, loop))

    async def how_ended(self) -> str:
        """Wait for the end of a program whose output has ended; return how it ended, as a clause."""
        return await asyncio.to_thread(self._process.how_ended)

    async def close(self) -> None:
        """End the program and everything that it started, also if the task that waits for it is cancelled."""
        self.sink.transport.close()
        # Not even a cancelled task may leave a process behind.
        closing = asyncio.get_running_loop().run_in_executor(None, self._process.close)
        try:
            await asyncio.shield(closing)
        finally:
            self._reading.close()


def program_path(command: str, environ: Mapping[str, str], folder: Path, work_dir: Path) -> str:
    """Return the full path of a server's program.

    A name is looked up where no command in the sandbox could have put a program.

    Raises:
        BadEntry: there is none.
    """
    command = os.path.expanduser(command)
    if "/" in command:
        path = os.path.normpath(folder / command)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
        raise BadEntry(f'"{one_line(command)[:100]}" is not a program')
    if found := find_program(command, environ, work_dir):
        return found
    raise BadEntry(f'the program "{one_line(command)[:60]}" was not found')
