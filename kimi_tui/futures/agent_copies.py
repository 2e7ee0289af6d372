"""`CopySet`: the processes of sub-agents that write at the same time, each with files of its own (`soul.agent_copies`).

They are futures without a judge: the same frozen files, views, processes and turns at the server. Each works in its own session, in
`subagents/NAME/` of the session's folder, with a copy of the session's snapshots beside it, which is removed when its difference was
applied. Its questions go into the session's queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kimi_tui import lenient_json
from kimi_tui.app_paths import reason_of
from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.filesystem import remove_tree
from kimi_tui.futures.orders import (
    AgentOrder,
    Order,
    choice_record,
    event_of,
    event_record,
    kind_record,
    question_of,
)
from kimi_tui.futures.planning import Planner, facts_record, n_at_once
from kimi_tui.futures.process import FutureProcess, StartServer
from kimi_tui.futures.set_files import SetFiles, free_ports, move_back, move_to
from kimi_tui.futures.turns import ModelServer, ModelTurns, Wait
from kimi_tui.futures.values import NoFutures
from kimi_tui.session.fork import share_files
from kimi_tui.session.session import Session
from kimi_tui.soul.agent_copies import CopyEnd, CopyOrder, CopyOwner, NoCopies
from kimi_tui.soul.folder_snapshots import FILES_NAME
from kimi_tui.soul.rewind_values import END, Target
from kimi_tui.tools.outcome import ToolProblem, ToolRejected
from kimi_tui.wire.codec import Decoder
from kimi_tui.wire.events import Event, SteerTaken, StepRetry
from kimi_tui.workspace.base import NoBase
from kimi_tui.workspace.tracker import INTENT_NAME

if TYPE_CHECKING:
    from pathlib import Path

    from kimi_tui.agent_parts import Mode
    from kimi_tui.launch import Launch
    from kimi_tui.soul.kimisoul import KimiSoul

_TOO_MANY = frozenset({429, 503})
_REASONS = frozenset({"done", "rejected", "interrupted", "error"})
_WAITING: Mapping[Wait, str] = {
    "": "",
    "first": "Waiting for another sub-agent's first token, so that the shared prompt is cached.",
    "turn": "Waiting for a free slot at the server.",
}
_NO_END = "Its process exited before it was done."


class CopySet:
    """The copies of the sub-agents of one step.

    Args:
        soul: the engine of the session.
        launch: the options with which it was opened.
        count: how many there are.

    Attributes:
        since: the snapshot of the files with which they begin; known once it is open.
    """

    def __init__(self, soul: KimiSoul, launch: Launch, count: int) -> None:
        self.since = ""
        self._soul = soul
        self._launch = launch
        group = uuid.uuid4().hex[:12]
        environ = dict(os.environ)
        self._planner = Planner(soul, launch, environ)
        self._files = SetFiles(soul.session, group, environ)
        self._keys = [f"{group}-{place}" for place in range(count)]
        self._server = StartServer(self._keys, environ)
        self._turns = ModelTurns(self._n_at_once, self._go, self._waits)
        self._copies: dict[str, _Copy] = {}
        self._is_one_at_a_time = False
        self._is_closed = False

    async def open(self) -> None:
        """See `AgentCopies.open`."""
        soul = self._soul
        try:
            await soul.file_history.settled()
            self.since = await self._planner.files(Target(END))
            await self._server.start()
            await self._files.open(
                self.since, self._planner.ground, lambda _: None, lambda: self._is_closed
            )
        except (NoBase, NoFutures, OSError) as error:
            await self.close()
            raise NoCopies(reason_of(error)) from error
        except BaseException:
            await self.close()
            raise

    async def copy(self, place: int, order: CopyOrder, owner: CopyOwner) -> _Copy:
        """See `AgentCopies.copy`."""
        made = order.provider.made_with
        if made is None:
            raise NoCopies("their model can be used only in the main process of kimi-tui")
        session, folder = self._soul.session, self._soul.folder
        session_of = Session(order.folder, session.work_dir, session.storage)
        await asyncio.to_thread(_removed, order.folder / FILES_NAME)
        await folder.run(
            share_files, session.storage, session.dir, order.folder, FILES_NAME, (INTENT_NAME,)
        )
        await self._files.stamp([order.folder])
        key = self._keys[place]
        facts = getattr(order.provider, "facts", None)
        self._is_one_at_a_time |= bool(facts is not None and facts.one_at_a_time)
        agent = AgentOrder(
            name=order.name,
            owner=str(session.dir),
            work=str(session.work_dir),
            kind=kind_record(order.kind),
            said=list(order.said),
            steps=order.steps,
            tokens=order.tokens,
            cost=order.cost,
        )
        told = Order(
            session=str(order.folder),
            message=order.text,
            choice=choice_record(_choice(made)),
            options={
                "mode": order.mode,
                "sandbox": self._launch.sandbox,
                "bare": self._launch.bare,
                "added": list(order.added),
            },
            known=facts_record(facts),
            agent=agent._asdict(),
        )
        same = f"{made['model']} {made['thinking']} {order.kind.name}"
        self._turns.join(key, ModelServer(str(made["base_url"]), same))
        copy = _Copy(key, self._files, self._server, self._turns, session_of, told, owner)
        self._copies[key] = copy
        return copy

    async def close(self) -> None:
        """See `AgentCopies.close`."""
        self._is_closed = True
        await self._server.close()
        await self._files.close()

    # -- whose request leaves next ---------------------------------------------------------------

    def _n_at_once(self, url: str) -> int:
        usual = max(1, self._soul.agents_config.parallel)
        return n_at_once(self._launch, self._is_one_at_a_time, url, usual)

    def _go(self, key: str) -> None:
        self._copies[key].go()

    def _waits(self, key: str, why: Wait) -> None:
        self._copies[key].owner.waits(_WAITING[why])


class _Copy:
    """One sub-agent in a copy; see `RunningCopy`."""

    def __init__(
        self,
        key: str,
        files: SetFiles,
        server: StartServer,
        turns: ModelTurns,
        session: Session,
        order: Order,
        owner: CopyOwner,
    ) -> None:
        self.owner = owner
        self._key = key
        self._files = files
        self._server = server
        self._turns = turns
        self._session = session
        self._order = order
        self._process: FutureProcess | None = None
        self._is_stopped = False
        self._model = ""
        self._decoder = Decoder()
        self._n_records = 0
        self._ended: Mapping[str, Any] | None = None
        self._asking: dict[int, asyncio.Task[None]] = {}
        self._is_begun = False
        self._said: list[str] = []
        """The messages that came before it could take any."""
        self._unread = list(lenient_json.listing(order.agent.get("said")))
        """The messages that are not in its conversation yet, oldest first."""

    async def run(self) -> CopyEnd:
        """See `RunningCopy.run`."""
        work = self._session.work_dir
        is_moved = False
        try:
            view = await self._files.view()
            is_moved = view.tier == "elsewhere"
            if is_moved:
                await asyncio.to_thread(move_to, self._session, work, view.folder)
            words = ("level:view", *view.words()) if not is_moved else ()
            port = free_ports(1)[0]
            order = self._order._replace(variables={"PORT": str(port), **view.variables})
            process = FutureProcess(self._key, self._server, self._heard, words, view.folder)
            why = ""
            if not self._is_stopped:
                self._process = process
                why = await process.run(order)
        except OSError as error:
            why = reason_of(error)
        finally:
            self._process = None
            self._turns.leave(self._key)
            asking = list(self._asking.values())
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
            for text in self._unread:
                self.owner.unsaid(text)
            if is_moved:
                await asyncio.to_thread(move_back, self._session)
        return self._end(why)

    def _end(self, why: str) -> CopyEnd:
        """Return how its turn ended.

        Args:
            why: why its process ended too early; empty if it ended in order.
        """
        ended = self._ended
        if ended is None or ended.get("reason") not in _REASONS:
            if self._is_stopped:
                return CopyEnd("interrupted")
            if not self._model:
                raise NoCopies(why or _NO_END)
            return CopyEnd("error", why or _NO_END)
        if limit := str(ended.get("limit", "")):
            return CopyEnd("error", limit)
        return CopyEnd(ended["reason"], str(ended.get("error", "")), str(ended.get("advice", "")))

    def say(self, text: str) -> None:
        """See `RunningCopy.say`."""
        self._unread.append(text)
        if self._is_begun:
            self._tell(type="steer", text=text)
        else:
            self._said.append(text)

    def set_mode(self, mode: Mode) -> None:
        """See `RunningCopy.set_mode`."""
        self._tell(type="mode", mode=mode)

    def end(self, why: str) -> None:
        """See `RunningCopy.end`."""
        self._tell(type="limit", text=why)

    async def stop(self) -> None:
        """See `RunningCopy.stop`."""
        self._is_stopped = True
        if self._process is not None:
            await self._process.stop()

    def go(self) -> None:
        """Let its request leave that waits."""
        self._tell(type="go")

    def publish(self, event: Event) -> None:
        """Have it publish an event on its own wire, from which it comes back."""
        self._tell(type="event", event=event_record(event))

    def _tell(self, **message: object) -> None:
        if self._process is not None:
            self._process.say(**message)

    def _heard(self, line: Mapping[str, Any]) -> None:
        if "record" in line:
            self._n_records += 1
            stored = lenient_json.mapping(line["record"])
            record = self._decoder.decode_record(stored, self._n_records)
            if record is not None and not record.source:
                if isinstance(record.event, StepRetry) and record.event.status in _TOO_MANY:
                    self._turns.refused(self._key)
                if isinstance(record.event, SteerTaken) and not record.event.handed_back:
                    del self._unread[:1]
                self.owner.heard(record)
        elif "gate" in line:
            turns = self._turns
            said = {"ask": turns.ask, "first": turns.begun, "left": turns.left}
            if (tell := said.get(str(line["gate"]))) is not None:
                tell(self._key)
        elif "spent" in line:
            figures = lenient_json.listing(line["spent"])
            if len(figures) == 4 and isinstance(figures[3], int | float):
                self.owner.spent(float(figures[3]))
        elif "ready" in line:
            self._model = str(lenient_json.mapping(line["ready"]).get("model", ""))
        elif "facts" in line:
            found = map(event_of, lenient_json.listing(line["facts"]))
            self.owner.begun(self._model, [one for one in found if one is not None])
            self._is_begun = True
            for text in self._said:
                self._tell(type="steer", text=text)
            self._said.clear()
        elif "ask" in line:
            self._take_question(line)
        elif "unask" in line:
            task = self._asking.get(lenient_json.count(line["unask"]) or -1)
            if task is not None:
                task.cancel()
        elif "ended" in line:
            self._ended = lenient_json.mapping(line["ended"])

    def _take_question(self, line: Mapping[str, Any]) -> None:
        number = lenient_json.count(line["ask"]) or 0
        task = asyncio.create_task(self._ask(number, line), name="question")
        self._asking[number] = task
        task.add_done_callback(lambda _: self._asking.pop(number, None))

    async def _ask(self, number: int, line: Mapping[str, Any]) -> None:
        """Have a question of its answered, and tell it the answer."""
        answered = partial(self._tell, type="answered", id=number)
        try:
            question = question_of(lenient_json.mapping(line.get("question")))
            key, tool = str(line.get("key", "")), str(line.get("tool", ""))
            text = await self.owner.ask(question, key, tool, self)
        except ToolRejected as no:
            answered(rejected=no.feedback)
        except ToolProblem as problem:
            answered(problem=str(problem), brief=problem.brief)
        except asyncio.CancelledError:
            answered(
                problem="The sub-agent was stopped, so its question was withdrawn.",
                brief="question withdrawn",
            )
            raise
        except Exception as error:
            answered(problem=f"The question could not be asked: {type(error).__name__}.")
        else:
            answered(text=text)


def _choice(made: Mapping[str, Any]) -> ModelChoice:
    """Return the model of a sub-agent, by the arguments with which its provider was made."""
    return ModelChoice(**{name: made[name] for name in ModelChoice._fields if name in made})


def _removed(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        remove_tree(folder)
