"""How the result of a command tells that the person changed it before it ran."""

from __future__ import annotations

_CHANGED = "\nThe person changed the command before it ran. What ran is:\n"


def with_changed_command(message: str, command: str) -> str:
    """A result's message that also says what ran."""
    return message + _CHANGED + command


def command_that_ran(asked_for: str, message: str) -> str:
    """The command of a call, or what the person put in its place, as the result's message tells."""
    return message.partition(_CHANGED)[2] or asked_for
