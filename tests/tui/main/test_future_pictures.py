"""Pictures of futures on the main screen at three sizes, in both themes: on the timeline, read live, and a sub-agent of one."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fake_futures import FakeFutures
from support.pictures import Pictures, still
from support.screens import keys_count, no_servers
from support.still_screen import show_records
from support.story import whole_story
from textual.pilot import Pilot

from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.config.settings import Config
from kimi_tui.futures.values import FuturesPlan, Variant
from kimi_tui.launch import Launch
from kimi_tui.soul.rewind_values import END, Target
from kimi_tui.tui.app import KimiApp
from kimi_tui.tui.main.screen import MainScreen
from kimi_tui.tui.theme import KIMI_DARK, KIMI_LIGHT
from kimi_tui.wire.events import (
    AgentChanged,
    ApprovalRequest,
    CheckpointCreated,
    EventRecord,
    StepBegin,
    TextPart,
    ThinkPart,
    ToolCall,
    ToolResult,
    ToolStarted,
    TurnBegin,
)
from kimi_tui.wire.queue import Wire

SIZES = ((120, 40), (80, 24), (60, 20))
MESSAGES = ("Use the csv module", "Keep the parser and quote by hand", "Look for the callers first")


@pytest.fixture(autouse=True)
def _still(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    still(monkeypatch, tmp_path)
    monkeypatch.setattr("kimi_tui.llm.models.local_servers", no_servers)


def app(home: Path) -> KimiApp:
    """Return the program in `~/work/importer`."""
    work = home / "work" / "importer"
    work.mkdir(parents=True)
    return KimiApp(
        Launch(
            work_dir=work,
            config_path=home / "config.toml",
            config=Config(theme="dark", reduced_motion=True, hints=False),
            choice=ModelChoice("moonshot", "http://127.0.0.1:9/v1", "kimi-k2 thinking"),
        )
    )


async def worked() -> FakeFutures:
    """Return three futures: one has asked, one has ended, and one has a sub-agent at work."""
    fake = FakeFutures(Wire())
    await fake.start(FuturesPlan(Target(END), tuple(Variant(one) for one in MESSAGES)))
    first, second, third = (one.key for one in fake.states)
    fake.work(first, "The module reads quoted fields already.", step=1)
    command = "python -m unittest -q tests.test_parser"
    fake.ask(first, ApprovalRequest("r1", "c1", "Shell", "Run this command?", command))
    fake.work(second, "I close each field by hand.", step=3)
    fake.end(second, check="failed", check_exit=1, ended_at=fake.states[1].began_at + 61)
    call = f"{third}-1:0"
    arguments = '{"description": "Find the callers of the parser"}'
    fake.tell(
        third,
        StepBegin(1),
        CheckpointCreated(11, f"{third}-1", "step"),
        TextPart("A sub-agent looks for the callers, so that none of them breaks."),
        ToolCall(call, "Agent", arguments),
        ToolStarted(call, "Agent", arguments),
    )
    agent = AgentChanged(
        "explore-201",
        kind="explore",
        title="Find the callers of the parser and list each with its line",
        key=call,
        state="working",
        step=2,
        model="moonshot/kimi-k2",
        input=3_300,
        output=40,
        cost=0.0023,
    )
    grep = f"{third}-a:0"
    fake.tell_agent(
        third,
        agent,
        TurnBegin("Find the callers of the parser."),
        StepBegin(1),
        CheckpointCreated(0, "a0", "step"),
        ThinkPart("They may import it under another name."),
        TextPart("I search for its name first."),
        ToolCall(grep, "Grep", '{"pattern": "parse"}'),
        ToolStarted(grep, "Grep", '{"pattern": "parse"}'),
        ToolResult(grep, False, "src/writer.py:4\ntests/test_parser.py:7"),
        StepBegin(2),
        CheckpointCreated(1, "a1", "step"),
        TextPart("The writer calls it once, after each row, and keeps no field"),
    )
    fake.change(third, state="running", step=1, input=8_000, output=300)
    return fake


async def shown(
    running: KimiApp, pilot: Pilot[None], monkeypatch: pytest.MonkeyPatch
) -> tuple[MainScreen, FakeFutures]:
    """Show the story with these futures on the main screen."""
    fake = await worked()
    story = whole_story().records
    states = [
        EventRecord(story[-1].seq + n, story[-1].at, one) for n, one in enumerate(fake.states, 1)
    ]
    screen = await show_records(running, pilot, [*story, *states])

    async def engine() -> FakeFutures:
        return fake

    monkeypatch.setattr(screen.futures, "engine", engine)
    return screen, fake


async def at_all_sizes(picture: Pictures, running: KimiApp, pilot: Pilot[None]) -> None:
    """Take a picture at each size in each theme."""
    for width, height in SIZES:
        await pilot.resize_terminal(width, height)
        for theme in (KIMI_LIGHT, KIMI_DARK):
            running.theme = theme.name
            await pilot.pause()
            await pilot.pause()
            picture(running, f"{width}-{theme.name}")


@pytest.mark.exhaustive
async def test_on_the_timeline(
    picture: Pictures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = app(tmp_path)
    async with running.run_test(size=SIZES[0]) as pilot:
        await shown(running, pilot, monkeypatch)
        await pilot.press("ctrl+t")
        await at_all_sizes(picture, running, pilot)


@pytest.mark.exhaustive
async def test_one_that_is_read(
    picture: Pictures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = app(tmp_path)
    with keys_count():
        async with running.run_test(size=SIZES[0]) as pilot:
            screen, fake = await shown(running, pilot, monkeypatch)
            await screen.futures.open(fake.states[2].key)
            await at_all_sizes(picture, running, pilot)


@pytest.mark.exhaustive
async def test_a_subagent_of_one(
    picture: Pictures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = app(tmp_path)
    with keys_count():
        async with running.run_test(size=SIZES[0]) as pilot:
            screen, fake = await shown(running, pilot, monkeypatch)
            await screen.futures.open(fake.states[2].key)
            await pilot.pause()
            assert await screen.futures.open_agent("explore-201")
            await at_all_sizes(picture, running, pilot)
