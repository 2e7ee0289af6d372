"""Restoring files as part of an operation on the conversation: preview, journal entry, and carrying it out.

The order makes it safe: first the rescue snapshot and the intent are written to the disk, then the journal names both
snapshots together with the change of the conversation, then the files are changed. Killed before the journal entry, no file
was touched; killed after it, the next start finishes the restore (`FileHistory.start`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from kimi_tui.session.context import Context
from kimi_tui.session.journal import JournalEntry
from kimi_tui.session.schema import Checkpoint, Operation
from kimi_tui.soul.file_history import FileHistory
from kimi_tui.soul.rewind_values import FileOutcome, FilePreview, FilesPreview
from kimi_tui.tools.outcome import FileEdit
from kimi_tui.wire.display import DiffLine
from kimi_tui.workspace.restore import (
    CHANGED_BESIDE_JOB,
    CHANGED_BESIDE_JOB_BEFORE,
    CHANGED_OUTSIDE,
    FileChange,
    PreparedRestore,
    RestorePlan,
)

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


class FileRestorer:
    """Plans and carries out what an operation does to the files of the work folder.

    Args:
        history: the snapshots.
        context: the live context, whose journal records what happens to files.
        work_dir: the work folder.
    """

    def __init__(self, history: FileHistory, context: Context, work_dir: Path) -> None:
        self.history = history
        self.work_dir = work_dir
        self._context = context
        self._shown: tuple[str, bool, RestorePlan] | None = None
        self._reasons: dict[str, str] = {}

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
        plan = await self.history.plan(point, after=after)
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
            for one in (await self.history.plan(point)).changes
            if one.change != "skip" and one.reason != CHANGED_OUTSIDE and one.path not in but
        )

    async def _described(self, plan: RestorePlan) -> FilesPreview:
        if plan.reason:
            return FilesPreview(reason=plan.reason)
        compared = await self.history.compared(plan.changes[:_MOST_FILES_COMPARED], _MOST_ROWS)
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
                )
            )
        return FilesPreview(tuple(files), plan.not_covered, plan.remarks)

    async def changed_since(self, point: Checkpoint) -> dict[str, str]:
        """The files that are not what they were at a checkpoint, each with who changed it but the agent, if anyone.

        Empty where that is not known.
        """
        plan = await self.history.plan(point)
        return {
            one.path: _BY_OTHERS.get(one.reason, _BY_OTHERS[CHANGED_OUTSIDE]) if one.reason else ""
            for one in plan.changes
            if one.change != "skip"
        }

    async def plan(self, point: Checkpoint, *, after: bool = False) -> RestorePlan:
        """The plan that was shown last for this checkpoint, once; else a new one."""
        shown, self._shown = self._shown, None
        if shown is not None and shown[:2] == (point.uid, after):
            return shown[2]
        return await self.history.plan(point, after=after)

    async def prepare(
        self, plan: RestorePlan, chosen: Collection[str] | None = None
    ) -> PreparedRestore | None:
        """Get ready to carry a plan out; None where there is nothing to do.

        Raises:
            OSError: the disk refused; nothing was touched.
        """
        self._reasons = {one.path: one.reason for one in plan.changes}
        return await self.history.prepare(plan, chosen)

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
            await self.history.abandon()
            raise

    async def carry_out(
        self, prepared: PreparedRestore | None, uid: str
    ) -> tuple[FileOutcome, ...]:
        """Bring the files back, after the journal knows; what became of each."""
        if prepared is None:
            return ()
        outcome = await self.history.carry_out(prepared, uid)
        created = prepared.intent.created
        found = [
            FileOutcome(path, "create" if path in created else "restore")
            for path in outcome.restored
        ]
        found += [FileOutcome(path, "delete") for path in outcome.deleted]
        found += [FileOutcome(path, "conflict", self._reasons[path]) for path in prepared.left]
        found += [FileOutcome(path, "conflict", why) for path, why in outcome.failures.items()]
        return tuple(sorted(found, key=lambda one: one.path))

    async def record(self, entry: JournalEntry | None, uid: str, checkpoint_id: int) -> None:
        """Journal a restore of files alone.

        Raises:
            StorageTrouble: it could not be written.
        """
        if entry is not None:
            size = self._context.size_bytes
            named = JournalEntry(
                op="files",
                uid=uid,
                checkpoint_id=checkpoint_id,
                to_size=size,
                snapshot_before=entry.snapshot_before,
                snapshot_after=entry.snapshot_after,
                paths=entry.paths,
            )
            await asyncio.to_thread(self._context.journal.record_files, named)

    async def prepare_back(self, entry: JournalEntry) -> PreparedRestore | None:
        """Get ready to reverse what an operation did to the files; None where it did nothing to them.

        Raises:
            OSError: the disk refused; nothing was touched.
        """
        if not entry.snapshot_after:
            return None
        return await self.prepare(await self._plan_back(entry))

    async def _plan_back(self, entry: JournalEntry) -> RestorePlan:
        return await self.history.plan_back(
            entry.snapshot_before, entry.snapshot_after, entry.paths
        )

    async def left_out(self, entry: JournalEntry, uid: str) -> tuple[FileOutcome, ...]:
        """The files that an operation touched and that cannot be reversed with it, published; none where they can."""
        if not entry.snapshot_after:
            return ()
        plan = await self._plan_back(entry)
        if not plan.reason:
            return ()
        self.history.publish_left(entry.paths, uid)
        return tuple(FileOutcome(path, "conflict", plan.reason) for path in entry.paths)

    async def edits_of(self, plan: RestorePlan) -> tuple[FileEdit, ...]:
        """What carrying a plan out writes, as edits that the user can look at before a yes."""
        changes = [one for one in plan.changes if one.change in ("restore", "create", "delete")]
        return await self.history.edits(changes, _NO_TEXT_SHOWN)
