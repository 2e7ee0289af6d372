"""What an editor is told of calls, without one."""

from __future__ import annotations

from acp import schema

from kimi_tui.acp.updates import Updates
from kimi_tui.tool_cards import KNOWN, Card
from kimi_tui.wire import events as ev


def kinds(*events: ev.Event) -> list[str | None]:
    """The kinds of the calls that begin with these events."""
    updates = Updates("/work")
    told = [one for event in events for one in updates.of(event)]
    return [one.kind for one in told if isinstance(one, schema.ToolCallStart)]


def test_the_card_of_a_tool_says_how_editors_sort_its_calls() -> None:
    own = Card("Look", ("page",), does="fetch")
    told = kinds(
        ev.ToolCall("1", "mcp__web__look", "{}", card=own),
        ev.ToolCall("2", "mcp__web__other", "{}"),
        # The name of a tool of the program counts more than a card that a record has for it.
        ev.ToolCall("3", "Shell", "{}", card=own),
    )
    assert told == ["fetch", "other", "execute"]


def test_an_editor_knows_each_kind() -> None:
    events = [ev.ToolCall(name, name, "{}") for name, card in KNOWN.items() if card.shows != "list"]
    assert set(kinds(*events)) == {
        *("read", "edit", "execute", "search", "fetch", "think", "switch_mode", "other"),
    }


def test_an_editor_is_told_which_past_message_was_not_sent() -> None:
    updates = Updates("/work", past=True)
    sent = (ev.TurnBegin("sent"), ev.CheckpointCreated(0, "u", "user", "sent", 0))
    told = [
        str(one)
        for event in (*sent, ev.TurnEnd("done"), ev.TurnBegin("never"), ev.TurnEnd("interrupted"))
        for one in updates.of(event)
    ]
    assert [text for text in ("sent", "never", "was not sent") if any(text in o for o in told)]
    assert ["was not sent" in one for one in told] == [False, False, True]
