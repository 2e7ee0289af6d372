"""The history of a session whose record is gone leads to the same pictures as its events did."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.chat_server import call, say
from support.soul import stage

from kimi_tui.projection.blocks import AgentBlock, DMailBlock, MarkBlock, ToolBlock, UserBlock
from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.soul.history import session_history
from kimi_tui.soul.rebuilt_history import end_of_context, rebuild_history, rebuild_world_line
from kimi_tui.soul.record import end_of_record, final_checkpoints, read_records
from kimi_tui.soul.rewind_values import END, Target
from kimi_tui.wire.events import ContextReverted, EventRecord, TurnEnd

Tree = tuple[list[str], dict[int, tuple[str, list[str]]]]


def tree(records: Sequence[EventRecord]) -> Tree:
    """Return the checkpoints of the live line, and the own checkpoints of every line that is drawn beside it."""
    model = TimelineModel()
    for record in records:
        model.apply(record)
    lines = model.tree.lines
    return (
        [point.uid for point in model.tree.live],
        {
            n: (lines[n].reason, [point.uid for point in lines[n].checkpoints])
            for n in sorted(lines)
        },
    )


def chat(records: Sequence[EventRecord]) -> list[str]:
    model = TranscriptModel()
    for record in records:
        model.apply(record)
    return [
        block.text if isinstance(block, UserBlock) else "".join(block.stream.text)
        for block in model.blocks
        if isinstance(block, (UserBlock, AgentBlock))
    ]


@pytest.mark.sample
@pytest.mark.parametrize(
    ("after", "drawn"),
    [
        # Gone on with and left: the line that was jumped to is the beginning of the new one.
        ((2,), [1, 2]),
        (("e", 2), [2, 3]),
        (("e", 6), [2, 3]),
        (("e", 4, "f"), [2, 3]),
        # Left again as it was: it is kept once.
        ((4,), [1, 2]),
        ((2, "e"), [1, 2]),
        (("undo", "e"), [1]),
        (("undo", "redo", "e"), [2]),
    ],
)
async def test_lines_that_were_jumped_to_are_drawn_once(
    tmp_path: Path, after: Sequence[str | int], drawn: list[int]
) -> None:
    async with stage(tmp_path) as on:
        on.server.script(*[say(f"answer {n}") for n in range(8)])
        for text in "abc":
            await on.soul.run(text)
        await on.soul.travel.rewind(Target(2))
        await on.soul.run("d")
        await on.soul.travel.rewind(Target(END, 1))
        for one in after:
            match one:
                case "undo":
                    await on.soul.travel.undo()
                case "redo":
                    await on.soul.travel.redo()
                case str():
                    await on.soul.run(one)
                case int():
                    await on.soul.travel.rewind(Target(one))
        await on.soul.flush()
        told = read_records(on.session)
        again = rebuild_history(on.session, [])
        points = [point.uid for point in on.session.context.checkpoints]
        assert final_checkpoints(again) == points
        assert tree(again) == tree(told)
        assert list(tree(told)[1]) == drawn
        assert chat(again) == chat(told)


async def test_what_a_dmail_carried_over_stands_in_every_history_once(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(*[say(f"answer {text}") for text in "abc"])
        for text in "abc":
            await on.soul.run(text)
        await on.soul.dmails.send(Target(2), "a letter")
        await on.soul.flush()
        told = read_records(on.session)
        live = {"as told": told, "rebuilt": rebuild_history(on.session, [])}
        rows = [(row.id, row.kind, row.label, row.said) for row in await on.checkpoints()]
        assert rows == [
            (0, "user", "a", -1),
            (1, "step", "answer a", -1),
            (2, "user", "b", 0),
            (2, "user", "c", 1),
            (2, "dmail", "a letter", -1),
        ]
        await on.soul.travel.rewind(Target(1))
        for name, records in (("read", told), ("read anew", [])):
            live[name] = rebuild_world_line(on.session, records, 2)
        for name, records in live.items():
            transcript, timeline = TranscriptModel(), TimelineModel()
            for record in records:
                transcript.apply(record)
                timeline.apply(record)
            blocks = [one for one in transcript.blocks if isinstance(one, UserBlock | DMailBlock)]
            assert [(one.checkpoint, one.text) for one in blocks] == [
                (0, "a"),
                (2, "b"),
                (2, "c"),
                (2, "a letter"),
            ], name
            assert timeline.tree.live[-1].said == ("b", "c"), name


async def test_the_same_words_carried_twice_come_from_two_places(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(*[say(f"answer {n}") for n in range(3)])
        for text in ("a", "b", "b"):
            await on.soul.run(text)
        for point in (2, 4):
            await on.soul.marks.pin(on.session.context.index.checkpoint(point).uid)
        await on.soul.dmails.send(Target(2), "a letter")
        await on.soul.flush()
        (told,) = on.ear.of(ContextReverted)
        events = [one.event for one in rebuild_history(on.session, [])]
        (again,) = [one for one in events if isinstance(one, ContextReverted)]
        assert len(set(told.pinned)) == 2
        assert again.pinned == told.pinned


@pytest.mark.sample
@pytest.mark.parametrize("is_recorded", [True, False])
async def test_files_that_came_back_with_a_dmail_are_not_kept_in_a_rebuilt_history(
    tmp_path: Path, *, is_recorded: bool
) -> None:
    async with stage(tmp_path) as on:
        (on.work / "edited").write_text("one\n")
        await on.soul.files_ready()
        on.server.script(
            call("WriteFile", {"path": "edited", "content": "two\n"}),
            call("WriteFile", {"path": "made", "content": "new\n"}),
            say("done"),
        )
        await on.soul.run("work")
        await on.soul.dmails.send(Target(1), "a letter", "restore")
        await on.soul.flush()
        assert [*on.work.iterdir()] == [on.work / "edited"]
        told = read_records(on.session)
        rebuilt = rebuild_history(on.session, told if is_recorded else [])
        cards: list[list[tuple[tuple[str, int], ...]]] = []
        marks: list[list[str]] = []
        for records in (told, rebuilt):
            model = TranscriptModel()
            for record in records:
                model.apply(record)
            cards.append([one.kept for one in model.blocks if isinstance(one, DMailBlock)])
            marks.append([one.text for one in model.blocks if isinstance(one, MarkBlock)])
        assert cards == [[()], [()]]
        # Which of them were deleted only the record tells.
        words = "1 file restored, 1 deleted (made)" if is_recorded else "2 files restored"
        assert marks == [["1 file restored, 1 deleted (made)"], [words]]


async def test_a_dmail_that_was_taken_back_is_not_one_that_was_not_sent(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(
            call("Glob", {"pattern": "*"}),
            call("SendDMail", {"message": "Nothing there.", "checkpoint_id": 1}),
            say("So I ask."),
        )
        await on.soul.run("go")
        await on.soul.travel.undo()
        forked = await on.soul.travel.fork(Target(END))
        fork = on.store.find(forked.session_id, on.work)
        # While it is opened its end is shown, then all of it.
        await fork.open()
        histories = {
            "end": end_of_record(fork) or end_of_context(fork),
            "all": session_history(fork),
        }
        await fork.aclose()
        for name, records in histories.items():
            transcript, timeline = TranscriptModel(), TimelineModel()
            for record in records:
                transcript.apply(record)
                timeline.apply(record)
            (card,) = [
                one
                for one in transcript.blocks
                if isinstance(one, ToolBlock) and one.tool == "SendDMail"
            ]
            assert card.state == ("done" if name == "end" else "recalled")
            calls = timeline.tree.live[-1].calls
            assert calls is not None
            (sent,) = calls
            assert (sent.target, sent.failed) == ("to #1", False), name


async def test_a_call_without_a_result_was_ended_with_its_program_and_not_by_the_user(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        on.server.script(call("Shell", {"command": "echo hello"}), say("Well."))
        await on.soul.run("a")
        journal = on.session.context.journal
        live = on.session.dir / "context.jsonl"
        await on.soul.flush()
        lines = live.read_text().splitlines(keepends=True)
        at = next(n for n, line in enumerate(lines) if json.loads(line)["role"] == "tool")
        # A future's process was killed: within a call, and after its result.
        states = [("failed", "It was killed."), ("stopped", ""), ("done", "")]
        for n, (until, state, why) in enumerate(
            ((until, *one) for until in (at, at + 1) for one in states), 1
        ):
            (on.session.dir / f"context_{n}.jsonl").write_text("".join(lines[:until]))
            journal.note({"op": "future", "n": n, "key": f"k{n}", "state": state, "why": why})
        ends = [rebuild_world_line(on.session, (), n)[-1].event for n in range(1, 7)]
        assert ends == [
            TurnEnd("error", "It was killed.", killed=True),
            TurnEnd("interrupted", killed=True),
            TurnEnd("interrupted", killed=True),
            TurnEnd("error", "It was killed."),
            TurnEnd("interrupted"),
            TurnEnd("done"),
        ]
        for n in (1, 2, 3):
            model = TranscriptModel()
            for record in rebuild_world_line(on.session, (), n):
                model.apply(record)
            (card,) = [block for block in model.blocks if isinstance(block, ToolBlock)]
            assert (card.state, card.stopped_by) == ("stopped", "exit")
            marks = [block.text for block in model.blocks if isinstance(block, MarkBlock)]
            assert "Stopped by you" not in marks
