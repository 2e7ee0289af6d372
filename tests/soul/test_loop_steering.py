"""What the person types while the agent works goes in between steps, and is never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from support.chat_server import call, gate, say
from support.soul import next_event, stage, until_end

from kimi_tui.llm.message import Message
from kimi_tui.session.schema import Addition, Checkpoint
from kimi_tui.soul.history import session_history
from kimi_tui.soul.inbox import Said
from kimi_tui.wire import events as ev


async def test_between_steps_in_order(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(gate(2, call("Glob", {"pattern": "*"})), say("done"))
        turn = asyncio.create_task(on.soul.run("hi"))
        await on.server.at_gate.wait()
        first, second, third = (on.soul.say(text) for text in ("one", "two", "three"))
        withdrawn = on.soul.inbox.take_back(second)
        assert withdrawn is not None
        assert withdrawn.text == "two"
        assert on.soul.inbox.take_back(second) is None
        on.server.release()
        await turn
        assert on.soul.inbox.take_back(first) is None
        text = "\n".join(text for _, text in on.sent())
        assert text.index("one") < text.index("three")
        assert "two" not in text
        taken = on.ear.of(ev.SteerTaken)
        assert [(t.id, t.withdrawn) for t in taken] == [
            (second, True),
            (first, False),
            (third, False),
        ]
        # Words of the person stand as such in the context.
        said = [r["content"] for r in on.file() if r["role"] == "user"]
        assert [t for t in said if not t.startswith("<system>")] == ["hi", "one", "three"]


async def test_a_pinned_steer_is_itself_kept_and_not_the_answer_before_it(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(gate(2, call("Glob", {"pattern": "*"})), say("done"))
        turn = asyncio.create_task(on.soul.run("hi"))
        await on.server.at_gate.wait()
        for text in ("one", "two"):
            on.soul.say(text)
        on.server.release()
        await turn
        taken = on.ear.of(ev.SteerTaken)
        step = next(e for e in on.ear.of(ev.CheckpointCreated) if e.kind == "step")
        await on.soul.marks.pin(step.uid, taken[1].number)
        (place,) = on.soul.marks.pinned_places()
        assert on.session.context.messages[place].text == "two"
        # The same without the record.
        on.session.record.path.unlink()
        retold = [r.event for r in session_history(on.session)]
        told = [(e.text, e.number) for e in retold if isinstance(e, ev.SteerTaken)]
        assert told == [(e.text, e.number) for e in taken]


async def test_a_turn_does_not_end_over_a_queued_text(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(gate(2, say("I am done.")), say("Of course."))
        turn = asyncio.create_task(on.soul.run("hi"))
        await on.server.at_gate.wait()
        on.soul.say("one more thing")
        on.server.release()
        await turn
        assert on.sent() == [
            ("user", "hi"),
            ("assistant", "I am done."),
            ("user", "one more thing"),
        ]
        assert len(on.ear.of(ev.TurnEnd)) == 1


async def test_what_was_not_taken_goes_into_the_next_turn(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(gate(2, say("I am at work.")), say("ok"))
        turn = asyncio.create_task(until_end(on.soul.run("hi")))
        await on.server.at_gate.wait()
        on.soul.say("wait")
        await on.soul.interrupt()
        await turn
        assert not on.ear.of(ev.SteerTaken)
        await until_end(on.soul.run("go on"))
        assert on.sent()[-1][1].endswith("wait\n\ngo on")
        assert len(on.ear.of(ev.SteerTaken)) == 1


async def test_before_a_turn(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.soul.say("early")
        on.server.script(say("ok"))
        await on.soul.run("hi")
        assert on.sent() == [("user", "early\n\nhi")]


async def test_typed_while_the_turn_is_being_saved(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say("I am done."), say("Of course."))
        sync = on.soul.session.sync
        steered: list[str] = []

        async def sync_slowly() -> bool:
            # The agent has stopped, but nobody was told yet: the person still sees it work.
            if not steered:
                steered.append(on.soul.say("one more thing"))
            return await sync()

        on.soul.session.sync = sync_slowly
        await on.soul.run("hi")
        assert on.sent()[-1] == ("user", "one more thing")
        assert [t.id for t in on.ear.of(ev.SteerTaken)] == steered
        assert len(on.ear.of(ev.TurnEnd)) == 1


async def test_said_while_compacting(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say("one"), say("two"), gate(2, say("A summary.")), say("Of course."))
        await on.soul.run("first")
        await on.soul.run("second")
        attending = asyncio.create_task(on.soul.attend())
        compacting = asyncio.create_task(on.soul.compact())
        await on.server.at_gate.wait()
        on.soul.say("one more thing")
        on.server.release()
        await compacting
        await next_event(on.soul.wire.subscribe(), ev.TurnEnd)
        assert on.sent()[-1] == ("user", "one more thing")
        await on.soul.aclose()
        await attending


async def test_taken_back_in_the_moment_it_goes_in(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(gate(2, call("Glob", {"pattern": "*"})), say("done"))
        context = on.session.context
        append = context.append
        withdrawn: list[Said | None] = []

        async def append_while_it_is_withdrawn(
            additions: Sequence[Addition],
        ) -> Sequence[Checkpoint]:
            if any(isinstance(one, Message) and one.text == "late" for one in additions):
                withdrawn.append(on.soul.inbox.take_back(steer_id))
            return await append(additions)

        context.append = append_while_it_is_withdrawn
        turn = asyncio.create_task(on.soul.run("hi"))
        await on.server.at_gate.wait()
        steer_id = on.soul.say("late")
        on.server.release()
        await turn
        assert withdrawn == [None]
        assert [(t.id, t.withdrawn) for t in on.ear.of(ev.SteerTaken)] == [(steer_id, False)]
        assert on.ear.of(ev.TurnEnd)[-1].reason == "done"
        assert "late" in "\n".join(text for _, text in on.sent())


async def test_what_could_not_be_put_in_waits_again(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(gate(2, call("Glob", {"pattern": "*"})), say("done"))
        context = on.session.context
        append = context.append

        async def refuse(additions: Sequence[Addition]) -> Sequence[Checkpoint]:
            if any(isinstance(one, Message) and one.text == "late" for one in additions):
                raise RuntimeError("a fault of ours")
            return await append(additions)

        context.append = refuse
        turn = asyncio.create_task(until_end(on.soul.run("hi")))
        await on.server.at_gate.wait()
        steer_id = on.soul.say("late")
        on.server.release()
        await turn
        assert on.ear.of(ev.TurnEnd)[-1].reason == "error"
        withdrawn = on.soul.inbox.take_back(steer_id)
        assert withdrawn is not None
        assert withdrawn.text == "late"
