"""The prompt's history: the messages that were sent, stored in one file for each work folder.

The file has one JSON string a line and is appended to; the newest thousand are read. The functions block, and belong in a
thread.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path

from kimi_tui.app_paths import make_private
from kimi_tui.filesystem import open_regular
from kimi_tui.foreign_text import clean_source

log = logging.getLogger(__name__)

LIMIT = 1000
MOST_OTHERS = 50
"""The most other folders whose histories are searched, those used last."""
_READ_BYTES = 8 << 20
"""The bytes at the end of the file that are read."""


def history_file(data_dir: Path, work_dir: Path) -> Path:
    """Return the path of the history file of a work folder."""
    name = hashlib.md5(str(work_dir).encode("utf-8", "surrogateescape"), usedforsecurity=False)
    return data_dir / "history" / f"{name.hexdigest()}.jsonl"


def read_history(path: Path) -> list[str]:
    """Read the stored messages, oldest first; unreadable lines are ignored."""
    found: list[str] = []
    for line in _last_lines(path)[-LIMIT - 1 :]:
        try:
            text = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(text, str) and (cleaned := clean_source(text)):
            found.append(cleaned)
    return found


def _last_lines(path: Path) -> list[bytes]:
    try:
        with open(open_regular(path), "rb", buffering=0) as file:
            begin = max(0, os.fstat(file.fileno()).st_size - _READ_BYTES)
            file.seek(begin)
            lines = (file.read(_READ_BYTES) or b"").split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        log.warning("what was sent before cannot be read: %s: %s", path, error)
        return []
    # The first line is incomplete if reading did not start at the beginning.
    return lines[1:] if begin else lines


def read_others(folder: Path, own: Path) -> list[str]:
    """Read the stored messages of all other work folders, newest folder last."""

    def changed_at(path: Path) -> float:
        try:
            return path.stat().st_mtime
        except OSError:
            return 0.0

    others = [path for path in folder.glob("*.jsonl") if path != own]
    newest = sorted(others, key=changed_at)[-MOST_OTHERS:]
    return [text for path in newest for text in read_history(path)]


def append_history(path: Path, text: str) -> None:
    """Append one message to the file. An error of the disk is ignored: the message is then missing in the next run."""
    try:
        make_private(path.parent)
        handle = open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            # ASCII JSON makes one line of any text, even with a lone surrogate.
            os.write(handle, json.dumps(text).encode("ascii") + b"\n")
        finally:
            os.close(handle)
    except OSError as error:
        log.warning("what was sent is not kept for Up: %s: %s", path, error)
