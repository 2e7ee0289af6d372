"""`Soul`, the interface of an agent: what every caller may rely on, and the parts that one may have or lack.

A turn without a screen needs no more than this (`tests/soul/test_headless.py`). A screen asks `parts_of` what else there is
and offers only that. `KimiSoul` is the soul of this program; its parts are classes of `parts`, and `UserMarks`.
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
    """An agent with which somebody talks.

    Attributes:
        name: what it is called.
        wire: the event queue on which everything is published.
    """

    name: str
    wire: Wire

    @property
    def model_name(self) -> str:
        """The model in use, as its server calls it; empty while none is set."""
        ...

    @property
    def model_capabilities(self) -> frozenset[str] | None:
        """What the model in use can take and do, by the names of `llm.provider.Capability`; None while none is set."""
        ...

    @property
    def status(self) -> StatusUpdate:
        """The present token figures; its `context_usage` is the part of the window in use, from 0 to 1."""
        ...

    @property
    def message_count(self) -> int:
        """How many messages the context holds."""
        ...

    async def run(self, user_input: str) -> Literal["done", "rejected"]:
        """Run one turn: from the user's message until the agent stops. What it raises is told on the wire too.

        Returns:
            `done`, or `rejected` where the user did not allow what the agent wanted to do.

        Raises:
            LLMNotSet: no model is set.
            LLMNotSupported: the model cannot take something; `missing` names the capabilities.
            LLMError: the model could not be asked.
            MaxStepsReached: the turn used up its steps (`n_steps`).
            RunCancelled: the turn was stopped.
            SoulError: anything else that ended it.
        """
        ...

    async def interrupt(self) -> None:
        """Stop what runs; what is complete is kept."""
        ...

    async def aclose(self) -> None:
        """Stop, save and end. May be called again."""
        ...


class PartMissing(SoulError):
    """Something was asked of a soul that lacks the part for it."""

    def __init__(self, part: PartName) -> None:
        super().__init__(missing_words(part))
