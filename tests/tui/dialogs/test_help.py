"""The help: whatever it lists, only what is on view is painted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from support.cases import first_only
from support.chat_server import ChatServer
from support.screens import desk
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode
from textual.selection import SELECT_ALL

from kimi_tui.config.keymap import DEFAULT_KEYS
from kimi_tui.projection.session_state import SessionState
from kimi_tui.tui.approval.model import choices
from kimi_tui.tui.dialogs.help import PLACES, HelpScreen, sections
from kimi_tui.tui.dialogs.settings import SettingsScreen
from kimi_tui.tui.dialogs.text_screen import TextRows, TextScreen
from kimi_tui.tui.glyphs import ASCII, UNICODE
from kimi_tui.tui.key_names import key_name
from kimi_tui.tui.main.commands.table import COMMANDS
from kimi_tui.tui.main.hints import HELP_TITLES, hints
from kimi_tui.tui.main.screen import MainScreen
from kimi_tui.tui.model_setup.screens import KeyScreen, LocalScreen, ModelScreen
from kimi_tui.tui.prompt.area import PromptArea
from kimi_tui.tui.prompt.menu import PaletteScreen
from kimi_tui.tui.transcript.transcript import Transcript
from kimi_tui.wire.events import ApprovalRequest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


async def test_what_is_on_view_is_painted_and_all_of_it_can_be_selected(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    painted: set[int] = set()
    render_line = TextRows.render_line

    def noted(self: TextRows, y: int) -> object:
        painted.add(y)
        return render_line(self, y)

    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        # A scroll that is animated passes by every row.
        one.app.animation_level = "none"
        with monkeypatch.context() as watched:
            watched.setattr(TextRows, "render_line", noted)
            await one.pilot.press("f1")
            await one.sees("Type to search")
            text = one.app.screen.query_one(TextRows)
            assert len(painted) < text.size.height / 2
            await one.pilot.press("end")
            await one.sees("/quit")
            assert len(painted) < text.size.height
        await one.pilot.press("home")
        await one.sees("queue the message until")

        def shown() -> list[str]:
            # The screen behind it, where something may still change, is left out.
            left, top, width, height = one.app.screen.find_widget(text).visible_region
            rows = one.text().split("\n")[top : top + height]
            return [row[left : left + width] for row in rows]

        before = shown()
        assert any("Prompt" in row for row in before)
        one.app.screen.selections = {text: SELECT_ALL}
        selected = one.app.screen.get_selected_text()
        assert selected is not None
        assert "Prompt" in selected
        assert "/quit" in selected
        await one.pilot.pause()
        assert shown() == before
        one.app.screen.clear_selection()
        await one.pilot.pause()
        assert shown() == before
        # A second click selects a word, and a third one the row.
        lines = [line.text for line in text.lines(text.content_size.width)]
        y, row = next((y, row) for y, row in enumerate(lines) if "queue the message" in row)
        at = (row.index("message") + 1, y)
        await one.pilot.click(text, offset=at, times=2)
        assert one.app.screen.get_selected_text() == "message"
        await one.pilot.click(text, offset=at, times=3)
        assert one.app.screen.get_selected_text() == row.strip()


@pytest.mark.exhaustive
async def test_it_begins_with_the_place_that_has_the_keys(home: Path) -> None:
    def first_row() -> str:
        shown = one.app.screen
        if not isinstance(shown, HelpScreen):
            return ""
        text = shown.query_one(TextRows)
        at = shown.query_one(VerticalScroll).scroll_offset.y
        return text.lines(text.size.width)[at].text if text.size.width else ""

    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        for opens, screen, title in (
            (("tab",), MainScreen, "Chat"),
            (("escape", "ctrl+t"), MainScreen, "Timeline"),
            (("escape", *"/settings", "enter"), SettingsScreen, "Settings"),
        ):
            await one.pilot.press(*opens)
            await one.until(lambda screen=screen: isinstance(one.app.screen, screen))
            await one.pilot.press("f1")
            await one.until(lambda title=title: first_row() == title)
            await one.pilot.press("f1")
            await one.until(lambda screen=screen: isinstance(one.app.screen, screen))


@pytest.mark.exhaustive
async def test_typing_shows_only_the_rows_with_the_words(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        await one.pilot.press("f1")
        await one.sees("Type to search")
        await one.pilot.press(*"world switch")
        shown = await one.sees("/switch K[:N]")
        assert "switch to this world line" in shown
        assert "/rewind" not in shown
        await one.pilot.press(*"zzz")
        await one.sees("No key or command matches. Esc shows all.")
        await one.pilot.press("escape")
        await one.sees("change what runs without asking")
        # What has the name that was typed comes first.
        await one.pilot.press(*"rewind")
        shown = await one.sees("/rewind [N]")
        assert shown.index("/rewind [N]") < shown.index("rewind 5 min")
        await one.pilot.press("escape")
        await one.sees("change what runs without asking")
        assert isinstance(one.app.screen, HelpScreen)
        await one.pilot.press("escape")
        await one.until(lambda: one.app.screen is one.screen)


def test_the_places_that_it_can_begin_with_are_in_it() -> None:
    from kimi_tui.tui.compare.screen import CompareScreen
    from kimi_tui.tui.dialogs.text_screen import SummaryScreen
    from kimi_tui.tui.preview.screen import RewindScreen
    from kimi_tui.tui.replay.screen import ReplayScreen
    from kimi_tui.tui.sessions.screen import SessionsScreen

    titles = {title for title, _ in sections(COMMANDS, DEFAULT_KEYS, UNICODE)}
    over = (CompareScreen, KeyScreen, LocalScreen, ModelScreen, PaletteScreen, ReplayScreen)
    also = (RewindScreen, SessionsScreen, SettingsScreen, SummaryScreen, TextScreen)
    assert {one.HELP_TITLE for one in (*over, *also)} <= titles
    assert {*HELP_TITLES.values(), "Approvals"} <= titles


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", first_only([(60, 20), (80, 24), (120, 40)]))
async def test_no_row_is_wider_than_the_frame(home: Path, size: tuple[int, int]) -> None:
    async with ChatServer() as server, desk(home, server.base_url, size=size) as one:
        await one.ready()
        await one.pilot.press("f1")
        await one.sees("Type to search")
        text = one.app.screen.query_one(TextRows)
        rows = text.lines(text.content_size.width)
        assert max(row.width for row in rows) <= text.content_size.width
        assert len(rows) == text.size.height


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_the_help_names_every_command(glyphs: object) -> None:
    words = str(sections(COMMANDS, {}, glyphs))  # type: ignore[arg-type]
    assert all(f"/{command.name}" in words for command in COMMANDS)


def helped(keys: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the help's text on each key, by area."""
    return {title: dict(pairs) for title, pairs in sections(COMMANDS, keys, UNICODE)}


def test_the_help_lists_every_key_of_every_place() -> None:
    said = helped({})
    rows_of: dict[str, dict[str, str]] = {"summary": said["D-Mails and summaries"]}
    for title, area, _ in PLACES:
        rows_of[area] = rows_of.get(area, {}) | said[title]
    # Two places have keys of one area; each names only those that it has.
    assert "x" in said["Viewing a future"]
    assert "x" not in said["Viewing a sub-agent of a future"]
    listed = " ".join(said["Prompt"]) + " ".join(said["Approvals"])
    for name, keys in DEFAULT_KEYS.items():
        area, dot, _ = name.partition(".")
        first = key_name(keys)
        if dot:
            rows = rows_of[area]
            assert any(first in row.split(", ") for row in rows), name
            assert all(rows.values()), name
        elif name in COMMANDS:
            assert said["Commands"][COMMANDS[name].usage].endswith(f"  {first}"), name
        else:
            assert first in listed, name
    for bindings in (PromptArea.BINDINGS, Transcript.BINDINGS):
        assert all(isinstance(one, Binding) and one.description for one in bindings)
    assert "Alt+D" in listed
    assert "Ctrl+Y" in listed
    questions = [choices(request()) for request in (asks, asks_a_dmail)]
    fixed = (
        ("Models", keys_in(ModelScreen.BINDINGS)),
        ("Local servers", keys_in(LocalScreen.BINDINGS)),
    )
    for title, bound in (
        *fixed,
        ("Tasks, context, statistics, notices", keys_in(TextScreen.BINDINGS)),
    ):
        shown = ", ".join(said[title])
        assert all(key_name(key) in shown.split(", ") for key in bound), title
    keys_of_answers = {choice.key for answers in questions for choice in answers}
    assert keys_of_answers <= set(", ".join(said["Approvals"]).split(", "))


def keys_in(bindings: Sequence[BindingType]) -> list[str]:
    """Return every key of some bindings."""
    return [key for one in bindings if isinstance(one, Binding) for key in one.key.split(",")]


def asks() -> ApprovalRequest:
    """Return a question with every answer."""
    return ApprovalRequest("1", "k", "WriteFile", "?", "x", session_offer="Yes, always")


def asks_a_dmail() -> ApprovalRequest:
    """Return the action of a letter."""
    return ApprovalRequest("1", "k", "SendDMail", "?", "x", kind="dmail")


def test_names_of_the_help_are_those_of_actions() -> None:
    names = {name for _, _, rows in PLACES for names, _ in rows for name in names}
    assert names <= DEFAULT_KEYS.keys()


def test_help_and_footer_follow_the_configuration() -> None:
    keys = {"send": "ctrl+s", "escape": "f9", "chat.fold": "x", "timeline.undo": "z"}
    idle = dict(hints("prompt", SessionState(), keys, UNICODE, 0.0))
    assert (idle["Ctrl+S"], idle["Enter"]) == ("send", "new line")
    running = dict(hints("prompt", SessionState(running=True), keys, UNICODE, 0.0))
    assert (running["Ctrl+S"], running["F9"]) == ("steer", "stop")
    assert dict(hints("chat", SessionState(), keys, UNICODE, 0.0))["x"] == "unfold"
    assert dict(hints("timeline", SessionState(), keys, UNICODE, 0.0))["z"] == "undo"
    said = helped(keys)
    assert said["Prompt"]["Ctrl+S"].startswith("send")
    assert not said["Prompt"].get("Enter", "").startswith("send")
    assert "x" in said["Chat"]
    assert "z, U" in said["Timeline"]
    # A key with another action breaks no row.
    taken = dict(hints("prompt", SessionState(), {"send": "f4", "help": "enter"}, UNICODE, 0.0))
    assert taken["Ctrl+J"] == "new line"
    assert dict(hints("prompt", SessionState(), {}, UNICODE, 0.0))["Enter"] == "send"


@pytest.mark.exhaustive
async def test_the_help_comes_with_its_own_styles_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        await one.idle()
        styled: list[DOMNode] = []
        update_nodes = Stylesheet.update_nodes

        def restyled(self: Stylesheet, nodes: Iterable[DOMNode], animate: bool = False) -> None:
            nodes = list(nodes)
            styled.extend(nodes)
            update_nodes(self, nodes, animate)

        def reparse(self: Stylesheet) -> None:
            raise AssertionError("all style sheets are parsed anew")

        monkeypatch.setattr(Stylesheet, "update_nodes", restyled)
        monkeypatch.setattr(Stylesheet, "reparse", reparse)
        await one.pilot.press("f1")
        await one.until(lambda: isinstance(one.app.screen, HelpScreen))
        await one.pilot.pause()
        below = one.screen
        assert below is not one.app.screen
        assert not set(styled) & set(below.walk_children(with_self=True))
        assert one.app.screen.query_one(VerticalScroll).styles.background.a
