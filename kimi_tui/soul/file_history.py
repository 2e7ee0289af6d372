"""The working files beside the conversation: when they are looked at, who changed them, and how they come back.

All looks go through one thread, in the order in which they were asked for, so that what stands between two of them is known. Here
is when; `workspace.tracker` is how.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from kimi_tui.soul.file_news import FileNews
from kimi_tui.soul.first_look import FirstLook, first_look
from kimi_tui.tools.base import FileEdit
from kimi_tui.wire.queue import Wire
from kimi_tui.workspace.diff import LineDiff
from kimi_tui.workspace.parting import Parting
from kimi_tui.workspace.plan import FileChange, RestorePlan
from kimi_tui.workspace.restore import Prepared, Restored
from kimi_tui.workspace.snapshots import By, Snapshot
from kimi_tui.workspace.tracker import Tracker

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

_PATIENCE_S = 10.0
# From here on a person may have wondered.
_LONG_S = 2.0
_NOT_READY = "The first look at the files has not ended yet; a notice tells when it has."


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A tool at work. `paths` is all that it can change, None where that is not known (a command)."""

    paths: frozenset[str] | None


class FileHistory:
    """The snapshots of one session.

    Args:
        tracker: does the work.
        wire: hears of changes and troubles.
        is_journaled: whether the journal knows of an operation that was to lead to this snapshot; where it does not,
            a restore that was cut off had touched nothing. Called in a thread.
        cancelled: set when a look that is under way is no longer wanted.
    """

    def __init__(
        self,
        tracker: Tracker,
        wire: Wire,
        is_journaled: Callable[[str], bool],
        cancelled: threading.Event,
    ) -> None:
        self._tracker = tracker
        self._is_journaled = is_journaled
        self._cancelled = cancelled
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="files")
        self._first: asyncio.Future[FirstLook] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way: list[Change] = []
        # Those and the ones that have ended, until they have been looked at.
        self._unseen: list[Change] = []
        self._news = FileNews(wire)
        self._trouble = ""
        self._began = 0.0
        self._was_missed = False
        self._is_open = True

    @property
    def reason(self) -> str:
        """Why files cannot be brought back, in a sentence for the person; empty where they can."""
        if self._tracker.refusal or self._is_ready:
            return self._tracker.refusal
        return self._trouble or _NOT_READY

    @property
    def _is_ready(self) -> bool:
        first = self._first
        return (
            first is not None
            and first.done()
            and not first.cancelled()
            and first.exception() is None
            and first.result().ended
        )

    # -- looking ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the first look in the background, and finish a restore in which an earlier process was cut off."""
        if self._tracker.refusal or self._first is not None:
            return
        loop = asyncio.get_running_loop()
        self._began = loop.time()
        self._first = loop.run_in_executor(
            self._pool, first_look, self._tracker, self._is_journaled
        )
        self._own(self._hear_first(self._first))

    async def ready(self) -> None:
        """Wait for the first look, which begins now if it has not begun."""
        self.start()
        if self._first is not None:
            await asyncio.wait([self._first])

    def mark(self, uid: str) -> None:
        """A checkpoint was made now."""
        if self._is_on:
            self._pool.submit(self._tracker.mark, uid).add_done_callback(_noted)

    async def before_change(self, paths: Sequence[str] | None) -> Change:
        """A tool is about to change something. What someone else changed until now is told apart from what it will.

        Args:
            paths: what it will change, relative to the work folder; None where that is not known (a command).

        Returns:
            what to end with `after_change`.
        """
        change = Change(None if paths is None else frozenset(paths))
        await self._look_before(change.paths)
        self._under_way.append(change)
        self._unseen.append(change)
        return change

    def after_change(self, change: Change, uid: str) -> None:
        """A tool has changed what it would; `uid` is the checkpoint of its step. Looked at in the background."""
        self._under_way.remove(change)
        if self._is_on and self._first is not None:
            self._own(self._look_after(change, uid))
        else:
            self._unseen.remove(change)

    async def settled(self) -> None:
        """Wait until what was changed has been looked at (not for the first look)."""
        if self._tasks and self._is_ready:
            await asyncio.wait(list(self._tasks))

    # -- restoring -------------------------------------------------------------------------------

    async def plan(self, uid: str, was: str = "") -> RestorePlan:
        """What it takes to have the files as they were at a checkpoint. What cannot be planned says why.

        Args:
            uid: the checkpoint.
            was: what it was called before a compaction, if it was.
        """
        by: By = "agent" if self._under_way else "other"
        touched = _touched(self._under_way)
        return await self._found(_no_plan, self._tracker.plan, uid, was, by, touched)

    async def plan_back(self, before: str, after: str, paths: Collection[str]) -> RestorePlan:
        """What it takes to reverse a restore."""
        return await self._found(_no_plan, self._tracker.plan_back, before, after, paths)

    async def parting(self, begins: Sequence[str], newest: Sequence[str]) -> Parting:
        """What two courses of the conversation made of the files since they parted; see `workspace.parting`."""
        return await self._found(_no_parting, self._tracker.parting, begins, newest)

    async def prepare(
        self, plan: RestorePlan, chosen: Collection[str] | None = None
    ) -> Prepared | None:
        """Take the rescue snapshot and bring the intent to the disk; None where there is nothing to do.

        Raises:
            OSError: the disk refused; nothing was touched.
        """
        if plan.reason:
            return None
        return await self._run(self._tracker.prepare, plan, chosen)

    async def carry_out(self, prepared: Prepared, uid: str) -> Restored:
        """Bring the files back, verify, and tell of it. What failed is in the outcome, never an exception."""
        try:
            outcome = await self._run(self._tracker.carry_out, prepared)
        except OSError as error:
            log.warning("a restore could not be recorded", exc_info=error)
            failed = dict.fromkeys(prepared.intent.paths, error.strerror or str(error))
            outcome = Restored((), (), failed)
        self._news.restored(outcome, prepared.left, uid, prepared.intent.created)
        return outcome

    def tell_left(self, paths: tuple[str, ...], uid: str) -> None:
        """Tell that files were left alone which should have been brought back."""
        self._news.left(paths, uid)

    async def abandon(self) -> None:
        """What was prepared does not happen."""
        await self._run(self._tracker.abandon)

    async def compared(
        self, changes: Sequence[FileChange], most_rows: int
    ) -> list[LineDiff | None]:
        """What changed in each file since the target, by lines; None for what is no text."""
        return await self._run(self._tracker.texts.compared_all, changes, most_rows)

    async def edits(self, changes: Sequence[FileChange], no_text: str) -> tuple[FileEdit, ...]:
        """What carrying out these changes writes, as edits; `no_text` stands for what is no text."""
        return await self._run(_edits, self._tracker, changes, no_text)

    async def aclose(self) -> None:
        """End what runs and let go."""
        self._is_open = False
        if not self._is_ready:
            self._cancelled.set()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=False)

    # -- below: how ------------------------------------------------------------------------------

    @property
    def _is_on(self) -> bool:
        return self._is_open and not self._tracker.refusal

    @property
    def is_open(self) -> bool:
        """False once it is being closed."""
        return self._is_open

    async def _run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: work(*args, **kwargs))

    async def _found(
        self, refused: Callable[[str], T], work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """What `work` finds, or what `refused` makes of the reason why nothing can be found."""
        if self.reason:
            self._was_missed = True
            return refused(self.reason)
        try:
            return await self._run(work, *args, **kwargs)
        except OSError as error:
            return refused(f"The files cannot be looked at: {error.strerror or error}.")

    async def _look_before(self, paths: frozenset[str] | None) -> None:
        if self._tracker.refusal:
            self._news.refused(self._tracker.refusal)
        if not self._is_on or self._first is None:
            return
        if not self._first.done():
            if paths is not None:
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(self._tracker.keep_early, paths)
                return
            done, _ = await asyncio.wait([self._first], timeout=_PATIENCE_S)
            if not done:
                self._tracker.spoil()
                return
        if self._is_ready and not (paths is not None and await self._is_as_seen(paths)):
            await self._look("other", "")

    async def _is_as_seen(self, paths: frozenset[str]) -> bool:
        """Whether what will be overwritten is what the last look saw; the rest is told apart afterwards."""
        with contextlib.suppress(OSError):
            return await self._run(self._tracker.is_as_seen, paths)
        return False

    async def _look_after(self, change: Change, uid: str) -> None:
        try:
            await self._look("agent", uid)
        finally:
            self._unseen.remove(change)

    async def _look(self, by: By, uid: str) -> None:
        """Look, and tell what the agent changed. The disk's refusal is told, never raised: work goes on."""
        try:
            snapshot, lines = await self._run(self._look_and_count, by)
        except OSError as error:
            # What kept the first look from ending is told with that.
            if self._is_ready:
                self._news.trouble(error)
            return
        self._news.full(self._tracker.full)
        if snapshot is not None and by == "agent":
            self._news.changed(uid, tuple(sorted(snapshot.changed)), lines)

    def _look_and_count(self, by: By) -> tuple[Snapshot | None, tuple[int, int]]:
        """In the thread that looks: what counts is who is at work when the look begins, not when it was asked for."""
        tracker = self._tracker
        if by != "agent":
            return tracker.look(by), (0, 0)
        snapshot = tracker.look(by, _touched(self._unseen))
        return snapshot, (0, 0) if snapshot is None else tracker.lines_changed(snapshot)

    async def _hear_first(self, first: asyncio.Future[FirstLook]) -> None:
        try:
            found = await asyncio.shield(first)
        except OSError as error:
            self._trouble = f"The files cannot be looked at: {error.strerror or error}."
            self._news.trouble(error)
            return
        # Where nobody had to do without it, its end is no news.
        took_s = asyncio.get_running_loop().time() - self._began
        if found.ended and (self._was_missed or took_s > _LONG_S):
            self._news.ready()
        self._news.full(self._tracker.full)
        if found.outcome is not None:
            self._news.finished(found.outcome)

    def _own(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="files")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _no_plan(why: str) -> RestorePlan:
    return RestorePlan(reason=why)


def _no_parting(why: str) -> Parting:
    return Parting(reason=why)


def _touched(changes: Iterable[Change]) -> frozenset[str] | None:
    """What these tools can have changed; None where there is no telling."""
    paths: set[str] = set()
    for change in tuple(changes):
        if change.paths is None:
            return None
        paths |= change.paths
    return frozenset(paths)


def _noted(done: Future[None]) -> None:
    if not done.cancelled() and done.exception() is not None:
        log.warning("a checkpoint could not be marked", exc_info=done.exception())


def _edits(tracker: Tracker, changes: Sequence[FileChange], no_text: str) -> tuple[FileEdit, ...]:
    edits: list[FileEdit] = []
    for one in changes:
        now, then = tracker.texts.of(one.now), tracker.texts.of(one.then)
        before = None if one.now is None else no_text if now is None else now
        after = "" if one.then is None else no_text if then is None else then
        edits.append(FileEdit(one.path, before, after))
    return tuple(edits)
