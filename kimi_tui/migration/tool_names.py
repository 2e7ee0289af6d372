"""Calls of other agents' tools as calls of the tools here, where the two mean the same.

A session that goes on is read by a model that has our tools: calls of `Bash` or `read_file` would lead it to call what is not
there, and would have plain cards. A call is translated only if the argument that it is about is there; every other call keeps
its name and arguments. No argument gets lost: those that ours has no name for are kept beside.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from kimi_tui import lenient_json
from kimi_tui.tool_cards import BriefBlock, DiffBlock, DisplayBlock
from kimi_tui.workspace.diff import diff_lines

Json = dict[str, Any]
_CARD_LINES = 200
_MOST_DIFFED_CHARS = 400_000


class _Tool(NamedTuple):
    """Ours for a tool of another agent: its name, the argument that it needs, and theirs for ours."""

    name: str
    needs: str
    keys: Mapping[str, str]


_PATH = {"file_path": "path", "filePath": "path", "absolute_path": "path", "path": "path"}
_SHELL = _Tool("Shell", "command", {"cmd": "command", "command": "command"})
_READ = _Tool("ReadFile", "path", {**_PATH, "offset": "line_offset", "limit": "n_lines"})
_WRITE = _Tool("WriteFile", "path", {**_PATH, "content": "content"})
_EDIT = _Tool("StrReplaceFile", "path", _PATH)
_GREP = _Tool("Grep", "pattern", {"pattern": "pattern", "include": "glob"})
_GLOB = _Tool("Glob", "pattern", {"pattern": "pattern", "path": "directory"})
_FETCH = _Tool("FetchURL", "url", {"url": "url"})
_SEARCH = _Tool("SearchWeb", "query", {"query": "query"})
_OURS: Mapping[str, _Tool] = {
    # Claude Code, kimi-code, opencode and pi differ in capitals alone.
    "bash": _SHELL,
    "shell": _SHELL,
    "exec_command": _SHELL,
    "shell_command": _SHELL,
    "local_shell": _SHELL,
    "run_shell_command": _SHELL,
    "read": _READ,
    "readfile": _READ,
    "read_file": _READ,
    "write": _WRITE,
    "writefile": _WRITE,
    "write_file": _WRITE,
    "edit": _EDIT,
    "multiedit": _EDIT,
    "strreplacefile": _EDIT,
    "replace": _EDIT,
    "grep": _GREP,
    "search_file_content": _GREP,
    "grep_search": _GREP,
    "glob": _GLOB,
    "find": _GLOB,
    "list_directory": _GLOB,
    "webfetch": _FETCH,
    "web_fetch": _FETCH,
    "fetchurl": _FETCH,
    "websearch": _SEARCH,
    "searchweb": _SEARCH,
    "google_web_search": _SEARCH,
}
_OLD = ("old_string", "oldString", "oldText", "old")
_NEW = ("new_string", "newString", "newText", "new")
_EVERY = ("replace_all", "replaceAll")


def translated(name: str, arguments: str) -> tuple[str, str]:
    """Return the name and the arguments (JSON text) under which a call is stored."""
    tool = _OURS.get(name.lower())
    if tool is None:
        return name, arguments
    try:
        given = lenient_json.mapping(lenient_json.parse(arguments or "{}"))
    except (ValueError, RecursionError):
        return name, arguments
    ours: Json = {}
    for key, value in given.items():
        ours.setdefault(tool.keys.get(key, key), value)
    if tool is _SHELL:
        ours["command"] = _command(ours.get("command"))
    if tool is _EDIT:
        edits = edits_in(given)
        ours = {
            key: value for key, value in ours.items() if key not in {*_OLD, *_NEW, *_EVERY, "edits"}
        }
        if not edits:
            return name, arguments
        ours["edit"] = edits if len(edits) > 1 else edits[0]
    if not isinstance(ours.get(tool.needs), str) or not ours[tool.needs]:
        return name, arguments
    try:
        return tool.name, json.dumps(ours, ensure_ascii=False)
    except (ValueError, RecursionError):
        return name, arguments


def our_name(name: str) -> str:
    """Return the name of our tool for a tool of another agent; its own if there is none."""
    tool = _OURS.get(name.lower())
    return name if tool is None else tool.name


def _command(value: object) -> object:
    """Return the command of a shell, also of one that takes a list: `["bash", "-lc", "ls"]`."""
    words = [word for word in lenient_json.listing(value) if isinstance(word, str)]
    if not words:
        return value
    is_shell = len(words) == 3 and words[1] in ("-c", "-lc")
    import shlex

    return words[2] if is_shell else shlex.join(words)


def edits_in(given: Mapping[str, Any]) -> list[Json]:
    """Return the replacements of an edit as ours has them; none if one has no texts."""
    listed = lenient_json.listing(given.get("edits")) or [given]
    found: list[Json] = []
    for one in map(lenient_json.mapping, listed):
        old = next((one[key] for key in _OLD if isinstance(one.get(key), str)), None)
        new = next((one[key] for key in _NEW if isinstance(one.get(key), str)), None)
        if old is None or new is None:
            return []
        edit: Json = {"old": old, "new": new}
        if any(one.get(key) is True for key in _EVERY):
            edit["replace_all"] = True
        found.append(edit)
    return found


def display_of(name: str, arguments: str, *, failed: bool) -> tuple[DisplayBlock, ...]:
    """Return the blocks of the card of a finished call: the diff of an edit, as far as its arguments tell it."""
    if failed:
        return (BriefBlock("failed"),)
    if name != "StrReplaceFile" or len(arguments) > _MOST_DIFFED_CHARS:
        return ()
    given = lenient_json.mapping(lenient_json.parse(arguments))
    edits = given["edit"] if isinstance(given.get("edit"), list) else [given.get("edit")]
    blocks: list[DisplayBlock] = []
    for edit in map(lenient_json.mapping, lenient_json.listing(edits)):
        old, new = lenient_json.text(edit.get("old")), lenient_json.text(edit.get("new"))
        diff = diff_lines(old, new, _CARD_LINES)
        path = lenient_json.text(given.get("path"))
        blocks.append(DiffBlock(path, diff.added, diff.removed, diff.rows))
    return tuple(blocks)
