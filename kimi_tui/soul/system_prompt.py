"""The system prompt: it is written once, as the first record of a session, and adapted by `adapted_prompt` when it is sent.

It contains git's facts about the work folder: branch, changed files and the last commits. A repository's author also wrote
its configuration, which may name programs that git would run. None of them is run here: no hook, file monitor, signature
check or transport; and if the repository has filters of its own, which git runs to compare files, git is not asked which
files have changed.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import NamedTuple

from kimi_tui.app_paths import bare_reason
from kimi_tui.foreign_text import clean
from kimi_tui.helper_programs import run_helper
from kimi_tui.llm.tokens import estimate
from kimi_tui.prompts import prompt
from kimi_tui.soul.project_notes import notes_for, notes_in, quoted, repository_root
from kimi_tui.tools.credentials import find_keys, redact_keys
from kimi_tui.tools.process import child_environment, own_git_settings
from kimi_tui.tools.programs import find_program, trusted_path
from kimi_tui.tools.sandbox.policy import is_own_repository

_MAX_ENTRIES = 80
_OURS = "You are the agent of kimi-tui"
_HEADING = "\n# "
# The part after this heading names the folder and quotes the project's notes, so the program must not change anything in it.
_LAST_HEADING = "\n# This session\n"

_GIT_LIMIT_S = 1.5
_GIT_LIMIT_BYTES = 16_384
_MOST_CHANGED_FILES = 40
_N_COMMITS = 5
_GIT_LINE_CHARS = 120
_SAFE_GIT = (
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


def build_system_prompt(
    work_dir: Path,
    environ: Mapping[str, str],
    today: date,
    *,
    dmail: bool = True,
    no_keys: bool = False,
    notes: bool = True,
) -> str:
    """Return the system prompt for a session in this folder. It reads files and runs git, so call it in a thread.

    Args:
        work_dir: the agent's work folder.
        environ: the environment of the program.
        today: the date to name.
        dmail: whether the agent may send D-Mails.
        no_keys: whether texts that look like keys are removed from the project's notes, names of files and git's output.
        notes: whether the project's and the user's notes are quoted.
    """
    listing, repository = _listing(work_dir), repository_facts(work_dir, environ)
    if no_keys:
        listing = redact_keys(listing, find_keys(listing))
        repository = redact_keys(repository, find_keys(repository))
    return prompt(
        "system",
        WORK_DIR=str(work_dir),
        OS=_system_name(),
        SHELL=environ.get("SHELL", "/bin/sh"),
        DATE=today.isoformat(),
        LISTING=listing,
        REPOSITORY=repository,
        AGENTS_MD=quoted(notes_for(work_dir, environ, no_keys=no_keys) if notes else []),
        TOOLS=prompt("system_tools"),
        DMAIL=prompt("system_dmail") + "\n\n" if dmail else "",
    )


_OF_AGENT = "You are a sub-agent of kimi-tui"


def agent_prompt(
    role: str,
    work_dir: Path,
    environ: Mapping[str, str],
    today: date,
    *,
    no_keys: bool = False,
    notes: bool = True,
) -> str:
    """Return the system prompt of a sub-agent. It reads files, so call it in a thread.

    Args:
        role: what its kind says of its task.
        work_dir, environ, today, no_keys, notes: see `build_system_prompt`.
    """
    return prompt(
        "agent_system",
        ROLE=role.strip(),
        WORK_DIR=str(work_dir),
        OS=_system_name(),
        SHELL=environ.get("SHELL", "/bin/sh"),
        DATE=today.isoformat(),
        AGENTS_MD=quoted(notes_for(work_dir, environ, no_keys=no_keys) if notes else []),
    )


def adapted_prompt(system_prompt: str, *, tools: bool, dmail: bool) -> str:
    """Return the system prompt of a session as it is sent now.

    The stored prompt never changes. If the user has turned tools or D-Mails off (or on) since the session began, the sections
    about them are removed or inserted; everything else stays byte for byte. The prompt of an imported session, which this
    program did not write, is sent unchanged.

    Args:
        system_prompt: the stored system prompt.
        tools: whether the model may call tools.
        dmail: whether one of the tools sends D-Mails.
    """
    head, place, rest = system_prompt.partition(_LAST_HEADING)
    if not place or not head.startswith(_OURS):
        return system_prompt
    sections = head.split(_HEADING)
    names = [section.partition("\n")[0] for section in sections]
    wanted, other = (_TOOLS, _NO_TOOLS) if tools else (_NO_TOOLS, _TOOLS)
    if other.name in names:
        sections[names.index(other.name)] = wanted.text()
    if dmail and _DMAIL.name not in names:
        sections.append(_DMAIL.text())
    elif not dmail and _DMAIL.name in names:
        del sections[names.index(_DMAIL.name)]
    elif wanted.name in names:
        return system_prompt
    return _HEADING.join(sections) + place + rest


_FACTS = re.compile(
    r"- Work folder: [^\n]*\n- System: [^\n]*\n- Shell: [^\n]*\n- Date at the start of the session: [^\n]*\n"
)
_LISTED = re.compile(r"The work folder at the start:\n\n```\n(.*?)\n```(?:\n|$)", re.DOTALL)
_MOST_FACTS_TOKENS = 160
_MOST_LISTED_TOKENS = 140
_MOST_NOTES = 3


def lean_prompt(
    system_prompt: str, work_dir: Path, environ: Mapping[str, str], *, tools: bool
) -> str:
    """Return the short system prompt for a model with a small window.

    The facts about the session come from the stored prompt if this program wrote it, so that the text is the same whenever
    the session is opened. The notes of the project are named, not quoted: they may be longer than the window.

    Args:
        system_prompt: the stored system prompt.
        work_dir: the agent's work folder.
        environ: the environment of the program.
        tools: whether the model may call tools.
    """
    if system_prompt.startswith(_OF_AGENT):
        return system_prompt
    head, place, rest = system_prompt.partition(_LAST_HEADING)
    is_ours = bool(place) and head.startswith(_OURS)
    found = _FACTS.search(rest) if is_ours else None
    facts = found[0].strip() if found else _facts(work_dir, environ)
    if estimate(facts) > _MOST_FACTS_TOKENS:
        facts = f"- System: {_system_name()}"
    parts = [facts]
    listed = _LISTED.search(rest) if is_ours and tools else None
    if listed and (names := _first_names(listed[1].split("\n"))):
        parts.append(f"In the work folder at the start: {names}")
    paths = [one.path for one in notes_in(system_prompt)] if is_ours and tools else []
    named = ", ".join(f"`{path}`" for path in paths[-_MOST_NOTES:])
    if named and estimate(named) <= _MOST_LISTED_TOKENS:
        parts.append(prompt("lean/notes", PATHS=named))
    name = "lean/system" if tools else "lean/system_without_tools"
    return prompt(name, FACTS="\n\n".join(parts))


def _facts(work_dir: Path, environ: Mapping[str, str]) -> str:
    shell = environ.get("SHELL", "/bin/sh")
    return f"- Work folder: {work_dir}\n- System: {_system_name()}\n- Shell: {shell}"


def _first_names(names: Sequence[str]) -> str:
    """Return the first names of a listing in one line, as many as fit."""
    shown: list[str] = []
    room = _MOST_LISTED_TOKENS
    for name in names:
        room -= estimate(name) + 1
        if room < 0:
            return ", ".join([*shown, "…"])
        shown.append(name)
    return ", ".join(shown)


class _Section(NamedTuple):
    """A section of the system prompt that is not always sent: its heading, and the file with its text."""

    name: str
    file: str

    def text(self) -> str:
        """Return the section without the mark of its heading, with the line end before the next one."""
        return prompt(self.file).removeprefix("# ") + "\n"


_TOOLS = _Section("Tools", "system_tools")
_NO_TOOLS = _Section("No tools", "system_without_tools")
_DMAIL = _Section("Checkpoints and D-Mail", "system_dmail")


def _system_name() -> str:
    name = {"Darwin": "macOS"}.get(platform.system(), platform.system())
    return f"{name} ({platform.release()}, {platform.machine()})"


def _listing(work_dir: Path) -> str:
    try:
        with os.scandir(work_dir) as entries:
            names = sorted(
                entry.name + ("/" if entry.is_dir(follow_symlinks=False) else "")
                for entry in entries
            )
    except OSError as error:
        return f"(cannot be listed: {bare_reason(error)})"
    # A name may contain line ends, but each entry is one line here.
    shown = [name.encode("utf-8", "replace").decode().replace("\n", "?") for name in names]
    if len(shown) > _MAX_ENTRIES:
        left = len(shown) - _MAX_ENTRIES
        return "\n".join([*shown[:_MAX_ENTRIES], f"… and {left:,} more"])
    return "\n".join(shown) or "(empty)"


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """The engine's facts about the work folder.

    Attributes:
        n_files: the number of its files; None if it was not scanned.
        is_more: whether it has more files than are tracked.
        notes: the files with notes for agents that were sent to the model.
    """

    n_files: int | None = None
    is_more: bool = False
    notes: tuple[str, ...] = ()


class SafeGit(NamedTuple):
    """How git is run here: its program with options, the top of the repository, and the variables."""

    argv: tuple[str, ...]
    root: Path
    env: Mapping[str, str]


def safe_git(work_dir: Path, environ: Mapping[str, str]) -> SafeGit | None:
    """Return how git can be asked about the repository of a folder without running programs that the repository names; None
    if there is no git, no repository, or one of another folder.
    """
    root = repository_root(work_dir)
    program = find_program("git", environ, work_dir)
    if root is None or program is None or not is_own_repository(str(root)):
        return None
    env = {
        **child_environment(environ),
        **own_git_settings(root),
        "PATH": trusted_path(environ, work_dir),
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
    }
    # A configuration that puts the files elsewhere is ignored.
    return SafeGit((program, *_SAFE_GIT, f"--work-tree={root}"), root, env)


def has_own_filters(git: SafeGit, deadline: float) -> bool:
    """Return whether the repository may have filters of its own, which git runs to compare files.

    Filters of the user's own configuration, such as LFS, are the user's own programs.
    """
    filters = _git_lines((*git.argv, *_FILTERS), git.root, git.env, deadline)
    return filters is None or any(
        line.startswith(("local", "worktree", "unknown")) for line in filters
    )


def repository_facts(work_dir: Path, environ: Mapping[str, str]) -> str:
    """Return the part of the system prompt about the repository; empty if there is none, or if it is another folder's.

    It runs git, so call it in a thread.
    """
    found = safe_git(work_dir, environ)
    if found is None:
        return ""
    git, root, env = found
    deadline = time.monotonic() + _GIT_LIMIT_S
    status: list[str] = []
    if not has_own_filters(found, deadline):
        status = _git_lines((*git, *_STATUS), root, env, deadline) or []
    commits = _git_lines((*git, *_LOG), root, env, deadline) or []
    if len(status) > _MOST_CHANGED_FILES + 1:
        status = [*status[: _MOST_CHANGED_FILES + 1], "… and more"]
    facts = "\n\n".join("\n".join(lines) for lines in (status, commits) if lines)
    return f"\n{prompt('repository', FACTS=facts)}\n" if facts else ""


def _git_lines(
    argv: Sequence[str], folder: Path, env: Mapping[str, str], deadline: float
) -> list[str] | None:
    """Return the lines that a program prints, up to a limit; None if it fails or takes too long.

    The exit code 1, which means that nothing was found, does not count as a failure.
    """
    left = deadline - time.monotonic()
    try:
        data, code = run_helper(
            argv, folder=folder, env=env, timeout_s=left, most=_GIT_LIMIT_BYTES - 1
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if code is not None and code > 1:
        return None
    lines = data[:_GIT_LIMIT_BYTES].decode("utf-8", "replace").splitlines()
    return [clean(line)[:_GIT_LINE_CHARS] for line in lines]
