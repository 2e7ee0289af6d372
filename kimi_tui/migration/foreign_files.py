"""Bounded, lenient reading of what another program wrote: lines of JSON, small JSON files, times, texts.

A file is opened without following a link at its name, is read once, from its beginning to its end, and is never written.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kimi_tui import lenient_json
from kimi_tui.app_paths import reason_of
from kimi_tui.filesystem import open_regular, read_regular
from kimi_tui.foreign_text import clean, one_line
from kimi_tui.migration.plain import MOST_TEXT_CHARS, CannotRead, FoundSession, PlainTokens
from kimi_tui.session.jsonl import CHUNK_BYTES, lines, parse

MOST_SESSION_BYTES = 512 << 20
"""Bytes of a session that are read at most: it is in memory while it is imported."""
MOST_LINE_BYTES = 64 << 20
"""A longer line is counted as one that cannot be read."""
HEAD_BYTES = 1 << 17
"""Bytes of the beginning of a file in which a list looks for its title."""
MOST_FILES = 20_000
"""Files and folders that are looked at in one folder."""
MOST_TOKENS = 1 << 40

Json = dict[str, Any]
_LATEST = 4_102_444_800.0  # the year 2100
_MOST_TITLE = 200
# Milliseconds since 1970 are larger than any seconds that are accepted.
_MILLISECONDS = 1e11
_UNREADABLE = "unreadable line"


def records(path: Path, losses: Counter[str]) -> Iterator[Json]:
    """Yield the objects in a file of JSON lines. Lines that cannot be read are counted, except an end that is being written.

    Raises:
        CannotRead: The file is too large, or is no file.
    """
    try:
        fd = open_regular(path)
    except OSError as error:
        raise CannotRead(f"The session cannot be read: {reason_of(error, path)}.") from error
    try:
        size = os.fstat(fd).st_size
        if size > MOST_SESSION_BYTES:
            raise CannotRead(
                f"The session is {size >> 20:,} MB; sessions over {MOST_SESSION_BYTES >> 20} MB cannot be imported."
            )
        # Records that are appended meanwhile are not read.
        for line in lines(lambda n, offset: os.pread(fd, max(0, min(n, size - offset)), offset)):
            record = parse(line.data) if len(line.data) <= MOST_LINE_BYTES else ""
            if isinstance(record, dict):
                yield record
            elif record is not None and line.complete:
                losses[_UNREADABLE] += 1
    except OSError as error:
        raise CannotRead(f"The session cannot be read: {reason_of(error, path)}.") from error
    finally:
        os.close(fd)


def head_records(path: Path) -> Iterator[Json]:
    """Yield the objects in the beginning of a file of JSON lines; nothing if it cannot be read."""
    try:
        fd = open_regular(path)
    except OSError:
        return
    try:
        data = os.pread(fd, HEAD_BYTES, 0)
    except OSError:
        return
    finally:
        os.close(fd)
    for line in data.split(b"\n"):
        record = parse(line)
        if isinstance(record, dict):
            yield record


def tail_records(path: Path) -> Iterator[Json]:
    """Yield the objects in the end of a file of JSON lines, newest first; nothing if it cannot be read."""
    try:
        fd = open_regular(path)
    except OSError:
        return
    try:
        data = os.pread(fd, CHUNK_BYTES, max(0, os.fstat(fd).st_size - CHUNK_BYTES))
    except OSError:
        return
    finally:
        os.close(fd)
    for line in reversed(data.split(b"\n")):
        record = parse(line)
        if isinstance(record, dict):
            yield record


def read_object(path: Path, most_bytes: int = 16 << 20) -> Json:
    """Return the object in a small JSON file; an empty one if it cannot be read."""
    try:
        record = parse(read_regular(path, most_bytes))
    except OSError:
        return {}
    return record if isinstance(record, dict) else {}


def entries_of(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder, by name; none if it cannot be read, and no links."""
    found: list[os.DirEntry[str]] = []
    try:
        with os.scandir(folder) as there:
            for entry in there:
                if len(found) >= MOST_FILES:
                    break
                if not entry.is_symlink():
                    found.append(entry)
    except (OSError, ValueError):
        return []
    return sorted(found, key=lambda entry: entry.name)


def files_of(folder: Path, suffix: str) -> list[Path]:
    """Return the regular files in a folder whose names end so."""
    return [
        folder / entry.name
        for entry in entries_of(folder)
        if entry.name.endswith(suffix) and entry.is_file(follow_symlinks=False)
    ]


def folders_of(folder: Path) -> list[Path]:
    """Return the folders in a folder."""
    found = [entry for entry in entries_of(folder) if entry.is_dir(follow_symlinks=False)]
    return [folder / entry.name for entry in found]


def size_and_time(path: Path) -> tuple[int, float]:
    """Return the size of a file in bytes and its last write in seconds since 1970; zeros if there is none."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return 0, 0.0
    return status.st_size, time_of(status.st_mtime)


def time_of(value: object) -> float:
    """Return a time in seconds since 1970: ISO 8601, seconds or milliseconds; 0 for anything else, and outside 1970 to 2100."""
    seconds = 0.0
    if isinstance(value, str) and len(value) < 64:
        try:
            moment = datetime.fromisoformat(value)
            seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return 0.0
    elif isinstance(value, int | float) and not isinstance(value, bool):
        try:
            seconds = float(value)
        except OverflowError:
            return 0.0
        if math.isfinite(seconds) and seconds > _MILLISECONDS:
            seconds /= 1_000
    return seconds if math.isfinite(seconds) and 0 < seconds < _LATEST else 0.0


def text_of(value: object, losses: Counter[str] | None = None) -> str:
    """Return a text without characters that no text has (lone surrogates, NUL), shortened if it is too long."""
    if not isinstance(value, str):
        return ""
    if len(value) > MOST_TEXT_CHARS:
        if losses is not None:
            losses["end of a long text"] += 1
        value = value[:MOST_TEXT_CHARS]
    return lenient_json.without_surrogates(value).replace("\0", "")


def output_of(value: object, losses: Counter[str] | None = None) -> str:
    """Return the output of a tool without terminal sequences, as the tools here store theirs."""
    return clean(text_of(value, losses))


def title_from(text: object) -> str:
    """Return a title in one line from a text; empty if it is none."""
    if not isinstance(text, str):
        return ""
    return one_line(lenient_json.without_surrogates(text[: _MOST_TITLE * 4]))[:_MOST_TITLE].strip()


def name_of(value: object, most: int = 200) -> str:
    """Return a short name (an id, a model, a tool) as one line; empty if it is no text."""
    return one_line(lenient_json.without_surrogates(value[:most])) if isinstance(value, str) else ""


def kind_of(record: Json, key: str = "type") -> str:
    """Return the kind of a record; empty if it is no text."""
    return lenient_json.text(record.get(key))


def arguments_of(value: object) -> str:
    """Return the arguments of a call as JSON text."""
    if isinstance(value, str):
        return text_of(value)
    # `encode` writes any value that JSON can hold, and null for the rest.
    from kimi_tui.session.jsonl import encode

    return text_of(encode(lenient_json.mapping(value)).decode().rstrip("\n"))


def tokens_of(sent: object, cached: object, answered: object) -> PlainTokens | None:
    """Return the tokens of a call; None if the server told nothing."""
    figures = [min(lenient_json.count(one) or 0, MOST_TOKENS) for one in (sent, cached, answered)]
    return PlainTokens(*figures) if figures[0] or figures[2] else None


def image_url(media_type: object, data: object, losses: Counter[str]) -> str:
    """Return the `data:` URL of an image; empty, and a loss, if it is none."""
    kind = media_type if isinstance(media_type, str) else ""
    if not re.fullmatch(r"image/[a-z0-9.+-]{1,20}", kind) or not isinstance(data, str) or not data:
        losses["unreadable image"] += 1
        return ""
    return f"data:{kind};base64,{data}"


def same_folder(one: str, other: str) -> bool:
    """Return whether two paths name the same folder, as far as their spelling tells."""
    return bool(one) and os.path.normpath(one) == os.path.normpath(other)


def sessions_in(
    projects: Iterable[Path], described: Callable[[Path], FoundSession | None], work_dir: str
) -> list[FoundSession]:
    """Return the sessions in the `.jsonl` files of some folders.

    Args:
        projects: the folders.
        described: returns the session in a file; None if there is none.
        work_dir: the work folder whose sessions are wanted; empty for all.
    """
    found = (described(path) for project in projects for path in files_of(project, ".jsonl"))
    return [
        one
        for one in found
        if one is not None and (not work_dir or same_folder(one.work_dir, work_dir))
    ]


def real_folder(value: object) -> str:
    """Return an absolute path of a work folder; empty if the value is none."""
    text = value if isinstance(value, str) else ""
    is_path = text.startswith("/") and "\0" not in text and len(text) < 4_096
    if not is_path or lenient_json.without_surrogates(text) != text:
        return ""
    return os.path.normpath(text)
