"""How the user started this program, for sentences that name a command of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from shlex import join, quote

_NAME = "kimi-tui"


def command_words(
    *arguments: str, started: str | None = None, environ: Mapping[str, str] | None = None
) -> str:
    """Return a command of this program as the user can type it into a shell.

    Args:
        arguments: the arguments.
        started: the path by which the program was started; None for that of this process.
        environ: the environment; None for that of this process.
    """
    started = sys.argv[0] if started is None else started
    environ = os.environ if environ is None else environ
    path, words = Path(started), join(arguments)
    if path.name == "__main__.py":
        return f"{quote(sys.executable)} -m kimi_tui {words}".rstrip()
    if path.name != _NAME or _is_on_path(path, environ):
        return f"{_NAME} {words}".rstrip()
    # `make run` of a checkout starts what is in its environment.
    checkouts = path.absolute().parents[2:3]
    is_made = environ.get("MAKELEVEL", "0") != "0"
    if is_made and any((checkout / "Makefile").is_file() for checkout in checkouts):
        return f'make run ARGS="{words}"' if words else "make run"
    return f"{quote(started)} {words}".rstrip()


def _is_on_path(path: Path, environ: Mapping[str, str]) -> bool:
    """Return whether a shell finds the file by its name alone."""
    candidates = (Path(folder) / _NAME for folder in os.get_exec_path(environ))
    first = next(filter(Path.is_file, candidates), None)
    with suppress(OSError):
        return first is not None and first.samefile(path)
    return False
