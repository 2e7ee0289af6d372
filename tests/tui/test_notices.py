"""Notices on the screen, and the list of what was told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.cases import first_only
from support.chat_server import ChatServer, say
from support.screens import desk

from kimi_tui.tui.dialogs.text_screen import TextScreen
from kimi_tui.tui.frame import ChatPane, Header
from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.tui.notices import Notices, ShownNotice, notice_rows, standing

SIZES = [(120, 40), (80, 24), (60, 20)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.exhaustive
async def test_a_notice_covers_neither_the_newest_words_nor_the_menu(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("\n\n".join(f"Paragraph {n}." for n in range(30))))
        await one.ready()
        await one.say("Much")
        await one.sees("Paragraph 29.")
        await one.idle()
        for size in SIZES:
            await one.pilot.resize_terminal(*size)
            await one.until(lambda size=size: one.screen.size == size)
            await one.sees("Paragraph 29.")
            one.screen.bench.tell(
                "The disk is full.", level="error", advice="Make room.", topic="disk"
            )
            await one.until(
                lambda: all(words in one.text() for words in ("The disk is full.", "Paragraph 29."))
            )
            await one.pilot.press(*"/un")
            await one.until(
                lambda: all(words in one.text() for words in ("The disk is full.", "▌ /undo"))
            )
            await one.pilot.press("ctrl+u")
            one.screen.bench.chat_pane.dismiss("disk")
            await one.until(lambda: "The disk is full." not in one.text())
            # The rows are the chat's again, and so is the place of the menu.
            await one.pilot.press("/")
            await one.sees("  /timeline")
            await one.pilot.press("escape", "ctrl+u")
            await one.sees("Paragraph 29.")


@pytest.mark.exhaustive
async def test_each_change_of_the_height_is_told_once(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heights: list[int] = []

    def note(pane: ChatPane) -> None:
        heights.append(pane.notices.n_rows if pane.notices is not None else -1)

    monkeypatch.setattr(ChatPane, "on_notices_height_changed", note)
    async with ChatServer() as server, desk(home, server.base_url, size=(80, 24)) as one:
        await one.ready()
        bench = one.screen.bench
        for _ in range(2):  # at the second time it is as high as before it was gone
            bench.tell("The disk is full.", topic="disk")
            await one.until(lambda: heights[-1:] == [1])
            bench.chat_pane.dismiss("disk")
            await one.until(lambda: heights[-1:] == [0])
        bench.tell("The disk is full.", topic="disk", advice="Make room.")
        await one.until(lambda: heights[-1:] == [2])
        await one.pilot.pause()
    assert heights == [1, 0, 1, 0, 2]


@pytest.mark.exhaustive
async def test_clicks_select_the_notice_and_nothing_else(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, size=(80, 24)) as one:
        server.script(say("Words of the chat."))
        await one.ready()
        await one.say("Say")
        await one.sees("Words of the chat.")
        one.screen.bench.tell(
            "The disk is full.", level="warning", advice="Make room.", topic="disk"
        )
        await one.sees("Make room.")
        await one.pilot.click(Notices, offset=(8, 0), times=3)
        await one.until(lambda: one.screen.get_selected_text() == "The disk is full.\nMake room.")
        # Nor does a third click on another row of the frame take the chat along.
        await one.pilot.click(Header, offset=(4, 0), times=3)
        await one.until(lambda: "disk" not in (one.screen.get_selected_text() or ""))
        assert "Words of the chat." not in (one.screen.get_selected_text() or "")


@pytest.mark.parametrize("size", first_only(reversed(SIZES)))
async def test_several_notices_of_a_start_are_one_list(home: Path, size: tuple[int, int]) -> None:
    notices = tuple(
        f"keys.word{n} names no action; the rest of the file is used." for n in range(9)
    )
    async with (
        ChatServer() as server,
        desk(home, server.base_url, size=size, notices=notices) as one,
    ):
        shown = await one.sees("keys.word0")
        assert "keys.word4" in shown
        await one.sees("4 more. /notices lists all")
        await one.ready()
        await one.say("/notices")
        await one.until(lambda: isinstance(one.app.screen, TextScreen))
        listed = await one.sees("keys.word8")
        assert re.search(r"\d\d:\d\d:\d\d +keys\.word8", listed), "the newest first, with its time"
        await one.pilot.press("escape")
        await one.until(lambda: one.app.screen is one.screen)


@pytest.mark.exhaustive
async def test_what_was_told_can_be_read_again_twice(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        await one.say("/rename Pears")
        await one.sees("This session is now called Pears.")
        await one.say("/undo")
        await one.until(lambda: len(one.screen.bench.notices) == 2)
        one.screen.bench.chat_pane.dismiss()
        for _ in range(2):
            await one.say("/notices")
            await one.until(lambda: isinstance(one.app.screen, TextScreen))
            await one.sees("This session is now called Pears.")
            await one.pilot.press("escape")
            await one.until(lambda: one.app.screen is one.screen)


@pytest.mark.exhaustive
async def test_nothing_was_told(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        one.screen.bench.notices.clear()
        await one.say("/notices")
        await one.sees("There were no notices in this run.")


def test_a_passing_notice_gives_way_and_a_lasting_one_stays() -> None:
    lasting = ShownNotice("The disk is full", "error", topic="disk")
    passing = ShownNotice("Copied", until=16.0)
    assert standing((lasting, passing), "", 11.0) == (lasting,)
    assert standing((lasting, passing), "disk", 11.0) == (passing,)
    assert standing((lasting, passing), None, 11.0) == (lasting, passing)
    assert standing((lasting, passing), None, 20.0) == (lasting,)


def test_the_newest_notice_is_not_cut_in_a_narrow_terminal() -> None:
    text = "Commands can write to the work folder, temporary files and their own caches (12.3 kB); the network is off."
    newest = ShownNotice.of(
        text,
        advice="The sandbox uses namespaces and Landlock. /sandbox reset deletes these copies.",
    )
    older = ShownNotice.of("The session was renamed.")
    for board in ((newest,), (older, newest)):
        shown = [row.text for row in notice_rows(board, 60, UNICODE)]
        assert " ".join(" ".join(row.split()[1:]) for row in shown) == f"{text} {newest.advice}"
    # Two that have room for it are shown together, in no more rows than before.
    assert len(notice_rows((older, ShownNotice.of("It was undone.", advice="x")), 60, UNICODE)) == 3
    assert len(notice_rows((older, older, older, newest._replace(advice="")), 120, UNICODE)) == 3
