"""Results that are too long for a message: the file with the whole text stays readable where the conversation goes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from support.chat_server import Answer, ChatServer, Request, call, say, strict
from support.mcp_session import configure, entry

from kimi_tui.futures.running import Futures
from kimi_tui.futures.values import FuturesPlan, Variant
from kimi_tui.launch import Options, launch_of
from kimi_tui.soul.opening import open_session
from kimi_tui.soul.rewind_values import END, Target
from kimi_tui.wire import events as ev

from .conftest import Scene, make_files, set_environment
from .test_running import until

LONG = "0123456789" * 5000
PATH = re.compile(r"The full text is in (\S+);")


def act(request: Request) -> Answer:
    """A model that gets a long result, reads the file with it, and says how much it has read; `ask` has a sub-agent do so."""
    if (refused := strict(request)) is not None:
        return refused
    messages = request.messages
    told = [json.dumps(one["content"]) for one in messages if one["role"] == "user"]
    is_sub = "You are a sub-agent" in str(messages[0]["content"])
    results = [str(one["content"]) for one in messages if one["role"] == "tool"]
    paths = [found[1] for one in results if (found := PATH.search(one))]
    if "read" in told[-1]:
        if messages[-1]["role"] == "user":
            return call("ReadFile", {"path": paths[-1], "n_lines": 2})
        return say("It can be read." if LONG[:200] in results[-1] else f"No: {results[-1][:300]}")
    if "ask" in told[-1] and not is_sub:
        if messages[-1]["role"] == "tool":
            return say("It is done.")
        return call("Agent", {"description": "long", "prompt": "get it", "kind": "general"})
    if "get" in told[-1] and not results:
        return call("mcp__made__echo", {"text": LONG})
    return say(f"It is in {paths[-1]}." if paths else "Hello.")


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Scene]:
    work = tmp_path / "work"
    make_files(work)
    configure(tmp_path / "home" / "mcp.json", made=entry())
    async with ChatServer(check=act) as server:
        set_environment(monkeypatch, tmp_path, server.base_url)
        monkeypatch.setenv("KIMI_MODEL_MAX_CONTEXT_SIZE", "1000000")
        launch = launch_of(Options(work_dir=str(work), mode="all"))
        opened = await open_session(launch)
        if opened.soul.sandbox is None:
            await opened.soul.aclose()
            pytest.skip(f"These tests need a complete sandbox. {opened.no_sandbox}")
        await opened.soul.run("Say hello.")
        await opened.soul.files_ready()
        futures = Futures(opened.soul, launch)
        yield Scene(work, tmp_path / "home", server, launch, opened.soul, futures)
        await opened.soul.aclose()


async def started(scene: Scene, message: str) -> str:
    (key,) = await scene.futures.start(FuturesPlan(Target(END), (Variant(message),)))
    return key


def last_said(scene: Scene) -> str:
    return scene.soul.session.context.messages[-1].text


@pytest.mark.exhaustive
@pytest.mark.parametrize("message", ["get", "ask"])
async def test_the_path_in_a_future_is_that_of_the_session(scene: Scene, message: str) -> None:
    futures, soul = scene.futures, scene.soul
    # What the session has got before is read in the future as well.
    key = await started(scene, message)
    await futures.ended()
    state = futures.state(key)
    assert state.state == "done", state
    await futures.make_current(key)
    if message == "get":
        path = Path(last_said(scene).removeprefix("It is in ").removesuffix("."))
    else:
        assert soul.agents is not None
        history, subscription = await soul.agents.listen("general-101")
        await soul.agents.unlisten("general-101", subscription)
        said = "".join(one.event.text for one in history if isinstance(one.event, ev.TextPart))
        path = Path(said.removeprefix("It is in ").removesuffix("."))
    assert soul.session.dir in path.parents
    assert path.read_text() == LONG
    if message == "ask":
        return
    await soul.set_mode("ask")
    await soul.run("read it")
    assert last_said(scene) == "It can be read."

    # A future, a copy of the session, and a copy whose session was deleted read it too, without asking.
    again = await started(scene, "read it")
    await until(scene, again, lambda one: one.world_line > 0 or one.state == "asking")
    assert futures.state(again).last_words == "It can be read."
    fork = await soul.session.fork()
    await soul.aclose()
    for path in [*soul.session.dir.joinpath("results").iterdir()]:
        path.unlink()
    opened = await open_session(scene.launch._replace(resume=fork.id))
    await opened.soul.set_mode("ask")
    async with asyncio.timeout(20):
        await opened.soul.run("read it")
    assert opened.soul.session.context.messages[-1].text == "It can be read."
    await opened.soul.aclose()
