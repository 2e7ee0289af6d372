"""What the chat consists of: one block a message, a thought, a tool call, a letter, an error.

Blocks are changed by the reducer alone; every change raises `version`, so that whoever draws them knows.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from kimi_tui.foreign_text import Cleaner
from kimi_tui.tui.chat.packed import NOTHING_SAID, PackedText
from kimi_tui.wire.display import DisplayBlock

LIVE_LINES = 200
"""Lines of a running tool's output that are kept until its result comes."""

ToolState = Literal["writing", "waiting", "running", "done", "failed", "stopped", "rejected"]


@dataclass(slots=True, eq=False)
class Block:
    """Base of all blocks. `checkpoint` and `uid` name the point before which it stands; None where there is none.

    `number` is which of the messages behind that point it belongs to, as pins name them.
    `live` is false once the point cannot be returned to by its number (it stands before a compaction).
    """

    title_row: ClassVar[int] = 0
    """Which of its rows is the one that keys and pointers act on."""

    key: int
    checkpoint: int | None = None
    uid: str = ""
    number: int = 0
    live: bool = True
    unfolded: bool = False
    pinned: bool = False
    version: int = 0
    at: float = 0.0

    def touch(self) -> None:
        """Something that is drawn has changed."""
        self.version += 1


@dataclass(slots=True, eq=False)
class UserBlock(Block):
    """What the person said. `steer` is its id where it was typed while the agent worked, `queued` until it went in."""

    text: str = ""
    images: int = 0
    steer: str = ""
    queued: bool = False


PIECE = 4_096
"""Streamed text is kept in pieces of about this size: joining all of it for every token would take quadratic time."""


@dataclass(slots=True, eq=False)
class StreamedText:
    """Cleaned text that grows."""

    pieces: list[str] = field(default_factory=list[str])
    cleaner: Cleaner = field(default_factory=Cleaner)
    size: int = 0
    line_ends: int = 0

    def add(self, raw: str) -> None:
        """More, as it came."""
        self._put(self.cleaner.feed(raw))

    def end(self) -> None:
        """Nothing more comes."""
        self._put(self.cleaner.finish())

    def _put(self, text: str) -> None:
        if not text:
            return
        if self.pieces and len(self.pieces[-1]) < PIECE:
            self.pieces[-1] += text
        else:
            self.pieces.append(text)
        self.size += len(text)
        self.line_ends += text.count("\n")

    def part(self, start: int, limit: int) -> str:
        """At most `limit` characters from the one at `start` on."""
        out: list[str] = []
        at = self.size
        for piece in reversed(self.pieces):
            at -= len(piece)
            out.append(piece)
            if at <= start:
                break
        return "".join(reversed(out))[start - at : start - at + limit]

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self.pieces)


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
    """One tool call. `tokens` is what its step added to the window, `tokens_estimated` until the next call tells."""

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

    @property
    def output(self) -> str:
        """What the tool gave back."""
        return self.result.text

    @output.setter
    def output(self, text: str) -> None:
        self.result = PackedText.of(text)

    @property
    def over(self) -> bool:
        """Whether its result is there."""
        return self.state in {"done", "failed", "stopped", "rejected"}

    def add_output(self, text: str) -> None:
        """More live output, already clean; only the last lines are kept."""
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
    """A letter that arrived here, and what it undid, to be read only.

    `is_moved` once its checkpoint has another number than when it came: where it came from has none on this line.
    `facts` is what the program added; of a message that was carried over (`is_carried`) it says whose that was.
    """

    title_row: ClassVar[int] = 1

    letter: str = ""
    facts: str = ""
    author: Literal["agent", "person"] = "agent"
    from_checkpoint: int = 0
    is_moved: bool = False
    tokens_saved: int = 0
    estimated: bool = False
    world_line: int = 0
    tool_calls: int = 0
    steps: int = 0
    kept: tuple[tuple[str, int], ...] = ()
    folded: tuple[Block, ...] = ()

    @property
    def undid(self) -> bool:
        """Whether anything was cut away for it; else it was only added, or nothing is known of what was."""
        return self.checkpoint is not None and self.from_checkpoint >= self.checkpoint

    @property
    def is_carried(self) -> bool:
        """Whether it is a message that the person carried over from another line."""
        return self.author == "person" and not self.undid and bool(self.facts)

    @property
    def unfolds(self) -> bool:
        """Whether there is more to read than the letter."""
        return bool(self.folded) or (bool(self.facts) and not self.is_carried)


@dataclass(slots=True, eq=False)
class CompactionBlock(Block):
    """A summary that stands for all above it; `running` while it is being written, `edited` by the person since."""

    tokens_before: int = 0
    tokens_after: int = 0
    summary: str = ""
    running: bool = True
    automatic: bool = False
    edited: bool = False


@dataclass(slots=True, eq=False)
class RetryBlock(Block):
    """A failed model call that will be tried again at `due` (seconds since 1970)."""

    reason: str = ""
    attempt: int = 1
    max_attempts: int = 1
    wait_s: float = 0.0
    due: float = 0.0


@dataclass(slots=True, eq=False)
class ErrorBlock(Block):
    """The turn ended in an error."""

    title: str = ""
    reason: str = ""
    advice: str = ""


@dataclass(slots=True, eq=False)
class MarkBlock(Block):
    """One quiet row: stopped, refused, files brought back."""

    glyph: Literal["stopped", "done", "files", "none"] = "none"
    text: str = ""


@dataclass(slots=True, eq=False)
class NoticeBlock(Block):
    """Something to know, where it happened."""

    level: Literal["info", "warning", "error"] = "info"
    text: str = ""
    advice: str = ""
