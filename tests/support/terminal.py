"""A terminal for whole-program tests: runs a command in a pty and shows what a person would see on the screen.

A reader thread feeds a pyte screen; tests wait for conditions on it and never sleep. It answers no terminal query, as
plain terminals do, but for that whether it is in order, if it is told to, and it keeps every byte for tests that look at bytes rather than at the screen.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from pyte.screens import Char

from support.emulator import QuickScreen, QuickStream
from support.forks import POSSIBLE, forked
from support.keyboard import key_bytes
from support.picture import svg_of

# These are sequences that pyte 0.8 would print or misread: private CSI (kitty keys, xterm modifiers, mode queries),
# sub-parameters such as the curly underline 4:3, and strings (titles, clipboard). The raw bytes still have all of them.
_NOT_FOR_PYTE = re.compile(
    rb"\x1b\[[<=>][0-9;:]*[ -/]*[@-~]"
    rb"|\x1b\[\??[0-9;]*[ -/]+[@-~]"
    rb"|\x1b\[[0-9;]*:[0-9;:]*m"
    rb"|\x1b\[\?[0-9;]*[mu]"
    rb"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"
)
# An escape sequence that this chunk did not finish.
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?)?\Z")
_LONGEST_SEQUENCE_BYTES = 65_536
_LOOK_S = 0.05
"""Seconds between two checks whether to go on reading, while there is nothing to read."""


class ScreenTimeout(AssertionError):
    """The expected screen did not come; the message shows the screen."""


class Terminal:
    """A command running in a pty of its own, with the screen it draws.

    Use it as a context manager: leaving it kills the command (by its own pid) and closes the pty.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        size: tuple[int, int] = (120, 40),
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        screen: bool = True,
        cell: tuple[int, int] = (0, 0),
        code: str = "",
    ) -> None:
        """Start the command.

        Args:
            command: the program and its arguments.
            size: columns and rows.
            env: added to a small clean environment (TERM, COLORTERM, LANG, PATH, HOME); nothing else is inherited.
            cwd: the folder to start in.
            cell: width and height of a character in pixels, where it tells them.
            screen: False keeps only the raw bytes, for measurements that pyte would slow down.
            code: Python code that runs the program, as `command` would, in a fork where that is possible.
        """
        self.columns, self.rows = size
        self._cell = cell
        self._screen = QuickScreen(self.columns, self.rows) if screen else None
        self._stream = QuickStream(self._screen) if self._screen is not None else None
        self._changed = threading.Condition()
        self._raw = bytearray()
        self._held_back = b""
        self._last_byte_at = time.monotonic()
        self._ended = False
        self._reading = threading.Lock()
        """The reading thread holds this lock while it reads."""
        self._reads = threading.Event()
        self._reads.set()
        self.answers = True
        """Whether the terminal answers status queries with "in order", as most do."""

        self._master, slave = os.openpty()
        self._set_size()
        plain = {
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LANG": "C.UTF-8",
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": os.environ.get("HOME", "/"),
        }
        environment = {**plain, **(env or {})}

        def take_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self._process = (
            forked(command, code, slave, environment, cwd or Path.cwd(), plain)
            if code and POSSIBLE
            else subprocess.Popen(
                list(command),
                stdin=slave,
                stdout=slave,
                stderr=slave,
                env=environment,
                cwd=cwd,
                start_new_session=True,
                preexec_fn=take_terminal,
            )
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, name="terminal", daemon=True)
        self._reader.start()

    # -- what the program wrote ------------------------------------------------------------------

    def _read(self) -> None:
        while True:
            self._reads.wait()
            try:
                if not select.select([self._master], [], [], _LOOK_S)[0]:
                    continue
                with self._reading:
                    if not self._reads.is_set():
                        continue
                    data = os.read(self._master, 65_536)
            except (OSError, ValueError):
                data = b""  # ended, or the window was closed
            with self._changed:
                if not data:
                    self._ended = True
                    self._changed.notify_all()
                    return
                self._raw += data
                if self.answers:
                    n_asked = self._raw[-len(data) - 3 :].count(b"\x1b[5n")
                    with contextlib.suppress(OSError):
                        self.write(b"\x1b[0n" * n_asked)
                self._last_byte_at = time.monotonic()
                if self._stream is not None:
                    self._feed(data)
                self._changed.notify_all()

    def _feed(self, data: bytes) -> None:
        assert self._stream is not None
        data = self._held_back + data
        self._held_back = b""
        unfinished = _UNFINISHED.search(data)
        if unfinished is not None and len(data) - unfinished.start() < _LONGEST_SEQUENCE_BYTES:
            data, self._held_back = data[: unfinished.start()], data[unfinished.start() :]
        self._stream.feed(_NOT_FOR_PYTE.sub(b"", data))

    @property
    def raw(self) -> bytes:
        """Return every byte the program has written so far."""
        with self._changed:
            return bytes(self._raw)

    @property
    def n_bytes(self) -> int:
        """Return how many bytes the program has written so far."""
        return len(self._raw)

    def lines(self) -> list[str]:
        """Return the rows of the screen, each as wide as the terminal."""
        with self._changed:
            return self._display()

    def screen_text(self) -> str:
        """Return the screen as text, without trailing spaces."""
        return "\n".join(line.rstrip() for line in self.lines())

    def find(self, text: str, *, last: bool = False) -> tuple[int, int] | None:
        """Return the cell (x, y) where `text` begins on the screen: the first from the top, or the last; None if it is not there."""
        found: tuple[int, int] | None = None
        for y, line in enumerate(self.lines()):
            x = line.find(text)
            if x >= 0:
                found = (x, y)
                if not last:
                    break
        return found

    def style_at(self, x: int, y: int) -> Char:
        """Return one cell with its colours and attributes."""
        assert self._screen is not None
        with self._changed:
            return self._screen.buffer[y][x]

    # -- waiting ---------------------------------------------------------------------------------

    def wait_for(
        self, wanted: str | re.Pattern[str] | Callable[[str], bool], timeout_s: float = 30.0
    ) -> str:
        """Wait until the screen shows `wanted`: a text, a pattern, or a condition on the screen's text.

        Returns:
            The screen's text at that moment.

        Raises:
            ScreenTimeout: the screen did not come in time, or the program ended before.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while True:
                text = "\n".join(line.rstrip() for line in self._display())
                if _holds(wanted, text):
                    return text
                left = deadline - time.monotonic()
                if self._ended or left <= 0:
                    why = "the program ended" if self._ended else f"{timeout_s} s went by"
                    raise ScreenTimeout(f"waited for {wanted!r}, {why}. The screen:\n{text}")
                self._changed.wait(left)

    def wait_gone(self, text: str, timeout_s: float = 30.0) -> str:
        """Wait until `text` is no longer on the screen."""
        return self.wait_for(lambda screen: text not in screen, timeout_s)

    def wait_raw(self, wanted: bytes, *, start: int = 0, timeout_s: float = 30.0) -> int:
        """Wait until the bytes from `start` on hold `wanted`; return the position after it."""
        deadline = time.monotonic() + timeout_s
        searched = start
        with self._changed:
            while True:
                at = self._raw.find(wanted, max(start, searched - len(wanted)))
                if at >= 0:
                    return at + len(wanted)
                searched = len(self._raw)
                left = deadline - time.monotonic()
                if self._ended or left <= 0:
                    tail = bytes(self._raw[-400:])
                    raise ScreenTimeout(f"waited for bytes {wanted!r}; the last were {tail!r}")
                self._changed.wait(left)

    def wait_quiet(self, quiet_s: float = 0.15, timeout_s: float = 30.0) -> None:
        """Wait until nothing has been written for `quiet_s` from now on (for pictures, and for programs that listen only then)."""
        began = time.monotonic()
        with self._changed:
            while not self._ended:
                now = time.monotonic()
                silent = now - max(began, self._last_byte_at)
                if silent >= quiet_s:
                    return
                if now - began > timeout_s:
                    raise ScreenTimeout(f"never quiet for {quiet_s} s")
                self._changed.wait(quiet_s - silent)

    def wait_exit(self, timeout_s: float = 30.0) -> int:
        """Wait until the program has ended; return its exit code (negative: the signal)."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            shown = self.screen_text() if self._screen is not None else ""
            raise ScreenTimeout(
                f"still running after {timeout_s} s. The screen:\n{shown}"
            ) from error
        self._reader.join(timeout_s)
        return code

    def _display(self) -> list[str]:
        assert self._screen is not None, "started with screen=False"
        return self._screen.rows_of_text()

    # -- what the person does --------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """Return the program's process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Return whether the program still runs."""
        return self._process.poll() is None

    def write(self, data: bytes) -> None:
        """Send bytes as the keyboard would."""
        os.write(self._master, data)

    def type(self, text: str) -> None:
        """Type text, key by key as far as the program can tell."""
        self.write(text.encode())

    def paste(self, text: str) -> None:
        """Paste text as terminals with bracketed paste do."""
        self.write(b"\x1b[200~" + text.encode() + b"\x1b[201~")

    def key(self, *names: str) -> None:
        """Press keys by name: `enter`, `ctrl+t`, `alt+x`, `up`, or a single character."""
        for name in names:
            self.write(key_bytes(name))

    def click(self, x: int, y: int) -> None:
        """Click the left button at a cell, counted from 0."""
        self.mouse(0, x, y)
        self.mouse(0, x, y, released=True)

    def click_text(self, text: str, *, dx: int = 0) -> tuple[int, int]:
        """Click the text on the screen, `dx` cells from its first; return the cell."""
        found = self.find(text)
        if found is None:
            raise ScreenTimeout(f"{text!r} is not on the screen:\n{self.screen_text()}")
        x, y = found[0] + dx, found[1]
        self.click(x, y)
        return x, y

    def mouse(self, button: int, x: int, y: int, *, released: bool = False) -> None:
        """Send one SGR mouse report."""
        self.write(f"\x1b[<{button};{x + 1};{y + 1}{'m' if released else 'M'}".encode())

    def resize(self, columns: int, rows: int) -> None:
        """Change the window's size, as dragging its corner does."""
        with self._changed:
            self.columns, self.rows = columns, rows
            if self._screen is not None:
                self._screen.resize(rows, columns)
        self._set_size()  # the kernel tells the foreground group with SIGWINCH

    def _set_size(self) -> None:
        width, height = self._cell
        packed = struct.pack(
            "HHHH", self.rows, self.columns, self.columns * width, self.rows * height
        )
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, packed)

    def hold(self) -> None:
        """Stop reading, like a connection that stalls: the program's output from now on is not received."""
        with self._reading:
            self._reads.clear()

    def go_on(self) -> None:
        """Read again."""
        self._reads.set()

    def stop(self) -> None:
        """SIGSTOP the program, and wait until it is stopped.

        The signal alone only requests the stop: on a busy machine a thread may read a key that is pressed after it.
        """
        os.kill(self.pid, signal.SIGSTOP)
        self.wait_stopped()

    def wait_stopped(self, timeout_s: float = 30.0) -> None:
        """Wait until all threads of the program stand still.

        Raises:
            ScreenTimeout: a thread has not stopped in that time.
        """
        deadline = time.monotonic() + timeout_s
        while not _is_stopped(self.pid):
            if time.monotonic() > deadline:
                raise ScreenTimeout(f"not stopped after {timeout_s} s")
            time.sleep(0.005)

    def resume(self) -> None:
        """Continue the program after `stop`."""
        os.kill(self.pid, signal.SIGCONT)

    # -- the end ---------------------------------------------------------------------------------

    def kill(self) -> None:
        """SIGKILL the program, as a crash or a power cut would end it, and wait until it is gone."""
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close_window(self) -> None:
        """Take the terminal away from the program, as closing its window does."""
        master, self._master = self._master, -1
        os.close(master)

    def close(self) -> None:
        """Kill the program if it runs and close the pty."""
        self.go_on()
        self.kill()
        self._reader.join(2.0)
        with contextlib.suppress(OSError):
            os.close(self._master)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- pictures --------------------------------------------------------------------------------

    def cells(self) -> list[list[Char]]:
        """Return every cell of the screen with its style, row by row."""
        assert self._screen is not None
        with self._changed:
            buffer = self._screen.buffer
            return [[buffer[y][x] for x in range(self.columns)] for y in range(self.rows)]

    def save_svg(self, path: Path) -> None:
        """Write the screen as an SVG picture."""
        path.write_text(svg_of(self.cells()), encoding="utf-8")


def _is_stopped(pid: int) -> bool:
    """Return whether all threads of a process are stopped, if the system tells (Linux does)."""
    try:
        states = [path.read_bytes() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return all(b") T " in state for state in states)


def _holds(wanted: str | re.Pattern[str] | Callable[[str], bool], text: str) -> bool:
    if isinstance(wanted, str):
        return wanted in text
    if isinstance(wanted, re.Pattern):
        return wanted.search(text) is not None
    return wanted(text)
