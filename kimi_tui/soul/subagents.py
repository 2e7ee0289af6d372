"""The sub-agents of a session: each is a `KimiSoul` of its own, which a call of the tool `Agent` starts and whose last answer is the result.

A sub-agent shares the session's snapshots, sandbox, approvals, hooks and mode, and has a context, a record and world lines of its
own, in `subagents/NAME/` of the session's folder. `agent.json` there has its state and kind (`_Stored`); it is written before the
sub-agent begins and at each of its ends, so that a killed program leaves one that can go on (`Subagents.load`).

Its events are published on its own wire, and on the session's with its name. Its figures are counted in the session's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kimi_tui import lenient_json
from kimi_tui.config.settings import DMailConfig
from kimi_tui.filesystem import Storage
from kimi_tui.foreign_text import clean_source, one_line
from kimi_tui.llm.errors import LLMError
from kimi_tui.llm.provider import ChatProvider, Usage
from kimi_tui.projection.subagents import steps_words
from kimi_tui.projection.tool_calls import target
from kimi_tui.prompts import prompt
from kimi_tui.session.errors import SessionError, StorageTrouble
from kimi_tui.session.rotation import LIVE_NAME
from kimi_tui.session.schema import Checkpoint, SystemPrompt
from kimi_tui.session.session import AGENTS_NAME, Session
from kimi_tui.soul.agents_part import AgentsPart
from kimi_tui.soul.conversation import Conversation
from kimi_tui.soul.errors import (
    BudgetSpent,
    MaxStepsReached,
    RunCancelled,
    SoulBusy,
    SoulError,
)
from kimi_tui.soul.kimisoul import KimiSoul
from kimi_tui.soul.messages import ends_open
from kimi_tui.soul.model_slot import Budget
from kimi_tui.soul.rewind_values import FilesChoice, RewindOutcome, RewindPreview, Target
from kimi_tui.soul.stored_agents import STATE_NAME, stored_agents
from kimi_tui.soul.system_prompt import agent_prompt
from kimi_tui.soul.tool_calls import ToolRuntime
from kimi_tui.tool_cards import short_name
from kimi_tui.tools.agent_kind import NEVER, AgentKind, AgentTask
from kimi_tui.tools.outcome import ToolOutcome, failure
from kimi_tui.tools.toolset import Toolset
from kimi_tui.wire import events as ev
from kimi_tui.wire.codec import decode_event, encode_event
from kimi_tui.wire.events import AgentChanged, Event, EventRecord
from kimi_tui.wire.queue import Subscription

if TYPE_CHECKING:
    from kimi_tui.llm.message import Message

log = logging.getLogger(__name__)

_LAST_WORDS_CHARS = 200
_MOST_FILES = 1_000
_KILLED = "kimi-tui ended before the sub-agent was done."
_BY_USER = "You stopped it."
_REFUSED = "You refused what it asked for."


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
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)


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
        found = await asyncio.to_thread(_stored_agents, self._folder)
        pending = self._pending_keys()
        for one in found:
            self._numbers.add(one.state.name)
            if one.state.is_running:
                can_go_on = one.state.key in pending
                one.state = replace(
                    one.state,
                    state="paused" if can_go_on else "stopped",
                    why=_KILLED,
                    doing="",
                    ended_at=one.state.ended_at or await asyncio.to_thread(_written_at, one.folder),
                )
            one.told = one.state
            self._agents[one.state.name] = one

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
        try:
            soul = await self._opened(agent)
            return await soul.listen(wake)
        except BaseException:
            agent.n_listeners -= 1
            raise

    async def unlisten(self, name: str, subscription: Subscription) -> None:
        """See `AgentsPart.unlisten`."""
        agent = self._named(name)
        if agent.soul is not None:
            agent.soul.wire.unsubscribe(subscription)
        agent.n_listeners = max(0, agent.n_listeners - 1)
        await self._close_if_idle(agent)

    # -- what the user does ----------------------------------------------------------------------

    def steer(self, name: str, text: str) -> None:
        """See `AgentsPart.steer`."""
        agent = self._named(name)
        if agent.state.is_over:
            raise SoulError(
                f"{agent.state.name} has ended.",
                advice="To continue it, rewind it to one of its steps.",
            )
        if agent.soul is not None and agent.is_working:
            agent.soul.say(text)
        else:
            agent.said.append(text)

    async def stop(self, name: str) -> None:
        """See `AgentsPart.stop`."""
        agent = self._named(name)
        if agent.work is None or agent.state.is_over:
            return
        agent.is_stopping = True
        if agent.soul is not None and agent.is_working and agent.soul.running:
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
        async with self._held(agent) as soul:
            found = await soul.travel.preview(target)
            point = soul.session.context.index.checkpoint(target.id)
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
        agent.is_stopping = False
        agent.work = asyncio.create_task(self._run(agent), name=f"sub-agent {agent.state.name}")
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
            if not is_alone:
                raise
            messages = () if agent.soul is None else agent.soul.session.context.messages
            return _outcome(agent.state, _last_answer(messages))
        except Exception as error:
            why = f"The program failed: {type(error).__name__}."
            await self._change_stored(
                agent, state="failed", why=why, doing="", ended_at=time.time()
            )
            raise
        finally:
            agent.work = None
            agent.is_working = False
            await self._close_if_idle(agent)

    async def _new(self, task: AgentTask, key: str) -> _Agent:
        place = 1
        while (name := f"{task.kind.name}-{place}") in self._numbers:
            place += 1
        self._numbers.add(name)
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

    @property
    def _room(self) -> asyncio.Semaphore:
        """The places of sub-agents that work at the same time."""
        if self._places is None:
            self._places = asyncio.Semaphore(self._main.agents_config.parallel)
        return self._places

    async def _run(self, agent: _Agent) -> ToolOutcome:
        if self._room.locked():
            self._change(agent, state="waiting", why="It waits until other sub-agents are done.")
        async with self._room:
            try:
                soul = await self._opened(agent, to_work=True)
            except (LLMError, SoulError, SessionError, OSError) as error:
                words = getattr(error, "message", "") or str(error)
                await self._change_stored(agent, state="failed", why=words, ended_at=time.time())
                return failure(f"The sub-agent could not be started. {words}", brief="failed")
            now = agent.state
            # A pause is no time of work.
            worked = max(0.0, now.ended_at - now.began_at) if now.ended_at else 0.0
            await self._change_stored(
                agent,
                state="working",
                why="",
                began_at=time.time() - worked,
                ended_at=0.0,
                model=soul.model_name,
            )
            agent.is_working = True
            failed, why = "", ""
            try:
                rejected = await self._turns(agent, soul)
                if rejected:
                    failed, why = "stopped", _REFUSED
            except RunCancelled:
                if not agent.is_stopping:
                    raise asyncio.CancelledError from None
                failed, why = "stopped", _BY_USER
            except (MaxStepsReached, BudgetSpent) as error:
                failed, why = "failed", error.message
            except (LLMError, SoulError, StorageTrouble) as error:
                failed, why = "failed", f"{error.message} {error.advice}".strip()
            finally:
                agent.is_working = False
            return await self._ended(agent, soul, failed, why)

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

    async def _ended(self, agent: _Agent, soul: KimiSoul, failed: str, why: str) -> ToolOutcome:
        text = _last_answer(soul.session.context.messages)
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
        return _outcome(agent.state, text)

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

    async def _open(self, agent: _Agent) -> KimiSoul:
        main, name = self._main, agent.state.name
        session = Session(agent.folder, main.session.work_dir, self._storage)
        await session.open()
        try:
            if session.context.system_prompt is None and not session.context.messages:
                text = await asyncio.to_thread(
                    agent_prompt,
                    agent.kind.text,
                    main.session.work_dir,
                    main.environ,
                    date.today(),  # noqa: DTZ011 - the user's own day is meant
                    no_keys=self._tools.asks_for_keys,
                    notes=self._tools.reads_notes,
                )
                await session.context.append([SystemPrompt(text)])
            limits, settings = self._conversation.limits, main.agents_config
            budget = self._budget()
            soul = await self._opens(
                session=session,
                provider=None,
                limits=limits._replace(
                    control=limits.control._replace(
                        max_steps_per_turn=min(agent.kind.steps or settings.steps, settings.steps)
                    ),
                    dmail=DMailConfig(enabled=False),
                    budget=budget,
                ),
                asks_for_keys=self._tools.asks_for_keys,
                toolset=self._toolset(agent.kind),
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

    def _toolset(self, kind: AgentKind) -> Toolset:
        """Return the tools of a kind, as far as the session has them."""
        tools = self._conversation.all_tools
        wanted = tools.names if kind.tools is None else kind.tools
        found = (tools.get(name) for name in tools.names if name in wanted and name not in NEVER)
        return Toolset(tool for tool in found if tool is not None)

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
        for agent in [*self._agents.values()]:
            if agent.work is not None:
                agent.work.cancel()
                await asyncio.wait([agent.work])
            if agent.soul is not None:
                soul, agent.soul = agent.soul, None
                await soul.aclose()

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
        if agent.soul is None:
            return
        before = agent.totals
        agent.totals = (status.total_input, status.total_cached, status.total_output)
        grown = [new - old for new, old in zip(agent.totals, before, strict=True)]
        cost = agent.soul.cost
        self._change(
            agent,
            input=status.total_input,
            cached=status.total_cached,
            output=status.total_output,
            cost=sum(amount for _, amount in cost.amounts) if cost is not None else -1.0,
            used=status.used,
            limit=status.limit,
        )
        if any(grown) and min(grown) >= 0:
            usage = Usage(grown[0], grown[2], grown[1], estimated=status.estimated)
            self._conversation.count_beside(usage, status.model)

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
    return f"{how}{steps_words(state.step)}, {_short(state.tokens)} tokens"


def _outcome(now: AgentChanged, text: str) -> ToolOutcome:
    """Return the result of the call of a sub-agent that has ended."""
    facts = [steps_words(now.step)]
    if now.files:
        facts.append(f"{now.files:,} {'file' if now.files == 1 else 'files'} changed")
    said, brief = f"{now.name}, {', '.join(facts)}.", _brief(now)
    if now.state == "done":
        if not text:
            said = f"{said} It ended without an answer."
        return ToolOutcome(text, said, brief=brief)
    rest = "Its last words follow." if text else "It had said nothing yet."
    if now.state == "stopped":
        how = "The user refused what it asked for." if now.why == _REFUSED else "It was stopped."
        how = "The user stopped it." if now.why == _BY_USER else how
        return ToolOutcome(text, f"{said} {how} {rest}", brief=brief)
    return ToolOutcome(text, f"{said} It ended early: {now.why} {rest}", is_error=True, brief=brief)


def _short(tokens: int) -> str:
    return f"{tokens / 1000:.1f}k" if tokens >= 1000 else str(tokens)


# -- on the disk

_KIND_TEXTS = ("name", "description", "text", "model", "effort")


def _encoded(agent: _Agent) -> bytes:
    kind = agent.kind
    record = {
        "agent": encode_event(agent.state),
        "versions": [_version_record(one) for one in agent.versions],
        "later": [_version_record(one) for one in agent.later],
        "task": agent.text,
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


def _written_at(folder: Path) -> float:
    """Return when the conversation of a sub-agent was written last, in seconds since 1970; 0 if it was not."""
    try:
        return os.lstat(folder / LIVE_NAME).st_mtime
    except OSError:
        return 0.0


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
