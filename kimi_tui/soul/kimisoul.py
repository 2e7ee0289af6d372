"""KimiSoul, the agent engine of one session: a `Soul` with all parts. Runs turns and operations, one at a time.

`assembly.open_soul` puts it together. Everything that happens is published on its wire. What a turn does is in `loop`, an operation in `operations`; here they are started, stopped and ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from kimi_tui.display_names import some_of
from kimi_tui.foreign_text import one_line
from kimi_tui.images import Image
from kimi_tui.llm.errors import LLMError, LLMNotSet, ModelCannotSee, ToolsNotSupported
from kimi_tui.llm.provider import ChatProvider, Overdue
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.images import IMAGES_NAME, reference_of
from kimi_tui.session.session import Session
from kimi_tui.soul.approval import Approval, Mode
from kimi_tui.soul.attachments import Attachments
from kimi_tui.soul.bookmarks import UserMarks
from kimi_tui.soul.compaction import Compaction, CompactionSpan, Compactor
from kimi_tui.soul.conversation import Conversation
from kimi_tui.soul.dmail import DMailDelivery, UserDMails
from kimi_tui.soul.errors import (
    EmptySummary,
    NothingToCompact,
    RunCancelled,
    SoulError,
    TurnFailed,
)
from kimi_tui.soul.file_history import FILES_NAME
from kimi_tui.soul.history import session_history
from kimi_tui.soul.loop import AgentLoop, Steer, Steering, TurnOutcome
from kimi_tui.soul.operations import Operations
from kimi_tui.soul.parts import DMails, Lines, Tasks, Travel
from kimi_tui.soul.project_notes import notes_in
from kimi_tui.soul.record import Recorder
from kimi_tui.soul.request_form import ToolsWish
from kimi_tui.soul.rewind_values import (
    Target,
)
from kimi_tui.soul.session_title import propose_title
from kimi_tui.soul.system_prompt import FolderFacts
from kimi_tui.soul.tasks import OneAtATime, OrphanedTasks, run_to_completion, shielded
from kimi_tui.soul.token_meter import WindowPart, window_parts
from kimi_tui.soul.tool_calls import ToolRuntime, run_user_command
from kimi_tui.soul.usage import Cost, Statistics, session_statistics
from kimi_tui.tool_cards import ImageBlock
from kimi_tui.tools.jobs import Job, Jobs
from kimi_tui.tools.process import call_soon
from kimi_tui.tools.sandbox.git_levers import ASIDE
from kimi_tui.tools.sandbox.git_watch import GitNews
from kimi_tui.tools.sandbox.layers import Reset
from kimi_tui.tools.sandbox.policy import NoSandbox
from kimi_tui.tools.sandbox.sandbox import Sandbox, SandboxState
from kimi_tui.wire.events import (
    ApprovalAnswer,
    EventRecord,
    FailureKind,
    JobsChanged,
    Notice,
    StatusUpdate,
    TurnBegin,
    TurnEnd,
)

if TYPE_CHECKING:
    from kimi_tui.tools.base import Tool

log = logging.getLogger(__name__)
T = TypeVar("T")

TurnResult = Literal["done", "rejected"]
"""How a turn ended in order: the agent was done, or the user did not allow what it wanted to do."""
TURN_ERRORS = (LLMError, SoulError, StorageTrouble)
"""What else a turn ends with. The event of its end tells each, so a caller that listens to these has nothing to do."""
WAIT_ON = "Wait on"
ASK_AGAIN = "Send the request again"
"""The answers where a model's answer is overdue."""
# Stopped tools end what they started within a few seconds.
_ORPHANS_S = 10.0
_MOST_NAMED = 5
_LONGEST_NAME = 120


class KimiSoul:
    """The engine as a screen sees it; `assembly.open_soul` opens it. Methods run on the event loop and never block it.

    Turns and operations run one at a time: whatever changes the context, and reads all of it, raises `SoulBusy` while
    another runs. What ends a turn is both an event on the wire and an exception for the caller of `run`. Every operation that changes the context
    can be undone. Where the disk refuses an operation, it raises `StorageTrouble` (an `OSError`) and nothing has
    changed.

    Args:
        session: the open session.
        conversation: its live conversation.
        mode: the approval mode.
        compaction: the compaction strategy.
        environ: the environment of the program; tools read it in threads.
        history: the events for the first subscriber.
        sandbox: the sandbox of commands; without one, or with one that has gaps, there is no sandboxed mode.
        no_sandbox: why there is none; empty where there is one.
        search_sandbox: the sandbox of search programs, also in a folder where commands have none.
        asks_for_keys: whether the user is asked before a result with API keys goes to the model.
        seeing: the names of configured models that take images.

    Attributes:
        wire: the event queue on which everything is published.
        session: the open session.
        no_sandbox: why there is no sandbox; empty where there is one.
        search_sandbox: the sandbox of search programs; None where there is none.
        travel, lines, marks, tasks, dmails: its parts (see `Soul`).
    """

    name = "kimi-tui"

    def __init__(
        self,
        session: Session,
        conversation: Conversation,
        *,
        mode: Mode,
        compaction: Compaction,
        environ: Mapping[str, str],
        history: Sequence[EventRecord],
        sandbox: Sandbox | None,
        no_sandbox: str,
        search_sandbox: Sandbox | None,
        asks_for_keys: bool,
        seeing: Sequence[str],
    ) -> None:
        wire = conversation.wire
        self.wire = wire
        self.session = session
        self._conversation = conversation
        self._history: Sequence[EventRecord] = history
        self._recorder = Recorder(session.record, wire)
        self.marks = UserMarks(session)
        self._approval = Approval(wire, mode)
        self._sandbox = sandbox
        self.no_sandbox = no_sandbox
        self.search_sandbox = search_sandbox
        self._steering = Steering(wire)
        self._orphans = OrphanedTasks()
        self._compactor = Compactor(conversation, self.marks, compaction)
        dmails = DMailDelivery(conversation, self.marks, self._approval, environ)
        self._jobs = Jobs(self._publish_jobs)
        self._tools = ToolRuntime(
            conversation,
            self._approval,
            session.work_dir,
            environ,
            sandbox,
            search_sandbox,
            asks_for_keys,
            self._jobs,
            session.state.moved_from,
        )
        if sandbox is not None:
            loop = asyncio.get_running_loop()
            sandbox.git_watch.listen(lambda news: call_soon(loop, self._publish_git_news, news))
        self._seeing = seeing
        self._attachments = Attachments(self._tools, seeing)
        self._loop = AgentLoop(
            self._tools,
            self._orphans,
            self._compactor,
            dmails,
            self._steering,
            self._attachments,
        )
        self._operations = Operations(session, conversation)
        self._alone = OneAtATime(self._stop_naming)
        self.travel = Travel(self._operations, self._jobs, self._alone)
        self.lines = Lines(session, conversation, self.marks, self._recorder.flush, self._alone)
        self.dmails = DMails(UserDMails(conversation, self._operations, dmails), self._alone)
        self.tasks = Tasks(self._jobs)
        self._naming: asyncio.Task[str] | None = None
        """Has the model name the session."""
        conversation.model.on_overdue = self._waits_on

    # -- what there is ---------------------------------------------------------------------------

    @property
    def model_name(self) -> str:
        """The model in use, as its server calls it; empty while none is set."""
        return self._conversation.model.name

    @property
    def model_capabilities(self) -> frozenset[str] | None:
        """What the model in use can take and do; None while none is set."""
        info = self._conversation.model.info()
        return None if info is None else info.capabilities

    @property
    def status(self) -> StatusUpdate:
        """The present token figures of the context and of the whole session."""
        return self._conversation.status

    @property
    def used(self) -> int:
        """Tokens of the context now, as the gauge shows them."""
        return self._conversation.meter.used

    @property
    def message_count(self) -> int:
        """How many messages the context holds, checkpoint markers not counted."""
        return self._conversation.context.index.counts(0)[0]

    @property
    def mode(self) -> Mode:
        """The approval mode."""
        return self._approval.mode

    @property
    def sandbox_gaps(self) -> tuple[str, ...] | None:
        """What the sandbox of this machine cannot confine; None where there is no sandbox."""
        return self._sandbox.gaps if self._sandbox is not None else None

    async def sandbox_state(self) -> SandboxState:
        """What holds for the next command in the sandbox.

        Raises:
            NoSandbox: there is none; the text says why.
        """
        if self._sandbox is None:
            raise NoSandbox(self.no_sandbox)
        return await asyncio.to_thread(self._sandbox.state, self.session.work_dir)

    async def reset_sandbox(self) -> Reset:
        """Remove what commands in the work folder wrote to caches of package managers.

        Raises:
            NoSandbox: there is none; the text says why.
            OSError: not all of it could be removed.
        """
        if self._sandbox is None:
            raise NoSandbox(self.no_sandbox)
        return await asyncio.to_thread(self._sandbox.reset, self.session.work_dir)

    @property
    def cost(self) -> Cost | None:
        """What the session's calls have cost so far; None where no prices are set."""
        return self._conversation.ledger.total_cost()

    @property
    def running(self) -> bool:
        """Whether a turn or an operation is under way."""
        return self._alone.running

    @property
    def takes_steers(self) -> bool:
        """Whether a text queued by `steer` would be taken: a turn, a user's command or a compaction is running."""
        return self._alone.stoppable

    async def settled(self) -> None:
        """Wait until no operation is under way; a turn may be."""
        await self._alone.settled()

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the session's tools, also while they are off."""
        return self._conversation.all_tools.names

    @property
    def tools_form(self) -> Literal["on", "lean", "off"]:
        """Whether requests carry all tools, few in a short form, or none."""
        return self._conversation.form.name

    @property
    def sent_tools(self) -> tuple[str, ...]:
        """The names of the tools that requests carry."""
        return self._conversation.toolset.names

    async def files_ready(self) -> FolderFacts:
        """Wait until the working files have been scanned for the first time; what is known of the folder then."""
        extent = await self._conversation.files.extent()
        sent = self._conversation.context.system_prompt or ""
        notes = tuple(one.path for one in notes_in(sent))
        if extent is None:
            return FolderFacts(notes=notes)
        return FolderFacts(extent.n_files, extent.is_more, notes)

    async def statistics(self) -> Statistics:
        """What the session did and cost so far."""
        await self._recorder.flush()
        prices = self._conversation.ledger.prices
        return await asyncio.to_thread(session_statistics, self.session, prices)

    async def window_parts(self) -> list[WindowPart]:
        """The parts of the context window with their tokens. May be called at any time."""
        conversation = self._conversation
        return await asyncio.to_thread(
            window_parts,
            conversation.system,
            conversation.toolset.specs,
            conversation.sent,
            conversation.meter.used,
        )

    # -- history ---------------------------------------------------------------------------------

    @property
    def opened_with(self) -> Sequence[EventRecord]:
        """The history that was there when the session was opened; nothing once it was handed over."""
        return self._history

    def hand_over_history(self) -> Sequence[EventRecord]:
        """The history for the first listener. It is dropped here then: a long one takes much memory."""
        history, self._history = self._history, ()
        return history

    async def history(self) -> list[EventRecord]:
        """The events that bring a new subscriber to the present state of the session."""
        await self._recorder.flush()
        status = self.status
        shown = await asyncio.to_thread(session_history, self.session)
        said = next((r.event for r in reversed(shown) if isinstance(r.event, StatusUpdate)), None)
        if shown and (said is None or said.used != status.used):
            # One that is made anew from the messages does not say how full the window is now.
            shown.append(shown[-1]._replace(event=status))
        return shown

    async def flush(self) -> None:
        """Bring everything that was published into the record."""
        await self._recorder.flush()

    # -- turns -----------------------------------------------------------------------------------

    async def run(
        self, user_input: str, images: Sequence[Image] = (), *, begins: Callable[[], object] = bool
    ) -> TurnResult:
        """Run one turn: from the user's message until the agent stops. Without text it resumes from the present state.

        What it raises is told on the wire too: what ends the turn, by its `TurnEnd` (`TURN_ERRORS` has all of these).

        Args:
            user_input: the user's message; files and images that it names with `@` are read and attached.
            images: the images that were pasted into it, in order.
            begins: called when the images are stored; messages sent after that come after this one.

        Returns:
            `done`, or `rejected` where the user did not allow what the agent wanted to do.

        Raises:
            SoulBusy: something runs (use `steer`).
            ModelCannotSee: there are images, pasted or named, and the model takes none; nothing was said or stored.
            StorageTrouble: the disk refused an image, then nothing was said, or what the turn was to store.
            LLMNotSet: no model is set.
            LLMNotSupported: the model cannot take something; `missing` names the capabilities.
            LLMError: the model could not be asked.
            MaxStepsReached: the turn used up its steps.
            RunCancelled: the turn was stopped.
            SoulError: anything else that ended it.
        """
        try:
            await self._attachments.check_and_store(user_input, images)
        except ModelCannotSee as error:
            raise self._told(error) from None
        begins()
        # What is queued from now on was said after this.
        return await self._alone.run(
            self._turn(user_input, images, self._steering.queued), stoppable=True
        )

    async def resume(self) -> TurnResult:
        """Go on from where the context stands, without a new message (after an error, a stop or a rewind).

        Returns and raises what `run` does.
        """
        return await self._alone.run(self._turn(""), stoppable=True)

    async def run_command(self, command: str, *, told: bool = True) -> TurnResult:
        """Run a shell command of the user, as a turn without the agent; with `told` its output goes into the context.

        Returns and raises what `run` does.
        """
        return await self._alone.run(self._user_command(command, told=told), stoppable=True)

    def steer(self, text: str, images: Sequence[Image] = ()) -> str:
        """Queue a message, with the images pasted into it, for the running turn (a steer); returns its id.

        Raises:
            ModelCannotSee: images were pasted and the model takes none. Images that the text only names are left out, which
                is published.
        """
        model = self._conversation.model
        if images and not model.sees:
            raise self._told(ModelCannotSee(model.name, self._seeing))
        return self._steering.queue(text, images)

    def withdraw_steer(self, steer_id: str) -> Steer | None:
        """Take queued text and images back for editing; None if they have already gone in."""
        return self._steering.withdraw(steer_id)

    async def image(self, facts: ImageBlock) -> Image | None:
        """The image of an `ImageBlock`; None where it is not stored here. May be called at any time."""
        reference = reference_of(facts.sha256, facts.media_type)
        found = await asyncio.to_thread(self.session.images.get, reference)
        if found is None:
            return None
        return replace(found, width=facts.width, height=facts.height, name=facts.name)

    async def interrupt(self) -> None:
        """Stop whatever runs, within a second; what is complete is kept."""
        await self._alone.interrupt()

    def answer(self, request_id: str, answer: ApprovalAnswer, feedback: str = "") -> None:
        """Answer an approval request; unknown or answered ids are passed over.

        Args:
            request_id: `ApprovalRequest.id`.
            answer: yes, yes for the session, or no.
            feedback: with a no why; with a yes the option chosen, or what is to be sent or run instead. A yes without it to
                a request of the kind `pause` is its first option.
        """
        self._approval.answer(request_id, answer, feedback)

    async def set_mode(self, mode: Mode) -> None:
        """Ask before changes, accept edits in the work folder and commands in the sandbox, or allow everything but what
        is protected.

        Raises:
            NoSandbox: there is none that holds; the text says why.
        """
        if mode == "sandboxed" and self._sandbox is None:
            raise NoSandbox(self.no_sandbox)
        self._approval.set_mode(mode)

    @property
    def allowed(self) -> tuple[str, ...]:
        """The permissions given for the session, each in the words of the answer that gave it."""
        return self._approval.allowed

    def revoke(self, words: str) -> None:
        """Revoke a permission: one of `allowed`."""
        self._approval.revoke(words)

    # -- commands in the background --------------------------------------------------------------

    def _publish_jobs(self, job: Job) -> None:
        running = len(self._jobs.running)
        self.wire.publish(JobsChanged(running))
        self._conversation.files.follow_jobs(running)
        if job.ended and not self._alone.closed:
            command = one_line(job.command)
            brief = job.outcome.brief if job.outcome is not None else ""
            self.wire.publish(Notice("info", f"Job {job.id} has ended, {brief}: {command}"))

    def _publish_git_news(self, news: GitNews) -> None:
        """Say at once what commands that still run did to what the user's own git and other programs run."""
        if news.undone:
            named = _first_of(news.undone)
            text = (
                f"A sandboxed command made {named}, by which your own git could run other programs."
            )
            advice = f"It was undone at once; what was moved away is in {ASIDE} in that repository."
            if news.is_ended:
                advice = "It did so again and again, so the sandboxed commands were ended."
            self.wire.publish(Notice("warning", text, advice))
        if news.made and self._jobs.running:
            # The card of a command that the agent waits for tells of this itself.
            self.wire.publish(
                Notice(
                    "warning",
                    f"A background task changed what can run later: {_first_of(news.made)}.",
                    "Look at it before you use git or an editor there.",
                )
            )

    # -- the model -------------------------------------------------------------------------------

    def retry_now(self) -> None:
        """End the wait before a retry at once."""
        self._conversation.model.retry_now()

    def set_provider(self, provider: ChatProvider | None) -> None:
        """Use another model from the next call on, with the tools that suit it.

        A call that is under way is answered by the model that was asked, which is closed afterwards.
        """
        self._conversation.model.exchange(provider)
        self._conversation.wish_for("")

    async def enlarge_window(self) -> str:
        """Have the model's server make a model like it with a larger window; returns its name, to be used by `set_provider`.

        Raises:
            LLMError: the server has no way, or refused.
        """
        return await self._conversation.model.require().enlarge()

    def use_tools(self, wish: ToolsWish, added: tuple[str, ...] = ()) -> None:
        """Set which tools requests carry from the next call on; published as `ToolsChanged` where that changes them.

        Args:
            wish: all, few (`lean`), none, or (empty) what suits the model.
            added: names of further tools to add to the few.
        """
        self._conversation.wish_for(wish, added)

    def change_tools(self, added: Iterable[Tool[Any]] = (), removed: Collection[str] = ()) -> None:
        """Have other tools in the session from the next call of the model on; see `Conversation.change_tools`."""
        self._conversation.change_tools(added, removed)

    def set_thinking(self, word: str) -> None:
        """Set whether and how much the model thinks from the next call on; see `ChatProvider.set_thinking`.

        Raises:
            LLMError: the model does not take that; the text names what it takes.
        """
        if (provider := self._conversation.model.current) is not None:
            provider.set_thinking(word)
            self.publish_status()

    def publish_status(self) -> None:
        """Publish the token figures again."""
        self._conversation.publish_status()

    def model_known(self) -> None:
        """Follow what has become known of the model: its window, and whether it takes tools."""
        if not self._conversation.choose_form():
            self._conversation.publish_status()
        self._conversation.tell_form()

    # -- compaction ------------------------------------------------------------------------------

    async def compact(
        self,
        instructions: str = "",
        *,
        start: Target | None = None,
        until: Target | None = None,
    ) -> bool:
        """Summarise the context now, or exactly the part from before `start` to before `until`.

        The whole is published as `CompactionBegin`, `CheckpointCreated` #0, `CompactionEnd`, `LineChanged`. A part from
        `start` on is cut first: `ContextReverted` with the reason `compaction` stands before the summary's
        checkpoint, which has the id of `start` and the kind "summary"; what is before it stays as it is. With `until`
        what follows from there stays: a `CheckpointCreated` with `was` for each of its checkpoints, renumbered behind
        the summary, stands before
        `CompactionEnd`. What goes wrong is published.

        Args:
            instructions: what the summary must keep.
            start: the first checkpoint that the summary replaces ("compact from here"); None for the beginning.
            until: the first one after it that stays ("compact up to here"); None for the end.

        Returns:
            whether there is a summary now.

        Raises:
            KeyError: no such checkpoint on the live world line.
            SoulBusy: something runs.
        """
        span = self._operations.span(start, until)
        is_done = await self._alone.run(self._compact(instructions, span), stoppable=True)
        # What was typed meanwhile would wait for the user's next message.
        if self._steering and not self._alone.stopping and not self.running:
            with contextlib.suppress(*TURN_ERRORS):
                await self.resume()
        return is_done

    def can_compact(self, *, start: Target | None = None, until: Target | None = None) -> bool:
        """Whether `compact` would find anything to summarise in that part of the live world line."""
        try:
            return self._compactor.has_work(self._operations.span(start, until))
        except KeyError:
            return False

    async def edit_summary(self, text: str) -> None:
        """Put another text in the place of the newest summary on the live world line.

        Published as a compaction is, without `CompactionBegin`: `CheckpointCreated` of the summary and of what
        follows it, each with `was`, then `CompactionEnd` and `LineChanged`.

        Raises:
            SoulError: the text is empty, or there is no summary.
            SoulBusy: something runs.
            OSError: the disk refused.
        """
        if not text.strip():
            raise EmptySummary
        await self._alone.run(self._compactor.edit_summary(text.strip()))

    # -- the session itself ----------------------------------------------------------------------

    async def save(self) -> str:
        """Write everything that is complete to the disk.

        Returns:
            a sentence on what could not be written; empty where all was.
        """
        context = self.session.context
        if self.session.lock.held:
            await context.sync()
        return context.unsaved_words

    async def rename(self, title: str) -> str:
        """Set the session's title; an empty one resets it to the beginning of the first message. Returns the new title.

        Raises:
            StorageTrouble: it could not be written; the old title stays.
        """
        await asyncio.to_thread(self.session.rename, title)
        return self.session.title

    async def name_session(self) -> str | None:
        """Have the model name the session. A turn, or a compaction, that begins meanwhile stops it.

        Returns:
            the title, empty where there is none or the user has set one; None where it was stopped.
        """
        self._naming = naming = asyncio.create_task(propose_title(self._conversation), name="title")
        try:
            # By itself, so that it can be stopped apart from its caller.
            await asyncio.wait([naming])
        finally:
            naming.cancel()
        if naming.cancelled():
            return None
        title = naming.result()
        if not title or self._alone.closed or self.session.state.title:
            return ""
        with contextlib.suppress(StorageTrouble):
            return await self.rename(title)
        return ""

    def _stop_naming(self) -> None:
        # A server may have one slot for both, and the user waits for the other one.
        if self._naming is not None:
            self._naming.cancel()

    async def aclose(self) -> None:
        """Stop, sync and release the session. May be called again."""
        if self._alone.closed:
            return
        self._alone.closed = True
        await self.interrupt()
        conversation, session = self._conversation, self.session
        await self._jobs.aclose()
        self._approval.close()
        await self._orphans.wait(_ORPHANS_S)
        await conversation.files.aclose()
        if not conversation.context.messages and not conversation.context.journal.entries:
            # A session in which nothing was said leaves nothing.
            for name in (FILES_NAME, IMAGES_NAME):
                await asyncio.to_thread(shutil.rmtree, session.dir / name, True)
        await self._recorder.aclose()
        try:
            await session.aclose()
            if self._sandbox is not None:
                await asyncio.to_thread(self._sandbox.remove_temporary)
        finally:
            await conversation.model.aclose()
            self.wire.close()

    # -- a turn, from the first word to the last save --------------------------------------------

    async def _turn(
        self, text: str, images: Sequence[Image] = (), older: Sequence[Steer] = ()
    ) -> TurnResult:
        resumed = not (text.strip() or images)
        self.wire.publish(TurnBegin(text, resumed, tuple(map(ImageBlock.of, images))))
        end = await self._run_and_save(self._loop.run(text, images, older))
        # What is typed while the turn is being saved would wait for the user's next message: it is taken up at once.
        while end.is_done and self._steering and not self._alone.stopping:
            end = await self._run_and_save(self._loop.run())
        return self._ended(end)

    def _ended(self, end: _TurnEnded) -> TurnResult:
        """Publish the end of a turn; returns it, or raises its error."""
        # Whoever hears that the turn is over may begin the next at once.
        self._alone.free()
        self.wire.publish(end.event)
        if end.error is not None:
            raise end.error
        return "done" if end.is_done else "rejected"

    def _told(self, error: ModelCannotSee) -> ModelCannotSee:
        """The error, which is published: no turn begins whose end would tell it. Nothing was said, so it is no warning in the chat."""
        self.wire.publish(Notice("info", error.message, error.advice))
        return error

    async def _waits_on(self, overdue: Overdue) -> bool:
        """Ask the user whether an answer that is overdue is waited on. A no stops what runs, as Esc does.

        Returns:
            whether it is; else the request is made again.
        """
        options = [WAIT_ON] if overdue.near else [WAIT_ON, ASK_AGAIN]
        said = await self._approval.pause(
            f"{overdue.text} Keep waiting for the answer?", options, no_offer="Stop the turn"
        )
        if said is None:
            await self.interrupt()
        return said != ASK_AGAIN

    async def _user_command(self, command: str, *, told: bool) -> TurnResult:
        self.wire.publish(TurnBegin(f"!{command}") if told else TurnBegin("", resumed=True))
        return self._ended(
            await self._run_and_save(run_user_command(command, self._tools, told=told))
        )

    async def _run_and_save(self, work: Coroutine[Any, Any, TurnOutcome]) -> _TurnEnded:
        """Run the steps of a turn and save; an error is the turn's end, and not raised before that is saved."""
        try:
            outcome = await work
            end = _TurnEnded(TurnEnd(outcome), RunCancelled() if outcome == "interrupted" else None)
        except asyncio.CancelledError:
            end = _TurnEnded(TurnEnd("interrupted"), RunCancelled())
        except (LLMError, SoulError, StorageTrouble) as error:
            log.warning("a turn ended: %s", error.message)
            kind = _failure_kind(error)
            end = _TurnEnded(TurnEnd("error", error.message, error.advice, kind), error)
        except Exception as error:
            log.exception("a turn failed")
            failed = TurnFailed(error)
            failed.__cause__ = error
            end = _TurnEnded(TurnEnd("error", failed.message, failed.advice), failed)
        with contextlib.suppress(asyncio.CancelledError):
            await self._save_turn()
        return end

    @shielded
    async def _save_turn(self) -> None:
        self._conversation.publish_status()
        await self._recorder.flush()
        await self.session.sync()

    async def _compact(self, instructions: str, span: CompactionSpan) -> bool:
        """Compact at the user's request. What goes wrong is published: here, or by the compaction itself."""
        try:
            async with self._conversation.model.call() as provider:
                await self._compactor.compact(
                    provider, automatic=False, instructions=instructions, span=span
                )
        except asyncio.CancelledError:
            return False
        except NothingToCompact as nothing:
            self.wire.publish(Notice("info", nothing.message, nothing.advice))
            return False
        except LLMNotSet as error:
            self.wire.publish(Notice("error", error.message, error.advice))
            return False
        except SoulError:
            return False
        with contextlib.suppress(asyncio.CancelledError):
            await run_to_completion(self.session.sync())
        return True


class _TurnEnded(NamedTuple):
    """How a turn ended: its last event, and what is raised to its caller; None where it ended in order."""

    event: TurnEnd
    error: Exception | None

    @property
    def is_done(self) -> bool:
        return self.event.reason == "done"


def _failure_kind(error: Exception) -> FailureKind:
    if isinstance(error, ToolsNotSupported):
        return "tools"
    return "model" if isinstance(error, LLMError) and not isinstance(error, LLMNotSet) else ""


def _first_of(paths: Sequence[str]) -> str:
    """Some of these paths for a notice. A command chose their names."""
    shown = [one_line(path)[:_LONGEST_NAME] for path in paths[:_MOST_NAMED]]
    return some_of(shown, _MOST_NAMED, len(paths))
