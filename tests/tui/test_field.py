"""A field of one line takes its keys in the order in which they were pressed."""

from __future__ import annotations

from textual import events, on
from textual.app import App, ComposeResult
from textual.widgets import Input

from kimi_tui.tui.field import LineField


class FieldApp(App[None]):
    """A field, and what was entered in it."""

    def __init__(self) -> None:
        super().__init__()
        self.entered: list[str] = []

    def compose(self) -> ComposeResult:
        """The field."""
        yield LineField("as it was")

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        self.entered.append(event.value)


async def test_what_is_typed_right_behind_a_key_comes_behind_it() -> None:
    app = FieldApp()
    async with app.run_test() as pilot:
        app.query_one(LineField).focus()
        await pilot.pause()
        for key in ("ctrl+u", *"new", "enter", "ctrl+u", *"er", "home", "ctrl+k", *"xy", "enter"):
            event = events.Key(key, key if len(key) == 1 else None)
            event.set_sender(app)
            app.post_message(event)
        while len(app.entered) < 2:
            await pilot.pause()
        assert app.entered == ["new", "xy"]
