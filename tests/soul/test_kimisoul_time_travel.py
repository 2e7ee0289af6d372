"""Letters by hand, messages of other lines, and reading those lines."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.chat_server import call, gate, say, status
from support.soul import Stage, stage

from kimi_tui.llm.errors import LLMError
from kimi_tui.projection.blocks import AgentBlock, DMailBlock, ToolBlock, UserBlock
from kimi_tui.projection.comparison import Comparison, content_of, number_of
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.journal import JournalEntry
from kimi_tui.session.schema import DMAIL_START
from kimi_tui.soul.errors import SoulBusy, SoulError
from kimi_tui.soul.history import fits, session_history
from kimi_tui.soul.rewind_values import Target
from kimi_tui.tool_cards import DiffBlock
from kimi_tui.wire import events as ev


async def two_lines(on: Stage) -> None:
    """World line 1 has "second" and "third", the live line "otherwise"."""
    on.server.script(say("one"), say("two"), say("three"), say("other"))
    for text in ("first", "second", "third"):
        await on.soul.run(text)
    await on.soul.travel.rewind(Target(2))
    await on.soul.run("otherwise")
    on.ear.forget()


@pytest.mark.exhaustive
async def test_a_letter_by_hand(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await two_lines(on)
        whole = on.file()
        outcome = await on.soul.dmails.send(Target(1), "Look in src first.")
        assert outcome.checkpoint_id == 1
        assert on.file("context_2.jsonl") == whole
        assert len(on.server.requests) == 4
        (told,) = on.ear.of(ev.ContextReverted)
        assert (told.reason, told.author, told.text) == ("dmail", "person", "Look in src first.")
        assert told.carried == ("otherwise",)
        assert on.ear.names() == [
            "ContextReverted",
            "CheckpointCreated",
            "LineChanged",
            "StatusUpdate",
        ]
        on.server.script(say("looking"))
        await on.soul.resume()
        last = on.sent()[-1][1]
        assert last.startswith("first\n\notherwise\n\n" + DMAIL_START)
        assert "The user wrote this one by hand" in last
        assert "Look in src first." in last
        on.session.record.path.unlink()
        rebuild_history = [r.event for r in session_history(on.session)]
        letters = [
            e for e in rebuild_history if isinstance(e, ev.ContextReverted) and e.reason == "dmail"
        ]
        assert [(e.author, e.text) for e in letters] == [("person", "Look in src first.")]
        await on.soul.travel.rewind(Target(2))
        await on.soul.travel.undo()
        assert "D-Mail to #1" in (await on.soul.travel.undo()).text
        assert on.file() == whole


async def test_a_letter_that_goes_on_at_once(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await two_lines(on)
        on.server.script(say("looking"))
        await on.soul.dmails.send(Target(2), "Now.")
        await on.soul.resume()
        assert on.ear.of(ev.TurnEnd)[-1].reason == "done"
        assert "Now." in on.sent()[-1][1]
        for wrong in (Target(99), Target(9, world_line=1), Target(0, world_line=7)):
            with pytest.raises(KeyError):
                await on.soul.dmails.send(wrong, "x")
        with pytest.raises(SoulError):
            await on.soul.dmails.send(Target(1), " \n")


async def test_a_letter_to_another_line(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await two_lines(on)
        whole = on.file()
        on.server.script(say("looking"))
        await on.soul.dmails.send(Target(4, world_line=1), "From over there.")
        await on.soul.resume()
        texts = [text for _, text in on.sent()]
        assert texts[:4] == ["first", "one", "second", "two"]
        assert texts[4].startswith("third")
        assert "From over there." in texts[4]
        assert fits(session_history(on.session), on.session)
        await on.soul.travel.undo()
        await on.soul.travel.undo()
        assert on.file() == whole


async def test_the_model_drafts_a_letter(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await two_lines(on)
        file = on.file()
        on.server.script(say("Dear past self.", usage=(70, 7)))
        assert await on.soul.dmails.draft(Target(2)) == "Dear past self."
        request = on.server.requests[-1]
        assert "tools" not in request.body
        asked = request.messages[-1]["content"]
        assert "otherwise" in asked
        assert "[User]\nfirst" not in asked
        on.server.script(say("For the other line."))
        await on.soul.dmails.draft(Target(4, world_line=1))
        assert "third" in on.server.requests[-1].messages[-1]["content"]
        assert on.file() == file
        on.server.script(status(400, {"error": {"message": "no"}}))
        with pytest.raises(LLMError):
            await on.soul.dmails.draft(Target(2))
        with pytest.raises(KeyError):
            await on.soul.dmails.draft(Target(44))


async def test_a_draft_can_be_stopped(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await two_lines(on)
        on.server.script(gate(1, say("never to be read")))
        draft = asyncio.create_task(on.soul.dmails.draft(Target(2)))
        await on.server.at_gate.wait()
        with pytest.raises(SoulBusy):
            await on.soul.dmails.send(Target(2), "meanwhile")
        await on.soul.interrupt()
        assert await draft == ""
        assert not on.soul.running


async def test_a_message_is_sent_to_the_present(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await two_lines(on)
        before = on.file()
        there = next(m for m in await on.messages(1) if m.text == "three")
        outcome = await on.soul.dmails.carry(1, there.uid, there.number, note="Mind this:")
        assert (outcome.messages_dropped, outcome.files, outcome.prompt) == (0, (), "")
        assert on.file()[: len(before)] == before
        (told,) = on.ear.of(ev.ContextReverted)
        assert told.from_checkpoint < told.checkpoint_id == outcome.checkpoint_id == 4
        assert told.text == "Mind this:\n\nthree"
        assert [c.kind for c in on.ear.of(ev.CheckpointCreated)] == ["dmail"]
        on.server.script(say("minded"))
        await on.soul.resume()
        last = on.sent()[-1][1]
        assert "what the agent said, at checkpoint #5 of world line 1" in last
        assert "Mind this:\n\nthree" in last
        records = await on.soul.history()
        assert fits(records, on.session)
        on.session.record.path.unlink()
        rebuild_history = [r.event for r in session_history(on.session)]
        assert [
            e.text for e in rebuild_history if isinstance(e, ev.ContextReverted) and e.text
        ] == ["Mind this:\n\nthree"]
        # Taken back like anything else.
        await on.soul.travel.rewind(Target(4))
        assert on.file() == before
        for wrong in ((1, "nothing", 0), (1, there.uid, 9), (7, there.uid, 0)):
            with pytest.raises(KeyError):
                await on.soul.dmails.carry(*wrong)


@pytest.mark.exhaustive
async def test_what_was_sent_to_the_present_is_undone_and_done_again(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await two_lines(on)
        before = on.file()
        there = next(m for m in await on.messages(1) if m.text == "three")
        await on.soul.dmails.carry(1, there.uid, there.number)
        on.server.script(say("minded"))
        await on.soul.resume()
        after = on.file()
        lines = len(await on.soul.lines.all())
        seen = await on.soul.travel.preview_undo()
        assert [one.text for one in seen.dropped] == ["minded"]
        assert (await on.soul.travel.undo()).text == (
            "Undid the copied messages. 1 step since then stays as world line 2."
        )
        assert on.file() == before
        told = on.ear.of(ev.ContextReverted)[-1]
        assert (told.reason, told.checkpoint_id) == ("undo", 4)
        # The steps after it are a world line, as after any other operation.
        assert len(await on.soul.lines.all()) == lines + 1
        assert fits(await on.soul.history(), on.session)
        await on.soul.travel.redo()
        assert on.file() == after
        assert fits(await on.soul.history(), on.session)
        await on.soul.travel.undo()
        assert on.file() == before
        # The operation before it comes next: the rewind that left world line 1.
        assert "the rewind" in (await on.soul.travel.undo()).text
        assert await on.soul.travel.redo()
        assert on.file() == before


async def test_an_undo_after_a_rewind_past_it_first_brings_back_what_was_sent(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        await two_lines(on)
        before = on.file()
        there = next(m for m in await on.messages(1) if m.text == "three")
        await on.soul.dmails.carry(1, there.uid, there.number)
        sent = on.file()
        await on.soul.travel.rewind(Target(2))
        await on.soul.travel.undo()
        assert on.file() == sent
        await on.soul.travel.undo()
        assert on.file() == before


async def test_nothing_is_sent_that_the_journal_does_not_know_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path) as on:
        await two_lines(on)
        before = on.file()
        there = next(m for m in await on.messages(1) if m.text == "three")

        def refuse(entry: JournalEntry) -> JournalEntry:
            raise StorageTrouble(f"no room for {entry.op}")

        journal = on.session.context.journal
        with monkeypatch.context() as patch:
            patch.setattr(journal, "intend", refuse)
            with pytest.raises(StorageTrouble):
                await on.soul.dmails.carry(1, there.uid, there.number)
        assert on.file() == before
        assert "the rewind" in (await on.soul.travel.undo()).text


async def test_reading_lines(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await two_lines(on)
        on.server.script(say("SUMMARY"), say("late"))
        await on.soul.dmails.send(Target(2), "a letter")
        await on.soul.compact()
        await on.soul.run("later")
        lines = await on.soul.lines.all()
        assert [(n.n, n.reason, n.left_by.checkpoint_id, n.shared) for n in lines] == [
            (1, "rewind", 2, 0),
            (2, "dmail", 2, 0),
            (3, "compaction", 0, 0),
        ]
        assert [n.n_messages for n in lines] == [6, 4, 4]
        assert lines[1].left_by.text == "a letter"

        async def read(n: int) -> list[object]:
            told = await on.soul.lines.read(n)
            assert [r.seq for r in told] == list(range(1, len(told) + 1))
            found: list[object] = []
            for record in told:
                match record.event:
                    case ev.TurnBegin(text) | ev.TextPart(text) | ev.CompactionEnd(summary=text):
                        found.append(text)
                    case ev.ContextReverted(text=text, author=author):
                        found.append((author, text))
                    case ev.CheckpointCreated(id=number):
                        found.append(number)
                    case _:
                        pass
            return found

        want = {
            1: ["first", 0, 1, "one", "second", 2, 3, "two", "third", 4, 5, "three"],
            2: ["first", 0, 1, "one", "otherwise", 2, 3, "other"],
            3: ["first", 0, 1, "one", ("person", "a letter"), 2],
            # The messages that the compaction kept still have their checkpoints.
            0: [0, "SUMMARY", "", 1, "one", ("person", "a letter"), 2, "later", 3, 4, "late"],
        }
        for n, events in want.items():
            assert await read(n) == events
        on.session.record.path.unlink()
        for n, events in want.items():
            assert await read(n) == events
        with pytest.raises(KeyError):
            await on.soul.lines.read(9)


async def test_comparing_lines(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        (on.work / "a.txt").write_text("old\n")
        await on.soul.files_ready()
        on.server.script(
            say("one"),
            call("WriteFile", {"path": "a.txt", "content": "new\n"}, text="I write."),
            say("two"),
            say("other"),
        )
        await on.soul.run("first")
        await on.soul.run("second")
        await on.soul.travel.rewind(Target(2), "restore")
        await on.soul.run("otherwise")
        seen = await on.soul.lines.compare(1)
        assert seen.fork == 1
        sides = Comparison.of(seen.other, seen.live).sides
        live, other = ([entry.block for entry in sides[side]] for side in ("live", "other"))
        assert [content_of(block) for block in live] == ["otherwise", "other"]
        assert [(type(b), b.checkpoint, number_of(b, other)) for b in other] == [
            (UserBlock, 2, 0),
            (AgentBlock, 3, 0),
            (ToolBlock, 3, 1),
            (AgentBlock, 4, 0),
        ]
        tool = other[2]
        assert isinstance(tool, ToolBlock)
        assert (tool.tool, tool.target, tool.state) == ("WriteFile", "a.txt", "done")
        (diff,) = [one for one in tool.display if isinstance(one, DiffBlock)]
        assert (diff.added, diff.removed) == (1, 1)
        (file,) = seen.files.files
        assert (file.path, file.alike) == ("a.txt", False)
        diff = file.left.diff
        assert diff is not None
        assert (file.left.outcome, diff.added, diff.removed) == ("changed", 1, 1)
        assert [row.text for row in diff.rows] == ["old", "new"]
        assert file.now.outcome == "same"
        assert seen.shared_tokens > 0
        with pytest.raises(KeyError):
            await on.soul.lines.compare(4)
        # Nothing is shared by two beginnings.
        await on.soul.travel.clear()
        on.server.script(say("anew"))
        await on.soul.run("again")
        seen = await on.soul.lines.compare(1)
        assert (seen.fork, seen.shared_tokens) == (-1, 0)


async def test_comparing_right_after_a_rewind(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await on.soul.files_ready()
        on.server.script(
            say("one"), call("WriteFile", {"path": "a.txt", "content": "new\n"}), say("two")
        )
        await on.soul.run("first")
        await on.soul.run("second")
        await on.soul.travel.rewind(Target(2), "keep")
        (on.work / "b.txt").write_text("mine\n")
        seen = await on.soul.lines.compare(1)
        assert seen.fork == 1
        assert not Comparison.of(seen.other, seen.live).sides["live"]
        assert {
            one.path: (one.left.outcome, one.now.outcome, one.now.authors, one.alike)
            for one in seen.files.files
        } == {"a.txt": ("new", "new", "agent", True), "b.txt": ("same", "new", "others", False)}


async def test_a_letter_in_a_comparison_tells_where_it_came_from(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await two_lines(on)
        await on.soul.dmails.send(Target(1), "Look in src first.")

        async def letter() -> DMailBlock:
            seen = await on.soul.lines.compare(2)
            live = [entry.block for entry in Comparison.of(seen.other, seen.live).sides["live"]]
            (block,) = [one for one in live if isinstance(one, DMailBlock)]
            return block

        came = await letter()
        (told,) = on.ear.of(ev.ContextReverted)
        assert came.text == "Look in src first."
        assert came.from_checkpoint == told.from_checkpoint == 3
        assert came.tokens_changed == told.tokens_after - told.tokens_before
        # The journal knows it as well as the record.
        on.session.record.path.unlink()
        again = await letter()
        assert (again.from_checkpoint, again.tokens_changed) == (3, came.tokens_changed)
