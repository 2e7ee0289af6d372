"""What the demo puts into the prompt for the person to send, one message after the other."""

from __future__ import annotations

from collections.abc import Sequence


class Suggestions:
    """Follows the person through a list of messages, also when they rewind or say something of their own."""

    def __init__(self, messages: Sequence[str]) -> None:
        self._messages = tuple(messages)
        self._next = 0

    @property
    def next(self) -> str:
        """What to offer now; empty when the list is at its end."""
        return self._messages[self._next] if self._next < len(self._messages) else ""

    def said(self, text: str) -> None:
        """The person sent this. Going on from a message that was said before begins there again."""
        if text.strip() in self._messages:
            self._next = self._messages.index(text.strip()) + 1
