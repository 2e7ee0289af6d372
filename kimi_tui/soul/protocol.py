"""The least that any agent engine behind a user interface has. `KimiSoul` is the one that this program runs.

The screens of this program need more (time travel, approvals, steering) and are written against `KimiSoul` itself;
this is for code that only runs turns and shows what is going on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kimi_tui.llm.provider import Capability
    from kimi_tui.wire.events import StatusUpdate


class Soul(Protocol):
    """An agent engine. Its methods are called on the event loop and never block it."""

    @property
    def name(self) -> str:
        """What the agent is called."""
        ...

    @property
    def model_name(self) -> str:
        """The model in use, as its server calls it; empty while none is set."""
        ...

    @property
    def model_capabilities(self) -> frozenset[Capability] | None:
        """What the model in use can take and do; None while none is set."""
        ...

    @property
    def status(self) -> StatusUpdate:
        """The token figures as they are now."""
        ...

    @property
    def message_count(self) -> int:
        """How many messages the context holds, checkpoint markers not counted."""
        ...

    async def run(self, text: str) -> None:
        """Run one turn: from the user's words until the agent stops. What happens is published on the wire."""
        ...
