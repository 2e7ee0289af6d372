"""The lines that were left: what the journal says of them, and where it says nothing, what the files themselves tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from kimi_tui.llm.message import Message
from kimi_tui.session.classify import Guess, classify
from kimi_tui.session.errors import UnknownWorldLine
from kimi_tui.session.journal import Entry, Journal
from kimi_tui.session.line import LineIndex
from kimi_tui.session.line_files import line_path, stored_lines
from kimi_tui.session.opening import scan_line
from kimi_tui.session.records import Checkpoint
from kimi_tui.session.storage import Storage
from kimi_tui.session.stored_messages import StoredMessages

# A marker, and what comes after it.
_COMPARED_MESSAGES = 2
_Line: TypeAlias = tuple[Sequence[Checkpoint], Sequence[Message]]


@dataclass(frozen=True, slots=True)
class WorldLine:
    """A line that was left.

    Attributes:
        n: Its number; 0 is the live line.
        reason: The operation that left it, `foreign` for another program's file, `unknown` where nothing tells.
        checkpoint_id: Where that operation went back to (-1 for nowhere in particular), `uid` its name.
        at: When it was left.
        messages_dropped: How many of its messages are not in what followed.
        text: The D-Mail, or the summary.
        checkpoints: All of its checkpoints, also those it shares with others.
        n_messages: How many messages it holds, markers not counted.
        shared: How many of its first checkpoints are the live line's too.
    """

    n: int
    reason: str
    checkpoint_id: int
    uid: str
    at: str
    tokens_before: int
    tokens_after: int
    messages_dropped: int
    text: str
    size_bytes: int
    checkpoints: Sequence[Checkpoint] = field(default=())
    n_messages: int = 0
    shared: int = 0


class WorldLines:
    """The world lines of one session, read from its folder. Methods read files: call them in a thread.

    Args:
        folder: The session's folder.
        journal: Its journal, loaded.
        storage: The disk.
    """

    def __init__(self, folder: Path, journal: Journal, storage: Storage | None = None) -> None:
        self._folder = folder
        self._journal = journal
        self._storage = storage or Storage()
        self._known: dict[int, tuple[int, LineIndex]] = {}

    def list(
        self, live: Sequence[Checkpoint] = (), messages: Sequence[Message] = ()
    ) -> list[WorldLine]:
        """Every world line, in order of number.

        Args:
            live: The checkpoints of the live line, to tell what they share.
            messages: Its messages.
        """
        sizes = stored_lines(self._folder)
        left_by = {entry.n: entry for entry in reversed(self._journal.entries) if entry.stored}
        numbers = list(sizes)
        return [
            self._describe(n, sizes[n], left_by.get(n), following, (live, messages))
            for n, following in zip(numbers, [*numbers[1:], 0], strict=False)
        ]

    def index(self, n: int) -> LineIndex:
        """Where things stand in a world line.

        Raises:
            UnknownWorldLine: There is no such line, or it cannot be read.
        """
        size = stored_lines(self._folder).get(n)
        if size is None:
            raise UnknownWorldLine(f"There is no world line {n}.")
        known = self._known.get(n)
        if known is None or known[0] != size:
            try:
                known = (size, scan_line(self._storage, self._folder, n))
            except OSError as error:
                raise UnknownWorldLine(f"World line {n} cannot be read: {error}.") from error
            self._known[n] = known
        return known[1]

    def messages_of(self, n: int) -> Sequence[Message]:
        """The messages of a world line, each read when it is looked at.

        Raises:
            UnknownWorldLine: There is no such line.
        """
        return StoredMessages(self._storage, line_path(self._folder, n), self.index(n))

    def _describe(
        self, n: int, size: int, entry: Entry | None, following: int, live: _Line
    ) -> WorldLine:
        own: Sequence[Message] = ()
        try:
            index = self.index(n)
            own = self.messages_of(n)
        except UnknownWorldLine:
            index = LineIndex()
        shared = shared_checkpoints((index.checkpoints, own), live)
        guess = None if entry or n in self._journal.foreign else self._guess(n, following)
        told = (
            entry or guess or Guess(reason="foreign" if n in self._journal.foreign else "unknown")
        )
        return WorldLine(
            n=n,
            reason=entry.op if entry else told.reason,
            checkpoint_id=told.checkpoint_id,
            uid=told.uid,
            at=told.at,
            tokens_before=told.tokens_before,
            tokens_after=told.tokens_after,
            messages_dropped=told.messages_dropped,
            text=told.text,
            size_bytes=size,
            checkpoints=index.checkpoints,
            n_messages=index.counts(0)[0],
            shared=shared,
        )

    def _guess(self, n: int, following: int) -> Guess | None:
        try:
            return classify(
                self._storage, line_path(self._folder, n), line_path(self._folder, following)
            )
        except OSError:
            return None


def shared_checkpoints(one: _Line, other: _Line) -> int:
    """How many first checkpoints two lines share, each given as its checkpoints and its messages.

    A name that was made from the bytes before a checkpoint is the same again where a line was cut there and begun anew:
    the last common one counts only if what it began is the same.
    """
    count = 0
    for mine, theirs in zip(one[0], other[0], strict=False):
        if mine.uid != theirs.uid:
            break
        count += 1
    if count and not _begins_alike(one, other, count - 1):
        count -= 1
    return count


def _begins_alike(one: _Line, other: _Line, place: int) -> bool:
    """Whether the first messages after a checkpoint are the same on both lines, as far as both have some."""
    mine, theirs = (
        line[1][line[0][place].message_index :][:_COMPARED_MESSAGES] for line in (one, other)
    )
    return all(a == b for a, b in zip(mine, theirs, strict=False))
