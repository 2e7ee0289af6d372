"""The errors of the session package, one small hierarchy; every message is written for the user.

Content never raises: unreadable records are skipped and reported. Only the disk, a lock or an unknown name raise.
"""

from __future__ import annotations

import errno
from pathlib import Path

from kimi_tui.app_paths import short
from kimi_tui.filesystem import NotARegularFile

_ADVICE = {
    errno.ENOSPC: "Free some space; what is missing is written as soon as there is room.",
    errno.EDQUOT: "Your quota is used up; what is missing is written as soon as there is room.",
    errno.EROFS: "The disk is read-only; what is missing is written once it can be written again.",
    errno.EACCES: "Check who may write there; what is missing is written once it can be.",
    errno.EPERM: "Check who may write there; what is missing is written once it can be.",
    errno.ENOENT: "The session's folder is gone; it is made anew as soon as that can be done.",
    errno.EIO: "The disk reports errors. Copy what matters to you elsewhere.",
    errno.EFBIG: "Move it away, or cut what does not belong there.",
}
_ODD_FILE = "Put the file itself in its place, or move away what stands there."


class SessionError(Exception):
    """Base of all errors of this package."""


class StorageTrouble(SessionError, OSError):
    """Data could not be written to the disk (or read from it). The conversation in memory is complete and usable.

    `errno` is the system's error number; `advice` says in one sentence what to do.
    """

    def __init__(self, message: str, *, number: int | None = None, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.errno = number
        self.advice = advice

    def __str__(self) -> str:
        return self.message

    @classmethod
    def of(cls, doing: str, error: OSError) -> StorageTrouble:
        """Return the trouble that `error` causes while `doing` (a phrase that ends a sentence beginning with "Could not").

        An error that is a `StorageTrouble` already is returned unchanged.
        """
        if isinstance(error, StorageTrouble):
            return error
        reason = error.strerror or str(error) or type(error).__name__
        if isinstance(error.filename, str | Path):
            reason = f"{reason} ({short(Path(error.filename))})"
        advice = _ADVICE.get(error.errno or 0, "What is missing is written as soon as that works.")
        if isinstance(error, NotARegularFile):
            advice = _ODD_FILE
        return cls(f"Could not {doing}: {reason}.", number=error.errno, advice=advice)


class SessionLocked(SessionError):
    """Another process has this session open.

    Args:
        holder: the process that has it open, as far as is known.
    """

    def __init__(self, holder: str) -> None:
        super().__init__(f"This session is open in {holder}. Fork it to go on with a copy.")


class SessionNotFound(SessionError, LookupError):
    """No session has that name."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else "No such session."


class _Unknown(SessionError, KeyError):
    def __str__(self) -> str:
        # A KeyError would show its text in quotes.
        return str(self.args[0]) if self.args else "Unknown."


class UnknownCheckpoint(_Unknown):
    """No checkpoint on that line has this id."""


class UnknownWorldLine(_Unknown):
    """No world line has that number."""


class AlreadyThere(SessionError):
    """The live line is the requested line already."""


class NothingToUndo(SessionError):
    """There is no operation left to undo or redo, or the line it needs is gone; the text says which."""
