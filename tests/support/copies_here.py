"""Copies of sub-agents inside the process of the test: real engines over real copies of the work folder, without a process or a sandbox.

They fulfil `soul.agent_copies.AgentCopies`, so that all that the session's side does (`soul.subagents`) is tested in milliseconds.
`tests/futures` tests the processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kimi_tui.futures.set_files import move_to
from kimi_tui.session.fork import share_files
from kimi_tui.session.session import Session
from kimi_tui.soul.agent_copies import CopyEnd, CopyOrder, CopyOwner, NoCopies
from kimi_tui.soul.agent_engine import limits_of, tools_of
from kimi_tui.soul.approval import Approval
from kimi_tui.soul.assembly import open_soul
from kimi_tui.soul.errors import RunCancelled
from kimi_tui.soul.folder_snapshots import FILES_NAME
from kimi_tui.soul.kimisoul import TURN_ERRORS, KimiSoul
from kimi_tui.soul.messages import ends_open
from kimi_tui.soul.model_slot import Budget, LoopLimits
from kimi_tui.tools.toolset import default_toolset
from kimi_tui.wire.queue import Subscription, Wire
from kimi_tui.workspace.tracker import INTENT_NAME


class CopiesHere:
    """The copies of one session; an instance is its `KimiSoul.agent_copies`.

    Args:
        soul: the engine of the session.
        top: the folder in which the copies of the work folder are made.

    Attributes:
        made: all copies so far, in the order in which they were made.
        counts: for how many sub-agents each set was asked.
        refuses: what `open` raises; None for nothing.
        refuses_process: what `CopyHere.run` raises before it does anything; None for nothing.
        before_end: called with a copy whose turn is over, before that is told.
        n_closed: how many sets were closed.
    """

    def __init__(self, soul: KimiSoul, top: Path) -> None:
        self.since = ""
        self.made: list[CopyHere] = []
        self.counts: list[int] = []
        self.refuses: Exception | None = None
        self.refuses_process: NoCopies | None = None
        self.before_end: Callable[[CopyHere], object] = bool
        self.n_closed = 0
        self._soul = soul
        self._top = top

    async def __call__(self, count: int) -> CopiesHere:
        self.counts.append(count)
        return self

    async def open(self) -> None:
        if self.refuses is not None:
            raise self.refuses
        await self._soul.files_ready()
        folder = self._soul.folder
        await folder.take(folder.others)
        last = await folder.run(lambda: folder.tracker.log.last)
        assert last is not None
        self.since = last.id

    async def copy(self, place: int, order: CopyOrder, owner: CopyOwner) -> CopyHere:
        session, folder = self._soul.session, self._soul.folder
        await folder.run(
            share_files, session.storage, session.dir, order.folder, FILES_NAME, (INTENT_NAME,)
        )
        at = self._top / f"copy {len(self.made)}"
        shutil.copytree(session.work_dir, at, symlinks=True)
        found = CopyHere(self, session, at, order, owner)
        found.place = place
        self.made.append(found)
        return found

    async def close(self) -> None:
        self.n_closed += 1


class CopyHere:
    """One sub-agent in a copy.

    Attributes:
        order: what it was given.
        owner: the session's side of it.
        at: its work folder.
        soul: its engine, once it is open.
        modes: the modes that it was told.
        limit: the limit that ended it.
        is_begun: whether its session is open.
    """

    place = 0

    def __init__(
        self, copies: CopiesHere, session: Session, at: Path, order: CopyOrder, owner: CopyOwner
    ) -> None:
        self.order = order
        self.owner = owner
        self.at = at
        self.soul: KimiSoul | None = None
        self.modes: list[str] = []
        self.limit = ""
        self.is_begun = asyncio.Event()
        self._copies = copies
        self._session = session
        self._said: list[str] = []

    async def run(self) -> CopyEnd:
        order, work = self.order, self._session.work_dir
        if self._copies.refuses_process is not None:
            raise self._copies.refuses_process
        session = Session(order.folder, self.at, self._session.storage)
        move_to(session, work, self.at)
        limits = limits_of(LoopLimits(), order.steps, Budget(order.tokens, order.cost))
        soul = self.soul = await open_soul(
            session=session,
            provider=order.provider,
            toolset=tools_of(order.kind, default_toolset()),
            mode=order.mode,
            environ={},
            limits=limits,
            agent=order.name,
            owner=self._session,
            approval=lambda wire: _Asks(wire, self.owner),
        )
        heard = soul.wire.subscribe()
        following = asyncio.create_task(self._follow(heard))
        self.owner.begun(soul.model_name, (*soul.facts, soul.status))
        self.is_begun.set()
        for text in self._said:
            soul.say(text)
        reason, why, advice = "done", "", ""
        try:
            reason = await self._turn(soul)
        except RunCancelled:
            reason = "interrupted"
        except TURN_ERRORS as error:
            reason, why = "error", str(getattr(error, "message", error))
            advice = str(getattr(error, "advice", ""))
        await soul.files_ready()
        await soul.folder.take("agent")
        await soul.aclose()
        await following
        move_to(session, Path(), work)
        self._copies.before_end(self)
        if self.limit:
            return CopyEnd("error", self.limit)
        return CopyEnd(reason, why, advice)

    async def _turn(self, soul: KimiSoul) -> Any:
        if self.order.text:
            return await soul.run(self.order.text)
        for text in self.order.said:
            soul.say(text)
        if ends_open(soul.session.context.messages) or soul.inbox.steers:
            return await soul.resume()
        return "done"

    async def _follow(self, heard: Subscription) -> None:
        async for record in heard:
            self.owner.heard(record)

    def say(self, text: str) -> None:
        if self.soul is None:
            self._said.append(text)
        else:
            self.soul.say(text)

    def set_mode(self, mode: str) -> None:
        self.modes.append(mode)

    def end(self, why: str) -> None:
        self.limit = why
        assert self.soul is not None
        self._ending = asyncio.ensure_future(self.soul.interrupt())

    async def stop(self) -> None:
        await self.is_begun.wait()
        assert self.soul is not None
        with contextlib.suppress(RunCancelled):
            await self.soul.interrupt()


class _Asks(Approval):
    """Approvals that the session's side decides on."""

    def __init__(self, wire: Wire, owner: CopyOwner) -> None:
        super().__init__(wire, "ask")
        self._heard = wire
        self._owner = owner

    async def ask(self, ask: Any, *, key: str, tool: str, **_: object) -> str:
        return await self._owner.ask(ask, key, tool, self._heard)
