"""A session whose program was killed while a tool ran or a question was open."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import call, say
from support.soul import Stage, Tool, stage, until_end

from kimi_tui.projection.blocks import AgentBlock, MarkBlock, ThoughtBlock, ToolBlock
from kimi_tui.projection.comparison import number_of
from kimi_tui.projection.session_model import reduce
from kimi_tui.projection.session_state import SessionState
from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.prompts import INTERRUPTED, NOT_BEGUN
from kimi_tui.session.lock import SessionLock
from kimi_tui.session.session import Session
from kimi_tui.soul.assembly import open_soul
from kimi_tui.soul.checkpoint_table import list_checkpoints
from kimi_tui.soul.history import session_history
from kimi_tui.soul.record import closing_events, read_records
from kimi_tui.soul.rewind_values import Target
from kimi_tui.tools.base import ToolEnv
from kimi_tui.tools.outcome import ToolOutcome
from kimi_tui.tools.toolset import Toolset
from kimi_tui.tui.replay.source import read
from kimi_tui.wire import events as ev
from kimi_tui.wire.events import Event, EventRecord


def recorded(*events: Event) -> list[EventRecord]:
    return [EventRecord(n, 10.0 + n, event) for n, event in enumerate(events, 1)]


def shown(records: list[EventRecord]) -> list[ToolBlock]:
    model = TranscriptModel()
    for record in records:
        model.apply(record)
    return [block for block in model.blocks if isinstance(block, ToolBlock)]


@contextlib.contextmanager
def holding(session: Session) -> Iterator[None]:
    lock = SessionLock(session.dir)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


async def killed(on: Stage, folder: Path) -> Session:
    """Return a session with the files as they are while the turn runs, when the program is killed."""
    await on.soul.save()
    await on.soul.flush()
    shutil.copytree(on.session.dir, folder / on.session.id)
    return Session(folder / on.session.id, on.work)


async def test_a_call_that_ran_when_the_program_was_killed_is_a_stopped_one(
    tmp_path: Path,
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def wait(arguments: dict[str, Any], env: ToolEnv) -> ToolOutcome:
        begun.set()
        await go_on.wait()
        return ToolOutcome("ended")

    tools = Toolset([Tool("Shell", wait, changes=True)])
    async with stage(tmp_path, toolset=tools) as on:
        on.server.script(call("Shell", {"command": "sleep 300"}), say("done"))
        turn = asyncio.create_task(on.soul.run("go"))
        await begun.wait()
        session = await killed(on, tmp_path / "killed")
        go_on.set()
        await turn

    played = (await asyncio.to_thread(read, session)).replay
    (last,) = shown(list(played.recording.records))
    assert last.state == "stopped"
    with holding(session):
        # Another process that has it open may still be running the call.
        played = (await asyncio.to_thread(read, session)).replay
        (last,) = shown(list(played.recording.records))
        assert last.state != "stopped"
    for opening in range(2):
        soul = await open_soul(session=session, provider=None, environ={}, follow_files=False)
        try:
            (card,) = shown(list(soul.opened_with))
            assert (card.state, card.message) == ("stopped", INTERRUPTED)
            (retold,) = shown(await soul.history())
            assert retold.state == "stopped"
            # Told once, and in the record.
            results = [r for r in read_records(session) if isinstance(r.event, ev.ToolResult)]
            assert len(results) == 1
            await soul.flush()
            rows = list_checkpoints(session)
            assert rows[-1].kind == "interrupted"
            if opening:
                await soul.travel.rewind(Target(1))
                compared = await soul.lines.compare(1)
                (left,) = shown([*compared.other])
                assert (left.tool, left.target, left.message) == ("Shell", "sleep 300", INTERRUPTED)
                assert left.state == "stopped"
                # There is no result: what called is sent.
                assert number_of(left, [left]) == left.number
                (left_card,) = shown(await soul.lines.read(1))
                assert left_card.state == "stopped"
        finally:
            await soul.aclose()
        session = Session(session.dir, session.work_dir)


def test_what_is_open_at_the_end_of_a_record_is_stopped() -> None:
    records = recorded(
        ev.TurnBegin("go"),
        ev.ToolCall("u:0", "Shell", "{}", "a"),
        ev.ToolCall("u:1", "WriteFile", "{}", "b"),
        ev.ToolCall("u:2", "ReadFile", "{}", "c"),
        ev.ToolStarted("u:0", "Shell", "{}"),
        ev.ToolStarted("u:1", "WriteFile", "{}"),
        ev.ApprovalRequest("q", "u:1", "WriteFile", "Write?", "x"),
    )
    told = closing_events(records)
    assert [record.seq for record in told] == [8, 9, 10, 11, 12]
    assert {record.at for record in told} == {records[-1].at}
    asked, *results, ended = [record.event for record in told]
    assert ended == ev.TurnEnd("interrupted", killed=True)
    assert asked == ev.ApprovalResolved("q", "no", "stopped")
    assert [(r.id, r.message) for r in results if isinstance(r, ev.ToolResult)] == [
        ("a", INTERRUPTED),
        ("b", NOT_BEGUN),
        ("c", INTERRUPTED),
    ]
    assert [card.state for card in shown([*records, *told])] == ["stopped"] * 3
    assert all(card.stopped_by == "exit" for card in shown([*records, *told]))
    by_user = [*records, *told[:-1], told[-1]._replace(event=ev.TurnEnd("interrupted"))]
    assert not any(card.stopped_by == "exit" for card in shown(by_user))
    assert closing_events([*records, *told]) == []


BEGUN = (
    ev.TurnBegin("go"),
    ev.CheckpointCreated(0, "a", "user", "go"),
    ev.StepBegin(1),
    ev.CheckpointCreated(1, "b", "step"),
)


@pytest.mark.parametrize(
    ("end", "kept"),
    [
        ((ev.TextPart("half an ans"),), "half an ans"),
        ((ev.ThinkPart("half a thou"),), "half a thou"),
        ((ev.TextPart("most"), ev.StepRetry(1, 2, 3, 60.0, "x")), "most"),
        ((ev.TextPart("most"), ev.StepRetry(1, 2, 3, 60.0, "x"), ev.TextPart("l")), "most"),
        ((ev.TextPart("m"), ev.StepRetry(1, 2, 3, 60.0, "x"), ev.TextPart("last")), "last"),
        ((ev.CompactionBegin(900, automatic=True),), ""),
        ((), ""),
    ],
)
def test_an_answer_that_was_cut_off_is_not_still_written(end: tuple[Event, ...], kept: str) -> None:
    records = recorded(*BEGUN, *end)
    records += closing_events(records)
    assert closing_events(records) == []
    transcript, timeline, state = TranscriptModel(), TimelineModel(), SessionState()
    for record in records:
        transcript.apply(record)
        timeline.apply(record)
        state = reduce(state, record)
    assert not transcript.streaming
    assert transcript.waiting is None
    assert isinstance(mark := transcript.blocks[-1], MarkBlock)
    assert mark.text == "kimi-tui exited here"
    texts: list[str] = []
    for block in transcript.blocks:
        assert not getattr(block, "running", False)
        if isinstance(block, AgentBlock | ThoughtBlock):
            assert not block.open
            texts.append(block.stream.text)
    assert texts == ([kept] if kept else [])
    assert not timeline.running
    assert timeline.tree.live[-1].state == "stopped"
    assert (state.running, state.compacting) == (False, False)
    assert state.can_resume


def test_a_fork_that_ends_within_a_turn_was_not_cut_off() -> None:
    done = ev.StatusUpdate(10, 100, 90, step_input=9, step_output=1)
    call = ev.ToolCall("u:0", "Shell", "{}", "a"), ev.ToolResult("u:0", False, "", id="a")
    assert closing_events(recorded(*BEGUN[:2])) == []
    assert closing_events(recorded(*BEGUN, ev.TextPart("said"), done)) == []
    assert closing_events(recorded(*BEGUN, *call, done)) == []


def test_a_turn_that_was_killed_before_its_message_had_a_checkpoint_is_ended() -> None:
    (end,) = closing_events(recorded(*BEGUN, ev.TurnEnd("done"), ev.TurnBegin("on")))
    assert end.event == ev.TurnEnd("interrupted", killed=True)
    assert closing_events(recorded(*BEGUN, ev.TurnEnd("done"), ev.TurnBegin("", True))) == []


def test_what_a_failed_attempt_or_a_turns_end_took_is_not_ended_again() -> None:
    begun = (*BEGUN[:2], ev.ToolCall("u:0", "Shell", "{}", "a"))
    assert closing_events(recorded(*begun, ev.StepRetry(1, 1, 3, 0.0, "x"))) == []
    assert closing_events(recorded(*begun, ev.TurnEnd("interrupted"))) == []
    assert closing_events([]) == []


def test_a_message_that_waits_is_taken_back_however_many_turns_have_ended_since() -> None:
    told = closing_events(
        recorded(
            ev.TurnBegin("go"),
            ev.ToolCall("u:0", "Shell", "{}", "a"),
            ev.ApprovalRequest("q", "u:0", "Shell", "Run?", "x"),
            ev.SteerQueued("s1", "taken"),
            ev.SteerQueued("s2", "waits"),
            ev.SteerTaken("s1", "taken"),
            ev.TurnEnd("done"),
            ev.TurnBegin("on"),
            ev.TurnEnd("done"),
        )
    )
    assert [record.event for record in told] == [ev.SteerTaken("s2", "waits", withdrawn=True)]


async def test_a_record_that_was_lost_tells_the_same(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def wait(arguments: dict[str, Any], env: ToolEnv) -> ToolOutcome:
        begun.set()
        await asyncio.Event().wait()
        return ToolOutcome("")

    async with stage(tmp_path, toolset=Toolset([Tool("Shell", wait)])) as on:
        on.server.script(call("Shell", {"command": "x"}))
        turn = asyncio.create_task(until_end(on.soul.run("go")))
        await begun.wait()
        session = await killed(on, tmp_path / "killed")
        await on.soul.interrupt()
        await turn
    session.record.path.unlink()
    await session.open()
    try:
        (card,) = shown(session_history(session))
        assert card.state == "stopped"
    finally:
        await session.aclose()
