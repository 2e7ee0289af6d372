"""`FutureProcess`, the program's side of the process of a future: starts it, talks to it by lines, and hears how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from kimi_tui.foreign_text import one_line
from kimi_tui.futures.child import Order
from kimi_tui.futures.namespace import beginning
from kimi_tui.tools.supervisor import told

_MOST_LINE = 64 << 20
_MOST_ERRORS = 4000
_GRACE_S = 8.0
"""Seconds that a process has for its end in order, before it is killed."""
_CHILD = ("-P", "-X", "utf8", "-m", "kimi_tui.futures.child")


class FutureProcess:
    """One process of a future.

    Args:
        heard: called with each line that it tells, see `futures.child`.
        words: the words for `confine`, which lay the files of the future over the work folder; empty for none.
        folder: the folder in which it runs.
        environ: its environment.
    """

    def __init__(
        self,
        heard: Callable[[Mapping[str, Any]], None],
        words: Sequence[str],
        folder: Path,
        environ: Mapping[str, str],
    ) -> None:
        self._heard = heard
        self._words = words
        self._folder = folder
        self._environ = environ
        self._process: asyncio.subprocess.Process | None = None
        self._errors: list[str] = []

    @property
    def pid(self) -> int:
        """Its process id; 0 before it is started."""
        return 0 if self._process is None else self._process.pid

    async def run(self, order: Order) -> str:
        """Start it, and return when it has ended: an empty text, or why it ended too early.

        Raises:
            OSError: it cannot be started.
            asyncio.CancelledError: cancelled; the process was killed.
        """
        held = told(self._words)
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                *beginning(held, os.getpid(), [sys.executable, *_CHILD]),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=self._folder,
                env=dict(self._environ),
                pass_fds=(held,) if held >= 0 else (),
                start_new_session=True,
                limit=_MOST_LINE,
            )
        finally:
            if held >= 0:
                os.close(held)
        self._say(cast("Mapping[str, Any]", order._asdict()))
        errors = asyncio.create_task(self._read_errors(process))
        try:
            await self._read(process)
            code = await process.wait()
            await errors
        except BaseException:
            self.kill()
            errors.cancel()
            with contextlib.suppress(ProcessLookupError):
                await asyncio.shield(process.wait())
            raise
        if code == 0:
            return ""
        last = one_line(" ".join(self._errors[-1:])).removeprefix("kimi-tui: ")
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
            return f"Its process was ended by {name}."
        return last or f"Its process ended with exit code {code}."

    def say(self, **message: object) -> None:
        """Send a message; one to a process that has ended is dropped."""
        self._say(message)

    async def stop(self) -> None:
        """Stop it in order; after some seconds it is killed."""
        process = self._process
        if process is None:
            return
        self._say({"type": "close"})
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(process.wait()), _GRACE_S)
            return
        self.kill()

    def kill(self) -> None:
        """Kill it; the commands of its agent end with it."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def _say(self, message: Mapping[str, object]) -> None:
        process = self._process
        if process is not None and process.stdin is not None and not process.stdin.is_closing():
            with contextlib.suppress(OSError, RuntimeError):
                process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:
                continue  # The line is longer than any that it writes.
            if not line:
                return
            with contextlib.suppress(ValueError, RecursionError):
                found: object = json.loads(line)
                if isinstance(found, dict):
                    self._heard(cast("Mapping[str, Any]", found))

    async def _read_errors(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while line := await process.stderr.read(_MOST_ERRORS):
            text = line.decode("utf-8", "replace")
            self._errors.extend(one for one in text.splitlines() if one.strip())
            del self._errors[:-20]
