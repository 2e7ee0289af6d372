"""The messages that rewinds and jumps put into the prompt, and what becomes of them when these are undone or done again.

A message belongs to the operation that took it out of the chat, and to no other: undoing that one takes the message
away again, doing it again gives it back, and what other operations do to the same part of the conversation is nothing
to it. Once something is said the message has served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kimi_tui.wire.events import LineChanged


Key = tuple[str, str]
"""An operation and what it was about: `rewind` and the checkpoint's uid, `jump` and the number of the world line."""


class _Operation:
    """An operation of this session; `draft` is the message that it put into the prompt, empty for none."""

    def __init__(self, key: Key, draft: str = "") -> None:
        self.key = key
        self.draft = draft


class ReturnedMessages:
    """Mirrors what can be undone and done again, with the message that each operation gave to the prompt."""

    def __init__(self) -> None:
        self._done: list[_Operation] = []
        self._undone: list[_Operation] = []
        self._early: dict[Key, str] = {}
        """Messages whose operation ended, but was not heard of yet."""

    def gave(self, key: Key, text: str) -> None:
        """An operation that has just ended put a message into the prompt.

        Args:
            key: the operation.
            text: of the prompt, as it would be sent.
        """
        newest = self._done[-1] if self._done else None
        if newest is not None and newest.key == key and not newest.draft:
            newest.draft = text
        else:
            self._early[key] = text

    def said(self) -> None:
        """A turn has begun: what was undone cannot be done again, and no message waits in the prompt any more."""
        self._undone.clear()
        self._early.clear()
        for operation in self._done:
            operation.draft = ""

    def changed(self, event: LineChanged, stands: str) -> str | None:
        """What the prompt should hold after an operation, None for what it holds.

        Args:
            event: the operation.
            stands: what the prompt would send.
        """
        if event.op == "undo":
            undone = self._done.pop() if self._done else _Operation(("", ""))
            self._undone.append(undone)
            return "" if undone.draft and stands == undone.draft else None
        if event.op == "redo":
            given = {operation.draft for operation in self._done}
            again = self._undone.pop() if self._undone else _Operation(("", ""))
            self._done.append(again)
            is_free = not stands or stands in given
            return again.draft if again.draft and is_free else None
        key = (event.op, str(event.to_line) if event.op == "jump" else event.uid)
        self._undone.clear()
        self._done.append(_Operation(key, self._early.pop(key, "")))
        return None
