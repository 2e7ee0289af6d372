"""The system prompt: written once, when a session begins, as its first record; `adapted` when it is sent."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import NamedTuple

from kimi_tui.prompts import prompt
from kimi_tui.soul.project_notes import notes_for, quoted
from kimi_tui.soul.repository import repository_facts

_MAX_ENTRIES = 80
_OURS = "You are the agent of kimi-tui"
_HEADING = "\n# "
# What follows names the folder and holds the project's notes: nothing in it is ours to change.
_LAST_HEADING = "\n# This session\n"


def build_system_prompt(
    work_dir: Path,
    environ: Mapping[str, str],
    today: date,
    *,
    dmail: bool = True,
    no_keys: bool = False,
) -> str:
    """The system prompt for a session in this folder. Reads a little of the disk and asks git: call it in a thread.

    Args:
        work_dir: where the agent works.
        environ: the environment of the program.
        today: the date to name.
        dmail: whether the agent may send D-Mails.
        no_keys: what looks like a key stays out of the project's notes.
    """
    return prompt(
        "system",
        WORK_DIR=str(work_dir),
        OS=_system_name(),
        SHELL=environ.get("SHELL", "/bin/sh"),
        DATE=today.isoformat(),
        LISTING=_listing(work_dir),
        REPOSITORY=repository_facts(work_dir, environ),
        AGENTS_MD=quoted(notes_for(work_dir, environ, no_keys=no_keys)),
        TOOLS=prompt("system_tools"),
        DMAIL=prompt("system_dmail") + "\n\n" if dmail else "",
    )


def adapted(system_prompt: str, *, tools: bool, dmail: bool) -> str:
    """The system prompt of a session as it is sent now.

    What is stored never changes. Where the user has turned tools or D-Mails off (or on) since the session began, the
    sections about them are left out or put in; everything else stays byte for byte, and all of it where nothing has to
    change. A prompt that is not ours, of an imported session, is sent as it is.

    Args:
        system_prompt: as it is stored.
        tools: whether the model may call tools.
        dmail: whether one of them sends D-Mails.
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


class _Section(NamedTuple):
    """A section of the system prompt that is not always sent: its heading, and the file that holds it."""

    name: str
    file: str

    def text(self) -> str:
        """The section without the sign of its heading, with the line end before the next one."""
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
        return f"(cannot be listed: {error.strerror or error})"
    # A name may hold line ends: one entry is one line here.
    shown = [name.encode("utf-8", "replace").decode().replace("\n", "?") for name in names]
    if len(shown) > _MAX_ENTRIES:
        left = len(shown) - _MAX_ENTRIES
        return "\n".join([*shown[:_MAX_ENTRIES], f"… and {left:,} more"])
    return "\n".join(shown) or "(empty)"


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """What the engine knows of the work folder.

    Attributes:
        n_files: how many files it has; None where it was not scanned.
        is_more: whether it has more files than are followed.
        notes: the files of notes for agents that the model was sent.
    """

    n_files: int | None = None
    is_more: bool = False
    notes: tuple[str, ...] = ()
