"""Where the rules stand that say what is left out: `.gitignore` files of the work folder, of the repository around it, and the
repository's own exclude file. Git itself is never asked: in a hostile repository even that runs programs.
"""

from __future__ import annotations

import os
from pathlib import Path

from kimi_tui.workspace.ignore import IgnoreFile, IgnoreStack

RULES_NAME = ".gitignore"
_LIMIT_BYTES = 1 << 20
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_rules(name: str, folder: int | None = None) -> IgnoreFile | None:
    """The rules in a file (of an open folder), or None where there are none to be read."""
    try:
        handle = os.open(name, _FLAGS, dir_fd=folder)
    except OSError:
        return None
    try:
        return IgnoreFile(os.read(handle, _LIMIT_BYTES).decode("utf-8", "replace"))
    except OSError:
        return None
    finally:
        os.close(handle)


def outer_rules(root: str) -> IgnoreStack:
    """The rules from outside the work folder: those of the repository that it is a part of.

    Where they leave out the work folder itself, it is not meant to be a part, and they do not count.
    """
    work = Path(root)
    top = next((folder for folder in (work, *work.parents) if (folder / ".git").exists()), None)
    if top is None:
        return IgnoreStack()
    inner = work.relative_to(top).parts
    stack = IgnoreStack().around(
        "".join(f"{part}/" for part in inner), read_rules(str(top / ".git" / "info" / "exclude"))
    )
    for depth in range(len(inner)):
        below = "".join(f"{part}/" for part in inner[depth:])
        rules = read_rules(str(top.joinpath(*inner[:depth], RULES_NAME)))
        stack = stack.around(below, rules)
        if stack.ignores_above(len(inner) - depth - 1):
            return IgnoreStack()
    return stack
