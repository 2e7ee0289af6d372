"""The last frame of a session, stored beside it: what `--continue` shows while the session is being read.

The file is only for the owner. It holds what stood on the screen, as text and colours, and is used once: only if the context and
the journal of world lines are the very files that were there (inode, size and time), and the terminal is as large and as
coloured as it was. The text of the file is hostile, as is everything in a session's folder: it becomes cells and nothing else.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from kimi_tui.app_paths import data_dir
from kimi_tui.tui.rows import cells

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kimi_tui.filesystem import Storage

NAME = "last_frame.json"
VERSION = 1
_WATCHED = ("context.jsonl", "worldlines.jsonl")
"""The files of a session that are the same as long as it shows the same, as `session.rotation` and `session.journal` name them."""
_MOST_BYTES = 1 << 20
_CODES = r"(?:;\d{1,3}){0,24}"

Cells = tuple[str, str]
"""A run of text, and the numbers of its colours and attributes in an SGR sequence, each after a semicolon."""


class FrameLook(NamedTuple):
    """The facts that decide how the same session looks: the size of the terminal in cells, the theme, and what it is drawn with."""

    columns: int
    rows: int
    theme: str
    colours: int
    grey: bool
    ascii: bool


class StoredFrame(NamedTuple):
    """The rows of a frame above the prompt: the header, the panes, and the gauge as the last one; all as wide as the terminal."""

    look: FrameLook
    rows: tuple[tuple[Cells, ...], ...]


def identity_of(session: Path) -> list[list[int]]:
    """Return the identity of the files of a session that its frame shows; empty for one that is not there."""
    found: list[list[int]] = []
    for name in _WATCHED:
        try:
            told = os.stat(session / name, follow_symlinks=False)
        except FileNotFoundError:
            found.append([])
        else:
            found.append([told.st_ino, told.st_size, told.st_mtime_ns])
    return found


def write_frame(
    storage: Storage, session: Path, identity: Sequence[Sequence[int]], frame: StoredFrame
) -> None:
    """Store a frame in the folder of a session.

    Args:
        storage: the disk.
        session: the folder of the session.
        identity: what `identity_of` returned when the frame was on the screen.
        frame: the frame.

    Raises:
        OSError: the disk refused.
    """
    import json

    told = {
        "version": VERSION,
        "files": identity,
        "look": frame.look._asdict(),
        "rows": frame.rows,
    }
    storage.replace_file(session / NAME, json.dumps(told).encode())


def forget_frame(session: Path) -> None:
    """Delete the frame of a session, which is open now and will look different."""
    with suppress(OSError):
        (session / NAME).unlink()


def newest_session(work_dir: Path) -> Path | None:
    """Return the folder of the session of a work folder whose context was written last; None if two were, or there is none."""
    import hashlib

    # The name is that of `SessionStore.bucket`, whose import would take longer than all of the start so far.
    name = os.path.abspath(work_dir).encode(errors="surrogateescape")
    bucket = data_dir() / "sessions" / hashlib.md5(name, usedforsecurity=False).hexdigest()
    times: list[tuple[int, Path]] = []
    try:
        with os.scandir(bucket) as entries:
            for entry in entries:
                context = Path(entry.path, _WATCHED[0])
                try:
                    times.append(
                        (os.stat(context, follow_symlinks=False).st_mtime_ns, context.parent)
                    )
                except OSError:
                    # A context that is lost may come back when the session is opened.
                    return None
    except OSError:
        return None
    times.sort(reverse=True)
    is_clear = len(times) == 1 or (len(times) > 1 and times[0][0] > times[1][0])
    return times[0][1] if is_clear else None


def read_frame(session: Path, look: FrameLook) -> StoredFrame | None:
    """Return the frame of a session if it can be shown on a terminal; else None. The theme of `look` may be empty for any."""
    import json

    from kimi_tui.filesystem import read_regular

    path = session / NAME
    try:
        if os.stat(path, follow_symlinks=False).st_mode & 0o077:
            return None
        table: Any = json.loads(read_regular(path, _MOST_BYTES))
        told = cast("Mapping[str, Any]", table)
        if told["version"] != VERSION or told["files"] != identity_of(session):
            return None
        stored = FrameLook(**told["look"])
        rows = tuple(tuple((str(text), str(codes)) for text, codes in row) for row in told["rows"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    if stored._replace(theme=look.theme or stored.theme) != look._replace(
        theme=look.theme or stored.theme
    ):
        return None
    frame = StoredFrame(stored, rows)
    return frame if _is_sound(frame) else None


def _is_sound(frame: StoredFrame) -> bool:
    """Return whether all rows are printable cells, as wide as the terminal, with colours alone."""
    if not 3 <= len(frame.rows) < frame.look.rows:
        return False
    return all(
        sum(cells(text) for text, _ in row) == frame.look.columns
        and all(text.isprintable() and re.fullmatch(_CODES, codes) for text, codes in row)
        for row in frame.rows
    )
