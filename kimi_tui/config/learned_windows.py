"""The sizes of windows that servers reported, stored for the gauge of the next start, which shows them until the server answers again.

The gauge marks them as estimates: the server may have been started with another window since.
"""

from __future__ import annotations

import contextlib
import json
from hashlib import sha256
from pathlib import Path
from typing import cast

from kimi_tui.config.settings import LEAST_WINDOW
from kimi_tui.filesystem import Storage, read_regular

_FILE = "windows.json"
_MAX_BYTES = 1 << 20
_MOST = 500
"""The largest number of models; the oldest entry is removed first."""
_MOST_TOKENS = 1_000_000_000


def window_before(folder: Path, base_url: str, model: str) -> int | None:
    """Return the window of a model at the last start, in tokens; None if it is unknown. It reads a file.

    Args:
        folder: the program's data folder.
        base_url: the base URL of the model's server.
        model: the model's id at the server.
    """
    return _stored_windows(folder).get(_key(base_url, model))


def note_window(folder: Path, base_url: str, model: str, window: int) -> None:
    """Store the window for `window_before`. An error of the disk is ignored, as the server is asked at each start."""
    found = _stored_windows(folder)
    key = _key(base_url, model)
    if found.get(key) == window:
        return
    found.pop(key, None)
    kept = dict([*found.items()][-_MOST + 1 :])
    kept[key] = window
    with contextlib.suppress(OSError):
        Storage().replace_file(folder / _FILE, json.dumps(kept).encode())


def _key(base_url: str, model: str) -> str:
    """Return a digest as the key, because a base URL may contain a password."""
    return sha256(f"{base_url} {model}".encode(errors="replace")).hexdigest()[:32]


def _stored_windows(folder: Path) -> dict[str, int]:
    try:
        found: object = json.loads(read_regular(folder / _FILE, _MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        key: value
        for key, value in cast("dict[str, object]", found).items()
        if type(value) is int and LEAST_WINDOW <= value <= _MOST_TOKENS
    }
