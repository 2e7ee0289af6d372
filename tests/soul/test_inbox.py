"""Everything that the user says is taken exactly once, in order, or is theirs again: in turns, stops, operations, kills."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.chat_server import call, gate, say
from support.made_images import flat, saved
from support.quick_disk import memory_folder
from support.soul import Ear, Stage, Tool, next_event, stage

from kimi_tui.images import read_image
from kimi_tui.llm.completion import RetryPolicy
from kimi_tui.llm.errors import APIStatusError
from kimi_tui.llm.message import Message
from kimi_tui.llm.provider import (
    ChatProvider,
    Finished,
    ModelInfo,
    StreamItem,
    TextDelta,
    ToolCallDelta,
    ToolSpec,
    Usage,
)
from kimi_tui.session.store import SessionStore
from kimi_tui.session.unsent import WAITING, read_waiting
from kimi_tui.soul import inbox as inbox_module
from kimi_tui.soul.assembly import open_soul
from kimi_tui.soul.attachments import Attachments
from kimi_tui.soul.inbox import Inbox
from kimi_tui.soul.loop import AgentLoop
from kimi_tui.soul.rewind_values import Target
from kimi_tui.tools.base import ToolEnv
from kimi_tui.tools.outcome import ToolOutcome
from kimi_tui.tools.toolset import Toolset
from kimi_tui.wire import events as ev
from kimi_tui.wire.queue import Wire


async def attended(on: Stage) -> asyncio.Task[None]:
    """Begin turns with what is said, and have it kept on the disk."""
    task = asyncio.create_task(on.soul.attend())
    await asyncio.sleep(0)
    return task


async def test_what_is_said_begins_a_turn_and_waits_for_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say("Hello."))
        await attended(on)
        on.soul.say("hi")
        await next_event(on.soul.wire.subscribe(), ev.TurnEnd)
        # Nothing tells that it waited, for it did not.
        assert [e.text for e in on.ear.of(ev.TurnBegin)] == ["hi"]
        assert not on.ear.of(ev.SteerQueued)
        assert not on.ear.of(ev.SteerTaken)


async def test_a_message_waits_for_the_next_turn_once_nobody_attends(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        task = await attended(on)
        task.cancel()
        await asyncio.wait([task])
        on.soul.say("hi")
        assert [e.text for e in on.ear.of(ev.SteerQueued)] == ["hi"]
        on.server.script(say("Hello."))
        await on.soul.run("first")
        assert "hi" in str(on.server.requests[-1].messages)


async def test_what_is_for_after_the_turn_begins_the_next_one_by_one(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(gate(1, say("one")), say("two"), say("three"))
        await attended(on)
        on.soul.say("first")
        await on.server.at_gate.wait()
        on.soul.say("second", when="after the turn")
        on.soul.say("third", when="after the turn")
        # A late subscriber gets the waiting messages.
        late = [record.event for record in on.soul.wire.subscribe().drain()]
        assert [(e.text, e.when) for e in late if isinstance(e, ev.SteerQueued)] == [
            ("second", "after the turn"),
            ("third", "after the turn"),
        ]
        heard = on.soul.wire.subscribe()
        on.server.release()
        for _ in range(3):
            await next_event(heard, ev.TurnEnd)
        assert [e.text for e in on.ear.of(ev.TurnBegin)] == ["first", "second", "third"]
        assert len(on.server.requests) == 3


async def test_a_message_overtakes_one_for_after_the_turn_which_is_told_of(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(gate(1, say("one")), say("two"))
        await attended(on)
        # Nothing runs, so either would begin at once.
        on.soul.say("later", when="after the turn")
        on.soul.say("now")
        await on.server.at_gate.wait()
        assert [e.text for e in on.ear.of(ev.SteerQueued)] == ["later"]
        await on.soul.interrupt()
        assert [e.text for e in on.ear.of(ev.TurnBegin)] == ["now"]


async def test_a_compaction_that_waits_for_the_turn_comes_before_what_waits(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say("one"), gate(1, say("two")), say("A summary."), say("three"))
        await on.soul.run("first")
        await attended(on)
        heard = on.soul.wire.subscribe()
        on.soul.say("second")
        await on.server.at_gate.wait()
        on.soul.say("later", when="after the turn")
        compacting = asyncio.create_task(on.soul.compact(waits=True))
        await asyncio.sleep(0)
        on.server.release()
        assert await compacting
        await next_event(heard, ev.TurnBegin, lambda event: event.text == "later")
        await next_event(heard, ev.TurnEnd)
        order = [
            event.text if isinstance(event, ev.TurnBegin) else "compaction"
            for event in on.ear.events
            if isinstance(event, ev.TurnBegin | ev.CompactionEnd)
        ]
        assert order == ["first", "second", "compaction", "later"]


async def test_after_an_error_it_waits_and_after_a_stop_it_is_handed_back(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        model = GatedModel()
        on.soul.set_provider(model)
        await attended(on)
        heard = on.soul.wire.subscribe()
        on.soul.say("first")
        asked = await model.is_asked()
        on.soul.say("steer")
        on.soul.say("later", when="after the turn")
        asked.set_result("error")
        await next_event(heard, ev.TurnEnd)
        assert [e.text for e in on.ear.of(ev.SteerTaken) if e.handed_back] == ["steer"]
        assert [one.text for one in on.soul.inbox.waiting] == ["later"]
        resuming = asyncio.create_task(on.soul.resume())
        await model.is_asked()
        await on.soul.interrupt()
        await asyncio.wait([resuming])
        assert resuming.exception() is not None
        assert [e.text for e in on.ear.of(ev.SteerTaken) if e.handed_back] == ["steer", "later"]
        assert not on.soul.inbox.waiting


async def test_a_message_that_could_not_be_put_in_is_handed_back(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.soul.set_provider(None)
        await attended(on)
        heard = on.soul.wire.subscribe()
        on.soul.say("first")
        on.soul.say("later", when="after the turn")
        assert (await next_event(heard, ev.TurnEnd)).error == "No model is configured."
        assert (await next_event(heard, ev.SteerTaken)).handed_back
        assert [one.text for one in on.soul.inbox.waiting] == ["later"]
        assert not on.session.context.messages


@pytest.mark.exhaustive
async def test_a_no_and_a_stop_hand_back_what_waits(tmp_path: Path) -> None:
    async with stage(tmp_path, mode="ask") as on:
        on.server.script(call("Shell", {"command": "true"}), say("one"), gate(2, say("A summary.")))
        await attended(on)
        heard = on.soul.wire.subscribe()
        on.soul.say("first")
        asked = await next_event(heard, ev.ApprovalRequest)
        on.soul.say("later", when="after the turn")
        on.soul.answer(asked.id, "no")
        assert (await next_event(heard, ev.TurnEnd)).reason == "rejected"
        taken = await next_event(heard, ev.SteerTaken)
        assert (taken.text, taken.handed_back) == ("later", True)
        await on.soul.run("second")
        # A compaction that is stopped lets nothing begin that was said meanwhile.
        compacting = asyncio.create_task(on.soul.compact())
        await on.server.at_gate.wait()
        on.soul.say("meanwhile")
        await on.soul.interrupt()
        assert not await compacting
        taken = await next_event(heard, ev.SteerTaken)
        assert (taken.text, taken.handed_back) == ("meanwhile", True)
        assert len(on.ear.of(ev.TurnBegin)) == 2


async def test_what_could_not_be_put_in_stays_before_what_was_said_since() -> None:
    inbox = Inbox()
    for text in ("one", "two"):
        inbox.say(text)
    taken = inbox.take(inbox.steers)
    inbox.say("three")
    inbox.put_back(taken)
    assert [one.text for one in inbox.waiting] == ["one", "two", "three"]


async def test_images_that_a_model_cannot_take_are_handed_back(tmp_path: Path) -> None:
    image = read_image(saved(flat(4, 3)), "x.png")
    inbox = Inbox()
    inbox.say("[image x.png 4x3 ~1] what is it", [image])
    async with stage(tmp_path, inbox=inbox) as on:
        await attended(on)
        taken = await next_event(on.soul.wire.subscribe(), ev.SteerTaken)
        assert taken.handed_back
        assert "stand-in does not accept images." in [notice.text for notice in on.ear.notices()]
        assert not on.ear.of(ev.TurnBegin)
        assert not on.soul.inbox.waiting


async def test_a_message_that_is_taken_back_while_it_is_looked_at_begins_no_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path) as on:
        check, is_back = Attachments.check_and_store, asyncio.Event()

        async def taken_back(one: Attachments, *given: Any) -> None:
            await check(one, *given)
            if given[0] == "not this":
                assert on.soul.inbox.take_back_last() is not None
                is_back.set()

        monkeypatch.setattr(Attachments, "check_and_store", taken_back)
        on.server.script(say("one"))
        await attended(on)
        heard = on.soul.wire.subscribe()
        on.soul.say("not this")
        await is_back.wait()
        on.soul.say("this")
        await next_event(heard, ev.TurnEnd)
        assert [e.text for e in on.ear.of(ev.TurnBegin)] == ["this"]


async def test_a_disk_that_refuses_is_told_of_until_it_takes_it(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(gate(2, call("Glob", {"pattern": "*"})), say("done"))
        await attended(on)
        await on.soul.inbox.left_over()
        in_the_way = on.session.dir / WAITING
        in_the_way.mkdir()
        (in_the_way / "x").touch()
        heard = on.soul.wire.subscribe()
        on.soul.say("first")
        await on.server.at_gate.wait()
        on.soul.say("steer")
        notice = await next_event(heard, ev.Notice)
        assert notice.text.startswith("Your queued messages cannot be saved: ")
        assert on.soul.inbox.unkept == ["steer"]
        (in_the_way / "x").unlink()
        in_the_way.rmdir()
        on.soul.say("another")
        assert (await next_event(heard, ev.Notice)).solved
        assert read_waiting(on.session.dir) == ["steer", "another"]
        assert not on.soul.inbox.unkept
        on.server.release()
        await next_event(heard, ev.TurnEnd)


async def test_a_message_that_was_sent_need_not_be_stored_any_more(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(gate(2, call("Glob", {"pattern": "*"})), say("done"))
        await attended(on)
        await on.soul.inbox.left_over()
        (on.session.dir / WAITING / "x").mkdir(parents=True)
        heard = on.soul.wire.subscribe()
        on.soul.say("first")
        await on.server.at_gate.wait()
        on.soul.say("steer")
        assert not (await next_event(heard, ev.Notice)).solved
        on.server.release()
        assert (await next_event(heard, ev.Notice)).solved
        assert not on.soul.inbox.trouble
        await next_event(heard, ev.TurnEnd)


async def test_a_message_whose_turn_has_begun_is_kept_until_it_is_in_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kimi_tui.soul.inbox.KEPT_AFTER_S", 0.0)
    check, is_let_through = AgentLoop._check_prompt, asyncio.Event()  # pyright: ignore[reportPrivateUsage]

    async def slow(one: AgentLoop, text: str) -> str:
        # A sub-agent that was paused, a server of tools or a hook comes before the message.
        await is_let_through.wait()
        return await check(one, text)

    monkeypatch.setattr(AgentLoop, "_check_prompt", slow)
    async with stage(tmp_path) as on:
        on.server.script(gate(1, say("Hello.")))
        await attended(on)
        await on.soul.inbox.left_over()
        on.soul.say("hi")
        async with asyncio.timeout(10):
            while read_waiting(on.session.dir) != ["hi"]:  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(0)
        is_let_through.set()
        await on.server.at_gate.wait()
        async with asyncio.timeout(10):
            while read_waiting(on.session.dir):  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(0)
        on.server.release()
        await next_event(on.soul.wire.subscribe(), ev.TurnEnd)


async def test_a_message_that_was_taken_while_the_disk_was_waited_for_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, is_taken = threading.Event(), threading.Event()

    def refuse(*_: object) -> None:
        begun.set()
        assert is_taken.wait(10)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(inbox_module, "write_waiting", refuse)
    inbox, wire = Inbox(), Wire()
    ear = Ear(wire)
    inbox.join(wire, tmp_path)
    await inbox.left_over()
    inbox.say("first")
    inbox.publish_waiting()
    await asyncio.to_thread(begun.wait)
    inbox.arrived(inbox.take(inbox.waiting))
    is_taken.set()
    await inbox.aclose()
    assert not inbox.trouble
    assert not ear.notices()


# -- all at once, at random


class GatedModel(ChatProvider):
    """Answers when it is told to, and how."""

    def __init__(self) -> None:
        self.asked: asyncio.Future[str] | None = None
        self._is_asked = asyncio.Event()

    async def is_asked(self) -> asyncio.Future[str]:
        """Wait until it is; returns what takes the answer."""
        await self._is_asked.wait()
        assert self.asked is not None
        return self.asked

    @property
    def info(self) -> ModelInfo:
        return ModelInfo("test", "gated", 200_000)

    async def generate(
        self,
        system: str,
        tools: Sequence[ToolSpec],
        history: Sequence[Message],
        *,
        most_tokens: int = 0,
    ) -> AsyncIterator[StreamItem]:
        self.asked = asyncio.get_running_loop().create_future()
        self._is_asked.set()
        try:
            how = await self.asked
        finally:
            self.asked = None
            self._is_asked.clear()
        if how == "error":
            raise APIStatusError("Not today.", status=400, retryable=False)
        if how == "call" and tools:
            yield ToolCallDelta(0, "call", "Note", "{}")
        else:
            yield TextDelta("A summary.")
        yield Usage(500, 5)
        yield Finished("tool_calls" if how == "call" and tools else "stop")

    async def aclose(self) -> None:
        pass


async def _note(arguments: dict[str, Any], env: ToolEnv) -> ToolOutcome:
    return ToolOutcome("noted")


class TalkingUser(RuleBasedStateMachine):
    """Says things at any time, and follows by events alone what became of each."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(dir=memory_folder(), ignore_cleanup_errors=True)
        self.root = Path(self._folder.name)
        self.loop = asyncio.new_event_loop()
        self.model = GatedModel()
        self.work = self.root / "work"
        self.work.mkdir()
        self.data = self.root / "data"
        self.store = SessionStore(self.data)
        self.session = self.store.create(self.work)
        self.inbox = Inbox()
        self.is_open = False
        self.n_said = 0
        self.n_copies = 0
        self.went: list[str] = []
        """The texts that went into the context or were carried out, in order."""
        self.returned: list[str] = []
        self.kinds: dict[str, str] = {}
        """How each is ordered among the others: a command that is said where nothing runs goes before what waits."""
        self.commands: set[str] = set()
        self.told_of: list[str] = []
        """The ids of what waits, as far as events tell it."""
        self.cut: set[str] = set()
        """The texts that may have left the context since."""
        self.tasks: list[asyncio.Task[Any]] = []
        self.operation: asyncio.Event | None = None

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    async def _open(self, inbox: Inbox | None) -> None:
        self.soul = await open_soul(
            session=self.session,
            provider=self.model,
            mode="all",
            toolset=Toolset([Tool("Note", _note)]),
            environ={},
            policy=RetryPolicy(max_attempts=1),
            follow_files=False,
            inbox=inbox,
        )
        self.inbox = self.soul.inbox
        self.heard = self.soul.wire.subscribe()
        self.told_of = []
        self.left = await self.inbox.left_over()
        self.tasks = [asyncio.create_task(self.soul.attend())]
        self.is_open = True
        await self._settle()

    async def _settle(self) -> None:
        """Wait until nothing goes on by itself, and take in what was told."""
        await self._until_still()
        for record in self.heard.drain():
            match record.event:
                case ev.SteerQueued(id=said_id):
                    self.told_of.append(said_id)
                case ev.SteerTaken(id=said_id) if said_id in self.told_of:
                    self.told_of.remove(said_id)
                case _:
                    pass
            match record.event:
                case ev.TurnBegin(text=text, resumed=False):
                    self.went.append(text)
                case ev.SteerTaken(text=text, withdrawn=False):
                    self.went.append(text)
                case ev.SteerTaken(text=text, handed_back=True):
                    self._returns([text])
                case _:
                    pass
        await self._until_still()

    async def _until_still(self) -> None:
        async with asyncio.timeout(30):
            for _ in range(3):
                while self._goes_on():  # noqa: ASYNC110 - no single event tells it
                    await asyncio.sleep(0.0005)
                await asyncio.sleep(0)

    def _goes_on(self) -> bool:
        soul = self.soul
        if self.inbox._writing is not None or soul._is_carrying_out:  # pyright: ignore[reportPrivateUsage]
            return True
        if self.model.asked is not None or self.operation is not None:
            return False
        return soul.running or self.inbox.due is not None

    def _returns(self, texts: Sequence[str]) -> None:
        self.returned += texts
        self.inbox.let_go(texts)

    # -- what the user does

    @initialize(early=st.lists(st.sampled_from(["now", "command"]), max_size=3))
    def begins(self, early: list[str]) -> None:
        for kind in early:
            self._say(kind)
        self.run(self._open(self.inbox))

    @rule(kinds=st.lists(st.sampled_from(["now", "later", "command"]), min_size=1, max_size=3))
    def says(self, kinds: list[str]) -> None:
        async def say_all() -> None:
            for kind in kinds:
                self._say(kind)
            await self._settle()

        self.run(say_all())

    def _say(self, kind: str) -> None:
        self.n_said += 1
        text = f"words {self.n_said}"
        says = self.soul.say if self.is_open else self.inbox.say

        async def carry_out() -> None:
            self.went.append(text)

        said_id = says(
            text,
            (),
            "after the turn" if kind == "later" else "now",
            carry_out if kind == "command" else None,
        )
        said = next(one for one in self.inbox.waiting if one.id == said_id)
        self.kinds[text] = "later" if said.when != "now" else kind
        if kind == "command":
            self.commands.add(text)

    @precondition(lambda self: self.model.asked is not None)
    @rule(how=st.sampled_from(["done", "done", "call", "error"]))
    def model_answers(self, how: str) -> None:
        async def answer() -> None:
            assert self.model.asked is not None
            self.model.asked.set_result(how)
            await asyncio.sleep(0)
            await self._settle()

        self.run(answer())

    @precondition(lambda self: self.operation is None)
    @rule()
    def stops(self) -> None:
        async def stop() -> None:
            await self.soul.interrupt()
            await self._settle()

        self.run(stop())

    @rule(takes_all=st.booleans())
    def takes_back(self, takes_all: bool) -> None:
        async def take() -> None:
            if takes_all:
                taken = self.inbox.take_back_all()
            else:
                taken = (last,) if (last := self.inbox.take_back_last()) is not None else ()
            self._returns([one.text for one in taken])
            await self._settle()

        self.run(take())

    @precondition(lambda self: not self.soul.running)
    @rule()
    def compacts(self) -> None:
        async def compact() -> None:
            self.cut.update(self.went)
            self.tasks.append(asyncio.create_task(self.soul.compact()))
            await asyncio.sleep(0)
            await self._settle()

        self.run(compact())

    @precondition(lambda self: not self.soul.running)
    @rule()
    def goes_on(self) -> None:
        async def go_on() -> None:
            self.tasks.append(asyncio.create_task(self.soul.resume()))
            await asyncio.sleep(0)
            await self._settle()

        self.run(go_on())

    @precondition(lambda self: not self.soul.running and self.session.context.checkpoints)
    @rule()
    def rewinds(self) -> None:
        async def rewind() -> None:
            self.cut.update(self.went)
            self.tasks.append(asyncio.create_task(self.soul.travel.rewind(Target(0))))
            await asyncio.sleep(0)
            self._say("now")
            await self._settle()

        self.run(rewind())

    @precondition(lambda self: not self.soul.running)
    @rule()
    def begins_operation(self) -> None:
        is_over = self.operation = asyncio.Event()

        async def operate() -> None:
            await is_over.wait()

        async def begin() -> None:
            self.tasks.append(asyncio.create_task(self.soul._alone.run(operate())))  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0)

        self.run(begin())

    @precondition(lambda self: self.operation is not None)
    @rule()
    def ends_operation(self) -> None:
        async def end() -> None:
            assert self.operation is not None
            self.operation.set()
            self.operation = None
            await asyncio.sleep(0.001)
            await self._settle()

        self.run(end())

    @precondition(lambda self: self.operation is None)
    @rule(is_killed=st.booleans())
    def opens_again(self, is_killed: bool) -> None:
        """Close it, or end it where it stands: then a copy of its folder is what is left."""
        waited, folder = [one.text for one in self.inbox.waiting], self.session.dir
        if is_killed:
            self.n_copies += 1
            data = self.data.with_name(f"data {self.n_copies}")
            shutil.copytree(self.data, data)
            folder = data / folder.relative_to(self.data)
            self.data, self.store = data, SessionStore(data)
        self.run(self._close())
        if folder.exists():
            self.session = self.store.find(self.session.id, self.work)
        else:
            assert not waited
            self.session = self.store.create(self.work)

        async def open_and_take() -> None:
            await self._open(None)
            # The messages that a stop would have handed back are found now.
            assert self.left == waited
            self._returns(waited)
            await self._settle()

        self.run(open_and_take())

    async def _close(self) -> None:
        await self.soul.aclose()
        await asyncio.wait_for(self.tasks[0], 30)
        await asyncio.gather(*self.tasks, return_exceptions=True)
        assert self.inbox._writing is None  # pyright: ignore[reportPrivateUsage]

    # -- what holds

    @invariant()
    def each_is_taken_once_or_waits_or_is_the_users(self) -> None:
        if not self.is_open:
            return
        waits = [one.text for one in self.inbox.waiting]
        all_of_it = sorted([*waits, *self.went, *self.returned])
        assert all_of_it == sorted(f"words {n}" for n in range(1, self.n_said + 1))

    @invariant()
    def in_order(self) -> None:
        for kind in ("now", "later"):
            numbers = [int(t.split()[1]) for t in self.went if self.kinds[t] == kind]
            assert numbers == sorted(numbers)

    @invariant()
    def what_was_taken_is_in_the_context(self) -> None:
        if self.is_open:
            held = {message.text for message in self.session.context.messages}
            assert set(self.went) - self.commands - self.cut <= held

    @invariant()
    def who_listens_knows_what_waits(self) -> None:
        if self.is_open:
            assert self.told_of == [one.id for one in self.inbox.waiting]

    @invariant()
    def what_waits_is_on_the_disk(self) -> None:
        if self.is_open:
            assert read_waiting(self.session.dir) == [one.text for one in self.inbox.waiting]

    def teardown(self) -> None:
        if self.operation is not None:
            self.operation.set()
        if self.is_open:
            self.run(self._close())
        self.loop.close()
        self._folder.cleanup()


TalkingUser.TestCase.settings = settings(
    stateful_step_count=25, max_examples=min(40, settings().max_examples)
)
test_at_random = TalkingUser.TestCase
