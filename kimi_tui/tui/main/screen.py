"""The main screen: its parts and their places, and what the keys, the prompt, the chat and the timeline set off."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, Unpack, cast

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.screen import Screen

from kimi_tui.app_paths import data_dir, short
from kimi_tui.image_names import BEGINS
from kimi_tui.launch import Launch
from kimi_tui.tui.commands import marks, rewind, world_lines
from kimi_tui.tui.commands.table import COMMANDS
from kimi_tui.tui.faults import report_of
from kimi_tui.tui.frame import Footer, SessionFrame, branch_of, heading_of
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.keyboard import key_of
from kimi_tui.tui.main.approval_slot import ApprovalSlot
from kimi_tui.tui.main.completion import Completion
from kimi_tui.tui.main.conversation import Conversation
from kimi_tui.tui.main.demo import DEMO_QUESTION, PLAYED_QUESTION, DemoPlayer, demo_hints
from kimi_tui.tui.main.hints import (
    HELP_TITLES,
    MODES,
    Place,
    first_hints,
    hints,
)
from kimi_tui.tui.main.keystrokes import BEHIND, Keystrokes
from kimi_tui.tui.notices import STAYS_S, Notice, NoticeDetails
from kimi_tui.tui.prompt.area import Draft, PromptArea
from kimi_tui.tui.prompt.bar import PromptBar
from kimi_tui.tui.prompt.command import Command, CommandTable, ParsedLine, Values, sent_text
from kimi_tui.tui.prompt.image_chips import in_text
from kimi_tui.tui.screens import (
    AnswersOnce,
    CannotOpen,
    DiskRefuses,
    ModelMissing,
    NoModelNamed,
    OpeningFailed,
    QuitChosen,
    SessionChosen,
    add_sheets,
    app_of,
    sheets,
)
from kimi_tui.tui.state import MainState, Prospect, Queued
from kimi_tui.tui.transcript.transcript import Transcript, copy_selection

if TYPE_CHECKING:
    from textual.widget import Widget
    from textual.worker import Worker

    from kimi_tui.demo.demo import Demo
    from kimi_tui.images import Image
    from kimi_tui.tui.app import KimiApp
    from kimi_tui.tui.approval.panel import ApprovalPanel
    from kimi_tui.tui.main.first_time_hints import FirstTimeHints
    from kimi_tui.tui.main.image_input import ImageInput
    from kimi_tui.tui.main.prompt_modes import PromptModes
    from kimi_tui.tui.main.reader import Reader
    from kimi_tui.tui.main.session_setup import EarlierSession
    from kimi_tui.tui.timeline.timeline import Timeline
    from kimi_tui.tui.views import Views
    from kimi_tui.tui.worldline import WorldLineTranscript
    from kimi_tui.wire.display import ImageBlock
    from kimi_tui.wire.events import EventRecord, LineChanged

T = TypeVar("T")

OPEN_DELAY_S = 0.15
RESUME_DELAY_S = 0.02
"""Where somebody waits for the last page of a session."""
OPENING = "Opening the session"
NOT_OPEN = "The session is not open"
REFUSED = "refused"
"""Topic of the notice that the disk let no session be opened."""
READING = "Reading the session"
WARNED_S = 10.0
TWICE_S = 1.0
TOLD_LIMIT = 200
"""Notices that are kept to be read again."""
OFFERED = 50
"""Checkpoints, or world lines, that are offered behind a command."""
QUIT = "quit"
"""Topic of the notice that the key just pressed quits when it comes again."""
QUITTING = ("ctrl+c", "ctrl+d")
AS_MESSAGE = "A blank before the slash sends it as a message."


class MainScreen(Screen[None]):
    """Chat, timeline, gauge and prompt of one session.

    Args:
        launch: how to start.
        size: of the terminal.
        last_key_at: tells when a key was last pressed, in monotonic time.

    Attributes:
        commands: all that can be run here.
        keys: those of the configuration, by action.
        conversation: the session that is shown.
        keystrokes: where what is typed lands.
        n_changes: how many operations have changed what is live or its files since the session was opened.
        told: the newest notices, oldest first.
        first_time_hints: None before the session is open, and in a demo.
    """

    AUTO_FOCUS = "PromptArea"
    """From the first moment: Textual gives the keys to the first that takes them, and each change styles it anew."""
    SHEETS = sheets("main", "prompt", "chat")
    CSS_PATH = SHEETS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "escape", "Stop, or back", id="escape", show=False),
        # Where nothing else takes it; Textual would go round all that can have the keys, the timeline among them.
        Binding("tab", "go_round(1)", "Chat, timeline, prompt", show=False),
        Binding("ctrl+c", "leave_or_copy('Ctrl+C')", "Copy, stop or quit", show=False),
        Binding("ctrl+d", "leave_or_copy('Ctrl+D')", "Quit", show=False),
        *(
            Binding(command.key, f"command('{command.name}')", command.title, id=command.name)
            for command in COMMANDS
            if command.key and command.name != "quit"
        ),
    ]

    def __init__(self, launch: Launch, size: Size, last_key_at: Callable[[], float]) -> None:
        super().__init__()
        self.keys = launch.config.keys
        hints, question = first_hints(self.keys), ""
        if launch.demo:
            hints = demo_hints(self.keys, plays=launch.plays)
            question = PLAYED_QUESTION if launch.plays else DEMO_QUESTION
        self.commands = CommandTable(*COMMANDS)
        self._learned = asyncio.Event()
        """Whether the commands of files are among them."""
        self._launch = launch
        self._opening = OPENING if launch.resume is not None else ""
        self.transcript = Transcript(work_dir=str(launch.work_dir), hints=hints, question=question)
        self.transcript.keys = self.keys
        self.transcript.reading = READING if launch.resume is not None else ""
        self.n_changes = 0
        self.told: deque[Notice] = deque(maxlen=TOLD_LIMIT)
        self.conversation = Conversation(launch, self)
        heading = heading_of(launch)._replace(title=self._opening)
        self._frame = SessionFrame(self, launch, size, heading, self.transcript)
        self.header = self._frame.header
        self.chat_pane = self._frame.chat_pane
        self.timeline_pane = self._frame.timeline_pane
        self.prompt = PromptBar(key_of("send", self.keys))
        self.completion = self.prompt.area.completion = Completion(self)
        self.footer = Footer()
        self.keystrokes = Keystrokes(self, last_key_at)
        self._approvals = ApprovalSlot(self, last_key_at)
        self._demo = DemoPlayer(self, launch, last_key_at)
        self._reader: Reader | None = None
        self._prompt_modes: PromptModes | None = None
        self._image_input: ImageInput | None = None
        self.first_time_hints: FirstTimeHints | None = None
        self._returned = rewind.ReturnedMessages()
        self._uses: list[str] = []
        """What was sent and the menu is not ordered by yet."""
        self._is_whole = True
        """Whether all that happened could be shown when it was last drawn anew."""
        self._is_left = False
        """Whether another session was chosen to take its place."""
        self._is_looking = False
        """Whether the branch is being looked at."""
        self._timeline_from: Widget | None = None
        """What had the keys before the timeline."""
        self._chat_from: Widget | None = None
        """What had the keys before the chat, and gets them back; None for the prompt."""
        self._search_from: Widget | None = None
        """What had the keys before the search."""
        self._warned_at = -WARNED_S
        self._escaped_at = 0.0
        self._looked: Prospect | None = None
        """What going to the selected row of the timeline would leave, as it told last; None while none is looked at."""
        self._foreseen: Prospect | None = None
        """What chat and gauge show."""
        self._opener: Worker[None] | None = None
        self._refused = ""
        """Why the disk let no session be opened."""
        self._of_line: AnswersOnce[Any] | None = None
        """The question of `ask_of_line`; None while there is none."""
        self._quits_at: float | None = None
        """When it was said that the key quits if it is pressed again; None when it does not."""

    def compose(self) -> ComposeResult:
        """The parts, from the top."""
        yield from self._frame.compose()
        yield self.prompt
        yield self.footer

    def on_mount(self) -> None:
        """Prepare the prompt; the rest comes when the first picture stands."""
        self.prompt.area.images = self.kimi.images
        self.transcript.load_image = self._load_image
        if self._launch.config.prompt.vim:
            self.prompt.area.use_vim(on=True)
        if self._launch.prompt:
            self.prompt.area.put_sent(self._launch.prompt)
        # Before the first picture, which would else be followed by another one.
        self._update_footer()
        # A moment after the first picture: importing straight after it would hold up the first key.
        delay_s = OPEN_DELAY_S if self._launch.resume is None else RESUME_DELAY_S
        self.call_after_refresh(self.set_timer, delay_s, self._open)

    def on_unmount(self) -> None:
        """Let go of what the session is drawn from: Textual holds the very first screen as long as the program runs."""
        self.conversation.stop_feed()
        self._frame.views = self._reader = None

    @property
    def views(self) -> Views:
        """Chat, timeline and gauge. The latter two are imported and put in their places when they are first needed."""
        views = self._frame.views
        if views is None:
            views = self._frame.furnish("approval", broken=self._view_broken)
            views.timeline.reading = READING if self.transcript.reading else ""
            views.gauge.cost_words = self.conversation.cost_words
        return views

    def text_select_all(self) -> None:
        """A third click on a row of the frame selects that row, as the second did, and not all that is on the screen."""

    def on_resize(self, event: events.Resize) -> None:
        """Other sizes have other places for the timeline and less air."""
        self._frame.fit(event.size)

    # --- beginning and end

    def _open(self) -> None:
        if not self._is_left:
            self._opener = self.run_worker(self._open_session, name="open the session")

    async def end(self, *, clean: bool = True, goes_on: Demo | None = None) -> str:
        """Save and release the session, as `Conversation.close`; one that is still being opened comes no more.

        Textual ends the screen's workers with the screen, after it has taken away what they would work on.
        """
        self._is_left = True
        if self._opener is not None:
            self._opener.cancel()
        return await self.conversation.close(clean=clean, goes_on=goes_on) or self._refused

    async def _open_session(self) -> None:
        # In a thread, so that no key waits for it.
        for name in ("timeline.timeline", "gauge"):
            await asyncio.to_thread(import_module, f"kimi_tui.tui.{name}")
        if not self.is_attached:
            return  # the program is ended already
        assert self.views  # in their places before anything happens
        try:
            opened = await self.conversation.open()
        except NoModelNamed as error:
            self.post_message(ModelMissing("" if error.listed else str(error)))
            return
        except DiskRefuses as error:
            self._tell_refused(str(error))
            return
        except CannotOpen as error:
            self.post_message(OpeningFailed(str(error), error.code))
            return
        self.header.heading = self.header.heading._replace(
            folder=short(opened.folder), branch=opened.branch
        )
        self.transcript.work_dir = str(opened.folder)
        self.prompt.area.past = opened.past
        # A file may be named already, and can be offered now.
        self.follow_prompt()
        self.start(self._learn_commands(opened.past.entries))
        self.transcript.reading = ""
        if notices := (*self._launch.notices, *opened.notices):
            # As one list: each would else cover the one before.
            self.tell(notices[0], level="warning", more=notices[1:])
        if self._launch.offers_files:
            self.start(rewind.offer_files(self))
        if not self._launch.demo:
            from kimi_tui.app_paths import hints_file
            from kimi_tui.tui.main.first_time_hints import FirstTimeHints

            self.first_time_hints = FirstTimeHints(self, hints_file(data_dir()))
            await self.first_time_hints.learn()

    def _tell_refused(self, words: str) -> None:
        """The disk took no session: what was written stays in the prompt, and the next thing that needs one tries again."""
        self._refused = words
        self.transcript.reading = NOT_OPEN
        self.conversation.give_back_early()
        advice = f"What is written stays here. {key_of('send', self.keys)} tries it again."
        self.tell(words, level="error", advice=advice, topic=REFUSED)

    def open_again(self) -> None:
        """Try again to open the session, where the disk refused it."""
        if self._refused and not self._is_left:
            self._refused = ""
            self.solved(REFUSED)
            self.transcript.reading = READING
            self._open()

    async def may_end(self) -> bool:
        """Whether all is saved and nothing runs; else the user is told once what would be lost, and may do it again."""
        soul = self.conversation.soul
        words = "" if soul is None else await soul.save()
        now, jobs = time.monotonic(), self.conversation.state.jobs
        if not (words or jobs) or now - self._warned_at < WARNED_S:
            return True
        self._warned_at = now
        if words:
            self.tell(
                words, level="error", advice="Do it again to leave without what is not saved."
            )
        else:
            run = "1 command runs" if jobs == 1 else f"{jobs} commands run"
            self.tell(
                f"{run} in the background and would end with this session.",
                level="warning",
                advice="Do it again to end it all; /jobs lists them.",
            )
        return False

    # --- commands

    def action_command(self, name: str, argument: str = "") -> None:
        """Run a command of the table; one that needs an argument and has none is begun in the prompt."""
        command = self.commands[name]
        if command.needs_argument and not argument:
            self.focus_prompt()
            self.keep(f"/{name} ")
            self.tell(f"{command.usage}: {command.help}")
        elif (work := command.handler(self, argument)) is not None:
            self.start(work, opens=command.opens)

    def start(self, work: Coroutine[Any, Any, None], *, opens: bool = False) -> None:
        """Carry out what a key, a click or a command has set off, as a task of the session; its failure is told.

        Args:
            work: that.
            opens: it opens a screen or a field, which what is typed until then is meant for.
        """
        self.conversation.start(work, self.keystrokes.type_ahead.opening() if opens else None)

    @contextmanager
    def leaving(self) -> Generator[None]:
        """Hold keys back in this context: for the session that it calls `leave_for` with, or if it calls for none, for this one."""
        self.keystrokes.type_ahead.leave()
        self._is_left = False
        try:
            yield
        finally:
            if not self._is_left:
                self.keystrokes.type_ahead.stay()

    def leave_for(self, launch: Launch) -> None:
        """Let another session take the place of this one."""
        self._is_left = True
        self.keystrokes.type_ahead.leave()
        self.post_message(SessionChosen(launch))

    async def ask_of_line(self, question: AnswersOnce[T | None]) -> T | None:
        """Ask about an operation on the conversation as it is; None also when another operation changes that first."""
        self._of_line = question
        try:
            return await self.ask(question)
        finally:
            self._of_line = None

    def _line_changed(self) -> None:
        self.n_changes += 1
        question = self._of_line
        if question is not None and question.is_current:
            if question.armed:
                self.tell("The conversation is another one now.", advice="Choose again.")
            question.dismiss(None)

    async def ask(self, question: Screen[T | None]) -> T | None:
        """Show a screen over this one; its answer, None where the user stays where they are."""
        answered: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()

        def take(answer: T | None) -> None:
            if not answered.done():
                answered.set_result(answer)

        app_of(self).push_screen(question, take)
        return await answered

    @property
    def kimi(self) -> KimiApp:
        """The app, for what only it can do: other sessions, models and themes."""
        return cast("KimiApp", app_of(self))

    # --- notices and faults

    def tell(self, text: str, **details: Unpack[NoticeDetails]) -> None:
        """Show a notice for a few seconds; with a topic, until that is solved; with `more`, several that came at once."""
        here, there = self.chat_pane, self.timeline_pane
        if self.timeline_pane.floats and not details.get("topic"):
            # It would cover what is said in the chat; what stays until solved is there afterwards.
            here, there = there, here
        there.solve()
        self.told.append(here.tell(text, **details))

    def solved(self, topic: str) -> None:
        """Take the notice of a topic away."""
        self.chat_pane.solve(topic)

    def _view_broken(self, error: Exception) -> None:
        """Chat, timeline or gauge could not take an event: all of them are built anew, as long as that helps."""
        report_of(self)(error)
        if self._is_whole:
            self.conversation.rebuild()

    # --- what the conversation tells

    def draw(self, records: Sequence[EventRecord], *, live: bool) -> None:
        """Show what happened in chat, timeline and gauge."""
        from kimi_tui.wire.events import (
            LineChanged,
            SteerTaken,
            ToolResult,
            TurnBegin,
            TurnEnd,
        )

        self.views.apply(records, live=live)
        for record in records:
            event = record.event
            if isinstance(event, (TurnBegin, SteerTaken)) and event.images:
                # A rewind, or the arrows, may bring the message back into the prompt.
                self.kimi.images.with_chips(event.text, event.images)
        for record in records if live else ():
            if self.first_time_hints is not None:
                self.first_time_hints.hear(record.event)
            match record.event:
                case LineChanged() as changed:
                    # Names and pins go along where an operation gave their messages another place.
                    self.show_marks()
                    # A message that came back to the chat is no longer in the prompt, and the other way round.
                    text = self._returned.changed(changed, self.prompt.area.message)
                    if text is not None:
                        self.prompt.area.put_sent(text)
                    self._line_changed()
                case TurnBegin():
                    self._returned.said()
                    self._follow_branch()
                case TurnEnd() | ToolResult():
                    self.conversation.mark_files_stale()
                    self._follow_branch()
                case _:
                    pass
        if live and self._reader is not None:
            self._reader.hear(records)

    def found(self, found: EarlierSession) -> None:
        """Show what is known of the session, until all of it is there."""
        self.header.heading = self.header.heading._replace(
            folder=short(found.folder), branch=found.branch
        )
        self.transcript.work_dir = str(found.folder)
        if found.end:
            self.views.glance(found.end)
        else:
            count = f", {found.n_messages:,} messages" if found.n_messages else ""
            self.transcript.reading = f"Reading {found.title}{count}"

    def show_waiting(self, waiting: Sequence[Queued], gone: Sequence[Queued] = ()) -> None:
        """Show at the end of the chat what waits for the session to be open."""
        if not waiting and not gone:
            return
        from kimi_tui.projection.blocks import UserBlock
        from kimi_tui.wire.events import EventRecord, SteerQueued, SteerTaken

        now = time.time()
        shown = {block.steer for block in self.transcript.blocks if isinstance(block, UserBlock)}
        events = [
            *(SteerTaken(one.id, one.text, withdrawn=True) for one in gone),
            *(SteerQueued(one.id, one.text) for one in waiting if one.id not in shown),
        ]
        self.transcript.apply([EventRecord(0, now, event) for event in events])

    @property
    def sees_end(self) -> bool:
        """Whether the end of the conversation is on the screen."""
        return not self.reading and self.transcript.follows

    def woken(self) -> None:
        """Keys that come now may have been pressed before what is on the screen was read."""
        if (panel := self.question) is not None:
            panel.wait_anew()

    def history_told(self) -> None:
        """The history was read: show all of it."""
        self.views.timeline.reading = ""
        self.views.history_told()

    async def redraw(
        self, records: Sequence[EventRecord], since: Callable[[], Sequence[EventRecord]]
    ) -> None:
        """Show these events, and what has happened since, in place of what is shown."""
        self._is_whole = await self.views.rebuild(records, since)

    def state_changed(self, old: MainState, new: MainState) -> None:
        """Pass the state on to the parts that draw it."""
        self.prompt.state = new
        model = new.model if new.tools or not new.model else f"{new.model} without tools"
        self.header.heading = self.header.heading._replace(
            title=new.title or ("" if new.ready else self._opening),
            mode=new.mode,
            model=model or self.header.heading.model,
            unsaved=new.unsaved,
        )
        if old.approvals != new.approvals:
            self._approvals.show(new.approvals)
            if not new.approvals:
                self.solved(BEHIND)
        if new.has_messages and not old.has_messages:
            # From here on the files change, so what was counted holds no more.
            self.transcript.facts = None
        if new.running != old.running:
            self.follow_prompt()
        if new.ready and not old.ready:
            self.show_marks()
        if self._reader is not None:
            self._reader.tell_news()
        self._update_footer()
        self._attract(old, new)

    def _attract(self, old: MainState, new: MainState) -> None:
        """Have the window's title follow, and tell whoever looks elsewhere that the agent asks, or is done."""
        attention, app = self.kimi.attention, app_of(self)
        folder = Path(self.transcript.work_dir).name
        attention.follow(
            folder=folder,
            title=new.title,
            working=new.running or new.compacting,
            asking=bool(new.approvals),
        )
        if not app.app_focus and old.ready:
            if len(new.approvals) > len(old.approvals):
                attention.tell(f"{folder}: the agent asks", asking=True)
            elif old.running and not new.running:
                how = "stopped" if new.can_resume else "is done"
                attention.tell(f"{folder}: {new.title} {how}", asking=False)

    def _follow_branch(self) -> None:
        """What the agent does may change the branch, and others may while it rests."""
        if not self._is_looking:
            self._is_looking = True
            self.conversation.start(self._look_for_branch())

    async def _look_for_branch(self) -> None:
        self._is_looking = False
        branch = await asyncio.to_thread(branch_of, Path(self.transcript.work_dir))
        self.header.heading = self.header.heading._replace(branch=branch)

    def show_marks(self) -> None:
        """Show the names and pins that were kept."""
        soul = self.conversation.soul
        if soul is not None and (soul.bookmarks or soul.pins):
            self.views.mark(soul.bookmarks, soul.pins)

    # --- what is written in the prompt

    @on(PromptArea.Sent)
    def _sent(self, event: PromptArea.Sent) -> None:
        """Run the command that the menu offered or that was written out, or say the text."""
        self.chat_pane.solve()
        if event.chosen:
            self._run_entry(event.chosen)
        elif self._image_input is not None and self._image_input.reads_for(event.text):
            self.start(self._send_when_read(event.text))
        else:
            self.send(event.text)

    def send(self, written: str) -> None:
        """Do what a line of the prompt stands for.

        With `/` a command, with `!` one of the user's own for the shell, with `#` a note; with nothing the agent goes on.
        All else is said to the agent, and all of these with a blank before them.
        """
        text = sent_text(written)
        if not text:
            self.conversation.go_on()
            return
        if written[0] in "!#" and self.prompt_modes.takes(written):
            return
        if written.rstrip() == "/":
            self.tell("A command follows the slash.", advice="The arrows choose one of the list.")
            self.keep(text)
            return
        behind = self._returned.command_behind(text)
        if behind and self.commands.parse(behind).command is not None:
            # The message waits on, for whoever edits it and for an undo, which takes it away again.
            self.prompt.area.put_sent(text.removesuffix(behind).rstrip())
            text = written = behind
        # A blank before the slash makes a message of it.
        parsed = self.commands.parse(written.rstrip())
        if parsed.command is None and written.startswith("/") and not self._learned.is_set():
            self.start(self._send_when_learned(written))
        elif parsed.command is not None:
            self._run_written(parsed.command, parsed.argument, text)
        elif parsed.unknown:
            self._say_unknown(parsed)
            self.keep(text)
        else:
            self.conversation.remember(text)
            # Whoever speaks wants to see the answer, wherever they were reading.
            self.transcript.scroll_to_end()
            self.conversation.say(text)

    async def _send_when_read(self, written: str) -> None:
        self.send(await self.image_input.settled(written))

    async def _learn_commands(self, sent: Sequence[str]) -> None:
        from kimi_tui.tui.commands import custom

        try:
            await custom.learn(self)
        finally:
            self._learned.set()
            # Of what was sent before: now the commands of files are known, too.
            self._learn_uses(sent)
        self.follow_prompt()

    async def _send_when_learned(self, written: str) -> None:
        await self._learned.wait()
        self.send(written)

    def _run_entry(self, chosen: str) -> None:
        """Run an entry of the menu: a command's name, with a value behind a blank where it offered one."""
        name, _, argument = chosen.partition(" ")
        self._run_written(self.commands[name], argument, f"/{chosen}")

    def _learn_uses(self, sent: Iterable[str]) -> None:
        """Order the menu by these as well; not while it is chosen from: no row moves under the cursor."""
        self._uses += sent
        if not self.prompt.area.text.startswith("/"):
            self.commands.learn_uses(self._uses)
            self._uses.clear()

    def _run_written(self, command: Command, argument: str, text: str) -> None:
        """Run a command that was written; one with words behind it that it does not take stays in the prompt."""
        if argument and not command.argument:
            self.tell(f"/{command.name} takes nothing behind it.", advice=AS_MESSAGE)
            self.keep(text)
            return
        if argument or not command.needs_argument:
            self.conversation.remember(text)
            self._learn_uses((text,))
        self.action_command(command.name, argument)

    def _say_unknown(self, parsed: ParsedLine) -> None:
        said = f"There is no command /{parsed.unknown}."
        if parsed.meant is not None:
            self.tell(f"{said} Did you mean /{parsed.meant.name}?", advice=AS_MESSAGE)
            return
        key = key_of("help", self.keys)
        lists = f"{key} lists all of them." if key else "/help lists all of them."
        self.tell(said, advice=f"{lists} {AS_MESSAGE}")

    @on(PromptArea.Changed)
    def _typed(self, event: PromptArea.Changed) -> None:
        """A slash opens the menu of commands; whoever writes will want an answer drawn."""
        self.transcript.warm_up()
        self._look_away()
        area = self.prompt.area
        self.keystrokes.written_at = time.monotonic() if area.text else 0.0
        if self._uses:
            self._learn_uses(())
        if self.first_time_hints is not None and "[Pasted " in area.text and area.chip is not None:
            self.first_time_hints.happened("pasted")
        # Unless the cursor was heard of before, which a letter moves as well.
        self._cursor_moved()
        if self._frame.views is not None:
            self._frame.views.gauge.to_send = area.chip_tokens
        if (drafts := self.conversation.drafts) is not None:
            drafts.draft_changed()

    @on(PromptArea.SelectionChanged)
    def _cursor_moved(self) -> None:
        """What is offered depends on where the cursor is."""
        if self.completion.is_behind:
            self.follow_prompt()

    def follow_prompt(self) -> None:
        """Offer what fits the text in the prompt, and say over it what it will be."""
        self.completion.follow()
        text, waits = self.prompt.area.text, self.conversation.follow_ups
        is_busy = bool(text) and self.conversation.state.running
        is_other = text[:1] in ("!", "#") or "@" in text or "[Pasted " in text or BEGINS in text
        if self._prompt_modes or is_busy or waits or is_other or self.completion.is_searching:
            self.prompt.show_above(self.prompt_modes.waiting(), self.prompt_modes.writing())

    @property
    def prompt_modes(self) -> PromptModes:
        """What is written besides messages and commands. Imported when it is first needed."""
        if self._prompt_modes is None:
            from kimi_tui.tui.main.prompt_modes import PromptModes

            self._prompt_modes = PromptModes(self)
        return self._prompt_modes

    @property
    def image_input(self) -> ImageInput:
        """What reads images for the prompt, and for the chat. Imported when it is first needed."""
        if self._image_input is None:
            from kimi_tui.tui.main.image_input import ImageInput

            self._image_input = ImageInput(self)
        return self._image_input

    async def images_of(self, text: str) -> Sequence[Image] | None:
        """The images that a message names by their chips; None where one is gone, and the user was told so."""
        return await self.image_input.images_of(text) if in_text(text) else ()

    async def _load_image(self, facts: ImageBlock) -> bytes | None:
        return await self.image_input.load(facts)

    def values(self) -> Values:
        """What may follow the commands now."""
        timeline = self.views.timeline.model
        live, lines = timeline.tree.live, timeline.tree.lines
        return self.conversation.values._replace(
            checkpoints=tuple(
                (str(one.id), one.bookmark or one.words) for one in reversed(live[-OFFERED:])
            ),
            world_lines=tuple(
                (str(n), self.views.timeline.model.line_name(n))
                for n in sorted(lines, reverse=True)[:OFFERED]
            ),
        )

    @on(PromptArea.TabPressed)
    def _tab_pressed(self) -> None:
        """From the empty prompt go to the chat; while the agent works, queue what stands there for after the turn."""
        area = self.prompt.area
        if not area.text:
            self.focus_chat()
        elif self.conversation.state.running and area.text.strip():
            self.conversation.follow_up(area.take())

    @on(PromptArea.ModeChanged)
    def _mode_changed(self) -> None:
        """The footer names what keys mean now."""
        self._update_footer()

    @on(PromptArea.PathPasted)
    def _path_pasted(self, event: PromptArea.PathPasted) -> None:
        self.image_input.read_path(event.written, event.pasted)

    @on(PromptArea.ClipboardPressed)
    def _clipboard_pressed(self, event: PromptArea.ClipboardPressed) -> None:
        self.image_input.read_clipboard(event.written)

    @on(PromptArea.ImageOpened)
    def _chip_opened(self, event: PromptArea.ImageOpened) -> None:
        self.image_input.open(self.kimi.images[event.chip].facts)

    def on_command_menu_clicked(self) -> None:
        """A row of the menu was clicked."""
        if chosen := self.completion.click():
            self._run_entry(chosen)

    @on(PromptArea.RecallPressed)
    def _recall_pressed(self) -> None:
        """The last queued message comes back into the prompt; with none, the history does."""
        text = self.conversation.take_back()
        if text is None:
            self.prompt.area.recall()
        else:
            self.prompt.area.put_sent(text)

    @on(PromptArea.Paged)
    def _paged(self, event: PromptArea.Paged) -> None:
        # Not the actions of the same name, which raise where there is nothing to scroll.
        if event.direction < 0:
            self.transcript.scroll_page_up()
        else:
            self.transcript.scroll_page_down()

    @on(PromptArea.ExitPressed)
    def _exit_pressed(self, event: PromptArea.ExitPressed) -> None:
        """Ctrl+C stops what runs, else empties the prompt; again while it is said that this quits, it does, as Ctrl+D."""
        if self._quits_at is not None:
            self.post_message(QuitChosen())
            return
        if event.stops and not self.conversation.stop() and self.prompt.area.text:
            self.conversation.remember(self.prompt.area.take())
        self._quits_at = time.monotonic()
        self.tell(f"{event.key} again quits.", topic=QUIT)
        self.set_timer(STAYS_S, partial(self._quit_no_more, self._quits_at))

    def _quit_no_more(self, since: float | None = None) -> None:
        """Another key came, or none for long: the next Ctrl+C means what the first one did."""
        if self._quits_at is not None and since in (None, self._quits_at):
            self._quits_at = None
            self.solved(QUIT)

    # --- what is put into the prompt

    def suggest(self, text: str) -> None:
        """Put a message into the prompt, if it is empty; while the demo plays by itself it is typed and sent."""
        if not self._demo.takes(text) and text and not self.prompt.area.text:
            self.prompt.area.put(text)

    def give_back(self, texts: Sequence[str]) -> None:
        """Put messages that were not sent into the prompt, before what stands there."""
        parts = [part for text in (*texts, self.prompt.area.message) if (part := sent_text(text))]
        # Several are one message, also where the first of them was a command.
        if len(parts) > 1 and parts[0].startswith(("!", "#", "/")):
            parts[0] = f" {parts[0]}"
        self.prompt.area.put_sent(*parts)

    @property
    def draft(self) -> Draft:
        """What the user has written and not sent."""
        searched = self.completion.draft
        return self.prompt.area.draft if searched is None else searched

    def take_draft(self) -> Draft:
        """The draft, which is meant for another session: here there is none any more."""
        draft = self.draft
        self.prompt.area.take()
        return draft

    def give_draft(self, draft: Draft) -> None:
        """Put a draft into the prompt; where something stands there, Up brings it."""
        if not draft.text:
            return
        if self.prompt.area.text:
            self.conversation.remember(draft.text)
        else:
            self.prompt.area.put_draft(draft)

    def keep(self, text: str) -> None:
        """Put what was not done back into the prompt; where something was typed meanwhile, Up brings it back."""
        if self.prompt.area.text:
            self.conversation.remember(text)
        else:
            self.prompt.area.put_sent(text)

    def return_message(self, change: LineChanged | None, text: str) -> None:
        """Put a message into the prompt that a rewind or a jump left out of the chat; `change` told of that.

        A draft that stood there can be had back with Up.
        """
        self.conversation.remember(self.prompt.area.message)
        self.prompt.area.put_sent(text)
        if change is not None:
            self._returned.gave(change, self.prompt.area.message)

    # --- the chat, and a world line in its place

    @property
    def reader(self) -> Reader:
        """The world line that is read in the place of the chat. Imported when one is read."""
        if self._reader is None:
            from kimi_tui.tui.main.reader import Reader

            add_sheets(self, "worldline")
            self._reader = Reader(self)
        return self._reader

    @property
    def reading(self) -> int:
        """The number of the world line on view; 0 where now is shown."""
        return self._reader.world_line if self._reader is not None else 0

    @property
    def question(self) -> ApprovalPanel | None:
        """The question in the place of the prompt; None where nothing is asked."""
        return self._approvals.panel

    @property
    def on_view(self) -> Transcript:
        """The chat, or the world line in its place."""
        transcript = self._reader.transcript if self._reader is not None else None
        return transcript or self.transcript

    def on_transcript_checkpoint_clicked(self, event: Transcript.CheckpointClicked) -> None:
        """A checkpoint was chosen in the chat or in a world line on view: preview a rewind, or read its summary."""
        from kimi_tui.soul.rewind import Target

        is_now = event.transcript is self.transcript
        point = self.views.live_point(event.id) if is_now else None
        if point is not None and point.is_summary:
            self.start(marks.read_summary(self, point.uid), opens=True)
        else:
            target = Target(event.id, 0 if is_now else self.reader.on_view, event.said)
            self.start(rewind.preview(self, target), opens=True)

    def on_transcript_pin_toggled(self, event: Transcript.PinToggled) -> None:
        """Pin a message of the chat, or no longer."""
        self.start(marks.pin_message(self, event.uid, event.number))

    @on(Transcript.LinkClicked)
    def _link_clicked(self, event: Transcript.LinkClicked) -> None:
        app_of(self).open_url(event.url)

    @on(Transcript.ImageOpened)
    def _image_opened(self, event: Transcript.ImageOpened) -> None:
        self.image_input.open(event.image)

    @on(Transcript.Copied)
    def _copied(self, event: Transcript.Copied) -> None:
        # Here, not in the app: posted while a handler of the screen runs (`/copy`), it goes no further than the screen.
        event.stop()
        self.kimi.copy_to_clipboard(event.text, event.words)

    @on(Transcript.NothingCopied)
    def _nothing_copied(self, event: Transcript.NothingCopied) -> None:
        event.stop()
        self.tell(event.words)

    @on(Transcript.CopyModeChanged)
    def _copy_mode_changed(self) -> None:
        """The footer lists the keys of the cursor."""
        self._update_footer()

    @on(Transcript.RebuildNeeded)
    def _rebuild_needed(self) -> None:
        self.conversation.rebuild()

    def end_search(self) -> bool:
        """End the search of what is on view; False where there is none."""
        is_searched = self.on_view.is_searched
        self.on_view.end_search()
        return is_searched

    def on_transcript_search_ended(self) -> None:
        """The search is over: the keys go back to where they were, and the footer lists them."""
        self._go_back(self._search_from)
        self.on_descendant_focus()

    def on_world_line_transcript_action_chosen(
        self, event: WorldLineTranscript.ActionChosen
    ) -> None:
        """A key of the world line on view."""
        match event.action:
            case "jump":
                self.start(world_lines.jump_to_chosen(self), opens=True)
            case "send":
                self.start(world_lines.send_chosen(self), opens=True)
            case "compare":
                self.start(world_lines.compare_with_live(self, self.reading), opens=True)
            case _:
                self.reader.leave(back=True)

    # --- the timeline, whose class is imported after the first paint: its messages are named by their handlers

    def on_timeline_checkpoint_chosen(self, event: Timeline.CheckpointChosen) -> None:
        """Preview a rewind to a row."""
        self.start(rewind.preview(self, event.target), opens=True)

    def on_timeline_looked(self, event: Timeline.Looked) -> None:
        """Chat and gauge show what a rewind to the selected row would take and leave."""
        self._looked = event.prospect
        self.foresee(event.prospect)

    @contextmanager
    def foreseen(self, prospect: Prospect) -> Generator[None]:
        """In this context chat and gauge show what going there would take and leave.

        While the timeline has the keys they go on to follow its selected row, but for a D-Mail: the timeline does not know
        what that would take.
        """
        looked, on_timeline = self._looked, self.timeline_pane.has_keys
        if on_timeline and not prospect.words_stay:
            yield
            return
        if prospect != self._foreseen:
            self.foresee(prospect)
        try:
            yield
        finally:
            # The timeline may have let go of it meanwhile, and the screen may be gone.
            if self._frame.views is not None:
                self.foresee(looked if on_timeline and looked is self._looked else None)

    def foresee(self, prospect: Prospect | None) -> None:
        """Show what would be left of the conversation in chat and gauge, and a world line in place of the chat; None for now."""
        if prospect is not None or self._foreseen is not None:
            self.views.foresee(prospect)
        self._foreseen = prospect
        soul = self.conversation.soul
        if prospect is not None and prospect.target.world_line and soul is not None:
            self.reader.glance(soul, prospect.target.world_line, prospect.target.id)
        elif self._reader is not None:
            self._reader.end_glance()

    def on_timeline_row_acted(self, event: Timeline.RowActed) -> None:
        """A key acts on a row; an `id` of -1 is a whole line."""
        target, uid = event.target, event.uid
        if event.action == "read":
            self.start(world_lines.open_line(self, target.world_line, target.id), opens=True)
        elif event.action == "bookmark" and target.id < 0 and uid:
            self.start(marks.name_line(self, target.world_line), opens=True)
        elif target.id < 0 or uid.startswith("~"):
            self.tell("That needs a step.", advice="Space unfolds the line.")
        elif event.action == "bookmark":
            self.start(marks.name_checkpoint(self, target, uid), opens=True)
        elif event.action == "pin":
            self.start(marks.pin_message(self, uid))
        elif event.action == "summary":
            self.start(marks.read_summary(self, uid), opens=True)

    def on_timeline_undo_pressed(self) -> None:
        """Reverse the newest operation."""
        self.action_command("undo")

    def on_timeline_redo_pressed(self) -> None:
        """Do again what was undone."""
        self.action_command("redo")

    def on_timeline_replay_pressed(self) -> None:
        """Play the session back."""
        self.action_command("replay")

    def on_timeline_left(self) -> None:
        """The user is done with the timeline."""
        self._go_back(self._timeline_from)

    def on_timeline_filter_changed(self) -> None:
        """The keys of the timeline mean other things while it is filtered."""
        self.timeline_pane.name_keys()
        self._update_footer()

    # --- where the keys go

    async def takes_early(self, event: events.Key | events.Paste) -> bool:
        """Whether a key or paste waits or was taken, and is not to be handed on; called by the app before it does so."""
        if not isinstance(event, events.Key) or event.key not in QUITTING:
            self._quit_no_more()
        if self.first_time_hints is not None:
            self.first_time_hints.key_pressed()
        return await self.keystrokes.takes(event)

    def on_screen_resume(self) -> None:
        """What was over this screen is gone, and with it what a click on the timeline showed."""
        self.transcript.uncovered()
        self._look_away()
        if (panel := self.question) is not None:
            panel.wait_anew()

    def _look_away(self) -> None:
        if self._looked is not None and not self.timeline_pane.has_keys:
            self.views.timeline.look_away()

    def on_screen_suspend(self) -> None:
        """Another screen is over this one."""
        self.keystrokes.type_ahead.screen_opened()

    def focus_timeline(self) -> None:
        """Open the timeline and give it the keys; or close it where it has them."""
        if self.timeline_pane.has_keys:
            self.return_to_prompt()
        elif self.views:
            self._timeline_from, self._chat_from = self.focused, None
            self.timeline_pane.open()

    def search(self, query: str) -> None:
        """Look for a text in what is on view; an empty one is asked for."""
        if not self.on_view.is_searched:
            self._search_from = self.focused
        self.timeline_pane.close()
        self.on_view.begin_search(query)

    def focus_chat(self) -> None:
        """Give the chat the keys, or the world line in its place: its keys act on the chosen block then."""
        self._chat_from = None
        self.timeline_pane.close()
        self.on_view.enter()

    def read_chat(self, checkpoint_id: int) -> None:
        """Give the chat the keys, at a checkpoint (-1: at its end)."""
        # First: what was on view before a row was looked at comes back with this.
        self.foresee(None)
        came_from = self.views.timeline if self.timeline_pane.has_keys else None
        self.focus_chat()
        self._chat_from = came_from
        if checkpoint_id < 0:
            self.transcript.scroll_to_end()
        else:
            self.transcript.show_checkpoint(checkpoint_id)

    def focus_prompt(self) -> None:
        """Give the keys to the prompt, or to what stands in its place: a question, or a world line on view."""
        panel = self.question
        if panel is None and self.reading:
            self.reader.focus()
        else:
            # At once: on its way the focus must not come by a neighbour.
            self.set_focus(panel or self.prompt.area)

    def return_to_prompt(self) -> None:
        """Close the timeline where it floats, with nothing selected on it, and give the prompt the keys."""
        if self.timeline_pane.has_keys:
            self.views.timeline.select(None)
        self.timeline_pane.close()
        self.focus_prompt()

    def _go_back(self, came_from: Widget | None) -> None:
        """Give the keys to what had them before, where that is on view still; else to the prompt."""
        if came_from is not None and came_from is self.on_view:
            self.timeline_pane.close()
            self.set_focus(came_from)
        elif came_from is not None and came_from is self.views.timeline:
            self.timeline_pane.open()
        else:
            self.return_to_prompt()

    def return_to_now(self) -> None:
        """Give the prompt the keys, and show the live line where another one was on view."""
        if not self.reading or not self.reader.leave():
            self.return_to_prompt()

    def on_click(self, event: events.Click) -> None:
        """A click in the chat leaves the timeline, where keys act on its rows."""
        if self.timeline_pane.has_keys and self.transcript.region.contains(
            event.screen_x, event.screen_y
        ):
            # Where the timeline floats over the chat, the pointer is on that.
            widget, _ = self.get_widget_at(event.screen_x, event.screen_y)
            if widget is self.transcript:
                self.return_to_prompt()

    def action_go_round(self, step: int) -> None:
        """Give the keys to the next of prompt, chat and timeline, as far as they are on the screen, or to the one before."""
        asks = self.question is not None and self.question.has_focus
        if asks or (self.timeline_pane.has_keys and step < 0):
            self.focus_chat()
        elif self.on_view.has_focus and step > 0 and not self.has_class("-overlay"):
            self.focus_timeline()
        else:
            self.return_to_prompt()

    def action_escape(self) -> None:
        """Close the menu; from the chat go back to the prompt; there stop what runs.

        Twice in an idle, empty prompt: the timeline, to go back to a step.
        """
        if self.completion.escape():
            return
        if self.transcript.has_focus:
            if not self.end_search():
                came_from, self._chat_from = self._chat_from, None
                self._go_back(came_from)
            return
        self._look_away()
        if self.conversation.stop() or (self.reading and self.reader.leave(back=True)):
            return
        if self.end_search():
            return
        area = self.prompt.area
        now = time.monotonic()
        if not area.has_focus:
            self.focus_prompt()
        elif not area.text:
            if now - self._escaped_at < TWICE_S:
                self.focus_timeline()
            self._escaped_at = now

    def action_leave_or_copy(self, key: str) -> None:
        """What the prompt does with such a key, where something else has the focus."""
        if key != "Ctrl+C" or not copy_selection(self):
            self.post_message(PromptArea.ExitPressed(key, stops=key == "Ctrl+C"))

    def on_descendant_focus(self) -> None:
        """The footer lists the keys of what has the focus; notices leave the row of a search free."""
        self.chat_pane.set_class(self.on_view.is_searched, "-searched")
        self._update_footer()

    def on_approval_panel_answered(self, event: ApprovalPanel.Answered) -> None:
        """Pass an answer on."""
        self.conversation.answer(event.request_id, event.answer, event.feedback)

    def on_approval_panel_too_early(self) -> None:
        """Say why nothing happened, in the question itself."""
        if self.first_time_hints is not None:
            self.first_time_hints.happened("early", self.question)

    def on_approval_panel_keys_changed(self) -> None:
        """The footer lists the keys of the question."""
        self._update_footer()

    def _update_footer(self) -> None:
        panel = self.question
        if panel is not None and (panel.has_focus_within or self.focused is None):
            self.footer.hints = panel.hints
            return
        place = self._place()
        app = app_of(self)
        found = hints(place, self.conversation.state, self.keys, glyphs_of(app), time.time())
        mode = self.prompt.area.mode if place == "prompt" else None
        if mode is not None:
            found = (MODES[mode], *found)
        if mode is not None and (name := self.prompt.area.recording):
            found = ((f"recording @{name}", "q: end"), *found)
        self.footer.hints = found

    @property
    def help_title(self) -> str:
        """What stands in the help over the keys that count now."""
        panel = self.question
        if panel is not None and (panel.has_focus_within or self.focused is None):
            return "Approvals"
        return HELP_TITLES.get(self._place(), "")

    def _place(self) -> Place:
        """Where the keys go."""
        place: Place = self.timeline_pane.place if self.timeline_pane.has_keys else "prompt"
        if place == "prompt" and self.on_view.is_searched and not self.prompt.area.has_focus:
            place = "matches" if self.on_view.has_focus else "search"
        elif self.reading and place == "prompt":
            place = "line"
        elif place == "prompt" and self.transcript.has_focus:
            place = "chat"
        return "copy" if self.on_view.is_copying else place
