"""The index of a context file: offsets and kinds of messages, checkpoints and usage records, and estimates of tokens.

`ContextIndex` is built once by reading the whole file, and updated by appends and cuts without parsing again. `MessageList`
and `StoredMessages` are sequences of messages that are parsed when accessed, so that a hundred megabytes of conversation open
at once. `TokenEstimate` is used until a server has given a figure; it is cheap enough for the event loop.
"""

from __future__ import annotations

import gc
import hashlib
import threading
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

from kimi_tui import lenient_json
from kimi_tui.filesystem import Storage
from kimi_tui.llm.tokens import message_tokens, text_tokens
from kimi_tui.session.errors import UnknownCheckpoint
from kimi_tui.session.jsonl import CHUNK_BYTES, RawLine, SkippedLine, lines, parse
from kimi_tui.session.schema import (
    CHECKPOINT,
    MESSAGE_ROLES,
    SYSTEM_PROMPT,
    USAGE,
    AddedLine,
    Checkpoint,
    MessageKind,
    RecordFacts,
    count_of,
    facts_of,
    is_message,
    message_of,
)

if TYPE_CHECKING:
    from kimi_tui.llm.message import Message

Read = Callable[[int, int], bytes]
_MAX_SKIPPED_KEPT = 1_000
CACHE_BYTES = 32 << 20
_LOOKED_UP_AT_ONCE = 500
_COLLECTED = 512
"""Messages that are dropped between two collections."""
_COPIED = 500
"""Messages of a cache that are copied while nobody else may ask for one."""
# If more bytes than this follow the last usage, only the newest are read, and the rest is estimated by its size.
_LOOKED_AT_BYTES = 1 << 18
_LARGE_BYTES = 1 << 16
_TOKENS_A_BYTE = 0.25


@dataclass(slots=True)
class ContextIndex:
    """The byte offsets of the messages and checkpoints in a context file, their kinds and estimated tokens.

    `skipped` are records that could not be read (the first thousand; `n_skipped` is the number of all). Records of unknown
    kinds, which a later version may know, are ignored. `torn` are the bytes after the last line feed on the disk.
    """

    size: int = 0
    system_prompt: str | None = None
    checkpoints: list[Checkpoint] = field(default_factory=list[Checkpoint])
    skipped: list[SkippedLine] = field(default_factory=list[SkippedLine])
    n_skipped: int = 0
    torn: bytes = b""
    _starts: array[int] = field(default_factory=lambda: array("Q"))
    _lengths: array[int] = field(default_factory=lambda: array("Q"))
    _kinds: bytearray = field(default_factory=bytearray)
    _calls: array[int] = field(default_factory=lambda: array("I"))
    # The images of each message cost these tokens, which the length of the record does not show.
    _image_tokens: array[int] = field(default_factory=lambda: array("I"))
    # The numbers of the messages that call a tool, by the tool's name.
    _callers: dict[str, array[int]] = field(default_factory=dict[str, "array[int]"])
    _usage_starts: array[int] = field(default_factory=lambda: array("Q"))
    _usage_tokens: array[int] = field(default_factory=lambda: array("Q"))
    _usage_estimated: array[int] = field(default_factory=lambda: array("B"))
    _prompts: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    # Whether the ids rise by one from the first checkpoint on.
    _regular: bool = True

    @classmethod
    def scan(cls, read: Read) -> ContextIndex:
        """Read a whole file through. Never raises on content."""
        index = cls()
        nameless: list[int] = []
        for line in lines(read):
            if line.complete:
                index._add_line(line, nameless)
            else:
                index.torn = line.data
        if nameless:
            index._name(read, nameless)
        return index

    @property
    def n_messages(self) -> int:
        """The number of messages in the file."""
        return len(self._starts)

    @property
    def n_checkpoints(self) -> int:
        """The id of the next checkpoint."""
        if self._regular:
            return self.checkpoints[-1].id + 1 if self.checkpoints else 0
        return max((point.id for point in self.checkpoints), default=-1) + 1

    def place(self, index: int) -> tuple[int, int]:
        """Return the offset and the length of a message's record, without its line feed."""
        return self._starts[index], self._lengths[index]

    def starts(self, first: int, last: int) -> Sequence[int]:
        """Return the offsets of the records of messages, from one number up to before another."""
        return self._starts[first:last]

    def checkpoint(self, checkpoint_id: int) -> Checkpoint:
        """Return the (first) checkpoint with this id.

        Raises:
            UnknownCheckpoint: No checkpoint has this id; the text names the existing ids.
        """
        # Ids rise by one except in damaged files, so a checkpoint's place is nearly always its id less the first id.
        if self.checkpoints:
            guess = checkpoint_id - self.checkpoints[0].id
            if 0 <= guess < len(self.checkpoints) and self._regular:
                return self.checkpoints[guess]
        for point in self.checkpoints:
            if point.id == checkpoint_id:
                return point
        last = self.n_checkpoints - 1
        there = f"#0 to #{last}" if last > 0 else "only #0" if last == 0 else "no checkpoint"
        raise UnknownCheckpoint(
            f"There is no checkpoint #{checkpoint_id}; this world line has {there}."
        )

    def usage_before(self, offset: int) -> tuple[int, int] | None:
        """Return the last usage before an offset: its tokens and the number of messages before it."""
        place = bisect_left(self._usage_starts, offset) - 1
        if place < 0:
            return None
        return self._usage_tokens[place], bisect_left(self._starts, self._usage_starts[place])

    def first_usage(self) -> tuple[int, int] | None:
        """Return the first usage that is no estimate: its tokens and its offset."""
        for place, estimated in enumerate(self._usage_estimated):
            if not estimated:
                return self._usage_tokens[place], self._usage_starts[place]
        return None

    def is_estimated_before(self, offset: int) -> bool:
        """Return whether the last usage before an offset is an estimate; False if there is none."""
        place = bisect_left(self._usage_starts, offset) - 1
        return place >= 0 and bool(self._usage_estimated[place])

    def is_estimated_behind(self, offset: int) -> bool:
        """Return whether the first usage from an offset on is an estimate; False if there is none."""
        place = bisect_left(self._usage_starts, offset)
        return place < len(self._usage_estimated) and bool(self._usage_estimated[place])

    def usages_between(self, start: int, end: int) -> list[int]:
        """Return the token counts of the usage records between two offsets, in order."""
        first = bisect_left(self._usage_starts, start)
        return list(self._usage_tokens[first : bisect_left(self._usage_starts, end, first)])

    def messages_before(self, offset: int) -> int:
        """Return the number of messages that begin before an offset."""
        return bisect_left(self._starts, offset)

    def counts(self, first: int, last: int | None = None) -> tuple[int, int]:
        """Count the messages other than markers, and the tool calls, from message `first` up to before `last`."""
        kinds = self._kinds[first:last]
        return len(kinds) - kinds.count(MessageKind.MARKER), sum(self._calls[first:last])

    def kinds(self, first: int = 0, last: int | None = None) -> bytes:
        """Return the `MessageKind` of each message from `first` up to before `last`, as bytes."""
        return bytes(self._kinds[first:last])

    def calls(self, first: int = 0, last: int | None = None) -> Sequence[int]:
        """Return the number of tool calls of each of these messages."""
        return self._calls[first:last]

    def image_tokens(self, first: int = 0, last: int | None = None) -> int:
        """Estimate the tokens of the images in these messages."""
        return sum(self._image_tokens[first:last])

    def has_call(self, name: str, first: int = 0) -> bool:
        """Return whether any message from `first` on calls the tool with this name."""
        callers = self._callers.get(name)
        return bool(callers) and callers[-1] >= first

    def tools_called(self, first: int) -> list[str]:
        """Return the names of the tools that messages from `first` on call."""
        return [name for name, places in self._callers.items() if places and places[-1] >= first]

    def callers(self, name: str, first: int) -> list[int]:
        """Return the numbers of the messages from `first` on that call the tool with this name."""
        return [place for place in self._callers.get(name, ()) if place >= first]

    def is_marker(self, index: int) -> bool:
        """Return whether a message only names a checkpoint."""
        return self._kinds[index] == MessageKind.MARKER

    def is_result(self, index: int) -> bool:
        """Return whether a message is the result of a tool call."""
        return self._kinds[index] in (MessageKind.RESULT, MessageKind.FAILED)

    def add(self, lines: Iterable[AddedLine]) -> None:
        """Add appended lines; a message's record is parsed only if its facts are not given."""
        for number, (data, _, facts) in enumerate(lines, 1):
            if facts is None:
                self._add_line(RawLine(number, self.size, data[:-1], complete=True), nameless=[])
            else:
                self._add_message(self.size, len(data) - 1, facts)
                self.size += len(data)

    def prefix(self, offset: int) -> ContextIndex:
        """Return the index of the part before an offset, which must be the beginning of a record."""
        copied = replace(
            self,
            checkpoints=list(self.checkpoints),
            skipped=list(self.skipped),
            torn=b"",
            _starts=self._starts[:],
            _lengths=self._lengths[:],
            _kinds=self._kinds[:],
            _calls=self._calls[:],
            _image_tokens=self._image_tokens[:],
            _callers={name: places[:] for name, places in self._callers.items()},
            _usage_starts=self._usage_starts[:],
            _usage_tokens=self._usage_tokens[:],
            _usage_estimated=self._usage_estimated[:],
            _prompts=list(self._prompts),
        )
        copied.cut(offset)
        return copied

    def cut(self, offset: int) -> None:
        """Forget everything from an offset on, which must be the beginning of a record."""
        keep = bisect_left(self._starts, offset)
        del self._starts[keep:], self._lengths[keep:], self._kinds[keep:], self._calls[keep:]
        del self._image_tokens[keep:]
        for places in self._callers.values():
            del places[bisect_left(places, keep) :]
        usages = bisect_left(self._usage_starts, offset)
        del self._usage_starts[usages:], self._usage_tokens[usages:]
        del self._usage_estimated[usages:]
        points = bisect_left(self.checkpoints, offset, key=lambda point: point.offset)
        del self.checkpoints[points:]
        self._prompts = [prompt for prompt in self._prompts if prompt[0] < offset]
        self.system_prompt = self._prompts[-1][1] if self._prompts else None
        self.skipped = [line for line in self.skipped if line.byte < offset]
        self.n_skipped = min(self.n_skipped, len(self.skipped))
        self.size = offset
        self._regular = self._regular or _is_regular(self.checkpoints)

    def _add_line(self, line: RawLine, nameless: list[int]) -> None:
        self.size = line.end
        record = parse(line.data)
        if record is None:
            return
        if isinstance(record, str):
            self._skip(line, record)
            return
        role = record.get("role")
        if not isinstance(role, str):
            # A record with a type may come from a later version.
            if "role" in record or "type" not in record:
                self._skip(line, "no role")
        elif role in MESSAGE_ROLES:
            if is_message(record):
                self._add_message(line.offset, len(line.data), facts_of(record))
            else:
                self._skip(line, "not a message")
        elif role == CHECKPOINT:
            self._add_checkpoint(line, record, nameless)
        elif role == USAGE:
            self._add_usage(line, record)
        elif role == SYSTEM_PROMPT and isinstance(record.get("content"), str):
            self._prompts.append((line.offset, record["content"]))
            self.system_prompt = record["content"]

    def _add_message(self, offset: int, length: int, facts: RecordFacts) -> None:
        kind, n_calls, called, image_tokens = facts
        for name in called:
            self._callers.setdefault(name, array("I")).append(len(self._starts))
        self._lengths.append(length)
        self._kinds.append(kind)
        self._calls.append(n_calls)
        self._image_tokens.append(image_tokens)
        # The start is appended last, because `n_messages` counts the starts: another thread sees all of a message or nothing.
        self._starts.append(offset)

    def _add_checkpoint(
        self, line: RawLine, record: Mapping[str, Any], nameless: list[int]
    ) -> None:
        number = count_of(record.get("id"))
        if number is None:
            self._skip(line, "a checkpoint without a number")
            return
        uid = lenient_json.text(record.get("uid"))
        if not uid:
            nameless.append(len(self.checkpoints))
        if self.checkpoints and number != self.checkpoints[-1].id + 1:
            self._regular = False
        self.checkpoints.append(
            Checkpoint(
                id=number,
                uid=uid,
                at=lenient_json.text(record.get("at")),
                offset=line.offset,
                message_index=len(self._starts),
                was=lenient_json.text(record.get("was")) or None,
            )
        )

    def _add_usage(self, line: RawLine, record: Mapping[str, Any]) -> None:
        tokens = count_of(record.get("token_count"))
        if tokens is None:
            self._skip(line, "a token count without a number")
            return
        self._usage_starts.append(line.offset)
        self._usage_tokens.append(tokens)
        self._usage_estimated.append(record.get("estimated") is True)
        if self.checkpoints and self.checkpoints[-1].tokens is None:
            self.checkpoints[-1] = self.checkpoints[-1]._replace(tokens=tokens)

    def _skip(self, line: RawLine, reason: str) -> None:
        self.n_skipped += 1
        if len(self.skipped) < _MAX_SKIPPED_KEPT:
            self.skipped.append(SkippedLine(line.number, line.offset, reason))

    def _name(self, read: Read, nameless: Sequence[int]) -> None:
        # Checkpoints of other programs have no uid: their name is the hash of all bytes through their line.
        digest = hashlib.sha256()
        position = 0
        for place in nameless:
            point = self.checkpoints[place]
            end = self._line_end(read, point.offset)
            while position < end:
                chunk = read(min(CHUNK_BYTES, end - position), position)
                if not chunk:
                    break
                digest.update(chunk)
                position += len(chunk)
            self.checkpoints[place] = point._replace(uid=digest.copy().hexdigest())

    @staticmethod
    def _line_end(read: Read, offset: int) -> int:
        position = offset
        while chunk := read(256, position):
            end = chunk.find(b"\n")
            if end >= 0:
                return position + end + 1
            position += len(chunk)
        return position


def _is_regular(points: Sequence[Checkpoint]) -> bool:
    first = points[0].id if points else 0
    return all(point.id == first + place for place, point in enumerate(points))


class MessageCache:
    """Parsed messages by their offset; beyond a number of raw bytes the least recently used are dropped."""

    def __init__(self) -> None:
        # Threads look up messages while the event loop appends to the file and cuts it.
        self._lock = threading.Lock()
        self._known: OrderedDict[int, tuple[Message, int]] = OrderedDict()
        self._size_bytes = 0
        self._n_dropped = 0

    def get(self, offset: int) -> Message | None:
        """Return the message at an offset, if it is in the cache."""
        with self._lock:
            found = self._known.get(offset)
            if found is None:
                return None
            self._known.move_to_end(offset)
            return found[0]

    def known(self, offsets: Sequence[int]) -> list[Message | None]:
        """Return the message at each offset, None for those that are not in the cache. They count as no later used than before."""
        with self._lock:
            found = [self._known.get(offset) for offset in offsets]
        return [None if one is None else one[0] for one in found]

    def put(self, offset: int, message: Message, size_bytes: int) -> None:
        """Add a message."""
        n_dropped = 0
        with self._lock:
            if offset in self._known:
                return
            self._known[offset] = (message, size_bytes)
            self._size_bytes += size_bytes
            while self._size_bytes > CACHE_BYTES and len(self._known) > 1:
                _, (_, dropped) = self._known.popitem(last=False)
                self._size_bytes -= dropped
                n_dropped += 1
            self._n_dropped += n_dropped
            is_due = bool(n_dropped) and self._n_dropped >= _COLLECTED
            if is_due:
                self._n_dropped = 0
        if is_due and gc.isenabled():
            # The collector counts new objects less freed ones, so it takes no notice of messages that replace as many others:
            # thousands of them would be visited in one go, sometime, while a key waits.
            gc.collect(1)

    def before(self, offset: int) -> MessageCache:
        """Return the messages before an offset, in a cache of its own. Call it in a thread: there may be tens of thousands."""
        kept = MessageCache()
        with self._lock:
            offsets = [known for known in self._known if known < offset]
        for start in range(0, len(offsets), _COPIED):
            # The lock is released between a few messages, so that no reader waits for all.
            with self._lock:
                for known in offsets[start : start + _COPIED]:
                    if (found := self._known.get(known)) is not None:
                        kept._known[known] = found
                        kept._size_bytes += found[1]
        return kept

    def clear(self) -> None:
        """Drop all messages, one by one: dropping thousands at once would hold the interpreter. Call it in a thread."""
        while True:
            with self._lock:
                if not self._known:
                    return
                _, (dropped, size_bytes) = self._known.popitem()
                self._size_bytes -= size_bytes
            del dropped


class MessageList(Sequence["Message"]):
    """The messages of a context from `first` up to before `last`; with None as `last` the list grows with the context.

    Args:
        index: The index of the context.
        read: Returns bytes of the context: `read(size, offset)`.
        cache: The cache of parsed messages.
        first: The number of the first message.
        last: The number after the last message.
    """

    def __init__(
        self,
        index: ContextIndex,
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
        return chain.from_iterable(self._batches())

    def _batches(self) -> Iterator[Iterable[Message]]:
        """Yield all messages in groups: every request reads all of a conversation, so they are not looked up one by one."""
        place = 0
        while place < len(self):
            last = min(len(self), place + _LOOKED_UP_AT_ONCE)
            numbers = range(self._first + place, self._first + last)
            known = self._cache.known(self._index.starts(numbers.start, numbers.stop))
            if all(known):
                yield cast("list[Message]", known)
            else:
                # No later message is parsed for a caller that stops earlier.
                yield (
                    self._message(number) if message is None else message
                    for number, message in zip(numbers, known, strict=True)
                )
            place = last

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
    """Parse the message of a record that the index took for one."""
    record = parse(data)
    message = message_of(record) if isinstance(record, dict) else None
    # The index has checked the same bytes before, so only a file that somebody changed since gets past this.
    if message is not None:
        return message
    from kimi_tui.llm.message import Message

    return Message(role="user", content="(this message can no longer be read)")


class StoredMessages(Sequence["Message"]):
    """Some messages of a file, each read from the file when it is accessed.

    Args:
        storage: The disk.
        path: The file.
        index: The index of the file.
        numbers: The numbers of the messages; None for all.
    """

    def __init__(
        self, storage: Storage, path: Path, index: ContextIndex, numbers: range | None = None
    ) -> None:
        self._storage = storage
        self._path = path
        self._index = index
        self._numbers = range(index.n_messages) if numbers is None else numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if isinstance(index, slice):
            return StoredMessages(self._storage, self._path, self._index, self._numbers[index])
        offset, length = self._index.place(self._numbers[index])
        try:
            with self._storage.opened(self._path) as fd:
                return parse_message(self._storage.read_exactly(fd, length, offset))
        except OSError:
            return parse_message(b"")


class TokenSums:
    """Running sums of estimated tokens over the messages of a line from `first` on, with tool results summed separately.

    The messages are not kept; after a revert, call `cut` with the number of messages left.
    """

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self._talk = array("q", [0])
        self._tools = array("q", [0])

    @property
    def counted(self) -> int:
        """The number of the message after the last counted one."""
        return self.first + len(self._talk) - 1

    def add(self, messages: Sequence[Message], end: int | None = None) -> None:
        """Count the messages that are not counted yet: all of them, or those before number `end`."""
        for place in range(self.counted, len(messages) if end is None else end):
            message = messages[place]
            self._append(message_tokens(message), is_tool=message.role == "tool")

    def add_sampled(
        self, index: ContextIndex, messages: Sequence[Message], looked_at_bytes: int = 1 << 20
    ) -> None:
        """Count many messages at once: only the newest are read, and the older ones are estimated by the length of their records.

        Large records are read too, as they may be images.

        Args:
            index: The index of the line.
            messages: All messages of the line.
            looked_at_bytes: The number of bytes of records that are read.
        """
        end = first = len(messages)
        while first > self.counted and looked_at_bytes > 0:
            first -= 1
            looked_at_bytes -= index.place(first)[1]
        if first > self.counted:
            rates = _token_rates(index, messages, range(first, end))
            for n in range(self.counted, first):
                size_bytes, is_tool = index.place(n)[1], index.is_result(n)
                if size_bytes > _LARGE_BYTES:
                    tokens = message_tokens(messages[n])
                else:
                    tokens = round(size_bytes * rates[is_tool]) + index.image_tokens(n, n + 1)
                self._append(tokens, is_tool=is_tool)
        self.add(messages)

    def _append(self, tokens: int, *, is_tool: bool) -> None:
        self._talk.append(self._talk[-1] + (0 if is_tool else tokens))
        self._tools.append(self._tools[-1] + (tokens if is_tool else 0))

    def cut(self, count: int) -> None:
        """Drop the sums of all messages from this number on."""
        kept = max(0, count - self.first) + 1
        del self._talk[kept:], self._tools[kept:]

    def between(self, start: int = 0, end: int | None = None) -> tuple[int, int]:
        """Return the tokens of a range of counted messages: of tool results, and of the others."""
        stop = len(self._talk) - 1
        if end is not None:
            stop = max(0, min(end - self.first, stop))
        first = min(max(0, start - self.first), stop)
        return self._tools[stop] - self._tools[first], self._talk[stop] - self._talk[first]

    def total(self, start: int = 0, end: int | None = None) -> int:
        """Return all tokens of a range of counted messages."""
        return sum(self.between(start, end))


def _token_rates(
    index: ContextIndex, messages: Sequence[Message], looked_at: range
) -> tuple[float, float]:
    """Return the tokens per byte of a record, for other messages and for results, as measured in the messages `looked_at`."""
    tokens, sizes = [0, 0], [0, 0]
    for n in looked_at:
        size_bytes = index.place(n)[1]
        if size_bytes <= _LARGE_BYTES:
            is_tool = index.is_result(n)
            tokens[is_tool] += message_tokens(messages[n]) - index.image_tokens(n, n + 1)
            sizes[is_tool] += size_bytes
    said, results = (
        counted / size if size else _TOKENS_A_BYTE
        for counted, size in zip(tokens, sizes, strict=True)
    )
    return said, results


class TokenEstimate:
    """The tokens of a context up to an offset: the last usage before it, plus an estimate of the messages since."""

    def __init__(self) -> None:
        self._prompt: tuple[str, int] = ("", 0)
        self._sums = TokenSums()

    def before(self, index: ContextIndex, offset: int, messages: Sequence[Message]) -> int:
        """Return the tokens of the part before `offset`; `messages` are those of `index`."""
        last = index.messages_before(offset)
        usage = index.usage_before(offset)
        if usage is not None:
            tokens, first = usage
            return tokens + self._estimate(index, first, last, messages)
        prompt = index.system_prompt or ""
        if prompt != self._prompt[0]:
            self._prompt = (prompt, text_tokens(prompt))
        return self._prompt[1] + self._estimate(index, 0, last, messages)

    def cut(self, n_messages: int) -> None:
        """Forget the estimates of messages from a number on."""
        self._sums.cut(n_messages)

    def _estimate(
        self, index: ContextIndex, first: int, last: int, messages: Sequence[Message]
    ) -> int:
        if not self._sums.first <= first <= self._sums.counted:
            self._sums = TokenSums(first)
        sums = self._sums
        if sums.counted < last:
            size_bytes = sum(index.place(last - 1)) - index.place(sums.counted)[0]
            if size_bytes > _LOOKED_AT_BYTES:
                sums.add_sampled(index, messages, _LOOKED_AT_BYTES)
            else:
                sums.add(messages, last)
        return sums.total(first, last)


@dataclass(slots=True)
class TokenScale:
    """The correction factor of token estimates, learned from the server's figures.

    Attributes:
        factor: The factor by which estimates are multiplied.
        tool_tokens: The estimated tokens of the tools, which every request contains besides the system prompt and the messages.
    """

    factor: float = 1.0
    tool_tokens: int = 0

    def corrected(self, estimate: int) -> int:
        """Return an estimate corrected to the way this server counts."""
        return round(estimate * self.factor)

    def corrected_request(self, estimate: int) -> int:
        """Return the tokens of a whole request, from the estimate of its system prompt and messages."""
        return self.corrected(self.tool_tokens + estimate)


@dataclass(frozen=True, slots=True)
class WorldLineContent:
    """A world line as it can be read: its index, and its messages, which are parsed when accessed."""

    index: ContextIndex
    messages: Sequence[Message]

    @property
    def checkpoints(self) -> Sequence[Checkpoint]:
        """The checkpoints of the line, oldest first."""
        return self.index.checkpoints


EMPTY_WORLD_LINE = WorldLineContent(ContextIndex(), ())
