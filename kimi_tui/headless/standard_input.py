"""Reads standard input for a run without a screen: the prompt itself, a text beside it, or messages as lines.

Reading happens in a daemon thread: an open pipe may never send anything, and must not keep the program from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import stat
import threading
from collections.abc import AsyncIterator, Callable

from kimi_tui.config.settings import ConfigError
from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.foreign_text import clean_pasted

MOST_BYTES = 10_000_000
"""The largest standard input that is read."""
MOST_LINE_BYTES = 20_000_000
"""The largest line of a message."""
PATIENCE_S = 3.0
"""Seconds for the first byte of a text beside a prompt: scripts often run programs with an open pipe that nobody writes to."""
_CHUNK = 65_536
_MOST_AHEAD = 64
"""The largest number of lines that are read before they are needed."""
STDIN = 0


class StandardInput:
    """The standard input of this process.

    Args:
        say: called with a sentence for the person.
        descriptor: the file descriptor.
        patience_s: the seconds for the first byte of a text beside a prompt.
    """

    def __init__(
        self, say: Callable[[str], None], descriptor: int = STDIN, patience_s: float = PATIENCE_S
    ) -> None:
        self._say = say
        self._fd = descriptor
        self._patience_s = patience_s

    async def prompt(self) -> str:
        """Return the prompt, which is all of standard input.

        Raises:
            ConfigError: there is none, it is too long, or it is not text.
        """
        if os.isatty(self._fd):
            raise ConfigError(
                'there is no prompt. Write it after -p, for example kimi-tui -p "fix the tests"'
            )
        waiting = asyncio.get_running_loop().call_later(
            self._patience_s, self._say, "waiting for the prompt on standard input"
        )
        try:
            text = await in_daemon_thread(lambda: _as_text(_all_of(self._fd)))
        finally:
            waiting.cancel()
        if not text.strip():
            raise ConfigError(
                "there is no prompt: standard input is empty. "
                'Write it after -p, for example kimi-tui -p "fix the tests"'
            )
        return text.strip()

    async def beside(self) -> str:
        """Return the text that was piped in beside a prompt; empty if there is none.

        Raises:
            ConfigError: it is too long, or it is not text.
        """
        if not _is_piped(self._fd):
            return ""
        if not await in_daemon_thread(lambda: _has_begun(self._fd, self._patience_s)):
            self._say(
                f"no data on standard input for {self._patience_s:.0f} s; "
                "the turn begins without it"
            )
            return ""
        text = await in_daemon_thread(lambda: _as_text(_all_of(self._fd)))
        return text.rstrip("\n") if text.strip() else ""

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines up to the end; of one that is too long only the first `MOST_LINE_BYTES` bytes."""
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        room = threading.Semaphore(_MOST_AHEAD)

        def hand_over(line: bytes | None) -> None:
            room.acquire()
            loop.call_soon_threadsafe(queue.put_nowait, line)

        def read() -> None:
            # The loop may be closed while this thread still waits for a line.
            with contextlib.suppress(OSError, RuntimeError):
                with os.fdopen(os.dup(self._fd), "rb") as file:
                    while line := file.readline(MOST_LINE_BYTES):
                        rest = line
                        while not rest.endswith(b"\n") and (rest := file.readline(MOST_LINE_BYTES)):
                            pass
                        hand_over(line)
                hand_over(None)

        threading.Thread(target=read, daemon=True, name="standard input").start()
        while (line := await queue.get()) is not None:
            room.release()
            yield line


def _is_piped(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _has_begun(descriptor: int, patience_s: float) -> bool:
    return bool(select.select([descriptor], [], [], patience_s)[0])


def _all_of(descriptor: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while size <= MOST_BYTES and (piece := os.read(descriptor, _CHUNK)):
        pieces.append(piece)
        size += len(piece)
    if size > MOST_BYTES:
        raise ConfigError(
            f"standard input is longer than {MOST_BYTES // 1_000_000} MB. "
            "Write it to a file in the work folder and name that in the prompt"
        )
    return b"".join(pieces)


def _as_text(data: bytes) -> str:
    if b"\0" in data:
        raise ConfigError("standard input is not text. Name the file in the prompt instead")
    return clean_pasted(data.decode("utf-8", "replace"))
