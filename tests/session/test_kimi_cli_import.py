"""Sessions of kimi-cli: found, copied with their lost futures, continued here, and the originals never touched."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.made_images import noise, saved

from kimi_tui.llm.message import user_message
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.kimi_cli_import import (
    AlreadyImported,
    KimiSession,
    find_sessions,
    futures_of,
    import_session,
    target_of,
)
from kimi_tui.session.store import SessionStore
from kimi_tui.session.undo import jump, undo
from kimi_tui.wire.codec import Decoder
from kimi_tui.wire.events import TurnBegin

WORK = Path("/home/someone/app")
DMAIL = (
    "<system>You just got a D-Mail from your future self. Read it. D-Mail content:\n\n{}</system>"
)
SUMMARY = "<system>Previous context has been compacted. Here is the compaction output:</system>"

Records = list[dict[str, Any]]


def bucket(path: Path) -> str:
    return hashlib.md5(str(path).encode()).hexdigest()


def point(number: int) -> Records:
    text = f"<system>CHECKPOINT {number}</system>"
    return [{"role": "_checkpoint", "id": number}, {"role": "user", "content": text}]


def said(text: str) -> Records:
    return [{"role": "user", "content": text}]


def answer(text: str, tokens: int) -> Records:
    return [
        {"role": "_usage", "token_count": tokens},
        {"role": "assistant", "content": text},
        {"role": "_usage", "token_count": tokens + 10},
    ]


PROMPT: Records = [{"role": "_system_prompt", "content": "p"}]
# Four lines, each left for another reason.
FIRST = [*PROMPT, *point(0), *said("go"), *point(1), *answer("reading", 1_000), *point(2)]
LINES: list[Records] = [
    [*FIRST, *answer("too much", 5_000)],
    [*FIRST[:6], *said(DMAIL.format("it is short")), *point(2), *answer("ok", 1_200)],
    [
        *PROMPT,
        *point(0),
        {
            "role": "user",
            "content": [{"type": "text", "text": SUMMARY}, {"type": "text", "text": "all done"}],
        },
        {"role": "_usage", "token_count": 40},
        *point(1),
        *said("next"),
        *point(2),
        *answer("wrong", 300),
    ],
    [],
]
LINES[3] = [*LINES[2][:6], *said("better"), *point(2), *answer("right", 310)]


def write(folder: Path, lines: list[Records], **state: object) -> None:
    folder.mkdir(parents=True)
    for n, records in enumerate(lines, start=1):
        name = "context.jsonl" if n == len(lines) else f"context_{n}.jsonl"
        # Python's json writes it like this, with spaces.
        text = "".join(json.dumps(record) + "\n" for record in records)
        (folder / name).write_text(text)
    (folder / "wire.jsonl").write_text(
        '{"type": "metadata", "protocol_version": "1.10"}\n'
        '{"timestamp": 1.5, "message": {"type": "TurnBegin", "payload": {"user_input": "go"}}}\n'
    )
    if state:
        (folder / "state.json").write_text(json.dumps({"version": 1, **state}))


@pytest.fixture
def share(tmp_path: Path) -> Path:
    share = tmp_path / "share"
    (share / "sessions").mkdir(parents=True)
    work_dirs = [{"path": str(WORK), "kaos": "local", "last_session_id": None}]
    (share / "kimi.json").write_text(json.dumps({"work_dirs": work_dirs, "later": 1}))
    return share


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "data")


def one(found: list[KimiSession]) -> KimiSession:
    (session,) = found
    return session


async def test_everything_comes_along_and_goes_on(share: Path, store: SessionStore) -> None:
    original = share / "sessions" / bucket(WORK) / "0f0f"
    write(original, LINES, custom_title="My app", approval={"yolo": True}, todos=[{"title": "t"}])
    before = {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in original.iterdir()
    }
    os.utime(original / "context.jsonl", (5_000, 5_000))
    found = one(find_sessions(share))
    assert (found.title, found.work_dir) == ("My app", str(WORK))
    done = import_session(store, found)
    assert [(future.n, future.op) for future in done.futures] == [
        (1, "dmail"),
        (2, "compaction"),
        (3, "rewind"),
    ]
    assert done.folder == target_of(store, found)
    for name in ("context.jsonl", "context_1.jsonl", "context_2.jsonl", "context_3.jsonl"):
        assert (done.folder / name).read_bytes() == before[name][0]

    listed = one_info(store)
    assert (listed.title, listed.updated_at, listed.world_lines) == ("My app", 5_000, 3)
    session = store.find("0f0f", WORK)
    assert not (await session.open()).sentences()
    assert "approval" not in session.state.other
    assert session.state.other["todos"] == [{"title": "t"}]
    lines = session.world_lines.list(session.context.world_line)
    assert [
        (
            line.reason,
            line.left_by.checkpoint_id,
            line.left_by.tokens_before,
            line.left_by.tokens_after,
            line.left_by.text,
        )
        for line in lines
    ] == [
        ("dmail", 1, 5_010, 1_200, "it is short"),
        ("compaction", 0, 1_210, 40, "all done"),
        ("rewind", 1, 310, 310, ""),
    ]
    assert lines[0].left_by.messages_dropped == 2
    # A checkpoint that two lines share has one name in both.
    assert lines[0].checkpoints[0].uid == lines[1].checkpoints[0].uid
    assert [m.text for m in session.context.messages][-1] == "right"
    assert session.context.token_count == 320
    await undo(session.context)
    assert [m.text for m in session.context.messages][-1] == "wrong"
    await undo(session.context)
    assert [m.text for m in session.context.messages][-1] == "ok"
    await jump(session.context, 1)
    assert [m.text for m in session.context.messages][-1] == "too much"
    await session.context.append([user_message("on we go")])
    await session.aclose()
    for path in original.iterdir():
        assert path.read_bytes() == before[path.name][0]


async def test_images_that_stand_in_every_line_are_stored_once(
    share: Path, store: SessionStore
) -> None:
    data = saved(noise(300, 300))
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    shown = {"type": "image_url", "image_url": {"url": url, "id": None}}
    broken = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    words = [{"type": "text", "text": "look"}, shown, broken]
    begun = [*PROMPT, *point(0), {"role": "user", "content": words}, *point(1)]
    folder = share / "sessions" / bucket(WORK) / "images"
    write(folder, [[*begun, *answer("this", 900)], [*begun, *answer("that", 900)]])
    turn = {"type": "TurnBegin", "payload": {"user_input": words}}
    with (folder / "wire.jsonl").open("a") as record:
        record.write(json.dumps({"timestamp": 2.5, "message": turn}) + "\n")
    done = import_session(store, one(find_sessions(share)))
    (image,) = (done.folder / "images").iterdir()
    assert image.read_bytes() == data
    for name in ("context.jsonl", "context_1.jsonl", "wire.jsonl"):
        assert len((done.folder / name).read_bytes()) < 2_000
    session = store.find("images", WORK)
    await session.open()
    (said,) = (message for message in session.context.messages if message.images)
    (sent,) = session.images.expanded([said])
    assert [part.image_url.url for part in sent.images] == [url]
    assert "cannot be read" in sent.text
    # The lines still part where they did.
    (left,) = session.world_lines.list(session.context.world_line)
    assert (left.reason, left.shared) == ("rewind", 1)
    await undo(session.context)
    assert session.context.messages[-1].text == "this"
    (told,) = (
        record for record in session.record.read() if "message" in record and "look" in str(record)
    )
    event = Decoder().decode_record(told, 1)
    assert event is not None
    assert isinstance(event.event, TurnBegin)
    facts = event.event.images[0]
    assert (facts.width, facts.n_bytes, facts.sha256) == (300, len(data), image.stem)
    await session.aclose()


def one_info(store: SessionStore) -> Any:
    (info,) = store.list(WORK)
    return info


def test_one_that_goes_on_with_a_summary_is_called_as_it_began(share: Path) -> None:
    write(share / "sessions" / bucket(WORK) / "0f0f", [LINES[0], LINES[2]])
    assert one(find_sessions(share)).title == "go"


def test_what_was_left_is_no_younger_than_the_record(share: Path, store: SessionStore) -> None:
    """A copy of the share folder makes all files new."""
    write(share / "sessions" / bucket(WORK) / "0f0f", LINES[:2])
    (future,) = import_session(store, one(find_sessions(share))).futures
    assert future.at == "1970-01-01T00:00:01.500Z"


def test_only_this_folder_or_all(share: Path) -> None:
    other = Path("/home/someone/unknown")
    write(share / "sessions" / bucket(WORK) / "a", [LINES[0]])
    write(share / "sessions" / bucket(other) / "b", [LINES[1]])
    write(share / "sessions" / ("ssh_" + bucket(WORK)) / "c", [LINES[1]])
    assert [found.id for found in find_sessions(share, WORK)] == ["a"]
    assert [found.id for found in find_sessions(share, other)] == ["b"]
    every = {found.id: found.work_dir for found in find_sessions(share)}
    assert every == {"a": str(WORK), "b": ""}
    # No folder has the name with half a character, and the others are known all the same.
    listed = [{"path": "/home/\ud800"}, {"path": str(WORK)}]
    (share / "kimi.json").write_text(json.dumps({"work_dirs": listed}))
    assert {found.id: found.work_dir for found in find_sessions(share)} == every
    assert find_sessions(share / "nowhere") == []


def test_empty_ones_are_not_found_and_odd_ones_are(share: Path, store: SessionStore) -> None:
    here = share / "sessions" / bucket(WORK)
    write(here / "empty", [PROMPT])
    (here / "empty" / "wire.jsonl").unlink()
    write(here / "named", [PROMPT], custom_title="kept")
    write(here / "killed", [*LINES[:2], LINES[2]])
    # Killed between its renames: no live file.
    (here / "killed" / "context.jsonl").unlink()
    (here / "old.jsonl").write_text(json.dumps(said("from long ago")[0]) + "\n")
    (here / "broken").mkdir()
    (here / "broken" / "context.jsonl").write_bytes(
        b"\0\xff{\n" + json.dumps(said("x")[0]).encode()
    )
    found = {session.id: session for session in find_sessions(share, WORK)}
    assert set(found) == {"named", "killed", "old"}
    assert found["old"].title == "from long ago"
    killed = found["killed"]
    assert killed.live.name == "context_2.jsonl"
    assert [future.op for future in futures_of(killed)] == ["dmail"]
    done = import_session(store, killed)
    assert sorted(path.name for path in done.folder.iterdir()) == [
        "context.jsonl",
        "context_1.jsonl",
        "state.json",
        "wire.jsonl",
        "worldlines.jsonl",
    ]
    old = import_session(store, found["old"])
    assert (old.folder / "context.jsonl").exists()


def test_a_second_time_is_refused_and_strange_names_stay_inside(
    share: Path, store: SessionStore
) -> None:
    here = share / "sessions" / bucket(WORK)
    write(here / "..odd name", [LINES[0]])
    found = one(find_sessions(share))
    done = import_session(store, found)
    assert done.folder.parent == store.bucket(WORK)
    with pytest.raises(AlreadyImported):
        import_session(store, found)


def test_an_import_that_fails_leaves_nothing(share: Path, store: SessionStore) -> None:
    write(share / "sessions" / bucket(WORK) / "a", LINES)
    found = one(find_sessions(share))

    def refuse(fd: int) -> None:
        raise OSError(28, "No space left on device")

    store.storage.fsync = refuse
    with pytest.raises(StorageTrouble, match="No space"):
        import_session(store, found)
    assert not list(store.bucket(WORK).iterdir())
    assert len(list((share / "sessions" / bucket(WORK) / "a").iterdir())) == 5
