"""`Futures`, the futures of one open session: starts sets of them, follows and steers each, and makes them world lines at their end.

Each future works on a fork of the session in a hidden folder, in a process of its own, over files of its own (`process`, `world_line`,
`tools.sandbox.view`). The session and the work folder are not touched before a future is made the current line, which is the
switch of world lines that exists.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kimi_tui import lenient_json
from kimi_tui.agent_parts import REFUSED
from kimi_tui.app_paths import log_words, reason_of
from kimi_tui.display_names import sentences
from kimi_tui.filesystem import remove_tree
from kimi_tui.foreign_text import one_line
from kimi_tui.futures import PREFIX
from kimi_tui.futures.comparing import differences, with_changes
from kimi_tui.futures.orders import Order, choice_record
from kimi_tui.futures.planning import Planned, Planner, n_at_once
from kimi_tui.futures.process import FutureProcess, StartServer
from kimi_tui.futures.set_files import SetFiles, free_ports, move_to
from kimi_tui.futures.turns import ModelServer, ModelTurns, Wait
from kimi_tui.futures.values import LONGEST_CHECK_S, Estimate, FuturesPlan, NoFutures
from kimi_tui.futures.world_line import (
    FutureNote,
    adopt,
    has_step,
    n_checkpoints,
    next_line,
    of_future,
    stored_states,
    write_note,
)
from kimi_tui.prompts import prompt
from kimi_tui.session.errors import SessionError, SessionLocked
from kimi_tui.session.session import Session
from kimi_tui.soul.errors import SoulBusy
from kimi_tui.soul.folder_snapshots import FILES_NAME
from kimi_tui.soul.pruning import agents_of_lines, prune_lines
from kimi_tui.soul.record import end_of_line
from kimi_tui.soul.rewind_values import END, FilesChoice, RewindOutcome, RewindPreview, Target
from kimi_tui.tools.sandbox.view import PastView
from kimi_tui.wire import events as ev
from kimi_tui.wire.codec import Decoder
from kimi_tui.wire.events import ApprovalAnswer, ApprovalRequest, EventRecord, FutureChanged
from kimi_tui.wire.queue import Wire
from kimi_tui.workspace.base import NoBase, Progress
from kimi_tui.workspace.diff import Changes, FileDifference

if TYPE_CHECKING:
    from kimi_tui.agent_parts import Mode
    from kimi_tui.launch import Launch
    from kimi_tui.soul.kimisoul import KimiSoul

log = logging.getLogger(__name__)

STARTS = "Its process is starting."
_LAST_WORDS = 400
_OPINION_CHARS, _TASK_CHARS = 120_000, 4000
_MOST_RECORDS = 20_000
_MOST_TEXT = 1 << 16
_WAITING = {
    "first": "Waiting for another future's first token, so that the shared prompt is cached.",
    "turn": "Waiting for a free slot at the server.",
}
_TOO_MANY = frozenset({429, 503})
_AGENTS_EACH = 100
"""Names of a kind of sub-agents that each future has before it comes to those of the next one."""
_LAST_AGENTS = 900_000
"""Names with larger numbers are passed over, as a name has at most six digits."""
_NO_STEP = "It ended before it finished a step."


@dataclass(slots=True, eq=False)
class _Heard:
    """The events of one agent so far, with texts that continue each other as one, and the wire on which they are published."""

    wire: Wire = field(default_factory=Wire)
    records: list[EventRecord] = field(default_factory=list[EventRecord])

    def take(self, record: EventRecord) -> None:
        """Keep an event, as far as a later listener needs it."""
        records, event = self.records, record.event
        last = records[-1] if records else None
        if (
            last is not None
            and ev.continues(last.event, event)
            and len(ev.text_of(last.event)) < _MOST_TEXT
        ):
            whole = ev.with_text(last.event, ev.text_of(last.event) + ev.text_of(event))
            records[-1] = last._replace(event=whole)
        elif len(records) < _MOST_RECORDS and not isinstance(
            event, ev.ToolOutput | ev.PromptProgress
        ):
            records.append(record)


@dataclass(slots=True, eq=False)
class _HeardAgent(_Heard):
    """The events of a sub-agent of a future, and its state, which is no event of its own."""

    state: EventRecord | None = None


@dataclass(slots=True, eq=False)
class _Future:
    """A future of this run of the program.

    Attributes:
        state: its state.
        planned: what it is to do.
        own: its own events; `agents` has those of its sub-agents, by name.
        fork: its session, once that was made; `n_before` is the number of checkpoints that it has of the session, and the lines
            that it leaves itself have numbers from `first_line`.
        since: the snapshot of the files with which it began.
        port: the TCP port that its commands are told to listen on.
        first_agent: the number from which the names of its own sub-agents count.
        is_ready: whether it can be sent messages; `unread` are those of the user that are not in its conversation yet, oldest first.
    """

    state: FutureChanged
    planned: Planned
    plan: FuturesPlan
    own: _Heard = field(default_factory=_Heard)
    agents: dict[str, _HeardAgent] = field(default_factory=dict[str, _HeardAgent])
    n_heard: int = 0
    decoder: Decoder = field(default_factory=Decoder)
    process: FutureProcess | None = None
    fork: Session | None = None
    n_before: int = 0
    first_line: int = 0
    since: str = ""
    port: int = 0
    first_agent: int = 1
    asked: dict[str, ApprovalRequest] = field(default_factory=dict[str, ApprovalRequest])
    ended: Mapping[str, Any] | None = None
    checked: Mapping[str, Any] | None = None
    is_ready: bool = False
    unread: list[str] = field(default_factory=list[str])
    is_stopped: bool = False
    is_settled: bool = False
    timer: asyncio.TimerHandle | None = None
    differences: list[FileDifference] | None = None


class Futures:
    """The futures of one session.

    Args:
        soul: the engine of the session.
        launch: the options with which the session was opened.
        environ: the environment of the program.
    """

    def __init__(
        self, soul: KimiSoul, launch: Launch, environ: Mapping[str, str] | None = None
    ) -> None:
        self._soul = soul
        self._session = soul.session
        self._launch = launch
        self._environ = dict(os.environ if environ is None else environ)
        self._planner = Planner(soul, launch, self._environ)
        self._known: dict[str, FutureChanged] = {}
        self._since: dict[str, str] = {}
        self._n_noted = -1
        self._learn()
        self._futures: dict[str, _Future] = {}
        self._groups: set[asyncio.Task[None]] = set()
        self._wakes: list[Callable[[str], object]] = []
        self._turns: dict[str, ModelTurns] = {}
        soul.futures = lambda: self.states
        soul.before_close.append(self.aclose)

    def use(self, launch: Launch) -> None:
        """Plan with other options from now on: another model was chosen, or other settings."""
        if launch is not self._launch:
            self._launch = launch
            self._planner = Planner(self._soul, launch, self._environ)

    # -- what there is ---------------------------------------------------------------------------

    @property
    def states(self) -> Sequence[FutureChanged]:
        """The state of each future of the session that was not removed, in the order in which they were started."""
        self._learn()
        return tuple(self._known.values())

    def state(self, key: str) -> FutureChanged:
        """Return the state of a future.

        Raises:
            NoFutures: there is none with that key.
        """
        self._learn()
        if key not in self._known:
            raise NoFutures("There is no such future.", "target")
        return self._known[key]

    def _learn(self) -> None:
        """Take in the stored futures, also those of a killed program that became world lines after this began."""
        noted = len(self._session.context.journal.futures)
        if noted != self._n_noted:
            self._n_noted = noted
            for one, note in stored_states(self._session):
                self._known.setdefault(one.key, one)
                self._since.setdefault(one.key, str(note.get("since", "")))

    @property
    def is_running(self) -> bool:
        """Whether one of them has not ended."""
        return bool(self._groups)

    @property
    def asked(self) -> Sequence[tuple[str, ApprovalRequest]]:
        """The requests of all futures that wait for an answer, each with the key of its future, oldest first."""
        return [
            (key, one) for key, future in self._futures.items() for one in future.asked.values()
        ]

    def wire(self, key: str) -> Wire:
        """Return the wire of a future of this run of the program, with its own events."""
        return self._running(key).own.wire

    def records(self, key: str) -> Sequence[EventRecord]:
        """Return the events of a future of this run of the program so far."""
        return tuple(self._running(key).own.records)

    def agent(self, key: str, name: str) -> tuple[Wire, Sequence[EventRecord]]:
        """Return the wire of a sub-agent of a running future, on which its events and states are published, and those so far.

        Raises:
            NoFutures: the future has no such sub-agent, or does not run here.
        """
        heard = self._running(key).agents.get(name)
        if heard is None:
            raise NoFutures("That sub-agent has not begun in this future.", "target")
        return heard.wire, (*heard.records, *filter(None, [heard.state]))

    async def history(self, key: str) -> Sequence[EventRecord]:
        """Return the events of the world line from which a future branches off, before the checkpoint with which it began.

        Raises:
            NoFutures: there is no such future, or the world line that it continues was deleted.
        """
        state = self.state(key)
        gone = NoFutures("The world line that this future continues was deleted.", "target")
        end = state.after
        is_live = not state.from_line
        try:
            told = await (
                self._soul.history() if is_live else self._soul.lines.read(state.from_line)
            )
        except KeyError as error:
            if end is None:
                raise gone from error
            # The line is the current one, unless it was deleted.
            is_live, told = True, await self._soul.history()
        if end is not None:
            n = await asyncio.to_thread(end_of_line, told, end)
            if n is None and is_live and state.from_line:
                raise gone
            return told[:n]
        found: list[EventRecord] = []
        begun = -1
        for record in told:
            match record.event:
                case ev.CheckpointCreated(uid=uid) if uid and uid == state.uid:
                    return found[:begun] if begun >= 0 else found
                case ev.TurnBegin():
                    begun = len(found)
                case ev.CheckpointCreated():
                    begun = -1
                case _:
                    pass
            found.append(record)
        return found

    def process_id(self, key: str) -> int:
        """Return the process id of a future; 0 if it has no process now."""
        future = self._futures.get(key)
        return 0 if future is None or future.process is None else future.process.pid

    def subscribe(self, wake: Callable[[str], object]) -> None:
        """Have a function called with the key of each future that changes."""
        self._wakes.append(wake)

    def unsubscribe(self, wake: Callable[[str], object]) -> None:
        """End that."""
        with contextlib.suppress(ValueError):
            self._wakes.remove(wake)

    def _running(self, key: str) -> _Future:
        future = self._futures.get(key)
        if future is None:
            raise NoFutures(
                "That future is not running in this window of kimi-tui, so it cannot be controlled from here.",
                "target",
            )
        return future

    # -- the start -------------------------------------------------------------------------------

    async def estimate(self, plan: FuturesPlan) -> Estimate:
        """Return what a plan costs, shares and leaves open; nothing is made.

        Raises:
            NoFutures: the plan cannot be carried out.
        """
        return await self._planner.estimate(plan)

    async def start(self, plan: FuturesPlan) -> tuple[str, ...]:
        """Start the futures of a plan; return their keys. Events tell how they go on.

        No message that the user says after this has returned is part of a future.

        Raises:
            NoFutures: the plan cannot be carried out.
        """
        planned = await self._planner.planned(plan)
        group = uuid.uuid4().hex[:12]
        first_agent = self._next_first_agent()
        futures: list[_Future] = []
        for number, one in enumerate(planned, 1):
            state = FutureChanged(
                key=f"{group}-{number}",
                group=group,
                number=number,
                name=one.name,
                checkpoint_id=plan.target.id,
                uid=one.uid,
                from_line=plan.target.world_line,
                message=one.message,
                model=one.choice.model,
                began_at=time.time(),
            )
            first = first_agent + (number - 1) * _AGENTS_EACH
            futures.append(_Future(state, one, plan, first_agent=first))
        for future in futures:
            self._futures[future.state.key] = future
            self._publish(future, future.state)
        try:
            await self._begin(plan, futures)
        except (NoFutures, OSError, SessionError, SoulBusy) as error:
            # An error at the start ends each future, as a later error does.
            for future in futures:
                self._fail(future, reason_of(error))
        task = asyncio.create_task(self._group(group, futures), name="futures")
        self._groups.add(task)
        task.add_done_callback(self._groups.discard)
        return tuple(one.state.key for one in futures)

    def _next_first_agent(self) -> int:
        """Return the number from which the names of a new set's sub-agents count, so that none is that of another one.

        A sub-agent keeps its name when its future becomes a world line, as the conversation has it.
        """
        agents = () if self._soul.agents is None else self._soul.agents.states
        numbers = [int(one.name.rpartition("-")[2]) for one in agents]
        numbers += [one.first_agent for one in self._futures.values()]
        numbers = [one for one in numbers if one < _LAST_AGENTS]
        return (max(numbers, default=0) // _AGENTS_EACH + 1) * _AGENTS_EACH + 1

    async def _group(self, group: str, futures: Sequence[_Future]) -> None:
        """Make the files of a set, run its futures, and remove the files."""
        turns = ModelTurns(
            partial(n_at_once, self._launch, self._soul.one_at_a_time),
            lambda key: self._say(key, type="go"),
            self._waits,
        )
        files = SetFiles(self._session, group, self._environ)
        server = StartServer([one.state.key for one in futures], self._environ)
        begun: list[asyncio.Task[None]] = []
        try:
            if all(future.state.is_over for future in futures):
                return
            await server.start()
            await self._open(files, futures)
            for future in futures:
                turns.join(
                    future.state.key,
                    ModelServer(future.planned.choice.base_url, future.planned.sameness),
                )
                self._turns[future.state.key] = turns
            begun = [
                asyncio.create_task(self._run(future, files, turns, server), name="future")
                for future in futures
            ]
            await asyncio.wait(begun)
        except (NoBase, NoFutures, OSError, SessionError, SoulBusy) as error:
            for future in futures:
                self._fail(future, reason_of(error))
        except Exception as error:
            log.exception("a set of futures failed")
            for future in futures:
                self._fail(
                    future,
                    f"kimi-tui had an internal error ({type(error).__name__}). {log_words()}",
                )
        finally:
            for task in begun:
                task.cancel()
            await asyncio.gather(*begun, return_exceptions=True)
            for future in futures:
                self._turns.pop(future.state.key, None)
                if not future.state.is_over:
                    self._change(future, state="stopped", ended_at=time.time())
                await self._adopted(future)
                for one in (future.own, *future.agents.values()):
                    one.wire.close()
            await server.close()
            await files.close()

    async def _begin(self, plan: FuturesPlan, futures: Sequence[_Future]) -> None:
        """Take the snapshot with whose files a set begins, and fork the session for each of its futures.

        At the end of the current line no turn may come between the two.
        """

        async def begun() -> None:
            since = await self._planner.files(plan.target)
            await self._soul.flush()
            target = plan.target
            end = await self._planner.newest(target.world_line) if target.is_end else None
            for future in futures:
                if end is not None:
                    self._change(future, after=end)
                await self._forked(future, since)

        if plan.target.is_end and not plan.target.world_line:
            await self._soul.when_idle(begun)
        else:
            await begun()

    def _fail(self, future: _Future, words: str) -> None:
        if future.is_stopped and not future.state.is_over:
            self._change(future, state="stopped", why="", ended_at=time.time())
        elif not future.state.is_over:
            self._change(future, state="failed", why=words, ended_at=time.time())

    async def _open(self, files: SetFiles, futures: Sequence[_Future]) -> None:
        """Write the files of a set."""
        loop = asyncio.get_running_loop()

        def are_stopped() -> bool:
            return all(future.is_stopped for future in futures)

        def told(progress: Progress) -> None:
            words = f"Writing its files: {progress.done:,} of {progress.of:,}."
            loop.call_soon_threadsafe(self._tell_all, futures, words)

        await files.open(futures[0].since, self._planner.ground, told, are_stopped)
        self._tell_all(futures, "")
        await files.stamp([one.fork.dir for one in futures if one.fork is not None])
        for future, port in zip(futures, free_ports(len(futures)), strict=True):
            future.port = port
            self._change(future, tier=files.tier)

    def _tell_all(self, futures: Sequence[_Future], words: str) -> None:
        for future in futures:
            if future.state.state == "preparing":
                self._change(future, why=words)

    async def _run(
        self, future: _Future, files: SetFiles, turns: ModelTurns, server: StartServer
    ) -> None:
        """Run one future to its end, and make it a world line."""
        key = future.state.key
        try:
            if not future.is_stopped:
                view = await files.view()
                self._change(future, why=STARTS)
                why = await self._run_process(future, view, server)
                self._take_end(future, why)
            else:
                self._change(future, state="stopped", ended_at=time.time())
        except (OSError, SessionError, NoFutures) as error:
            self._fail(future, reason_of(error))
        finally:
            if future.timer is not None:
                future.timer.cancel()
            future.process = None
            turns.leave(key)
        await self._adopted(future)

    async def _forked(self, future: _Future, since: str) -> None:
        target = future.plan.target
        fork = await self._session.fork(
            None if target.is_end else target.id,
            target.world_line,
            name=f"{PREFIX}{future.state.key}",
        )
        future.fork, future.since = fork, since
        future.n_before = await asyncio.to_thread(n_checkpoints, fork.dir)
        future.first_line = await asyncio.to_thread(next_line, fork.dir)
        await self._note(future)

    async def _note(self, future: _Future) -> None:
        """Write the note of a future beside its session."""
        assert future.fork is not None
        note = FutureNote(
            self._session.id, future.since, future.n_before, future.first_line, future.state
        )
        await asyncio.to_thread(write_note, self._session.storage, future.fork.dir, note)

    async def _run_process(self, future: _Future, view: PastView, server: StartServer) -> str:
        assert future.fork is not None
        if view.tier == "elsewhere":
            await asyncio.to_thread(move_to, future.fork, self._session.work_dir, view.folder)
        words = ("level:view", *view.words()) if view.tier != "elsewhere" else ()
        planned, plan, soul = future.planned, future.plan, self._soul
        order = Order(
            session=str(future.fork.dir),
            message=planned.message,
            choice=choice_record(planned.choice),
            options={
                "mode": soul.mode,
                "sandbox": self._launch.sandbox,
                "bare": self._launch.bare,
                "added": [str(one) for one in self._launch.added],
            },
            max_steps=plan.caps.steps,
            max_tokens=plan.caps.tokens,
            max_cost=plan.caps.cost,
            check=plan.check,
            check_s=LONGEST_CHECK_S,
            network=plan.network,
            variables={"PORT": str(future.port), **view.variables},
            images=[asdict(one) for one in planned.images],
            known=self._planner.known(planned.choice),
            first_agent=future.first_agent,
            stands_for=str(self._session.dir),
        )
        process = FutureProcess(
            future.state.key, server, partial(self._heard, future), words, view.folder
        )
        future.process = process
        return "" if future.is_stopped else await process.run(order)

    # -- what a process tells --------------------------------------------------------------------

    def _heard(self, future: _Future, line: Mapping[str, Any]) -> None:
        turns = self._turns.get(future.state.key)
        key = future.state.key
        if "record" in line:
            stored = lenient_json.mapping(line["record"])
            future.n_heard += 1
            record = future.decoder.decode_record(stored, future.n_heard)
            if record is not None:
                self._take(future, record)
        elif "gate" in line and turns is not None:
            said = {"ask": turns.ask, "first": turns.begun, "left": turns.left}
            if (tell := said.get(str(line["gate"]))) is not None:
                tell(key)
        elif "spent" in line:
            figures = lenient_json.listing(line["spent"])
            if len(figures) == 4:
                counts = [lenient_json.count(one) or 0 for one in figures[:3]]
                cost = float(figures[3])
                self._change(future, input=counts[0], cached=counts[1], output=counts[2], cost=cost)
        elif "ready" in line:
            future.is_ready = True
            for text in future.unread:
                self._say(key, type="steer", text=text)
            seconds, process = future.plan.caps.seconds, future.process
            if seconds and process is not None:
                limit = f"It was stopped at its time limit of {seconds:g} s."
                future.timer = asyncio.get_running_loop().call_later(
                    seconds, partial(process.say, type="limit", text=limit)
                )
            if future.state.state == "preparing":
                self._change(future, state="running", why="")
        elif "ended" in line:
            future.ended = lenient_json.mapping(line["ended"])
            if future.ended.get("checks"):
                self._change(future, state="checking", why="", asks=())
        elif "checked" in line:
            future.checked = lenient_json.mapping(line["checked"])

    def _take(self, future: _Future, record: EventRecord) -> None:
        event = record.event
        if record.source:
            # The events of a sub-agent are told to those who look at it.
            heard = future.agents.setdefault(record.source, _HeardAgent())
            heard.take(record._replace(source=""))
            heard.wire.publish(event)
            return
        future.own.take(record)
        match event:
            case ev.AgentChanged(name=name):
                heard = future.agents.setdefault(name, _HeardAgent())
                heard.state = record
                heard.wire.publish(event)
            case ev.StepBegin(n):
                self._change(future, step=n)
            case ev.SteerTaken(handed_back=False):
                del future.unread[:1]
            case ev.ApprovalRequest():
                future.asked[event.id] = event
                self._change(future, state="asking", asks=tuple(future.asked))
            case ev.ApprovalResolved(request_id):
                if future.asked.pop(request_id, None) is not None:
                    is_asking = bool(future.asked)
                    self._change(
                        future,
                        state="asking" if is_asking else "running",
                        asks=tuple(future.asked),
                    )
            case ev.StepRetry(wait_s=wait_s, reason=reason, status=status):
                if status in _TOO_MANY and (turns := self._turns.get(future.state.key)) is not None:
                    turns.refused(future.state.key)
                if wait_s:
                    again = f"Retrying in {math.ceil(wait_s)} s."
                    words = f"Its request failed: {one_line(reason).rstrip('.')}. {again}"
                    self._change(future, state="waiting", why=words)
            case _:
                pass
        future.own.wire.publish(event)

    def _waits(self, key: str, why: Wait) -> None:
        future = self._futures.get(key)
        if future is None or future.state.is_over or future.state.state in ("asking", "checking"):
            return
        state = "waiting" if why else "running"
        words = _WAITING.get(why, "")
        if (future.state.state, future.state.why) != (state, words):
            self._change(future, state=state, why=words)

    def _take_end(self, future: _Future, why: str) -> None:
        """Set the state with which a future has ended.

        Args:
            future: the future.
            why: why its process ended too early; empty if it ended in order.
        """
        ended, checked = future.ended, future.checked
        facts: dict[str, Any] = {"asks": (), "ended_at": time.time(), "why": ""}
        future.asked.clear()
        if ended is None:
            is_stopped = future.is_stopped
            facts["state"] = "stopped" if is_stopped else "failed"
            facts["why"] = "" if is_stopped else why or _NO_STEP
        else:
            answer = one_line(str(ended.get("answer", "")))
            facts["last_words"] = answer[:_LAST_WORDS]
            reason, kind = str(ended.get("reason")), str(ended.get("kind", ""))
            error = sentences(str(ended.get("error", "")), str(ended.get("advice", "")))
            if reason == "done":
                facts["state"] = "done"
            elif reason == "rejected":
                facts |= {"state": "stopped", "why": REFUSED}
            elif limit := str(ended.get("limit", "")):
                facts |= {"state": "stopped", "why": limit}
            elif kind in ("steps", "budget"):
                facts |= {"state": "stopped", "why": error}
            elif reason == "interrupted":
                facts["state"] = "stopped"
            else:
                facts |= {"state": "failed", "why": error}
        if future.plan.check:
            code = None if checked is None else checked.get("exit")
            facts["check"] = (
                "not run" if not isinstance(code, int) else "passed" if code == 0 else "failed"
            )
            if checked is not None:
                facts["check_exit"] = code if isinstance(code, int) else -1
                facts["check_s"] = float(checked.get("seconds") or 0.0)
                facts["check_output"] = str(checked.get("output", ""))
        future.state = replace(future.state, **facts)

    # -- the end ---------------------------------------------------------------------------------

    async def _adopted(self, future: _Future) -> None:
        """Make an ended future a world line, or remove what it left if it has no step."""
        fork, state = future.fork, future.state
        if future.is_settled:
            return
        future.is_settled = True
        for text in future.unread:
            self._soul.return_unread(f"Future {state.number}", text)
        if fork is None:
            self._publish(future, state)
            return
        try:
            await self._compared(future)
            self._publish(future, future.state)
            if not await asyncio.to_thread(has_step, fork.dir, future.n_before, future.first_line):
                await asyncio.to_thread(remove_tree, fork.dir)
                return
            # The session may be busy for long; its next opening takes the future up if the program does not live to do so.
            await self._note(future)
            state = await adopt(self._soul, fork.dir, future.state, future.since)
            self._since[state.key] = future.since
            self._publish(future, state)
        except SoulBusy:
            log.info("the session was closed before a future became its world line")
        except (OSError, SessionError, SessionLocked) as error:
            words = reason_of(error)
            log.warning("a future could not become a world line", exc_info=error)
            self._publish(
                future,
                replace(
                    future.state,
                    why=f"It could not be made a world line: {words.rstrip('.')}. The next start tries again.",
                ),
            )

    async def _compared(self, future: _Future) -> None:
        """Set what a future changed."""
        assert future.fork is not None
        folder = future.fork.dir / FILES_NAME
        try:
            found = await asyncio.to_thread(
                differences, folder, self._session.work_dir, future.since
            )
        except (OSError, NoBase):
            return
        future.differences = found
        future.state = with_changes(future.state, found, future.plan.check)

    async def differences(self, key: str) -> list[FileDifference]:
        """Return the files that an ended future changed, against its beginning.

        Raises:
            NoFutures: there is no such future.
            NoBase: its snapshots are gone.
            OSError: they cannot be read.
        """
        state = self.state(key)
        future = self._futures.get(key)
        if future is not None and future.differences is not None:
            return future.differences
        folder, work, since = self._session.dir / FILES_NAME, self._session.work_dir, ""
        since = self._since.get(key, "")
        if not state.world_line:
            return []
        line = await asyncio.to_thread(self._session.world_lines.read, state.world_line)
        newest = line.checkpoints[-1].uid if line.checkpoints else ""
        return await asyncio.to_thread(differences, folder, work, since, newest)

    async def ended(self) -> None:
        """Wait until all of them have ended, and are world lines."""
        while self._groups:
            await asyncio.wait(list(self._groups))

    # -- what the user does ----------------------------------------------------------------------

    def steer(self, key: str, text: str) -> None:
        """Say something to a running future; it goes in before its next step. A message that it does not read is given back to the user."""
        future = self._running(key)
        if future.is_settled:
            self._soul.return_unread(f"Future {future.state.number}", text)
            return
        future.unread.append(text)
        if future.is_ready:
            self._say(key, type="steer", text=text)

    def answer(self, key: str, request_id: str, answer: ApprovalAnswer, feedback: str = "") -> None:
        """Answer a request of a future; a yes for the session holds for that future."""
        self._say(key, type="answer", id=request_id, answer=answer, feedback=feedback)

    def set_mode(self, key: str, mode: Mode) -> None:
        """Set what a running future may do without asking."""
        self._say(key, type="set_mode", mode=mode)

    async def stop(self, key: str) -> None:
        """Stop a future; its finished steps are kept."""
        future = self._futures.get(key)
        if future is None or future.state.is_over:
            return
        future.is_stopped = True
        if future.process is not None:
            await future.process.stop()

    async def stop_all(self) -> None:
        """Stop all of them."""
        await asyncio.gather(*(self.stop(key) for key in list(self._futures)))

    async def preview(self, key: str) -> RewindPreview:
        """Return the effects of making a future the current line.

        Raises:
            NoFutures: it is no world line (yet).
        """
        target = self._target(key)
        await self._soul.files_ready()
        return await self._soul.travel.preview(target)

    async def make_current(
        self,
        key: str,
        files: FilesChoice = "restore",
        chosen: Sequence[str] | None = None,
    ) -> RewindOutcome:
        """Make a future the current line, with its files; `KimiSoul.travel.undo` reverses it as one operation.

        Raises:
            NoFutures: it is no world line (yet).
            FilesUnknown: its files cannot be brought; nothing changed.
            SessionError: it is the current line already.
            SoulBusy: something runs.
            OSError: the disk refused.
        """
        target = self._target(key)
        await self._soul.files_ready()
        return await self._soul.travel.rewind(target, files, chosen)

    async def take_file(self, key: str, path: str) -> RewindOutcome:
        """Bring one file as a future left it, and nothing else. Raises what `make_current` raises."""
        return await self.make_current(key, "only", [path])

    def _target(self, key: str) -> Target:
        state = self.state(key)
        if not state.world_line:
            raise NoFutures(
                "That future is still running. Wait until it ends, or stop it."
                if not state.is_over
                else "That future has no finished step, so there is nothing to switch to."
            )
        return Target(END, state.world_line)

    async def opinion(self, keys: Sequence[str] = ()) -> str:
        """Have the model of the session write a note on ended futures, which ranks nothing; empty if the call was stopped.

        Args:
            keys: the futures; none for all that have ended.

        Raises:
            NoFutures: none of them has ended.
            LLMError: the model could not be asked.
            SoulBusy: something runs.
        """
        chosen = [one for one in self.states if one.is_over and one.key in (keys or self._known)]
        if not chosen:
            raise NoFutures("No future has ended yet.", "target")
        room = _OPINION_CHARS // len(chosen)
        parts = [await self._described(one, room) for one in chosen]
        text = prompt("futures_opinion", FUTURES="\n\n".join(parts))
        return await self._soul.changes.note_on(prompt("futures_opinion_system"), text)

    async def _described(self, state: FutureChanged, most_chars: int) -> str:
        """Return the task, the end and the changes of a future as text for a model."""
        try:
            found = await self.differences(state.key)
        except (OSError, NoBase):
            found = []
        changes = Changes(tuple(found))
        patch = await asyncio.to_thread(self._soul.changes.patch, changes, most_chars)
        check = f"The check {state.check}.\n" if state.check else ""
        return (
            f"<future name={json.dumps(state.name)}>\nTask: {state.message[:_TASK_CHARS]}\n{check}"
            f"Last words: {state.last_words}\nChanges:\n{patch}\n</future>"
        )

    async def prune(self, keys: Sequence[str]) -> None:
        """Remove ended futures, with their world lines.

        Raises:
            StorageTrouble: a world line could not be deleted.
        """
        self._learn()
        chosen = [self._known[key] for key in keys if key in self._known]
        stored = [one.key for one in chosen if one.is_over and one.world_line]
        if stored:
            await self._soul.when_idle(partial(self._pruned, stored))
        for one in chosen:
            if one.is_over:
                self._known.pop(one.key, None)
                future = self._futures.pop(one.key, None)
                gone = replace(one, removed_at=time.time())
                self._soul.wire.publish(gone)
                self._wake(one.key)
                if future is not None:
                    future.state = gone

    async def _pruned(self, keys: Sequence[str]) -> None:
        agents, session = self._soul.agents, self._session
        lines = {n for key in keys for n in await asyncio.to_thread(of_future, session, key)}
        if agents is None:
            await asyncio.to_thread(prune_lines, session, lines)
            return
        await agents.forget(await asyncio.to_thread(agents_of_lines, session, lines))
        try:
            await asyncio.to_thread(prune_lines, session, lines)
        except OSError:
            # The sub-agents that are still on the disk are shown again.
            await agents.take_in()
            raise

    async def aclose(self) -> None:
        """Stop what runs, and make it world lines; the engine calls it before it closes the session."""
        await self.stop_all()
        await self.ended()

    # -- implementation --------------------------------------------------------------------------

    def _say(self, key: str, **message: object) -> None:
        future = self._futures.get(key)
        if future is not None and future.process is not None:
            future.process.say(**message)

    def _change(self, future: _Future, **facts: Any) -> None:
        self._publish(future, replace(future.state, **facts))

    def _publish(self, future: _Future, state: FutureChanged) -> None:
        future.state = self._known[state.key] = state
        self._soul.wire.publish(state)
        self._wake(state.key)

    def _wake(self, key: str) -> None:
        for wake in list(self._wakes):
            wake(key)
