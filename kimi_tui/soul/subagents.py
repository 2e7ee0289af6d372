"""The sub-agents of a session: each is a `KimiSoul` of its own, which a call of the tool `Agent` starts and whose last answer is the result.

A sub-agent shares the session's snapshots, sandbox, approvals, hooks and mode, and has a context, a record and world lines of its
own, in `subagents/NAME/` of the session's folder. `agent.json` there has its state and kind (`_Stored`); it is written before the
sub-agent begins and at each of its ends, so that a killed program leaves one that can go on (`Subagents.load`).

Its events are published on its own wire, and on the session's with its name. Its figures are counted in the session's.

Where two or more that write are called at once, each works in a copy (`agent_copies`): in a process and files of its own, from which
the difference is applied when it ends, in order of the calls. `agent.json` then has the snapshot with which the copy began, until it
was applied (`Subagents.settle`); its snapshots are in `files/` of its folder meanwhile. Where there can be no copies, such
sub-agents work one after another in the folder, as a single one does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
import time
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kimi_tui import lenient_json
from kimi_tui.agent_parts import REFUSED
from kimi_tui.app_paths import log_words, reason_of
from kimi_tui.display_names import counted, sentences, tokens
from kimi_tui.filesystem import Storage
from kimi_tui.foreign_text import clean_source, one_line
from kimi_tui.llm.errors import LLMError
from kimi_tui.llm.provider import ChatProvider, Usage
from kimi_tui.projection.tool_calls import target
from kimi_tui.prompts import prompt
from kimi_tui.session.errors import SessionError, SessionLocked, StorageTrouble
from kimi_tui.session.rotation import stored_world_lines
from kimi_tui.session.schema import Checkpoint
from kimi_tui.session.session import AGENTS_NAME, Session
from kimi_tui.session.store import prune
from kimi_tui.soul.agent_copies import (
    AgentCopies,
    CopyEnd,
    CopyOrder,
    NoCopies,
    RunningCopy,
)
from kimi_tui.soul.agent_engine import give_prompt, limits_of, tools_of
from kimi_tui.soul.agents_part import AgentsPart
from kimi_tui.soul.approval import Hears
from kimi_tui.soul.conversation import Conversation
from kimi_tui.soul.errors import (
    BudgetSpent,
    FilesUnknown,
    MaxStepsReached,
    RunCancelled,
    SoulBusy,
    SoulError,
)
from kimi_tui.soul.folder_snapshots import FILES_NAME
from kimi_tui.soul.kimisoul import KimiSoul
from kimi_tui.soul.messages import ends_open
from kimi_tui.soul.model_slot import Budget
from kimi_tui.soul.pruning import finish_pruning
from kimi_tui.soul.rewind_values import (
    FilesChoice,
    FilesPreview,
    RewindOutcome,
    RewindPreview,
    Target,
)
from kimi_tui.soul.stored_agents import STATE_NAME, left_by_kill, stored_agents, sweep_agents
from kimi_tui.soul.tasks import run_to_completion
from kimi_tui.soul.tool_calls import ToolRuntime
from kimi_tui.tool_cards import short_name
from kimi_tui.tools.agent_kind import AgentKind, AgentTask
from kimi_tui.tools.base import RESULTS_NAME, ApprovalQuestion
from kimi_tui.tools.outcome import ToolOutcome, failure
from kimi_tui.wire import events as ev
from kimi_tui.wire.codec import decode_event, encode_event
from kimi_tui.wire.events import AgentChanged, Event, EventRecord
from kimi_tui.wire.queue import Subscription, Wire
from kimi_tui.workspace.restore import FileChange
from kimi_tui.workspace.store import BlobDamaged
from kimi_tui.workspace.tracker import Brought

if TYPE_CHECKING:
    from kimi_tui.llm.message import Message

log = logging.getLogger(__name__)

_LAST_WORDS_CHARS = 200
_MOST_FILES = 1_000
_BY_USER = "You stopped it."
_FULL = "Waiting for other sub-agents."
_AFTER_OTHERS = "Waiting for the sub-agents that were called before it."
_ENDED_FIRST = "It has ended. Its file changes are applied after those of the sub-agents that were called before it."
_COPYING = "Copying the files for it."
_IN_COPY = (
    "Its file changes are not in the work folder yet. They are applied when you let it continue."
)
_MOST_CONFLICTS = 40
_ENDING_S = 10.0
"""Seconds that the process of a sub-agent has to end after the program that started it."""
_ASKED_S = 0.1
_MOST_RECORDS = 20_000
_MOST_TEXT = 1 << 16


@dataclass(frozen=True, slots=True)
class _Version:
    """The state of a sub-agent on a world line of the session that was left; `moved` says that its own conversation is another one
    since then.
    """

    state: AgentChanged
    moved: bool = True


@dataclass(slots=True)
class _Agent:
    """One sub-agent.

    Attributes:
        state: its state; it is published once it is stored.
        told: the state that was published last, which whoever begins to listen then is told.
        kind: its kind, as it was when it began.
        text: its task.
        folder: its folder.
        soul: its engine, while it works or is looked at.
        is_working: whether its call runs.
        is_stopping: whether the user stops it.
        work: the task that runs it.
        said: the user's messages to it while it cannot take them.
        n_listeners: how many listen to it.
        files: the files that it changed.
        versions: its states when the user went back to one of its steps, the oldest first; `later` are those that an undo left.
        totals: the tokens of its calls that were counted.
        copy: the process in which it works in a copy.
        wire: what those who listen to it hear while it works there, and until the last of them goes; `records` are the events so far.
        since: the snapshot with which its copy began, while its difference is not applied; empty without one.
        cost: the cost that its process told; -1 without prices.
        is_ending: whether it has ended in its copy, so that nothing is left to stop.
        has_worked: whether its call ran in this run of the program.
    """

    state: AgentChanged
    kind: AgentKind
    text: str
    folder: Path
    told: AgentChanged | None = None
    soul: KimiSoul | None = None
    is_working: bool = False
    is_stopping: bool = False
    work: asyncio.Task[ToolOutcome] | None = None
    said: list[str] = field(default_factory=list[str])
    n_listeners: int = 0
    files: set[str] = field(default_factory=set[str])
    versions: list[_Version] = field(default_factory=list[_Version])
    later: list[_Version] = field(default_factory=list[_Version])
    totals: tuple[int, int, int] = (0, 0, 0)
    copy: RunningCopy | None = None
    wire: Wire | None = None
    records: list[EventRecord] = field(default_factory=list[EventRecord])
    since: str = ""
    cost: float = -1.0
    is_ending: bool = False
    has_worked: bool = False
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)


class _Together:
    """Sub-agents that write and were called at once.

    Args:
        keys: the keys of their calls, in order.
        make: makes their copies; None if there can be none.
    """

    def __init__(
        self, keys: Sequence[str], make: Callable[[], Coroutine[Any, Any, AgentCopies]] | None
    ) -> None:
        self.keys = tuple(keys)
        self.is_told = make is None
        """Whether the user knows that there are no copies."""
        self.on_end: Callable[[asyncio.Task[AgentCopies]], object] = bool
        self._make = make
        self._passed = {key: asyncio.Event() for key in keys}
        self._opening: asyncio.Task[AgentCopies] | None = None

    async def open(self) -> AgentCopies:
        """Wait until the copies can be made.

        Raises:
            NoCopies: there are none.
        """
        if self._make is None:
            raise NoCopies("")
        if self._opening is None:
            self._opening = asyncio.create_task(self._opened(self._make), name="copies")
        return await asyncio.shield(self._opening)

    @staticmethod
    async def _opened(make: Callable[[], Coroutine[Any, Any, AgentCopies]]) -> AgentCopies:
        copies = await make()
        await copies.open()
        return copies

    def _earlier(self, key: str) -> list[asyncio.Event]:
        return [self._passed[one] for one in self.keys[: self.keys.index(key)]]

    def is_turn_of(self, key: str) -> bool:
        """Return whether those that were called earlier are done with the work folder."""
        return all(one.is_set() for one in self._earlier(key))

    async def turn_of(self, key: str) -> None:
        """Wait until those that were called earlier are done with the work folder."""
        for earlier in self._earlier(key):
            await earlier.wait()

    def ended(self, key: str) -> None:
        """See `CallsTogether.ended`."""
        self._passed[key].set()
        if all(one.is_set() for one in self._passed.values()):
            opening, self._opening = self._opening, None
            if opening is not None:
                self.on_end(opening)


class _Owner:
    """The program's side of a sub-agent in a copy; see `CopyOwner`."""

    def __init__(self, agent: _Agent, agents: Subagents) -> None:
        self._agent = agent
        self._agents = agents

    def begun(self, model: str, facts: Sequence[Event]) -> None:
        self._agents.begun_in_copy(self._agent, model, facts)

    def heard(self, record: EventRecord) -> None:
        self._agents.heard_from_copy(self._agent, record)

    def spent(self, cost: float) -> None:
        self._agent.cost = cost

    def waits(self, words: str) -> None:
        self._agents.waits_in_copy(self._agent, words)

    def unsaid(self, text: str) -> None:
        self._agents.unsaid_in_copy(self._agent, text)

    async def ask(self, question: ApprovalQuestion, key: str, tool: str, also: Hears) -> str:
        return await self._agents.ask_for(self._agent, question, key, tool, also)


class Subagents(AgentsPart):
    """The sub-agents of a session. Methods run on the event loop.

    Args:
        main: the agent of the session.
        conversation: its conversation.
        tools: runs its tools.
        opens: opens the engine of a sub-agent (`assembly.open_soul`).
    """

    def __init__(
        self,
        main: KimiSoul,
        conversation: Conversation,
        tools: ToolRuntime,
        opens: Callable[..., Awaitable[KimiSoul]],
    ) -> None:
        self._main = main
        self._opens = opens
        self._conversation = conversation
        self._tools = tools
        self._folder = main.session.dir / AGENTS_NAME
        self._storage = main.session.storage
        self._agents: dict[str, _Agent] = {}
        self._places: asyncio.Semaphore | None = None
        self._numbers: set[str] = set()
        self._sets: dict[str, _Together] = {}
        """The sets of those that were called at once, by the keys of the calls."""
        self._closing: set[asyncio.Task[None]] = set()
        self._following: asyncio.Task[None] | None = None
        """The task that tells processes of the session's mode."""
        self._stopped_steps: set[str] = set()
        """The checkpoints of the steps whose sub-agents the user stopped: no more of them begin."""

    # -- what there is ---------------------------------------------------------------------------

    @property
    def states(self) -> Sequence[AgentChanged]:
        """See `AgentsPart.states`."""
        return [one.told for one in self._agents.values() if one.told is not None]

    def state(self, name: str) -> AgentChanged:
        """See `AgentsPart.state`."""
        return self._named(name).state

    def _named(self, name: str) -> _Agent:
        if name not in self._agents:
            raise KeyError(f"There is no sub-agent {one_line(name)[:80]!r}.")
        return self._agents[name]

    async def load(self) -> None:
        """See `AgentsPart.load`."""
        await self._load()

    async def take_in(self) -> None:
        """See `AgentsPart.take_in`."""
        for agent in await self._load():
            self._tell(agent)

    async def _load(self) -> list[_Agent]:
        """Take in the stored sub-agents that are not known yet; return them, oldest first."""
        await asyncio.to_thread(finish_pruning, self._main.session)
        await asyncio.to_thread(sweep_agents, self._folder)
        found = await asyncio.to_thread(_stored_agents, self._folder)
        pending = self._pending_keys()
        new = [one for one in found if one.state.name not in self._agents]
        for one in new:
            self._numbers.add(one.state.name)
            one.told = one.state = await asyncio.to_thread(
                left_by_kill, self._storage, one.folder, one.state, pending
            )
            self._agents[one.state.name] = one
        return new

    async def forget(self, names: Collection[str]) -> None:
        """See `AgentsPart.forget`."""
        for name in names:
            agent = self._agents.pop(name, None)
            if agent is None:
                continue
            async with agent.opening:
                soul, agent.soul = agent.soul, None
                if soul is not None:
                    await soul.aclose()
            # The name stays taken, so that a later sub-agent is not mistaken for it.
            self._main.wire.publish(replace(agent.state, removed_at=time.time()))

    async def separate(self) -> None:
        """See `AgentsPart.separate`."""
        pending = [*self._conversation.pending_calls()]
        if self.paused_keys.isdisjoint(pending):
            return
        main, before = self._main, pending[0].rpartition(":")[0]
        session = main.session
        lines = await asyncio.to_thread(stored_world_lines, session.dir)
        back = main.back_into_call(pending[0], None, None, self._shown_of)
        _, key = await main.alone.run(back)
        now = await asyncio.to_thread(stored_world_lines, session.dir)
        # The line that was left is one of the other session.
        await asyncio.to_thread(prune, session, now.keys() - lines.keys())
        uid = key.rpartition(":")[0]
        for agent in [*self._agents.values()]:
            place = agent.state.key.rpartition(":")[2]
            if agent.state.uid == before and f"{before}:{place}" in pending:
                del self._agents[agent.state.name]
                name = self._free_name(agent.kind.name)
                folder = self._folder / name
                await asyncio.to_thread(agent.folder.rename, folder)
                self._agents[name], agent.folder = agent, folder
                agent.versions.clear()
                agent.later.clear()
                await self._change_stored(agent, name=name, key=f"{uid}:{place}", uid=uid)

    def _pending_keys(self) -> frozenset[str]:
        """Return the keys of the calls at the end of the conversation that have no result."""
        return frozenset(self._conversation.pending_calls())

    @property
    def paused_keys(self) -> frozenset[str]:
        """The keys of the calls whose sub-agents can go on."""
        return frozenset(
            one.state.key for one in self._agents.values() if one.state.state == "paused"
        )

    async def listen(
        self, name: str, wake: Callable[[Event], None] | None = None
    ) -> tuple[list[EventRecord], Subscription]:
        """See `AgentsPart.listen`."""
        agent = self._named(name)
        agent.n_listeners += 1
        if agent.wire is not None:
            subscription = agent.wire.subscribe(wake)
            return [*agent.records], subscription
        try:
            soul = await self._opened(agent)
            return await soul.listen(wake)
        except BaseException:
            agent.n_listeners -= 1
            raise

    async def unlisten(self, name: str, subscription: Subscription) -> None:
        """See `AgentsPart.unlisten`."""
        agent = self._agents.get(name)
        if agent is None:
            return  # it was removed meanwhile
        for wire in (agent.wire, None if agent.soul is None else agent.soul.wire):
            if wire is not None:
                wire.unsubscribe(subscription)
        agent.n_listeners = max(0, agent.n_listeners - 1)
        await self._close_if_idle(agent)

    # -- what the user does ----------------------------------------------------------------------

    def steer(self, name: str, text: str) -> None:
        """See `AgentsPart.steer`."""
        agent = self._named(name)
        if agent.state.is_over or (agent.work is not None and agent.is_ending):
            raise SoulError(
                f"{agent.state.name} has ended.",
                advice="To continue it, rewind it to one of its steps.",
            )
        if agent.copy is not None:
            agent.copy.say(text)
        elif agent.soul is not None and agent.is_working:
            agent.soul.say(text)
        else:
            agent.said.append(text)

    async def stop(self, name: str) -> None:
        """See `AgentsPart.stop`."""
        agent = self._named(name)
        if agent.work is None or agent.state.is_over or agent.is_ending:
            return
        agent.is_stopping = True
        if agent.copy is not None:
            await agent.copy.stop()
        elif agent.soul is not None and agent.is_working and agent.soul.running:
            await agent.soul.interrupt()
        else:
            agent.work.cancel()
            await asyncio.wait([agent.work])

    async def stop_all(self) -> None:
        """See `AgentsPart.stop_all`."""
        running = [one.state for one in self._agents.values() if one.state.is_running]
        self._stopped_steps.update(one.uid for one in running)
        await asyncio.gather(*(self.stop(one.name) for one in running))

    # -- time travel -----------------------------------------------------------------------------

    async def preview(self, name: str, target: Target) -> RewindPreview:
        """See `AgentsPart.preview`."""
        agent = self._named(name)
        if agent.wire is not None:
            raise SoulBusy(f"{name} is working. Stop it first.")
        async with self._held(agent) as soul:
            found = await soul.travel.preview(target)
            point = soul.session.context.index.checkpoint(target.id)
        if agent.since:
            return replace(found, files=FilesPreview(reason=_IN_COPY))
        files = await self._main.file_history.preview(
            point, after=False, ran_commands=found.ran_commands, binding=not self._main.running
        )
        return replace(found, files=files)

    async def rewind(
        self,
        name: str,
        target: Target,
        files: FilesChoice = "keep",
        chosen: Collection[str] | None = None,
    ) -> RewindOutcome:
        """See `AgentsPart.rewind`."""
        agent = self._named(name)
        if agent.work is not None:
            raise SoulBusy(f"{name} is working. Stop it first.")
        async with self._held(agent) as soul:
            point = soul.session.context.index.checkpoint(target.id)
            if agent.since and files != "keep":
                raise FilesUnknown(_IN_COPY)
            if files == "only":
                return await self._main.alone.run(self._main.bring_files(point, chosen))
            back = self._back(agent, soul, target, None if files == "keep" else point, chosen)
            return await self._main.alone.run(back)

    async def _back(
        self,
        agent: _Agent,
        soul: KimiSoul,
        target: Target,
        point: Checkpoint | None,
        chosen: Collection[str] | None,
    ) -> RewindOutcome:
        # Its own conversation is first: after a kill in between, all that it had said is on a world line of its own.
        await soul.travel.rewind(target)
        try:
            outcome, key = await self._main.back_into_call(
                agent.state.key, point, chosen, self._shown_of
            )
        except BaseException:
            await soul.travel.undo()
            raise
        uid, number = key.rpartition(":")[0], int(key.rpartition(":")[2])
        before = agent.state.uid
        agent.versions.append(_Version(agent.state))
        agent.later.clear()
        await self._change_stored(agent, state="paused", why="", key=key, uid=uid, doing="")
        for other in self._agents.values():
            place = other.state.key.rpartition(":")[2]
            if other.state.uid != before or not place.isdecimal():
                continue
            if int(place) > number and point is not None and not other.state.reads_only:
                # Its changes of files are gone, so its call is made again.
                continue
            other.versions.append(_Version(other.state, moved=False))
            other.later.clear()
            await self._change_stored(other, key=f"{uid}:{place}", uid=uid)
        return outcome

    def _shown_of(self, key: str) -> tuple[str, float]:
        """Return what the card of a call shows of its sub-agent, and how many seconds that worked; nothing for another call."""
        for agent in self._agents.values():
            if agent.state.key == key:
                return _brief(agent.state), max(0.0, agent.state.ended_at - agent.state.began_at)
        return "", 0.0

    async def follow_line(self) -> None:
        """See `AgentsPart.follow_line`."""
        uids = {point.uid for point in self._conversation.context.checkpoints}
        for agent in self._agents.values():
            if agent.state.uid in uids or agent.work is not None:
                continue
            if agent.versions and agent.versions[-1].state.uid in uids:
                await self._moved(agent, "undo", agent.versions, agent.later)
            elif agent.later and agent.later[-1].state.uid in uids:
                await self._moved(agent, "redo", agent.later, agent.versions)

    async def _moved(
        self,
        agent: _Agent,
        way: Literal["undo", "redo"],
        states: list[_Version],
        others: list[_Version],
    ) -> None:
        """Bring back the newest of these states, with the conversation that the sub-agent had then, and publish it."""
        there = states.pop()
        others.append(_Version(agent.state, there.moved))
        agent.state = there.state
        try:
            if there.moved:
                async with self._held(agent) as soul:
                    await (soul.travel.undo() if way == "undo" else soul.travel.redo())
        except (SoulError, SessionError, OSError) as error:
            # The session is right all the same; only what is shown of the sub-agent has other steps.
            log.warning("a sub-agent's conversation could not follow", exc_info=error)
        await self._store(agent)
        self._tell(agent)

    @asynccontextmanager
    async def _held(self, agent: _Agent) -> AsyncGenerator[KimiSoul]:
        """Keep a sub-agent open within this context."""
        agent.n_listeners += 1
        try:
            yield await self._opened(agent)
        finally:
            agent.n_listeners -= 1
            await self._close_if_idle(agent)

    # -- running ---------------------------------------------------------------------------------

    async def run(self, task: AgentTask, key: str) -> ToolOutcome:
        """See `AgentsPart.run`."""
        agent = next((one for one in self._agents.values() if one.state.key == key), None)
        if agent is None:
            if key.rpartition(":")[0] in self._stopped_steps:
                return failure(
                    "Not started: the user stopped the sub-agents of this step.",
                    brief="not started",
                )
            agent = await self._new(task, key)
        elif agent.state.is_over:
            # The program was killed between its end and the end of the step.
            async with self._held(agent) as soul:
                return _outcome(agent.state, _last_answer(soul.session.context.messages))
        agent.is_stopping = agent.is_ending = False
        agent.has_worked = True
        together = None if agent.state.reads_only else self._sets.get(key)
        running = self._run(agent) if together is None else self._run_beside(agent, together)
        agent.work = asyncio.create_task(running, name=f"sub-agent {agent.state.name}")
        try:
            return await asyncio.shield(agent.work)
        except asyncio.CancelledError:
            is_alone = agent.work.cancelled() and agent.is_stopping
            agent.work.cancel()
            await asyncio.wait([agent.work])
            if not agent.state.is_over:
                await self._change_stored(
                    agent, state="stopped", why=_BY_USER, doing="", ended_at=time.time()
                )
            elif agent.told != agent.state:
                # It was stopped while its end was being stored.
                await self._store(agent)
                self._tell(agent)
            if not is_alone:
                raise
            messages = () if agent.soul is None else agent.soul.session.context.messages
            return _outcome(agent.state, _last_answer(messages))
        except Exception as error:
            why = f"kimi-tui had an internal error ({type(error).__name__}). {log_words()}"
            await self._change_stored(
                agent, state="failed", why=why, doing="", ended_at=time.time()
            )
            raise
        finally:
            agent.work = None
            agent.is_working = False
            if agent.since and agent.state.is_over:
                self._settle_soon()
            await self._close_if_idle(agent)

    def together(self, keys: Sequence[str]) -> _Together:
        """See `AgentsPart.together`."""
        over = {one.state.key for one in self._agents.values() if one.state.is_over}
        begin, makes = [key for key in keys if key not in over], self._main.agent_copies
        found = _Together(keys, None if makes is None else partial(makes, len(keys)))
        found.on_end = self._close_copies
        self._sets |= dict.fromkeys(begin if len(begin) > 1 else (), found)
        return found

    def _close_copies(self, opening: asyncio.Task[AgentCopies]) -> None:
        """Remove the files of a set whose sub-agents have ended."""

        async def closed() -> None:
            with contextlib.suppress(NoCopies):
                await (await opening).close()

        task = asyncio.create_task(closed(), name="copies")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _new(self, task: AgentTask, key: str) -> _Agent:
        name = self._free_name(task.kind.name)
        number = max((one.state.number for one in self._agents.values()), default=0) + 1
        state = AgentChanged(
            name,
            number,
            task.kind.name,
            task.title,
            key=key,
            uid=key.rpartition(":")[0],
            reads_only=task.kind.reads_only,
            began_at=time.time(),
        )
        kind = task.kind
        if not kind.text:
            kind = replace(kind, text=prompt(f"agents/{kind.name}"))
        agent = _Agent(state, kind, task.text, self._folder / name)
        self._agents[name] = agent
        await self._store(agent)
        self._tell(agent)
        return agent

    def _free_name(self, kind: str) -> str:
        """Return a name for a sub-agent of a kind that none has, and take it."""
        place = self._main.first_agent
        while (name := f"{kind}-{place}") in self._numbers:
            place += 1
        self._numbers.add(name)
        return name

    @property
    def _room(self) -> asyncio.Semaphore:
        """The places of sub-agents that work at the same time."""
        if self._places is None:
            self._places = asyncio.Semaphore(self._main.agents_config.parallel)
        return self._places

    async def _run(self, agent: _Agent) -> ToolOutcome:
        if self._room.locked():
            self._change(agent, state="waiting", why=_FULL)
        async with self._room:
            try:
                soul = await self._opened(agent, to_work=True)
            except (LLMError, SoulError, SessionError, OSError) as error:
                return await self._not_started(agent, error)
            await self._begin_work(agent, soul.model_name)
            agent.is_working = True
            failed, why = "", ""
            try:
                rejected = await self._turns(agent, soul)
                if rejected:
                    failed, why = "stopped", REFUSED
            except RunCancelled:
                if not agent.is_stopping:
                    raise asyncio.CancelledError from None
                failed, why = "stopped", _BY_USER
            except (MaxStepsReached, BudgetSpent) as error:
                failed, why = "failed", error.message
            except (LLMError, SoulError, StorageTrouble) as error:
                failed, why = "failed", sentences(error.message, error.advice)
            finally:
                agent.is_working = False
            return await self._ended(agent, soul, failed, why)

    async def _begin_work(self, agent: _Agent, model: str, *, is_future: bool = False) -> None:
        now = agent.state
        # A pause is no time of work.
        worked = max(0.0, now.ended_at - now.began_at) if now.ended_at else 0.0
        await self._change_stored(
            agent,
            state="working",
            why="",
            began_at=time.time() - worked,
            ended_at=0.0,
            model=model,
            is_future=is_future,
            remark="" if is_future else now.remark,
        )

    async def _turns(self, agent: _Agent, soul: KimiSoul) -> bool:
        """Run what the sub-agent has to do; return whether the user refused what it asked for."""
        if not soul.session.context.messages:
            said, agent.said = agent.said, []
            return await soul.run("\n\n".join([agent.text, *said])) == "rejected"
        for text in agent.said:
            soul.say(text)
        agent.said.clear()
        if ends_open(soul.session.context.messages) or soul.inbox.steers:
            return await soul.resume() == "rejected"
        return False

    # -- in a copy -------------------------------------------------------------------------------

    async def _run_beside(self, agent: _Agent, together: _Together) -> ToolOutcome:
        """Run a sub-agent beside others that write, in a copy; where there are none, after those that were called earlier."""
        key, begun = agent.state.key, None
        self._change(agent, state="waiting", why=_COPYING)
        try:
            copies = await together.open()
            if self._room.locked():
                self._change(agent, state="waiting", why=_FULL)
            async with self._room:
                begun = await self._begin_copy(agent, copies, together.keys.index(key))
                end = await self._to_its_end(agent, begun)
        except NoCopies as no:
            reason = one_line(str(no)).rstrip(".")
            words = f"The sub-agents work one after another, without copies of the files: {reason}."
            if not together.is_told:
                together.is_told = True
                self._main.wire.publish(ev.Notice("info", words))
            # Its process has ended, but its work is still to come and can be stopped.
            agent.since, agent.is_ending = "", False
            await asyncio.to_thread(shutil.rmtree, agent.folder / FILES_NAME, True)
            remark = words if reason else ""
            self._change(agent, state="waiting", why=_AFTER_OTHERS, remark=remark)
            await together.turn_of(key)
            return await self._run(agent)
        except (LLMError, SoulError, SessionError, OSError) as error:
            return await self._not_started(agent, error)
        if not together.is_turn_of(key):
            self._change(agent, state="waiting", why=_ENDED_FIRST, doing="")
        await together.turn_of(key)
        brought, trouble = Brought(), ""
        try:
            brought = await run_to_completion(self._bring(agent))
        except OSError as error:
            trouble = reason_of(error)
            log.warning("the files of a sub-agent could not be brought", exc_info=error)
        failed = {"rejected": "stopped", "interrupted": "stopped", "error": "failed"}
        why = sentences(end.error, end.advice)
        if end.reason in ("rejected", "interrupted"):
            why = REFUSED if end.reason == "rejected" else _BY_USER
        async with self._held(agent) as soul:
            return await self._ended(
                agent,
                soul,
                failed.get(end.reason, ""),
                why,
                await asyncio.to_thread(self._files_words, agent, brought, trouble),
            )

    async def _begin_copy(self, agent: _Agent, copies: AgentCopies, place: int) -> RunningCopy:
        """Prepare the session of a sub-agent for a process, which opens it; return the process, to be run.

        Raises:
            NoCopies: its model cannot be used by another process.
            LLMError, SoulError, SessionError, OSError: it cannot be started.
        """
        main = self._main
        async with self._held(agent) as soul:
            is_new = not soul.session.context.messages
            agent.records = [] if is_new else await soul.history()
            seq = soul.wire.newest_seq + 1
        provider = await self._provider(agent)
        if provider.made_with is None:
            raise NoCopies("their model can be used only in the main process of kimi-tui")
        settings, budget = main.agents_config, self._budget()
        said, agent.said = agent.said, []
        order = CopyOrder(
            agent.state.name,
            agent.folder,
            agent.kind,
            "\n\n".join([agent.text, *said]) if is_new else "",
            () if is_new else tuple(said),
            provider,
            main.mode,
            min(agent.kind.steps or settings.steps, settings.steps),
            budget.tokens,
            budget.cost,
            main.added.paths,
        )
        async with agent.opening:
            agent.wire = Wire(seq)
            if agent.soul is not None:
                # A session in which nothing was said loses the folder of its snapshots when it is closed.
                soul, agent.soul = agent.soul, None
                agent.wire.take_over(soul.wire)
                await soul.aclose()
        try:
            copy = await copies.copy(place, order, _Owner(agent, self))
        except BaseException:
            await self._take_back(agent)
            raise
        agent.copy, agent.since = copy, copies.since
        agent.cost = -1.0
        await self._begin_work(agent, "", is_future=True)
        return copy

    async def _to_its_end(self, agent: _Agent, copy: RunningCopy) -> CopyEnd:
        """Run a sub-agent in its copy; it is stopped in order if this is cancelled."""
        self._follow_mode()
        for text in agent.said:
            copy.say(text)
        agent.said.clear()
        running = asyncio.create_task(copy.run(), name=f"copy of {agent.state.name}")
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            if running.done():
                raise
            await copy.stop()
            await asyncio.wait([running])
            raise
        finally:
            agent.is_ending = True
            await self._take_back(agent)

    async def _take_back(self, agent: _Agent) -> None:
        """Have those who listen to a sub-agent whose process has ended hear its engine here."""
        async with agent.opening:
            agent.copy = None
            if agent.n_listeners and agent.wire is not None:
                with contextlib.suppress(SessionError, SoulError, OSError):
                    agent.soul = await self._open(agent)
                    agent.soul.wire.take_over(agent.wire)
            agent.wire, agent.records = None, []

    def _follow_mode(self) -> None:
        """Tell the processes of sub-agents when the session's mode changes."""
        if self._following is None:
            heard = self._main.wire.subscribe(records=True)
            self._following = asyncio.create_task(self._tell_modes(heard), name="mode")

    async def _tell_modes(self, heard: Subscription) -> None:
        async for record in heard:
            if isinstance(record.event, ev.ModeChanged) and not record.source:
                for agent in self._agents.values():
                    if agent.copy is not None:
                        agent.copy.set_mode(record.event.mode)

    def begun_in_copy(self, agent: _Agent, model: str, facts: Sequence[Event]) -> None:
        """Take what a process tells of its session."""
        agent.records += [EventRecord(0, time.time(), one) for one in facts]
        for one in facts:
            if isinstance(one, ev.StatusUpdate):
                agent.totals = (one.total_input, one.total_cached, one.total_output)
        self._change(agent, model=model)

    def heard_from_copy(self, agent: _Agent, record: EventRecord) -> None:
        """Take an event of a sub-agent in a copy."""
        if agent.wire is None:
            return
        event, records = record.event, agent.records
        last = records[-1] if records else None
        if last is not None and ev.continues(last.event, event) and _is_short(last.event):
            whole = ev.with_text(last.event, ev.text_of(last.event) + ev.text_of(event))
            records[-1] = last._replace(event=whole)
        elif len(records) < _MOST_RECORDS and not isinstance(
            event, ev.ToolOutput | ev.PromptProgress
        ):
            records.append(record)
        agent.wire.publish(event)
        self._heard(agent, event)

    def waits_in_copy(self, agent: _Agent, words: str) -> None:
        """Take why the request of a sub-agent in a copy waits."""
        if agent.state.state == "working":
            self._change(agent, doing=words, remark=words)

    def unsaid_in_copy(self, agent: _Agent, text: str) -> None:
        """Take a message that a sub-agent in a copy did not read any more."""
        self._main.return_unread(agent.state.name, text)

    async def ask_for(
        self, agent: _Agent, question: ApprovalQuestion, key: str, tool: str, also: Hears
    ) -> str:
        """Ask a question of a sub-agent in a copy, as one of the session."""
        return await self._main.approval.ask(
            question, key=key, tool=tool, agent=agent.state.name, also=also
        )

    # -- its files ---------------------------------------------------------------------------------

    async def _bring(self, agent: _Agent) -> Brought:
        """Apply the difference of a sub-agent's copy, and remove its snapshots.

        Raises:
            OSError: the disk refused; the copy stays.
        """
        main, stored = self._main, agent.folder / FILES_NAME
        await main.files_ready()
        folder = main.folder
        if folder.reason:
            raise OSError(folder.reason)
        try:
            # Its process may still be ending; opening the session also repairs what a kill left of it.
            async with self._held(agent) as soul:
                await soul.flush()
        except (SessionError, SoulError) as error:
            raise OSError(str(error)) from error
        brought = await folder.run(
            folder.tracker.apply_difference,
            stored,
            agent.since,
            folder.others,
            agent.state.name,
        )
        if brought.conflicts:
            await folder.run(self._keep_versions, agent, brought.conflicts)
        agent.since = ""
        await self._store(agent)
        await asyncio.to_thread(shutil.rmtree, stored, True)
        return brought

    def _keep_versions(self, agent: _Agent, conflicts: Sequence[FileChange]) -> None:
        """Write a sub-agent's versions of files that were not applied where the session's agent may read them."""
        texts = self._main.folder.tracker.texts
        for one in conflicts:
            if one.then is None or one.then.kind == "link":
                continue
            place = self._place_of(agent, one.path)
            with contextlib.suppress(OSError, BlobDamaged):
                place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._storage.write_file(place, texts.content(one.then))

    def _place_of(self, agent: _Agent, path: str) -> Path:
        return self._main.session.dir / RESULTS_NAME / agent.state.name / path

    def _files_words(self, agent: _Agent, brought: Brought, trouble: str) -> str:
        """Return what the model is told of the files of a sub-agent that are not as it left them; empty if all are."""
        if trouble:
            return f"Its file changes could not be applied to the work folder: {trouble}. kimi-tui tries again before the next turn."
        rows: list[str] = []
        for one in brought.conflicts[:_MOST_CONFLICTS]:
            place = self._place_of(agent, one.path)
            its = (
                "it deleted the file"
                if one.then is None
                else f"its version is in {place}"
                if place.is_file()
                else "its version is a symbolic link, which was not copied"
            )
            rows.append(f"- {one.path}: also changed in the work folder; {its}")
        rows += [f"- {path}: {why}" for path, why in [*brought.failures.items()][:_MOST_CONFLICTS]]
        if not rows:
            return ""
        n_all = len(brought.conflicts) + len(brought.failures)
        more = f"\nAnd {n_all - len(rows):,} more." if n_all > len(rows) else ""
        listed = "\n".join(rows)
        return (
            f"It worked on its own copy of the files. Its changes of {counted(n_all, 'file')} were not applied to the work folder:"
            f"\n{listed}{more}\nMerge them yourself if they are needed."
        )

    def _settle_soon(self) -> None:
        """Bring the files of stopped sub-agents when the turn has ended."""

        async def settled() -> None:
            alone, is_done = self._main.alone, False
            while not (is_done or alone.closed):
                await alone.idle_first()
                with contextlib.suppress(SoulBusy):
                    await alone.run(self.settle())
                    is_done = True

        task = asyncio.create_task(settled(), name="files of sub-agents")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def settle(self) -> None:
        """See `AgentsPart.settle`."""
        await self._settle([*self._agents.values()])

    async def _settle(self, agents: Sequence[_Agent]) -> None:
        uids = {point.uid for point in self._conversation.context.checkpoints}
        left = [one for one in agents if one.since and one.work is None]
        for agent in sorted(left, key=lambda one: one.state.number):
            if agent.state.uid not in uids:
                continue
            try:
                brought = await run_to_completion(self._bring(agent))
            except OSError as error:
                log.warning("the files of a sub-agent could not be brought", exc_info=error)
                continue
            if brought.conflicts or brought.failures:
                words = await asyncio.to_thread(self._files_words, agent, brought, "")
                self._main.wire.publish(ev.Notice("warning", f"{agent.state.name}: {words}"))

    # -- its end -----------------------------------------------------------------------------------

    async def _not_started(self, agent: _Agent, error: Exception) -> ToolOutcome:
        words = getattr(error, "message", "") or str(error)
        await self._change_stored(agent, state="failed", why=words, ended_at=time.time())
        return failure(f"The sub-agent could not be started. {words}", brief="failed")

    async def _ended(
        self, agent: _Agent, soul: KimiSoul, failed: str, why: str, about_files: str = ""
    ) -> ToolOutcome:
        text = _last_answer(soul.session.context.messages)
        for said in soul.inbox.take_back_all():
            self._main.return_unread(agent.state.name, said.text)
        await soul.file_history.settled()
        state = "failed" if failed == "failed" else "stopped" if failed else "done"
        await self._change_stored(
            agent,
            state=state,
            why=why,
            doing="",
            ended_at=time.time(),
            last_words=one_line(text)[:_LAST_WORDS_CHARS],
        )
        outcome = _outcome(agent.state, text)
        if about_files:
            outcome = replace(outcome, message=f"{outcome.message} {about_files}")
        return outcome

    # -- its engine ------------------------------------------------------------------------------

    async def _opened(self, agent: _Agent, *, to_work: bool = False) -> KimiSoul:
        """Return the engine of a sub-agent, which is opened if it is not.

        Raises:
            LLMError: there is no model for it.
            SessionError, SoulError, OSError: its conversation cannot be opened.
        """
        async with agent.opening:
            if agent.soul is None:
                agent.soul = await self._open(agent)
            if to_work and not agent.soul.model_name:
                agent.soul.set_provider(await self._provider(agent))
            return agent.soul

    async def _opened_session(self, agent: _Agent) -> Session:
        """Open the session of a sub-agent; the process of one that worked in a copy has some seconds to end before.

        Raises:
            SessionError, OSError: it cannot be opened.
        """
        session = Session(agent.folder, self._main.session.work_dir, self._storage)
        until = time.monotonic() + (_ENDING_S if agent.since else 0.0)
        while True:
            try:
                await session.open()
            except SessionLocked:
                if time.monotonic() > until:
                    raise
                # No event tells that a lock of another process was released.
                await asyncio.sleep(_ASKED_S)
            else:
                return session

    async def _open(self, agent: _Agent) -> KimiSoul:
        main, name = self._main, agent.state.name
        session = await self._opened_session(agent)
        try:
            await give_prompt(
                session,
                agent.kind,
                main.session.work_dir,
                main.environ,
                no_keys=self._tools.asks_for_keys,
                notes=self._tools.reads_notes,
            )
            settings = main.agents_config
            steps = min(agent.kind.steps or settings.steps, settings.steps)
            soul = await self._opens(
                session=session,
                provider=None,
                limits=limits_of(self._conversation.limits, steps, self._budget()),
                asks_for_keys=self._tools.asks_for_keys,
                toolset=tools_of(agent.kind, self._conversation.all_tools),
                environ=main.environ,
                prices=self._conversation.ledger.prices,
                agent=name,
                reads_notes=self._tools.reads_notes,
                checks=main.checks.checks,
                main=main,
                tell=partial(self._heard, agent),
            )
        except BaseException:
            if session.lock.held:
                await session.aclose()
            raise
        status = soul.status
        agent.totals = (status.total_input, status.total_cached, status.total_output)
        return soul

    def _budget(self) -> Budget:
        """Return what a sub-agent may use: its own limits, and no more than is left of the session's."""
        settings, whole = self._main.agents_config, self._conversation.limits.budget
        spent = self._conversation.spent
        tokens, cost = settings.tokens, settings.cost
        if whole.tokens:
            left = max(1, whole.tokens - spent.tokens)
            tokens = min(tokens or left, left)
        if whole.cost:
            rest = max(1e-9, whole.cost - spent.cost)
            cost = min(cost or rest, rest)
        return Budget(tokens, cost)

    async def _provider(self, agent: _Agent) -> ChatProvider:
        """Return the model of a sub-agent; the session's with a notice, if the one that its kind names is not configured."""
        kind, session_id = agent.kind, f"{self._main.session.id}-{agent.state.name}"
        current = self._conversation.model.require()
        if kind.model and self._main.agent_models is not None:
            try:
                return await self._main.agent_models(kind.model, kind.effort, session_id)
            except (LLMError, KeyError) as error:
                why = (
                    error.message if isinstance(error, LLMError) else "No such model is configured."
                )
                self._main.wire.publish(
                    ev.Notice(
                        "warning",
                        f"The sub-agent {kind.name} uses the session's model: {one_line(kind.model)} cannot be used. {why}",
                        topic=f"agent model {kind.name}",
                    )
                )
        provider = current.beside(session_id)
        if kind.effort:
            with contextlib.suppress(LLMError):
                provider.set_thinking(kind.effort)
        return provider

    async def _close_if_idle(self, agent: _Agent) -> None:
        async with agent.opening:
            soul = agent.soul
            if soul is None or agent.work is not None or agent.n_listeners:
                return
            agent.soul = None
            await soul.aclose()

    async def aclose(self) -> None:
        """See `AgentsPart.aclose`."""
        works = [one.work for one in self._agents.values() if one.work is not None]
        for work in works:
            work.cancel()
        if works:
            await asyncio.wait(works)
        for agent in [*self._agents.values()]:
            if agent.soul is not None:
                soul, agent.soul = agent.soul, None
                await soul.aclose()
        if self._following is not None:
            self._following.cancel()
        if self._closing:
            await asyncio.wait(self._closing)
        with contextlib.suppress(SoulError, SessionError):
            # The changes of an earlier run are applied when the user lets the session go on; opening and closing it applies none.
            await self._settle([one for one in self._agents.values() if one.has_worked])

    # -- what it tells ---------------------------------------------------------------------------

    def _heard(self, agent: _Agent, event: Event) -> None:
        """Take in an event of a sub-agent: it is told on the session's wire, and counted."""
        self._main.wire.publish(event, agent.state.name)
        now = agent.state
        match event:
            case ev.StepBegin():
                self._change(agent, step=now.step + 1, state="working", doing="")
            case ev.ToolStarted():
                tools = self._conversation.all_tools
                card = tools.card(event.name)
                doing = f"{short_name(event.name, card)} {target(self._conversation.card_of(event.name), event.arguments, str(self._main.session.work_dir))}"
                self._change(agent, calls=now.calls + 1, doing=one_line(doing)[:_LAST_WORDS_CHARS])
            case ev.ToolResult():
                self._change(agent, doing="")
            case ev.ApprovalRequest():
                self._change(agent, state="asking")
            case ev.ApprovalResolved():
                self._change(agent, state="working")
            case ev.FilesChanged(paths=paths):
                if len(agent.files) < _MOST_FILES:
                    agent.files.update(paths)
                self._change(agent, files=len(agent.files))
            case ev.StatusUpdate():
                self._count(agent, event)
            case _:
                pass

    def _count(self, agent: _Agent, status: ev.StatusUpdate) -> None:
        """Count the tokens of a sub-agent in its figures and in the session's."""
        soul = agent.soul
        if soul is None and agent.copy is None:
            return
        before = agent.totals
        agent.totals = (status.total_input, status.total_cached, status.total_output)
        grown = [new - old for new, old in zip(agent.totals, before, strict=True)]
        found = None if soul is None else soul.cost
        cost = agent.cost if found is None else sum(amount for _, amount in found.amounts)
        if soul is not None and found is None:
            cost = -1.0
        self._change(
            agent,
            input=status.total_input,
            cached=status.total_cached,
            output=status.total_output,
            cost=cost,
            used=status.used,
            limit=status.limit,
        )
        if any(grown) and min(grown) >= 0:
            usage = Usage(grown[0], grown[2], grown[1], estimated=status.estimated)
            self._conversation.count_beside(usage, status.model)
            if agent.copy is not None:
                try:
                    self._conversation.check_budget()
                except BudgetSpent as spent:
                    agent.copy.end(spent.message)

    def _change(self, agent: _Agent, **facts: Any) -> None:
        """Change the state of a sub-agent and publish it, if it is another one then."""
        state = replace(agent.state, **facts)
        if state != agent.state:
            agent.state = state
            self._tell(agent)

    async def _change_stored(self, agent: _Agent, **facts: Any) -> None:
        """Change the state of a sub-agent, store it, then publish it."""
        before, agent.state = agent.state, replace(agent.state, **facts)
        await self._store(agent)
        if agent.state != before:
            self._tell(agent)

    def _tell(self, agent: _Agent) -> None:
        """Publish the state of a sub-agent."""
        agent.told = agent.state
        self._main.wire.publish(agent.state)

    async def _store(self, agent: _Agent) -> None:
        """Write the state of a sub-agent. If the disk refuses, the conversation itself still tells what it did."""
        async with agent.writing:
            data = _encoded(agent)
            try:
                await asyncio.to_thread(_write, self._storage, agent.folder, data)
            except OSError as error:
                log.warning("the state of a sub-agent could not be stored", exc_info=error)


def _is_short(event: Event) -> bool:
    return len(ev.text_of(event)) < _MOST_TEXT


def _last_answer(messages: Sequence[Message]) -> str:
    """Return the last text of the model."""
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if message.role == "assistant" and message.text.strip():
            return message.text.strip()
    return ""


def _brief(state: AgentChanged) -> str:
    """Return what the card of a call says of its sub-agent."""
    how = {"stopped": "stopped, ", "failed": "ended early, "}.get(state.state, "")
    return f"{how}{counted(state.step, 'step')}, {tokens(state.tokens)} tokens"


def _outcome(now: AgentChanged, text: str) -> ToolOutcome:
    """Return the result of the call of a sub-agent that has ended."""
    facts = [counted(now.step, "step")]
    if now.files:
        facts.append(f"{counted(now.files, 'file')} changed")
    said, brief = f"{now.name}, {', '.join(facts)}.", _brief(now)
    if now.state == "done":
        if not text:
            said = f"{said} It ended without an answer."
        return ToolOutcome(text, said, brief=brief)
    rest = "Its last message follows." if text else "It had not answered yet."
    if now.state == "stopped":
        how = "The user refused what it asked for." if now.why == REFUSED else "It was stopped."
        how = "The user stopped it." if now.why == _BY_USER else how
        return ToolOutcome(text, f"{said} {how} {rest}", brief=brief)
    return ToolOutcome(text, f"{said} It ended early: {now.why} {rest}", is_error=True, brief=brief)


# -- on the disk

_KIND_TEXTS = ("name", "description", "text", "model", "effort")


def _encoded(agent: _Agent) -> bytes:
    kind = agent.kind
    record = {
        "agent": encode_event(agent.state),
        "versions": [_version_record(one) for one in agent.versions],
        "later": [_version_record(one) for one in agent.later],
        "task": agent.text,
        "copy": agent.since,
        "kind": {
            **{name: getattr(kind, name) for name in _KIND_TEXTS},
            "tools": None if kind.tools is None else list(kind.tools),
            "steps": kind.steps,
        },
    }
    return json.dumps(record, ensure_ascii=False).encode("utf-8", "replace")


def _write(storage: Storage, folder: Path, data: bytes) -> None:
    storage.make_folder(folder)
    storage.replace_file(folder / STATE_NAME, data)


def _stored_agents(folder: Path) -> list[_Agent]:
    """Return the stored sub-agents of a session, oldest first; what cannot be read is passed over."""
    found: list[_Agent] = []
    for name, table, state in stored_agents(folder):
        kind = _kind_of(lenient_json.mapping(table.get("kind")))
        text = table.get("task")
        if kind is None or not isinstance(text, str):
            continue
        agent = _Agent(state, kind, clean_source(text), folder / name)
        agent.versions, agent.later = (
            _versions(table.get(which), name) for which in ("versions", "later")
        )
        agent.since = lenient_json.text(table.get("copy"))
        found.append(agent)
    return sorted(found, key=lambda one: (one.state.number, one.state.name))


def _version_record(one: _Version) -> dict[str, Any]:
    return {"agent": encode_event(one.state), "moved": one.moved}


def _versions(records: object, name: str) -> list[_Version]:
    found: list[_Version] = []
    for one in map(lenient_json.mapping, lenient_json.listing(records)):
        state = decode_event("AgentChanged", lenient_json.mapping(one.get("agent")))
        if isinstance(state, AgentChanged) and state.name == name:
            found.append(_Version(state, one.get("moved") is not False))
    return found


def _kind_of(record: Mapping[str, Any]) -> AgentKind | None:
    name, description, text, model, effort = (
        value if isinstance(value := record.get(key), str) else "" for key in _KIND_TEXTS
    )
    if not name:
        return None
    tools, steps = record.get("tools"), record.get("steps")
    names = tuple(one for one in lenient_json.listing(tools) if isinstance(one, str))
    return AgentKind(
        name,
        description,
        text,
        names if isinstance(tools, list) else None,
        model,
        effort,
        steps if type(steps) is int and 0 <= steps <= 1_000_000 else 0,
    )
