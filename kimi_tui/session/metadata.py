"""The metadata of a session beside its context: its title (`state.json`), and its bookmarks and pins (`marks.json`).

A damaged file counts as empty and is kept under another name; unknown keys are kept. A session works without these files.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kimi_tui import lenient_json
from kimi_tui.display_names import titled
from kimi_tui.filesystem import Storage, read_regular
from kimi_tui.session.jsonl import encode, parse
from kimi_tui.session.schema import count_of, internal_kind

if TYPE_CHECKING:
    from kimi_tui.llm.message import Message

STATE_NAME = "state.json"
MARKS_NAME = "marks.json"
MAX_SIDE_FILE_BYTES = 8 << 20
_MAX_TITLE = 50
# If this many first messages are all of the program, the session has no title.
_TITLE_MESSAGES = 200


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """The figures of a session for lists, so that they need not read it. They are valid for a context of exactly `size` bytes."""

    size: int = -1
    messages: int = 0
    tokens: int = 0
    title: str = ""


@dataclass(frozen=True, slots=True)
class SessionMetadata:
    """A session's title, whether it is archived, and other stored facts.

    `folder_inode` is the inode of the work folder when the session was last open, 0 if it is unknown; `moved_from` is the
    former path of that folder, empty if it has had one path only. `external_agent` is the name of the external agent that the
    session belongs to; empty for our own. `other` are foreign keys (kimi-cli's among them), kept
    unchanged.
    """

    title: str = ""
    archived: bool = False
    work_dir: str = ""
    folder_inode: int = 0
    moved_from: str = ""
    forked_from: str = ""
    imported_from: str = ""
    external_agent: str = ""
    summary: SessionSummary = field(default_factory=SessionSummary)
    other: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Marks:
    """Bookmarks (names by checkpoint uid) and pins (checkpoint uid and number of the message after it)."""

    bookmarks: Mapping[str, str] = field(default_factory=dict[str, str])
    pins: frozenset[tuple[str, int]] = frozenset()
    other: Mapping[str, Any] = field(default_factory=dict[str, Any])


def read_state(folder: Path) -> SessionMetadata:
    """Read the state of a session; defaults if it is missing or damaged."""
    record = _stored_object(folder / STATE_NAME)
    kept = lenient_json.mapping(record.pop("summary", None))
    size = count_of(kept.get("size"))
    return SessionMetadata(
        title=lenient_json.text(record.pop("custom_title", None)),
        archived=record.pop("archived", None) is True,
        work_dir=lenient_json.text(record.pop("work_dir", None)),
        folder_inode=count_of(record.pop("folder_inode", None)) or 0,
        moved_from=lenient_json.text(record.pop("moved_from", None)),
        forked_from=lenient_json.text(record.pop("forked_from", None)),
        imported_from=lenient_json.text(record.pop("imported_from", None)),
        external_agent=lenient_json.text(record.pop("external_agent", None)),
        summary=SessionSummary(
            size=-1 if size is None else size,
            messages=count_of(kept.get("messages")) or 0,
            tokens=count_of(kept.get("tokens")) or 0,
            title=lenient_json.text(kept.get("title")),
        ),
        other=record,
    )


def write_state(storage: Storage, folder: Path, state: SessionMetadata) -> None:
    """Write the whole state.

    Raises:
        OSError: The disk refused; the old state stays.
    """
    summary = state.summary
    record = {
        "version": 1,
        **state.other,
        "custom_title": state.title or None,
        "archived": state.archived,
        "work_dir": state.work_dir,
        "summary": {
            "size": summary.size,
            "messages": summary.messages,
            "tokens": summary.tokens,
            "title": summary.title,
        },
    }
    optional = {
        "folder_inode": state.folder_inode,
        "moved_from": state.moved_from,
        "forked_from": state.forked_from,
        "imported_from": state.imported_from,
        "external_agent": state.external_agent,
    }
    record |= {key: value for key, value in optional.items() if value}
    _write(storage, folder / STATE_NAME, record)


def folder_inode(folder: Path) -> int:
    """Return the inode of a folder, which a rename on the same disk keeps; 0 if there is no folder."""
    try:
        return os.stat(folder).st_ino
    except OSError:
        return 0


def read_marks(folder: Path) -> Marks:
    """Read the bookmarks and pins of a session; none if the file is missing or damaged."""
    record = _stored_object(folder / MARKS_NAME)
    names = lenient_json.mapping(record.pop("bookmarks", None))
    pairs: set[tuple[str, int]] = set()
    for item in lenient_json.listing(record.pop("pins", None)):
        pair = lenient_json.listing(item)
        if len(pair) == 2 and isinstance(pair[0], str) and (n := count_of(pair[1])) is not None:
            pairs.add((pair[0], n))
    return Marks(
        bookmarks={uid: name for uid, name in names.items() if isinstance(name, str)},
        pins=frozenset(pairs),
        other=record,
    )


def write_marks(storage: Storage, folder: Path, marks: Marks) -> None:
    """Write all bookmarks and pins.

    Raises:
        OSError: The disk refused; the old marks stay.
    """
    record = {
        **marks.other,
        "bookmarks": dict(marks.bookmarks),
        "pins": [list(pin) for pin in sorted(marks.pins)],
    }
    _write(storage, folder / MARKS_NAME, record)


def _stored_object(path: Path) -> dict[str, Any]:
    try:
        data = read_regular(path, MAX_SIDE_FILE_BYTES)
    except OSError:
        return {}
    return lenient_json.mapping(parse(data))


def _write(storage: Storage, path: Path, record: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError):
        data = read_regular(path, MAX_SIDE_FILE_BYTES)
        if data.strip() and not isinstance(parse(data), dict):
            storage.replace(path, path.with_name(f"{path.name}.damaged"))
    pretty = json.dumps(json.loads(encode(record)), indent=2, ensure_ascii=True)
    storage.replace_file(path, pretty.encode() + b"\n")


def short_title(text: str, images: Sequence[str] = ()) -> str:
    """Return one line of at most fifty characters for a text and the names of its images."""
    line = " ".join(titled(text[:1_000], images).split())
    return line if len(line) <= _MAX_TITLE else line[: _MAX_TITLE - 1].rstrip() + "…"


def title_of(messages: Iterable[Message]) -> str:
    """Return the beginning of the user's first message, which is the title of a session without one. It may be empty.

    It is also empty if the messages begin with a compaction's summary, as they continue a conversation. A command of the user
    (`!make`) counts only if there is no other message.
    """
    command = ""
    for message in islice(messages, _TITLE_MESSAGES):
        if message.role == "user" and (message.text.strip() or message.images):
            record = {"role": "user", "content": message.text, **(message.model_extra or {})}
            kind = internal_kind(record)
            names = [part.image_url.name or "" for part in message.images]
            if kind is None and not message.text.startswith("!"):
                return short_title(message.text, names)
            if kind == "compaction":
                return ""
            command = command or (short_title(message.text) if kind is None else "")
    return command
