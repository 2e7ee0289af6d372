"""Takes over a session of kimi-cli: its bytes, its title, and its lost futures as world lines. The original is only read."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from kimi_tui.session.classify import Guess, classify
from kimi_tui.session.errors import SessionError, StorageTrouble
from kimi_tui.session.journal import Entry, Journal
from kimi_tui.session.kimi_share import KimiSession
from kimi_tui.session.line_files import LIVE_NAME, line_path
from kimi_tui.session.record import RECORD_NAME
from kimi_tui.session.records import Operation
from kimi_tui.session.side_files import STATE_NAME, read_state, write_state
from kimi_tui.session.storage import Storage, copy_bytes
from kimi_tui.session.store import SESSIONS_NAME, SessionStore

_PLAIN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# What must not come along: an answer that was given to another program.
_LEFT_BEHIND = frozenset({"approval", "additional_dirs", "plan_session_id", "plan_slug"})
_OPERATIONS: dict[str, Operation] = {
    "dmail": "dmail",
    "compaction": "compaction",
    "clear": "clear",
    "rewind": "rewind",
}


class AlreadyImported(SessionError):
    """This session was imported before."""


@dataclass(frozen=True, slots=True)
class Future:
    """A line that was left: its number, and why, as far as the files tell."""

    n: int
    guess: Guess


@dataclass(frozen=True, slots=True)
class Imported:
    """Where an imported session is now, and the futures that came along."""

    folder: Path
    futures: tuple[Future, ...]


def target_of(store: SessionStore, found: KimiSession) -> Path:
    """Where a session of kimi-cli is, or will be, among ours."""
    name = found.id
    if not _PLAIN_ID.fullmatch(name):
        name = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{found.bucket}/{found.id}"))
    return store.root / SESSIONS_NAME / found.bucket / name


def futures_of(found: KimiSession, storage: Storage | None = None) -> tuple[Future, ...]:
    """Why each line of a session was left. Reads its files through: call it in a thread.

    Raises:
        OSError: One of them cannot be read.
    """
    disk = storage or Storage()
    followed = [*(path for _, path in found.stored), found.live][1:]
    return tuple(
        Future(n, classify(disk, path, after))
        for (n, path), after in zip(found.stored, followed, strict=True)
    )


def import_session(store: SessionStore, found: KimiSession) -> Imported:
    """Copy a session, all of it or nothing. Blocks: call it in a thread.

    Raises:
        AlreadyImported: It is here already; go on with that one.
        StorageTrouble: The disk refused; nothing was made.
    """
    target = target_of(store, found)
    if target.exists():
        raise AlreadyImported(f"{found.title!r} was imported before ({target.name[:8]}).")
    storage = store.storage
    temporary = target.with_name(f".import-{target.name}")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        storage.make_folder(temporary)
        _copy(storage, found.live, temporary / LIVE_NAME)
        for n, path in found.stored:
            _copy(storage, path, line_path(temporary, n))
        if found.record is not None:
            _copy(storage, found.record, temporary / RECORD_NAME)
        if found.state is not None:
            _copy(storage, found.state, temporary / STATE_NAME)
        futures = futures_of(found, storage)
        _write_journal(storage, temporary, found, futures)
        _write_state(storage, temporary, found)
        storage.sync_folder(temporary)
        storage.replace(temporary, target)
        storage.sync_folder(target.parent)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, StorageTrouble):
            raise
        raise StorageTrouble.of("import the session", error) from error
    return Imported(target, futures)


def _copy(storage: Storage, source: Path, target: Path) -> None:
    fd = storage.open(source, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        status = storage.fstat(fd)
        copy = storage.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            copy_bytes(storage, fd, copy, status.st_size)
            storage.fsync(copy)
        finally:
            storage.close(copy)
    finally:
        storage.close(fd)
    # Lists go by the time of the last write.
    with contextlib.suppress(OSError):
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def _write_journal(
    storage: Storage, folder: Path, found: KimiSession, futures: tuple[Future, ...]
) -> None:
    journal = Journal(folder, storage)
    paths = dict(found.stored)
    for future in futures:
        guess = future.guess
        status = storage.stat(paths[future.n])
        left_at = datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="milliseconds")
        entry = journal.intend(
            Entry(
                op=_OPERATIONS.get(guess.reason, "rewind"),
                n=future.n,
                size=status.st_size,
                stored=True,
                checkpoint_id=guess.checkpoint_id,
                uid=guess.uid,
                from_checkpoint=guess.from_checkpoint,
                at=left_at.replace("+00:00", "Z"),
                tokens_before=guess.tokens_before,
                tokens_after=guess.tokens_after,
                messages_dropped=guess.messages_dropped,
                tool_calls_dropped=guess.tool_calls_dropped,
                text=guess.text,
            )
        )
        journal.finish(entry)
    journal.close()


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
