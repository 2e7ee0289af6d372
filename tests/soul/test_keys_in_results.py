"""Texts in a result that look like a key are marked on its card, and asked about if the user wants that."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.chat_server import call, say
from support.soul import next_event, stage

from kimi_tui.soul.tool_results import outcome_of
from kimi_tui.tool_cards import BriefBlock
from kimi_tui.wire import events as ev

KEY = "sk-proj-abcdefgh12345678abcd"


@pytest.mark.parametrize("answer", ["mark", "once", "session", "no"])
async def test_a_key_in_a_result(tmp_path: Path, answer: str) -> None:
    async with stage(tmp_path, asks_for_keys=answer != "mark") as on:
        (on.work / "notes").write_text(f"first\nkey {KEY} end\n")
        read = call("ReadFile", {"path": "notes"})
        on.server.script(read, read, say("Done."))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(on.soul.run("Go"))
        for _ in range({"mark": 0, "session": 1}.get(answer, 2)):
            asked = await next_event(heard, ev.ApprovalRequest)
            assert (
                asked.question == "Send the result of ReadFile to the model, with 1 possible key?"
            )
            assert asked.detail == f"line 2: sk-p… ({len(KEY)} characters)"
            assert KEY not in str(asked)
            on.soul.answer(asked.id, "no" if answer == "no" else answer, "Never.")  # type: ignore[arg-type]
        await turn
        results = on.ear.of(ev.ToolResult)
        stored = [outcome_of(m) for m in on.session.context.messages if m.role == "tool"]
        assert len(results) == len(stored) == 2
        for result, kept in zip(results, stored, strict=True):
            (brief,) = [block for block in result.display if isinstance(block, BriefBlock)]
            assert "1 possible key" in brief.text
            assert (KEY in result.output, KEY in kept.output) == (answer != "no",) * 2
            if answer == "no":
                assert "key [key left out] end" in kept.output
                assert kept.message.endswith(
                    "The user left 1 possible key out of the output. They say: Never."
                )
                assert not result.is_error
        assert on.ear.of(ev.ToolResult)[0].duration_s < 30


async def test_a_key_in_what_a_tool_says_beside_its_output(tmp_path: Path) -> None:
    async with stage(tmp_path, asks_for_keys=True) as on:
        (on.work / "settings").write_text(f"debug = 1\nkey = {KEY}\nport = 80\n")
        miss = {"old": "debug = 1\nkey = other\nport = 80\n", "new": "a"}
        on.server.script(call("StrReplaceFile", {"path": "settings", "edit": miss}), say("Done."))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(on.soul.run("Go"))
        asked = await next_event(heard, ev.ApprovalRequest)
        assert asked.detail.startswith("in the tool's message, line ")
        assert KEY not in str(asked)
        on.soul.answer(asked.id, "no")
        await turn
        (result,) = on.ear.of(ev.ToolResult)
        assert "key = [key left out]" in result.message
        assert result.is_error
        assert KEY not in str(on.server.requests[-1].body)
        assert KEY not in str(on.file())


@pytest.mark.parametrize("asks", [True, False])
async def test_a_key_in_notes_for_agents_stays_out_where_keys_are_asked_about(
    tmp_path: Path, *, asks: bool
) -> None:
    for folder in ("", "sub/"):
        notes = tmp_path / "work" / folder / "AGENTS.md"
        notes.parent.mkdir(parents=True)
        notes.write_text(f"The server's key is {KEY}, use it.\n")
    (tmp_path / "work" / "sub" / "a.py").write_text("x\n")
    async with stage(tmp_path, asks_for_keys=asks) as on:
        on.server.script(call("ReadFile", {"path": "sub/a.py"}), say("Done."))
        await on.soul.run("Go")
        sent = str(on.server.requests[-1].body)
        assert sent.count("The server's key is") == 2
        assert (KEY in sent, sent.count("key is [key left out]")) == (not asks, 2 * asks)
        told = [*on.session.remarks, *(one.text for one in on.ear.of(ev.Notice))]
        words = [f"1 possible API key was left out of {place}AGENTS.md." for place in ("", "sub/")]
        assert [one for one in told if "left out" in one] == words * asks


@pytest.mark.parametrize("asks", [True, False])
async def test_notes_without_a_key_are_told_of_nowhere(tmp_path: Path, *, asks: bool) -> None:
    # Where keys are not asked about none is left out, whatever the notes say.
    words = "Keep it short." if asks else "The key was [key left out] by somebody."
    (tmp_path / "work" / "sub").mkdir(parents=True)
    (tmp_path / "work" / "sub" / "AGENTS.md").write_text(words)
    (tmp_path / "work" / "sub" / "a.py").write_text("x\n")
    async with stage(tmp_path, asks_for_keys=asks) as on:
        on.server.script(call("ReadFile", {"path": "sub/a.py"}), say("Done."))
        await on.soul.run("Go")
        assert words in str(on.server.requests[-1].body)
        assert not on.ear.notices()
