"""Search in the transcript: the search bar, finding and counting matches, moving between them, and highlighting.

Matches are found in the unfolded rows as drawn, not in the source: `**so**` is found as `so`. Counting is a generator that
yields often, so that searching a huge conversation delays no key. The searched widget gets messages, and shows the match.
Imported with the first search.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, Static
from textual.worker import Worker

from kimi_tui.foreign_text import one_line
from kimi_tui.tui.faults import reported
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.line_field import LineField
from kimi_tui.tui.screens import add_sheets
from kimi_tui.tui.slices import drained, in_slices

if TYPE_CHECKING:
    from kimi_tui.tui.painter import Painter
    from kimi_tui.tui.transcript.viewport import Flow, View

import re
from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import unescape
from typing import NamedTuple

from kimi_tui.projection.blocks import AgentBlock, Block, ThoughtBlock, ToolBlock
from kimi_tui.projection.tool_calls import changed_words, ignored_words
from kimi_tui.tool_cards import DiffBlock
from kimi_tui.tui.faults import log_fault
from kimi_tui.tui.formatting import grouped
from kimi_tui.tui.rows import LayoutRoom, Line
from kimi_tui.tui.transcript.card_facts import title_text
from kimi_tui.tui.transcript.layout import rows_in_slices
from kimi_tui.tui.transcript.markdown_stream import MarkdownStream
from kimi_tui.tui.transcript.text_position import gutter_of
from kimi_tui.tui.transcript.tool_card import presented

ROWS_AT_ONCE = 40
"""Rows of a wrapped line that are searched in one step: it may be of megabytes."""
CHARS_AT_ONCE = 16_384
"""Characters of the text of a block that are searched in one step."""
SLICE_S = 0.003
"""Seconds of a time slice of searching, after which keys and frames are handled."""
TYPING_S = 0.08
"""Seconds from a key to the beginning of the search, in which the next key may come."""
AGAIN_S = 0.3
"""Seconds from a change of the content to the next search."""
TOLD_S = 0.1
"""The fewest seconds between two updates of the shown count."""
TOLD_SHARE = 20
"""The least time between two updates as a multiple of what one took, which grows with the conversation."""
QUERY_LIMIT = 200
"""The most characters of a query; the rest is ignored."""
FEED = 2_000
"""Characters of an answer that are laid out in one step."""
COUNTED = 1_000
"""Blocks that are gone through in one go where matches are counted."""
PIECE = 64
"""Blocks with a known count that are passed over in one step."""
_BREAK = "\x00"
"""Separates the rows of a wrapped line in the text that is searched. No row contains it."""
_NEAR = 8
"""Rows above and below a row that are searched when it is drawn: no match of `QUERY_LIMIT` characters reaches farther."""
_NO_WORD = re.compile(r"\W+")
_MARKDOWN = (AgentBlock, ThoughtBlock)
_LONGEST_NAME = 64
"""More characters than any character reference of HTML has."""

Pattern = re.Pattern[str]


class Part(NamedTuple):
    """The characters of one row that belong to a match."""

    row: int
    start: int
    end: int


Match = tuple[Part, ...]


def pattern_of(query: str) -> Pattern | None:
    """Return the regular expression of a query: in either case, with any blanks for its blanks; None for an empty query."""
    words = query[:QUERY_LIMIT].split()
    if not words:
        return None
    joined = rf"[\s{_BREAK}]+".join(f"{_BREAK}?".join(re.escape(c) for c in word) for word in words)
    return re.compile(joined, re.IGNORECASE)


def matches(lines: Sequence[Line], pattern: Pattern) -> list[Match]:
    """Return all matches in the rows of a block, from the top."""
    return [match for found in matches_by_line(lines, pattern) for match in found]


def matches_by_line(lines: Sequence[Line], pattern: Pattern) -> Iterator[list[Match]]:
    """Yield the matches of each line of text in turn; of a line of more than `ROWS_AT_ONCE` rows in several lists."""
    first = 0
    while first < len(lines):
        # `part` and `column` are the end of the rows to search and the place in the first row where the last earlier match ended.
        part, column = first + ROWS_AT_ONCE, 0
        last = first
        while last + 1 < len(lines) and lines[last].goes_on:
            last += 1
            if last == part + _NEAR:
                found = _in_line(lines, first, last, pattern, column)
                found = found[: bisect_left(found, part, key=lambda match: match[0].row)]
                end = found[-1][-1] if found else None
                first, column = (end.row, end.end) if end and end.row >= part else (part, 0)
                part = first + ROWS_AT_ONCE
                yield found
        yield _in_line(lines, first, last, pattern, column)
        first = last + 1


def parts_in_row(lines: Sequence[Line], row: int, pattern: Pattern) -> Iterable[Part]:
    """Yield the parts of matches that are in a row."""
    first = last = row
    while first > max(0, row - _NEAR) and lines[first - 1].goes_on:
        first -= 1
    while last + 1 < len(lines) and last < row + _NEAR and lines[last].goes_on:
        last += 1
    for match in _in_line(lines, first, last, pattern):
        yield from (part for part in match if part.row == row)


def _in_line(
    lines: Sequence[Line], first: int, last: int, pattern: Pattern, column: int = 0
) -> list[Match]:
    """Return the matches in the rows of one wrapped line, from a character of its first row on."""
    texts: list[str] = []
    gutters: list[int] = []
    offsets: list[int] = []
    offset = 0
    for row in range(first, last + 1):
        text = lines[row].trimmed(lines[row].text)
        gutters.append(min(gutter_of(lines[row]), len(text)))
        texts.append(text[gutters[-1] :])
        offsets.append(offset)
        offset += len(texts[-1]) + 1
    found: list[Match] = []
    start = max(0, column - gutters[0])
    for hit in pattern.finditer(_BREAK.join(texts), start):
        low, high = hit.span()
        parts: list[Part] = []
        # A line of code may have thousands of rows and matches: only those of this row are visited.
        for at in range(bisect_right(offsets, low) - 1, bisect_left(offsets, high)):
            begin = max(low - offsets[at], 0)
            end = min(high - offsets[at], len(texts[at]))
            if begin < end:
                parts.append(Part(first + at, gutters[at] + begin, gutters[at] + end))
        if parts:
            found.append(tuple(parts))
    return found


def may_hold(block: Block, query: str) -> Generator[None, None, bool]:
    """Return whether a block may contain the query, decided by its text without laying it out; yields often."""
    word = _letters(query)
    if not word:
        return True
    match block:
        case AgentBlock() | ThoughtBlock():
            texts: Iterable[str] = _of_stream(block)
        case ToolBlock():
            texts = _of_tool(block)
        case _:
            return True
    for text in texts:
        # An answer may contain letters as character references.
        for read in (str, unescape) if isinstance(block, _MARKDOWN) and "&" in text else (str,):
            before = ""
            for number, part in enumerate(_parts(text)):
                letters = before + _letters(read(part))
                if word in letters:
                    return True
                before = letters[max(0, len(letters) + 1 - len(word)) :]
                if number:
                    yield
    return False


def _parts(text: str) -> Iterator[str]:
    """Yield the text in parts of at most about `CHARS_AT_ONCE` characters, none cut within a character reference."""
    start = 0
    while start < len(text):
        end = start + CHARS_AT_ONCE
        named = text.rfind("&", end - _LONGEST_NAME, end) if end < len(text) else -1
        end = end if named < 0 else named
        yield text[start:end]
        start = end


def _letters(text: str) -> str:
    return _NO_WORD.sub("", text).replace("_", "").lower()


def _of_stream(block: AgentBlock | ThoughtBlock) -> Iterable[str]:
    yield block.stream.text
    if isinstance(block, ThoughtBlock):
        yield "Thinking Thought for"
        yield f"{block.seconds}"


def _of_tool(block: ToolBlock) -> Iterable[str]:
    yield title_text(block)
    yield block.output
    yield block.message
    for shown in block.display:
        if isinstance(shown, DiffBlock):
            yield from (line.text for line in shown.lines)
        else:
            yield str(shown)
    yield presented(block)
    yield " ".join((changed_words(block), *block.changed))
    yield ignored_words(block)
    yield from block.live_output


def unfolded_rows(block: Block, room: LayoutRoom) -> Generator[None, None, list[Line]]:
    """Yield all rows of a block as if it were unfolded. Yields often; returns the rows."""
    if not isinstance(block, AgentBlock):
        return (yield from rows_in_slices(replace(block, unfolded=True), room))
    answer = MarkdownStream(room.width, room.glyphs, late=True)
    for start in range(0, block.stream.size, FEED):
        answer.feed(block.stream.part(start, FEED))
        answer.show(0, len(answer.lines))
        yield
    answer.finish(FEED)
    while answer.is_behind:
        yield
        answer.finish(FEED)
    return answer.lines


class SearchCount(NamedTuple):
    """The state of a search as the bar shows it.

    Attributes:
        query: the query.
        at: the number of the current match, from 1; 0 for none.
        total: the number of matches counted so far.
        complete: whether all are counted.
    """

    query: str = ""
    at: int = 0
    total: int = 0
    complete: bool = True

    @property
    def words(self) -> str:
        """The count in words, as `3 of 17` or `3 of 17, counting`; empty without a query."""
        if not self.query.strip():
            return ""
        if not self.total:
            return "none" if self.complete else "searching"
        words = f"{grouped(self.at)} of {grouped(self.total)}"
        return words if self.complete else f"{words}, counting"


class Origin(NamedTuple):
    """The start of a search: the index of a block, and the index of one of its rows."""

    block: int = 0
    row: int = 0


class FoundMatch(NamedTuple):
    """A match: the key of its block, and its index among the matches of that block."""

    key: int
    number: int


@dataclass(slots=True)
class _MatchPlaces:
    """The number of matches before each block that has some, by its key, and of all matches.

    `known_for` is the number of all blocks and the key of the last one: other changes of blocks are followed by a scan.
    """

    known_for: tuple[int, int]
    before: dict[int, int] = field(default_factory=dict[int, int])
    total: int = 0


class Finder:
    """Searches the blocks of a transcript: counts the matches of a query and steps from one to the next.

    Args:
        query: the query.

    Attributes:
        current: the current match; None before the first one is found.
        match: the characters of the current match in the rows of its block; empty while these are not known.
    """

    def __init__(self, query: str) -> None:
        self.query = query
        self._pattern = pattern_of(query)
        self._counts: dict[int, tuple[int, int]] = {}
        """For each block, by its key: the version when it was counted, and its number of matches."""
        self._held: _MatchPlaces | None = None
        """Where the counted matches are; None where counts or blocks have changed since."""
        self._room: LayoutRoom | None = None
        self._complete = False
        self.current: FoundMatch | None = None
        self.match: Match = ()

    def refined(self, query: str) -> Finder:
        """Return a search for another query; where that begins with the present one, blocks without a match are not searched again."""
        made = Finder(query)
        if self._pattern is not None and query.lower().startswith(self.query.lower()):
            made._room = self._room
            made._counts = {key: known for key, known in self._counts.items() if not known[1]}
        return made

    @property
    def pattern(self) -> Pattern | None:
        """The regular expression of the query; None for an empty one."""
        return self._pattern

    def scan(
        self, blocks: Sequence[Block], room: LayoutRoom, origin: Origin
    ) -> Generator[FoundMatch | None, None, None]:
        """Count the matches of all blocks, those below the origin first, then upward.

        Yields:
            The match nearest to the origin as soon as it is known, once, and None whenever others may have a turn.
        """
        self._complete, self._held = False, None
        if room != self._room:
            self._room = room
            self._counts.clear()
        pattern = self._pattern
        if pattern is None:
            return
        blocks = tuple(blocks)
        first = min(origin.block, len(blocks) - 1)  # -1 if there are no messages yet
        is_told = False
        for turn, index in enumerate([*range(max(0, first), len(blocks)), *range(first, -1, -1)]):
            is_below = turn < len(blocks) - first
            block = blocks[index]
            known = self._counts.get(block.key)
            found: list[Match] | None = None
            if known is None or known[0] != block.version:
                version = block.version
                found = yield from self._matches(block, room)
                known = self._counts[block.key] = (version, len(found))
                self._held = None
                yield None
            elif not turn % PIECE:
                yield None
            if is_told or not known[1]:
                continue
            number = 0 if is_below else known[1] - 1
            if is_below and index == first and origin.row:
                found = found if found is not None else (yield from self._matches(block, room))
                number = next((i for i, one in enumerate(found) if one[0].row >= origin.row), -1)
            if number >= 0:
                is_told = True
                yield FoundMatch(block.key, number)
        self._complete = True

    def _matches(self, block: Block, room: LayoutRoom) -> Generator[None, None, list[Match]]:
        if self._pattern is None or not (yield from may_hold(block, self.query)):
            return []
        found: list[Match] = []
        try:
            rows = yield from unfolded_rows(block, room)
            for more in matches_by_line(rows, self._pattern):
                found += more
                yield
        except Exception:
            log_fault(f"searching {type(block).__name__}")
            return []
        return found

    def next(
        self, blocks: Sequence[Block], step: int, here: int | None = None
    ) -> FoundMatch | None:
        """Return the match after (`step` 1) or before (-1) the current one, from the last to the first; None if there is none.

        Args:
            blocks: the blocks that are searched.
            step: the direction.
            here: the index of the block of the current match, if it is known.
        """
        current = self.current
        if current is not None and not (
            here is not None and here < len(blocks) and blocks[here].key == current.key
        ):
            here = next((at for at, one in enumerate(blocks) if one.key == current.key), None)
        if current is None or here is None or not self._count(current.key):
            # The walk begins in front of the first block, or behind the last one.
            here = -1 if step > 0 else 0
        elif 0 <= current.number + step < self._count(current.key):
            return FoundMatch(current.key, current.number + step)
        for distance in range(1, len(blocks) + 1):
            key = blocks[(here + step * distance) % len(blocks)].key
            if found := self._count(key):
                return FoundMatch(key, 0 if step > 0 else found - 1)
        return None

    def count(self, blocks: Sequence[Block]) -> SearchCount:
        """Return the present count of matches in these blocks, and the number of the current one."""
        return drained(self.count_in_steps(blocks))

    def count_in_steps(self, blocks: Sequence[Block]) -> Generator[None, None, SearchCount]:
        """Return the same as `count`, as a generator that yields between small steps unless nothing has changed since the last count."""
        if self._pattern is None:
            return SearchCount()
        held = yield from self._hold(blocks)
        current, at = self.current, 0
        if current is not None and (before := held.before.get(current.key)) is not None:
            at = before + current.number + 1
        return SearchCount(self.query, min(at, held.total), held.total, self._complete)

    def _hold(self, blocks: Sequence[Block]) -> Generator[None, None, _MatchPlaces]:
        """Return where the counted matches are."""
        known_for = (len(blocks), blocks[-1].key if blocks else 0)
        if self._held is not None and self._held.known_for == known_for:
            return self._held
        held, counts, total = _MatchPlaces(known_for), self._counts, 0
        # This runs for tens of thousands of blocks, ten times a second.
        for turn, block in enumerate(tuple(blocks), 1):
            known = counts.get(block.key)
            if known is not None and known[1]:
                held.before[block.key] = total
                total += known[1]
            if not turn % COUNTED:
                yield
        held.total, self._held = total, held
        return held

    def _count(self, key: int) -> int:
        return self._counts.get(key, (0, 0))[1]

    def parts(self, key: int, lines: Sequence[Line], row: int) -> list[tuple[Part, bool]]:
        """Return the parts of a row to highlight, each with whether it belongs to the current match.

        Args:
            key: the key of the block.
            lines: the rows of the block.
            row: the index of the row.
        """
        if self._pattern is None:
            return []
        try:
            marked = [(part, False) for part in parts_in_row(lines, row, self._pattern)]
        except Exception:
            log_fault("marking what was found")
            return []
        if self.current is not None and self.current.key == key:
            marked += [(part, True) for part in self.match if part.row == row]
        return marked


class Search:
    """A running search: its bar, the highlighted matches, and the current match.

    Args:
        searched: the widget whose rows are searched; the messages are posted to it alone.
        blocks: the blocks that it shows.
        flow: their layout; None if there is none yet.

    Attributes:
        searched: as above.
        found: the state of the search as the bar shows it.
    """

    class Reached(Message, bubble=False):
        """A match is to be shown: toggle the `blocks_to_toggle` of `place`, then `reach` returns its row.

        Attributes:
            place: the match.
            steps: whether the user moved to it from another match.
        """

        def __init__(self, place: FoundMatch, *, steps: bool) -> None:
            super().__init__()
            self.place = place
            self.steps = steps

    class Left(Message, bubble=False):
        """The search was closed."""

    def __init__(self, searched: ScrollView, blocks: Sequence[Block], flow: Flow | None) -> None:
        self.searched = searched
        self._blocks = blocks
        self._flow = flow
        self._bar = SearchBar(self)
        self.found = SearchCount()
        self._finder: Finder | None = None
        self._origin: Origin | None = None
        self._opened: Block | None = None
        """The block that was unfolded to show the current match."""
        self._scanning: Worker[None] | None = None
        self._changed = False

    def open(self, query: str = "") -> None:
        """Mount the bar below the rows and focus it; a query that is given is searched at once."""
        pane = self.searched.parent
        if not self._bar.is_attached and isinstance(pane, Widget):
            add_sheets(self.searched, "search")
            pane.mount(self._bar)
            pane.add_class("-searched")
        self._bar.ask(query)

    def close(self) -> None:
        """Remove the bar and the highlighting. The scroll position stays."""
        self._stop_scanning()
        self._finder = None
        if isinstance(self.searched.parent, Widget):
            self.searched.parent.remove_class("-searched")
        self._bar.remove()

    def look_for(self, query: str) -> None:
        """Search for another query, from the rows that were visible when the search was opened."""
        old, flow = self._finder, self._flow
        if old is not None and old.query == query:
            return
        if self._origin is None and flow is not None:
            index, row = flow.find(round(self.searched.scroll_y))
            gap = flow.views[index].gap if flow.views else 0
            self._origin = Origin(index, max(0, row - gap))
        self._finder = Finder(query) if old is None else old.refined(query)
        self.searched.refresh()
        self._scan(TYPING_S, goes=True)

    def content_changed(self, blocks: Sequence[Block], flow: Flow) -> None:
        """Search the blocks again: their content changed."""
        self._blocks, self._flow = blocks, flow
        self._scan_again()

    def _scan_again(self) -> None:
        if self._finder is None:
            return
        self._changed = True
        if self._scanning is None:
            self._scan(AGAIN_S, goes=False)

    def resized(self) -> None:
        """Search the blocks again: their rows were wrapped for another width."""
        self._find_match_again()
        self._scan_again()

    # --- counting

    async def _tell(self, finder: Finder) -> None:
        """Show the count, which is computed in time slices where it is not known."""
        found = await in_slices(finder.count_in_steps(self._blocks), SLICE_S)
        if finder is self._finder:
            self.found = found
            self._bar.show(found)

    def _stop_scanning(self) -> None:
        if self._scanning is not None:
            self._scanning.cancel()
            self._scanning = None

    def _scan(self, wait_s: float, *, goes: bool) -> None:
        self._stop_scanning()
        work = reported(self.searched, partial(self._scan_all, wait_s, goes=goes))
        self._scanning = self.searched.run_worker(work, group="search")

    async def _scan_all(self, wait_s: float, *, goes: bool) -> None:
        try:
            await self._scan_until_unchanged(wait_s, goes=goes)
        except Exception:
            # The next change starts the scan again. A cancelled scan has a successor already.
            self._scanning = None
            raise
        self._scanning = None

    async def _scan_until_unchanged(self, wait_s: float, *, goes: bool) -> None:
        """Count all matches in time slices, again after changes of the content; with `goes`, go to the nearest one."""
        self._changed = True
        while self._changed and (finder := self._finder) is not None:
            await asyncio.sleep(wait_s)
            self._changed = False
            tells_at = until = 0.0
            origin = self._origin or self._origin_at(None)
            # Without a flow there are no blocks either.
            scan = (
                finder.scan(self._blocks, self._flow.room, origin) if self._flow is not None else ()
            )
            for place in scan:
                if place is not None and goes:
                    goes = False
                    await self._make_whole(place)
                    self.searched.post_message(self.Reached(place, steps=False))
                if (now := time.perf_counter()) >= until:
                    if now >= tells_at:
                        await self._tell(finder)
                        took = time.perf_counter() - now
                        tells_at = now + max(TOLD_S, TOLD_SHARE * took)
                    await asyncio.sleep(0)
                    until = time.perf_counter() + SLICE_S
            self._find_match_again()
            await self._tell(finder)
            wait_s = AGAIN_S

    def _origin_at(self, index: int | None) -> Origin:
        """Return the current match as an origin in the block with this index (None: the first block)."""
        match = self._finder.match if self._finder is not None else ()
        return Origin(index or 0, match[0].row if match else 0)

    # --- going to a match

    def go(self, step: int) -> None:
        """Go to the match after (`step` 1) or before (-1) the current one, from the last to the first."""
        finder, flow = self._finder, self._flow
        if finder is None or flow is None:
            return
        here = flow.index_of_key(finder.current.key) if finder.current is not None else None
        place = finder.next(self._blocks, step, here)
        if place is None:
            return
        # The next key continues from there.
        finder.current, finder.match = place, ()
        index = flow.index_of_key(place.key)
        if index is not None and flow.views[index].late is not None:
            work = reported(self.searched, partial(self._go_when_whole, finder, place))
            self.searched.run_worker(work, group="match", exclusive=True)
        else:
            self.searched.post_message(self.Reached(place, steps=True))

    async def _go_when_whole(self, finder: Finder, place: FoundMatch) -> None:
        await self._make_whole(place)
        if finder is self._finder:
            self.searched.post_message(self.Reached(place, steps=True))

    async def _make_whole(self, place: FoundMatch) -> None:
        """Lay out all rows of the block of a match, in time slices: only the visible rows of a long output are laid out."""
        flow = self._flow
        index = flow.index_of_key(place.key) if flow is not None else None
        if flow is not None and index is not None:
            await in_slices(flow.whole_in_steps(flow.views[index]), SLICE_S)

    def blocks_to_toggle(self, place: FoundMatch) -> list[Block]:
        """Return the blocks to toggle to show a match: the one unfolded for the match before, and the one that hides this one."""
        flow = self._flow
        index = flow.index_of_key(place.key) if flow is not None else None
        if flow is None or index is None:
            return []
        block = flow.views[index].block
        opened, self._opened = self._opened, None
        if opened is block:
            self._opened = block
        is_there = opened is not None and flow.index_of_key(opened.key) is not None
        toggled = (
            [opened] if opened and opened is not block and opened.unfolded and is_there else []
        )
        if self._hides(flow, index, place):
            toggled.append(block)
            self._opened = block
        return toggled

    def reach(self, event: Reached) -> tuple[int, int] | None:
        """Make a match the current one. Returns the index of its block and its row there; None if the block was removed."""
        finder, flow, place = self._finder, self._flow, event.place
        index = flow.index_of_key(place.key) if flow is not None else None
        if finder is None or flow is None:
            return None
        if index is None:
            # Another conversation is shown since the match was found.
            self._scan(AGAIN_S, goes=True)
            return None
        finder.current = place
        finder.match = self._match(flow, index, place)
        if event.steps:
            # If the query changes now, its search starts from here.
            self._origin = self._origin_at(index)
        work = reported(self.searched, partial(self._tell, finder))
        self.searched.run_worker(work, group="count", exclusive=True)
        return index, finder.match[0].row if finder.match else 0

    def _hides(self, flow: Flow, index: int, place: FoundMatch) -> bool:
        """Return whether a match is not in the rows that its block has now, as in a folded one."""
        pattern = self._finder.pattern if self._finder is not None else None
        flow.lay_out_whole(index)
        view = flow.views[index]
        if pattern is None or view.block.unfolded or view.answer is not None:
            return False
        whole = drained(unfolded_rows(view.block, flow.room))
        found = matches(whole, pattern)
        if place.number >= len(found):
            return False
        return any(
            part.row >= len(view.lines) or view.lines[part.row].text != whole[part.row].text
            for part in found[place.number]
        )

    def _match(self, flow: Flow, index: int, place: FoundMatch) -> Match:
        """Return the characters of a match in the rows of its block."""
        pattern = self._finder.pattern if self._finder is not None else None
        if pattern is None:
            return ()
        flow.lay_out_whole(index)
        number = place.number
        for found in matches_by_line(flow.views[index].lines, pattern):
            if number < len(found):
                return found[number]
            number -= len(found)
        return ()

    def _find_match_again(self) -> None:
        """Update the characters of the current match after the rows of its block have changed."""
        finder, flow = self._finder, self._flow
        place = finder.current if finder is not None else None
        if finder is None or flow is None or place is None:
            return
        index = flow.index_of_key(place.key)
        finder.match = self._match(flow, index, place) if index is not None else ()
        self.searched.refresh()

    # --- painting

    def marked(self, strip: Strip, painter: Painter, view: View, index: int) -> Strip:
        """Return the strip of a row with its matches highlighted.

        Args:
            strip: the strip without a search.
            painter: the painter that made it.
            view: the view of the block.
            index: the index of the row in the block.
        """
        if self._finder is None:
            return strip
        for part, is_current in self._finder.parts(view.block.key, view.lines, index):
            look = "found-now" if is_current else "found"
            strip = painter.selected(strip, part.start, part.end, look)
        return strip


class SearchField(LineField):
    """The input of the search bar."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+f", "select_all", "Select all", id="search.again", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(placeholder="Search", select_on_focus=False)


class SearchArrow(Static):
    """A button of the search bar that goes to the next match, or to the one before.

    Args:
        search: the search.
        step: 1 for the next match, -1 for the one before.
    """

    def __init__(self, search: Search, step: int) -> None:
        super().__init__(markup=False)
        self._search = search
        self._step = step

    def on_mount(self) -> None:
        """Show the arrow of the set of signs in use."""
        glyphs = glyphs_of(self)
        self.update(f" {glyphs.up if self._step < 0 else glyphs.down}")

    def on_click(self, event: events.Click) -> None:
        """Go to the match."""
        event.stop()
        self._search.go(self._step)


class SearchBar(Horizontal):
    """The search bar: input, count, and arrows.

    Args:
        search: the search that it controls.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,shift+enter", "go(-1)", "Match before", id="search.up", show=False),
        Binding("down", "go(1)", "Next match", id="search.down", show=False),
        Binding("pageup", "page(-1)", "Page up", id="search.page_up", show=False),
        Binding("pagedown", "page(1)", "Page down", id="search.page_down", show=False),
        Binding("tab", "to_text", "To the text", id="search.text", show=False),
        Binding("escape", "end", "End the search", id="search.end", show=False),
    ]

    def __init__(self, search: Search) -> None:
        super().__init__()
        self._search = search
        self._field = SearchField()
        self._count = Static(markup=False)

    def compose(self) -> ComposeResult:
        """Return the widgets, from the left."""
        yield Static("  / ", id="search-sign", markup=False)
        yield self._field
        yield self._count
        yield SearchArrow(self._search, -1)
        yield SearchArrow(self._search, 1)

    def on_mount(self) -> None:
        """Focus the input."""
        self.show(self._search.found)
        self._field.focus()

    def ask(self, query: str) -> None:
        """Focus the input; a query that is given replaces its text."""
        if query:
            self._field.value = query
        if self.is_mounted:
            self._field.focus()
            self._field.action_select_all()

    def show(self, found: SearchCount) -> None:
        """Show the count of matches."""
        if not self._count.is_attached:
            return
        self._count.update(found.words)
        self.set_class(bool(found.query.strip()) and not found.total and found.complete, "-none")

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        # A pasted text may contain anything.
        text = event.value if event.value.isprintable() else one_line(event.value)
        if text != event.value:
            self._field.value = text
        else:
            self._search.look_for(text)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_go(1)

    def action_go(self, step: int) -> None:
        """Go to the next match (`step` 1), or to the one before (-1)."""
        self._search.go(step)

    def action_page(self, direction: int) -> None:
        """Scroll the transcript by a page."""
        if direction < 0:
            self._search.searched.action_page_up()
        else:
            self._search.searched.action_page_down()

    def action_to_text(self) -> None:
        """Focus the transcript."""
        self._search.searched.focus()

    def action_end(self) -> None:
        """End the search."""
        self._search.searched.post_message(Search.Left())
