"""What stands in the chat before anything was said: a line with its fold, a question, three hints."""

from __future__ import annotations

from kimi_tui.tui.chat.lines import Line, Span
from kimi_tui.tui.glyphs import Glyphs

HINTS = (
    ("/", "lists the commands"),
    ("Esc", "stops the agent; what is complete is kept"),
    ("Ctrl+T", "goes back to any step; nothing is ever lost"),
)
TALL = 28


def empty_rows(width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """The rows of an empty chat, from the first row of the pane."""
    tall = height >= TALL
    left = 10 if tall else 6
    if width < 60:
        left = 4
    margin = Span(" " * left)
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
    rows += [Line((margin, Span("What shall we work on?", "strong")))]
    rows += [gap, gap] if height >= 16 else [gap]
    for key, meaning in HINTS:
        rows.append(Line((margin, Span(f"{key:<9}", "accent"), Span(meaning))))
        if tall:
            rows.append(gap)
    return rows[:height]
