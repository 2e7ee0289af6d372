"""The files of one agent's conversation: tells what its tools changed, and restores files with an operation.

The snapshots that this needs are those of the work folder (`folder_snapshots`), which every agent of a session shares.
Changes, restores and errors are published on the agent's wire.

An operation on the conversation restores files in three steps: preview, journal entry, carrying it out. The order makes it
safe: first the rescue snapshot and the intent are written to the disk, then the journal names both snapshots together with
the change of the conversation, then the files are changed. After a kill before the journal entry no file was changed; after a
later kill the next start finishes the restore (`FileHistory.start`). That of another agent is named in the journal of that
agent's session, and is finished when the session that has the snapshots is opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import ParamSpec, TypeVar

from kimi_tui.app_paths import bare_reason, log_words, reason_of
from kimi_tui.display_names import some_of
from kimi_tui.foreign_text import one_line
from kimi_tui.session.journal import JournalEntry
from kimi_tui.session.schema import Checkpoint, Operation
from kimi_tui.session.session import Session
from kimi_tui.soul.blame import (
    Authors,
    BlamedLine,
    LineAuthor,
    LineOfDiff,
    NoBlame,
    blame_lines,
    line_author,
    step_line_author,
)
from kimi_tui.soul.folder_snapshots import (
    ChangingTool,
    Figures,
    FirstScan,
    FolderSnapshots,
    NamesNotSynced,
    ScanAhead,
)
from kimi_tui.soul.rewind_values import FileOutcome, FilePreview, FilesPreview
from kimi_tui.tools.outcome import FileEdit
from kimi_tui.wire.events import FilesChanged, FilesRestored, Notice
from kimi_tui.wire.queue import Wire
from kimi_tui.workspace.diff import Changes, Divergence
from kimi_tui.workspace.manifest import ScanExtent
from kimi_tui.workspace.restore import (
    CHANGED_BESIDE_JOB,
    CHANGED_BESIDE_JOB_BEFORE,
    CHANGED_OUTSIDE,
    FileChange,
    PreparedRestore,
    Restored,
    RestorePlan,
)
from kimi_tui.workspace.snapshots import By
from kimi_tui.workspace.tracker import Tracker

P = ParamSpec("P")
Found = TypeVar("Found", RestorePlan, Divergence, Changes)

log = logging.getLogger(__name__)

_NAMED_LOST = 3
"""The largest number of files that are named because they cannot be restored."""
# After this many seconds a user may have noticed the wait.
_LONG_S = 2.0
_OLD_S = 0.02
"""Seconds after which the scan before a tool is repeated; setting up a command takes about as long."""
_MOST_ROWS = 20_000
_MOST_FILES_COMPARED = 300
_BY_A_JOB = "a background task may have changed it"
_BY_OTHERS = {
    CHANGED_OUTSIDE: "it was changed outside kimi-tui",
    CHANGED_BESIDE_JOB: _BY_A_JOB,
    CHANGED_BESIDE_JOB_BEFORE: _BY_A_JOB,
}
_WRITTEN_SINCE = "written since then"
_ADDED = "added folder, never restored"
_NO_TEXT_SHOWN = "(not shown)\n"


class FileHistory:
    """The changes of files of one agent: has them scanned, tells of them, and restores files with an operation.

    Args:
        session: the open session of the agent, whose journal names the restores.
        wire: where changes and errors are published.
        folder: the snapshots of the work folder, shared with the session's other agents.
        agent: the agent; empty for the session's own, whose end is that of the snapshots.

    Attributes:
        work_dir: the work folder.
        folder: the snapshots.
        added: returns the folders that the user added beside the work folder, as the user reads them; no snapshot has them.
    """

    def __init__(
        self, session: Session, wire: Wire, folder: FolderSnapshots, agent: str = ""
    ) -> None:
        self.folder = folder
        self.work_dir = folder.work_dir
        self._agent = agent
        self._journal_place = folder.place_of(session)
        self._context = session.context
        self._journal = session.context.journal
        self._tracker = folder.tracker
        self.added: Callable[[], Sequence[str]] = tuple
        self._wire = wire
        self._events = _FileEvents(wire)
        self.unsynced_words = ""
        """A sentence on what the last sync could not make durable; empty if it could. After the session is closed nobody hears events."""
        self._began = 0.0
        self._ahead: ScanAhead | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        session.context.sync_first = self._sync_first
        # These are the shown plan of a restore, with its checkpoint, and the reason for each file of the last plan.
        self._shown: tuple[str, bool, RestorePlan] | None = None
        self._reasons: dict[str, str] = {}
        # These files cannot be restored by the restore that was prepared last.
        self._lost: tuple[FileOutcome, ...] = ()

    @property
    def reason(self) -> str:
        """A sentence for the user that says why files cannot be restored; empty if they can."""
        return self.folder.reason

    # -- scanning ---------------------------------------------------------------------------------

    def start(self, reads_only: Callable[[], bool]) -> None:
        """Start the first scan in the background, and finish a restore that was interrupted in an earlier process.

        Args:
            reads_only: returns whether changes are forbidden now (plan mode); such a restore is not finished then.
        """
        if (first := self.folder.start(reads_only)) is not None:
            self._began = asyncio.get_running_loop().time()
            self._start_task(self._report_first_scan(first))

    def mark(self, uid: str) -> None:
        """Note that a checkpoint was made, so that it can be restored."""
        if self.folder.is_on:
            mark = self._tracker.mark
            self._submit(partial(mark, agent=self._agent) if self._agent else mark, uid)

    def mark_again(self, uid: str, like: str) -> None:
        """Note that a checkpoint was made anew by another name: its files are those of the one that it is like."""
        if self.folder.is_on:
            self._submit(partial(self._tracker.mark_again, like=like), uid)

    def _submit(self, work: Callable[[str], None], uid: str) -> None:
        """Have a checkpoint noted in the thread of the snapshots, which wakes the event loop only if that fails."""
        loop = asyncio.get_running_loop()

        def marked(done: Future[None]) -> None:
            if not done.cancelled() and (error := done.exception()) is not None:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(self._mark_failed, error)

        self.folder.submit(work, uid).add_done_callback(marked)

    async def before_change(
        self, paths: Sequence[str] | None, beside: Awaitable[object] | None = None
    ) -> ChangingTool:
        """Scan before a tool changes files, so that earlier changes are not taken for its own.

        Args:
            paths: the files that it will change with `write`, relative to the work folder; None if they are unknown (a command).
            beside: another operation that the tool waits for; it runs during the scan.

        Returns:
            the running tool, to be passed to `after_change`.
        """
        change = ChangingTool(None if paths is None else frozenset(paths), self._agent)
        writes_later = paths is not None and self.folder.is_on and self.folder.is_ready
        if not writes_later:
            await self._scan_before(change)
        if beside is not None:
            loop = asyncio.get_running_loop()
            scanned_at = loop.time()
            await beside
            if loop.time() - scanned_at > _OLD_S:
                await self._scan_before(change)
        self.folder.begin(change, writes_later=writes_later)
        return change

    async def write(self, change: ChangingTool, work: Callable[[], object]) -> None:
        """Run a function that writes the files of a tool in a thread, and have them scanned right behind it (`after_change`).

        Files that others changed since the last scan are scanned before, so that these changes are not taken for the tool's.

        Args:
            change: the result of `before_change`.
            work: the function, whose errors are raised.
        """
        folder = self.folder
        if not folder.may_write(change) or not folder.is_on:
            await asyncio.to_thread(work)
        elif not await folder.write(change, work, if_seen=True):
            await self._scan("other", later=True)
            await folder.write(change, work, if_seen=False)

    def after_change(self, change: ChangingTool, uid: str, key: str) -> None:
        """Scan in the background after a tool has changed files, and publish the changes.

        Args:
            change: the result of `before_change`.
            uid: the checkpoint of the step.
            key: the key of the tool call.
        """
        self._loop = asyncio.get_running_loop()
        begun = self.folder.end(change)
        if begun is None:
            self.folder.covered(change)
        else:
            self._start_task(self._scan_after(change, uid, key, begun))

    def scan_ahead(self) -> None:
        """Begin the scan of `before_change` for a command that is being prepared; it counts if the command begins soon enough."""
        self._ahead = self.folder.scan_ahead()

    def scan_at_end(self, change: ChangingTool) -> None:
        """Begin the scan of `after_change`, which waits for it, in whatever thread a tool's work has ended."""
        self.folder.scan_at_end(change)

    def follow_jobs(self, running: int) -> None:
        """Set the number of commands that run in the background: changes between tools may then be the agent's."""
        ended = self.folder.follow_jobs(self._agent, running)
        if ended and self.folder.is_on and self.folder.first_scan is not None:
            self._start_task(self._scan("job"))

    async def settled(self) -> None:
        """Wait until the changes of tools have been scanned. It does not wait for the first scan."""
        await self.folder.settled()

    # -- restoring with an operation -------------------------------------------------------------------

    async def preview(
        self,
        point: Checkpoint,
        *,
        after: bool,
        ran_commands: bool,
        binding: bool,
        is_elsewhere: bool = False,
    ) -> FilesPreview:
        """Return the changes since a checkpoint, and the effects of restoring its files.

        Args:
            point: the checkpoint.
            after: whether to compare with the state after the checkpoint's step.
            ran_commands: whether commands ran since.
            binding: whether a later restore uses this plan: a file that differs from it by then is left unchanged.
            is_elsewhere: whether the checkpoint is on another world line, so that the files did not change since then.
        """
        plan = await self._plan(point, after=after)
        self._shown = (point.uid, after, plan) if binding and not plan.reason else None
        found = await self._described(plan, is_effect=is_elsewhere)
        return replace(found, ran_commands=ran_commands)

    async def preview_back(
        self, entry: JournalEntry, stays: tuple[FileChange, ...] = ()
    ) -> FilesPreview | None:
        """Return the effects of reversing an operation's changes of files; None if it changed none.

        Args:
            entry: the operation.
            stays: further files to name, which stay unchanged.
        """
        plan = await self._plan_back(entry) if entry.snapshot_after else RestorePlan()
        if not entry.snapshot_after and not stays:
            return None
        # Without a snapshot no file is restored, and those that stay have changed since then.
        restores = bool(entry.snapshot_after)
        described = await self._described(
            replace(plan, changes=(*plan.changes, *stays)), is_effect=restores
        )
        return replace(described, goes_along=restores)

    async def staying(self, point: Checkpoint, but: Collection[str]) -> tuple[FileChange, ...]:
        """Return the agent's changes since a checkpoint, except for these paths, as changes that leave the files unchanged."""
        return tuple(
            replace(one, change="skip", reason=_WRITTEN_SINCE)
            for one in (await self._plan(point)).changes
            if one.change != "skip" and one.reason != CHANGED_OUTSIDE and one.path not in but
        )

    async def _described(self, plan: RestorePlan, *, is_effect: bool = False) -> FilesPreview:
        if plan.reason:
            return FilesPreview(reason=plan.reason)
        changes = plan.changes[:_MOST_FILES_COMPARED]
        if is_effect:
            # An operation that restores the files shows its own effect on them; a file that stays shows what happened to it.
            changes = tuple(
                one if one.change == "skip" else replace(one, then=one.now, now=one.then)
                for one in changes
            )
        compared = await self.folder.run(self._tracker.texts.compared_all, changes, _MOST_ROWS)
        files: list[FilePreview] = []
        for place, one in enumerate(plan.changes):
            diff = compared[place] if place < len(compared) else None
            files.append(
                FilePreview(
                    one.path,
                    one.change,
                    one.reason,
                    one.would,
                    0 if diff is None else diff.added,
                    0 if diff is None else diff.removed,
                    () if diff is None else diff.rows,
                    is_text=diff is not None,
                    is_new=one.then is None,
                    is_gone=one.now is None,
                    only_rights=one.only_rights,
                    is_folder=one.then is not None and one.then.kind == "folder",
                )
            )
        beside = tuple((f"{path}/", _ADDED) for path in self.added())
        beside = (*beside, *plan.not_covered)
        return FilesPreview(tuple(files), beside, plan.remarks, is_effect=is_effect)

    async def changed_since(self, point: Checkpoint) -> dict[str, str]:
        """Return the files that differ from their state at a checkpoint, each with the person or program that changed it if
        that was not the agent.

        It is empty if the changes are unknown.
        """
        plan = await self._plan(point)
        return {
            one.path: _BY_OTHERS.get(one.reason, _BY_OTHERS[CHANGED_OUTSIDE]) if one.reason else ""
            for one in plan.changes
            if one.change != "skip"
        }

    async def plan(self, point: Checkpoint, *, after: bool = False) -> RestorePlan:
        """Plan the restore of the files of a checkpoint: return the plan that was shown last for it (only once), else a new one.

        Args:
            point: the checkpoint.
            after: whether to restore the state after the checkpoint's step; else the one before it.

        Returns:
            the plan; if a restore is not possible, it has the reason.
        """
        shown, self._shown = self._shown, None
        if shown is not None and shown[:2] == (point.uid, after):
            return shown[2]
        return await self._plan(point, after=after)

    async def _plan(self, point: Checkpoint, *, after: bool = False) -> RestorePlan:
        return await self._found_by(
            RestorePlan, self._tracker.plan, point.uid, point.was or "", after=after
        )

    async def prepare(
        self, plan: RestorePlan, chosen: Collection[str] | None = None
    ) -> PreparedRestore | None:
        """Take the rescue snapshot and write the intent to the disk; return None if there is nothing to restore.

        Args:
            plan: the plan.
            chosen: the paths to restore; None for all but conflicts.

        Raises:
            OSError: the intent could not be written; no file was changed.
        """
        self._reasons = {one.path: one.reason for one in plan.changes}
        self._lost = tuple(
            FileOutcome(one.path, "skip", one.reason, is_lost=True)
            for one in plan.changes
            if one.change == "skip"
        )
        if plan.reason:
            return None
        return await self.folder.run(
            self._tracker.prepare, plan, chosen, session=self._journal_place
        )

    @asynccontextmanager
    async def journaled(
        self, prepared: PreparedRestore | None, op: Operation
    ) -> AsyncGenerator[JournalEntry | None]:
        """Yield the journal entry for the planned changes of files; None if there are none.

        Change the conversation within this context. If that fails, the prepared restore is not carried out.
        """
        if prepared is None:
            yield None
            return
        intent = prepared.intent
        entry = JournalEntry(
            op=op, snapshot_before=intent.before, snapshot_after=intent.after, paths=intent.paths
        )
        try:
            yield entry if intent.changes else None
        except BaseException:
            await self.folder.run(self._tracker.abandon)
            raise

    async def carry_out(
        self, prepared: PreparedRestore | None, uid: str
    ) -> tuple[FileOutcome, ...]:
        """Restore the files after the journal entry is written, verify them and publish the result; return the outcome of each.

        Failures are part of the result and not raised, as are the files that `prepare` found impossible to restore.
        """
        lost, self._lost = self._lost, ()
        gone = tuple(one.path for one in lost)
        if prepared is None:
            if gone:
                self._wire.publish(FilesRestored(uid, conflicts=gone))
            return lost
        created = prepared.intent.created
        try:
            outcome = await self.folder.run(self._tracker.carry_out, prepared)
        except OSError as error:
            log.warning("a restore could not be recorded", exc_info=error)
            failed = dict.fromkeys(prepared.intent.paths, bare_reason(error))
            outcome = Restored((), (), failed)
        self._events.restored(outcome, (*prepared.left, *gone), uid, created)
        found = [
            FileOutcome(path, "create" if path in created else "restore")
            for path in outcome.restored
        ]
        found += [FileOutcome(path, "delete") for path in outcome.deleted]
        found += [FileOutcome(path, "conflict", self._reasons[path]) for path in prepared.left]
        found += [FileOutcome(path, "conflict", why) for path, why in outcome.failures.items()]
        found += lost
        return tuple(sorted(found, key=lambda one: one.path))

    async def record(self, entry: JournalEntry | None, uid: str, checkpoint_id: int) -> None:
        """Journal a restore of files only.

        Raises:
            StorageTrouble: the entry could not be written.
        """
        if entry is not None:
            size = self._context.size_bytes
            named = replace(entry, uid=uid, checkpoint_id=checkpoint_id, to_size=size)
            await asyncio.to_thread(self._journal.record_files, named)

    async def prepare_back(self, entry: JournalEntry) -> PreparedRestore | None:
        """Prepare the reversal of an operation's changes of files; return None if it changed none.

        Raises:
            OSError: the disk refused; nothing was changed.
        """
        if not entry.snapshot_after:
            return None
        return await self.prepare(await self._plan_back(entry))

    async def _plan_back(self, entry: JournalEntry) -> RestorePlan:
        before, after = entry.snapshot_before, entry.snapshot_after
        return await self._found_by(
            RestorePlan, self._tracker.plan_back, before, after, entry.paths
        )

    async def left_out(self, entry: JournalEntry, uid: str) -> tuple[FileOutcome, ...]:
        """Return and publish the files of an operation that cannot be reversed with it; none if all can."""
        self._lost = ()
        if not entry.snapshot_after:
            return ()
        plan = await self._plan_back(entry)
        if not plan.reason:
            return ()
        self._wire.publish(FilesRestored(uid, conflicts=entry.paths))
        return tuple(FileOutcome(path, "conflict", plan.reason) for path in entry.paths)

    async def edits_of(self, plan: RestorePlan) -> tuple[FileEdit, ...]:
        """Return the changes of a plan as edits that the user can look at before a yes."""
        changes = [one for one in plan.changes if one.change in ("restore", "create", "delete")]
        return await self.folder.run(_edits, self._tracker, changes)

    async def divergence(self, begins: Sequence[str], newest: Sequence[str]) -> Divergence:
        """Return the files that two world lines changed since their fork; see `workspace.divergence`."""
        return await self._found_by(Divergence, self._tracker.divergence, begins, newest)

    async def changes(self, start: Checkpoint | None, end: Checkpoint | None = None) -> Changes:
        """Return the files that differ between two checkpoints of the live world line.

        Args:
            start: the earlier one; None for the start of the session.
            end: the later one; None for now.
        """
        begins = None if start is None else (start.uid, start.was or "")
        ends = None if end is None else (end.uid, end.was or "")
        return await self._found_by(Changes, self._tracker.changes, begins, ends)

    async def blame(self, path: str, authors: Authors) -> list[BlamedLine]:
        """Return the lines of a file as it is now, each with its author.

        Args:
            path: the file, relative to the work folder.
            authors: the authors of the session's changes.

        Raises:
            NoBlame: there are no snapshots, or none of that file.
        """
        if self.reason:
            raise NoBlame(self.reason)

        def blamed() -> list[BlamedLine]:
            self._tracker.take_snapshot("other")
            log, lines = self._tracker.blame(path)
            return blame_lines(path, log, lines, authors, root=self.folder.work_dir)

        return await self.folder.run(blamed)

    async def line_author(
        self,
        line: LineOfDiff,
        authors: Authors,
        step: str = "",
        ends: tuple[Checkpoint | None, Checkpoint | None] = (None, None),
    ) -> LineAuthor:
        """Return who wrote a line of a diff.

        Args:
            line: the line.
            authors: the authors of the session's changes.
            step: the uid of the checkpoint of the step whose diff it is; empty for one of `changes`.
            ends: the checkpoints that were compared, as in `changes`.

        Raises:
            NoBlame: there are no snapshots, or none with that line.
        """
        if self.reason:
            raise NoBlame(self.reason)

        def found() -> LineAuthor:
            log, texts = self._tracker.log, self._tracker.texts
            if step:
                return step_line_author(line, step, log, texts, authors)
            span = self._tracker.places(
                *(None if one is None else (one.uid, one.was or "") for one in ends)
            )
            return line_author(
                line, span[:1] if line.sign == "-" else span[-1:], log, texts, authors
            )

        return await self.folder.run(found)

    async def extent(self) -> ScanExtent | None:
        """Return the number of files in the first scan, once it has ended; None if there was none."""
        if self.folder.first_scan is not None:
            await asyncio.wait([self.folder.first_scan])
        return self._tracker.extent

    async def aclose(self) -> None:
        """End the snapshots, for every agent, if this is the session's own; else wait until this agent's changes are known."""
        await (self.settled() if self._agent else self.folder.aclose())

    # -- implementation --------------------------------------------------------------------------

    async def _found_by(
        self, kind: type[Found], work: Callable[P, Found], *args: P.args, **kwargs: P.kwargs
    ) -> Found:
        """Return the result of `work`; if it fails, a result of that kind with the reason."""
        if self.reason:
            self.folder.was_missed = True
            return kind(reason=self.reason)
        try:
            return await self.folder.run(work, *args, **kwargs)
        except OSError as error:
            return kind(reason=f"The files cannot be read: {reason_of(error)}.")

    async def _is_scanned(self) -> bool:
        """Return whether the scan that began ahead ended so lately that the command can begin."""
        ahead, self._ahead = self._ahead, None
        at = None
        if ahead is not None:
            # An error of the disk is told of the scan that follows.
            with contextlib.suppress(OSError):
                at = await self.folder.ended_at(ahead)
        if at is None or time.monotonic() - at > _OLD_S:
            return False
        self._events.full(self._tracker.full)
        return True

    async def _scan_before(self, change: ChangingTool) -> None:
        folder, paths = self.folder, change.paths
        if folder.refusal:
            self._events.refused(folder.refusal)
        if not folder.is_on or folder.first_scan is None:
            return
        if not folder.first_scan.done():
            if paths is not None:
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(self._tracker.back_up, paths)
                return
            began = asyncio.get_running_loop().time()
            done, _ = await asyncio.wait([folder.first_scan], timeout=folder.patience_s)
            if not done:
                waited_s = asyncio.get_running_loop().time() - began
                folder.patience_s = max(0.0, folder.patience_s - waited_s)
                self._tracker.command_ran()
                return
        if paths is None and await self._is_scanned():
            return
        if folder.is_ready:
            await self._scan("other", later=True)

    async def _scan_after(
        self, change: ChangingTool, uid: str, key: str, begun: Future[Figures]
    ) -> None:
        try:
            await self._scan("agent", uid, key, begun=begun)
        finally:
            self.folder.covered(change)

    def _sync_first(self) -> None:
        """Sync what the next records of the conversation tell of. An error of the disk is published. Called in a thread."""
        try:
            self.folder.sync_changes()
            self.unsynced_words = ""
        except OSError as error:
            notice = _trouble_notice(error)
            self.unsynced_words = f"{notice.text} {notice.advice}"
            if self._loop is not None:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._events.trouble, error)

    async def _scan(
        self,
        by: By,
        uid: str = "",
        key: str = "",
        *,
        later: bool = False,
        begun: Future[Figures] | None = None,
    ) -> None:
        """Scan, or wait for a scan that has begun, and publish the agent's changes. An error of the disk is published, never raised,
        so that work continues.
        """
        try:
            if begun is None:
                found = await self.folder.take(by, later=later)
            else:
                found = begun.result() if begun.done() else await asyncio.wrap_future(begun)
        except OSError as error:
            # An error that kept the first scan from ending is published with its result.
            if self.folder.is_ready:
                self._events.trouble(error)
            return
        self._events.full(self._tracker.full)
        if found.paths or found.ignored:
            self._wire.publish(
                FilesChanged(
                    uid,
                    tuple(found.paths),
                    found.added,
                    found.removed,
                    len(found.lost),
                    key,
                    tuple(found.lost[:_NAMED_LOST]),
                    len(found.ignored),
                    tuple(found.ignored[:_NAMED_LOST]),
                )
            )

    async def _report_first_scan(self, first: asyncio.Future[FirstScan]) -> None:
        try:
            found = await asyncio.shield(first)
        except OSError as error:
            self.folder.trouble = f"The files cannot be read: {reason_of(error)}."
            self._events.trouble(error)
            return
        # If no operation had to do without the scan, its end need not be reported.
        took_s = asyncio.get_running_loop().time() - self._began
        if found.ended and (self.folder.was_missed or took_s > _LONG_S):
            self._events.ready()
        self._events.full(self._tracker.full)
        if found.outcome is not None:
            self._events.finished(found.outcome)
        if found.left:
            self._events.unfinished(found.left, found.why)

    def _mark_failed(self, error: BaseException) -> None:
        if isinstance(error, OSError):
            self._events.trouble(error)
        else:
            self._events.fault(error)

    def _start_task(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="files")
        self.folder.keep(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._events.fault(error)


def _edits(tracker: Tracker, changes: Sequence[FileChange]) -> tuple[FileEdit, ...]:
    edits: list[FileEdit] = []
    for one in changes:
        now, then = tracker.texts.of(one.now), tracker.texts.of(one.then)
        before = None if one.now is None else _NO_TEXT_SHOWN if now is None else now
        after = "" if one.then is None else _NO_TEXT_SHOWN if then is None else then
        edits.append(FileEdit(one.path, before, after))
    return tuple(edits)


class _FileEvents:
    """Publishes the outcomes of files. Equal errors in a row are published once.

    Args:
        wire: the wire on which they are published.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._last_notice = ""

    def restored(
        self,
        outcome: Restored,
        left: tuple[str, ...],
        uid: str,
        created: Collection[str] = (),
    ) -> None:
        """Publish the restored files and those that were not: `left` are conflicts, `created` did not exist before."""
        alone = (*left, *sorted(outcome.failures))
        made = tuple(path for path in outcome.restored if path in created)
        self._wire.publish(FilesRestored(uid, outcome.restored, outcome.deleted, alone, made))
        if outcome.failures:
            self._wire.publish(_failures_notice(outcome))

    def finished(self, outcome: Restored) -> None:
        """Publish that a restore that was interrupted in an earlier process has been carried out."""
        self.restored(outcome, (), "")
        became = (
            "the remaining files have now been restored"
            if outcome.failures
            else "they have now been restored"
        )
        self._wire.publish(Notice("info", f"kimi-tui exited while restoring files; {became}."))

    def unfinished(self, paths: Sequence[str], why: str) -> None:
        """Publish that an interrupted restore stays unfinished."""
        names = some_of(paths, 3)
        self._wire.publish(
            Notice(
                "warning",
                f"kimi-tui exited before these files were restored: {names}. It does not restore them now, because {why}.",
                "To restore them, rewind and check the preview.",
            )
        )

    def ready(self) -> None:
        """Publish that the first scan has ended, for which the user may have waited."""
        self._wire.publish(
            Notice("info", "The first file snapshot is finished: a rewind can restore files now.")
        )

    def refused(self, why: str) -> None:
        """Publish that no files are kept here at all."""
        self._publish_once(Notice("info", why, "A rewind does not change these files."))

    def full(self, why: str) -> None:
        """Publish that the last scan could not keep everything; `why` is empty if it could."""
        if why:
            self._publish_once(
                Notice(
                    "warning",
                    f"A rewind cannot restore all files. {why}",
                    "Add generated files to .gitignore to leave them out of the snapshots.",
                )
            )

    def trouble(self, error: OSError) -> None:
        """Publish that the disk or the work folder refused a scan."""
        log.warning("the files could not be looked at", exc_info=error)
        self._publish_once(_trouble_notice(error))

    def fault(self, error: BaseException) -> None:
        """Publish that a bug in the program made a scan fail."""
        log.error("looking at the files failed", exc_info=error)
        self._publish_once(
            Notice(
                "error",
                f"The file snapshot failed because of an internal error ({type(error).__name__}).",
                f"A rewind may be unable to restore some files. {log_words()}",
            )
        )

    def _publish_once(self, notice: Notice) -> None:
        if notice.text != self._last_notice:
            self._last_notice = notice.text
            self._wire.publish(notice)


def _trouble_notice(error: OSError) -> Notice:
    """Return the notice about what the disk refused."""
    if isinstance(error, NamesNotSynced):
        return Notice(
            "warning",
            f"The disk reported an error for the folder {one_line(str(error.filename))}: {bare_reason(error)}.",
            "A power cut may undo what was written there: check the disk.",
        )
    return Notice(
        "warning",
        f"The files cannot be saved for a rewind: {reason_of(error)}.",
        "The conversation is not affected.",
    )


def _failures_notice(outcome: Restored) -> Notice:
    """Return the notice about files that could not be restored, with the reasons."""
    names = [f"{path} ({why})" for path, why in sorted(outcome.failures.items())]
    return Notice("warning", f"Not restored: {some_of(names, 3)}.", "These files are unchanged.")
