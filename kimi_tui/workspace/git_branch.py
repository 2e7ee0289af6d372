"""The branch of a work folder, read from `.git/HEAD` without running git.

In a hostile repository even `git status` starts a program that its configuration names. The function reads files, so call it in a thread.
"""

from __future__ import annotations

from pathlib import Path

from kimi_tui.filesystem import open_regular

LIMIT_BYTES = 4096


def branch_of(folder: Path) -> str:
    """Return the branch's name, the first 7 digits of a detached commit, or an empty text."""
    for place in (folder, *folder.parents):
        git = place / ".git"
        try:
            if git.is_dir():
                return _head(git)
            if git.is_file():
                # In a worktree or submodule this is a file that names the folder with HEAD.
                line = _first_bytes(git)
                if line.startswith("gitdir:"):
                    return _head(place / line.removeprefix("gitdir:").strip())
                return ""
        except OSError:
            return ""
    return ""


def _head(git: Path) -> str:
    line = _first_bytes(git / "HEAD")
    if line.startswith("ref:"):
        return line.removeprefix("ref:").strip().removeprefix("refs/heads/")
    is_commit = len(line) in (40, 64) and all(c in "0123456789abcdef" for c in line)
    return line[:7] if is_commit else ""


def _first_bytes(path: Path) -> str:
    try:
        descriptor = open_regular(path, links=True)
    except OSError:
        return ""
    with open(descriptor, "rb", buffering=0) as file:
        return file.read(LIMIT_BYTES).decode("utf-8", "replace").strip()
