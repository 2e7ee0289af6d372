"""Changes between two checkpoints of a stored session, as files that a patch or commits can be made of.

It reads the snapshots without an engine and changes nothing, so it works on a session that another process has open.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kimi_tui.app_paths import reason_of
from kimi_tui.session.schema import Checkpoint
from kimi_tui.session.session import Session
from kimi_tui.soul.folder_snapshots import FILES_NAME, own_folders
from kimi_tui.workspace.diff import StoredTexts
from kimi_tui.workspace.manifest import Manifest
from kimi_tui.workspace.patch import (
    FilePair,
    FilePatch,
    LeftOut,
    find_pairs,
    patch_file,
    with_renames,
)
from kimi_tui.workspace.snapshots import Snapshot, SnapshotLog
from kimi_tui.workspace.store import BlobDamaged
from kimi_tui.workspace.tracker import refusal_reason, stored_and_present, stored_snapshots

_RANGE = re.compile(r"#?(\d{1,9})(?:(\.\.)(?:#?(\d{1,9}))?)?", re.ASCII)
DAMAGED = "its contents in the snapshot are damaged"


class NoFiles(Exception):
    """The files of a checkpoint are not known; the message is a sentence for the user."""


class PointRange(NamedTuple):
    """Two checkpoints by number: the first (None: the start of the session), and the last (None: the newest state)."""

    start: int | None = None
    end: int | None = None


def parse_range(text: str) -> PointRange:
    """Parse `5`, `5..` or `5..9`, also with `#`; an empty text is the whole session.

    Raises:
        ValueError: the text is no range; the message is a sentence for the user.
    """
    found = _RANGE.fullmatch(text.strip())
    if text.strip() and found is None:
        raise ValueError(f'"{text[:20]}" is not a range of checkpoints.')
    if found is None:
        return PointRange()
    start, end = int(found[1]), None if found[3] is None else int(found[3])
    if end is not None and end < start:
        raise ValueError(
            f"The range {start}..{end} runs backwards. Write the earlier checkpoint first: {end}..{start}."
        )
    return PointRange(start, end)


@dataclass(slots=True)
class PatchOfSession:
    """The files that differ between two moments of a session.

    Attributes:
        pairs: the files, in order of their paths.
        left_out: the files whose contents are not known; more may come while the patch is read.
        remarks: sentences for the user about snapshots that are incomplete.
    """

    pairs: list[FilePair]
    texts: StoredTexts
    left_out: list[LeftOut] = field(default_factory=list[LeftOut])
    remarks: list[str] = field(default_factory=list[str])

    def files(self) -> Iterator[FilePatch]:
        """Yield the difference of each file; damaged ones are noted in `left_out`."""
        for pair in self.pairs:
            try:
                yield patch_file(pair, self.texts.content)
            except BlobDamaged:
                self.left_out.append(LeftOut(pair.path, DAMAGED))


def snapshot_at(log: SnapshotLog, point: Checkpoint) -> Snapshot:
    """Return the files at a checkpoint, before the step that it began.

    Raises:
        NoFiles: there is no snapshot of that time.
    """
    found = log.at_checkpoint(point.was or "", point.uid)
    if found is None:
        raise NoFiles(
            f"There is no file snapshot of checkpoint #{point.id}. Run kimi-tui doctor to see why."
        )
    return found


def snapshot_after(log: SnapshotLog, points: Sequence[Checkpoint]) -> Snapshot:
    """Return the files at the end of the last of these checkpoints' steps that has a snapshot.

    Raises:
        NoFiles: none of them has one.
    """
    for point in reversed(points):
        found = log.after_checkpoint(point.was or "", point.uid)
        if found is not None:
            return found
    raise NoFiles("There are no file snapshots of this world line.")


def patch_of_session(
    session: Session, stored: Path, span: PointRange, world_line: int
) -> PatchOfSession:
    """Return what changed between two checkpoints; without a later one, until now, or until the end of a line that was left.

    It reads files: call it in a thread.

    Args:
        session: the session, or a copy of it, open.
        stored: the folder of the session, which has its snapshots.
        span: the checkpoints.
        world_line: the number of their world line; 0 is the current one.

    Raises:
        NoFiles: there is no snapshot of one of the checkpoints.
        UnknownCheckpoint: there is no such checkpoint.
        UnknownWorldLine: there is no such line.
    """
    index = session.world_line(world_line).index
    start = None if span.start is None else index.checkpoint(span.start)
    end = None if span.end is None else index.checkpoint(span.end)
    folder = stored / FILES_NAME
    present: Manifest | None = None
    if end is None and not world_line:
        log, texts, present = _with_present(session, stored)
    else:
        log, texts = stored_snapshots(folder)
    first = log.first if start is None else snapshot_at(log, start)
    if first is None:
        raise NoFiles(no_snapshots(session))
    if present is None:
        last = snapshot_at(log, end) if end else snapshot_after(log, index.checkpoints)
        # Files that changed by hand belong to both checkpoints between which they changed.
        last = log.later(first, last)
        after = log.manifest_at(last)
        changed = set(log.changed_since(first, last))
    else:
        after, last = present, None
        changed = set(log.changed_since(first)) | _unlike(log.latest, present)
    before = log.manifest_at(first)
    pairs, left_out = find_pairs(before, after, changed)
    found = PatchOfSession(pairs, texts, left_out, log.notes_at(last or first))
    found.pairs = joined(pairs, texts)
    return found


def joined(pairs: list[FilePair], texts: StoredTexts) -> list[FilePair]:
    """Return the files with those joined that were renamed; without that if the contents of one are damaged."""
    try:
        return with_renames(pairs, texts.content)
    except BlobDamaged:
        return pairs


def no_snapshots(session: Session) -> str:
    """Return a sentence for the user that says why a session has no file snapshots."""
    why = refusal_reason(session.work_dir, (os.environ.get("HOME", ""),))
    return why or "This session has no file snapshots."


def _with_present(session: Session, stored: Path) -> tuple[SnapshotLog, StoredTexts, Manifest]:
    folder = stored / FILES_NAME
    log, _ = stored_snapshots(folder)
    if log.first is None:
        raise NoFiles(no_snapshots(session))
    if log.root != os.path.realpath(session.work_dir):
        raise NoFiles(
            f"This session has file snapshots of {log.root}, not of {session.work_dir}, so there is nothing to compare."
        )
    try:
        return stored_and_present(session.work_dir, folder, own_folders(stored))
    except OSError as error:
        raise NoFiles(
            f"The folder {session.work_dir} cannot be read: {reason_of(error, named_in_text=session.work_dir)}."
        ) from error


def _unlike(one: Manifest, other: Manifest) -> set[str]:
    """Return the paths at which two manifests differ."""
    found = {path for path, entry in other.items() if one.get(path) != entry}
    return found | {path for path in one if path not in other}
