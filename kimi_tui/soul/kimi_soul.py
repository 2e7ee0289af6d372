"""The engine: runs turns and operations on one session, one at a time, and tells everything on its wire.

What a turn does is in `loop` and `step`; here is who may start what, and how it is stopped.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kimi_tui.llm.provider import ChatProvider
from kimi_tui.session.session import Session
from kimi_tui.soul.approval import Approval, Mode
from kimi_tui.soul.checkpoint_rows import CheckpointRow
from kimi_tui.soul.file_history import FileHistory
from kimi_tui.soul.history import history_records
from kimi_tui.soul.live_line import LiveLine
from kimi_tui.soul.money import Cost
from kimi_tui.soul.operations import Operations
from kimi_tui.soul.protocol import FilesChoice, RewindOutcome, RewindPreview, SoulBusy, Target
from kimi_tui.soul.provider_slot import ProviderSlot
from kimi_tui.soul.recorder import Recorder
from kimi_tui.soul.statistics import Statistics, session_statistics
from kimi_tui.soul.steering import Steering
from kimi_tui.soul.surroundings import FILES_NAME
from kimi_tui.soul.travelling import TravellingSoul, TravelParts
from kimi_tui.soul.turns import Turns
from kimi_tui.soul.work_folder import FolderFacts, WorkFolder
from kimi_tui.wire.events import ApprovalAnswer, Record
from kimi_tui.wire.queue import Wire

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parts:
    """What the engine is made of; `runtime` puts it together."""

    session: Session
    wire: Wire
    line: LiveLine
    approval: Approval
    steering: Steering
    turns: Turns
    operations: Operations
    files: FileHistory
    folder: WorkFolder
    recorder: Recorder
    provider: ProviderSlot
    retry_now: asyncio.Event
    stragglers: set[asyncio.Task[None]]


class KimiSoul(TravellingSoul):
    """The `Soul` of one session. Opened by `runtime.open_soul`."""

    def __init__(self, parts: Parts, travel: TravelParts, history: Sequence[Record]) -> None:
        super().__init__(travel)
        self._parts = parts
        self._line = parts.line
        self._job: asyncio.Task[Any] | None = None
        self._begun = asyncio.Event()
        self._stoppable = False
        self._stopping = False
        self._closed = False
        self._history: Sequence[Record] = history

    @property
    def wire(self) -> Wire:
        """Where its events come from."""
        return self._parts.wire

    @property
    def session(self) -> Session:
        """The session it works on."""
        return self._parts.session

    @property
    def mode(self) -> Mode:
        """What is asked before it is done."""
        return self._parts.approval.mode

    @property
    def used(self) -> int:
        """Tokens of the context now, as the gauge shows them."""
        return self._line.used

    @property
    def cost(self) -> Cost | None:
        """What the session's calls have cost so far; None where no prices are set."""
        return self._line.ledger.total_cost()

    @property
    def running(self) -> bool:
        """Whether a turn or an operation is under way."""
        return self._job is not None

    @property
    def opened_with(self) -> Sequence[Record]:
        """The history that was there when the session was opened; nothing once it was handed over."""
        return self._history

    def hand_over_history(self) -> Sequence[Record]:
        """The same, for the first listener: a long one takes much room, so it is kept no longer here."""
        history, self._history = self._history, ()
        return history

    # -- turns -----------------------------------------------------------------------------------

    async def run(self, text: str) -> None:
        """One turn: from the person's words until the agent stops. Errors of the model are events, not exceptions.

        Raises:
            SoulBusy: a turn is already running (use `steer`).
        """
        # Nothing said is no message: the agent goes on from where it stands.
        await self._alone(self._turn(text, resumed=not text.strip()), stoppable=True)

    async def resume(self) -> None:
        """Go on from where the context stands, without a new message (after an error, a stop or a rewind).

        Raises:
            SoulBusy: a turn is already running.
        """
        await self._alone(self._turn("", resumed=True), stoppable=True)

    def steer(self, text: str) -> str:
        """Queue text for the running turn; returns its id."""
        return self._parts.steering.queue(text)

    def withdraw_steer(self, steer_id: str) -> str | None:
        """Take queued text back for editing; None if it has already gone in."""
        return self._parts.steering.withdraw(steer_id)

    async def interrupt(self) -> None:
        """Stop whatever runs, within a second; what is complete is kept."""
        job = self._job
        if job is None:
            return
        if self._stoppable and not self._stopping:
            # Once: a second cancel would cut short the tidying up after the first. And never before it has begun:
            # what the person said is in the context first.
            self._stopping = True
            await self._begun.wait()
            job.cancel()
        await asyncio.wait([job])

    def retry_now(self) -> None:
        """End the wait before a retry at once."""
        self._parts.retry_now.set()

    def answer(self, request_id: str, answer: ApprovalAnswer, feedback: str = "") -> None:
        """Answer an approval request; unknown or answered ids are passed over."""
        self._parts.approval.answer(request_id, answer, feedback)

    async def set_mode(self, mode: Mode) -> None:
        """Ask before changes, accept edits in the work folder, or allow everything but what is protected."""
        self._parts.approval.set_mode(mode)

    def set_provider(self, provider: ChatProvider | None) -> ChatProvider | None:
        """Use another model from the next turn on; returns the one before, which the caller closes."""
        before = self._parts.provider.exchange(provider)
        self._line.tell_status()
        return before

    def use_tools(self, on: bool) -> None:
        """Tell the model of the tools, or (one that calls none) go on without, from the next call on."""
        provider = self._parts.provider.current
        if provider is not None:
            provider.use_tools = on

    def tell_status(self) -> None:
        """Tell the figures as they are: more may be known of the model's window by now."""
        self._line.tell_status()

    # -- operations ------------------------------------------------------------------------------

    async def compact(
        self,
        instructions: str = "",
        *,
        start: Target | None = None,
        until: Target | None = None,
    ) -> None:
        """Summarise the context now, or exactly the part from before `start` to before `until`.

        Raises:
            KeyError: no such checkpoint on the live line.
            SoulBusy: something runs.
        """
        span = self._parts.operations.span(start, until)
        await self._alone(self._parts.turns.compact(instructions, span), stoppable=True)
        # What was typed meanwhile would wait for the person's next message.
        if self._parts.steering and not self._stopping and not self.running:
            await self.resume()

    async def preview(self, target: Target) -> RewindPreview:
        """What a rewind there would do.

        Raises:
            KeyError: no such checkpoint; the text is for the person.
        """
        return await self._parts.operations.preview(target, idle=not self.running)

    async def rewind(
        self,
        target: Target,
        files: FilesChoice = "keep",
        chosen: Collection[str] | None = None,
    ) -> RewindOutcome:
        """Cut the conversation back to before the checkpoint, bring the files of that time back, or both.

        Args:
            target: the checkpoint.
            files: what of it.
            chosen: the paths to bring back, conflicts among them; None for all that are no conflicts.

        Raises:
            KeyError: no such checkpoint.
            FilesUnknown: the files of that time cannot be brought back; nothing changed.
            SoulBusy: something runs; interrupt it first.
            OSError: the disk refused; nothing changed.
        """
        return await self._alone(self._parts.operations.rewind(target, files, chosen))

    async def files_ready(self) -> FolderFacts:
        """Wait until the files have been looked at for the first time; what is known of the folder then."""
        return await self._parts.folder.facts()

    async def jump(self, world_line: int, checkpoint_id: int | None = None) -> RewindOutcome:
        """Make a line that was left the live one, up to before a checkpoint of it, or all of it."""
        return await self._alone(self._parts.operations.jump(world_line, checkpoint_id))

    async def undo(self) -> str:
        """Reverse the newest operation that is not undone; returns a sentence for the person."""
        return await self._alone(self._parts.operations.undo())

    async def redo(self) -> str:
        """Do again what was undone last; returns a sentence for the person."""
        return await self._alone(self._parts.operations.redo())

    async def fork(self, target: Target | None = None) -> str:
        """Copy the live line (up to before `target`) into a new session; returns its id."""
        return await self._alone(self._parts.operations.fork(target))

    async def flush(self) -> None:
        """Bring everything that was told into the record."""
        await self._parts.recorder.flush()

    async def history(self) -> list[Record]:
        """Everything that was told, as a new listener (or one that must begin anew) should hear it."""
        await self._parts.recorder.flush()
        session = self._parts.session
        return await asyncio.to_thread(history_records, session)

    async def checkpoints(self, world_line: int = 0) -> list[CheckpointRow]:
        """The checkpoints of the live line, or of one that was left, oldest first. Not while something runs.

        Raises:
            KeyError: no such world line.
        """
        await self._parts.recorder.flush()
        return await self._parts.operations.checkpoints(world_line)

    # -- the session itself ----------------------------------------------------------------------

    async def save(self) -> str:
        """Bring all that is complete to the disk; returns a sentence on what it did not take, empty if it took all."""
        context = self.session.context
        if self.session.lock.held:
            await context.sync()
        return context.unsaved_words

    async def rename(self, title: str) -> str:
        """Call the session something; without a title, what it began with. Returns the title it has now.

        Raises:
            StorageTrouble: the disk refused; the old title stands.
        """
        session = self.session
        await asyncio.to_thread(session.rename, title)
        return session.title

    async def statistics(self) -> Statistics:
        """What the session did and cost so far."""
        await self._parts.recorder.flush()
        return await asyncio.to_thread(session_statistics, self.session, self._line.ledger.prices)

    # -- closing ---------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Stop, sync and release the session."""
        if self._closed:
            return
        self._closed = True
        await self.interrupt()
        parts = self._parts
        await parts.approval.aclose()
        if parts.stragglers:
            await asyncio.wait(parts.stragglers)
        await parts.files.aclose()
        if not parts.line.messages and not parts.line.context.journal.entries:
            # A session in which nothing was said leaves nothing.
            await asyncio.to_thread(shutil.rmtree, parts.session.dir / FILES_NAME, True)
        await parts.recorder.aclose()
        try:
            await parts.session.aclose()
        finally:
            provider = parts.provider.exchange(None)
            if provider is not None:
                await provider.aclose()
            parts.wire.close()

    # -- below: how ------------------------------------------------------------------------------

    async def _alone(self, work: Coroutine[Any, Any, T], *, stoppable: bool = False) -> T:
        """Run one thing at a time, in a task of its own, so that it can be stopped apart from who asked for it."""
        if self._job is not None or self._closed:
            work.close()
            raise SoulBusy("The agent is working. Stop it first with Esc.")
        self._begun.clear()
        job = asyncio.create_task(self._begin(work), name="soul")
        self._job = job
        self._stoppable, self._stopping = stoppable, False
        try:
            # The shield keeps a caller's own cancel from tearing the job apart: it is stopped in order below.
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            if not job.done():
                await self.interrupt()
            raise
        finally:
            if self._job is job:
                self._job = None

    async def _begin(self, work: Coroutine[Any, Any, T]) -> T:
        self._begun.set()
        return await work

    async def _turn(self, text: str, *, resumed: bool) -> None:
        end = await self._parts.turns.run(text, resumed=resumed, stopping=lambda: self._stopping)
        # Whoever hears that the turn is over may begin the next at once.
        self._job = None
        self._parts.wire.publish(end)
