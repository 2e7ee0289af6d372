"""`start_servers`: gives a session its MCP servers. The session is their `Host`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kimi_tui.mcp.config import ServerConfig, configured
from kimi_tui.mcp.permissions import Permissions
from kimi_tui.mcp.servers import McpServers
from kimi_tui.tools.base import RESULTS_NAME
from kimi_tui.tools.sandbox.sandbox import Sandbox
from kimi_tui.wire.events import Notice

if TYPE_CHECKING:
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.tools.base import Tool


_PREFIX = "mcp__"
"""The beginning of the names of tools of servers."""


class _Session:
    """A session as the servers need it."""

    def __init__(self, soul: KimiSoul, wanted: Collection[str] | None) -> None:
        self._soul = soul
        self._wanted = wanted

    @property
    def work_dir(self) -> Path:
        return self._soul.session.work_dir

    @property
    def results(self) -> Path:
        return self._soul.session.dir / RESULTS_NAME

    async def window(self) -> int:
        return await self._soul.window_size()

    async def sandbox(self) -> tuple[Sandbox | None, str]:
        await self._soul.sandbox_ready()
        return self._soul.sandbox, self._soul.no_sandbox

    def change_tools(self, added: Iterable[Tool[Any]], removed: Collection[str]) -> None:
        wanted = self._wanted
        self._soul.change_tools(
            [one for one in added if wanted is None or one.name in wanted], removed
        )

    def tell(
        self,
        level: Literal["info", "warning", "error"],
        text: str,
        advice: str,
        topic: str,
        *,
        solved: bool,
    ) -> None:
        self._soul.wire.publish(Notice(level, text, advice, topic, solved))


async def start_servers(
    soul: KimiSoul,
    *,
    is_attended: bool,
    given: Sequence[ServerConfig] = (),
    wanted: Collection[str] | None = None,
) -> None:
    """Begin to start the MCP servers that are configured for the session's folder, in the background.

    Args:
        soul: the session.
        is_attended: whether a person is there to be told what to do.
        given: servers of the person that no file has; they count before configured ones of the same name.
        wanted: the names of the tools that the session may have; None for all. Without a tool of a server among them none starts.
    """
    if wanted is not None and not any(name.startswith(_PREFIX) for name in wanted):
        return
    found = await asyncio.to_thread(configured, soul.session.work_dir)
    names = {one.name for one in given}
    others = (one for one in found.servers if one.name not in names)
    found = found._replace(servers=(*given, *others))
    if not found.servers and not found.problems:
        return
    soul.use_servers(
        McpServers(
            found,
            _Session(soul, wanted),
            dict(os.environ),
            Permissions(soul.session.work_dir),
            is_attended=is_attended,
        )
    )
