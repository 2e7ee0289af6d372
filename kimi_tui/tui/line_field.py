"""`LineField`, a field of one line in which keys act in the order in which they were pressed, and API keys are masked."""

from __future__ import annotations

from typing import Any

from textual import events, on
from textual.message import Message
from textual.widgets.input import Selection

from kimi_tui.tui.api_key_mask import ApiKeyMask, address_and_key
from kimi_tui.tui.formatting import grapheme_after, grapheme_before
from kimi_tui.tui.screens import app_of
from kimi_tui.tui.textual_patches.inputs import PatchedInput


class LineField(PatchedInput):
    """A one-line input in which keys act in the order in which they were pressed.

    Textual's own input inserts letters at once, and runs the binding of Ctrl+U or Enter only when that key has bubbled up.

    API keys are masked in it, as `api_key_mask` says.

    Args:
        args: the arguments of Textual's input.
        is_address: whether an address is expected: a key that is pasted with one is reported and left out.
        options: the options of Textual's input.

    Attributes:
        key_at: the monotonic time at which the newest key or paste was read; 0 for never.
    """

    class KeyEntered(Message):
        """A text like an API key was pasted into a field that shows its text."""

        def __init__(self, field: LineField, key: str) -> None:
            super().__init__()
            self.field = field
            self.key = key

        @property
        def control(self) -> LineField:
            """The field."""
            return self.field

    def __init__(self, *args: Any, is_address: bool = False, **options: Any) -> None:
        self._is_address = is_address
        self.key_at = 0.0
        # Textual reads the displayed text as soon as there is a value.
        self._key_mask = ApiKeyMask(self, is_address=is_address)
        super().__init__(*args, compact=True, **options)
        # The cursor does not blink here.
        self.cursor_blink = False

    @property
    def _legible(self) -> str:
        """The text of the field if it is visible; empty for a password."""
        return "" if self.password else self.value

    @on(ApiKeyMask.BurstEnded)
    def _burst_ended(self, event: ApiKeyMask.BurstEnded) -> None:
        self._key_mask.settle(event.typed_at, self._legible)

    @on(ApiKeyMask.Unmasked)
    def _unmasked(self) -> None:
        self.refresh()

    @on(ApiKeyMask.KeyFound)
    def _key_found(self, event: ApiKeyMask.KeyFound) -> None:
        if not self.password:
            self.post_message(self.KeyEntered(self, event.key))

    def take_out(self, key: str) -> None:
        """Remove an API key that was entered here, and restore the text that it replaced."""
        self.value = self._key_mask.without(key, self.value)
        self.cursor_position = len(self.value)

    def shown_text(self) -> str:
        """Return the value with its API keys masked."""
        return self._key_mask.masked(self.value, self.cursor_position)

    def on_paste(self, event: events.Paste) -> None:
        """Paste one line; an address without the key that came with it."""
        self.key_at = event.time
        words = event.text.split()
        address, key = address_and_key(event.text) if self._is_address else ("", "")
        if not self._is_address or words in ([], [address]):
            self._key_mask.pasted(next(iter(event.text.splitlines()), ""), self._legible)
            return
        event.stop()
        event.prevent_default()
        self._key_mask.pasted(address, self._legible)
        if address:
            self.replace(address, *self.selection)
        if key:
            self.post_message(self.KeyEntered(self, key))

    # A character is a displayed one, whatever its number of code points.

    def action_cursor_left(self, select: bool = False) -> None:
        """Move or select a character to the left."""
        start, end = self.selection
        if select or self.selection.is_empty:
            end = grapheme_before(self.value, end)
            self.selection = Selection(start if select else end, end)
        else:
            super().action_cursor_left(select)

    def action_cursor_right(self, select: bool = False) -> None:
        """Move or select a character to the right."""
        start, end = self.selection
        if select or self.selection.is_empty:
            end = grapheme_after(self.value, end)
            self.selection = Selection(start if select else end, end)
        else:
            super().action_cursor_right(select)

    def action_delete_left(self) -> None:
        """Delete the character to the left, or the selection."""
        at = self.cursor_position
        if self.selection.is_empty:
            self.delete(grapheme_before(self.value, at), at)
        else:
            super().action_delete_left()

    def action_delete_right(self) -> None:
        """Delete the character to the right, or the selection."""
        at = self.cursor_position
        if self.selection.is_empty:
            self.delete(at, grapheme_after(self.value, at))
        else:
            super().action_delete_right()

    async def on_key(self, event: events.Key) -> None:
        """Run what a key is bound to here at once."""
        self.key_at = event.time
        if event.is_printable:
            self._key_mask.typed(event.character or "", event.time, self._legible)
        else:
            self._key_mask.ended(self._legible)
        bound = None if event.is_printable else self.screen.active_bindings.get(event.key)
        # A key that is of no use here, such as Down, may have a binding in the parents.
        if (
            bound is not None
            and bound.node is self
            and (not bound.enabled or await app_of(self).run_action(bound.binding.action, self))
        ):
            event.stop()
            event.prevent_default()
