"""The prompt's history: sent messages, stored in one file for each work folder, and moving through them with the arrows.

The file has one JSON string a line and is appended to; the newest thousand are read. The functions block, and belong in a
thread.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Sequence
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
    """The path of the history file of a work folder."""
    name = hashlib.md5(str(work_dir).encode("utf-8", "surrogateescape"), usedforsecurity=False)
    return data_dir / "history" / f"{name.hexdigest()}.jsonl"


def read_history(path: Path) -> list[str]:
    """The stored messages, oldest first; what cannot be read is passed over."""
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
    # The first is cut off in its middle.
    return lines[1:] if begin else lines


def read_others(folder: Path, own: Path) -> list[str]:
    """The stored messages of all other work folders, newest folder last."""

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
            # ASCII JSON: any text, also with half a surrogate pair, becomes a line.
            os.write(handle, json.dumps(text).encode("ascii") + b"\n")
        finally:
            os.close(handle)
    except OSError as error:
        log.warning("what was sent is not kept for Up: %s: %s", path, error)


class History:
    """The sent messages and a position among them, with the draft that was in the field before the first step back."""

    def __init__(self, entries: list[str]) -> None:
        self._entries = entries
        self._position = len(entries)
        self._draft = ""

    @property
    def entries(self) -> Sequence[str]:
        """All sent messages, oldest first."""
        return self._entries

    @property
    def draft(self) -> str:
        """The draft that was in the field before the first step back."""
        return self._draft

    @property
    def walking(self) -> bool:
        """Whether the field shows an earlier message."""
        return self._position < len(self._entries)

    def shows(self, text: str) -> bool:
        """Whether a text is the earlier message at the present position."""
        entries, position = self._entries, self._position
        return position < len(entries) and entries[position] == text

    def add(self, text: str) -> None:
        """Add a sent message, and move the position to behind it."""
        if text and (not self._entries or self._entries[-1] != text):
            self._entries.append(text)
        self.rewind()

    def rewind(self) -> None:
        """Move the position to behind the newest message, without a draft."""
        self._position = len(self._entries)
        self._draft = ""

    def earlier(self, current: str) -> str | None:
        """Move to the message before and return it; None at the oldest.

        Args:
            current: the text of the field, which is kept as the draft at the first step back.
        """
        if self._position == 0:
            return None
        if not self.walking:
            self._draft = current
        self._position -= 1
        return self._entries[self._position]

    def later(self) -> str | None:
        """Move to the message after and return it, behind the newest the draft; None where no message is shown."""
        if not self.walking:
            return None
        self._position += 1
        return self._entries[self._position] if self.walking else self._draft
