"""The first page: what stands on the screen before anything of a session is read, as rows of spans.

The instant prompt (`kimi_tui.instant`) paints these rows before Textual is imported; the widgets of the app are made of the same
words and the same functions. Where the style sheets place them is repeated here, and a test compares both, cell by cell.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import get_character_cell_size

from kimi_tui.agent_parts import PARTS, PartName, unasked_words
from kimi_tui.tui.formatting import wrap_words
from kimi_tui.tui.frame_rows import (
    SHORT_BELOW,
    HeaderText,
    Hint,
    heading_of,
    heading_spans,
    hint_spans,
    timeline_width,
)
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.key_names import key_of, line_break_key
from kimi_tui.tui.rows import Line, Span, cells, fitted
from kimi_tui.tui.transcript.start_page import empty_rows, reading_rows

if TYPE_CHECKING:
    from kimi_tui.agent_parts import Mode
    from kimi_tui.launch import Launch

IDLE_WORDS = "Ask for a change, or / for commands"
READING = "Reading the session"
OPENING = "Opening the session"
MARGIN = 2
"""Cells at the left and right of header, prompt and footer."""
MOST_PROMPT_ROWS = 8
_BESIDE = 3
"""Cells of the prompt's row that its field does not have: the sign, the space behind it, and a free one at the end."""
_CHUNK = re.compile(r"\S+\s*|\s+")


# --- its words


def first_hints(
    keys: Mapping[str, str],
    mode: Mode,
    parts: Collection[PartName] = PARTS,
    *,
    sandbox: bool = True,
) -> tuple[Hint, ...]:
    """Return the hints in an empty chat; the first says what the agent may do without asking, and how to change that, if it has
    modes.

    Args:
        keys: the configured keys, by action.
        mode: the approval mode.
        parts: the parts of the agent.
        sandbox: whether there is a sandbox for commands.
    """
    timeline = key_of("timeline", keys) if "travel" in parts else ""
    key = key_of("mode", keys)
    change = f"{key or '/mode'} changes the mode."
    has_modes = "session" in parts
    words = f"{unasked_words(mode, sandbox=sandbox)} {change}"
    if "model" not in parts:
        words = "changes the mode: what the agent does without asking"
    return known(
        ((key or "/mode") if has_modes else "", words),
        ("/", "lists the commands"),
        (key_of("escape", keys), "stops the agent and keeps its steps"),
        (timeline, "goes back to any step. Nothing is lost"),
    )


def parts_at_start(launch: Launch) -> Collection[PartName]:
    """Return the parts that the agent has, as far as the launch says: an external one has no model of ours."""
    return PARTS - {"model"} if launch.external_agent else PARTS


def idle_hints(keys: Mapping[str, str], *, extended: bool, empty: bool = True) -> tuple[Hint, ...]:
    """Return the keys of the prompt in a session without messages.

    Args:
        keys: the configured keys, by action.
        extended: whether the terminal sends Shift+Enter as a key of its own.
        empty: whether the prompt is empty, so that `?` shows the keys, which is more useful there than a new line.
    """
    line_break = (line_break_key(keys, extended=extended), "new line")
    return known(
        (key_of("send", keys), "send"),
        ("?", "keys") if empty else line_break,
        (key_of("timeline", keys), "timeline"),
        (key_of("commands", keys), "commands"),
        line_break if empty else ("", ""),
        (key_of("help", keys), "help"),
    )


def known(*pairs: Hint) -> tuple[Hint, ...]:
    """Return the hints whose action has a key."""
    return tuple(pair for pair in pairs if pair[0])


# --- its rows


class FirstPage(NamedTuple):
    """The first page of a start, as far as it is known before anything of the session is read.

    `hints` are those of the start page; empty for a page without. `reading` is the text in the chat of a session that is being
    read; empty for a new session. `footer` are the keys in the last row, `typed_footer` those while there is text in the prompt.
    `has_status` says that the row above the footer belongs to the status line.
    """

    heading: HeaderText
    hints: tuple[Hint, ...] = ()
    reading: str = ""
    footer: tuple[Hint, ...] = ()
    typed_footer: tuple[Hint, ...] = ()
    has_status: bool = False


def first_page(launch: Launch) -> FirstPage:
    """Return the first page of the main screen; without what only the screen itself knows."""
    keys = launch.config.keys
    reads = launch.resume is not None
    # With vim keys the row begins with the mode of the prompt.
    has_footer = not launch.config.prompt.vim
    return FirstPage(
        heading_of(launch)._replace(title=OPENING if reads else ""),
        # The demo has hints of its own.
        () if reads or launch.demo else first_hints(keys, launch.mode, parts_at_start(launch)),
        READING if reads else "",
        idle_hints(keys, extended=False) if has_footer else (),
        idle_hints(keys, extended=False, empty=False) if has_footer else (),
        any(launch.config.statusline),
    )


def page_rows(
    page: FirstPage, width: int, height: int, glyphs: Glyphs, prompt: Sequence[Line]
) -> list[Line]:
    """Return the rows of the whole screen, from the top.

    Args:
        page: the content.
        width: cells of the screen.
        height: rows of the screen.
        glyphs: the set of signs in use.
        prompt: the rows of the prompt, as `prompt_rows` returns them.
    """
    margin = Span(" " * MARGIN)
    inner = max(0, width - 2 * MARGIN)
    pad = [Line((), fill="raised")] * (height >= SHORT_BELOW)
    last = [*[Line()] * page.has_status, Line((margin, *hint_spans(page.footer, inner)))]
    below = [Line(()), *pad, *prompt, *pad, *last]
    top = Line((margin, *heading_spans(page.heading, inner, glyphs)))
    body = _body_rows(page, width, max(0, height - 1 - len(below)), glyphs)
    return [top, *body, *below][:height]


def _body_rows(page: FirstPage, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Return the rows of the chat, with the line at its right beside which the timeline will stand."""
    beside = timeline_width(width)
    chat = width - beside - 1 if beside else width
    room = max(0, height - 2)
    rows: list[Line] = []
    if page.reading:
        rows = reading_rows(chat, room, page.reading, glyphs.cut)
    elif page.hints:
        rows = empty_rows(chat, room, glyphs, page.hints)
    rows = [Line(), *rows][:height]
    rows += [Line()] * (height - len(rows))
    if not beside:
        return rows
    divider = Span(glyphs.step, "divider")
    return [
        Line((*fitted(row.spans, chat), *([divider] if at else [])), row.fill)
        for at, row in enumerate(rows)
    ]


def prompt_rows(text: str, width: int, glyphs: Glyphs) -> list[Line]:
    """Return the rows of the prompt with a text in it, and the cursor at its end; the last ones of a long text.

    Args:
        text: the text, which may have several lines.
        width: cells of the screen.
        glyphs: the set of signs in use.
    """
    sign = Span(glyphs.prompt, "accent")
    first, rest = (Span(" " * MARGIN), sign, Span(" ")), (Span(" " * (MARGIN + 2)),)
    room = width - 2 * MARGIN - _BESIDE
    if not text:
        words = next(iter(wrap_words(IDLE_WORDS, room)), "") if room > 0 else ""
        hint = fitted([Span(words[:1] or " ", "cursor"), Span(words[1:], "quiet")], max(1, room))
        return [Line((*first, *hint), fill="raised")]
    shown = [row for line in text.split("\n") for row in wrapped(line, max(1, room - 1))]
    rows = [
        Line((*(rest if at else first), Span(row)), fill="raised") for at, row in enumerate(shown)
    ]
    last = rows[-1]
    rows[-1] = last._replace(spans=(*last.spans, Span(" ", "cursor")))
    return rows[-MOST_PROMPT_ROWS:]


def wrapped(line: str, width: int) -> list[str]:
    """Return a line of the prompt in rows of at most `width` cells, as the field of the app wraps it: after spaces."""
    rows, row, used = list[str](), "", 0
    for found in _CHUNK.finditer(line):
        chunk = found[0]
        size = cells(chunk)
        if used + size <= width:
            row, used = row + chunk, used + size
            continue
        if row:
            rows.append(row)
        row, used = chunk, size
        if size <= width:
            continue
        # The chunk is wider than a row and continues on the next ones.
        row, used = "", 0
        for letter in chunk:
            size = get_character_cell_size(letter)
            if used + size > width:
                rows.append(row)
                row, used = "", 0
            row, used = row + letter, used + size
    return [*rows, row]
