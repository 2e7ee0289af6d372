"""The rows of an approval as styled text: question, detail, answers. Pure functions of what is to be shown."""

from __future__ import annotations

from rich.cells import cell_len
from textual.content import Content

from kimi_tui.tui.approval.model import Choice, DetailRow, counts, visible, wrapped
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.wire.events import ApprovalRequest

EDGE = 1
"""The accent down the side stands before every row."""
SIDES = 6
"""Cells of a row that no text of a question or a place takes."""


def question_rows(
    request: ApprovalRequest, waiting: int, width: int, glyphs: Glyphs
) -> list[Content]:
    """What is asked, with what it changes in figures and how many more wait at the right."""
    side = _beside(request, waiting, glyphs)
    sign = f"{glyphs.dmail} " if request.kind == "dmail" else ""
    room = max(10, width - SIDES - side.cell_length - 2 - cell_len(sign))
    pieces = wrapped(visible(request.question).replace("\n", " "), room)
    # A diff does not say where it goes; the rest of the question does, and is never cut.
    target = visible(request.detail).replace("\n", " ") if counts(request) is not None else ""
    fits = len(pieces) == 1 and cell_len(pieces[0]) + 2 + cell_len(target) <= room
    named = ("  ", (target, "$ink")) if target and fits else ()
    first = Content.assemble("   ", (sign, "$kind-dmail"), (pieces[0], "bold $ink-strong"), *named)
    gap = " " * max(1, width - EDGE - 2 - first.cell_length - side.cell_length)
    rows = [Content.assemble(first, gap, side)]
    rows += [
        Content.assemble("   ", " " * cell_len(sign), (piece, "bold $ink-strong"))
        for piece in pieces[1:]
    ]
    if target and not fits:
        rows += [
            Content.assemble("   ", (piece, "$ink")) for piece in wrapped(target, width - SIDES)
        ]
    return rows


def _beside(request: ApprovalRequest, waiting: int, glyphs: Glyphs) -> Content:
    parts: list[tuple[str, str] | str] = []
    changed = counts(request)
    if changed is not None:
        added, removed = changed
        parts += [(f"+{added}", "$ok"), " ", (f"{glyphs.minus}{removed}", "$kind-error")]
    if waiting > 1:
        parts += ["   " if parts else "", (f"1 of {waiting}", "$ink-quiet")]
    return Content.assemble(*parts)


def detail_row(row: DetailRow, width: int) -> Content:
    """A row of what will happen, on its own ground."""
    room = width - EDGE - 3 - 2
    # The numbers of a diff stand where they stand in the chat, one cell before what else is shown here.
    text = f" {row.margin}{row.text}" if row.margin else f"  {row.text}"
    padded = text + " " * max(0, room - cell_len(text))
    if row.kind == "add":
        style = "$diff-add-fg on $diff-add-bg"
    elif row.kind == "delete":
        style = "$diff-del-fg on $diff-del-bg"
    elif row.kind == "path":
        style = "bold $ink-strong"
    else:
        style = "$ink on $page"
    return Content.assemble("   ", (padded, style))


def place_rows(request: ApprovalRequest, width: int) -> list[Content]:
    """Where it runs, and what that means."""
    if not request.where:
        return []
    pieces = wrapped(visible(request.where).replace("\n", " "), max(10, width - SIDES))
    return [Content.styled(f"   {piece}", "$ink-quiet") for piece in pieces]


def answer_rows(choice: Choice, width: int, *, chosen: bool, armed: bool) -> list[Content]:
    """An answer with its key, in as many rows as its words need.

    Args:
        choice: the answer.
        width: of the panel.
        chosen: the arrows stand on it.
        armed: a key would count now.
    """
    back = " on $select" if chosen else ""
    key = f"bold $accent{back}" if armed else f"$ink-quiet{back}"
    words = f"bold $ink-strong{back}" if chosen else f"$ink{back}"
    rows: list[Content] = []
    for number, piece in enumerate(wrapped(choice.words, max(10, width - 9))):
        letter = choice.key if not number else " "
        row = Content.assemble((f"  {letter}  ", key), (piece, words))
        fill = " " * max(0, width - EDGE - 1 - 2 - row.cell_length)
        rows.append(Content.assemble(" ", row, (fill, f"$ink{back}")))
    return rows


def key_hints(
    answers: tuple[Choice, ...],
    glyphs: Glyphs,
    *,
    can_change: bool,
    mode_key: str,
    reads_on: bool,
    tab_words: str,
) -> tuple[tuple[str, str], ...]:
    """What the footer says while answers are shown.

    Args:
        answers: those.
        glyphs: the signs to draw with.
        can_change: it is a command that can be rewritten.
        mode_key: changes what is asked at all; empty for none.
        reads_on: there are more rows than are shown.
        tab_words: what Tab does; empty for nothing.
    """
    return (
        ("/".join(choice.key for choice in answers), "answer"),
        (f"{glyphs.up}{glyphs.down} Enter", "choose"),
        *(((f"PageDown{glyphs.down}", "read on"),) if reads_on else ()),
        *((("Tab", tab_words),) if tab_words else ()),
        *((("Ctrl+G", "edit the command"),) if can_change else ()),
        *(((mode_key, "mode"),) if mode_key else ()),
        ("Esc", "stop the turn"),
    )


def way_row(key: str, words: str) -> Content:
    """What a key does while something is written; a click does it too."""
    return Content.assemble("   ", (f"{key:<7}", "bold $accent"), (words, "$ink"))
