"""Sessions of opencode: rows of the database `~/.local/share/opencode/opencode.db`, or older JSON files in `storage`.

The database is never opened where it is while it has a log of recent writes: reading that log takes locks and writes beside
it. So both are copied, and the copy is read. Without such a log the database is read as an immutable file, which takes no
lock. A fork is a session of its own there; what `/undo` hid is still stored, and is a world line here.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from kimi_tui import lenient_json
from kimi_tui.filesystem import open_regular
from kimi_tui.migration import foreign_files as files
from kimi_tui.migration.plain import (
    CannotRead,
    FoundSession,
    PlainCall,
    PlainEntry,
    PlainSession,
)
from kimi_tui.session.jsonl import parse
from kimi_tui.temporary_folders import TemporaryFolder

_DATABASE = "opencode.db"
_MOST_COPIED_BYTES = 2 << 30
MOST_LISTED_BYTES = 256 << 20
"""Bytes of a database that is copied to list its sessions; those begun a moment ago are missing in a larger one."""
_MOST_ROWS = 1_000_000
_MOST_LISTED = 5_000
STEPS_OF_A_QUERY = 100_000_000
"""Steps of SQLite after which a query is ended: some seconds."""
_TRIES = 3


def home(environ: Mapping[str, str], home_folder: Path) -> Path:
    """Return the folder of opencode."""
    given = environ.get("XDG_DATA_HOME", "")
    base = Path(given) if given.startswith("/") else home_folder / ".local" / "share"
    return base / "opencode"


def find(folder: Path, work_dir: str) -> list[FoundSession]:
    """Return the sessions of a work folder, or all for an empty one.

    Raises:
        CannotRead: There is a database that cannot be read.
    """
    database = folder / _DATABASE
    found = [*_in_files(folder / "storage", work_dir)]
    if not os.path.lexists(database):
        return found
    known = {session.id for session in found}
    query = (
        "SELECT id, directory, title, time_updated FROM session WHERE parent_id IS NULL"
        " AND (? = '' OR directory = ?) ORDER BY time_updated DESC LIMIT ?"
    )
    with _opened(database, MOST_LISTED_BYTES) as connection:
        for row in connection.execute(query, (work_dir, work_dir, _MOST_LISTED)):
            name, directory, title, updated = row
            folder_path = files.real_folder(directory)
            if not isinstance(name, str) or not folder_path or name in known:
                continue
            at = files.time_of(updated)
            found.append(
                FoundSession("opencode", name, database, folder_path, files.title_from(title), at)
            )
    return found


def _in_files(storage: Path, work_dir: str) -> Iterable[FoundSession]:
    for project in files.folders_of(storage / "session"):
        for path in files.files_of(project, ".json"):
            record = files.read_object(path)
            directory = files.real_folder(record.get("directory"))
            if record.get("parentID") or not directory:
                continue
            if work_dir and not files.same_folder(directory, work_dir):
                continue
            size, updated = files.size_and_time(path)
            title = files.title_from(record.get("title"))
            at = files.time_of(lenient_json.mapping(record.get("time")).get("updated")) or updated
            yield FoundSession("opencode", path.stem, path, directory, title, at, size)


@contextlib.contextmanager
def _opened(database: Path, most_copied: int = _MOST_COPIED_BYTES) -> Generator[sqlite3.Connection]:
    """Open the database for reading, or a copy of it, without writing anything beside the original.

    Args:
        database: its path.
        most_copied: the size in bytes up to which it is copied with its log; beyond that the log is left out of a list,
            and to read a session is refused.

    Raises:
        CannotRead: It is no database that can be read.
    """
    with TemporaryFolder("import") as folder:
        log = database.with_name(f"{database.name}-wal")
        try:
            os.close(open_regular(database))
            size = os.lstat(database).st_size
            is_whole = not os.path.lexists(log) or os.lstat(log).st_size == 0
            is_whole = is_whole or (most_copied == MOST_LISTED_BYTES and size > most_copied)
            path = database if is_whole else _copied(database, log, Path(folder.path))
            how = "mode=ro&immutable=1" if is_whole else "mode=rw"
            connection = sqlite3.connect(f"file:{quote(str(path))}?{how}", uri=True)
        except (OSError, sqlite3.Error, ValueError) as error:
            raise CannotRead(f"opencode's database cannot be read: {error}.") from error
        try:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, files.MOST_LINE_BYTES)
            connection.set_progress_handler(_StepLimit().tick, 1_000_000)
            connection.text_factory = _text
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            yield connection
        except (sqlite3.Error, UnicodeError, OverflowError) as error:
            raise CannotRead(f"opencode's database cannot be read: {error}.") from error
        finally:
            connection.close()


class _StepLimit:
    """Ends a query that takes too many steps."""

    def __init__(self) -> None:
        self._left = STEPS_OF_A_QUERY // 1_000_000

    def tick(self) -> int:
        """Return whether the query is to end, as SQLite asks."""
        self._left -= 1
        return int(self._left < 0)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _copied(database: Path, log: Path, folder: Path) -> Path:
    """Copy the database with its log; both as they were at one time.

    Raises:
        OSError: They are too large, cannot be read, or change all the time.
    """
    target = folder / _DATABASE
    for _ in range(_TRIES):
        before = [_stamp(path) for path in (database, log)]
        if sum(size for size, _ in before) > _MOST_COPIED_BYTES:
            raise OSError(
                f"it has more than {_MOST_COPIED_BYTES >> 30} GB, and opencode is still changing it; quit opencode first"
            )
        for source, name in ((database, target), (log, target.with_name(f"{_DATABASE}-wal"))):
            with open(open_regular(source), "rb") as read, open(name, "wb") as write:
                shutil.copyfileobj(read, write, 1 << 20)
        if [_stamp(path) for path in (database, log)] == before:
            return target
    raise OSError("opencode keeps writing to it; quit opencode first")


def _stamp(path: Path) -> tuple[int, int]:
    status = os.lstat(path)
    return status.st_size, status.st_mtime_ns


def read(found: FoundSession) -> PlainSession:
    """Read a session.

    Raises:
        CannotRead: It cannot be read at all.
    """
    plain = PlainSession(found, title=found.title)
    if found.path.name == _DATABASE:
        info, messages, parts = _rows(found, plain)
    else:
        info, messages, parts = _stored(found, plain)
    _OpencodeReader(plain, parts).take(info, messages)
    return plain


Json = files.Json
_Content = tuple[Json, list[tuple[str, Json]], dict[str, list[Json]]]


def _rows(found: FoundSession, plain: PlainSession) -> _Content:
    messages: list[tuple[str, Json]] = []
    parts: dict[str, list[Json]] = {}
    with _opened(found.path) as connection:
        query = "SELECT version, revert FROM session WHERE id = ?"
        row = connection.execute(query, (found.id,)).fetchone() or ("", "")
        children = "SELECT count(*) FROM session WHERE parent_id = ?"
        plain.losses["sub-agent conversation"] += connection.execute(
            children, (found.id,)
        ).fetchone()[0]
        total = 0
        for table, order in (("message", "time_created, id"), ("part", "id")):
            name = "id" if table == "message" else "message_id"
            query = (
                f"SELECT {name}, data FROM {table} WHERE session_id = ? ORDER BY {order} LIMIT ?"
            )
            for owner, data in connection.execute(query, (found.id, _MOST_ROWS)):
                total += len(data or "")
                if total > files.MOST_SESSION_BYTES:
                    raise CannotRead(
                        f"Sessions over {files.MOST_SESSION_BYTES >> 20} MB cannot be imported."
                    )
                record = parse(str(data).encode("utf-8", "replace"))
                if not isinstance(record, dict) or not isinstance(owner, str):
                    plain.losses["unreadable record"] += 1
                elif table == "message":
                    messages.append((owner, record))
                else:
                    parts.setdefault(owner, []).append(record)
    revert = parse(str(row[1] or "").encode("utf-8", "replace"))
    info: Json = {"version": row[0], "revert": revert if isinstance(revert, dict) else {}}
    return info, messages, parts


def _stored(found: FoundSession, plain: PlainSession) -> _Content:
    """Read a session of the older form: a file for each message and part."""
    storage = found.path.parent.parent.parent
    info = files.read_object(found.path)
    messages: list[tuple[str, Json]] = []
    parts: dict[str, list[Json]] = {}
    total = 0
    for path in files.files_of(storage / "message" / found.id, ".json"):
        below = files.files_of(storage / "part" / path.stem, ".json")
        total += sum(files.size_and_time(one)[0] for one in (path, *below))
        if total > files.MOST_SESSION_BYTES:
            raise CannotRead(
                f"Sessions over {files.MOST_SESSION_BYTES >> 20} MB cannot be imported."
            )
        record = files.read_object(path)
        if not record:
            plain.losses["unreadable record"] += 1
            continue
        messages.append((path.stem, record))
        parts[path.stem] = [part for one in below if (part := files.read_object(one))]
    messages.sort(key=lambda one: (_created(one[1]), one[0]))
    return info, messages, parts


def _created(message: Json) -> float:
    return files.time_of(lenient_json.mapping(message.get("time")).get("created"))


class _OpencodeReader:
    def __init__(self, plain: PlainSession, parts: Mapping[str, list[Json]]) -> None:
        self._plain = plain
        self._parts = parts
        self._places: dict[str, int] = {}
        self._head = -1

    def take(self, info: Json, messages: Sequence[tuple[str, Json]]) -> None:
        self._plain.version = files.name_of(info.get("version"), 40)
        undone = lenient_json.text(lenient_json.mapping(info.get("revert")).get("messageID"))
        live: int | None = None
        for name, message in messages:
            if undone and name >= undone and live is None:
                # Undone messages are hidden there until the next message, and then deleted.
                live = self._head
            place = self._message(name, message)
            self._places[name] = place
            self._head = place
        self._plain.live = self._head if live is None else live
        if live is not None and live < 0:
            # A conversation of which everything was undone is shown whole.
            self._plain.live = self._head

    def _message(self, name: str, message: Json) -> int:
        parts = self._parts.get(name, [])
        at = _created(message)
        if message.get("role") == "assistant":
            return self._answer(message, parts, at)
        if message.get("role") != "user":
            self._plain.losses["record of an unknown type"] += 1
            return self._head
        texts: list[str] = []
        images: list[str] = []
        for part in parts:
            match part.get("type"):
                case "text" if not (part.get("synthetic") or part.get("ignored")):
                    texts.append(files.text_of(part.get("text"), self._plain.losses))
                case "file":
                    self._file(part, images)
                case _:
                    pass
        if not any(texts) and not images:
            return self._head
        text = "\n\n".join(filter(None, texts))
        return self._added(PlainEntry("said", self._head, at, text, images=images))

    def _file(self, part: Json, images: list[str]) -> None:
        url, mime = part.get("url"), lenient_json.text(part.get("mime"))
        if isinstance(url, str) and url.startswith("data:image/"):
            images.append(url)
        elif mime.startswith("image/"):
            self._plain.losses["unreadable image"] += 1

    def _added(self, entry: PlainEntry) -> int:
        place = self._plain.add(entry)
        return place if place >= 0 else entry.parent

    def _answer(self, message: Json, parts: Sequence[Json], at: float) -> int:
        if message.get("summary") is True:
            texts = [
                files.text_of(part.get("text")) for part in parts if part.get("type") == "text"
            ]
            text = "\n\n".join(filter(None, texts))
            if not text:
                return self._head
            return self._added(
                PlainEntry("summary", self._head, at, text, kept=self._tail(message))
            )
        error = lenient_json.mapping(message.get("error"))
        place = self._head
        entry = self._begun(message, place, at)
        for part in parts:
            kind = files.kind_of(part)
            if kind == "step-start" and entry.calls:
                # Older versions stored several steps in one message.
                place = self._put(entry, place)
                entry = self._begun(message, place, at)
                entry.tokens = None
            self._add_part(entry, part, kind)
        entry.stopped = error.get("name") == "MessageAbortedError"
        if entry.is_empty:
            self._plain.losses["failed model request"] += bool(error)
            return place
        return self._put(entry, place)

    def _put(self, entry: PlainEntry, parent: int) -> int:
        if entry.is_empty:
            return parent
        entry.parent = parent
        return self._added(entry)

    def _begun(self, message: Json, parent: int, at: float) -> PlainEntry:
        tokens = lenient_json.mapping(message.get("tokens"))
        cache = lenient_json.mapping(tokens.get("cache"))
        sent = sum(
            lenient_json.count(one) or 0
            for one in (tokens.get("input"), cache.get("read"), cache.get("write"))
        )
        answered = (lenient_json.count(tokens.get("output")) or 0) + (
            lenient_json.count(tokens.get("reasoning")) or 0
        )
        return PlainEntry(
            "answer",
            parent,
            at,
            model=files.name_of(message.get("modelID")),
            tokens=files.tokens_of(sent, cache.get("read"), answered),
        )

    def _add_part(self, entry: PlainEntry, part: Json, kind: str) -> None:
        losses = self._plain.losses
        match kind:
            case "text":
                text = files.text_of(part.get("text"), losses)
                entry.text += f"\n\n{text}" if entry.text and text else text
            case "reasoning":
                entry.thinking += files.text_of(part.get("text"), losses)
            case "tool":
                entry.calls.append(self._call(part))
            case (
                "step-start"
                | "step-finish"
                | "snapshot"
                | "patch"
                | "retry"
                | "agent"
                | "compaction"
            ):
                pass
            case "subtask":
                losses["sub-agent conversation"] += 1
            case _:
                losses["unreadable message part"] += 1

    def _call(self, part: Json) -> PlainCall:
        state = lenient_json.mapping(part.get("state"))
        call = PlainCall(
            files.name_of(part.get("callID")),
            files.name_of(part.get("tool")) or "tool",
            files.arguments_of(state.get("input")),
        )
        status = state.get("status")
        if status == "completed":
            call.result = files.output_of(state.get("output"), self._plain.losses)
            for one in map(lenient_json.mapping, lenient_json.listing(state.get("attachments"))):
                self._file(one, call.images)
        elif status == "error":
            call.result = files.output_of(state.get("error"), self._plain.losses)
            call.failed = True
        call.at = files.time_of(lenient_json.mapping(state.get("time")).get("end"))
        return call

    def _tail(self, message: Json) -> tuple[int, ...]:
        """Return the entries that stay beside a summary: those from the message on that its request names."""
        request = self._parts.get(lenient_json.text(message.get("parentID")), [])
        for part in request:
            first = self._places.get(lenient_json.text(part.get("tail_start_id")), -1)
            if part.get("type") == "compaction" and first >= 0:
                path = self._plain.before(self._head)
                return tuple(path[path.index(first) :]) if first in path else ()
        return ()
