"""The changes of a future in the files, by its snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kimi_tui.futures.own_checks import judging
from kimi_tui.wire.events import FutureChanged
from kimi_tui.workspace.base import FileState, NoBase, Past
from kimi_tui.workspace.diff import FileDifference


def with_changes(
    state: FutureChanged, found: Sequence[FileDifference], check: str
) -> FutureChanged:
    """Return the state of a future with the figures of what it changed.

    Args:
        state: its state.
        found: the files that it changed.
        check: the command of its check; empty for none.
    """
    diffs = [one.side.diff for one in found if one.side.diff is not None]
    return replace(
        state,
        files=len(found),
        added=sum(one.added for one in diffs),
        removed=sum(one.removed for one in diffs),
        own_check=judging((one.path for one in found), check),
    )


def differences(folder: Path, work: Path, since: str, newest: str = "") -> list[FileDifference]:
    """Return the differences between a snapshot and the end of the step of a checkpoint; the last snapshot without one.

    Raises:
        NoBase: a snapshot is missing.
    """
    past = Past(folder, work)
    begun = past.log.get(since)
    end = past.log.after_checkpoint(newest) if newest else past.log.last
    if begun is None or end is None:
        raise NoBase("The file snapshots of that future were deleted.")
    one, other = FileState(begun), FileState(end)
    found = past.differences(one, other)
    # A file that no snapshot has is not among those of a future where commands may not read it; it did not go.
    before = past.entries(one, [each.path for each in found])
    after = past.entries(other, [each.path for each in found])
    hidden = {
        path
        for path, entry in before.items()
        if entry is not None and not entry.is_known and after.get(path) is None
    }
    return [each for each in found if each.path not in hidden]
