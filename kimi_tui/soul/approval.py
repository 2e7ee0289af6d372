"""Asks the person before something is changed, and remembers what they allowed for the session.

Requests go to the wire one after another by one task that lives as long as the engine: the next is shown when the one
before it has been answered, and is not shown at all where that answer covers it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal
from uuid import uuid4

from kimi_tui.soul.display import diffs_of
from kimi_tui.tools.base import Ask, ToolRejected
from kimi_tui.wire.events import ApprovalAnswer, ApprovalRequest, ApprovalResolved
from kimi_tui.wire.queue import Wire

Mode = Literal["ask", "edits", "all"]


@dataclass(frozen=True, slots=True)
class _Decision:
    answer: ApprovalAnswer
    feedback: str = ""


@dataclass(slots=True)
class _Waiting:
    ask: Ask
    key: str
    tool: str
    id: str = field(default_factory=lambda: str(uuid4()))
    decision: asyncio.Future[_Decision] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Approval:
    """Decides by mode and by what was allowed before; else asks on the wire."""

    def __init__(self, wire: Wire, mode: Mode = "ask") -> None:
        self._wire = wire
        self._mode: Mode = mode
        self._allowed: set[str] = set()
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._shown: _Waiting | None = None
        self._waiting: list[_Waiting] = []
        self._pipe_task: asyncio.Task[None] | None = None

    @property
    def mode(self) -> Mode:
        """What is asked for: everything, all but edits in the work folder, or only what is protected."""
        return self._mode

    def set_mode(self, mode: Mode) -> None:
        """Change the mode; a request on the screen that it now covers is answered with yes."""
        self._mode = mode
        if self._shown is not None and self._is_covered(self._shown.ask):
            self._settle(self._shown, _Decision("once"))

    async def ask(self, ask: Ask, *, key: str, tool: str) -> str:
        """Return on yes, with what the person said along with it: what to send or run in the place of a letter or a command.

        Args:
            ask: the question.
            key: the call that asks.
            tool: its tool's name.

        Raises:
            ToolRejected: on no.
        """
        if self._is_covered(ask):
            return ""
        if self._pipe_task is None:
            self._pipe_task = asyncio.create_task(self._pipe(), name="approval requests")
        waiting = _Waiting(ask, key, tool)
        self._waiting.append(waiting)
        self._queue.put_nowait(waiting)
        try:
            decision = await waiting.decision
        finally:
            # Cancelled while it waits: the pipe must not show it, or must go on to the next.
            waiting.decision.cancel()
            self._waiting.remove(waiting)
        if decision.answer == "no":
            raise ToolRejected(decision.feedback)
        return decision.feedback

    def answer(self, request_id: str, answer: ApprovalAnswer, feedback: str = "") -> bool:
        """The person's answer; False where this request is not on the screen (any more)."""
        shown = self._shown
        if shown is None or shown.id != request_id or shown.decision.done():
            return False
        if answer == "session":
            if shown.ask.session_key and not shown.ask.protected:
                self._allowed.add(shown.ask.session_key)
            else:
                answer = "once"
        self._settle(shown, _Decision(answer, feedback.strip()))
        return True

    async def aclose(self) -> None:
        """End the piping task; whoever waits is cancelled."""
        task, self._pipe_task = self._pipe_task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for waiting in self._waiting:
            waiting.decision.cancel()

    def _is_covered(self, ask: Ask) -> bool:
        if ask.protected:
            return False
        if ask.session_key and ask.session_key in self._allowed:
            return True
        return self._mode == "all" or (self._mode == "edits" and ask.action == "edit file")

    def _settle(self, waiting: _Waiting, decision: _Decision) -> None:
        waiting.decision.set_result(decision)
        self._wire.publish(ApprovalResolved(waiting.id, decision.answer, decision.feedback))

    async def _pipe(self) -> None:
        while True:
            waiting = await self._queue.get()
            if waiting.decision.done():
                continue
            if self._is_covered(waiting.ask):
                waiting.decision.set_result(_Decision("session"))
                continue
            ask = waiting.ask
            display = await diffs_of(ask.edits)
            if waiting.decision.done():
                continue
            self._shown = waiting
            self._wire.publish(
                ApprovalRequest(
                    id=waiting.id,
                    key=waiting.key,
                    tool=waiting.tool,
                    question=ask.question,
                    detail=ask.detail,
                    where=ask.where,
                    display=display,
                    session_offer=ask.session_offer if ask.session_key else "",
                    kind="dmail" if ask.action == "send D-Mail" else "tool",
                )
            )
            try:
                await asyncio.wait([waiting.decision])
                if waiting.decision.cancelled():
                    self._wire.publish(ApprovalResolved(waiting.id, "no", "stopped"))
            finally:
                self._shown = None


class CallAsker:
    """An `Asker` that speaks for one call.

    Args:
        approval: who decides.
        key: the call.
        tool: its tool's name.
        before: called when the question is put.
        allowed: awaited when the answer was yes, before anything is done.
        after: called when it may begin.
    """

    def __init__(
        self,
        approval: Approval,
        *,
        key: str,
        tool: str,
        before: Callable[[], None],
        allowed: Callable[[Ask], Awaitable[None]],
        after: Callable[[], None],
    ) -> None:
        self._approval = approval
        self._key = key
        self._tool = tool
        self._before = before
        self._allowed = allowed
        self._after = after

    async def ask(self, ask: Ask) -> str:
        """Return on yes, with the command that the person put in the place of the one asked about.

        Raises:
            ToolRejected: on no.
        """
        self._before()
        instead = await self._approval.ask(ask, key=self._key, tool=self._tool)
        await self._allowed(ask)
        self._after()
        return instead
