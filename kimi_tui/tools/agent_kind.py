"""`AgentKind`, what a sub-agent is for and what it may use, and `AgentTask`, what one is asked to do: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

READING_TOOLS = ("ReadFile", "Glob", "Grep", "FetchURL", "SearchWeb", "SetTodoList")
"""The tools that change nothing, which a kind may have without being one that writes."""
NEVER = frozenset({"Agent", "AskUserQuestion", "ExitPlanMode", "SendDMail"})
"""The tools that no sub-agent has: it starts no others, and leaves questions, plans and time travel to the session's agent."""


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
    """The task of a sub-agent.

    Attributes:
        title: the task in a few words.
        text: the task.
        kind: the kind of sub-agent.
    """

    title: str
    text: str
    kind: AgentKind
