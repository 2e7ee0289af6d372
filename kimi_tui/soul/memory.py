"""What tools remember of the conversation: the todo list, and at which version the agent saw which file.

Both are read off the live line's own messages, so that a rewind, a D-Mail or an undo takes them back too. For that the
versions stand beside the result of the call that saw them, under `saw`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, cast

from kimi_tui.llm.message import Message, ToolCall
from kimi_tui.soul.tool_message import outcome_of
from kimi_tui.tools.base import TodoChange, TodoEntry, ToolOutcome

_STATUSES = frozenset({"pending", "in_progress", "done"})


class LineMemory:
    """The memory of one conversation as it stands now.

    Attributes:
        known: whether it was read since it was last forgotten.
    """

    def __init__(self) -> None:
        self.todos: tuple[TodoEntry, ...] | None = None
        self.versions: dict[str, str] = {}
        self.known = False

    def forget(self) -> None:
        """The conversation is another one now."""
        self.todos, self.versions, self.known = None, {}, False

    def compute(self, messages: Iterable[Message]) -> None:
        """Forget everything and read it off these messages."""
        self.forget()
        calls: list[ToolCall] = []
        position = 0
        for message in messages:
            if message.tool_calls:
                calls, position = message.tool_calls, 0
            elif message.role == "tool":
                # Results follow in the order of their calls; ids may repeat or be empty.
                if position < len(calls):
                    self._take(calls[position], message)
                position += 1
        self.known = True

    def took(self, outcome: ToolOutcome) -> None:
        """A call has ended."""
        for effect in outcome.effects:
            if isinstance(effect, TodoChange):
                self.todos = effect.items

    def _take(self, call: ToolCall, result: Message) -> None:
        saw = (result.model_extra or {}).get("saw")
        if isinstance(saw, dict):
            for path, version in cast("dict[object, object]", saw).items():
                if isinstance(path, str) and isinstance(version, str):
                    self.versions[path] = version
        if call.function.name == "SetTodoList" and not outcome_of(result).is_error:
            todos = _todos(call.function.arguments)
            if todos is not None:
                self.todos = todos


class CallVersions:
    """The `FileVersions` of one call: what it sees is known at once and noted for its result."""

    def __init__(self, memory: LineMemory) -> None:
        self._memory = memory
        self.noted: dict[str, str] = {}

    def seen(self, path: Path) -> str | None:
        """The version under which the agent last saw this file, or None."""
        return self._memory.versions.get(str(path))

    def saw(self, path: Path, version: str) -> None:
        """The agent has now seen this version."""
        self._memory.versions[str(path)] = version
        self.noted[str(path)] = version


def with_versions(message: Message, noted: Mapping[str, str]) -> Message:
    """The result with the versions its call saw, as `compute` reads them."""
    if not noted:
        return message
    return message.model_copy(update={"saw": dict(noted)})


def _todos(arguments: str | None) -> tuple[TodoEntry, ...] | None:
    try:
        value = json.loads(arguments or "")
    except (ValueError, RecursionError):
        return None
    items = cast("dict[str, Any]", value).get("todos") if isinstance(value, dict) else None
    if not isinstance(items, list):
        return None
    found: list[TodoEntry] = []
    for item in cast("list[object]", items):
        row = cast("dict[str, object]", item) if isinstance(item, dict) else {}
        title, status = row.get("title"), row.get("status")
        if isinstance(title, str) and isinstance(status, str) and status in _STATUSES:
            found.append(
                TodoEntry(title.strip(), cast('Literal["pending", "in_progress", "done"]', status))
            )
    return tuple(found)
