"""What was written and not sent, kept in the session's folder for a program that does not see its end.

The messages that wait for the end of a turn, and the draft in the prompt. Reading and writing block and belong in a thread.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import cast

from kimi_tui.filesystem import Storage, read_regular
from kimi_tui.foreign_text import clean, clean_pasted
from kimi_tui.tui.prompt.area import Draft, chip_of

FOLLOW_UPS = "follow_ups.json"
DRAFT = "draft.json"
_MAX_BYTES = 2 << 20
"""More is neither kept nor read."""
_MOST = 100
"""Chips, and messages that wait."""
_MOST_HIDDEN = 50_000
"""Characters that cannot be seen: no draft that was kept here holds many, and each takes microseconds to clean."""
_CHIP = re.compile(r"\[Pasted [\d,]{1,15} lines?(?:, (\d{1,6}))?\]", re.ASCII)


def write_follow_ups(folder: Path, texts: Sequence[str]) -> None:
    """Keep what waits; a disk that refuses costs only that it is not kept."""
    _write(folder / FOLLOW_UPS, list(texts))


def read_follow_ups(folder: Path) -> list[str]:
    """What was kept; nothing where it cannot be read."""
    found = _read(folder / FOLLOW_UPS)
    texts = cast("list[object]", found)[:_MOST] if isinstance(found, list) else []
    return [clean(text) for text in texts if isinstance(text, str) and text.strip()]


def write_draft(folder: Path, draft: Draft) -> None:
    """Keep what stands in the prompt; nothing where that is empty. A disk that refuses costs only that."""
    record = {"text": draft.text, "pastes": dict(draft.pastes)}
    _write(folder / DRAFT, record if draft.text else None)


def read_draft(folder: Path) -> Draft:
    """The draft that was kept; an empty one where there is none, or it cannot be read."""
    found = _read(folder / DRAFT)
    record = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    text, kept = record.get("text"), record.get("pastes")
    pastes = cast("dict[str, object]", kept) if isinstance(kept, dict) else {}
    read: dict[str, str] = {}
    for chip, pasted in islice(pastes.items(), _MOST):
        if isinstance(pasted, str) and (named := _CHIP.fullmatch(chip)):
            shown = clean_pasted(pasted)
            # What it says of itself is all that is seen of it before it is sent.
            if chip == chip_of(shown, int(named[1] or 1)):
                read[chip] = shown
    return Draft(clean(text) if isinstance(text, str) else "", read)


def _write(path: Path, value: object) -> None:
    data = json.dumps(value).encode("ascii") if value else b""
    try:
        if 0 < len(data) <= _MAX_BYTES:
            Storage().replace_file(path, data)
        else:
            path.unlink(missing_ok=True)
    except OSError:
        return


def _read(path: Path) -> object:
    try:
        written = read_regular(path, _MAX_BYTES).decode()
        found: object = json.loads(written)
        # Written out again, for they may stand there as escapes.
        shown = json.dumps(found, ensure_ascii=False)
    except (OSError, ValueError, RecursionError):
        return None
    n_hidden = len(shown) - sum(map(str.isprintable, shown)) + shown.count("\\u00")
    return found if n_hidden <= _MOST_HIDDEN else None
