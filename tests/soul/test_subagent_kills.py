"""Kills of the program at every phase of a sub-agent: nothing that it did is lost, and it goes on or its call ends, with valid requests."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import agent_kills
from support.agent_kills import program, tells, until
from support.chat_server import Answer, ChatServer, Request, call, say, strict

from kimi_tui.launch import Options, launch_of
from kimi_tui.soul.opening import open_session

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(200)]

PHASES = {
    **agent_kills.PHASES,
    "its second file": lambda line: tells(line, "AgentChanged", calls=2, doing=""),
}


def act(request: Request) -> Answer:
    """A sub-agent that writes two files, one in each step, and an agent that starts it."""
    if (refused := strict(request)) is not None:
        return refused
    messages = request.messages
    if "You are a sub-agent" in str(messages[0]["content"]):
        done = sum(message["role"] == "tool" for message in messages)
        if done < 2:
            name = "ab"[done]
            return call("WriteFile", {"path": f"{name}.txt", "content": f"{name}\n"})
        return say("Both are written.")
    if messages[-1]["role"] == "tool":
        return say("It is done.")
    if any("Agent" in str(message.get("tool_calls", "")) for message in messages):
        return say("Hello again.")
    return call("Agent", {"description": "write", "prompt": "Write two files", "kind": "general"})


@pytest.mark.parametrize("phase", list(PHASES))
async def test_a_kill_in_each_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    home.mkdir()
    (home / "config.toml").write_text("[sandbox]\nenabled = false\n")
    async with ChatServer(check=act) as server:
        environment = {
            "HOME": str(home),
            "KIMI_TUI_HOME": str(home),
            "KIMI_BASE_URL": server.base_url,
            "KIMI_API_KEY": "key",
            "KIMI_MODEL_NAME": "stand-in",
            "KIMI_MODEL_MAX_CONTEXT_SIZE": "200000",
            "KIMI_DIALECT": "generic",
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        async with program(work, "look", "edits") as started:
            await until(started, PHASES[phase])
        launch = launch_of(Options(work_dir=str(work), newest=True, mode="edits"))
        soul = (await open_session(launch)).soul
        try:
            states = [] if soul.agents is None else [one.state for one in soul.agents.states]
            assert len(states) <= 1
            assert not {"waiting", "working", "asking"} & set(states)
            result = await soul.resume()
            assert result == "done"
            said = [message.text for message in soul.session.context.messages]
            calls = [m for m in soul.session.context.messages if m.role == "tool"]
            if states == ["paused"]:
                assert "Both are written." in calls[-1].text
                assert soul.agents is not None
                assert [one.state for one in soul.agents.states] == ["done"]
                # A call that the kill cut short may have run, and is not made again by itself.
                assert {path.name for path in work.iterdir()} >= {"b.txt"}
            assert said[-1] in ("It is done.", "Hello again.")
        finally:
            await soul.aclose()
        assert not [one for one in server.requests if strict(one) is not None]
