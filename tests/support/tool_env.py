"""Surroundings of a tool for tests: an approver that remembers, a mailbox, file versions, and a method that runs a tool."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kimi_tui.tool_cards import TodoItem
from kimi_tui.tools.base import ApprovalQuestion, FileVersions, ToolEnv
from kimi_tui.tools.jobs import Jobs
from kimi_tui.tools.outcome import ToolOutcome, ToolRejected
from kimi_tui.tools.sandbox.sandbox import Sandbox
from kimi_tui.tools.toolset import Toolset, default_toolset


@dataclass
class Approver:
    """An approver that says yes unless told otherwise; it calls `before_yes` while the question is shown."""

    asks: list[ApprovalQuestion] = field(default_factory=list[ApprovalQuestion])
    refuse: str | None = None
    instead: str = ""
    """The command that a yes runs instead; empty for none."""
    before_yes: Callable[[], object] = lambda: None
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """While this event is clear, questions wait."""

    def __post_init__(self) -> None:
        self.answered.set()

    async def ask(self, ask: ApprovalQuestion) -> str:
        self.asks.append(ask)
        await self.answered.wait()
        if self.refuse is not None:
            raise ToolRejected(self.refuse)
        self.before_yes()
        return self.instead


@dataclass
class Mailbox:
    """A mailbox that knows checkpoints 0 to 3."""

    sent: list[tuple[str, int, bool]] = field(default_factory=list[tuple[str, int, bool]])

    def send_dmail(self, message: str, checkpoint_id: int, restore_files: bool = False) -> None:
        if checkpoint_id > 3:
            raise ValueError(f"There is no checkpoint {checkpoint_id}; the newest is 3.")
        self.sent.append((message, checkpoint_id, restore_files))


class Bench:
    """A work folder with the built-in tools."""

    def __init__(self, work_dir: Path) -> None:
        self.work_dir = work_dir
        self.approver = Approver()
        self.mailbox = Mailbox()
        self.versions = FileVersions({})
        self.live: list[str] = []
        self.environ = dict(os.environ)
        self.todos: tuple[TodoItem, ...] | None = None
        self.jobs = Jobs()
        self.sees = False
        self.search_sandbox: Sandbox | None = None
        self.tools: Toolset = default_toolset()

    @property
    def env(self) -> ToolEnv:
        return ToolEnv(
            work_dir=self.work_dir,
            approver=self.approver,
            send_dmail=self.mailbox.send_dmail,
            versions=self.versions,
            emit=self.live.append,
            environ=self.environ,
            todos=self.todos,
            jobs=self.jobs,
            sees=self.sees,
            search_sandbox=self.search_sandbox,
        )

    async def run(self, name: str, /, **arguments: object) -> ToolOutcome:
        """Call a tool as the model would; return its outcome."""
        return await self.tools.run(name, json.dumps(arguments), self.env)

    def write(self, path: str, data: str | bytes) -> Path:
        """Write a file into the work folder without the agent's knowledge; return its path."""
        target = self.work_dir / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data.encode() if isinstance(data, str) else data)
        return target
