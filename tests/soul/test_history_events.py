"""What a line without a record tells of itself."""

from __future__ import annotations

import pytest

from kimi_tui.llm.message import FunctionCall, Message, ToolCall
from kimi_tui.soul.history import events_from_messages
from kimi_tui.soul.tool_results import INTERRUPTED, NOT_BEGUN, tool_message
from kimi_tui.tools.base import failure
from kimi_tui.wire.events import ToolResult


@pytest.mark.parametrize(
    ("said", "stopped"), [(INTERRUPTED, True), (NOT_BEGUN, True), ("No such file.", False)]
)
def test_a_call_that_was_stopped_is_told_as_stopped(said: str, stopped: bool) -> None:
    call = ToolCall(id="a", function=FunctionCall(name="Shell", arguments="{}"))
    messages = [
        Message(role="assistant", content="", tool_calls=[call]),
        tool_message("a", failure(said)),
    ]
    (result,) = [
        event for event in events_from_messages(messages, "u") if isinstance(event, ToolResult)
    ]
    assert result.interrupted is stopped
