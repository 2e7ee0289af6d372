"""Sub-agents of a stored session, read without the engine: their states at their calls, and their steps as Markdown and on a page."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from support.chat_server import call, calls, say
from support.soul import stage

from kimi_tui.export.markup import BlockWriter
from kimi_tui.filesystem import Storage
from kimi_tui.projection.blocks import AgentBlock, Block, ToolBlock
from kimi_tui.projection.session_model import SessionModel
from kimi_tui.session.errors import SessionNotFound
from kimi_tui.session.rotation import LIVE_NAME
from kimi_tui.session.session import Session
from kimi_tui.soul.rewind_values import END, Target
from kimi_tui.soul.stored_agents import (
    AGENTS_NAME,
    STATE_NAME,
    agent_session,
    agent_states,
    left_by_kill,
)
from kimi_tui.tui.replay.source import recorded
from kimi_tui.wire.events import AgentChanged, EventRecord, ToolResult, ToolStarted

HOSTILE = "<script>document.title='run'</script>"


def blocks_of(session: Session) -> tuple[list[EventRecord], list[Block]]:
    records, _ = recorded(session)
    model = SessionModel()
    for record in records:
        model.apply(record)
    return list(records), list(model.chat.blocks)


async def test_a_record_has_them_at_their_calls_and_exports_have_their_steps(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path, data=tmp_path / "data") as on:
        task = {"description": "find one", "prompt": "Where is one?", "kind": "explore"}
        on.server.script(
            calls([("Agent", task)]),
            call("Glob", {"pattern": "*"}, text=f"I look. {HOSTILE}"),
            say("Nowhere."),
            say("Done."),
        )
        await on.soul.run("find it")
        text = await on.soul.lines.markdown(Target(END))
        session = Session(on.soul.session.dir, on.work)
    (state,) = agent_states(session)
    assert (state.name, state.state, state.step) == ("explore-1", "done", 2)
    records, blocks = await asyncio.to_thread(blocks_of, session)
    told = [
        (type(one.event).__name__, getattr(one.event, "state", ""))
        for one in records
        if isinstance(one.event, (ToolStarted, AgentChanged, ToolResult))
    ]
    assert told == [
        ("ToolStarted", ""),
        ("AgentChanged", "working"),
        ("ToolResult", ""),
        ("AgentChanged", "done"),
    ]
    (card,) = [one for one in blocks if isinstance(one, ToolBlock)]
    assert card.agent == state
    _, steps = await asyncio.to_thread(blocks_of, agent_session(session, "explore-1"))
    said = [one.stream.text for one in steps if isinstance(one, AgentBlock)]
    assert said == [f"I look. {HOSTILE}", "Nowhere."]
    # A page has them folded below the card, as text; Markdown, too.
    page = BlockWriter(str, lambda _: "", steps=lambda _: steps).article(1, card)
    assert '<details class="agent"><summary>2 steps of explore-1</summary>' in page
    assert "I look." in page
    assert "<script>" not in page
    assert "**Sub-agent** `find one`" in text
    folded = text.partition("<details><summary>The steps of explore-1</summary>")[2]
    assert "**Agent:** I look." in folded.partition("</details>")[0]


def test_one_that_was_killed_ended_when_its_conversation_was_written_last(tmp_path: Path) -> None:
    state = AgentChanged(name="explore-1", number=1, key="k", state="working")
    for time in (0.0, 1_000.0):
        if time:
            (tmp_path / LIVE_NAME).write_text("")
            os.utime(tmp_path / LIVE_NAME, (time, time))
        left = left_by_kill(Storage(), tmp_path, state, ())
        assert (left.state, left.ended_at) == ("stopped", time)
    assert left_by_kill(Storage(), tmp_path, state, ["k"]).state == "paused"


def test_damaged_and_hostile_files_are_left_out(tmp_path: Path) -> None:
    session = Session(tmp_path / "session", tmp_path)
    folder = session.dir / AGENTS_NAME
    assert agent_states(session) == []
    whole = {"agent": {"name": "explore-9", "number": 9, "key": "k", "state": "done"}}
    files = {
        "explore-1": "{",
        "explore-2": "[]",
        "explore-3": json.dumps(whole),  # the name is another one
        "explore-4": "[" * 100_000,
        "..": json.dumps(whole),
        "explore-9": json.dumps({**whole, "versions": [7, {"agent": {"name": "other-1"}}]}),
    }
    for name, text in files.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / STATE_NAME).write_text(text)
    (folder / "explore-5").symlink_to(folder / "explore-9")
    assert [one.name for one in agent_states(session)] == ["explore-9"]
    for name in ("../x-1", "explore-1/..", "explore", "EXPLORE-1", "explore-1\n"):
        with pytest.raises(SessionNotFound):
            agent_session(session, name)
