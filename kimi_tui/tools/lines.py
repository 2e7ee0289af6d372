"""A window of numbered lines cut out of a stream of bytes, in memory that does not depend on the file's size."""

from __future__ import annotations

from dataclasses import dataclass

LINE_CHARS = 2000
WINDOW_BYTES = 100 * 1024
_LINE_BYTES = LINE_CHARS * 4


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its end. `cut` is true where it was longer than what is shown."""

    number: int
    text: str
    cut: bool


class LineWindow:
    """Collects `count` lines from line `first` on, and counts all lines that pass.

    Attributes:
        lines: what was collected.
        full: true once the window's byte limit ended the collecting before `count` lines.
        crlf: whether a collected line ended with CR LF.
        invalid: whether a collected line had bytes that are not UTF-8.
    """

    def __init__(self, first: int, count: int) -> None:
        self.lines: list[Line] = []
        self.full = False
        self.crlf = False
        self.invalid = False
        self._first = first
        self._last = first + count - 1
        self._number = 1
        self._open = False
        self._kept = bytearray()
        self._length = 0
        self._window_bytes = 0

    @property
    def done(self) -> bool:
        """Whether nothing more will be collected."""
        return self.full or self._number > self._last

    @property
    def total(self) -> int:
        """How many lines have passed; one without a line end counts."""
        return self._number - 1 + self._open

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the stream, cut anywhere."""
        if not chunk:
            return
        position = self._skip_to_first(chunk)
        while position < len(chunk) and not self.done:
            end = chunk.find(b"\n", position)
            stop = end if end >= 0 else len(chunk)
            room = _LINE_BYTES + 1 - len(self._kept)
            self._kept += chunk[position : min(stop, position + max(room, 0))]
            self._length += stop - position
            position = stop
            if end >= 0:
                self._close()
                self._number += 1
                position = end + 1
        if position < len(chunk):
            self._number += chunk.count(b"\n", position)
        self._open = not chunk.endswith(b"\n")

    def finish(self) -> None:
        """The stream has ended; a last line without a line end is a line."""
        if self._open and self._first <= self._number and not self.done:
            self._close()

    def _skip_to_first(self, chunk: bytes) -> int:
        if self._number >= self._first:
            return 0
        passed = chunk.count(b"\n")
        if self._number + passed < self._first:
            self._number += passed
            return len(chunk)
        position = 0
        while self._number < self._first:
            position = chunk.index(b"\n", position) + 1
            self._number += 1
        return position

    def _close(self) -> None:
        raw = bytes(self._kept)
        # The CR of a line that was cut is beyond what was kept.
        if self._length <= _LINE_BYTES and raw.endswith(b"\r"):
            raw = raw[:-1]
            self.crlf = True
        text = raw[:_LINE_BYTES].decode("utf-8", "replace")
        cut = self._length > _LINE_BYTES or len(text) > LINE_CHARS
        if "\ufffd" in text and not cut:
            self.invalid = True
        text = text[:LINE_CHARS]
        size = len(text.encode("utf-8")) + 1
        self._kept.clear()
        self._length = 0
        if self._window_bytes + size > WINDOW_BYTES and self.lines:
            self.full = True
            return
        self._window_bytes += size
        self.lines.append(Line(self._number, text, cut))
