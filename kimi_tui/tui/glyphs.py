"""The signs of the interface, in two sets of one-cell characters: Unicode, and ASCII for terminals that need it."""

from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from textual.message_pump import MessagePump

_app = attrgetter("app")


class Glyphs(NamedTuple):
    """One sign per meaning; every one is exactly one cell wide."""

    turn: str = "●"
    """A turn of the user; in the accent colour, the present."""
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


_IN_SENTENCES = ("up", "down", "back", "to", "cut", "minus", "pending")
_QUOTES = {ord("“"): '"', ord("”"): '"'}


def drawn(text: str, glyphs: Glyphs) -> str:
    """Return a sentence, the name of a key or the usage of a command, with arrows, ellipsis and other signs of ours replaced by those of
    a set of signs.
    """
    if glyphs is UNICODE or text.isascii():
        return text
    signs = {ord(getattr(UNICODE, sign)): getattr(glyphs, sign) for sign in _IN_SENTENCES}
    return text.translate(signs | _QUOTES)


def glyphs_of(node: "MessagePump") -> Glyphs:
    """Return the set of signs of the app that contains a widget; Unicode for an app that has none."""
    chosen = getattr(_app(node), "glyphs", UNICODE)
    return chosen if isinstance(chosen, Glyphs) else UNICODE
