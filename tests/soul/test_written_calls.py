"""Calls that a model writes as text: found where they end an answer, run after a question, and never else."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import each
from support.chat_server import call, say
from support.soul import Stage, next_event, stage, until_end

from kimi_tui.soul.written_calls import WrittenCall, written_calls
from kimi_tui.wire import events as ev

NAMES = ("ReadFile", "Shell", "Glob")
READ = '{"name": "ReadFile", "arguments": {"path": "a.txt"}}'
RUN = '{"name": "Shell", "arguments": {"command": "echo hi"}}'
A_READ = WrittenCall("ReadFile", '{"path": "a.txt"}')
A_RUN = WrittenCall("Shell", '{"command": "echo hi"}')


def fenced(text: str, language: str = "json") -> str:
    return f"```{language}\n{text}\n```"


@each(
    "text, calls, before",
    [
        (fenced(READ), [A_READ], ""),
        (fenced(READ, ""), [A_READ], ""),
        (f"Let me look.\n\n{fenced(READ)}\n", [A_READ], "Let me look."),
        (f"<tool_call>\n{READ}\n</tool_call>", [A_READ], ""),
        (
            f"Look:\n<tool_call>{READ}</tool_call>\n<tool_call>{RUN}</tool_call>",
            [A_READ, A_RUN],
            "Look:",
        ),
        # A template's stop token ends the answer before the tag does.
        (f"<tool_call>\n{READ}\n", [A_READ], ""),
        (fenced(f"<tool_call>\n{READ}\n</tool_call>", "xml"), [A_READ], ""),
        (f"{fenced(READ)}\n\n{fenced(RUN)}", [A_READ, A_RUN], ""),
        (f"<tool_call>{READ}</tool_call></tool_call>", [A_READ], ""),
        (READ, [A_READ], ""),
        (f"[{READ}, {RUN}]", [A_READ, A_RUN], ""),
        ('{"name": "ReadFile", "parameters": {"path": "a.txt"}}', [A_READ], ""),
        ('{"name": "ReadFile", "arguments": "{\\"path\\": \\"a.txt\\"}"}', [A_READ], ""),
        (
            '{"type": "function", "function": {"name": "ReadFile", "arguments": {"path": "a.txt"}}}',
            [A_READ],
            "",
        ),
    ],
)
def test_what_is_a_call(text: str, calls: list[WrittenCall], before: str) -> None:
    found = written_calls(text, NAMES)
    assert found is not None
    assert (list(found.calls), found.before, found.is_end) == (calls, before, True)


@each(
    "text",
    [
        "",
        "Use ReadFile to read a.txt.",
        fenced('{"name": "Other", "arguments": {}}'),
        fenced('{"name": "ReadFile"}'),
        fenced('{"name": "ReadFile", "arguments": [1]}'),
        fenced('{"name": "ReadFile", "arguments": {"path": '),
        fenced(READ, "python"),
        f"The file holds {READ}",
        f"[{READ}, 3]",
        "```",
        "``````",
        "<tool_call>",
        "[" * 100_000,
        "```json\n" * 20_000,
        "<tool_call>" * 15_000,
        f"{fenced(READ)} " + "x" * 300_000,
        f"[{', '.join([READ] * 9)}]",
    ],
)
def test_what_is_none(text: str) -> None:
    assert written_calls(text, NAMES) is None


@pytest.mark.parametrize("block", [fenced(READ), f"<tool_call>{READ}</tool_call>"])
def test_a_call_with_words_behind_it_is_only_told(block: str) -> None:
    found = written_calls(f"{block}\nThis reads the file.", NAMES)
    assert found is not None
    assert (found.calls, found.is_end) == ((A_READ,), False)
    # If there are several, nobody knows which one is meant.
    assert written_calls(f"{block}\nor\n{block}\nAs you like.", NAMES) is None


@given(st.text(alphabet='`{}[]"<>/\n njsoamertgul_c:,\\', max_size=80))
def test_any_text_is_taken(noise: str) -> None:
    for text in (noise, f"{noise}{READ}", f"{READ}{noise}", f"{noise}\n{fenced(READ)}"):
        found = written_calls(text, NAMES)
        assert found is None or all(one.name in NAMES for one in found.calls)
    ends = written_calls(f"{noise}\n<tool_call>{READ}</tool_call>", NAMES)
    assert ends is not None
    assert ends.calls[-1] == A_READ


async def answered(on: Stage, option: int | None) -> ev.ApprovalRequest:
    """Answer the next question of the program: with an option, or with no."""
    asked = await next_event(on.soul.wire.subscribe(), ev.ApprovalRequest)
    if option is None:
        on.soul.answer(asked.id, "no")
    else:
        on.soul.answer(asked.id, "once", asked.options[option])
    return asked


async def run(on: Stage, text: str, *options: int | None) -> list[ev.ApprovalRequest]:
    """Run a turn, and answer what is asked in it."""
    asked: list[ev.ApprovalRequest] = []

    async def answer() -> None:
        for option in options:
            asked.append(await answered(on, option))

    answering = asyncio.create_task(answer())
    await on.soul.run(text)
    await answering
    return asked


@pytest.mark.exhaustive
async def test_a_yes_makes_a_call_of_it(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        (on.work / "a.txt").write_text("the text\n")
        on.server.script(say(f"I look.\n\n{fenced(READ)}"), say("It says the text."))
        (asked,) = await run(on, "what is in a.txt?", 0)
        assert asked.kind == "pause"
        assert "ReadFile" in asked.question
        assert asked.detail == 'ReadFile {"path": "a.txt"}'
        assert on.ear.of(ev.TurnEnd)[-1] == ev.TurnEnd("done")
        said, result = on.server.requests[-1].messages[-2:]
        assert said["content"] == "I look."
        assert json.loads(said["tool_calls"][0]["function"]["arguments"]) == {"path": "a.txt"}
        assert "the text" in result["content"]
        assert result["tool_call_id"] == said["tool_calls"][0]["id"]
        (shown,) = on.ear.of(ev.ToolCall)
        assert [one.key for one in on.ear.of(ev.ToolResult)] == [shown.key]
        await on.reopen()
        on.server.script(say("on"))
        await on.soul.run("and now?")


@pytest.mark.sample(2)
@pytest.mark.parametrize("dialect", ["mistral", "gemini", "deepseek", "moonshot", "minimax"])
async def test_the_call_is_valid_for_every_dialect(tmp_path: Path, dialect: str) -> None:
    from kimi_tui.llm.openai_compatible import OpenAICompatible

    async with stage(tmp_path) as on:
        provider = OpenAICompatible(
            provider="p",
            base_url=on.server.base_url,
            api_key="",
            model="m",
            dialect=dialect,
            window=100_000,
        )
        on.soul.set_provider(provider)
        (on.work / "a.txt").write_text("the text\n")
        both = f"<tool_call>{READ}</tool_call>\n<tool_call>{READ}</tool_call>"
        on.server.script(say(both, think="Hm."), say("Done."))
        await run(on, "read twice", 0)
        # The stage's server refuses what a strict one would.
        assert on.ear.of(ev.TurnEnd)[-1] == ev.TurnEnd("done")
        assert str(on.server.requests[-1].messages).count("the text") == 2


async def test_a_no_leaves_it_as_text(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say(fenced(READ)), say("fine"))
        await run(on, "show me a call", None)
        assert on.ear.of(ev.TurnEnd)[-1] == ev.TurnEnd("done")
        assert not on.ear.of(ev.ToolCall)
        await on.soul.run("thanks")
        assert READ in str(on.sent()[1][1])


@pytest.mark.exhaustive
async def test_a_yes_for_the_session_asks_no_more_until_it_is_revoked(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        (on.work / "a.txt").write_text("the text\n")
        on.server.script(say(fenced(READ)), say(READ), say("done"))
        await run(on, "read", 1)
        assert len(on.ear.of(ev.ApprovalRequest)) == 1
        assert len(on.ear.of(ev.ToolResult)) == 2
        (words,) = on.soul.permissions.of_session
        on.soul.permissions.revoke(words)
        on.server.script(say(READ), say("done"))
        assert await run(on, "again", 0)


async def test_the_usual_question_comes_all_the_same(tmp_path: Path) -> None:
    async with stage(tmp_path, mode="ask") as on:
        on.server.script(say(RUN), say("done"))
        first, second = await run(on, "run it", 0, None)
        assert (first.kind, second.kind) == ("pause", "tool")
        assert second.detail == "echo hi"
        assert not on.server.left or on.ear.of(ev.TurnEnd)[-1].reason == "rejected"


async def test_stopped_while_it_is_asked_the_answer_stays(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say(fenced(READ)), say("on"))
        turn = asyncio.create_task(until_end(on.soul.run("read")))
        await next_event(on.soul.wire.subscribe(), ev.ApprovalRequest)
        await on.soul.interrupt()
        await turn
        assert on.ear.of(ev.TurnEnd)[-1].reason == "interrupted"
        await until_end(on.soul.run("go on"))
        assert READ in str(on.sent())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (fenced('{"name": "ReadFile", "arguments": {"file": "a.txt"}}'), "arguments"),
        (f"{fenced(READ)}\nThis reads the file.", "example"),
    ],
)
async def test_what_cannot_be_run_is_told(tmp_path: Path, text: str, why: str) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say(text))
        await on.soul.run("read")
        assert on.ear.of(ev.TurnEnd)[-1] == ev.TurnEnd("done")
        (notice,) = on.ear.notices()
        assert "written as text" in notice.text
        assert why in notice.advice


async def test_without_tools_nothing_is_run(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.soul.use_tools("off")
        on.server.script(say(READ))
        await on.soul.run("read")
        assert "written as text" in on.ear.notices()[-1].text
        assert not on.ear.of(ev.ApprovalRequest)


async def test_a_real_call_beside_it_is_the_call(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        (on.work / "a.txt").write_text("the text\n")
        on.server.script(call("ReadFile", {"path": "a.txt"}, text=READ), say("done"))
        await on.soul.run("read")
        assert not on.ear.of(ev.ApprovalRequest)
        assert len(on.ear.of(ev.ToolResult)) == 1
