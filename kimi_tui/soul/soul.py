"""`Soul`, the interface of an agent: the methods that every agent has, and the parts that one may have or lack.

A turn without a screen needs no more than this (`tests/soul/test_headless.py`). A screen asks `parts_of` for the other parts
and offers only those. `KimiSoul` is the soul of this program; its parts are classes of `parts`, and `UserMarks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from kimi_tui.agent_parts import PartName, missing_words
from kimi_tui.soul.errors import SoulError

if TYPE_CHECKING:
    from kimi_tui.wire.events import StatusUpdate
    from kimi_tui.wire.queue import Wire


@runtime_checkable
class Soul(Protocol):
    """The interface of an agent.

    Attributes:
        name: the name of the agent.
        wire: the event queue on which everything is published.
    """

    name: str
    wire: Wire

    @property
    def model_name(self) -> str:
        """The name of the model in use at its server; empty while none is set."""
        ...

    @property
    def model_capabilities(self) -> frozenset[str] | None:
        """The capabilities of the model in use, by their names in `llm.provider.Capability`; None while none is set."""
        ...

    @property
    def status(self) -> StatusUpdate:
        """The present token figures; `context_usage` is the part of the window in use, from 0 to 1."""
        ...

    @property
    def message_count(self) -> int:
        """The number of messages in the context."""
        ...

    async def run(self, user_input: str) -> Literal["done", "rejected"]:
        """Run one turn: from the user's message until the agent stops. Errors that it raises are published on the wire too.

        Returns:
            `done`, or `rejected` if the user refused an action of the agent.

        Raises:
            LLMNotSet: no model is set.
            LLMNotSupported: the model cannot accept a content; `missing` names the capabilities.
            LLMError: the model could not be asked.
            MaxStepsReached: the turn used up its steps (`n_steps`).
            RunCancelled: the turn was stopped.
            SoulError: another error ended the turn.
        """
        ...

    async def interrupt(self) -> None:
        """Stop the running turn or operation; complete parts are kept."""
        ...

    async def aclose(self) -> None:
        """Stop, save and end. It may be called again."""
        ...


class PartMissing(SoulError):
    """A soul lacks the part that a caller asked for."""

    def __init__(self, part: PartName) -> None:
        super().__init__(missing_words(part))
