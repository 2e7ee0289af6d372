"""The files of two courses of a conversation since they parted, as a comparison shows them."""

from __future__ import annotations

from collections.abc import Sequence

from kimi_tui.session.records import Checkpoint
from kimi_tui.soul.file_history import FileHistory
from kimi_tui.soul.travel_protocol import FileSide, PartedFiles, PartedPath
from kimi_tui.wire.display import DiffLine
from kimi_tui.workspace.parting import Course


async def parted_files(
    history: FileHistory, live: Sequence[Checkpoint], other: Sequence[Checkpoint], shared: int
) -> PartedFiles:
    """What each course made of the files.

    Args:
        history: the snapshots.
        live: the checkpoints of the live line.
        other: those of the line that was left.
        shared: how many first checkpoints both have.
    """
    if not other:
        return PartedFiles(reason="That line has no checkpoint.")
    newest = _names(other[-1:])
    begins = [*_names(live[shared : shared + 1]), *_names(other[shared : shared + 1])]
    parting = await history.parting(begins or newest, newest)
    return PartedFiles(
        tuple(
            PartedPath(one.path, _side(one.left), _side(one.now), one.alike)
            for one in parting.files
        ),
        parting.remarks,
        parting.reason,
    )


def _names(points: Sequence[Checkpoint]) -> list[str]:
    """What they were called before a compaction, and are called now."""
    return [name for point in points for name in (point.was, point.uid) if name]


def _side(course: Course) -> FileSide:
    diff = course.diff
    if diff is None:
        return FileSide(course.became, course.hands, is_text=course.became == "same")
    rows = tuple(DiffLine(*row) for row in diff.rows)
    return FileSide(course.became, course.hands, diff.added, diff.removed, rows)
