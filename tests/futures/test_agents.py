"""Sub-agents that write at the same time: each in a process and files of its own, with its difference brought in order of the calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import Answer, ChatServer, Request, call, calls, say, strict
from support.soul import Ear

from kimi_tui.futures.running import Futures
from kimi_tui.launch import Options, launch_of
from kimi_tui.soul.opening import open_session
from kimi_tui.soul.rewind_values import Target
from kimi_tui.wire import events as ev

from .conftest import Scene, contents, make_files, set_environment


def agent(prompt: str, kind: str = "general") -> tuple[str, dict[str, Any]]:
    return ("Agent", {"description": prompt, "prompt": prompt, "kind": kind})


COMMANDS = {
    "alpha": "echo alpha >> src/f1.py; rm -f src/f2.py; mkdir -p new; echo 1 > new/alpha",
    "beta": "chmod +x src/f3.py; ln -s f4.py src/link; printf '\\000\\001' > binary",
    "clash": "echo clash >> src/f1.py; echo own > clash.txt",
    "ask": "true",
    "wait": "touch waiting; sleep 60",
    "place": "pwd > place.txt",
}
TASKS: list[list[str]] = []
"""What each turn of the session's agent has done by sub-agents, called at once."""


def act(request: Request) -> Answer:
    """A model that has sub-agents work at once, and as one of them writes a file, runs a command and says so."""
    if (refused := strict(request)) is not None:
        return refused
    messages = request.messages
    if "You are a sub-agent" in str(messages[0]["content"]):
        said = json.dumps([m["content"] for m in messages if m["role"] == "user"])
        word = next((one for one in COMMANDS if f"do {one}" in said), "")
        done = sum(message["role"] == "tool" for message in messages)
        if done == 0 and word:
            return call("WriteFile", {"path": f"{word}.md", "content": word}, usage=(1000, 20))
        if done == 1 and word:
            more: dict[str, Any] = {"sandbox": "off", "why": "Ask."} if word == "ask" else {}
            return call("Shell", {"command": COMMANDS[word], **more}, usage=(1100, 20))
        return say(f"I did {word}.", usage=(1200, 10))
    if messages[-1]["role"] == "tool" or not TASKS:
        return say("All is done.", usage=(100, 5))
    return calls([agent(f"do {word}") for word in TASKS.pop(0)], usage=(100, 5))


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Scene]:
    work = tmp_path / "work"
    make_files(work)
    TASKS.clear()
    async with ChatServer(check=act) as server:
        set_environment(monkeypatch, tmp_path, server.base_url)
        launch = launch_of(Options(work_dir=str(work), mode="sandboxed"))
        opened = await open_session(launch)
        if opened.soul.mode != "sandboxed":
            await opened.soul.aclose()
            pytest.skip(f"These tests need a complete sandbox. {opened.no_sandbox}")
        await opened.soul.files_ready()
        futures = Futures(opened.soul, launch)
        yield Scene(work, tmp_path / "home", server, launch, opened.soul, futures)
        await opened.soul.aclose()


def results(scene: Scene) -> list[str]:
    """What the session's agent was told of its calls."""
    return [one.text for one in scene.soul.session.context.messages if one.role == "tool"]


async def test_two_write_at_once_and_their_files_come_in_order(scene: Scene) -> None:
    work, soul = scene.work, scene.soul
    before = contents(work)
    ear = Ear(soul.wire)
    TASKS.append(["alpha", "beta"])
    assert await soul.run("do both") == "done"
    print(results(scene), [(n.text) for n in ear.notices()])
    assert (work / "alpha.md").read_text() == "alpha"
    assert (work / "new" / "alpha").read_text() == "1\n"
    assert (work / "src" / "f1.py").read_text() == "x = 1\nalpha\n"
    assert not (work / "src" / "f2.py").exists()
    assert (work / "src" / "f3.py").stat().st_mode & 0o111
    assert (work / "src" / "link").readlink() == Path("f4.py")
    assert (work / "binary").read_bytes() == b"\0\1"
    assert soul.agents is not None
    states = soul.agents.states
    assert [(one.state, one.step, one.is_future) for one in states] == [("done", 3, True)] * 2
    assert states[0].tokens == 3350
    after = contents(work)
    await soul.travel.rewind(Target(0), "restore")
    assert contents(work) == before
    await soul.travel.undo()
    assert contents(work) == after
    assert scene.left() == []
