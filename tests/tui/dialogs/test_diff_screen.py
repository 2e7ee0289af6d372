"""Changes on a screen: rows that are made when they are drawn, and what Enter does."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.chat_server import ChatServer, call, say
from support.screens import desk

from kimi_tui.tui.dialogs.diff_screen import DiffLines, DiffScreen, heading
from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.tui.rows import Line
from kimi_tui.workspace.diff import Changes, FileDifference, SideChange, diff_lines

CHANGES = Changes(
    (
        FileDifference(
            "a\x1b[31m.py", SideChange("changed", "others", diff_lines("1\n2\n", "1\n3\n"))
        ),
        FileDifference("b.bin", SideChange("new")),
        FileDifference(".env", SideChange("changed"), is_secret=True),
        FileDifference("empty", SideChange("new", diff=diff_lines("", ""))),
        FileDifference("gone", SideChange("gone", diff=diff_lines("x\n", ""))),
    ),
    remarks=("Not everything was kept.",),
)


def rows(width: int = 60, *, authors: bool = True) -> list[str]:
    lines = DiffLines(heading("since #1", CHANGES), CHANGES, width, UNICODE, authors=authors)
    assert len(lines) == len(list(lines))
    assert lines[-1].text == list(lines)[-1].text
    return [line.text.rstrip() for line in lines]


def test_each_file_has_its_name_and_its_lines() -> None:
    made = rows()
    assert made == [
        "5 files changed since #1",
        "Not everything was kept.",
        "",
        "a<U+001B>[31m.py  changed outside kimi-tui  +1 −1",
        "    1   1",
        "    2 − 2",
        "    2 + 3",
        "",
        "b.bin  new",
        "not text, or too large to show",
        "",
        ".env",
        "its contents are not shown, because it may contain secrets",
        "",
        "empty  new",
        "no line changes",
        "",
        "gone  deleted  −1",
        "    1 − x",
    ]
    assert "changed outside kimi-tui" not in "\n".join(rows(authors=False))


def test_rows_of_large_changes_are_not_made_before_they_are_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []
    row = DiffLines._row  # pyright: ignore[reportPrivateUsage]

    def counted(lines: DiffLines, one: FileDifference, at: int) -> Line:
        made.append(at)
        return row(lines, one, at)

    monkeypatch.setattr(DiffLines, "_row", counted)
    diff = diff_lines("", "x\n" * 4_000)
    many = Changes(tuple(FileDifference(f"f{n}", SideChange("new", diff=diff)) for n in range(50)))
    lines = DiffLines("x", many, 80, UNICODE, authors=False)
    assert len(lines) == 1 + 50 * 4_002
    assert lines[200_100].text.rstrip()[-1] == "x"
    assert made == [4_001]


async def test_changes_are_shown_and_reviewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    async with ChatServer() as server, desk(tmp_path, server.base_url, mode="edits") as one:
        await one.ready()
        await one.say("/diff x")
        await one.sees('"x" is not a range of checkpoints.')
        await one.say("/review nothing")
        await one.sees("not in a git repository")
        server.script(call("WriteFile", {"path": "a", "content": "one\ntwo\n"}), say("Wrote."))
        await one.say("Go")
        await one.sees("Wrote.")
        await one.say("/diff")
        await one.sees("1 file changed since the session began")
        await one.pilot.press("n", "p", "escape")
        await one.until(lambda: one.screen.is_current)
        await one.idle()
        server.script(say("All is well."))
        await one.say("/review turn")
        await one.sees("Enter review these changes")
        shown = one.app.screen
        assert isinstance(shown, DiffScreen)
        await one.until(lambda: shown.seen.accepts(time.monotonic()))
        await one.pilot.press("enter")
        await one.sees("All is well.")
        await one.until(lambda: one.screen.is_current)
        await one.idle()
        await one.say("/commit")
        await one.sees("not in a git repository")
