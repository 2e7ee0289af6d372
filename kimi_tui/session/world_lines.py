"""The world lines that were left: their numbers, reasons and checkpoints, from the journal or inferred from the files.

For sessions of kimi-cli, which has no journal, and for ours whose journal is lost, `infer_revert` compares two files and
infers why one was left for the next: D-Mail, compaction, clear or rewind. Everything here reads files, so call it in a
thread.
"""

from __future__ import annotations

import builtins
import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kimi_tui import lenient_json
from kimi_tui.filesystem import Storage
from kimi_tui.session.context import scan_world_line
from kimi_tui.session.context_index import (
    EMPTY_WORLD_LINE,
    ContextIndex,
    StoredMessages,
    WorldLineContent,
)
from kimi_tui.session.errors import UnknownWorldLine
from kimi_tui.session.journal import FUTURE, Journal, JournalEntry
from kimi_tui.session.jsonl import lines, parse
from kimi_tui.session.rotation import stored_world_lines, world_line_path
from kimi_tui.session.schema import (
    CHECKPOINT,
    MESSAGE_ROLES,
    SYSTEM_PROMPT,
    USAGE,
    Checkpoint,
    Operation,
    count_of,
    dmail_text_of,
    internal_kind,
    summary_of,
)

if TYPE_CHECKING:
    from kimi_tui.llm.message import Message

# Two messages are compared: a marker, and the message after it.
_COMPARED_MESSAGES = 2
# The index of a long line takes megabytes, so only this many are kept.
_MOST_KNOWN = 4


@dataclass(frozen=True, slots=True)
class WorldLine:
    """A world line that was left.

    Attributes:
        n: The number of the line; 0 is the live line.
        reason: The kind of operation that left it, `foreign` for another program's file, `future` for a future that was never the
            live line, `unknown` if it cannot be found out.
        left_by: The operation that left it last, as journaled or as far as the files tell; blank but for its `n` if they tell
            nothing. For a future it has the time of its end, its tokens then, and the number of messages that the live line does not
            have. Undo and redo keep the reason for which the line was left before.
        left_before: The operations that left it earlier, oldest first.
        checkpoints: All of its checkpoints, including those that it shares with other lines.
        n_messages: The number of its messages, markers not counted.
        shared: The number of its first checkpoints that are on the live line too.
    """

    n: int
    reason: str
    left_by: JournalEntry
    size_bytes: int
    checkpoints: Sequence[Checkpoint] = field(default=())
    n_messages: int = 0
    shared: int = 0
    left_before: tuple[JournalEntry, ...] = ()


class StoredWorldLines:
    """The world lines of one session, read from its folder.

    Args:
        folder: The session's folder.
        journal: Its journal, loaded.
        storage: The disk.
    """

    def __init__(self, folder: Path, journal: Journal, storage: Storage | None = None) -> None:
        self._folder = folder
        self._journal = journal
        self._storage = storage or Storage()
        self._known: dict[int, tuple[int, ContextIndex]] = {}

    def list(self, live: WorldLineContent = EMPTY_WORLD_LINE) -> builtins.list[WorldLine]:
        """List every world line, ordered by number; `live` is the live line, for computing `shared`."""
        sizes = stored_world_lines(self._folder)
        left_by: dict[int, list[JournalEntry]] = {}
        for entry in self._journal.entries:
            is_again = entry.n in left_by and entry.size == sizes.get(entry.n)
            if entry.stored or (is_again and entry.op not in ("undo", "redo")):
                left_by.setdefault(entry.n, []).append(entry)
        numbers = list(sizes)
        return [
            self._describe(n, sizes[n], left_by.get(n, ()), following, live)
            for n, following in zip(numbers, [*numbers[1:], 0], strict=False)
        ]

    def index(self, n: int) -> ContextIndex:
        """Return the index of a world line.

        Raises:
            UnknownWorldLine: No line has that number, or it cannot be read.
        """
        size = stored_world_lines(self._folder).get(n)
        if size is None:
            raise UnknownWorldLine(f"There is no world line {n}.")
        known = self._known.get(n)
        if known is None or known[0] != size:
            try:
                known = (size, scan_world_line(self._storage, self._folder, n))
            except OSError as error:
                raise UnknownWorldLine(f"World line {n} cannot be read: {error}.") from error
            self._keep(n, known)
        return known[1]

    def remember(self, n: int, index: ContextIndex) -> None:
        """Cache the index of world line `n`, which was just left, so that its file need not be read."""
        self._keep(n, (index.size, index))

    def _keep(self, n: int, known: tuple[int, ContextIndex]) -> None:
        self._known.pop(n, None)
        self._known[n] = known
        for oldest in list(self._known)[:-_MOST_KNOWN]:
            self._known.pop(oldest, None)

    def read(self, n: int) -> WorldLineContent:
        """Return a world line whose messages are read from its file when they are accessed.

        Raises:
            UnknownWorldLine: No line has that number, or it cannot be read.
        """
        index = self.index(n)
        path = world_line_path(self._folder, n)
        return WorldLineContent(index, StoredMessages(self._storage, path, index))

    def _describe(
        self,
        n: int,
        size: int,
        entries: Sequence[JournalEntry],
        following: int,
        live: WorldLineContent,
    ) -> WorldLine:
        line = EMPTY_WORLD_LINE
        with contextlib.suppress(UnknownWorldLine):
            line = self.read(n)
        is_foreign = n in self._journal.foreign
        entry = entries[-1] if entries else None
        is_future = entry is None and n in self._journal.futures
        if entry is None and not (is_foreign or is_future):
            entry = self._inferred(n, following)
        known = FUTURE if is_future else "foreign" if is_foreign else "unknown"
        shared = shared_checkpoints(line, live)
        blank = JournalEntry(op="rewind", n=n)
        if is_future:
            blank = _end_of_future(blank, self._journal.futures[n], line, shared)
        return WorldLine(
            n=n,
            reason=entry.op if entry else known,
            left_by=entry or blank,
            size_bytes=size,
            checkpoints=line.checkpoints,
            n_messages=line.index.counts(0)[0],
            shared=shared,
            left_before=tuple(entries[:-1]),
        )

    def _inferred(self, n: int, following: int) -> JournalEntry | None:
        try:
            return infer_revert(
                self._storage,
                world_line_path(self._folder, n),
                world_line_path(self._folder, following),
            )
        except OSError:
            return None


def _end_of_future(
    blank: JournalEntry, note: Mapping[str, object], line: WorldLineContent, shared: int
) -> JournalEntry:
    """Return an entry with the end of a future, its tokens then, and the numbers of messages and calls that the live line lacks."""
    index, points = line.index, line.checkpoints
    start = points[shared].message_index if shared < len(points) else index.n_messages
    messages, calls = index.counts(start)
    usage = index.usage_before(index.size)
    ended = note.get("ended_at")
    at = ""
    with contextlib.suppress(ValueError, OverflowError, OSError):
        if isinstance(ended, int | float) and ended > 0:
            at = datetime.fromtimestamp(ended, UTC).isoformat()
    return replace(
        blank,
        at=at,
        tokens_before=0 if usage is None else usage[0],
        messages_dropped=messages,
        tool_calls_dropped=calls,
    )


def shared_checkpoints(one: WorldLineContent, other: WorldLineContent) -> int:
    """Return the number of first checkpoints that two lines share.

    A name made from the bytes before a checkpoint occurs again if a line was cut there and continued anew, so the last common
    checkpoint counts only if the messages after it are the same.
    """
    count = 0
    for mine, theirs in zip(one.checkpoints, other.checkpoints, strict=False):
        if mine.uid != theirs.uid:
            break
        count += 1
    if count:
        begun = zip(*(_beginning_of(line, count - 1) for line in (one, other)), strict=False)
        # The messages are compared as far as both lines have them.
        count -= any(mine != theirs for mine, theirs in begun)
    return count


def _beginning_of(line: WorldLineContent, place: int) -> Sequence[Message]:
    """Return the first messages after a checkpoint."""
    points, messages = line.checkpoints, line.messages
    start = points[place].message_index
    end = points[place + 1].message_index if place + 1 < len(points) else len(messages)
    return messages[start : min(end, start + _COMPARED_MESSAGES)]


# -- inferring an operation from two files -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Point:
    id: int
    uid: str


def infer_revert(storage: Storage, left: Path, followed: Path) -> JournalEntry:
    """Infer the operation that left a file for the one that followed it, without its number, size and time.

    Raises:
        OSError: One of the files cannot be read.
    """
    with storage.opened(left) as old, storage.opened(followed) as new:
        return _compare(_RecordReader(storage, old), _RecordReader(storage, new))


class _RecordReader:
    """The readable records of a file, one after another; computes the names that checkpoints have by their bytes."""

    def __init__(self, storage: Storage, fd: int) -> None:
        self._hash = hashlib.sha256()
        self._lines = lines(lambda size, offset: storage.pread(fd, size, offset))
        self._records = self._walk()
        self._ahead: dict[str, Any] | None = None

    def next(self) -> dict[str, Any] | None:
        """Return the next record; None at the end."""
        if self._ahead is not None:
            taken, self._ahead = self._ahead, None
            return taken
        return next(self._records, None)

    def put_back(self, record: dict[str, Any]) -> None:
        """Put back the record that was returned last."""
        self._ahead = record

    def point(self, record: dict[str, Any]) -> _Point | None:
        """Return the checkpoint that a record (the last one returned) is."""
        number = count_of(record.get("id")) if record.get("role") == CHECKPOINT else None
        if number is None:
            return None
        uid = lenient_json.text(record.get("uid")) or self._hash.copy().hexdigest()
        return _Point(number, uid)

    def _walk(self) -> Iterator[dict[str, Any]]:
        for line in self._lines:
            self._hash.update(line.data + b"\n" if line.complete else line.data)
            record = parse(line.data) if line.complete else None
            if isinstance(record, dict) and isinstance(record.get("role"), str):
                yield record


def _compare(old: _RecordReader, new: _RecordReader) -> JournalEntry:
    split: _Point | None = None
    only_beginning = True
    # Whether the new line has nothing after its last checkpoint yet, because it was just made there.
    at_point = False
    while True:
        before, after = old.next(), new.next()
        if before is None or after is None or before != after:
            break
        if (point := old.point(before)) is not None:
            split, at_point = point, True
            only_beginning = only_beginning and point.id == 0
        elif before["role"] != SYSTEM_PROMPT and internal_kind(before) != "marker":
            only_beginning = at_point = False
    nothing_followed = after is None
    if after is not None:
        new.put_back(after)
    kind, text, tokens_after = _beginning(new)
    if before is not None:
        old.put_back(before)
    rest = _rest(old)
    if nothing_followed and not at_point and rest.first is not None:
        # The new line ends before the old line's next checkpoint, so it was cut there.
        split = rest.first
    op: Operation = "rewind"
    if kind == "dmail":
        op = "dmail"
    elif kind == "compaction":
        op, split = "compaction", None
    elif only_beginning:
        op = "clear"
    return JournalEntry(
        op=op,
        checkpoint_id=split.id if split else 0,
        uid=split.uid if split else "",
        from_checkpoint=rest.newest if rest.newest >= 0 else (split.id if split else -1),
        tokens_before=rest.tokens,
        tokens_after=tokens_after,
        messages_dropped=rest.messages,
        tool_calls_dropped=rest.calls,
        text=text,
    )


def _beginning(new: _RecordReader) -> tuple[str, str, int]:
    """Return the kind of message with which the new line begins after the split, its text, and the first tokens counted there."""
    kind, text = "", ""
    while (record := new.next()) is not None:
        if record["role"] == USAGE:
            return kind, text, count_of(record.get("token_count")) or 0
        if not kind and record["role"] == "user":
            found = internal_kind(record)
            if found == "dmail":
                kind, text = found, dmail_text_of(record)
            elif found == "compaction":
                kind, text = found, summary_of(record)
            elif found != "marker":
                kind = "said"
    return kind, text, 0


@dataclass(slots=True)
class _Rest:
    first: _Point | None = None
    newest: int = -1
    tokens: int = 0
    messages: int = 0
    calls: int = 0


def _rest(old: _RecordReader) -> _Rest:
    """Read the old line from the split on."""
    rest = _Rest()
    while (record := old.next()) is not None:
        if (point := old.point(record)) is not None:
            rest.first = rest.first or point
            rest.newest = point.id
        elif record["role"] == USAGE:
            tokens = count_of(record.get("token_count"))
            rest.tokens = rest.tokens if tokens is None else tokens
        elif record["role"] in MESSAGE_ROLES and internal_kind(record) != "marker":
            rest.messages += 1
            calls: object = record.get("tool_calls")
            if isinstance(calls, list):
                rest.calls += len(cast("list[object]", calls))
    return rest
