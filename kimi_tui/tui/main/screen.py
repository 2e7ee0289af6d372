"""The main screen: puts its parts together, has the key bindings, and handles the messages of prompt, chat and timeline."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Unpack

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.screen import Screen

from kimi_tui.agent_parts import MODE_TITLES
from kimi_tui.app_paths import data_dir, short
from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.display_names import CHIP_START
from kimi_tui.instant.stored_frame import forget_frame
from kimi_tui.launch import CannotOpen, DiskRefuses, Launch, ModelRefused, NoModelNamed
from kimi_tui.projection.session_state import SessionState
from kimi_tui.tui.faults import Callbacks, report_of
from kimi_tui.tui.first_page import READING, first_hints, parts_at_start
from kimi_tui.tui.frame import Header, StatusRow
from kimi_tui.tui.key_names import key_of
from kimi_tui.tui.keyboard import SeenQuestion
from kimi_tui.tui.main.beside import BesideViewer
from kimi_tui.tui.main.commands import (
    MainParts,
    external_agents,
    futures,
    rewind,
    subagents,
    world_lines,
)
from kimi_tui.tui.main.commands.table import COMMANDS
from kimi_tui.tui.main.conversation import ConversationController
from kimi_tui.tui.main.demo_player import DEMO_QUESTION, PLAYED_QUESTION, DemoPlayer, demo_hints
from kimi_tui.tui.main.futures import Asked, FuturesController
from kimi_tui.tui.main.keystrokes import BEHIND, Keystrokes
from kimi_tui.tui.main.prompt_modes import PromptModes, is_command, is_note
from kimi_tui.tui.main.quit_confirmation import QUITTING, QuitConfirmation
from kimi_tui.tui.main.subagents import SubagentsController
from kimi_tui.tui.main.workbench import Workbench
from kimi_tui.tui.main.world_line_viewer import RELEASE_S, WorldLineViewer
from kimi_tui.tui.notices import NoticeDetails
from kimi_tui.tui.prompt.area import Draft, PromptArea
from kimi_tui.tui.prompt.command import (
    MESSAGE,
    SIGNS,
    Command,
    CommandTable,
    ParsedLine,
    Values,
    sent_text,
)
from kimi_tui.tui.prompt.completion import FolderFiles
from kimi_tui.tui.prompt.image_chips import ImageChips
from kimi_tui.tui.screens import (
    ImageChosen,
    ModelMissing,
    OpeningFailed,
    add_sheets,
    app_of,
    push_dialog,
    sheets,
)
from kimi_tui.tui.slices import release
from kimi_tui.tui.transcript.transcript import Transcript, copy_selection
from kimi_tui.workspace.git_branch import branch_of

if TYPE_CHECKING:
    from textual.worker import Worker

    from kimi_tui.config.settings import StatuslineConfig
    from kimi_tui.demo import Demo
    from kimi_tui.instant.stored_frame import StoredFrame
    from kimi_tui.soul.rewind_values import Target
    from kimi_tui.tool_cards import ImageBlock
    from kimi_tui.tui.approval.panel import ApprovalPanel
    from kimi_tui.tui.beside_view import BesideTranscript
    from kimi_tui.tui.desktop import WindowStatus
    from kimi_tui.tui.main.first_time_hints import FirstTimeHints
    from kimi_tui.tui.main.image_input import ImageInput
    from kimi_tui.tui.main.status_line import StatusLine
    from kimi_tui.tui.timeline.timeline import Timeline
    from kimi_tui.tui.world_line_view import WorldLineTranscript

MANY_HELD = 1_000
"""The number of objects from which on a session that is left is freed in slices."""
OPEN_DELAY_S = 0.15
RESUME_DELAY_S = 0.02
"""Seconds from the first frame until a stored session is opened; a new one is opened later, since nobody waits for it."""
NOT_OPEN = "The session is not open"
COMMAND_HERE = "command on the timeline"
"""Topic of the notice that a filter that finds nothing is the name of a command."""
REFUSED = "refused"
"""Topic of the notice that the session could not be opened because of the disk."""
TWICE_S = 1.0
BRANCH_S = 0.5
"""Seconds between two readings of the branch while the agent works."""
OFFERED = 50
"""The most checkpoints, or world lines, that are offered as the argument of a command."""


class MainScreen(Screen[None]):
    """Chat, timeline, gauge and prompt of one session.

    Args:
        launch: how to start the session.
        size: the size of the terminal in cells.
        images: the images behind the chips in prompts.
        window_status: window title, progress and notifications of the terminal.
        stored: the last frame of the session, which is on the screen; None for none.

    Attributes:
        bench: the panes, the prompt, notices, questions and the focus.
        parts: the parts that a command may act on.
        conversation: the session.
        viewer: shows a world line in place of the chat, and the prospect of a rewind.
        beside: shows a future or sub-agent in place of the chat.
        futures: the futures of the session.
        subagents: the sub-agents of the session.
        keystrokes: routes typed keys and pastes.
        quitting: asks before the session is left.
        commands: all commands of this session.
        first_time_hints: the hints at first occasions; None before the session is open, and in the demo.
    """

    AUTO_FOCUS = "PromptArea"
    """The prompt has the focus from the start: changing the focus later would style widgets again."""
    SHEETS = sheets("main", "prompt", "chat")
    CSS_PATH = SHEETS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "escape", "Stop, or back", id="escape", show=False),
        # Tab works like this unless a widget uses it. Textual would go round all widgets that can have the focus, the
        # timeline among them.
        Binding("tab", "go_round(1)", "Chat, timeline, prompt", show=False),
        Binding("ctrl+c", "leave_or_copy('Ctrl+C')", "Copy, stop or quit", show=False),
        Binding("ctrl+d", "leave_or_copy('Ctrl+D')", "Quit", show=False),
        *(
            Binding(command.key, f"command('{command.name}')", command.title, id=command.name)
            for command in COMMANDS
            if command.key and command.name != "quit"
        ),
    ]

    def __init__(
        self,
        launch: Launch,
        size: Size,
        images: ImageChips,
        window_status: WindowStatus,
        stored: StoredFrame | None = None,
    ) -> None:
        super().__init__()
        keys = launch.config.keys
        hints, question = first_hints(keys, launch.mode, parts_at_start(launch)), ""
        if launch.demo:
            hints = demo_hints(keys, plays=launch.plays)
            question = PLAYED_QUESTION if launch.plays else DEMO_QUESTION
        self._launch = launch
        self._window_status = window_status
        self.commands = CommandTable(*COMMANDS)
        self._learned = asyncio.Event()
        """Set once the custom commands are in the table."""
        self.transcript = Transcript(
            work_dir=str(launch.work_dir),
            hints=hints,
            question=question,
            keys=keys,
            load_image=self._load_image,
        )
        bench = self.bench = Workbench(
            self,
            launch,
            size,
            images,
            self.commands,
            self.transcript,
            self.values,
            self._cost_words,
            stored.rows[1:] if stored is not None else (),
        )
        self.prompt = bench.prompt
        self.conversation = ConversationController(launch, bench)
        self.completion = bench.completion
        self.viewer = WorldLineViewer(bench, self.conversation)
        self.beside = BesideViewer(bench)
        self.futures = FuturesController(
            bench, self.conversation, self.beside, self._write_to_future, self._begin_futures
        )
        self.subagents = SubagentsController(
            bench, self.conversation, self.beside, self._write_to_agent
        )
        self.transcript.currency = self.subagents.currency
        self.keystrokes = Keystrokes(bench, self.viewer, self.beside)
        self._prompt_modes = PromptModes(bench, self.conversation)
        self._demo = DemoPlayer(bench, launch)
        self.quitting = QuitConfirmation(bench, self.conversation)
        self.parts = MainParts(
            bench,
            self.conversation,
            self.viewer,
            self.beside,
            self.futures,
            self.subagents,
            self.keystrokes,
            self._prompt_modes,
        )
        self._status_row = StatusRow() if any(launch.config.statusline) else None
        self._status_line: StatusLine | None = None
        """Keeps that row up to date; None before the session is open."""
        self._image_input: ImageInput | None = None
        self.first_time_hints: FirstTimeHints | None = None
        self._unknown = ""
        """The text whose command is unknown, as a notice said; Enter again sends it as a message. Empty for none."""
        self._asked_unknown = SeenQuestion(self)
        """Whether that notice was painted."""
        self._begun: Command | None = None
        """The command whose argument is being typed."""
        self._uses: list[str] = []
        """Sent texts that the order of the menu does not count yet."""
        self._is_looking = False
        self._looked_at = 0.0
        """Whether the branch is being read."""
        self._offered = SeenQuestion(self)
        """Whether the hint that Enter in an empty prompt lets the agent go on was painted."""
        self._stake_told = ""
        """The undo that going on would make final, as a notice named it; empty before the first notice."""
        self._shows_dmail = False
        """Whether chat and gauge show the prospect of the D-Mail that waits for an answer."""
        self._says_above = False
        """Whether rows above the prompt were ever shown."""
        self._escaped_at = 0.0
        self._row_place = ""
        """The place on the timeline whose keys the footer named last."""
        self._opener: Worker[None] | None = None
        self._refused = ""
        """Why the disk let no session be opened."""

    def compose(self) -> ComposeResult:
        """Return the widgets, from the top."""
        yield from self.bench.frame.compose()
        yield self.prompt
        if self._status_row is not None:
            yield self._status_row
        yield self.bench.footer

    def on_mount(self) -> None:
        """Prepare the prompt; the session is opened after the first frame."""
        if self._launch.config.prompt.vim:
            self.prompt.area.use_vim(on=True)
        if self._launch.prompt:
            self.prompt.area.put_sent(self._launch.prompt)
        # An update after the first picture would cause a second one.
        self.bench.update_footer()
        # The session is opened a moment after the first picture: importing straight after it would hold up the first key.
        delay_s = OPEN_DELAY_S if self._launch.resume is None else RESUME_DELAY_S
        self.call_after_refresh(self.set_timer, delay_s, self._open)

    def on_unmount(self) -> None:
        """Drop the session's models: Textual keeps the very first screen alive as long as the program runs."""
        self.conversation.stop_feed()
        self.beside.stop_feed()
        if self._status_line is not None:
            self._status_line.stop()
        # At the end of the program the views are not freed: freeing them one by one takes as long as hundreds of keys.
        if app_of(self).return_code is None:
            views, self.bench.frame.views = self.bench.frame.views, None
            if views is not None and len(held := views.held()) >= MANY_HELD:
                Callbacks(report_of(app_of(self))).start(release(held, RELEASE_S))

    def text_select_all(self) -> None:
        """Select only the clicked row of the frame at a third click, as at the second; Textual would select the whole screen."""

    def on_resize(self, event: events.Resize) -> None:
        """Place the timeline and set margins for the new size."""
        self.bench.frame.fit(event.size)

    # --- beginning and end

    def _open(self) -> None:
        if not self.bench.is_left:
            self._opener = self.run_worker(self._open_session, name="open the session")

    async def end(self, *, clean: bool = True, goes_on: Demo | None = None) -> str:
        """Save and release the session, as `ConversationController.close`; cancel the opening of one that is not open yet.

        This is not left to Textual, which cancels a screen's workers only after it has removed its widgets.
        """
        is_first, self.bench.is_left = not self.bench.is_left, True
        if self._status_line is not None:
            self._status_line.stop()
        if self._opener is not None:
            self._opener.cancel()
        keep: Callable[[], None] | None = None
        if is_first and clean and goes_on is None:
            try:
                keep = self._last_frame()
            except Exception as error:
                # The session is saved whatever is on the screen.
                report_of(self)(error)
        words = await self.conversation.close(clean=clean, goes_on=goes_on) or self._refused
        if keep is not None:
            with suppress(OSError):
                await asyncio.to_thread(keep)
        return words

    def _last_frame(self) -> Callable[[], None] | None:
        """Return a function that stores what is on the screen, for the next time that the session is continued.

        None if something stands there that does not belong to the session's end, or if it could show a key.
        """
        soul, state, app = self.conversation.soul, self.conversation.state, app_of(self)
        notices = self.bench.chat_pane.notices
        is_plain = self.is_current and self.bench.sees_end and self.bench.question is None
        if soul is None or not (is_plain and state.has_messages):
            return None
        if self.bench.timeline_pane.floats or (notices is not None and notices.n_rows):
            return None
        if self.transcript.reading or self._launch.demo or state.running:
            return None
        from kimi_tui.instant.stored_frame import FrameLook, StoredFrame, identity_of, write_frame
        from kimi_tui.tui.palette import colours_of
        from kimi_tui.tui.stored_rows import rows_above

        size, theme = app.size, app.theme.removeprefix("kimi-")
        is_ascii = self._launch.config.glyphs == "ascii"
        look = FrameLook(*size, theme, colours_of(os.environ), app.no_color, is_ascii)
        rows = rows_above(self, self.prompt.region.y, app.console)
        text = "\n".join("".join(part for part, _ in row) for row in rows)
        folder, storage = soul.session.dir, soul.session.storage
        choice = self._launch.choice
        secrets = choice.secrets if isinstance(choice, ModelChoice) else ()
        identity = identity_of(folder)

        def keep() -> None:
            from kimi_tui.tools.credentials import find_keys

            if not (find_keys(text) or any(one and one in text for one in secrets)):
                write_frame(storage, folder, identity, StoredFrame(look, tuple(map(tuple, rows))))

        return keep

    async def _open_session(self) -> None:
        # The modules are imported in a thread, so that no key waits for them.
        for name in ("timeline.timeline", "gauge"):
            await in_daemon_thread(import_module, f"kimi_tui.tui.{name}")
        if not self.is_attached:
            return  # the program is ended already
        # The widgets are in their places before any event comes.
        _ = self.bench.views  # they are mounted where first named
        try:
            opened = await self.conversation.open()
        except NoModelNamed as error:
            self._ask_for_model("" if error.listed else str(error))
            return
        except ModelRefused as error:
            self._ask_for_model(str(error))
            return
        except DiskRefuses as error:
            self._tell_refused(str(error))
            return
        except CannotOpen as error:
            self.post_message(OpeningFailed(str(error), error.code))
            return
        header = self.bench.header
        header.heading = header.heading._replace(
            folder=short(opened.folder),
            branch=opened.branch,
            sandbox=(soul := self.conversation.soul) is not None and soul.sandbox_gaps is not None,
        )
        if soul is None:
            # An agent without a session has no modes, and a model of its own choice.
            from kimi_tui.foreign_text import one_line

            name, model = map(one_line, (opened.soul.name, opened.soul.model_name))
            header.heading = header.heading._replace(words=name, model=model)
        if self._status_row is not None:
            self.show_status_line(self._launch.config.statusline)
        self.bench.offer(self.conversation.state.parts)
        self.bench.update_first_hints(self.conversation.mode)
        self.transcript.work_dir = str(opened.folder)
        if self.conversation.soul is not None:
            # The stored frame is out of date as soon as the session is open.
            self.bench.start(asyncio.to_thread(forget_frame, self.conversation.soul.session.dir))
        self.completion.files.begin(
            opened.folder, soul.search_sandbox if soul is not None else None
        )
        # The prompt may name a file already, which can be offered now.
        self._follow_prompt()
        self.bench.start(self._learn_commands(opened.past))
        self.transcript.reading = ""
        sandbox = f"{opened.no_sandbox} The mode is {MODE_TITLES[self.conversation.mode]}."
        if notices := (
            *self._launch.notices,
            *([sandbox] if opened.no_sandbox else []),
            *opened.notices,
        ):
            # The notices are shown as one list: single ones would cover each other.
            self.bench.tell(notices[0], level="warning", more=notices[1:])
        if self._launch.offers_files and "travel" in self.conversation.state.parts:
            self.bench.start(rewind.offer_files(self.parts))
        from kimi_tui.app_paths import hints_file
        from kimi_tui.tui.main.first_time_hints import FirstTimeHints

        # In the demo everything is new to the user, and nothing of it counts as seen.
        file = None if self._launch.demo else hints_file(data_dir())
        self.first_time_hints = FirstTimeHints(self.bench, self.conversation, file)
        await self.first_time_hints.learn()

    def _ask_for_model(self, words: str) -> None:
        """Ask for a model first. Messages that were sent already go back to the prompt, from which the next session takes them."""
        self.conversation.give_back()
        self.post_message(ModelMissing(words))

    def _tell_refused(self, words: str) -> None:
        """Show that the session could not be opened because of the disk; the next action that needs it tries again."""
        self._refused = words
        self.bench.frame.drop_stored()
        self.transcript.reading = NOT_OPEN
        self.conversation.give_back()
        advice = f"Your text stays in the prompt. {key_of('send', self.bench.keys)} tries again."
        self.bench.tell(words, level="error", advice=advice, topic=REFUSED)

    @on(ConversationController.OpenWanted)
    def _open_again(self) -> None:
        """Try again to open a session that could not be opened because of the disk."""
        if self._refused and not self.bench.is_left:
            self._refused = ""
            self.bench.chat_pane.dismiss(REFUSED)
            self.transcript.reading = READING
            self._open()

    # --- the status line

    def show_status_line(self, config: StatuslineConfig) -> None:
        """Show a row with these items and the output of this command below the prompt; without either, remove it."""
        row, line = self._status_row, self._status_line
        if row is not None and not any(config):
            if line is not None:
                line.stop()
            row.remove()
            self._status_row = self._status_line = None
            return
        if row is None and any(config):
            row = self._status_row = StatusRow()
            self.mount(row, before=self.bench.footer)
        if row is not None and line is not None:
            line.use(config)
        elif row is not None:
            self.bench.start(self._begin_status_line(row, config))

    async def _begin_status_line(self, row: StatusRow, config: StatuslineConfig) -> None:
        await in_daemon_thread(import_module, "kimi_tui.tui.main.status_line")
        from kimi_tui.tui.main.status_line import StatusLine

        if row is self._status_row and not self.bench.is_left:
            line = self._status_line = StatusLine(row, self.bench, self.conversation, config)
            line.changed()

    def _status_changed(self) -> None:
        if self._status_line is not None:
            self._status_line.changed()

    # --- commands

    def action_command(self, name: str, argument: str = "") -> None:
        """Run a command of the table, as `run_command` does."""
        self.run_command(name, argument)

    def run_command(self, name: str, argument: str = "") -> asyncio.Task[None] | None:
        """Run a command of the table; one that needs an argument and has none is begun in the prompt. Returns what goes on."""
        if name not in self.commands:
            # Its key is pressed, and the agent lacks what it needs.
            if (needs := COMMANDS[name].needs) is not None:
                said, advice = external_agents.lacking(self.parts, name, needs)
                self.bench.tell(said, advice=advice)
            return None
        command = self.commands[name]
        if command.needs_argument and not argument:
            self.bench.focus_prompt()
            self.bench.keep(f"/{name} ")
            self.bench.tell(f"{command.usage}: {command.help}")
        elif (work := command.handler(self.parts, argument)) is not None:
            return self.bench.start(work, opens=command.opens)
        return None

    # --- what the conversation tells

    def tell(self, text: str, **details: Unpack[NoticeDetails]) -> None:
        """Show a notice for a few seconds."""
        self.bench.tell(text, **details)

    @on(ConversationController.EventsShown)
    def _events_shown(self, shown: ConversationController.EventsShown) -> None:
        """React to events beyond drawing them: hints, returned messages, the branch, the world line shown."""
        from kimi_tui.wire.events import LineChanged, ToolResult, TurnBegin, TurnEnd

        for record in shown.records:
            if self.first_time_hints is not None:
                self.first_time_hints.apply(record.event)
            match record.event:
                case LineChanged() as changed:
                    # A message that came back to the chat is no longer in the prompt, and the other way round.
                    text = self.bench.returned.changed(changed, self.prompt.area.message)
                    if text is not None:
                        self.prompt.area.put_sent(text)
                    self.bench.line_changed()
                case TurnBegin():
                    self.bench.returned.turn_began()
                    self._follow_branch()
                case TurnEnd() if "model" not in self.conversation.state.parts:
                    external_agents.learn_commands(self.parts)
                    self.completion.files.mark_stale()
                    self._follow_branch()
                case TurnEnd() | ToolResult():
                    self.completion.files.mark_stale()
                    self._follow_branch()
                case _:
                    pass
        self.viewer.apply(shown.records)
        if self._status_line is not None:
            self._status_line.apply(shown.records)

    def ignore_early_keys(self) -> None:
        """Have keys that were pressed before the screen is painted again answer or confirm nothing."""
        self._prompt_modes.forget_note()
        self.quitting.ignore_early_keys()
        self._offered.ask(is_expected=True)
        self._unknown = ""
        if (panel := self.bench.question) is not None:
            panel.ignore_early_keys()

    @on(ConversationController.StateChanged)
    def _state_changed(self, event: ConversationController.StateChanged) -> None:
        """React to a new state beyond prompt and header: approvals, window title, footer."""
        old, new = event.old, event.new
        if new.can_resume and not old.can_resume:
            self._offered.ask(is_expected=True)
        if old.approvals != new.approvals or old.futures != new.futures:
            self._show_queue()
        if old.futures != new.futures:
            self.futures.changed(old, new)
        if old.agents != new.agents:
            self.subagents.changed()
        if new.mode != old.mode:
            self.bench.update_first_hints(new.mode)
        if new.has_messages and not old.has_messages:
            # Files change from here on, so the counted figures no longer hold.
            self.transcript.facts = None
        if new.running != old.running:
            if old.running:
                self.bench.end_turn()
            self._follow_prompt()
            if self.futures.dialog is not None:
                self.futures.dialog.compute_again()
        self.viewer.tell_news()
        self.futures.tell_news()
        self.subagents.tell_news()
        self.bench.update_footer()
        self._status_changed()
        self._update_window_status(old, new)

    @on(ConversationController.Suggested)
    def _suggested(self, event: ConversationController.Suggested) -> None:
        """Put the suggested message into the prompt if that is empty; while the demo plays, it is typed and sent."""
        if not self._demo.play(event.text) and event.text and not self.prompt.area.text:
            self.prompt.area.put(event.text)

    def _update_window_status(self, old: SessionState, new: SessionState) -> None:
        """Update the window title, and notify a user whose window is in the background that the agent asks or is done."""
        window_status, app = self._window_status, app_of(self)
        folder = Path(self.transcript.work_dir).name
        window_status.update(
            folder=folder,
            title=new.title,
            working=new.running or new.compacting,
            asking=bool(new.approvals) or any(one.asks for one in new.futures),
        )
        if not app.app_focus and old.ready:
            n_asked, n_asked_before = (
                len(state.approvals) + sum(len(one.asks) for one in state.futures)
                for state in (new, old)
            )
            if n_asked > n_asked_before:
                window_status.alert(f"{folder}: the agent is waiting for your answer", asking=True)
            elif self._have_futures_ended(old, new):
                window_status.alert(f"{folder}: the futures have ended", asking=False)
            elif old.running and not new.running:
                how = "stopped" if new.can_resume else "is done"
                window_status.alert(f"{folder}: {new.title} {how}", asking=False)

    @staticmethod
    def _have_futures_ended(old: SessionState, new: SessionState) -> bool:
        """Return whether the last future that ran has ended."""
        were, are = (sum(not one.is_over for one in state.futures) for state in (old, new))
        return bool(were and not are)

    def _follow_branch(self) -> None:
        """Read the branch again: the agent's commands, or another program, may have changed it."""
        if not self._is_looking:
            self._is_looking = True
            self.bench.start(self._look_for_branch())

    async def _look_for_branch(self) -> None:
        # Steps may follow one another many times a second.
        if self.conversation.running:
            await asyncio.sleep(max(0.0, self._looked_at + BRANCH_S - time.monotonic()))
        self._is_looking, self._looked_at = False, time.monotonic()
        branch = await asyncio.to_thread(branch_of, Path(self.transcript.work_dir))
        header = self.bench.header
        header.heading = header.heading._replace(branch=branch)
        self._status_changed()

    # --- what is written in the prompt

    @on(PromptArea.Sent)
    def _sent(self, event: PromptArea.Sent) -> None:
        """Run the command that the menu offered or that was written out, or say the text."""
        self.bench.chat_pane.dismiss()
        if event.text.strip() and self.bench.type_ahead.is_blind(event.at):
            self.bench.give_back([event.text])
            return
        if event.pasted == "now" and (event.chosen or self._is_run(event.text)):
            self.bench.keep(event.text)
            send = key_of("send", self.bench.keys)
            self.bench.tell("The pasted command was not run.", advice=f"{send} runs it.")
            return
        if event.chosen:
            self._run_entry(event.chosen)
            return
        # A text after a blank is no command, also when it is sent again.
        is_text = event.pasted == "lines" and event.text.startswith(SIGNS)
        text = f" {event.text}" if is_text else event.text
        if self._image_input is not None and self._image_input.reads_for(text):
            self.bench.start(self._send_when_read(text))
        else:
            self.send(text)

    def _is_run(self, written: str) -> bool:
        """Return whether a sent text is a command or note, and no message."""
        return (
            is_command(written)
            or is_note(written)
            or self.commands.parse(written.rstrip()) != MESSAGE
        )

    def send(self, written: str) -> asyncio.Task[None] | None:
        """Carry out a text that was sent from the prompt; returns what of it goes on.

        `/` begins a command, `!` a shell command of the user's own, `#` a note; an empty text has the agent continue. All
        else is a message to the agent, also any of these with a space before it.
        """
        text = sent_text(written)
        if not text:
            self._go_on()
            return None
        if written[0] in "!#" and self._prompt_modes.handle(written):
            return None
        if written.rstrip() == "/":
            self.bench.tell(
                '"/" begins a command.', advice="Type its name, or choose one with the arrow keys."
            )
            self.bench.keep(text)
            return None
        if text == self._unknown and self._asked_unknown.accepts(self.prompt.area.key_at):
            # A space before the slash makes it a message, also when it is sent again.
            text = written = f" {text}"
        self._unknown = ""
        if written[0] == "/" and self._has_key(written):
            return None
        behind = self.bench.returned.command_behind(text)
        if behind and self.commands.parse(behind).command is not None:
            # The message waits on: the user may edit it, and an undo takes it away again.
            self.prompt.area.put_sent(text.removesuffix(behind).rstrip())
            text = written = behind
        # A space before the slash makes the text a message.
        parsed = self.commands.parse(written.rstrip())
        if parsed.command is None and written.startswith("/") and not self._learned.is_set():
            return self.bench.start(self._send_when_learned(written), opens=True)
        if parsed.command is not None:
            return self._run_written(parsed.command, parsed.argument, text)
        if parsed.unknown:
            self._say_unknown(parsed, text)
        else:
            self.bench.add_to_history(text)
            # A user who sends a message wants to see the answer, wherever they were reading.
            self.transcript.scroll_to_end()
            self.conversation.say(text)
        return None

    def _queue(self, written: str) -> None:
        """Have a text that was written sent when the running turn has ended."""

        async def send() -> None:
            if (goes_on := self.send(written)) is not None:
                await asyncio.wait([goes_on])

        if self._is_run(written):
            self.conversation.carry_out(sent_text(written), send, "after the turn")
        elif text := sent_text(written):
            self.bench.add_to_history(text)
            self.conversation.say(text, "after the turn")

    def _go_on(self) -> None:
        """Let the agent go on, unless the key was pressed before that could be seen to be offered."""
        if self.conversation.state.can_resume and not self._offered.accepts(
            self.prompt.area.key_at
        ):
            send = key_of("send", self.bench.keys)
            self.bench.tell(
                f"{send} was ignored, because it was pressed before the screen showed that the agent can continue.",
                advice=f"Press {send} again to let the agent continue.",
            )
        elif (undone := self.conversation.undo_at_stake) and undone != self._stake_told:
            self._stake_told = undone
            send = key_of("send", self.bench.keys)
            self.bench.tell(
                f"{send} again lets the agent continue from here. After that, /redo is not possible.",
                level="warning",
            )
        else:
            self.conversation.go_on()

    def _has_key(self, written: str) -> bool:
        """Return whether the argument of a command holds an API key; then a notice says so, and the text is neither run nor stored.

        A search may be for a key. Text for the model (a D-Mail, the argument of a custom command) may mention a key or a
        commit, as any message may: there only a key alone counts.
        """
        from kimi_tui.foreign_text import one_line
        from kimi_tui.tools.credentials import is_key, words_of_keys

        word, _, argument = written.partition(" ")
        if word in ("/search", "/sessions", "/resume"):
            return False
        is_message = word == "/dmail" or COMMANDS.parse(word).command is None
        if not (is_key(argument) if is_message else words_of_keys(argument)):
            return False
        advice = "To enter an API key, send /model without an argument." if word == "/model" else ""
        self.bench.tell(
            f"What follows {one_line(word[:20])} looks like an API key. Nothing was done, and the text was not stored.",
            level="warning",
            advice=advice,
        )
        return True

    async def _send_when_read(self, written: str) -> None:
        self.send(await self.image_input.settled(written))

    async def _learn_commands(self, sent: Sequence[str]) -> None:
        from kimi_tui.tui.main.commands import custom

        try:
            await custom.learn(self.parts)
        finally:
            self._learned.set()
            # Texts that were sent before count for the menu: the commands of files are known now, too.
            self._learn_uses(sent)
        self._follow_prompt()
        # The first slash in the prompt opens it.
        await in_daemon_thread(import_module, "kimi_tui.tui.prompt.menu")
        from kimi_tui.tui.main.commands import mcp

        await mcp.learn(self.parts)
        self._follow_prompt()

    async def _send_when_learned(self, written: str) -> None:
        await self._learned.wait()
        self.send(written)

    def _run_entry(self, chosen: str) -> None:
        """Run an entry of the menu: a command's name, followed by a blank and a value if the entry offered one."""
        name, _, argument = chosen.partition(" ")
        self._run_written(self.commands[name], argument, f"/{chosen}")

    def _learn_uses(self, sent: Iterable[str]) -> None:
        """Count sent texts for the order of the menu; while the menu is open, later: rows must not move under the cursor."""
        self._uses += sent
        if not self.prompt.area.text.startswith("/"):
            self.commands.learn_uses(self._uses)
            self._uses.clear()

    def _run_written(self, command: Command, argument: str, text: str) -> asyncio.Task[None] | None:
        """Run a command that was typed; with an argument that it does not take, it stays in the prompt."""
        if argument and not command.argument:
            self._keep_unknown(text)
            send = key_of("send", self.bench.keys)
            self.bench.tell(
                f"/{command.name} takes no argument.",
                advice=f"Delete what follows it, or press {send} again to send this as a message.",
            )
            return None
        if argument or not command.needs_argument:
            self.bench.add_to_history(text)
            self._learn_uses((text,))
        return self.run_command(command.name, argument)

    def _say_unknown(self, parsed: ParsedLine, text: str) -> None:
        """Say that a command does not exist, and what to use instead; the text stays in the prompt and can be sent as it is."""
        from kimi_tui.tui.main.commands.peer_commands import ELSEWHERE

        self._keep_unknown(text)
        send = key_of("send", self.bench.keys)
        of_ours = COMMANDS.parse(f"/{parsed.unknown}").command
        if of_ours is not None and of_ours.needs is not None:
            said, instead = external_agents.lacking(self.parts, of_ours.name, of_ours.needs)
            advice = f"{instead} {send} again sends the text to the agent.".lstrip()
            self.bench.tell(said, advice=advice)
            return
        said = f'"/{parsed.unknown}" is not a command.'
        if answer := ELSEWHERE.get(parsed.unknown):
            said = f"{said} {answer}"
        elif parsed.meant:
            names = [f"/{one.name}" for one in parsed.meant]
            listed = " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
            said = f"{said} Did you mean {listed}?"
        else:
            key = key_of("commands", self.bench.keys)
            said = f"{said} {key or '/commands'} lists all commands."
        self.bench.tell(said, advice=f"{send} again sends the text as a message.")

    def _keep_unknown(self, text: str) -> None:
        """Keep a text in the prompt, and have the key that sends it send it as a message once a notice says so."""
        self.bench.keep(text)
        self._unknown = text
        self._asked_unknown.ask(is_expected=True)

    @on(PromptArea.Changed)
    def _typed(self, event: PromptArea.Changed) -> None:
        """Follow a change of the text: completion, hints, and importing what drawing an answer needs."""
        self.transcript.warm_up()
        self.viewer.hide_prospect()
        area = self.prompt.area
        self.keystrokes.written_at = time.monotonic() if area.text else 0.0
        if self._uses:
            self._learn_uses(())
        if self.first_time_hints is not None and "[Pasted " in area.text and area.chip is not None:
            self.first_time_hints.happened("pasted")
        self._cursor_moved()
        if self.bench.frame.views is not None:
            self.bench.frame.views.gauge.to_send = area.chip_tokens
        if (drafts := self.conversation.drafts) is not None:
            drafts.draft_changed()
        command = self.commands.argument_of(area.text)
        if command is not self._begun and command is self.commands["model"]:
            self.conversation.learn_models()
        self._begun = command

    @on(PromptArea.SelectionChanged)
    def _cursor_moved(self) -> None:
        """Update completions and hints, which depend on the cursor's place."""
        self.prompt.area.offer(anew=False)
        self._show_above()

    @on(PromptArea.MenuMade)
    def _menu_made(self, event: PromptArea.MenuMade) -> None:
        add_sheets(self, "rows")
        self.bench.chat_pane.put_menu(event.menu)

    @on(FolderFiles.Listed)
    @on(PromptArea.OffersChanged)
    def _follow_prompt(self) -> None:
        """Update the completions and the rows above the prompt for its text, also where that has not changed."""
        self.prompt.area.offer()
        self._show_above()

    def _show_above(self) -> None:
        area, waits = self.prompt.area, self.conversation.follow_ups
        text = area.text
        is_busy = bool(text) and self.conversation.state.running
        is_other = text[:1] in ("!", "#") or "@" in text or "[Pasted " in text or CHIP_START in text
        if self._says_above or is_busy or waits or is_other or area.is_searching:
            self._says_above = True
            self.prompt.show_above(self._prompt_modes.waiting(), self._prompt_modes.writing())

    @property
    def image_input(self) -> ImageInput:
        """Return the reader of images for the prompt. Imported when first needed."""
        if self._image_input is None:
            from kimi_tui.tui.main.image_input import ImageInput

            self._image_input = ImageInput(self.bench)
        return self._image_input

    async def _load_image(self, facts: ImageBlock) -> bytes | None:
        return await self.conversation.load_image(facts)

    def _cost_words(self) -> str:
        return self.conversation.cost_words()

    def values(self) -> Values:
        """Return the present values for arguments of commands: models, checkpoints, world lines, sub-agents."""
        from kimi_tui.projection.subagents import agent_title
        from kimi_tui.tui.timeline.layout import whole_label

        timeline = self.bench.views.timeline.model
        live, lines = timeline.tree.live, timeline.tree.lines
        return self.conversation.values._replace(
            checkpoints=tuple(
                (str(one.id), one.bookmark or whole_label(one) or "now")
                for one in reversed(live[-OFFERED:])
            ),
            world_lines=tuple(
                (str(n), timeline.line_name(n)) for n in sorted(lines, reverse=True)[:OFFERED]
            ),
            agents=tuple(
                (one.name, agent_title(one)) for one in reversed(self.subagents.states[-OFFERED:])
            ),
        )

    @on(PromptArea.TabPressed)
    def _tab_pressed(self) -> None:
        """From an empty prompt, focus the chat; while the agent works, queue the text as a follow-up."""
        area = self.prompt.area
        if not area.text:
            self.bench.focus_chat()
        elif self.conversation.state.running and area.text.strip():
            self._queue(area.take())

    @on(PromptArea.ModeChanged)
    @on(Transcript.CopyModeChanged)
    def _keys_changed(self) -> None:
        """Update the footer: keys of the prompt, or of the cursor in the chat, have another meaning now."""
        self.bench.update_footer()
        self._status_changed()

    @on(PromptArea.KeysAsked)
    def _keys_asked(self) -> None:
        """Show the page of keys: `?` was typed into the empty prompt."""
        from kimi_tui.tui.dialogs.help import HelpScreen

        push_dialog(self, HelpScreen(self.commands, self.bench.keys))

    @on(PromptArea.PathPasted)
    def _path_pasted(self, event: PromptArea.PathPasted) -> None:
        self.image_input.read_path(event.written, event.pasted)

    @on(PromptArea.ClipboardPressed)
    def _clipboard_pressed(self, event: PromptArea.ClipboardPressed) -> None:
        self.image_input.read_clipboard(event.written)

    @on(PromptArea.ImageOpened)
    def _chip_opened(self, event: PromptArea.ImageOpened) -> None:
        self._open_image(self.bench.images[event.chip].facts)

    def on_row_list_picked(self) -> None:
        """A row of the menu was clicked."""
        if chosen := self.prompt.area.take_clicked():
            self._run_entry(chosen)

    @on(PromptArea.RecallPressed)
    def _recall_pressed(self) -> None:
        """Put the last queued message back into the prompt; without one, the history gets the key."""
        text = self.conversation.take_back()
        if text is None:
            self.prompt.area.recall()
        else:
            self.prompt.area.put_sent(text)

    @on(PromptArea.Paged)
    def _paged(self, event: PromptArea.Paged) -> None:
        # The actions of the same name raise an error if there is nothing to scroll.
        if event.direction < 0:
            self.transcript.scroll_page_up()
        else:
            self.transcript.scroll_page_down()

    @on(PromptArea.ExitPressed)
    def _exit_pressed(self, event: PromptArea.ExitPressed) -> None:
        """Ctrl+C stops what runs, else empties the prompt. Ctrl+C or Ctrl+D again, while the notice says so, quits."""
        self.quitting.key_pressed(event.key, stops=event.stops)

    def take_draft(self) -> Draft:
        """Remove the draft from the prompt and return it, to be moved to another session."""
        draft = self.prompt.area.draft
        self.prompt.area.take()
        return draft

    # --- the chat, and a world line in its place

    def on_transcript_checkpoint_clicked(self, event: Transcript.CheckpointClicked) -> None:
        """A checkpoint was chosen in the chat or in a world line on view: preview a rewind, or read its summary."""
        from kimi_tui.soul.rewind_values import Target

        if self._is_of_agent(event.transcript):
            self.bench.start(subagents.rewind(self.parts, Target(event.id)), opens=True)
            return
        if self.beside.view is not None:
            self.bench.tell(
                "You cannot rewind to a step of a future from this view.",
                advice="When the future has ended, switch to it, then rewind.",
            )
            return
        is_now = event.transcript is self.transcript
        point = self.bench.views.live_point(event.id) if is_now else None
        if point is not None and point.is_summary:
            self.bench.start(rewind.read_summary(self.parts, point.uid), opens=True)
        else:
            target = Target(event.id, 0 if is_now else self.viewer.shown_line, event.said)
            self.bench.start(rewind.preview(self.parts, target), opens=True)

    def _is_of_agent(self, transcript: Transcript | None = None) -> bool:
        """Return whether a transcript, or without one the timeline on view, is that of a sub-agent."""
        view = self.subagents.view
        return view is not None and transcript in (None, view.transcript)

    @on(Transcript.AgentOpened)
    def _agent_opened(self, event: Transcript.AgentOpened) -> None:
        """Show a sub-agent in place of the chat."""
        if not event.name:
            self.bench.tell("This sub-agent has not begun. It waits until the others have ended.")
            return
        shows = futures.open_agent if self.futures.view is not None else subagents.open_agent
        self.bench.start(shows(self.parts, event.name), opens=True)

    def on_transcript_pin_toggled(self, event: Transcript.PinToggled) -> None:
        """Pin a message of the chat, or unpin it."""
        if self.beside.view is not None:
            self.bench.tell("Only messages of the current conversation can be pinned.")
            return
        self.bench.start(world_lines.pin_message(self.parts, event.uid, event.number))

    @on(Transcript.LinkClicked)
    def _link_clicked(self, event: Transcript.LinkClicked) -> None:
        app_of(self).open_url(event.url)

    @on(Transcript.DiffLineChosen)
    def _diff_line_chosen(self, event: Transcript.DiffLineChosen) -> None:
        """Go to the checkpoint that wrote a line of a diff."""
        from kimi_tui.tui.main.commands import changes

        self.bench.start(changes.go_to_author(self.parts, event.path, event.line, event.uid))

    @on(Transcript.ImageOpened)
    def _image_opened(self, event: Transcript.ImageOpened) -> None:
        self._open_image(event.image)

    def _open_image(self, facts: ImageBlock) -> None:
        self.post_message(ImageChosen(facts, partial(self.conversation.load_image, facts)))

    @on(Transcript.Copied)
    def _copied(self, event: Transcript.Copied) -> None:
        # The message is handed on here: when it is posted in a handler of the screen (`/copy`), it goes no further than the
        # screen.
        event.stop()
        app_of(self).post_message(Transcript.Copied(event.transcript, event.text, event.words))

    @on(Transcript.NothingCopied)
    def _nothing_copied(self, event: Transcript.NothingCopied) -> None:
        event.stop()
        self.bench.tell(event.words)

    @on(Transcript.RebuildNeeded)
    def _rebuild_needed(self) -> None:
        self.conversation.rebuild()

    def on_transcript_search_ended(self) -> None:
        """Give the keys back to the widget that had them before the search, and list them in the footer."""
        self.bench.leave_search()
        self.on_descendant_focus()

    def on_world_line_transcript_action_chosen(
        self, event: WorldLineTranscript.ActionChosen
    ) -> None:
        """A key of the world line on view."""
        match event.action:
            case "jump":
                self.bench.start(world_lines.jump_to_chosen(self.parts), opens=True)
            case "send":
                self.bench.start(world_lines.send_chosen(self.parts), opens=True)
            case "compare":
                self.bench.start(
                    world_lines.compare_with_live(self.parts, self.bench.reading), opens=True
                )
            case _:
                self.viewer.leave(back=True)

    # --- the timeline, whose class is imported after the first paint: its messages are named by their handlers

    def on_timeline_checkpoint_chosen(self, event: Timeline.CheckpointChosen) -> None:
        """Preview a rewind to a row."""
        if self._is_of_agent():
            self.bench.start(subagents.rewind(self.parts, event.target), opens=True)
            return
        self.bench.start(rewind.preview(self.parts, event.target), opens=True)

    def on_timeline_row_highlighted(self, event: Timeline.RowHighlighted) -> None:
        """Show in chat and gauge what a rewind to the selected row would drop and leave, and the keys of that row."""
        pane = self.bench.timeline_pane
        if pane.place != self._row_place:
            self._row_place = pane.place
            pane.name_keys()
            self.bench.update_footer()
        if self.subagents.show_prospect(event.prospect):
            return
        self.viewer.show_selected_prospect(event.prospect)

    def on_timeline_row_acted(self, event: Timeline.RowActed) -> None:
        """Carry out the key that was pressed for a row: bookmark, pin, read, summary. A target with `id` -1 is a whole line."""
        target, uid = event.target, event.uid
        if self._is_of_agent():
            self.bench.tell("On the timeline of a sub-agent, Enter rewinds it to the step.")
        elif event.action == "read":
            self.bench.start(
                world_lines.open_line(self.parts, target.world_line, target.id), opens=True
            )
        elif event.action == "bookmark" and target.id < 0 and uid:
            self.bench.start(world_lines.name_line(self.parts, target.world_line), opens=True)
        elif target.id < 0 or uid.startswith("~"):
            self.bench.tell("Select a step first.", advice="Press Space to expand the world line.")
        elif event.action == "bookmark":
            self.bench.start(world_lines.name_checkpoint(self.parts, target, uid), opens=True)
        elif event.action == "pin":
            self.bench.start(world_lines.pin_message(self.parts, uid))
        elif event.action == "summary":
            self.bench.start(rewind.read_summary(self.parts, uid), opens=True)

    def on_timeline_growing_chosen(self, event: Timeline.GrowingChosen) -> None:
        """Read a future that runs."""
        self.bench.start(futures.open_future(self.parts, event.key), opens=True)

    def on_beside_transcript_beside_acted(self, event: BesideTranscript.BesideActed) -> None:
        """A key of the future or sub-agent on view."""
        acts = subagents.act if self._is_of_agent() else futures.act
        self.bench.start(acts(self.parts, event.action), opens=event.action != "stop")

    def _write_to_agent(self, name: str, text: str) -> None:
        """Write a message to a sub-agent, which begins with what was typed."""
        self.bench.start(subagents.steer(self.parts, name, text), opens=True)
        self.bench.type_ahead.hold_back()

    def _write_to_future(self, key: str, text: str) -> None:
        """Write a message to a future, which begins with what was typed."""
        self.bench.start(futures.steer(self.parts, key, text), opens=True)
        self.bench.type_ahead.hold_back()

    def _begin_futures(self, target: Target) -> None:
        """Ask how futures are to begin at the checkpoint of a preview."""
        self.bench.start(futures.start(self.parts, target), opens=True)
        self.bench.type_ahead.hold_back()

    def on_timeline_left(self) -> None:
        """Return the focus from the timeline."""
        self.bench.leave_timeline()

    def on_timeline_filter_changed(self) -> None:
        """Update the footer: while the timeline is filtered its keys have other meanings."""
        pane = self.bench.timeline_pane
        pane.name_keys()
        self.bench.update_footer()
        command = self._command_of(pane.needle) if pane.place == "missed" else None
        if command is not None:
            words = f"No step contains this text, but /{command.name} is a command."
            self.bench.tell(words, advice="Enter runs it.", topic=COMMAND_HERE)
        else:
            self.bench.chat_pane.dismiss(COMMAND_HERE)

    def on_timeline_missed_chosen(self, event: Timeline.MissedChosen) -> None:
        """Run the command that was typed on the timeline, whose filter the slash before it has opened."""
        if self._command_of(event.needle) is None:
            return
        self.bench.chat_pane.dismiss(COMMAND_HERE)
        self.bench.timeline_pane.end_filter()
        self.bench.leave_timeline()
        self.send(f"/{event.needle.strip()}")

    def _command_of(self, needle: str) -> Command | None:
        return self.commands.parse(f"/{needle.strip()}").command if needle.strip() else None

    # --- header, gauge and footer

    @on(Header.PartClicked)
    def _part_clicked(self, event: Header.PartClicked) -> None:
        """Open what changes the part of the header that was clicked; a mode is chosen and not just switched."""
        if event.part == "mode" and not self.bench.question:
            self.bench.focus_prompt()
            self.bench.keep("/mode ")
        elif event.part == "model":
            self.action_command("model")

    def on_gauge_clicked(self) -> None:
        """Show what the context holds."""
        self.action_command("context")

    # --- where the keys go

    async def intercept(self, event: events.Key | events.Paste) -> bool:
        """Take a key or paste before the focused widget gets it; False for one that is for that widget."""
        if not isinstance(event, events.Key) or event.key not in QUITTING:
            self.quitting.cancel()
        if self.first_time_hints is not None:
            self.first_time_hints.key_pressed()
        return await self.keystrokes.intercept(event)

    def takes_typed(self, text: str) -> bool:
        """Return whether characters that came at once are a pasted text: a question has the keys, and one key answers it."""
        return len(text) > 1 and self.keystrokes.answers

    def on_screen_resume(self) -> None:
        """The screen above this one is closed: end the prospect that a click on the timeline showed."""
        self.transcript.uncovered()
        self.viewer.hide_prospect()
        self.ignore_early_keys()

    def on_screen_suspend(self) -> None:
        """Another screen is over this one."""
        self.bench.type_ahead.screen_opened()

    def on_click(self, event: events.Click) -> None:
        """A click in the chat leaves the timeline, where keys act on its rows."""
        if self.bench.timeline_pane.has_keys and self.transcript.region.contains(
            event.screen_x, event.screen_y
        ):
            # If the timeline floats over the chat, the pointer is on the timeline.
            widget, _ = self.get_widget_at(event.screen_x, event.screen_y)
            if widget is self.transcript:
                self.bench.return_to_prompt()

    def action_go_round(self, step: int) -> None:
        """Focus the next of prompt, chat and timeline, of those that are visible, or the one before.

        Args:
            step: 1 for the next, -1 for the one before.
        """
        bench = self.bench
        asks = bench.question is not None and bench.question.has_focus
        if asks or (bench.timeline_pane.has_keys and step < 0):
            bench.focus_chat()
        elif bench.on_view.has_focus and step > 0 and not self.has_class("-overlay"):
            bench.focus_timeline()
        else:
            bench.return_to_prompt()

    def action_escape(self) -> None:
        """Close the menu; from the chat go back to the prompt; there stop what runs.

        Twice in an idle, empty prompt: the timeline, to go back to a step.
        """
        if self.prompt.area.end_offers():
            return
        if self.transcript.has_focus:
            if not self.bench.end_search():
                self.bench.leave_chat()
            return
        self.viewer.hide_prospect()
        panel = self.bench.question
        key = self.futures.asker_of(panel.request.id) if panel is not None else ""
        if panel is not None and key and self.focused in (None, panel):
            self.bench.start(futures.stop(self.parts, key))
            return
        if panel is not None and panel.request.agent and self.focused in (None, panel):
            self.bench.start(subagents.stop(self.parts, panel.request.agent))
            return
        if self.beside.leave(back=True) or self.subagents.stop_first():
            return
        if self.conversation.stop() or self.viewer.leave(back=True):
            return
        if self.bench.end_search():
            return
        area = self.prompt.area
        now = time.monotonic()
        if not area.has_focus:
            self.bench.focus_prompt()
        elif not area.text:
            if now - self._escaped_at < TWICE_S:
                self.bench.focus_timeline()
            self._escaped_at = now

    def action_leave_or_copy(self, key: str) -> None:
        """Handle Ctrl+C or Ctrl+D as the prompt does, while something else has the focus."""
        if key != "Ctrl+C" or not copy_selection(self):
            self.post_message(PromptArea.ExitPressed(key, stops=key == "Ctrl+C"))

    def on_descendant_focus(self) -> None:
        """List the keys of the focused widget in the footer; keep notices off the row of a search."""
        self.bench.chat_pane.set_class(self.bench.on_view.is_searched, "-searched")
        self.bench.update_footer()

    # --- approvals, in place of the prompt

    def _show_queue(self) -> None:
        """Show the oldest of all requests that wait, of the current conversation and of futures."""
        waiting = self.futures.queue(self.conversation.state)
        self._show_approvals(waiting)
        if not waiting:
            self.bench.chat_pane.dismiss(BEHIND)

    def _show_approvals(self, waiting: Sequence[Asked]) -> None:
        """Show the oldest of the waiting requests in place of the prompt, which keeps its draft; the prompt where there is none.

        Args:
            waiting: all that wait, oldest first.
        """
        from kimi_tui.projection.subagents import asker_words
        from kimi_tui.tui.approval.panel import ApprovalPanel

        bench, prompt = self.bench, self.prompt
        requests = [one.request for one in waiting]
        shown, oldest = bench.question, requests[0] if requests else None
        if shown is not None and oldest is not None and shown.request.id == oldest.id:
            shown.waiting = len(requests)
            return
        bench.question = None
        if self._shows_dmail:
            self._shows_dmail = False
            self.viewer.show_prospect(None)
        if oldest is not None:
            # A user who reads elsewhere goes on reading: their Esc is not meant to stop the turn.
            going = shown or prompt
            takes_keys = self.focused is None or going.has_focus_within
            if takes_keys:
                # The focus is removed first: when its widget goes, Textual would give it to a neighbour for a moment.
                self.set_focus(None)
            panel = bench.question = ApprovalPanel(
                oldest,
                bench.last_key_at,
                bench.keys,
                takes_keys=takes_keys,
                write=self.keystrokes.write_to_prompt,
                prompt=prompt.area,
                typed_at=self.keystrokes.written_at,
                asker=waiting[0].asker or asker_words(oldest.agent, self.conversation.state.agents),
                stops=self._stopped_by(waiting[0]),
            )
            panel.waiting = len(requests)
            self.beside.name_way_to_question()
            prompt.display = False
            bench.chat_pane.hide_menu(True)
            self.mount(panel, after=prompt)
            is_own = not (waiting[0].asker or oldest.agent)
            if is_own and oldest.checkpoint_id >= 0 and "dmails" in self.conversation.state.parts:
                bench.start(self._preview_dmail(panel))
        elif shown is not None:
            prompt.display = True
            bench.chat_pane.hide_menu(False)
            if shown.has_focus_within:
                # A letter that was typed right after Esc still waits there for a second one.
                prompt.area.write(shown.pop_pending())
                bench.focus_prompt()
        if shown is not None:
            shown.remove()

    @staticmethod
    def _stopped_by(asked: Asked) -> str:
        """Return what Esc in the question of a request stops, in words."""
        from kimi_tui.tui.approval.model import THIS_FUTURE

        if asked.asker:
            return THIS_FUTURE
        return "this sub-agent" if asked.request.agent else "the turn"

    async def _preview_dmail(self, panel: ApprovalPanel) -> None:
        """Show what a D-Mail would drop and leave while its request waits: in the panel, the chat and the gauge."""
        from kimi_tui.soul.rewind_values import Prospect, Target
        from kimi_tui.tui.preview.layout import consequence_rows

        bench, request = self.bench, panel.request
        soul = await self.conversation.opened("dmails")
        try:
            found = await soul.dmails.preview(request.checkpoint_id, request.detail)
        except KeyError:
            # The line has changed since, and the question went with it.
            if bench.question is panel:
                words = f"Checkpoint #{request.checkpoint_id} of this D-Mail is not on the current world line."
                bench.tell(words, level="warning")
            return
        if bench.question is not panel:
            return
        panel.toll = partial(consequence_rows, found)
        if not bench.timeline_pane.has_keys:
            self._shows_dmail = True
            target, left = Target(request.checkpoint_id), found.tokens_after
            self.viewer.show_prospect(Prospect(target, left, found.estimated, words_stay=True))

    def on_approval_panel_answered(self, event: ApprovalPanel.Answered) -> None:
        """Pass an answer on."""
        if self.futures.answer(event.request_id, event.answer, event.feedback):
            self._show_queue()
        else:
            self.conversation.answer(event.request_id, event.answer, event.feedback)

    def on_approval_panel_too_early(self) -> None:
        """Say in the question itself why nothing happened."""
        if self.first_time_hints is not None:
            self.first_time_hints.happened("early", self.bench.question)

    def on_approval_panel_keys_changed(self) -> None:
        """List the keys of the question in the footer."""
        self.bench.update_footer()
