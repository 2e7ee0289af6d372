"""Sub-agents without a screen: whose events they are, what counts as the session's, and that a yes is still needed."""

from __future__ import annotations

import json

import pytest
from headless.conftest import Scripts
from support.chat_server import call, calls, say

ASKS = ("Agent", {"description": "write b", "prompt": "Write b.txt", "kind": "general"})


def test_the_lines_of_a_sub_agent_carry_its_name(scripts: Scripts) -> None:
    scripts.server.script(
        calls([ASKS], usage=(100, 10)),
        call("WriteFile", {"path": "b.txt", "content": "x\n"}, usage=(50, 5)),
        say("written", usage=(60, 6)),
        say("All done.", usage=(120, 7)),
    )
    ran = scripts.run("-p", "go", "--mode", "edits", "--output-format", "stream-json")
    assert ran.code == 0
    lines = [json.loads(line) for line in ran.out.splitlines()]
    sources = {line.get("source", "") for line in lines}
    assert sources == {"", "general-1"}
    theirs = [line for line in lines if line.get("source")]
    assert "ToolResult" in {line["type"] for line in theirs}
    told = [line for line in lines if line["type"] == "AgentChanged"]
    assert {line["source"] for line in told} == {""}
    assert told[-1]["state"] == "done"
    result = lines[-1]
    assert result["type"] == "result"
    assert result["result"] == "All done."
    assert result["usage"]["input_tokens"] == 330
    assert (scripts.work / "b.txt").exists()


@pytest.mark.exhaustive
def test_nobody_is_there_to_say_yes_to_it(scripts: Scripts) -> None:
    scripts.server.script(
        calls([ASKS]),
        call("WriteFile", {"path": "b.txt", "content": "x\n"}),
        say("I may not."),
        say("It may not."),
    )
    ran = scripts.run("-p", "go", "--mode", "ask")
    assert (ran.code, ran.out) == (0, "It may not.\n")
    assert "refused: WriteFile" in ran.err
    assert not (scripts.work / "b.txt").exists()
    # What was said and done is shown by the commands that read a session.
    again = scripts.run("export", "--md", "-o", str(scripts.home / "told.md"))
    assert again.code == 0
    assert "It may not." in (scripts.home / "told.md").read_text()
