"""The description of a call on its card, from arguments that may still be incomplete."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from support.cases import each

from kimi_tui.projection.blocks import ToolBlock
from kimi_tui.projection.tool_calls import argument, target
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.tool_cards import KNOWN, card_of
from kimi_tui.wire.events import EventRecord, ToolCall, ToolResult


@each(
    "tool, arguments, shown",
    [
        ("Shell", {"command": "pytest -q\n  tests"}, "pytest -q tests"),
        ("ReadFile", {"path": "/app/src/a.py", "n_lines": 3}, "src/a.py"),
        ("WriteFile", {"content": 'a "path": "b"', "path": "/etc/x"}, "/etc/x"),
        ("Grep", {"pattern": 'find("'}, '"find(""'),
        ("Glob", {"pattern": "src/**"}, "src/**"),
        ("SendDMail", {"message": "x", "checkpoint_id": 8}, "to #8"),
        ("TaskOutput", {"id": 3, "wait": 60}, "task 3"),
        ("SetTodoList", {"todos": [{"title": "a", "status": "done"}, {"title": "b", "status": "pending"}]}, "1 of 2 done"),
        ("mcp__x", {"url": "http://a"}, "http://a"),
        ("Other", {"n": 1}, ""),
    ],
)  # fmt: skip
def test_targets(tool: str, arguments: dict[str, object], shown: str) -> None:
    assert target(card_of(tool), json.dumps(arguments), "/app") == shown


def test_a_file_that_seems_to_be_another_is_told_from_it() -> None:
    assert (
        target(KNOWN["ReadFile"], '{"path": "/w/\u0430.py\ufe0f"}', "/w") == "<U+0430>.py<U+FE0F>"
    )
    assert target(KNOWN["Shell"], '{"command": "cat \u0430.py"}') == "cat \u0430.py"


def test_partial_arguments() -> None:
    assert target(KNOWN["Shell"], '{"command": "git di') == "git di"
    assert target(KNOWN["Shell"], '{"command": "a\\u00') == "a\\u00"
    assert target(KNOWN["Shell"], "") == ""
    assert target(KNOWN["SetTodoList"], '{"todos": [') == ""
    assert target(KNOWN["SetTodoList"], '{"todos": ' + "[" * 100_000) == ""


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_argument_comes_back_whole(value: str, other: str) -> None:
    text = json.dumps({"zz": other.replace('"path"', ""), "path": value})
    assert argument(text, "path") == value


@given(st.text(), st.sampled_from(["Shell", "SetTodoList", "SendDMail", "Grep", "x"]))
def test_no_arguments_are_too_broken(text: str, tool: str) -> None:
    shown = target(card_of(tool), text)
    assert "\n" not in shown
    assert "\x1b" not in shown


def test_the_questions_of_answers_are_known_by_their_arguments_to_the_end() -> None:
    model = TranscriptModel()
    asked = json.dumps({"questions": [{"question": "Tabs?"}]})
    for event in (
        ToolCall("k", "AskUserQuestion", asked),
        ToolCall("s", "Shell", '{"command": "ls"}'),
        ToolResult("k", False, "Tabs? Yes"),
        ToolResult("s", False, ""),
    ):
        model.apply(EventRecord(1, 0.0, event))
    answers, command = (block for block in model.blocks if isinstance(block, ToolBlock))
    assert (answers.arguments, command.arguments) == (asked, "")
