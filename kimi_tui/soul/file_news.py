"""What the person hears of the working files: what changed, what came back, and what could not be kept."""

from __future__ import annotations

import logging
from collections.abc import Collection

from kimi_tui.wire.events import FilesChanged, FilesRestored, Notice
from kimi_tui.wire.queue import Wire
from kimi_tui.workspace.restore import Restored

log = logging.getLogger(__name__)


class FileNews:
    """Tells the wire. Of two troubles in a row that are the same, only the first is told.

    Args:
        wire: hears of it.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._told = ""

    def changed(self, uid: str, paths: tuple[str, ...], lines: tuple[int, int]) -> None:
        """The agent changed files in the step of that checkpoint; `lines` are those added and removed."""
        self._wire.publish(FilesChanged(uid, paths, *lines))

    def restored(
        self,
        outcome: Restored,
        left: tuple[str, ...],
        uid: str,
        created: Collection[str] = (),
    ) -> None:
        """Files came back, and which did not: `left` are conflicts that were left alone, `created` were not there before."""
        alone = (*left, *sorted(outcome.failures))
        made = tuple(path for path in outcome.restored if path in created)
        self._wire.publish(FilesRestored(uid, outcome.restored, outcome.deleted, alone, made))
        if outcome.failures:
            self._wire.publish(_failures_notice(outcome))

    def left(self, paths: tuple[str, ...], uid: str) -> None:
        """Files were left alone which should have been brought back."""
        self._wire.publish(FilesRestored(uid, conflicts=paths))

    def finished(self, outcome: Restored) -> None:
        """A restore in which an earlier process was cut off has now been carried out."""
        self.restored(outcome, (), "")
        became = "the others are now" if outcome.failures else "they are now"
        self._wire.publish(
            Notice("info", f"Files were being brought back when the program ended; {became}.")
        )

    def ready(self) -> None:
        """The first look has ended, for which somebody may have waited."""
        self._wire.publish(
            Notice("info", "The first look at the files has ended: a rewind can bring them back.")
        )

    def refused(self, why: str) -> None:
        """No files are kept here at all."""
        self._tell_once(Notice("info", why, "A rewind leaves them alone."))

    def full(self, why: str) -> None:
        """Not everything could be kept at the last look; empty where it could."""
        if why:
            self._tell_once(
                Notice(
                    "warning",
                    f"Not all files can be brought back later. {why}",
                    "A .gitignore that leaves out what is generated makes room.",
                )
            )

    def trouble(self, error: OSError) -> None:
        """The disk or the work folder refused a look."""
        log.warning("the files could not be looked at", exc_info=error)
        self._tell_once(
            Notice(
                "warning",
                f"The files cannot be kept for a rewind: {error.strerror or error}.",
                "The conversation is not affected.",
            )
        )

    def _tell_once(self, notice: Notice) -> None:
        if notice.text != self._told:
            self._told = notice.text
            self._wire.publish(notice)


def _failures_notice(outcome: Restored) -> Notice:
    """What could not be brought back, and why."""
    names = [f"{path} ({why})" for path, why in sorted(outcome.failures.items())]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return Notice("warning", f"Not brought back: {shown}.", "These files are as they were.")
