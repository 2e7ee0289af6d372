"""One session as the main screen uses it: what the person says goes to the engine, what the engine tells comes back.

It holds the frame's state and knows no widget; the screen draws what it is told and asks for what the person wants.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kimi_tui.launch import Launch
from kimi_tui.tui.main.engine import Engine, Opened
from kimi_tui.tui.main.feed import Feed
from kimi_tui.tui.main.state import MainState, Mode

if TYPE_CHECKING:
    from kimi_tui.llm.provider import ChatProvider
    from kimi_tui.soul.kimi_soul import KimiSoul
    from kimi_tui.tui.main.audience import Audience
    from kimi_tui.tui.prompt.history import History
    from kimi_tui.wire.events import Notice, Record


class Conversation:
    """A session on the screen.

    Attributes:
        state: what the frame shows.
        history: what was sent before; None until it is loaded.
        kept: after the end, a sentence on what of the demo is kept; empty for nothing.
    """

    def __init__(self, launch: Launch, audience: Audience) -> None:
        self._launch = launch
        self._audience = audience
        self._feed = Feed(self._show, self._caught_up, audience.settle_history)
        self._unsent = ""
        self._live = False
        self._turn: asyncio.Task[None] | None = None
        self.state = MainState(mode=launch.mode)
        # What the audience was told last: of a history only the end is worth telling.
        self._told = self.state
        self.engine = Engine(lambda words: audience.tell(words, level="warning"))
        self.history: History | None = None
        self.kept = ""
        self._opened: Opened | None = None

    async def open(self) -> Opened:
        """Open the session and begin to show it.

        Raises:
            CannotOpen: with one line for the person.
        """
        opened = await self.engine.open(self._launch, self._audience.glance)
        # Long histories take much room; what is shown holds what is needed of them.
        self._opened = opened._replace(history=())
        self.history = opened.past
        self._change(self.state._replace(title=opened.title, model=model_words(opened.provider)))
        self.engine.start(self._prepare(opened.soul, opened.provider))
        self.engine.start(self._learn_folder(opened.soul))
        self._feed.follow(opened.soul.wire, opened.history)
        return opened

    async def _prepare(self, soul: KimiSoul, provider: ChatProvider) -> None:
        """Let the provider find out what its server says of the model; the window may be another one then."""
        from kimi_tui.llm.openai_compat import OpenAICompatible
        from kimi_tui.llm.transport import preload

        if isinstance(provider, OpenAICompatible):
            # Half a second of importing that the first message would wait for.
            await asyncio.to_thread(preload)
            for words in await provider.prepare():
                self._audience.tell(words, level="warning")
            soul.tell_status()

    async def _learn_folder(self, soul: KimiSoul) -> None:
        facts = await soul.files_ready()
        if not self.state.has_messages:
            self._audience.folder_known(facts)

    def use(self, launch: Launch) -> None:
        """Go on with another model."""
        soul = self.engine.soul
        if soul is not None:
            self._launch = launch
            self.engine.start(self._use(soul, launch))

    async def _use(self, soul: KimiSoul, launch: Launch) -> None:
        from kimi_tui.tui.main.opening import provider_of

        provider = await provider_of(launch, soul.session.id)
        before = soul.set_provider(provider)
        self._change(self.state._replace(model=model_words(provider), tools=True))
        self._audience.tell(f"The agent now uses {provider.info.model}.")
        if before is not None:
            await before.aclose()
        await self._prepare(soul, provider)

    async def close(self, *, clean: bool = True) -> str:
        """Save and release the session; returns a sentence on what could not be saved.

        Args:
            clean: the program ends as it should.
        """
        self._feed.stop()
        lost = await self.engine.close()
        opened, self._opened = self._opened, None
        if opened is not None and opened.leave is not None:
            self.kept = await asyncio.to_thread(opened.leave, clean)
        return lost

    # --- what the person wants

    def say(self, text: str) -> None:
        """Tell the agent: as a turn, or into the one that runs; before the session is open it waits."""
        soul = self.engine.soul
        if self._opened is not None and self._opened.suggestions is not None:
            self._opened.suggestions.said(text)
        if soul is None or not self._live:
            self._unsent = f"{self._unsent}\n\n{text}".strip()
        elif soul.running:
            soul.steer(text)
        else:
            self._turn = self.engine.start(_run_or_steer(soul, text))

    def go_on(self) -> None:
        """Try now instead of waiting, or go on from here without a message."""
        soul = self.engine.soul
        if soul is None:
            return
        if self.state.retry_until > time.time():
            soul.retry_now()
        elif self.state.can_resume and not soul.running:
            self._turn = self.engine.start(soul.resume())

    def let_on(self) -> None:
        """Let the agent go on at once, with what an operation put before it."""
        soul = self.engine.soul
        if soul is not None and not soul.running:
            self._turn = self.engine.start(soul.resume())

    def use_tools(self, on: bool) -> None:
        """Let the model call tools, or go on without: for a server that refuses them."""
        soul = self.engine.soul
        if soul is None:
            self._audience.tell("The session is still being opened.")
            return
        soul.use_tools(on)
        self._change(self.state._replace(tools=on))
        if not on and self.state.can_resume and not soul.running:
            self.go_on()

    def stop(self) -> bool:
        """Stop what runs; False where nothing does."""
        soul = self.engine.soul
        if soul is None or not soul.running:
            return False
        self.engine.start(soul.interrupt())
        return True

    def compact(self, instructions: str) -> None:
        """Compact now, or when the running turn has ended."""
        soul = self.engine.soul
        if soul is None:
            self._audience.tell("The session is still being opened.")
            return
        if soul.running:
            self._audience.tell("The conversation is compacted when this turn ends.")
        self.engine.start(self._compact(soul, instructions))

    async def _compact(self, soul: KimiSoul, instructions: str) -> None:
        await self._turn_ended()
        await soul.compact(instructions)

    async def _turn_ended(self) -> None:
        """The event of a turn's end comes a moment before the engine can begin something else."""
        if self._turn is not None:
            await asyncio.wait([self._turn])

    def take_back(self) -> str | None:
        """The last queued message, no longer queued; None where there is none."""
        soul = self.engine.soul
        if soul is None:
            return None
        for queued in reversed(self.state.queued):
            if (text := soul.withdraw_steer(queued.id)) is not None:
                # The event comes later; asked again before it, the next one is meant.
                left = tuple(other for other in self.state.queued if other.id != queued.id)
                self._change(self.state._replace(queued=left))
                return text
        return None

    def answer(self, request_id: str, answer: str, feedback: str) -> None:
        """Answer an approval request."""
        soul = self.engine.soul
        if soul is not None and answer in ("once", "session", "no"):
            soul.answer(request_id, answer, feedback)

    def remember(self, text: str) -> None:
        """Keep a message for the arrows, here and in the file; what the demo says is no one's own."""
        if self.history is not None and text.strip():
            self.history.add(text)
            if not self._launch.demo:
                self.engine.start(asyncio.to_thread(self._keep, text))

    def set_title(self, title: str) -> None:
        """Show another title."""
        self._change(self.state._replace(title=title))

    def set_mode(self, mode: Mode) -> None:
        """Show another mode."""
        self._change(self.state._replace(mode=mode))

    def anew(self) -> Launch:
        """How to start a new session in the same folder."""
        return self._launch._replace(resume=None, fork=False, notices=())

    def elsewhere(self, session_id: str) -> Launch | None:
        """How to open another session; None where there is no other place to open it from (the demo)."""
        if self._launch.demo:
            return None
        return self._launch._replace(resume=session_id, fork=False, notices=())

    def _keep(self, text: str) -> None:
        from kimi_tui.places import data_dir
        from kimi_tui.tui.prompt.history import append_history, history_file

        append_history(history_file(data_dir(), self._launch.work_dir), text)

    # --- what the engine tells

    def _show(self, records: Sequence[Record]) -> None:
        from kimi_tui.tui.main.model import reduce
        from kimi_tui.wire.events import Notice, TurnEnd

        self._audience.draw(records, live=self._live)
        state, ended = self.state, None
        for record in records:
            state = reduce(state, record)
            if not self._live:
                continue
            if isinstance(record.event, TurnEnd):
                ended = record.event
            elif isinstance(record.event, Notice):
                self._notify(record.event)
        if not self._live:
            self.state = state
            return
        self._change(state)
        if ended is not None:
            if self._opened is not None and self._opened.suggestions is not None:
                self._opened.suggestions.ended(is_done=ended.reason == "done")
            if not state.can_resume:
                # Where a turn can be gone on with, Enter in the empty prompt is for that.
                self._suggest()
            if state.queued:
                self.engine.start(self._deliver(said_all=ended.reason == "done"))

    def _notify(self, notice: Notice) -> None:
        if notice.topic and notice.solved:
            self._audience.solved(notice.topic)
        stands_in_chat = notice.level != "info" and not notice.topic and not notice.solved
        if stands_in_chat and self._audience.sees_end:
            return
        # What will be solved stays until then; that it is solved is worth a few seconds.
        topic = "" if notice.solved else notice.topic
        self._audience.tell(notice.text, level=notice.level, advice=notice.advice, topic=topic)

    async def _deliver(self, *, said_all: bool) -> None:
        """What was queued too late for the turn is said now; after a stop or an error it is left to the person."""
        await self._turn_ended()
        texts: list[str] = []
        while (text := self.take_back()) is not None:
            texts.insert(0, text)
        if texts and said_all:
            self.say("\n\n".join(texts))
        elif texts:
            self._audience.give_back("\n\n".join(texts))

    def _caught_up(self) -> None:
        """The history is shown; what comes now happens now."""
        from kimi_tui.freed_memory import give_back
        from kimi_tui.tui.main.model import settled

        self._live = True
        self._audience.history_told()
        self.engine.start(asyncio.to_thread(give_back))
        self._change(settled(self.state, running=self.engine.running))
        if self._unsent:
            text, self._unsent = self._unsent, ""
            self.say(text)
        else:
            self._suggest()

    def _suggest(self) -> None:
        if self._opened is not None and self._opened.suggestions is not None:
            self._audience.suggest(self._opened.suggestions.next)

    def cost_words(self) -> str:
        """What the session has cost so far; empty where no prices are set."""
        from kimi_tui.tui.statistics_words import cost_words

        cost = self.engine.soul.cost if self.engine.soul is not None else None
        return cost_words(cost) if cost is not None else ""

    def rebuild(self) -> None:
        """Show the session anew from what is stored: the events did not tell what it looks like now."""
        soul = self.engine.soul
        if soul is not None:
            self.engine.start(self._rebuild(soul))

    async def _rebuild(self, soul: KimiSoul) -> None:
        self._audience.redraw(await soul.history())

    def _change(self, state: MainState) -> None:
        old, self.state, self._told = self._told, state, state
        if old != state:
            self._audience.state_changed(old, state)


async def _run_or_steer(soul: KimiSoul, text: str) -> None:
    """One turn; where another began a moment before, the text goes into that one."""
    from kimi_tui.soul.protocol import SoulBusy

    try:
        await soul.run(text)
    except SoulBusy:
        soul.steer(text)


def model_words(provider: ChatProvider) -> str:
    """The model as the header names it."""
    info = provider.info
    return f"{info.model} thinking" if info.thinking else info.model
