"""The messages that wait for the end of a turn, kept in the session's folder for a program that does not see it.

Reading and writing block and belong in a thread.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from kimi_tui.filesystem import open_regular, read_regular, write_all

NAME = "follow_ups.json"
_MAX_BYTES = 16 << 20


def write_follow_ups(folder: Path, texts: Sequence[str]) -> None:
    """Keep what waits; a disk that refuses costs only that it is not kept."""
    path = folder / NAME
    try:
        if not texts:
            path.unlink(missing_ok=True)
            return
        handle = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            write_all(handle, json.dumps(list(texts)).encode("ascii"))
        finally:
            os.close(handle)
    except OSError:
        return


def read_follow_ups(folder: Path) -> list[str]:
    """What was kept; nothing where it cannot be read."""
    try:
        found: object = json.loads(read_regular(folder / NAME, _MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return []
    texts = cast("list[object]", found) if isinstance(found, list) else []
    return [text for text in texts if isinstance(text, str) and text.strip()]
