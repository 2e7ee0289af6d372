"""The whole story on the real engine, tools and files: what it promises happens by the normal rules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from kimi_tui.demo import Demo, prepare
from kimi_tui.session.store import SessionStore
from kimi_tui.soul.assembly import open_soul
from kimi_tui.soul.kimisoul import KimiSoul
from kimi_tui.soul.rewind_values import Target
from kimi_tui.wire.events import (
    ApprovalRequest,
    CheckpointCreated,
    CompactionEnd,
    ContextReverted,
    Event,
    StatusUpdate,
    TextPart,
    ToolResult,
    ToolStarted,
    TurnEnd,
)

Kind = TypeVar("Kind")


class Stage:
    """The demo on its engine, with someone who answers every approval."""

    def __init__(self, demo: Demo, soul: KimiSoul) -> None:
        self.demo = demo
        self.soul = soul
        self.events: list[Event] = []
        self.says_no = False
        self.feedback = ""
        self.ended = asyncio.Event()

    async def listen(self) -> None:
        async for record in self.soul.wire.subscribe():
            self.events.append(record.event)
            if isinstance(record.event, ApprovalRequest):
                answer = "no" if self.says_no else "once"
                self.soul.answer(record.event.id, answer, self.feedback)
            elif isinstance(record.event, TurnEnd):
                self.ended.set()

    async def say(self, text: str) -> Sequence[Event]:
        """One turn; returns its events."""
        start = len(self.events)
        self.ended.clear()
        await self.soul.run(text)
        await self.ended.wait()
        return self.events[start:]

    async def say_next(self) -> Sequence[Event]:
        """Press Enter, as the demo invites to."""
        text = self.demo.suggestions.next
        self.demo.suggestions.said(text)
        events = await self.say(text)
        self.demo.suggestions.ended(is_done=_only(events, TurnEnd)[0].reason == "done")
        return events


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    demo = prepare(speed=0)
    session = SessionStore(demo.data_dir).create(demo.work_dir)
    soul = await open_soul(session=session, provider=demo.provider, mode="ask")
    made = Stage(demo, soul)
    listener = asyncio.create_task(made.listen())
    yield made
    await soul.aclose()
    listener.cancel()
    await asyncio.gather(listener, return_exceptions=True)


def _only(events: Sequence[Event], kind: type[Kind]) -> list[Kind]:
    return [event for event in events if isinstance(event, kind)]


def _text(events: Sequence[Event]) -> str:
    return "".join(event.text for event in _only(events, TextPart))


async def test_the_acts_behind_one_another(stage: Stage) -> None:
    await _first_act_floods_folds_and_fixes(stage)
    await _second_act_compacts_by_the_rule(stage)
    await _third_act_invites_and_a_rewind_plays_it_again(stage)


async def _first_act_floods_folds_and_fixes(stage: Stage) -> None:
    events = await stage.say_next()
    (reverted,) = _only(events, ContextReverted)
    assert reverted.reason == "dmail"
    # The log is what is folded away, and it was worth it.
    assert reverted.tokens_before - reverted.tokens_after > 10_000
    assert "row 412" in reverted.text
    runs = [event for event in _only(events, ToolStarted) if event.name == "Shell"]
    assert len(runs) == 2
    outputs = {event.key: event.output for event in _only(events, ToolResult)}
    assert "FAILED (" in outputs[runs[0].key]
    assert "Ran 6 tests" in outputs[runs[1].key]
    assert "OK" in outputs[runs[1].key]
    assert len(_only(events, ApprovalRequest)) == 4
    assert not _only(events, CompactionEnd)
    assert _only(events, TurnEnd)[0].reason == "done"
    assert "All six tests pass" in _text(events)


async def _second_act_compacts_by_the_rule(stage: Stage) -> None:
    events = await stage.say_next()
    (compacted,) = _only(events, CompactionEnd)
    assert not compacted.error
    trigger = _only(events, StatusUpdate)[-1].trigger
    assert compacted.tokens_before >= trigger
    assert compacted.tokens_after < trigger * 0.6
    # Room on both sides, so that another prompt or tool does not move it to another step.
    before = [event.used for event in _only(events, StatusUpdate) if event.used < trigger]
    assert compacted.tokens_before > trigger + 1_000
    assert max(used for used in before if used < compacted.tokens_before) < trigger - 1_000
    assert "row 412" in compacted.summary.lower()
    assert not [event for event in _only(events, ToolResult) if event.is_error]
    assert (stage.demo.work_dir / "CHANGELOG.md").read_text().startswith("# Changelog")
    assert "1,420 rows" in _text(events)


async def _third_act_invites_and_a_rewind_plays_it_again(stage: Stage) -> None:
    events = await stage.say_next()
    turn = _only(events, CheckpointCreated)[0]
    assert turn.kind == "user"
    assert f"#{turn.id}" in _text(events)
    assert "written twice" in (stage.demo.work_dir / "README.md").read_text()
    assert stage.demo.suggestions.next == ""

    outcome = await stage.soul.travel.rewind(Target(turn.id))
    assert outcome.prompt == "Say in the README that quotes are doubled."
    # The file stayed as it was, so the edit finds nothing to do, and the story knows.
    again = await stage.say(outcome.prompt)
    assert "The README says so now." in _text(again)
    own_words = await stage.say("Tell me a joke")
    assert "My answers were written in advance" in _text(own_words)


@pytest.mark.exhaustive
async def test_a_no_ends_the_turn_and_the_story_waits(stage: Stage) -> None:
    stage.says_no = True
    events = await stage.say_next()
    assert _only(events, TurnEnd)[0].reason == "rejected"
    assert stage.demo.suggestions.next.startswith("Rows with")
    turn = _only(events, CheckpointCreated)[0]
    outcome = await stage.soul.travel.rewind(Target(turn.id))
    stage.feedback = "Not that file."
    events = await stage.say(outcome.prompt)
    assert "Understood, I leave that out" in _text(events)
    outcome = await stage.soul.travel.rewind(Target(turn.id))
    stage.says_no, stage.feedback = False, ""
    events = await stage.say(outcome.prompt)
    assert "All six tests pass" in _text(events)


@pytest.mark.exhaustive
async def test_said_again_after_a_no_the_story_goes_on_where_it_was(stage: Stage) -> None:
    stage.says_no = True
    await stage.say_next()
    stage.says_no = False
    events = await stage.say_next()
    assert "All six tests pass" in _text(events)
    assert stage.demo.suggestions.next.startswith("Do all the samples")


@pytest.mark.exhaustive
async def test_without_the_fix_the_samples_do_not_go_through(stage: Stage) -> None:
    stage.says_no = True
    await stage.say_next()
    stage.says_no = False
    events = await stage.say("Do all the samples go through now? Then write a changelog entry.")
    assert "Seven rows of people.csv are still skipped" in _text(events)
    turn = _only(events, CheckpointCreated)[0]
    assert f"#{turn.id}" in _text(events)
