"""An index over the bytes of one line of the conversation: where its messages, checkpoints and usages stand.

Built once by reading the file through, then kept up by appends and cuts, so that nothing is ever parsed again for them.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from kimi_tui.session.jsonl import CHUNK_BYTES, RawLine, SkippedLine, lines, parse
from kimi_tui.session.records import (
    CHECKPOINT,
    MESSAGE_ROLES,
    SYSTEM_PROMPT,
    USAGE,
    Checkpoint,
    count_of,
    is_marker,
    is_message,
    text_of,
)

Read = Callable[[int, int], bytes]
_MAX_SKIPPED_KEPT = 1_000
_SAID = 0
_MARKER = 1
_RESULT = 2


@dataclass(slots=True)
class LineIndex:
    """Where things stand in a line of `size` bytes.

    `skipped` are lines that could not be read (the first thousand; `n_skipped` counts all), `n_unknown` records of kinds
    that a later version may know. `torn` is what follows the last line feed; it is no part of the line.
    """

    size: int = 0
    system_prompt: str | None = None
    checkpoints: list[Checkpoint] = field(default_factory=list[Checkpoint])
    skipped: list[SkippedLine] = field(default_factory=list[SkippedLine])
    n_skipped: int = 0
    n_unknown: int = 0
    torn: bytes = b""
    _starts: array[int] = field(default_factory=lambda: array("Q"))
    _lengths: array[int] = field(default_factory=lambda: array("Q"))
    _flags: bytearray = field(default_factory=bytearray)
    _calls: array[int] = field(default_factory=lambda: array("I"))
    _usage_starts: array[int] = field(default_factory=lambda: array("Q"))
    _usage_tokens: array[int] = field(default_factory=lambda: array("Q"))
    _usage_estimated: array[int] = field(default_factory=lambda: array("B"))
    _prompts: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    # Whether the ids rise by one from the first checkpoint on.
    _regular: bool = True

    @classmethod
    def scan(cls, read: Read) -> LineIndex:
        """Read a whole file through. Never raises on content."""
        index = cls()
        nameless: list[int] = []
        for line in lines(read):
            if line.complete:
                index._take(line, nameless)
            else:
                index.torn = line.data
        if nameless:
            index._name(read, nameless)
        return index

    @property
    def n_messages(self) -> int:
        """How many messages the line holds."""
        return len(self._starts)

    @property
    def n_checkpoints(self) -> int:
        """The id that the next checkpoint gets."""
        if self._regular:
            return self.checkpoints[-1].id + 1 if self.checkpoints else 0
        return max((point.id for point in self.checkpoints), default=-1) + 1

    def place(self, index: int) -> tuple[int, int]:
        """Offset and length of a message's record, without its line feed."""
        return self._starts[index], self._lengths[index]

    def checkpoint(self, checkpoint_id: int) -> Checkpoint | None:
        """The (first) checkpoint of that id."""
        # Ids rise by one except in damaged files, so the place is nearly always the id less the first one's.
        if self.checkpoints:
            guess = checkpoint_id - self.checkpoints[0].id
            if 0 <= guess < len(self.checkpoints) and self._regular:
                return self.checkpoints[guess]
        return next((point for point in self.checkpoints if point.id == checkpoint_id), None)

    def usage_before(self, offset: int) -> tuple[int, int] | None:
        """The last usage before an offset: its tokens and how many messages come before it."""
        place = bisect_left(self._usage_starts, offset) - 1
        if place < 0:
            return None
        return self._usage_tokens[place], bisect_left(self._starts, self._usage_starts[place])

    def is_estimated_before(self, offset: int) -> bool:
        """Whether the last usage before an offset is an estimate; false where there is none."""
        place = bisect_left(self._usage_starts, offset) - 1
        return place >= 0 and bool(self._usage_estimated[place])

    def usages_between(self, start: int, end: int) -> list[int]:
        """The usage records between two offsets, in order."""
        first = bisect_left(self._usage_starts, start)
        return list(self._usage_tokens[first : bisect_left(self._usage_starts, end, first)])

    def messages_before(self, offset: int) -> int:
        """How many messages begin before an offset."""
        return bisect_left(self._starts, offset)

    def counts(self, first: int, last: int | None = None) -> tuple[int, int]:
        """Messages other than markers, and tool calls, among those from `first` up to before `last`."""
        flags = self._flags[first:last]
        return len(flags) - flags.count(_MARKER), sum(self._calls[first:last])

    def is_marker(self, index: int) -> bool:
        """Whether a message only names a checkpoint."""
        return self._flags[index] == _MARKER

    def is_result(self, index: int) -> bool:
        """Whether a message is the result of a tool call."""
        return self._flags[index] == _RESULT

    def add(self, data: bytes) -> None:
        """Take in complete lines that were appended."""
        base = self.size

        def read(size: int, offset: int) -> bytes:
            return data[offset : offset + size]

        for line in lines(read):
            self._take(
                RawLine(line.number, base + line.offset, line.data, complete=True), nameless=[]
            )

    def prefix(self, offset: int) -> LineIndex:
        """The index of what precedes an offset, the beginning of a record."""
        copied = replace(
            self,
            checkpoints=list(self.checkpoints),
            skipped=list(self.skipped),
            torn=b"",
            _starts=self._starts[:],
            _lengths=self._lengths[:],
            _flags=self._flags[:],
            _calls=self._calls[:],
            _usage_starts=self._usage_starts[:],
            _usage_tokens=self._usage_tokens[:],
            _usage_estimated=self._usage_estimated[:],
            _prompts=list(self._prompts),
        )
        copied.cut(offset)
        return copied

    def cut(self, offset: int) -> None:
        """Forget everything from an offset on; the beginning of a record."""
        keep = bisect_left(self._starts, offset)
        del self._starts[keep:], self._lengths[keep:], self._flags[keep:], self._calls[keep:]
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

    def _take(self, line: RawLine, nameless: list[int]) -> None:
        self.size = line.end
        record = parse(line.data)
        if record is None:
            return
        if isinstance(record, str):
            self._skip(line, record)
            return
        role = record.get("role")
        if not isinstance(role, str):
            if "role" in record or "type" not in record:
                self._skip(line, "no role")
            else:
                self.n_unknown += 1
        elif role in MESSAGE_ROLES:
            self._take_message(line, record)
        elif role == CHECKPOINT:
            self._take_checkpoint(line, record, nameless)
        elif role == USAGE:
            self._take_usage(line, record)
        elif role == SYSTEM_PROMPT and isinstance(record.get("content"), str):
            self._prompts.append((line.offset, record["content"]))
            self.system_prompt = record["content"]
        else:
            self.n_unknown += 1

    def _take_message(self, line: RawLine, record: dict[str, Any]) -> None:
        if not is_message(record):
            self._skip(line, "not a message")
            return
        calls: object = record.get("tool_calls")
        self._starts.append(line.offset)
        self._lengths.append(len(line.data))
        kind = _RESULT if record["role"] == "tool" else _MARKER if is_marker(record) else _SAID
        self._flags.append(kind)
        self._calls.append(len(cast("list[object]", calls)) if isinstance(calls, list) else 0)

    def _take_checkpoint(
        self, line: RawLine, record: Mapping[str, Any], nameless: list[int]
    ) -> None:
        number = count_of(record.get("id"))
        if number is None:
            self._skip(line, "a checkpoint without a number")
            return
        uid = text_of(record.get("uid"))
        if not uid:
            nameless.append(len(self.checkpoints))
        if self.checkpoints and number != self.checkpoints[-1].id + 1:
            self._regular = False
        self.checkpoints.append(
            Checkpoint(
                id=number,
                uid=uid,
                at=text_of(record.get("at")),
                offset=line.offset,
                message_index=len(self._starts),
                was=text_of(record.get("was")) or None,
            )
        )

    def _take_usage(self, line: RawLine, record: Mapping[str, Any]) -> None:
        tokens = count_of(record.get("token_count"))
        if tokens is None:
            self._skip(line, "a usage without a number")
            return
        self._usage_starts.append(line.offset)
        self._usage_tokens.append(tokens)
        self._usage_estimated.append(record.get("estimated") is True)
        if self.checkpoints and self.checkpoints[-1].tokens is None:
            self.checkpoints[-1] = replace(self.checkpoints[-1], tokens=tokens)

    def _skip(self, line: RawLine, reason: str) -> None:
        self.n_skipped += 1
        if len(self.skipped) < _MAX_SKIPPED_KEPT:
            self.skipped.append(SkippedLine(line.number, line.offset, reason))

    def _name(self, read: Read, nameless: Sequence[int]) -> None:
        # Checkpoints of other programs have no uid: the bytes through their line are what they are.
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
            self.checkpoints[place] = replace(point, uid=digest.copy().hexdigest())

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
