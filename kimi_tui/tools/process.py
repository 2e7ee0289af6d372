"""Runs a command as a child process: its environment, its output, and the end of every process that it started.

One thread owns a `RunningCommand` from start to reaping. It waits for the output and the exit separately, because a
background child can hold the pipe open long after the command has ended. The awaiting task can be cancelled at any time: the
thread still ends every process that was started (`supervised.py`).

Its output is kept in bounded memory: beginning and end for the model (`Capture`), the newest lines live (`LiveText`).
Terminal sequences are removed (`foreign_text.clean`); a line that is redrawn with carriage returns keeps its last state.
Child processes get a short list of harmless variables, none with a key or with code to run. This module imports neither
pydantic nor other modules of tools except `prepared`, `supervised` and `supervisor`.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import fcntl
import functools
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar
from uuid import uuid4

from kimi_tui.app_paths import XDG_FOLDERS, home_of
from kimi_tui.foreign_text import clean
from kimi_tui.tools.prepared import (
    SupervisedCommand,
    layers_held,
    look_ahead,
    start_supervisor,
)
from kimi_tui.tools.supervised import Supervised, marked
from kimi_tui.tools.supervisor import MOUNTS

T = TypeVar("T")


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text, for lists that are too long for one name per line."""
    return frozenset(text.split())


_PASSED = word_set("""HOME USER LOGNAME LANG LANGUAGE TZ TMPDIR TMP TEMP VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV JAVA_HOME
    ANDROID_HOME GOPATH GOROOT GOCACHE GOMODCACHE CARGO_HOME RUSTUP_HOME NVM_DIR PYENV_ROOT RBENV_ROOT GEM_HOME
    XDG_CONFIG_HOME XDG_CACHE_HOME XDG_DATA_HOME XDG_STATE_HOME SSL_CERT_FILE SSL_CERT_DIR NIX_PATH
    NIX_SSL_CERT_FILE HOMEBREW_PREFIX SDKROOT DEVELOPER_DIR""")
_PROXIES = word_set(
    "http_proxy https_proxy no_proxy all_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY"
)
_FIXED = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "EDITOR": "false",
    "VISUAL": "false",
    "DEBIAN_FRONTEND": "noninteractive",
}
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


ALSO_PASSED = "KIMI_TUI_ALSO_PASSED"
"""The environment variable that names further variables for commands, separated by spaces; the process of a future has it."""


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `environ` that a child process gets, with pagers, editors and prompts switched off.

    A relative folder of configurations, which some programs accept, would lie in the work folder, so it is omitted."""
    further = environ.get(ALSO_PASSED, "").split()
    passed = {
        name: value
        for name, value in environ.items()
        if name in further
        or (name in _PASSED and (os.path.isabs(value) or name not in XDG_FOLDERS.values()))
        or name.startswith("LC_")
        # A proxy's address may contain a password.
        or (name in _PROXIES and "@" not in value)
    }
    return {"PATH": environ.get("PATH") or DEFAULT_PATH, **passed, **_FIXED}


def user_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a command of the user: all of them, but without pagers, editors or prompts, as there is no terminal."""
    return {**environ, **_FIXED}


def repository_around(folder: Path, environ: Mapping[str, str]) -> Path:
    """Return the real path of the outermost repository around a folder; the folder itself if there is none.

    A repository of the home folder or around it holds the user's own settings and does not count.
    """
    home = Path(os.path.realpath(home_of(environ) or "/"))
    outermost = folder = Path(os.path.realpath(folder))
    for place in (folder, *folder.parents):
        if home.is_relative_to(place):
            break
        if os.path.lexists(place / ".git"):
            outermost = place
    return outermost


def own_git_settings(root: Path) -> dict[str, str]:
    """Return the variables that make git read the settings of the repository at a folder from that repository alone.

    A command in the sandbox cannot change these settings, but it can create the file `commondir`, with which git reads other
    settings, at any moment, even between a check and the run of git.
    """
    own = root / ".git"
    is_whole = own.is_dir() and not own.is_symlink()
    return {"GIT_COMMON_DIR": str(own)} if is_whole else {}


_READ_BYTES = 120 << 10
"""Bytes. The allocator would map each larger buffer anew."""
_PIPE_BYTES = 1 << 20
"""Bytes: the largest pipe that Linux gives without privileges. The more a command can write ahead, the fewer context switches."""
_SMALL_BYTES = 64 << 10
_GATHER_S = 0.0002
"""Seconds to wait after a short read, so that more output gathers: a reader that is woken by every write of a flood slows it by half."""

_MOST_THREADS = 10_000
"""The number of commands that may run at once, of which there are never so many."""
_TRIES = 3
"""The number of attempts to start a command in the sandbox."""


class _Watch:
    """Polls for the three events of a command's thread: output, the exit, and a request to stop."""

    def __init__(self, output: int, exit_descriptor: int, wake: int) -> None:
        self._output = output
        self._exit = exit_descriptor
        self._poll = select.poll()
        self._poll.register(output, select.POLLIN)
        self._poll.register(exit_descriptor, select.POLLIN)
        self._poll.register(wake, select.POLLIN)
        self._wake = wake
        self._woken = False
        self.at_end = False
        self.exited = False

    def read(self) -> bytes:
        """Return the available output; empty if there is none, or at the end."""
        if self.at_end:
            return b""
        try:
            data = os.read(self._output, _READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        if not data:
            self.at_end = True
            self._poll.unregister(self._output)
        return data

    def wait(self, timeout_s: float) -> None:
        """Wait until one of the events happens, at most `timeout_s` seconds."""
        for descriptor, _ in self._poll.poll(timeout_s * 1000):
            if descriptor == self._exit and not self.exited:
                self.exited = True
                self._poll.unregister(self._exit)
            elif descriptor == self._wake and not self._woken:
                self._woken = True
                self._poll.unregister(self._wake)


TERM_GRACE_S = 2.0
EOF_GRACE_S = 0.3
_LIVE_INTERVAL_S = 0.05
_CANCEL_WAIT_S = 0.5
_PIPE_READS = 20
_TICK_S = 0.1

NO_LIMIT_S = 7 * 86_400.0
"""Seconds: longer than any session. A poll takes at most three weeks."""

Ending = Literal["exited", "timeout", "stopped", "ended"]


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """The end of a command: its exit code or the reason why it was stopped, and its output.

    Attributes:
        ending: the way it ended: by itself, by its timeout, stopped on request, or by `RunningCommand.end`.
        exit_code: the exit code, negative for a signal; None if this program ended it.
        duration_s: the seconds from start to end.
        n_bytes: the bytes of its output, without those taken before.
        output: the part of the output that is kept.
        n_left: the number of background processes that held the output open and were ended.
        n_alive: the number of processes that could not be ended; None if it is unknown, as the command ended its supervisor.
    """

    ending: Ending
    exit_code: int | None
    duration_s: float
    n_bytes: int
    output: CapturedText
    n_left: int
    n_alive: int | None = 0


class RunningCommand:
    """One child process in a session of its own, without a terminal and with an empty standard input."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        work_dir: Path,
        environ: Mapping[str, str],
        timeout_s: float,
        on_output: Callable[[str], None],
        confined_to: Sequence[str] = (),
        ends_all: bool = False,
        around: AbstractContextManager[object] | None = None,
        on_bytes: Callable[[bytes], None] | None = None,
        afterwards: Callable[[], None] | None = None,
    ) -> None:
        """Prepare the command.

        Args:
            argv: the full path of the program, and its arguments.
            work_dir: the folder in which it runs.
            environ: its variables.
            timeout_s: the seconds after which it is ended, unless the limit is lifted.
            on_output: called on the event loop with its output.
            confined_to: the words with which its supervisor confines it.
            ends_all: whether to end the processes that it leaves running.
            around: a context that is entered in the command's thread before it starts, and left when all its processes have ended.
            on_bytes: called in the command's thread with all of its output, as it comes.
            afterwards: called in the command's thread when its end is known and everything of it has ended.
        """
        self._afterwards = afterwards
        self._done: asyncio.Future[Any] | None = None
        self._to_reap: list[Supervised] = []
        self._on_bytes = on_bytes
        self._around = around or contextlib.nullcontext()
        self._confined_to = confined_to
        self._ends_all = ends_all
        self.mark = uuid4().hex
        self._argv = list(argv)
        self._work_dir = work_dir
        self._environ = environ
        self._timeout_s = timeout_s
        self._on_output = on_output
        self.started = time.monotonic()
        self._capture = Capture()
        self._capture_lock = threading.Lock()
        self._live = LiveText()
        self._stop = False
        self._is_over = False
        self._n_left = 0
        self._n_alive: int | None = 0
        self._wake_read, self._wake_write = os.pipe()
        self._wake_lock = threading.Lock()
        self._wake_closed = False

    async def run(self) -> ProcessEnd:
        """Start the command and wait for its end.

        Raises:
            OSError: the command could not be started.
            asyncio.CancelledError: cancelled; every process that it started is ended, at the latest after `TERM_GRACE_S`.
        """
        return await self.run_to(_itself)

    async def run_to(self, report: Callable[[ProcessEnd], T]) -> T:
        """Start the command, wait for its end, and return what `report` makes of it in the command's thread.

        Raises:
            OSError: the command could not be started.
            asyncio.CancelledError: as for `run`.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._done = done

        def settle(result: T | Exception) -> None:
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
            result: T | Exception
            try:
                with self._around:
                    end = self._started(lambda text: call_soon(loop, deliver, text))
                result = report(end)
            except Exception as error:
                result = error
            with layers_held() if self._to_reap else contextlib.nullcontext():
                call_soon(loop, settle, result)
                for process in self._to_reap:
                    process.reap()
                if self._afterwards is not None:
                    self._afterwards()

        if self._confined_to:
            # The process that waits for the command looks at its mounts while this one prepares what it tells it.
            look_ahead(MOUNTS)
        _threads().submit(work)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            self._ask_to_stop()
            # The wait is long enough for processes that obey, and short enough for the user; the thread ends the others by
            # itself.
            await asyncio.wait([done], timeout=_CANCEL_WAIT_S)
            raise

    async def gone(self) -> None:
        """Wait until every process of a command that was started is gone, also after its `run` was cancelled."""
        if self._done is not None:
            await asyncio.wait([self._done])

    def lift_limit(self) -> None:
        """Remove the time limit; no effect if it has been reached."""
        self._timeout_s = NO_LIMIT_S

    def take_output(self) -> CapturedText:
        """Return the output since the last call, as far as it is kept; the rest comes with the end."""
        with self._capture_lock:
            taken, self._capture = self._capture, Capture()
        return taken.text()

    def _take(self, data: bytes) -> None:
        with self._capture_lock:
            self._capture.feed(data)
        self._live.feed(data)
        if self._on_bytes is not None:
            self._on_bytes(data)

    def end(self) -> None:
        """End the command with all its processes, from any thread; it then counts as ended by a timeout."""
        self._is_over = True
        self._wake()

    def _ask_to_stop(self) -> None:
        self._stop = True
        self._wake()

    def _wake(self) -> None:
        # The thread closes the pipe when it is done; the descriptor's number may be reused then.
        with self._wake_lock:
            if not self._wake_closed:
                os.write(self._wake_write, b"x")

    def _started(self, post: Callable[[str], None]) -> ProcessEnd:
        """Start the command and wait for its end. It runs in the command's thread.

        A command that could not be confined is tried again with the same words: a busy file may be free by then, and a path
        that was renamed since the policy was made stops it again.
        """
        try:
            for _ in range(_TRIES - 1 if self._confined_to else 0):
                with contextlib.suppress(OSError):
                    return self._run_in_thread(post)
                if self._is_asked:
                    break
            return self._run_in_thread(post)
        finally:
            with self._wake_lock:
                self._wake_closed = True
                os.close(self._wake_read)
                os.close(self._wake_write)

    def _run_in_thread(self, post: Callable[[str], None]) -> ProcessEnd:
        """Start the command, read its output and reap it."""
        output, write_end = os.pipe()
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):
                fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        os.set_blocking(output, False)
        started = self.started = time.monotonic()
        process: Supervised | None = None
        try:
            try:
                words = self._confined_to
                command = SupervisedCommand(
                    self._argv, str(self._work_dir), self._environ, words, self.mark
                )
                supervisor = start_supervisor(command, write_end)
                process = Supervised(supervisor, self.mark, is_confined=bool(words))
            finally:
                os.close(write_end)
            with process:
                watch = _Watch(output, process.reports, self._wake_read)
                try:
                    ending = self._until_end(process, watch, post)
                except BaseException:
                    # After any error here no process is left running.
                    process.kill_all()
                    raise
                exit_code = process.exit_code()
        finally:
            os.close(output)
            if process is not None and process.is_left:
                self._to_reap.append(process)
        rest = self._live.take(final=True)
        if rest:
            post(rest)
        duration_s = time.monotonic() - started
        if ending != "exited":
            exit_code = None
        elif exit_code is None:
            self._n_alive = None
        captured = self._capture.text()
        n_bytes = self._capture.n_bytes
        return ProcessEnd(
            ending, exit_code, duration_s, n_bytes, captured, self._n_left, self._n_alive
        )

    def _until_end(
        self,
        process: Supervised,
        watch: _Watch,
        post: Callable[[str], None],
    ) -> Ending:
        # The limit may be lifted meanwhile.
        while not watch.exited and not self._is_asked and time.monotonic() < self._deadline:
            self._pump(watch, post, until=self._deadline)
        ending: Ending = "exited"
        if self._is_asked:
            ending = "stopped" if self._stop else "ended"
        elif not watch.exited:
            ending = "timeout"
        else:
            self._pump(watch, post, until=time.monotonic() + EOF_GRACE_S, after_exit=True)
            # The pipe is drained even if this thread is scheduled after the deadline.
            for _ in range(_PIPE_READS):
                if not (data := watch.read()):
                    break
                self._take(data)
            if watch.at_end:
                if self._ends_all:
                    process.kill_all()
                return ending
            self._n_left = max(len(marked(self.mark)), 1)
        self._end_all(process, watch, post)
        return ending

    @property
    def _is_asked(self) -> bool:
        return self._stop or self._is_over

    @property
    def _deadline(self) -> float:
        return self.started + self._timeout_s

    def _end_all(self, process: Supervised, watch: _Watch, post: Callable[[str], None]) -> None:
        """Send TERM, wait two seconds, send KILL; the output is read meanwhile, so that no process blocks on a full pipe."""
        process.terminate()
        deadline = time.monotonic() + TERM_GRACE_S
        while time.monotonic() < deadline:
            until = min(deadline, time.monotonic() + _TICK_S)
            self._pump(watch, post, until=until, after_exit=True, stoppable=False)
            if watch.exited and watch.at_end:
                if not marked(self.mark):
                    break
                # All output is read; only processes that moved to another session are left.
                time.sleep(min(_TICK_S, max(deadline - time.monotonic(), 0)))
        self._n_alive = process.kill_all()
        until = time.monotonic() + EOF_GRACE_S
        self._pump(watch, post, until=until, after_exit=True, stoppable=False)

    def _pump(
        self,
        watch: _Watch,
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
            if self._live.waiting and now >= next_live:
                post(self._live.take())
                next_live = now + _LIVE_INTERVAL_S
            finished = watch.exited and (watch.at_end or not after_exit)
            if now >= until or finished or (stoppable and self._is_asked):
                return
            data = watch.read()
            if data:
                self._take(data)
                if len(data) < _SMALL_BYTES:
                    time.sleep(_GATHER_S)
                # During a flood of output the thread never waits, but still checks for the exit and a stop.
                if now < next_look:
                    continue
                next_look = now + _LIVE_INTERVAL_S
                watch.wait(0)
                continue
            if watch.at_end and watch.exited:
                continue
            wait_until = min(until, next_live) if self._live.waiting else until
            watch.wait(max(wait_until - now, 0))


@functools.cache
def _threads_of(_pid: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MOST_THREADS, "command")


def _threads() -> ThreadPoolExecutor:
    """Return the threads of commands; one that is idle takes the next. A forked copy of the program has its own.

    The interpreter waits for those that run, so that no process of a command outlives the program.
    """
    return _threads_of(os.getpid())


def _itself(end: ProcessEnd) -> ProcessEnd:
    return end


def call_soon(
    loop: asyncio.AbstractEventLoop, function: Callable[..., None], value: object
) -> None:
    """Call the function on the event loop; does nothing if the loop is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, value)


# -- output ------------------------------------------------------------------------------------------

HEAD_CHARS = 15_000
TAIL_CHARS = 25_000
LINE_CHARS = 2000
LIVE_CHARS = 8192
"""The largest number of characters in one piece of live output; of a flood the newest lines are shown."""

_HEAD_BYTES = HEAD_CHARS * 4
_TAIL_BYTES = TAIL_CHARS * 4
_BINARY_SHARE = 0.05


class Capture:
    """Collects the output of one command, shortened in the middle if it is long. Used by one thread."""

    def __init__(self) -> None:
        self.n_bytes = 0
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0

    def feed(self, data: bytes) -> None:
        """Append bytes that were read."""
        self.n_bytes += len(data)
        if len(self._head) < _HEAD_BYTES:
            room = _HEAD_BYTES - len(self._head)
            self._head += data[:room]
            data = data[room:]
            if not data:
                return
        self._tail.append(data)
        self._tail_bytes += len(data)
        while self._tail_bytes - len(self._tail[0]) >= _TAIL_BYTES:
            self._tail_bytes -= len(self._tail.popleft())

    def text(self) -> CapturedText:
        """Return the output as text for the model, shortened to its first `HEAD_CHARS` and last `TAIL_CHARS` characters."""
        tail = b"".join(self._tail)
        omitted = self.n_bytes - len(self._head) - len(tail)
        if omitted <= 0:
            whole = bytes(self._head) + tail
            text = _readable(whole)
            if len(text) <= HEAD_CHARS + TAIL_CHARS:
                shown, n_cut = _cut_lines(text)
                return CapturedText(shown, n_cut > 0, _is_binary(whole))
            head, end = text[:HEAD_CHARS], text[-TAIL_CHARS:]
        else:
            head = _readable(bytes(self._head))[:HEAD_CHARS]
            # The cut may be inside a character, whose rest is dropped.
            end = _readable(tail.lstrip(bytes(range(0x80, 0xC0))))[-TAIL_CHARS:]
        head = _to_line_end(head)
        end = _from_line_start(end)
        left_out = self.n_bytes - len(head.encode()) - len(end.encode())
        note = f"\n… {max(left_out, 0):,} bytes left out …\n"
        return CapturedText(
            _cut_lines(head)[0] + note + _cut_lines(end)[0], True, _is_binary(bytes(self._head))
        )


class CapturedText(NamedTuple):
    """The captured output for the model, and whether it was shortened or looks binary."""

    text: str
    shortened: bool
    binary: bool


class LiveText:
    """Decodes output for the live view. If more than `LIVE_CHARS` have come, the newest lines are kept.

    Attributes:
        waiting: the text to show.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.waiting = bytearray()
        self._skipped = 0

    def feed(self, data: bytes) -> None:
        """Append bytes that were read."""
        self.waiting += data[-LIVE_CHARS:]
        over = len(self.waiting) - LIVE_CHARS
        self._skipped += max(len(data) - LIVE_CHARS, 0)
        if over > 0:
            del self.waiting[:over]
            self._skipped += over

    def take(self, *, final: bool = False) -> str:
        """Return the text to show now; an incomplete character waits for its rest unless this is the end."""
        data = bytes(self.waiting)
        self.waiting.clear()
        note = ""
        if self._skipped:
            note = f"\n… {self._skipped:,} bytes skipped …\n"
            self._skipped = 0
            self._decoder.reset()
            data = data[data.find(b"\n") + 1 :].lstrip(bytes(range(0x80, 0xC0)))
        return note + self._decoder.decode(data, final)


def _readable(data: bytes) -> str:
    """Return the text without terminal sequences; lines that a progress display overwrote keep only their last state."""
    text = data.decode("utf-8", "replace")
    if "\r" in text:
        text = "\n".join(_last_state(line) for line in text.split("\n"))
    return clean(text)


def _last_state(line: str) -> str:
    line = line.rstrip("\r")
    return line[line.rfind("\r") + 1 :]


def _cut_lines(text: str) -> tuple[str, int]:
    if len(text) <= LINE_CHARS:
        return text, 0
    lines = text.split("\n")
    n_cut = 0
    for i, line in enumerate(lines):
        if len(line) > LINE_CHARS:
            lines[i] = f"{line[:LINE_CHARS]} … {len(line) - LINE_CHARS:,} more characters"
            n_cut += 1
    return ("\n".join(lines), n_cut) if n_cut else (text, 0)


def _to_line_end(text: str) -> str:
    end = text.rfind("\n", len(text) - LINE_CHARS)
    return text[:end] if end > 0 else text


def _from_line_start(text: str) -> str:
    start = text.find("\n", 0, LINE_CHARS)
    return text[start + 1 :] if start >= 0 else text


def _is_binary(data: bytes) -> bool:
    probe = data[:8192]
    if not probe:
        return False
    odd = probe.count(b"\0") + sum(
        probe.count(bytes([byte])) for byte in range(1, 32) if byte not in (7, 8, 9, 10, 12, 13, 27)
    )
    return odd > len(probe) * _BINARY_SHARE
