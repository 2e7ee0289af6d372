"""Which first word of the command line is a command of its own, what carries it out, and how its failures end.

Imports nothing before it knows what is wanted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

COMMANDS = {
    "sessions": "list, show, rename, fork, archive, delete and prune sessions",
    "import": "take over sessions of kimi-cli",
    "checkpoints": "list the checkpoints of a session",
    "worldlines": "list the lines that were left",
    "rewind": "go back to before a checkpoint",
    "jump": "go to a line that was left",
    "undo": "reverse the last operation",
    "redo": "do again what was undone",
    "dmail": "send a letter to the agent's past self",
    "replay": "play a session back",
}
"""Every command, and what it does."""

_INTERRUPTED = 130


def run(name: str, arguments: Sequence[str]) -> int:
    """Carry out one command; returns the exit code. What goes wrong is one line on standard error."""
    for stream in (sys.stdout, sys.stderr):
        # A title may hold what this terminal's encoding, or any, cannot say.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    try:
        code = _run(name, arguments)
        sys.stdout.flush()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read has seen enough. What is left must not fail again at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        from kimi_tui.commands.failures import told

        return told(error)
    return code


def _run(name: str, arguments: Sequence[str]) -> int:
    match name:
        case "sessions":
            from kimi_tui.commands import sessions

            return sessions.run(arguments)
        case "import":
            from kimi_tui.commands import importing

            return importing.run(arguments)
        case "checkpoints" | "worldlines":
            from kimi_tui.commands import checkpoints

            return checkpoints.run(name, arguments)
        case "replay":
            from kimi_tui.commands import replaying

            return replaying.run(arguments)
        case _:
            from kimi_tui.commands import travelling

            return travelling.run(name, arguments)
