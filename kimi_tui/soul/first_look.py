"""The first look at the files of a session, and the restore that it finishes where an earlier process was cut off in one.

Blocking; in the one thread that looks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kimi_tui.workspace.restore import Restored
from kimi_tui.workspace.tracker import Tracker


@dataclass(frozen=True, slots=True)
class FirstLook:
    """What the first look came to. `outcome` is what became of a restore that had been cut off."""

    ended: bool
    outcome: Restored | None = None


def first_look(tracker: Tracker, is_journaled: Callable[[str], bool]) -> FirstLook:
    """Look at everything, then finish what was cut off, if the journal knows of it.

    Args:
        tracker: looks.
        is_journaled: whether an operation in the journal was to lead to that snapshot.

    Raises:
        OSError: the work folder cannot be read, or the disk refused.
    """
    if not tracker.first_look():
        return FirstLook(ended=False)
    prepared = tracker.cut_off()
    if prepared is None:
        return FirstLook(ended=True)
    if not is_journaled(prepared.intent.after):
        tracker.abandon()
        return FirstLook(ended=True)
    return FirstLook(ended=True, outcome=tracker.carry_out(prepared))
