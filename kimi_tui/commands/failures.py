"""What a command that failed says, and its exit code: one line, whatever it was."""

from __future__ import annotations

from kimi_tui.commands.arguments import FAILED, HELD, USAGE
from kimi_tui.commands.output import complain
from kimi_tui.logging_setup import log_crash
from kimi_tui.places import log_file, short
from kimi_tui.session.errors import (
    SessionError,
    SessionHeld,
    SessionNotFound,
    StorageTrouble,
    UnknownCheckpoint,
    UnknownWorldLine,
)
from kimi_tui.soul.errors import SoulError
from kimi_tui.soul.protocol import SoulBusy


def told(error: Exception) -> int:
    """Say what went wrong; returns the exit code."""
    match error:
        case SessionHeld():
            complain(str(error))
            return HELD
        case SessionNotFound() | UnknownCheckpoint() | UnknownWorldLine():
            complain(str(error))
            return USAGE
        case StorageTrouble():
            complain(f"{error.message} {error.advice}".strip())
            return FAILED
        case SoulError():
            complain(f"{error.message} {error.advice}".strip())
            return FAILED
        case SessionError() | SoulBusy():
            complain(str(error))
            return FAILED
        case OSError():
            reason = error.strerror or type(error).__name__
            about = f" ({error.filename})" if isinstance(error.filename, str) else ""
            complain(f"That did not work: {reason}{about}.")
            return FAILED
        case _:
            return _unexpected(error)


def _unexpected(error: Exception) -> int:
    path = log_file()
    log_crash(path, error)
    complain(
        f"Something went wrong in the program: {type(error).__name__}. {short(path)} says more."
    )
    return FAILED
