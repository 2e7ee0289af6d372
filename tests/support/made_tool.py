"""A tool of a test that the program does not know, described by a plain JSON schema as those of servers are."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from kimi_tui.tool_cards import Card
from kimi_tui.tools.base import TO_RUN, ApprovalQuestion, SchemaTool, ToolEnv
from kimi_tui.tools.outcome import ToolOutcome

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "site": {"type": "string", "description": "Where to."},
        "files": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["site"],
}


class Deploy(SchemaTool):
    """A tool that asks, and writes a file into the work folder."""

    card = Card("Deploy", ("site",), form="to {}")

    def __init__(self, name: str = "mcp__ship__deploy") -> None:
        super().__init__(name, "Deploys files to a site.", SCHEMA, card=self.card)

    def question(self, params: dict[str, Any], env: ToolEnv) -> ApprovalQuestion:
        """Return the question whether to deploy."""
        return ApprovalQuestion(
            TO_RUN,
            "Deploy this site?",
            params["site"],
            session_key="deploy",
            session_offer="Yes, and every deploy in this session",
        )

    async def run(self, params: dict[str, Any], env: ToolEnv) -> ToolOutcome:
        """Write the target into a file."""
        files = params.get("files", [])
        env.emit("sending\n")
        await asyncio.to_thread((env.work_dir / "deployed.txt").write_text, params["site"])
        return ToolOutcome(
            f"{len(files)} files sent to {params['site']}", "Deployed.", brief=f"{len(files)} sent"
        )
