"""Texts of the user that are not in the conversation yet, stored in the session's folder in case the program is killed.

This module has the waiting texts (`follow_ups.json`), writes the draft in the prompt, which the screen reads, and writes and
reads small JSON files of such texts. The functions block, so call them in a thread.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from kimi_tui.filesystem import Storage, read_regular, temporary_of
from kimi_tui.foreign_text import clean

DRAFT = "draft.json"
"""The file of the text in the prompt."""
WAITING = "follow_ups.json"
"""The file of the texts that are not in the context yet, oldest first."""
MOST_TEXTS = 100
"""Maximum number of texts read from the file."""
_MAX_BYTES = 2 << 20
"""Maximum bytes of a file that is written or read."""
_MOST_HIDDEN = 50_000
"""Maximum invisible characters in a stored value. No text stored here has many, and each takes microseconds to clean."""


def write_waiting(folder: Path, texts: Sequence[str]) -> None:
    """Store the waiting texts.

    Raises:
        OSError: the texts could not be stored.
    """
    write_json(folder / WAITING, list(texts))


def write_draft_text(folder: Path, text: str, pastes: Mapping[str, str]) -> None:
    """Store the text of the prompt, with the pasted texts behind its chips; delete the stored one if it is empty.

    Raises:
        OSError: the draft could not be stored.
    """
    write_json(folder / DRAFT, {"text": text, "pastes": dict(pastes)} if text else None)


def read_waiting(folder: Path) -> list[str]:
    """Return the stored texts; none if they cannot be read."""
    found = read_json(folder / WAITING)
    texts = cast("list[object]", found)[:MOST_TEXTS] if isinstance(found, list) else []
    return [clean(text) for text in texts if isinstance(text, str) and text.strip()]


def finish_writing(*paths: Path) -> None:
    """Replace a file by the complete one that a killed program had written under its temporary name; remove an incomplete one."""
    for path in paths:
        temporary = temporary_of(path)
        if path.parent.is_symlink() or not os.path.lexists(temporary):
            continue
        with contextlib.suppress(OSError):
            if read_json(temporary) is not None:
                temporary.replace(path)
            else:
                temporary.unlink()


def write_json(path: Path, value: object) -> None:
    """Write a value; an empty one removes the file.

    Raises:
        OSError: the value could not be stored.
    """
    data = json.dumps(value).encode("ascii") if value else b""
    if 0 < len(data) <= _MAX_BYTES:
        Storage().replace_file(path, data)
        return
    path.unlink(missing_ok=True)
    temporary_of(path).unlink(missing_ok=True)
    if data:
        raise OSError(errno.EFBIG, "it is too long", str(path))


def read_json(path: Path) -> object:
    """Return the value of a file; None if there is none, or if its content would take seconds to clean."""
    try:
        written = read_regular(path, _MAX_BYTES).decode()
        found: object = json.loads(written)
        # The value is written out again, since the file may have hidden characters as escapes.
        shown = json.dumps(found, ensure_ascii=False)
    except (OSError, ValueError, RecursionError):
        return None
    n_hidden = len(shown) - sum(map(str.isprintable, shown)) + shown.count("\\u00")
    return found if n_hidden <= _MOST_HIDDEN else None
