"""Skill: gives the model the text of a skill, of whose name and purpose its description tells.

A skill is a text of the user, or one of the work folder that the user was shown and allowed; where they come from is known to
`soul.skills`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from kimi_tui.llm.tokens import text_tokens
from kimi_tui.prompts import prompt
from kimi_tui.tool_cards import Card
from kimi_tui.tools.base import Changes, ToolEnv, TypedTool
from kimi_tui.tools.outcome import ToolOutcome, ToolProblem
from kimi_tui.tools.text import counted, nearest_words, without_our_tags

LISTED_TOKENS = 1_500
"""The largest number of tokens of the list of skills, in every request."""
_DESCRIBED_CHARS = 500
_MORE = "More skills, by name: "
_ROW_TOKENS = text_tokens(_MORE) + 8
"""Tokens of the row of names without these, with the number of those that do not fit."""


@dataclass(frozen=True, slots=True)
class SkillText:
    """A skill as the model is told of it.

    Attributes:
        name: its name.
        description: what it is for, one line.
        text: returns its text, with the arguments filled in.
    """

    name: str
    description: str
    text: Callable[[str], str]


class SkillParams(BaseModel):
    """Which skill."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1)
    arguments: str = ""


class Skill(TypedTool[SkillParams]):
    """Loads skills.

    Args:
        skills: those that the model may use, the most important first.
        used: called in a thread with the name of one that was used.
    """

    name = "Skill"
    changes: Changes = "nothing"
    params = SkillParams
    card = Card("Skill", ("name",))

    def __init__(self, skills: Sequence[SkillText], used: Callable[[str], None]) -> None:
        self._skills = {one.name: one for one in skills}
        self._used = used
        self._listed = without_our_tags(listed(skills))

    @property
    def description(self) -> str:
        """The description for the model, with the list of skills."""
        return prompt("tools/Skill", SKILLS=self._listed)

    async def run(self, params: SkillParams, env: ToolEnv) -> ToolOutcome:
        """Return the text of a skill."""
        name = params.name.strip().removeprefix("/").removeprefix("skill:")
        skill = self._skills.get(name)
        if skill is None:
            near = nearest_words(name, self._skills)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise ToolProblem(f"There is no skill {name[:80]!r}.{hint}", brief="no such skill")
        text = skill.text(params.arguments)
        await asyncio.to_thread(self._used, name)
        return ToolOutcome(
            text, f"The skill {name}: follow it.", brief=counted(text.count("\n") + 1, "line")
        )


def listed(skills: Sequence[SkillText]) -> str:
    """Return the list of skills for the model within `LISTED_TOKENS`: the first with what they are for, the rest by name."""
    rows: list[str] = []
    left = LISTED_TOKENS
    names = [one.name for one in skills]
    # Each name that is not described yet needs its place.
    reserved = sum(text_tokens(name) + 1 for name in names) + _ROW_TOKENS
    for place, one in enumerate(skills):
        said = one.description
        if len(said) > _DESCRIBED_CHARS:
            said = f"{said[:_DESCRIBED_CHARS].rstrip()}…"
        row = f"- {one.name}: {said}"
        size = text_tokens(row) + 1
        reserved -= text_tokens(one.name) + 1
        if size + min(reserved, LISTED_TOKENS // 3) > left:
            rows += _by_name(names[place:], left)
            break
        left -= size
        rows.append(row)
    return "\n".join(rows)


def _by_name(names: Sequence[str], left: int) -> list[str]:
    """Return a row with as many names as fit, and the number of the others."""
    left -= _ROW_TOKENS
    shown: list[str] = []
    for name in names:
        left -= text_tokens(name) + 1
        if left < 0:
            break
        shown.append(name)
    others = len(names) - len(shown)
    row = f"{_MORE}{', '.join(shown)}" if shown else ""
    tail = f"{others} more." if others else ""
    return list(filter(None, [row, tail]))
