"""Pictures of the chat, wide and narrow."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.chat_app import ChatApp
from support.conversation import (
    LETTER,
    TOKENIZER_DIFF,
    Conversation,
    pinned,
    quoted_fields,
    slow_import,
)
from support.pictures import Pictures

from kimi_tui.tool_cards import BriefBlock, ShellBlock
from kimi_tui.tui.glyphs import ASCII, UNICODE, Glyphs
from kimi_tui.wire.events import (
    AgentChanged,
    AgentState,
    CheckpointCreated,
    CompactionBegin,
    CompactionEnd,
    EventRecord,
    SteerQueued,
    StepRetry,
    TextPart,
    ToolOutput,
    ToolResult,
    ToolStarted,
    TurnBegin,
)

BESIDE_TIMELINE = (81, 37)
SMALL = (80, 24)
SMALLEST = (60, 20)


def letter() -> Conversation:
    talk = slow_import()
    talk.tool("StrReplaceFile", {"path": "src/csv/importer.py"}, "", TOKENIZER_DIFF, cost=0)
    talk.step()
    talk.tool("SendDMail", {"message": LETTER, "checkpoint_id": 8}, "not sent", cost=400)
    talk.letter(8, LETTER)
    talk.step(think="a\nb\nc", think_s=2.0, text="I go straight to line 212")
    return talk


def troubles() -> Conversation:
    talk = Conversation(tokens=196_000)
    talk.checkpoint = 17
    talk.user("Now the same for tab-separated files.")
    talk.step(
        text="The tokenizer takes its separator from the dialect, so most of it is there already."
    )
    talk.tool(
        "Shell", {"command": "make docs"}, "make: *** No rule to make target 'docs'.  Stop.",
        ShellBlock("make docs", 2, 0.3), error=True, cost=200,
    )  # fmt: skip
    talk.step()
    talk.tool(
        "ReadFile", {"path": "src/csv/dialects.py"}, "Nearest: src/csv/dialect.py", BriefBlock("no such file"),
        error=True, cost=100,
    )  # fmt: skip
    talk.step()
    talk.tool(
        "Shell", {"command": "pytest -q --slow"}, "", ShellBlock("pytest -q --slow", None, 12.0), error=True,
        interrupted=True,
    )  # fmt: skip
    talk.end("interrupted")
    talk.tell(TurnBegin("", resumed=True))
    talk.step()
    talk.end(
        "error",
        error="401, the key was refused",
        advice="Check api_key in config.toml. Enter tries again.",
    )
    talk.tell(TurnBegin("", resumed=True))
    talk.step()
    talk.tell(StepRetry(1, 2, 3, 10.0, "the server is overloaded (529)", 529, 540.0))
    return talk


def at_work() -> Conversation:
    talk = Conversation(tokens=211_000)
    talk.user("Tidy up.")
    talk.checkpoint = 0
    talk.mark("compaction")
    talk.tell(
        CompactionEnd(
            211_000, 21_000, "\n".join(f"Point {n} of the summary." for n in range(1, 9)), 1
        )
    )
    talk.user("Go on with the docs.\n\nAll of them.")
    talk.step(
        text="| what | rows |\n|---|--:|\n| docs | 12 |\n\n> quoted\n\nSee **https://example.org**."
    )
    key = talk.call("Shell", {"command": "make docs"})
    talk.tell(ToolStarted(key, "Shell", '{"command": "make docs"}'))
    talk.tell(ToolOutput(key, "".join(f"page {n} written\n" for n in range(9))))
    talk.tell(SteerQueued("s", "And the man page"))
    return talk


def compacted() -> Conversation:
    """Two turns went into a summary; the first words of all are pinned, the last turn was kept."""
    talk = Conversation(tokens=196_000)
    talk.user("Always answer in one sentence.")
    talk.step(text="I will.")
    talk.end()
    talk.user("Fix quoted fields.")
    talk.step(think="a\nb", think_s=2.0)
    talk.tool("StrReplaceFile", {"path": "src/csv/tokenizer.py"}, "", TOKENIZER_DIFF, cost=2_600)
    talk.step(text="Doubled quotes inside a field are **kept** now.")
    talk.tool("Shell", {"command": "pytest -q"}, "7 passed", ShellBlock("pytest -q", 0, 2.0))
    talk.end()
    talk.user("Why is the import slow?")
    talk.step(text="It calls `str.find` once for each character.")
    talk.end()
    points = [one.event for one in talk.records if isinstance(one.event, CheckpointCreated)]
    talk.tell(CompactionBegin(211_000, automatic=False))
    talk.tell(CheckpointCreated(0, "sum", "compaction"))
    for number, old in enumerate((points[0], *points[-2:]), 1):
        moved = CheckpointCreated(number, f"{old.uid}'", old.kind, old.label, 21_000, was=old.uid)
        talk.tell(moved)
    summary = "## Current task\nFind out why the import is slow.\n## Completed tasks\nQuoted fields: fixed."
    talk.tell(CompactionEnd(211_000, 21_000, summary, 1))
    talk.checkpoint, talk.tokens = 4, 21_000
    talk.user("Use one regular expression.")
    return talk


def with_subagents() -> Conversation:
    """One sub-agent in each of its states."""
    talk = Conversation(tokens=12_000)
    talk.user("Who depends on the length of a field?")
    talk.step(text="I have some parts looked at beside this.")
    facts: list[tuple[AgentState, str, dict[str, Any]]] = [
        ("done", "", {"cost": 0.042, "ended_at": talk.now + 14.0}),
        ("working", "", {"doing": 'Grep "field("'}),
        ("working", "", {}),
        ("asking", "", {}),
        ("waiting", "Waiting for other sub-agents.", {"step": 0, "input": 0}),
        ("failed", "It reached its limit of 100 steps.", {"ended_at": talk.now + 90.0}),
        ("stopped", "You stopped it.", {"ended_at": talk.now + 3.0}),
        ("paused", "kimi-tui exited before the sub-agent was done.", {}),
    ]
    answer = (
        "Two places call it:\n\n- `src/writer.py:12`\n- `src/cli.py:40`\n\nNeither checks it.\n\n"
        * 3
    )
    for number, (state, why, more) in enumerate(facts, 1):
        arguments = {"description": f"Find the callers of part {number}", "prompt": "Find them."}
        key = talk.call("Agent", arguments)
        talk.tell(ToolStarted(key, "Agent", json.dumps(arguments)))
        one = AgentChanged(f"explore-{number}", number, "explore", key=key, state=state, why=why)
        one = replace(one, title=arguments["description"], began_at=talk.now, step=4, input=18_400)
        talk.tell(replace(one, **more))
        if one.is_over:
            talk.tell(ToolResult(key, state == "failed", answer if state == "done" else ""))
    return talk


@pytest.mark.parametrize(
    ("size", "theme", "glyphs"),
    [
        ((81, 50), "kimi-dark", UNICODE),
        ((60, 50), "kimi-light", ASCII),
        ((81, 50), "kimi-16", UNICODE),
    ],
    ids=["wide", "narrow", "sixteen"],
)
async def test_subagents(
    size: tuple[int, int], theme: str, glyphs: Glyphs, picture: Pictures
) -> None:
    app = ChatApp(theme=theme, ansi=theme == "kimi-16", glyphs=glyphs)
    async with app.run_test(size=size) as pilot:
        talk, model = with_subagents(), app.transcript._loaded_model()  # pyright: ignore[reportPrivateUsage]
        said = EventRecord(99, talk.now, TextPart("I read\nthe tests now."), source="explore-3")
        app.transcript.apply(
            [*talk.records, said],
            take=lambda one: model.apply_beside(one) if one.source else model.apply(one),
        )
        await pilot.pause()
        picture(app, theme) if theme != "kimi-16" else picture(app)


@pytest.mark.parametrize("size", [BESIDE_TIMELINE, SMALLEST], ids=["wide", "smallest"])
@pytest.mark.parametrize("make", [quoted_fields, letter, troubles, at_work])
async def test_chat(
    make: Callable[[], Conversation],
    size: tuple[int, int],
    picture: Pictures,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talk = make()
    monkeypatch.setattr(time, "time", lambda: talk.now + 6.0)
    await compare(picture, ChatApp(), talk, size)


async def test_ascii(picture: Pictures) -> None:
    await compare(picture, ChatApp(glyphs=ASCII), letter(), SMALL)


async def test_sixteen_colours(picture: Pictures) -> None:
    app = ChatApp(theme="kimi-16", ansi=True)
    await compare(picture, app, quoted_fields(), BESIDE_TIMELINE)


async def test_compacted(picture: Pictures) -> None:
    for size, theme in ((BESIDE_TIMELINE, "kimi-dark"), (SMALLEST, "kimi-light")):
        app = ChatApp(theme=theme)
        async with app.run_test(size=size) as pilot:
            records = [*compacted().records, pinned(("uid0-1'", 0))]
            app.transcript.apply(records, live=True)
            await pilot.pause()
            picture(app, theme)


@pytest.mark.sample
@pytest.mark.parametrize("progress", [0.45, 0.85])
async def test_folding(progress: float, picture: Pictures, monkeypatch: pytest.MonkeyPatch) -> None:
    app = ChatApp()
    # Time stands still: the picture of one moment is wanted.
    monkeypatch.setattr(app.transcript, "animate", lambda *_, **__: None)
    talk = slow_import()
    talk.step()
    talk.tool("SendDMail", {"message": LETTER, "checkpoint_id": 8}, "not sent", cost=400)
    async with app.run_test(size=BESIDE_TIMELINE) as pilot:
        app.transcript.apply(talk.take())
        await pilot.pause()
        talk.now = time.time()
        talk.letter(8, LETTER)
        app.transcript.apply(talk.take())
        app.transcript.motion_progress = progress
        await pilot.pause()
        picture(app)


async def test_chosen_and_unfolded(picture: Pictures) -> None:
    app = ChatApp()
    async with app.run_test(size=BESIDE_TIMELINE) as pilot:
        app.transcript.apply(letter().records)
        app.transcript.focus()
        for _ in range(3):
            app.transcript.action_choose(-1)
        app.transcript.action_fold()
        await pilot.pause()
        await pilot.hover("#chat", offset=(20, 0))
        await pilot.pause()
        picture(app)


async def compare(
    picture: Pictures, app: ChatApp, talk: Conversation, size: tuple[int, int]
) -> None:
    async with app.run_test(size=size) as pilot:
        app.transcript.apply(talk.records)
        await pilot.pause()
        picture(app)
