"""The program's side of the processes of a set: `StartServer` has them forked, `FutureProcess` talks to one and hears how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from kimi_tui.display_names import signal_name
from kimi_tui.foreign_text import one_line
from kimi_tui.futures.orders import Order
from kimi_tui.pipes import pipes

_MOST_LINE = 64 << 20
_MOST_ERRORS = 4000
_GRACE_S = 8.0
"""Seconds that a process has for its end in order, before it is killed."""
_ENDING_S = 30.0
"""Seconds that a process has to close its session and exit when it has told its end, before it is killed."""
_LAST_LINES_S = 2.0
"""Seconds for what a process has written that has exited: another one may hold its pipes open."""
_SERVER = ("-P", "-X", "utf8", "-m", "kimi_tui.futures.start_server")
_GONE = "The process that starts futures has ended. Restart kimi-tui to run futures."


class _Ends(NamedTuple):
    """The program's ends of the pipes of a future: to write to, to read from, and to read errors from."""

    stdin: int
    stdout: int
    stderr: int


class StartServer:
    """The process from which those of a set are forked, see `futures.start_server`.

    Args:
        keys: the futures of the set.
        environ: their environment.
    """

    def __init__(self, keys: Iterable[str], environ: Mapping[str, str]) -> None:
        self._keys = list(keys)
        self._environ = environ
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._ends: dict[str, _Ends] = {}
        self._begun: dict[str, asyncio.Future[int]] = {}
        self._ended: dict[str, asyncio.Future[int]] = {}

    async def start(self) -> None:
        """Start it; it loads the engine meanwhile.

        Raises:
            OSError: it cannot be started.
        """
        loop = asyncio.get_running_loop()
        theirs: list[int] = []
        arguments: list[str] = []
        try:
            for key in self._keys:
                (read, write), (out, told), (errors, said) = pipes(3)
                self._ends[key] = _Ends(write, out, errors)
                theirs += [read, told, said]
                arguments.append(f"{key}={read},{told},{said}")
                self._begun[key], self._ended[key] = loop.create_future(), loop.create_future()
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *_SERVER,
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=dict(self._environ),
                pass_fds=theirs,
                start_new_session=True,
            )
        finally:
            for one in theirs:
                os.close(one)
        self._reading = asyncio.create_task(self._read(self._process), name="start server")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            found: dict[str, Any] = {}
            with contextlib.suppress(ValueError, RecursionError):
                found = json.loads(line)
            for name, waiting in (("pid", self._begun), ("exit", self._ended)):
                future = waiting.get(str(found.get("key")))
                if name in found and future is not None and not future.done():
                    future.set_result(int(found[name]))
        for future in (*self._begun.values(), *self._ended.values()):
            if not future.done():
                future.set_exception(ConnectionError(_GONE))
                # Nobody may wait for it.
                future.exception()

    def take_ends(self, key: str) -> _Ends:
        """Return the program's ends of the pipes of a future, which the caller closes."""
        return self._ends.pop(key)

    async def begin(
        self, key: str, words: Sequence[str], folder: Path, *, agent: bool = False
    ) -> int:
        """Have the process of a future forked; return its process id.

        Args:
            key: the future.
            words: the words for `confine`, which lay its files over the work folder; empty for none.
            folder: the folder in which it runs.
            agent: whether it is a sub-agent.

        Raises:
            OSError: the server has ended.
        """
        process = self._process
        if process is None or process.stdin is None:
            raise ConnectionError(_GONE)
        order = {"key": key, "words": list(words), "folder": str(folder), "agent": agent}
        process.stdin.write(json.dumps(order).encode() + b"\n")
        return await asyncio.shield(self._begun[key])

    async def exit_code(self, key: str) -> int:
        """Return the exit code of a future's process when it has ended, negative for a signal.

        Raises:
            OSError: the server ended first.
        """
        return await asyncio.shield(self._ended[key])

    async def close(self) -> None:
        """End it, with the processes that it has started."""
        for ends in self._ends.values():
            for one in ends:
                os.close(one)
        self._ends.clear()
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        if not any(one.done() for one in self._begun.values()):
            # The process still loads the engine, which is not needed any more, and would see the end of its input only afterwards.
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _GRACE_S)
        if process.returncode is None:
            process.kill()
            await process.wait()
        if self._reading is not None:
            await self._reading


class FutureProcess:
    """One process of a future.

    Args:
        key: the future.
        server: starts it.
        heard: called with each line that it tells, see `futures.child`.
        words: the words for `confine`, which lay the files of the future over the work folder; empty for none.
        folder: the folder in which it runs.
    """

    def __init__(
        self,
        key: str,
        server: StartServer,
        heard: Callable[[Mapping[str, Any]], None],
        words: Sequence[str],
        folder: Path,
    ) -> None:
        self._key = key
        self._server = server
        self._heard = heard
        self._words = words
        self._folder = folder
        self._errors: list[str] = []
        self._writing: asyncio.WriteTransport | None = None
        self._is_over = asyncio.Event()
        self._is_stopped = False
        self._ending: asyncio.TimerHandle | None = None
        self.pid = 0
        """Its process id; 0 while it does not run."""

    async def run(self, order: Order) -> str:
        """Start it, and return when it has ended: an empty text, or why it ended too early.

        Raises:
            OSError: it cannot be started.
            asyncio.CancelledError: cancelled; the process was killed.
        """
        loop = asyncio.get_running_loop()
        ends = self._server.take_ends(self._key)
        lines, errors = asyncio.StreamReader(_MOST_LINE), asyncio.StreamReader()
        readers = [
            await _connected(loop, reader, end)
            for reader, end in ((lines, ends.stdout), (errors, ends.stderr))
        ]
        self._writing, _ = await loop.connect_write_pipe(
            asyncio.BaseProtocol, os.fdopen(ends.stdin, "wb", buffering=0)
        )
        self._say(cast("Mapping[str, Any]", order._asdict()))
        if self._is_stopped:
            self._say({"type": "close"})
        reading: asyncio.Future[Any] | None = None
        exiting: asyncio.Future[int] | None = None
        try:
            self.pid = await self._server.begin(
                self._key, self._words, self._folder, agent=bool(order.agent)
            )
            reading = asyncio.gather(self._read(lines), self._read_errors(errors))
            exiting = asyncio.ensure_future(self._server.exit_code(self._key))
            await asyncio.wait([reading, exiting], return_when=asyncio.FIRST_COMPLETED)
            # A process ends in order with the server, so that its last lines count before the server's end.
            is_gone = exiting.done() and exiting.exception() is None
            await asyncio.wait([reading], timeout=_LAST_LINES_S if is_gone else None)
            if reading.done():
                reading.result()
            code = await exiting
        except BaseException:
            self.kill()
            raise
        finally:
            for task in (reading, exiting):
                if task is not None:
                    task.cancel()
            if self._ending is not None:
                self._ending.cancel()
            self.pid = 0
            self._is_over.set()
            self._writing.close()
            for one in readers:
                one.close()
        if code == 0:
            return ""
        last = one_line(" ".join(self._errors[-1:])).removeprefix("kimi-tui: ")
        if code < 0:
            return f"Its process was killed by {signal_name(-code)}."
        return last or f"Its process exited with code {code}."

    def say(self, **message: object) -> None:
        """Send a message; one to a process that has ended is dropped."""
        self._say(message)

    async def stop(self) -> None:
        """Stop it in order; after some seconds it is killed."""
        self._is_stopped = True
        self._say({"type": "close"})
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_over.wait(), _GRACE_S)
        self.kill()

    def kill(self) -> None:
        """Kill it; the commands of its agent end with it."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _say(self, message: Mapping[str, object]) -> None:
        if self._writing is not None and not self._writing.is_closing():
            self._writing.write(json.dumps(message).encode() + b"\n")

    async def _read(self, lines: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await lines.readline()
            except ValueError:
                continue  # The line is longer than any that it writes.
            if not line:
                return
            with contextlib.suppress(ValueError, RecursionError):
                found: object = json.loads(line)
                if isinstance(found, dict):
                    self._take(cast("Mapping[str, Any]", found))

    def _take(self, line: Mapping[str, Any]) -> None:
        ended = line.get("ended")
        checks = isinstance(ended, dict) and bool(cast("Mapping[str, Any]", ended).get("checks"))
        if "checked" in line or ("ended" in line and not checks):
            self._ending = asyncio.get_running_loop().call_later(_ENDING_S, self.kill)
        self._heard(line)

    async def _read_errors(self, errors: asyncio.StreamReader) -> None:
        while line := await errors.read(_MOST_ERRORS):
            text = line.decode("utf-8", "replace")
            self._errors.extend(one for one in text.splitlines() if one.strip())
            del self._errors[:-20]


async def _connected(
    loop: asyncio.AbstractEventLoop, reader: asyncio.StreamReader, end: int
) -> asyncio.ReadTransport:
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(end, "rb", buffering=0)
    )
    return transport
