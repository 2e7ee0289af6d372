"""A session of kimi-cli stands once on the screen, also where an earlier version had appended its history to its record.

The folders beside this file (`damaged_records`) were made by that version: each is a session written in kimi-cli's format,
imported and opened, and (all but `turns-1`) gone on with by one turn.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import say
from support.faulty_storage import WatchedStorage, failing
from support.soul import stage

from kimi_tui.session.session import Session
from kimi_tui.soul.history import session_history, take_up_history
from kimi_tui.soul.rebuilt_history import rebuild_world_line
from kimi_tui.soul.record_repair import DOUBLED_NAME, without_doubled
from kimi_tui.soul.rewind_values import END, Target
from kimi_tui.tui.replay.source import read as read_replay
from kimi_tui.wire import events as ev
from kimi_tui.wire.events import EventRecord

RECORDS = Path(__file__).parent / "damaged_records"
SINCE = ["asked today", "an answer of today"]
SAID = {
    "dmail": ["read the log", "reading", "too much", "◆ the log has one line", "it is short"],
    "compaction": [
        *("turn one", "answer one", "turn two", "answer two"),
        # The messages that the compaction kept follow its summary.
        *("answer two", "≡ all of it", "turn three", "answer three"),
    ],
    "turns-1": ["question 0", "answer 0"],
    "turns-4": [word for n in range(4) for word in (f"question {n}", f"answer {n}")],
    # All but the first and the last were interrupted before a step: as much as that version could take for a killed program's.
    "turns-6": ["question 0", "answer 0", *(f"question {n}" for n in range(1, 6)), "answer 5"],
}
NAMES = sorted(SAID)
LONG = [word for n in range(6) for word in (f"question {n}", f"answer {n}")]
"""A session of six answers (`not-doubled`) was too long for that version to append it again."""


@pytest.fixture(params=NAMES)
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A session with a doubled record."""
    return Path(shutil.copytree(RECORDS / request.param, tmp_path / request.param))


def imported(name: str, folder: Path) -> Path:
    """Return the same session as it was before it was opened for the first time."""
    made = Path(shutil.copytree(RECORDS / name, folder / name))
    for path, is_theirs in (
        ("wire.jsonl", lambda r: "seq" not in r),
        ("context.jsonl", _is_theirs),
    ):
        lines = [json.loads(line) for line in (made / path).read_bytes().splitlines()]
        until = next((n for n, line in enumerate(lines) if not is_theirs(line)), len(lines))
        (made / path).write_text("".join(json.dumps(line) + "\n" for line in lines[:until]))
    return made


def _is_theirs(record: dict[str, Any]) -> bool:
    return "uid" not in record


def said(records: list[EventRecord]) -> list[str]:
    """Return the texts of messages, D-Mails and summaries, in order."""
    found: list[str] = []
    for record in records:
        match record.event:
            case ev.TurnBegin(text) | ev.TextPart(text) if text:
                found.append(text)
            case ev.ContextReverted(text=text):
                found.append(f"◆ {text}")
            case ev.CompactionEnd(summary=text):
                found.append(f"≡ {text}")
            case _:
                pass
    return found


def expected(folder: Path) -> list[str]:
    since = SINCE if folder.name != "turns-1" else []
    return [*SAID[folder.name], *since]


@asynccontextmanager
async def opened(folder: Path, **options: Any) -> AsyncIterator[Session]:
    session = Session(folder, folder.parent, **options)
    await session.open()
    try:
        yield session
    finally:
        await session.aclose()


def lines(folder: Path) -> list[bytes]:
    return (folder / "wire.jsonl").read_bytes().splitlines()


@pytest.mark.parametrize("name", NAMES)
async def test_an_imported_session_is_told_once_however_often_it_is_opened(
    tmp_path: Path, name: str
) -> None:
    folder = imported(name, tmp_path)
    before = lines(folder)
    for _ in range(2):
        async with opened(folder) as session:
            history = await take_up_history(session)
        assert said(history.shown) == SAID[name]
        assert history.remarks == ()
        assert lines(folder) == before
    assert said(list(await asyncio.to_thread(_replayed, folder))) == SAID[name]


def _replayed(folder: Path) -> list[EventRecord]:
    recording = read_replay(Session(folder, folder.parent)).replay.recording
    return list(recording.records)


async def test_a_doubled_part_is_taken_out_at_the_next_opening(damaged: Path) -> None:
    before = lines(damaged)
    # A reader of the session gets the same, and changes nothing.
    assert said(list(await asyncio.to_thread(_replayed, damaged))) == expected(damaged)
    async with opened(damaged) as session:
        assert said(session_history(session)) == expected(damaged)
        assert lines(damaged) == before
        history = await take_up_history(session)
    assert said(history.shown) == expected(damaged)
    assert [DOUBLED_NAME in remark for remark in history.remarks] == [True]
    after = lines(damaged)
    # Nothing but the doubled part is gone: its checkpoints bear names of kimi-cli's.
    gone = [json.loads(line) for line in before if line not in after]
    made = [r for r in gone if r["message"]["type"] == "CheckpointCreated"]
    assert made
    assert all(len(r["message"]["payload"]["uid"]) == 64 for r in made)
    assert [line for line in before if line in after] == after
    assert not any("an answer of today" in str(record) for record in gone)
    assert (damaged / DOUBLED_NAME).read_bytes().splitlines() == before
    async with opened(damaged) as session:
        again = await take_up_history(session)
    assert (said(again.shown), again.remarks) == (expected(damaged), ())
    assert lines(damaged) == after


async def test_a_session_that_was_not_doubled_is_left_as_it_is(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(RECORDS / "not-doubled", tmp_path / "not-doubled"))
    before = lines(folder)
    for _ in range(2):
        async with opened(folder) as session:
            history = await take_up_history(session)
        assert (said(history.shown), history.remarks) == ([*LONG, *SINCE], ())
        assert lines(folder) == before
    assert said(list(await asyncio.to_thread(_replayed, folder))) == [*LONG, *SINCE]
    assert not (folder / DOUBLED_NAME).exists()


async def test_where_the_disk_refuses_the_record_stays_and_is_read_right(damaged: Path) -> None:
    before = lines(damaged)
    storage = WatchedStorage()
    async with opened(damaged, storage=storage) as session:
        storage.before = failing({"replace"})
        history = await take_up_history(session)
        storage.before = failing(set())
    assert said(history.shown) == expected(damaged)
    assert lines(damaged) == before
    assert not any(name.startswith(".wire") for name in os.listdir(damaged))


async def test_world_lines_of_a_repaired_session_are_in_order(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(RECORDS / "compaction", tmp_path / "compaction"))
    async with opened(folder) as session:
        history = await take_up_history(session)
        line = rebuild_world_line(session, history.stored, 1)
    assert said(line) == SAID["compaction"][:4]


async def test_times_are_those_of_the_record(damaged: Path) -> None:
    """Files that were copied are younger than all that happened."""
    async with opened(damaged) as session:
        shown = (await take_up_history(session)).shown
    first = 1795230000.0
    until = next((n for n, r in enumerate(shown) if "asked today" in str(r.event)), len(shown))
    assert all(first < record.at < first + 600 for record in shown[:until])
    times = [record.at for record in shown]
    assert times == sorted(times)


async def test_a_session_that_was_doubled_is_exported_once(tmp_path: Path, damaged: Path) -> None:
    async with stage(tmp_path) as on:
        await on.soul.aclose()
        shutil.copytree(damaged, on.session.dir, dirs_exist_ok=True)
        await on.reopen()
        text = await on.soul.lines.markdown(Target(END))
    words = [word.removeprefix("◆ ").removeprefix("≡ ") for word in expected(damaged)]
    if damaged.name == "compaction":
        words = words[words.index("all of it") - 1 :]
        words[:2] = reversed(words[:2])
    if damaged.name == "dmail":
        words = [words[0], *words[3:]]
    parts = [part.partition(":** ")[2] for part in text.strip().split("\n\n")]
    assert parts == words


@pytest.mark.exhaustive
async def test_a_turn_of_kimi_cli_behind_one_of_ours_is_told_once(tmp_path: Path) -> None:
    """Somebody went on with a session of ours in kimi-cli, and comes back."""
    async with stage(tmp_path) as on:
        on.server.script(say("one"))
        await on.soul.run("first")
        await on.soul.aclose()
        theirs: dict[str, list[dict[str, Any]]] = {
            "context": [
                {"role": "_checkpoint", "id": 2},
                {"role": "user", "content": "second"},
                {"role": "_checkpoint", "id": 3},
                {"role": "assistant", "content": "two"},
            ],
            "wire": [
                _told("TurnBegin", user_input="second"),
                _told("StepBegin", n=1),
                _told("ContentPart", type="text", text="two"),
                _told("TurnEnd"),
            ],
        }
        for name, records in theirs.items():
            with (on.session.dir / f"{name}.jsonl").open("a") as file:
                file.writelines(json.dumps(record) + "\n" for record in records)
        for _ in range(2):
            await on.reopen()
            assert said(list(on.soul.opened_with)) == ["first", "one", "second", "two"]
        on.server.script(say("three"))
        await on.soul.run("third")
        await on.reopen()
        assert said(list(on.soul.opened_with))[2:] == ["second", "two", "third", "three"]


def _told(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": 2e9, "message": {"type": kind, "payload": payload}}


def _created(uid: str, seq: int) -> dict[str, Any]:
    payload = {"id": 0, "uid": uid, "kind": "user", "label": "x"}
    return {
        "timestamp": 5.0,
        "seq": seq,
        "message": {"type": "CheckpointCreated", "payload": payload},
    }


@pytest.mark.parametrize(
    ("made", "kept"),
    [
        pytest.param([_created("ab" * 8, 1)], 1, id="of a running program"),
        pytest.param([_created("ab" * 32, 1)], 0, id="of an import"),
        pytest.param([_created("ab" * 8, 1), _created("ab" * 32, 2)], 2, id="only later"),
        pytest.param([], 0, id="none"),
    ],
)
def test_only_what_stands_behind_kimi_clis_records_is_passed_over(
    made: list[dict[str, Any]], kept: int
) -> None:
    theirs = [{"type": "metadata"}, _told("TurnBegin", user_input="x")]

    def read(records: list[dict[str, Any]]) -> int:
        return len(list(without_doubled(enumerate(records))))

    assert read([*theirs, *made]) == len(theirs) + kept
    # In a record that kimi-cli never wrote to, nothing is.
    assert read(made) == len(made)
