"""The least that a Textual app with a text field can be: what the start of the program is compared with."""

from __future__ import annotations

from textual.app import App, ComposeResult
from textual.scroll_view import ScrollView
from textual.widgets import TextArea

from bench.ready import READY


class BarePrompt(App[None]):
    """An empty view over a text field."""

    CSS = "TextArea { height: 5; }"

    def compose(self) -> ComposeResult:
        """Return the view and the field."""
        yield ScrollView()
        yield TextArea(placeholder=f"A{READY}")

    def on_mount(self) -> None:
        """Give the keys to the field."""
        self.query_one(TextArea).focus()


if __name__ == "__main__":
    BarePrompt().run()
