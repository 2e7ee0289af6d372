"""What a list of sessions shows of each, without reading it through.

The figures come from what the session noted when it was closed, if that still fits; else from its beginning and end.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kimi_tui.session.internal import internal_kind, texts_of
from kimi_tui.session.jsonl import lines, parse
from kimi_tui.session.line_files import LIVE_NAME, STORED_NAME, line_path
from kimi_tui.session.record import RECORD_NAME
from kimi_tui.session.records import MESSAGE_ROLES, USAGE, count_of
from kimi_tui.session.side_files import read_state
from kimi_tui.session.titles import short_title

# A system prompt stands before the first words of a person, and may be long.
_LOOKED_AT_BYTES = 1 << 16
_SMALL_BYTES = 1 << 14


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One row of the list. `messages` and `tokens` are None where only reading it through would tell.

    Attributes:
        updated_at: Seconds since 1970 of the last write to the context.
        size_bytes: All of its files together.
        world_lines: How many lines were left.
        world_lines_bytes: How much they take.
    """

    id: str
    dir: Path
    work_dir: str
    title: str
    updated_at: float
    messages: int | None
    tokens: int | None
    size_bytes: int
    world_lines: int
    world_lines_bytes: int
    archived: bool


def describe(folder: Path) -> SessionInfo | None:
    """A row for the session in a folder, None if it is empty or cannot be looked at."""
    size = world_lines = world_lines_bytes = 0
    live: os.stat_result | None = None
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if not entry.is_file(follow_symlinks=False):
                        continue
                    status = entry.stat(follow_symlinks=False)
                    size += status.st_size
                    if entry.name == LIVE_NAME:
                        live = status
                    elif STORED_NAME.fullmatch(entry.name):
                        world_lines += 1
                        world_lines_bytes += status.st_size
    except OSError:
        return None
    if live is None:
        return None
    state = read_state(folder)
    noted = state.summary
    fits = noted.size == live.st_size
    title = state.title or noted.title
    messages, tokens = (noted.messages, noted.tokens) if fits else (None, None)
    if not fits or not title:
        looked = look(folder / LIVE_NAME, live.st_size)
        if looked.empty and not (
            state.title or world_lines or records_a_turn(folder / RECORD_NAME)
        ):
            return None
        title = title or looked.title or (first_title(folder) if looked.goes_on else "")
        messages = looked.messages if messages is None else messages
        tokens = looked.tokens if tokens is None else tokens
    return SessionInfo(
        id=folder.name,
        dir=folder,
        work_dir=state.work_dir,
        title=title or "Untitled",
        updated_at=live.st_mtime,
        messages=messages,
        tokens=tokens,
        size_bytes=size,
        world_lines=world_lines,
        world_lines_bytes=world_lines_bytes,
        archived=state.archived,
    )


def records_a_turn(path: Path) -> bool:
    """Whether the person ever said something, by the beginning of a session's record."""
    try:
        with path.open("rb", buffering=0) as file:
            return b'"TurnBegin"' in file.read(_LOOKED_AT_BYTES)
    except OSError:
        return False


@dataclass(slots=True)
class Look:
    """What the beginning and the end of a context tell. Figures are None where it is too long to be seen whole.

    `goes_on` is true where it begins with a compaction's summary, so that its title is the one of an older line.
    """

    empty: bool = True
    title: str = ""
    goes_on: bool = False
    messages: int | None = None
    tokens: int | None = None


def first_title(folder: Path) -> str:
    """How the session's oldest world line began, or nothing."""
    oldest = line_path(folder, 1)
    with contextlib.suppress(OSError):
        return look(oldest, oldest.stat().st_size).title
    return ""


def look(path: Path, size: int) -> Look:
    """Look at a context's beginning and end. What cannot be read counts as empty."""
    found = Look()
    whole = size <= _SMALL_BYTES
    try:
        with path.open("rb", buffering=0) as file:
            head = tail = file.read(_LOOKED_AT_BYTES)
            if size > _LOOKED_AT_BYTES:
                file.seek(-_LOOKED_AT_BYTES, os.SEEK_END)
                tail = file.read(_LOOKED_AT_BYTES)
    except OSError:
        return found
    count = 0
    for record in _records(head):
        if record.get("role") in MESSAGE_ROLES:
            found.empty = False
            kind = internal_kind(record)
            count += kind != "marker"
            found.goes_on = found.goes_on or kind == "compaction"
            if not found.title and not found.goes_on and record["role"] == "user" and kind is None:
                found.title = short_title(" ".join(texts_of(record)))
                if not whole:
                    break
    if whole:
        found.messages = count
    else:
        # Something of this size was said by somebody.
        found.empty = False
    found.tokens = _last_usage(tail)
    return found


def _last_usage(tail: bytes) -> int | None:
    """The newest count of tokens in the end of a context."""
    for line in reversed(tail.split(b"\n")):
        if USAGE.encode() in line:
            record = parse(line)
            if isinstance(record, dict) and record.get("role") == USAGE:
                tokens = count_of(record.get("token_count"))
                if tokens is not None:
                    return tokens
    return None


def _records(data: bytes) -> Iterator[dict[str, Any]]:
    for line in lines(lambda size, offset: data[offset : offset + size]):
        record = parse(line.data) if line.complete else None
        # A role may be anything, also what no set can hold.
        if isinstance(record, dict) and isinstance(record.get("role"), str):
            yield record
