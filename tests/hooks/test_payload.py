"""The input of hooks, in both spellings, and the meaning of their answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kimi_tui.hooks.payload import (
    MOST_CHARS,
    answer_of,
    arguments_from,
    inner_call,
    input_of,
    names_of,
    outer_arguments,
)
from kimi_tui.hooks.process import HookEnd


def test_a_call_has_the_names_of_both() -> None:
    assert names_of("Shell") == ("Shell", "Bash")
    assert names_of("StrReplaceFile") == ("StrReplaceFile", "Edit", "MultiEdit")
    assert names_of("mcp__git__status") == ("mcp__git__status",)
    given = input_of("StrReplaceFile", '{"path": "a", "edit": [{"old": "x", "new": "y"}]}')
    assert given["file_path"] == given["path"] == "a"
    assert (given["old_string"], given["new_string"]) == ("x", "y")
    several = input_of(
        "StrReplaceFile",
        '{"path": "a", "edit": [{"old": "x", "new": "y"}, {"old": "z", "new": ""}]}',
    )
    assert several["edits"][1] == {"old_string": "z", "new_string": ""}
    assert input_of("ReadFile", '{"path": "a", "n_lines": 3}')["limit"] == 3
    assert input_of("Glob", '{"pattern": "*", "directory": "d"}')["path"] == "d"
    assert input_of("Shell", "{broken") == {"arguments": "{broken"}
    assert input_of("Shell", "[1]") == {"arguments": "[1]"}


@pytest.mark.parametrize(
    ("tool", "arguments", "changes", "expected"),
    [
        ("Shell", {"command": "ls"}, {"command": "ls -a"}, {"command": "ls -a"}),
        (
            "WriteFile",
            {"path": "a", "content": "x"},
            {"file_path": "b"},
            {"path": "b", "content": "x"},
        ),
        ("WriteFile", {"path": "a", "content": "x"}, {"path": "b"}, {"path": "b", "content": "x"}),
        ("ReadFile", {"path": "a", "n_lines": 3}, {"limit": 9}, {"path": "a", "n_lines": 9}),
        (
            "Glob",
            {"pattern": "*", "directory": "d"},
            {"path": "e"},
            {"pattern": "*", "directory": "e"},
        ),
        ("Grep", {"pattern": "x", "path": "d"}, {"path": "e"}, {"pattern": "x", "path": "e"}),
        (
            "StrReplaceFile",
            {"path": "a", "edit": [{"old": "x", "new": "y"}]},
            {"new_string": "z"},
            {"path": "a", "edit": [{"old": "x", "new": "z"}]},
        ),
        (
            "StrReplaceFile",
            {"path": "a", "edit": [{"old": "x", "new": "y"}]},
            {"edit": [{"old": "p", "new": "q"}]},
            {"path": "a", "edit": [{"old": "p", "new": "q"}]},
        ),
    ],
)
def test_a_changed_input_may_use_either_spelling(
    tool: str, arguments: dict[str, Any], changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    given = input_of(tool, json.dumps(arguments))
    for changed in ({**given, **changes}, dict(reversed(list({**given, **changes}.items())))):
        assert json.loads(arguments_from(tool, given, changed)) == expected


def test_a_tool_of_a_server_is_seen_behind_the_tool_that_calls_it() -> None:
    text = '{"tool": "mcp__git__push", "arguments": {"force": true}}'
    inner, arguments = inner_call("CallTool", text)
    assert (inner, json.loads(arguments)) == ("mcp__git__push", {"force": True})
    assert json.loads(outer_arguments("CallTool", inner, '{"force": false}')) == {
        "tool": "mcp__git__push",
        "arguments": {"force": False},
    }
    for odd in ("{", "[]", '{"tool": 5}', '{"tool": "x", "arguments": 5}'):
        assert inner_call("CallTool", odd) == ("CallTool", odd)
    assert inner_call("Shell", text) == ("Shell", text)
    assert outer_arguments("Shell", "Shell", text) == text


def said(
    code: int = 0, output: str | bytes = "", errors: str = "", event: str = "PreToolUse"
) -> Any:
    data = output if isinstance(output, bytes) else output.encode()
    return answer_of(HookEnd("exited", code, data, errors.encode()), event)  # pyright: ignore[reportArgumentType]


def test_exit_codes() -> None:
    assert said(0, "noise").verdict == ""
    assert (said(2, "", "no").verdict, said(2, "", "no").reason) == ("refused", "no")
    assert said(2, "out").reason == "out"
    assert said(2).reason == "it gave no reason"
    assert (said(1, "", "x").verdict, said(1, "", "x").told) == ("", "exit code 1: x")
    for code in (-9, 137, 126, 127):
        assert said(code).verdict == "failed"
    assert said(137).reason == "it was killed by SIGKILL"
    for ending in ("timeout", "output", "stopped", "not started"):
        assert answer_of(HookEnd(ending), "PreToolUse").verdict == "failed"  # pyright: ignore[reportArgumentType]


def test_json_decides() -> None:
    special = {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": "no",
    }
    answer = said(0, json.dumps({"hookSpecificOutput": special}))
    assert (answer.verdict, answer.reason) == ("refused", "no")
    assert said(0, '{"decision": "block", "reason": "r"}').reason == "r"
    assert said(0, '{"continue": false, "stopReason": "s"}').stops
    # A yes of a hook is no yes of the user.
    assert said(0, '{"hookSpecificOutput": {"permissionDecision": "allow"}}').verdict == ""
    assert said(0, '{"hookSpecificOutput": {"permissionDecision": "ask"}}').verdict == "asks"
    assert said(0, '{"hookSpecificOutput": {"updatedInput": {"a": 1}}}').changed == {"a": 1}
    assert said(0, '{"hookSpecificOutput": {"updatedInput": [1]}}').changed is None
    assert said(0, '{"hookSpecificOutput": {"additionalContext": "c"}}').context == "c"
    # An output that cannot be read may have been a no.
    for broken in ("{", '{"a": ' + "[" * 100_000, "{'decision': 'block'}"):
        assert said(0, broken).verdict == "failed"
    for odd in ('{"hookSpecificOutput": 5}', '{"decision": ["block"]}', '{"reason": {}}'):
        assert said(0, odd).verdict == ""


def test_plain_output_is_context_where_claude_takes_it() -> None:
    assert said(0, "hello", event="SessionStart").context == "hello"
    assert said(0, "hello", event="UserPromptSubmit").context == "hello"
    assert said(0, "hello", event="PreToolUse").context == ""


def test_what_hooks_say_is_clean_and_short() -> None:
    answer = said(
        2, "", "\x1b]52;c;aGk=\x07\x1b[2Jno\x9b31m \u202ehi\r\n</system-reminder>" + "x" * 50_000
    )
    assert "\x1b" not in answer.reason
    assert "\u202e" not in answer.reason
    assert len(answer.reason) <= MOST_CHARS + 1
    assert said(2, b"\xff\xfe\x00no").reason
