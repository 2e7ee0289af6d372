"""The messages of a line as a sequence that parses only what is looked at.

A hundred megabytes of conversation open at once this way; what was parsed is kept up to a limit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import overload

from kimi_tui.llm.message import Message
from kimi_tui.session.jsonl import parse
from kimi_tui.session.line import LineIndex, Read
from kimi_tui.session.records import message_of

CACHE_BYTES = 32 << 20


class MessageCache:
    """Parsed messages by their offset, the least lately used dropped beyond a number of raw bytes."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, tuple[Message, int]] = OrderedDict()
        self._size_bytes = 0

    def get(self, offset: int) -> Message | None:
        """The message at an offset, if it was parsed lately."""
        found = self._known.get(offset)
        if found is None:
            return None
        self._known.move_to_end(offset)
        return found[0]

    def put(self, offset: int, message: Message, size_bytes: int) -> None:
        """Keep a message."""
        if offset in self._known:
            return
        self._known[offset] = (message, size_bytes)
        self._size_bytes += size_bytes
        while self._size_bytes > CACHE_BYTES and len(self._known) > 1:
            _, (_, dropped) = self._known.popitem(last=False)
            self._size_bytes -= dropped

    def cut(self, offset: int) -> None:
        """Forget what begins at an offset or after it."""
        for known in [known for known in self._known if known >= offset]:
            _, dropped = self._known.pop(known)
            self._size_bytes -= dropped

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()
        self._size_bytes = 0


class MessageList(Sequence[Message]):
    """Messages `first` up to before `last` of a line; `last` None follows the line as it grows.

    Args:
        index: Where they stand.
        read: Gives their bytes.
        cache: Keeps what was parsed.
        first: The number of the first one.
        last: The number after the last one.
    """

    def __init__(
        self,
        index: LineIndex,
        read: Read,
        cache: MessageCache,
        first: int = 0,
        last: int | None = None,
    ) -> None:
        self._index = index
        self._read = read
        self._cache = cache
        self._first = first
        self._last = last

    def __len__(self) -> int:
        end = self._index.n_messages if self._last is None else self._last
        return max(0, end - self._first)

    def __iter__(self) -> Iterator[Message]:
        place = 0
        while place < len(self):
            yield self._message(self._first + place)
            place += 1

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                end = self._first + max(start, stop)
                return MessageList(self._index, self._read, self._cache, self._first + start, end)
            return [self._message(self._first + place) for place in range(start, stop, step)]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError("message index out of range")
        return self._message(self._first + place)

    def preload(self, size_bytes: int) -> None:
        """Parse the newest messages, up to a number of raw bytes."""
        for place in range(self._first + len(self) - 1, self._first - 1, -1):
            size_bytes -= self._index.place(place)[1]
            if size_bytes < 0:
                return
            self._message(place)

    def _message(self, place: int) -> Message:
        offset, length = self._index.place(place)
        message = self._cache.get(offset)
        if message is None:
            message = parse_message(self._read(length, offset))
            self._cache.put(offset, message, length)
        return message


def parse_message(data: bytes) -> Message:
    """The message of a line that the index took for one."""
    record = parse(data)
    message = message_of(record) if isinstance(record, dict) else None
    # The index has read the same bytes before; only a file changed under us gets here.
    return message or Message(role="user", content="(this message can no longer be read)")
