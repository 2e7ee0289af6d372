"""Runs the engine in tests: a stage with a real server, session and files, and an ear on the wire instead of sleeping."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict

from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.launch import Launch
from kimi_tui.llm.completion import RetryPolicy
from kimi_tui.llm.openai_compatible import OpenAICompatible
from kimi_tui.session.store import SessionStore
from kimi_tui.soul.assembly import open_soul
from kimi_tui.soul.checkpoint_table import CheckpointRow, list_checkpoints
from kimi_tui.soul.kimisoul import TURN_ERRORS, KimiSoul
from kimi_tui.soul.messages import dmail_text, internal_kind, segments, summary_text
from kimi_tui.tools.base import ToolEnv, TypedTool
from kimi_tui.tools.outcome import ToolOutcome
from kimi_tui.wire import events as ev
from kimi_tui.wire.events import Event
from kimi_tui.wire.queue import Subscription, Wire
from support.chat_server import ChatServer, strict
from support.quick_disk import memory_folder

E = TypeVar("E")
PATIENCE_S = 50.0


async def next_event(
    heard: Subscription, kind: type[E], where: Callable[[E], bool] = lambda event: True
) -> E:
    """Return the next event of this kind for which `where` holds; events before it are skipped."""
    async with asyncio.timeout(PATIENCE_S):
        async for record in heard:
            if isinstance(record.event, kind) and where(record.event):
                return record.event
    raise AssertionError(f"the wire was closed before any {kind.__name__}")


def _is_late(event: Event) -> bool:
    """Return whether the event tells that the first scan of the files ended only after an action had to do without it."""
    return isinstance(event, ev.Notice) and event.text.startswith("The first file snapshot")


class Ear:
    """Keeps every event of a wire, in order."""

    def __init__(self, wire: Wire) -> None:
        self._subscription = wire.subscribe()
        self._events: list[Event] = []

    @property
    def events(self) -> list[Event]:
        """Return every event so far."""
        self._events += [record.event for record in self._subscription.drain()]
        return self._events

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def notices(self) -> list[ev.Notice]:
        """Return the notices except those that only a slow machine causes."""
        return [notice for notice in self.of(ev.Notice) if not _is_late(notice)]

    def names(self, *skipped: type) -> list[str]:
        """Return the kinds in order, without some, and without notices that only a slow machine causes."""
        wanted = (one for one in self.events if not isinstance(one, skipped))
        return [type(event).__name__ for event in wanted if not _is_late(event)]

    def forget(self) -> None:
        """Drop the events so far."""
        self.events.clear()


def launch_at(home: Path, dialect: str | None = None) -> Launch:
    """Return the launch of a new session in a folder, with a model whose server is not asked."""
    choice = ModelChoice("server", "http://127.0.0.1:9/v1", "m", window=9000, dialect=dialect)
    return Launch(work_dir=home, config_path=home / "config.toml", choice=choice)


async def until_end(turn: Awaitable[object]) -> None:
    """Wait for a turn whose wire the test reads. The error that ended it is on the wire, and not raised."""
    with contextlib.suppress(*TURN_ERRORS):
        await turn


class StoredMessage(NamedTuple):
    """A message of a world line, with its number after its checkpoint, counted as for pins."""

    kind: str
    checkpoint_id: int
    uid: str
    number: int
    text: str
    pinned: bool


_ROLES = {"user": "user", "assistant": "agent", "tool": "tool", "dmail": "dmail"}


class AnyParams(BaseModel):
    """Parameters that accept anything."""

    model_config = ConfigDict(extra="allow")


class Tool(TypedTool[Any]):
    """A tool whose work a test defines."""

    def __init__(
        self,
        name: str,
        work: Callable[[dict[str, Any], ToolEnv], Awaitable[ToolOutcome]],
        *,
        changes: bool = False,
    ) -> None:
        self.name = name
        self.changes = "edits" if changes else "nothing"
        self.params = AnyParams
        self._work = work

    @property
    def description(self) -> str:
        return f"{self.name} of a test"

    async def run(self, params: AnyParams, env: ToolEnv) -> ToolOutcome:
        return await self._work(dict(params.model_extra or {}), env)


class Stage:
    """A session in a folder, a server on a socket and the engine between them.

    Args:
        folder: an empty folder, in which the work folder is made.
        server: the model.
        window: the window of the model in tokens.
        data: the data folder; by default beside the work folder.
        options: further arguments of `open_soul`.
    """

    def __init__(
        self,
        folder: Path,
        server: ChatServer,
        window: int = 200_000,
        data: Path | None = None,
        **options: Any,
    ) -> None:
        self.server = server
        self.work = folder / "work"
        self.work.mkdir(exist_ok=True)
        self.store = SessionStore(data or folder / "data", options.pop("storage", None))
        self.session = self.store.create(self.work)
        self.window = window
        self.capabilities = options.pop("capabilities", None)
        self.options = options
        self.soul: KimiSoul
        self.ear: Ear

    async def open(self) -> KimiSoul:
        """Open the engine (again)."""
        provider = OpenAICompatible(
            provider="test",
            base_url=self.server.base_url,
            api_key="key",
            model="stand-in",
            window=self.window,
            # Settings spare each session four requests that would ask the server; `tests/llm` tests those.
            dialect="generic",
            capabilities=self.capabilities,
            stream_timeout_s=self.options.pop("stream_timeout_s", 120.0),
            first_answer_timeout_s=self.options.pop("first_answer_timeout_s", 0.0),
        )
        quick = RetryPolicy(initial_s=0.01, max_s=0.02, jitter_s=0.0)
        options: dict[str, Any] = {"mode": "all", "policy": quick, "environ": {}, **self.options}
        self.soul = await open_soul(session=self.session, provider=provider, **options)
        self.ear = Ear(self.soul.wire)
        return self.soul

    async def checkpoints(self) -> list[CheckpointRow]:
        """Return the checkpoints of the live world line, as `kimi-tui checkpoints` lists them."""
        await self.soul.flush()
        return await asyncio.to_thread(list_checkpoints, self.session)

    async def messages(self, world_line: int = 0) -> list[StoredMessage]:
        """Return all messages of a world line (0: the live one), checkpoint markers left out."""
        pins = self.soul.marks.pins
        line = await asyncio.to_thread(self.session.world_line, world_line)
        return [
            StoredMessage(
                _ROLES.get(internal_kind(message) or message.role, "reminder"),
                part.point.id,
                part.point.uid,
                number,
                dmail_text(message) or summary_text(message) or message.text,
                bool({(part.point.uid, number), (part.point.was or "", number)} & pins),
            )
            for part in segments(line)
            for number, message in enumerate(part.messages)
        ]

    async def summary(self) -> str:
        """Return the text of the newest summary on the live world line; empty if there is none."""
        found = await self.soul.lines.summaries()
        return found[-1].text if found else ""

    async def reopen(self) -> KimiSoul:
        """Close everything and open the same session as a new process would."""
        await self.soul.aclose()
        self.session = self.store.find(self.session.id, self.work)
        return await self.open()

    def sent(self, number: int = -1) -> list[tuple[str, str]]:
        """Return role and text of the messages of one request, without the system prompt and CHECKPOINT markers."""
        return [
            (message["role"], said_in(message))
            for message in self.server.requests[number].messages[1:]
        ]

    def file(self, name: str = "context.jsonl") -> list[dict[str, Any]]:
        """Return the records of one of the session's files."""
        return [json.loads(line) for line in (self.session.dir / name).read_bytes().splitlines()]


_MARKERS = re.compile(r"\s*<system>CHECKPOINT \d+</system>\s*")


def said_in(message: dict[str, Any]) -> str:
    """Return the text of a sent message without markers, and calls as `Name(arguments)`."""
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "\n".join(part.get("text", f"[{part['type']}]") for part in content)
    text = _MARKERS.sub("\n\n", content).strip()
    calls = [
        f"{entry['function']['name']}({entry['function']['arguments']})"
        for entry in message.get("tool_calls", [])
    ]
    return "\n".join([text, *calls]).strip()


@contextlib.asynccontextmanager
async def stage(folder: Path, *, data: Path | None = None, **options: Any) -> AsyncIterator[Stage]:
    """Open a stage, whose server refuses what a strict one would refuse.

    Args:
        folder: where its work folder is, and what is read by other programs.
        data: where sessions are kept. Without it they are in memory, if there is room, until the stage is closed: each is
            synced many times. The work folder is not: tools read nothing below `/dev`.
    """
    with contextlib.ExitStack() as ends:
        data = data or Path(
            ends.enter_context(
                tempfile.TemporaryDirectory(dir=memory_folder(), ignore_cleanup_errors=True)
            )
        )
        async with ChatServer(check=strict) as server:
            on = Stage(folder, server, data=data, **options)
            await on.open()
            try:
                yield on
            finally:
                await on.soul.aclose()
            assert not server.refused, server.refused
