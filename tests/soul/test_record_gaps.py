"""The record of a session that lacks something: what the program had not written when it was killed, or what was lost later."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.quick_disk import memory_folder, tmp_path
from support.soul import until_end
from support.stored_lines import read_line, world_lines
from support.time_traveller import Answer, TimeTraveller, Views
from support.truth import untrue_of_chat, untrue_of_rows, untrue_of_world_lines

from kimi_tui.llm.message import Message
from kimi_tui.projection.blocks import ToolBlock
from kimi_tui.soul.history import take_up_history
from kimi_tui.soul.rebuilt_history import rebuild_history
from kimi_tui.soul.record import read_stored
from kimi_tui.soul.rewind_values import Target
from kimi_tui.tui.replay.source import recorded
from kimi_tui.wire import events as ev

__all__ = ["memory_folder", "tmp_path"]
LACKS = "lacks some records"


def unseen(_: Sequence[Message]) -> None:
    """Look at nothing."""


async def opened(folder: Path) -> TimeTraveller:
    on = TimeTraveller(folder, unseen)
    await on.open()
    return on


async def turn(on: TimeTraveller, *answers: Answer) -> None:
    on.model.answers.extend(answers)
    await until_end(on.soul.run(on.words()))
    on.model.answers.clear()


def record(on: TimeTraveller) -> Path:
    return on.folder / "wire.jsonl"


def untrue(on: TimeTraveller, views: Views) -> list[str]:
    line = read_line(on.folder)
    return [
        *untrue_of_chat(views.chat, line),
        *untrue_of_rows(views.timeline, line),
        *untrue_of_world_lines(views.timeline, on.folder),
    ]


async def is_true(on: TimeTraveller, *, lacks: bool = False) -> None:
    """The views show what the files have, and the user is told of lost lines alone."""
    await on.follow()
    assert not untrue(on, on.views)
    assert not untrue(on, Views(await on.soul.history()))
    for n in world_lines(on.folder):
        read = Views(await on.soul.lines.read(n))
        assert not [*untrue_of_chat(read.chat, read_line(on.folder, n))]
    assert any(LACKS in remark for remark in on.session.remarks) == lacks


async def killed_behind(on: TimeTraveller, record_then: bytes) -> None:
    """End the program as if it had been killed before it wrote its newest events."""
    await on.soul.aclose()
    record(on).write_bytes(record_then)
    on.session = on.store.find(on.session.id, on.work)
    await on.open()


async def flushed(on: TimeTraveller) -> bytes:
    await on.soul.flush()
    return record(on).read_bytes()


async def test_operations_that_a_killed_program_did_not_record_stay_untold_by_the_record(
    tmp_path: Path,
) -> None:
    on = await opened(tmp_path)
    await turn(on)
    await on.soul.dmails.send(Target(0), "a letter")
    await on.soul.travel.undo()
    before = await flushed(on)
    await on.soul.travel.redo()
    await until_end(on.soul.resume())
    await killed_behind(on, before)
    await is_true(on)
    # The next events follow in the record as if nothing were missing, and an operation goes back to what it has.
    await turn(on)
    await on.soul.travel.clear()
    for _ in range(2):
        await on.reopen()
        await is_true(on)
    assert read_stored(on.session).is_behind
    await on.soul.aclose()


async def test_two_d_mails_that_were_not_recorded_are_two(tmp_path: Path) -> None:
    on = await opened(tmp_path)
    for _ in range(3):
        await turn(on)
    await on.soul.travel.rewind(Target(4))
    before = await flushed(on)
    await on.soul.dmails.send(Target(2), "second")
    await on.soul.dmails.send(Target(1), "first")
    await killed_behind(on, before)
    await is_true(on)
    await on.soul.aclose()


async def test_a_message_that_followed_a_d_mail_is_told_once_more(tmp_path: Path) -> None:
    on = await opened(tmp_path)
    letter = Answer(speaks=False, steer=True, n_calls=0, dmails=(1,))
    await turn(on, letter, Answer(n_calls=0))
    lines = (await flushed(on)).splitlines(keepends=True)
    end = next(n for n, line in enumerate(lines) if b'"LineChanged"' in line and b'"dmail"' in line)
    assert any(b'"SteerInput"' in line for line in lines[end:])
    await killed_behind(on, b"".join(lines[: end + 1]))
    await is_true(on)
    taken = [one.event for one in on.soul.hand_over_history() if type(one.event) is ev.SteerTaken]
    assert not any(one.withdrawn for one in taken)
    await on.soul.aclose()


async def test_what_a_failed_step_had_said_is_told_though_its_turn_was_never_ended(
    tmp_path: Path,
) -> None:
    on = await opened(tmp_path)
    await turn(on)
    await turn(on, Answer(end="error"))
    lines = (await flushed(on)).splitlines(keepends=True)
    end = max(n for n, line in enumerate(lines) if b'"StepInterrupted"' in line)
    await killed_behind(on, b"".join(lines[: end + 1]))
    await is_true(on)
    await on.soul.travel.rewind(Target(2))
    await is_true(on)
    await on.soul.aclose()


async def test_an_answer_that_broke_off_ends_its_turn_whatever_was_not_recorded(
    tmp_path: Path,
) -> None:
    on = await opened(tmp_path)
    await turn(on)
    await turn(on, Answer(end="error"))
    lines = (await flushed(on)).splitlines(keepends=True)
    begun = max(n for n, line in enumerate(lines) if b'"CheckpointCreated"' in line)
    told = read_stored(on.session).records[-1].event
    assert isinstance(told, ev.TurnEnd)
    for end in range(begun + 1, len(lines)):
        await killed_behind(on, b"".join(lines[:end]))
        await is_true(on)
        events = [one.event for one in await on.soul.history()]
        rebuilt = [one.event for one in rebuild_history(on.session, ())]
        for found in (events, rebuilt):
            newest = [one for one in found if isinstance(one, ev.TurnEnd)][-1]
            assert newest == ev.TurnEnd("error", told.error, kind="model")
            assert ev.AnswerBroken(told.error) in found
    await on.soul.aclose()


async def test_an_attempt_that_was_replaced_is_not_told_as_the_answer(tmp_path: Path) -> None:
    on = await opened(tmp_path)
    await turn(on, Answer(thinks=True))
    lines = (await flushed(on)).splitlines(keepends=True)
    end = next(n for n, line in enumerate(lines) if b'"answer 1"' in line) + 1
    await killed_behind(on, b"".join(lines[:end]).replace(b'"answer 1"', b'"an attempt"'))
    await is_true(on)
    await on.soul.aclose()


@pytest.mark.parametrize("n_waiting", [1, 2])
async def test_a_turn_that_had_just_begun_behind_waiting_messages_has_each_once(
    tmp_path: Path, n_waiting: int
) -> None:
    on = await opened(tmp_path)
    for _ in range(n_waiting):
        await turn(on, Answer(steer=True, end="error"))
    await turn(on)
    lines = (await flushed(on)).splitlines(keepends=True)
    begun = max(n for n, line in enumerate(lines) if b'"TurnBegin"' in line)
    assert any(b'"SteerInput"' in line for line in lines[begun:])
    await killed_behind(on, b"".join(lines[: begun + 1]))
    await is_true(on)
    await on.soul.aclose()


async def test_results_that_were_shown_are_known_to_the_model(tmp_path: Path) -> None:
    on = await opened(tmp_path)
    await turn(on, Answer(n_calls=3))
    lines = (await flushed(on)).splitlines(keepends=True)
    begun = [n for n, line in enumerate(lines) if b'"ToolStarted"' in line]
    context = on.folder / "context.jsonl"
    stored = context.read_bytes()
    before, _, results = stored.partition(b'{"role":"tool"')
    await on.soul.aclose()
    # The last call still ran when the program was killed.
    context.write_bytes(before)
    record(on).write_bytes(b"".join(lines[: begun[2] + 1]))
    on.session = on.store.find(on.session.id, on.work)
    await on.open()
    kept = context.read_bytes()
    assert kept.startswith(b"".join([before, b'{"role":"tool"', results.split(b"\n")[0], b"\n"]))
    assert kept.count(b'{"role":"tool"') == 2
    shown = [one for one in on.views.chat.blocks if isinstance(one, ToolBlock)]
    assert [one.state for one in shown] == ["done", "done", "stopped"]
    await on.soul.aclose()
    await on.reopen()
    assert context.read_bytes() == kept
    await on.soul.aclose()


async def test_the_record_of_a_fork_has_what_was_published_just_before(tmp_path: Path) -> None:
    on = await opened(tmp_path)
    await turn(on)
    await turn(on)
    await on.soul.compact(start=Target(2))
    await on.soul.travel.undo()
    copy = await on.soul.travel.fork(Target(2))
    await on.reopen(copy.session_id)
    await is_true(on)
    assert not read_stored(on.session).is_behind
    await on.soul.aclose()


async def test_the_numbers_go_on_behind_an_event_of_a_newer_version(tmp_path: Path) -> None:
    on = await opened(tmp_path)
    await turn(on)
    await on.soul.aclose()
    newest = json.loads(record(on).read_bytes().splitlines()[-1])
    newer = {"seq": newest["seq"] + 7, "message": {"type": "Newer", "payload": {}}}
    with record(on).open("a") as file:
        file.write(json.dumps({**newest, **newer, "after": newest["seq"]}) + "\n")
    on.session = on.store.find(on.session.id, on.work)
    await on.open()
    await turn(on)
    await on.reopen()
    await is_true(on)
    await on.soul.aclose()


@pytest.mark.parametrize("kind", ["TurnBegin", "ContentPart", "CheckpointCreated"])
async def test_a_lost_line_is_made_good_in_every_view(tmp_path: Path, kind: str) -> None:
    on = await opened(tmp_path)
    for _ in range(3):
        await turn(on, Answer(n_calls=1))
    await on.soul.travel.rewind(Target(3))
    await turn(on)
    whole = (await flushed(on)).splitlines(keepends=True)
    places = [n for n, line in enumerate(whole) if f'"{kind}"'.encode() in line]
    lost = places[len(places) // 2]
    await killed_behind(on, b"".join(whole[:lost] + whole[lost + 1 :]))
    await is_true(on, lacks=True)
    await on.soul.aclose()
    (other,) = {one.dir for one in map(on.store.at, on.store.newest_first(on.work))}
    assert other == on.folder


async def test_a_replay_tells_what_the_record_lost(tmp_path: Path) -> None:
    import asyncio

    on = await opened(tmp_path)
    for _ in range(3):
        await turn(on)
    whole = (await flushed(on)).splitlines(keepends=True)
    await on.soul.aclose()
    lost = next(n for n, line in enumerate(whole) if b'"answer 2"' in line)
    record(on).write_bytes(b"".join(whole[:lost] + whole[lost + 1 :]))
    session = on.store.find(on.session.id, on.work)
    records, _ = await asyncio.to_thread(recorded, session)
    assert not [*untrue_of_chat(Views(records).chat, read_line(on.folder))]


async def test_lines_behind_a_damaged_number_are_no_repetitions(tmp_path: Path) -> None:
    on = await opened(tmp_path)
    for _ in range(2):
        await turn(on, Answer(n_calls=1))
    whole = [json.loads(line) for line in (await flushed(on)).splitlines()]
    begun = next(n for n, line in enumerate(whole) if "call_1_0" in json.dumps(line))
    whole[begun]["seq"] += 2
    await killed_behind(on, b"".join(json.dumps(line).encode() + b"\n" for line in whole))
    await is_true(on, lacks=True)
    # A part that stands there twice is told once, and nothing is lost with it.
    whole[begun]["seq"] -= 2
    twice = [*whole[: begun + 4], *whole[begun:]]
    await killed_behind(on, b"".join(json.dumps(line).encode() + b"\n" for line in twice))
    await is_true(on)
    await on.soul.aclose()


async def test_the_highest_number_of_a_record_that_cannot_be_told_is_known(tmp_path: Path) -> None:
    on = await opened(tmp_path)
    await turn(on)
    await on.soul.aclose()
    session = on.store.find(on.session.id, on.work)
    await session.open()
    newest = json.loads(record(on).read_bytes().splitlines()[-1])["seq"]
    assert (await take_up_history(session)).newest == newest
    await session.aclose()
