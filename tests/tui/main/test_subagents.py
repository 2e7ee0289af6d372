"""Sub-agents on the main screen: their cards, their own chat and timeline, what they ask, and Esc, which stops them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.chat_server import ChatServer, call, calls, gate, say
from support.screens import Desk, desk

from kimi_tui.projection.blocks import ToolBlock


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
            await one.sees("Esc stop the sub-agents")
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
