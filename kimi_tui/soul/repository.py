"""What git says of the work folder when a session begins: branch, changed files and the last commits, for the prompt.

Whoever wrote the repository wrote its configuration too, and much of that names programs that git would run. Nothing of
it is run here: no hook, file monitor, signature check or transport; and where it has filters of its own, which git runs
to compare files, git is not asked which files have changed.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kimi_tui.foreign_text import clean
from kimi_tui.program_output import program_output
from kimi_tui.prompts import prompt
from kimi_tui.soul.project_notes import repository_root
from kimi_tui.tools.process import child_environment, find_program

_LIMIT_S = 1.5
_LIMIT_BYTES = 16_384
_MOST_FILES = 40
_N_COMMITS = 5
_LINE_CHARS = 120
_SAFE = (
    *("--no-pager", "--no-optional-locks"),
    *("-c", "core.fsmonitor="),
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "log.showSignature=false"),
    *("-c", "status.submoduleSummary=false"),
    *("-c", "safe.bareRepository=explicit"),
)
_STATUS = ("status", "--porcelain", "--branch", "--ignore-submodules=all", "--no-renames")
_LOG = ("log", f"-{_N_COMMITS}", "--no-color", "--no-show-signature", "--format=%h %s")
_FILTERS = ("config", "--show-scope", "--name-only", "--get-regexp", r"^filter\.")


def repository_facts(work_dir: Path, environ: Mapping[str, str]) -> str:
    """The part of the system prompt about the repository; empty where there is none. Runs git: call it in a thread."""
    root = repository_root(work_dir)
    program = find_program("git", environ, *([root] if root is not None else ()))
    if root is None or program is None:
        return ""
    deadline = time.monotonic() + _LIMIT_S
    # Where the configuration says that the files are elsewhere, nobody wants to know of those.
    git = (program, *_SAFE, f"--work-tree={root}")
    env = {
        **child_environment(environ),
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
    }
    status: list[str] = []
    filters = _lines((*git, *_FILTERS), root, env, deadline)
    # Those of the user's own configuration, such as LFS, are the user's own programs.
    if filters is not None and not any(
        line.startswith(("local", "worktree", "unknown")) for line in filters
    ):
        status = _lines((*git, *_STATUS), root, env, deadline) or []
    commits = _lines((*git, *_LOG), root, env, deadline) or []
    if len(status) > _MOST_FILES + 1:
        status = [*status[: _MOST_FILES + 1], "… and more"]
    facts = "\n\n".join("\n".join(lines) for lines in (status, commits) if lines)
    return f"\n{prompt('repository', FACTS=facts)}\n" if facts else ""


def _lines(
    argv: Sequence[str], folder: Path, env: Mapping[str, str], deadline: float
) -> list[str] | None:
    """What a program prints, the first of it where that is much; None where it fails or takes too long.

    A program that says that it found nothing (exit code 1) has not failed.
    """
    left = deadline - time.monotonic()
    try:
        data, code = program_output(
            argv, folder=folder, env=env, timeout_s=left, most=_LIMIT_BYTES - 1
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if code is not None and code > 1:
        return None
    lines = data[:_LIMIT_BYTES].decode("utf-8", "replace").splitlines()
    return [clean(line)[:_LINE_CHARS] for line in lines]
