"""Masks API keys that are typed or pasted into fields that show their text, before any part of a key is drawn.

Most keys come in one piece: as a paste, or, from a terminal without bracketed paste, as a burst of characters faster than
anybody types. A burst is masked until it is over, and shown then if it is no key. The first letters of a key typed by hand
are visible.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from textual.message import Message

from kimi_tui.tui.screens import app_of

if TYPE_CHECKING:
    from textual.message_pump import MessagePump
    from textual.timer import Timer

MASK = "•"
BURST_S = 0.02
"""Characters read within this many seconds of one another are a burst: nobody types so fast."""
OVER_S = 0.06
"""Seconds without a character after which a burst is over."""
FEW = 3
"""The largest number of characters that are no burst yet: two keys may be pressed at once, and a slow line may deliver
several together.
"""
MOST_KNOWN = 4
SHOWN = 4
"""The number of first letters that stay visible in a possible key, if an address is expected."""
DOUBTED = 6
"""The length from which on a word with a digit may be a key, if an address is expected."""
LEAST_KEY = 8
"""The least length of a key."""


class ApiKeyMask:
    """Decides which parts of a field's text are masked.

    The field reports each key and paste before it is drawn, and receives the messages.

    Args:
        field: the field, to which the messages are posted.
        is_address: whether the field takes an address, so that anything else may become a key.
    """

    class BurstEnded(Message, bubble=False):
        """A burst seems to be over: the field must call `settle`."""

        def __init__(self, typed_at: float) -> None:
            super().__init__()
            self.typed_at = typed_at

    class Unmasked(Message, bubble=False):
        """Something is no longer masked: the field must be drawn again."""

    class KeyFound(Message, bubble=False):
        """A key was pasted, came in a burst, or is all the text of the field."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, field: MessagePump, *, is_address: bool = False) -> None:
        self._field = field
        self._is_address = is_address
        self._burst = ""
        self._is_over = True
        """Whether the burst is over; a character that soon follows still continues it."""
        self._typed_at = 0.0
        self._looking: Timer | None = None
        self._before = ""
        """The text of the field before the burst or the paste, whose first letter replaces the selection."""
        self._known: list[str] = []
        """Keys that came in one piece, whatever text surrounds them now."""
        self._spans: tuple[str, list[tuple[int, int]]] = ("", [])

    def typed(self, letter: str, at: float, text: str = "") -> None:
        """Note a character that was typed, before it is in the field.

        Args:
            letter: the character.
            at: monotonic time at which it was read, in seconds.
            text: the present text of the field; empty to examine only the new characters.
        """
        if at - self._typed_at >= BURST_S or not self._burst:
            self._burst, self._before = "", text
        self._burst += letter
        self._typed_at = at
        self._is_over = False
        if self._looking is None:
            self._looking = self._field.set_timer(OVER_S, self._look)

    def ended(self, text: str = "") -> None:
        """Note a key that types nothing: it ends a burst. `text` as for `typed`."""
        self.settle(self._typed_at, text)
        self._typed_at = 0.0

    def pasted(self, pasted: str, text: str = "") -> None:
        """Note a paste, before it is in the field. `text` as for `typed`."""
        self.ended(text)
        self._burst, self._before = pasted, text
        self._judge(pasted)

    def settle(self, typed_at: float, text: str = "") -> None:
        """Examine a burst for keys, unless it went on after `typed_at`. `text` as for `typed`."""
        if self._is_over or typed_at != self._typed_at:
            return
        self._is_over = True
        self._judge(text, self._burst)  # all pieces of the burst together
        if len(self._burst) > FEW:
            self._field.post_message(self.Unmasked())

    def without(self, key: str, text: str) -> str:
        """Return the text of the field as it was before a key was entered; if the key came in pieces, the text without the key."""
        return self._before if self._burst.strip() == key else text.replace(key, "")

    def masked(self, text: str, at: int) -> str:
        """Return the text as it is drawn, with keys masked; of the same length.

        Args:
            text: the text of the field, or a line of it.
            at: index of the cursor in it.
        """
        if not text:
            return text
        spans = self._keys_in(text)
        if not self._is_over and len(self._burst) > FEW:
            start = at - len(self._burst)
            whole = start < 0 or text[start:at] != self._burst
            spans = [*spans, (0, len(text)) if whole else (start, at)]
        for start, end in spans:
            hidden = "".join(MASK if char.isascii() else char for char in text[start:end])
            text = text[:start] + hidden + text[end:]
        return text

    def _keys_in(self, text: str) -> list[tuple[int, int]]:
        if text != self._spans[0]:
            from kimi_tui.tools.credentials import words_of_keys

            spans = words_of_keys(text)
            for known in self._known:
                if (start := text.find(known)) >= 0:
                    spans.append((start, start + len(known)))
            if self._is_address and not spans and _may_become_key(text):
                spans.append((min(SHOWN, len(text)), len(text)))
            self._spans = (text, spans)
        return self._spans[1]

    def _look(self) -> None:
        """Check whether the burst is over, after the keys that have been read by now."""
        self._looking = None
        if self._is_over:
            return
        if (left_s := self._typed_at + OVER_S - time.monotonic()) > 0:
            self._looking = self._field.set_timer(left_s, self._look)
        else:
            self._looking = self._field.set_timer(OVER_S, self._look)
            ended = self.BurstEnded(self._typed_at)
            app_of(self._field).call_later(self._field.post_message, ended)

    def _judge(self, *texts: str) -> None:
        from kimi_tui.tools.credentials import is_key

        if key := next((text.strip() for text in texts if is_key(text)), ""):
            self._known = [*self._known, key][-MOST_KNOWN:]
            self._spans = ("", [])
            self._field.post_message(self.KeyFound(key))


def _may_become_key(text: str) -> bool:
    from kimi_tui.tools.credentials import may_begin_key

    return may_begin_key(text) or (
        len(text) >= DOUBTED and text.isalnum() and not (text.isalpha() or text.isdecimal())
    )


def address_and_key(pasted: str) -> tuple[str, str]:
    """Split a paste into the address for the field and the API key that came with it; either may be empty.

    Any long word that cannot be an address is taken for a key.
    """
    words = pasted.split()
    addresses = [word for word in words if _may_be_address(word)]
    keys = [word for word in words if word not in addresses and len(word) >= LEAST_KEY]
    return next(iter(addresses), ""), keys[-1] if keys else ""


def _may_be_address(word: str) -> bool:
    """Return whether a pasted word is a base URL or a part of one, and not a key."""
    from kimi_tui.tools.credentials import find_keys

    if find_keys(word):
        return False
    return not {*word}.isdisjoint(".:/") or len(word) < 2 * LEAST_KEY
