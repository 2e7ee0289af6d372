"""The text of selected rows as a person would have typed it: margins gone, wrapped rows joined again."""

from __future__ import annotations

from collections.abc import Iterable

from kimi_tui.tui.chat.lines import Line


def copied(rows: Iterable[tuple[Line, int, int | None]]) -> str:
    """The text of rows, each with the first and (exclusive) last character that is selected; None is the row's end."""
    out: list[str] = []
    joins = False
    for line, start, end in rows:
        text = line.text
        stop = len(text) if end is None else end
        part = text[max(start, _margin(text, line.margin)) : stop].rstrip()
        if joins and part:
            out[-1] = f"{out[-1]} {part}"
        else:
            out.append(part)
        joins = line.soft and end is None
    return "\n".join(out)


def _margin(text: str, margin: int) -> int:
    """The cells before the text, as far as they hold only blanks and an edge."""
    at = 0
    while at < min(margin, len(text)) and text[at] in " ▌[":
        at += 1
    return at
