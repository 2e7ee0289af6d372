"""The process of a sub-agent that works beside others: a future without a judge, which is asked and answered by the program.

It opens the sub-agent's own session over files of its own, and runs its turn, or lets it go on. Beside the lines of `futures.child` it
writes

    {"facts": [EVENT, …]}   what holds now and no record has
    {"ask": NUMBER, "question": QUESTION, "key": KEY, "tool": TOOL}   an `ApprovalQuestion` of a call
    {"unask": NUMBER}       the call needs no answer any more

and takes `{"type": "answered", "id": NUMBER, …}` with `text`, `rejected` or `problem`, `{"type": "event", "event": EVENT}` with the
question or the answer as they are published, and `{"type": "mode", "mode": MODE}`. So mode, permissions and the queue of questions
are those of the session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from kimi_tui.futures import child
from kimi_tui.futures.child import FutureChild
from kimi_tui.futures.orders import (
    AgentOrder,
    event_of,
    event_record,
    kind_of,
    question_record,
)
from kimi_tui.soul.approval import Approval
from kimi_tui.soul.messages import ends_open
from kimi_tui.tools.base import ApprovalQuestion
from kimi_tui.tools.outcome import ToolProblem, ToolRejected
from kimi_tui.wire.events import TurnEnd
from kimi_tui.wire.queue import Wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from kimi_tui.agent_parts import Mode
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.soul.opening import GivenSession


class ProgramApproval(Approval):
    """Approvals that the program decides on.

    Args:
        wire: the wire of this process.
        mode: the approval mode.
        tell: tells the program a line.
    """

    def __init__(self, wire: Wire, mode: Mode, tell: Callable[[dict[str, Any]], object]) -> None:
        super().__init__(wire, mode)
        self._tell = tell
        self._waiting: dict[int, asyncio.Future[str]] = {}
        self._number = 0

    def follow_mode(self, mode: Mode) -> None:
        """Take the mode of the session."""
        self._mode = mode

    async def ask(self, ask: ApprovalQuestion, *, key: str, tool: str, **_: object) -> str:
        """Wait for the program's answer, which is the user's where the mode or a permission does not give it."""
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._tell({"ask": number, "question": question_record(ask), "key": key, "tool": tool})
        try:
            return await answer
        except asyncio.CancelledError:
            self._tell({"unask": number})
            raise
        finally:
            del self._waiting[number]

    def answered(self, line: Mapping[str, Any]) -> None:
        """Take an answer of the program."""
        number = line.get("id")
        waiting = self._waiting.get(number) if isinstance(number, int) else None
        if waiting is None or waiting.done():
            return
        if isinstance(problem := line.get("problem"), str):
            waiting.set_exception(ToolProblem(problem, brief=str(line.get("brief", ""))))
        elif isinstance(rejected := line.get("rejected"), str):
            waiting.set_exception(ToolRejected(rejected))
        else:
            waiting.set_result(str(line.get("text", "")))


class AgentChild(FutureChild):
    """The process of a sub-agent."""

    _approval: ProgramApproval | None = None

    def _agent(self) -> AgentOrder:
        return AgentOrder(**self._order.agent)

    def _approve(self, mode: Mode, wire: Wire) -> Approval:
        self._approval = ProgramApproval(wire, mode, self._tell)
        return self._approval

    def _given(self, given: GivenSession) -> GivenSession:
        from pathlib import Path

        from kimi_tui.session.session import Session
        from kimi_tui.soul.model_slot import Budget
        from kimi_tui.soul.opening import GivenAgent

        order = self._agent()
        mode = cast("Mode", self._order.options.get("mode", "ask"))
        return given._replace(
            agent=GivenAgent(
                order.name,
                Session(Path(order.owner), Path(order.work)),
                kind_of(order.kind),
                order.steps,
                Budget(order.tokens, order.cost),
                partial(self._approve, mode),
            )
        )

    async def _turn(self, soul: KimiSoul) -> None:
        self._tell({"facts": [event_record(one) for one in (*soul.facts, soul.status)]})
        if self._order.message:
            await soul.run(self._order.message)
            return
        for text in self._agent().said:
            soul.say(text)
        if ends_open(soul.session.context.messages) or soul.inbox.steers:
            await soul.resume()
        else:
            self._end = TurnEnd("done")
            self._turn_over.set()

    def _cost_of(self, soul: KimiSoul) -> float:
        cost = soul.cost
        return -1.0 if cost is None else sum(amount for _, amount in cost.amounts)

    def _take(self, found: Mapping[str, Any]) -> bool:
        approval, soul = self._approval, self._soul
        match found.get("type"):
            case "answered":
                if approval is not None:
                    approval.answered(found)
            case "event":
                event = event_of(found.get("event"))
                if event is not None and soul is not None:
                    soul.wire.publish(event)
            case "mode":
                if approval is not None:
                    approval.follow_mode(cast("Mode", found.get("mode")))
            case "steer":
                if soul is not None and self._end is None:
                    soul.say(str(found.get("text", "")))
            case _:
                return False
        return True


def main() -> int:
    """Run the sub-agent that standard input orders, as `child.main` does."""
    return child.main(AgentChild)
