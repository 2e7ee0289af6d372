"""Settling which pieces of a stream belong to which tool call.

Servers number calls, or not, or give several the same number, or none an id: a new call begins with a new index, a new
id, or a second complete object of arguments.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from kimi_tui.llm import loose
from kimi_tui.llm.provider import ToolCallDelta


def is_object(arguments: str) -> bool:
    """Whether the text is one whole JSON object."""
    if not arguments.rstrip().endswith("}"):
        return False
    try:
        return isinstance(loose.parse(arguments), dict)
    except ValueError:
        return False


@dataclass(slots=True)
class _Call:
    position: int
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])

    def is_complete(self) -> bool:
        # Joining is only paid for where the last piece looks like an end.
        if not self.pieces or not self.pieces[-1].rstrip().endswith("}"):
            return False
        joined = "".join(self.pieces)
        self.pieces = [joined]
        return is_object(joined)


class ToolPieces:
    """Feed it the entries of `tool_calls`, get pieces with a settled position."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}

    @property
    def any(self) -> bool:
        """Whether there was any call."""
        return bool(self._calls)

    def all_complete(self) -> bool:
        """Whether there are calls, and the arguments of each are a whole object."""
        return bool(self._calls) and all(call.is_complete() for call in self._calls)

    def feed(self, entry: Any) -> list[ToolCallDelta]:
        """The piece that this entry is; none where it says nothing new."""
        piece = loose.mapping(entry)
        function = loose.mapping(piece.get("function"))
        call_id = loose.text(piece.get("id"))
        name = loose.text(function.get("name"))
        raw = function.get("arguments")
        arguments = json.dumps(raw) if isinstance(raw, dict | list) else loose.text(raw)
        index = loose.count(piece.get("index"))
        extra = piece.get("extra_content")
        call = self._find(index, call_id, name, arguments)
        is_new = call is None
        if call is None:
            call = _Call(len(self._calls))
            self._calls.append(call)
        elif not name and _repeats(call, arguments):
            return []  # some servers say the whole of it once more at the end
        if index is not None:
            self._by_index[index] = call
        new_id = call_id if call_id and not call.id else ""
        new_name = name if name and not call.name else ""
        call.id = call.id or call_id
        call.name = call.name or name
        if arguments:
            call.pieces.append(arguments)
        if not (is_new or new_id or new_name or arguments or extra):
            return []
        extras = {"extra_content": loose.mapping(extra)} if loose.mapping(extra) else None
        return [ToolCallDelta(call.position, new_id, new_name, arguments, extras)]

    def _find(self, index: int | None, call_id: str, name: str, arguments: str) -> _Call | None:
        """The call that this piece continues, or None where it begins a new one."""
        call: _Call | None
        if index is not None:
            call = self._by_index.get(index)
        elif call_id:
            call = next((one for one in self._calls if one.id == call_id), None)
        elif name:
            # A name without index or id is a whole call, as Gemini sends them, unless the last one lacks its name.
            call = self._calls[-1] if self._calls and not self._calls[-1].name else None
        else:
            call = self._calls[-1] if self._calls else None
        if call is None or (call_id and call.id and call_id != call.id):
            return None
        begins_anew = _begins_object(arguments) and call.is_complete()
        if begins_anew and (name or not _repeats(call, arguments)):
            return None
        return call


def _begins_object(arguments: str) -> bool:
    return arguments.lstrip().startswith("{")


def _repeats(call: _Call, arguments: str) -> bool:
    """Whether these are all the arguments of the call once more."""
    return _begins_object(arguments) and call.is_complete() and "".join(call.pieces) == arguments
