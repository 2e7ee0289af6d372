"""How cards show the calls of external agents, and which servers of the user such an agent is not told of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("acp", reason="the package agent-client-protocol is not installed")

from acp import schema

from kimi_tui.external.looks import (
    _MOST_ARGUMENT,
    CallFacts,
    _plain,
    _plain_command,
    _task_of,
    shown_path,
    unfenced,
)
from kimi_tui.external.servers import _check_limits, _NotHanded
from kimi_tui.mcp.config import ServerConfig


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("```\na\nb\n```", "a\nb"),
        ("```console\na\n```  \n", "a"),
        ("````\n```\na\n```\n````", "```\na\n```"),
        ("```\na\n```\nb\n```", "```\na\n```\nb\n```"),
        ("```\na", "```\na"),
        ("``\na\n``", "``\na\n``"),
        ("```", "```"),
        ("a", "a"),
        ("", ""),
    ],
)
def test_a_fence_around_all_of_it_is_left_out(text: str, shown: str) -> None:
    assert unfenced(text) == shown


def test_arguments_are_plain_values() -> None:
    given: dict[str, Any] = {
        "text": "a",
        "on": True,
        "count": 3,
        "share": 0.5,
        "none": None,
        "list": [1],
        "table": {},
    }
    assert _plain(given) == {"text": "a", "on": True, "count": 3, "share": 0.5, "none": None}
    assert len(_plain({str(number): number for number in range(30)})) == 20


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["/bin/bash", "-lc", "ls | wc"], "ls | wc"),
        (["sh", "-c", "ls"], "ls"),
        (["sh", "-x", "ls"], "sh -x ls"),
        (["python", "-c", "1"], "python -c 1"),
        (["sh", "-c", "ls", "x"], "sh -c ls x"),
        (["sh"], "sh"),
        (["echo", "a b"], "echo 'a b'"),
    ],
)
def test_a_command_is_shown_without_the_shell_around_it(words: list[str], line: str) -> None:
    assert _plain_command(words) == line


@pytest.mark.parametrize(
    ("given", "task"),
    [
        ({"description": "Look", "prompt": "Look around.", "subagent_type": "find"}, "find: Look"),
        ({"description": "Look", "prompt": "Look around."}, "Look"),
        ({"description": "Look", "prompt": "x", "kind": " ", "agent": "a"}, "a: Look"),
        ({"description": "Look"}, ""),
        ({"description": " ", "prompt": "x", "agent": "a"}, ""),
        ({"description": "Look", "prompt": " "}, ""),
        ({"description": 1, "prompt": "x"}, ""),
        ({"description": "Look", "prompt": "x", "kind": 7}, "Look"),
    ],
)
def test_a_task_is_what_a_sub_agent_is_given(given: dict[str, Any], task: str) -> None:
    assert _task_of(given) == task


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        *(("/work/a/b.txt", "a/b.txt"), ("/work/a/../b.txt", "b.txt"), ("/work", "/work")),
        *(("/workshop/a", "/workshop/a"), ("a/b.txt", "a/b.txt"), ("/work/../etc", "/etc")),
    ],
)
def test_paths_in_the_folder_are_relative(path: str, shown: str) -> None:
    assert shown_path(path, "/work/") == shown


@pytest.mark.parametrize(
    ("limits", "has_tools_off", "why"),
    [
        ({}, False, ""),
        ({}, True, "some of its tools are off"),
        ({"enabled_tools": ("a",)}, False, "some of its tools are off"),
        ({"disabled_tools": ("a",)}, False, "some of its tools are off"),
        ({"network": False}, False, "must not use the network"),
        ({"network": True}, False, ""),
        ({"network": False, "transport": "http"}, False, ""),
        ({"origin": "project"}, False, "in the sandbox only"),
        ({"origin": "project", "sandbox": False}, False, ""),
        ({"origin": "project", "transport": "sse"}, False, ""),
    ],
)
def test_a_server_with_limits_that_only_we_keep_is_not_handed_over(
    limits: dict[str, Any], has_tools_off: bool, why: str
) -> None:
    facts: dict[str, Any] = {"transport": "stdio", "origin": "user", **limits}
    config = ServerConfig(name="one", path=Path("mcp.json"), **facts)
    if not why:
        _check_limits(config, has_tools_off=has_tools_off)
        return
    with pytest.raises(_NotHanded, match=why):
        _check_limits(config, has_tools_off=has_tools_off)


def told(kind: Any, title: str = "The title", **fields: Any) -> CallFacts:
    """Return what is known of a call after its first update."""
    facts = CallFacts("1")
    start = schema.ToolCallStart(
        session_update="tool_call", tool_call_id="1", title=title, kind=kind, **fields
    )
    facts.take(start)
    return facts


@pytest.mark.parametrize(
    ("kind", "given", "name", "about"),
    [
        ("execute", {"command": "ls"}, "Shell", {"command": "ls"}),
        ("execute", {"command": ["bash", "-lc", "ls"]}, "Shell", {"command": "ls"}),
        ("execute", {"command": ["ls", 1], "cmd": "ls -a"}, "Shell", {"command": "ls -a"}),
        ("execute", {}, "Shell", {"command": "The title"}),
        ("search", {"query": "x", "glob": "*"}, "Grep", {"pattern": "x"}),
        ("search", {"pattern": ""}, "Grep", {"pattern": "The title"}),
        ("fetch", {"url": "https://a.org"}, "FetchURL", {"url": "https://a.org"}),
        ("fetch", {"url": 1}, "FetchURL", {"url": "The title"}),
        ("read", {}, "Look at", {"description": "The title"}),
        ("other", {"description": "a", "prompt": "b"}, "Subagent", {"description": "a"}),
        ("move", {"description": "a", "prompt": "b"}, "Move", {"description": "The title"}),
        ("think", {"description": "a"}, "Think", {"description": "The title"}),
    ],
)
def test_a_call_looks_like_the_tool_that_does_the_same(
    kind: str, given: dict[str, Any], name: str, about: dict[str, str]
) -> None:
    look = told(kind, raw_input=given).look("/work")
    assert (look.name, {key: look.arguments[key] for key in about}) == (name, about)


def test_a_call_without_a_title_is_named_by_its_arguments_or_files() -> None:
    at = [schema.ToolCallLocation(path=path) for path in ("/work/a", "/work/b")]
    look = told("move", "", raw_input={"description": "Tidy up"}, locations=at).look("/work")
    assert look.arguments["description"] == "Tidy up"
    assert told("move", "", locations=at).look("/work").arguments["description"] == "a, b"


def test_long_words_of_the_agent_are_cut() -> None:
    assert len(_task_of({"description": "d" * 9_000, "prompt": "x", "agent": "a" * 9_000})) < 600
    for path in ("p" * 9_000, "/work/" + "p" * 9_000, "/" + "p" * 9_000):
        assert len(shown_path(path, "/work")) == _MOST_ARGUMENT


def test_output_that_begins_like_arguments_is_shown_where_these_are_known() -> None:
    text = schema.ContentToolCallContent(
        type="content", content=schema.TextContentBlock(type="text", text='{"a":')
    )
    assert told("execute", content=[text]).text() == ""
    assert told("execute", content=[text], raw_input={"command": "cat"}).text() == '{"a":'
