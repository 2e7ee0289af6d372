"""The words of an empty chat fit their pane, and name only keys that are there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.cells import cell_len

from kimi_tui.soul.system_prompt import FolderFacts
from kimi_tui.tui.first_page import first_hints
from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.tui.main.demo_player import demo_hints
from kimi_tui.tui.transcript.start_page import empty_rows, facts_words


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (
            FolderFacts(184, notes=("AGENTS.md",)),
            "184 files in ~/work/importer. The agent reads AGENTS.md.",
        ),
        (FolderFacts(1), "1 file in ~/work/importer."),
        (FolderFacts(0), "No files in ~/work/importer."),
        (FolderFacts(50_000, is_more=True), "More than 50,000 files in ~/work/importer."),
        (FolderFacts(notes=("agents.md",)), "The agent reads agents.md."),
        (
            FolderFacts(notes=("../AGENTS.md", "CLAUDE.md")),
            "The agent reads ../AGENTS.md and CLAUDE.md.",
        ),
        (FolderFacts(), ""),
    ],
)
def test_what_is_known_of_the_folder(facts: FolderFacts, words: str) -> None:
    assert facts_words(facts, "/home/me/work/importer", 81, 37, "…") == words


def test_a_long_folder_loses_its_middle_and_the_figures_stay() -> None:
    facts = FolderFacts(1_204, notes=("AGENTS.md",))
    folder = "/home/me/work/clients/some-company/importer"
    assert facts_words(facts, folder, 60, 13, "…") == (
        "1,204 files in importer. The agent reads AGENTS.md."
    )
    for width in range(20, 90):
        words = facts_words(facts, folder, width, 13, "…")
        assert words.startswith("1,204 file")
        assert cell_len(words) <= width - 6


def test_the_name_of_a_folder_gives_the_terminal_no_orders() -> None:
    words = facts_words(FolderFacts(2), "/srv/\x1b[2J\nevil\x07", 81, 37, "…")
    assert words.isprintable()
    assert "evil" in words


def test_nothing_moves_when_the_facts_come() -> None:
    for width, height in ((81, 37), (80, 21), (60, 13)):
        before = empty_rows(width, height, UNICODE, first_hints({}, "ask"))
        after = empty_rows(width, height, UNICODE, first_hints({}, "ask"), "2 files in x.")
        moved = [row for row, other in zip(before, after, strict=True) if row != other]
        assert len(moved) == 1


def _texts(width: int, height: int, hints: Sequence[tuple[str, str]]) -> list[str]:
    rows = empty_rows(width, height, UNICODE, hints)
    return ["".join(span.text for span in row.spans) for row in rows]


@pytest.mark.parametrize("plays", [False, True])
@pytest.mark.parametrize("keys", [{}, {"timeline": "ctrl+shift+alt+f12"}])
def test_what_a_key_does_wraps_where_it_has_no_room(plays: bool, keys: dict[str, str]) -> None:
    hints = demo_hints(keys, plays=plays)
    for width in (120, 60, 40):
        rows = _texts(width, 30, hints)
        assert max(map(cell_len, rows)) <= width - 2
        shown = " ".join(" ".join(rows).split())
        assert all(f"{key} {meaning}" in shown for key, meaning in hints)


def test_the_hints_of_the_demo_take_a_row_each_in_the_smallest_usual_terminal() -> None:
    rows = _texts(60, 14, demo_hints({}, plays=False))
    assert rows[-2].endswith("Ctrl+T   opens the timeline, to rewind to any step")


def test_the_keys_are_those_of_the_configuration() -> None:
    rows = empty_rows(81, 37, UNICODE, first_hints({"timeline": "ctrl+shift+g"}, "ask"))
    text = "\n".join("".join(span.text for span in row.spans) for row in rows)
    assert "Ctrl+Shift+G  goes back to any step" in text
    assert "Ctrl+T" not in text
