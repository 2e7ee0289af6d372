"""World lines deleted at random between everything else that can be done: what can still be reached can still be read.

Each sub-agent gets a word of its own, so the test knows it by the call in the conversation, not by what the program notes of it.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import Answer, Request, call, calls, say, strict

from kimi_tui.futures.running import Futures
from kimi_tui.futures.values import FuturesPlan, NoFutures, Variant
from kimi_tui.projection.blocks import ToolBlock
from kimi_tui.projection.session_model import SessionModel
from kimi_tui.session.context import scan_world_line
from kimi_tui.session.errors import SessionError
from kimi_tui.session.rotation import stored_world_lines, world_line_path
from kimi_tui.session.session import AGENTS_NAME
from kimi_tui.soul import pruning
from kimi_tui.soul.errors import SoulError
from kimi_tui.soul.opening import open_session
from kimi_tui.soul.rewind_values import END, Target
from kimi_tui.soul.stored_agents import agent_session, stored_agents

from .conftest import Scene, scene_in

WORD = re.compile(r"do (w\d+)\.")


def act(request: Request) -> Answer:
    """A model that has a sub-agent do each of the words `wN` of the last message; one does it by saying so."""
    if (refused := strict(request)) is not None:
        return refused
    messages = request.messages
    texts = [json.dumps(one["content"]) for one in messages if one["role"] == "user"]
    if "You are a sub-agent" in str(messages[0]["content"]):
        return say(f"I did {WORD.findall(' '.join(texts))[-1]}.", usage=(1200, 10))
    if "It is data to summarise" in texts[-1]:
        return say("Begin with what was done.", usage=(100, 50))
    told = [found[1] for one in texts if (found := re.search(r"told( [wmx0-9 ]*)", one))]
    words = re.findall(r"w\d+", told[-1]) if told else []
    if messages[-1]["role"] == "tool":
        if told and "m" in told[-1] and "Arrived." not in str(messages):
            return call("SendDMail", {"message": "Arrived.", "checkpoint_id": 1})
        return say("All is done.", usage=(100, 5))
    if not words or "Arrived." in texts[-1]:
        return say("Long. " * 40, usage=(100, 5))
    return calls(
        [
            ("Agent", {"description": one, "prompt": f"do {one}.", "kind": "general"})
            for one in words
        ],
        usage=(100, 5),
    )


class Killed(BaseException):
    """The program was killed here."""


@dataclass
class History:
    """A session that is driven at random, and what is known of it."""

    scene: Scene
    chance: random.Random
    done: list[str] = field(default_factory=list[str])
    lines: dict[int, bytes] = field(default_factory=dict[int, bytes])
    n_words: int = 0

    @property
    def folder(self) -> Path:
        return self.scene.soul.session.dir

    def messages(self) -> list[Any]:
        return [one.stored() for one in self.scene.soul.session.context.messages]

    def target(self) -> Target:
        lines = [0, 0, 0, *stored_world_lines(self.folder)]
        n = self.chance.choice(lines)
        points = scan_world_line(self.scene.soul.session.storage, self.folder, n).checkpoints
        if (n and self.chance.random() < 0.4) or not points:
            return Target(END, n)
        return Target(self.chance.choice(points).id, n)

    async def say(self) -> None:
        await self.scene.soul.run("told x")

    async def use(self, how: str = "") -> None:
        n = self.chance.choice((1, 1, 2))
        words = [f"w{self.n_words + place}" for place in range(1, n + 1)]
        self.n_words += n
        await self.scene.soul.run(f"told {how} {' '.join(words)}")

    async def mail(self) -> None:
        await self.use("m")

    async def rewind(self) -> None:
        await self.scene.soul.travel.rewind(self.target())

    async def clear(self) -> None:
        await self.scene.soul.travel.clear()

    async def compact(self) -> None:
        ids = [one.id for one in self.scene.soul.session.context.checkpoints] or [0]
        first, end = sorted(self.chance.choice(ids) for _ in range(2))
        which = self.chance.randrange(3)
        if which == 0:
            await self.scene.soul.compact()
        else:
            start = Target(first) if which == 1 else None
            await self.scene.soul.compact(start=start, until=Target(end))

    async def undo(self) -> None:
        await self.scene.soul.travel.undo()

    async def redo(self) -> None:
        await self.scene.soul.travel.redo()

    async def back_and_forth(self) -> None:
        soul, before = self.scene.soul, self.messages()
        await soul.travel.rewind(self.target())
        between = self.messages()
        await soul.travel.undo()
        assert self.messages() == before
        await soul.travel.redo()
        assert self.messages() == between

    async def agent_back(self) -> None:
        agents = self.scene.soul.agents
        if agents is None or not agents.states:
            return
        name = self.chance.choice(agents.states).name
        stored = agent_session(self.scene.soul.session, name)
        points = scan_world_line(stored.storage, stored.dir, 0).checkpoints
        ids = [one.id for one in points] or [0]
        await agents.rewind(name, Target(self.chance.choice(ids)))
        if self.chance.random() < 0.7:
            await self.scene.soul.resume()

    async def fork(self) -> None:
        soul = self.scene.soul
        target = self.target()
        forked = await soul.travel.fork(target)
        if self.chance.random() < 0.5:
            await soul.aclose()
            await self.open(forked.session_id)

    async def future(self) -> None:
        self.n_words += 1
        words = f"told {self.chance.choice(['', 'm'])} w{self.n_words}"
        (key,) = await self.scene.futures.start(FuturesPlan(Target(END), (Variant(words),)))
        try:
            if self.chance.random() < 0.5:
                await self.rewind()
                await self.prune_lines()
        finally:
            await self.scene.futures.ended()
        if self.chance.random() < 0.5:
            await self.scene.futures.make_current(key)
        if self.chance.random() < 0.3:
            self.forgotten()
            await self.scene.futures.prune([key])

    def forgotten(self) -> None:
        self.lines.clear()

    async def prune(self) -> None:
        """Delete some lines as `sessions prune` does; now and then the program is killed within, or the disk refuses."""
        there = [*stored_world_lines(self.folder)]
        if not there:
            return
        chosen = self.chance.sample(there, self.chance.randint(1, len(there)))
        session = self.scene.soul.session
        name, kept = session.id, {n: one for n, one in self.lines.items() if n not in chosen}
        await self.scene.soul.aclose()
        how = self.chance.choice(["", "", "kill", "refuse"])
        error: BaseException = OSError(13, "Refused") if how == "refuse" else Killed()
        left = [self.chance.randrange(8)]
        storage = session.storage
        real = {one: getattr(storage, one) for one in ("write", "unlink", "replace", "sync_folder")}

        def failing(one: str) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                left[0] -= 1
                if left[0] < 0:
                    raise error
                return real[one](*arguments)

            return call

        await session.open()
        try:
            if how:
                for one in real:
                    setattr(storage, one, failing(one))
            await asyncio.to_thread(pruning.prune_lines, session, chosen)
        except (OSError, Killed):
            pass
        finally:
            for one, method in real.items():
                setattr(storage, one, method)
            await session.aclose()
        self.lines = kept
        await self.open(name)

    async def prune_lines(self) -> None:
        """Delete all lines while the session is open."""
        there = [*stored_world_lines(self.folder)]
        session, agents = self.scene.soul.session, self.scene.soul.agents
        self.forgotten()
        if agents is not None:
            await agents.forget(await asyncio.to_thread(pruning.agents_of_lines, session, there))
        await asyncio.to_thread(pruning.prune_lines, session, there)

    async def reopen(self) -> None:
        name = self.scene.soul.session.id
        await self.scene.soul.aclose()
        await self.open(name)

    async def open(self, name: str) -> None:
        is_other = name != self.scene.soul.session.id
        scene = self.scene
        opened = await open_session(scene.launch._replace(resume=name))
        scene.soul, scene.futures = opened.soul, Futures(opened.soul, scene.launch)
        if is_other:
            self.lines.clear()

    # -- what holds

    def words_of(self, n: int) -> set[str]:
        """The words of the calls with a result on a line."""
        found: set[str] = set()
        for line in world_line_path(self.folder, n).read_bytes().splitlines():
            record = json.loads(line)
            for one in record.get("tool_calls") or ():
                if one["function"]["name"] == "Agent":
                    found.update(WORD.findall(one["function"]["arguments"]))
        return found

    async def check(self) -> None:
        soul = self.scene.soul
        wanted: dict[str, str] = {}
        for n in (0, *stored_world_lines(self.folder)):
            data = world_line_path(self.folder, n).read_bytes() if n else b""
            assert data.startswith(self.lines.get(n, b"")), f"line {n} has changed"
            if n:
                self.lines[n] = data
            line = soul.session.context.world_line if not n else soul.session.world_lines.read(n)
            assert len([*line.messages]) == line.index.n_messages
            wanted.update(dict.fromkeys(self.words_of(n), f"line {n}"))
            if n:
                assert await soul.lines.read(n)
        assert set(self.lines) <= {*stored_world_lines(self.folder)}, "a line is gone"
        model = SessionModel()
        for record in await soul.history():
            model.apply(record)
        cards: dict[str, ToolBlock] = {}
        for block in model.chat.blocks:
            if isinstance(block, ToolBlock) and block.tool == "Agent":
                for word in WORD.findall(block.arguments):
                    cards[word] = block
                    wanted.setdefault(word, "the chat")
        there: dict[str, set[str]] = {}
        for one in stored_agents(self.folder / AGENTS_NAME):
            folder = self.folder / AGENTS_NAME / one.name
            assert agent_session(soul.session, one.name).dir == folder
            there.setdefault("", set()).add(one.name)
            for path in folder.glob("context*.jsonl"):
                for word in WORD.findall(path.read_text()):
                    there.setdefault(word, set()).add(one.name)
        assert wanted.keys() <= there.keys(), {
            word: where for word, where in wanted.items() if word not in there
        }
        known = {one.name for one in soul.agents.states} if soul.agents else set()
        assert known == set().union(*there.values())
        assert not [*(self.folder / AGENTS_NAME).glob(".removed-*")]


OPERATIONS: dict[str, int] = {
    "say": 2, "use": 6, "mail": 1, "rewind": 5, "clear": 1, "compact": 4, "undo": 3, "redo": 2,
    "back_and_forth": 1, "agent_back": 2, "fork": 1, "prune": 6, "reopen": 1, "future": 1,
}  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(60))
async def test_what_can_be_reached_can_be_read(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene_in(tmp_path, monkeypatch, act, first="told w0") as scene:
        history = History(scene, random.Random(seed))
        names = [*OPERATIONS]
        for _ in range(14):
            (name,) = history.chance.choices(names, [OPERATIONS[one] for one in names])
            history.done.append(name)
            work: Callable[[], Awaitable[None]] = getattr(history, name)
            try:
                await work()
            except (SoulError, SessionError, KeyError, NoFutures) as error:
                history.done[-1] += f"({type(error).__name__})"
            try:
                await history.check()
            except BaseException as error:
                error.add_note(" ".join(history.done))
                raise
        await history.scene.soul.aclose()
