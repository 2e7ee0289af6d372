"""The views are rebuilt from events a few milliseconds at a time, with the events that come meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.chat_server import ChatServer
from support.screens import desk

from kimi_tui.tui.frame_rows import timeline_width
from kimi_tui.wire.events import CheckpointCreated, EventRecord, TextPart, TurnBegin, TurnEnd


def _turn(number: int) -> list[EventRecord]:
    events = [
        TurnBegin(f"question {number}"),
        CheckpointCreated(number, f"uid-{number}", "user", f"question {number}"),
        TextPart(f"answer {number}"),
        TurnEnd("done"),
    ]
    return [
        EventRecord(number * len(events) + place, 0.0, one) for place, one in enumerate(events, 1)
    ]


@pytest.mark.exhaustive
async def test_a_long_session_is_shown_anew_in_slices_with_what_happens_meanwhile(
    tmp_path: Path,
) -> None:
    n_turns = 2_000
    records = [record for number in range(n_turns) for record in _turn(number)]
    later = [_turn(n_turns), _turn(n_turns + 1)]
    turns_of_the_loop = 0

    async def others() -> None:
        nonlocal turns_of_the_loop
        while True:
            turns_of_the_loop += 1
            await asyncio.sleep(0)

    async with ChatServer() as server, desk(tmp_path, server.base_url) as at:
        await at.ready()
        beside = asyncio.create_task(others())
        try:
            whole = await at.screen.bench.views.rebuild(
                records, lambda: later.pop(0) if later else []
            )
        finally:
            beside.cancel()
        assert whole
        # In one go there would be a turn or two.
        assert turns_of_the_loop > 10
        assert not later
        shown = await at.sees(f"answer {n_turns + 1}")
        assert f"question {n_turns}" in shown


def test_where_there_is_room_the_timeline_has_more_of_it() -> None:
    widths = [timeline_width(columns) for columns in (80, 100, 120, 170)]
    assert widths == sorted(widths)
    assert widths[0] == 0
    assert widths[3] > widths[2]
    assert 170 - widths[3] > 100
