"""D-Mails and MCP servers: changes that were made there stay, and the D-Mail says so."""

from __future__ import annotations

from kimi_tui.llm.message import ToolCall
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
