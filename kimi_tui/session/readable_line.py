"""What the live line holds, for whoever reads it: messages, checkpoints, token figures, and how much of it is safe.

Nothing here changes anything; that is `context`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from kimi_tui.session.errors import StorageTrouble, UnknownCheckpoint
from kimi_tui.session.journal import Journal
from kimi_tui.session.line import LineIndex
from kimi_tui.session.line_keeper import LineKeeper
from kimi_tui.session.message_list import MessageList
from kimi_tui.session.records import Checkpoint
from kimi_tui.session.storage import Storage


class ReadableLine:
    """The live line of one session, read only.

    Args:
        keeper: keeps it.
    """

    def __init__(self, keeper: LineKeeper) -> None:
        self._keeper = keeper
        self.folder: Path = keeper.folder
        self.storage: Storage = keeper.storage
        self.whole_request: Callable[[int], int] = lambda tokens: tokens
        """What is sent where texts hold so many tokens, for lines of which no server has told; who sends knows more."""

    @property
    def journal(self) -> Journal:
        """The journal of operations."""
        return self._keeper.journal

    @property
    def index(self) -> LineIndex:
        """Where things stand in the live line; not to be changed."""
        return self._keeper.index

    @property
    def messages(self) -> MessageList:
        """The messages of the live line, parsed when looked at."""
        return self._keeper.messages

    @property
    def system_prompt(self) -> str | None:
        """The system prompt this session was begun with."""
        return self.index.system_prompt

    @property
    def checkpoints(self) -> Sequence[Checkpoint]:
        """The checkpoints of the live line, oldest first; not to be changed."""
        return self.index.checkpoints

    @property
    def n_checkpoints(self) -> int:
        """The id that the next checkpoint gets."""
        return self.index.n_checkpoints

    @property
    def size_bytes(self) -> int:
        """The size of the live line."""
        return self._keeper.live.size

    @property
    def token_count(self) -> int:
        """Tokens of the live line: the last usage, and an estimate of what came after it."""
        return self._tokens_before(self.size_bytes)

    @property
    def token_count_estimated(self) -> bool:
        """Whether any of it is an estimate."""
        usage = self.index.usage_before(self.size_bytes)
        if usage is None or usage[1] < self.index.n_messages:
            return True
        return self.index.is_estimated_before(self.size_bytes)

    @property
    def trouble(self) -> StorageTrouble | None:
        """Why what is new is not saved, if it is not."""
        return self._keeper.live.trouble

    @property
    def unsaved_bytes(self) -> int:
        """How much is in memory only."""
        return self._keeper.live.unsaved_bytes

    @property
    def unsaved_messages(self) -> int:
        """How many messages are in memory only, at least in part; markers do not count."""
        safe = self.size_bytes - self.unsaved_bytes
        first = self.index.messages_before(safe)
        return self.index.counts(first)[0] if self.unsaved_bytes else 0

    @property
    def unsaved_words(self) -> str:
        """A sentence on what is in memory only; empty if nothing is."""
        count = self.unsaved_messages
        if not count:
            return ""
        what = "1 message is" if count == 1 else f"{count:,} messages are"
        why = f" {self.trouble.message}" if self.trouble else ""
        return f"{what} not saved.{why}"

    def checkpoint_of(self, checkpoint_id: int) -> Checkpoint:
        """A checkpoint of the live line.

        Raises:
            UnknownCheckpoint: It has none of that id.
        """
        return known_checkpoint(self.index, checkpoint_id)

    def find_uid(self, uid: str) -> Checkpoint | None:
        """The checkpoint of that uid on the live line, under this name or the one it had before a compaction."""
        return next((point for point in self.checkpoints if uid in (point.uid, point.was)), None)

    def tokens_at(self, checkpoint_id: int) -> int:
        """Tokens of what precedes a checkpoint: the last usage before it plus an estimate.

        Raises:
            UnknownCheckpoint: There is none of that id.
        """
        return self._tokens_before(self.checkpoint_of(checkpoint_id).offset)

    def read(self, size: int, offset: int) -> bytes:
        """Bytes of the live line.

        Raises:
            OSError: They are not in memory, and the disk does not give them.
        """
        return self._keeper.live.read(size, offset)

    def _tokens_before(self, offset: int) -> int:
        tokens = self._keeper.tokens.before(self.index, offset, self.messages)
        return self._sent(self.index, offset, tokens)

    def _sent(self, index: LineIndex, offset: int, tokens: int) -> int:
        return tokens if index.usage_before(offset) is not None else self.whole_request(tokens)


def known_checkpoint(index: LineIndex, checkpoint_id: int) -> Checkpoint:
    """A checkpoint of a line.

    Raises:
        UnknownCheckpoint: It has none of that id.
    """
    found = index.checkpoint(checkpoint_id)
    if found is None:
        last = index.n_checkpoints - 1
        there = f"#0 to #{last}" if last > 0 else "only #0" if last == 0 else "none at all"
        raise UnknownCheckpoint(f"There is no checkpoint #{checkpoint_id} here; there is {there}.")
    return found
