"""What the terminal sends, read so that no byte of it ends the program and no pasted text presses keys.

Textual decodes strictly, and takes the letters behind an escape within a pasted text for typed ones, Enter included.
"""

from __future__ import annotations

import os
import selectors
from codecs import getincrementaldecoder
from contextlib import suppress

from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

from kimi_tui.foreign_text import clean

PASTE_START = "\x1b[200~"
PASTE_END = "\x1b[201~"
_READ_BYTES = 4096
_LOOK_S = 0.1


class Incoming:
    """Bytes as text for Textual's parser: always text, and a paste in one piece without terminal sequences."""

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._tail = ""
        """The newest characters: a mark may be cut in two."""
        self._is_pasted = False
        self._pasted: list[str] = []

    def text(self, data: bytes) -> str:
        """What can be handed on after these bytes; a paste only when all of it is there."""
        text = self._decoder.decode(data)
        out: list[str] = []
        while text:
            mark = PASTE_END if self._is_pasted else PASTE_START
            seen = self._tail + text
            place = seen.find(mark)
            end = len(text) if place < 0 else place + len(mark) - len(self._tail)
            self._tail = seen[1 - len(mark) :] if place < 0 else ""
            (self._pasted if self._is_pasted else out).append(text[:end])
            text = text[end:]
            if place < 0:
                continue
            if self._is_pasted:
                body = "".join(self._pasted).removesuffix(mark)
                self._pasted.clear()
                out += [clean(body) if "\x1b" in body else body, mark]
            self._is_pasted = not self._is_pasted
        return "".join(out)


class TerminalInput(LinuxDriver):
    """Textual's driver, with a reading of its own."""

    def run_input_thread(self) -> None:
        """Read until the program ends."""
        incoming, parser = Incoming(), XTermParser(self._debug)
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(_LOOK_S):
                    data = os.read(self.fileno, _READ_BYTES)
                    if not data:
                        self.exit_event.wait(_LOOK_S)
                    elif text := incoming.text(data):
                        for message in parser.feed(text):
                            self.process_message(message)
                for message in parser.tick():
                    self.process_message(message)
        with suppress(EOFError, ParseError):
            for _ in parser.feed(""):
                pass
