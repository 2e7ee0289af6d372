"""What a tool call is about, in a few words, read from its arguments even while they are still being written."""

from __future__ import annotations

import json
import re
from typing import cast

from kimi_tui.foreign_text import one_line

_KEYS = {
    "Shell": "command",
    "ReadFile": "path",
    "WriteFile": "path",
    "StrReplaceFile": "path",
    "Glob": "pattern",
    "Grep": "pattern",
}
_LIKELY_KEYS = ("command", "path", "file_path", "url", "query", "pattern", "name", "description")
TARGET_LIMIT = 1_000
"""Characters of a target that are looked at: more never fits on a row."""


def argument(arguments: str, key: str) -> str:
    """The text of one argument, as far as it has come; empty if it is not there or not a text."""
    found = re.search(
        rf'"{re.escape(key)}"\s*:\s*"((?:[^"\\]|\\.)*)', arguments[:65_536], re.DOTALL
    )
    if found is None:
        return ""
    raw = found[1]
    try:
        return str(json.loads(f'"{raw}"', strict=False))
    except ValueError:
        return raw


def target(tool: str, arguments: str, work_dir: str = "") -> str:
    """What the call is about: a path, a command, a pattern; empty while nothing is known.

    Args:
        tool: the tool's full name.
        arguments: the JSON text so far.
        work_dir: paths below it are shown relative to it.
    """
    if tool == "SendDMail":
        number = re.search(r'"checkpoint_id"\s*:\s*"?(\d+)', arguments)
        return f"to #{number[1]}" if number else ""
    if tool == "SetTodoList":
        return _todo(arguments)
    key = _KEYS.get(tool)
    if key is not None:
        text = argument(arguments, key)
    else:
        text = next((value for name in _LIKELY_KEYS if (value := argument(arguments, name))), "")
    text = one_line(text[:TARGET_LIMIT])
    if work_dir and key in {"path", None} and text.startswith(work_dir.rstrip("/") + "/"):
        text = text[len(work_dir.rstrip("/")) + 1 :]
    return f'"{text}"' if tool == "Grep" and text else text


def _todo(arguments: str) -> str:
    try:
        parsed: object = json.loads(arguments, strict=False)
    except ValueError:
        return ""
    todos = cast("dict[str, object]", parsed).get("todos") if isinstance(parsed, dict) else None
    if not isinstance(todos, list):
        return ""
    entries = cast("list[object]", todos)
    done = sum(
        1
        for entry in entries
        if isinstance(entry, dict) and cast("dict[str, object]", entry).get("status") == "done"
    )
    return todo_summary(done, len(entries))


def todo_summary(done: int, count: int) -> str:
    """`1 of 3 done`."""
    return f"{done} of {count} done" if count else "nothing to do"
