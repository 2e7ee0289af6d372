"""Takes the demo's folder away when it is over, unless something lies in it that the demo did not make.

What the agent's tools wrote is known from the session's record; a file that changed besides is the person's own.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from kimi_tui.wire.codec import Decoder
from kimi_tui.wire.events import FilesChanged, FilesRestored, Record, TurnEnd

LEFT_BY_PYTHON = frozenset({"__pycache__", ".pytest_cache"})
SLACK_S = 2.0
"""The clock of a file system is not that of the record."""


def take_away(folder: Path, work_dir: Path, data_dir: Path, made_at: float) -> bool:
    """Remove the demo's folder. Reads and writes files: call it in a thread, when the session is closed.

    Args:
        folder: holds all of the demo.
        work_dir: what the agent worked on.
        data_dir: where its sessions are kept.
        made_at: when the newest file in `work_dir` was written before anyone worked on it, by its file system.

    Returns:
        False where it stays, because something in it is not the demo's or cannot be removed.
    """
    try:
        if has_own_files(work_dir, data_dir, made_at):
            return False
        shutil.rmtree(folder)
    except OSError:
        return False
    return True


def newest_change(folder: Path) -> float:
    """When the last of the files in a folder was written, by the clock of its file system.

    Raises:
        OSError: it cannot be read.
    """
    return max(path.lstat().st_mtime for path in folder.rglob("*"))


def has_own_files(work_dir: Path, data_dir: Path, made_at: float) -> bool:
    """Whether a file changed that no tool of the agent changed, or changed again after the agent was done.

    Raises:
        OSError: it cannot be read.
    """
    by_agent: set[str] = set()
    done_at = made_at
    for record in _records(data_dir):
        match record.event:
            case FilesChanged(paths=paths):
                by_agent.update(paths)
            case FilesRestored(restored=restored):
                by_agent.update(restored)
                done_at = max(done_at, record.at)
            case TurnEnd():
                done_at = max(done_at, record.at)
            case _:
                pass
    for path in sorted(work_dir.rglob("*")):
        name = path.relative_to(work_dir)
        if LEFT_BY_PYTHON.intersection(name.parts) or path.is_dir():
            continue
        limit = done_at + SLACK_S if name.as_posix() in by_agent else made_at
        if path.lstat().st_mtime > limit:
            return True
    return False


def _records(data_dir: Path) -> Iterator[Record]:
    """All that the sessions told; lines that cannot be read are passed over."""
    for file in sorted(data_dir.glob("sessions/*/*/wire.jsonl")):
        decoder = Decoder()
        for number, line in enumerate(file.read_bytes().splitlines(), 1):
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                record = decoder.decode_record(cast("dict[str, Any]", value), number)
                if record is not None:
                    yield record
