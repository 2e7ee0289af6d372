"""What a line without a record tells of itself."""

from __future__ import annotations

import pytest

from kimi_tui.llm.message import FunctionCall, Message, ToolCall, user_message
from kimi_tui.prompts import INTERRUPTED, NOT_BEGUN, prompt
from kimi_tui.session.schema import Checkpoint
from kimi_tui.soul.messages import Segment, dmail_message
from kimi_tui.soul.rebuilt_history import (
    _carried_with,  # pyright: ignore[reportPrivateUsage]
    events_from_messages,
)
from kimi_tui.soul.tool_results import call_key, tool_message
from kimi_tui.tools.outcome import failure
from kimi_tui.wire.events import ToolCall as CallEvent
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


def test_calls_have_the_keys_that_the_engine_gave_them() -> None:
    def answer(*ids: str) -> Message:
        function = FunctionCall(name="Shell", arguments="{}")
        made = [ToolCall(id=name, function=function) for name in ids]
        return Message(role="assistant", content="", tool_calls=made)

    results = (tool_message(name, failure("no")) for name in "abc")
    messages = [answer("a", "b"), next(results), next(results), answer("c"), next(results)]
    events = list(events_from_messages(messages, "u"))
    for kind in (CallEvent, ToolResult):
        keys = [(one.id, one.key) for one in events if isinstance(one, kind)]
        assert keys == [(name, call_key("u", place)) for place, name in enumerate("abc")]


def test_a_dmail_is_known_from_a_pinned_one_that_says_the_same() -> None:
    body = prompt("dmail_carried", SOURCE="a test", TEXT="Look there.")
    pinned, arrived = dmail_message(body, "agent"), dmail_message(body, "agent")
    segment = Segment(Checkpoint(1, "u", "", 0, 0), (pinned, user_message("Go on"), arrived))
    assert _carried_with(arrived, segment) == ("Go on",)
