"""What was said in a stored session, read from its context without opening it: for a search, and for a preview.

Everything is bounded, and what cannot be read is empty: a list of sessions goes on without it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from kimi_tui.filesystem import open_regular
from kimi_tui.session.jsonl import lines, parse
from kimi_tui.session.rotation import LIVE_NAME
from kimi_tui.session.schema import internal_kind, texts_of

MAX_READ_BYTES = 8 << 20
MAX_WORDS = 1 << 16
"""Characters of a session's words that are kept for a search."""
_TAIL_BYTES = 1 << 18
_MAX_SAID = 2_000
# Roles are written in front; a record that does not say so is parsed in any case.
_OTHERS = (b'{"role":"assistant"', b'{"role":"tool"', b'{"role":"_')


class Said(NamedTuple):
    """A message of the preview; of a long one the beginning."""

    role: Literal["user", "assistant"]
    text: str


def user_words(folder: Path) -> str:
    """What the user said in a session, in small letters, to be searched. Reads a file: call it in a thread."""
    found: list[str] = []
    room = MAX_WORDS
    for record in _records(folder, last_bytes=None, skipped=_OTHERS):
        if record.get("role") == "user" and internal_kind(record) is None:
            text = " ".join(texts_of(record))[:room].casefold()
            found.append(text)
            room -= len(text)
            if room <= 0:
                break
    return "\n".join(found)


def last_said(folder: Path, most: int) -> list[Said]:
    """The last messages of a session with words in them, oldest first. Reads a file: call it in a thread."""
    found: list[Said] = []
    for record in _records(folder, last_bytes=_TAIL_BYTES):
        role = record.get("role")
        if role in ("user", "assistant") and internal_kind(record) is None:
            text = "\n".join(texts_of(record)).strip()[:_MAX_SAID]
            if text:
                found.append(Said("user" if role == "user" else "assistant", text))
    return found[-most:]


def _records(
    folder: Path, *, last_bytes: int | None, skipped: tuple[bytes, ...] = ()
) -> Iterator[dict[str, Any]]:
    try:
        with open(open_regular(folder / LIVE_NAME), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            start = max(0, size - last_bytes) if last_bytes is not None else 0
            end = min(size, start + MAX_READ_BYTES)

            def read(n: int, offset: int) -> bytes:
                return os.pread(file.fileno(), min(n, max(0, end - offset)), offset)

            for line in lines(read, start):
                # In the middle of the file the first line is a piece of one, which is no JSON.
                if line.complete and not line.data.startswith(skipped):
                    record = parse(line.data)
                    if isinstance(record, dict):
                        yield record
    except OSError:
        return
