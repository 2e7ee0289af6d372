"""Sub-agents on the main screen: their cards, their own chat and timeline, what they ask, and Esc, which stops them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from support.cases import first_only
from support.chat_server import ChatServer, call, calls, gate, say
from support.screens import Desk, desk

from kimi_tui.projection.blocks import ToolBlock
from kimi_tui.soul.agent_copies import AgentCopies, NoCopies
from kimi_tui.tui.dialogs.text_dialog import TextDialog
from kimi_tui.tui.preview.screen import RewindScreen
from kimi_tui.tui.subagent_view import SubagentBanner


def agent(title: str, kind: str = "explore") -> tuple[str, dict[str, Any]]:
    return ("Agent", {"description": title, "prompt": f"Please {title}.", "kind": kind})


def cards(one: Desk) -> list[ToolBlock]:
    blocks = one.screen.transcript.blocks
    return [each for each in blocks if isinstance(each, ToolBlock) and each.tool == "Agent"]


async def test_cards_tell_what_two_do_and_stay_when_the_session_is_opened_again(
    tmp_path: Path,
) -> None:
    async with ChatServer() as server:
        async with desk(tmp_path, server.base_url) as one:
            await one.ready()
            server.script(
                calls([agent("find the callers"), agent("find the tests")]),
                gate(0, call("Glob", {"pattern": "*.py"})),
                say("No tests here."),
                say("Three **callers**."),
                say("Done."),
            )
            await one.say("Look around")
            await one.sees("explore: find the callers")
            await one.sees("explore: find the tests")
            await one.sees("Esc stop the sub-agent")
            server.release()
            await one.idle()
            await one.sees("Three callers.")
            await one.sees("2 agents · 3 steps")
            assert sorted(each.agent.step for each in cards(one) if each.agent) == [1, 2]
            session = (
                one.screen.conversation.soul.session.id if one.screen.conversation.soul else ""
            )
        async with desk(tmp_path, server.base_url, resume=session) as one:
            await one.ready()
            await one.sees("2 agents · 3 steps")
            await one.sees("explore: find the callers")


async def test_one_is_read_steered_and_rewound_in_its_own_chat_and_goes_on(tmp_path: Path) -> None:
    async with ChatServer() as server, desk(tmp_path, server.base_url) as one:
        await one.ready()
        server.script(
            calls([agent("find the callers")]),
            call("Glob", {"pattern": "*.py"}, text="First I look."),
            gate(0, say("Three callers.")),
            say("I looked again."),
            say("Done."),
        )
        await one.say("Look around")
        await server.received(3)
        await one.sees("step 2")
        await one.pilot.press("tab")
        await one.until(lambda: one.screen.transcript.chosen in cards(one))
        await one.pilot.press("enter")
        await one.sees("Reading explore-1")
        await one.sees("First I look.")
        assert one.screen.subagents.view is not None
        assert one.screen.bench.timeline_pane.shown is one.screen.subagents.view.timeline
        # The turn goes on behind it, and what is typed here is for the sub-agent.
        await one.pilot.press("m")
        await one.until(lambda: isinstance(one.app.screen, TextDialog))
        await one.pilot.press(*"tests", "enter")
        await one.until(lambda: one.screen.is_current)
        await one.sees("explore-1 will read your message before its next step.")
        server.release()
        await one.sees("I looked again.")
        assert server.requests[3].messages[-1]["content"] == "tests"
        await one.idle()
        # Enter on a step of its timeline rewinds it.
        await one.pilot.press("ctrl+t")
        await one.until(lambda: one.screen.bench.timeline_pane.has_keys)
        await one.sees("Rewinding here frees")
        await one.pilot.press("down", "down", "enter")
        await one.until(lambda: isinstance(one.app.screen, RewindScreen))
        await one.sees(
            "The main conversation also goes back, to just before this sub-agent's result."
        )
        await one.confirm("r", "Rewind the sub-agent")
        await one.sees("Rewound explore-1 to")
        assert one.screen.subagents.view is None
        await one.sees("paused")
        server.script(say("I went on."), say("All done."))
        await one.pilot.press("enter")
        await one.idle()
        await one.sees("All done.")
        assert [each.agent.state for each in cards(one) if each.agent] == ["done"]


async def test_esc_in_its_question_stops_it_and_esc_in_the_prompt_first_the_sub_agents(
    tmp_path: Path,
) -> None:
    async with ChatServer() as server, desk(tmp_path, server.base_url) as one:
        await one.ready()
        server.script(
            calls([agent("write the docs", "general")]),
            call("WriteFile", {"path": "a.md", "content": "a\n"}),
            say("Then not."),
            calls([agent("look"), agent("look too")]),
            gate(0, say("Never.")),
            gate(0, say("Never.")),
            gate(0, say("Without them.")),
        )
        await one.say("Write it")
        await one.sees("Sub-agent general-1: write the docs")
        await one.sees("stop this sub-agent")
        await one.until(lambda: (p := one.screen.bench.question) is not None and p.accepts_keys)
        await one.pilot.press("escape")
        await one.idle()
        await one.sees("Then not.")
        await one.say("Look")
        await server.received(6)
        await one.until(lambda: len(one.screen.conversation.state.working_agents) == 2)
        await one.pilot.press("escape")
        await one.sees("Stopping 2 sub-agents. Press Esc again to stop the whole turn.")
        notices = one.screen.bench.chat_pane.notices
        assert notices is not None
        await one.until(lambda: notices.board[-1].until != float("inf"))
        passes = notices.board[-1].until
        server.release()
        await one.idle()
        # It is about the turn, and goes with that.
        await one.until(lambda: "Press Esc again" not in one.text())
        assert time.monotonic() < passes
        await one.sees("Without them.")
        assert [each.agent.state for each in cards(one) if each.agent] == ["stopped"] * 3


@pytest.mark.parametrize("size", first_only([(120, 40), (60, 20)]))
async def test_the_view_of_one_says_why_it_waits_and_why_it_has_no_files_of_its_own(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    async def refuses(_: int) -> AgentCopies:
        raise NoCopies("There is not enough room on the disk.")

    async with ChatServer() as server, desk(tmp_path, server.base_url, size=size) as one:
        await one.ready()
        soul = await one.screen.conversation.opened()
        soul.agent_copies = refuses
        server.script(
            calls([agent("write it", "general"), agent("test it", "general")]),
            gate(0, say("Written.")),
            gate(0, say("Tested.")),
            say("Both are done."),
        )
        await one.say("Write and test it")
        await server.received(2)
        why = "The sub-agents work one after another, without copies of the files: There is not enough room on the disk."
        await one.say("/agents general-2")
        await one.sees("Reading general-2")

        def said() -> str:
            rows = one.screen.query_one(SubagentBanner).lines(size[0] - 2)
            return " ".join(row.text.strip("▌ ") for row in rows)

        await one.until(
            lambda: f"Waiting for the sub-agents that were called before it. {why}" in said()
        )
        server.release()
        await server.received(3)
        await one.until(lambda: why in said() and "Waiting" not in said())
        server.release()
        await one.idle()
        assert why in said()
        assert "room on the disk." in one.text()


@pytest.mark.exhaustive
async def test_a_view_that_cannot_be_read_closes_and_what_is_typed_wrong_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, desk(tmp_path, server.base_url) as one:
        await one.ready()
        await one.say("/agents nobody-1")
        await one.sees('"nobody-1" is not a sub-agent of this session. /agents lists them.')
        one.screen.prompt.area.take()
        server.script(calls([agent("look")]), say("Here."), say("Done."))
        await one.say("Look")
        await one.idle()
        await one.say("/agents")
        await one.sees("kimi-tui's own")
        await one.sees("done · look")
        await one.pilot.press("enter")
        await one.sees("Reading explore-1")
        assert one.screen.subagents.view is not None
        # The same one again stays, and Esc leads back.
        await one.pilot.press("escape")
        await one.until(lambda: one.screen.subagents.view is None)
        soul = one.screen.conversation.soul
        assert soul is not None

        async def refuses(*_: object) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(soul.agents, "listen", refuses)
        await one.say("/agents explore-1")
        await one.sees("Input/output error")
        assert one.screen.subagents.view is None
        assert one.screen.bench.on_view is one.screen.transcript
