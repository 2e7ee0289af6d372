"""The end of a long session, shown before the engine is open: the same as in the whole, and nothing done to it is lost."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import settings
from support.cases import first_only
from support.chat_server import ChatServer, call, say
from support.long_session import STILL, WINDOW, LongSession
from support.screens import Desk, keys_count

from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.launch import Launch
from kimi_tui.llm.openai_compatible import OpenAICompatible
from kimi_tui.projection.blocks import Block, ToolBlock
from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.session.store import SessionStore
from kimi_tui.soul import assembly
from kimi_tui.soul.rebuilt_history import end_of_context
from kimi_tui.soul.record import end_of_record, read_records
from kimi_tui.soul.rewind_values import END, Target
from kimi_tui.tui.app import KimiApp
from kimi_tui.tui.main.feed import Feed
from kimi_tui.tui.main.screen import MainScreen
from kimi_tui.tui.preview.screen import RewindScreen
from kimi_tui.wire.events import EventRecord

LAST = "One index runs past the end"


@pytest_asyncio.fixture
async def server() -> AsyncIterator[ChatServer]:
    """The model."""
    async with ChatServer() as running:
        yield running


_history = Feed.history


class Glance:
    """An app that has shown how the session ended, and whose engine waits to be let on."""

    desk: Desk

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self._is_told = asyncio.Event()

    async def history(self, feed: Feed) -> AsyncGenerator[Sequence[EventRecord]]:
        """In place of the feed's: nothing is told before it may be."""
        await self._is_told.wait()
        async for records in _history(feed):
            yield records

    @property
    def chat(self) -> Any:
        """The chat."""
        return self.desk.screen.transcript

    @property
    def timeline(self) -> Any:
        """The timeline."""
        return self.desk.screen.bench.views.timeline

    async def whole(self) -> None:
        """Let the engine open and all of it be shown."""
        self.open.set()
        self._is_told.set()
        await self.desk.ready()
        await self.desk.pilot.pause()


@pytest_asyncio.fixture
async def glance(
    session: LongSession, tmp_path: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Glance]:
    """The app on a copy of the session, at the glance."""
    async with _glance(session, tmp_path, server, monkeypatch, 60_000) as shown:
        yield shown


@pytest_asyncio.fixture
async def short_glance(
    short_session: LongSession, tmp_path: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Glance]:
    """The app on a copy of the short session, at the glance."""
    async with _glance(short_session, tmp_path, server, monkeypatch, 24_000) as shown:
        yield shown


@asynccontextmanager
async def _glance(
    session: LongSession,
    tmp_path: Path,
    server: ChatServer,
    monkeypatch: pytest.MonkeyPatch,
    end_bytes: int,
) -> AsyncGenerator[Glance]:
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("HOME", str(session.work.parent))
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    # A session of some kilobytes is long here.
    monkeypatch.setattr("kimi_tui.soul.record.END_BYTES", end_bytes)
    monkeypatch.setattr("kimi_tui.soul.rebuilt_history.END_BYTES", end_bytes)
    with keys_count():
        async with _held(session, tmp_path, server.base_url, monkeypatch) as shown:
            await shown.desk.sees(LAST)
            yield shown
            shown.open.set()


@asynccontextmanager
async def _held(
    session: LongSession, home: Path, base_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Glance]:
    shutil.copytree(session.home, home, dirs_exist_ok=True)
    launch = Launch(
        work_dir=session.work,
        config_path=home / "config.toml",
        config=STILL,
        choice=ModelChoice("moonshot", base_url, "kimi-k2 thinking", window=WINDOW),
        resume=session.session_id,
    )
    app = KimiApp(launch)
    shown = Glance()
    open_soul = assembly.open_soul

    async def opened(**parts: Any) -> Any:
        await shown.open.wait()
        return await open_soul(**parts)

    # A short session is opened before a test runs.
    monkeypatch.setattr(assembly, "open_soul", opened)
    monkeypatch.setattr(Feed, "history", lambda feed: shown.history(feed))
    async with app.run_test(size=(120, 40)) as pilot:
        shown.desk = Desk(app, pilot)
        yield shown
        for screen in app.screen_stack:
            if isinstance(screen, MainScreen):
                await screen.conversation.close()


def facts_of(blocks: list[Block]) -> list[tuple[object, ...]]:
    """Return the facts about blocks that a user sees."""
    return [
        (
            type(block).__name__,
            block.at,
            block.checkpoint,
            getattr(block, "text", ""),
            getattr(block, "target", ""),
            getattr(block, "state", ""),
            getattr(block, "output", ""),
        )
        for block in blocks
    ]


def rows_of_chat(shown: str) -> list[str]:
    """Return the chat's rows, without its scrollbar."""
    return [line[:80].rstrip() for line in shown.split("\n")[1:32]]


@pytest.mark.exhaustive
async def test_what_is_shown_first_is_what_the_whole_shows(glance: Glance) -> None:
    assert glance.desk.screen.conversation.soul is None
    first, seen = facts_of(glance.chat.blocks), glance.desk.text()
    uids = [point.uid for point in glance.timeline.model.tree.live]
    await glance.whole()
    whole = facts_of(glance.chat.blocks)
    assert 5 < len(first) < len(whole) / 3
    # The first of them bears a checkpoint that was told further up.
    assert [one[:2] for one in whole[-len(first) :]] == [one[:2] for one in first]
    assert whole[1 - len(first) :] == first[1:]
    assert rows_of_chat(glance.desk.text()) == rows_of_chat(seen)
    live = [point.uid for point in glance.timeline.model.tree.live]
    assert live[-len(uids) :] == uids
    assert len(live) > len(uids)


async def test_nothing_is_counted_before_it_is_known(short_glance: Glance) -> None:
    def title() -> str:
        return next((row for row in short_glance.desk.text().splitlines() if "Timeline" in row), "")

    # The chat may be on the screen a frame before the timeline is.
    await short_glance.desk.sees("Timeline")
    assert "step" not in title()
    await short_glance.whole()
    await short_glance.desk.until(lambda: " steps" in title())


@pytest.mark.exhaustive
async def test_where_one_reads_stays(glance: Glance) -> None:
    glance.chat.focus()
    await glance.desk.pilot.press("pageup")
    before = rows_of_chat(glance.desk.text())
    assert LAST not in "\n".join(before)
    await glance.whole()
    assert rows_of_chat(glance.desk.text()) == before
    assert not glance.chat.follows
    await glance.desk.pilot.press("pageup", "pagedown")
    assert rows_of_chat(glance.desk.text()) == before


@pytest.mark.exhaustive
async def test_cards_that_were_unfolded_chosen_and_selected_stay_so(glance: Glance) -> None:
    glance.chat.focus()
    pilot = glance.desk.pilot
    while not isinstance(_chosen(glance), ToolBlock):
        await pilot.press("k")
    await pilot.press("space")
    chosen = _chosen(glance)
    assert chosen is not None
    assert chosen.unfolded
    await pilot.pause()
    assert await pilot.mouse_down(glance.chat, offset=(4, 12))
    await pilot.hover(glance.chat, offset=(40, 13))
    await pilot.mouse_up(glance.chat, offset=(40, 13))
    await pilot.pause()
    selected = glance.desk.screen.get_selected_text()
    assert selected
    seen = rows_of_chat(glance.desk.text())
    await glance.whole()
    after = _chosen(glance)
    assert after is not None
    assert after is not chosen
    assert (after.unfolded, after.at) == (True, chosen.at)
    assert rows_of_chat(glance.desk.text()) == seen
    assert glance.desk.screen.get_selected_text() == selected


def _chosen(glance: Glance) -> Block | None:
    view = glance.chat._current_view()
    return view.block if view is not None else None


@pytest.mark.exhaustive
async def test_the_row_that_is_selected_in_the_timeline_stays(glance: Glance) -> None:
    pilot = glance.desk.pilot
    await pilot.press("ctrl+t", "down", "down", "down")
    row = glance.timeline._view.selected_row()
    assert row.checkpoint.uid
    await glance.whole()
    now = glance.timeline._view.selected_row()
    assert now is not row
    assert now.checkpoint.uid == row.checkpoint.uid
    assert glance.timeline.has_focus
    await pilot.press("down")
    assert glance.timeline._view.selected_row().checkpoint.uid != row.checkpoint.uid


@pytest.mark.exhaustive
async def test_what_is_folded_and_looked_for_in_the_timeline_stays(glance: Glance) -> None:
    pilot = glance.desk.pilot
    await pilot.press("ctrl+t", "right_square_bracket", "space")
    folded = [point.uid for point in glance.timeline.model.tree.live if point.folded]
    assert folded
    await pilot.press("slash", *"led")
    await glance.whole()
    assert [point.uid for point in glance.timeline.model.tree.live if point.folded] == folded
    assert glance.timeline.model.rows.typed == "led"
    # The typing continues.
    await pilot.press(*"ger")
    assert glance.timeline.model.rows.typed == "ledger"


@pytest.mark.exhaustive
async def test_words_that_were_typed_stay_and_those_sent_are_said(
    glance: Glance, server: ChatServer
) -> None:
    server.script(say("Both files were written.", usage=(70_000, 20)))
    await glance.desk.say("Which files?")
    await glance.desk.pilot.press(*"and then")
    assert not server.requests
    await glance.whole()
    await glance.desk.sees("Both files were written.")
    assert glance.desk.screen.prompt.area.text == "and then"
    assert "Which files?" in str(server.requests[0].messages[-1]["content"])


@pytest.mark.exhaustive
async def test_a_rewind_before_the_engine_is_open_waits_for_it(short_glance: Glance) -> None:
    # No turn begins in what is shown, so now is selected first.
    await short_glance.desk.pilot.press("ctrl+t", "down", "enter")
    await short_glance.desk.sees("The session is still opening")
    short_glance.open.set()
    await short_glance.desk.until(lambda: isinstance(short_glance.desk.app.screen, RewindScreen))


@pytest.mark.exhaustive
async def test_a_rewind_before_all_is_told_is_shown_after_it(glance: Glance) -> None:
    glance.open.set()
    conversation = glance.desk.screen.conversation
    await glance.desk.until(lambda: conversation.soul is not None)
    live = glance.timeline.model.tree.live
    number = live[-1].id
    await glance.desk.pilot.press("ctrl+t", "enter")
    await glance.desk.until(lambda: isinstance(glance.desk.app.screen, RewindScreen))
    await glance.desk.pilot.press("enter")
    await glance.desk.until(lambda: glance.desk.app.screen is glance.desk.screen)
    await glance.desk.sees("edit your message in the prompt")
    await glance.whole()
    await glance.desk.until(lambda: glance.timeline.model.tree.live[-1].id < number)
    # The chat is drawn with the next frame.
    await glance.desk.until(lambda: LAST not in glance.desk.text())
    soul = conversation.soul
    assert soul is not None
    assert glance.timeline.model.tree.live[-1].id == soul.session.context.n_checkpoints - 1


@pytest.mark.exhaustive
async def test_a_turn_and_a_question_that_begin_before_all_is_told(
    glance: Glance, server: ChatServer
) -> None:
    server.script(call("Shell", {"command": "echo hello"}, usage=(70_000, 20)))
    glance.open.set()
    conversation = glance.desk.screen.conversation
    await glance.desk.until(lambda: conversation.soul is not None)
    soul = conversation.soul
    assert soul is not None
    turn = asyncio.create_task(soul.run("Greet"))
    await glance.desk.until(lambda: soul._approval._turns.locked())  # pyright: ignore[reportPrivateUsage]
    assert not conversation.state.approvals
    await glance.whole()
    await glance.desk.sees("echo hello")
    await glance.desk.until(lambda: bool(conversation.state.approvals))
    assert conversation.state.running
    server.script(say("Done so.", usage=(70_000, 20)))
    conversation.answer(conversation.state.approvals[0].id, "once", "")
    await turn
    await glance.desk.sees("Done so.")


@pytest.mark.exhaustive
async def test_marks_made_before_and_after(glance: Glance) -> None:
    glance.open.set()
    conversation = glance.desk.screen.conversation
    await glance.desk.until(lambda: conversation.soul is not None)
    soul = conversation.soul
    assert soul is not None
    pilot = glance.desk.pilot
    await pilot.press("ctrl+t", "P")
    await glance.desk.until(lambda: bool(soul.marks.pins))
    uid = glance.timeline._view.selected_row().checkpoint.uid
    await glance.whole()
    point = next(one for one in glance.timeline.model.tree.live if one.uid == uid)
    assert point.pinned
    assert any(block.pinned for block in glance.chat.blocks)
    await pilot.press("P")
    await glance.desk.until(lambda: not soul.marks.pins)
    await glance.desk.until(lambda: not point.pinned)


def told_by(records: Sequence[EventRecord]) -> tuple[list[tuple[object, ...]], list[str]]:
    """Return the chat after these events, and the checkpoints of the live line."""
    chat, timeline = TranscriptModel(), TimelineModel()
    for record in records:
        chat.apply(record)
        timeline.apply(record)
    return facts_of(list(chat.blocks)), [point.uid for point in timeline.tree.live]


N_SIZES = settings().max_examples // 2
"""In how many steps the end that is read becomes the whole: as with the examples of properties, few but in `make test-all`."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("then", ["undo", *first_only(["compaction", "nothing", "jump", "rewind"])])
async def test_wherever_it_begins_it_tells_how_the_whole_ends(
    session: LongSession,
    tmp_path: Path,
    server: ChatServer,
    monkeypatch: pytest.MonkeyPatch,
    then: str,
) -> None:
    shutil.copytree(session.home, tmp_path, dirs_exist_ok=True)
    stored = SessionStore(tmp_path).find(session.session_id)
    if then == "compaction":
        server.script(say("All of it again.", usage=(9_000, 20)))
    provider = OpenAICompatible(
        provider="moonshot", base_url=server.base_url, api_key="k", model="m", window=WINDOW
    )
    soul = await assembly.open_soul(session=stored, provider=provider)
    if then in ("undo", "rewind"):
        # To a turn before the last one.
        await soul.travel.rewind(Target(stored.context.n_checkpoints - 25))
    if then == "undo":
        await soul.travel.undo()
    elif then == "jump":
        await soul.travel.rewind(Target(END, 3))
    elif then == "compaction":
        await soul.compact("")
    if then != "nothing":
        server.script(say("And on.", usage=(9_100, 20)))
        await soul.run("Go on")
    await soul.aclose()
    again = SessionStore(tmp_path).find(session.session_id)
    whole, line = told_by(read_records(again))
    lengths: set[int] = set()
    whole_size = again.record.path.stat().st_size
    for size in range(1_000, whole_size + 9_000, max(4_000, whole_size // N_SIZES)):
        monkeypatch.setattr("kimi_tui.soul.record.END_BYTES", size)
        monkeypatch.setattr("kimi_tui.soul.rebuilt_history.END_BYTES", size)
        assert end_of_context(again), size
        end, end_line = told_by(end_of_record(again))
        assert end_line == line[len(line) - len(end_line) :], size
        # The first may bear a checkpoint that was told further up.
        assert len(end) <= len(whole), size
        assert [one[:2] for one in end] == [one[:2] for one in whole[len(whole) - len(end) :]], size
        assert end[1:] == whole[len(whole) - len(end) + 1 :] if end else True, size
        lengths.add(len(end))
    # However few records are read, one turn that fills them has no beginning of a turn in it.
    assert all(lengths)
