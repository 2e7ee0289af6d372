"""Finds the sessions that kimi-cli left in its share folder. Only reads."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from kimi_tui.session.jsonl import parse
from kimi_tui.session.line_files import LIVE_NAME, STORED_NAME
from kimi_tui.session.listing import describe, look, records_a_turn
from kimi_tui.session.record import RECORD_NAME
from kimi_tui.session.records import text_of
from kimi_tui.session.side_files import STATE_NAME

_LOCAL_BUCKET = re.compile(r"[0-9a-f]{32}")
_OLD_SUFFIX = ".jsonl"
_MAX_STATE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class KimiSession:
    """One session as kimi-cli left it.

    Attributes:
        bucket: The name of the folder it is in, the MD5 of its work folder's path.
        work_dir: That path where it is known, else nothing.
        live: The file of its live line (of a lost future, where kimi-cli died while it renamed).
        stored: The files of the lines it left, by number.
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
    """Every session that is not empty, the newest first.

    Args:
        share: kimi-cli's share folder.
        work_dir: Only those of this folder.
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
        # Killed between its renames, kimi-cli leaves no live file; the newest line is the conversation then.
        live = stored.pop()[1]
    title = ""
    state = path / STATE_NAME
    if state.is_file():
        title = text_of(_object(state).get("custom_title"))
    info = describe(path)
    looked = look(live, live.stat().st_size)
    if looked.empty and not (title or records_a_turn(path / RECORD_NAME)):
        return None
    record = path / RECORD_NAME
    return KimiSession(
        id=path.name,
        bucket=bucket,
        work_dir=work_dir,
        title=title or looked.title or "Untitled",
        updated_at=live.stat().st_mtime,
        messages=info.messages if info else looked.messages,
        tokens=looked.tokens,
        live=live,
        stored=tuple(stored),
        record=record if record.is_file() else None,
        state=state if state.is_file() else None,
    )


def _old_session(path: Path, bucket: str, work_dir: str) -> KimiSession | None:
    """The oldest layout: one file a session."""
    if (path.parent / path.stem).is_dir():
        return None
    looked = look(path, path.stat().st_size)
    if looked.empty:
        return None
    return KimiSession(
        id=path.stem,
        bucket=bucket,
        work_dir=work_dir,
        title=looked.title or "Untitled",
        updated_at=path.stat().st_mtime,
        messages=looked.messages,
        tokens=looked.tokens,
        live=path,
    )


def _work_dirs(share: Path) -> dict[str, str]:
    """The paths that kimi-cli knew, by the MD5 that names their folders."""
    listed: object = _object(share / "kimi.json").get("work_dirs")
    found: dict[str, str] = {}
    for item in cast("list[object]", listed) if isinstance(listed, list) else []:
        if isinstance(item, dict):
            path = text_of(cast("dict[str, Any]", item).get("path"))
            name = path.encode(errors="surrogateescape")
            found[hashlib.md5(name, usedforsecurity=False).hexdigest()] = path
    return found


def _object(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            record = parse(file.read(_MAX_STATE_BYTES))
    except OSError:
        return {}
    return record if isinstance(record, dict) else {}


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
