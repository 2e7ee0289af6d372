"""Passes a running tool's output on to the wire: cleaned, at a bounded rate, from whatever thread it comes.

A command may print a hundred megabytes; a card shows a few lines. So output is handed on twenty times a second, and of a
flood only the newest part.
"""

from __future__ import annotations

import asyncio
from collections import deque

from kimi_tui.foreign_text import Cleaner
from kimi_tui.wire.events import ToolOutput
from kimi_tui.wire.queue import Wire

INTERVAL_S = 0.05
MAX_CHARS = 16_384


class LiveOutput:
    """The output of one call.

    Args:
        wire: where it goes.
        key: the call.
    """

    def __init__(self, wire: Wire, key: str) -> None:
        self._wire = wire
        self._key = key
        self._loop = asyncio.get_running_loop()
        self._cleaner = Cleaner()
        self._pieces: deque[str] = deque()
        self._size = 0
        self._n_skipped = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def emit(self, text: str) -> None:
        """Take more output; may be called from any thread."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._take, text)
        else:
            self._take(text)

    def close(self) -> None:
        """Pass on what is left; nothing is taken afterwards."""
        if not self._closed:
            self._flush()
            self._closed = True

    def _take(self, text: str) -> None:
        if self._closed or not text:
            return
        if len(text) > MAX_CHARS:
            self._n_skipped += len(text) - MAX_CHARS
            text = text[-MAX_CHARS:]
        self._pieces.append(text)
        self._size += len(text)
        while self._size - len(self._pieces[0]) >= MAX_CHARS:
            gone = self._pieces.popleft()
            self._size -= len(gone)
            self._n_skipped += len(gone)
        if self._timer is None:
            self._timer = self._loop.call_later(INTERVAL_S, self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._pieces:
            return
        text = "".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if self._n_skipped:
            # What was skipped may have held half a terminal sequence: begin anew.
            self._cleaner = Cleaner()
            text = f"\n[… {self._n_skipped:,} characters …]\n{text}"
            self._n_skipped = 0
        clean = self._cleaner.feed(text)
        if clean:
            self._wire.publish(ToolOutput(self._key, clean))
