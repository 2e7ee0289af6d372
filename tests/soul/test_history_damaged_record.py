"""Whatever stands in the record of a session, or goes wrong when it is read: the session opens and goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from support.chat_server import call, say, status
from support.odd_files import put, short_lines
from support.soul import stage, until_end
from support.time_traveller import Views

from kimi_tui.projection.blocks import AgentBlock, ThoughtBlock, ToolBlock, UserBlock
from kimi_tui.session.session import Session
from kimi_tui.soul import history
from kimi_tui.soul.rebuilt_history import end_of_context
from kimi_tui.soul.record import end_of_record
from kimi_tui.soul.rewind_values import END, Target
from kimi_tui.wire import events as ev
from kimi_tui.wire.codec import Decoder


def told(kind: str, at: str = "1.0", **payload: Any) -> str:
    message = json.dumps({"type": kind, "payload": payload})
    return f'{{"timestamp": {at}, "message": {message}}}\n'


HUGE = "1" + "0" * 309
ODD = [
    told("TurnBegin", HUGE, user_input="x"),
    told("StatusUpdate", context_tokens=10**400, max_context_tokens=10**400),
    told("StepRetry", n=1, next_attempt=2, max_attempts=3, wait_s=10**400),
    told("ToolResult", tool_call_id="c", return_value={"is_error": False}, duration_s=10**400),
    told("TurnBegin", "NaN", user_input="\ud800"),
    told("TurnBegin", "-Infinity", user_input=[[[["x"]]]]),
    '{"message": ' + "[" * 5000 + "]" * 5000 + "}\n",
    '{"timestamp": 1.0, "seq": ' + HUGE + ', "message": {"type": "TurnEnd", "payload": {}}}\n',
    "\0" * 100 + "\n",
]


@pytest.mark.sample
@pytest.mark.parametrize("where", ["first", "last"])
async def test_an_odd_record_is_no_reason_not_to_open(tmp_path: Path, where: str) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say("one"))
        await on.soul.run("first")
        await on.soul.aclose()
        folder, kept = on.session.dir, tmp_path / "kept"
        shutil.copytree(folder, kept)
        for odd in ODD:
            shutil.rmtree(folder)
            shutil.copytree(kept, folder)
            path = folder / "wire.jsonl"
            text = path.read_text()
            path.write_text(odd + text if where == "first" else text + odd)
            await on.reopen()
            shown = [r.event.text for r in on.soul.opened_with if isinstance(r.event, ev.TurnBegin)]
            assert "first" in shown, odd[:80]
            on.server.script(say("two"))
            await on.soul.run("second")
            assert on.ear.of(ev.TurnEnd)[-1].reason == "done", odd[:80]
            await on.soul.aclose()


async def test_whatever_the_reader_of_the_record_raises_is_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say("one"), say("two"))
        await on.soul.run("first")
        await on.soul.run("second")
        await on.soul.aclose()
        real = Decoder.decode_record
        seen = 0

        def decode_record(self: Decoder, line: Any, seq: int) -> Any:
            nonlocal seen
            seen += 1
            if seen == 3:
                raise RuntimeError("a fault of ours")
            return real(self, line, seq)

        monkeypatch.setattr(Decoder, "decode_record", decode_record)
        await on.reopen()
        monkeypatch.undo()
        shown = [r.event.text for r in on.soul.opened_with if isinstance(r.event, ev.TurnBegin)]
        assert shown == ["first", "second"]
        words = "Skipped 1 record of the event log (wire.jsonl) that could not be read."
        assert words in on.session.remarks


@pytest.mark.parametrize("part", ["fits", "rebuild_history"])
async def test_whatever_the_telling_raises_is_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say("one"))
        await on.soul.run("first")
        await on.soul.aclose()
        if part == "rebuild_history":
            (on.session.dir / "wire.jsonl").unlink()

        def broken(*_arguments: object) -> Any:
            raise ZeroDivisionError

        monkeypatch.setattr(history, part, broken)
        await on.reopen()
        words = "Earlier messages cannot be shown, but the agent still has them."
        # A part that cannot be followed can be rebuilt.
        is_lost = part == "rebuild_history"
        assert (words in on.session.remarks) == is_lost
        assert (
            [r for r in on.soul.opened_with if isinstance(r.event, ev.TurnBegin)] == []
        ) == is_lost
        on.server.script(say("two"))
        await on.soul.run("second")
        assert ("assistant", "one") in on.sent()


@pytest.mark.parametrize("kind", ["fifo", "zero", "folder", "hole", "nuls"])
async def test_without_a_readable_record_the_view_comes_from_the_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    short_lines(monkeypatch)
    async with stage(tmp_path) as on:
        on.server.script(say("one"))
        await on.soul.run("first")
        await on.soul.aclose()
        put(on.session.dir / "wire.jsonl", kind)
        await on.reopen()
        shown = [r.event.text for r in on.soul.opened_with if isinstance(r.event, ev.TurnBegin)]
        assert shown == ["first"]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "op", ["rewind", "dmail", "own_dmail", "compaction", "undo", "undo_dmail", "jump", "clear"]
)
async def test_a_record_that_ends_before_the_newest_operation_is_completed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str
) -> None:
    """A kill between the switch of the files and the record's next write."""
    async with stage(tmp_path) as on:
        on.server.script(say("one"), status(400, {"error": {"message": "Not so."}}), say("two"))
        for words in ("first", "second", "third"):
            await until_end(on.soul.run(words))
        if op.startswith("undo") or op == "jump":
            await (
                on.soul.dmails.send(Target(3), "x")
                if op == "undo_dmail"
                else on.soul.travel.rewind(Target(3))
            )
        match op:
            case "rewind":
                await on.soul.travel.rewind(Target(4))
            case "own_dmail":
                await on.soul.dmails.send(Target(4), "Otherwise.")
            case "dmail":
                letter = call("SendDMail", {"message": "Otherwise.", "checkpoint_id": 4})
                on.server.script(letter, say("three"))
                await until_end(on.soul.run("fourth"))
            case "compaction":
                on.server.script(say("A summary."))
                await on.soul.compact(start=Target(4))
            case "undo" | "undo_dmail":
                await on.soul.travel.undo()
            case "jump":
                await on.soul.travel.rewind(Target(END, 1))
            case _:
                await on.soul.travel.clear()
        checkpoints = [row.uid for row in await on.checkpoints()]
        await on.soul.aclose()
        path = on.session.dir / "wire.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        told_by = "LineChanged" if op in ("undo", "undo_dmail", "jump") else "ContextReverted"
        kinds = [json.loads(line).get("message", {}).get("type") for line in lines]
        first = (
            len(kinds) - 1 - kinds[::-1].index("CompactionBegin" if op == "compaction" else told_by)
        )
        path.write_bytes(b"".join(lines[:first]))
        await on.reopen()
        assert [row.uid for row in await on.checkpoints()] == checkpoints
        shown = [record.event for record in on.soul.opened_with]
        assert [event.error for event in shown if isinstance(event, ev.TurnEnd) and event.error]
        on.server.script(say("on"))
        await until_end(on.soul.run("and on"))
        monkeypatch.setattr(history, "rebuild_history", None)
        await on.reopen()
        assert len(on.soul.opened_with) > len(shown)


async def test_wherever_the_record_of_a_killed_program_ends_all_that_the_context_has_is_shown(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        (on.work / "a.txt").write_text("one line\n")
        thought = "It is in a file. " * 3
        on.server.script(
            say("one"),
            call("ReadFile", {"path": "a.txt"}, text="I look.", think=thought, usage=(900, 30)),
            say("It says: one line.", think="So it is.", usage=(950, 20)),
        )
        await on.soul.run("first")
        await on.soul.run("What is in a.txt?")
        await on.soul.aclose()
        path = on.session.dir / "wire.jsonl"
        whole = path.read_bytes().splitlines(keepends=True)

        async def shown() -> list[tuple[object, ...]]:
            on.session = on.store.find(on.session.id, on.work)
            await on.open()
            told = on.soul.hand_over_history()
            assert [one.at for one in told] == sorted(one.at for one in told)
            views = Views(told)
            await on.soul.aclose()
            used = [(p.uid, p.kind, p.tokens, p.measured) for p in views.timeline.tree.live]
            blocks = views.chat.blocks
            said = [
                (
                    type(one).__name__,
                    (one if isinstance(one, UserBlock) else one.stream).text.strip(),
                )
                for one in blocks
                if isinstance(one, (UserBlock, ThoughtBlock, AgentBlock))
            ]
            tools = [(t.tool, t.output, t.state) for t in blocks if isinstance(t, ToolBlock)]
            return [tuple(used), tuple(said), tuple(tools)]

        expected = await shown()
        begun = max(n for n, line in enumerate(whole) if b'"TurnBegin"' in line)
        # `make test` tries every third end, with which it meets each kind of record.
        for cut in range(begun, len(whole), 1 if settings().max_examples > 100 else 3):
            path.write_bytes(b"".join(whole[:cut]))
            for _ in range(2):
                found = await shown()
                assert found == expected, whole[cut]
        await on.open()


async def test_a_line_that_is_missing_in_the_middle_is_noticed_and_the_messages_tell_of_its_step(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        (on.work / "a.txt").write_text("one line\n")
        on.server.script(
            say("one"),
            call("ReadFile", {"path": "a.txt"}, text="I look.", think="It is in a file."),
            say("It says: one line.", think="So it is."),
            say("three"),
        )
        for words in ("first", "What is in a.txt?", "third"):
            await on.soul.run(words)
        await on.soul.aclose()
        path = on.session.dir / "wire.jsonl"
        whole = path.read_bytes().splitlines(keepends=True)

        async def shown() -> tuple[list[tuple[str, str]], list[str]]:
            on.session = on.store.find(on.session.id, on.work)
            await on.open()
            views = Views(on.soul.hand_over_history())
            await on.soul.aclose()
            said = [
                (
                    type(one).__name__,
                    one.output
                    if isinstance(one, ToolBlock)
                    else (one if isinstance(one, UserBlock) else one.stream).text.strip(),
                )
                for one in views.chat.blocks
                if isinstance(one, (UserBlock, ThoughtBlock, AgentBlock, ToolBlock))
            ]
            return said, [remark for remark in on.session.remarks if "event log" in remark]

        told, _ = expected = await shown()
        assert expected == (told, [])
        assert len(told) == 10
        spoken = ("TurnBegin", "ContentPart", "ToolCall", "ToolResult", "StepBegin")
        events = [json.loads(line).get("message", {}).get("type") for line in whole]
        places = [n for n, kind in enumerate(events[:-1]) if kind in spoken]
        # The first line and the last one have no line before or after them that tells of them.
        for place in places[1 :: 1 if settings().max_examples > 100 else 3]:
            path.write_bytes(b"".join(whole[:place] + whole[place + 1 :]))
            said, remarks = await shown()
            assert said == told, whole[place]
            assert remarks == [
                "The event log (wire.jsonl) lacks some records. The chat shows the steps around them without times and diffs."
            ], whole[place]
        # A line that an earlier version wrote says nothing of the one before it.
        old = [{k: v for k, v in json.loads(line).items() if k != "after"} for line in whole]
        path.write_text("".join(json.dumps(line) + "\n" for line in old))
        assert await shown() == expected
        await on.open()


async def test_the_record_of_a_fork_is_told_nothing_twice(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say("one"), say("two"), say("three"))
        for words in ("first", "second", "third"):
            await on.soul.run(words)
        await on.soul.travel.rewind(Target(4))
        forked = await on.soul.travel.fork(Target(2))
        await on.soul.aclose()
        on.session = on.store.find(forked.session_id)
        before = (on.session.dir / "wire.jsonl").read_bytes()
        await on.open()
        assert (await on.soul.statistics()).turns == 3
        assert (on.session.dir / "wire.jsonl").read_bytes() == before


@pytest.mark.parametrize("op", ["rewind", "jump"])
async def test_the_end_that_is_shown_first_is_no_turn_that_the_context_has_not(
    tmp_path: Path, op: str
) -> None:
    """Killed within an operation, the program has changed the context, and recorded nothing of it."""
    async with stage(tmp_path) as on:
        on.server.script(say("one"), say("two"), say("three"))
        await on.soul.run("first")
        await on.soul.run("second")
        if op == "jump":
            await on.soul.travel.rewind(Target(2))
            await on.soul.run("third")
        await on.soul.flush()
        before = on.session.record.path.read_bytes()
        await on.soul.travel.rewind(Target(2) if op == "rewind" else Target(END, 1))
        await on.soul.aclose()
        session = on.store.find(on.session.id, on.work)
        assert "two" not in str(end_of_record(session)) or op == "jump"
        session.record.path.write_bytes(before)
        assert end_of_record(session) == []
        shown = str(end_of_context(session))
        assert ("two" in shown, "three" in shown) == (op == "jump", False)
        await on.open()


def test_a_future_whose_line_is_live_is_told_and_one_that_was_deleted_is_not(
    tmp_path: Path,
) -> None:
    session = Session(tmp_path, tmp_path)
    told = [
        ev.WorldLineAdded(1, "future 1"),
        ev.WorldLineAdded(2, "future 2", from_line=1),
        ev.WorldLineAdded(3, "future 3"),
        ev.WorldLineAdded(4, "future 4"),
        ev.LineChanged("jump", 5, 2, ""),
    ]
    # The files of those that were live at some time have other names, and that of the third one is kept.
    (tmp_path / "context_3.jsonl").write_text("{}\n")
    records = [ev.EventRecord(n, float(n), event) for n, event in enumerate(told)]
    kept = history.without_deleted(records, session)
    assert [one.event for one in kept] == [told[0], told[1], told[2], told[4]]
