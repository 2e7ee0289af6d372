"""Header, footer and notices: what they say in their width, and the branch that the header names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from support.chat_server import ChatServer, say
from support.screens import desk

from kimi_tui.tui.compare.screen import HINTS as COMPARE_HINTS
from kimi_tui.tui.dialogs.text_screen import NoticesScreen
from kimi_tui.tui.frame import (
    Header,
    Heading,
    Notices,
    Shown,
    branch_of,
    fit_heading,
    fit_hints,
    model_name,
    with_notice,
    without,
)
from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.tui.main.hints import hints
from kimi_tui.tui.state import MainState

HEADING = Heading("Fix quoted fields", "~/work/importer", "main", "kimi-k2 thinking", "ask")


def test_the_header_loses_branch_then_model_then_folder() -> None:
    parts = ["branch", "model", "folder"]
    left: list[list[str]] = []
    for width in range(120, 20, -1):
        fitted = fit_heading(HEADING, width)
        shown = [part for part in parts if getattr(fitted, part)]
        if not left or left[-1] != shown:
            left.append(shown)
        assert fitted.mode == "asks first"
    assert left == [["branch", "model", "folder"], ["model", "folder"], ["folder"], []]


def test_a_long_folder_loses_its_middle_before_the_title_loses_anything() -> None:
    heading = Heading("Fix the quoted fields", "~/work/clients/some-company/importer", mode="ask")
    whole = fit_heading(heading, 76)
    assert (whole.title, whole.folder) == (heading.title, heading.folder)
    shorter = fit_heading(heading, 56)
    assert (shorter.title, shorter.folder) == (heading.title, "~/…/importer")
    shortest = fit_heading(heading, 46)
    assert (shortest.title, shortest.folder) == ("Fix the quoted fiel…", "…/importer")
    assert fit_heading(heading, 36) == ("Fix the quoted fields", "", "", "", "asks first", "")


@given(st.text(max_size=80), st.text(max_size=40), st.integers(30, 150))
def test_the_header_never_overflows(title: str, folder: str, width: int) -> None:
    fitted = fit_heading(Heading(title, folder, "main", "m", "all"), width)
    cells = cell_len(fitted.title) + sum(
        gap + cell_len(part)
        for gap, part in (
            (3, fitted.folder),
            (2, fitted.branch),
            (3, fitted.model),
            (3, fitted.mode),
        )
        if part
    )
    assert cells <= width or not fitted.folder


def test_the_branch_is_read_from_head_alone(tmp_path: Path) -> None:
    git = tmp_path / ".git"
    git.mkdir()
    (git / "HEAD").write_text("ref: refs/heads/feature/x\n")
    (tmp_path / "deep").mkdir()
    assert branch_of(tmp_path / "deep") == "feature/x"
    (git / "HEAD").write_text("a" * 40 + "\n")
    assert branch_of(tmp_path) == "aaaaaaa"
    (git / "HEAD").write_text("nonsense \x1b[2J")
    assert branch_of(tmp_path) == ""


def test_worktrees_and_odd_places_have_a_branch_or_none(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (real / "HEAD").write_text("ref: refs/heads/wt\n")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {real}\n")
    assert branch_of(tree) == "wt"
    (tree / ".git").write_text("gitdir: /dev/zero\n")
    assert branch_of(tree) == ""
    assert branch_of(Path("/")) == ""


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("kimi-k3", "kimi-k3"),
        ("moonshotai/kimi-k3", "moonshotai/kimi-k3"),
        ("/srv/models/qwen/qwen3-8b-q4.gguf", "qwen3-8b-q4.gguf"),
        ("./qwen3.gguf", "qwen3.gguf"),
        ("C:\\models\\qwen3.gguf", "qwen3.gguf"),
        ("accounts/fireworks/models/kimi-k3", "kimi-k3"),
        ("/", "/"),
        ("", ""),
    ],
)
def test_a_model_that_is_a_path_is_named_by_its_last_part(model: str, name: str) -> None:
    assert model_name(model) == name


@given(st.integers(0, 120))
def test_the_footer_shows_whole_pairs_only(width: int) -> None:
    pairs = hints("prompt", MainState(running=True), {}, UNICODE, 0.0)
    shown = fit_hints(pairs, width)
    assert [pair for pair in shown if pair[0] != "Esc"] == [
        pair for pair in pairs if pair[0] != "Esc"
    ][: sum(pair[0] != "Esc" for pair in shown)]
    assert cell_len("   ".join(f"{key} {meaning}" for key, meaning in shown)) <= width


@pytest.mark.parametrize("width", [9, 20, 56, 76, 116])
def test_the_footer_names_the_way_out_before_anything_else(width: int) -> None:
    pairs = hints("timeline", MainState(), {}, UNICODE, 0.0)
    assert ("Esc", "close") in fit_hints(pairs, width)
    assert fit_hints((("Enter", "send"),), 3) == ()


def test_the_footer_of_a_comparison_has_all_its_keys_in_eighty_cells() -> None:
    assert fit_hints(COMPARE_HINTS, 76) == COMPARE_HINTS
    assert fit_hints(COMPARE_HINTS, 56)[-1] == ("Esc", "back")


SIZES = [(120, 40), (80, 24), (60, 20)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("size", SIZES)
async def test_a_notice_covers_neither_the_newest_words_nor_the_menu(
    home: Path, size: tuple[int, int]
) -> None:
    async with ChatServer() as server, desk(home, server.base_url, size=size) as one:
        server.script(say("\n\n".join(f"Paragraph {n}." for n in range(30))))
        await one.ready()
        await one.say("Much")
        await one.sees("Paragraph 29.")
        await one.idle()
        one.screen.tell("The disk is full.", level="error", advice="Make room.", topic="disk")
        await one.until(
            lambda: all(words in one.text() for words in ("The disk is full.", "Paragraph 29."))
        )
        await one.pilot.press(*"/un")
        await one.until(
            lambda: all(words in one.text() for words in ("The disk is full.", "▌ /undo"))
        )
        await one.pilot.press("ctrl+u")
        one.screen.solved("disk")
        await one.until(lambda: "The disk is full." not in one.text())
        # The rows are the chat's again, and so is the place of the menu.
        await one.pilot.press("/")
        await one.sees("  /timeline")
        await one.pilot.press("escape", "ctrl+u")
        await one.sees("Paragraph 29.")


async def test_clicks_select_the_notice_and_nothing_else(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, size=(80, 24)) as one:
        server.script(say("Words of the chat."))
        await one.ready()
        await one.say("Say")
        await one.sees("Words of the chat.")
        one.screen.tell("The disk is full.", level="warning", advice="Make room.", topic="disk")
        await one.sees("Make room.")
        await one.pilot.click(Notices, offset=(8, 0), times=3)
        await one.until(lambda: one.screen.get_selected_text() == "The disk is full.\nMake room.")
        # Nor does a third click on another row of the frame take the chat along.
        await one.pilot.click(Header, offset=(4, 0), times=3)
        await one.until(lambda: "disk" not in (one.screen.get_selected_text() or ""))
        assert "Words of the chat." not in (one.screen.get_selected_text() or "")


@pytest.mark.parametrize("size", SIZES)
async def test_several_notices_of_a_start_are_one_list(home: Path, size: tuple[int, int]) -> None:
    notices = tuple(f"keys.word{n} names no action; the rest is used." for n in range(9))
    async with (
        ChatServer() as server,
        desk(home, server.base_url, size=size, notices=notices) as one,
    ):
        shown = await one.sees("keys.word0")
        assert "keys.word4" in shown
        await one.sees("4 more; /notices lists all of them")
        await one.ready()
        await one.say("/notices")
        await one.until(lambda: isinstance(one.app.screen, NoticesScreen))
        listed = await one.sees("keys.word8")
        assert re.search(r"\d\d:\d\d:\d\d +keys\.word8", listed), "the newest first, with its time"
        await one.pilot.press("escape")
        await one.until(lambda: one.app.screen is one.screen)


async def test_what_was_told_can_be_read_again_twice(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        await one.say("/rename Pears")
        await one.sees("This session is now called Pears.")
        await one.say("/undo")
        await one.until(lambda: len(one.screen.told) == 2)
        one.screen.chat_pane.clear_notices()
        for _ in range(2):
            await one.say("/notices")
            await one.until(lambda: isinstance(one.app.screen, NoticesScreen))
            await one.sees("This session is now called Pears.")
            await one.pilot.press("escape")
            await one.until(lambda: one.app.screen is one.screen)


async def test_nothing_was_told(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        one.screen.told.clear()
        await one.say("/notices")
        await one.sees("Nothing was told in this session.")


def test_a_passing_notice_gives_way_and_a_lasting_one_stays() -> None:
    lasting = Shown("error", "The disk is full", topic="disk")
    passing = Shown("info", "Copied", until=16.0)
    board = with_notice(with_notice((), lasting, 10.0), passing, 10.0)
    assert board == (lasting, passing)
    again = Shown("info", "Forked", until=17.0)
    assert with_notice(board, again, 11.0) == (lasting, again)
    assert without(board, "", 20.0) == (lasting,)
    assert without(board, "disk", 11.0) == (passing,)
    assert (
        with_notice(board, lasting._replace(text="Still full"), 11.0)[0].text != "The disk is full"
    )
