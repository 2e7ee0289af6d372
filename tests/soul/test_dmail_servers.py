"""D-Mails and MCP servers: changes that were made there stay, and the D-Mail says so."""

from __future__ import annotations

from kimi_tui.llm.message import Message, ToolCall
from kimi_tui.soul.dmail import compose_dmail
from kimi_tui.soul.messages import server_called


def called(name: str, arguments: str = "{}") -> ToolCall:
    return ToolCall.model_validate(
        {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}
    )


def test_the_server_of_a_call_is_known_directly_or_through_the_other_tool() -> None:
    assert server_called(called("mcp__git__git_commit")) == "git"
    assert server_called(called("CallTool", '{"tool": "mcp__git__git_commit"}')) == "git"
    assert server_called(called("CallTool", '{"tool": "git/git_commit"}')) == "git"
    assert server_called(called("CallTool", "{")) == ""
    assert server_called(called("Shell", '{"command": "mcp__git__x"}')) == ""


def test_what_was_done_on_servers_is_named_once_and_only_what_ran() -> None:
    calls = [
        called("mcp__git__git_commit"),
        called("mcp__git__git_commit"),
        called("CallTool", '{"tool": "mcp__tracker__close"}'),
        called("ReadFile", '{"path": "a"}'),
    ]
    undone = [Message(role="assistant", content="", tool_calls=calls)]
    facts = compose_dmail(1, ["text"], undone).facts
    assert facts.count("Not restored") == 1
    assert (
        "- Not restored: what was done elsewhere through the MCP tools `mcp__git__git_commit` of git, "
        "`mcp__tracker__close` of tracker." in facts
    )
    only_files = [Message(role="assistant", content="", tool_calls=calls[3:])]
    assert "Not restored" not in compose_dmail(1, ["text"], only_files).facts
