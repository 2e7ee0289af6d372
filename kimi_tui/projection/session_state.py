"""`SessionState`, the state of a session as every listener has it: plain values, which `session_model` reduces from events.

A screen shows its header, prompt and footer by it before the engine is loaded, so nothing of that is imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from kimi_tui.agent_parts import PARTS, Mode, PartName

if TYPE_CHECKING:
    from kimi_tui.wire.events import (
        AgentChanged,
        ApprovalRequest,
        FutureChanged,
        MarksChanged,
        ModelChanged,
        StatusUpdate,
    )


class Queued(NamedTuple):
    """A message, or a command, that the user said and that waits."""

    id: str
    text: str
    is_later: bool = False
    """Whether it is for after the turn."""


class SessionState(NamedTuple):
    """The state of a session beside its messages and world lines. Times are seconds since 1970.

    Attributes:
        title: what the session is called; `is_named` where somebody named it, else it is how it began.
        model: the model in use and what is asked of it; None before that is known.
        tools: whether requests carry all tools, few or none; `tool_names` are all tools of the session.
        mode: the approval mode.
        marks: the names and pins; None before they are known.
        ready: whether the session is open and its history read.
        running: whether a turn is under way; `turn_at` is when it began, `step` the number of its step.
        compacting: whether the context is being summarised.
        retry_until: when the next attempt of a failed call is due; 0 for none.
        can_resume: whether Enter in an empty prompt has the agent continue.
        own_command: whether a shell command of the user's own is running, after which the agent has nothing to continue.
        has_messages: whether anything was said.
        queued: the messages that wait.
        approvals: the requests that wait for an answer, oldest first.
        usage: the newest token figures.
        unsaved: whether the conversation cannot be written to the disk.
        commands: the tool calls whose commands are running; `jobs` is the number of background commands.
        asked_at: since when the first piece of an answer is waited for; 0 where it is not.
        prompt_read: the share of the prompt that the server has read by now; -1 where it does not say.
        parts: those of the agent; all before the session is open.
        futures: the futures of the session that nobody removed, in the order in which they were started.
        agents: the sub-agents of the session, in the order in which they were started, also those of steps that were undone.
    """

    title: str = ""
    is_named: bool = False
    model: ModelChanged | None = None
    tools: Literal["on", "lean", "off"] = "on"
    tool_names: tuple[str, ...] = ()
    mode: Mode = "ask"
    marks: MarksChanged | None = None
    ready: bool = False
    running: bool = False
    compacting: bool = False
    turn_at: float = 0.0
    step: int = 0
    retry_until: float = 0.0
    can_resume: bool = False
    own_command: bool = False
    has_messages: bool = False
    queued: tuple[Queued, ...] = ()
    approvals: tuple[ApprovalRequest, ...] = ()
    usage: StatusUpdate | None = None
    unsaved: bool = False
    commands: frozenset[str] = frozenset()
    jobs: int = 0
    asked_at: float = 0.0
    prompt_read: float = -1.0
    parts: frozenset[PartName] = PARTS
    futures: tuple[FutureChanged, ...] = ()
    agents: tuple[AgentChanged, ...] = ()

    @property
    def working_agents(self) -> tuple[AgentChanged, ...]:
        """The sub-agents that run now."""
        return tuple(one for one in self.agents if one.is_running)

    @property
    def waits_for_own(self) -> bool:
        """Whether only a command of the user's own runs: there is no agent to steer."""
        return self.running and self.own_command and not self.step

    @property
    def takes_steers(self) -> bool:
        """Whether a message can go into a running turn: an agent with a model of its own gets it after the turn."""
        return "model" in self.parts
