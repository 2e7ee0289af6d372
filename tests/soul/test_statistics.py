"""Counting what a session did, from hand-made records with known times."""

from __future__ import annotations

from kimi_tui.soul.statistics import statistics
from kimi_tui.wire import events as ev


def told(*events: tuple[float, ev.Event]) -> list[ev.EventRecord]:
    return [ev.EventRecord(seq, at, event) for seq, (at, event) in enumerate(events, 1)]


def reverted(reason: ev.Operation, before: int, after: int) -> ev.ContextReverted:
    return ev.ContextReverted(reason, 1, "u", 5, 1, 8, 3, before, after)


def test_time_goes_to_the_person_then_to_tools_then_to_the_model() -> None:
    found = statistics(
        told(
            (100.0, ev.TurnBegin("do it")),
            (100.0, ev.StepBegin(1)),
            (103.0, ev.ToolCall("a", "Shell")),
            (104.0, ev.ToolStarted("a", "Shell", "{}")),
            (104.0, ev.ToolCall("b", "WriteFile")),
            (104.0, ev.ApprovalRequest("q", "b", "WriteFile", "?", "x")),
            (114.0, ev.ApprovalResolved("q", "once")),
            (120.0, ev.ToolResult("a", True, "no")),
            (121.0, ev.ToolResult("b", False, "ok")),
            (125.0, ev.TurnEnd("done")),
        )
    )
    assert (found.turns, found.steps) == (1, 1)
    assert found.tool_calls == {"Shell": 1, "WriteFile": 1}
    assert found.tool_failures == 1
    assert (found.model_s, found.tools_s, found.user_s) == (9.0, 6.0, 10.0)


def test_a_turn_that_was_killed_waits_for_nobody() -> None:
    found = statistics(
        told(
            (10.0, ev.TurnBegin("a")),
            (10.0, ev.StepBegin(1)),
            (12.0, ev.TextPart("half")),
            (90_000.0, ev.TurnBegin("b")),
            (90_000.0, ev.StepBegin(1)),
            (90_001.0, ev.TurnEnd("done")),
        )
    )
    assert found.model_s == 3.0
    assert found.turns == 2


def test_time_travel_is_counted_with_what_it_saved() -> None:
    found = statistics(
        told(
            (1.0, reverted("dmail", 50_000, 30_000)),
            (2.0, reverted("dmail", 40_000, 39_000)),
            (3.0, reverted("rewind", 39_000, 20_000)),
            (4.0, ev.CompactionEnd(200_000, 20_000, "summary", 3)),
            (5.0, ev.CompactionEnd(100, 100, error="failed")),
            (6.0, ev.StatusUpdate(20_000, 262_144, 222_000, total_input=9, total_cached=4, total_output=2)),
        )
    )  # fmt: skip
    assert (found.dmails, found.dmail_tokens_saved, found.rewinds) == (2, 21_000, 1)
    assert found.compactions == ((200_000, 20_000),)
    assert (found.input_tokens, found.cached_tokens, found.output_tokens) == (9, 4, 2)
