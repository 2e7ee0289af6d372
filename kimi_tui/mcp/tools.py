"""The tools of servers as tools of the agent: one for each (`ServerTool`), or two for all of them if these would take too much
of the context (`FindTools`, `CallTool`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from kimi_tui.display_names import some_of
from kimi_tui.foreign_text import one_line
from kimi_tui.llm.provider import ToolSpec
from kimi_tui.llm.tokens import estimate_fixed
from kimi_tui.mcp.schemas import bounded, cleaned
from kimi_tui.prompts import prompt
from kimi_tui.tool_cards import CALL_TOOL, Card
from kimi_tui.tools.base import ApprovalQuestion, Changes, SchemaTool, Tool, ToolEnv, TypedTool
from kimi_tui.tools.outcome import ToolOutcome, ToolProblem
from kimi_tui.tools.text import nearest_words

PREFIX = "mcp__"
LAZY_SHARE = 10
"""One part in so many of the context window: tools that take more are not described in every request."""
_LONGEST = 64
_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")
_MOST_FOUND = 8
_MOST_NAMED = 40
_MOST_WORDS = 1_500
"""Characters of a tool's description that the model gets."""


@dataclass(frozen=True, slots=True)
class ToolFacts:
    """One tool as its server describes it.

    Attributes:
        server: the name of the server.
        raw: the name of the tool at the server.
        name: the name for the model.
        description: the cleaned description.
        schema: the bounded schema of its arguments.
        tokens: the tokens that it takes in every request, estimated.
    """

    server: str
    raw: str
    name: str
    description: str
    schema: Mapping[str, Any]
    tokens: int


def facts_of(server: str, raw: str, description: str, schema: Mapping[str, Any]) -> ToolFacts:
    """Return the facts about a tool of a server."""
    name = name_of(server, raw)
    said = cleaned(description).strip()[:_MOST_WORDS]
    made = bounded(schema)
    tokens = estimate_fixed("", [ToolSpec(name, said, made)])
    return ToolFacts(server, raw, name, said, made, tokens)


def name_of(server: str, raw: str) -> str:
    """Return the name of a tool for the model, `mcp__SERVER__TOOL`: letters, digits, `_` and `-`, at most 64 characters."""
    start = f"{PREFIX}{server}__"
    fit = _UNFIT.sub("_", raw)
    if fit == raw and len(start) + len(fit) <= _LONGEST:
        return start + fit
    mark = hashlib.sha256(raw.encode("utf-8", "replace")).hexdigest()[:6]
    return f"{start}{fit[: _LONGEST - len(start) - 7]}_{mark}"


Run = Callable[[ToolFacts, Mapping[str, Any], ToolEnv], Awaitable[ToolOutcome]]
Where = Callable[[str], tuple[str, bool]]
"""A function that returns where the program of a server runs, in words, and whether a sandbox without network holds it."""


class ServerTool(SchemaTool):
    """One tool of a server.

    Args:
        facts: the tool.
        run: calls it.
        where: says where the server runs.
    """

    def __init__(self, facts: ToolFacts, run: Run, where: Where) -> None:
        super().__init__(facts.name, facts.description, facts.schema)
        self.facts = facts
        self._run = run
        self._where = where

    def question(self, params: dict[str, Any], env: ToolEnv) -> ApprovalQuestion | None:
        """Ask whether the tool may be called; in the modes in which sandboxed commands run unasked, not for a server in the same sandbox."""
        ask = super().question(params, env)
        if ask is None:
            return None
        place, is_confined = self._where(self.facts.server)
        return replace(
            ask,
            question=f"Call {one_line(self.facts.raw)[:60]} of the MCP server {self.facts.server}?",
            where=place,
            sandboxed=is_confined and env.sandbox is not None and not env.reads_only,
            session_offer=f"Yes, and allow {self.facts.server}/{one_line(self.facts.raw)[:40]} for this session",
        )

    async def run(self, params: dict[str, Any], env: ToolEnv) -> ToolOutcome:
        """Call it at its server."""
        return await self._run(self.facts, params, env)


class FindToolsParams(BaseModel):
    """The words to look for."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(description="Words, or exact names.", min_length=1, max_length=500)


class FindTools(TypedTool[FindToolsParams]):
    """Describes tools of servers to the model. Its own description names them as they were when it was made.

    Args:
        named: the names of the tools at that time, by server.
        all_tools: returns the tools now.
    """

    name = "FindTools"
    changes: Changes = "nothing"
    params = FindToolsParams
    card = Card("Find tools", ("query",))

    def __init__(
        self, named: Mapping[str, Sequence[str]], all_tools: Callable[[], Sequence[ToolFacts]]
    ) -> None:
        lines = [prompt("tools/FindTools")]
        for server, names in named.items():
            lines.append(f"- {server}: {some_of(names, _MOST_NAMED)}")
        self._said = "\n".join(lines)
        self._all = all_tools

    @property
    def description(self) -> str:
        """The description with the names."""
        return self._said

    async def run(self, params: FindToolsParams, env: ToolEnv) -> ToolOutcome:
        """Return the tools that fit best."""
        found, n_more = _found(params.query, self._all())
        if not found:
            raise ToolProblem(
                "No tool of an MCP server matches. Use other words, or a name from the list.",
                brief="none",
            )
        output = "\n".join(_described(one) for one in found)
        more = f" {n_more} more match: use a more specific query." if n_more else ""
        return ToolOutcome(
            output=output,
            message=f"Call them with CallTool.{more}",
            brief=f"{len(found)} {'tool' if len(found) == 1 else 'tools'}",
        )


def _described(one: ToolFacts) -> str:
    said = {"tool": one.name, "description": one.description, "arguments": dict(one.schema)}
    return json.dumps(said, ensure_ascii=False)


def _found(query: str, tools: Sequence[ToolFacts]) -> tuple[list[ToolFacts], int]:
    """Return the tools that fit a query best, and how many more fit."""
    words = [word for word in re.split(r"[^\w]+", query.lower()) if word]
    exact = {part.strip() for part in re.split(r"[\s,]+", query) if part.strip()}
    chosen = [one for one in tools if one.name in exact or one.raw in exact]
    if chosen:
        return chosen[:_MOST_FOUND], max(0, len(chosen) - _MOST_FOUND)
    scored: list[tuple[int, int, ToolFacts]] = []
    for place, one in enumerate(tools):
        name, about = f"{one.server} {one.raw}".lower(), one.description.lower()
        score = sum(3 * (word in name) + (word in about) for word in words)
        if score:
            scored.append((-score, place, one))
    scored.sort(key=lambda entry: entry[:2])
    return [one for _, _, one in scored[:_MOST_FOUND]], max(0, len(scored) - _MOST_FOUND)


class CallToolParams(BaseModel):
    """The tool and its arguments."""

    model_config = ConfigDict(extra="forbid")

    tool: str = Field(description="Its name, as FindTools gives it.", min_length=1, max_length=200)
    arguments: dict[str, Any] = Field(default_factory=dict[str, Any])


class CallTool(TypedTool[CallToolParams]):
    """Calls a tool of a server for a model that is not told of each of them.

    Args:
        tool_named: returns the tool with a name; None if there is none.
        names: returns the names of all of them.
    """

    name = CALL_TOOL
    changes: Changes = "anything"
    params = CallToolParams
    card = Card("Call", ("tool",))

    def __init__(
        self, tool_named: Callable[[str], Tool[Any] | None], names: Callable[[], Sequence[str]]
    ) -> None:
        self._tool_named = tool_named
        self._names = names

    async def run(self, params: CallToolParams, env: ToolEnv) -> ToolOutcome:
        """Ask what the tool itself would ask, and run it."""
        tool = self._tool_named(params.tool)
        if tool is None:
            near = nearest_words(params.tool, list(self._names()))
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise ToolProblem(
                f"There is no tool {one_line(params.tool)[:80]!r}.{hint} FindTools lists them.",
                brief="no such tool",
            )
        values = tool.parse(params.arguments)
        ask = tool.question(values, env)
        if ask is not None:
            await env.approver.ask(replace(ask, tool=tool.name))
        return await tool.run(values, env)
