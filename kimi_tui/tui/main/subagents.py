"""The sub-agents of the session on the main screen: one of them in place of the chat with its timeline, and Esc, which stops them.

Their states come as events on the session's wire. The events of one are read only while it is on view.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.display_names import counted
from kimi_tui.tui.main.beside import BesideViewer
from kimi_tui.tui.main.conversation import ConversationController
from kimi_tui.tui.main.feed import Feed
from kimi_tui.tui.main.workbench import Workbench

if TYPE_CHECKING:
    from kimi_tui.soul.agents_part import AgentsPart
    from kimi_tui.soul.rewind_values import Prospect
    from kimi_tui.tui.subagent_view import SubagentView
    from kimi_tui.wire.events import AgentChanged, Event
    from kimi_tui.wire.queue import Subscription


class _OwnEvents:
    """The events of one sub-agent, as a `Feed` subscribes to them.

    Args:
        agents: the sub-agents of the session.
        name: the name of the one.
        bench: has the tasks.
    """

    def __init__(self, agents: AgentsPart, name: str, bench: Workbench) -> None:
        self._agents = agents
        self._name = name
        self._bench = bench
        self._subscription: Subscription | None = None
        self._wake: Callable[[Event], None] | None = None

    async def feed(self) -> Feed:
        """Return its events: those that were stored, and the others as they come."""
        history, self._subscription = await self._agents.listen(self._name, self._woken)
        return Feed(self, history, self._bench.tasks)

    def _woken(self, event: Event) -> None:
        if self._wake is not None:
            self._wake(event)

    def subscribe(self, wake: Callable[[Event], None] | None = None) -> Subscription:
        """Return the one subscription, which began where the stored events end."""
        assert self._subscription is not None
        self._wake = wake
        return self._subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End the subscription."""
        self._bench.start(self._agents.unlisten(self._name, subscription))


class SubagentsController:
    """The sub-agents of the session: shows one in place of the chat, and stops them.

    Args:
        bench: the workbench with chat, timeline and prompt.
        conversation: the session.
        beside: shows one in place of the chat.
        write: begins a message to a sub-agent: called with its name and with text that was typed over it.
    """

    def __init__(
        self,
        bench: Workbench,
        conversation: ConversationController,
        beside: BesideViewer,
        write: Callable[[str, str], object],
    ) -> None:
        self._bench = bench
        self._conversation = conversation
        self._beside = beside
        self._write = write
        self._view: SubagentView | None = None
        """The sub-agent that was shown last."""
        self._stopped: set[str] = set()
        """The names of those that were asked to stop, as long as they run."""

    @property
    def states(self) -> Sequence[AgentChanged]:
        """The states of all sub-agents of the session."""
        return self._conversation.state.agents

    def state(self, name: str) -> AgentChanged | None:
        """Return the state of a sub-agent; None if there is none of this name."""
        return next((one for one in self.states if one.name == name), None)

    @property
    def currency(self) -> str:
        """The sign of amounts."""
        prices = self._conversation.launch.config.prices
        return next((one.currency for one in prices.values()), "$")

    async def engine(self) -> AgentsPart:
        """Return what runs the sub-agents, which is loaded at the first call."""
        soul = await self._conversation.opened()
        if soul.agents is None:
            # The module is imported in a thread, so that no key waits for it.
            await in_daemon_thread(import_module, "kimi_tui.soul.subagents")
        return soul.use_agents()

    # --- one sub-agent in place of the chat

    @property
    def view(self) -> SubagentView | None:
        """The sub-agent in place of the chat; None for none."""
        return self._view if self._beside.view is self._view else None

    async def open(self, name: str) -> bool:
        """Show a sub-agent in place of the chat, with its own streaming and timeline, and give it the keys; return False if there is none."""
        if self._beside.shows(name):
            return True
        engine, state, bench = await self.engine(), self.state(name), self._bench
        if state is None:
            return False
        from kimi_tui.tui.subagent_view import SubagentView

        view = self._view = SubagentView(
            state,
            self.currency,
            bench.transcript.work_dir,
            bench.keys,
            self._conversation.load_image,
        )
        events = _OwnEvents(engine, name, bench)
        await self._beside.show(view, name, self._write, events.feed)
        self.tell_news()
        return True

    def tell_news(self) -> None:
        """Update the banner of the sub-agent on view: its state, and what the main agent does."""
        view = self.view
        if view is None or (state := self.state(view.key)) is None:
            return
        here = self._conversation.state
        view.banner.tell(
            state, self._beside.news_of(here, asks=any(not one.agent for one in here.approvals))
        )

    def show_prospect(self, prospect: Prospect | None) -> bool:
        """Show in grey what a rewind of the sub-agent on view would drop; return False if none is on view."""
        view = self.view
        if view is not None:
            view.transcript.show_dropped(prospect.target.id if prospect is not None else None)
        return view is not None

    # --- stopping

    def stop_first(self) -> bool:
        """Stop the sub-agents that run, for an Esc that would stop the turn; return False if that is to be stopped now.

        Esc for those that were asked to stop already stops the turn. One of several is stopped alone by a key in its view.
        """
        running = self._conversation.state.working_agents
        if not running or all(one.name in self._stopped for one in running):
            return False
        said = running[0].name if len(running) == 1 else counted(len(running), "sub-agent")
        self._bench.tell(f"Stopping {said}. Press Esc again to stop the whole turn.", in_turn=True)
        self._stopped |= {one.name for one in running}
        self._bench.start(self._stop_all())
        return True

    async def _stop_all(self) -> None:
        await (await self.engine()).stop_all()

    async def stop(self, name: str) -> None:
        """Stop a sub-agent alone: its call ends with what it has found, and the turn goes on."""
        engine = await self.engine()
        self._stopped.add(name)
        await engine.stop(name)

    def changed(self) -> None:
        """React to other states of sub-agents."""
        self._stopped &= {one.name for one in self._conversation.state.working_agents}
        self.tell_news()
