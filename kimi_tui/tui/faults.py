"""Faults in layouts and paintings: each is logged once, and what could not be painted says so.

A view is never a reason to stop: a fault in one row or block concerns that one alone.
"""

from __future__ import annotations

import logging
import sys
import traceback

from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip

NOTHING = "Could not be shown; the log says why"
LOGGED_LIMIT = 100
"""Different faults that are logged in one run: a row may be drawn sixty times a second."""

_logged: set[tuple[str, str, str]] = set()


def log_fault(what: str) -> None:
    """Log the exception that is being handled with its traceback, unless this one has been logged before.

    Args:
        what: what was being done, in a few words.
    """
    error = sys.exception()
    place = ""
    if error is not None:
        for frame, line in traceback.walk_tb(error.__traceback__):
            place = f"{frame.f_code.co_filename}:{line}"
    key = (what, type(error).__name__, place)
    if key not in _logged and len(_logged) < LOGGED_LIMIT:
        _logged.add(key)
        from kimi_tui.app_paths import log_file
        from kimi_tui.logging_setup import begin_logging

        # The demo and a replay ask no model, and so far nothing may have been logged in them.
        begin_logging(log_file())
        logging.getLogger(__name__).error("A fault while %s", what, exc_info=error)


def blank_strips(what: str, crop: Region) -> list[Strip]:
    """Rows for a region that could not be painted, while the exception is being handled: the first says so."""
    log_fault(f"painting {what}")
    words = Strip([Segment(NOTHING)])
    return [
        (words if not y else Strip([])).adjust_cell_length(crop.width) for y in range(crop.height)
    ]
