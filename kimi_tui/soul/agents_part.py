"""`AgentsPart`, what the agent of a session offers about its sub-agents: to look at one, steer, stop, and go back to one of its steps.

`subagents.Subagents` is the implementation, which is imported with the first sub-agent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from kimi_tui.soul.rewind_values import FilesChoice, RewindOutcome, RewindPreview, Target
from kimi_tui.tools.agent_kind import AgentTask
from kimi_tui.tools.outcome import ToolOutcome
from kimi_tui.wire.events import AgentChanged, Event, EventRecord
from kimi_tui.wire.queue import Subscription

if TYPE_CHECKING:
    from kimi_tui.soul.tool_calls import CallsTogether


class AgentsPart(Protocol):
    """The sub-agents of a session. Methods run on the event loop."""

    @property
    def states(self) -> Sequence[AgentChanged]:
        """The states of all sub-agents of the session as they were published, in the order in which they were started."""
        ...

    @property
    def paused_keys(self) -> frozenset[str]:
        """The keys of the calls whose sub-agents can go on."""
        ...

    def state(self, name: str) -> AgentChanged:
        """Return the state of a sub-agent.

        Raises:
            KeyError: there is none of that name; the text is for the user.
        """
        ...

    async def load(self) -> None:
        """Read the sub-agents of earlier runs of the program. One that a killed program left can go on if its call has no result."""
        ...

    async def take_in(self) -> None:
        """Read and publish the sub-agents that came into the session's folder since it was opened, as those of a future do.

        Call it while nothing else runs in the session.
        """
        ...

    async def forget(self, names: Collection[str]) -> None:
        """Close and forget sub-agents that do not run, because their files are about to be removed.

        A last state is published for each, with the time (`removed_at`).
        """
        ...

    async def separate(self) -> None:
        """Have the sub-agents that can go on belong to this session alone, in a copy of another session that has them, too.

        Their step is made again with a checkpoint, and their names and the keys of their calls are new. Call it before the turn.

        Raises:
            SessionError, OSError: the disk refused.
        """
        ...

    async def listen(
        self, name: str, wake: Callable[[Event], None] | None = None
    ) -> tuple[list[EventRecord], Subscription]:
        """Begin to listen to a sub-agent: its history, and a subscription to all that follows. End it with `unlisten`.

        Args:
            name: the sub-agent.
            wake: see `Wire.subscribe`.

        Raises:
            KeyError: there is none of that name.
            SoulError, SessionError, OSError: its conversation cannot be read.
        """
        ...

    async def unlisten(self, name: str, subscription: Subscription) -> None:
        """End a subscription."""
        ...

    def steer(self, name: str, text: str) -> None:
        """Send a message to a sub-agent: before its next step, or when it goes on.

        Raises:
            KeyError: there is none of that name.
            SoulError: it has ended.
        """
        ...

    async def stop(self, name: str) -> None:
        """Stop a sub-agent alone: its call ends with what it has found, and the turn goes on.

        Raises:
            KeyError: there is none of that name.
        """
        ...

    async def stop_all(self) -> None:
        """Stop all sub-agents that run; the turn goes on."""
        ...

    async def preview(self, name: str, target: Target) -> RewindPreview:
        """Return what going back to before a step of a sub-agent would drop of its conversation, and do to files.

        Raises:
            KeyError: there is no such sub-agent or checkpoint.
            SoulError, SessionError, OSError: its conversation cannot be read.
        """
        ...

    async def rewind(
        self,
        name: str,
        target: Target,
        files: FilesChoice = "keep",
        chosen: Collection[str] | None = None,
    ) -> RewindOutcome:
        """Go back to before a step of a sub-agent.

        The session's conversation goes to where the call of the sub-agent had no result; the sub-agent can go on from there with
        the next turn (`KimiSoul.resume`). The undo of the session reverses it, with the sub-agent's conversation.

        Args:
            name: the sub-agent.
            target: one of its checkpoints.
            files: whether the files of that time come back, too; `chosen` as for `Travel.rewind`.

        Raises:
            KeyError: there is no such sub-agent or checkpoint, or the step that started it is not on the current world line.
            FilesUnknown: the files of that time cannot be brought back; nothing changed.
            SoulBusy: something runs; interrupt it first.
            OSError: the disk refused.
        """
        ...

    async def follow_line(self) -> None:
        """Bring back the conversation of each sub-agent as it was when the session's current world line was left."""
        ...

    def together(self, keys: Sequence[str]) -> CallsTogether:
        """Let the sub-agents of these calls work at the same time, each on files of its own where that is possible.

        Args:
            keys: the keys of the calls in their order, before they begin. `ended` of the result is called for each of them.
        """
        ...

    async def settle(self) -> None:
        """Bring the changes of files into the work folder that sub-agents made in copies and that a stop or a kill left there.

        Call it while nothing else runs in the session.
        """
        ...

    async def run(self, task: AgentTask, key: str) -> ToolOutcome:
        """Run a sub-agent for a call to its end; one that was paused in that call goes on.

        Returns:
            the result of the call: its last answer, or as much as it had found and why it ended.

        Raises:
            asyncio.CancelledError: the turn was stopped.
        """
        ...

    async def aclose(self) -> None:
        """Stop and close all of them."""
        ...
