"""KimiSoul, the agent engine of one session: the interface of the screens. Runs turns and operations, one at a time.

`assembly.open_soul` puts it together. Everything that happens is published on its wire. What a turn does is in `loop`, an operation in `operations`; here they are started, stopped and ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

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
    SoulBusy,
    SoulError,
    TurnFailed,
)
from kimi_tui.soul.file_history import FILES_NAME
from kimi_tui.soul.history import session_history
from kimi_tui.soul.loop import AgentLoop, Steer, Steering, TurnOutcome
from kimi_tui.soul.messages import Author
from kimi_tui.soul.operations import Operations
from kimi_tui.soul.project_notes import notes_in
from kimi_tui.soul.record import Recorder
from kimi_tui.soul.request_form import ToolsWish
from kimi_tui.soul.rewind_values import (
    END,
    FilesChoice,
    Forked,
    RewindOutcome,
    RewindPreview,
    Target,
)
from kimi_tui.soul.session_title import propose_title
from kimi_tui.soul.system_prompt import FolderFacts
from kimi_tui.soul.tasks import OrphanedTasks, run_to_completion, shielded
from kimi_tui.soul.token_meter import WindowPart, window_parts
from kimi_tui.soul.tool_calls import ToolRuntime, run_user_command
from kimi_tui.soul.usage import Cost, Statistics, session_statistics
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
    ImageBlock,
    JobsChanged,
    Notice,
    StatusUpdate,
    TurnBegin,
    TurnEnd,
)

if TYPE_CHECKING:
    from kimi_tui.projection.world_lines import WorldLineMessage
    from kimi_tui.soul.world_line_reader import WorldLineComparison, WorldLineInfo, WorldLineReader

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
    """

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
        self._marks = UserMarks(session)
        self._approval = Approval(wire, mode)
        self._sandbox = sandbox
        self.no_sandbox = no_sandbox
        self.search_sandbox = search_sandbox
        self._steering = Steering(wire)
        self._orphans = OrphanedTasks()
        self._compactor = Compactor(conversation, self._marks, compaction)
        dmails = DMailDelivery(conversation, self._marks, self._approval, environ)
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
        self._user_dmails = UserDMails(conversation, self._operations, dmails)
        # The turn or operation that runs now.
        self._task: asyncio.Task[Any] | None = None
        self._stoppable = False
        self._stopping = False
        self._closed = False
        self._naming: asyncio.Task[str] | None = None
        """Has the model name the session."""
        conversation.model.on_overdue = self._waits_on

    # -- what there is ---------------------------------------------------------------------------

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
        return self._task is not None

    @property
    def takes_steers(self) -> bool:
        """Whether a text queued by `steer` would be taken: a turn, a user's command or a compaction is running."""
        return self._task is not None and self._stoppable

    async def settled(self) -> None:
        """Wait until no operation is under way; a turn may be."""
        while (task := self._task) is not None and not self._stoppable:
            await asyncio.wait([task])

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

    @property
    def has_dmail(self) -> bool:
        """Whether D-Mails can be sent in this session; the configuration says so."""
        return self._conversation.limits.dmail.enabled

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
        self, text: str, images: Sequence[Image] = (), *, begins: Callable[[], object] = bool
    ) -> TurnResult:
        """Run one turn: from the user's message until the agent stops. Without text it resumes from the present state.

        What it raises is told on the wire too: what ends the turn, by its `TurnEnd` (`TURN_ERRORS` has all of these).

        Args:
            text: the user's message; files and images that it names with `@` are read and attached.
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
            await self._attachments.check_and_store(text, images)
        except ModelCannotSee as error:
            raise self._told(error) from None
        begins()
        # What is queued from now on was said after this.
        return await self._run_alone(
            self._turn(text, images, self._steering.queued), stoppable=True
        )

    async def resume(self) -> TurnResult:
        """Go on from where the context stands, without a new message (after an error, a stop or a rewind).

        Returns and raises what `run` does.
        """
        return await self._run_alone(self._turn(""), stoppable=True)

    async def run_command(self, command: str, *, told: bool = True) -> TurnResult:
        """Run a shell command of the user, as a turn without the agent; with `told` its output goes into the context.

        Returns and raises what `run` does.
        """
        return await self._run_alone(self._user_command(command, told=told), stoppable=True)

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
        task = self._task
        if task is None:
            return
        if self._stoppable and not self._stopping:
            # Once: a second cancel would cut short the tidying up after the first. And never before it has begun, which
            # it does within this turn of the event loop: what the user said is in the context first.
            self._stopping = True
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait([task])

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

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The commands in the background: those that run, and the newest of those that have ended."""
        return self._jobs.all

    async def stop_job(self, job_id: int) -> None:
        """Stop a background command; the model learns of it with the next message.

        Raises:
            KeyError: there is none of that number.
        """
        job = self._jobs.get(job_id)
        if job is None:
            raise KeyError(f"There is no job {job_id}.")
        await self._jobs.stop(job)

    def move_to_background(self) -> bool:
        """Move the command that the agent waits for to the background, so that the turn goes on; False where there is none."""
        return self._jobs.move_to_background()

    def _publish_jobs(self, job: Job) -> None:
        running = len(self._jobs.running)
        self.wire.publish(JobsChanged(running))
        self._conversation.files.follow_jobs(running)
        if job.ended and not self._closed:
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
        is_done = await self._run_alone(self._compact(instructions, span), stoppable=True)
        # What was typed meanwhile would wait for the user's next message.
        if self._steering and not self._stopping and not self.running:
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
        await self._run_alone(self._compactor.edit_summary(text.strip()))

    # -- time travel -----------------------------------------------------------------------------

    async def preview(self, target: Target) -> RewindPreview:
        """What a rewind there would do. At any time.

        Raises:
            KeyError: no such checkpoint or world line; the text is for the user.
        """
        found = await self._operations.preview(target, idle=not self.running)
        return replace(found, run_on=tuple(job.command for job in self._jobs.running))

    async def preview_dmail(
        self, checkpoint_id: int, text: str, author: Author = "agent"
    ) -> RewindPreview:
        """What a D-Mail to a checkpoint of the live world line would take; what the user said and pinned since stays.

        Raises:
            KeyError: no such checkpoint.
        """
        return await self._user_dmails.delivery.preview(checkpoint_id, text, author)

    async def markdown(self, target: Target) -> str:
        """The conversation up to there as Markdown, with its tool calls; as it was stored, so clean it before it is shown.

        Raises:
            KeyError: no such checkpoint or world line.
        """
        return await self._world_lines.markdown(target)

    async def rewind(
        self,
        target: Target,
        files: FilesChoice = "keep",
        chosen: Collection[str] | None = None,
    ) -> RewindOutcome:
        """Cut the conversation back to before the checkpoint, bring the files of that time back, or both.

        Args:
            target: a checkpoint of the live world line, or of another one or its end, which becomes the live one.
            files: what of it.
            chosen: the paths to bring back, conflicts among them; None for all that are no conflicts.

        Raises:
            KeyError: no such checkpoint or world line.
            FilesUnknown: the files of that time cannot be brought back; nothing changed.
            SessionError: it is the live world line already.
            SoulBusy: something runs; interrupt it first.
            OSError: the disk refused.
        """
        return await self._run_alone(self._operations.rewind(target, files, chosen))

    async def clear(self) -> str:
        """Begin anew with an empty context in the same session; returns a sentence for the user.

        Published as `ContextReverted` and `LineChanged` with the reason `clear`. What was there stays as a world line.

        Raises:
            SoulError: there is nothing to clear.
            SoulBusy: something runs; interrupt it first.
            OSError: the disk refused.
        """
        return await self._run_alone(self._operations.clear())

    async def preview_undo(self) -> RewindPreview:
        """The preview of an undo: what happened since the newest operation not undone, which is dropped with it.

        Raises:
            SessionError: there is none.
        """
        return await self._operations.preview_undo()

    async def undo(self, line_name: str = "") -> str:
        """Reverse the newest operation that is not undone; returns a sentence for the user.

        `line_name` is what the line will be called that it leaves: see `RewindPreview.left_from`.

        Raises:
            SessionError: there is none.
            SoulBusy: something runs; interrupt it first.
            OSError: the disk refused.
        """
        return await self._run_alone(self._operations.undo(line_name))

    async def redo(self) -> str:
        """Do again what was undone last; returns a sentence for the user. Raises what `undo` raises."""
        return await self._run_alone(self._operations.redo())

    async def fork(
        self,
        target: Target | None = None,
        files: FilesChoice = "keep",
        chosen: Collection[str] | None = None,
    ) -> Forked:
        """Copy a world line (up to before `target`; None for all of the live one) into a new session.

        Files are brought back first, as an operation of this session, which the fork has too.

        Raises:
            KeyError: no such checkpoint or world line.
            FilesUnknown: the files of that time cannot be brought back; nothing changed.
            SoulBusy: something runs; interrupt it first.
            OSError: the disk refused.
        """
        return await self._run_alone(self._operations.fork(target or Target(END), files, chosen))

    # -- D-Mails of the user ---------------------------------------------------------------------

    async def dmail(
        self,
        target: Target,
        text: str,
        files: FilesChoice = "keep",
        chosen: Collection[str] | None = None,
    ) -> RewindOutcome:
        """Send the user's D-Mail to the agent's past self: back to before `target`, with the D-Mail there.

        What the user said since, and what they pinned, stands before it. Published as an agent's D-Mail is
        (`ContextReverted` with the author "person", `CheckpointCreated` of the kind "dmail", `LineChanged`). A target
        on another world line makes that the live one first, which is an operation of its own for undo.

        Args:
            target: the checkpoint whose place the D-Mail takes.
            text: what it says.
            files: whether the files of that time come back with it; `chosen` as for `rewind`.

        Raises:
            KeyError: no such checkpoint.
            SoulError: the text is empty, D-Mails are off, or the files of that time cannot be brought back.
            SoulBusy: something runs; interrupt it first.
            OSError: the disk refused.
        """
        return await self._run_alone(self._user_dmails.send(target, text, files, chosen))

    async def draft_dmail(self, target: Target) -> str:
        """Have the model draft a D-Mail to a checkpoint about what followed it; nothing of that is stored.

        Can be stopped by `interrupt`; returns an empty text then. The call counts in the session's totals.

        Raises:
            KeyError: no such checkpoint.
            LLMError, SoulError: there is no draft; `message` and `advice` are for the user.
            SoulBusy: something runs.
        """
        return await self._run_alone(self._user_dmails.draft(target), stoppable=True)

    async def carry(
        self, world_line: int, uid: str, number: int, *, note: str = ""
    ) -> RewindOutcome:
        """Send one message of another world line to the present: as a D-Mail at the end of the live one.

        Nothing is cut, and `ContextReverted` says so: its `from_checkpoint` is less than its `checkpoint_id`.

        Args:
            world_line: where the message is.
            uid: its checkpoint.
            number: its place behind that, as `WorldLineMessage.number`.
            note: words of the user that stand before it.

        Raises:
            KeyError: no such message.
            SoulBusy: something runs; interrupt it first.
            OSError: the disk refused.
        """
        return await self._run_alone(self._user_dmails.carry(world_line, uid, number, note))

    # -- bookmarks and pins ----------------------------------------------------------------------

    @property
    def bookmarks(self) -> Mapping[str, str]:
        """The user's names of checkpoints, by uid."""
        return self._marks.bookmarks

    async def bookmark(self, uid: str, name: str) -> None:
        """Give a checkpoint (of any world line) a name, or with an empty one take it away. At any time; not published.

        Raises:
            OSError: the disk refused.
        """
        await self._marks.bookmark(uid, name)

    @property
    def pins(self) -> frozenset[tuple[str, int]]:
        """Pinned messages, as (uid of the checkpoint, number behind it)."""
        return self._marks.pins

    async def pin(self, uid: str, number: int = 0, pinned: bool = True) -> None:
        """Keep a message from being dropped by a compaction or a D-Mail, or no longer. At any time; not published.

        `number` counts the messages behind the checkpoint from 0, markers not counted: of a turn 0 are the user's
        words, of a step 0 is the agent's message and 1 its first tool result. A call never parts from its results.

        Raises:
            OSError: the disk refused.
        """
        await self._marks.pin(uid, number, pinned)

    # -- world lines -----------------------------------------------------------------------------

    @cached_property
    def _world_lines(self) -> WorldLineReader:
        """Imported when one is looked at."""
        from kimi_tui.soul.world_line_reader import WorldLineReader

        return WorldLineReader(self.session, self._conversation.files, self._conversation.figures)

    async def world_lines(self) -> Sequence[WorldLineInfo]:
        """The world lines that were left, in order of number. At any time."""
        return await self._world_lines.world_lines()

    async def read_line(self, world_line: int) -> list[EventRecord]:
        """The events of one world line from its first checkpoint on, as a listener should hear them to show it.

        Feed them to new models. D-Mails and summaries on it are among them, without what they undid. At any time.

        Raises:
            KeyError: no such world line.
        """
        await self._recorder.flush()
        return await self._world_lines.read(world_line)

    async def messages(self, world_line: int = 0) -> Sequence[WorldLineMessage]:
        """All messages of a world line, checkpoint markers left out (0: the live one).

        Raises:
            KeyError: no such world line.
            SoulBusy: something runs.
        """
        return await self._run_alone(self._world_lines.messages(world_line, self.pins))

    async def compare(self, world_line: int) -> WorldLineComparison:
        """Compare another world line with the live one, from the fork on.

        Raises:
            KeyError: no such world line.
            SoulBusy: something runs.
        """
        await self._recorder.flush()
        return await self._run_alone(self._world_lines.compare(world_line, self.pins))

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
        if not title or self._closed or self.session.state.title:
            return ""
        with contextlib.suppress(StorageTrouble):
            return await self.rename(title)
        return ""

    async def aclose(self) -> None:
        """Stop, sync and release the session. May be called again."""
        if self._closed:
            return
        self._closed = True
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

    # -- one turn or operation at a time ----------------------------------------------------------

    async def _run_alone(self, work: Coroutine[Any, Any, T], *, stoppable: bool = False) -> T:
        """Run a turn or an operation, one at a time, in a task of its own, so that it can be stopped apart from its caller.

        Raises:
            SoulBusy: another one runs, or the engine is closed.
        """
        if self._task is not None or self._closed:
            work.close()
            raise SoulBusy("The agent is working. Stop it first with Esc.")
        if stoppable and self._naming is not None:
            # A server may have one slot for both, and the user waits for this one.
            self._naming.cancel()
        self._task = task = asyncio.create_task(work, name="soul")
        self._stoppable, self._stopping = stoppable, False
        try:
            # The shield keeps a caller's own cancel from tearing the task apart: it is stopped in order below.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                await self.interrupt()
            raise
        finally:
            if self._task is task:
                self._task = None

    # -- a turn, from the first word to the last save --------------------------------------------

    async def _turn(
        self, text: str, images: Sequence[Image] = (), older: Sequence[Steer] = ()
    ) -> TurnResult:
        resumed = not (text.strip() or images)
        self.wire.publish(TurnBegin(text, resumed, tuple(map(ImageBlock.of, images))))
        end = await self._run_and_save(self._loop.run(text, images, older))
        # What is typed while the turn is being saved would wait for the user's next message: it is taken up at once.
        while end.is_done and self._steering and not self._stopping:
            end = await self._run_and_save(self._loop.run())
        return self._ended(end)

    def _ended(self, end: _TurnEnded) -> TurnResult:
        """Publish the end of a turn; returns it, or raises its error."""
        # Whoever hears that the turn is over may begin the next at once.
        self._task = None
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
    more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
    return ", ".join(one_line(path)[:_LONGEST_NAME] for path in paths[:_MOST_NAMED]) + more
