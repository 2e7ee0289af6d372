"""The skills of a session: found, ordered by their use, and told to the model by the tool `Skill`.

Skills of the user are told as they are. Those of the work folder are told only after the user was shown their text and said
yes, by their command or by `/skills allow`; the yes is for exactly that text (`config.custom_commands.were_shown`).
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from kimi_tui import lenient_json
from kimi_tui.app_paths import config_dir, data_dir, home_dir, make_private
from kimi_tui.config.custom_commands import (
    CustomCommand,
    custom_commands,
    note_shown,
    were_shown,
)
from kimi_tui.filesystem import Storage, read_regular
from kimi_tui.soul.project_notes import repository_root
from kimi_tui.tools.skill import Skill, SkillText

USES_NAME = "skill_uses.json"
_MOST_USES = 1_000
_MOST_BYTES = 1 << 18

SkillState = Literal["told", "not allowed", "not described", "for you"]
"""Whether the model is told of a skill; else why not: the user has not allowed it, it says not what it is for, or it is a
command for the user alone."""


class SessionSkill(NamedTuple):
    """A skill, and whether the model is told of it."""

    command: CustomCommand
    state: SkillState


def folders_above(work_dir: Path) -> list[Path]:
    """Return the folders above a folder up to the root of its repository, the nearest first; none outside a repository."""
    root = repository_root(work_dir)
    if root is None or root == work_dir:
        return []
    return list(work_dir.parents[: len(work_dir.relative_to(root).parts)])


class SessionSkills:
    """The skills of a session's folder. Everything here reads or writes files, so call it in a thread.

    Args:
        work_dir: the session's folder.

    Attributes:
        waiting: the number of skills that wait for a yes of the user, when they were looked for last.
    """

    def __init__(self, work_dir: Path) -> None:
        self._work_dir = work_dir
        self.waiting = 0

    def found(self) -> list[SessionSkill]:
        """Return the skills, those that were used most first, else in the order of their places."""
        shown = set(were_shown(data_dir()))
        commands = custom_commands(
            self._work_dir, config_dir(), home_dir(), folders_above(self._work_dir)
        )
        uses = _uses()
        skills = [one for one in commands if one.is_skill]
        skills.sort(key=lambda one: -uses[str(one.path)])
        found = [SessionSkill(one, _state(one, shown)) for one in skills]
        self.waiting = sum(one.state == "not allowed" for one in found)
        return found

    @property
    def waiting_words(self) -> str:
        """The sentence about the skills that wait for a yes; empty for none."""
        if not self.waiting:
            return ""
        skills, them = (
            ("a skill", "it") if self.waiting == 1 else (f"{self.waiting} skills", "them")
        )
        return f"This folder has {skills} that the agent cannot use until you allow {them}. To review and allow {them}, run /skills allow in the app."

    def tool(self) -> Skill | None:
        """Return the tool with the skills that the model may use; None if there are none."""
        told = [one.command for one in self.found() if one.state == "told"]
        if not told:
            return None
        paths = {one.name: one.path for one in told}
        texts = [SkillText(one.name, one.description, one.with_arguments) for one in told]
        return Skill(texts, lambda name: _note_use(paths[name]))

    def allow(self, skills: Sequence[CustomCommand]) -> None:
        """Note that the user was shown these skills and allowed them."""
        for one in skills:
            note_shown(data_dir(), one.digest)


def _state(one: CustomCommand, shown: set[str]) -> SkillState:
    if not one.for_agent:
        return "for you" if one.description else "not described"
    return "told" if one.origin == "user" or one.digest in shown else "not allowed"


def _uses() -> Counter[str]:
    """Return how often each skill was used, by its path."""
    try:
        found = lenient_json.mapping(json.loads(read_regular(data_dir() / USES_NAME, _MOST_BYTES)))
    except (OSError, ValueError, RecursionError):
        return Counter()
    counts = {path: lenient_json.count(value) for path, value in found.items()}
    return Counter({path: count for path, count in counts.items() if count})


def _note_use(path: Path) -> None:
    """Count one more use of a skill. If the disk refuses, it is not counted."""
    uses = _uses()
    uses[str(path)] += 1
    with contextlib.suppress(OSError):
        make_private(data_dir())
        data = json.dumps(dict(uses.most_common(_MOST_USES)))
        Storage().replace_file(data_dir() / USES_NAME, data.encode())
