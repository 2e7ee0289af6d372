"""Moving with the arrows through the sent messages, which `session.prompt_history` stores."""

from __future__ import annotations

from collections.abc import Sequence


class PromptHistory:
    """The sent messages and a position among them, with the draft that was in the field before the first step back."""

    def __init__(self, entries: Sequence[str]) -> None:
        self._entries = list(entries)
        self._position = len(entries)
        self._draft = ""

    @property
    def entries(self) -> Sequence[str]:
        """All sent messages, oldest first."""
        return self._entries

    @property
    def draft(self) -> str:
        """The draft that was in the field before the first step back."""
        return self._draft

    @property
    def walking(self) -> bool:
        """Whether the field shows an earlier message."""
        return self._position < len(self._entries)

    def shows(self, text: str) -> bool:
        """Return whether a text is the earlier message at the present position."""
        entries, position = self._entries, self._position
        return position < len(entries) and entries[position] == text

    def add(self, text: str) -> None:
        """Add a sent message, and move the position after it."""
        if text and (not self._entries or self._entries[-1] != text):
            self._entries.append(text)
        self.rewind()

    def rewind(self) -> None:
        """Move the position after the newest message, without a draft."""
        self._position = len(self._entries)
        self._draft = ""

    def earlier(self, current: str) -> str | None:
        """Move to the message before and return it; None at the oldest.

        Args:
            current: the text of the field, which is kept as the draft at the first step back.
        """
        if self._position == 0:
            return None
        if not self.walking:
            self._draft = current
        self._position -= 1
        return self._entries[self._position]

    def later(self) -> str | None:
        """Move to the message after and return it, after the newest the draft; None if no message is shown."""
        if not self.walking:
            return None
        self._position += 1
        return self._entries[self._position] if self.walking else self._draft
