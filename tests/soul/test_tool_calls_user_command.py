"""A command that the user runs: seen in the chat, told to the model or not, undone with a rewind, stopped with Esc."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from support.chat_server import say
from support.soul import next_event, stage, until_end

from kimi_tui.projection.blocks import ToolBlock, UserBlock
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.session.listing import describe
from kimi_tui.soul.history import session_history
from kimi_tui.soul.messages import ends_open
from kimi_tui.soul.rebuilt_history import end_of_context, rebuild_history
from kimi_tui.soul.rewind_values import Target
from kimi_tui.wire import events as ev


async def test_it_is_told_and_a_rewind_brings_its_files_back(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        (on.work / "kept").write_text("before\n")
        await on.soul.files_ready()
        on.server.script(say("one"), say("I see"))
        await on.soul.run("hi")
        await on.soul.run_command("echo after > kept; echo made it; exit 3")
        assert (on.work / "kept").read_text() == "after\n"
        assert not on.ear.of(ev.ApprovalRequest)
        (result,) = on.ear.of(ev.ToolResult)
        assert (result.output.strip(), result.is_error) == ("made it", True)
        model = TranscriptModel()
        for record in session_history(on.session):
            model.apply(record)
        said, card = model.blocks[-2:]
        assert isinstance(said, UserBlock)
        assert isinstance(card, ToolBlock)
        assert (said.text[:5], card.state, said.checkpoint) == ("!echo", "failed", card.checkpoint)
        await on.soul.run("what was that?")
        sent = "\n".join(text for _, text in on.sent())
        assert "made it" in sent
        assert "Exit code 3" in sent
        assert card.checkpoint is not None
        outcome = await on.soul.travel.rewind(Target(card.checkpoint), "restore")
        assert outcome.prompt == "!echo after > kept; echo made it; exit 3"
        assert (on.work / "kept").read_text() == "before\n"
        assert "made it" not in "".join(map(str, on.file()))


@pytest.mark.parametrize("asks", [False, True])
async def test_what_looks_like_a_key_is_told_or_left_out(tmp_path: Path, asks: bool) -> None:
    key = "sk-abcdefghijklmnopqrstuvwxyz"
    async with stage(tmp_path, asks_for_keys=asks) as on:
        await on.soul.run_command(f"printf 'sk-%s' {key.removeprefix('sk-')}")
        (result,) = on.ear.of(ev.ToolResult)
        assert key in result.output
        assert "1 possible key" in str(result.display)
        assert (key in str(on.file())) is not asks


async def test_one_that_is_not_told_leaves_the_context_as_it_was(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say("one"))
        await on.soul.run("hi")
        before = on.file()
        await on.soul.run_command("echo quietly", told=False)
        assert on.file() == before
        assert on.ear.of(ev.ToolResult)[-1].output.strip() == "quietly"
        assert on.ear.of(ev.TurnEnd)[-1].reason == "done"
        # Its card bears no figure of the step before it.
        on.server.script(say("two"))
        await on.soul.run("go on")
        model = TranscriptModel()
        for n, event in enumerate(on.ear.events):
            model.apply(ev.EventRecord(n, 0.0, event))
        (card,) = (block for block in model.blocks if isinstance(block, ToolBlock))
        assert card.checkpoint is not None
        assert card.tokens is None
        assert "not sent to the model" in str(on.ear.of(ev.ToolResult)[-1].display)


async def test_a_message_that_begins_like_one_is_a_message_again(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say("one"))
        await on.soul.run("!echo is not what I run")
        (point,) = (one for one in on.ear.of(ev.CheckpointCreated) if one.kind == "user")
        assert (await on.soul.travel.rewind(Target(point.id))).prompt == " !echo is not what I run"


@pytest.mark.exhaustive
async def test_without_a_record_it_is_the_same_card_and_names_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say("I see"))
        on.server.title = say("Look around")
        await until_end(on.soul.run_command("echo '</system-reminder>'; echo two; exit 3"))
        assert on.session.title.startswith("!echo")
        heard = on.soul.wire.subscribe()
        run = asyncio.create_task(until_end(on.soul.run_command("echo begun; sleep 100")))
        await next_event(heard, ev.ToolOutput)
        await on.soul.interrupt()
        await run
        # Nothing is left open by it.
        assert not ends_open(on.session.context.messages)
        for records in (rebuild_history(on.session, []), end_of_context(on.session)):
            model = TranscriptModel()
            for record in records:
                model.apply(record)
            said, card, again, stopped = model.blocks
            assert isinstance(said, UserBlock)
            assert isinstance(again, UserBlock)
            assert isinstance(card, ToolBlock)
            assert isinstance(stopped, ToolBlock)
            assert (card.state, stopped.state) == ("failed", "stopped")
            assert "exit 3" in card.target
            assert card.output == "</system-reminder>\ntwo\n"
        await until_end(on.soul.run("what was that?"))
        assert on.session.title == "what was that?"
        assert await on.soul.name_session() == "Look around"
        asked = json.dumps(on.server.title_requests[-1].body)
        assert "what was that?" in asked
        assert "!echo" not in asked
        await on.session.sync()
        info = describe(on.session.dir)
        assert info is not None
        assert info.title == "Look around"
        await on.soul.rename("")
        await on.soul.aclose()
        (on.session.dir / "state.json").unlink()
        info = describe(on.session.dir)
        assert info is not None
        assert info.title == "what was that?"


async def test_it_can_be_stopped(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        heard = on.soul.wire.subscribe()
        run = asyncio.create_task(until_end(on.soul.run_command("echo begun; sleep 100")))
        await next_event(heard, ev.ToolOutput)
        await on.soul.interrupt()
        await run
        assert on.ear.of(ev.ToolResult)[-1].interrupted
        assert on.ear.of(ev.TurnEnd)[-1].reason == "interrupted"
        assert not on.soul.running
