"""Two that listen to one session know the same of it, whatever happens and whenever they began to; so does who opens it anew."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import random
import shutil
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from support.soul import Tool, until_end

from kimi_tui.agent_parts import Mode
from kimi_tui.app_paths import config_dir
from kimi_tui.llm.completion import RetryPolicy
from kimi_tui.llm.errors import APIStatusError, LLMError
from kimi_tui.llm.message import Message
from kimi_tui.llm.provider import (
    ChatProvider,
    Finished,
    ModelInfo,
    StreamItem,
    TextDelta,
    ThinkDelta,
    ToolCallDelta,
    ToolSpec,
    Usage,
)
from kimi_tui.projection.session_model import SessionModel
from kimi_tui.session.errors import SessionError
from kimi_tui.session.session import Session
from kimi_tui.session.store import SessionStore
from kimi_tui.soul.agent_kinds import SessionKinds
from kimi_tui.soul.agents_part import AgentsPart
from kimi_tui.soul.assembly import open_soul
from kimi_tui.soul.bookmarks import UserMarks
from kimi_tui.soul.errors import SoulBusy, SoulError
from kimi_tui.soul.inbox import Inbox
from kimi_tui.soul.kimisoul import KimiSoul
from kimi_tui.soul.parts import DMails, Lines, Tasks, Travel, UserPermissions
from kimi_tui.soul.rewind_values import END, FilesChoice, Target
from kimi_tui.soul.skills import SessionSkills
from kimi_tui.soul.subagents import Subagents
from kimi_tui.tools.agent import AgentTool
from kimi_tui.tools.base import Tool as AnyTool
from kimi_tui.tools.base import ToolEnv
from kimi_tui.tools.outcome import ToolOutcome
from kimi_tui.tools.sandbox.policy import NoSandbox
from kimi_tui.tools.toolset import default_toolset
from kimi_tui.wire import events as ev
from kimi_tui.wire.events import EventRecord
from kimi_tui.wire.queue import Subscription

PATIENCE_S = 50.0
QUICK = RetryPolicy(max_attempts=2, initial_s=0.001, max_s=0.002, jitter_s=0.0)


class Speaker(ChatProvider):
    """A model that does in each step what it is told to, and then only speaks."""

    def __init__(self, name: str, setting: str = "", use_tools: bool = True) -> None:
        self.name = name
        self.setting = setting
        self.use_tools = use_tools
        self.steps: deque[tuple[str, dict[str, Any]] | Exception] = deque()
        self.n_said = 0

    @property
    def info(self) -> ModelInfo:
        is_thinking = self.setting not in ("", "off")
        effort = self.setting if self.setting != "on" else ""
        return ModelInfo("test", self.name, 60_000, thinking=is_thinking, effort=effort)

    @property
    def thinking_choices(self) -> tuple[str, ...]:
        return ("on", "off", "low") if self.name != "mute" else ()

    @property
    def thinking_setting(self) -> str:
        return self.setting

    def set_thinking(self, word: str) -> None:
        if word not in self.thinking_choices:
            raise LLMError(f"{self.name} does not take {word}.")
        self.setting = word

    async def generate(
        self,
        system: str,
        tools: Sequence[ToolSpec],
        history: Sequence[Message],
        *,
        most_tokens: int = 0,
    ) -> AsyncGenerator[StreamItem]:
        self.n_said += 1
        sent = 500 + sum(20 + len(message.text) for message in history)
        step = self.steps.popleft() if self.steps and tools else None
        if self.info.thinking:
            yield ThinkDelta(f"thought {self.n_said}")
        yield TextDelta(f"answer {self.n_said}")
        if isinstance(step, Exception):
            raise step
        if step is not None:
            yield ToolCallDelta(0, f"call_{self.n_said}", step[0], json.dumps(step[1]))
        yield Usage(sent, 25)
        yield Finished("stop" if step is None else "tool_calls")

    async def aclose(self) -> None:
        pass


async def _note(arguments: dict[str, Any], env: ToolEnv) -> ToolOutcome:
    return ToolOutcome("noted")


def facts_of(model: SessionModel) -> dict[str, Any]:
    """All that a listener knows, but for what is of a moment."""
    lines, figures = model.timeline.lines.world_lines, model.timeline.lines.figures

    def path(points: Sequence[Any]) -> list[tuple[object, ...]]:
        return [
            (p.uid, p.id, p.kind, p.tokens, p.measured, p.bookmark, p.pinned, p.at, p.words)
            for p in points
        ]

    left = {
        n: (one.reason, one.at, one.text, one.from_id, one.to_id, one.by_user, one.tokens_before)
        for n, one in lines.left.items()
    }
    paths = {
        0: path(lines.live.points),
        **{n: path(one.path.points) for n, one in lines.left.items()},
    }
    uids = {point[0] for points in paths.values() for point in points}
    return {
        "state": model.state._replace(prompt_read=-1.0, ready=True),
        "left": left,
        "order": list(left),
        "paths": paths,
        "figures": {uid: (figures.get(str(uid)), figures.left_by(str(uid))) for uid in uids},
        "names": dict(model.timeline.bookmarks),
        "pins": model.timeline.pins,
        "gauge": (model.gauge.status, model.gauge.freed),
    }


def differ(one: dict[str, Any], other: dict[str, Any], what: str) -> None:
    """Fail with what differs, where anything does."""
    if one == other:
        return
    state, known = one["state"]._asdict(), other["state"]._asdict()
    lines = [
        f"{name}: {state[name]} != {known[name]}" for name in state if state[name] != known[name]
    ]
    lines += [f"{name}: {one[name]} != {other[name]}" for name in one if one[name] != other[name]]
    pytest.fail(f"{what}: " + "\n".join(line for line in lines if not line.startswith("state:")))


def said_in(model: SessionModel) -> list[tuple[object, ...]]:
    """The blocks of the chat, as they are told apart."""
    return [
        (
            type(one).__name__,
            getattr(one, "text", ""),
            one.checkpoint,
            one.uid,
            one.number,
            one.live,
            one.pinned,
        )
        for one in model.chat.blocks
    ]


class Listener:
    """Knows a session from its history and what follows."""

    def __init__(self, told: Sequence[EventRecord], heard: Subscription, *, running: bool) -> None:
        self.model = SessionModel()
        self.heard = heard
        self.is_lost = False
        self.take(told)
        self.model.settle(running=running)

    def take(self, records: Sequence[EventRecord]) -> None:
        for record in records:
            self.is_lost |= self.model.apply(record).chat.rebuild

    def follow(self) -> None:
        self.take(self.heard.drain())


class Travels:
    """A session, driven at random through the engine's interface, with two that listen to it.

    Args:
        folder: a folder for all files.
        seed: the seed of what is random.
        attended: whether the engine begins turns by itself with what is said, as it does for a screen.
    """

    def __init__(self, folder: Path, seed: int, *, attended: bool = False) -> None:
        self.folder = folder
        self.attended = attended
        self.work = folder / "work"
        self.work.mkdir()
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.n_words = 0
        self.n_joined = self.n_joined_running = self.n_reopened = 0
        self.n_taken_back = 0
        self.n_carried_out = 0
        """The commands of the front end that are being carried out: the engine does not run then, and is not idle."""
        self.turn: asyncio.Task[None] | None = None
        self.model = Speaker("first")
        self.mode: Mode = "edits"
        self.extra: list[str] = []
        self.soul: KimiSoul
        self.session: Session
        self.first: Listener
        self.second: Listener
        self._ear: Subscription

    async def open(self) -> None:
        self.session = SessionStore(self.folder / "data").create(self.work)
        self.soul = await self._opened(self.session, self.model)
        if self.attended:
            self.attending = asyncio.create_task(self.attend())
        self.first = self._joined(self.soul)
        self.second = Listener(*await self.soul.listen(), running=False)
        self._ear = self.soul.wire.subscribe()

    async def attend(self) -> None:
        await self.soul.attend()

    async def _opened(self, session: Session, model: Speaker) -> KimiSoul:
        tools = default_toolset().without(*self.extra)
        soul = await open_soul(
            session=session,
            provider=model,
            mode=self.mode,
            toolset=tools.with_added(map(self._added, self.extra)),
            environ={"PATH": "/usr/bin:/bin"},
            policy=QUICK,
            follow_files=False,
        )
        soul.skills, soul.kinds = SessionSkills(self.work), SessionKinds(self.work)
        return soul

    def _added(self, name: str) -> AnyTool[Any]:
        """Return a tool as the operations have left it."""
        if name == "Skill":
            found = SessionSkills(self.work).tool()
            assert found is not None
            return found
        return AgentTool(SessionKinds(self.work).usable()) if name == "Agent" else Tool(name, _note)

    def _joined(self, soul: KimiSoul) -> Listener:
        heard = soul.wire.subscribe()
        return Listener(soul.hand_over_history(), heard, running=False)

    # -- what is done ---------------------------------------------------------------------------

    def words(self) -> str:
        self.n_words += 1
        return f"words {self.n_words}"

    def a_target(self) -> Target:
        """A checkpoint, or the end, of any line."""
        lines = self.first.model.timeline.lines.world_lines
        number = self.random.choice([0, 0, 0, *lines.left])
        points = lines.left[number].path.points if number else lines.live.points
        ids = [point.id for point in points] + ([END] if number else [])
        return Target(self.random.choice(ids or [0]), number)

    def a_point(self) -> str:
        lines = self.first.model.timeline.lines.world_lines
        points = lines.live.points or [one for n in lines.left.values() for one in n.path.points]
        return self.random.choice(points).uid if points else "nowhere"

    async def turn_(self) -> None:
        self._script()
        await self._begin(self._turn(self.words()))

    async def _turn(self, text: str) -> None:
        """Run a turn, or have the engine begin one and those that follow it, until none is left to be begun."""
        if not self.attended or self.soul.running:
            await self.soul.run(text)
            return
        heard = self.soul.wire.subscribe()
        self.soul.say(text)
        try:
            async for _ in heard:
                if not self.soul.running and self.soul.inbox.due is None and not self.n_carried_out:
                    return
        finally:
            self.soul.wire.unsubscribe(heard)

    def _script(self) -> None:
        choose = self.random.choice
        known = [one.id for one in self.first.model.timeline.tree.live]
        for _ in range(self.random.randrange(3)):
            self.model.steps.append(
                choose(
                    [
                        ("WriteFile", {"path": choose("abc"), "content": f"{self.words()}\n"}),
                        ("ReadFile", {"path": "a"}),
                        (
                            "SendDMail",
                            {"message": self.words(), "checkpoint_id": choose(known or [0])},
                        ),
                        APIStatusError("Busy.", status=503, retryable=True),
                        APIStatusError("Not today.", status=400, retryable=False),
                        ("Shell", {"command": f"echo {self.n_words}"}),
                    ]
                )
            )

    async def _begin(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a turn until it ends, or waits for an answer."""
        if self.soul.running:
            await work  # it is refused
        if self.turn is not None:
            # A turn that waited for an answer has gone on without one and ended: a mode allowed what it asked for.
            await self._goes_on()
        self._ear.drain()
        self.turn = asyncio.create_task(until_end(work))
        await self._goes_on()

    async def _goes_on(self) -> None:
        """Wait until the turn ends or asks."""
        assert self.turn is not None
        turn = self.turn
        async with asyncio.timeout(PATIENCE_S):
            while not turn.done():
                asking = asyncio.ensure_future(self._asked())
                await asyncio.wait([turn, asking], return_when=asyncio.FIRST_COMPLETED)
                if asking.done():
                    return
                asking.cancel()
        self.turn = None
        self.model.steps.clear()
        await turn

    async def _asked(self) -> None:
        async for record in self._ear:
            if isinstance(record.event, ev.ApprovalRequest):
                return

    async def answer(self) -> None:
        self.first.follow()
        asked = self.first.model.state.approvals
        if not asked:
            return
        answer = self.random.choice(get_args(ev.ApprovalAnswer))
        feedback = self.random.choice(["", "Not so."]) if answer == "no" else ""
        self.soul.answer(asked[0].id, answer, feedback)
        await self._goes_on()

    async def steer(self) -> None:
        if self.soul.running:
            self.soul.say(self.words(), when=self.random.choice(get_args(ev.When)))

    async def say_command(self) -> None:
        """Queue a command of the front end behind the messages; it is carried out only where the engine attends."""
        if self.soul.running:

            async def renamed() -> None:
                self.n_carried_out += 1
                try:
                    await self.soul.rename(self.words())
                finally:
                    self.n_carried_out -= 1

            self.soul.say("/rename", carry_out=renamed)

    async def take_back(self) -> None:
        """Take back what waits, each time in another way. Where nothing waits, something is said first, in a turn that asks."""
        self.first.follow()
        if not self.first.model.state.queued:
            if not self.soul.running:
                # Random turns seldom ask, and most have ended by now. If the mode allows all, this one does not ask either.
                self.model.steps.append(("Shell", {"command": f"touch {self.words()}"}))
                await self._begin(self._turn(self.words()))
            await self.steer()
            self.first.follow()
        if not (queued := self.first.model.state.queued):
            return
        inbox = self.soul.inbox
        self.n_taken_back += 1
        match self.n_taken_back % 4:
            case 0:
                inbox.take_back_all()
            case 1:
                inbox.take_back_last()
            case _:
                inbox.take_back(self.random.choice(queued).id)

    async def retry(self) -> None:
        """End the wait before the next attempt, if there is one: also one that nobody waits for."""
        self.soul.retry_now()

    async def review(self) -> None:
        self._script()
        await self._begin(self.soul.review(await self.soul.changes.of_session()))

    async def no_model(self) -> None:
        """A turn without a model, which fails, and then the model again."""
        if self.soul.running:
            return
        self.soul.set_provider(None)
        await self._begin(self._turn(self.words()))
        self.model = Speaker(self.model.name, self.model.setting, self.model.use_tools)
        self.soul.set_provider(self.model)
        await self.soul.prepare_model()

    async def revoke(self) -> None:
        if allowed := self.soul.permissions.of_session:
            self.soul.permissions.revoke(self.random.choice(allowed))

    async def skills(self) -> None:
        """Have another set of skills: none, one, or another one."""
        path = config_dir() / "skills" / "aid" / "SKILL.md"
        shutil.rmtree(path.parent, ignore_errors=True)
        if self.random.random() < 0.7:
            path.parent.mkdir(parents=True)
            path.write_text(f"---\nname: aid\ndescription: Use for {self.words()}.\n---\nDo it.")
        if "Skill" in self.extra:
            self.extra.remove("Skill")
        if path.exists():
            self.extra.append("Skill")
        await self.soul.reload_skills()

    async def kinds(self) -> None:
        """Have another kind of sub-agents."""
        path = config_dir() / "agents" / "aid.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"---\nname: aid\ndescription: Use for {self.words()}.\n---\nDo it.")
        self.extra = [*(name for name in self.extra if name != "Agent"), "Agent"]
        await self.soul.reload_kinds()

    async def status(self) -> None:
        self.soul.publish_status()

    async def save(self) -> None:
        await self.soul.save()

    async def fork(self) -> None:
        await self.soul.travel.fork(self.a_target(), self.random.choice(["keep", "restore"]))

    async def draft(self) -> None:
        known = [one.id for one in self.first.model.timeline.tree.live]
        await self.soul.dmails.draft(Target(self.random.choice(known or [0])))

    async def to_background(self) -> None:
        """Move a command that the agent waits for to the background; the turn goes on."""
        if self.soul.running or len([one for one in self.soul.tasks.all if not one.ended]) > 2:
            return
        heard = self.soul.wire.subscribe()
        self.model.steps.append(("Shell", {"command": "echo begun; exec sleep 600"}))
        turn = asyncio.create_task(until_end(self._turn(self.words())))
        async with asyncio.timeout(PATIENCE_S):
            async for record in heard:
                match record.event:
                    case ev.ApprovalRequest(id=request_id):
                        self.soul.answer(request_id, "once")
                    case ev.ToolOutput():
                        self.soul.tasks.move_to_background()
                    case ev.TurnEnd():
                        break
                    case _:
                        pass
            self.soul.wire.unsubscribe(heard)
            await turn
        self.model.steps.clear()

    async def stop(self) -> None:
        await self.soul.interrupt()
        if self.turn is not None:
            await self._goes_on()

    async def resume(self) -> None:
        self._script()
        await self._begin(self.soul.resume())

    async def command(self) -> None:
        await self._begin(self.soul.run_command("echo hello", told=self.random.random() < 0.7))

    async def job(self) -> None:
        running = [job for job in self.soul.tasks.all if not job.ended]
        if running and self.random.random() < 0.6:
            await self.soul.tasks.stop(running[0].id)
        elif len(running) < 3:
            self.model.steps.append(("Shell", {"command": "exec sleep 600", "background": True}))
            await self._begin(self._turn(self.words()))

    async def rewind(self) -> None:
        files: FilesChoice = self.random.choice(["keep", "keep", "restore", "only"])
        await self.soul.travel.rewind(self.a_target(), files)

    async def undo(self) -> None:
        await self.soul.travel.undo(self.random.choice(["", self.words()]))

    async def redo(self) -> None:
        await self.soul.travel.redo()

    async def clear(self) -> None:
        await self.soul.travel.clear()

    async def letter(self) -> None:
        await self.soul.dmails.send(self.a_target(), self.words())

    async def carry(self) -> None:
        lines = self.first.model.timeline.lines.world_lines
        if lines.left:
            number = self.random.choice(list(lines.left))
            point = self.random.choice(lines.left[number].path.points or [None])
            uid = point.uid if point is not None else "nowhere"
            await self.soul.dmails.carry(number, uid, 0, note=self.words())

    async def compact(self) -> None:
        live = [Target(one.id) for one in self.first.model.timeline.tree.live]
        first, last = sorted(self.random.randrange(len(live) + 1) for _ in range(2))
        start = live[first] if 0 < first < len(live) else None
        until = live[last] if first < last < len(live) else None
        await self.soul.compact(self.random.choice(["", "Keep names."]), start=start, until=until)

    async def edit_summary(self) -> None:
        await self.soul.edit_summary(f"SUMMARY {self.words()}")

    async def set_mode(self) -> None:
        mode = self.random.choice(get_args(Mode))
        await self.soul.set_mode(mode)  # there is no sandbox, so one of them is refused
        self.mode = mode

    async def title(self) -> None:
        await self.soul.rename(self.random.choice(["", f"Title {self.words()}"]))

    async def name(self) -> None:
        await self.soul.name_session()

    async def use_model(self) -> None:
        steps = self.model.steps
        self.model = Speaker(self.random.choice(["first", "second", "mute"]))
        self.model.steps = steps
        self.soul.set_provider(self.model, self.random.choice([None, "on"]))
        await self.soul.prepare_model()

    async def think(self) -> None:
        self.soul.set_thinking(self.random.choice(["on", "off", "low", "much"]))

    async def tools(self) -> None:
        wishes = [("on",), ("on",), ("lean",), ("lean", ("WriteFile",)), ("off",), ("",)]
        self.soul.use_tools(*self.random.choice(wishes))

    async def change_tools(self) -> None:
        name = f"mcp__a__{self.random.choice('xyz')}"
        if name in self.extra:
            self.soul.change_tools(removed=[name])
            self.extra.remove(name)
        else:
            self.soul.change_tools([self._added(name)])
            self.extra.append(name)

    async def bookmark(self) -> None:
        await self.soul.marks.bookmark(self.a_point(), self.random.choice(["", self.words()]))

    async def pin(self) -> None:
        await self.soul.marks.pin(
            self.a_point(), self.random.randrange(2), self.random.random() < 0.7
        )

    async def agent(self) -> None:
        """A turn with a sub-agent, which does what the script has."""
        kind = self.random.choice(["explore", "general", "general", "none"])
        self.model.steps.append(
            ("Agent", {"description": self.words(), "prompt": self.words(), "kind": kind})
        )
        self._script()
        await self._begin(self._turn(self.words()))

    async def back_into_agent(self) -> None:
        agents = self.soul.agents
        if agents is None or not agents.states:
            return
        # Mostly one that can be rewound: its step is on the current world line, and the files are known.
        here = {point.uid for point in self.first.model.timeline.tree.live}
        states = [one for one in agents.states if one.uid in here] or agents.states
        name = self.random.choice(states).name
        if not self.soul.running:
            await self.soul.files_ready()
        told, heard = await agents.listen(name)
        await agents.unlisten(name, heard)
        ids = [r.event.id for r in told if isinstance(r.event, ev.CheckpointCreated)]
        files: FilesChoice = self.random.choice(["keep", "restore"])
        await agents.rewind(name, Target(self.random.choice(ids or [0])), files)

    @property
    def at_work(self) -> list[str]:
        """The names of the sub-agents that work now."""
        states = self.soul.agents.states if self.soul.agents else []
        return [one.name for one in states if one.state in ("working", "asking")]

    async def steer_agent(self) -> None:
        if (agents := self.soul.agents) and (names := self.at_work):
            agents.steer(self.random.choice(names), self.words())

    async def stop_agent(self) -> None:
        if self.soul.agents is not None:
            names = [one.name for one in self.soul.agents.states]
            if names and self.random.random() < 0.5:
                await self.soul.agents.stop(self.random.choice(names))
            else:
                await self.soul.agents.stop_all()
            self.first.follow()
            # A question that was there before has been heard already.
            if self.turn is not None and not self.first.model.state.approvals:
                await self._goes_on()

    async def beside(self) -> None:
        """Another agent's events, of every kind that would disturb."""
        for event in (
            ev.TurnBegin("another"),
            ev.CheckpointCreated(0, "theirs", "user", "another"),
            ev.StatusUpdate(7, 9, 8),
            ev.TextPart("another's"),
            ev.ModeChanged("all"),
            ev.ContextReverted("rewind", 0, "theirs", 1, 1, 1, 1, 9, 5),
            ev.TurnEnd("error", "theirs"),
        ):
            self.soul.wire.publish(event, "another")

    @property
    def operations(self) -> dict[str, tuple[int, Callable[[], Awaitable[None]]]]:
        """Each with how often it is chosen."""
        return {
            "turn": (12, self.turn_),
            "answer": (30, self.answer),
            "say meanwhile": (5, self.steer),
            "say a command": (2, self.say_command),
            "take it back": (3, self.take_back),
            "retry": (1, self.retry),
            "review": (1, self.review),
            "no model": (1, self.no_model),
            "revoke": (4, self.revoke),
            "skills": (2, self.skills),
            "kinds": (1, self.kinds),
            "status": (1, self.status),
            "save": (1, self.save),
            "fork": (1, self.fork),
            "draft": (1, self.draft),
            "to the background": (2, self.to_background),
            "steer a sub-agent": (2, self.steer_agent),
            "stop": (3, self.stop),
            "resume": (2, self.resume),
            "command": (2, self.command),
            "job": (2, self.job),
            "rewind or jump": (6, self.rewind),
            "undo": (4, self.undo),
            "redo": (4, self.redo),
            "clear": (1, self.clear),
            "letter": (3, self.letter),
            "carry": (2, self.carry),
            "compact": (2, self.compact),
            "edit the summary": (3, self.edit_summary),
            "mode": (4, self.set_mode),
            "title": (2, self.title),
            "have it named": (1, self.name),
            "model": (2, self.use_model),
            "thinking": (2, self.think),
            "tools on or off": (2, self.tools),
            "other tools": (2, self.change_tools),
            "name": (3, self.bookmark),
            "pin": (3, self.pin),
            "another agent": (2, self.beside),
            "sub-agent": (7, self.agent),
            "back into a sub-agent": (5, self.back_into_agent),
            "stop sub-agents": (3, self.stop_agent),
        }

    # -- and what is known of it ------------------------------------------------------------------

    async def go(self, n: int) -> None:
        """So many operations, with a look at all that is known after each."""
        operations = self.operations
        names = list(operations)
        weights = [operations[name][0] for name in names]
        did = ""
        for number in range(n):
            (name,) = self.random.choices(names, weights)
            for is_possible, seldom in (
                (did == "undo", "redo"),
                (bool(self.at_work), "steer a sub-agent"),
                (bool(self.soul.permissions.of_session), "revoke"),
            ):
                # Most of the time each of these would find nothing to do.
                if is_possible and self.random.random() < 0.3:
                    name = seldom
            did = name
            try:
                await operations[name][1]()
            except (SoulBusy, SoulError, SessionError, LLMError, NoSandbox, KeyError):
                did = f"{name}, refused"
            self.counts[did] += 1
            await self.look(f"{number}: {did}")

    async def look(self, what: str) -> None:
        """Compare what is known."""
        first, second = self.first, self.second
        for one in (first, second):
            one.follow()
        differ(facts_of(second.model), facts_of(first.model), what)
        if not (first.is_lost or second.is_lost):
            assert said_in(second.model) == said_in(first.model), what
        if first.is_lost or second.is_lost or self.random.random() < 0.3:
            self.soul.wire.unsubscribe(second.heard)
            running = self.soul.running
            self.second = second = Listener(*await self.soul.listen(), running=running)
            self.n_joined += 1
            self.n_joined_running += running
            first.follow()
            second.follow()
            differ(facts_of(second.model), facts_of(first.model), f"joined after {what}")
            if first.is_lost:
                # As a screen does, which builds its chat anew.
                first.model.chat, first.is_lost = second_chat(await self.soul.history()), False
            assert said_in(second.model) == said_in(first.model), f"joined after {what}"
        if not self.soul.running:
            await self.reopened(what)

    async def reopened(self, what: str) -> None:
        """Compare with what a program knows that opens the session, as it is on the disk now."""
        context = self.session.context
        if not context.messages and not context.journal.entries:
            return  # closed now, it would leave nothing
        await self.soul.flush()
        await self.session.sync()
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.folder / "data", copy)
        session = SessionStore(copy).find(self.session.id, self.work)
        model = Speaker(self.model.name, self.model.setting, self.model.use_tools)
        soul = await self._opened(session, model)
        try:
            opened = self._joined(soul)
            is_same = soul.tools_form == self.soul.tools_form
            found, known = (stored(one.model, is_same) for one in (opened, self.first))
            differ(found, known, f"opened after {what}")
            self.n_reopened += 1
        finally:
            await soul.aclose()

    async def end(self) -> None:
        await self.stop()
        await self.soul.aclose()
        if self.attended:
            await self.attending


def second_chat(told: Sequence[EventRecord]) -> Any:
    """The chat of a history."""
    model = SessionModel()
    for record in told:
        model.apply(record)
    return model.chat


def stored(model: SessionModel, is_same: bool) -> dict[str, Any]:
    """Return the facts that another run of the program must know of a session that it opens.

    Args:
        model: of a listener.
        is_same: requests carry the same tools in both runs; else other figures are right in either.
    """
    facts = facts_of(model)
    state = facts["state"]
    usage = state.usage and state.usage._replace(step_input=None, step_output=None)
    # Jobs end with the program, and what waited is given back.
    facts["state"] = state._replace(jobs=0, queued=(), usage=usage, asked_at=0.0, step=0)
    facts["gauge"] = facts["gauge"][0]._replace(step_input=None, step_output=None)
    # A figure of no message is that of prompt and tools in a form that is not stored.
    if not is_same or (usage is not None and not usage.messages):
        facts["state"] = facts["state"]._replace(tools="on", usage=None)
        del facts["gauge"], facts["figures"]
        facts["paths"] = {
            n: [(*point[:3], *point[5:]) for point in points]
            for n, points in facts["paths"].items()
        }
    return facts


async def travelled(folder: Path, seed: int, n: int, *, attended: bool = False) -> Travels:
    travels = Travels(folder, seed, attended=attended)
    await travels.open()
    try:
        await travels.go(n)
    finally:
        with contextlib.suppress(Exception):
            await travels.end()
    return travels


DRIVEN: dict[type, set[str]] = {
    KimiSoul: {
        *("run", "say", "attend", "review", "resume", "run_command", "interrupt", "answer"),
        *("set_mode", "retry_now", "set_provider", "prepare_model", "use_tools"),
        *("change_tools", "reload_skills", "reload_kinds", "set_thinking", "publish_status"),
        *("compact", "edit_summary", "save", "rename", "name_session"),
    },
    Travel: {"rewind", "clear", "undo", "redo", "fork"},
    Lines: set(),
    DMails: {"send", "draft", "carry"},
    Tasks: {"stop", "move_to_background"},
    UserPermissions: {"revoke"},
    UserMarks: {"bookmark", "pin"},
    Inbox: {"take_back", "take_back_last", "take_back_all"},
    AgentsPart: {"steer", "stop", "stop_all", "rewind"},
}
"""The operations of the engine's interface that change a session, by their class."""
READING: dict[type, set[str]] = {
    KimiSoul: {
        *("files_ready", "statistics", "window_parts", "hand_over_history", "history", "listen"),
        *("image", "model_info", "window_size", "can_compact", "sandbox_state"),
        *("settled", "sandbox_ready", "when_idle", "keep", "flush", "aclose"),
    },
    Travel: {"preview", "message_at", "preview_undo"},
    Lines: {"all", "read", "summaries", "compare", "markdown"},
    DMails: {"preview"},
    UserPermissions: {"of_project"},
    UserMarks: {"pinned_places"},
    Inbox: {"left_over"},
    AgentsPart: {"state", "listen", "unlisten", "preview"},
}
"""What reads, waits or ends."""
WIRING: dict[type, set[str]] = {
    KimiSoul: {
        *("use_sandbox_of", "use_unsaved", "answer_once_only", "use_servers", "use_agents"),
        *("begin_hooks", "follow_files", "back_into_call", "bring_files", "return_unread"),
        "take_in_agents",
        # These need a sandbox, a file of permissions, one of hooks, and a server of models, and have tests of their own.
        *("reset_sandbox", "reload_hooks", "enlarge_window"),
    },
    UserPermissions: {"revoke_for_project"},
    UserMarks: {"publish", "pin_all"},
    Inbox: {
        *("join", "say", "publish_waiting", "stirred", "take", "begin", "arrived", "put_back"),
        *("hand_back", "return_text", "ended", "hand_over_left", "let_go", "aclose"),
    },
    AgentsPart: {
        *(
            "load",
            "take_in",
            "forget",
            "separate",
            "follow_line",
            "together",
            "settle",
            "run",
            "aclose",
        ),
    },
}
"""What the engine's own parts call of one another, and those who open a session."""


def test_every_operation_of_the_engine_is_driven_or_named() -> None:
    for owner, driven in DRIVEN.items():
        named = driven | READING.get(owner, set()) | WIRING.get(owner, set())
        methods = {
            name
            for name, value in vars(owner).items()
            if not name.startswith("_") and callable(value)
        }
        assert methods == named, owner


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the operations of `DRIVEN` that were carried out and not refused."""
    counts: Counter[str] = Counter()

    def counted(name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        async def waited(*args: Any, **options: Any) -> Any:
            result = await inner(*args, **options)
            counts[name] += 1
            return result

        def called(*args: Any, **options: Any) -> Any:
            result = inner(*args, **options)
            counts[name] += 1
            return result

        return waited if inspect.iscoroutinefunction(inner) else called

    for owner, names in DRIVEN.items():
        real = Subagents if owner is AgentsPart else owner
        for name in names:
            monkeypatch.setattr(
                real, name, counted(f"{owner.__name__}.{name}", getattr(real, name))
            )
    return counts


@pytest.mark.sample
@pytest.mark.parametrize("seed", [1, 2])
async def test_two_listeners_know_the_same_after_each_operation(tmp_path: Path, seed: int) -> None:
    travels = await travelled(tmp_path, seed, 40, attended=seed == 2)
    assert travels.n_joined > 5
    assert travels.n_reopened > 5


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("attended", [False, True])
async def test_two_listeners_know_the_same_after_each_of_a_thousand(
    tmp_path: Path, done: Counter[str], *, attended: bool
) -> None:
    travels = await travelled(tmp_path, 31, 1_000, attended=attended)
    print(dict(travels.counts), travels.n_joined, travels.n_reopened)
    # Each of them took place, and was not refused.
    assert set(travels.operations) <= set(travels.counts)
    every = {f"{owner.__name__}.{name}" for owner, names in DRIVEN.items() for name in names}
    # Only an engine that attends begins turns by itself.
    assert every - set(done) <= ({"KimiSoul.run"} if attended else {"KimiSoul.attend"}), done
