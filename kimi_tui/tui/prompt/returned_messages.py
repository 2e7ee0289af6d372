"""The messages that rewinds and jumps put into the prompt, and what undo and redo do with them there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kimi_tui.wire.events import LineChanged


class ReturnedMessages:
    """Tracks the messages that rewinds and jumps put into the prompt, so that undo removes them and redo brings them back.

    A message belongs to the one operation that took it out of the chat: undoing that removes the message from the prompt,
    redoing it puts it back, and other operations have no effect on it. When a turn begins all are forgotten.
    """

    def __init__(self) -> None:
        self._done: list[_Returned] = []
        self._undone: list[_Returned] = []
        self._early: _Returned | None = None
        """Of an operation that ended, but was not heard of yet."""

    def gave(self, change: LineChanged, text: str) -> None:
        """Note that an operation that has just ended put a message into the prompt.

        Args:
            change: the event of the operation, which `changed` may not have been called for yet.
            text: the text of the prompt, as it would be sent.
        """
        newest = self._done[-1] if self._done else None
        if newest is not None and newest.change is change:
            newest.text = text
        else:
            self._early = _Returned(change, text)

    def command_behind(self, written: str) -> str:
        """The slash command that was typed behind the message of the newest operation; empty for none.

        The message is in the prompt before the user can type, so that a command typed at once ends up behind it.

        Args:
            written: the text of the prompt.
        """
        waiting = self._done[-1].text if self._done else ""
        if not waiting or not written.startswith(waiting):
            return ""
        behind = written[len(waiting) :].strip()
        return behind if behind.startswith("/") and "\n" not in behind else ""

    def turn_began(self) -> None:
        """Forget all: a turn has begun, so nothing undone can be redone, and no message waits in the prompt any more."""
        self._undone.clear()
        self._early = None
        for operation in self._done:
            operation.text = ""

    def changed(self, change: LineChanged, stands: str) -> str | None:
        """The text that the prompt should have after an operation; None for the one that it has.

        Args:
            change: the event of the operation.
            stands: the text of the prompt, as it would be sent.
        """
        if change.op == "undo":
            undone = self._done.pop() if self._done else _Returned(change)
            self._undone.append(undone)
            return "" if undone.text and stands == undone.text else None
        if change.op == "redo":
            given = {operation.text for operation in self._done}
            again = self._undone.pop() if self._undone else _Returned(change)
            self._done.append(again)
            is_free = not stands or stands in given
            return again.text if again.text and is_free else None
        self._undone.clear()
        early, self._early = self._early, None
        is_meant = early is not None and early.change is change
        self._done.append(early if early and is_meant else _Returned(change))
        return None


@dataclass(slots=True)
class _Returned:
    """An operation of this session, and the message that it put into the prompt; empty for none."""

    change: LineChanged
    text: str = ""
