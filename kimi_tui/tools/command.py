"""A running command: one thread reads its output, notices its end and ends it when it must.

The thread owns the process from start to reaping. It waits for the output and the exit apart from each other, because a
background child can hold the pipe open long after the command itself has ended. Whoever awaits the command can be
cancelled at any time: the thread still ends everything that was started.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from uuid import uuid4

from kimi_tui.tools.capture import Capture, CapturedText, LiveText
from kimi_tui.tools.process_watch import ExitSignal, Watch, widen
from kimi_tui.tools.survivors import MARK_NAME, descendants, marked, signal_all

TERM_GRACE_S = 2.0
EOF_GRACE_S = 0.3
LIVE_INTERVAL_S = 0.05
CANCEL_WAIT_S = 0.5
_PIPE_READS = 20
_TICK_S = 0.1
_KILL_ROUNDS = 3

Ending = Literal["exited", "timeout", "stopped"]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. `exit_code` is negative for a signal and None where it was stopped by us.

    `n_left` counts background processes that held the output open and were ended.
    """

    ending: Ending
    exit_code: int | None
    duration_s: float
    n_bytes: int
    output: CapturedText
    n_left: int


class RunningCommand:
    """One child process in a session of its own, without a terminal and with an empty input."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        work_dir: Path,
        environ: Mapping[str, str],
        timeout_s: float,
        on_output: Callable[[str], None],
    ) -> None:
        self._mark = uuid4().hex
        self._argv = list(argv)
        self._work_dir = work_dir
        self._environ = {**environ, MARK_NAME: self._mark}
        self._timeout_s = timeout_s
        self._on_output = on_output
        self._capture = Capture()
        self._live = LiveText()
        self._stop = False
        self._n_left = 0
        self._wake_read, self._wake_write = os.pipe()
        self._wake_lock = threading.Lock()
        self._wake_closed = False

    async def run(self) -> Ended:
        """Start it and wait for its end.

        Raises:
            OSError: it could not be started.
            asyncio.CancelledError: cancelled; everything it started is ended, at the latest after `TERM_GRACE_S`.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Ended] = loop.create_future()

        def settle(result: Ended | Exception) -> None:
            if done.done():
                return
            if self._stop:
                done.cancel()
            elif isinstance(result, Exception):
                done.set_exception(result)
            else:
                done.set_result(result)

        def deliver(text: str) -> None:
            if not done.done() and not self._stop:
                self._on_output(text)

        def work() -> None:
            result: Ended | Exception
            try:
                result = self._live_through(lambda text: _call(loop, deliver, text))
            except Exception as error:
                result = error
            _call(loop, settle, result)

        # Not a daemon: the interpreter waits for it, so that nothing a command started outlives the program.
        thread = threading.Thread(target=work, name="command", daemon=False)
        thread.start()
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            self._ask_to_stop()
            # Long enough for what obeys, short enough for the person: what does not obey, the thread ends by itself.
            await asyncio.wait([done], timeout=CANCEL_WAIT_S)
            raise

    def _ask_to_stop(self) -> None:
        self._stop = True
        # The thread closes the pipe when it is done; the number may then be someone else's.
        with self._wake_lock:
            if not self._wake_closed:
                os.write(self._wake_write, b"x")

    def _close_wake(self) -> None:
        with self._wake_lock:
            self._wake_closed = True
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _live_through(self, post: Callable[[str], None]) -> Ended:
        """All of the command's life, in its thread."""
        output, write_end = os.pipe()
        widen(output)
        os.set_blocking(output, False)
        started = time.monotonic()
        try:
            try:
                process = subprocess.Popen(
                    self._argv,
                    cwd=self._work_dir,
                    env=self._environ,
                    stdin=subprocess.DEVNULL,
                    stdout=write_end,
                    stderr=write_end,
                    start_new_session=True,
                )
            finally:
                os.close(write_end)
            with ExitSignal(process) as exit_signal:
                watch = Watch(output, exit_signal.descriptor, self._wake_read)
                try:
                    ending = self._until_end(process, watch, post, started + self._timeout_s)
                except BaseException:
                    # Whatever went wrong here, nothing is left running.
                    signal_all(process.pid, self._mark, [], signal.SIGKILL)
                    raise
                exit_code = exit_signal.exit_code()
        finally:
            os.close(output)
            self._close_wake()
        rest = self._live.take(final=True)
        if rest:
            post(rest)
        duration_s = time.monotonic() - started
        if ending != "exited":
            exit_code = None
        captured = self._capture.text()
        return Ended(ending, exit_code, duration_s, self._capture.n_bytes, captured, self._n_left)

    def _until_end(
        self,
        process: subprocess.Popen[bytes],
        watch: Watch,
        post: Callable[[str], None],
        deadline: float,
    ) -> Ending:
        self._pump(watch, post, until=deadline)
        ending: Ending = "exited"
        if self._stop:
            ending = "stopped"
        elif not watch.exited:
            ending = "timeout"
        else:
            self._pump(watch, post, until=time.monotonic() + EOF_GRACE_S, after_exit=True)
            self._read_what_is_there(watch)
            if watch.at_end:
                return ending
            self._n_left = max(len(marked(self._mark)), 1)
        self._end_all(process, watch, post)
        return ending

    def _read_what_is_there(self, watch: Watch) -> None:
        """Empty the pipe once, however late this thread was given its turn."""
        for _ in range(_PIPE_READS):
            data = watch.read()
            if not data:
                return
            self._capture.feed(data)
            self._live.feed(data)

    def _end_all(
        self, process: subprocess.Popen[bytes], watch: Watch, post: Callable[[str], None]
    ) -> None:
        """TERM, two seconds, KILL; the output is read meanwhile, so that nobody waits for the pipe."""
        others = descendants(process.pid)
        signal_all(process.pid, self._mark, others, signal.SIGTERM)
        deadline = time.monotonic() + TERM_GRACE_S
        while time.monotonic() < deadline:
            until = min(deadline, time.monotonic() + _TICK_S)
            self._pump(watch, post, until=until, after_exit=True, stoppable=False)
            if watch.exited and watch.at_end:
                if not marked(self._mark):
                    break
                # All output is read; only what moved elsewhere is still to end.
                time.sleep(min(_TICK_S, max(deadline - time.monotonic(), 0)))
        for _ in range(_KILL_ROUNDS):
            signal_all(process.pid, self._mark, others, signal.SIGKILL)
            if not marked(self._mark):
                break
        until = time.monotonic() + EOF_GRACE_S
        self._pump(watch, post, until=until, after_exit=True, stoppable=False)

    def _pump(
        self,
        watch: Watch,
        post: Callable[[str], None],
        *,
        until: float,
        after_exit: bool = False,
        stoppable: bool = True,
    ) -> None:
        """Read until the end of the command (with `after_exit`: of its output too), a stop, or a point in time."""
        next_live = 0.0
        next_look = 0.0
        while True:
            now = time.monotonic()
            if self._live.waits and now >= next_live:
                post(self._live.take())
                next_live = now + LIVE_INTERVAL_S
            finished = watch.exited and (watch.at_end or not after_exit)
            if now >= until or finished or (stoppable and self._stop):
                return
            data = watch.read()
            if data:
                self._capture.feed(data)
                self._live.feed(data)
                # In a flood nothing is ever waited for; the exit and a stop are still noticed.
                if now < next_look:
                    continue
                next_look = now + LIVE_INTERVAL_S
                watch.wait(0)
                continue
            if watch.at_end and watch.exited:
                continue
            wait_until = min(until, next_live) if self._live.waits else until
            watch.wait(max(wait_until - now, 0))


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., None], value: object) -> None:
    """Call on the loop; a loop that is closed has nobody left to tell."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, value)
