"""Rewind, undo, redo, jump and fork through the engine: what is sent next, what is told, what comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.chat_server import call, calls, gate, say
from support.soul import Stage, stage

from kimi_tui.llm.message import Message
from kimi_tui.llm.tokens import text_tokens
from kimi_tui.projection.blocks import UserBlock
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.session.errors import NothingToUndo
from kimi_tui.soul.errors import NothingToClear, SoulBusy
from kimi_tui.soul.history import fits, session_history
from kimi_tui.soul.record import final_checkpoints, read_records
from kimi_tui.soul.rewind_values import END, Target
from kimi_tui.wire import events as ev


async def three_turns(on: Stage) -> None:
    (on.work / "a.txt").write_text("hello\n")
    on.server.script(
        say("one", usage=(100, 10)),
        call("ReadFile", {"path": "a.txt"}, text="I look.", usage=(200, 20)),
        calls([("ReadFile", {"path": "none"}), ("Glob", {"pattern": "*"})], usage=(300, 30)),
        say("two", usage=(400, 40)),
        say("three", usage=(500, 50)),
    )
    for text in ("first", "second\nwith more", "third"):
        await on.soul.run(text)


@pytest.mark.exhaustive
async def test_rewind_to_a_turn(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await three_turns(on)
        prefix = on.file()
        on.ear.forget()
        outcome = await on.soul.travel.rewind(Target(2))
        assert outcome.prompt == "second\nwith more"
        assert (outcome.checkpoint_id, outcome.tokens_before) == (2, 550)
        assert outcome.tokens_after == 110
        assert outcome.messages_dropped == 9
        assert on.file() == prefix[: next(i for i, r in enumerate(prefix) if r.get("id") == 2)]
        assert on.file("context_1.jsonl") == prefix
        (reverted,) = on.ear.of(ev.ContextReverted)
        assert (reverted.reason, reverted.prompt) == ("rewind", "second\nwith more")
        assert (reverted.tokens_before, reverted.tokens_after) == (550, 110)
        assert on.ear.names() == ["ContextReverted", "LineChanged", "StatusUpdate"]
        status = on.ear.of(ev.StatusUpdate)[0]
        assert (status.used, status.estimated) == (110, False)
        on.server.script(say("again"))
        await on.soul.run("otherwise")
        assert on.sent() == [("user", "first"), ("assistant", "one"), ("user", "otherwise")]


@pytest.mark.exhaustive
async def test_rewind_to_a_step_and_on_from_there(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await three_turns(on)
        outcome = await on.soul.travel.rewind(Target(4))
        assert outcome.prompt == ""
        before = on.sent(2)
        on.server.script(say("on"))
        await on.soul.resume()
        # Exactly what was sent at that step.
        assert on.sent() == before
        assert on.ear.of(ev.TurnEnd)[-1].reason == "done"


@pytest.mark.exhaustive
async def test_the_preview(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await three_turns(on)
        files = on.file()
        seen = await on.soul.travel.preview(Target(2))
        assert seen.label == "second"
        assert seen.prompt == "second\nwith more"
        assert (seen.steps, seen.turns, seen.messages) == (6, 2, 9)
        assert (seen.tokens_before, seen.tokens_after) == (550, 110)
        assert [(g.kind, g.text, g.name, g.failed) for g in seen.dropped] == [
            ("agent", "three", "", False),
            ("user", "third", "", False),
            ("agent", "two", "", False),
            ("tool", "*", "Glob", False),
            ("tool", "none", "ReadFile", True),
            ("tool", "a.txt", "ReadFile", False),
            ("agent", "I look.", "", False),
        ]
        assert seen.dropped[5].tokens == 100
        step = await on.soul.travel.preview(Target(3))
        assert step.prompt == ""
        assert step.label == "Read a.txt"
        assert step.tokens_after == 200  # what the server read there
        assert not step.estimated
        assert on.file() == files
        for wrong in (Target(99), Target(0, world_line=7)):
            with pytest.raises(KeyError, match=r"no (checkpoint|world line)"):
                await on.soul.travel.preview(wrong)
            with pytest.raises(KeyError):
                await on.soul.travel.rewind(wrong)


@pytest.mark.exhaustive
async def test_a_rewind_to_a_step_ends_at_the_figure_of_its_preview(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await three_turns(on)
        seen = await on.soul.travel.preview(Target(3))
        done = await on.soul.travel.rewind(Target(3))
        assert (done.tokens_before, done.tokens_after) == (seen.tokens_before, seen.tokens_after)
        assert on.soul.used == seen.tokens_after


@pytest.mark.exhaustive
async def test_undo_and_redo(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await three_turns(on)
        whole = on.file()
        await on.soul.travel.rewind(Target(2))
        await on.soul.travel.rewind(Target(1))
        short = on.file()
        # The line that the second rewind left is only the beginning of world line 1, so it is no line of its own.
        assert [e.world_line for e in on.ear.of(ev.ContextReverted)] == [1, 0]
        assert not (on.session.dir / "context_2.jsonl").exists()
        assert "rewind to #1" in (await on.soul.travel.undo()).text
        assert "rewind to #2" in (await on.soul.travel.undo()).text
        assert on.file() == whole
        assert on.ear.of(ev.StatusUpdate)[-1].used == 550
        on.server.script(say("four"))
        with pytest.raises(NothingToUndo):
            await on.soul.travel.undo()
        await on.soul.travel.redo()
        assert "rewind to #1" in (await on.soul.travel.redo()).text
        assert on.file() == short
        with pytest.raises(NothingToUndo):
            await on.soul.travel.redo()
        await on.reopen()
        await on.soul.travel.undo()
        await on.soul.travel.undo()
        assert on.file() == whole
        await on.soul.run("go on")
        assert on.sent()[-1] == ("user", "go on")
        assert on.sent()[-2] == ("assistant", "three")


@pytest.mark.exhaustive
async def test_undo_of_a_compaction(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await three_turns(on)
        whole = on.file()
        on.server.script(say("SUMMARY"), say("four"))
        await on.soul.compact()
        assert on.file() != whole
        assert "compaction" in (await on.soul.travel.undo()).text
        assert on.file() == whole
        await on.soul.run("go on")
        assert on.sent()[-2:] == [("assistant", "three"), ("user", "go on")]
        assert on.sent()[0] == ("user", "first")


@pytest.mark.exhaustive
async def test_clear(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await three_turns(on)
        whole = on.file()
        on.ear.forget()
        said = await on.soul.travel.clear()
        assert said.startswith("Cleared")
        # Only what every request begins with is left, and the line left stays as it was.
        assert on.file() == whole[:1]
        assert whole[0]["role"] == "_system_prompt"
        assert on.file("context_1.jsonl") == whole
        entry = next(r for r in on.file("worldlines.jsonl") if r["op"] == "clear")
        assert (entry["n"], entry["reason"]) == (1, "clear")
        assert on.ear.names() == ["ContextReverted", "LineChanged", "StatusUpdate"]
        (reverted,) = on.ear.of(ev.ContextReverted)
        assert (reverted.reason, reverted.checkpoint_id, reverted.world_line) == ("clear", 0, 1)
        assert (reverted.tokens_before, reverted.tokens_after) == (550, on.soul.used)
        assert on.soul.used < 550 * 20
        (line,) = await on.soul.lines.all()
        assert line.reason == "clear"
        with pytest.raises(NothingToClear):
            await on.soul.travel.clear()
        on.server.script(say("hello"))
        await on.soul.run("anew")
        assert on.sent() == [("user", "anew")]
        assert on.session.context.checkpoints[0].id == 0
        # Undone and done again, in a new process too.
        await on.reopen()
        assert fits(session_history(on.session), on.session)
        assert "/clear" in (await on.soul.travel.undo()).text
        assert on.file() == whole
        on.server.script(say("on"))
        await on.soul.run("go on")
        assert on.sent()[0] == ("user", "first")


@pytest.mark.exhaustive
async def test_clear_undone_and_done_again(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await three_turns(on)
        whole = on.file()
        await on.soul.travel.clear()
        await on.reopen()
        assert fits(session_history(on.session), on.session)
        await on.soul.travel.undo()
        assert on.file() == whole
        assert on.soul.used == 550
        await on.soul.travel.redo()
        assert on.file() == whole[:1]
        assert not on.session.context.messages
        await on.reopen()
        assert fits(session_history(on.session), on.session)
        await on.soul.travel.undo()
        assert on.file() == whole


@pytest.mark.exhaustive
async def test_a_letter_to_a_cleared_checkpoint_is_refused(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await three_turns(on)
        await on.soul.travel.clear()
        on.server.script(call("SendDMail", {"message": "x", "checkpoint_id": 5}), say("done"))
        await on.soul.run("go back")
        assert "no checkpoint 5" in on.sent()[-1][1]


async def test_clear_while_a_turn_runs(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(gate(2, say("I am at work.")))
        turn = asyncio.create_task(on.soul.run("hi"))
        await on.server.at_gate.wait()
        with pytest.raises(SoulBusy):
            await on.soul.travel.clear()
        on.server.release()
        await turn
        assert on.sent() == [("user", "hi")]


@pytest.mark.exhaustive
async def test_jump_to_another_line(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await three_turns(on)
        await on.soul.travel.rewind(Target(2))
        on.server.script(say("other"))
        await on.soul.run("otherwise")
        seen = await on.soul.travel.preview(Target(6, world_line=1))
        assert seen.prompt == "third"
        assert [g.text for g in seen.dropped] == ["other", "otherwise"]
        outcome = await on.soul.travel.rewind(Target(6, world_line=1))
        assert outcome.prompt == "third"
        (changed,) = [e for e in on.ear.of(ev.LineChanged) if e.op == "jump"]
        assert (changed.from_line, changed.to_line) == (2, 1)
        on.server.script(say("now"))
        await on.soul.run("third again")
        assert on.sent()[-2:] == [("assistant", "two"), ("user", "third again")]
        assert "otherwise" not in str(on.sent())


@pytest.mark.exhaustive
async def test_fork(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await three_turns(on)
        made = await on.soul.travel.fork(Target(2))
        assert made.prompt == "second\nwith more"
        assert on.session.context.n_checkpoints == 8
        other = on.store.find(made.session_id)
        await other.open()
        assert [m.text for m in other.context.messages][-1] == "one"
        # The chat does not show there what the agent is not sent: it goes into the prompt.
        told = read_records(other)
        assert fits(told, other)
        assert [r.event.text for r in told if isinstance(r.event, ev.TurnBegin)] == ["first"]
        await other.aclose()
        # A fork of a fork, and a second one at the same place, can be told apart; how much is in them is known.
        again = await on.soul.travel.fork(Target(2))
        await on.soul.travel.fork(Target(3))
        there = on.store.find(again.session_id, on.work)
        await there.fork()
        forks = {info.title: info.messages for info in on.store.list(on.work) if info.forked_from}
        assert forks == {
            "Fork at #2: first": 2,
            "Fork 2 at #2: first": 2,
            "Fork at #3: first": 3,
            "Fork: first": 2,
        }


@pytest.mark.exhaustive
async def test_a_fork_before_a_letter_has_neither_it_nor_the_words_that_it_carried(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        await three_turns(on)
        await on.soul.dmails.send(Target(4), "look elsewhere")
        for target, said in ((Target(4), ["first", "second\nwith more"]), (Target(2), ["first"])):
            made = await on.soul.travel.fork(target)
            other = on.store.find(made.session_id)
            await other.open()
            # If the line that the D-Mail left came later, the events are rebuilt with it.
            told = session_history(other)
            assert final_checkpoints(told) == [point.uid for point in other.context.checkpoints]
            cut = max(
                n for n, one in enumerate(told) if isinstance(one.event, ev.CheckpointCreated)
            )
            assert not [one for one in told[cut + 1 :] if isinstance(one.event, ev.TurnBegin)]
            transcript = TranscriptModel()
            for one in told:
                transcript.apply(one)
            shown = [b.text for b in transcript.blocks if isinstance(b, UserBlock) and b.live]
            assert shown == said
            await other.aclose()


@pytest.mark.exhaustive
@pytest.mark.parametrize("spoil", ["nothing", "delete", "cut", "stale"])
async def test_the_history_is_the_same_conversation(tmp_path: Path, spoil: str) -> None:
    async with stage(tmp_path) as on:
        await three_turns(on)
        live = [r.event for r in await on.soul.history()]
        record = on.session.record.path
        await on.soul.aclose()
        if spoil == "delete":
            record.unlink()
        elif spoil == "cut":
            record.write_bytes(record.read_bytes()[:-2_000])
        elif spoil == "stale":
            lines = record.read_bytes().splitlines(keepends=True)
            record.write_bytes(b"".join(line for line in lines if b'"id":4' not in line))
        on.session = on.store.find(on.session.id)
        await on.open()
        told = [r.event for r in await on.soul.history()]
        assert told == [r.event for r in on.soul.opened_with][: len(told)]

        def shape(events: list[ev.Event]) -> list[object]:
            found: list[object] = []
            results: list[tuple[str, bool, str, str]] = []
            for event in events:
                match event:
                    case ev.CheckpointCreated():
                        found.append((event.id, event.uid, event.kind))
                    case ev.TurnBegin() | ev.TextPart() | ev.ThinkPart() | ev.TurnEnd():
                        found.append(event)
                    case ev.ToolCall():
                        found.append((event.key, event.name, event.arguments))
                    case ev.ToolResult():
                        # Told as they ended, rebuild_history in the order of the calls.
                        results.append((event.key, event.is_error, event.output, event.message))
                    case _:
                        pass
            return [*found, *sorted(results)]

        assert shape(told) == shape(live)
        # A turn begins with the figure before it, even if the record has none.
        assert all(e.tokens for e in told if isinstance(e, ev.CheckpointCreated))
        if spoil == "nothing":
            assert told == live
        # New events continue after the history.
        assert on.soul.wire.publish(ev.Notice("info", "")).seq > on.soul.opened_with[-1].seq


@pytest.mark.exhaustive
async def test_the_history_after_operations(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await three_turns(on)
        await on.soul.travel.rewind(Target(2))
        await on.soul.travel.undo()
        await on.soul.travel.rewind(Target(6))
        on.server.script(calls([("SendDMail", {"message": "m", "checkpoint_id": 4})]), say("end"))
        await on.soul.run("third again")
        on.server.script(say("SUMMARY"))
        await on.soul.compact()
        await on.soul.travel.undo()
        await on.reopen()
        records = await on.soul.history()
        assert [r.seq for r in records] == sorted(r.seq for r in records)
        # The record holds the event as it was published; a rebuilt history holds no operations.
        assert any(isinstance(r.event, ev.LineChanged) and r.event.op == "undo" for r in records)
        on.session.record.path.unlink()
        rebuild_history = session_history(on.session)
        # Every line that was left is told too, and it ends at the live line.
        assert fits(rebuild_history, on.session)
        reasons = [
            r.event.reason for r in rebuild_history if isinstance(r.event, ev.ContextReverted)
        ]
        assert "dmail" in reasons
        assert [r.seq for r in rebuild_history] == list(range(1, len(rebuild_history) + 1))


async def test_without_a_record_a_turn_that_was_cut_short_stays_open(tmp_path: Path) -> None:
    """Only so does a screen know that the agent can go on from there: a killed program tells no end."""
    async with stage(tmp_path) as on:
        on.server.script(say("one"))
        await on.soul.run("first")
        on.session.record.path.unlink()
        whole = [r.event for r in session_history(on.session)]
        assert isinstance(whole[-1], ev.TurnEnd)
        await on.session.context.checkpoint(add_user_message=False)
        await on.session.context.append([Message(role="user", content="second")])
        cut_short = [r.event for r in session_history(on.session)]
        assert [e.text for e in cut_short if isinstance(e, ev.TurnBegin)] == ["first", "second"]
        assert sum(isinstance(e, ev.TurnEnd) for e in cut_short) == 1


@pytest.mark.exhaustive
async def test_screens_show_the_same_live_and_afterwards(tmp_path: Path) -> None:
    """The reducers of chat and timeline come to the same end by live events, by the record and by the files."""
    from kimi_tui.projection.blocks import UserBlock
    from kimi_tui.projection.timeline import TimelineModel
    from kimi_tui.projection.transcript import TranscriptModel

    def shown(records: list[ev.EventRecord]) -> tuple[list[str], list[str]]:
        chat, timeline = TranscriptModel(), TimelineModel()
        for record in records:
            chat.apply(record)
            timeline.apply(record)
        there = {point.uid for point in on.session.context.checkpoints}
        # The person's words that a D-Mail carried over keep the name they had.
        steps = [b for b in chat.blocks if b.live and not isinstance(b, UserBlock)]
        assert {b.uid for b in steps if b.uid} <= there
        blocks = [f"{type(b).__name__} {b.checkpoint}" for b in chat.blocks]
        return blocks, [point.uid for point in timeline.tree.live]

    async with stage(tmp_path) as on:
        live: list[ev.EventRecord] = []
        heard = on.soul.wire.subscribe()

        async def check() -> None:
            live.extend(heard.drain())
            now = shown(live)
            assert now[1] == [point.uid for point in on.session.context.checkpoints]
            stored = shown(await on.soul.history())
            assert stored == now

        await three_turns(on)
        await check()
        await on.soul.travel.rewind(Target(2))
        await check()
        await on.soul.travel.undo()
        await check()
        await on.soul.travel.redo()
        await check()
        await on.soul.travel.undo()
        await on.soul.travel.rewind(Target(6))
        on.server.script(calls([("SendDMail", {"message": "m", "checkpoint_id": 4})]), say("end"))
        await on.soul.run("third again")
        await check()
        await on.soul.travel.rewind(Target(6, world_line=1))
        await check()
        on.server.script(say("SUMMARY"))
        await on.soul.compact()
        await check()
        await on.soul.travel.undo()
        await check()
        for start, until in ((None, 2), (3, None), (1, 2)):
            on.server.script(say("SUMMARY"))
            await on.soul.compact(
                start=None if start is None else Target(start),
                until=None if until is None else Target(until),
            )
            await check()
            await on.soul.edit_summary(f"EDITED {start}")
            await check()
        on.server.script(say("more"))
        await on.soul.run("more")
        await check()
        await on.soul.travel.rewind(Target(2))
        await check()
        for _ in range(7):
            await on.soul.travel.undo()
            await check()
        await on.soul.travel.redo()
        await check()
        lines = await on.messages(1)
        await on.soul.dmails.carry(1, lines[0].uid, 0)
        await check()
        await on.soul.dmails.send(Target(1), "by hand")
        await check()


@pytest.mark.exhaustive
async def test_it_is_told_whether_the_line_that_is_live_now_ends_open(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await three_turns(on)

        async def changes() -> list[tuple[str, bool]]:
            told = [(e.op, e.is_open) for e in on.ear.of(ev.LineChanged)]
            on.ear.forget()
            return told

        # #4 is a step: before it a tool has answered, and nobody has said anything to that yet.
        assert (await on.soul.travel.rewind(Target(4))).is_open
        await on.soul.travel.undo()
        await on.soul.travel.redo()
        assert await changes() == [("rewind", True), ("undo", False), ("redo", True)]
        assert not (await on.soul.travel.rewind(Target(END, 1))).is_open
        assert (await on.soul.travel.rewind(Target(5, world_line=1))).is_open
        assert await changes() == [("jump", False), ("jump", True)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("step", [1, 3])
async def test_the_preview_of_a_jump_names_the_tokens_that_there_are_then(
    tmp_path: Path, step: int
) -> None:
    async with stage(tmp_path) as on:
        await three_turns(on)
        await on.soul.travel.rewind(Target(0))
        on.server.script(say("other", usage=(4_000, 10)))
        await on.soul.run("otherwise")
        seen = await on.soul.travel.preview(Target(step, world_line=1))
        outcome = await on.soul.travel.rewind(Target(step, world_line=1))
        assert abs(seen.tokens_after - outcome.tokens_after) <= 0.05 * outcome.tokens_after


async def test_the_history_is_handed_over_once_and_kept_no_longer(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say("Yes."))
        await on.soul.run("Are you there?")
        await on.reopen()
        told = on.soul.hand_over_history()
        assert any(isinstance(record.event, ev.TurnBegin) for record in told)
        assert not on.soul.opened_with
        assert not on.soul.hand_over_history()
        # A later user of the record reads it again.
        assert [record.event for record in await on.soul.history()][:2] == [
            record.event for record in told
        ][:2]


async def test_a_line_without_a_figure_holds_the_same_for_the_journal_as_for_the_screen(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say("one", usage=(6_000, 5)), say("two", usage=(6_100, 5)))
        await on.soul.run("first")
        await on.soul.run("second")
        outcome = await on.soul.travel.rewind(Target(0))
        (told,) = on.ear.of(ev.ContextReverted)
        (line,) = await on.soul.lines.all()
        figures = {told.tokens_after, outcome.tokens_after, line.left_by.tokens_after}
        assert len(figures) == 1
        # With what the tools' descriptions take, which no message holds.
        texts = text_tokens(on.session.context.system_prompt or "")
        assert figures.pop() > texts * 2


@pytest.mark.exhaustive
async def test_only_a_rewind_of_the_person_gives_a_message_back(tmp_path: Path) -> None:
    """A message that undo or redo brings back is on the line again, or gone with its answer: the prompt gets none."""
    async with stage(tmp_path) as on:
        on.server.script(
            say("one"),
            say("two"),
            call("SendDMail", {"message": "skip it", "checkpoint_id": 3}),
            say("four"),
        )
        await on.soul.run("first")
        await on.soul.run("second")
        outcome = await on.soul.travel.rewind(Target(2))
        assert outcome.prompt == "second"
        assert [e.prompt for e in on.ear.of(ev.ContextReverted)] == ["second"]
        on.ear.forget()
        await on.soul.travel.undo()
        await on.soul.run("third")
        assert [e.reason for e in on.ear.of(ev.ContextReverted)] == ["dmail"]
        await on.soul.travel.undo()
        await on.soul.travel.redo()
        await on.reopen()
        await on.soul.travel.undo()
        await on.soul.travel.redo()
        told = on.ear.events
        assert [e.op for e in on.ear.of(ev.LineChanged)] == ["undo", "redo"]
        assert not [e for e in told if isinstance(e, ev.ContextReverted) and e.prompt]
        assert not [e for e in told if isinstance(e, ev.ContextReverted) and e.reason == "rewind"]
