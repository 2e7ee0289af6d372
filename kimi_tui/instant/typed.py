"""Keys typed before the app reads the terminal: the text that is certain, and everything after it, in order."""

from __future__ import annotations

import re
from typing import NamedTuple

# The patterns are strings: most terminals answer after the first frame, and compiling them would delay it.
_BACKGROUND_ANSWER = r"\x1b\]11;([#0-9A-Za-z:/]{1,40})(?:\x07|\x1b\\)"
_BEGUN_ANSWER = r"\x1b(?:\](?:1(?:1(?:;[#0-9A-Za-z:/]{0,40}\x1b?)?)?)?)?\Z"
_KEYS_SIGN = "?"
"""Asks for the keys if nothing follows it in an empty prompt."""
_BACKSPACE = "\x7f"
_QUITS = (b"\x03", b"\x1b[99;5u", b"\x1b[27;5;99~")
"""Ctrl+C as a terminal sends it, by kitty's protocol and by modifyOtherKeys."""


class Ahead(NamedTuple):
    """The text typed before the app reads the terminal.

    `text` is the beginning of it: letters, as they were typed and taken back. `rest` is the input after it, in pieces with the
    monotonic times at which they were read. `colour` is the colour of the terminal's background as it answered; empty if it
    has not.
    """

    text: str = ""
    rest: tuple[tuple[float, bytes], ...] = ()
    colour: str = ""


class TypedAhead:
    """Takes the input of a terminal as long as it can be told what it does to an empty prompt.

    Letters and Backspace can be told. Any other key ends the text, and the app gets it and all that follows as they came: Enter
    sends, an arrow moves, a paste may become a chip.

    Attributes:
        text: the text so far.
        colour: the colour of the background that the terminal has answered; empty before.
        n_quits: how often Ctrl+C was pressed.
    """

    def __init__(self) -> None:
        self.text = ""
        self.colour = ""
        self.n_quits = 0
        self._begun = b""
        """Input that may be the beginning of an answer of the terminal, or of a character."""
        self._begun_at = 0.0
        self._rest: list[tuple[float, bytes]] = []

    def take(self, data: bytes, now: float) -> None:
        """Take a piece of input, read at a monotonic time."""
        self.n_quits += sum(map(data.count, _QUITS))
        if self._rest:
            self._rest.append((now, data))
            return
        data = self._begun + data
        self._begun_at = self._begun_at if self._begun else now
        try:
            text, broken = data.decode(), b""
        except UnicodeDecodeError as error:
            text, broken = data[: error.start].decode(), data[error.start :]
            is_begun = error.end == len(data) and error.reason == "unexpected end of data"
            broken_ends = not is_begun
        else:
            broken_ends = False
        at = self._follow(text)
        self._begun = text[at:].encode() + broken
        if broken_ends or (text[at:] and not re.match(_BEGUN_ANSWER, text[at:])):
            self._rest.append((self._begun_at, self._begun))
            self._begun = b""

    def _follow(self, text: str) -> int:
        """Apply the beginning of a text to the prompt, as far as its meaning is certain; return the index where that ends."""
        at = 0
        while at < len(text):
            if self._is_letter(text[at]):
                self.text += text[at]
                at += 1
            elif text[at] == _BACKSPACE and (not self.text or self.text[-1:].isascii()):
                self.text = self.text[:-1]
                at += 1
            elif (found := re.match(_BACKGROUND_ANSWER, text[at:])) is not None:
                self.colour = found[1]
                at += found.end()
            else:
                break
        return at

    def _is_letter(self, char: str) -> bool:
        """Return whether a character only adds itself to the text. The text after a command may be an API key, which is not shown."""
        if not char.isprintable() or char == "\ufffd":
            return False
        return char != " " or not self.text.startswith("/") if self.text else char != _KEYS_SIGN

    def result(self) -> Ahead:
        """Return everything that was taken."""
        begun = ((self._begun_at, self._begun),) if self._begun else ()
        return Ahead(self.text, (*self._rest, *begun), self.colour)
