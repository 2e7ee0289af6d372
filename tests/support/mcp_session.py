"""`McpServers` without a session: a host that notes what it is told, and calls of tools with answers given beforehand."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kimi_tui.mcp.config import ServerConfig, configured
from kimi_tui.mcp.permissions import Permissions
from kimi_tui.mcp.servers import McpServers
from kimi_tui.tools.base import ApprovalQuestion, FileVersions, Tool, ToolEnv
from kimi_tui.tools.outcome import ToolOutcome, ToolRejected
from kimi_tui.tools.toolset import Toolset

SERVER = Path(__file__).with_name("mcp_server.py")


def entry(*faults: str, **more: object) -> dict[str, object]:
    """Return the entry of the made server with its faults."""
    return {"command": sys.executable, "args": [str(SERVER), *faults], "sandbox": False, **more}


def configure(path: Path, **servers: object) -> None:
    """Write a file of servers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers}))


class Person:
    """Answers questions: `answers` in order, then no."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)
        self.asked: list[ApprovalQuestion] = []

    async def ask(self, ask: ApprovalQuestion) -> str:
        self.asked.append(ask)
        answer = self.answers.pop(0) if self.answers else None
        if answer is None:
            raise ToolRejected
        return answer


class MadeHost:
    """A host that notes what it is told."""

    def __init__(self, work_dir: Path, window: int) -> None:
        self.work_dir = work_dir
        self.results = work_dir.parent / "results"
        self.toolset = Toolset([])
        self.changes: list[tuple[list[str], list[str]]] = []
        self.told: list[str] = []
        self._window = window

    async def window(self) -> int:
        return self._window

    async def sandbox(self) -> tuple[None, str]:
        return None, "This session has no sandbox."

    def change_tools(self, added: Iterable[Tool[Any]], removed: Collection[str]) -> None:
        new = list(added)
        self.changes.append(([tool.name for tool in new], [*removed]))
        self.toolset = self.toolset.without(*removed).with_added(new)

    def tell(self, level: str, text: str, advice: str, topic: str, *, solved: bool) -> None:
        self.told.append(f"{text} {advice}".strip())


class Session:
    """Servers with their host."""

    def __init__(self, servers: McpServers, host: MadeHost) -> None:
        self.servers, self.host = servers, host

    def env(self, *answers: str | None, **more: Any) -> ToolEnv:
        person = Person(*answers)
        said: list[str] = []
        env = ToolEnv(
            self.host.work_dir,
            person,
            lambda *_: None,
            FileVersions({}),
            said.append,
            dict(os.environ),
        )
        return replace(env, **more)

    async def call(
        self, name: str, arguments: Mapping[str, object] = {}, *answers: str | None, **more: Any
    ) -> ToolOutcome:
        """Call a tool by the name that the model knows; the first answer is that to its own question."""
        env = self.env(*(answers or ("",)), **more)
        return await self.host.toolset.run(name, json.dumps(arguments), env)

    def state(self, name: str) -> str:
        return self.servers.named(name).state

    async def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, (self.host.told, self.servers.rows)
            await asyncio.sleep(0.02)


@asynccontextmanager
async def session(
    folder: Path, *, window: int = 200_000, is_attended: bool = False, wait: bool = True
) -> AsyncGenerator[Session]:
    """Start the configured servers of `folder / "work"`; KIMI_TUI_HOME has to be `folder / "home"`."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    host = MadeHost(work, window)
    found = configured(work)
    permissions = Permissions(work)
    servers = McpServers(found, host, dict(os.environ), permissions, is_attended=is_attended)
    servers.start()
    try:
        if wait:
            await servers.settled()
        yield Session(servers, host)
    finally:
        await servers.aclose()


def project_server(folder: Path, name: str = "made") -> ServerConfig:
    """Return a configured server."""
    return next(one for one in configured(folder / "work").servers if one.name == name)
