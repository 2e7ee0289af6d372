"""One session driven by hand: the real engine on a real folder with a model that answers as told, and the session's views."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kimi_tui.llm.completion import RetryPolicy
from kimi_tui.llm.errors import APIStatusError
from kimi_tui.llm.message import Message
from kimi_tui.llm.provider import (
    ChatProvider,
    Finished,
    ModelInfo,
    StreamItem,
    TextDelta,
    ThinkDelta,
    ToolCallDelta,
    ToolSpec,
    Usage,
)
from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.projection.tokens import GaugeModel
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.prompts import CHECKPOINT_MARKER
from kimi_tui.session.store import SessionStore
from kimi_tui.soul.assembly import open_soul
from kimi_tui.soul.kimisoul import KimiSoul
from kimi_tui.tools.base import ToolEnv
from kimi_tui.tools.outcome import ToolOutcome
from kimi_tui.tools.session_tools import SendDMail
from kimi_tui.tools.toolset import Toolset
from kimi_tui.wire.events import EventRecord, TurnEnd
from kimi_tui.wire.queue import Subscription
from support.soul import Tool
from support.stored_lines import STEER

WINDOW = 200_000


@dataclass(frozen=True)
class Answer:
    """The model's behaviour in one step; its words are made up, so that no words come twice.

    Attributes:
        speaks: whether it says something.
        thinks: whether it thinks before.
        n_calls: how many tools it calls.
        dmails: a D-Mail to each of these checkpoints, counted round those that it was told of.
        steer: whether the user types while it answers.
        end: whether it fails, or is stopped by the user, in the middle.
    """

    speaks: bool = True
    thinks: bool = False
    n_calls: int = 0
    dmails: tuple[int, ...] = ()
    steer: bool = False
    end: str = ""


@dataclass(eq=False)
class PuppetModel(ChatProvider):
    """A model that answers as told. Its figures are exact: a request counts by words.

    Attributes:
        answers: what comes next; then it only speaks.
        look: called with what it is sent whenever it is asked to answer.
        act: called for what the user does meanwhile: `steer` or `stop`.
    """

    look: Callable[[Sequence[Message]], None]
    act: Callable[[str], None]
    answers: deque[Answer] = field(default_factory=deque[Answer])
    n_said: int = 0

    @property
    def info(self) -> ModelInfo:
        return ModelInfo("test", "puppet", WINDOW)

    async def generate(
        self,
        system: str,
        tools: Sequence[ToolSpec],
        history: Sequence[Message],
        *,
        most_tokens: int = 0,
    ) -> AsyncIterator[StreamItem]:
        self.n_said += 1
        n = self.n_said
        sent = 500 + sum(20 + len(message.text) for message in history)
        if not tools:
            yield TextDelta(f"summary {n}")
            yield Usage(sent, 5)
            yield Finished("stop")
            return
        self.look(history)
        answer = self.answers.popleft() if self.answers else Answer()
        if answer.thinks:
            yield ThinkDelta(f"thought {n}")
        if answer.speaks:
            yield TextDelta(f"answer {n}")
        if answer.steer:
            self.act("steer")
        if answer.end == "error":
            raise APIStatusError("Not today.", status=400, retryable=False)
        if answer.end == "stop":
            self.act("stop")
            await asyncio.Event().wait()
        known = [
            int(found[1])
            for message in history
            if message.role == "user" and (found := CHECKPOINT_MARKER.fullmatch(message.text))
        ]
        calls = [("Note", f'{{"text": "note {n}.{i}"}}') for i in range(answer.n_calls)]
        calls += [
            (
                "SendDMail",
                f'{{"message": "letter {n}.{i}", "checkpoint_id": {known[at % len(known)]}}}',
            )
            for i, at in enumerate(answer.dmails)
        ]
        for position, (name, arguments) in enumerate(calls):
            yield ToolCallDelta(position, f"call_{n}_{position}", name, arguments)
        if not answer.speaks and not calls:
            yield TextDelta(f"answer {n}")
        yield Usage(sent, 25)
        yield Finished("tool_calls" if calls else "stop")

    async def aclose(self) -> None:
        pass


async def _note(arguments: dict[str, Any], env: ToolEnv) -> ToolOutcome:
    return ToolOutcome(f"noted {arguments['text']}")


class Views:
    """Chat, timeline and gauge, which get a session's events as those of the screen do.

    Attributes:
        lost: the events did not tell what the chat looks like now; it must be told anew.
    """

    def __init__(self, records: Iterable[EventRecord] = ()) -> None:
        self.chat = TranscriptModel()
        self.timeline = TimelineModel()
        self.gauge = GaugeModel()
        self.lost = False
        self.take(records)

    def take(self, records: Iterable[EventRecord]) -> None:
        """Apply records to the views."""
        for record in records:
            self.lost |= self.chat.apply(record).rebuild
            self.timeline.apply(record)
            self.gauge.apply(record)


class TimeTraveller:
    """A session in a folder, its engine, and the views that have followed it since it was opened.

    Args:
        folder: empty.
        look: called with what the model is sent.
    """

    def __init__(self, folder: Path, look: Callable[[Sequence[Message]], None]) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        self.store = SessionStore(folder / "data")
        self.session = self.store.create(self.work)
        self.model = PuppetModel(look, self._act)
        self.n_words = 0
        self.soul: KimiSoul
        self.views: Views
        self._heard: Subscription
        self._stopping: asyncio.Task[None] | None = None

    @property
    def folder(self) -> Path:
        """Return the folder of the session's files."""
        return self.session.dir

    async def open(self) -> None:
        """Open the engine (again), as a new process would."""
        self.soul = await open_soul(
            session=self.session,
            provider=self.model,
            mode="all",
            toolset=Toolset([Tool("Note", _note), SendDMail()]),
            environ={},
            policy=RetryPolicy(max_attempts=1),
            follow_files=False,
        )
        self._heard = self.soul.wire.subscribe()
        self.views = Views(self.soul.hand_over_history())

    async def reopen(self, session_id: str = "") -> None:
        """Leave the session, and open it, or another one, anew."""
        await self.soul.aclose()
        # A session in which nothing was said leaves no files.
        gone = not session_id and not self.folder.exists()
        name = session_id or self.session.id
        self.session = self.store.create(self.work) if gone else self.store.find(name, self.work)
        await self.open()

    def words(self, how: str = "words") -> str:
        """Return words that the user has not said yet."""
        self.n_words += 1
        return f"{how} {self.n_words}"

    async def follow(self) -> None:
        """Apply the new records to the views."""
        records = self._heard.drain()
        for record in records:
            if isinstance(record.event, TurnEnd) and "in the program" in record.event.error:
                raise AssertionError(record.event.error)
        self.views.take(records)
        if self.views.lost:
            self.views = Views(await self.soul.history())

    def _act(self, what: str) -> None:
        if what == "steer":
            self.soul.say(self.words(STEER))
        else:
            self._stopping = asyncio.create_task(self.soul.interrupt())
