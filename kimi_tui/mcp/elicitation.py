"""Questions of a server to the user (elicitation), which are forms or addresses to open (`forms`)."""

from __future__ import annotations

import mcp_types

from kimi_tui import lenient_json
from kimi_tui.mcp.forms import filled_form, opened_address
from kimi_tui.tools.base import Approver
from kimi_tui.tools.outcome import ToolRejected


def declined() -> mcp_types.ElicitResult:
    """Return the answer to a question that nobody answers."""
    return mcp_types.ElicitResult(action="decline")


async def answered(
    server: str, params: mcp_types.ElicitRequestParams, approver: Approver
) -> mcp_types.ElicitResult:
    """Put a question of a server to the user, and return the answer.

    Args:
        server: the name of the server.
        params: the question.
        approver: asks the user about the call during which the server asks.
    """
    asker = f"The MCP server {server}"
    try:
        if isinstance(params, mcp_types.ElicitRequestURLParams):
            done = await opened_address(asker, params.message, params.url, approver)
            return mcp_types.ElicitResult(action="accept") if done else declined()
        schema = lenient_json.mapping(params.requested_schema)
        content = await filled_form(asker, server, params.message, schema, approver)
    except ToolRejected:
        return declined()
    if content is None:
        return declined()
    return mcp_types.ElicitResult(action="accept", content=content)
