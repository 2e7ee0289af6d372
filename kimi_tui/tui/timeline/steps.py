"""What happens within a step: the words and the tool calls that become its label.

Writes into the checkpoint it is given; where checkpoints stand is the model's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kimi_tui.foreign_text import one_line
from kimi_tui.tool_names import short_name
from kimi_tui.tui.chat.targets import target
from kimi_tui.tui.timeline.points import Call, Point
from kimi_tui.wire.display import DiffBlock
from kimi_tui.wire.events import FilesChanged, ToolCall, ToolCallPart, ToolResult, ToolStarted

LABEL_LIMIT = 200
"""Characters of a label that are kept; the rest never fits on the screen."""
_PARTS_LIMIT = 10_000
# What a step changed may be told when a few later ones stand already.
_LATEST = 50
_FILE_TOOLS = ("ReadFile", "WriteFile", "StrReplaceFile")


@dataclass(slots=True)
class _OpenCall:
    point: Point
    call: Call
    tool: str
    parts: list[str] = field(default_factory=list[str])


class Steps:
    """Follows the running step. Methods return the checkpoint whose label changed, or None."""

    def __init__(self) -> None:
        self._said = ""
        self._open: dict[str, _OpenCall] = {}
        self._files: set[str] = set()

    def begin(self) -> None:
        """A new checkpoint stands; what comes now is its own."""
        self._said = ""
        self._files = set()

    def end(self) -> None:
        """The turn is over: calls that are still open get no results any more."""
        self._open.clear()

    def said(self, text: str) -> None:
        """The agent says more. Only the beginning is of use."""
        if len(self._said) < 2 * LABEL_LIMIT:
            self._said += text[: 2 * LABEL_LIMIT]

    def settle(self, head: Point | None) -> Point | None:
        """The step has ended: what was said is the label, where no tool was called."""
        said, self._said = self._said, ""
        if head is None or not said or head.words or head.calls:
            return None
        head.words = one_line(said)[:LABEL_LIMIT]
        return head

    def drop_attempt(self, head: Point | None) -> Point | None:
        """The model call is tried again: what it had streamed is not there any more."""
        self._said = ""
        self._open.clear()
        if head is None or not head.calls or any(call.size_chars for call in head.calls):
            return None
        head.calls = None
        return head

    def call(self, event: ToolCall, head: Point | None) -> Point | None:
        """A tool is called; its target comes with the arguments."""
        if head is None or event.key in self._open:
            return None
        call = Call(short_name(event.name)[:40], is_path=event.name in _FILE_TOOLS)
        if head.calls is None:
            head.calls = []
        head.calls.append(call)
        self._open[event.key] = _OpenCall(head, call, event.name, [event.arguments])
        return head

    def more_arguments(self, event: ToolCallPart) -> None:
        """More of a call's arguments."""
        known = self._open.get(event.key)
        if known is not None and len(known.parts) < _PARTS_LIMIT:
            known.parts.append(event.arguments)

    def waits(self, key: str) -> Point | None:
        """The call waits for the person: its arguments are whole, and what it is about is of interest now."""
        known = self._open.get(key)
        if known is None or known.call.target:
            return None
        known.call.target = target(known.tool, "".join(known.parts))[:LABEL_LIMIT]
        return known.point

    def started(self, event: ToolStarted, head: Point | None) -> Point | None:
        """The arguments are whole."""
        if event.key not in self._open:
            self.call(ToolCall(event.key, event.name), head)
        known = self._open.get(event.key)
        if known is None:
            return None
        known.parts.clear()
        known.call.target = target(event.name, event.arguments)[:LABEL_LIMIT]
        return known.point

    def changed(self, event: FilesChanged, live: Sequence[Point]) -> Point | None:
        """Files were seen to change in a step: by a tool or by a command, whatever its result showed."""
        for point in reversed(live[-_LATEST:]):
            if point.uid == event.uid:
                known = self._files if point is live[-1] else set[str]()
                known.update(event.paths)
                point.files = max(point.files, len(known))
                return point
        return None

    def result(self, event: ToolResult, head: Point | None) -> Point | None:
        """A tool has ended."""
        known = self._open.pop(event.key, None)
        if known is None:
            return None
        point, call = known.point, known.call
        if not call.target and known.parts:
            call.target = target(known.tool, "".join(known.parts))[:LABEL_LIMIT]
        ended = event.interrupted or event.rejected
        call.failed = event.is_error and not ended
        call.size_chars = len(event.output) + 1
        if ended:
            point.state = "stopped"
        elif call.failed and point.state != "stopped":
            point.state = "failed"
        if point is head:
            self._files.update(b.path for b in event.display if isinstance(b, DiffBlock))
            point.files = len(self._files)
        return point
