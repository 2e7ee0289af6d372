"""`Soul`, the interface of an agent: the methods that every agent has, and the parts that one may have or lack.

A turn without a screen needs no more than this (`tests/soul/test_headless.py`). A screen asks `parts_of` for the other parts
and offers only those. `KimiSoul` is the soul of this program; its parts are classes of `parts`, and `UserMarks`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from kimi_tui.agent_parts import PartName, missing_words
from kimi_tui.app_paths import log_words
from kimi_tui.llm.errors import LLMError, ModelCannotSee
from kimi_tui.soul.errors import SoulError
from kimi_tui.wire.events import TurnEnd

if TYPE_CHECKING:
    from kimi_tui.images import Image
    from kimi_tui.soul.inbox import Inbox
    from kimi_tui.wire.events import StatusUpdate, When
    from kimi_tui.wire.queue import Wire


log = logging.getLogger(__name__)


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


class InboxTurns:
    """Runs the messages of an inbox as turns of a soul, one after another, for a soul that has no inbox of its own.

    `KimiSoul` needs none: it takes messages into a running turn, and stores those that wait.

    Args:
        soul: the soul.
        inbox: the messages of the user, also those from before.

    Attributes:
        running: whether a turn runs.
    """

    def __init__(self, soul: Soul, inbox: Inbox) -> None:
        self._soul = soul
        self._inbox = inbox
        self._is_closed = False
        self.running = False
        inbox.join(soul.wire, None)

    def say(
        self,
        text: str,
        images: Sequence[Image] = (),
        when: When = "now",
        carry_out: Callable[[], Coroutine[Any, Any, object]] | None = None,
    ) -> str:
        """Queue a message, or a command to be carried out after the messages before it; return its id.

        Raises:
            ModelCannotSee: the message has images, which `Soul.run` does not take.
        """
        if images:
            raise ModelCannotSee(self._soul.model_name, ())
        said_id = self._inbox.say(text, (), when, carry_out)
        if self.running:
            self._inbox.publish_waiting()
        return said_id

    async def attend(self) -> None:
        """Run what waits in the inbox, in order, until `aclose`. Errors of turns are told on the wire of the soul."""
        while not self._is_closed:
            if (said := self._inbox.due) is None:
                await self._inbox.stirred()
                continue
            self._inbox.begin(said)
            self._inbox.arrived()
            self.running, end = True, TurnEnd("error")
            try:
                if said.carry_out is not None:
                    await said.carry_out()
                else:
                    await self._soul.run(said.text)
                end = TurnEnd("done")
            except (LLMError, SoulError):
                pass
            except Exception as error:
                log.exception("an agent failed in a turn")
                words = f"The agent failed: {type(error).__name__}."
                self._soul.wire.publish(TurnEnd("error", words, log_words()))
            finally:
                self.running = False
            self._inbox.ended(end, hands_back=True)

    async def interrupt(self) -> None:
        """Hand waiting messages back and stop the running turn."""
        self._inbox.hand_back(self._inbox.waiting)
        await self._soul.interrupt()

    async def aclose(self) -> None:
        """Stop the running turn, and end the soul."""
        self._is_closed = True
        await self._soul.aclose()
        await self._inbox.aclose()
