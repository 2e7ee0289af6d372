"""`BrowserTerminal`: the app in a pseudo terminal, for one tab of a browser.

The app runs as in any terminal, so that keys, mouse, pastes and colours are those of the terminal in the page (xterm.js).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

from kimi_tui.launch import ONCE_ONLY

MOST_CELLS = 500
"""The largest number of columns or rows."""
MOST_WAITING_BYTES = 4 << 20
"""Bytes of output that wait for a tab that only looks on; one that is slower is left behind."""
_REDRAW_S = 0.1
_CLEAR = b"\x1b[2J"
_CHUNK = 65_536
_END_S = 5.0
"""Seconds that the app has to save and end after its tab was closed."""
_ENTRY = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from kimi_tui.cli import main
sys.exit(main())
"""
"""Starts the app with its standard input as the controlling terminal, from which it gets signals."""
_PASSED = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER")
_PASSED_BEGINNINGS = ("LC_", "KIMI_", "OPENAI_", "XDG_", "SSL_CERT_")
_PASSED_ANY_CASE = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the app gets: those it reads, and none that say in which terminal the server was started."""
    found = {
        name: value
        for name, value in environ.items()
        if name in _PASSED
        or name.startswith(_PASSED_BEGINNINGS)
        or name.lower() in _PASSED_ANY_CASE
    }
    return {**found, "TERM": "xterm-256color", "COLORTERM": "truecolor", ONCE_ONLY: "1"}


class Watching:
    """The output of a terminal for a tab that only looks on."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue()
        self._n_bytes = 0
        self._is_over = False

    def take(self, data: bytes) -> None:
        """Take a piece of output; a tab that is too far behind gets no more."""
        self._n_bytes += len(data)
        if self._n_bytes > MOST_WAITING_BYTES:
            self.end()
        elif not self._is_over:
            self._waiting.put_nowait(data)

    def end(self) -> None:
        """Take no more output."""
        if not self._is_over:
            self._is_over = True
            self._waiting.put_nowait(b"")

    async def output(self) -> AsyncIterator[bytes]:
        """Yield the pieces, until the terminal ends."""
        while data := await self._waiting.get():
            self._n_bytes -= len(data)
            yield data


class BrowserTerminal:
    """Starts the app.

    Args:
        arguments: the arguments of the app.
        work_dir: the folder in which it starts.
        size: columns and rows.

    Raises:
        OSError: there is no pseudo terminal or no process left.
    """

    def __init__(self, arguments: Sequence[str], work_dir: str, size: tuple[int, int]) -> None:
        self._is_closed = False
        self._sizes: dict[object, tuple[int, int]] = {}
        self._watching: set[Watching] = set()
        self._clears = False
        """Whether the tabs must be cleared before the app draws: a smaller one leaves cells of a larger picture."""
        self._leader, follower = pty.openpty()
        try:
            self.resize(*size)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _ENTRY, *arguments],
                stdin=follower,
                stdout=follower,
                stderr=follower,
                cwd=work_dir,
                env=environment(os.environ),
                start_new_session=True,
            )
        except OSError:
            os.close(self._leader)
            raise
        finally:
            os.close(follower)
        os.set_blocking(self._leader, False)

    def resize(self, columns: int, rows: int, viewer: object = None) -> None:
        """Take the size of a tab, within bounds. The terminal is as large as fits into all of them; the app is told by a signal.

        Args:
            columns: cells of a row.
            rows: the number of rows.
            viewer: the tab that only looks on; None for the one that types.
        """
        columns, rows = (min(max(cells, 2), MOST_CELLS) for cells in (columns, rows))
        self._sizes[viewer] = columns, rows
        self._set_size(*self._size)

    @property
    def _size(self) -> tuple[int, int]:
        columns, rows = (min(cells) for cells in zip(*self._sizes.values(), strict=True))
        return columns, rows

    def _set_size(self, columns: int, rows: int) -> None:
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._leader, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @contextlib.asynccontextmanager
    async def watched(self, columns: int, rows: int) -> AsyncGenerator[Watching]:
        """Let another tab look on within this context; it gets the whole screen, and what the app writes from then on."""
        watching = Watching()
        self._watching.add(watching)
        self.resize(columns, rows, watching)
        # The app draws everything when its size changes, also where this tab is as large as the other one.
        columns, rows = self._size
        self._set_size(columns, rows - 1)
        await asyncio.sleep(_REDRAW_S)
        self._draw_anew()
        try:
            yield watching
        finally:
            self._watching.discard(watching)
            del self._sizes[watching]
            self._draw_anew()

    def _draw_anew(self) -> None:
        if not self._is_closed:
            self._clears = True
            self._set_size(*self._size)

    async def output(self) -> AsyncIterator[bytes]:
        """Yield what the app writes, until it ends. Nothing is read ahead of the reader."""
        try:
            is_between = True
            async for piece in self._read():
                data = piece
                if self._clears and is_between:
                    self._clears, data = False, _CLEAR + piece
                # A full piece may end within a sequence.
                is_between = len(piece) < _CHUNK
                for one in self._watching:
                    one.take(data)
                yield data
        finally:
            for one in self._watching:
                one.end()

    async def _read(self) -> AsyncIterator[bytes]:
        while True:
            try:
                data = os.read(self._leader, _CHUNK)
            except BlockingIOError:
                await self._until_ready(writes=False)
                continue
            except OSError:
                # This is how Linux tells that no process has the terminal any more.
                return
            if not data:
                return
            yield data

    async def type(self, data: bytes) -> None:
        """Type bytes; wait while the app does not read them."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._leader, view) :]
            except BlockingIOError:
                await self._until_ready(writes=True)
            except OSError:
                return

    async def _until_ready(self, *, writes: bool) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()

        def tell() -> None:
            if not ready.done():
                ready.set_result(None)

        add = loop.add_writer if writes else loop.add_reader
        remove = loop.remove_writer if writes else loop.remove_reader
        add(self._leader, tell)
        try:
            await ready
        finally:
            remove(self._leader)

    async def aclose(self) -> None:
        """End the app as a closed terminal does; it saves its session. It may be called again."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGHUP)
        try:
            await asyncio.to_thread(self._process.wait, _END_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await asyncio.to_thread(self._process.wait)
        os.close(self._leader)
