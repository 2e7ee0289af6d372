"""The table of subcommands (`kimi-tui sessions`, `doctor`, ...); runs one and turns its errors into one line and an exit code.

It imports nothing before the command is known, since `cli` needs the table before the app starts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

COMMANDS = {
    "sessions": "list, show, export, rename, fork, archive, delete, restore and prune sessions",
    "import": "import sessions of kimi-cli, Claude Code, Codex, opencode, pi, Gemini CLI or kimi-code",
    "import-settings": "list MCP servers, hooks, skills and other settings of other agents, and import them",
    "checkpoints": "list the checkpoints of a session",
    "worldlines": "list the world lines (branches) of a session",
    "export": "export a session as an HTML page that plays it, as Markdown, JSON or a recording",
    "blame": "show which checkpoint wrote each line of a file",
    "bisect": "find the step after which a command fails",
    "run-at": "run a command on the files as they were at a checkpoint",
    "worktree": "write the files as they were at a checkpoint into a folder",
    "futures": "continue a session several times from one checkpoint, side by side",
    "diff": "print what changed between two checkpoints as a patch",
    "to-git": "make git commits on a new branch from the steps of a session",
    "rewind": "rewind a session to a checkpoint",
    "switch": "switch a session to a world line (a branch)",
    "jump": "alias of switch",
    "undo": "undo the last rewind, switch, D-Mail, compaction or clear",
    "redo": "redo the last undo",
    "dmail": "rewind a session with a D-Mail: a note to the agent's past self",
    "doctor": "check this machine and the configuration",
    "replay": "replay a session",
    "mcp": "set up MCP servers, whose tools the agent uses",
    "acp": "serve an editor such as Zed over the Agent Client Protocol",
    "serve": "serve the app to a browser on this machine",
    "approvals": "tell whether a shell command needs your approval, and why",
}
"""Every command with its description. `cli` itself carries out `replay`, which opens a screen."""

_INTERRUPTED = 130
_NOT_RUN = {"run-at": 125}
"""The exit codes of commands whose other codes are those of a program that they run."""


def run(name: str, arguments: Sequence[str]) -> int:
    """Carry out one command; return the exit code. Errors are one line on standard error."""
    for stream in (sys.stdout, sys.stderr):
        # A title may contain characters that the terminal's encoding cannot represent.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    from kimi_tui.app_paths import no_home_notice

    if words := no_home_notice():
        print(f"kimi-tui: {words}", file=sys.stderr)
    try:
        try:
            code = _run(name, arguments)
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0
            code = code and _NOT_RUN.get(name, code)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader has closed the pipe; flushing the rest must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        return _NOT_RUN.get(name, _failed(error))
    return code


def _run(name: str, arguments: Sequence[str]) -> int:
    match name:
        case "sessions":
            from kimi_tui.commands import sessions

            return sessions.run(arguments)
        case "import":
            from kimi_tui.commands import import_sessions

            return import_sessions.run(arguments)
        case "import-settings":
            from kimi_tui.commands import import_settings

            return import_settings.run(arguments)
        case "mcp":
            from kimi_tui.commands import mcp

            return mcp.run(arguments)
        case "acp":
            from kimi_tui.commands import acp

            return acp.run(arguments)
        case "serve":
            from kimi_tui.commands import serve

            return serve.run(arguments)
        case "approvals":
            from kimi_tui.commands import approvals

            return approvals.run(arguments)
        case "blame":
            from kimi_tui.commands import blame

            return blame.run(arguments)
        case "bisect" | "run-at" | "worktree":
            from kimi_tui.commands import bisect

            return bisect.run(name, arguments)
        case "futures":
            from kimi_tui.commands import futures

            return futures.run(arguments)
        case "diff":
            from kimi_tui.commands import diff

            return diff.run(arguments)
        case "to-git":
            from kimi_tui.commands import to_git

            return to_git.run(arguments)
        case "export":
            from kimi_tui.commands import export

            return export.run(arguments)
        case "doctor":
            from kimi_tui.commands import doctor

            return doctor.run(arguments)
        case "checkpoints" | "worldlines":
            from kimi_tui.commands import sessions

            return sessions.list_in_session(name, arguments)
        case _:
            from kimi_tui.commands import time_travel

            return time_travel.run(name, arguments)


def _failed(error: Exception) -> int:
    """Print the error; return the exit code."""
    from kimi_tui.app_paths import reason_of
    from kimi_tui.commands.console import complain
    from kimi_tui.own_process import lack_of_memory
    from kimi_tui.program import FAILED, LOCKED, USAGE
    from kimi_tui.session.errors import (
        SessionError,
        SessionLocked,
        SessionNotFound,
        StorageTrouble,
        UnknownCheckpoint,
        UnknownWorldLine,
    )
    from kimi_tui.soul.errors import SoulBusy, SoulError

    match error:
        case SessionLocked():
            complain(str(error))
            return LOCKED
        case SessionNotFound() | UnknownCheckpoint() | UnknownWorldLine():
            complain(str(error))
            return USAGE
        case StorageTrouble() | SoulError():
            complain(f"{error.message} {error.advice}".strip())
            return FAILED
        case SessionError() | SoulBusy():
            complain(str(error))
            return FAILED
        case FileNotFoundError() if _is_folder_gone():
            from kimi_tui.launch import FOLDER_GONE

            complain(f"{FOLDER_GONE} Change to another folder with cd and run the command again.")
            return USAGE
        case OSError():
            complain(f"The command failed: {reason_of(error)}.")
            return FAILED
        case _ if words := lack_of_memory(error):
            complain(words)
            return FAILED
        case _:
            return _unexpected(error)


def _is_folder_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _unexpected(error: Exception) -> int:
    from kimi_tui.app_paths import log_file, short
    from kimi_tui.commands.console import complain
    from kimi_tui.logging_setup import log_crash
    from kimi_tui.program import FAILED

    path = log_file()
    log_crash(path, error)
    complain(f"an internal error occurred ({type(error).__name__}). Details: {short(path)}")
    return FAILED
