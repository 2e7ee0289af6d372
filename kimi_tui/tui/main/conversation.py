"""The session of the main screen: opens and closes it, sends the user's input to the engine, and shows the engine's events.

Events are drawn in chat, timeline, gauge, prompt and header; messages tell the screen of events that it has to decide about.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from textual.message import Message

from kimi_tui.agent_parts import parts_of
from kimi_tui.app_paths import data_dir, reason_of, short
from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.launch import FORKED, CannotOpen, GivenValue, Launch
from kimi_tui.own_process import COLLECTOR
from kimi_tui.projection.session_state import SessionState
from kimi_tui.tui.faults import report_of
from kimi_tui.tui.frame_rows import model_name
from kimi_tui.tui.keyboard import SeenQuestion
from kimi_tui.tui.main.feed import HISTORY_SLICE_S, Feed
from kimi_tui.tui.main.workbench import Workbench
from kimi_tui.tui.prompt.area import PromptArea
from kimi_tui.tui.prompt.command import Values
from kimi_tui.tui.prompt.image_chips import in_text
from kimi_tui.tui.slices import in_slices

if TYPE_CHECKING:
    from kimi_tui.agent_parts import PartName
    from kimi_tui.config.settings import Config
    from kimi_tui.demo import Demo
    from kimi_tui.images import Image
    from kimi_tui.soul.approval import Mode
    from kimi_tui.soul.inbox import Inbox, Said
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.soul.opening import EarlierSession, Opened
    from kimi_tui.soul.request_form import ToolsWish
    from kimi_tui.soul.soul import InboxTurns
    from kimi_tui.tool_cards import ImageBlock
    from kimi_tui.tui.main.drafts import Drafts
    from kimi_tui.wire.events import ApprovalAnswer, EventRecord, ModelChanged, Notice, When


OPENING = "opening"
"""Topic of the notice that an action waits until the session is open."""
PROBE_S = 3.0
"""Seconds that `/thinking` waits for the server's facts about the model."""
WAY_BACK_TITLE_CELLS = 40


class ConversationController:
    """The session of the main screen: sends the user's input to the engine, and draws its events.

    Args:
        launch: the launch of the session.
        bench: the workbench on which it is shown; the messages are posted to its screen.

    Attributes:
        soul: the engine; None before it is open and after it is closed, and for an agent without a session (`turns`).
        turns: the turns of an agent that has no session; None for the engine of this program.
        launch: the launch of a session that is started from this one.
        state: the state of the session for header, prompt and footer.
        allows_all: whether the mode that allows everything was set by name; then the mode key includes it.
        drafts: stores text that was written and not sent; None before the session is open.
        kept: after the end, a sentence on the files of the demo that are kept; empty for none.
        unsent_text: after the end, the text that could be neither sent nor stored, with the reason; empty for none.
        resume_hint: after the end, how to resume the session; empty if no message was sent in it.
    """

    class EventsShown(Message, bubble=False):
        """Events were drawn. It is not posted for deltas of streamed text (`STREAMED`) alone."""

        def __init__(self, records: Sequence[EventRecord]) -> None:
            super().__init__()
            self.records = records

    class StateChanged(Message, bubble=False):
        """The state that the frame shows has changed."""

        def __init__(self, old: SessionState, new: SessionState) -> None:
            super().__init__()
            self.old = old
            self.new = new

    class Suggested(Message, bubble=False):
        """The demo suggests the next message; the text is empty at its end."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class OpenWanted(Message, bubble=False):
        """The session is needed but not open; the screen should open it (again)."""

    def __init__(self, launch: Launch, bench: Workbench) -> None:
        self.launch = launch
        self._bench = bench
        self._report = report_of(bench.screen)
        self.soul: KimiSoul | None = None
        self.turns: InboxTurns | None = None
        self._feed: Feed | None = None
        """The events of the open session; None before."""
        self._drawing: asyncio.Task[None] | None = None
        self._inbox: Inbox | None = None
        self._has_said = False
        """Whether a message was sent in this session."""
        self.drafts: Drafts | None = None
        self._giving_back: asyncio.Task[None] | None = None
        self._is_open = asyncio.Event()
        self._live = False
        self._n_told = 0
        """The number of events in the history of the opened session."""
        self._order = asyncio.Lock()
        """Locks the reading of images, so that messages get theirs in order."""
        self._n_coming = 0
        """The number of messages that wait for their images, or for the images of an earlier one."""
        self.state = SessionState(mode=launch.mode)
        self.allows_all = launch.mode == "all"
        self._since: list[EventRecord] | None = None
        """The events that arrived while the history was being read again; None at other times."""
        self.kept = ""
        self.unsent_text = ""
        self.resume_hint = ""
        self._began_early = False
        """Whether Enter was pressed before there was anything to send; the demo says that it starts that way."""
        self._session_id = ""
        """The id of the session if a message was sent in it; else empty."""
        self._opened: Opened | None = None
        self._listed: tuple[str, ...] = ()
        """The models that the server lists."""
        self._asked_for_models: ModelChoice | None = None
        """The model whose server was asked for its models; None if none was."""
        self._is_unnamed = launch.config.titles and launch.resume is None and not launch.demo
        """Whether the model is to name the session when its first turn is done."""
        self._naming: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Whether a turn or an operation is under way."""
        agent = self.soul or self.turns
        return agent is not None and agent.running

    @property
    def inbox(self) -> Inbox:
        """The messages of the user that are not in the context yet, also from before the session is open."""
        if self._inbox is None:
            # The import loads modules of the engine, so it must come after the first paint.
            from kimi_tui.soul.inbox import Inbox

            self._inbox = Inbox()
        return self._inbox

    async def open(self) -> Opened:
        """Open the session and start showing it.

        Raises:
            CannotOpen: with one line for the user.
        """
        if self.launch.resume is not None:
            COLLECTOR.hold()
        try:
            return await self._open()
        except BaseException:
            COLLECTOR.release()
            raise

    async def _open(self) -> Opened:
        # Importing takes half a second and would block the loop.
        await in_daemon_thread(import_module, "kimi_tui.soul.opening")
        from kimi_tui.soul.opening import open_session
        from kimi_tui.tui.prompt.history import PromptHistory
        from kimi_tui.tui.transcript.transcript import import_for

        try:
            opened = await open_session(
                self.launch, self._found, self._wants_fork, import_for, self.inbox
            )
        except CannotOpen:
            # A session that cannot be opened cannot be resumed.
            self._session_id = ""
            raise
        parts = parts_of(opened.soul)
        # A long history takes much memory, and the views have their own copy of what they show.
        self._opened = opened._replace(history=())
        self._bench.prompt.area.past = PromptHistory(opened.past)
        from kimi_tui.projection.session_model import reduce
        from kimi_tui.wire.events import EventRecord

        state = self.state._replace(parts=parts)
        if "session" in parts:
            self.soul = opened.soul
            if "model" not in parts and not self.launch.external_agent:
                # A new session, or a fork, has the same agent.
                stored = opened.soul.session.state.external_agent
                self.launch = self.launch._replace(external_agent=(stored,))
            # The header is updated first, since drawing a long history takes a while.
            for fact in opened.soul.facts:
                state = reduce(state, EventRecord(0, 0.0, fact))
        else:
            from kimi_tui.soul.soul import InboxTurns

            self.turns = InboxTurns(opened.soul, self.inbox)
            state = state._replace(ready=True)
        self._bench.views.begin(state)
        self._change(state)
        self._name_agent()
        if self.soul is not None:
            self._bench.start(self._prepare_model(self.soul))
            self._bench.start(self._learn_folder(self.soul))
            from kimi_tui.tui.main.drafts import Drafts

            self.drafts = Drafts(self._bench, self.soul, keeps_draft=not self.launch.demo)
            self._giving_back = self._bench.start(self.drafts.give_back(lambda: self._has_said))
        self._n_told = len(opened.history)
        self._feed = Feed(opened.soul.wire, opened.history, self._bench.tasks)
        self._drawing = self._bench.start(self._draw_events(self._feed))
        self._is_open.set()
        return opened

    def _found(self, found: EarlierSession) -> None:
        """Show the title and the last page of a stored session while the rest of it is being read."""
        bench = self._bench
        self._session_id = found.session_id
        self._change(self.state._replace(title=found.title))
        folder = short(found.folder)
        bench.header.heading = bench.header.heading._replace(folder=folder, branch=found.branch)
        bench.transcript.work_dir = str(found.folder)
        if found.end:
            bench.start(self._glance(found.end))
            return
        if found.holder:
            from kimi_tui.tui.formatting import session_words

            words = session_words(found.title)
            bench.transcript.reading = (
                f"{words} is open in another program. Waiting for it to be closed there"
            )
        else:
            count = f", {found.n_messages:,} messages" if found.n_messages else ""
            bench.transcript.reading = f"Reading {found.title or 'the session'}{count}"
        self._show_waiting()

    async def _glance(self, end: Sequence[EventRecord]) -> None:
        await self._bench.views.glance(end)
        self._show_waiting()

    async def _wants_fork(self, held: EarlierSession) -> bool:
        """Ask whether to continue in a fork of a session that another program has open; close the question when this is cancelled."""
        await in_daemon_thread(import_module, "kimi_tui.tui.dialogs.open_elsewhere")
        from kimi_tui.tui.dialogs.open_elsewhere import OpenElsewhereScreen

        # The question waits while the user types, so that it does not interrupt a message.
        quiet_s = SeenQuestion.QUIET_S
        while (left_s := self._bench.last_key_at + quiet_s - time.monotonic()) > 0:  # noqa: ASYNC110 - it sleeps as long as it must
            await asyncio.sleep(left_s)
        question = OpenElsewhereScreen(held.title, held.holder)
        try:
            return bool(await self._bench.ask(question))
        finally:
            question.dismiss(None)

    def _show_waiting(self, gone: Sequence[Said] = ()) -> None:
        """Show at the end of the chat the messages that wait for the session to be open; their events are drawn after the history."""
        if self._live or not (self.inbox.waiting or gone):
            return
        from kimi_tui.wire.events import EventRecord, SteerTaken

        now = time.time()
        events = (
            *(SteerTaken(one.id, one.text, withdrawn=True) for one in gone),
            *(one.queued for one in self.inbox.waiting),
        )
        self._bench.transcript.apply([EventRecord(0, now, event) for event in events])

    async def opened(self, needs: PartName = "session", *, quietly: bool = False) -> KimiSoul:
        """Wait until the session is open; return its engine. A notice says so meanwhile, unless `quietly`.

        Raises:
            PartMissing: the engine lacks the part that is needed.
        """
        if not self._is_open.is_set():
            self._bench.screen.post_message(self.OpenWanted())
            if not quietly:
                words = "The session is still opening. The command runs as soon as it is open."
                self._bench.tell(words, topic=OPENING)
            await self._is_open.wait()
            self._bench.chat_pane.dismiss(OPENING)
        if needs not in self.state.parts:
            # This imports the engine, so it must come after the first paint.
            from kimi_tui.soul.soul import PartMissing

            raise PartMissing(needs)
        if self.soul is not None:
            return self.soul
        # If the session was closed meanwhile, this task is cancelled with it.
        never: asyncio.Future[KimiSoul] = asyncio.Future()
        return await never

    def _prompt_changed(self) -> None:
        """Update the completions and the hint over the prompt."""
        self._bench.prompt.area.post_message(PromptArea.OffersChanged())

    async def _prepare_model(self, soul: KimiSoul) -> None:
        """Have the server of the model asked for facts about it; the size of the window may change by that."""
        choice = self.launch.choice
        for words in await soul.prepare_model():
            self._bench.tell(words, level="warning")
        info = await soul.model_info()
        is_told = info is not None and not info.window_estimated
        if isinstance(choice, ModelChoice) and info is not None and is_told and not choice.window:
            from kimi_tui.config.learned_windows import note_window

            await asyncio.to_thread(
                note_window, data_dir(), choice.base_url, info.model, info.window
            )

    async def _learn_folder(self, soul: KimiSoul) -> None:
        soul.follow_files()
        gauge = self._bench.views.gauge
        try:
            async for part in soul.folder.progress():
                gauge.files_known = int(100 * part)
        finally:
            gauge.files_known = None
        facts = await soul.files_ready()
        if not self.state.has_messages:
            self._bench.transcript.facts = facts

    def use(self, launch: Launch, holds: str = "", thinking: str | None = None) -> None:
        """Use another model from the next call on.

        Args:
            launch: a launch with that model.
            holds: a sentence on how long the change lasts.
            thinking: the thinking setting for it; None keeps the present one.
        """
        self._bench.start(self._use(launch, holds, thinking))

    async def _use(self, launch: Launch, holds: str, thinking: str | None) -> None:
        soul = await self.opened()
        from kimi_tui.soul.opening import provider_of

        launch = self._thinking_likewise(launch, thinking)
        provider = await provider_of(launch, soul.session.id)
        # A future without a model of its own takes that of the launch, so both change together.
        self.launch = launch
        self._forget_form()
        soul.set_provider(provider, thinking)
        name = provider.info.model
        later = f"The agent uses {name} from its next request on."
        self._bench.tell(later if soul.running else f"The agent now uses {name}.", advice=holds)
        await self._prepare_model(soul)
        if "image_in" not in provider.info.capabilities and self._bench.transcript.has_images:
            self._bench.tell(
                f"{name} cannot see images. It gets only the names of the images in this conversation.",
                level="warning",
                advice=holds,
            )

    def _forget_form(self) -> None:
        """Remove the notice about the form of prompt and tools, since the form may be another one now."""
        from kimi_tui.wire.events import FORM_TOPIC

        self._bench.chat_pane.dismiss(FORM_TOPIC)

    def _thinking_likewise(self, launch: Launch, setting: str | None = None) -> Launch:
        """Return the launch with a setting of thinking; without one, with the present one."""
        choice = launch.choice
        if not isinstance(choice, ModelChoice):
            return launch
        setting = self.thinking[0] if setting is None else setting
        return launch._replace(choice=choice._replace(thinking=setting))

    def use_config(self, config: Config) -> None:
        """Apply a changed configuration, as far as it can change within a session."""
        self.launch = self.launch._replace(config=config)

    # --- completions of command arguments

    @property
    def values(self) -> Values:
        """The known models and thinking settings; of an external agent its models and modes."""
        if self.soul is not None and "model" not in self.state.parts:
            modes, models, thinking = self.soul.agent_values
            return Values(models, thinking, modes=tuple((name, "") for name in modes))
        models = self.launch.config.models
        known = {model.model for model in models.values()}
        listed = (name for name in self._listed if name not in known and name not in models)
        return Values((*models, *listed), self.thinking[1])

    @property
    def thinking(self) -> tuple[str, tuple[str, ...]]:
        """The thinking setting (empty for none), and the settings that the model accepts."""
        choice, model = self.launch.choice, self.state.model
        if model is not None:
            return model.setting, model.choices
        return choice.thinking if isinstance(choice, ModelChoice) else "", ()

    def learn_models(self) -> None:
        """Ask the server in the background for its models; once, unless it could not be asked."""
        choice = self.launch.choice
        if self.launch.demo or self.launch.external_agent or not isinstance(choice, ModelChoice):
            return
        if not _is_same_server(choice, self._asked_for_models):
            self._asked_for_models = choice
            self._bench.start(self._learn_models(choice))

    async def _learn_models(self, choice: ModelChoice) -> None:
        # The import takes half a second, so it runs in a thread.
        await in_daemon_thread(import_module, "kimi_tui.llm.models")
        from kimi_tui.config.keyring import real_key
        from kimi_tui.config.settings import ConfigError
        from kimi_tui.foreign_text import one_line
        from kimi_tui.llm.errors import LLMError
        from kimi_tui.llm.models import chat_models

        try:
            key = await asyncio.to_thread(real_key, choice.api_key)
            found = (await chat_models(choice.base_url, key, choice.headers)).models
        except (LLMError, ConfigError):
            # The list of `/model` shows the error; the server is asked again with the next argument.
            self._asked_for_models = None
            return
        if _is_same_server(choice, self._asked_for_models):
            # A name that cannot be typed cannot be completed.
            self._listed = tuple(model.id for model in found if model.id == one_line(model.id))
            self._prompt_changed()

    def stop_feed(self) -> None:
        """Stop drawing events: the screen is gone."""
        if self._drawing is not None:
            self._drawing.cancel()
        if self._feed is not None:
            self._feed.stop()

    async def close(self, *, clean: bool = True, goes_on: Demo | None = None) -> str:
        """Save and release the session; returns a sentence on what could not be saved.

        Args:
            clean: whether the program ends in order, and not by a crash.
            goes_on: a demo that is not to be removed, because the next session is in it.
        """
        self.stop_feed()
        COLLECTOR.abandon()
        if self._session_id and not self.launch.demo:
            self.resume_hint = resume_hint(self.state.title, self._session_id)
        if self._naming is not None:
            self._naming.cancel()
        if self.drafts is not None:
            await self.drafts.close()
        lost = await self._release()
        await asyncio.to_thread(self._keep_unsent)
        opened, self._opened = self._opened, None
        demo = opened.demo if opened is not None else None
        if demo is not None and demo is not goes_on:
            self.kept = await asyncio.to_thread(demo.leave, clean)
        return lost

    def keep_at_once(self) -> None:
        """Store the draft, and set `unsent_text` to the text that could not be stored. The watchdog's thread calls this when
        the event loop hangs.
        """
        if self.launch.demo:
            return
        if self.drafts is not None:
            self.drafts.keep_at_once()
        self._keep_unsent()
        if self._session_id and self.soul is not None:
            self.resume_hint = resume_hint(self.state.title, self._session_id)

    def _keep_unsent(self) -> None:
        """Store the text that no open session has stored, and set `unsent_text` to what could not be stored. It blocks."""
        if self.launch.demo:
            return
        from kimi_tui.tui.main.drafts import Unsent

        bench, drafts = self._bench, self.drafts
        waiting = self._inbox.unkept if self._inbox is not None else ()
        unsent = Unsent.of(waiting, bench.prompt.area.draft, drafts, bench.images)
        if drafts is not None and drafts.is_given_back:
            self.unsent_text = unsent.words(drafts.trouble)
            return
        launch = self.launch
        root = launch.kept_in or data_dir()
        self.unsent_text = unsent.keep(root, launch.work_dir, launch.continued)

    async def _release(self) -> str:
        """Stop running work, save, and release the engine; return a sentence on parts that could not be saved."""
        soul, self.soul = self.soul, None
        turns, self.turns = self.turns, None
        lost = ""
        if turns is not None:
            await turns.aclose()
        if soul is not None:
            await soul.aclose()
            lost = await soul.save()
            if lost and not await asyncio.to_thread(soul.session.is_stored):
                self.resume_hint = ""  # there is no session to resume
            lost = lost or soul.unsynced_words
        await self._bench.tasks.close()
        return lost

    # --- the user's actions

    def say(self, text: str, when: When = "now") -> None:
        """Send a message to the agent: as a new turn, or into the running one; before the session is open it waits."""
        self._has_said = True
        if in_text(text) or self._n_coming:
            self._n_coming += 1
            self._bench.start(self._say_with_images(text, when))
        else:
            self._say(text, (), when)

    def _say(self, text: str, images: Sequence[Image], when: When) -> None:
        """Send a message at once; if the model does not accept it, it goes back into the prompt."""
        from kimi_tui.llm.errors import ModelCannotSee

        try:
            self._queue_up(text, images, when)
        except ModelCannotSee:
            self._bench.keep(text)

    def _queue_up(
        self,
        text: str,
        images: Sequence[Image] = (),
        when: When = "now",
        work: Callable[[], Coroutine[Any, Any, object]] | None = None,
    ) -> None:
        if not self._live:
            self._bench.screen.post_message(self.OpenWanted())
        agent = self.soul or self.turns
        says = agent.say if agent is not None else self.inbox.say
        says(text, images, when, work)
        self._show_waiting()

    async def _say_with_images(self, text: str, when: When) -> None:
        """Send a message with the images of its chips; messages sent while these are read come after it."""
        try:
            async with self._order:
                images = await self._images_of(text)
                if images is None:
                    self._bench.keep(text)
                else:
                    self._say(text, images, when)
        finally:
            self._n_coming -= 1

    async def _images_of(self, text: str) -> tuple[Image, ...] | None:
        """Return the images of the chips in a message; None if one is missing, after showing a notice about it."""
        found: list[Image] = []
        lost = self._bench.images.lost(text)
        for chip, known in self._bench.images.of(text).items():
            image = known.image or await self._stored_image(known.facts)
            if image is None:
                lost.append(chip)
            else:
                found.append(image)
        if not lost:
            return tuple(found)
        self._bench.tell(
            f"{lost[0][1:-1].capitalize()} no longer exists, so nothing was sent.",
            level="warning",
            advice="Paste it again, or delete it from the message.",
        )
        return None

    async def store_images(self, text: str) -> tuple[ImageBlock, ...] | None:
        """Store the images of the chips in a text in the session, and return them; None if one is missing, after a notice about it.

        Raises:
            StorageTrouble: the disk refused.
        """
        if not in_text(text):
            return ()
        images = await self._images_of(text)
        if images is None:
            return None
        from kimi_tui.tool_cards import ImageBlock

        store = (await self.opened()).session.images
        for image in images:
            await asyncio.to_thread(store.put, image)
        return tuple(map(ImageBlock.of, images))

    async def _stored_image(self, facts: ImageBlock) -> Image | None:
        soul = await self.opened(quietly=True)
        return await soul.image(facts)

    async def load_image(self, facts: ImageBlock) -> bytes | None:
        """Return the file of an image; None if it no longer exists."""
        image = self._bench.images.by_hash(facts.sha256) or await self._stored_image(facts)
        return image.data if image is not None else None

    def run_command(self, command: str, text: str, *, told: bool) -> None:
        """Run a shell command of the user, which they typed as `text`, when its turn comes."""

        async def run() -> object:
            return await (await self.opened()).run_command(command, told=told)

        self.carry_out(text, run)

    def carry_out(
        self, text: str, work: Callable[[], Coroutine[Any, Any, object]], when: When = "now"
    ) -> None:
        """Queue a command, which the user typed as `text`, to be carried out after the running work and earlier messages."""
        self._queue_up(text, (), when, work)

    @property
    def follow_ups(self) -> tuple[str, ...]:
        """The messages that wait for the end of the turn, oldest first."""
        return tuple(queued.text for queued in self.state.queued if queued.is_later)

    def go_on(self) -> None:
        """Retry at once if a retry waits; else have the agent continue without a new message."""
        soul = self.soul
        if soul is None or not self._live:
            self._began_early = True
            self._bench.screen.post_message(self.OpenWanted())
            return
        if self.state.retry_until > time.time():
            soul.retry_now()
        elif self.state.can_resume and not soul.running:
            self._bench.start(self._resume(soul))

    async def _resume(self, soul: KimiSoul) -> None:
        """Start a turn without a new message; its last event tells why it ended."""
        from kimi_tui.soul.kimisoul import TURN_ERRORS

        with contextlib.suppress(*TURN_ERRORS):
            await soul.resume()

    @property
    def undo_at_stake(self) -> str:
        """The id of the undo that could be redone until the agent continues; empty if there is none, or nothing would continue."""
        soul = self.soul
        if soul is None or soul.running or not self.state.can_resume:
            return ""
        context = soul.session.context
        entries = context.journal.entries
        newest = entries[-1] if entries else None
        if newest is None or newest.op != "undo" or newest.to_size != context.size_bytes:
            return ""
        return newest.id

    def resume(self) -> None:
        """Start a turn without a new message, as after a D-Mail; do nothing while one is running."""
        soul = self.soul
        if soul is not None and not soul.running:
            self._bench.start(self._resume(soul))

    async def use_tools(self, wish: ToolsWish, added: tuple[str, ...] = ()) -> None:
        """Send all, few or no tools with requests; without tools, a turn that failed because the model refused tools continues."""
        soul = await self.opened()
        self._forget_form()
        soul.use_tools(wish, added)
        if wish == "off" and self.state.can_resume and not soul.running:
            self.go_on()

    async def set_thinking(self, word: str) -> None:
        """Set whether and how much the model thinks from the next call on; without a word, show the present setting."""
        soul = await self.opened()
        from kimi_tui.llm.dialects import thinking_in_words
        from kimi_tui.llm.errors import LLMError

        # The server may report which settings its model accepts; usually it has answered by now.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PROBE_S):
                await soul.model_info()
        if not soul.model_name:
            return
        try:
            if word:
                soul.set_thinking(word)
        except LLMError as error:
            self._bench.tell(error.message, level="warning")
            return
        model = soul.model_facts
        name, effort = model_name(model.name), model.effort
        self._bench.tell(
            thinking_in_words(name, bool(model.thinking), effort, model.choices),
            advice=await self._thinking_kept(model.setting) if word else "",
        )

    async def _thinking_kept(self, setting: str) -> str:
        """Store the thinking setting for this folder; return a sentence on how long it holds."""
        from kimi_tui.config.model_choice import keep_folder_thinking

        if self.launch.demo:
            return ""
        try:
            await asyncio.to_thread(keep_folder_thinking, self.launch.work_dir, setting)
        except OSError as error:
            return f"It applies to this session only, because it could not be saved: {reason_of(error)}."
        return "It applies to this folder from now on."

    def stop(self) -> bool:
        """Stop the running turn or operation, or put waiting messages back into the prompt; return False if there is neither."""
        agent = self.soul or self.turns
        if agent is not None and agent.running:
            self._bench.start(agent.interrupt())
            return True
        return agent is not None and self.give_back()

    async def compact(self, instructions: str) -> None:
        """Compact now, or when the running turn has ended."""
        soul = await self.opened()
        if soul.running:
            self._bench.tell(
                "The conversation will be compacted when this turn ends.", in_turn=True
            )
        await soul.compact(instructions, waits=True)

    def take_back(self) -> str | None:
        """Take back and return the last waiting message; None if no message waits."""
        said = self.inbox.take_back_last()
        if said is None:
            return None
        self._show_waiting((said,))
        if self.drafts is not None:
            self.drafts.returned((said.text,))
        return said.text

    def give_back(self) -> bool:
        """Put all waiting messages back into the prompt; return False if there are none."""
        taken = self.inbox.take_back_all()
        self._show_waiting(taken)
        if taken:
            self._put_back([said.text for said in taken])
        return bool(taken)

    def _put_back(self, texts: Sequence[str]) -> None:
        self._bench.give_back(texts)
        if self.drafts is not None:
            self.drafts.returned(texts)

    def answer(self, request_id: str, answer: ApprovalAnswer, feedback: str) -> None:
        """Answer an approval request."""
        if self.soul is not None:
            self.soul.answer(request_id, answer, feedback)

    async def rename(self, title: str) -> str:
        """Set the session's title; an empty one resets it to the beginning of the first message. Return the new title.

        Raises:
            StorageTrouble: the title could not be written; the old one stays.
        """
        return await (await self.opened()).rename(title)

    @property
    def mode(self) -> Mode:
        """The approval mode, even if the event of its last change is not drawn yet."""
        return self.state.mode if self.soul is None else self.soul.mode

    @property
    def next_mode(self) -> Mode:
        """The mode that the mode key switches to from the present one."""
        modes: list[Mode] = ["ask", "edits"]
        if self.soul is not None and self.soul.sandbox_gaps == ():
            modes.append("sandboxed")
        if self.allows_all:
            modes.append("all")
        modes.append("plan")
        mode = self.mode
        return modes[(modes.index(mode) + 1) % len(modes)] if mode in modes else "ask"

    @property
    def used_values(self) -> Mapping[str, GivenValue]:
        """The values that this session uses now, with their sources, of settings that need not be set."""
        if self.soul is None or self.launch.external_agent:
            return {}
        begins = "sandboxed" if self.soul.sandbox_gaps == () else "ask"
        source = "automatic" if self.mode == begins else "this session"
        found = {"mode": GivenValue(self.mode, source)}
        if (thinking := self.thinking[0]) and thinking != self.launch.config.default_thinking:
            found["default_thinking"] = GivenValue(thinking, "this session")
        choice = self.launch.choice
        if isinstance(choice, ModelChoice) and not self.launch.config.default_model:
            found["default_model"] = GivenValue(choice.model, "this session")
        return found

    @property
    def demo(self) -> Demo | None:
        """The demo that the session belongs to; None if it is not one."""
        return self._opened.demo if self._opened is not None else None

    def new_launch(self) -> Launch:
        """Return the launch of a new session in the same folder."""
        return self._thinking_likewise(self.launch)._replace(
            resume=None, fork=False, in_demo=None, notices=(), prompt="", offers_files=False
        )

    def fork_launch(self, session_id: str, prompt: str, more: str = "") -> Launch:
        """Return the launch of a fork of this session.

        Args:
            session_id: the id of the fork.
            prompt: the initial text of its prompt.
            more: a further sentence for the notice about it.
        """
        # The fork looks the same as its origin, so the notice says which one it is.
        words = f"{FORKED}{more}"
        return self._thinking_likewise(self.launch)._replace(
            resume=session_id,
            fork=False,
            in_demo=self.demo,
            plays=False,
            notices=(words,),
            prompt=prompt,
            offers_files=False,
        )

    # --- the engine's events

    async def _draw_events(self, feed: Feed) -> None:
        """Draw the history, then live events. A fault in one part does not stop the others."""
        async for records in feed.history():
            self._draw(records)
        with self._reported():
            await in_slices(self._bench.views.settle_history(), HISTORY_SLICE_S)
        with self._reported():
            self._caught_up()
        async for records in feed.live():
            self._draw(records)

    def _draw(self, records: Sequence[EventRecord]) -> None:
        with self._reported(), COLLECTOR.paused():
            self._show(records)

    @contextlib.contextmanager
    def _reported(self) -> Generator[None]:
        """Return a context whose errors are reported and not raised."""
        try:
            yield
        except Exception as error:
            self._report(error)

    def _show(self, records: Sequence[EventRecord]) -> None:
        from kimi_tui.wire.events import (
            FORM_TOPIC,
            STREAMED,
            Notice,
            SteerTaken,
            TurnBegin,
            TurnEnd,
        )

        # An agent beside that of the session has turns, waiting messages and notices of its own.
        if beside := [record for record in records if record.source]:
            records = [record for record in records if not record.source]
            if self._live:
                self._bench.views.play_beside(beside)
            if not records:
                return
        bench, before, ended = self._bench, self.state, None
        if self._live:
            bench.views.play(records)
        else:
            bench.views.add_history(records)
        for record in records:
            event = record.event
            if isinstance(event, (TurnBegin, SteerTaken)) and event.images:
                # A rewind, or the arrows, may bring the message back into the prompt.
                bench.images.with_chips(event.text, event.images)
            if isinstance(event, TurnBegin) and self.soul is not None:
                self._session_id = self.soul.session.id
        if self._since is not None:
            self._since += records
        if not self._live:
            return
        if told := [record for record in records if not isinstance(record.event, STREAMED)]:
            self._bench.screen.post_message(self.EventsShown(told))
        handed_back: list[str] = []
        for record in told:
            match record.event:
                case TurnEnd() as ended:
                    pass
                case TurnBegin() as begin:
                    if before.has_messages:
                        # The second message begins: the notice was there long enough to be read.
                        bench.chat_pane.dismiss(FORM_TOPIC)
                    if self.demo is not None and not begin.resumed:
                        self.demo.suggestions.said(begin.text)
                case SteerTaken(text=text, handed_back=True):
                    handed_back.append(text)
                case Notice() as notice:
                    self._notify(notice)
                case _:
                    pass
        state = bench.views.session.state
        self._change(state)
        self._name_agent()
        if handed_back:
            self._put_back(handed_back)
        if ended is not None:
            if self._is_unnamed and ended.reason == "done" and not state.own_command:
                self._is_unnamed = False
                self._naming = self._bench.start(self._name())
            if self.demo is not None:
                self.demo.suggestions.ended(is_done=ended.reason == "done")
            if not state.can_resume:
                # After a turn that can be continued, Enter in the empty prompt continues it instead.
                self._suggest()

    async def _name(self) -> None:
        """Have the model name the session; if it gives no name, the title stays the beginning of the first message."""
        if self.soul is None:
            return
        title = await self.soul.name_session()
        # If a new turn stopped the naming, the next turn tries again.
        self._is_unnamed = title is None

    def _notify(self, notice: Notice) -> None:
        if notice.topic and notice.solved:
            self._bench.chat_pane.dismiss(notice.topic)
        stands_in_chat = notice.level != "info" and not notice.topic and not notice.solved
        if stands_in_chat and self._bench.sees_end:
            return
        # A notice about a problem stays until it is solved; the one that says so disappears after a few seconds.
        topic = "" if notice.solved else notice.topic
        self._bench.tell(notice.text, level=notice.level, advice=notice.advice, topic=topic)

    def _caught_up(self) -> None:
        """Note that the history has been shown: later events are live."""
        from kimi_tui.own_process import trim_heap

        self._live = True
        COLLECTOR.release(self._n_told)
        self._bench.views.history_told()
        self._bench.frame.drop_stored()
        self._bench.start(asyncio.to_thread(trim_heap))
        session = self._bench.views.session
        session.settle(running=self.running)
        self._change(session.state)
        self._bench.start(self._attend())
        if self._began_early and not self.inbox.waiting and (suggestion := self._suggestion):
            self.say(suggestion)
        elif not self.inbox.waiting:
            self._suggest()

    async def _attend(self) -> None:
        """Let queued messages begin turns, after the texts that a killed program left have been given back."""
        giving_back = self._giving_back if self.soul is not None else None
        if giving_back is not None:
            await asyncio.wait([giving_back])
        attending = self.soul if giving_back is not None else self.turns
        # A session that has ended meanwhile has neither.
        if attending is not None:
            await attending.attend()

    @property
    def _suggestion(self) -> str:
        """The next message that the demo suggests; empty at its end, and outside of the demo."""
        return self.demo.suggestions.next if self.demo is not None else ""

    def _suggest(self) -> None:
        if self.demo is not None:
            self._bench.screen.post_message(self.Suggested(self._suggestion))

    def cost_words(self) -> str:
        """Return the cost of the session so far; empty if no prices are set."""
        from kimi_tui.tui.formatting import cost_words

        cost = self.soul.cost if self.soul is not None else None
        return cost_words(cost) if cost is not None else ""

    def rebuild(self) -> None:
        """Rebuild chat, timeline and gauge from the stored session, after an operation whose events do not determine their state."""
        soul = self.soul
        if soul is not None and self._since is None:
            self._since = []
            self._bench.start(self._rebuild(soul))

    async def _rebuild(self, soul: KimiSoul) -> None:
        try:
            # As long as the operation runs, the record alone is told, which lacks what a future said.
            await soul.settled()
            newest = soul.wire.newest_seq
            history = await soul.history()

            def since() -> list[EventRecord]:
                if self._live and self._feed is not None and (waiting := self._feed.take()):
                    # An event of the history that is drawn later would be shown twice.
                    self._draw(waiting)
                told, self._since = self._since or [], []
                return [record for record in told if record.seq > newest]

            self._bench.is_whole = await self._bench.views.rebuild(history, since)
        finally:
            self._since = None

    def _name_agent(self) -> None:
        """Show an external agent and its mode in the header, in the place of our mode, which does not bind it."""
        if self.soul is not None and "model" not in self.state.parts:
            header, words = self._bench.header, self.soul.agent_words
            # Until the agent names its model, the name of the agent stands for it.
            model = header.heading.model if header.heading.model != self.soul.name else ""
            if (header.heading.words, header.heading.model) != (words, model):
                header.heading = header.heading._replace(words=words, model=model)

    def _change(self, state: SessionState) -> None:
        old, self.state = self.state, state
        if old.queued != state.queued and self.drafts is not None:
            self._bench.start(self.drafts.keep_images())
            self._prompt_changed()
        if old == state:
            return
        bench = self._bench
        bench.prompt.state = state
        model = ""
        if state.model is not None and state.model.name:
            model = f"{model_words(state.model)}{_TOOLS_WORDS[state.tools]}"
        bench.header.heading = bench.header.heading._replace(
            title=state.title or ("" if state.ready else bench.opening),
            mode=state.mode,
            model=model or bench.header.heading.model,
            unsaved=state.unsaved,
        )
        self._bench.screen.post_message(self.StateChanged(old, state))


_TOOLS_WORDS = {"on": "", "lean": " lean", "off": " without tools"}


def _is_same_server(choice: ModelChoice, other: ModelChoice | None) -> bool:
    return other is not None and (choice.base_url, choice.api_key) == (
        other.base_url,
        other.api_key,
    )


def resume_hint(title: str, session_id: str) -> str:
    """Return one line for the terminal on how to resume a session."""
    from kimi_tui.foreign_text import one_line
    from kimi_tui.invocation import command_words
    from kimi_tui.tui.formatting import cut

    name = cut(one_line(title), WAY_BACK_TITLE_CELLS)
    command = command_words("--session", session_id)
    return f'continue "{name}": {command}' if name else f"continue: {command}"


def model_words(model: ModelChanged) -> str:
    """Return the model as the header names it."""
    thinking = f" thinking {model.effort}".rstrip() if model.thinking else ""
    return f"{model_name(model.name)}{thinking}"
