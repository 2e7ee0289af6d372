"""Whether the terminal is light or dark: what it is asked, and what it answers among the keys.

It answers late, in pieces or not at all, so nothing waits for it, and nothing of it becomes a key: Textual's parser would
type it into the prompt. Where it can it tells of later changes, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from textual.message import Message

ASK = "\x1b]11;?\x07\x1b[?2031h"
"""Asks for the colour of the background, and to be told when the terminal turns light or dark."""
NO_MORE = "\x1b[?2031l"
CUT_S = 1.0
"""For so long the rest of an answer that has begun is waited for."""
LIGHT_FROM = 0.18
"""The luminance from which on black is easier to read on a background than white."""
_BODY = "[rgba:#0-9A-Fa-f/]{0,40}+"
_ANSWER = re.compile(
    rf"\x1b\]1(\d);({_BODY})(?:(\x07|\x1b\\)|(?=[^\x1b])|(?=\x1b[^\\]))|\x1b\[\?997;(\d)n",
    re.DOTALL,
)
"""An answer, or one that is broken off: what follows it is typed."""
_BEGUN = re.compile(
    rf"(?:\x1b\](?:1(?:\d(?:;{_BODY}\x1b?)?)?)?|\x1b\[(?:\?(?:9(?:9(?:7(?:;\d?)?)?)?)?)?)\Z"
)
_COLOUR = re.compile(
    r"(?:rgba?:([0-9A-Fa-f]{1,4})/([0-9A-Fa-f]{1,4})/([0-9A-Fa-f]{1,4})(?:/.*)?|#(.*))\Z"
)
_BACKGROUND = "1"
_LIGHT = "2"


class BackgroundTold(Message):
    """The terminal has said whether it is light."""

    def __init__(self, *, light: bool) -> None:
        super().__init__()
        self.light = light


def is_light(colour: str) -> bool | None:
    """Whether a background of that colour is light, as a terminal writes it; None where it cannot be read."""
    found = _COLOUR.match(colour)
    if found is None:
        return None
    parts = found.groups()[:3]
    if (digits := found[4]) is not None:
        size = len(digits) // 3
        if not digits or len(digits) % 3 or size > 4 or re.search("[^0-9A-Fa-f]", digits):
            return None
        parts = (digits[:size], digits[size : 2 * size], digits[2 * size :])
    red, green, blue = (_linear(int(part, 16) / (16 ** len(part) - 1)) for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue > LIGHT_FROM


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4


def guess(environ: Mapping[str, str]) -> bool:
    """Whether the terminal is light, as far as variables tell before it is asked."""
    return environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")


class Answers:
    """Takes the terminal's answers out of what is typed."""

    def __init__(self) -> None:
        self._held = ""
        self._held_at = 0.0

    @property
    def is_holding(self) -> bool:
        """Whether something waits for what follows it."""
        return bool(self._held)

    def take(self, text: str, now: float) -> tuple[str, bool | None]:
        """What is left of a text, and whether the terminal is light where it says so.

        Args:
            text: what came.
            now: in monotonic time.
        """
        if not self._held and "\x1b" not in text:
            return text, None
        text, self._held = self._held + text, ""
        told: bool | None = None

        def read(found: re.Match[str]) -> str:
            nonlocal told
            kind, colour, end, changed = found.groups()
            light = changed == _LIGHT if changed else None
            if kind == _BACKGROUND and end:
                light = is_light(colour)
            told = told if light is None else light
            return ""

        text = _ANSWER.sub(read, text)
        begun = _BEGUN.search(text)
        start = len(text) if begun is None else begun.start()
        if text.endswith("\x1b"):
            # The beginning of an answer or notice whose rest is on its way, or the key: that is known in a moment.
            start = min(start, len(text) - 1)
        self._held, self._held_at = text[start:], now
        return text[:start], told

    def let_go(self, now: float) -> str:
        """What waited, where nothing has followed it; of an answer that was broken off, nothing."""
        is_answer = len(self._held) > len("\x1b]11")
        if is_answer and now - self._held_at < CUT_S:
            return ""
        held, self._held = self._held, ""
        return "" if is_answer else held
