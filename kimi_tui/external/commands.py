"""The command of a terminal that an external agent asks for: the line for a shell, and what it runs without the agent's wrapping.

Agents wrap a command before they have it run: in a shell of their own, in a `cd` to the work folder, in variables that only
turn colours and pagers off. The user was asked about the command alone, and such wrapping makes it no other command.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

_SHELLS = frozenset(("sh", "bash", "zsh"))
_SHELL_FOLDERS = frozenset(("", "/bin", "/usr/bin", "/usr/local/bin"))
_ANY_VALUE = frozenset(
    ("NO_COLOR", "CLICOLOR", "FORCE_COLOR", "COLUMNS", "LINES", "CI", "PYTHONUNBUFFERED", "LANG")
)
_PAGERS = frozenset(("PAGER", "GIT_PAGER", "MANPAGER"))
_PLAIN = re.compile(r"[\w.+-]{0,40}")


def shell_line(command: str, args: Sequence[str], env: Sequence[tuple[str, str]]) -> str:
    """Return the line for a shell; the variables of `env` are set before it."""
    line = shlex.join([command, *args]) if args else command
    for name, value in reversed(env):
        line = f"export {name}={shlex.quote(value)}; {line}"
    return line


def bare_command(
    command: str, args: Sequence[str], env: Sequence[tuple[str, str]], work_dir: str
) -> str:
    """Return the command without the wrapping of the agent; empty if that may change what the command does.

    Args:
        command: the program, or a line for a shell if there are no arguments.
        args: its arguments.
        env: names and values of variables.
        work_dir: the work folder, in which it runs.
    """
    if not all(_is_harmless(name, value) for name, value in env):
        return ""
    if not args:
        line = command
    elif len(args) == 2 and args[0] in ("-c", "-lc") and _is_shell(command):
        line = args[1]
    else:
        return shlex.join([command, *args])
    folder = work_dir.rstrip("/") or "/"
    for quoted in (shlex.quote(folder), f"'{folder}'", f'"{folder}"'):
        line = line.removeprefix(f"cd {quoted} && ")
    return line


def _is_shell(path: str) -> bool:
    folder, name = os.path.split(path)
    return name in _SHELLS and folder in _SHELL_FOLDERS


def _is_harmless(name: str, value: str) -> bool:
    """Return whether a variable only sets how a command shows its output, or that it asks nobody."""
    if name == "SHELL":
        return _is_shell(value)
    if name in _PAGERS:
        return value in ("", "cat")
    is_known = name in _ANY_VALUE or name in ("TERM", "GIT_TERMINAL_PROMPT")
    return is_known and _PLAIN.fullmatch(value) is not None
