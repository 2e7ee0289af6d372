"""The futures of the session on the main screen: the running set, one of them in place of the chat, and what they ask.

The engine of futures is loaded when it is first needed. The states of the futures come as events on the session's wire; the events
of one future are read only while it is on view, or for the page that sets all side by side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.tui.formatting import cut
from kimi_tui.tui.main.beside import BesideViewer
from kimi_tui.tui.main.conversation import ConversationController
from kimi_tui.tui.main.feed import Feed
from kimi_tui.tui.main.workbench import Workbench

if TYPE_CHECKING:
    from kimi_tui.futures.running import Futures
    from kimi_tui.futures.values import Estimate, FuturesPlan
    from kimi_tui.projection.blocks import Block
    from kimi_tui.projection.futures import FutureGroup
    from kimi_tui.projection.session_model import SessionModel
    from kimi_tui.projection.session_state import SessionState
    from kimi_tui.soul.rewind_values import Target
    from kimi_tui.tui.futures.dialog import FuturesDialog
    from kimi_tui.tui.futures.page import FuturesPage, FuturesShown
    from kimi_tui.tui.futures.view import FutureView
    from kimi_tui.tui.subagent_view import FutureAgentView
    from kimi_tui.wire.events import ApprovalAnswer, ApprovalRequest, FutureChanged
    from kimi_tui.wire.queue import Subscription, Wire

PAGE_S = 0.5
"""Seconds between two updates of the page while futures work."""
_SEPARATOR = "\n"
"""Between the key of a future and the id of its request: no id of a request begins so."""


class Asked(NamedTuple):
    """A request in the one queue: of the current conversation, or of a future with a name."""

    request: ApprovalRequest
    asker: str = ""


class _Followed(NamedTuple):
    """The messages of one future, and what it has told since they were reduced."""

    model: SessionModel
    wire: Wire
    subscription: Subscription


class FuturesController:
    """The futures of the session: starts and follows them, shows one in place of the chat, and passes on answers.

    Args:
        bench: the workbench with chat, timeline and prompt.
        conversation: the session.
        beside: shows one in place of the chat.
        write: begins a message to a future: called with its key and with text that was typed over it.
        begin: asks how futures are to begin at a checkpoint.
    """

    def __init__(
        self,
        bench: Workbench,
        conversation: ConversationController,
        beside: BesideViewer,
        write: Callable[[str, str], object],
        begin: Callable[[Target], object],
    ) -> None:
        self._bench = bench
        self._beside = beside
        self._write = write
        self._begin = begin
        self._conversation = conversation
        self._engine: Futures | None = None
        self._opening = asyncio.Lock()
        self._view: FutureView | None = None
        """The future that was shown last."""
        self._agent_view: FutureAgentView | None = None
        """The sub-agent of a future that was shown last."""
        self._order: list[str] = []
        """The ids of the requests in the queue, oldest first."""
        self._answered: set[str] = set()
        """The ids of requests of futures that were answered, but whose future has not said so yet."""
        self.dialog: FuturesDialog | None = None
        """The question how futures are to begin at the end of the conversation, while it is asked."""
        self._page: FuturesPage | None = None
        self._followed: dict[str, _Followed] = {}
        """The messages of futures while the page is open, by key."""
        self._updating: asyncio.Task[None] | None = None

    def begin_from(self, target: Target) -> None:
        """Have the user asked how futures are to begin at a checkpoint."""
        self._begin(target)  # at once, so that the next keys wait for the question

    async def engine(self) -> Futures:
        """Return the running set, which is loaded at the first call."""
        soul = await self._conversation.opened("travel")
        async with self._opening:
            if self._engine is None:
                # The modules are imported in a thread, so that no key waits for them.
                await in_daemon_thread(import_module, "kimi_tui.futures.running")
                from kimi_tui.futures.running import Futures

                self._engine = await asyncio.to_thread(Futures, soul, self._conversation.launch)
        self._engine.use(self._conversation.launch)
        return self._engine

    async def estimate(self, plan: FuturesPlan) -> Estimate:
        """Return what a plan costs; the running set is loaded meanwhile, so that the question need not wait for it.

        Raises:
            NoFutures: the plan cannot be carried out.
        """
        return await (await self.engine()).estimate(plan)

    @property
    def currency(self) -> str:
        """The sign of amounts."""
        prices = self._conversation.launch.config.prices
        return next((one.currency for one in prices.values()), "$")

    @property
    def states(self) -> Sequence[FutureChanged]:
        """The states of all futures of the session."""
        return self._conversation.state.futures

    def state(self, key: str) -> FutureChanged | None:
        """Return the state of a future; None if there is none."""
        return next((one for one in self.states if one.key == key), None)

    def group(self, key: str = "") -> FutureGroup | None:
        """Return the group of a future, or the newest one; None if there is none."""
        from kimi_tui.projection.futures import groups

        found = groups(self.states)
        if key:
            return next((g for g in found if any(one.key == key for one in g.futures)), None)
        return found[-1] if found else None

    # --- one future in place of the chat

    @property
    def view(self) -> FutureView | None:
        """The future in place of the chat; None for none."""
        return self._view if self._beside.view is self._view else None

    async def open(self, key: str) -> None:
        """Show a future that runs in place of the chat, with its own streaming, and give it the keys.

        Raises:
            NoFutures: it does not run in this program; the text is for the user.
        """
        if self._beside.shows(key):
            return
        engine, bench = await self.engine(), self._bench
        state, wire = engine.state(key), engine.wire(key)
        from kimi_tui.projection.subagents import with_agents
        from kimi_tui.tui.futures.view import FutureView
        from kimi_tui.wire.events import ToolStarted

        history = await engine.history(key)
        calls = {one.event.key for one in history if isinstance(one.event, ToolStarted)}
        agents = self._conversation.state.agents
        # The cards of the session's sub-agents open from here too.
        past = with_agents(history, [one for one in agents if one.key in calls])

        view = self._view = FutureView(
            state,
            self.currency,
            bench.transcript.work_dir,
            bench.keys,
            self._conversation.load_image,
        )

        async def feed() -> Feed:
            # Nothing is awaited between these two: what is told meanwhile is in one of them.
            return Feed(wire, [*past, *engine.records(key)], bench.tasks)

        await self._beside.show(
            view,
            f"future {state.number}",
            self._write,
            feed,
        )
        self.tell_news()

    @property
    def agent_view(self) -> FutureAgentView | None:
        """The sub-agent of a future in place of the chat; None for none."""
        return self._agent_view if self._beside.view is self._agent_view else None

    async def open_agent(self, name: str) -> bool:
        """Show a sub-agent of the future on view in place of the chat, with its own streaming; return False if it has none of that name.

        Its card is one of the future, so its state is among those that the future has told.
        """
        view, bench = self.view, self._bench
        states = view.session.state.agents if view is not None else ()
        state = next((one for one in states if one.name == name), None)
        if view is None or state is None:
            return False
        from kimi_tui.futures.values import NoFutures

        engine = await self.engine()
        key, future = view.key, engine.state(view.key)
        try:
            engine.agent(key, name)
        except NoFutures:
            return False
        from kimi_tui.projection.subagents import agent_name
        from kimi_tui.tui.subagent_view import FutureAgentView

        shown = self._agent_view = FutureAgentView(
            key,
            state,
            self.currency,
            bench.transcript.work_dir,
            bench.keys,
            self._conversation.load_image,
        )

        async def feed() -> Feed:
            # Nothing is awaited between these two: what is told meanwhile is in one of them.
            wire, records = engine.agent(key, name)
            return Feed(wire, records, bench.tasks)

        await self._beside.show(
            shown,
            f"{agent_name(state)} of future {future.number}",
            lambda _, text: self._write(key, text),
            feed,
        )
        self.tell_news()
        return True

    def tell_news(self) -> None:
        """Update the banner of the future, or of its sub-agent, on view: its state, and what the current conversation does."""
        view, agent = self.view, self.agent_view
        state = self.state(view.key) if view is not None else None
        if state is None and agent is None:
            return
        here = self._conversation.state
        said = self._beside.news_of(here, asks=bool(here.approvals))
        if view is not None and state is not None:
            view.banner.tell(state, said)
        elif agent is not None:
            agent.banner.tell(agent.banner.state, said)

    # --- what futures ask, in one queue with the current conversation

    def queue(self, state: SessionState) -> list[Asked]:
        """Return the requests of the current conversation and of all futures that wait for an answer, oldest first."""
        found = {one.id: Asked(one) for one in state.approvals}
        waiting: set[str] = set()
        for key, request in self._engine.asked if self._engine is not None else ():
            name = f"{key}{_SEPARATOR}{request.id}"
            waiting.add(name)
            if name not in self._answered:
                # The future is a session of its own, which the user knows as a future. The command in the offer comes before these words.
                begins, found_it, ends = request.session_offer.rpartition("this session")
                offer = f"{begins}this future{ends}" if found_it else request.session_offer
                own = replace(request, id=name, session_offer=offer)
                found[name] = Asked(own, self._name(key, request.agent))
        self._answered &= waiting
        self._order = [one for one in self._order if one in found]
        self._order += [one for one in found if one not in self._order]
        return [found[one] for one in self._order]

    def _name(self, key: str, agent: str) -> str:
        """Return who asks: a future, or a sub-agent of it."""
        from kimi_tui.foreign_text import one_line
        from kimi_tui.projection.futures import future_name

        state = self.state(key)
        if agent:
            of = f"future {state.number}: {future_name(state)}" if state is not None else "a future"
            return f"Sub-agent {one_line(agent)} of {of}"
        return f"Future {state.number}: {future_name(state)}" if state is not None else "A future"

    def asker_of(self, request_id: str) -> str:
        """Return the key of the future that has asked; empty if it was the current conversation."""
        key, separator, _ = request_id.partition(_SEPARATOR)
        return key if separator else ""

    def answer(self, request_id: str, answer: ApprovalAnswer, feedback: str) -> bool:
        """Pass an answer to the future that has asked; return False if it was the current conversation."""
        key, separator, own = request_id.partition(_SEPARATOR)
        if not separator or self._engine is None:
            return False
        self._answered.add(request_id)
        self._engine.answer(key, own, answer, feedback)
        return True

    # --- changes

    def changed(self, old: SessionState, new: SessionState) -> None:
        """React to other states of futures: tell which have ended, and update what shows them."""
        from kimi_tui.foreign_text import one_line
        from kimi_tui.projection.futures import future_name, groups, state_words

        before = {one.key: one for one in old.futures}
        for one in new.futures:
            known = before.get(one.key)
            if known is None or known.is_over or not one.is_over:
                continue
            group = next(g for g in groups(new.futures) if one in g.futures)
            words = (
                f"Future {one.number} ({cut(future_name(one), 40)}) has ended: {state_words(one)}."
            )
            if group.is_over:
                words = f"The futures have ended: {group.words}."
                self._bench.tell(words, advice="/futures shows them side by side.")
            elif one.state == "failed":
                self._bench.tell(words, advice=one_line(one.why), level="warning")
            else:
                self._bench.tell(words)
        self.tell_news()
        self._update_page()

    # --- the page

    def begin_page(self, page: FuturesPage, group: FutureGroup) -> None:
        """Keep a page up to date while it is open."""
        self._page = page
        if not group.is_over:
            self._update_page()

    def end_page(self) -> None:
        """Let the page go."""
        self._page = None
        for one in self._followed.values():
            one.wire.unsubscribe(one.subscription)
        self._followed.clear()
        if self._updating is not None:
            self._updating.cancel()
            self._updating = None

    def _update_page(self) -> None:
        if self._page is not None and (self._updating is None or self._updating.done()):
            self._updating = self._bench.start(self._renew_page())

    async def _renew_page(self) -> None:
        """Show on the page what has changed, now and as long as futures work."""
        while (page := self._page) is not None:
            group = self.group(page.chosen.key)
            if group is None:
                return
            page.show(await self.shown(group))
            if group.is_over and all(one.world_line or not one.step for one in group.futures):
                return
            await asyncio.sleep(PAGE_S)

    async def shown(self, group: FutureGroup) -> FuturesShown:
        """Return what the page shows of a group: facts, messages from where they part, and files of those that have ended."""
        from kimi_tui.tui.futures.page import FuturesShown
        from kimi_tui.workspace.base import NoBase

        engine = await self.engine()
        blocks: dict[str, Sequence[Block]] = {}
        files = {}
        for one in group.futures:
            blocks[one.key] = await self._blocks(engine, one)
            if one.is_over:
                try:
                    files[one.key] = await engine.differences(one.key)
                except (NoBase, OSError):
                    files[one.key] = []
        return FuturesShown(group, blocks, files)

    async def _blocks(self, engine: Futures, one: FutureChanged) -> Sequence[Block]:
        from kimi_tui.futures.values import NoFutures
        from kimi_tui.projection.session_model import SessionModel
        from kimi_tui.soul.tasks import TimeSlices

        followed = self._followed.get(one.key)
        if followed is not None:
            for record in followed.subscription.drain():
                followed.model.apply(record)
            return tuple(followed.model.chat.blocks)
        try:
            wire, records = engine.wire(one.key), engine.records(one.key)
        except NoFutures:
            return await self._stored_blocks(one)
        followed = _Followed(SessionModel(self._bench.transcript.work_dir), wire, wire.subscribe())
        if self._page is not None:
            self._followed[one.key] = followed
        slices = TimeSlices()
        for record in records:
            followed.model.apply(record)
            await slices.yield_if_over()
        if self._page is None:
            wire.unsubscribe(followed.subscription)
        return tuple(followed.model.chat.blocks)

    async def _stored_blocks(self, one: FutureChanged) -> Sequence[Block]:
        """Return the messages of a future of an earlier run: those that its world line has beyond the session."""
        from kimi_tui.projection.session_model import SessionModel

        if not one.world_line:
            return ()
        soul = await self._conversation.opened("lines")
        model = SessionModel(self._bench.transcript.work_dir)
        for record in await soul.lines.read(one.world_line):
            model.apply(record)
        line = self._bench.views.timeline.model.tree.lines.get(one.world_line)
        own = line.checkpoints[0].id if line is not None and line.checkpoints else 0
        return tuple(block for block in model.chat.blocks if (block.checkpoint or 0) >= own)
