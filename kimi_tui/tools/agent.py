"""Agent: has a sub-agent do a part of the work, with a context of its own, and returns its last answer.

A kind says what a sub-agent is for, and which tools and which model it has. Those of this program are `SHIPPED`; the user's own
and those of a repository are found by `soul.agent_kinds`. The engine runs sub-agents (`soul.subagents`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from kimi_tui.foreign_text import one_line
from kimi_tui.llm.tokens import text_tokens
from kimi_tui.prompts import prompt
from kimi_tui.tool_cards import AGENT_NAMES, Card
from kimi_tui.tools.agent_kind import DEFAULT_KIND, SHIPPED, AgentKind, AgentTask
from kimi_tui.tools.arguments import parsed
from kimi_tui.tools.base import Changes, ToolEnv, TypedTool
from kimi_tui.tools.outcome import ToolOutcome, ToolProblem
from kimi_tui.tools.text import nearest_words, without_our_tags

LISTED_TOKENS = 1_500
"""The largest number of tokens of the list of kinds, in every request."""
_DESCRIBED_CHARS = 300


class AgentParams(BaseModel):
    """The task. Other agents' tools of this name call the kind `subagent_type`."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    description: str = Field(description="The task in 3 to 6 words.", min_length=1)
    prompt: str = Field(description="The whole task.", min_length=1)
    kind: str = Field(
        default=DEFAULT_KIND,
        validation_alias=AliasChoices("kind", "subagent_type", "agent", "agent_type"),
    )


class AgentTool(TypedTool[AgentParams]):
    """Starts sub-agents.

    Args:
        kinds: the kinds that the model may use.
    """

    name = "Agent"
    changes: Changes = "order"
    params = AgentParams
    card = Card("Agent", ("description",), shows="answer")
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
