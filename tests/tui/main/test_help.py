"""The help: whatever it lists, only what is on view is painted."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.chat_server import ChatServer
from support.screens import desk
from textual.content import Content
from textual.selection import SELECT_ALL

from kimi_tui.tui.main.help import HelpText


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


async def test_only_the_rows_on_view_are_painted(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    painted: set[int] = set()
    render_line = HelpText.render_line

    def noted(self: HelpText, y: int) -> object:
        painted.add(y)
        return render_line(self, y)

    def whole(self: HelpText) -> Content:
        raise AssertionError("all rows are made into one text")

    monkeypatch.setattr(HelpText, "render_line", noted)
    monkeypatch.setattr(HelpText, "render", whole)
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        # A scroll that is animated passes by every row.
        one.app.animation_level = "none"
        await one.pilot.press("f1")
        await one.sees("Prompt")
        text = one.app.screen.query_one(HelpText)
        assert len(painted) < text.size.height / 2
        await one.pilot.press("end")
        await one.sees("/quit")
        assert len(painted) < text.size.height


async def test_all_of_it_can_be_selected(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        await one.pilot.press("f1")
        await one.sees("Esc close")
        # The screen behind it is painted anew, dimmed.
        shown = await one.sees("New session")
        text = one.app.screen.query_one(HelpText)
        one.app.screen.selections = {text: SELECT_ALL}
        selected = one.app.screen.get_selected_text()
        assert selected is not None
        assert "Prompt" in selected
        assert "/quit" in selected
        await one.pilot.pause()
        assert one.text() == shown
        one.app.screen.clear_selection()
        await one.pilot.pause()
        assert one.text() == shown


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
async def test_no_row_is_wider_than_the_frame(home: Path, size: tuple[int, int]) -> None:
    async with ChatServer() as server, desk(home, server.base_url, size=size) as one:
        await one.ready()
        await one.pilot.press("f1")
        await one.sees("Prompt")
        text = one.app.screen.query_one(HelpText)
        rows = text.wrapped(text.content_size.width)
        assert max(row.cell_length for row in rows) <= text.content_size.width
        assert len(rows) == text.size.height
