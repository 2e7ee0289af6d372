"""The blocks of the transcript: one for each message, thought, tool call, D-Mail, error; and the list of them.

Only the reducers of this package change blocks; every change increments `version`, so that views notice it. Streamed text is
kept in pieces, output of tools compressed.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import chain, count
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, TypeVar

from kimi_tui.foreign_text import Cleaner, clean, clean_source, has_pictures
from kimi_tui.tool_cards import Card, DisplayBlock, ImageBlock, card_of

if TYPE_CHECKING:
    from kimi_tui.wire.events import AgentChanged

_NEAR = 16
_SLICE = 256
_WORTH_CHARS = 1_000
_QUICKLY = 1
_WINDOW_BITS = 13
_MEMORY_LEVEL = 6
"""zlib's `memLevel`: at the default a compressor clears 256 KB first, which takes longer than compressing a usual result."""


@dataclass(frozen=True, slots=True)
class PackedText:
    """A compressed text. `line_ends` is the number of its line ends."""

    _held: str | bytes = ""
    line_ends: int = 0

    @classmethod
    def of(cls, text: str) -> PackedText:
        """Compress a text."""
        line_ends = text.count("\n")
        if len(text) < _WORTH_CHARS:
            return cls(text, line_ends)
        # Text from a damaged source may hold lone surrogates, which must survive the round trip.
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
"""The state of a tool call. A D-Mail that is `unsent` was not delivered at the end of its step; one that is
`recalled` was delivered, and an undo or jump made the line that it left live again.
"""


_N_EDITS = 1 << 32
"""A number that the edits of a block never reach."""
_versions = count(_N_EDITS, _N_EDITS)


class Stretch:
    """The blocks of a line between two compactions of all of it. They are live or past together, so that a compaction, its undo
    and its redo cost the same for any number of blocks.

    Attributes:
        live: whether a rewind to their checkpoints is possible.
        version: a number that is added to `n_edits` of each block for its version; no other stretch ever has the same.
    """

    __slots__ = ("live", "version")

    def __init__(self) -> None:
        self.live = True
        self.version = next(_versions)

    def turn(self, *, live: bool) -> bool:
        """Make its blocks live or past; return whether they were not so before."""
        if self.live == live:
            return False
        self.live, self.version = live, next(_versions)
        return True


_ALONE = Stretch()
"""The stretch of blocks that were made outside of a list."""


@dataclass(slots=True, eq=False)
class Block:
    """Base of all blocks. `checkpoint` and `uid` are those of the checkpoint that it belongs to; None if there is none.
    `number` is the index, after that checkpoint, of the message that it belongs to, as pins name it. `replaced` is true if a
    summary of a part replaced the block on the line itself: the block is before that summary, and is dropped with it.
    `n_edits` counts its own changes.
    """

    title_row: ClassVar[int] = 0
    """The index of the row that is highlighted when the block is chosen."""
    is_users: ClassVar[bool] = False
    """Whether the block is a message of the user, which a D-Mail does not drop."""

    key: int
    checkpoint: int | None = None
    uid: str = ""
    number: int = 0
    stretch: Stretch = _ALONE
    replaced: bool = False
    unfolded: bool = False
    pinned: bool = False
    n_edits: int = 0
    at: float = 0.0

    @property
    def live(self) -> bool:
        """Whether a rewind to its checkpoint is possible; false once the block is before a compaction."""
        return self.stretch.live and not self.replaced

    @property
    def version(self) -> int:
        """Another number after each change, so that views notice it."""
        return self.stretch.version + self.n_edits

    @property
    def is_past(self) -> bool:
        """Whether a summary replaced the block: it is not sent to the model any more."""
        return not self.live

    def touch(self) -> None:
        """Change the version, so that views notice the change."""
        self.n_edits += 1


_B = TypeVar("_B", bound=Block)


@cache
def _values_of(kind: type[Block]) -> Callable[[Block], tuple[object, ...]]:
    return attrgetter(*(one.name for one in fields(kind)))


def copied(block: _B, **changes: object) -> _B:
    """Return a copy with these values replaced and a new version. `dataclasses.replace` takes twice as long, and a step may
    have thousands of cards.
    """
    kind = type(block)
    copy = kind(*_values_of(kind)(block))  # pyright: ignore[reportArgumentType]
    for name, value in changes.items():
        setattr(copy, name, value)
    copy.touch()
    return copy


@dataclass(slots=True, eq=False)
class UserBlock(Block):
    """A message of the user. `steer` is its id if it was typed while the agent worked; `queued` is true until it is sent. `unsent`
    is true if its turn ended before the message became a part of the conversation.

    `written` is the text as typed if emoji in it are displayed in a shorter form, else empty. `attached` has a text for each
    attached file that the message names.
    """

    is_users: ClassVar[bool] = True

    text: str = ""
    written: str = ""
    images: tuple[ImageBlock, ...] = ()
    attached: tuple[str, ...] = ()
    steer: str = ""
    queued: bool = False
    unsent: bool = False

    @property
    def live(self) -> bool:
        """Whether a rewind to its checkpoint is possible; false while it is queued, or if it was not sent, as it has none."""
        return self.stretch.live and not (self.replaced or self.queued or self.unsent)

    @property
    def apart(self) -> str:
        """Why the conversation does not have the message, in words; empty if it has it, or had it."""
        return "queued" if self.queued else "not sent" if self.unsent else ""

    def write(self, text: str) -> None:
        """Set the text."""
        self.text = clean(text)
        self.written = clean_source(text) if has_pictures(text) else ""

    @property
    def is_past(self) -> bool:
        """Whether the conversation does not have the message; false while it is queued, as it is still to be sent."""
        return not (self.live or self.queued)


PIECE = 4_096
"""The approximate number of characters in the pieces of streamed text: joining the whole text for every token would take
quadratic time.
"""


@dataclass(slots=True, eq=False)
class StreamedText:
    """Sanitized text that grows. From the first emoji of several characters on, the source is kept as well."""

    pieces: list[str] = field(default_factory=list[str])
    starts: list[int] = field(default_factory=list[int])
    """The index of the first character of each piece."""
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
        """End the stream: append the text that was held back."""
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
        """Return at most `limit` characters from the one at `start` on."""
        first = max(0, bisect_right(self.starts, start) - 1)
        end = bisect_left(self.starts, start + limit)
        at = start - self.starts[first] if self.starts else 0
        return "".join(self.pieces[first:end])[at : at + limit]

    @property
    def text(self) -> str:
        """The whole text, as displayed."""
        return "".join(self.pieces)

    @property
    def source(self) -> str:
        """The whole text, for the clipboard: emoji as received."""
        return self.text if self.written is None else "".join(self.written)


@dataclass(slots=True, eq=False)
class ThoughtBlock(Block):
    """Reasoning of the model; it takes one row while folded."""

    stream: StreamedText = field(default_factory=StreamedText)
    open: bool = True
    seconds: float = 0.0


@dataclass(slots=True, eq=False)
class AgentBlock(Block):
    """Text of an answer, in Markdown."""

    stream: StreamedText = field(default_factory=StreamedText)
    open: bool = True


@dataclass(slots=True, eq=False)
class ToolBlock(Block):
    """One tool call. `given_card` is the card that came with it. `tokens` is the number of tokens by which its step grew the
    context, an estimate (`tokens_estimated`) until the next model call reports usage.

    For a command, `changed` are the paths of the first files that it changed, `n_changed` is the number of all of them;
    `n_lost` is the number of those that cannot be restored, `lost` are the paths of some of these. `n_ignored` and `ignored` are
    likewise the new files that a rule ignores, which are not among the others. `is_own` is true for a command that the user ran.
    `stopped_by` says what stopped the call: the `user`, an `exit` of the program, or a `failure` of the answer. `agent` is the state
    of the sub-agent that the call started.
    """

    call: str = ""
    tool: str = ""
    given_card: Card | None = None
    name: str = ""
    target: str = ""
    arguments: str = ""
    state: ToolState = "writing"
    result: PackedText = NOTHING_SAID
    message: str = ""
    live_output: list[str] = field(default_factory=list[str])
    live_count: int = 0
    display: tuple[DisplayBlock, ...] = ()
    duration_s: float = 0.0
    tokens: int | None = None
    tokens_estimated: bool = False
    changed: tuple[str, ...] = ()
    n_changed: int = 0
    n_lost: int = 0
    lost: tuple[str, ...] = ()
    n_ignored: int = 0
    ignored: tuple[str, ...] = ()
    is_own: bool = False
    stopped_by: Literal["user", "exit", "failure"] = "user"
    agent: AgentChanged | None = None

    @property
    def card(self) -> Card:
        """The card that says how the call looks."""
        return card_of(self.tool, self.given_card)

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
        """Append live output, sanitized by the caller; only the last `LIVE_LINES` lines are kept."""
        lines = text.split("\n")
        if not self.live_output:
            self.live_output.append("")
            self.live_count = 1
        # A line without an end may grow without limit, so its beginning is dropped.
        self.live_output[-1] = (self.live_output[-1] + lines[0])[-4_000:]
        for line in lines[1:]:
            self.live_output.append(line[-4_000:])
            self.live_count += 1
        del self.live_output[:-LIVE_LINES]


@dataclass(slots=True, eq=False)
class DMailBlock(Block):
    """A D-Mail that was delivered here: its `text`, and the blocks that it dropped, read only.

    `is_moved` is true once its checkpoint was renumbered: the checkpoint that it was sent from has no number on this line.
    `facts` is the text that the program added; for a message that was carried over (`is_carried`) it names the origin.
    `tokens_changed` is the signed change of the tokens in the window; an estimate while `estimated`.
    """

    title_row: ClassVar[int] = 1

    text: str = ""
    facts: str = ""
    rule: str = ""
    """The name of the rule that led to it; empty if none did."""
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
        """Whether steps were dropped for the D-Mail; false if it was only appended, or if the dropped steps are unknown."""
        return self.steps > 0

    @property
    def is_carried(self) -> bool:
        """Whether the block is a message that the user carried over from another line."""
        return self.author == "person" and not self.undid and bool(self.facts)

    @property
    def unfolds(self) -> bool:
        """Whether unfolding shows more than the D-Mail's text."""
        return bool(self.folded) or (bool(self.facts) and not self.is_carried)

    def resize(self, more: int, *, estimated: bool) -> None:
        """Add a difference to the tokens that the D-Mail left; does nothing if the checkpoint from which it was sent is unknown."""
        if self.undid or self.author == "person":
            self.tokens_changed += more
            self.estimated = estimated


@dataclass(slots=True, eq=False)
class CompactionBlock(Block):
    """A summary that replaces everything above it; `running` while it is being written, `edited` if the user changed it.

    `below` are the keys of the blocks that were kept verbatim, `kept` is the number of their messages below it.
    `tokens_after` is an estimate while `estimated`.
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
        """Add a difference to the tokens that the summary left; does nothing if the replaced part is unknown."""
        if self.tokens_before != self.tokens_after:
            self.tokens_after += more
            self.estimated = estimated


@dataclass(slots=True, eq=False)
class RetryBlock(Block):
    """A failed model call that will be tried again at `due` (seconds since 1970), up to `max_attempts` times or, if it is
    set, until `gives_up` (seconds since 1970).
    """

    reason: str = ""
    attempt: int = 1
    max_attempts: int = 1
    wait_s: float = 0.0
    due: float = 0.0
    gives_up: float = 0.0


@dataclass(slots=True, eq=False)
class ErrorBlock(Block):
    """The error that ended a turn."""

    title: str = ""
    reason: str = ""
    advice: str = ""


def images_of(block: Block) -> tuple[ImageBlock, ...]:
    """The images that a block shows."""
    match block:
        case UserBlock():
            return block.images
        case ToolBlock():
            return tuple(shown for shown in block.display if isinstance(shown, ImageBlock))
        case _:
            return ()


MarkGlyph = Literal["stopped", "done", "files", "line", "rule", "none"]


@dataclass(slots=True, eq=False)
class MarkBlock(Block):
    """A row without emphasis: stopped, refused, files restored, a switch of the line.

    `operation` is the checkpoint of an operation on files alone: the row is removed when that is undone. One that `passes`
    reports an undo, redo or jump, and belongs to no line.
    """

    glyph: MarkGlyph = "none"
    text: str = ""
    operation: str = ""
    passes: bool = False


@dataclass(slots=True, eq=False)
class NoticeBlock(Block):
    """A notice, at the place in the conversation where it was published."""

    level: Literal["info", "warning", "error"] = "info"
    text: str = ""
    advice: str = ""


B = TypeVar("B", bound=Block)


class Change(NamedTuple):
    """The changes by an event: the blocks from index `first` on must be laid out again; None if nothing changed.

    `gone` are the blocks that a revert removed, for its animation; their index was `gone_at`, or `first` if that is None.
    `rebuild` is true if the events do not determine the transcript any more, so that it must be built anew from the session.
    """

    first: int | None = None
    gone: tuple[Block, ...] = ()
    rebuild: bool = False
    gone_at: int | None = None


NOTHING = Change()


def both(first: Change, second: Change) -> Change:
    """Combine two consecutive changes."""
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
    """Return the index of a message of the user among those after the same checkpoint; -1 for any other block."""
    if not isinstance(block, UserBlock) or not block.uid:
        return -1
    same = [one for one in blocks if one.uid == block.uid and isinstance(one, UserBlock)]
    return next((place for place, one in enumerate(same) if one is block), -1)


def first_from(blocks: Sequence[Block], base: int, end: int, checkpoint: int) -> int:
    """Return the index in `range(base, end)` of the first block that belongs to a checkpoint or a later one, or was replaced by
    it; `end` if there is none.
    """
    first = base
    # The checkpoints of blocks are in ascending order; some blocks have none.
    while first < end:
        middle = at = (first + end) // 2
        while at > first and blocks[at].checkpoint is None:
            at -= 1
        point = blocks[at].checkpoint
        if point is not None and point >= checkpoint:
            end = at
        else:
            first = middle + 1
    while end > base and blocks[end - 1].replaced:
        end -= 1
    return end


def common_start(one: Sequence[Block], other: Sequence[Block]) -> int:
    """Return how many first blocks two lists have in common. It compares slices: tens of thousands of blocks in a millisecond."""
    end, start = min(len(one), len(other)), 0
    while start < end and one[start : start + _SLICE] == other[start : start + _SLICE]:
        start += _SLICE
    return next((n for n in range(min(start, end), end) if one[n] is not other[n]), end)


@dataclass(slots=True)
class BlockList:
    """The blocks of a transcript in order, and where new ones are inserted.

    Attributes:
        blocks: all blocks; the last `tail` of them (queued messages) stay last.
        base: the index of the first block whose checkpoint is on the live line: those before it were compacted.
        stretches: the stretches of the line, oldest first; only the last one, with the blocks from `base` on, is live.
        checkpoint, uid: the newest checkpoint of the live line; None between a revert and the next checkpoint.
        number: the `number` of the first message after it.
        attempt: the keys of the blocks that the running attempt of a model call has streamed.
        replaced: the keys of those that earlier attempts have streamed; the first block of the next attempt takes their place.
        pins: the pinned messages, each as the uid of its checkpoint and its index after that.
    """

    blocks: list[Block] = field(default_factory=list[Block])
    tail: int = 0
    base: int = 0
    stretches: tuple[Stretch, ...] = field(default_factory=lambda: (Stretch(),))
    checkpoint: int | None = None
    uid: str = ""
    number: int = 0
    attempt: set[int] = field(default_factory=set[int])
    replaced: set[int] = field(default_factory=set[int])
    pins: frozenset[tuple[str, int]] = frozenset()
    _next_key: int = 0
    _found: int = 0
    """The index of the block that was found last."""

    @property
    def end(self) -> int:
        """The index behind the last block that is not queued."""
        return len(self.blocks) - self.tail

    @property
    def last(self) -> Block | None:
        """The newest block that is not queued."""
        n_before = len(self.blocks) - self.tail
        return self.blocks[n_before - 1] if n_before > 0 else None

    def new(self, kind: Callable[..., B], at: float) -> B:
        """Create a block of this class at the newest checkpoint; it is not inserted into the list."""
        return kind(
            key=self.new_key(),
            checkpoint=self.checkpoint,
            uid=self.uid,
            number=self.number,
            stretch=self.stretches[-1],
            at=at,
        )

    def new_key(self) -> int:
        """Return a key that no block has."""
        self._next_key += 1
        return self._next_key

    def append(self, block: Block) -> Change:
        """Insert a block after the last one that is not queued."""
        return self.insert(self.end, block)

    def insert(self, index: int, block: Block) -> Change:
        """Insert a block before the one at this index."""
        if self.pins and (block.uid, block.number) in self.pins:
            # The message was pinned while it was being written.
            block.pinned = True
        self.blocks.insert(index, block)
        return Change(index)

    def queue(self, block: Block) -> Change:
        """Append a queued block, which stays last until it is removed."""
        self.blocks.append(block)
        self.tail += 1
        return Change(len(self.blocks) - 1)

    def touched(self, block: Block) -> Change:
        """Note that a block has changed."""
        block.touch()
        return self.at(block)

    def at(self, block: Block) -> Change:
        """Return the index of a block; None if it is not in the list, but among those folded into a D-Mail."""
        # Changed blocks are nearly always at the end, or close to the last changed block: the calls of a step, one after another.
        last = self.end - 1
        if last >= 0 and self.blocks[last] is block:
            self._found = last
            return Change(last)
        near = range(max(0, self._found - _NEAR), min(self._found + _NEAR, len(self.blocks)))
        for index in chain(near, range(len(self.blocks) - 1, -1, -1)):
            if self.blocks[index] is block:
                self._found = index
                return Change(index)
        return NOTHING

    def remove(self, block: Block) -> Change:
        """Remove a block."""
        change = self.at(block)
        if change.first is not None:
            if change.first >= self.end:
                self.tail -= 1
            del self.blocks[change.first]
        return change

    def begin_point(self, checkpoint: int, uid: str, first: int = 0) -> None:
        """Begin a new checkpoint; the first message after it has the number `first`."""
        self.checkpoint, self.uid, self.number = checkpoint, uid, first

    def first_from(self, checkpoint: int) -> int:
        """Return the index of the first block on the live line that belongs to this checkpoint or a later one, or was replaced by it."""
        return first_from(self.blocks, self.base, self.end, checkpoint)

    def forget_point(self) -> None:
        """Forget the current checkpoint: the live line has changed, and its next checkpoint was not published yet."""
        self.checkpoint, self.uid, self.number = None, "", 0
        self.keep_attempts()

    def keep_attempts(self) -> None:
        """Keep all that was streamed: the call has ended."""
        self.attempt.clear()
        self.replaced.clear()

    def retry_attempt(self) -> None:
        """Have the blocks of the running attempt stay until the next attempt streams its first one: it failed."""
        self.replaced |= self.attempt
        self.attempt.clear()

    def append_of_attempt(self, block: Block) -> Change:
        """Append a block that the running attempt streams, in place of those of earlier attempts."""
        change = self._drop(self.replaced)
        self.attempt.add(block.key)
        return both(change, self.append(block))

    def drop_replaced(self) -> Change:
        """Remove the blocks of the attempts that failed."""
        return self._drop(self.replaced)

    def drop_attempts(self) -> Change:
        """Remove the blocks of all attempts of a call, none of which is in the context."""
        return both(self._drop(self.replaced), self._drop(self.attempt))

    def _drop(self, keys: set[int]) -> Change:
        """Remove the blocks with these keys, which are among the newest, and forget the keys."""
        first = None
        for index in range(len(self.blocks) - 1, -1, -1):
            if not keys:
                break
            key = self.blocks[index].key
            if key in keys:
                keys.discard(key)
                if index >= self.end:
                    self.tail -= 1
                del self.blocks[index]
                first = index
        keys.clear()
        return Change(first)
