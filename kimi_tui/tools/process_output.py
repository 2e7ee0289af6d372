"""The output of a command in bounded memory: beginning and end for the model (`Capture`), the newest lines live (`LiveText`).

Terminal sequences are taken out (`foreign_text.clean`); of a line that is redrawn with carriage returns the last state stays.
"""

from __future__ import annotations

import codecs
from collections import deque
from typing import NamedTuple

from kimi_tui.foreign_text import clean

HEAD_CHARS = 15_000
TAIL_CHARS = 25_000
LINE_CHARS = 2000
LIVE_CHARS = 8192
"""The most that one piece of live output holds; a flood shows its newest lines."""

_HEAD_BYTES = HEAD_CHARS * 4
_TAIL_BYTES = TAIL_CHARS * 4
_BINARY_SHARE = 0.05


class Capture:
    """Collects the output of one command. Used by one thread."""

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
        """All of it as text for the model, shortened in the middle where it is long."""
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
            # The cut may be within a character: what is left of it is dropped.
            end = _readable(tail.lstrip(bytes(range(0x80, 0xC0))))[-TAIL_CHARS:]
        head = _to_line_end(head)
        end = _from_line_start(end)
        left_out = self.n_bytes - len(head.encode()) - len(end.encode())
        note = f"\n… {max(left_out, 0):,} bytes left out …\n"
        return CapturedText(
            _cut_lines(head)[0] + note + _cut_lines(end)[0], True, _is_binary(bytes(self._head))
        )


class CapturedText(NamedTuple):
    """The captured output as the model gets it; whether it was shortened, and whether it looks binary."""

    text: str
    shortened: bool
    binary: bool


class LiveText:
    """Decodes output for the live view. Where more came than `LIVE_CHARS`, the newest lines are kept.

    Attributes:
        waiting: what there is to show.
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
        """The text to show now; a character cut in the middle waits for its rest unless this is the end."""
        data = bytes(self.waiting)
        self.waiting.clear()
        note = ""
        if self._skipped:
            note = f"\n… {self._skipped:,} bytes passed …\n"
            self._skipped = 0
            self._decoder.reset()
            data = data[data.find(b"\n") + 1 :].lstrip(bytes(range(0x80, 0xC0)))
        return note + self._decoder.decode(data, final)


def _readable(data: bytes) -> str:
    """Text without terminal sequences, and of lines that a progress display wrote over, only the last state."""
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
