"""Compacting a part of the line, and editing a summary: what is sent next, what stands in the file, what comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.chat_server import call, say, status
from support.soul import Stage, stage

from kimi_tui.llm.request import SUMMARY_READ
from kimi_tui.prompts import COMPACTION_START
from kimi_tui.session.schema import Verbatim, is_marker
from kimi_tui.soul.errors import SoulError
from kimi_tui.soul.history import fits, session_history
from kimi_tui.soul.rewind_values import Target
from kimi_tui.wire import events as ev

FIRST = "first " + "word " * 4_000


async def three_turns(on: Stage) -> None:
    (on.work / "a.txt").write_text("hello\n")
    on.server.script(
        say("one", usage=(8_100, 10)),
        call("ReadFile", {"path": "a.txt"}, text="I look.", usage=(8_130, 20)),
        say("two", usage=(8_200, 40)),
        say("three", usage=(8_260, 10)),
    )
    for text in (FIRST, "second", "third"):
        await on.soul.run(text)
    on.ear.forget()


def points(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record for record in records if record.get("role") == "_checkpoint"]


def bodies(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [r for r in records if not str(r["role"]).startswith("_") and not is_marker(r)]


@pytest.mark.exhaustive
async def test_from_here_keeps_what_precedes_byte_for_byte(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await three_turns(on)
        whole = (on.session.dir / "context.jsonl").read_bytes()
        cut = on.session.context.index.checkpoint(2).offset
        on.server.script(say("SUMMARY"), say("four"))
        await on.soul.compact("keep names", start=Target(2))
        asked = on.server.requests[-1].messages[-1]["content"]
        assert all(words in asked for words in ("second", "hello", "third"))
        assert "first word" not in asked
        assert "keep names" in asked
        after = (on.session.dir / "context.jsonl").read_bytes()
        assert after.startswith(whole[:cut])
        assert (on.session.dir / "context_1.jsonl").read_bytes() == whole
        assert [p["id"] for p in points(on.file())] == [0, 1, 2]
        assert on.ear.names(ev.StatusUpdate) == [
            "CompactionBegin",
            "ContextReverted",
            "CheckpointCreated",
            "CompactionEnd",
            "LineChanged",
        ]
        (cut_off,) = on.ear.of(ev.ContextReverted)
        assert (cut_off.reason, cut_off.checkpoint_id, cut_off.world_line) == ("compaction", 2, 1)
        (made,) = on.ear.of(ev.CheckpointCreated)
        assert (made.id, made.kind, made.was) == (2, "summary", "")
        assert on.ear.of(ev.CompactionEnd)[0].tokens_after < 8_200
        await on.soul.run("on")
        assert [said for role, said in on.sent() if role != "system"] == [
            FIRST.strip(),
            "one",
            f"{COMPACTION_START}\n\nSUMMARY",
            SUMMARY_READ,
            "on",
        ]
        await on.soul.travel.undo()
        assert (on.session.dir / "context.jsonl").read_bytes() == whole


@pytest.mark.exhaustive
async def test_up_to_here_renumbers_what_stays(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await three_turns(on)
        before = on.file()
        whole = (on.session.dir / "context.jsonl").read_bytes()
        old = {p["id"]: p for p in points(before)}
        used = on.soul.used
        on.server.script(say("SUMMARY"), say("four"))
        await on.soul.compact(until=Target(2))
        asked = on.server.requests[-1].messages[-1]["content"]
        assert "first word" in asked
        assert "second" not in asked
        after = on.file()
        kept = points(after)
        assert [p["id"] for p in kept] == [0, 1, 2, 3, 4, 5]
        assert [p.get("was") for p in kept] == [None, *(old[n]["uid"] for n in range(2, 7))]
        assert [p["at"] for p in kept[1:]] == [old[n]["at"] for n in range(2, 7)]
        assert len({p["uid"] for p in (*kept, *old.values())}) == 6 + 7
        # The messages that stay are the same except for their numbers.
        assert bodies(after)[1:] == bodies(before)[2:]
        markers = [r["content"] for r in after if is_marker(r)]
        assert markers == [f"<system>CHECKPOINT {n}</system>" for n in range(1, 6)]
        end = on.ear.of(ev.CompactionEnd)[0]
        # The figures of what stays are shifted by what the summary saves.
        saved = end.tokens_before - end.tokens_after
        assert on.session.context.index.checkpoint(2).tokens == 8_130 - saved
        assert end.tokens_before == used
        assert 0 < end.tokens_after < used
        created = on.ear.of(ev.CheckpointCreated)
        assert [(c.id, c.kind, c.was) for c in created] == [
            (0, "compaction", ""),
            *((n - 1, ("user" if n in (2, 5) else "step"), old[n]["uid"]) for n in range(2, 7)),
        ]
        assert fits(session_history(on.session), on.session)
        await on.soul.run("on")
        assert [said for _, said in on.sent()] == [
            f"{COMPACTION_START}\n\nSUMMARY",
            SUMMARY_READ,
            "second",
            'I look.\nReadFile({"path": "a.txt"})',
            on.sent()[4][1],
            "two",
            "third",
            "three",
            "on",
        ]
        # A rewind to a renumbered checkpoint works as usual.
        outcome = await on.soul.travel.rewind(Target(1))
        assert outcome.prompt == "second"
        await on.soul.travel.undo()
        await on.soul.travel.undo()
        assert (on.session.dir / "context.jsonl").read_bytes() == whole


async def test_a_part_in_the_middle(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await three_turns(on)
        # A later version may write such a record.
        await on.session.context.append([Verbatim(b'{"role": "_later", "x": 1}\n')])
        on.server.script(say("SUMMARY"), say("four"))
        await on.soul.compact(start=Target(2), until=Target(5))
        asked = on.server.requests[-1].messages[-1]["content"]
        assert "[User]\nsecond" in asked
        assert not any(words in asked for words in ("first word", "third"))
        assert [p["id"] for p in points(on.file())] == [0, 1, 2, 3, 4]
        assert {"role": "_later", "x": 1} in on.file()
        await on.soul.run("on")
        assert [said for _, said in on.sent()] == [
            FIRST.strip(),
            "one",
            f"{COMPACTION_START}\n\nSUMMARY",
            SUMMARY_READ,
            "third",
            "three",
            "on",
        ]


async def test_what_cannot_be_compacted(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await three_turns(on)
        file = on.file()
        for start, until in (
            (Target(99), None),
            (Target(1, world_line=1), None),
            (Target(3), Target(3)),
            (Target(4), Target(2)),
        ):
            with pytest.raises(KeyError):
                await on.soul.compact(start=start, until=until)
        await on.soul.compact(until=Target(0))
        assert (
            on.ear.notices()[0].text
            == "There is nothing to compact in this part of the conversation."
        )
        on.server.script(status(400, {"error": {"message": "no"}}))
        await on.soul.compact(until=Target(2))
        failed = on.ear.of(ev.CompactionEnd)[-1]
        assert "not compacted" in failed.error
        assert failed.advice
        assert on.file() == file
        # Advice never is what has just failed.
        on.server.script(*[say(" ")] * 3)
        await on.soul.compact(until=Target(2))
        failed = on.ear.of(ev.CompactionEnd)[-1]
        assert failed.error
        assert "Rewind to an earlier checkpoint, or use /clear" in failed.advice
        assert "/compact" not in failed.advice
        on.server.script(say("SUMMARY"))
        await on.soul.compact(until=Target(2))
        # Nothing would be left before the summary.
        with pytest.raises(KeyError, match="summary"):
            await on.soul.compact(start=Target(0))


async def test_editing_the_summary(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await three_turns(on)
        with pytest.raises(SoulError):
            await on.soul.edit_summary("new")
        assert await on.summary() == ""
        on.server.script(say("SUMMARY"), say("four"))
        await on.soul.compact(until=Target(2))
        before = on.file()
        on.ear.forget()
        assert await on.summary() == "SUMMARY"
        with pytest.raises(SoulError):
            await on.soul.edit_summary("  ")
        await on.soul.edit_summary("BETTER WORDS")
        after = on.file()
        assert [p["id"] for p in points(after)] == [p["id"] for p in points(before)]
        # The name that a checkpoint had first is kept through both.
        assert [p.get("was") for p in points(after)[1:]] == [p["was"] for p in points(before)[1:]]
        assert points(after)[0]["was"] == points(before)[0]["uid"]
        assert bodies(after)[1:] == bodies(before)[1:]
        assert await on.summary() == "BETTER WORDS"
        assert on.ear.names(ev.StatusUpdate, ev.CheckpointCreated) == [
            "CompactionEnd",
            "LineChanged",
        ]
        created = on.ear.of(ev.CheckpointCreated)
        assert [c.was for c in created] == [p["uid"] for p in points(before)]
        assert fits(session_history(on.session), on.session)
        await on.soul.run("on")
        assert on.sent()[0][1].startswith(f"{COMPACTION_START}\n\nBETTER WORDS")
        await on.soul.travel.rewind(Target(6))
        await on.soul.travel.undo()
        said = "Undid the edit of the summary. 2 steps since then stay as world line 3."
        assert (await on.soul.travel.undo()).text == said
        assert await on.summary() == "SUMMARY"
        assert on.file() == before


@pytest.mark.exhaustive
@pytest.mark.parametrize("spoil", ["nothing", "delete"])
async def test_the_history_of_a_partial_compaction(tmp_path: Path, spoil: str) -> None:
    async with stage(tmp_path) as on:
        await three_turns(on)
        on.server.script(say("ONE"), say("TWO"), say("end"))
        await on.soul.compact(until=Target(2))
        await on.soul.compact(start=Target(4))
        await on.soul.edit_summary("THREE")
        await on.soul.run("on")
        await on.soul.aclose()
        if spoil == "delete":
            on.session.record.path.unlink()
        on.session = on.store.find(on.session.id)
        await on.open()
        told = await on.soul.history()
        assert fits(told, on.session)
        ends = [r.event.summary for r in told if isinstance(r.event, ev.CompactionEnd)]
        assert ends[-1] == "THREE"
        assert "ONE" in ends
        # The renumbered points tell what they began, wherever that is read from.
        line = await on.soul.lines.read(0)
        said = [e.text for r in line if isinstance(e := r.event, ev.TurnBegin | ev.TextPart)]
        assert [text for text in said if text] == ["second", "I look.", "two", "on", "end"]
        results = [e for r in line if isinstance(e := r.event, ev.ToolResult)]
        calls = [e for r in line if isinstance(e := r.event, ev.ToolCall)]
        assert [r.key for r in results] == [c.key for c in calls]
        rows = await on.checkpoints()
        assert [row.kind for row in rows] == [
            "compaction",
            "user",
            "step",
            "step",
            "summary",
            "user",
            "step",
        ]
        assert rows[2].estimated
