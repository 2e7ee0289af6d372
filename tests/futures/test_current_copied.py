"""A session whose current line came from a future with sub-agents: undone, redone, copied and exported, with nothing lost."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from kimi_tui.commands import export
from kimi_tui.soul.opening import open_session
from kimi_tui.soul.rewind_values import Target
from kimi_tui.tui.replay.source import recorded

from .conftest import Scene, contents
from .test_own_agents import cards, plan, said_by
from .test_own_agents import scene as scene
from .test_switching import shown


def stored(folder: Path) -> dict[str, str]:
    """The files of a session by their hashes, without those that belong to one process, and its title."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock" and path != folder / "state.json"
    }


async def opened(scene: Scene, session_id: str) -> Scene:
    """Open another session of the same folder."""
    found = await open_session(scene.launch._replace(resume=session_id))
    return Scene(scene.work, scene.home, scene.server, scene.launch, found.soul, scene.futures)


@pytest.mark.exhaustive
async def test_a_current_future_is_undone_redone_copied_and_exported(
    scene: Scene, tmp_path: Path
) -> None:
    futures, soul, work = scene.futures, scene.soul, scene.work
    (key,) = await futures.start(plan("use alpha beta"))
    await soul.run("use beta")
    await futures.ended()
    before = contents(work)
    await futures.make_current(key)
    now = contents(work)
    assert now != before
    of_future = {"general-101": "done", "general-102": "done"}
    said = ["Say hello.", "All is done.", "use alpha beta", "All is done."]
    for _ in range(2):
        await soul.travel.undo()
        assert contents(work) == before
        assert await cards(scene) == {"general-1": "done"}
        await soul.travel.redo()
        assert contents(work) == now
        assert await cards(scene) == of_future
        assert shown(await soul.history())[0] == said

    # A copy of a part of it, made while it is open.
    part = await soul.travel.fork(Target(4))
    await soul.aclose()
    session = soul.session
    whole = await session.fork()
    assert stored(whole.dir) == stored(session.dir)
    copy = await opened(scene, whole.id)
    assert await cards(copy) == of_future
    assert await said_by(copy, "general-101") == ["I did alpha."]
    assert shown(await copy.soul.history())[0] == said
    await copy.soul.files_ready()
    await copy.soul.travel.undo()
    assert contents(work) == before
    assert await cards(copy) == {"general-1": "done"}
    await copy.soul.travel.redo()
    assert contents(work) == now
    assert await cards(copy) == of_future
    # A step of a sub-agent can be gone back to in the copy, and leaves the session as it is.
    assert copy.soul.agents is not None
    await copy.soul.agents.rewind("general-102", Target(1), "restore")
    assert await cards(copy) == {"general-101": "done", "general-102": "paused"}
    assert await copy.soul.resume() == "done"
    await copy.soul.aclose()
    half = await opened(scene, part.session_id)
    assert await cards(half) == of_future
    assert await said_by(half, "general-102") == ["I did beta."]
    await half.soul.aclose()

    # What is played and exported has what the future said, and the steps of its sub-agents.
    records, _ = await asyncio.to_thread(recorded, session)
    assert shown(records)[0] == said
    for form in ("html", "md"):
        path = tmp_path / f"out.{form}"
        arguments = [session.id, f"--{form}", "-o", str(path)]
        assert await asyncio.to_thread(export.run, arguments) == 0
        text = path.read_text()
        assert "I did alpha." in text
        assert "I did beta." in text
        assert "general-102" in text
