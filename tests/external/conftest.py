"""A desk: a folder in which the scripted agent does the turns of sessions."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("acp", reason="the package agent-client-protocol is not installed")

from kimi_tui.external.soul import ExternalSoul
from kimi_tui.launch import Options, launch_of
from kimi_tui.llm.message import Message
from kimi_tui.soul.opening import open_session
from kimi_tui.wire import events as ev

SCRIPT = Path(__file__).parent.parent / "support" / "scripted_agent.py"


@dataclass
class AgentSession:
    """A session with an external agent.

    Attributes:
        soul: its engine.
        events: what was published.
        asked: the questions.
        answer: returns the answer to a question: an option, or `no`; None for no answer.
    """

    soul: ExternalSoul
    events: list[ev.Event] = field(default_factory=list)
    asked: list[ev.ApprovalRequest] = field(default_factory=list)
    answer: Callable[[ev.ApprovalRequest], str | None] = lambda _: "no"
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self) -> None:
        async for record in self.soul.wire.subscribe():
            event = record.event
            self.events.append(event)
            if isinstance(event, ev.ApprovalRequest):
                self.asked.append(event)
                said = self.answer(event)
                if said is not None:
                    kind = "no" if said == "no" else "once"
                    self.soul.answer(event.id, kind, "" if said == "yes" else said)
            self.news.set()

    async def say(self, *lines: str) -> str:
        """Run a turn; return what the agent said in it."""
        before = len(self.events)
        await asyncio.wait_for(self.soul.run("\n".join(lines)), 30)
        await self.until(
            lambda: any(isinstance(one, ev.TurnEnd) for one in self.events[before:]), "the end"
        )
        return "".join(one.text for one in self.events[before:] if isinstance(one, ev.TextPart))

    async def until(self, there: Callable[[], object], what: str = "it") -> None:
        """Wait until something is there, looking after each event."""
        async with asyncio.timeout(30):
            while not there():
                self.news.clear()
                await self.news.wait()

    def of(self, kind: type) -> list[Any]:
        """Return the events of a kind."""
        return [one for one in self.events if isinstance(one, kind)]

    @property
    def messages(self) -> Sequence[Message]:
        """The messages of the context."""
        return self.soul.session.context.messages

    @property
    def point(self) -> int:
        """The id of the newest checkpoint of the user."""
        return [one.id for one in self.of(ev.CheckpointCreated) if one.kind == "user"][-1]


@dataclass
class AgentDesk:
    """The folders, and how sessions are opened in them."""

    folder: Path

    def __post_init__(self) -> None:
        self.work, self.home = self.folder / "work", self.folder / "home"
        self.log = self.folder / "log"
        (self.folder / "sessions").mkdir()
        self.work.mkdir()
        self.home.mkdir()
        self.configure([sys.executable, "-S", str(SCRIPT)])

    def configure(self, command: list[str]) -> None:
        """Write the configuration; commands have no sandbox, whose trial is a process of its own."""
        names = ["AGENT_LOG", "AGENT_SESSIONS", "AGENT_ABLE"]
        (self.home / "config.toml").write_text(
            f"[external_agents.scripted]\ncommand = {json.dumps(command)}\nenv = {json.dumps(names)}\n"
            "[sandbox]\nenabled = false\n"
        )

    @property
    def sent(self) -> list[dict[str, Any]]:
        """What the agent was sent, in order."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def sent_of(self, method: str) -> list[dict[str, Any]]:
        """The parameters of the requests of one kind."""
        return [one["params"] for one in self.sent if one.get("method") == method]

    @asynccontextmanager
    async def session(
        self, mode: Any = "edits", notices: list[str] | None = None, **options: Any
    ) -> AsyncGenerator[AgentSession]:
        """Open a session; a new one unless the options say otherwise. `notices` gets those of opening it."""
        if not options:
            options = {"external_agent": "scripted"}
        launch = launch_of(Options(work_dir=str(self.work), mode=mode, **options))
        opened = await open_session(launch)
        soul = opened.soul
        (notices if notices is not None else []).extend(opened.notices)
        assert isinstance(soul, ExternalSoul)
        session = AgentSession(soul)
        following = asyncio.create_task(session.follow())
        soul.follow_files()
        await soul.files_ready()
        try:
            yield session
        finally:
            await soul.aclose()
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentDesk:
    made = AgentDesk(tmp_path)
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.setenv("KIMI_TUI_HOME", str(made.home))
    monkeypatch.setenv("AGENT_LOG", str(made.log))
    monkeypatch.setenv("AGENT_SESSIONS", str(tmp_path / "sessions"))
    return made


@pytest.fixture
def able(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Say what the agent can do."""
    return lambda words: monkeypatch.setenv("AGENT_ABLE", words)
