"""The start page of an empty transcript: a drawing, a question, figures about the work folder, and some keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len

from kimi_tui.app_paths import short
from kimi_tui.tui.formatting import cut, path, wrap_words
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.rows import Line, Span

if TYPE_CHECKING:
    from kimi_tui.soul.system_prompt import FolderFacts


QUESTION = "What shall we work on?"
TALL = 28
KEY_CELLS = 9
RIGHT_MARGIN = 2


def empty_rows(
    width: int,
    height: int,
    glyphs: Glyphs,
    hints: Sequence[tuple[str, str]],
    facts: str = "",
    question: str = "",
) -> list[Line]:
    """Return the rows of an empty transcript, from the first row of the pane.

    Args:
        width: cells of the pane.
        height: rows of the pane.
        glyphs: the signs to draw with.
        hints: keys and what they do, which wraps at words.
        facts: facts about the work folder, as `facts_words` gives them; their row stays blank without any.
        question: the first line of text; empty for the usual one.
    """
    tall = height >= TALL
    margin = Span(" " * _left(width, height))
    rule = glyphs.rule * 3
    turn = Span(glyphs.turn, "accent")
    upper = (
        margin,
        turn,
        Span(rule, "line"),
        turn,
        Span(rule, "line"),
        Span(glyphs.dmail, "dmail"),
        Span(rule, "line"),
        turn,
    )
    corner = glyphs.corner_bottom
    lower = (
        margin,
        Span("    "),
        Span(corner + glyphs.rule, "line"),
        Span(glyphs.lost, "lost"),
        Span(glyphs.rule + glyphs.foot, "dmail"),
    )
    gap = Line()
    rows = [gap] * (7 if tall else max(0, min(3, height - 14)))
    rows += [Line(upper), Line(lower), gap]
    if height >= 16:
        rows += [gap]
    rows += [Line((margin, Span(question or QUESTION, "strong")))]
    rows += [Line((margin, Span(facts, "quiet")))]
    rows += [gap, gap] if height >= 16 else [gap]
    column = max([KEY_CELLS, *(cell_len(key) + 2 for key, _ in hints)])
    room = width - _left(width, height) - column - RIGHT_MARGIN
    for key, meaning in hints:
        head = key
        for line in wrap_words(meaning, room):
            rows.append(Line((margin, Span(f"{head:<{column}}", "accent"), Span(line))))
            head = ""
        if tall:
            rows.append(gap)
    return rows[:height]


def reading_rows(width: int, height: int, words: str, ellipsis: str) -> list[Line]:
    """Return the rows of a transcript while its session is read: one line of text, at the place of the start page's question.

    Args:
        width: cells of the pane.
        height: rows of the pane.
        words: the text on what is being read.
        ellipsis: the sign at the end of a text that is cut.
    """
    from kimi_tui.foreign_text import one_line

    room = width - _left(width, height) - RIGHT_MARGIN
    margin = Span(" " * _left(width, height))
    rows = [Line()] * (10 if height >= TALL else max(0, min(3, height - 2)))
    return [*rows, Line((margin, Span(cut(one_line(words), room, ellipsis), "quiet")))][:height]


def facts_words(facts: FolderFacts, folder: str, width: int, height: int, ellipsis: str) -> str:
    """Facts about the work folder as text for a pane of this size; empty if there is no room, or nothing is known.

    Args:
        facts: the facts.
        folder: the path of the folder.
        width: cells of the pane.
        height: rows of the pane.
        ellipsis: the sign at the end of a text that is cut.
    """
    room = width - _left(width, height) - RIGHT_MARGIN
    from kimi_tui.foreign_text import one_line

    *others, last = map(one_line, facts.notes or ("",))
    notes = f"The agent reads {last}." if last else ""
    if others:
        notes = f"The agent reads {', '.join(others)} and {last}."
    if facts.n_files is None:
        return cut(notes, room, ellipsis)
    number, noun = f"{facts.n_files:,}", "file" if facts.n_files == 1 else "files"
    if facts.is_more:
        number = f"More than {number}"
    elif not facts.n_files:
        number = "No"
    before, after = f"{number} {noun} in ", f". {notes}".rstrip()
    place = path(one_line(short(Path(folder))), max(1, room - cell_len(before + after)), ellipsis)
    return cut(f"{before}{place}{after}", room, ellipsis)


def _left(width: int, height: int) -> int:
    """Return the cells before the text."""
    if width < 60:
        return 4
    return 10 if height >= TALL else 6
