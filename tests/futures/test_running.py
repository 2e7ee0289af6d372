"""Futures of a session, each in a process of its own, with a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import pytest
from support.made_images import flat, saved
from support.soul import Ear

from kimi_tui.commands import time_travel
from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.config.settings import FuturesConfig
from kimi_tui.futures import planning, process, world_line
from kimi_tui.futures.running import Futures
from kimi_tui.futures.values import Caps, FuturesPlan, NoFutures, Variant, ranked
from kimi_tui.images import read_image
from kimi_tui.projection.blocks import AgentBlock, ToolBlock, UserBlock
from kimi_tui.projection.session_model import SessionModel
from kimi_tui.soul.opening import open_session
from kimi_tui.soul.rewind_values import END, Target
from kimi_tui.tool_cards import DiffBlock, ImageBlock
from kimi_tui.tools.sandbox.view import Tier
from kimi_tui.wire.events import EventRecord, FutureChanged, SteerTaken

from .conftest import FORGE, Scene, contents

PATIENCE_S = 50


async def until(scene: Scene, key: str, holds: Callable[[FutureChanged], bool]) -> FutureChanged:
    """Wait until the state of a future is as wanted."""
    changed = asyncio.Event()

    def wake(_: str) -> None:
        changed.set()

    scene.futures.subscribe(wake)
    async with asyncio.timeout(PATIENCE_S):
        while not holds(scene.futures.state(key)):
            changed.clear()
            await changed.wait()
    scene.futures.unsubscribe(wake)
    return scene.futures.state(key)


def said_in(records: Sequence[EventRecord]) -> list[str]:
    """Return what the agent says in a chat of these events."""
    model = SessionModel()
    for record in records:
        model.apply(record)
    return [block.stream.text for block in model.chat.blocks if isinstance(block, AgentBlock)]


async def test_two_futures_are_judged_and_one_is_made_current_and_undone(scene: Scene) -> None:
    futures, soul, work = scene.futures, scene.soul, scene.work
    before = contents(work)
    plan = FuturesPlan(
        Target(END), (Variant("do alpha"), Variant("do beta")), check="test -f alpha.txt && pwd"
    )
    model = SessionModel()
    for record in await soul.history():
        model.apply(record)
    events = soul.wire.subscribe()
    alpha, beta = await futures.start(plan)
    await futures.ended()
    assert contents(work) == before
    assert scene.left() == []

    one, other = futures.state(alpha), futures.state(beta)
    assert (one.state, one.check, one.own_check, one.files) == ("done", "passed", (), 4)
    assert (other.state, other.check, other.check_exit) == ("done", "failed", 1)
    assert other.own_check == ("tests/test_a.py",)
    assert (one.check_output == str(work)) == (one.tier != "elsewhere")
    assert one.tokens == 1020 + 1120 + 1210
    assert one.last_words == "I did alpha."
    assert ranked([other, one]) == [one, other]
    firsts = [r for r in scene.server.requests if r.messages[-1]["role"] == "user"][-2:]
    assert firsts[0].messages[:-1] == firsts[1].messages[:-1]

    for record in events.drain():
        model.apply(record)
    assert {one.world_line, other.world_line} == set(model.timeline.left_lines) == {1, 2}
    assert [state.key for state in model.state.futures] == [alpha, beta]
    assert [p.id for p in model.timeline.path_of(one.world_line)] == [0, 1, 2, 3, 4, 5]

    preview = await futures.preview(alpha)
    assert preview.files is not None
    assert {(f.path, f.fate) for f in preview.files.files} == {
        ("alpha.txt", "create"),
        ("new/alpha", "create"),
        ("src/f1.py", "restore"),
        ("src/f2.py", "delete"),
    }
    # The figures are what the switch does to each file, and not a change since a time at which it was so.
    assert preview.files.is_effect
    assert {(f.added, f.removed) for f in preview.files.files} == {(1, 0), (0, 1)}
    await futures.make_current(alpha)
    current = contents(work)
    assert (work / "alpha.txt").read_text() == "alpha"
    assert current != before
    assert soul.session.context.messages[-1].text == "I did alpha."
    assert "I did alpha." in said_in(await soul.history())
    await soul.travel.undo()
    assert "I did alpha." not in said_in(await soul.history())
    assert contents(work) == before
    assert not (work / "new").exists()
    await soul.travel.redo()
    assert contents(work) == current

    await soul.aclose()
    again = await scene.again()
    assert {state.key for state in again.futures.states} == {alpha, beta}
    model = SessionModel()
    for record in await again.soul.history():
        model.apply(record)
    assert set(model.timeline.left_lines) == {1, 2}
    assert "I did alpha." in said_in(await again.soul.history())
    cards = [one for one in model.chat.blocks if isinstance(one, ToolBlock)]
    (written,) = (one for one in cards if one.name == "Write")
    (ran,) = (one for one in cards if one.name == "Shell")
    (diff,) = written.display
    assert isinstance(diff, DiffBlock)
    assert (diff.path, diff.added, diff.removed, diff.created) == ("alpha.txt", 1, 0, True)
    assert (ran.n_changed, ran.changed) == (3, ("new/alpha", "src/f1.py", "src/f2.py"))
    assert [f.path for f in await again.futures.differences(beta)] == [
        "beta.txt",
        "tests/test_a.py",
    ]
    await again.futures.prune([beta])
    assert [state.key for state in again.futures.states] == [alpha]
    await again.soul.aclose()


@pytest.mark.exhaustive
async def test_a_compiled_test_that_a_future_forged_does_not_decide_its_check(scene: Scene) -> None:
    (scene.work / "tests" / "judge.py").write_text("raise SystemExit(1)\n")
    (scene.work / "forge.py").write_text(FORGE)
    (scene.work / ".gitignore").write_text("__pycache__\n")
    check = "cd tests && ls __pycache__; python3 -c 'import judge'"
    plan = FuturesPlan(Target(END), (Variant("do forge"),), check=check)
    (key,) = await scene.futures.start(plan)
    await scene.futures.ended()
    one = scene.futures.state(key)
    assert (one.state, one.check, one.check_exit, one.own_check) == ("done", "failed", 1, ())


@pytest.mark.exhaustive
async def test_what_others_changed_meanwhile_is_a_conflict_and_stays(scene: Scene) -> None:
    (alpha,) = await scene.futures.start(FuturesPlan(Target(END), (Variant("do alpha"),)))
    await until(scene, alpha, lambda state: state.step > 0)
    (scene.work / "src" / "f1.py").write_text("by the user\n")
    (scene.work / "src" / "f5.py").write_text("by the user\n")
    (scene.work / "own.txt").write_text("by the user\n")
    await scene.futures.ended()
    outcome = await scene.futures.make_current(alpha)
    assert set(outcome.conflicts) == {"src/f1.py", "src/f5.py", "own.txt"}
    assert (scene.work / "src" / "f1.py").read_text() == "by the user\n"
    assert (scene.work / "own.txt").exists()
    assert (scene.work / "alpha.txt").exists()
    await scene.soul.travel.undo()
    assert not (scene.work / "alpha.txt").exists()
    assert (scene.work / "src" / "f1.py").read_text() == "by the user\n"


@pytest.mark.exhaustive
@pytest.mark.parametrize(("network", "check"), [(True, "passed"), (False, "failed")])
async def test_a_check_reaches_a_server_only_if_the_plan_allows_it(
    scene: Scene, network: bool, check: str
) -> None:
    port = urlsplit(scene.server.base_url).port
    connects = f"exec 3<> /dev/tcp/127.0.0.1/{port}"
    (key,) = await scene.futures.start(
        FuturesPlan(Target(END), (Variant("do gamma"),), check=connects, network=network)
    )
    await scene.futures.ended()
    assert scene.futures.state(key).check == check


@pytest.mark.exhaustive
async def test_a_future_is_steered_asked_and_stopped(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It ends in order, and not because it is killed.
    monkeypatch.setattr(process, "_GRACE_S", 600)
    futures = scene.futures
    ask, wait = await futures.start(
        FuturesPlan(Target(1), (Variant("do ask"), Variant("do wait")), caps=Caps(steps=5))
    )
    await until(scene, ask, lambda state: state.state == "asking")
    ((key, request),) = futures.asked
    assert (key, request.tool) == (ask, "Shell")
    futures.answer(ask, request.id, "once")
    assert (await until(scene, ask, lambda state: state.is_over)).state == "done"
    await until(scene, wait, lambda state: state.step == 2)
    async with asyncio.timeout(PATIENCE_S):
        await futures.stop(wait)
        await futures.ended()
    state = futures.state(wait)
    assert (state.state, state.step) == ("stopped", 2)
    assert [f.path for f in await futures.differences(wait)][-1] == "waiting" or state.files >= 1
    assert state.world_line


@pytest.mark.exhaustive
async def test_a_message_that_a_future_does_not_read_comes_back(scene: Scene) -> None:
    futures, ear = scene.futures, Ear(scene.soul.wire)
    (wait,) = await futures.start(FuturesPlan(Target(END), (Variant("do wait"),)))
    futures.steer(wait, "first")
    await until(scene, wait, lambda state: state.step == 2)
    futures.steer(wait, "second\nand more")
    futures.steer(wait, "third")
    await futures.stop(wait)
    await futures.ended()
    told = [one.text for one in ear.notices() if "read your message" in one.text]
    assert told == [
        "Future 1 ended before it read your message: second and more",
        "Future 1 ended before it read your message: third",
    ]
    back = [one for one in ear.of(SteerTaken) if one.handed_back]
    assert [one.text for one in back] == ["second\nand more", "third"]
    await futures.make_current(wait)
    assert "first" in [one.text for one in scene.soul.session.context.messages]


@pytest.mark.exhaustive
async def test_a_future_that_is_refused_without_a_reason_is_stopped(scene: Scene) -> None:
    futures = scene.futures
    (ask,) = await futures.start(FuturesPlan(Target(END), (Variant("do ask"),)))
    await until(scene, ask, lambda state: state.state == "asking")
    ((_, request),) = futures.asked
    futures.answer(ask, request.id, "no")
    await futures.ended()
    state = futures.state(ask)
    assert (state.state, state.why) == ("stopped", "You refused its request.")
    assert state.world_line


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("caps", "words"),
    [(Caps(steps=1), "step"), (Caps(tokens=1000), "tokens"), (Caps(seconds=1.0), "time")],
)
async def test_a_limit_stops_a_future_which_is_judged_all_the_same(
    scene: Scene, caps: Caps, words: str
) -> None:
    plan = FuturesPlan(Target(END), (Variant("do wait"),), check="pwd", caps=caps)
    (wait,) = await scene.futures.start(plan)
    await scene.futures.ended()
    state = scene.futures.state(wait)
    assert (state.state, state.check) == ("stopped", "passed")
    assert words in state.why


@pytest.mark.exhaustive
async def test_the_past_of_a_future_is_that_of_the_line_that_it_continues(scene: Scene) -> None:
    soul, futures = scene.soul, scene.futures

    async def past(key: str) -> list[str]:
        model = SessionModel()
        for record in await futures.history(key):
            model.apply(record)
        return [one.text for one in model.chat.blocks if isinstance(one, UserBlock)]

    await soul.run("Second.")
    at = soul.session.context.checkpoints[2].id
    await soul.travel.rewind(Target(at))
    # The end of the current line is within the other one now.
    (within,) = await futures.start(FuturesPlan(Target(END, 1), (Variant("do wait"),)))
    assert await past(within) == ["Say hello.", "Second."]
    await soul.run("Third.")
    (beside,) = await futures.start(FuturesPlan(Target(END, 1), (Variant("do wait"),)))
    (before,) = await futures.start(FuturesPlan(Target(at, 1), (Variant("do wait"),)))
    (here,) = await futures.start(FuturesPlan(Target(END), (Variant("do gamma"),)))
    await soul.run("Fourth.")
    assert await past(beside) == ["Say hello.", "Second."]
    assert await past(before) == ["Say hello."]
    assert await past(here) == ["Say hello.", "Third."]
    await until(scene, here, lambda one: one.is_over and bool(one.world_line))
    n = futures.state(here).world_line
    (further,) = await futures.start(FuturesPlan(Target(END, n), (Variant("do wait"),)))
    assert await past(further) == ["Say hello.", "Third.", "do gamma"]
    await futures.make_current(here)
    await soul.run("Fifth.")
    assert await past(further) == ["Say hello.", "Third.", "do gamma"]
    await futures.stop_all()
    await futures.ended()


@pytest.mark.exhaustive
async def test_the_past_of_a_future_stays_whatever_becomes_of_the_current_line(
    scene: Scene,
) -> None:
    soul, futures = scene.soul, scene.futures
    await soul.run("Second.")

    async def past(key: str) -> list[tuple[str, bool]]:
        model = SessionModel()
        for record in await futures.history(key):
            model.apply(record)
        return [(one.text, one.is_past) for one in model.chat.blocks if isinstance(one, UserBlock)]

    (here,) = await futures.start(FuturesPlan(Target(END), (Variant("do wait"),)))
    both = [("Say hello.", False), ("Second.", False)]
    second = soul.session.context.checkpoints[2].id
    await soul.travel.rewind(Target(second))
    assert await past(here) == both
    (shorter,) = await futures.start(FuturesPlan(Target(END), (Variant("do wait"),)))
    assert await past(shorter) == both[:1]
    await soul.run("Third.")
    assert await past(here) == both
    assert await past(shorter) == both[:1]
    await soul.travel.undo()
    await soul.compact()
    assert await past(here) == both
    await soul.travel.clear()
    assert await past(here) == both
    assert await past(shorter) == both[:1]
    await futures.stop_all()
    await futures.ended()


async def test_a_plan_that_cannot_be_carried_out_names_what_is_wrong(scene: Scene) -> None:
    plans = {
        "variants": FuturesPlan(Target(END), ()),
        "message": FuturesPlan(Target(END), (Variant(), Variant())),
        "target": FuturesPlan(Target(77), (Variant("x"),)),
        "caps": FuturesPlan(Target(END), (Variant("x"),), caps=Caps(cost=1.0)),
    }
    for field, plan in plans.items():
        with pytest.raises(NoFutures) as caught:
            await scene.futures.start(plan)
        assert caught.value.field == field
    assert scene.futures.states == ()
    estimate = await scene.futures.estimate(FuturesPlan(Target(0), (Variant(), Variant("other"))))
    assert [one.name for one in estimate.futures] == ["Say hello.", "other"]
    assert estimate.n_files == 7
    assert estimate.at_once == 1
    assert ".venv" in estimate.shared


@pytest.mark.exhaustive
async def test_a_future_without_an_answer_leaves_nothing(scene: Scene) -> None:
    from support.chat_server import status

    scene.server.check = lambda _request: status(401, "no")
    (key,) = await scene.futures.start(FuturesPlan(Target(END), (Variant("do alpha"),)))
    await scene.futures.ended()
    state = scene.futures.state(key)
    assert (state.state, state.world_line) == ("failed", 0)
    assert scene.left() == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("tier", ["copy", "elsewhere"])
async def test_without_overlays_each_future_has_a_copy(
    scene: Scene, tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "tier_of", lambda _backend, _environ: tier)
    before = contents(scene.work)
    (scene.work / ".venv" / "lib").chmod(0o644)
    plan = FuturesPlan(
        Target(END), (Variant("do alpha"), Variant("do gamma")), check="test -f alpha.txt && pwd"
    )
    alpha, gamma = await scene.futures.start(plan)
    await scene.futures.ended()
    assert contents(scene.work) == before
    assert scene.left() == []
    one = scene.futures.state(alpha)
    assert (one.state, one.check, one.files, one.tier) == ("done", "passed", 4, tier)
    assert (one.check_output == str(scene.work)) == (tier == "copy")
    assert not (scene.home.parent / "user" / ".cache" / "kimi-tui" / "futures").exists() or not [
        *(scene.home.parent / "user" / ".cache" / "kimi-tui" / "futures").iterdir()
    ]
    note = await scene.futures.opinion()
    asked = str(scene.server.requests[-1].messages[-1]["content"])
    assert note == "The first one adds, the second one moves."
    assert "alpha.txt (new)" in asked
    assert "The check passed." in asked
    await scene.futures.make_current(gamma)
    assert (scene.work / "moved.py").read_text() == "x = 3\n"
    assert not (scene.work / "src" / "f3.py").exists()
    await scene.soul.travel.undo()
    assert contents(scene.work) == before


@pytest.mark.exhaustive
@pytest.mark.parametrize("state", ["preparing", "waiting", "running"])
async def test_a_future_that_is_stopped_early_leaves_nothing(scene: Scene, state: str) -> None:
    before = contents(scene.work)
    plan = FuturesPlan(Target(END), (Variant("do wait"), Variant("do wait")))
    keys = await scene.futures.start(plan)
    if state != "preparing":
        # On a slow machine the second one may come so late that it need not wait.
        await until(scene, keys[1], lambda one: one.state in (state, "running"))
    await scene.futures.stop_all()
    await scene.futures.ended()
    assert {scene.futures.state(key).state for key in keys} == {"stopped"}
    assert scene.left() == []
    assert contents(scene.work) == before


@pytest.mark.exhaustive
async def test_a_turn_that_begins_meanwhile_is_no_part_of_a_future(scene: Scene) -> None:
    (key,) = await scene.futures.start(FuturesPlan(Target(END), (Variant("do gamma"),)))
    await scene.soul.run("do alpha")
    await scene.futures.ended()
    state = scene.futures.state(key)
    line = scene.soul.session.world_lines.read(state.world_line)
    texts = [message.text for message in line.messages if message.role == "user"]
    assert "do gamma" in texts
    assert "do alpha" not in texts
    assert [one.path for one in await scene.futures.differences(key)] == [
        "gamma.txt",
        "moved.py",
    ]
    outcome = await scene.futures.make_current(key)
    assert not outcome.conflicts
    assert not (scene.work / "alpha.txt").exists()
    assert (scene.work / "moved.py").exists()


@pytest.mark.exhaustive
@pytest.mark.parametrize("step", ["_named", "_carried_over", "_added", "remove_tree"])
async def test_what_a_failure_interrupts_is_finished_at_the_next_start(
    scene: Scene, step: str
) -> None:
    before = contents(scene.work)
    done = getattr(world_line, step)

    def fails(*args: object) -> None:
        if step != "remove_tree":
            done(*args)
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world_line, step, fails)
        (key,) = await scene.futures.start(FuturesPlan(Target(END), (Variant("do alpha"),)))
        await scene.futures.ended()
    assert "No space left" in scene.futures.state(key).why
    await scene.soul.aclose()
    again = await scene.again()
    for one in list(again.soul.before_close):
        await one()
    (state,) = Futures(again.soul, again.launch).states
    assert (state.key, state.world_line) == (key, 1)
    assert again.left() == []
    await again.soul.travel.rewind(Target(END, 1), "restore")
    assert (scene.work / "alpha.txt").exists()
    await again.soul.travel.undo()
    assert contents(scene.work) == before
    await again.soul.aclose()


@pytest.mark.exhaustive
async def test_lines_that_a_future_leaves_by_a_dmail_stay_lines(scene: Scene) -> None:
    model = SessionModel()
    for record in await scene.soul.history():
        model.apply(record)
    events = scene.soul.wire.subscribe()
    mail, gamma = await scene.futures.start(
        FuturesPlan(Target(END), (Variant("do mail"), Variant("do gamma")))
    )
    await scene.futures.ended()
    for record in events.drain():
        model.apply(record)
    one = scene.futures.state(mail)
    assert (one.state, one.last_words) == ("done", "I did mail.")
    lines = scene.soul.session.world_lines
    (left,) = {line.n for line in lines.list()} - {
        one.world_line,
        scene.futures.state(gamma).world_line,
    }
    assert "SendDMail" in lines.read(left).messages[-1].model_dump_json() or [
        m for m in lines.read(left).messages if "SendDMail" in m.model_dump_json()
    ]
    assert left in model.timeline.left_lines
    await scene.soul.aclose()
    again = await scene.again()
    model = SessionModel()
    for record in await again.soul.history():
        model.apply(record)
    assert set(model.timeline.left_lines) == {1, 2, 3}
    assert [state.key for state in again.futures.states] == [mail, gamma]
    events = again.soul.wire.subscribe()
    await again.futures.prune([mail])
    for record in events.drain():
        model.apply(record)
    assert set(model.timeline.left_lines) == {again.futures.state(gamma).world_line}
    assert [line.n for line in again.soul.session.world_lines.list()] == [
        again.futures.state(gamma).world_line
    ]
    await again.soul.aclose()
    # The others do not come back.
    again = await scene.again()
    model = SessionModel()
    for record in await again.soul.history():
        model.apply(record)
    assert len(model.timeline.left_lines) == 1
    await again.soul.aclose()


@pytest.mark.exhaustive
async def test_each_future_has_a_port_of_its_own(scene: Scene) -> None:
    keys = await scene.futures.start(
        FuturesPlan(Target(END), (Variant("do port"), Variant("do port")))
    )
    await scene.futures.ended()
    ports: set[str] = set()
    for key in keys:
        await scene.futures.make_current(key)
        ports.add((scene.work / "port.txt").read_text().strip())
        await scene.soul.travel.undo()
    assert len(ports) == 2
    assert all(port.isdecimal() and int(port) > 1023 for port in ports)


@pytest.mark.exhaustive
@pytest.mark.parametrize("tier", ["overlay", "copy", "elsewhere"])
async def test_a_path_of_the_work_folder_means_the_files_of_the_future(
    scene: Scene, tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "tier_of", lambda _backend, _environ: tier)
    (key,) = await scene.futures.start(FuturesPlan(Target(END), (Variant("do path"),)))
    await scene.futures.ended()
    assert not (scene.work / "path.txt").exists()
    assert [one.path for one in await scene.futures.differences(key)] == ["path.txt"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("tier", ["overlay", "copy", "elsewhere"])
async def test_a_folder_can_be_copied_for_each_future(
    scene: Scene, tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "tier_of", lambda _backend, _environ: tier)
    (scene.work / ".gitignore").write_text(".venv\nmade\n")
    (scene.work / "made").mkdir()
    (scene.work / "made" / "lib").write_text("made\n")
    launch = scene.launch
    config = launch.config._replace(futures=FuturesConfig(copy=("made",)))
    scene.futures.use(launch._replace(config=config))
    estimate = await scene.futures.estimate(FuturesPlan(Target(0), (Variant("x"),)))
    assert "made" in estimate.copied
    assert "made" not in estimate.shared
    check = "echo own > made/lib && cat made/lib"
    (key,) = await scene.futures.start(
        FuturesPlan(Target(END), (Variant("do gamma"),), check=check)
    )
    await scene.futures.ended()
    state = scene.futures.state(key)
    assert (state.check, state.check_output) == ("passed", "own")
    assert (scene.work / "made" / "lib").read_text() == "made\n"


@pytest.mark.exhaustive
async def test_the_images_of_the_message_go_along(scene: Scene) -> None:
    choice = scene.launch.choice
    assert isinstance(choice, ModelChoice)
    launch = scene.launch._replace(choice=choice._replace(capabilities=("image_in",)))
    soul = (await open_session(launch)).soul
    futures = Futures(soul, launch)
    image = read_image(saved(flat(40, 30)), "shot.png")
    await soul.run("What is this?", [image])
    await soul.files_ready()
    points = reversed(soul.session.context.checkpoints)
    said = [one.id for one in points if (await soul.travel.preview(Target(one.id))).prompt]
    other = read_image(saved(flat(30, 20)), "other.png")
    soul.session.images.put(other)
    pasted = Variant("What about this?", images=(ImageBlock.of(other),))
    plan = FuturesPlan(Target(said[0]), (Variant(), Variant("Say hello."), pasted))
    keys = await futures.start(plan)
    await futures.ended()
    assert [futures.state(key).state for key in keys] == ["done", "done", "done"]
    sent = [str(one.messages[-1]["content"]) for one in scene.server.requests[-3:]]
    assert sorted(one.count("image_url'") for one in sent) == [0, 2, 2]
    for words, own in (("What is this?", image), ("What about this?", other)):
        assert any(words in one and own.data_url() in one for one in sent)
    await soul.aclose()


@pytest.mark.exhaustive
async def test_images_for_a_model_that_takes_none_are_refused_and_said(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = scene.launch.choice
    assert isinstance(choice, ModelChoice)
    launch = scene.launch._replace(choice=choice._replace(capabilities=()))
    soul = (await open_session(launch)).soul
    futures = Futures(soul, launch)
    await soul.run("Say hello.")
    await soul.files_ready()
    image = read_image(saved(flat(30, 20)), "shot.png")
    soul.session.images.put(image)
    variants = (Variant("What is this?", images=(ImageBlock.of(image),)), Variant("Say hello."))
    with pytest.raises(NoFutures, match="does not accept images"):
        await futures.start(FuturesPlan(Target(END), variants))
    monkeypatch.setattr(planning.Planner, "_sees", lambda *_: True)
    first, other = await futures.start(FuturesPlan(Target(END), variants))
    await futures.ended()
    assert futures.state(first).state == "failed"
    assert "does not accept images" in futures.state(first).why
    assert futures.state(other).state == "done"
    await soul.aclose()


@pytest.mark.exhaustive
async def test_the_command_line_takes_up_what_a_killed_program_left(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world_line, "_named", fails)
        await scene.futures.start(FuturesPlan(Target(END), (Variant("do alpha"),)))
        await scene.futures.ended()
    await scene.soul.aclose()
    session = scene.soul.session.id
    arguments = ["1", "--files", "restore", "--session", session]
    assert await asyncio.to_thread(time_travel.run, "switch", arguments) == 0
    assert "1 future is kept" in capsys.readouterr().err
    assert (scene.work / "alpha.txt").exists()
    assert scene.left() == []
