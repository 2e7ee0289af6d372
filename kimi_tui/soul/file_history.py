"""The file history of a session: when the work folder is scanned, who changed a file, and restores with an operation.

`workspace.tracker` scans, stores and restores. Its work runs in one thread, in order of the calls, so that each change
belongs to the interval between two scans. Changes, restores and errors are published on the wire.

An operation on the conversation restores files in three steps: preview, journal entry, carrying it out. The order makes it
safe: first the rescue snapshot and the intent are written to the disk, then the journal names both snapshots together with
the change of the conversation, then the files are changed. Killed before the journal entry, no file was touched; killed
after it, the next start finishes the restore (`FileHistory.start`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import threading
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ParamSpec, TypeVar

from kimi_tui.session.journal import Journal, JournalEntry
from kimi_tui.session.schema import Checkpoint, Operation
from kimi_tui.session.session import Session
from kimi_tui.soul.rewind_values import FileOutcome, FilePreview, FilesPreview
from kimi_tui.tool_cards import DiffLine
from kimi_tui.tools.outcome import FileEdit
from kimi_tui.wire.events import FilesChanged, FilesRestored, Notice
from kimi_tui.wire.queue import Wire
from kimi_tui.workspace.diff import Divergence
from kimi_tui.workspace.restore import (
    CHANGED_BESIDE_JOB,
    CHANGED_BESIDE_JOB_BEFORE,
    CHANGED_OUTSIDE,
    FileChange,
    PreparedRestore,
    Restored,
    RestorePlan,
)
from kimi_tui.workspace.snapshots import By, Limits, ScanExtent, Snapshot
from kimi_tui.workspace.tracker import STORE_NAME, SnapshotScope, Tracker

P = ParamSpec("P")
T = TypeVar("T")
Found = TypeVar("Found", RestorePlan, Divergence)

log = logging.getLogger(__name__)

FILES_NAME = "files"
"""The folder of the snapshots within a session's folder."""
_MOST_NEIGHBOURS = 3
_NAMED_LOST = 3
"""Files that cannot be brought back whose names are told."""
_PATIENCE_S = 10.0
# From here on a user may have wondered.
_LONG_S = 2.0
# How long the end waits for a scan that is under way, and again after it was told to stop: one on a dead network mount
# never comes back. Both together are less than the program has for its end (`Ending`).
_END_PATIENCE_S = 2.0
_MOST_ROWS = 20_000
_MOST_FILES_COMPARED = 300
_BY_A_JOB = "it changed while a command ran in the background"
_BY_OTHERS = {
    CHANGED_OUTSIDE: "someone else changed it",
    CHANGED_BESIDE_JOB: _BY_A_JOB,
    CHANGED_BESIDE_JOB_BEFORE: _BY_A_JOB,
}
_WRITTEN_SINCE = "written since then"
_NO_TEXT_SHOWN = "(not shown)\n"
_NOT_READY = "The first look at the files has not ended yet; a notice tells when it has."


@dataclass(frozen=True, slots=True, eq=False)
class ChangingTool:
    """A running tool that changes files. `paths` are all files that it can change, None where that is unknown (a command);
    `author` is the agent that runs it."""

    paths: frozenset[str] | None
    author: str = ""


class FileHistory:
    """Snapshots of the work folder over one session: takes them, says who changed a file, and restores files with an operation.

    Args:
        session: the open session, whose folder holds the snapshots.
        wire: where changes and errors are published.
        limits: how much is stored.
        around: the scope of the snapshots, from `snapshot_scope`.
        author: the agent whose tools change files where nothing else is said; empty for the session's own. Agents beside it
            share this history: with one of their own, each would take the other's changes for someone else's.

    Attributes:
        work_dir: the work folder.
        reads_only: returns whether nothing may be changed now (plan mode): an interrupted restore is not finished then.
    """

    def __init__(
        self,
        session: Session,
        wire: Wire,
        limits: Limits,
        around: SnapshotScope,
        author: str = "",
    ) -> None:
        self._author = author
        # Set when a scan that is under way is no longer wanted.
        self._cancelled = threading.Event()
        self.reads_only: Callable[[], bool] = lambda: False
        folder = session.dir / FILES_NAME
        self.work_dir = session.work_dir
        self._context = session.context
        self._tracker = Tracker(session.work_dir, folder, limits, around, self._cancelled.is_set)
        self._journal = self._context.journal
        self._pool = _OneThread()
        self._first_scan: asyncio.Future[_FirstScan] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._marks: set[asyncio.Future[None]] = set()
        self._under_way: list[ChangingTool] = []
        self._n_jobs = 0
        # Those and the ones that have ended, until a scan has seen them.
        self._unseen: list[ChangingTool] = []
        self._wire = wire
        self._events = _FileEvents(wire)
        self._trouble = ""
        self._began = 0.0
        self._was_missed = False
        self._is_open = True
        # What was shown of a restore, with its checkpoint, and why each file of the last plan is as it is.
        self._shown: tuple[str, bool, RestorePlan] | None = None
        self._reasons: dict[str, str] = {}
        # The files that the restore prepared last cannot bring back.
        self._lost: tuple[FileOutcome, ...] = ()

    @property
    def reason(self) -> str:
        """Why files cannot be brought back, in a sentence for the user; empty where they can."""
        if self._tracker.refusal or self._is_ready:
            return self._tracker.refusal
        return self._trouble or _NOT_READY

    @property
    def _is_ready(self) -> bool:
        first = self._first_scan
        return (
            first is not None
            and first.done()
            and not first.cancelled()
            and first.exception() is None
            and first.result().ended
        )

    # -- scanning ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the first scan in the background, and finish a restore in which an earlier process was cut off."""
        if self._tracker.refusal or self._first_scan is not None:
            return
        loop = asyncio.get_running_loop()
        self._began = loop.time()
        self._first_scan = loop.run_in_executor(
            self._pool, _run_first_scan, self._tracker, self._journal, self.reads_only
        )
        self._start_task(self._report_first_scan(self._first_scan))

    async def ready(self) -> None:
        """Wait for the first scan, which begins now if it has not begun."""
        self.start()
        if self._first_scan is not None:
            await asyncio.wait([self._first_scan])

    def mark(self, uid: str) -> None:
        """Note that a checkpoint was made, so that it can be restored."""
        if self._is_on:
            loop = asyncio.get_running_loop()
            marked = loop.run_in_executor(self._pool, self._tracker.mark, uid)
            self._marks.add(marked)
            marked.add_done_callback(self._marked)

    async def before_change(
        self, paths: Sequence[str] | None, author: str | None = None
    ) -> ChangingTool:
        """Scan before a tool changes files, so that earlier changes are not taken for its own.

        Args:
            paths: the files that it will change, relative to the work folder; None where they are unknown (a command).
            author: the agent that runs it; None for that of this history.

        Returns:
            the running tool, to be passed to `after_change`.
        """
        who = self._author if author is None else author
        change = ChangingTool(None if paths is None else frozenset(paths), who)
        await self._scan_before(change)
        self._under_way.append(change)
        self._unseen.append(change)
        return change

    def after_change(self, change: ChangingTool, uid: str, key: str) -> None:
        """Scan in the background after a tool has changed files, and publish what it changed.

        Args:
            change: from `before_change`.
            uid: the checkpoint of the step.
            key: the key of the tool call.
        """
        self._under_way.remove(change)
        if self._is_on and self._first_scan is not None:
            self._start_task(self._scan_after(change, uid, key))
        else:
            self._unseen.remove(change)

    def follow_jobs(self, running: int) -> None:
        """Set how many commands run in the background: changes between tools may then be the agent's."""
        ended, self._n_jobs = running < self._n_jobs, running
        if ended and self._is_on and self._first_scan is not None:
            self._start_task(self._scan("job"))

    @property
    def _others(self) -> By:
        return "job" if self._n_jobs else "other"

    async def settled(self) -> None:
        """Wait until what tools changed has been scanned. It does not wait for the first scan."""
        if self._tasks and self._is_ready:
            await asyncio.wait(list(self._tasks))

    # -- restoring with an operation -------------------------------------------------------------------

    async def preview(
        self, point: Checkpoint, *, after: bool, ran_commands: bool, binding: bool
    ) -> FilesPreview:
        """What changed since a checkpoint and what bringing it back would do.

        Args:
            point: the checkpoint.
            after: since what it began was done.
            ran_commands: whether commands ran since.
            binding: whether a restore may rely on it: a file that differs from what was shown is then left alone.
        """
        plan = await self._plan(point, after=after)
        self._shown = (point.uid, after, plan) if binding and not plan.reason else None
        return replace(await self._described(plan), ran_commands=ran_commands)

    async def preview_back(
        self, entry: JournalEntry, stays: tuple[FileChange, ...] = ()
    ) -> FilesPreview | None:
        """What reversing what an operation did to the files would do; None where that is nothing.

        Args:
            entry: the operation.
            stays: further files to name, which stay as they are.
        """
        plan = await self._plan_back(entry) if entry.snapshot_after else RestorePlan()
        if not entry.snapshot_after and not stays:
            return None
        described = await self._described(replace(plan, changes=(*plan.changes, *stays)))
        return replace(described, goes_along=bool(entry.snapshot_after))

    async def staying(self, point: Checkpoint, but: Collection[str]) -> tuple[FileChange, ...]:
        """What the agent changed since a checkpoint, but for these paths, as changes that leave it alone."""
        return tuple(
            replace(one, change="skip", reason=_WRITTEN_SINCE)
            for one in (await self._plan(point)).changes
            if one.change != "skip" and one.reason != CHANGED_OUTSIDE and one.path not in but
        )

    async def _described(self, plan: RestorePlan) -> FilesPreview:
        if plan.reason:
            return FilesPreview(reason=plan.reason)
        compared = await self._run(
            self._tracker.texts.compared_all, plan.changes[:_MOST_FILES_COMPARED], _MOST_ROWS
        )
        files: list[FilePreview] = []
        for place, one in enumerate(plan.changes):
            diff = compared[place] if place < len(compared) else None
            rows = () if diff is None else tuple(DiffLine(*row) for row in diff.rows)
            files.append(
                FilePreview(
                    one.path,
                    one.change,
                    one.reason,
                    one.would,
                    0 if diff is None else diff.added,
                    0 if diff is None else diff.removed,
                    rows,
                    is_text=diff is not None,
                    is_new=one.then is None,
                    is_gone=one.now is None,
                    only_rights=one.only_rights,
                    is_folder=one.then is not None and one.then.kind == "folder",
                )
            )
        return FilesPreview(tuple(files), plan.not_covered, plan.remarks)

    async def changed_since(self, point: Checkpoint) -> dict[str, str]:
        """The files that are not what they were at a checkpoint, each with who changed it but the agent, if anyone.

        Empty where that is not known.
        """
        plan = await self._plan(point)
        return {
            one.path: _BY_OTHERS.get(one.reason, _BY_OTHERS[CHANGED_OUTSIDE]) if one.reason else ""
            for one in plan.changes
            if one.change != "skip"
        }

    async def plan(self, point: Checkpoint, *, after: bool = False) -> RestorePlan:
        """Plan the restore of the files of a checkpoint: the plan that was shown last for it, once; else a new one.

        Args:
            point: the checkpoint.
            after: whether the state after the checkpoint's step is meant; else the one before it.

        Returns:
            the plan; one that is not possible has the reason.
        """
        shown, self._shown = self._shown, None
        if shown is not None and shown[:2] == (point.uid, after):
            return shown[2]
        return await self._plan(point, after=after)

    async def _plan(self, point: Checkpoint, *, after: bool = False) -> RestorePlan:
        by: By = "agent" if self._under_way else self._others
        touched = _touched(self._under_way)
        was = point.was or ""
        return await self._found(
            RestorePlan, self._tracker.plan, point.uid, was, by, touched, after=after
        )

    async def prepare(
        self, plan: RestorePlan, chosen: Collection[str] | None = None
    ) -> PreparedRestore | None:
        """Take the rescue snapshot and write the intent to the disk; None where there is nothing to restore.

        Args:
            plan: the plan.
            chosen: the paths to restore; None for all but conflicts.

        Raises:
            OSError: it could not be written; no file was changed.
        """
        self._reasons = {one.path: one.reason for one in plan.changes}
        self._lost = tuple(
            FileOutcome(one.path, "skip", one.reason, is_lost=True)
            for one in plan.changes
            if one.change == "skip"
        )
        if plan.reason:
            return None
        return await self._run(self._tracker.prepare, plan, chosen)

    @asynccontextmanager
    async def journaled(
        self, prepared: PreparedRestore | None, op: Operation
    ) -> AsyncGenerator[JournalEntry | None]:
        """The journal entry that names what is about to happen to the files; None where nothing is.

        Change the conversation within it. If that fails, what was prepared does not happen.
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
            await self._run(self._tracker.abandon)
            raise

    async def carry_out(
        self, prepared: PreparedRestore | None, uid: str
    ) -> tuple[FileOutcome, ...]:
        """Restore the files, after the journal knows, verify them and publish the result; returns what became of each.

        Failures are in the result, and not raised, and so is what `prepare` was told that cannot come back.
        """
        lost, self._lost = self._lost, ()
        gone = tuple(one.path for one in lost)
        if prepared is None:
            if gone:
                self._wire.publish(FilesRestored(uid, conflicts=gone))
            return lost
        created = prepared.intent.created
        try:
            outcome = await self._run(self._tracker.carry_out, prepared)
        except OSError as error:
            log.warning("a restore could not be recorded", exc_info=error)
            failed = dict.fromkeys(prepared.intent.paths, error.strerror or str(error))
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
        """Journal a restore of files alone.

        Raises:
            StorageTrouble: it could not be written.
        """
        if entry is not None:
            size = self._context.size_bytes
            named = replace(entry, uid=uid, checkpoint_id=checkpoint_id, to_size=size)
            await asyncio.to_thread(self._journal.record_files, named)

    async def prepare_back(self, entry: JournalEntry) -> PreparedRestore | None:
        """Get ready to reverse what an operation did to the files; None where it did nothing to them.

        Raises:
            OSError: the disk refused; nothing was touched.
        """
        if not entry.snapshot_after:
            return None
        return await self.prepare(await self._plan_back(entry))

    async def _plan_back(self, entry: JournalEntry) -> RestorePlan:
        before, after = entry.snapshot_before, entry.snapshot_after
        return await self._found(RestorePlan, self._tracker.plan_back, before, after, entry.paths)

    async def left_out(self, entry: JournalEntry, uid: str) -> tuple[FileOutcome, ...]:
        """The files that an operation touched and that cannot be reversed with it, published; none where they can."""
        self._lost = ()
        if not entry.snapshot_after:
            return ()
        plan = await self._plan_back(entry)
        if not plan.reason:
            return ()
        self._wire.publish(FilesRestored(uid, conflicts=entry.paths))
        return tuple(FileOutcome(path, "conflict", plan.reason) for path in entry.paths)

    async def edits_of(self, plan: RestorePlan) -> tuple[FileEdit, ...]:
        """What carrying a plan out writes, as edits that the user can look at before a yes."""
        changes = [one for one in plan.changes if one.change in ("restore", "create", "delete")]
        return await self._run(_edits, self._tracker, changes)

    async def divergence(self, begins: Sequence[str], newest: Sequence[str]) -> Divergence:
        """The files that two world lines changed since their fork; see `workspace.divergence`."""
        return await self._found(Divergence, self._tracker.divergence, begins, newest)

    async def extent(self) -> ScanExtent | None:
        """How much the first scan met, once it has ended; None where there was none."""
        await self.ready()
        return self._tracker.extent

    async def aclose(self) -> None:
        """End the thread and release the files; work that does not end within a few seconds is not waited for."""
        self._is_open = False
        if not self._is_ready:
            self._cancelled.set()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        end = asyncio.get_running_loop().run_in_executor(self._pool, _nothing)
        for _ in range(2):
            # Not cancelled by the time limit: it is the last in the row, and says that all before it has been done.
            await asyncio.wait([end], timeout=_END_PATIENCE_S)
            self._cancelled.set()
        if not end.done():
            log.warning("the files are still being looked at; the end does not wait for that")
            end.cancel()
        self._pool.shutdown(wait=False)

    # -- below: how ------------------------------------------------------------------------------

    @property
    def _is_on(self) -> bool:
        return self._is_open and not self._tracker.refusal

    async def _run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: work(*args, **kwargs))

    async def _found(
        self, kind: type[Found], work: Callable[P, Found], *args: P.args, **kwargs: P.kwargs
    ) -> Found:
        """What `work` finds; one of that kind with the reason why nothing can be found."""
        if self.reason:
            self._was_missed = True
            return kind(reason=self.reason)
        try:
            return await self._run(work, *args, **kwargs)
        except OSError as error:
            return kind(reason=f"The files cannot be looked at: {error.strerror or error}.")

    async def _scan_before(self, change: ChangingTool) -> None:
        paths = change.paths
        if self._tracker.refusal:
            self._events.refused(self._tracker.refusal)
        if not self._is_on or self._first_scan is None:
            return
        if not self._first_scan.done():
            if paths is not None:
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(self._tracker.back_up, paths)
                return
            done, _ = await asyncio.wait([self._first_scan], timeout=_PATIENCE_S)
            if not done:
                self._tracker.command_ran()
                return
        if any(one.author != change.author for one in self._under_way):
            # A scan now would take the changes of the other agent's tool for someone else's; the scan at that tool's end tells them.
            return
        if self._is_ready and not (paths is not None and await self._is_as_seen(paths)):
            await self._scan(self._others)

    async def _is_as_seen(self, paths: frozenset[str]) -> bool:
        """Whether what will be overwritten is what the last scan saw; the rest is kept apart afterwards."""
        with contextlib.suppress(OSError):
            return await self._run(self._tracker.is_as_seen, paths)
        return False

    async def _scan_after(self, change: ChangingTool, uid: str, key: str) -> None:
        try:
            await self._scan("agent", uid, key, change.author)
        finally:
            self._unseen.remove(change)

    async def _scan(self, by: By, uid: str = "", key: str = "", author: str = "") -> None:
        """Scan, and publish what the agent changed. A refusal of the disk is published, never raised: work goes on."""
        try:
            snapshot, figures = await self._run(self._scan_and_count, by, author)
        except OSError as error:
            # What kept the first scan from ending is published with that.
            if self._is_ready:
                self._events.trouble(error)
            return
        self._events.full(self._tracker.full)
        if snapshot is not None and by == "agent":
            added, removed, lost = figures
            paths, named = tuple(sorted(snapshot.changed)), tuple(lost[:_NAMED_LOST])
            self._wire.publish(FilesChanged(uid, paths, added, removed, len(lost), key, named))

    def _scan_and_count(
        self, by: By, author: str = ""
    ) -> tuple[Snapshot | None, tuple[int, int, list[str]]]:
        """Scan, in the thread of the files: what counts is who is at work when the scan begins, not when it was asked for."""
        tracker = self._tracker
        if by != "agent":
            return tracker.take_snapshot(by), (0, 0, [])
        snapshot = tracker.take_snapshot(
            by, _touched(self._unseen), others=self._others, author=author
        )
        return snapshot, (0, 0, []) if snapshot is None else tracker.figures(snapshot)

    async def _report_first_scan(self, first: asyncio.Future[_FirstScan]) -> None:
        try:
            found = await asyncio.shield(first)
        except OSError as error:
            self._trouble = f"The files cannot be looked at: {error.strerror or error}."
            self._events.trouble(error)
            return
        # Where nobody had to do without it, its end is no news.
        took_s = asyncio.get_running_loop().time() - self._began
        if found.ended and (self._was_missed or took_s > _LONG_S):
            self._events.ready()
        self._events.full(self._tracker.full)
        if found.outcome is not None:
            self._events.finished(found.outcome)
        if found.left:
            self._events.unfinished(found.left, found.why)

    def _marked(self, marked: asyncio.Future[None]) -> None:
        self._marks.discard(marked)
        if marked.cancelled() or (error := marked.exception()) is None:
            return
        if isinstance(error, OSError):
            self._events.trouble(error)
        else:
            self._events.fault(error)

    def _start_task(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="files")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._events.fault(error)


def _touched(changes: Iterable[ChangingTool]) -> frozenset[str] | None:
    """What these tools can have changed; None where that is not known."""
    paths: set[str] = set()
    for change in tuple(changes):
        if change.paths is None:
            return None
        paths |= change.paths
    return frozenset(paths)


def _nothing() -> None:
    """Do nothing: submitted to the thread, its end says that all earlier work has been done."""


def _edits(tracker: Tracker, changes: Sequence[FileChange]) -> tuple[FileEdit, ...]:
    edits: list[FileEdit] = []
    for one in changes:
        now, then = tracker.texts.of(one.now), tracker.texts.of(one.then)
        before = None if one.now is None else _NO_TEXT_SHOWN if now is None else now
        after = "" if one.then is None else _NO_TEXT_SHOWN if then is None else then
        edits.append(FileEdit(one.path, before, after))
    return tuple(edits)


@dataclass(frozen=True, slots=True)
class _FirstScan:
    """What the first scan came to. `outcome` is what became of a restore in which an earlier process was cut off; `left` are
    the files of one that was not carried out, and `why` says why not."""

    ended: bool
    outcome: Restored | None = None
    left: tuple[str, ...] = ()
    why: str = ""


_NOT_OURS = "others can write to this session's folder, or it came from elsewhere"
_IN_PLAN = "nothing is changed in plan mode"


def _run_first_scan(
    tracker: Tracker, journal: Journal, reads_only: Callable[[], bool]
) -> _FirstScan:
    """Scan everything, then finish a restore that was cut off; one that the journal does not name had touched nothing.

    Raises:
        OSError: the work folder cannot be read, or the disk refused.
    """
    if not tracker.first_scan():
        return _FirstScan(ended=False)
    prepared = tracker.unfinished_restore()
    if prepared is None:
        return _FirstScan(ended=True)
    after = prepared.intent.after
    if all(entry.snapshot_after != after for entry in journal.entries):
        tracker.abandon()
        return _FirstScan(ended=True)
    why = "" if tracker.is_ours_alone(prepared.intent) else _NOT_OURS
    if why := why or (_IN_PLAN if reads_only() else ""):
        tracker.abandon()
        return _FirstScan(ended=True, left=prepared.intent.paths, why=why)
    return _FirstScan(ended=True, outcome=tracker.carry_out(prepared, unasked=True))


class _FileEvents:
    """Publishes what became of the files. Of two troubles in a row that are the same, only the first.

    Args:
        wire: hears of it.
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
        """Publish what came back and what did not: `left` are conflicts, `created` were not there before."""
        alone = (*left, *sorted(outcome.failures))
        made = tuple(path for path in outcome.restored if path in created)
        self._wire.publish(FilesRestored(uid, outcome.restored, outcome.deleted, alone, made))
        if outcome.failures:
            self._wire.publish(_failures_notice(outcome))

    def finished(self, outcome: Restored) -> None:
        """A restore in which an earlier process was cut off has now been carried out."""
        self.restored(outcome, (), "")
        became = "the others are now" if outcome.failures else "they are now"
        self._wire.publish(
            Notice("info", f"Files were being brought back when the program ended; {became}.")
        )

    def unfinished(self, paths: Sequence[str], why: str) -> None:
        """A restore that was cut off stays so."""
        names = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
        self._wire.publish(
            Notice(
                "warning",
                f"Files were to be brought back, but {why}: {names}.",
                "They are as they were. A rewind brings files back once you have seen what it does.",
            )
        )

    def ready(self) -> None:
        """The first scan has ended, for which the user may have waited."""
        self._wire.publish(
            Notice("info", "The first look at the files has ended: a rewind can bring them back.")
        )

    def refused(self, why: str) -> None:
        """No files are kept here at all."""
        self._publish_once(Notice("info", why, "A rewind leaves them alone."))

    def full(self, why: str) -> None:
        """The last scan could not keep everything; `why` is empty where it could."""
        if why:
            self._publish_once(
                Notice(
                    "warning",
                    f"Not all files can be brought back later. {why}",
                    "A .gitignore that leaves out what is generated makes room.",
                )
            )

    def trouble(self, error: OSError) -> None:
        """The disk or the work folder refused a scan."""
        log.warning("the files could not be looked at", exc_info=error)
        self._publish_once(
            Notice(
                "warning",
                f"The files cannot be kept for a rewind: {error.strerror or error}.",
                "The conversation is not affected.",
            )
        )

    def fault(self, error: BaseException) -> None:
        """A mistake in the program made a scan fail."""
        log.error("looking at the files failed", exc_info=error)
        self._publish_once(
            Notice(
                "error",
                f"The files could not be looked at: {type(error).__name__} in the program.",
                "A rewind may not bring all of them back. The log file says more.",
            )
        )

    def _publish_once(self, notice: Notice) -> None:
        if notice.text != self._last_notice:
            self._last_notice = notice.text
            self._wire.publish(notice)


def _failures_notice(outcome: Restored) -> Notice:
    """What could not be brought back, and why."""
    names = [f"{path} ({why})" for path, why in sorted(outcome.failures.items())]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return Notice("warning", f"Not brought back: {shown}.", "These files are as they were.")


def snapshot_scope(session: Session, environ: Mapping[str, str]) -> SnapshotScope:
    """What is around a session's snapshots. Lists folders: call it in a thread."""
    bucket = session.dir.parent
    sessions = bucket.parent
    others = [
        folder / FILES_NAME / STORE_NAME
        for some in _folders(sessions)
        for folder in _folders(some)
        if folder != session.dir
    ]
    near = [store for store in others if store.parent.parent.parent == bucket and store.is_dir()]
    near.sort(key=_age, reverse=True)
    return SnapshotScope(
        neighbours=near[:_MOST_NEIGHBOURS],
        others=others,
        own=(str(sessions), str(sessions.parent / "logs")),
        homes=(environ.get("HOME", ""),),
        seal_key=sessions.parent / "restore.key",
        is_moved=session.state.moved_from != "",
    )


def _folders(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError), os.scandir(folder) as listing:
        return [Path(item.path) for item in listing if item.is_dir(follow_symlinks=False)]
    return []


def _age(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


class _OneThread(Executor):
    """Runs one thing after another in a thread that the end of the program does not wait for.

    The standard executor's threads are joined without a limit when the interpreter ends, also by a `shutdown` that does
    not wait.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_open = True

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `fn` when its turn comes.

        Raises:
            RuntimeError: it has been shut down.
        """
        if not self._is_open:
            raise RuntimeError("nothing can be submitted after the shutdown")
        future: Future[T] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        self._work.put(work)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="files", daemon=True)
            self._thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take nothing more; the thread ends when what was taken has been done."""
        del cancel_futures
        self._is_open = False
        self._work.put(None)
        if wait and self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
