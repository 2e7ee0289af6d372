"""Finds the sessions that kimi-cli left in its share folder, and copies them with their lost futures as world lines.

The originals are only read.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import shutil
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kimi_tui import lenient_json
from kimi_tui.app_paths import reason_of
from kimi_tui.filesystem import Storage, read_regular
from kimi_tui.session.aside import IMPORTED, made_aside
from kimi_tui.session.errors import SessionError
from kimi_tui.session.images import ImageStore
from kimi_tui.session.journal import Journal, JournalEntry
from kimi_tui.session.jsonl import CHUNK_BYTES, RECORD_NAME, JsonlLog, lines, parse
from kimi_tui.session.listing import read_excerpt, records_a_turn, time_of
from kimi_tui.session.metadata import MAX_SIDE_FILE_BYTES, STATE_NAME, read_state, write_state
from kimi_tui.session.rotation import LIVE_NAME, STORED_NAME, world_line_path
from kimi_tui.session.store import SESSIONS_NAME, SessionStore
from kimi_tui.session.world_lines import infer_revert

FOLDER_LIST_NAME = "kimi.json"
"""The file in the share folder in which kimi-cli lists its work folders."""
_LOCAL_BUCKET = re.compile(r"[0-9a-f]{32}")
_OLD_SUFFIX = ".jsonl"


_PLAIN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# These keys are not copied: they are answers that the user gave to another program.
_LEFT_BEHIND = frozenset({"approval", "additional_dirs", "plan_session_id", "plan_slug"})


@dataclass(frozen=True, slots=True)
class KimiSession:
    """One session as kimi-cli left it.

    Attributes:
        bucket: The name of the folder above the session, which is the MD5 of the work folder's path.
        work_dir: The work folder's path if it is known, else empty.
        live: The file of the live line (of a lost future if kimi-cli died while it renamed).
        stored: The files of the lines that were left, by number.
        updated_at: Seconds since 1970 of the last write.
    """

    id: str
    bucket: str
    work_dir: str
    title: str
    updated_at: float
    messages: int | None
    tokens: int | None
    live: Path
    stored: tuple[tuple[int, Path], ...] = ()
    record: Path | None = None
    state: Path | None = None


def find_sessions(share: Path, work_dir: Path | None = None) -> list[KimiSession]:
    """Return every session that is not empty, the newest first.

    Args:
        share: kimi-cli's share folder.
        work_dir: Only sessions of this work folder; None for all.
    """
    known = _work_dirs(share)
    wanted: str | None = None
    if work_dir is not None:
        path = os.path.abspath(work_dir)
        wanted = hashlib.md5(
            path.encode(errors="surrogateescape"), usedforsecurity=False
        ).hexdigest()
        known.setdefault(wanted, path)
    found: list[KimiSession] = []
    for bucket in _entries(share / "sessions"):
        if wanted not in (None, bucket.name) or not _LOCAL_BUCKET.fullmatch(bucket.name):
            continue
        for entry in _entries(bucket):
            with contextlib.suppress(OSError):
                session = _session(entry, bucket.name, known.get(bucket.name, ""))
                if session is not None:
                    found.append(session)
    return sorted(found, key=lambda session: session.updated_at, reverse=True)


def _session(path: Path, bucket: str, work_dir: str) -> KimiSession | None:
    if path.suffix == _OLD_SUFFIX and path.is_file() and not path.is_symlink():
        return _old_session(path, bucket, work_dir)
    if path.is_symlink() or not path.is_dir():
        return None
    stored = sorted(
        (int(match[1]), entry)
        for entry in _entries(path)
        if (match := STORED_NAME.fullmatch(entry.name)) and entry.is_file()
    )
    live = path / LIVE_NAME
    if not live.is_file():
        if not stored:
            return None
        # If kimi-cli was killed between its renames, there is no live file; the newest line is the conversation then.
        live = stored.pop()[1]
    title = ""
    state = path / STATE_NAME
    if state.is_file():
        title = lenient_json.text(_object(state).get("custom_title"))
    excerpt = read_excerpt(live, live.stat().st_size, counted=True)
    if excerpt.empty and not (title or records_a_turn(path / RECORD_NAME)):
        return None
    record = path / RECORD_NAME
    return KimiSession(
        id=path.name,
        bucket=bucket,
        work_dir=work_dir,
        title=title
        or excerpt.title
        or _first_title(stored if excerpt.goes_on else ())
        or "Untitled",
        updated_at=time_of(live.stat()),
        messages=excerpt.messages,
        tokens=excerpt.tokens,
        live=live,
        stored=tuple(stored),
        record=record if record.is_file() else None,
        state=state if state.is_file() else None,
    )


def _first_title(stored: Sequence[tuple[int, Path]]) -> str:
    """Return how a session began that continues with a summary, by its oldest line; empty if that line has no such words."""
    if not stored:
        return ""
    _, oldest = stored[0]
    return read_excerpt(oldest, oldest.stat().st_size).title


def _old_session(path: Path, bucket: str, work_dir: str) -> KimiSession | None:
    """Read a session of the oldest layout: one file per session."""
    if (path.parent / path.stem).is_dir():
        return None
    excerpt = read_excerpt(path, path.stat().st_size, counted=True)
    if excerpt.empty:
        return None
    return KimiSession(
        id=path.stem,
        bucket=bucket,
        work_dir=work_dir,
        title=excerpt.title or "Untitled",
        updated_at=time_of(path.stat()),
        messages=excerpt.messages,
        tokens=excerpt.tokens,
        live=path,
    )


def folder_list_error(share: Path) -> str:
    """Say why kimi-cli's list of work folders cannot be read; empty if it can, or if there is none.

    Sessions are found without the list, but not their work folders.
    """
    try:
        record = parse(read_regular(share / FOLDER_LIST_NAME, MAX_SIDE_FILE_BYTES, links=True))
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return reason_of(error)
    if not isinstance(record, dict):
        return record or f"{FOLDER_LIST_NAME} is empty"
    return (
        ""
        if isinstance(record.get("work_dirs", []), list)
        else f"{FOLDER_LIST_NAME} has no list of folders"
    )


def _work_dirs(share: Path) -> dict[str, str]:
    """Return the paths that kimi-cli knew, by the MD5 that names their folders."""
    listed = lenient_json.listing(_object(share / FOLDER_LIST_NAME).get("work_dirs"))
    found: dict[str, str] = {}
    for item in listed:
        if isinstance(item, dict):
            path = lenient_json.text(lenient_json.mapping(item).get("path"))
            try:
                name = path.encode(errors="surrogateescape")
            except UnicodeEncodeError:
                # The path contains a lone surrogate, which no folder's name has.
                continue
            found[hashlib.md5(name, usedforsecurity=False).hexdigest()] = path
    return found


def _object(path: Path) -> dict[str, Any]:
    try:
        # Some users keep their dotfiles elsewhere and link to them, so links are followed.
        record = parse(read_regular(path, MAX_SIDE_FILE_BYTES, links=True))
    except OSError:
        return {}
    return lenient_json.mapping(record)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


class AlreadyImported(SessionError):
    """This session was imported before."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The place of an imported session, and the operations that left the lost futures which were imported."""

    folder: Path
    futures: tuple[JournalEntry, ...]


def target_of(store: SessionStore, found: KimiSession) -> Path:
    """Return the place of a session of kimi-cli among ours, imported or not."""
    name = found.id
    if not _PLAIN_ID.fullmatch(name):
        name = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{found.bucket}/{found.id}"))
    return store.root / SESSIONS_NAME / found.bucket / name


def futures_of(found: KimiSession, storage: Storage | None = None) -> tuple[JournalEntry, ...]:
    """Return, for each line that was left (`n`), the operation that left it, as far as the files tell. It reads them through,
    so call it in a thread.

    Raises:
        OSError: One of the files cannot be read.
    """
    disk = storage or Storage()
    followed = [*(path for _, path in found.stored), found.live][1:]
    futures: list[JournalEntry] = []
    # A copied file may have a later time than everything in the record.
    ended_at = _ended_at(found.record) if found.record is not None else math.inf
    for (n, path), after in zip(found.stored, followed, strict=True):
        status = disk.stat(path)
        at = min(time_of(status), ended_at)
        left_at = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
        futures.append(
            replace(
                infer_revert(disk, path, after),
                n=n,
                size=status.st_size,
                stored=True,
                at=left_at.replace("+00:00", "Z"),
            )
        )
    return tuple(futures)


def _ended_at(record: Path) -> float:
    """Return the time of the last event in the record, in seconds since 1970; infinite if the record has none."""
    file = JsonlLog(record)
    times = [line.get("timestamp") for line in file.read(file.tail_start(CHUNK_BYTES))]
    known = [at for at in times if isinstance(at, int | float) and 0 < at < math.inf]
    return known[-1] if known else math.inf


def import_session(store: SessionStore, found: KimiSession) -> Imported:
    """Copy a session, completely or not at all. It blocks, so call it in a thread.

    Raises:
        AlreadyImported: The session was imported before; use that copy.
        StorageTrouble: The disk refused; nothing was made.
    """
    target = target_of(store, found)
    if target.exists():
        raise AlreadyImported(f"{found.title!r} was imported before ({target.name[:8]}).")
    storage = store.storage
    temporary = target.with_name(f"{IMPORTED}{target.name}")
    with made_aside(storage, temporary, target, "import the session"):
        shutil.rmtree(temporary, ignore_errors=True)
        storage.make_folder(temporary)
        images = ImageStore(temporary, storage)
        _copy(storage, found.live, temporary / LIVE_NAME, images)
        for n, path in found.stored:
            _copy(storage, path, world_line_path(temporary, n), images)
        if found.record is not None:
            _copy(storage, found.record, temporary / RECORD_NAME, images)
        if found.state is not None:
            _copy(storage, found.state, temporary / STATE_NAME)
        futures = tuple(
            replace(entry, size=storage.stat(world_line_path(temporary, entry.n)).st_size)
            for entry in futures_of(found, storage)
        )
        journal = Journal(temporary, storage)
        for entry in futures:
            journal.finish(journal.intend(entry))
        journal.file.close()
        _write_state(storage, temporary, found)
    return Imported(target, futures)


def _copy(storage: Storage, source: Path, target: Path, images: ImageStore | None = None) -> None:
    """Copy a file. kimi-cli writes an image into every line that has it; each image of the file is stored once."""
    with storage.opened(source) as fd:
        status, size = storage.fstat(fd), storage.readable_size(fd)

        def read(size: int, offset: int) -> bytes:
            return storage.pread(fd, size, offset)

        if images is None or not _holds_images(read):
            storage.write_file(target, b"", source=fd, size=size, new=True)
        else:
            with storage.opened(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as made:
                for line in lines(read):
                    storage.write_all(made, images.taken_in(line.data) + b"\n" * line.complete)
                storage.fsync(made)
    # Lists are ordered by the time of the last write, so the copy keeps it.
    with contextlib.suppress(OSError):
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def _holds_images(read: Callable[[int, int], bytes]) -> bool:
    position, tail = 0, b""
    while chunk := read(CHUNK_BYTES, position):
        if b"data:image/" in tail + chunk:
            return True
        position += len(chunk)
        tail = chunk[-16:]
    return False


def _write_state(storage: Storage, folder: Path, found: KimiSession) -> None:
    state = read_state(folder)
    kept = {key: value for key, value in state.other.items() if key not in _LEFT_BEHIND}
    write_state(
        storage,
        folder,
        replace(
            state,
            title=state.title or ("" if found.title == "Untitled" else found.title),
            work_dir=found.work_dir,
            imported_from=f"kimi-cli {found.id}",
            other=kept,
        ),
    )
