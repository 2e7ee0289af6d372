"""The input of a hook and its answer: names and inputs of tools in kimi-tui's and in Claude's spelling, and its output.

A hook that was written for Claude gets `tool_name` in Claude's spelling, every other one in kimi-cli's; both names are beside
it. `tool_input` has the arguments under both spellings, and a changed input may use either.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, cast

from kimi_tui import lenient_json
from kimi_tui.agent_parts import Mode
from kimi_tui.display_names import signal_name
from kimi_tui.foreign_text import clean
from kimi_tui.hooks.definitions import Event
from kimi_tui.hooks.process import HookEnd
from kimi_tui.tool_cards import CALL_TOOL

MOST_CHARS = 10_000
"""The longest reason or context that is taken from a hook, in characters."""
_CLAUDE_NAMES: Mapping[str, str] = {
    "Shell": "Bash",
    "StrReplaceFile": "Edit",
    "WriteFile": "Write",
    "ReadFile": "Read",
    "FetchURL": "WebFetch",
    "SearchWeb": "WebSearch",
    "SetTodoList": "TodoWrite",
    "TaskOutput": "BashOutput",
    "TaskStop": "KillShell",
    "Agent": "Task",
}
_ALSO_NAMED: Mapping[str, tuple[str, ...]] = {
    "StrReplaceFile": ("MultiEdit",),
    "SetTodoList": ("TodoList",),
}
_MODES: Mapping[Mode, str] = {
    "plan": "plan",
    "ask": "default",
    "edits": "acceptEdits",
    "sandboxed": "acceptEdits",
    "all": "bypassPermissions",
}
_SPELLINGS: Mapping[str, Mapping[str, str]] = {
    "ReadFile": {"path": "file_path", "line_offset": "offset", "n_lines": "limit"},
    "WriteFile": {"path": "file_path"},
    "StrReplaceFile": {"path": "file_path"},
    "Glob": {"directory": "path"},
    "Agent": {"kind": "subagent_type"},
}
"""Names of arguments that Claude spells otherwise, by tool."""
_EDITS = {"old": "old_string", "new": "new_string", "replace_all": "replace_all"}
_SUBJECTS = ("command", "path", "url", "pattern", "query")

Json = dict[str, Any]


def names_of(tool: str) -> tuple[str, ...]:
    """Return the names by which a matcher may mean a tool, its own first."""
    theirs = _CLAUDE_NAMES.get(tool)
    return (tool, *([theirs] if theirs else []), *_ALSO_NAMED.get(tool, ()))


def inner_call(tool: str, arguments: str) -> tuple[str, str]:
    """Return the tool of a server that `CallTool` calls, with its arguments: hooks are for that tool. Other calls stay."""
    if tool != CALL_TOOL:
        return tool, arguments
    try:
        given = lenient_json.mapping(lenient_json.parse(arguments))
    except (ValueError, RecursionError):
        return tool, arguments
    inner, values = given.get("tool"), given.get("arguments", {})
    if not isinstance(inner, str) or not isinstance(values, dict | str):
        return tool, arguments
    return inner, values if isinstance(values, str) else json.dumps(values, ensure_ascii=False)


def outer_arguments(tool: str, inner: str, arguments: str) -> str:
    """Return the arguments of the call itself, from those of the tool that it calls."""
    if tool == inner:
        return arguments
    return f'{{"tool": {json.dumps(inner, ensure_ascii=False)}, "arguments": {arguments}}}'


def our_tool(name: str) -> str:
    """Return our name of a tool, which may be written as Claude or kimi-cli does; the name itself if we have no such tool."""
    word = name.rpartition(":")[2]
    for ours, theirs in _CLAUDE_NAMES.items():
        if word.lower() in (ours.lower(), theirs.lower()):
            return ours
    for ours, others in _ALSO_NAMED.items():
        if word in others:
            return ours
    return {"glob": "Glob", "grep": "Grep", "skill": "Skill"}.get(word.lower(), word)


def claude_name(tool: str) -> str:
    """Return the name of a tool as Claude spells it; its own if Claude has no other."""
    return _CLAUDE_NAMES.get(tool, tool)


def claude_mode(mode: Mode) -> str:
    """Return the approval mode as Claude spells it."""
    return _MODES[mode]


def input_of(tool: str, arguments: str) -> Json:
    """Return the arguments of a call under the names of both; arguments that are no object are under `arguments`."""
    try:
        parsed: object = lenient_json.parse(arguments or "{}")
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        return {"arguments": arguments[:MOST_CHARS]}
    own = cast("Json", parsed)
    both = {theirs: own[ours] for ours, theirs in _SPELLINGS.get(tool, {}).items() if ours in own}
    if tool == "StrReplaceFile":
        edits = [lenient_json.mapping(one) for one in _listed(own.get("edit"))]
        theirs = [{_EDITS[name]: one[name] for name in _EDITS if name in one} for one in edits]
        both |= {"edits": theirs} if len(theirs) > 1 else theirs[0] if theirs else {}
    return {**both, **own}


def subject_of(tool: str, given: Mapping[str, object]) -> str:
    """Return what a call is about, for Claude's conditions: its command, path or address."""
    del tool
    found = next((given[name] for name in _SUBJECTS if isinstance(given.get(name), str)), "")
    return str(found)


def arguments_from(tool: str, given: Mapping[str, object], changed: Mapping[str, object]) -> str:
    """Return the arguments of a call, as JSON text, after a hook has changed its input.

    Args:
        tool: the tool's name.
        given: the input that the hook was given.
        changed: the input that it wants; under each of two spellings the one that differs from `given` is taken.
    """
    spellings = _SPELLINGS.get(tool, {})
    theirs = {name: ours for ours, name in spellings.items()}
    # `path` is Claude's spelling of another argument of some tools, and the own name of one of others.
    own_names = set(spellings) | {"edit"}
    result: Json = {}
    for name, value in changed.items():
        if name in theirs and name not in own_names:
            ours = theirs[name]
            is_other = name not in given or given[name] != value
            if ours not in changed or (is_other and changed.get(ours) == given.get(ours)):
                result[ours] = value
        elif not (name in result and changed.get(name) == given.get(name)):
            result[name] = value
    if tool == "StrReplaceFile":
        _take_edits(given, changed, result)
    return json.dumps(result, ensure_ascii=False)


def _take_edits(given: Mapping[str, object], changed: Mapping[str, object], result: Json) -> None:
    """Put Claude's spelling of edits in place of ours if the hook changed that one."""
    names = ("old_string", "new_string", "replace_all", "edits")
    is_other = any(name in changed and changed[name] != given.get(name) for name in names)
    for name in names:
        result.pop(name, None)
    if "edit" in changed and not (is_other and changed["edit"] == given.get("edit")):
        return
    back = {theirs: ours for ours, theirs in _EDITS.items()}
    listed = _listed(changed.get("edits"))
    several = [lenient_json.mapping(one) for one in listed] if listed else [changed]
    result["edit"] = [{back[name]: one[name] for name in back if name in one} for one in several]


def _listed(value: object) -> list[object]:
    # Models write lists as strings of JSON, too.
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return []
    if isinstance(value, dict):
        return [cast("object", value)]
    return lenient_json.listing(value)


class Answer(NamedTuple):
    """The answer of one hook.

    Attributes:
        verdict: `refused`, `asks` (the user is to be asked), or nothing; `failed` if it could not say anything valid.
        reason: why.
        context: a text for the model.
        changed: the input that it wants in place of the call's; None for no change.
        told: a sentence for the user.
        stops: whether the turn is to end.
    """

    verdict: Literal["", "refused", "asks", "failed"] = ""
    reason: str = ""
    context: str = ""
    changed: Mapping[str, object] | None = None
    told: str = ""
    stops: bool = False


_ENDINGS = {
    "timeout": "it did not end within its time limit",
    "output": "it wrote more than 1 MB",
    "stopped": "it was stopped",
}


def answer_of(end: HookEnd, event: Event) -> Answer:
    """Return what a hook said with its end: by its exit code, or with JSON on its standard output."""
    errors = _text(end.errors)
    if end.ending == "not started":
        return Answer("failed", f"it could not be started: {errors or 'the reason is not known'}")
    if end.ending != "exited":
        return Answer("failed", _ENDINGS[end.ending])
    if end.code is None or end.code < 0 or 128 < end.code <= 192:
        # A shell whose program was killed ends with 128 and the signal.
        number = abs(end.code or 9)
        name = signal_name(number - 128 if number > 128 else number)
        return Answer("failed", f"it was killed by {name}")
    if end.code == 2:
        return Answer("refused", errors or _text(end.output) or "it gave no reason")
    if end.code in (126, 127):
        return Answer("failed", f"it could not be started: {errors or f'exit code {end.code}'}")
    if end.code:
        return Answer(told=f"exit code {end.code}: {errors}" if errors else f"exit code {end.code}")
    text = end.output.decode("utf-8", "replace").strip()
    if not text.startswith("{"):
        said = _text(end.output) if event in ("SessionStart", "UserPromptSubmit") else ""
        return Answer(context=said)
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return Answer("failed", "it wrote JSON that cannot be read")
    return _of_json(lenient_json.mapping(found))


def _of_json(said: Mapping[str, object]) -> Answer:
    special = lenient_json.mapping(said.get("hookSpecificOutput"))
    decision = special.get("permissionDecision") or said.get("permissionDecision")
    reason = _words(special.get("permissionDecisionReason")) or _words(said.get("reason"))
    changed = special.get("updatedInput", said.get("updatedInput"))
    verdict: Literal["", "refused", "asks"] = ""
    if decision == "deny" or said.get("decision") in ("block", "deny"):
        verdict = "refused"
    elif decision in ("ask", "defer"):
        verdict = "asks"
    stops = said.get("continue") is False
    if stops and not verdict:
        reason = reason or _words(said.get("stopReason"))
    return Answer(
        "refused" if stops else verdict,
        reason or ("it gave no reason" if verdict or stops else ""),
        _words(special.get("additionalContext")) or _words(said.get("additionalContext")),
        cast("Mapping[str, object]", changed) if isinstance(changed, dict) else None,
        _words(said.get("systemMessage")),
        stops,
    )


def _words(value: object) -> str:
    return _cleaned(value) if isinstance(value, str) else ""


def _text(data: bytes) -> str:
    return _cleaned(data[: MOST_CHARS * 4].decode("utf-8", "replace"))


def _cleaned(text: str) -> str:
    text = clean(text[: MOST_CHARS * 2]).strip()
    return text if len(text) <= MOST_CHARS else f"{text[:MOST_CHARS]}…"
