"""Runs a command as a child process: its environment, its output, and the end of every process that it started.

One thread owns a `RunningCommand` from start to reaping. It waits for the output and the exit separately, because a
background child can hold the pipe open long after the command has ended. The awaiting task can be cancelled at any time: the
thread still ends every process that was started. These processes are found in three ways: by the supervisor that runs above
the command (`supervisor.py`); on Linux by a random mark in the command's environment, which its descendants inherit in any
process group or session; elsewhere by the parents that `ps` lists.

Its output is kept in bounded memory: beginning and end for the model (`Capture`), the newest lines live (`LiveText`).
Terminal sequences are removed (`foreign_text.clean`); a line that is redrawn with carriage returns keeps its last state.
Child processes get a short list of harmless variables, none with a key or with code to run. This module imports neither
pydantic nor other modules of tools except `prepared` and `supervisor`.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple
from uuid import uuid4

from kimi_tui.app_paths import XDG_FOLDERS, home_of
from kimi_tui.foreign_text import clean
from kimi_tui.tools.prepared import SupervisedCommand, start_supervisor
from kimi_tui.tools.supervisor import MARK_NAME, alive_below, all_below


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


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `environ` that a child process gets, with pagers, editors and prompts switched off.

    A relative folder of configurations, which some programs accept, would lie in the work folder, so it is omitted."""
    passed = {
        name: value
        for name, value in environ.items()
        if (name in _PASSED and (os.path.isabs(value) or name not in XDG_FOLDERS.values()))
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

_TRIES = 3
"""The number of attempts to start a command in the sandbox."""
_KILL_WAIT_S = 3.0
_REPORT_BYTES = 64 << 10
"""Bytes: more than the longest report, which may contain a path."""
_LONGEST_NUMBER = 9


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


class _Supervised:
    """A command with its supervisor (`supervisor.py`): its exit code, and the signals to its descendants.

    It is reaped only on leaving the context, so that the supervisor's process id cannot be reused before.
    """

    def __init__(
        self,
        argv: Sequence[str],
        mark: str,
        *,
        confined_to: Sequence[str],
        work_dir: Path,
        environ: Mapping[str, str],
        output: int,
    ) -> None:
        """Start the command.

        Args:
            argv: the full path of the program, and its arguments.
            confined_to: the words with which the supervisor confines it (`sandbox/confine.py`); empty for no sandbox.
            mark: the value of `MARK_NAME` in the environment of everything it starts.
            work_dir: the folder in which it runs.
            environ: the variables of the command.
            output: the descriptor for its output.

        Raises:
            OSError: the command could not be started.
        """
        command = SupervisedCommand(argv, str(work_dir), environ, confined_to, mark)
        started = start_supervisor(command, output)
        self._process, self._orders, self.descriptor = (
            started.process,
            started.orders,
            started.reports,
        )
        self.pid = self._process.pid
        self._is_confined = bool(confined_to)
        self._heard = b""
        self._exit: str | None = None

    def order(self, code: str) -> None:
        """Send an order (see `supervisor.py`); does nothing if the supervisor has ended."""
        with contextlib.suppress(OSError):
            os.write(self._orders, code.encode())

    def exit_code(self) -> int | None:
        """Return the command's exit code, negative for a signal; None if it has not ended, or if its end was not reported.

        Raises:
            OSError: the command could not be started.
        """
        self._next_report("X", 1.0)
        if self._exit is None:
            return None
        kind, _, number = self._exit.partition(" ")
        if kind == "E":
            code, _, why = number.partition(" ")
            raise OSError(int(code), why or os.strerror(int(code)))
        return int(number)

    def kill_all(self) -> int | None:
        """Kill all descendants of the supervisor; return the number of processes left, None if it is unknown."""
        self.order("K")
        left = self._next_report("L", _KILL_WAIT_S)
        if left is not None and (self._is_confined or not _HAS_PROC):
            return int(left)
        # A command outside the sandbox can write to the supervisor's pipes, so only our own reading of `/proc` counts.
        n_left = self._kill_below() if _HAS_PROC else None
        if left is None:
            # The command stopped or killed its supervisor.
            self._process.kill()
        return n_left

    def _kill_below(self) -> int | None:
        """Kill the supervisor's descendants from this process; return the number left, None if the supervisor has ended.

        While the supervisor is only stopped, all of them still have it as an ancestor.
        """
        for _ in range(_KILL_ROUNDS):
            below = alive_below(self.pid)
            if self._process.poll() is not None:
                return None
            if not below:
                return 0
            for pid in below:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_TICK_S)
        return len(alive_below(self.pid)) if self._process.poll() is None else None

    def _next_report(self, wanted: str, timeout_s: float) -> str | None:
        """Return the text of the next report of a kind; None if none comes in time."""
        deadline = time.monotonic() + timeout_s
        while True:
            *lines, self._heard = self._heard.split(b"\n")
            for line in lines:
                text = line.decode("ascii", "replace")
                if not _is_report(text):
                    continue
                # After a failed start, the end of the process that tried is reported next; it is not the command's exit.
                if text[:1] in ("X", "E") and self._exit is None:
                    self._exit = text
                if text[:1] == "L" and wanted == "L":
                    return text[2:]
            if wanted == "X" and self._exit is not None:
                return self._exit
            waiter = select.poll()
            waiter.register(self.descriptor, select.POLLIN)
            left_s = deadline - time.monotonic()
            # Another process may be writing, without end.
            if left_s <= 0 or not waiter.poll(left_s * 1000):
                return None
            data = os.read(self.descriptor, _REPORT_BYTES)
            if not data:
                return None
            self._heard = (self._heard + data)[-_REPORT_BYTES:]

    def __enter__(self) -> _Supervised:
        return self

    def __exit__(self, *_: object) -> None:
        self.order("Q")
        os.close(self._orders)
        # The pipe's end ends the reports. Waiting for the process alone would poll it at ever longer intervals.
        self._next_report("end", 1.0)
        os.close(self.descriptor)
        try:
            self._process.wait(1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _is_report(line: str) -> bool:
    """Return whether a line has the form of a report; a command outside the sandbox can write other lines into the pipe."""
    kind, _, rest = line.partition(" ")
    number = rest.partition(" ")[0].removeprefix("-")
    return kind in ("X", "E", "L") and number.isdecimal() and len(number) <= _LONGEST_NUMBER


_HAS_PROC = sys.platform == "linux" and Path("/proc/self/environ").exists()


def marked(mark: str) -> list[int]:
    """Return the ids of the processes whose environment has the mark."""
    if not _HAS_PROC:
        return []
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _has_mark(int(entry.name), mark)
    ]


def _has_mark(pid: int, mark: str) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            return f"{MARK_NAME}={mark}".encode() in file.readall().split(b"\0")
    except OSError:
        return False


def _descendants(pid: int) -> list[int]:
    """Return all descendants of a process without `/proc`; call it before the process ends."""
    if _HAS_PROC:
        return []
    return descendants_by_ps(pid)


def descendants_by_ps(pid: int) -> list[int]:
    """Parse all descendants of a process from the output of `ps`."""
    try:
        listed = subprocess.run(
            ["/bin/ps", "-axo", "pid=,ppid="],
            capture_output=True,
            text=True,
            timeout=2,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return []
    children: dict[int, list[int]] = {}
    for line in listed.splitlines():
        fields = line.split()
        if len(fields) == 2 and all(field.isdigit() for field in fields):
            children.setdefault(int(fields[1]), []).append(int(fields[0]))
    return all_below(pid, children)


def _signal_all(mark: str, others: list[int], number: signal.Signals) -> None:
    """Send a signal to the processes with the mark, and to others."""
    for other in marked(mark):
        _signal_marked(other, mark, number)
    for other in others:
        with contextlib.suppress(OSError):
            os.kill(other, number)


def _signal_marked(pid: int, mark: str, number: signal.Signals) -> None:
    """Signal a process only if it still is the marked one: process ids are reused, process descriptors are not."""
    if not hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            os.kill(pid, number)
        return
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if _has_mark(pid, mark):
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)


TERM_GRACE_S = 2.0
EOF_GRACE_S = 0.3
_LIVE_INTERVAL_S = 0.05
_CANCEL_WAIT_S = 0.5
_PIPE_READS = 20
_TICK_S = 0.1
_KILL_ROUNDS = 3

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
        """
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
        loop = asyncio.get_running_loop()
        done: asyncio.Future[ProcessEnd] = loop.create_future()

        def settle(result: ProcessEnd | Exception) -> None:
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
            result: ProcessEnd | Exception
            try:
                with self._around:
                    result = self._started(lambda text: call_soon(loop, deliver, text))
            except Exception as error:
                result = error
            call_soon(loop, settle, result)

        # The thread is no daemon: the interpreter waits for it, so that no process of a command outlives the program.
        thread = threading.Thread(target=work, name="command", daemon=False)
        thread.start()
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            self._ask_to_stop()
            # The wait is long enough for processes that obey, and short enough for the user; the thread ends the others by
            # itself.
            await asyncio.wait([done], timeout=_CANCEL_WAIT_S)
            raise

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
        try:
            try:
                process = _Supervised(
                    self._argv,
                    self.mark,
                    confined_to=self._confined_to,
                    work_dir=self._work_dir,
                    environ=self._environ,
                    output=write_end,
                )
            finally:
                os.close(write_end)
            with process:
                watch = _Watch(output, process.descriptor, self._wake_read)
                try:
                    ending = self._until_end(process, watch, post)
                except BaseException:
                    # After any error here no process is left running.
                    process.kill_all()
                    _signal_all(self.mark, [], signal.SIGKILL)
                    raise
                exit_code = process.exit_code()
        finally:
            os.close(output)
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
        process: _Supervised,
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

    def _end_all(self, process: _Supervised, watch: _Watch, post: Callable[[str], None]) -> None:
        """Send TERM, wait two seconds, send KILL; the output is read meanwhile, so that no process blocks on a full pipe."""
        others = _descendants(process.pid)
        process.order("T")
        _signal_all(self.mark, others, signal.SIGTERM)
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
        for _ in range(_KILL_ROUNDS):
            _signal_all(self.mark, others, signal.SIGKILL)
            if not marked(self.mark):
                break
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
