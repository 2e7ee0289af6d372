"""Answers of gateways that break the protocol, from the socket to the files: what is run, kept, shown and sent back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.chat_server import delta, say, stream, tool_delta
from support.soul import stage

from kimi_tui.projection.blocks import AgentBlock, RetryBlock, ThoughtBlock
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.wire import events as ev


async def test_a_call_that_is_sent_twice_is_run_once(tmp_path: Path) -> None:
    command = json.dumps({"command": "echo ran >> log.txt"})
    async with stage(tmp_path) as on:
        on.server.script(
            stream(
                tool_delta(0, id="c_a", name="Shell", arguments=""),
                tool_delta(0, arguments=command),
                tool_delta(1, id="c_a", name="Shell", arguments=command),
                finish="tool_calls",
            ),
            say("done"),
        )
        await on.soul.run("run it")
        assert (on.work / "log.txt").read_text() == "ran\n"
        assert len(on.ear.of(ev.ToolResult)) == 1
        assert [len(one.get("tool_calls", [])) for one in on.server.requests[1].messages].count(
            1
        ) == 1


@pytest.mark.exhaustive
async def test_two_calls_that_the_model_made_are_both_run(tmp_path: Path) -> None:
    command = json.dumps({"command": "echo ran >> log.txt"})
    async with stage(tmp_path) as on:
        on.server.script(
            stream(
                tool_delta(0, id="c_a", name="Shell", arguments=command),
                tool_delta(1, id="c_b", name="Shell", arguments=command),
                finish="tool_calls",
            ),
            say("done"),
        )
        await on.soul.run("run it twice")
        assert (on.work / "log.txt").read_text() == "ran\nran\n"


async def test_halves_of_characters_end_no_turn(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(
            stream(
                delta(reasoning_content="hm \ud83d"),
                delta(reasoning_content="\ude00"),
                *(
                    delta(content=piece)
                    for piece in ("I ", "see ", "\ud83d", "\ude00", " and \udc80")
                ),
            ),
            say("fine"),
        )
        await on.soul.run("hi")
        assert on.ear.of(ev.TurnEnd) == [ev.TurnEnd("done")]
        assert not on.ear.of(ev.StepRetry)
        assert "".join(one.text for one in on.ear.of(ev.TextPart)) == "I see 😀 and \ufffd"
        assert "".join(one.text for one in on.ear.of(ev.ThinkPart)) == "hm 😀"
        await on.reopen()
        await on.soul.run("again")
        assert ("assistant", "I see 😀 and \ufffd") in on.sent()


async def test_the_end_of_reasoning_without_its_beginning(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(
            stream(
                *(
                    delta(content=one)
                    for one in ("I should ", "look.", "\n</think>\n\n", "It is ", "empty.")
                )
            ),
            say("fine"),
        )
        await on.soul.run("what is in a?")
        (answer,) = [one for one in on.file() if one["role"] == "assistant"]
        assert [part.get("think") or part["text"] for part in answer["content"]] == [
            "I should look.\n",
            "It is empty.",
        ]
        # Text that was shown as an answer is shown as reasoning now, also to later readers of the record.
        await on.soul.flush()
        chat = TranscriptModel()
        for seq, event in enumerate(on.ear.events, 1):
            chat.apply(ev.EventRecord(seq, float(seq), event))
        shown = [
            (type(block), block.stream.text)
            for block in chat.blocks
            if isinstance(block, AgentBlock | ThoughtBlock)
        ]
        assert shown == [(ThoughtBlock, "I should look.\n"), (AgentBlock, "It is empty.")]
        assert not any(isinstance(block, RetryBlock) for block in chat.blocks)
        await on.reopen()
        await on.soul.run("go on")
        assert not on.ear.of(ev.StepRetry)
        sent = [message for role, message in on.sent() if role == "assistant"]
        assert sent[0].endswith("It is empty.")
        assert "I should look.\n\n</think>" not in sent[0]
