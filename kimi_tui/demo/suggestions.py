"""What the demo puts into the prompt for the person to send, one message after the other."""

from __future__ import annotations

from collections.abc import Sequence


class Suggestions:
    """Follows the person through a list of messages, also when they rewind or say something of their own.

    A message is offered again until its turn is done: one that was stopped or refused has not told its part of the story.
    """

    def __init__(self, messages: Sequence[str]) -> None:
        self._messages = tuple(messages)
        self._next = 0
        self._running = False
        self._stopped = False

    @property
    def next(self) -> str:
        """What to offer now; empty when the list is at its end."""
        return self._messages[self._next] if self._next < len(self._messages) else ""

    def said(self, text: str) -> None:
        """The person sent this. Going on from a message that was said before begins there again."""
        if text.strip() in self._messages:
            self._next = self._messages.index(text.strip())
            self._running, self._stopped = True, False
        elif self._stopped:
            # In place of going on: what was stopped will not be done by this.
            self._running = False

    def ended(self, *, is_done: bool) -> None:
        """The agent stopped; one that was interrupted may still go on with the same message."""
        self._stopped = not is_done
        if is_done and self._running:
            self._next += 1
            self._running = False
