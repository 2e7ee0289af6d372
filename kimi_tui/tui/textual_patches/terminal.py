"""Replaces private parts of Textual's terminal input: its driver, its parser, and its tables of keys."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import Any, TextIO

from textual import events
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual._keyboard_protocol import FUNCTIONAL_KEYS, MODIFIER_FUNCTIONAL_KEYS
from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Size
from textual.keys import _character_to_key as character_to_key

__all__ = [
    "ANSI_SEQUENCES_KEYS",
    "FUNCTIONAL_KEYS",
    "MODIFIER_FUNCTIONAL_KEYS",
    "ParseError",
    "PatchedDriver",
    "PatchedParser",
    "character_to_key",
]


class PatchedDriver(LinuxDriver):
    """Textual's driver for Linux and macOS, with a chosen output, which passes errors of its thread to the app.

    `run_input_thread` is overridden by its subclass: Textual's decodes strictly, and ends the thread at what it cannot decode.
    """

    @property
    def app(self) -> App[Any]:
        """The app. Textual gives it to the constructor alone."""
        return self._app

    @property
    def takes_mouse(self) -> bool:
        """Whether the program takes the mouse."""
        return self._mouse

    @property
    def is_debugged(self) -> bool:
        """Whether Textual logs the input."""
        return self._debug

    @property
    def tells_size_in_band(self) -> bool:
        """Whether the terminal reports its size among the keys. Textual knows, but has no public way to ask."""
        return self._in_band_window_resize

    def keep_attributes(self, attributes: list[Any]) -> None:
        """Restore these settings of the terminal at the end. Textual keeps those that it found."""
        self.attrs_before = attributes

    def terminal_size(self) -> Size:
        """Return the size of the terminal as the system knows it."""
        return Size(*self._get_terminal_size())

    def write_to(self, output: TextIO) -> None:
        """Write to a file-like object whose writes never wait. Textual always writes to the standard error, in a thread."""
        self._file = output  # pyrefly: ignore[bad-assignment]

    def _sigcont_application(self, *_: object) -> None:
        """Continue after a stop, even one that no signal announced: a second start would read with two threads."""
        if self._auto_restart and self._key_thread is not None and self._key_thread.is_alive():
            self.suspend_application_mode()
            self._must_signal_resume = True
        super()._sigcont_application()  # pyright: ignore[reportUnknownMemberType]

    def _run_input_thread(self) -> None:
        """Read the input; a fault ends the program as any other does. Textual would write its traceback on the screen, keys and all."""
        try:
            self.run_input_thread()
        except Exception as error:
            # This is Textual's own handler of uncaught exceptions.
            self._app.call_later(self._app._handle_exception, error)


class PatchedParser(XTermParser):
    """Textual's parser of what a terminal sends. No public module has it; it knows the mouse, pastes and answers."""

    def typed(self, text: str, *, alt: bool = False) -> list[events.Key]:
        """Return the keys of a character, or of a sequence that names one; `alt` is whether it was pressed with Alt."""
        return list(self._sequence_to_key_events(text, alt=alt))
