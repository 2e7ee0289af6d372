"""The text of selected rows as a person would have typed it: margins gone, wrapped rows joined again."""

from __future__ import annotations

from collections.abc import Iterable

from kimi_tui.tui.chat.lines import Line


def copied(rows: Iterable[tuple[Line, int, int | None]]) -> str:
    """The text of rows, each with the first and (exclusive) last character that is selected; None is the row's end."""
    out: list[str] = []
    joint: str | None = None
    for line, start, end in rows:
        text = line.text
        whole = line.trimmed(text if end is None else text[:end])
        part = whole[max(start, margin_of(text, line.margin)) :]
        if joint is not None and part:
            out[-1] = f"{out[-1]}{joint}{part}"
        else:
            out.append(part)
        joint = (" " if line.soft else "") if line.goes_on and end is None else None
    return "\n".join(out)


def margin_of(text: str, margin: int) -> int:
    """The cells before the text, as far as they hold only blanks and an edge."""
    at = 0
    while at < min(margin, len(text)) and text[at] in " ▌[":
        at += 1
    return at
