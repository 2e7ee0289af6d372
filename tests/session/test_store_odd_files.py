"""Whatever stands under the names of a session's files: it opens or is refused in one line, and nothing waits."""

from __future__ import annotations

import asyncio
import atexit
import shutil
import tempfile
from pathlib import Path

import pytest
from support.faulty_storage import WatchedStorage, failing
from support.odd_files import KINDS, put, short_lines
from support.quick_disk import memory_folder

from kimi_tui.llm.message import user_message
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.jsonl import lines
from kimi_tui.session.session import Session
from kimi_tui.session.store import SessionStore, disk_use, read_only_copy

HERE = Path("/work/here")
NAMES = (
    "wire.jsonl",
    "worldlines.jsonl",
    "state.json",
    "marks.json",
    "lock",
    "context_1.jsonl",
    "context.jsonl",
    "context.jsonl.torn",
    ".context.jsonl.tmp",
    "files",
)


_templates: list[Path] = []
"""The folder of a session as `made` has it, once it was made."""


async def made(store: SessionStore) -> Session:
    """Return a closed session with two checkpoints, one line that was left, a record and a title; made once and copied."""
    if not _templates:
        folder = tempfile.mkdtemp(dir=memory_folder())
        atexit.register(shutil.rmtree, folder)
        _templates.append((await _written(SessionStore(Path(folder)))).dir)
    folder = store.create(HERE).dir
    shutil.copytree(_templates[0], folder)
    return store.at(folder, HERE)


async def _written(store: SessionStore) -> Session:
    session = store.create(HERE)
    await session.open()
    for word in ("one", "two"):
        await session.context.checkpoint(True)
        await session.context.append([user_message(word)])
    session.record.append({"message": {"type": "TurnBegin", "payload": {"user_input": "one"}}})
    session.rename("mine")
    await session.context.revert_to(1, reason="rewind")
    await session.aclose()
    return session


async def go_through(store: SessionStore, session: Session) -> None:
    """Do with it what the app and the commands do."""
    store.list(HERE, counted=True)
    disk_use(session.dir)
    for way in (_peek, _open, _fork):
        refused = ""
        try:
            await way(store.at(session.dir, HERE))
        except StorageTrouble as trouble:
            refused = f"{trouble.message} {trouble.advice}"
        assert "\n" not in refused


async def _peek(session: Session) -> None:
    async with read_only_copy(session) as copy:
        assert copy.title


async def _open(session: Session) -> None:
    await session.open()
    assert session.title
    session.world_lines.list(session.context.world_line)
    list(session.record.read())
    session.record.tail_start(100)
    await session.context.append([user_message("goes on")])
    session.record.append({"type": "x"})
    try:
        session.rename("other")
        session.bookmark("u", "n")
        await session.context.clear(reason="clear")
    finally:
        await session.aclose()


async def _fork(session: Session) -> None:
    copy = await session.fork()
    await copy.open()
    await copy.aclose()


@pytest.mark.sample(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
async def test_nothing_waits_whatever_stands_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    short_lines(monkeypatch)
    store = SessionStore(tmp_path)
    good, odd = await made(store), await made(store)
    put(odd.dir / name, kind)
    async with asyncio.timeout(50):
        await go_through(store, odd)
    # One bad session never hides another.
    assert good.id in [info.id for info in store.list(HERE)]


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", [*NAMES, "files/snapshots.jsonl", ".state.json.tmp"])
async def test_a_file_elsewhere_that_has_a_name_in_a_session_stays_as_it_is(
    tmp_path: Path, name: str
) -> None:
    store = SessionStore(tmp_path / "data")
    session = await made(store)
    precious = tmp_path / "precious"
    precious.write_text("mine\n")
    place = session.dir / name
    place.parent.mkdir(exist_ok=True)
    place.unlink(missing_ok=True)
    place.hardlink_to(precious)
    async with asyncio.timeout(50):
        await go_through(store, session)
    assert precious.read_text() == "mine\n"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("fifo", "it is a FIFO, not a regular file"),
        ("zero", "it is a symbolic link"),
        ("folder", "it is a folder"),
        ("hole", "it is larger than 4 GB"),
    ],
)
async def test_a_line_that_cannot_be_one_is_refused_with_its_path(
    tmp_path: Path, kind: str, words: str
) -> None:
    store = SessionStore(tmp_path)
    session = await made(store)
    put(session.dir / "context.jsonl", kind)
    with pytest.raises(StorageTrouble) as caught:
        await store.find(session.id).open()
    assert words in str(caught.value)
    assert str(session.dir / "context.jsonl") in str(caught.value)
    assert not session.lock.held


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", ["wire.jsonl", "worldlines.jsonl", "state.json", "marks.json"])
@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_not_needed_keeps_no_session_from_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    short_lines(monkeypatch)
    store = SessionStore(tmp_path)
    session = await made(store)
    put(session.dir / name, kind)
    again = store.at(session.dir, HERE)
    await again.open()
    assert [message.text for message in again.context.messages][-1] == "one"
    await again.aclose()


def test_a_hole_does_not_fill_the_memory() -> None:
    asked: list[int] = []

    def read(size: int, offset: int) -> bytes:
        asked.append(offset)
        return bytes(size)

    with pytest.raises(OSError, match="line 1 is longer than 256 MB"):
        list(lines(read))
    assert asked[-1] <= 257 << 20


async def test_a_lost_live_line_is_found_in_the_newest_line_that_was_left(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    session = await made(store)
    await session.open()
    await session.context.append([user_message("newer")])
    await session.context.revert_to(0, reason="rewind")
    await session.aclose()
    (session.dir / "context.jsonl").unlink()
    stored = {path.name: path.read_bytes() for path in session.dir.glob("context_*.jsonl")}
    (info,) = store.list(HERE, counted=True)
    assert (info.id, info.title, info.world_lines) == (session.id, "mine", 1)
    assert info.messages == 2
    newest = store.newest(HERE)
    assert newest is not None
    assert newest.id == session.id
    again = store.find(session.id)
    await again.open()
    said = [m.text for m in again.context.messages if not m.text.startswith("<")]
    assert said == ["one", "newer"]
    assert again.remarks == [
        "The file of the current world line was missing; the conversation continues from world line 2."
    ]
    assert [line.n for line in again.world_lines.list()] == [1, 2]
    await again.context.append([user_message("newest")])
    await again.aclose()
    # The session continues in a file of its own; the files of the lines left stay unchanged.
    after = {path.name: path.read_bytes() for path in session.dir.glob("context_*.jsonl")}
    assert after == stored
    assert b"newest" in (session.dir / "context.jsonl").read_bytes()


async def test_a_lost_live_line_is_found_on_a_full_disk(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    session = await made(store)
    (session.dir / "context.jsonl").rename(session.dir / "context_1.jsonl")
    storage = WatchedStorage()
    storage.before = failing({"write", "copy_range"})
    again = Session(session.dir, HERE, storage)
    await again.open()
    assert [message.text for message in again.context.messages][-1] == "one"
    storage.before = failing(set())
    await again.aclose()
