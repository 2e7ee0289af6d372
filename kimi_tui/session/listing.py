"""Facts about sessions for lists, read without opening them: title, size, times, the user's messages for a search, a preview.

The figures are those that the session stored when it was closed, if they still fit; else they come from the beginning and
end of its context. All reading is bounded, and what cannot be read is empty.
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

# A system prompt stands before the first words of the user, and may be long.
_EXCERPT_BYTES = 1 << 16
_SMALL_BYTES = 1 << 14
# Reading and parsing takes about a second for 200 MB.
_MAX_COUNTED_BYTES = 256 << 20
# In the year 5138.
_LATEST = 1e11
_METADATA = (b'{"role":"_', b'{"role": "_')
MAX_READ_BYTES = 8 << 20
MAX_WORDS = 1 << 16
"""Characters of a session's words that are kept for a search."""
_TAIL_BYTES = 1 << 18
_MAX_SAID = 2_000
# Roles are written in front; a record that does not say so is parsed in any case.
_OTHERS = (b'{"role":"assistant"', b'{"role":"tool"', b'{"role":"_')


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One row of the list. `messages` and `tokens` are None where only reading it through would give them.

    Attributes:
        updated_at: Seconds since 1970 of the last write to the context.
        size_bytes: All of its files together.
        world_lines: How many files hold lines that were left: more than are shown, where one has nothing of its own.
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
    forked_from: str = ""


def describe(folder: Path, *, counted: bool = False) -> SessionInfo | None:
    """A row for the session in a folder, None if it is empty or cannot be read.

    Args:
        folder: The session's.
        counted: Read it through where nothing else says how many messages it holds.
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
        # It is lost: the newest line that was left takes its place when the session is opened.
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
    )


def time_of(status: os.stat_result) -> float:
    """When a file was written last, as a time that calendars know: a clock may be wrong by ages."""
    return min(max(status.st_mtime, 0.0), _LATEST)


def records_a_turn(path: Path) -> bool:
    """Whether the user ever said something, by the beginning of a session's record; one that cannot be read may say so."""
    try:
        with open(open_regular(path), "rb", buffering=0) as file:
            return b'"TurnBegin"' in file.read(_EXCERPT_BYTES)
    except FileNotFoundError:
        return False
    except OSError:
        return True


@dataclass(slots=True)
class Excerpt:
    """What the beginning and the end of a context say. Figures are None where it is too long to be seen whole.

    `goes_on` is true where it begins with a compaction's summary, so that its title is the one of an older line.
    """

    empty: bool = True
    title: str = ""
    goes_on: bool = False
    messages: int | None = None
    tokens: int | None = None


def first_title(folder: Path) -> str:
    """How the session's oldest world line began, or nothing."""
    oldest = world_line_path(folder, 1)
    with contextlib.suppress(OSError):
        return read_excerpt(oldest, oldest.stat().st_size).title
    return ""


def read_excerpt(path: Path, size: int, *, counted: bool = False) -> Excerpt:
    """Read a context's beginning and end. What cannot be read does not count as empty: nobody knows what was said.

    Args:
        path: The context.
        size: How large it is.
        counted: Read a large one through as well, to count its messages.
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
            # A command of the user's own (`!make`) names a session only where nothing else was said.
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
    """How many messages other than markers a context holds."""
    count = 0
    for line in lines(lambda size, offset: os.pread(fd, size, offset)):
        # Metadata is written with its role in front, and needs no parsing to be passed over.
        if not line.complete or line.data.startswith(_METADATA):
            continue
        for record in _records(line.data + b"\n"):
            if record["role"] in MESSAGE_ROLES and is_message(record):
                count += internal_kind(record) != "marker"
    return count


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


class PreviewMessage(NamedTuple):
    """A message of the preview; of a long one the beginning."""

    role: Literal["user", "assistant"]
    text: str


def searched_words(folder: Path) -> str:
    """What the user said in a session, in small letters, to be searched. Reads a file: call it in a thread."""
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
    """The last messages of a session with words in them, oldest first. Reads a file: call it in a thread."""
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
                # In the middle of the file the first line is a piece of one, which is no JSON.
                if line.complete and not line.data.startswith(skipped):
                    record = parse(line.data)
                    if isinstance(record, dict):
                        yield record
    except OSError:
        return
