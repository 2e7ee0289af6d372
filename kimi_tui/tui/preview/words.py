"""The sentences of the preview, in pieces with style names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from kimi_tui.foreign_text import one_line
from kimi_tui.tool_names import short_name
from kimi_tui.tui import numbers
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.main.footer import GAP, fit
from kimi_tui.tui.spans import Span
from kimi_tui.tui.statistics_words import cost_words

if TYPE_CHECKING:
    from kimi_tui.soul.protocol import GoingMessage, RewindPreview

_NAME_WIDTH = 5
_NOTHING_LOST = "Nothing is lost: what goes becomes a world line, and u brings it back."
_NOTHING_LOST_BY_JUMP = (
    "Nothing is lost: what you leave becomes a world line, and u brings it back."
)
_NOTHING_LEFT = "Nothing is lost: that line goes on from here, and u leads back."


def title(preview: RewindPreview) -> str:
    """The title in the border."""
    target = preview.target
    if target.world_line:
        return f"Jump to world line {target.world_line}, #{target.id}"
    return f"Rewind to #{target.id}"


def question(preview: RewindPreview, width: int, mark: str) -> list[Span]:
    """What stands at the checkpoint, in one row."""
    words = one_line(preview.label) or f"Checkpoint #{preview.target.id}"
    return [(numbers.cut(words, width, mark), "strong")]


def consequence(preview: RewindPreview, width: int, glyphs: Glyphs) -> list[list[Span]]:
    """`Takes back 5 steps, 11 messages; frees 4.6k tokens`, and from how much to how much where there is room.

    A jump leaves them, and what is there may be more: `Leaves 1 step; adds 400 tokens`.
    Where prices are set, what it had cost follows, in a row of its own where it would not be seen whole.
    """
    counts = [(preview.steps, "step"), (preview.messages, "message")]
    if preview.turns > 1:
        counts.insert(0, (preview.turns, "turn"))
    parts = [numbers.counted(count, noun) for count, noun in counts if count]
    jumps = bool(preview.target.world_line)
    change = preview.tokens_after - preview.tokens_before
    does = ("Leaves " if jumps else "Takes back ", "; adds " if change > 0 else "; frees ")
    freed = numbers.tokens(abs(change), estimated=preview.estimated)
    # Numbers are never cut: where there is no room for all of them, the less telling ones are left out.
    shorter = ((parts, " tokens"), (parts, ""), ([*parts[:1], *parts[-1:]], " tokens"))
    wordings = [_sizes(does, counted, f"{freed}{unit}") for counted, unit in shorter]
    fitting = (wording for wording in wordings if spans_width(wording) <= width)
    left = next(fitting, _sizes(does, parts[-1:], freed))
    after = numbers.tokens(preview.tokens_after, estimated=preview.estimated)
    right: list[Span] = [
        (f"{numbers.tokens(preview.tokens_before)} {glyphs.to} ", "quiet"),
        (after, "strong"),
    ]
    money = cost_words(preview.cost) if preview.cost is not None else ""
    spent: list[Span] = [("; its calls cost ", "quiet"), (money, "ink")]
    below: list[list[Span]] = []
    if money and spans_width(left) + spans_width(spent) <= width:
        left += spent
    elif money:
        below = [[("Its calls cost ", "quiet"), (money, "ink")]]
    gap = width - spans_width(left) - spans_width(right)
    return [[*left, (" " * gap, "quiet"), *right] if gap >= 3 else left, *below]


def _sizes(does: tuple[str, str], parts: Sequence[str], change: str) -> list[Span]:
    return [
        (does[0], "quiet"),
        (", ".join(parts) or "nothing", "ink"),
        (does[1], "quiet"),
        (change, "ink"),
    ]


def stopped_first(glyphs: Glyphs) -> list[Span]:
    """Where a turn is running."""
    return [
        (f"{glyphs.caution} ", "warn"),
        ("The agent is working.", "ink"),
        (" It is stopped first.", "quiet"),
    ]


def asked(paths: Sequence[str], key: str, width: int, glyphs: Glyphs) -> list[Span]:
    """`! Also changed outside: notes.md   f again brings it back too`, where a first word is not enough."""
    lead, end = "Also changed outside: ", f"   {key} again"
    names = ", ".join(map(one_line, paths))
    room = width - 2 - cell_len(lead) - cell_len(end)
    more = f" brings {'it' if len(paths) == 1 else 'them'} back too"
    if cell_len(names) + cell_len(more) <= room:
        end += more
    names = numbers.cut(names, max(0, room), glyphs.cut)
    return [
        (f"{glyphs.caution} ", "warn"),
        (lead, "quiet"),
        (names, "strong"),
        (end, "ink"),
    ]


def nothing_lost(preview: RewindPreview, width: int) -> list[list[Span]]:
    """The way back, in as many rows as it takes."""
    said = _NOTHING_LOST
    if preview.target.world_line:
        said = _NOTHING_LOST_BY_JUMP if preview.goes else _NOTHING_LEFT
    words: list[Span] = [
        (word, "ink" if place < 3 or word == "u" else "quiet")
        for place, word in enumerate(said.split())
    ]
    rows: list[list[Span]] = [[]]
    used = 0
    for word, style in words:
        size = cell_len(word)
        if rows[-1] and used + 1 + size > width:
            rows.append([])
            used = 0
        if rows[-1]:
            rows[-1].append((" ", "quiet"))
            used += 1
        rows[-1].append((word, style))
        used += size
    return rows


def heading(preview: RewindPreview, width: int) -> list[Span]:
    """What stands over the list of what goes."""
    name = "Becomes a world line" if preview.target.world_line else "Goes"
    return [
        (name, "quiet"),
        (" " * (width - len(name) - len("tokens")), "quiet"),
        ("tokens", "quiet"),
    ]


def nothing_goes(preview: RewindPreview) -> list[Span]:
    """In the place of a list that is empty."""
    if preview.target.world_line:
        return [("Nothing goes: that line goes on from here.", "quiet")]
    return [("Nothing goes but the checkpoint itself.", "quiet")]


def going(message: GoingMessage, width: int, glyphs: Glyphs) -> list[Span]:
    """One thing that goes: its sign, what it is, and its tokens at the right."""
    cost = numbers.tokens(message.tokens) if message.tokens is not None else ""
    room = width - 2 - (cell_len(cost) + 2 if cost else 0)
    text = one_line(message.text)
    match message.kind:
        case "user":
            left = [(f"{glyphs.turn} ", "accent"), (numbers.cut(text, room, glyphs.cut), "ink")]
        case "tool":
            sign = (glyphs.failed, "error") if message.failed else (glyphs.done, "ok")
            name = short_name(message.name).ljust(_NAME_WIDTH)
            room -= cell_len(name) + 1
            left = [
                (f"{sign[0]} ", sign[1]),
                (f"{name} ", "tool"),
                (numbers.cut(text, room, glyphs.cut), "ink"),
            ]
        case "dmail":
            words = numbers.cut(f"D-Mail  {text}".rstrip(), room, glyphs.cut)
            left = [(f"{glyphs.dmail} ", "dmail"), (words, "dmail")]
        case "summary":
            words = numbers.cut(f"Summary  {text}".rstrip(), room, glyphs.cut)
            left = [(f"{glyphs.compaction} ", "compaction"), (words, "compaction")]
        case _:
            left = [("  ", "quiet"), (numbers.cut(text, room, glyphs.cut), "quiet")]
    gap = width - spans_width(left) - cell_len(cost)
    return [*left, (" " * max(0, gap), "quiet"), (cost, "ink")]


def keys(pairs: Sequence[tuple[str, str]], width: int) -> list[Span]:
    """`Enter rewind   ↑↓ choose   Esc cancel`: whole pairs only."""
    spans: list[Span] = []
    for key, meaning in fit(pairs, width):
        spans += [(" " * GAP, "quiet")] if spans else []
        spans += [(key, "ink"), (f" {meaning}", "quiet")]
    return spans


def spans_width(spans: list[Span]) -> int:
    """Cells."""
    return sum(cell_len(text) for text, _ in spans)


def fitted(spans: list[Span], width: int) -> list[Span]:
    """Exactly `width` cells."""
    result: list[Span] = []
    used = 0
    for text, style in spans:
        size = cell_len(text)
        if used + size > width:
            result.append((set_cell_size(text, width - used), style))
            return result
        result.append((text, style))
        used += size
    if used < width:
        result.append((" " * (width - used), "quiet"))
    return result
