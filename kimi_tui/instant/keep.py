"""Stores what was typed before there was an app, in a process of its own: `python -P -c 'from kimi_tui.instant.keep import main; main()'`.

The program may end within an import, where nothing more can be imported. It writes to the standard input of this process: the
data folder (empty for the usual one), the work folder, the session to continue (see `keep_for_next_start`; `-` for none) and the
typed bytes, with a NUL after each of the first three.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

from kimi_tui.app_paths import data_dir
from kimi_tui.foreign_text import clean_pasted
from kimi_tui.session.kept_text import keep_for_next_start
from kimi_tui.tools.credentials import command_without_keys

NO_SESSION = b"-"
_MOST_BYTES = 4 << 20
_NEW_LINES = re.compile(r"\r|\x1b\[13;\d{1,3}u")
_KEYS = re.compile(
    r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|O[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)?)?"
)
"""Keys that write nothing, the marks around a paste, and answers of the terminal."""


def typed_text(data: bytes) -> str:
    """Return the text that was typed with these bytes, as far as it can be told: other keys than Enter and Backspace do nothing."""
    text = _KEYS.sub("", _NEW_LINES.sub("\n", data.decode("utf-8", "replace")))
    found: list[str] = []
    for char in text:
        if char == "\x7f":
            found[-1:] = []
        else:
            found.append(char)
    return command_without_keys(clean_pasted("".join(found)).strip("\n"))


def main() -> None:
    """Store what standard input has; say nothing if that is not possible, as nobody would see it."""
    parts = sys.stdin.buffer.read(_MOST_BYTES).split(b"\0", 3)
    if len(parts) == 4 and (text := typed_text(parts[3])).strip():
        root, work_dir, session_id = map(os.fsdecode, parts[:3])
        resumed = None if parts[2] == NO_SESSION else session_id
        kept_in = Path(root) if root else data_dir()
        with suppress(OSError):
            keep_for_next_start(kept_in, Path(work_dir), resumed, text, {}, ())
