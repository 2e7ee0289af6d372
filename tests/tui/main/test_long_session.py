"""Every view on a session of 200 checkpoints: what keys and clicks do there, and how it looks wide and narrow."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio
from support.chat_app import is_drawn
from support.chat_server import ChatServer, call, say
from support.long_session import LETTERS, LongSession, opened
from support.pictures import Pictures
from support.screens import Desk

from kimi_tui.config.settings import Config, DMailConfig
from kimi_tui.session.store import SessionStore
from kimi_tui.soul.rewind_values import Target
from kimi_tui.tui.compare.screen import CompareScreen
from kimi_tui.tui.dialogs.text_dialog import TextDialog
from kimi_tui.tui.dialogs.text_screen import SummaryScreen
from kimi_tui.tui.preview.screen import RewindScreen
from kimi_tui.tui.replay.screen import ReplayScreen
from kimi_tui.tui.replay.scrubber import Scrubber

SIZES = [(120, 40), (80, 24), (60, 20)]


@pytest.fixture
def home(tmp_path: Path, session: LongSession, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, in a zone that is the same everywhere."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("HOME", str(session.work.parent))
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


@pytest_asyncio.fixture
async def server() -> AsyncIterator[ChatServer]:
    """The server of the model."""
    async with ChatServer() as running:
        yield running


@pytest_asyncio.fixture
async def one(session: LongSession, home: Path, server: ChatServer) -> AsyncIterator[Desk]:
    """The app on the session."""
    async with opened(session, home, server.base_url) as desk:
        await desk.sees("One index runs past the end")
        soul = desk.screen.conversation.soul
        assert soul is not None
        # A preview that is opened before says that the files are not known yet.
        await soul.files_ready()
        yield desk


@pytest.fixture
def pictures(picture: Pictures) -> Views:
    """Compares with what is stored."""
    return Views(picture)


class Views:
    """The picture of a view of this session, in the widest terminal and, if the view has no other, in the narrowest."""

    def __init__(self, picture: Pictures) -> None:
        self._picture = picture

    async def of(
        self, desk: Desk, view: str, sizes: Sequence[tuple[int, int]] = (SIZES[0], SIZES[-1])
    ) -> None:
        """Compare pictures of what is on the screen now."""
        for size in sizes:
            await desk.pilot.resize_terminal(*size)
            # Textual hands a new size on when a timer is due, which no pause waits for.
            screens = desk.app.screen_stack
            await desk.until(lambda size=size, on=screens: all(s.size == size for s in on))
            # Below a dialog the main screen is painted a moment later.
            await desk.until(lambda: desk.text().lstrip().startswith("Importer"))
            # In another width the chat is laid out anew in slices, and then stands a few rows from where it first was.
            await desk.until(lambda: is_drawn(desk.screen.transcript))
            await desk.pilot.pause()
            self._picture(desk.app, f"{view}-{size[0]}")
        await desk.pilot.resize_terminal(*SIZES[0])
        await desk.pilot.pause()


def rows(desk: Desk) -> list[str]:
    """Return the timeline's rows."""
    return [line[82:] for line in desk.text().split("\n")]


async def click(desk: Desk, words: str, *, x: int = 82) -> None:
    """Click the first place at or right of a column where these words stand."""
    await desk.until(lambda: any(words in line[x:] for line in desk.text().split("\n")))
    lines = desk.text().split("\n")
    y, at = next((y, line.find(words, x)) for y, line in enumerate(lines) if words in line[x:])
    await desk.pilot.click(offset=(at, y))
    await desk.pilot.pause()


@pytest.mark.exhaustive
def test_it_is_the_session_that_it_should_be(session: LongSession) -> None:
    stored = SessionStore(session.home).find(session.session_id)
    told = (stored.dir / "wire.jsonl").read_text("utf-8")
    assert told.count('"CheckpointCreated"') == 200
    kept = (stored.dir / "worldlines.jsonl").read_text("utf-8")
    assert [kept.count(f'"op":"{op}"') for op in ("dmail", "compaction", "rewind")] == [3, 1, 1]
    assert len(list(stored.dir.glob("context_*.jsonl"))) == 5


@pytest.mark.exhaustive
async def test_chat_and_timeline(one: Desk, pictures: Views) -> None:
    shown = one.text()
    assert "Fields with" in shown
    assert "exit 1" in shown
    # Keys: by turns and steps; a space folds a turn and unfolds it.
    await one.pilot.press("ctrl+t", "right_square_bracket", "left_square_bracket")
    timeline = one.screen.bench.views.timeline
    before = timeline._view.selected
    await one.pilot.press("space")
    folded = rows(one)
    await one.pilot.press("space")
    await one.until(lambda: rows(one) != folded)
    assert timeline._view.selected == before
    # A click unfolds a world line between the row where it parted and the one where it ended.
    timeline.select(("line", 5))
    await click(one, "5   ")
    await one.sees("◊ #")
    await one.until(lambda: any("5   " in row and "╯" in row for row in rows(one)))
    await one.sees("◊ World line")  # the row that is selected shows it
    await pictures.of(one, "timeline")
    # The selection is still among the rows if there are fewer of them.
    await one.pilot.resize_terminal(60, 20)
    await one.sees("5   ")
    await one.pilot.resize_terminal(120, 40)
    await click(one, "5   ")
    await one.until(lambda: not any("5   " in row and "╯" in row for row in rows(one)))


@pytest.mark.exhaustive
async def test_filter_and_keys_of_the_timeline(one: Desk, pictures: Views) -> None:
    await one.pilot.press("ctrl+t", "slash", *"import.log")
    found = [row for row in rows(one) if "import.log" in row]
    assert len(found) >= 4
    assert all("Todo" not in row for row in rows(one))
    await one.sees("◊ World line")  # the row that is selected shows it
    await pictures.of(one, "filter", SIZES[:1])
    await one.pilot.press("enter", "escape", "question_mark")
    await one.sees("previous or next turn")
    await one.pilot.press("x")
    assert "previous or next turn" not in one.text()


@pytest.mark.exhaustive
async def test_a_preview_with_files_and_a_conflict(one: Desk, pictures: Views) -> None:
    await click(one, "Fields with")
    await one.until(lambda: isinstance(one.app.screen, RewindScreen))
    shown = await one.sees("Files changed since")
    assert "also changed outside kimi-tui; kept" in shown
    assert "! src/ledger.py" in shown
    # Tab gives the arrows to the files; Space there takes one along that would have stayed.
    await one.pilot.press("tab")
    await one.sees("Space restore file")
    assert "by hand" in one.text()
    await pictures.of(one, "preview-conflict", SIZES[:1])
    await one.pilot.press("space")
    assert "✓ src/ledger.py" in one.text()
    await one.pilot.press("escape")
    await one.until(lambda: one.app.screen is one.screen)
    assert "One index runs past" in one.text()


@pytest.mark.exhaustive
async def test_the_row_and_its_preview_say_the_same_figure(one: Desk) -> None:
    model, soul = one.screen.bench.views.timeline.model, one.screen.conversation.soul
    assert model is not None
    assert soul is not None
    for point in model.tree.live[1:]:
        preview = await soul.travel.preview(Target(point.id))
        freed = preview.tokens_before - preview.tokens_after
        assert (point.id, model.frees(point)) == (point.id, freed)
        assert preview.estimated == (not point.measured)


@pytest.mark.exhaustive
async def test_a_world_line_and_its_comparison(one: Desk, pictures: Views) -> None:
    await one.pilot.press("ctrl+t", "slash", *"regular", "enter", "down", "down")
    await one.pilot.press("w")
    await one.sees("World line 3  ")
    await one.sees("One test fails")
    await one.sees("created by your rewind to #25")
    await pictures.of(one, "world-line")
    await one.pilot.press("c")
    await one.until(lambda: isinstance(one.app.screen, CompareScreen))
    await one.sees("in common: #0 to #24")
    await one.sees("Use a regular expression")
    await one.pilot.press("n")
    await one.pilot.press("tab")
    page = one.app.screen
    assert isinstance(page, CompareScreen)
    sides = page._sides  # pyright: ignore[reportPrivateUsage]
    await one.until(lambda: sides.side == "live")
    await one.pilot.press("escape", "escape")
    await one.until(lambda: one.app.screen is one.screen and not one.screen.bench.reading)


@pytest.mark.exhaustive
async def test_a_letter_of_ones_own(one: Desk, pictures: Views) -> None:
    await click(one, "Fields with")
    await one.until(lambda: isinstance(one.app.screen, RewindScreen))
    await click(one, "Send a D-Mail here", x=0)
    # The question about the files comes before the D-Mail is written.
    await one.sees("Send and restore the files")
    await one.pilot.press("d")
    await one.until(lambda: isinstance(one.app.screen, TextDialog))
    page = one.app.screen
    assert isinstance(page, TextDialog)
    page.area.cursor_blink = False
    await one.pilot.press(*"Guard the last line.")
    await pictures.of(one, "letter")
    assert page.area.text == "Guard the last line."
    await one.pilot.press("escape")
    await one.until(lambda: one.app.screen is one.screen)


@pytest.mark.exhaustive
async def test_the_card_of_a_letter(one: Desk, pictures: Views) -> None:
    chat = one.screen.transcript
    chat.focus()
    while LETTERS[2][:20] not in one.text():
        await one.pilot.press("left_square_bracket")
    assert "reads it" not in one.text()
    folded = one.text()
    await click(one, "removed from the context", x=0)
    assert one.text() != folded
    await one.sees("Read")
    await pictures.of(one, "card-unfolded", SIZES[:1])
    assert not re.search(r"↓ \d+ new", one.text())
    await click(one, "D-Mail  from", x=0)
    assert LETTERS[2][:20] in one.text()


@pytest.mark.exhaustive
async def test_a_summary(one: Desk, pictures: Views) -> None:
    await one.pilot.press("ctrl+t", "end")
    timeline = one.screen.bench.views.timeline
    live = timeline.model.tree.live if timeline.model is not None else []
    timeline.select(live[0].row_key)
    await one.pilot.press("enter")
    await one.until(lambda: isinstance(one.app.screen, SummaryScreen))
    shown = await one.sees("Import bank statements from CSV")
    assert "2024年3月2日" in shown
    await pictures.of(one, "summary")
    for size in SIZES:
        await one.pilot.resize_terminal(*size)
        await one.sees("Esc close")
    await one.pilot.press("escape")
    await one.until(lambda: one.app.screen is one.screen)


@pytest.mark.exhaustive
async def test_statistics(one: Desk, pictures: Views) -> None:
    await one.say("/stats")
    shown = await one.sees("Statistics")
    assert "D-Mails" in shown
    await pictures.of(one, "statistics")


@pytest.mark.exhaustive
async def test_a_replay(one: Desk) -> None:
    await one.pilot.press("ctrl+t", "p")
    await one.until(lambda: isinstance(one.app.screen, ReplayScreen))
    await one.until(lambda: bool(one.app.screen.query(Scrubber)))
    await one.until(lambda: one.app.screen.query_one(Scrubber).has_focus)
    scrubber = one.app.screen.query_one(Scrubber)
    await one.until(lambda: scrubber.size.width > 100)
    await one.pilot.mouse_down(scrubber, offset=(20, 1))
    await one.pilot.hover(scrubber, offset=(82, 1))
    await one.pilot.mouse_up(scrubber, offset=(82, 1))
    await one.pilot.press("left_square_bracket")
    shown = await one.sees("at #38, of 99 steps")
    assert isinstance(one.app.screen, ReplayScreen)
    player = one.app.screen._player
    assert player is not None
    await player.settled()
    await one.pilot.pause()
    assert "One index runs past" not in shown
    await one.pilot.press("right")
    assert one.text() != shown
    await one.pilot.press("end")
    await one.sees("One index runs past")


@pytest.mark.exhaustive
async def test_a_letter_is_reviewed(session: LongSession, home: Path, server: ChatServer) -> None:
    config = Config(theme="dark", reduced_motion=True, hints=False, dmail=DMailConfig(review=True))
    async with opened(session, home, server.base_url, config) as one:
        await one.sees("One index runs past the end")
        to = one.screen.bench.views.timeline.model.tree.live[-1].id  # pyright: ignore[reportOptionalMemberAccess]
        server.script(
            call("SendDMail", {"message": LETTERS[0], "checkpoint_id": to}, usage=(70_000, 40)),
            say("As you say: the letter stays here.", usage=(70_100, 20)),
        )
        await one.say("And the log?")
        await one.sees("D-Mail")
        await one.until(lambda: one.screen.bench.question is not None)
        panel = one.screen.bench.question  # pyright: ignore[reportPrivateUsage]
        assert panel is not None
        # A key counts only once the question has been painted and nothing was pressed for half a second.
        while panel._chosen is None:  # pyright: ignore[reportPrivateUsage]
            await one.until(lambda: panel.accepts_keys)
            await one.pilot.press("down")
        await one.pilot.press("n")
        await one.sees("As you say")
        await one.idle()
        assert "And the log?" in str(server.requests[-1].messages)
        assert one.screen.bench.views.timeline.model.tree.live[-1].id > to  # pyright: ignore[reportOptionalMemberAccess]
