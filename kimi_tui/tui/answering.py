"""Screens that answer once: a key that was on its way already when one was closed must not close what is below it."""

from __future__ import annotations

from textual.await_complete import AwaitComplete
from textual.screen import Screen, ScreenResultType


class AnswersOnce(Screen[ScreenResultType]):
    """A screen that is dismissed with an answer; only the first one counts.

    Beside `ModalScreen` it comes second: Textual takes the looks of a widget from its first base.
    """

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Close with `result`, unless it is closed already."""
        return super().dismiss(result) if self.is_current else AwaitComplete()
