"""What is left of futures where their world lines or their session are deleted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from kimi_tui.commands import sessions
from kimi_tui.filesystem import Storage
from kimi_tui.futures import PREFIX
from kimi_tui.futures.leftovers import take_up
from kimi_tui.futures.world_line import FutureNote, write_note
from kimi_tui.session.session import AGENTS_NAME
from kimi_tui.session.store import SessionStore
from kimi_tui.soul.opening import open_session
from kimi_tui.soul.stored_agents import remove_agents
from kimi_tui.tools.past_command import place_of
from kimi_tui.wire.events import AgentChanged, FutureChanged

from .conftest import Scene
from .test_own_agents import cards, plan, said_by
from .test_own_agents import scene as scene


def agents_there(scene: Scene) -> set[str]:
    """The folders of sub-agents in the session's folder."""
    folder = scene.soul.session.dir / AGENTS_NAME
    return {one.name for one in folder.iterdir()} if folder.exists() else set()


@pytest.mark.exhaustive
async def test_the_sub_agents_of_a_future_go_with_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    futures, soul = scene.futures, scene.soul
    first, second = await futures.start(plan("use alpha", "use beta"))
    await soul.run("use beta")
    await futures.ended()
    assert agents_there(scene) == {"general-1", "general-101", "general-201"}
    assert soul.agents is not None
    # One that is open, as it is on view, goes as well.
    _, subscription = await soul.agents.listen("general-101")
    events = soul.wire.subscribe()
    await futures.prune([first])
    assert agents_there(scene) == {"general-1", "general-201"}
    assert [one.name for one in soul.agents.states] == ["general-1", "general-201"]
    await soul.agents.unlisten("general-101", subscription)
    gone = [
        one.event.name
        for one in events.drain()
        if isinstance(one.event, AgentChanged) and one.event.removed_at
    ]
    assert gone == ["general-101"]

    # Those of the current line stay although the line of the future is deleted, and go on after it.
    await futures.make_current(second)
    await futures.prune([second])
    assert agents_there(scene) == {"general-1", "general-201"}
    assert await cards(scene) == {"general-201": "done"}
    await soul.aclose()
    again = await scene.again()
    assert await said_by(again, "general-201") == ["I did beta."]
    assert await cards(again) == {"general-201": "done"}

    # One that is only on a line that a future left by a D-Mail goes with the future.
    (third,) = await again.futures.start(plan("use mail alpha"))
    await again.futures.ended()
    assert agents_there(again) == {"general-1", "general-201", "general-301"}
    await again.futures.prune([third])
    assert agents_there(again) == {"general-1", "general-201"}
    name = again.soul.session.id
    await again.soul.aclose()
    # The line of the session before the switch is one of its own.
    asked: list[str] = []
    monkeypatch.setattr(sessions, "confirmed", asked.append)
    assert await asyncio.to_thread(sessions.run, ["prune", name]) == 1
    assert ") and 1 sub-agent? You can then no longer read" in asked[0]
    assert await asyncio.to_thread(sessions.run, ["prune", name, "--yes"]) == 0
    assert agents_there(again) == {"general-201"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("scene", ["16000"], indirect=True)
async def test_those_above_a_summary_stay(scene: Scene) -> None:
    soul = scene.soul
    await soul.run("use alpha")
    await soul.run("Say much.")
    await soul.compact()
    name = soul.session.id
    await soul.aclose()
    assert await asyncio.to_thread(sessions.run, ["prune", name, "--yes"]) == 0
    assert agents_there(scene) == {"general-1"}
    again = await scene.again()
    assert await said_by(again, "general-1") == ["I did alpha."]
    await again.soul.aclose()


@pytest.mark.exhaustive
async def test_what_a_kill_left_of_a_removed_sub_agent_goes_at_the_next_start(scene: Scene) -> None:
    soul = scene.soul
    await soul.run("use alpha beta")
    await soul.aclose()
    folder = soul.session.dir / AGENTS_NAME
    (folder / "general-1").rename(folder / ".removed-general-1")
    again = await scene.again()
    assert agents_there(again) == {"general-2"}
    assert again.soul.agents is not None
    await again.soul.agents.forget(["general-2"])
    # A name that was used before is no obstacle.
    (folder / ".removed-general-2").mkdir()
    await asyncio.to_thread(remove_agents, again.soul.session, ["general-2"])
    assert agents_there(again) == set()
    await again.soul.aclose()


def left_future(bucket: Path, parent: str) -> Path:
    """A future that a killed program left to a session."""
    folder = bucket / f"{PREFIX}{parent[:8]}"
    folder.mkdir()
    note = FutureNote(parent, "", 0, 0, FutureChanged("k-1", "k", 1, "one"))
    write_note(Storage(), folder, note)
    return folder


@pytest.mark.exhaustive
async def test_a_deleted_session_leaves_nothing_of_its_futures(scene: Scene) -> None:
    soul = scene.soul
    await soul.aclose()
    session, bucket = soul.session, soul.session.dir.parent
    other = await session.fork()
    mine, others = left_future(bucket, session.id), left_future(bucket, other.id)
    frozen = place_of(session.dir, {"KIMI_TUI_HOME": str(scene.home)})
    frozen.mkdir(parents=True)
    (frozen / "base.json").write_text(json.dumps({}))
    # In the trash it can still be restored, so its future is kept for it.
    store = SessionStore(scene.home)
    store.move_to_trash(session)
    opened = await open_session(scene.launch._replace(resume=other.id))
    await take_up(opened.soul)
    assert mine.exists()
    assert not others.exists()
    await opened.soul.aclose()
    store.restore(session.id)
    arguments = ["delete", session.id, "--yes", "--for-good"]
    assert await asyncio.to_thread(sessions.run, arguments) == 0
    assert not mine.exists()
    assert not frozen.exists()
    assert not session.dir.exists()
