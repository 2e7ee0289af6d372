"""The signs of the interface, in two sets of one-cell characters: Unicode, and ASCII for terminals that need it."""

from __future__ import annotations

from typing import NamedTuple


class Glyphs(NamedTuple):
    """One sign per meaning; every one is exactly one cell wide."""

    turn: str = "●"
    """A user's turn; in the accent colour: now."""
    step: str = "│"
    """A step; a line going on; the divider."""
    dmail: str = "◆"
    compaction: str = "≡"
    lost: str = "◊"
    """The tip of a world line left behind."""
    failed: str = "×"
    stopped: str = "■"
    done: str = "✓"
    running: str = "•"
    pending: str = "·"
    caution: str = "!"
    prompt: str = "›"
    edge: str = "▌"
    """Focus, selection, the edge of a message, the text cursor."""
    fork: str = "├"
    rule: str = "─"
    arc: str = "╮"
    foot: str = "╯"
    corner_bottom: str = "╰"
    before: str = "┆"
    """The line before a compaction, no longer sent."""
    used: str = "━"
    freed: str = "╌"
    used_system: str = "┅"
    """Gauge without colour: the system prompt."""
    used_tools: str = "═"
    """Gauge without colour: tool results."""
    levels: str = "▁▂▃▄▅▆▇█"
    scrollbar: str = "▐"
    playhead: str = "▲"
    cut: str = "…"
    minus: str = "−"
    files: str = "±"
    to: str = "→"
    back: str = "←"
    up: str = "↑"
    down: str = "↓"
    bookmark: str = "*"
    pinned: str = "‡"


UNICODE = Glyphs()

ASCII = Glyphs(
    turn="*",
    step="|",
    dmail="@",
    compaction="=",
    lost="o",
    failed="x",
    stopped="#",
    done="v",
    running=".",
    pending="-",
    caution="!",
    prompt=">",
    edge="[",
    fork="+",
    rule="-",
    arc="+",
    foot="+",
    corner_bottom="+",
    before=":",
    used="#",
    freed="-",
    used_system="%",
    used_tools="=",
    levels="___---=#",
    scrollbar="|",
    playhead="^",
    cut="~",
    minus="-",
    files="M",
    to=">",
    back="<",
    up="^",
    down="v",
    bookmark="*",
    pinned="&",
)


def glyphs_of(app: object) -> Glyphs:
    """The set that an app uses; the Unicode one where it does not say."""
    chosen = getattr(app, "glyphs", UNICODE)
    return chosen if isinstance(chosen, Glyphs) else UNICODE
