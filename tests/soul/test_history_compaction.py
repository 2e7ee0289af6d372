"""The texts that the chat shows as current are those that the model is sent: after a compaction, undo and redo, and a restart."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import call, gate, say
from support.soul import Stage, stage

from kimi_tui.config.settings import DMailConfig
from kimi_tui.projection.blocks import AgentBlock, CompactionBlock, ToolBlock, UserBlock
from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.session.context import Context, Reverted
from kimi_tui.session.schema import is_marker
from kimi_tui.soul import compaction
from kimi_tui.soul.history import read_history
from kimi_tui.soul.messages import internal_kind, summary_text
from kimi_tui.soul.model_slot import LoopLimits
from kimi_tui.soul.record import read_records
from kimi_tui.soul.rewind_values import Target
from kimi_tui.soul.tool_results import outcome_of
from kimi_tui.wire.events import CompactionEnd, EventRecord

Shown = list[tuple[str, bool]]


def shown(records: list[EventRecord]) -> tuple[Shown, Shown, list[tuple[int, str, str]]]:
    """Return the texts that the chat shows as current, its other texts (each with whether it is pinned), and the timeline's rows."""
    chat, timeline = TranscriptModel(), TimelineModel()
    for record in records:
        chat.apply(record)
        timeline.apply(record)
    alive: Shown = []
    grey: Shown = []
    for block in chat.blocks:
        match block:
            case UserBlock():
                text = block.text
            case AgentBlock():
                text = block.stream.text
            case CompactionBlock():
                text = block.summary
            case ToolBlock():
                text = block.output
            case _:
                continue
        (alive if block.live else grey).append((text, block.pinned))
    return alive, grey, [(p.id, p.kind, p.words) for p in timeline.tree.live]


def sent(on: Stage) -> list[str]:
    texts: list[str] = []
    for message in on.session.context.messages:
        if message.role == "tool":
            texts.append(outcome_of(message).output)
        elif internal_kind(message) in (None, "compaction") and message.text:
            texts.append(summary_text(message) or message.text)
    return texts


def words(told: Shown) -> list[str]:
    return [text for text, _ in told]


async def check(on: Stage, rows: list[tuple[int, str, str]] | None = None) -> None:
    """The chat and the timeline of a new listener are what is sent."""
    await on.soul.flush()
    alive, _, found = shown(await on.soul.history())
    assert words(alive) == sent(on)
    points = on.session.context.checkpoints
    assert [number for number, _, _ in found] == [point.id for point in points]
    if rows is not None:
        assert found == rows


def told_chat(on: Stage) -> TranscriptModel:
    """Return the chat as listeners from the beginning see it."""
    chat = TranscriptModel()
    for record in read_records(on.session):
        chat.apply(record)
    return chat


async def pinned_turns(on: Stage) -> None:
    """Four turns; a steer in the second is pinned, and the words of the first."""
    (on.work / "a.txt").write_text("hello\n")
    on.server.script(say("one"), gate(1, call("ReadFile", {"path": "a.txt"}, text="I look.")))
    on.server.script(say("two"), say("three"), say("four"))
    await on.soul.run("first")
    task = asyncio.create_task(on.soul.run("second"))
    await on.server.at_gate.wait()
    on.soul.say("and hurry")
    on.server.release()
    await task
    await on.soul.run("third")
    await on.soul.run("fourth")
    points = on.session.context.checkpoints
    await on.soul.marks.pin(points[0].uid, 0)
    await on.soul.marks.pin(points[3].uid, 2)


ROWS = [
    (0, "compaction", ""),
    (1, "user", "first"),
    (2, "user", "and hurry"),
    (3, "user", "fourth"),
    (4, "step", "four"),
]


async def test_what_is_kept_stands_below_the_card_with_its_checkpoints(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await pinned_turns(on)
        before = sent(on)
        on.server.script(say("SUMMARY"), say("five"))
        await on.soul.compact()
        assert sent(on) == ["SUMMARY", "first", "and hurry", "fourth", "four"]
        await check(on, ROWS)
        grey = words(shown(await on.soul.history())[1])
        assert grey == ["one", "second", "I look.", before[4], "two", "third", "three"]
        # There and back again, and what follows.
        await on.soul.travel.undo()
        assert sent(on) == before
        await check(on)
        await on.soul.travel.redo()
        await check(on, ROWS)
        await on.soul.run("fifth")
        await check(on)
        said = "Undid the compaction. 2 steps since then stay as world line 3."
        assert (await on.soul.travel.undo()).text == said
        await on.soul.travel.redo()
        # A rewind to what was kept, and what is pinned there.
        assert (await on.soul.travel.rewind(Target(3))).prompt == "fourth"
        await check(on, ROWS[:3])
        pinned = [(m.checkpoint_id, m.text) for m in await on.messages() if m.pinned]
        assert pinned == [(1, "first"), (2, "and hurry")]
        await on.soul.travel.undo()
        await on.reopen()
        await check(on)
        # Without its record the same is told from the messages.
        await on.soul.aclose()
        on.session.record.path.unlink()
        on.session = on.store.find(on.session.id)
        await on.open()
        await check(on)
        alive, past, _ = shown(await on.soul.history())
        assert "I look." in words(past)
        assert not set(words(alive)) & set(words(past))


async def test_what_is_pinned_in_a_part_stays_on_view(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await pinned_turns(on)
        on.server.script(say("PART"))
        await on.soul.compact(start=Target(2))
        assert sent(on) == ["first", "one", "PART", "and hurry"]
        await check(on)
        await on.soul.travel.undo()
        await check(on)
        await on.soul.travel.redo()
        await on.reopen()
        await check(on)


async def test_the_record_of_a_pinned_summary_that_a_dmail_carried_along_is_followed(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        await pinned_turns(on)
        on.server.script(say("PART"))
        await on.soul.compact(start=Target(2))
        (uid,) = [point.uid for point in on.session.context.checkpoints if point.id == 2]
        await on.soul.marks.pin(uid, 0)
        await on.soul.dmails.send(Target(0), "Begin otherwise.")
        assert sent(on)[:3] == ["first", "PART", "and hurry"]
        before = shown(await on.soul.history())
        await on.soul.flush()
        await on.reopen()
        # A history that is made anew does not know in which order lines were left.
        assert read_history(on.session).is_recorded
        assert shown(await on.soul.history()) == before


async def test_a_dropped_reminder_between_pinned_messages_loses_no_pin(tmp_path: Path) -> None:
    async with stage(tmp_path, limits=LoopLimits(dmail=DMailConfig(nudge_tokens=1_000))) as on:
        (on.work / "big.txt").write_text("some words of a line\n" * 400)
        on.server.script(gate(1, call("ReadFile", {"path": "big.txt"})), say("two"))
        on.server.script(say("three"), say("four"), say("SUMMARY"), say("AGAIN"))
        turn = asyncio.create_task(on.soul.run("first"))
        await on.server.at_gate.wait()
        on.soul.say("and hurry")
        on.server.release()
        await turn
        await on.soul.run("second")
        await on.soul.run("third")
        step = on.session.context.checkpoints[1].uid
        texts = [one.text for one in await on.messages() if one.uid == step]
        assert "SendDMail" in texts[2]
        assert texts[3] == "and hurry"
        await on.soul.marks.pin(step, 1)
        await on.soul.marks.pin(step, 3)
        pinned = [one.text for one in await on.messages() if one.pinned]
        for _ in range(2):
            await on.soul.compact()
            assert [one.text for one in await on.messages() if one.pinned] == pinned
            await check(on)


async def test_a_session_whose_compaction_kept_messages_without_checkpoints(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await pinned_turns(on)
        on.server.script(say("SUMMARY"), say("five"))
        await on.soul.compact()
        await on.soul.aclose()
        # An earlier version wrote it like this: the kept messages after #0, and nothing of them in the record.
        path = on.session.dir / "context.jsonl"
        records = [json.loads(line) for line in path.read_text().splitlines()]
        old = [r for r in records if r.get("id", 0) == 0 and not is_marker(r)]
        path.write_text("".join(json.dumps(r) + "\n" for r in old))
        wire = on.session.record.path
        lines = wire.read_text().splitlines()
        wire.write_text(
            "".join(line + "\n" for line in lines if '"was":"' not in line.replace('"was":""', ""))
        )
        on.session = on.store.find(on.session.id)
        await on.open()
        assert sent(on) == ["SUMMARY", "first", "and hurry", "fourth", "four"]
        await check(on, ROWS[:1])
        await on.soul.run("fifth")
        await check(on)
        on.server.script(say("AGAIN"))
        await on.soul.compact()
        assert sent(on) == ["AGAIN", "fifth", "five"]
        await check(on)


async def test_a_session_whose_compaction_of_a_part_kept_a_message_without_a_checkpoint(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        await pinned_turns(on)
        on.server.script(say("PART"), say("five"))
        await on.soul.compact(start=Target(2))
        await on.soul.aclose()
        # An earlier version wrote it like this: the kept message after the summary's #2, and nothing of it in the record.
        path, wire = on.session.dir / "context.jsonl", on.session.record.path
        records = [json.loads(line) for line in path.read_text().splitlines()]
        old = [r for r in records if r.get("id", 0) <= 2 and not is_marker(r)]
        path.write_text("".join(json.dumps(r) + "\n" for r in old))
        lines = wire.read_text().splitlines()
        wire.write_text(
            "".join(line + "\n" for line in lines if '"was":"' not in line.replace('"was":""', ""))
        )
        on.session = on.store.find(on.session.id)
        await on.open()
        assert sent(on) == ["first", "one", "PART", "and hurry"]
        await check(on)
        await on.soul.run("fifth")
        await check(on)


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_cut", [True, False], ids=["torn", "damaged"])
@pytest.mark.parametrize("start", [None, Target(2)], ids=["whole", "part"])
async def test_a_record_of_a_compaction_that_lacks_a_line_is_not_followed_without_it(
    tmp_path: Path, start: Target | None, *, is_cut: bool
) -> None:
    async with stage(tmp_path) as on:
        await pinned_turns(on)
        on.server.script(say("SUMMARY"))
        await on.soul.compact(start=start)
        await on.soul.aclose()
        lines = on.session.record.path.read_bytes().splitlines(keepends=True)
        begin = next(n for n, line in enumerate(lines) if b"CompactionBegin" in line)
        assert len(lines) - begin > 5
        for n in range(begin, len(lines)):
            rest = [] if is_cut else lines[n + 1 :]
            on.session.record.path.write_bytes(b"".join([*lines[:n], *rest]))
            on.session = on.store.find(on.session.id)
            await on.open()
            await check(on)
            await on.soul.aclose()
        await on.open()


async def test_a_torn_record_without_the_end_of_a_compaction_is_not_followed(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        await pinned_turns(on)
        on.server.script(say("SUMMARY"))
        await on.soul.compact(start=Target(2))
        await on.soul.aclose()
        lines = on.session.record.path.read_bytes().splitlines(keepends=True)
        end = next(n for n, line in enumerate(lines) if b"CompactionEnd" in line)
        on.session.record.path.write_bytes(b"".join(lines[:end]))
        on.session = on.store.find(on.session.id)
        await on.open()
        await check(on)
        await on.reopen()
        await check(on)


async def test_a_summary_without_what_it_replaced_is_shown_with_what_was_kept_beside_it(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        await pinned_turns(on)
        on.server.script(say("SUMMARY"))
        await on.soul.compact()
        (end,) = on.ear.of(CompactionEnd)
        await on.soul.aclose()
        path = on.session.dir / "context.jsonl"
        records = [json.loads(line) for line in path.read_text().splitlines()]
        kept = [r for r in records if r.get("id", 0) == 0 and not is_marker(r)]
        path.write_text("".join(json.dumps(r) + "\n" for r in kept))
        (on.session.dir / "context_1.jsonl").unlink()
        # The journal knows what the compaction freed; without it nothing does.
        for lost in ("wire.jsonl", "worldlines.jsonl"):
            (on.session.dir / lost).unlink()
            on.session = on.store.find(on.session.id)
            await on.open()
            assert sent(on) == ["SUMMARY", "first", "and hurry", "fourth", "four"]
            await check(on, ROWS[:1])
            told = [one.event for one in await on.soul.history()]
            (again,) = (one for one in told if isinstance(one, CompactionEnd))
            if lost == "wire.jsonl":
                assert (again.tokens_before, again.tokens_after) == (
                    end.tokens_before,
                    end.tokens_after,
                )
            else:
                assert again.tokens_before == again.tokens_after
            await on.soul.aclose()
        await on.open()


async def test_a_compaction_that_cannot_be_told_has_ended_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    async with stage(tmp_path) as on:
        await pinned_turns(on)
        on.server.script(say("SUMMARY"), say("five"))
        with monkeypatch.context() as broken:
            broken.setattr(compaction, "_created", fail)
            with pytest.raises(ZeroDivisionError):
                await on.soul.compact()
        await on.soul.flush()
        (card,) = (b for b in told_chat(on).blocks if isinstance(b, CompactionBlock))
        assert (card.running, card.summary) == (False, "SUMMARY")
        await on.soul.run("fifth")
        await check(on)


async def test_what_is_pinned_while_a_compaction_is_written_stays_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path) as on:
        (on.work / "a.txt").write_text("hello\n")
        on.server.script(say("one"), gate(1, call("ReadFile", {"path": "a.txt"})), say("two"))
        await on.soul.run("first")
        task = asyncio.create_task(on.soul.run("second"))
        await on.server.at_gate.wait()
        on.soul.say("and hurry")
        on.server.release()
        await task
        step = on.session.context.checkpoints[3].uid
        clear = Context.clear

        async def pinned_before(context: Context, **options: Any) -> Reverted:
            await on.soul.marks.pin(step, 2)
            return await clear(context, **options)

        monkeypatch.setattr(Context, "clear", pinned_before)
        on.server.script(say("SUMMARY"))
        await on.soul.compact()
        assert sent(on) == ["SUMMARY", "and hurry", "two"]
        assert [m.text for m in await on.messages() if m.pinned] == ["and hurry"]


async def time_travelled(on: Stage, way: str) -> None:
    """Four turns, some of it pinned, and travels of one kind."""
    await pinned_turns(on)
    on.server.script(say("SUM"), say("seven"), say("SUM AGAIN"))
    match way:
        case "D-Mail":
            await on.soul.dmails.send(Target(2), "Begin otherwise.")
            await on.soul.run("fifth")
        case "rewind":
            await on.soul.travel.rewind(Target(2))
            await on.soul.run("fifth")
            await on.soul.travel.undo()
        case "redo":
            await on.soul.travel.rewind(Target(2))
            await on.soul.travel.undo()
            await on.soul.travel.redo()
        case "redone compaction":
            await on.soul.compact()
            await on.soul.travel.undo()
            await on.soul.travel.redo()
            await on.soul.run("sixth")
        case "two compactions":
            await on.soul.compact()
            await on.soul.run("sixth")
            await on.soul.compact()
        case _:
            await on.soul.compact(start=Target(2))
            await on.soul.run("sixth")
            await on.soul.dmails.send(Target(2), "Otherwise.")


async def check_torn(on: Stage, cuts: range | None = None) -> None:
    """However much of its end the record lost, the chat is what is sent."""
    await on.soul.aclose()
    lines = on.session.record.path.read_bytes().splitlines(keepends=True)
    for n in cuts or range(1, len(lines)):
        on.session.record.path.write_bytes(b"".join(lines[:n]))
        on.session = on.store.find(on.session.id)
        await on.open()
        await check(on)
        await on.soul.aclose()
    await on.open()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "way", ["D-Mail", "rewind", "redo", "redone compaction", "two compactions", "D-Mail to a part"]
)
async def test_a_record_that_lost_any_part_of_its_end_loses_no_message(
    tmp_path: Path, way: str
) -> None:
    async with stage(tmp_path) as on:
        await time_travelled(on, way)
        await check_torn(on)


@pytest.mark.parametrize("way", ["D-Mail", "two compactions"])
async def test_a_record_that_ends_long_before_an_operation_loses_no_message(
    tmp_path: Path, way: str
) -> None:
    async with stage(tmp_path) as on:
        await time_travelled(on, way)
        # The end is in an answer, before and after a message that was to go in.
        await check_torn(on, range(15, 19, 3))
