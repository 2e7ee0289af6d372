"""Our own `kimi-tui acp` as the external agent, with a model on a socket: each side of the protocol against the other."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.chat_server import ChatServerThread, call, calls, gate, say

from kimi_tui.soul.errors import RunCancelled
from kimi_tui.soul.rewind_values import Target
from kimi_tui.wire import events as ev

from .conftest import AgentDesk

pytestmark = pytest.mark.exhaustive


@pytest.fixture
def server() -> Iterator[ChatServerThread]:
    with ChatServerThread() as made:
        yield made


@pytest.fixture
def other(
    desk: AgentDesk, server: ChatServerThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AgentDesk:
    """A desk whose agent is this program, with a home of its own for its sessions."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "config.toml").write_text("[sandbox]\nenabled = false\n")
    (desk.home / "config.toml").write_text(
        "[external_agents.scripted]\n"
        f'command = ["{sys.executable}", "-P", "-c", "import os, sys; os.environ[\'KIMI_TUI_HOME\'] = \'{theirs}\'; '
        'from kimi_tui.cli import main; sys.exit(main())", "acp", "--mode", "ask"]\n'
        'env = ["KIMI_BASE_URL", "KIMI_API_KEY", "KIMI_MODEL_NAME", "KIMI_MODEL_MAX_CONTEXT_SIZE", "KIMI_DIALECT"]\n'
        "[sandbox]\nenabled = false\n"
    )
    monkeypatch.setenv("KIMI_BASE_URL", server.base_url)
    monkeypatch.setenv("KIMI_API_KEY", "sk-test-key")
    monkeypatch.setenv("KIMI_MODEL_NAME", "stand-in")
    monkeypatch.setenv("KIMI_MODEL_MAX_CONTEXT_SIZE", "200000")
    monkeypatch.setenv("KIMI_DIALECT", "generic")
    return desk


async def test_a_turn_with_a_question_a_rewind_and_an_undo(
    other: AgentDesk, server: ChatServerThread
) -> None:
    server.script(
        call("WriteFile", {"path": "a.txt", "content": "one\n"}, text="I write."),
        say("Done."),
        call("Shell", {"command": "echo two > b.txt; echo out"}),
        say("Ran."),
        say("Again."),
    )
    made, ran = other.work / "a.txt", other.work / "b.txt"
    async with other.session() as one:
        one.answer = lambda asked: asked.options[0]
        assert await one.say("write it") == "I write.Done."
        assert one.asked[0].display
        assert made.read_text() == "one\n"
        assert await one.say("run it") == "Ran."
        assert one.asked[1].question == "Run this command?"
        command, where = one.asked[1].detail.split("\n\n")
        assert command == "echo two > b.txt; echo out"
        assert where.startswith(f"in {other.work}, ")
        assert "out" in one.of(ev.ToolResult)[-1].output
        await one.soul.travel.rewind(Target(one.point), "restore")
        assert (made.exists(), ran.exists()) == (True, False)
        assert await one.say("something else") == "Again."
        # Its session went back itself: the model does not know the command.
        sent = str(server.requests[-1].messages)
        assert "write it" in sent
        assert "run it" not in sent
        assert not [one for one in one.of(ev.Notice) if "new session" in one.text]
        await one.soul.travel.undo()
        assert ran.exists()
        setting = one.soul.host.setting("mode")
        assert setting is not None
        assert "all" in [each.value for each in setting.choices]
        assert (await one.soul.set_setting(setting, "all")).value == "all"


async def test_a_stop_and_a_later_run_of_the_program(
    other: AgentDesk, server: ChatServerThread
) -> None:
    server.script(say("First."), gate(1, say("a b c d")), say("Later."))
    async with other.session() as one:
        assert await one.say("hello") == "First."
        turn = asyncio.create_task(one.say("slowly"))
        await asyncio.to_thread(server.wait_at_gate)
        await one.soul.interrupt()
        with pytest.raises(RunCancelled):
            await turn
        server.release()
        session_id = one.soul.session.id
    async with other.session(session=session_id) as one:
        assert await one.say("and now?") == "Later."
        assert "hello" in str(server.requests[-1].messages)


def agent(title: str) -> tuple[str, dict[str, str]]:
    return ("Agent", {"description": title, "prompt": f"Please {title}.", "kind": "explore"})


async def test_two_sub_agents_of_one_step_show_what_they_do_and_what_they_found(
    other: AgentDesk, server: ChatServerThread
) -> None:
    server.script(
        calls([agent("find the callers"), agent("find the tests")]),
        gate(0, call("Glob", {"pattern": "*.py"})),
        say("There are **no** tests."),
        say("Three callers."),
        say("Done."),
    )
    async with other.session() as one:
        turn = asyncio.create_task(one.say("look"))
        await asyncio.to_thread(server.wait_at_gate)
        await one.until(lambda: len(one.of(ev.ToolStarted)) == 2, "both")
        server.release()
        assert await turn == "Done."
        shown = {each.key: each for each in one.of(ev.ToolCall)}
        assert [(each.name, each.card.short) for each in shown.values()] == [
            ("Subagent", "Sub-agent")
        ] * 2
        about = {
            each.key: json.loads(each.arguments)["description"] for each in one.of(ev.ToolStarted)
        }
        assert sorted(about.values()) == ["explore: find the callers", "explore: find the tests"]
        found = {about[each.key]: each.output for each in one.of(ev.ToolResult)}
        assert sorted(found.values()) == ["There are **no** tests.", "Three callers."]
        does = "".join(each.text for each in one.of(ev.ToolOutput)).splitlines()
        assert "step 1: Glob *.py" in does
        # They are no sub-agents of this session, which could be read or stopped here.
        assert not one.of(ev.AgentChanged)
