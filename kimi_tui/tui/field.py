"""A field of one line whose keys act in the order in which they were pressed. By itself: it is imported with the first one."""

from __future__ import annotations

from typing import Any

from textual import events
from textual.widgets import Input

from kimi_tui.tui.screens import app_of


class LineField(Input):
    """As Textual's, which takes letters at once and does what Ctrl+U or Enter stand for only when these have bubbled up."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, compact=True, **options)
        # Nothing blinks here.
        self.cursor_blink = False

    async def _on_key(self, event: events.Key) -> None:
        bound = None if event.is_printable else self.screen.active_bindings.get(event.key)
        # What it has no use for, as Down, its parents may have.
        if (
            bound is not None
            and bound.node is self
            and (not bound.enabled or await app_of(self).run_action(bound.binding.action, self))
        ):
            event.stop()
            event.prevent_default()
