"""The views are rebuilt from events a few milliseconds at a time, with the events that come meanwhile."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.chat_app import ChatApp
from support.chat_server import ChatServer
from support.screens import desk
from support.story import Teller

from kimi_tui.projection.blocks import AgentBlock, Block
from kimi_tui.tui.frame_rows import timeline_width
from kimi_tui.tui.slices import release
from kimi_tui.tui.transcript.viewport import Flow
from kimi_tui.tui.views import CHUNK, FLOW_SLICE, UnshownSession
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


@pytest.mark.exhaustive
async def test_a_long_session_that_is_left_is_freed_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_turns = 1_000
    records = [record for number in range(n_turns) for record in _turn(number)]
    counts: list[int] = []
    emptied = asyncio.Event()

    async def watched(held: list[Any], slice_s: float) -> None:
        # Nothing else has them any more, so each slice frees what it drops.
        blocks = [one for one in held if isinstance(one, AgentBlock)]
        counts.append(len(blocks))
        counts.append(max(map(sys.getrefcount, blocks)))
        del blocks
        await release(held, slice_s)
        emptied.set()

    monkeypatch.setattr("kimi_tui.tui.main.screen.release", watched)
    async with ChatServer() as server, desk(tmp_path, server.base_url) as at:
        await at.ready()
        await at.screen.bench.views.rebuild(records, list)
        await at.sees(f"answer {n_turns - 1}")
        await at.say("/new")
        await asyncio.wait_for(emptied.wait(), 20)
    # A block is referred to by `held`, `blocks` and the argument of `getrefcount`.
    assert counts == [n_turns, 3]


async def test_a_line_that_came_back_is_laid_out_in_steps_before_it_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Teller()
    for number in range(400):
        told.turn(f"question {number}")
        told.begin_step()
        told.tell(TextPart(f"answer {number}"))
        told.end()
    told.jump(told.rewind(2), op="undo")
    update, most = Flow.update, 0

    def counted(self: Flow, blocks: Sequence[Block], first: int) -> None:
        nonlocal most
        most = max(most, max(len(blocks), len(self.views)) - first)
        update(self, blocks, first)

    monkeypatch.setattr(Flow, "update", counted)
    app = ChatApp()
    async with app.run_test(size=(90, 30)):
        unshown = UnshownSession(app.transcript)
        for start in range(0, len(told.records), CHUNK):
            unshown.take(told.records[start : start + CHUNK], _raise)
        assert not unshown.is_settled
        n_steps = sum(1 for _ in unshown.settle())
        assert unshown.is_settled
        assert 0 < most <= FLOW_SLICE
        blocks, flow = unshown.session.chat.blocks, unshown.flow
        assert n_steps > len(blocks) / FLOW_SLICE
        assert flow is not None
        assert [view.block for view in flow.views] == list(blocks)
        in_one_go = Flow(app.transcript.room())
        update(in_one_go, blocks, 0)
        for index in range(len(blocks)):
            in_one_go.lay_out(index)
            flow.lay_out(index)
        assert [view.rows for view in flow.views] == [view.rows for view in in_one_go.views]
        app.transcript.show_model(unshown.session.chat, flow)
        # Showing it exchanges no block.
        assert most <= FLOW_SLICE


def _raise(error: Exception) -> None:
    raise error


def test_where_there_is_room_the_timeline_has_more_of_it() -> None:
    widths = [timeline_width(columns) for columns in (80, 100, 120, 170)]
    assert widths == sorted(widths)
    assert widths[0] == 0
    assert widths[3] > widths[2]
    assert 170 - widths[3] > 100
