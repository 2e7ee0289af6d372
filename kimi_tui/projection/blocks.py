"""The blocks of the transcript: one for each message, thought, tool call, D-Mail, error; and the list of them.

Only the reducers of this package change blocks; every change increments `version`, so that views notice it. Streamed text is
kept in pieces, output of tools compressed.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import ClassVar, Literal, TypeVar

from kimi_tui.foreign_text import Cleaner, clean, clean_source, has_pictures
from kimi_tui.wire.events import DisplayBlock, ImageBlock

_NEAR = 16
_WORTH_CHARS = 1_000
_QUICKLY = 1
_WINDOW_BITS = 13
_MEMORY_LEVEL = 6
"""A compressor of zlib's usual size clears a quarter of a megabyte first, which takes longer than packing a usual result."""


@dataclass(frozen=True, slots=True)
class PackedText:
    """A text in compressed form. `line_ends` counts its line ends."""

    _held: str | bytes = ""
    line_ends: int = 0

    @classmethod
    def of(cls, text: str) -> PackedText:
        """Pack a text."""
        line_ends = text.count("\n")
        if len(text) < _WORTH_CHARS:
            return cls(text, line_ends)
        # What was never text holds lone surrogates, and must come back as it was.
        packer = zlib.compressobj(_QUICKLY, zlib.DEFLATED, _WINDOW_BITS, _MEMORY_LEVEL)
        held = packer.compress(text.encode("utf-8", "surrogatepass"))
        return cls(held + packer.flush(), line_ends)

    def __bool__(self) -> bool:
        return bool(self._held)

    @property
    def text(self) -> str:
        """The whole text."""
        held = self._held
        if isinstance(held, str):
            return held
        return zlib.decompress(held).decode("utf-8", "surrogatepass")


NOTHING_SAID = PackedText()


LIVE_LINES = 200
"""Lines of a running tool's output that are kept until its result comes."""

ToolState = Literal[
    "writing", "waiting", "running", "done", "failed", "stopped", "rejected", "unsent", "recalled"
]
"""Of D-Mails: `unsent` was not delivered at the end of its step, `recalled` was, and the line that it left is live again."""


@dataclass(slots=True, eq=False)
class Block:
    """Base of all blocks. `checkpoint` and `uid` name the point before which it stands; None where there is none.

    `number` is which of the messages behind that point it belongs to, as pins name them.
    `live` is false once the point cannot be returned to by its number (it stands before a compaction); `replaced` where a
    summary of a part took its place on the line itself: it stands before that summary, and goes with it.
    """

    title_row: ClassVar[int] = 0
    """Which of its rows is the one that keys and pointers act on."""
    is_users: ClassVar[bool] = False
    """Whether the user said it: no D-Mail takes that away."""

    key: int
    checkpoint: int | None = None
    uid: str = ""
    number: int = 0
    live: bool = True
    replaced: bool = False
    unfolded: bool = False
    pinned: bool = False
    version: int = 0
    at: float = 0.0

    @property
    def is_past(self) -> bool:
        """Whether it went into a summary: the model is not sent it any more."""
        return not self.live

    def touch(self) -> None:
        """Note that the block looks different: raises its version, by which the views notice it."""
        self.version += 1


_B = TypeVar("_B", bound=Block)


@cache
def _values_of(kind: type[Block]) -> Callable[[Block], tuple[object, ...]]:
    return attrgetter(*(one.name for one in fields(kind)))


def copied(block: _B, **changes: object) -> _B:
    """A copy with these other values, and another version. `dataclasses.replace` takes twice as long, and a step may have
    thousands of cards."""
    kind = type(block)
    copy = kind(*_values_of(kind)(block))  # pyright: ignore[reportArgumentType]
    for name, value in changes.items():
        setattr(copy, name, value)
    copy.touch()
    return copy


@dataclass(slots=True, eq=False)
class UserBlock(Block):
    """A message of the user. `steer` is its id where it was typed while the agent worked, `queued` until it went in.

    `written` is the text as it was written where emoji in it are shown shorter, else empty. `attached` says of each file
    that it names what went with it.
    """

    is_users: ClassVar[bool] = True

    text: str = ""
    written: str = ""
    images: tuple[ImageBlock, ...] = ()
    attached: tuple[str, ...] = ()
    steer: str = ""
    queued: bool = False

    def write(self, text: str) -> None:
        """Let it say this."""
        self.text = clean(text)
        self.written = clean_source(text) if has_pictures(text) else ""

    @property
    def is_past(self) -> bool:
        """What is queued will be sent yet."""
        return not (self.live or self.queued)


PIECE = 4_096
"""Streamed text is kept in pieces of about this size: joining all of it for every token would take quadratic time."""


@dataclass(slots=True, eq=False)
class StreamedText:
    """Sanitized text that grows. From the first emoji of several characters on, it is also kept as it was written."""

    pieces: list[str] = field(default_factory=list[str])
    starts: list[int] = field(default_factory=list[int])
    """Where each piece begins."""
    cleaner: Cleaner = field(default_factory=Cleaner)
    size: int = 0
    line_ends: int = 0
    written: list[str] | None = None
    keeper: Cleaner | None = None

    def add(self, raw: str) -> None:
        """Append a piece of the stream."""
        if self.keeper is None and has_pictures(raw):
            self.keeper = self.cleaner.keeping_pictures()
            self.written = list(self.pieces)
        if self.keeper is not None:
            self._keep(self.keeper.feed(raw))
        self._put(self.cleaner.feed(raw))

    def end(self) -> None:
        """End the stream: append what was held back."""
        if self.keeper is not None:
            self._keep(self.keeper.finish())
        self._put(self.cleaner.finish())

    def _keep(self, text: str) -> None:
        if self.written is None or not text:
            return
        if self.written and len(self.written[-1]) < PIECE:
            self.written[-1] += text
        else:
            self.written.append(text)

    def _put(self, text: str) -> None:
        if not text:
            return
        if self.pieces and len(self.pieces[-1]) < PIECE:
            self.pieces[-1] += text
        else:
            self.pieces.append(text)
            self.starts.append(self.size)
        self.size += len(text)
        self.line_ends += text.count("\n")

    def part(self, start: int, limit: int) -> str:
        """At most `limit` characters from the one at `start` on."""
        first = max(0, bisect_right(self.starts, start) - 1)
        end = bisect_left(self.starts, start + limit)
        at = start - self.starts[first] if self.starts else 0
        return "".join(self.pieces[first:end])[at : at + limit]

    @property
    def text(self) -> str:
        """All of it, as it is shown."""
        return "".join(self.pieces)

    @property
    def source(self) -> str:
        """All of it, for the clipboard: emoji as they were written."""
        return self.text if self.written is None else "".join(self.written)


@dataclass(slots=True, eq=False)
class ThoughtBlock(Block):
    """Reasoning, folded to one row unless unfolded."""

    stream: StreamedText = field(default_factory=StreamedText)
    open: bool = True
    seconds: float = 0.0


@dataclass(slots=True, eq=False)
class AgentBlock(Block):
    """What the agent said, as Markdown."""

    stream: StreamedText = field(default_factory=StreamedText)
    open: bool = True


@dataclass(slots=True, eq=False)
class ToolBlock(Block):
    """One tool call. `tokens` is what its step added to the window, `tokens_estimated` until the next call tells.

    Of a command, `changed` are the files that were seen to change by it, the first few by name; `n_changed` all of them, and
    `n_lost` those that cannot be brought back, of which `lost` are some.
    """

    call: str = ""
    tool: str = ""
    name: str = ""
    target: str = ""
    arguments: str = ""
    state: ToolState = "writing"
    result: PackedText = NOTHING_SAID
    message: str = ""
    live_output: deque[str] = field(default_factory=lambda: deque(maxlen=LIVE_LINES))
    live_count: int = 0
    display: tuple[DisplayBlock, ...] = ()
    duration_s: float = 0.0
    tokens: int | None = None
    tokens_estimated: bool = False
    changed: tuple[str, ...] = ()
    n_changed: int = 0
    n_lost: int = 0
    lost: tuple[str, ...] = ()

    @property
    def output(self) -> str:
        """The output of the tool so far."""
        return self.result.text

    @output.setter
    def output(self, text: str) -> None:
        self.result = PackedText.of(text)

    @property
    def over(self) -> bool:
        """Whether the result has arrived."""
        return self.state not in {"writing", "waiting", "running"}

    def add_output(self, text: str) -> None:
        """Append live output, which is sanitized already; only the last lines are kept."""
        lines = text.split("\n")
        if not self.live_output:
            self.live_output.append("")
            self.live_count = 1
        # A line without an end may grow for ever: its beginning goes.
        self.live_output[-1] = (self.live_output[-1] + lines[0])[-4_000:]
        for line in lines[1:]:
            self.live_output.append(line[-4_000:])
            self.live_count += 1


@dataclass(slots=True, eq=False)
class DMailBlock(Block):
    """A D-Mail that arrived here: its `text`, and what it undid, to be read only.

    `is_moved` once its checkpoint has another number than when it came: where it came from has none on this line.
    `facts` is what the program added; of a message that was carried over (`is_carried`) it says whose that was.
    `tokens_changed` is by how much the window grew, an estimate with `estimated`.
    """

    title_row: ClassVar[int] = 1

    text: str = ""
    facts: str = ""
    author: Literal["agent", "person"] = "agent"
    from_checkpoint: int = 0
    is_moved: bool = False
    tokens_changed: int = 0
    estimated: bool = True
    world_line: int = 0
    tool_calls: int = 0
    steps: int = 0
    kept: tuple[tuple[str, int], ...] = ()
    folded: tuple[Block, ...] = ()

    @property
    def undid(self) -> bool:
        """Whether anything was cut away for it; else it was only added, or nothing is known of what was."""
        return self.steps > 0

    @property
    def is_carried(self) -> bool:
        """Whether it is a message that the user carried over from another line."""
        return self.author == "person" and not self.undid and bool(self.facts)

    @property
    def unfolds(self) -> bool:
        """Whether there is more to read than the D-Mail."""
        return bool(self.folded) or (bool(self.facts) and not self.is_carried)

    def resize(self, more: int, *, estimated: bool) -> None:
        """Correct the tokens that it left by a difference. Of one that came from nowhere it is not known what it undid."""
        if self.undid or self.author == "person":
            self.tokens_changed += more
            self.estimated = estimated


@dataclass(slots=True, eq=False)
class CompactionBlock(Block):
    """A summary that stands for all above it; `running` while it is being written, `edited` by the user since.

    `below` are the keys of the blocks that stayed word for word, `kept` counts the messages of those that stand below it.
    `tokens_after` is an estimate with `estimated`.
    """

    tokens_before: int = 0
    tokens_after: int = 0
    estimated: bool = True
    summary: str = ""
    running: bool = True
    automatic: bool = False
    edited: bool = False
    below: frozenset[int] = frozenset()
    kept: int = 0

    def resize(self, more: int, *, estimated: bool) -> None:
        """Correct the tokens that it left by a difference, where it is known what it replaced."""
        if self.tokens_before != self.tokens_after:
            self.tokens_after += more
            self.estimated = estimated


@dataclass(slots=True, eq=False)
class RetryBlock(Block):
    """A failed model call that will be tried again at `due` (seconds since 1970), as often as `max_attempts` or, where
    there is one, until `gives_up` (seconds since 1970)."""

    reason: str = ""
    attempt: int = 1
    max_attempts: int = 1
    wait_s: float = 0.0
    due: float = 0.0
    gives_up: float = 0.0


@dataclass(slots=True, eq=False)
class ErrorBlock(Block):
    """The turn ended in an error."""

    title: str = ""
    reason: str = ""
    advice: str = ""


MarkGlyph = Literal["stopped", "done", "files", "line", "none"]


@dataclass(slots=True, eq=False)
class MarkBlock(Block):
    """One quiet row: stopped, refused, files brought back.

    `operation` is the checkpoint that an operation on files alone was about: the row goes when that is undone. One that
    `passes` says what an undo, redo or jump did, and is no part of a line.
    """

    glyph: MarkGlyph = "none"
    text: str = ""
    operation: str = ""
    passes: bool = False


@dataclass(slots=True, eq=False)
class NoticeBlock(Block):
    """Something to know, where it happened."""

    level: Literal["info", "warning", "error"] = "info"
    text: str = ""
    advice: str = ""


B = TypeVar("B", bound=Block)


@dataclass(frozen=True, slots=True)
class Change:
    """The change that an event made: blocks from `first` on must be drawn again; None where nothing changed.

    `gone` are the blocks that a revert removed, for its animation; they were at `gone_at`, or where that is None at `first`.
    `rebuild` is true where the events do not determine the transcript any more, so that it must be built from the session.
    """

    first: int | None = None
    gone: tuple[Block, ...] = ()
    rebuild: bool = False
    gone_at: int | None = None


NOTHING = Change()


def both(first: Change, second: Change) -> Change:
    """Two changes, one after the other, as one."""
    if first.first is None and not first.rebuild:
        return second
    if second.first is None and not second.rebuild:
        return first
    starts = [start for start in (first.first, second.first) if start is not None]
    return Change(
        min(starts) if starts else None,
        first.gone + second.gone,
        first.rebuild or second.rebuild,
        second.gone_at if first.gone_at is None else first.gone_at,
    )


def place_among_said(block: Block, blocks: Sequence[Block]) -> int:
    """The place of a message of the user among those behind the same checkpoint; -1 for any other block."""
    if not isinstance(block, UserBlock) or not block.uid:
        return -1
    same = [one for one in blocks if one.uid == block.uid and isinstance(one, UserBlock)]
    return next((place for place, one in enumerate(same) if one is block), -1)


@dataclass(slots=True)
class BlockList:
    """The blocks of a transcript in order, and where new ones are inserted.

    Attributes:
        blocks: as they stand; the last `tail` of them (what is queued) stay last.
        base: the first block whose checkpoint is on the live line: what stands before was compacted.
        checkpoint, uid: the newest point of the live line; None between a cut and the next one.
        number: that of the first message behind it.
        attempt: keys of what the running attempt of a model call has streamed: gone if it is tried again.
    """

    blocks: list[Block] = field(default_factory=list[Block])
    tail: int = 0
    base: int = 0
    checkpoint: int | None = None
    uid: str = ""
    number: int = 0
    attempt: set[int] = field(default_factory=set[int])
    _next_key: int = 0
    _found: int = 0
    """Where the block was that was looked for last."""

    @property
    def end(self) -> int:
        """The index behind the last block that is not queued."""
        return len(self.blocks) - self.tail

    @property
    def last(self) -> Block | None:
        """The newest block that is not queued."""
        return self.blocks[self.end - 1] if self.end > 0 else None

    def new(self, kind: Callable[..., B], at: float) -> B:
        """A block of this kind after the newest checkpoint, not yet in the list."""
        return kind(
            key=self.new_key(),
            checkpoint=self.checkpoint,
            uid=self.uid,
            number=self.number,
            at=at,
        )

    def new_key(self) -> int:
        """A key that no block has."""
        self._next_key += 1
        return self._next_key

    def append(self, block: Block) -> Change:
        """Put a block after the last one that is not queued."""
        return self.insert(self.end, block)

    def insert(self, index: int, block: Block) -> Change:
        """Put a block before the one at this place."""
        self.blocks.insert(index, block)
        return Change(index)

    def queue(self, block: Block) -> Change:
        """Put a block last, where it stays until it is removed."""
        self.blocks.append(block)
        self.tail += 1
        return Change(len(self.blocks) - 1)

    def touched(self, block: Block) -> Change:
        """Note that a block has changed."""
        block.touch()
        return self.at(block)

    def at(self, block: Block) -> Change:
        """Where a block stands; nothing if it lies folded away in a D-Mail."""
        # What changes is nearly always close to the end, or to what changed before: the calls of a step, one after another.
        near = range(max(0, self._found - _NEAR), min(self._found + _NEAR, len(self.blocks)))
        for index in chain(near, range(len(self.blocks) - 1, -1, -1)):
            if self.blocks[index] is block:
                self._found = index
                return Change(index)
        return NOTHING

    def remove(self, block: Block) -> Change:
        """Take a block out."""
        change = self.at(block)
        if change.first is not None:
            if change.first >= self.end:
                self.tail -= 1
            del self.blocks[change.first]
        return change

    def begin_point(self, checkpoint: int, uid: str, first: int = 0) -> None:
        """Begin a new checkpoint; the first message behind it has the number `first`."""
        self.checkpoint, self.uid, self.number = checkpoint, uid, first

    def first_from(self, checkpoint: int) -> int:
        """The first block on the live line that belongs to this checkpoint or a later one, with what that replaced."""
        first, end = self.base, self.end
        # Their numbers rise, but for blocks that have none.
        while first < end:
            middle = at = (first + end) // 2
            while at > first and self.blocks[at].checkpoint is None:
                at -= 1
            point = self.blocks[at].checkpoint
            if point is not None and point >= checkpoint:
                end = at
            else:
                first = middle + 1
        while end > self.base and self.blocks[end - 1].replaced:
            end -= 1
        return end

    def forget_point(self) -> None:
        """Forget the current checkpoint: the line is another one, and its next checkpoint has not come yet."""
        self.checkpoint, self.uid, self.number = None, "", 0
        self.attempt.clear()
