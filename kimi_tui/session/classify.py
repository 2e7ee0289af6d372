"""Tells from two files alone why one line was left for the next: D-Mail, compaction, clear or rewind.

For sessions of kimi-cli, which journals nothing, and for ours whose journal is lost.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from kimi_tui.session.internal import internal_kind, letter_of, summary_of
from kimi_tui.session.jsonl import lines, parse
from kimi_tui.session.records import (
    CHECKPOINT,
    MESSAGE_ROLES,
    SYSTEM_PROMPT,
    USAGE,
    count_of,
    text_of,
)
from kimi_tui.session.storage import Storage

Reason = Literal["rewind", "dmail", "compaction", "clear", "foreign", "unknown"]


@dataclass(frozen=True, slots=True)
class Guess:
    """Why a line was left, as far as the files tell. `offset` is where the checkpoint stands that was gone back to."""

    reason: Reason
    checkpoint_id: int = -1
    uid: str = ""
    offset: int = 0
    from_checkpoint: int = -1
    tokens_before: int = 0
    tokens_after: int = 0
    messages_dropped: int = 0
    tool_calls_dropped: int = 0
    text: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class _Point:
    id: int
    offset: int
    uid: str


def classify(storage: Storage, left: Path, followed: Path) -> Guess:
    """Compare a line that was left with the one that followed it.

    Raises:
        OSError: One of them cannot be read.
    """
    old_fd = storage.open(left, os.O_RDONLY)
    try:
        new_fd = storage.open(followed, os.O_RDONLY)
        try:
            return _compare(_Reader(storage, old_fd), _Reader(storage, new_fd))
        finally:
            storage.close(new_fd)
    finally:
        storage.close(old_fd)


class _Reader:
    """The readable records of a file, one after another, with the name that a checkpoint has by its bytes."""

    def __init__(self, storage: Storage, fd: int) -> None:
        self._hash = hashlib.sha256()
        self._lines = lines(lambda size, offset: storage.pread(fd, size, offset))
        self._records = self._walk()
        self._ahead: tuple[int, dict[str, Any]] | None = None

    def next(self) -> tuple[int, dict[str, Any]] | None:
        """The next record and its offset."""
        if self._ahead is not None:
            taken, self._ahead = self._ahead, None
            return taken
        return next(self._records, None)

    def put_back(self, item: tuple[int, dict[str, Any]]) -> None:
        """Give back what was taken last."""
        self._ahead = item

    def point(self, offset: int, record: dict[str, Any]) -> _Point | None:
        """The checkpoint that a record (the last one taken) is."""
        number = count_of(record.get("id")) if record.get("role") == CHECKPOINT else None
        if number is None:
            return None
        uid = text_of(record.get("uid")) or self._hash.copy().hexdigest()
        return _Point(number, offset, uid)

    def _walk(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for line in self._lines:
            self._hash.update(line.data + b"\n" if line.complete else line.data)
            record = parse(line.data) if line.complete else None
            if isinstance(record, dict) and isinstance(record.get("role"), str):
                yield line.offset, record


def _compare(old: _Reader, new: _Reader) -> Guess:
    split: _Point | None = None
    only_beginning = True
    # Whether the new line has nothing after its last checkpoint yet: then it was just made there.
    at_point = False
    while True:
        before, after = old.next(), new.next()
        if before is None or after is None or before[1] != after[1]:
            break
        if (point := old.point(*before)) is not None:
            split, at_point = point, True
            only_beginning = only_beginning and point.id == 0
        elif before[1]["role"] != SYSTEM_PROMPT and internal_kind(before[1]) != "marker":
            only_beginning = at_point = False
    nothing_followed = after is None
    if after is not None:
        new.put_back(after)
    kind, text, tokens_after = _beginning(new)
    if before is not None:
        old.put_back(before)
    rest = _rest(old)
    if nothing_followed and not at_point and rest.first is not None:
        # The new line ends where the old one went on: it was cut before the old one's next checkpoint.
        split = rest.first
    reason: Reason = "rewind"
    if kind == "dmail":
        reason = "dmail"
    elif kind == "compaction":
        reason, split = "compaction", None
    elif only_beginning:
        reason = "clear"
    return Guess(
        reason=reason,
        checkpoint_id=split.id if split else 0,
        uid=split.uid if split else "",
        offset=split.offset if split else 0,
        from_checkpoint=rest.newest if rest.newest >= 0 else (split.id if split else -1),
        tokens_before=rest.tokens,
        tokens_after=tokens_after,
        messages_dropped=rest.messages,
        tool_calls_dropped=rest.calls,
        text=text,
    )


def _beginning(new: _Reader) -> tuple[str, str, int]:
    """What kind of message the new line begins with after the split, its text, and the first tokens counted there."""
    kind, text = "", ""
    while (item := new.next()) is not None:
        record = item[1]
        if record["role"] == USAGE:
            return kind, text, count_of(record.get("token_count")) or 0
        if not kind and record["role"] == "user":
            found = internal_kind(record)
            if found == "dmail":
                kind, text = found, letter_of(record)
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


def _rest(old: _Reader) -> _Rest:
    """What the old line holds from the split on."""
    rest = _Rest()
    while (item := old.next()) is not None:
        record = item[1]
        if (point := old.point(*item)) is not None:
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
