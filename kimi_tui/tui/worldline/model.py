"""What is said about a world line that is read, and which of its messages a block of the chat shows. Knows no widget."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.cells import cell_len

from kimi_tui.tui import numbers
from kimi_tui.tui.chat.blocks import AgentBlock, Block, DMailBlock, ToolBlock, UserBlock
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.main.footer import GAP, fit
from kimi_tui.tui.spans import Span
from kimi_tui.tui.timeline.facts import left_by

if TYPE_CHECKING:
    from kimi_tui.soul.travel_protocol import LineMessage, WorldLineInfo

KEYS = (
    ("j", "jump back to here"),
    ("c", "compare"),
    ("s", "send to now"),
    ("Esc", "back to now"),
)
FOOTER = (
    ("j", "jump back"),
    ("c", "compare"),
    ("s", "send to now"),
    ("Ctrl+F", "search"),
    ("Esc", "back"),
    ("F1", "help"),
    ("Tab", "next message"),
    ("[ ]", "turn"),
)


def left_words(info: WorldLineInfo, now: datetime) -> str:
    """`left by your rewind to #4, 2 h ago`."""
    why = left_by(info.reason)
    where = ""
    if info.reason in ("rewind", "dmail") and info.checkpoint_id >= 0:
        where = f" to #{info.checkpoint_id}"
    ago = _ago(info.at, now)
    return f"left by {why}{where}{', ' if ago else ''}{ago}"


def left_when(info: WorldLineInfo, now: datetime) -> str:
    """`left 2 h ago`; empty where that is not known."""
    ago = _ago(info.at, now)
    return f"left {'just now' if ago == 'now' else ago}" if ago else ""


def _ago(at: str, now: datetime) -> str:
    try:
        then = datetime.fromisoformat(at)
    except ValueError:
        return ""
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    age = numbers.age(then.astimezone(), now.astimezone())
    return f"{age} ago" if age[0].isdigit() and "-" not in age else age


def banner(
    info: WorldLineInfo, width: int, glyphs: Glyphs, now: datetime
) -> tuple[list[Span], list[Span]]:
    """The two rows over a world line: its name and why it was left, and the keys."""
    edge: Span = (f"{glyphs.edge} ", "lost")
    left: list[Span] = [
        edge,
        (f"{glyphs.lost} ", "lost"),
        (f"World line {info.n}", "strong"),
        ("   read only", "quiet"),
    ]
    used = sum(cell_len(text) for text, _ in left)
    why = left_words(info, now)
    if width - used - 2 - cell_len(why) >= 3:
        left += [(" " * (width - used - 2 - cell_len(why)), "quiet"), (why, "quiet")]
    keys: list[Span] = [edge, ("  ", "quiet")]
    for place, (key, meaning) in enumerate(fit(KEYS, width - 6)):
        keys += [(" " * GAP if place else "", "quiet"), (key, "ink"), (f" {meaning}", "quiet")]
    return left, keys


def fitted(spans: Sequence[Span], width: int) -> list[Span]:
    """A row's spans without those at its end for which there is no room in front of the margin."""
    shown: list[Span] = []
    used = 0
    for text, colour in spans:
        used += cell_len(text)
        if used > width - 2:
            break
        shown.append((text, colour))
    return shown


def message_of(
    block: Block | None, blocks: Sequence[Block], messages: Sequence[LineMessage]
) -> LineMessage | None:
    """The stored message that a block shows; None where it shows none of its own."""
    if block is None:
        return None
    kind = _KINDS.get(type(block))
    here = [one for one in messages if one.uid == block.uid and one.kind == kind]
    if kind is None or not here:
        return None
    # Several results of one step stand in the order of their cards.
    alike = [other for other in blocks if type(other) is type(block) and other.uid == block.uid]
    place = next((i for i, other in enumerate(alike) if other is block), 0)
    return here[min(place, len(here) - 1)]


_KINDS: dict[type[Block], str] = {
    UserBlock: "user",
    AgentBlock: "agent",
    ToolBlock: "tool",
    DMailBlock: "dmail",
}


def newest_words(messages: Sequence[LineMessage]) -> LineMessage | None:
    """What is sent where nothing is chosen: the newest words of the agent, else the newest message."""
    said = [one for one in messages if one.kind == "agent" and one.text.strip()]
    return said[-1] if said else messages[-1] if messages else None
