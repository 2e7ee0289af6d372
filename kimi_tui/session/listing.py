"""Facts about sessions for lists, read without opening them: title, size, times, the user's messages for searching, and a preview.

The figures are those that the session stored when it was closed, if they still fit; else they come from the beginning and end
of its context. All reading is bounded, and unreadable parts count as empty.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from kimi_tui.filesystem import open_regular
from kimi_tui.session.jsonl import RECORD_NAME, lines, parse
from kimi_tui.session.metadata import read_state, short_title
from kimi_tui.session.rotation import LIVE_NAME, STORED_NAME, world_line_path
from kimi_tui.session.schema import (
    MESSAGE_ROLES,
    USAGE,
    count_of,
    image_names_of,
    internal_kind,
    is_message,
    texts_of,
)

# The system prompt comes before the user's first message, and may be long.
_EXCERPT_BYTES = 1 << 16
_SMALL_BYTES = 1 << 14
# Reading and parsing 200 MB takes about a second.
_MAX_COUNTED_BYTES = 256 << 20
# Seconds since 1970, in the year 5138.
_LATEST = 1e11
_METADATA = (b'{"role":"_', b'{"role": "_')
MAX_READ_BYTES = 8 << 20
MAX_WORDS = 1 << 16
"""The number of characters of the user's messages that are kept for searching."""
_TAIL_BYTES = 1 << 18
_MAX_SAID = 2_000
# Roles are written first; a record that does not begin with one of these is parsed in any case.
_OTHERS = (b'{"role":"assistant"', b'{"role":"tool"', b'{"role":"_')


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One row of the list. `messages` and `tokens` are None if only reading the whole context would give them.

    Attributes:
        updated_at: Seconds since 1970 of the last write to the context.
        size_bytes: The size of all its files together.
        world_lines: The number of files of lines that were left; it is larger than the number shown if one of them has
            nothing of its own.
        world_lines_bytes: The size of these files together.
        external_agent: The name of the external agent that does its turns; empty for our own agent.
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
    forked_from: str = ""
    external_agent: str = ""


def describe(folder: Path, *, counted: bool = False) -> SessionInfo | None:
    """Return a row for the session in a folder; None if it is empty or cannot be read.

    Args:
        folder: The session's folder.
        counted: Whether to read the whole context if the number of messages is not known otherwise.
    """
    size = world_lines_bytes = 0
    live: os.stat_result | None = None
    stored: dict[int, os.stat_result] = {}
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
                    elif match := STORED_NAME.fullmatch(entry.name):
                        stored[int(match[1])] = status
                        world_lines_bytes += status.st_size
    except OSError:
        return None
    n = 0
    if live is None:
        # The live file is lost: when the session is opened, the newest line that was left takes its place.
        if not stored:
            return None
        n = max(stored)
        live = stored.pop(n)
        world_lines_bytes -= live.st_size
    state = read_state(folder)
    noted = state.summary
    fits = noted.size == live.st_size
    title = state.title or short_title(noted.title)
    messages, tokens = (noted.messages, noted.tokens) if fits else (None, None)
    if not fits or not title:
        found = read_excerpt(world_line_path(folder, n), live.st_size, counted=counted)
        if found.empty and not (state.title or stored or records_a_turn(folder / RECORD_NAME)):
            return None
        title = title or found.title or (first_title(folder) if found.goes_on else "")
        messages = found.messages if messages is None else messages
        tokens = found.tokens if tokens is None else tokens
    return SessionInfo(
        id=folder.name,
        dir=folder,
        work_dir=state.work_dir,
        title=title or "Untitled",
        updated_at=time_of(live),
        messages=messages,
        tokens=tokens,
        size_bytes=size,
        world_lines=len(stored),
        world_lines_bytes=world_lines_bytes,
        archived=state.archived,
        forked_from=state.forked_from,
        external_agent=state.external_agent,
    )


def time_of(status: os.stat_result) -> float:
    """Return the time of a file's last write, limited to a range that calendars can show: clocks may be far wrong."""
    return min(max(status.st_mtime, 0.0), _LATEST)


def records_a_turn(path: Path) -> bool:
    """Return whether the user ever sent a message, by the beginning of a session's record; True if that cannot be read."""
    try:
        with open(open_regular(path), "rb", buffering=0) as file:
            return b'"TurnBegin"' in file.read(_EXCERPT_BYTES)
    except FileNotFoundError:
        return False
    except OSError:
        return True


@dataclass(slots=True)
class Excerpt:
    """Facts from the beginning and the end of a context. Figures are None if it is too long to be read whole.

    `goes_on` is true if the context begins with a compaction's summary, so that its title comes from an older line.
    """

    empty: bool = True
    title: str = ""
    goes_on: bool = False
    messages: int | None = None
    tokens: int | None = None


def first_title(folder: Path) -> str:
    """Return how the session's oldest world line began, or an empty text."""
    oldest = world_line_path(folder, 1)
    with contextlib.suppress(OSError):
        return read_excerpt(oldest, oldest.stat().st_size).title
    return ""


def read_excerpt(path: Path, size: int, *, counted: bool = False) -> Excerpt:
    """Read a context's beginning and end. A context that cannot be read does not count as empty.

    Args:
        path: The context.
        size: The size of the context in bytes.
        counted: Whether to read a large context completely, to count its messages.
    """
    found = Excerpt()
    whole = size <= _SMALL_BYTES
    count = 0
    try:
        with open(open_regular(path), "rb", buffering=0) as file:
            head = tail = file.read(_EXCERPT_BYTES)
            if size > _EXCERPT_BYTES:
                file.seek(-_EXCERPT_BYTES, os.SEEK_END)
                tail = file.read(_EXCERPT_BYTES)
            if not whole and counted and size <= _MAX_COUNTED_BYTES:
                found.messages = _n_messages(file.fileno())
    except OSError as error:
        found.empty = isinstance(error, FileNotFoundError)
        return found
    for record in _records(head):
        if record.get("role") in MESSAGE_ROLES:
            found.empty = False
            kind = internal_kind(record)
            count += kind != "marker"
            found.goes_on = found.goes_on or kind == "compaction"
            # A command of the user (`!make`) is the session's title only if there is no other message.
            is_named = found.title and not found.title.startswith("!")
            if not is_named and not found.goes_on and record["role"] == "user" and kind is None:
                said = short_title(" ".join(texts_of(record)), image_names_of(record))
                found.title = found.title if found.title and said.startswith("!") else said
                if not whole and not said.startswith("!"):
                    break
    if whole:
        found.messages = count
    else:
        # A file of this size is not empty.
        found.empty = False
    found.tokens = _last_usage(tail)
    return found


def _n_messages(fd: int) -> int:
    """Count the messages of a context, markers excepted."""
    count = 0
    for line in lines(lambda size, offset: os.pread(fd, size, offset)):
        # Metadata is written with its role first, so it can be skipped without parsing.
        if not line.complete or line.data.startswith(_METADATA):
            continue
        for record in _records(line.data + b"\n"):
            if record["role"] in MESSAGE_ROLES and is_message(record):
                count += internal_kind(record) != "marker"
    return count


def _last_usage(tail: bytes) -> int | None:
    """Return the newest token count in the end of a context."""
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
        # A role may be any value, even one that cannot be in a set.
        if isinstance(record, dict) and isinstance(record.get("role"), str):
            yield record


class PreviewMessage(NamedTuple):
    """A message of the preview; a long one is shortened to its beginning."""

    role: Literal["user", "assistant"]
    text: str


def searched_words(folder: Path) -> str:
    """Return the user's messages of a session in lower case, for searching. It reads a file, so call it in a thread."""
    found: list[str] = []
    room = MAX_WORDS
    for record in _stored_records(folder, last_bytes=None, skipped=_OTHERS):
        if record.get("role") == "user" and internal_kind(record) is None:
            text = " ".join(texts_of(record))[:room].casefold()
            found.append(text)
            room -= len(text)
            if room <= 0:
                break
    return "\n".join(found)


def last_said(folder: Path, most: int) -> list[PreviewMessage]:
    """Return the last messages of a session that have text, oldest first. It reads a file, so call it in a thread."""
    found: list[PreviewMessage] = []
    for record in _stored_records(folder, last_bytes=_TAIL_BYTES):
        role = record.get("role")
        if role in ("user", "assistant") and internal_kind(record) is None:
            text = "\n".join(texts_of(record)).strip()[:_MAX_SAID]
            if text:
                found.append(PreviewMessage("user" if role == "user" else "assistant", text))
    return found[-most:]


def _stored_records(
    folder: Path, *, last_bytes: int | None, skipped: tuple[bytes, ...] = ()
) -> Iterator[dict[str, Any]]:
    try:
        with open(open_regular(folder / LIVE_NAME), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            start = max(0, size - last_bytes) if last_bytes is not None else 0
            end = min(size, start + MAX_READ_BYTES)

            def read(n: int, offset: int) -> bytes:
                return os.pread(file.fileno(), min(n, max(0, end - offset)), offset)

            for line in lines(read, start):
                # If reading starts in the middle of the file, the first line is incomplete and no JSON.
                if line.complete and not line.data.startswith(skipped):
                    record = parse(line.data)
                    if isinstance(record, dict):
                        yield record
    except OSError:
        return
