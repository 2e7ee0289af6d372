"""`AgentCopies`: what sub-agents that write at the same time need, each a process with files of its own.

`futures.agent_copies` is the implementation, which only `opening` knows; an engine that was opened without it has none, and such
sub-agents work one after another in the work folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from kimi_tui.agent_parts import Mode
from kimi_tui.soul.approval import Hears
from kimi_tui.tools.agent_kind import AgentKind
from kimi_tui.tools.base import ApprovalQuestion
from kimi_tui.wire.events import Event, EventRecord

if TYPE_CHECKING:
    from kimi_tui.llm.provider import ChatProvider


class NoCopies(Exception):
    """There can be no files of their own for sub-agents. The text is a sentence for the user."""


class CopyOwner(Protocol):
    """The program's side of one sub-agent in a copy: it is told everything, and answers."""

    def begun(self, model: str, facts: Sequence[Event]) -> None:
        """Its session is open; `facts` are those of the present, which no record has."""
        ...

    def heard(self, record: EventRecord) -> None:
        """It published an event."""
        ...

    def spent(self, cost: float) -> None:
        """Its conversation has cost this until now, by the configured prices; -1 without prices."""
        ...

    def waits(self, words: str) -> None:
        """Its request waits, for a reason in words; empty when it leaves."""
        ...

    def unsaid(self, text: str) -> None:
        """It had ended before it could read this message."""
        ...

    async def ask(self, question: ApprovalQuestion, key: str, tool: str, also: Hears) -> str:
        """Return the user's answer to a question of a call of it, as `Approval.ask` does; question and answer are published to `also`, too."""
        ...


@dataclass(frozen=True, slots=True)
class CopyOrder:
    """The order of a sub-agent in a copy.

    Attributes:
        name: its name.
        folder: the folder of its session, which exists and is not open.
        kind: its kind.
        text: the message with which it begins; empty if it goes on.
        said: the user's messages that it takes before its next step, if it goes on.
        provider: its model.
        mode: the approval mode.
        steps: the most steps of its turn; `tokens` and `cost` are its other limits, 0 for none.
        added: the folders that the user added beside the work folder.
    """

    name: str
    folder: Path
    kind: AgentKind
    text: str
    said: Sequence[str]
    provider: ChatProvider
    mode: Mode
    steps: int
    tokens: int = 0
    cost: float = 0.0
    added: Sequence[str] = ()


class CopyEnd(NamedTuple):
    """How the turn of a sub-agent in a copy ended: as `TurnEnd` says it."""

    reason: Literal["done", "rejected", "interrupted", "error"]
    error: str = ""
    advice: str = ""


class RunningCopy(Protocol):
    """A sub-agent in a copy."""

    async def run(self) -> CopyEnd:
        """Run it to its end; its process has ended then, and nobody has its session open.

        Raises:
            NoCopies: its process cannot work here; it has done nothing.
        """
        ...

    def say(self, text: str) -> None:
        """Say something to it, before its next step."""
        ...

    def set_mode(self, mode: Mode) -> None:
        """Set what it may do without asking."""
        ...

    def end(self, why: str) -> None:
        """End its turn because of a limit, which these words tell."""
        ...

    async def stop(self) -> None:
        """Stop it in order; after some seconds it is killed. `run` returns then."""
        ...


class AgentCopies(Protocol):
    """The copies of sub-agents that work at the same time, all from the same files.

    Attributes:
        since: the snapshot of the files with which they begin; known once it is open.
    """

    since: str

    async def open(self) -> None:
        """Make the frozen files, and start what starts the processes.

        Raises:
            NoCopies: there can be none here; nothing is left.
        """
        ...

    async def copy(self, place: int, order: CopyOrder, owner: CopyOwner) -> RunningCopy:
        """Return a sub-agent in a copy, to be run once.

        Args:
            place: its place among those of the set, from 0.
            order: what it is to do.
            owner: hears and answers it.

        Raises:
            NoCopies: its model cannot be used by another process.
            OSError: the disk refused.
        """
        ...

    async def close(self) -> None:
        """Remove the files; every process must have ended."""
        ...


class MakesCopies(Protocol):
    """Makes the copies for some sub-agents of a session that begin now."""

    async def __call__(self, count: int) -> AgentCopies:
        """Return those of a set of so many; nothing is made yet."""
        ...
