"""Replaces private parts of Textual's widgets: the text that an input shows, the theme and wrapping of a text area, and the
size of a scrolling view.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from rich.text import Text
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.widgets import Input, TextArea
from textual.widgets.text_area import TextAreaTheme


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


class PatchedTextArea(TextArea):
    """A text area whose theme can be read, and whose text can be wrapped again."""

    @property
    def styled_theme(self) -> TextAreaTheme:
        """The theme with the colours of the style sheets. The public `theme` is its name."""
        return self._theme

    def rewrap(self) -> None:
        """Wrap the text for another width of the field, at the next frame. Textual does so when the widget has another size."""
        self._rewrap_and_refresh_virtual_size()


def set_content_size(view: ScrollView, size: Size) -> None:
    """Fit the scrollbars of a view to the size of its content, which was set without its watchers.

    Setting `virtual_size` lays out the whole screen, for each row that a long answer gets.
    """
    view._scroll_update(size)
