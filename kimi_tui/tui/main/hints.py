"""What the footer says, by where the person is and what the agent does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.main.commands import key_of
from kimi_tui.tui.main.footer import Hint
from kimi_tui.tui.main.state import MainState

Place = Literal["prompt", "timeline", "filter", "found", "line", "search", "matches"]


def hints(
    place: Place, state: MainState, keys: Mapping[str, str], glyphs: Glyphs, now: float
) -> tuple[Hint, ...]:
    """The keys of the focused area, most used first."""
    if place == "timeline":
        return (
            (f"{glyphs.up}{glyphs.down}", "move"),
            ("Enter", "preview"),
            ("/", "filter"),
            ("Space", "unfold"),
            ("[ ]", "turn"),
            ("Esc", "close"),
            ("w", "read"),
            ("b", "bookmark"),
            ("u", "undo"),
            ("?", "keys"),
        )
    if place == "filter":
        return (("Enter", "go there"), ("Esc", "all steps"), ("Ctrl+U", "clear"))
    if place == "found":
        return (
            (f"{glyphs.up}{glyphs.down}", "move"),
            ("Enter", "preview"),
            ("/", "change the filter"),
            ("Esc", "all steps"),
            ("b", "bookmark"),
            ("?", "keys"),
        )
    if place == "line":
        from kimi_tui.tui.worldline.model import FOOTER

        return FOOTER
    if place in ("search", "matches"):
        from kimi_tui.tui.chat.search_bar import HINTS, HINTS_IN_TEXT

        return HINTS if place == "search" else HINTS_IN_TEXT
    timeline = (key_of("timeline", keys), "timeline")
    compact = (key_of("compact", keys), "compact")
    more: tuple[Hint, ...] = (
        (key_of("commands", keys), "commands"),
        (key_of("help", keys), "help"),
    )
    if state.running:
        first: tuple[Hint, ...] = (("Enter", "steer"), ("Esc", "stop"))
        if state.retry_until > now:
            first = (("Enter", "steer, or try now"), ("Esc", "stop"))
        return _known(*first, timeline, compact, *more)
    if state.compacting:
        return _known(("Esc", "stop"), timeline, *more)
    first = (("Enter", "send"), ("Shift+Enter", "new line"))
    if state.can_resume:
        first = (("Enter", "send, or go on"), ("Shift+Enter", "new line"))
    if not state.has_messages:
        return _known(*first, timeline, *more)
    return _known(*first, timeline, compact, *more)


def first_hints(keys: Mapping[str, str]) -> tuple[Hint, ...]:
    """What stands in the chat before anything was said."""
    return _known(
        ("/", "lists the commands"),
        ("Esc", "stops the agent; what is complete is kept"),
        (key_of("timeline", keys), "goes back to any step; nothing is ever lost"),
    )


def _known(*pairs: Hint) -> tuple[Hint, ...]:
    """Without those that have no key."""
    return tuple(pair for pair in pairs if pair[0])
