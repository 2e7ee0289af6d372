"""What is left of futures where their world lines or their session are deleted."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
from pathlib import Path

import pytest
from support.soul import next_event

from kimi_tui.commands import sessions
from kimi_tui.filesystem import Storage
from kimi_tui.futures import PREFIX
from kimi_tui.futures.leftovers import take_up
from kimi_tui.futures.running import Futures
from kimi_tui.futures.world_line import FutureNote, write_note
from kimi_tui.launch import Options, launch_of
from kimi_tui.projection.blocks import MarkBlock
from kimi_tui.projection.session_model import SessionModel
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.fork import fork_session
from kimi_tui.session.rotation import stored_world_lines
from kimi_tui.session.session import AGENTS_NAME
from kimi_tui.session.store import SessionStore
from kimi_tui.soul import pruning
from kimi_tui.soul.errors import RunCancelled
from kimi_tui.soul.opening import open_session
from kimi_tui.soul.rewind_values import Target
from kimi_tui.soul.stored_agents import remove_agents
from kimi_tui.tools.past_command import place_of
from kimi_tui.wire.events import AgentChanged, FutureChanged

from .conftest import Scene
from .test_own_agents import cards, cards_of_line, plan, said_by
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
    assert " and 1 sub-agent (" in asked[0]
    monkeypatch.setattr(sessions, "say", asked.append)
    assert await asyncio.to_thread(sessions.run, ["prune", name, "--yes"]) == 0
    # The question counts what is freed, with the sub-agent.
    assert asked[1].removeprefix("Freed ").removesuffix(" on the disk.") in asked[0]
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


async def back_from(scene: Scene, words: str) -> int:
    """Have sub-agents work, and go back before them; return the number of the line that has them."""
    soul = scene.soul
    await soul.run(words)
    await soul.travel.rewind(Target(soul.session.context.checkpoints[-3].id))
    (n,) = stored_world_lines(soul.session.dir)
    return n


async def test_a_line_that_is_not_deleted_keeps_its_sub_agents(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    soul = scene.soul
    n = await back_from(scene, "use alpha")
    session = soul.session

    def refused(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for name in ("write", "unlink"):
        with monkeypatch.context() as patch:
            patch.setattr(session.storage, name, refused)
            with pytest.raises(StorageTrouble):
                await asyncio.to_thread(pruning.prune_lines, session, [n])
        assert agents_there(scene) == {"general-1"}
    # They can go on being used.
    await soul.travel.undo()
    assert await cards(scene) == {"general-1": "done"}
    assert await said_by(scene, "general-1") == ["I did alpha."]
    await soul.aclose()
    again = await scene.again()
    assert await said_by(again, "general-1") == ["I did alpha."]
    await again.soul.aclose()


@pytest.mark.exhaustive
async def test_sub_agents_that_a_kill_left_without_a_line_go_at_the_next_opening(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    soul = scene.soul
    n = await back_from(scene, "use alpha")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pruning, "remove_agents", killed)
        with pytest.raises(KeyboardInterrupt):
            pruning.prune_lines(soul.session, [n])
    assert agents_there(scene) == {"general-1"}
    assert not stored_world_lines(soul.session.dir)
    await soul.run("use beta")
    await soul.aclose()
    again = await scene.again()
    assert agents_there(again) == {"general-2"}
    assert await said_by(again, "general-2") == ["I did beta."]
    await again.soul.aclose()


async def test_nothing_behind_a_link_is_deleted(scene: Scene, tmp_path: Path) -> None:
    soul = scene.soul
    n = await back_from(scene, "use alpha")
    session, outside = soul.session, tmp_path / "outside"
    (outside / "general-1").mkdir(parents=True)
    (outside / "general-1" / "precious").write_text("mine")
    (outside / ".removed-mine").mkdir()
    outside.chmod(0o755)
    (session.dir / "results").symlink_to(outside)
    (session.dir / AGENTS_NAME / ".removed-general-1").symlink_to(outside)
    (session.dir / AGENTS_NAME / ".removed-x").symlink_to(outside)
    await asyncio.to_thread(pruning.prune_lines, session, [n])
    assert agents_there(scene) == set()
    assert outside.stat().st_mode & 0o777 == 0o755
    assert (outside / "general-1" / "precious").read_text() == "mine"

    await soul.run("use alpha")
    await soul.travel.rewind(Target(soul.session.context.checkpoints[-3].id))
    there = outside / AGENTS_NAME
    (session.dir / AGENTS_NAME).rename(there)
    (there / ".removed-mine").mkdir()
    (session.dir / AGENTS_NAME).symlink_to(there)
    (n,) = stored_world_lines(session.dir)
    await asyncio.to_thread(pruning.prune_lines, session, [n])
    await soul.aclose()
    again = await scene.again()
    assert sorted(one.name for one in there.iterdir()) == [".removed-mine", "general-2"]
    await again.soul.aclose()


@pytest.mark.exhaustive
@pytest.mark.parametrize("scene", ["16000"], indirect=True)
async def test_those_above_a_summary_stay_when_its_line_was_deleted_before(scene: Scene) -> None:
    soul = scene.soul
    await soul.run("use alpha")
    await soul.run("Say hello.")
    # A line that has the same step.
    await soul.travel.rewind(Target(soul.session.context.checkpoints[-1].id))
    await soul.run("Say much.")
    await soul.compact()
    assert await cards(scene) == {"general-1": "done"}
    session = soul.session
    (left,) = {one.n for one in session.context.journal.entries if one.op == "compaction"}
    (other,) = stored_world_lines(session.dir).keys() - {left}
    await asyncio.to_thread(pruning.prune_lines, session, [left])
    await asyncio.to_thread(pruning.prune_lines, session, [other])
    assert agents_there(scene) == {"general-1"}
    assert await cards(scene) == {"general-1": "done"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("scene", ["16000"], indirect=True)
async def test_those_above_the_summary_of_a_future_stay_with_it(scene: Scene) -> None:
    futures, soul = scene.futures, scene.soul
    await soul.run("Say much.")
    await soul.run("use beta")
    (full,) = await futures.start(plan("use full alpha"))
    await futures.ended()
    await futures.make_current(full)
    shown = await cards(scene)
    assert "general-101" in agents_there(scene)
    await futures.prune([full])
    assert agents_there(scene) == {"general-1", "general-101"}
    assert await cards(scene) == shown


@pytest.mark.exhaustive
async def test_two_deletions_of_a_future_at_once_are_one(scene: Scene) -> None:
    futures = scene.futures
    (key,) = await futures.start(plan("use alpha"))
    await futures.ended()
    await asyncio.gather(futures.prune([key]), futures.prune([key]))
    assert agents_there(scene) == set()
    assert not stored_world_lines(scene.soul.session.dir)


@pytest.mark.exhaustive
async def test_a_future_whose_deletion_is_refused_keeps_its_sub_agents(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    futures, soul = scene.futures, scene.soul
    (key,) = await futures.start(plan("use alpha"))
    await futures.ended()

    def refused(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(soul.session.storage, "unlink", refused)
        with pytest.raises(StorageTrouble):
            await futures.prune([key])
    assert await cards_of_line(scene, futures.state(key).world_line) == {"general-101": "done"}
    assert await said_by(scene, "general-101") == ["I did alpha."]
    await futures.prune([key])
    assert agents_there(scene) == set()


@pytest.mark.exhaustive
async def test_a_future_that_a_kill_left_is_found_after_the_work_folder_was_renamed(
    scene: Scene,
) -> None:
    soul = scene.soul
    await soul.aclose()
    session, now = soul.session, scene.work.with_name("renamed again")
    name = f"{PREFIX}left"
    fork = fork_session(session.storage, session.dir, None, name=name)
    note = FutureNote(session.id, "", 0, 0, FutureChanged("k-1", "k", 1, "one"))
    write_note(session.storage, fork, note)
    other = await session.fork()
    once = scene.work.with_name("renamed")
    scene.work.rename(once)
    store = SessionStore(scene.home)
    store.move(session, once)
    once.rename(now)
    store.move(store.find(session.id, once), now)
    # A session that stays where the other one was takes nothing away from it.
    scene.work.mkdir()
    opened = await open_session(scene.launch._replace(resume=other.id))
    await take_up(opened.soul)
    await opened.soul.aclose()
    assert fork.exists()
    launch = launch_of(Options(work_dir=str(now), mode="sandboxed"))
    opened = await open_session(launch._replace(resume=session.id))
    await take_up(opened.soul)
    assert not fork.exists()
    assert [*stored_world_lines(opened.soul.session.dir)] == [1]
    await opened.soul.aclose()


def shown(model: SessionModel) -> list[tuple[object, ...]]:
    """What stands in the chat, and the checkpoints of the current line."""
    found: list[tuple[object, ...]] = [
        (type(one), str(getattr(one, "text", "")), getattr(one, "agent", None) is not None)
        for one in model.chat.blocks
        if not isinstance(one, MarkBlock)
    ]
    return [*found, tuple(one.uid for one in model.timeline.lines.world_lines.live.points)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("in_part", [False, True])
async def test_a_late_listener_knows_what_a_deleted_future_said_that_is_current(
    scene: Scene, *, in_part: bool
) -> None:
    futures, soul = scene.futures, scene.soul
    (key,) = await futures.start(plan("use alpha"))
    await soul.run("use beta")
    await futures.ended()
    models = [SessionModel(), SessionModel()]
    if in_part:
        n = futures.state(key).world_line
        point = soul.session.world_lines.index(n).checkpoints[-1]
        await soul.travel.rewind(Target(point.id, n), "restore")
    else:
        await futures.make_current(key)
    history, early = await soul.listen()
    await futures.prune([key])
    waits = soul.wire.subscribe()
    turn = asyncio.create_task(soul.run("use wait"))
    await next_event(waits, AgentChanged, lambda one: one.calls == 2)
    # The turn still runs, so nothing but the record can be told.
    told, late = await soul.listen()
    await soul.interrupt()
    with contextlib.suppress(RunCancelled):
        await turn
    for record in [*history, *early.drain()]:
        models[0].apply(record)
    for record in [*told, *late.drain()]:
        models[1].apply(record)
    assert "use alpha" in str(shown(models[1]))
    assert shown(models[0]) == shown(models[1])


@pytest.mark.exhaustive
async def test_a_future_that_another_program_is_just_making_is_left_to_it(scene: Scene) -> None:
    soul = scene.soul
    other = await soul.session.fork()
    # Its note is written a moment after its folder is there.
    made = fork_session(soul.session.storage, other.dir, None, name=f"{PREFIX}made")
    mine = fork_session(soul.session.storage, soul.session.dir, None, name=f"{PREFIX}mine")
    await take_up(soul)
    assert made.exists()
    assert not mine.exists()
    SessionStore(scene.home).delete(other)
    await take_up(soul)
    assert not made.exists()


@pytest.mark.exhaustive
async def test_a_copy_keeps_a_future_that_the_session_deletes_and_the_other_way_round(
    scene: Scene,
) -> None:
    futures, soul = scene.futures, scene.soul
    first, second = await futures.start(plan("use alpha", "use beta"))
    await futures.ended()
    line = {key: futures.state(key).world_line for key in (first, second)}
    copy = await soul.session.fork()
    await futures.prune([first])
    after = await soul.session.fork()
    await soul.aclose()
    for session, keys in ((copy, [first, second]), (after, [second])):
        opened = await open_session(scene.launch._replace(resume=session.id))
        there = Futures(opened.soul, scene.launch)
        assert {one.key for one in there.states} == set(keys)
        assert set(stored_world_lines(session.dir)) == {line[key] for key in keys}
        model = SessionModel()
        for record in await opened.soul.history():
            model.apply(record)
        assert set(model.timeline.left_lines) == {line[key] for key in keys}
        for key in keys:
            await there.make_current(key)
            await opened.soul.travel.undo()
        await there.prune(keys)
        assert not there.states
        await opened.soul.aclose()
    # The session has what it had.
    again = await scene.again()
    assert [one.key for one in again.futures.states] == [second]
    assert agents_there(again) == {"general-201"}
    await again.futures.make_current(second)
    assert await said_by(again, "general-201") == ["I did beta."]
    await again.soul.aclose()
