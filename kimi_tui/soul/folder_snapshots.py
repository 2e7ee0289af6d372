"""The snapshots of a work folder as all agents of a session share them: the thread that scans, the first scan, the running tools.

`workspace.tracker` scans, stores and restores. Its work runs in one thread, in order of the calls, so that each change
belongs to the interval between two scans. Agents with snapshots of their own would take each other's changes for somebody
else's; `FileHistory` is what one agent does with them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

from kimi_tui.filesystem import sync_folder
from kimi_tui.session.rotation import repaired_entries
from kimi_tui.session.session import Session
from kimi_tui.tools.outcome import ToolProblem
from kimi_tui.workspace.manifest import Limits
from kimi_tui.workspace.restore import Intent, Restored
from kimi_tui.workspace.snapshots import By, Snapshot
from kimi_tui.workspace.tracker import STORE_NAME, SnapshotScope, Suspects, Tracker

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)

FILES_NAME = "files"
"""The folder of the snapshots within a session's folder."""
_MOST_NEIGHBOURS = 3
# These are the seconds for which the end waits for a running scan, and again after it was told to stop: a scan of a dead
# network mount never returns. Both together are less than the time that the program has for its end (`Ending`).
_END_PATIENCE_S = 2.0
# The progress of the first scan is told at these intervals, in seconds. Most scans are shorter.
_TOLD_EVERY_S = 0.5
# The files are checked after this many seconds without a tool, but not more often than this, in slices of this length. Pauses
# of three slices leave three quarters of a core to everything else.
_REST_S = 5.0
_CHECKED_EVERY_S = 180.0
_SLICE_S = 0.004
_PAUSE_S = 0.012
_PATIENCE_S = 10.0
_HAS_ENDED = "The session of these snapshots has ended."
_NOT_READY = "The first file snapshot is not finished; a notice tells you when it is."


@dataclass(frozen=True, slots=True, eq=False)
class ChangingTool:
    """A running tool that changes files. `paths` are all files that it can change, None if they are unknown (a command);
    `agent` is the agent that runs it.
    """

    paths: frozenset[str] | None
    agent: str = ""


@dataclass(frozen=True, slots=True)
class FirstScan:
    """The result of the first scan. `outcome` is that of a restore that was interrupted in an earlier process; `left` are the
    files of one that was not carried out, and `why` is the reason.
    """

    ended: bool
    outcome: Restored | None = None
    left: tuple[str, ...] = ()
    why: str = ""


class NamesNotSynced(OSError):
    """The disk reported an error for the names in a folder (`filename`): a power cut may take the files that were written there."""


class Figures(NamedTuple):
    """The files that a tool changed, the lines that it added and removed, its files that cannot be restored to their former state,
    and the new ones that a rule ignores, which are not among the first. The files are sorted.
    """

    paths: Sequence[str] = ()
    added: int = 0
    removed: int = 0
    lost: Sequence[str] = ()
    ignored: Sequence[str] = ()


class ScanAhead(NamedTuple):
    """A scan for a tool that is about to begin: it returns the time of its end; `n_begun` is the number of tools that had begun."""

    scan: Future[float]
    n_begun: int


class FolderSnapshots:
    """The snapshots of a session's work folder, for every agent that works in it.

    Args:
        session: the open session, whose folder holds the snapshots, and whose journal names the restores.
        limits: the limits of the snapshots.
        around: the scope of the snapshots, from `snapshot_scope`.

    Attributes:
        work_dir: the work folder.
        tracker: scans and restores; to be called in `run`.
        first_scan: the first scan; None before `start`.
        under_way: the running tools that change files, of all agents.
        patience_s: how many seconds commands may wait for the first scan, all together.
        was_missed: whether an operation had to do without the first scan.
        trouble: why the first scan failed; empty if it did not.
    """

    def __init__(self, session: Session, limits: Limits, around: SnapshotScope) -> None:
        # This is set when a running scan is not needed any more.
        self._cancelled = threading.Event()
        self.work_dir = session.work_dir
        self._session_dir = session.dir
        folder = session.dir / FILES_NAME
        self.tracker = Tracker(
            session.work_dir, folder, limits, around, self._cancelled.is_set, self._suspects
        )
        self._journal = session.context.journal
        self._pool = _OneThread()
        self._is_open = True
        self._tasks: set[asyncio.Task[None]] = set()
        self.first_scan: asyncio.Future[FirstScan] | None = None
        self.patience_s = _PATIENCE_S
        self.was_missed = False
        self.trouble = ""
        self.under_way: list[ChangingTool] = []
        self._n_begun = 0
        # `_unseen` are the running tools, and ended ones that no scan has covered yet. Of these `_unwritten` have not written their
        # files yet, and `_ended` change nothing any more. Hold the lock `_ending` to change the three.
        self._unseen: list[ChangingTool] = []
        self._unwritten: set[ChangingTool] = set()
        self._ended: set[ChangingTool] = set()
        self._n_jobs: dict[str, int] = {}
        self._named: list[str] = []
        # The scans of tools whose work has ended, which began before the event loop heard of that.
        self._ending = threading.Lock()
        self._begun: dict[ChangingTool, Future[Figures]] = {}
        # Agents sync their conversations in threads of their own; one waits here for what another one syncs.
        self._syncing = threading.Lock()
        self._resting: asyncio.TimerHandle | None = None
        self._checking: asyncio.Task[None] | None = None
        self._last_check = 0.0

    @property
    def refusal(self) -> str:
        """A sentence for the user that says why nothing is stored in this folder; empty if something is."""
        return self.tracker.refusal

    @property
    def reason(self) -> str:
        """A sentence for the user that says why files cannot be restored; empty if they can."""
        if not self._is_open:
            return _HAS_ENDED
        if self.refusal or self.is_ready:
            return self.refusal
        return self.trouble or _NOT_READY

    @property
    def is_ready(self) -> bool:
        """Whether the first scan has ended, and found all that there was."""
        first = self.first_scan
        return (
            first is not None
            and first.done()
            and not first.cancelled()
            and first.exception() is None
            and first.result().ended
        )

    @property
    def is_on(self) -> bool:
        """Whether snapshots are taken at all."""
        return self._is_open and not self.refusal

    def place_of(self, session: Session) -> str:
        """Return the folder of an agent's session relative to that of the snapshots; empty if these are its own."""
        own = self._session_dir
        return "" if session.dir == own else os.path.relpath(session.dir, own)

    def start(self, reads_only: Callable[[], bool]) -> asyncio.Future[FirstScan] | None:
        """Start the first scan, and return it; None if it was started before, or nothing is stored.

        Args:
            reads_only: returns whether changes are forbidden now (plan mode); an interrupted restore is not finished then.
        """
        if self.refusal or self.first_scan is not None:
            return None
        self.first_scan = asyncio.get_running_loop().run_in_executor(
            self._pool, self._run_first_scan, reads_only
        )
        return self.first_scan

    def _run_first_scan(self, reads_only: Callable[[], bool]) -> FirstScan:
        """Scan everything, then finish an interrupted restore; one that no journal names had changed nothing.

        Raises:
            OSError: the work folder cannot be read, or the disk refused.
        """
        tracker = self.tracker
        if not tracker.first_scan():
            return FirstScan(ended=False)
        if (prepared := tracker.unfinished_restore()) is None:
            return FirstScan(ended=True)
        intent = prepared.intent
        is_ours = tracker.is_ours_alone(intent)
        # The journal of another session is only looked for if nobody else can have named it.
        if (is_ours or not intent.session) and not self._is_journaled(intent):
            if is_ours:
                tracker.give_up(intent)
            else:
                tracker.abandon()
            return FirstScan(ended=True)
        why = "" if is_ours else _NOT_OURS
        if why := why or (_IN_PLAN if reads_only() else ""):
            tracker.abandon()
            return FirstScan(ended=True, left=intent.paths, why=why)
        return FirstScan(ended=True, outcome=tracker.carry_out(prepared, unasked=True))

    def _is_journaled(self, intent: Intent) -> bool:
        """Return whether the journal of the agent that began a restore names it, so that its conversation has changed too."""
        entries = self._journal.entries
        if intent.session:
            entries = repaired_entries(self._session_dir / intent.session)
        return any(entry.snapshot_after == intent.after for entry in entries)

    async def progress(self) -> AsyncGenerator[float]:
        """Yield the part of the work folder that the first scan has been through, at intervals until it has ended."""
        while (first := self.first_scan) is not None and not first.done():
            await asyncio.wait([first], timeout=_TOLD_EVERY_S)
            if not first.done():
                yield self.tracker.known_part

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run work with the tracker after all earlier work, in its thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: work(*args, **kwargs))

    def submit(self, work: Callable[[str], None], argument: str) -> Future[None]:
        """Have work done in the thread of the tracker, after what has been submitted so far."""
        return self._pool.submit(work, argument)

    def sync_names_soon(self, folder: str) -> None:
        """Have the names in a folder synced with the changes. It may be called from any thread."""
        self._named.append(folder)

    @property
    def is_synced(self) -> bool:
        """Whether there is nothing for `sync_changes` to do."""
        return not self._named and self.tracker.is_synced

    def sync_changes(self) -> None:
        """Make durable what is not yet: the names of written files, and their snapshots. It may be called from any thread.

        Raises:
            NamesNotSynced: the disk reported an error for the names in a folder.
            OSError: the disk refused the snapshots.
        """
        with self._syncing:
            # The list stays the same one, to which other threads append meanwhile.
            n_named = len(self._named)
            refused: NamesNotSynced | None = None
            for folder in dict.fromkeys(self._named[:n_named]):
                try:
                    sync_folder(folder)
                except (FileNotFoundError, NotADirectoryError):
                    # The folder is gone by now, and the file with it.
                    continue
                except OSError as error:
                    refused = refused or NamesNotSynced(error.errno, error.strerror, folder)
            del self._named[:n_named]
            self.tracker.sync()
            if refused is not None:
                raise refused

    # -- who changes files ------------------------------------------------------------------------

    def begin(self, change: ChangingTool, *, writes_later: bool = False) -> None:
        """Note that a tool runs.

        Args:
            change: the tool.
            writes_later: whether it changes nothing but with `write`.
        """
        self._n_begun += 1
        self.under_way.append(change)
        with self._ending:
            self._unseen.append(change)
            if writes_later:
                self._unwritten.add(change)
        if self._resting is not None:
            self._resting.cancel()

    def scan_ahead(self) -> ScanAhead | None:
        """Begin a scan for a tool that is about to begin; return None if there are no snapshots yet."""
        if not self.is_ready or not self.is_on:
            return None

        def scan() -> float:
            self._take("other", "", later=True)
            return time.monotonic()

        return ScanAhead(self._pool.submit(scan), self._n_begun)

    async def ended_at(self, ahead: ScanAhead) -> float | None:
        """Wait for a scan; return the time of its end (`time.monotonic`), None if a tool has begun since it was asked for.

        Raises:
            OSError: as for `take`.
        """
        ended = ahead.scan
        at = ended.result() if ended.done() else await asyncio.wrap_future(ended)
        return at if ahead.n_begun == self._n_begun else None

    def scan_at_end(self, change: ChangingTool) -> None:
        """Begin the scan that covers a tool whose work has ended, before the event loop hears of that. It may be called from any thread."""
        with self._ending:
            # A command that went on in the background counts no more when it ends.
            if change in self.under_way and change not in self._begun and self.is_ready:
                self._ended.add(change)
                # After the shutdown nothing is scanned.
                with contextlib.suppress(RuntimeError):
                    self._begun[change] = self._submit_take(change)

    def end(self, change: ChangingTool) -> Future[Figures] | None:
        """Note that it has ended; its changes are known when a scan has covered it. Return that scan, which may have begun by now
        (`scan_at_end`); None if none is needed, or possible.
        """
        with self._ending:
            self.under_way.remove(change)
            begun = self._begun.pop(change, None)
            if change in self._unwritten or not self.is_on or self.first_scan is None:
                return None
            self._ended.add(change)
            # Another agent's tool may begin at once, and its scan must not come before this one.
            return begun or self._submit_take(change)

    def _submit_take(self, change: ChangingTool) -> Future[Figures]:
        return self._pool.submit(self._take, "agent", change.agent, later=True)

    def covered(self, change: ChangingTool) -> None:
        """Note that a scan has seen the changes of an ended tool, or that none will."""
        with self._ending:
            if change in self._unseen:
                self._unseen.remove(change)
            self._unwritten.discard(change)
            self._ended.discard(change)
        if self._unseen or not self.is_ready or not self._is_open:
            return
        if self._resting is not None:
            self._resting.cancel()
        self._resting = asyncio.get_running_loop().call_later(_REST_S, self._check)

    def _check(self) -> None:
        """Begin a check of the files, unless there was one lately."""
        loop = asyncio.get_running_loop()
        is_early = self._last_check and loop.time() - self._last_check < _CHECKED_EVERY_S
        if is_early or not self.is_on or self._checking is not None:
            return
        self._last_check = loop.time()
        self._checking = loop.create_task(self._checked(), name="files check")

    async def _checked(self) -> None:
        """Compare the folder with what is known of it, in slices while no tool runs, and take what no event had told."""
        try:
            await self.run(self.tracker.begin_check)
            while await self.run(self.tracker.check, _SLICE_S):
                await asyncio.sleep(_PAUSE_S)
                if self._unseen:
                    # A tool runs by now. Files that were not checked yet are checked next time.
                    return
            if self.tracker.has_suspects:
                await self.take("other")
        except OSError as error:
            log.warning("the files could not be checked", exc_info=error)
        finally:
            self._checking = None

    def follow_jobs(self, agent: str, running: int) -> bool:
        """Set the number of commands that an agent runs in the background; return whether one has ended."""
        ended = running < self._n_jobs.get(agent, 0)
        self._n_jobs[agent] = running
        return ended

    def may_write(self, change: ChangingTool) -> bool:
        """Return whether a tool has written nothing yet, and is to do so with `write`."""
        return change in self._unwritten

    def _suspects(self) -> Suspects:
        """Return whose the changes since the last scan can be. Called in the thread of the tracker."""
        with self._ending:
            tools = [one for one in self._unseen if one not in self._unwritten]
        # Of tools of several agents one has to be taken, and one that can change any file is likelier.
        tools.sort(key=lambda one: one.paths is not None)
        return Suspects(_touched(tools), tools[0].agent if tools else "", self.others)

    @property
    def others(self) -> By:
        """The author of changes that no tool made."""
        return "job" if any(self._n_jobs.values()) else "other"

    async def take(self, by: By, *, later: bool = False) -> Figures:
        """Scan; return what tools of the session's own agent changed since the last scan by "agent", with figures; nothing for
        another `by`.

        The tools that run until the scan ends are those that count, not those when it was asked for: what they can have changed
        is theirs.

        Args:
            by: the author of what no tool can have changed; "agent" at the end of a tool.
            later: leave the sync of what is new to the next sync of a conversation.

        Raises:
            OSError: the work folder cannot be read, or the disk refused.
        """
        return await self.run(self._take, by, "", later=later)

    def _take(self, by: By, agent: str, *, later: bool) -> Figures:
        with self._ending:
            seen = {one for one in self._unseen if one in self._ended}
        if by != "agent":
            self._take_snapshot(by, agent, later=later)
            found = Figures()
        else:
            snapshots = self.tracker.taken_beside(agent)
            snapshot = self._take_snapshot(by, agent, later=later)
            snapshots += [] if snapshot is None else [snapshot]
            found = Figures(*self.tracker.figures(*snapshots)) if snapshots else Figures()
        with self._ending:
            self._unseen = [one for one in self._unseen if one not in seen]
        return found

    def _take_snapshot(self, by: By, agent: str, *, later: bool) -> Snapshot | None:
        with contextlib.suppress(OSError):
            return self.tracker.take_snapshot(by, author=agent, later=later)
        # A disk that refused, or a lack of descriptors, may be over by now; without this scan a change would be somebody else's.
        return self.tracker.take_snapshot(by, author=agent, later=later)

    async def write(
        self, change: ChangingTool, work: Callable[[], object], *, if_seen: bool
    ) -> bool:
        """Have the files of a tool written in the thread of the tracker, and scanned right behind; `end` returns that scan.

        Args:
            change: the tool, whose files are known.
            work: writes the files.
            if_seen: write nothing unless the last scan saw these files as they are now.

        Returns:
            whether anything may have been written. The errors of `work` are raised.

        Raises:
            ToolProblem: the last scan could not read a file, whose contents would be lost; or see `work`.
        """
        paths = change.paths or frozenset()
        written: Future[bool] = Future()
        # The writer sets the result, whoever waits for it.
        written.set_running_or_notify_cancel()

        def write_and_look() -> Figures:
            try:
                if if_seen and not self._is_as_seen(paths):
                    self.tracker.suspect(paths)
                    written.set_result(False)
                    return Figures()
                if not if_seen:
                    self._check_read(paths)
                with self._ending:
                    self._unwritten.discard(change)
                work()
            except ToolProblem as problem:
                # Nothing was written, so a change of these files is somebody else's.
                with self._ending:
                    self._unwritten.add(change)
                written.set_exception(problem)
                return Figures()
            except BaseException as error:
                written.set_exception(error)
            else:
                written.set_result(True)
            with self._ending:
                self._ended.add(change)
            return self._take("agent", change.agent, later=True)

        with self._ending:
            self._begun[change] = self._pool.submit(write_and_look)
        return await asyncio.wrap_future(written)

    def _check_read(self, paths: frozenset[str]) -> None:
        """Check that a scan just now could read the files that differed from the snapshot before it.

        Raises:
            ToolProblem: it could not, though the writer may be able to by now.
        """
        if unread := self.tracker.unread(paths):
            self.tracker.suspect(unread)
            raise ToolProblem(
                f"{unread[0]} could not be read, so no snapshot has its contents. Nothing was written: try again.",
                brief="cannot be read",
            )

    def _is_as_seen(self, paths: frozenset[str]) -> bool:
        with contextlib.suppress(OSError):
            return self.tracker.is_as_seen(paths)
        return False

    # -- tasks, and the end -----------------------------------------------------------------------

    def keep(self, task: asyncio.Task[None]) -> None:
        """Keep a task that scans until it ends; `settled` waits for it, the end of all cancels it."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settled(self) -> None:
        """Wait until the changes of tools have been scanned. It does not wait for the first scan."""
        if self._tasks and self.is_ready:
            await asyncio.wait(list(self._tasks))

    async def aclose(self) -> None:
        """End the thread and release the files; work that does not end within a few seconds is not awaited."""
        self._is_open = False
        if not self.is_ready:
            self._cancelled.set()
        if self._resting is not None:
            self._resting.cancel()
        tasks = [*self._tasks, *([self._checking] if self._checking else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        end = asyncio.get_running_loop().run_in_executor(self._pool, _nothing)
        for _ in range(2):
            # The time limit must not cancel this task: it is the last in the queue, and its end shows that all earlier work
            # is done.
            await asyncio.wait([end], timeout=_END_PATIENCE_S)
            self._cancelled.set()
        if not end.done():
            log.warning("the files are still being looked at; the end does not wait for that")
            end.cancel()
        self._pool.submit(self.tracker.close)
        self._pool.shutdown(wait=False)


def _touched(changes: Iterable[ChangingTool]) -> frozenset[str] | None:
    """Return the files that these tools can have changed; None if they are unknown."""
    paths: set[str] = set()
    for change in tuple(changes):
        if change.paths is None:
            return None
        paths |= change.paths
    return frozenset(paths)


def _nothing() -> None:
    """Do nothing: the end of this call in the thread shows that all earlier work has been done."""


_NOT_OURS = (
    "other users can write to the session's storage folder, or it was copied from another machine"
)
_IN_PLAN = "nothing is changed in plan mode"


def snapshot_scope(session: Session, environ: Mapping[str, str]) -> SnapshotScope:
    """Return the folders and limits around a session's snapshots. It lists folders, so call it in a thread."""
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
        own=own_folders(session.dir),
        homes=(environ.get("HOME", ""),),
        seal_key=sessions.parent / "restore.key",
        is_moved=session.state.moved_from != "",
    )


def own_folders(session_dir: Path) -> tuple[str, ...]:
    """Return the folders of the program itself, which no snapshot lists."""
    sessions = session_dir.parent.parent
    return (str(sessions), str(sessions.parent / "logs"))


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
    """Runs calls one after another in a thread for which the end of the program does not wait.

    The interpreter joins the standard executor's threads without a time limit when it ends, even after a `shutdown` that does
    not wait.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_open = True

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `fn` after all earlier calls.

        Raises:
            RuntimeError: the executor has been shut down.
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
        """Accept no more calls; the thread ends when the accepted ones have been done."""
        del cancel_futures
        self._is_open = False
        self._work.put(None)
        if wait and self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
