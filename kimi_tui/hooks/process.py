"""Runs one hook: a shell command with JSON on its standard input, below a supervisor, in the sandbox if it is to be.

Standard output and standard error are read apart and within limits. At its end, at its time limit, and when too much was
written, every process that it started is ended.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event as Flag
from typing import Literal, NamedTuple
from uuid import uuid4

from kimi_tui.app_paths import reason_of
from kimi_tui.tools.prepared import SupervisedCommand, started_alone
from kimi_tui.tools.supervised import Supervised

MOST_OUTPUT = 1 << 20
"""Bytes of standard output, and of standard error; a hook that writes more is ended."""
_REST_S = 0.3
_BLOCK = 64 << 10
_TICK_S = 0.1

Ending = Literal["exited", "timeout", "output", "stopped", "not started"]


class HookEnd(NamedTuple):
    """The end of a hook.

    Attributes:
        ending: how it ended: by itself, by its time limit, because it wrote too much, because it was stopped; or that it could
            not be started.
        code: its exit code, negative for a signal; None unless it ended by itself.
        output: its standard output.
        errors: its standard error, or why it was not started.
        duration_s: the seconds that it ran.
    """

    ending: Ending
    code: int | None = None
    output: bytes = b""
    errors: bytes = b""
    duration_s: float = 0.0


def run_hook(
    argv: Sequence[str],
    given: bytes,
    *,
    work_dir: Path,
    environ: Mapping[str, str],
    timeout_s: float,
    words: Sequence[str] = (),
    stop: Flag,
    around: AbstractContextManager[object] | None = None,
) -> HookEnd:
    """Run a hook to its end. It blocks, so call it in a thread.

    Args:
        argv: the full path of the program, and its arguments.
        given: its standard input.
        work_dir: the folder in which it runs.
        environ: its variables.
        timeout_s: the seconds after which it is ended.
        words: the words with which the supervisor confines it; empty for none.
        stop: set when it is to be ended.
        around: a context that is entered before it starts, and left when everything that it started has ended.
    """
    began = time.monotonic()
    with around or contextlib.nullcontext():
        end = _ended(argv, given, work_dir, environ, words, began + timeout_s, stop)
    return end._replace(duration_s=time.monotonic() - began)


def _ended(
    argv: Sequence[str],
    given: bytes,
    work_dir: Path,
    environ: Mapping[str, str],
    words: Sequence[str],
    deadline: float,
    stop: Flag,
) -> HookEnd:
    try:
        with tempfile.TemporaryFile() as file:
            # A file is read when the hook wants it; a pipe would have to be written while it runs.
            file.write(given)
            file.seek(0)
            process = _Process(argv, file.fileno(), work_dir, environ, words)
    except OSError as error:
        return HookEnd("not started", errors=reason_of(error).encode())
    with process:
        return process.followed(deadline, stop)


class _Process:
    """The running hook. On leaving the context everything that it started is ended."""

    def __init__(
        self,
        argv: Sequence[str],
        given: int,
        work_dir: Path,
        environ: Mapping[str, str],
        words: Sequence[str],
    ) -> None:
        opened: list[int] = []

        def pipe() -> tuple[int, int]:
            ends = os.pipe()
            opened.extend(ends)
            return ends

        mark = uuid4().hex
        command = SupervisedCommand(argv, str(work_dir), environ, words, mark)
        try:
            self._output, output = pipe()
            self._errors, errors = pipe()
            started = started_alone(command, stdin=given, stdout=output, stderr=errors)
        except BaseException:
            for one in opened:
                os.close(one)
            raise
        for one in (output, errors):
            os.close(one)
        self._supervised = Supervised(started, mark, is_confined=bool(words))

    def __enter__(self) -> _Process:
        return self

    def followed(self, deadline: float, stop: Flag) -> HookEnd:
        """Read until the hook has ended, or must be."""
        kept: dict[int, bytearray] = {self._output: bytearray(), self._errors: bytearray()}
        is_open = set(kept)
        poll = select.poll()
        for one in (*kept, self._supervised.reports):
            poll.register(one, select.POLLIN)
        ending: Ending = "exited"
        code: int | None = None
        while is_open or code is None:
            now = time.monotonic()
            if stop.is_set():
                ending = "stopped"
                break
            if now >= deadline:
                # Output that a process in the background holds open is no reason to call it late.
                ending = "exited" if code is not None else "timeout"
                break
            for descriptor, _ in poll.poll(min(_TICK_S, deadline - now) * 1000):
                if descriptor == self._supervised.reports:
                    try:
                        code = self._supervised.exit_code(0)
                    except OSError as error:
                        return HookEnd("not started", errors=reason_of(error).encode())
                    if code is None and self._supervised.at_end:
                        # The hook has ended its supervisor.
                        code = -signal.SIGKILL
                    if code is not None:
                        poll.unregister(descriptor)
                        deadline = min(deadline, time.monotonic() + _REST_S)
                    continue
                data = os.read(descriptor, _BLOCK)
                if not data:
                    is_open.discard(descriptor)
                    poll.unregister(descriptor)
                kept[descriptor] += data
            if any(len(one) > MOST_OUTPUT for one in kept.values()):
                ending = "output"
                break
        output, errors = (bytes(one[:MOST_OUTPUT]) for one in kept.values())
        return HookEnd(ending, code if ending == "exited" else None, output, errors)

    def __exit__(self, *_: object) -> None:
        with self._supervised as program:
            program.kill_all()
        for one in (self._output, self._errors):
            os.close(one)
