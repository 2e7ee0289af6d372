"""The errors of the session package, one small hierarchy; every message is written for the user.

Content never raises: unreadable records are skipped and reported. Only the disk, a lock or an unknown name raise.
"""

from __future__ import annotations

import errno

from kimi_tui.app_paths import reason_of
from kimi_tui.filesystem import NotARegularFile

_ADVICE = {
    errno.ENOSPC: "Free some disk space; kimi-tui then saves the rest of the session.",
    errno.EDQUOT: "Your disk quota is used up. Free some space; kimi-tui then saves the rest of the session.",
    errno.EROFS: "The disk is read-only. Make it writable; kimi-tui then saves the rest of the session.",
    errno.EACCES: "Make that folder writable; kimi-tui then saves the rest of the session.",
    errno.EPERM: "Make that folder writable; kimi-tui then saves the rest of the session.",
    errno.ENOENT: "The session's storage folder was deleted; kimi-tui creates it again when possible.",
    errno.EIO: "The disk reports errors. Copy your important files to another disk.",
    errno.EFBIG: "The disk does not allow files of this size. Set KIMI_TUI_HOME to a folder on another disk.",
}
_ODD_FILE = "Something that is not a regular file has this name. Move it away; kimi-tui then creates the file again."


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
        advice = _ADVICE.get(
            error.errno or 0,
            "kimi-tui saves the rest of the session as soon as the disk accepts it.",
        )
        if isinstance(error, NotARegularFile):
            advice = _ODD_FILE
        return cls(f"Could not {doing}: {reason_of(error)}.", number=error.errno, advice=advice)


class SessionLocked(SessionError):
    """Another process has this session open.

    Args:
        holder: the process that has it open, as far as is known.
    """

    def __init__(self, holder: str) -> None:
        super().__init__(f"This session is open in {holder}. Fork it to continue in a copy.")


class SessionNotFound(SessionError, LookupError):
    """No session has that name."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else "There is no such session."


class _Unknown(SessionError, KeyError):
    def __str__(self) -> str:
        # A KeyError would show its text in quotes.
        return str(self.args[0]) if self.args else "There is no such checkpoint or world line."


class UnknownCheckpoint(_Unknown):
    """No checkpoint on that line has this id."""


class UnknownWorldLine(_Unknown):
    """No world line has that number."""


class AlreadyThere(SessionError):
    """The live line is the requested line already."""


class NothingToUndo(SessionError):
    """There is no operation left to undo or redo, or the line it needs is gone; the text says which."""
