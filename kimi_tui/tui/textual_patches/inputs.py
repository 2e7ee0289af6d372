"""Replaces a private part of Textual's field of one line: the text that it shows."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from rich.text import Text
from textual.widgets import Input


class PatchedInput(Input):
    """An input that can show another text than its value."""

    @property
    def _value(self) -> Text:
        """The displayed text. Textual takes it from this property alone; `password` hides all of it, and a highlighter only colours."""
        shown = None if self.password else self.shown_text()
        return (
            super()._value
            if shown is None
            else Text(shown, no_wrap=True, overflow="ignore", end="")
        )

    def shown_text(self) -> str | None:
        """Return the text displayed in place of the value, of the same length; None for the value."""
        return None
