"""Messages as the events that told them, without times and diffs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kimi_tui.llm.message import Message, TextPart, ThinkPart
from kimi_tui.soul.asking import call_key
from kimi_tui.soul.internal_messages import internal_kind, is_said
from kimi_tui.soul.tool_message import INTERRUPTED, NOT_BEGUN, outcome_of
from kimi_tui.wire import events as ev
from kimi_tui.wire.events import Event


def said_on_the_way(messages: Sequence[Message], uid: str) -> Iterator[Event]:
    """The answers, calls, results and steers among some messages."""
    open_calls: list[tuple[str, str]] = []
    n_calls = 0
    for number, message in enumerate(messages):
        if message.role == "assistant":
            yield from _answer(message, uid, n_calls)
            open_calls = [
                (call_key(uid, n_calls + place), call.id)
                for place, call in enumerate(message.tool_calls or ())
            ]
            n_calls += len(open_calls)
            if message.interrupted:
                yield ev.StepInterrupted()
        elif message.role == "tool":
            if open_calls:
                key, call_id = open_calls.pop(0)
                outcome = outcome_of(message)
                yield ev.ToolResult(
                    key,
                    outcome.is_error,
                    outcome.output,
                    outcome.message,
                    interrupted=outcome.message in (INTERRUPTED, NOT_BEGUN),
                    id=call_id,
                )
        elif is_said(message) and internal_kind(message) is None:
            yield ev.SteerTaken("", message.text, number=number)
    for key, call_id in open_calls:
        yield ev.ToolResult(key, True, "", INTERRUPTED, interrupted=True, id=call_id)


def _answer(message: Message, uid: str, n_calls: int) -> Iterator[Event]:
    """What an answer said and called; `n_calls` have been made behind the same checkpoint before."""
    for part in message.parts:
        if isinstance(part, ThinkPart) and part.think:
            yield ev.ThinkPart(part.think)
        elif isinstance(part, TextPart) and part.text:
            yield ev.TextPart(part.text)
    for place, call in enumerate(message.tool_calls or ()):
        key = call_key(uid, n_calls + place)
        arguments = call.function.arguments or ""
        yield ev.ToolCall(key, call.function.name, arguments, call.id)
        yield ev.ToolStarted(key, call.function.name, arguments)
