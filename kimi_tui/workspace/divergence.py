"""Compares the files of two world lines since their fork: at the end of the line that was left, and now.

Both sides are compared with the files at the fork, so that it is known which side changed a file. Checkpoints are known by
uid only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kimi_tui.workspace.diff import LineDiff, StoredTexts
from kimi_tui.workspace.entries import Entry, Manifest, was_looked_for
from kimi_tui.workspace.restore import as_file
from kimi_tui.workspace.snapshots import FOREIGN, By, SnapshotLog

Outcome = Literal["same", "changed", "new", "gone"]
Authors = Literal["agent", "others", "both"]

_UNKNOWN = "How the files stood where the lines part is not known."
_MOST_FILES_COMPARED = 300
_MOST_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class SideChange:
    """What one side made of a file, and who. `diff` is None where it is no text, or too large to show."""

    outcome: Outcome
    authors: Authors = "agent"
    diff: LineDiff | None = None


@dataclass(frozen=True, slots=True)
class DivergedFile:
    """A file that is on one of the sides not what it was at the fork. `alike` is true where it is the same on both."""

    path: str
    left: SideChange
    now: SideChange
    alike: bool


@dataclass(frozen=True, slots=True)
class Divergence:
    """All such files in order. `reason` says why nothing is known; `remarks` are sentences for the user."""

    files: tuple[DivergedFile, ...] = ()
    remarks: tuple[str, ...] = ()
    reason: str = ""


def find_divergence(
    log: SnapshotLog,
    texts: StoredTexts,
    now: Manifest,
    begins: Sequence[str],
    newest: Sequence[str],
) -> Divergence:
    """What changed on a line that was left, and what changed until now, since the two diverged.

    Args:
        log: the snapshots, with one of `now`.
        texts: reads contents.
        now: a fresh scan.
        begins: the names of the first checkpoints that are on one side only; the one that was made first is at the fork.
        newest: the names of the newest checkpoint of the line that was left, the best first.
    """
    fork = log.at_first_of(begins)
    end = next((found for uid in newest if (found := log.after_checkpoint(uid)) is not None), None)
    if fork is None or end is None:
        return Divergence(reason=_UNKNOWN)
    end = log.later(fork, end)
    left_by, now_by = log.changed_since(fork, end), log.changed_since(fork)
    then, left = log.manifest_at(fork), log.manifest_at(end)
    files: list[DivergedFile] = []
    room = _MOST_ROWS
    for path in sorted(now_by):
        if not all(_is_known(manifest, path) for manifest in (then, left, now)):
            continue
        before, here, there = (
            as_file(then.get(path)),
            as_file(now.get(path)),
            as_file(left.get(path)),
        )
        if before == here == there:
            continue
        compared = texts if len(files) < _MOST_FILES_COMPARED else None
        other_side = _side(compared, before, there, left_by.get(path, ()), room)
        room -= _rows(other_side)
        if here == there:
            this_side = SideChange(other_side.outcome, _authors(now_by[path]), other_side.diff)
        else:
            this_side = _side(compared, before, here, now_by[path], room)
            room -= _rows(this_side)
        files.append(DivergedFile(path, other_side, this_side, alike=here == there))
    return Divergence(tuple(files), tuple(log.notes_at(end)))


def _is_known(manifest: Mapping[str, Entry], path: str) -> bool:
    """Whether it is known what a path held, or that there was nothing."""
    entry = manifest.get(path)
    return was_looked_for(manifest, path) if entry is None else entry.is_known


def _side(
    texts: StoredTexts | None,
    before: Entry | None,
    after: Entry | None,
    by: Sequence[By],
    room: int,
) -> SideChange:
    if before == after:
        return SideChange("same")
    outcome: Outcome = "new" if before is None else "gone" if after is None else "changed"
    diff = texts.compared(before, after, max(0, room)) if texts is not None else None
    return SideChange(outcome, _authors(by), diff)


def _authors(by: Sequence[By]) -> Authors:
    """Who made a file what it is; what preceded a restore no longer counts."""
    since = by[len(by) - by[::-1].index("restore") :] if "restore" in by else by
    if not since or FOREIGN.isdisjoint(since):
        return "agent"
    return "others" if FOREIGN.issuperset(since) else "both"


def _rows(side: SideChange) -> int:
    return 0 if side.diff is None else len(side.diff.rows)
