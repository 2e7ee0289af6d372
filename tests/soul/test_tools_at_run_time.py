"""A tool that nothing in the program knows, put into a running session: called, asked about, recorded, rewound, exported."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import call, say
from support.made_tool import Deploy
from support.soul import Stage, next_event, stage

from kimi_tui.projection.blocks import ToolBlock
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.soul.rewind_values import END, Target
from kimi_tui.tools.base import SchemaTool, ToolEnv
from kimi_tui.tools.outcome import ToolOutcome
from kimi_tui.wire import events as ev


class Plain(SchemaTool):
    """Says nothing of itself but its schema."""

    async def run(self, params: dict[str, Any], env: ToolEnv) -> ToolOutcome:
        return ToolOutcome("pong")


DEPLOY = {"site": "docs.example", "files": ["a", "b"]}


def tools(on: Stage, number: int) -> list[dict[str, Any]]:
    """Return the tools of a request, as they were sent."""
    return on.server.requests[number].body.get("tools", [])


@pytest.mark.exhaustive
async def test_the_tools_of_requests_change_only_with_the_event(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(*(say("yes") for _ in range(5)))
        for _ in range(2):
            await on.soul.run("hi")
        on.soul.change_tools([Deploy()])
        for _ in range(2):
            await on.soul.run("hi")
        on.soul.change_tools(removed=["mcp__ship__deploy", "not there"])
        on.soul.change_tools(removed=["not there"])
        await on.soul.run("hi")
        assert tools(on, 0) == tools(on, 1) == tools(on, 4)
        assert tools(on, 2) == tools(on, 3) == [*tools(on, 0), tools(on, 2)[-1]]
        assert tools(on, 2)[-1]["function"]["parameters"]["required"] == ["site"]
        changes = [(one.added, one.removed) for one in on.ear.of(ev.ToolsChanged)]
        assert changes == [
            (("mcp__ship__deploy",), ()),
            ((), ("mcp__ship__deploy",)),
        ]
        await on.soul.flush()
        stored = [
            record["message"]["payload"]
            for record in on.file("wire.jsonl")
            if record.get("message", {}).get("type") == "ToolsChanged"
        ]
        # Versions that know forms alone pass over an event that has none of them.
        assert [one["form"] for one in stored] == ["", ""]
        assert stored[0]["added"] == ["mcp__ship__deploy"]


async def test_its_effects_belong_to_the_agent_and_its_card_to_its_calls(tmp_path: Path) -> None:
    async with stage(tmp_path, mode="ask") as on:
        on.soul.change_tools([Deploy()])
        heard = on.soul.wire.subscribe()
        on.server.script(call("mcp__ship__deploy", DEPLOY), say("It is out."))
        running = asyncio.create_task(on.soul.run("deploy"))
        asked = await next_event(heard, ev.ApprovalRequest)
        assert (asked.question, asked.detail) == ("Deploy this site?", "docs.example")
        assert (asked.kind, asked.changeable, asked.stops) == ("tool", False, True)
        on.soul.answer(asked.id, "session", "")
        await running
        begun = next(one for one in on.ear.of(ev.ToolCall))
        assert begun.card == Deploy.card
        (changed,) = on.ear.of(ev.FilesChanged)
        assert changed.paths == ("deployed.txt",)
        preview = await on.soul.travel.preview(Target(1))
        assert preview.files is not None
        assert preview.files.ran_commands
        assert preview.servers == ("ship",)
        assert preview.files.remarks[0] == "Not restored: what the MCP server ship did elsewhere."
        # A tool that was allowed for the session is not asked for again; a rewind restores the files that it changed.
        on.server.script(call("mcp__ship__deploy", DEPLOY), say("Once more."))
        await on.soul.run("again")
        assert len(on.ear.of(ev.ApprovalRequest)) == 1
        text = await on.soul.lines.markdown(Target(END))
        assert "**mcp__ship__deploy**" in text
        assert "2 files sent to docs.example" in text
        # Another process does not have the tool, and shows its calls as they were.
        await on.reopen()
        model = TranscriptModel()
        for record in await on.soul.history():
            model.apply(record)
        cards = [block for block in model.blocks if isinstance(block, ToolBlock)]
        assert [(one.name, one.target, one.n_changed) for one in cards] == [
            ("Deploy", "to docs.example", 1),
            ("Deploy", "to docs.example", 0),
        ]
        on.server.script(call("mcp__ship__deploy", DEPLOY), say("Gone."))
        await on.soul.run("and now")
        assert "There is no tool" in on.sent()[-1][1]


async def test_arguments_are_checked_by_its_schema(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.soul.change_tools([Deploy()])
        on.server.script(
            call("mcp__ship__deploy", {"files": []}),
            call("mcp__ship__deploy", {"site": "a", "files": '["x"]'}),
            say("done"),
        )
        await on.soul.run("deploy")
        results = on.ear.of(ev.ToolResult)
        assert "`site` is required." in results[0].message
        assert results[1].output == "1 files sent to a"


@pytest.mark.parametrize("name", ["Shell", "no name", "", "x" * 65])
async def test_a_name_that_is_taken_or_none_changes_nothing(tmp_path: Path, name: str) -> None:
    async with stage(tmp_path) as on:
        before = on.soul.sent_tools
        with pytest.raises(ValueError, match="tool"):
            on.soul.change_tools([Deploy(), Deploy(name)])
        assert on.soul.sent_tools == before
        assert not on.ear.of(ev.ToolsChanged)


async def test_one_that_says_nothing_else_is_asked_about_with_all_its_arguments(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path, mode="ask") as on:
        reads = Plain("mcp__b__look", "Looks.", {}, changes="nothing")
        on.soul.change_tools([Plain("mcp__a__act", "Acts.", {}), reads])
        heard = on.soul.wire.subscribe()
        on.server.script(
            call("mcp__b__look", {}), call("mcp__a__act", {"to": {"name": "é"}}), say("done")
        )
        turn = asyncio.create_task(on.soul.run("act"))
        asked = await next_event(heard, ev.ApprovalRequest)
        assert asked.question == "Run the tool a/act?"
        assert asked.detail == '{\n  "to": {\n    "name": "é"\n  }\n}'
        on.soul.answer(asked.id, "no", "not now")
        await turn
        assert [one.rejected for one in on.ear.of(ev.ToolResult)] == [False, True]


@pytest.mark.exhaustive
async def test_a_yes_for_the_session_does_not_cover_another_tool_of_the_same_name(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path, mode="ask") as on:
        on.soul.change_tools([Plain("act", "Acts.", {})])
        heard = on.soul.wire.subscribe()
        on.server.script(*[call("act", {})] * 2, say("done"), call("act", {}), say("well"))
        turn = asyncio.create_task(on.soul.run("act twice"))
        asked = await next_event(heard, ev.ApprovalRequest)
        on.soul.answer(asked.id, "session", "")
        await turn
        assert len(on.ear.of(ev.ApprovalRequest)) == 1
        on.soul.change_tools([Plain("act", "Acts in another way.", {})], ["act"])
        turn = asyncio.create_task(on.soul.run("act"))
        asked = await next_event(heard, ev.ApprovalRequest)
        on.soul.answer(asked.id, "no", "no")
        await turn
        assert len(on.ear.of(ev.ApprovalRequest)) == 2


def test_a_tool_of_a_schema_alone_has_a_whole_specification() -> None:
    spec = Plain("ping", "Says pong.", {}).spec()
    assert spec.parameters["type"] == "object"
    assert spec.description == "Says pong."
