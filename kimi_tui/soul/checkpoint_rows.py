"""The checkpoints of one line as a table: what each began, its tokens, and what it changed.

Pure: made from a line's index and messages, and from what the record tells of its steps; nothing is read or asked here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from kimi_tui.llm.message import Message
from kimi_tui.session.line import LineIndex
from kimi_tui.session.records import Checkpoint
from kimi_tui.session.tokens import LineTokens
from kimi_tui.soul.dmail import files_written
from kimi_tui.soul.segments import Segment, label_of, segments
from kimi_tui.wire import events as ev
from kimi_tui.wire.display import DiffBlock
from kimi_tui.wire.events import CheckpointKind, Record

# Their own message is not sent before the next step asks: what they hold was counted before them.
_UNSENT: frozenset[CheckpointKind] = frozenset({"user", "dmail"})


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """One checkpoint.

    Attributes:
        world_line: The line it is listed on; 0 is the live one.
        at: When it was made, ISO 8601; empty where nothing tells.
        tokens: What was sent there; `estimated` where that is not the server's own figure.
        tokens_change: What the next checkpoint (the end of the line for the last) has more, `change_estimated` where
            either is an estimate.
        files_changed: How many files its step changed.
        bookmark: The person's name for it, or nothing.
    """

    id: int
    uid: str
    world_line: int
    kind: CheckpointKind
    label: str
    at: str
    tokens: int
    estimated: bool
    tokens_change: int
    change_estimated: bool
    files_changed: int
    bookmark: str


@dataclass(frozen=True, slots=True)
class RowSource:
    """What rows are made from besides the line itself.

    Attributes:
        told: The records of each checkpoint, by its uid.
        files: The files that were seen to change in its step, by uid.
        bookmarks: Names by uid.
        estimate: Tokens of a request with so many first messages, where no server has counted any yet.
    """

    told: Mapping[str, Sequence[Record]] = field(default_factory=dict[str, Sequence[Record]])
    files: Mapping[str, Collection[str]] = field(default_factory=dict[str, Collection[str]])
    bookmarks: Mapping[str, str] = field(default_factory=dict[str, str])
    estimate: Callable[[int], int] | None = None


def checkpoint_rows(
    index: LineIndex, messages: Sequence[Message], source: RowSource, *, world_line: int = 0
) -> list[CheckpointRow]:
    """Every checkpoint of a line, oldest first, those it shares with others included.

    Args:
        index: Where things stand in the line.
        messages: Its messages.
        source: What else is known.
        world_line: Its number.
    """
    parts = segments(index.checkpoints, messages)
    before = _Before(index, messages, source.estimate)
    kinds: list[CheckpointKind] = [
        _kind(part, source.told.get(part.point.uid, ())) for part in parts
    ]
    figures = [_tokens(part.point, kind, before) for part, kind in zip(parts, kinds, strict=True)]
    figures.append(before.of(index.size))
    rows: list[CheckpointRow] = []
    for place, part in enumerate(parts):
        point, (tokens, estimated) = part.point, figures[place]
        told = source.told.get(point.uid, ())
        rows.append(
            CheckpointRow(
                id=point.id,
                uid=point.uid,
                world_line=world_line,
                kind=kinds[place],
                label=part.label or _label(told),
                at=point.at or _at(told),
                tokens=tokens,
                estimated=estimated,
                tokens_change=figures[place + 1][0] - tokens,
                change_estimated=estimated or figures[place + 1][1],
                files_changed=len(_files(part, told, source.files.get(point.uid, ()))),
                bookmark=source.bookmarks.get(point.uid, source.bookmarks.get(point.was or "", "")),
            )
        )
    return rows


class _Before:
    """Tokens of what precedes a place of the line, and whether any of that is an estimate."""

    def __init__(
        self, index: LineIndex, messages: Sequence[Message], estimate: Callable[[int], int] | None
    ) -> None:
        self._index = index
        self._messages = messages
        self._estimate = estimate
        self._tokens = LineTokens()

    def of(self, offset: int) -> tuple[int, bool]:
        usage = self._index.usage_before(offset)
        count = self._index.messages_before(offset)
        if usage is None and self._estimate is not None:
            return self._estimate(count), True
        tokens = self._tokens.before(self._index, offset, self._messages)
        return tokens, usage is None or usage[1] < count


def _tokens(point: Checkpoint, kind: CheckpointKind, before: _Before) -> tuple[int, bool]:
    if point.tokens is None or kind in _UNSENT:
        return before.of(point.offset)
    # A compaction's own figure is written by the program, and what it left was shifted; no server has said either.
    return point.tokens, kind in ("compaction", "summary") or point.was is not None


def _kind(part: Segment, told: Sequence[Record]) -> CheckpointKind:
    """What began there; of a step, how it ended where it did not end well."""
    kind = part.kind
    if kind != "step":
        return kind
    if any(message.interrupted for message in part.messages):
        return "interrupted"
    for record in told:
        match record.event:
            case ev.StepInterrupted() | ev.ToolResult(interrupted=True):
                return "interrupted"
            case ev.TurnEnd(reason="error"):
                return "error"
            case _:
                pass
    return kind


def _label(told: Sequence[Record]) -> str:
    """Of a step that left no message: why."""
    errors = (r.event.error for r in told if isinstance(r.event, ev.TurnEnd))
    return label_of(next((error for error in errors if error), ""))


def _at(told: Sequence[Record]) -> str:
    if not told:
        return ""
    try:
        made = datetime.fromtimestamp(told[0].at, UTC)
    except (OverflowError, OSError, ValueError):
        return ""
    return made.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def files_by_checkpoint(records: Iterable[Record]) -> dict[str, set[str]]:
    """The files that were seen to change in each step, commands' changes included, by the uid of its checkpoint."""
    found: dict[str, set[str]] = {}
    for record in records:
        if isinstance(record.event, ev.FilesChanged):
            found.setdefault(record.event.uid, set()).update(record.event.paths)
    return found


def _files(part: Segment, told: Sequence[Record], seen: Collection[str]) -> set[str]:
    """The files that the step changed: what was seen and what its results show, else what its messages tell."""
    shown = {
        block.path
        for record in told
        if isinstance(record.event, ev.ToolResult) and not record.event.is_error
        for block in record.event.display
        if isinstance(block, DiffBlock)
    }
    return shown.union(seen) or set(files_written(part.messages))
