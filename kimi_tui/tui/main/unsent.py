"""What was written and not sent, kept in the session's folder for a program that does not see its end.

The messages that wait for the end of a turn, and the draft in the prompt. Reading and writing block and belong in a thread.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from kimi_tui.filesystem import Storage, read_regular
from kimi_tui.foreign_text import clean, clean_pasted
from kimi_tui.tui.prompt.area import Draft

FOLLOW_UPS = "follow_ups.json"
DRAFT = "draft.json"
_MAX_BYTES = 16 << 20
_CHIP = re.compile(r"\[Pasted [\d,]{1,15} lines?(, \d{1,6})?\]")


def write_follow_ups(folder: Path, texts: Sequence[str]) -> None:
    """Keep what waits; a disk that refuses costs only that it is not kept."""
    _write(folder / FOLLOW_UPS, list(texts))


def read_follow_ups(folder: Path) -> list[str]:
    """What was kept; nothing where it cannot be read."""
    found = _read(folder / FOLLOW_UPS)
    texts = cast("list[object]", found) if isinstance(found, list) else []
    return [text for text in texts if isinstance(text, str) and text.strip()]


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
    return Draft(
        clean(text) if isinstance(text, str) else "",
        {
            chip: clean_pasted(pasted)
            for chip, pasted in pastes.items()
            if _CHIP.fullmatch(chip) and isinstance(pasted, str)
        },
    )


def _write(path: Path, value: object) -> None:
    try:
        if not value:
            path.unlink(missing_ok=True)
        else:
            Storage().replace_file(path, json.dumps(value).encode("ascii"))
    except OSError:
        return


def _read(path: Path) -> object:
    try:
        return json.loads(read_regular(path, _MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
