"""Agent: has a sub-agent do a part of the work, with a context of its own, and returns its last answer.

A kind says what a sub-agent is for, and which tools and which model it has. Those of this program are `SHIPPED`; the user's own
and those of a repository are found by `soul.agent_kinds`. The engine runs sub-agents (`soul.subagents`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from kimi_tui.foreign_text import one_line
from kimi_tui.llm.tokens import text_tokens
from kimi_tui.prompts import prompt
from kimi_tui.tool_cards import Card
from kimi_tui.tools.arguments import parsed
from kimi_tui.tools.base import Changes, ToolEnv, TypedTool
from kimi_tui.tools.outcome import ToolOutcome, ToolProblem
from kimi_tui.tools.text import nearest_words, without_our_tags

AGENT_NAMES = frozenset({"Agent", "Task"})
"""The names by which a model may call the tool."""
READING_TOOLS = ("ReadFile", "Glob", "Grep", "FetchURL", "SearchWeb", "SetTodoList")
"""The tools that change nothing, which a kind may have without being one that writes."""
NEVER = frozenset({"Agent", "AskUserQuestion", "ExitPlanMode", "SendDMail"})
"""The tools that no sub-agent has: it starts no others, and leaves questions, plans and time travel to the session's agent."""
LISTED_TOKENS = 1_500
"""The largest number of tokens of the list of kinds, in every request."""
_DESCRIBED_CHARS = 300


@dataclass(frozen=True, slots=True)
class AgentKind:
    """A kind of sub-agent.

    Attributes:
        name: its name: lower-case letters, digits and hyphens.
        description: what it is for, one line.
        text: what the system prompt says of its task.
        tools: the names of its tools; None for all of the session's that a sub-agent may have.
        model: the model that it wants, by its name in the configuration; empty for the session's.
        effort: how much it thinks; empty for the setting of the session.
        steps: the most steps of one; 0 for the setting of the session.
        origin: who defines it.
        path: its file; None if the program ships it.
        state: whether the model may use it; else the user has not allowed it, or its file is no use.
        why: a sentence about what is wrong with it, or was left out; empty for nothing.
        digest: a digest of its file's contents.
    """

    name: str
    description: str
    text: str = ""
    tools: tuple[str, ...] | None = None
    model: str = ""
    effort: str = ""
    steps: int = 0
    origin: Literal["shipped", "user", "folder"] = "shipped"
    path: Path | None = None
    state: Literal["usable", "not allowed", "broken"] = "usable"
    why: str = ""
    digest: str = ""

    @property
    def reads_only(self) -> bool:
        """Whether none of its tools changes anything."""
        return self.tools is not None and all(name in READING_TOOLS for name in self.tools)


SHIPPED = (
    AgentKind(
        "explore",
        "finds and reads, changes nothing: where something is, how it works",
        tools=READING_TOOLS,
    ),
    AgentKind("general", "any task, with your tools"),
    AgentKind(
        "review",
        "reads code or changes and reports defects, changes nothing",
        tools=READING_TOOLS,
    ),
)
"""The kinds of this program; their texts are in `prompts/agents`."""
DEFAULT_KIND = "general"


@dataclass(frozen=True, slots=True)
class AgentTask:
    """What a sub-agent is asked to do.

    Attributes:
        title: the task in a few words.
        text: the task.
        kind: the kind of sub-agent.
    """

    title: str
    text: str
    kind: AgentKind


class AgentParams(BaseModel):
    """The task. Other agents' tools of this name call the kind `subagent_type`."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    description: str = Field(description="The task in 3 to 6 words.", min_length=1)
    prompt: str = Field(description="The whole task.", min_length=1)
    kind: str = Field(
        default=DEFAULT_KIND,
        validation_alias=AliasChoices("kind", "subagent_type", "agent", "agent_type"),
    )


class Agent(TypedTool[AgentParams]):
    """Starts sub-agents.

    Args:
        kinds: the kinds that the model may use.
    """

    name = "Agent"
    changes: Changes = "order"
    params = AgentParams
    card = Card("Agent", ("description",))
    other_names = tuple(AGENT_NAMES - {"Agent"})
    is_timed = False

    def __init__(self, kinds: Sequence[AgentKind] = SHIPPED) -> None:
        self.kinds: Mapping[str, AgentKind] = {one.name: one for one in kinds}
        self._listed = without_our_tags(_listed(kinds))

    @property
    def description(self) -> str:
        """The description for the model, with the list of kinds."""
        return prompt("tools/Agent", KINDS=self._listed)

    def changes_of(self, arguments: str) -> Changes:
        """Return `nothing` for a kind that only reads: such calls run at once."""
        try:
            params = self.parse(parsed(arguments))
        except ToolProblem:
            return "nothing"
        kind = self.kinds.get(params.kind.strip())
        return "nothing" if kind is None or kind.reads_only else "order"

    async def run(self, params: AgentParams, env: ToolEnv) -> ToolOutcome:
        """Run a sub-agent to its end."""
        name = params.kind.strip()
        kind = self.kinds.get(name)
        if kind is None:
            near = nearest_words(name, self.kinds)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise ToolProblem(
                f"There is no kind {name[:80]!r}.{hint} The kinds are {', '.join(self.kinds)}.",
                brief="no such kind",
            )
        if env.run_agent is None:
            raise ToolProblem("No sub-agents can be started here.", brief="not here")
        title = one_line(params.description)[:200] or kind.name
        return await env.run_agent(AgentTask(title, params.prompt, kind), env.key)


def _listed(kinds: Sequence[AgentKind]) -> str:
    """Return the list of kinds for the model within `LISTED_TOKENS`; what does not fit is named without its purpose, or not."""
    rows: list[str] = []
    left = LISTED_TOKENS
    for one in kinds:
        said = one.description
        if len(said) > _DESCRIBED_CHARS:
            said = f"{said[:_DESCRIBED_CHARS].rstrip()}…"
        for row in (f"- {one.name}: {said}", f"- {one.name}"):
            size = text_tokens(row) + 1
            if size <= left:
                left -= size
                rows.append(row)
                break
    return "\n".join(rows)
