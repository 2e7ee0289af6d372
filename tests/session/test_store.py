"""Sessions: made, found, listed, named, put away, copied and deleted."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest
from support.effort import n_calls
from support.faulty_storage import WatchedStorage

from kimi_tui.filesystem import Storage, open_regular
from kimi_tui.llm.message import user_message
from kimi_tui.session.aside import DELETED, FORKED, IMPORTED, remove_unfinished
from kimi_tui.session.errors import (
    SessionLocked,
    SessionNotFound,
    StorageTrouble,
    UnknownCheckpoint,
)
from kimi_tui.session.journal import JournalEntry
from kimi_tui.session.listing import SessionInfo
from kimi_tui.session.metadata import read_marks, read_state
from kimi_tui.session.rotation import stored_world_lines, world_line_path
from kimi_tui.session.schema import TokenCount
from kimi_tui.session.session import Session
from kimi_tui.session.store import SessionStore, disk_use, read_only_copy
from kimi_tui.session.undo import undo

HERE = Path("/work/here")
THERE = Path("/work/there")


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "data")


async def made(store: SessionStore, work_dir: Path, *words: str) -> Session:
    """Return a closed session in which this message was sent."""
    session = store.create(work_dir)
    await session.open()
    for word in words:
        await session.context.checkpoint(True)
        await session.context.append([user_message(word)])
        await session.context.append([TokenCount(100, estimated=False)])
    await session.aclose()
    return session


def unsaid(store: SessionStore) -> Session:
    """Return a session without a message, as a killed program leaves it."""
    session = store.create(HERE)
    session.dir.mkdir(parents=True)
    (session.dir / "context.jsonl").touch()
    return session


def only(infos: list[SessionInfo]) -> SessionInfo:
    (info,) = infos
    return info


async def test_where_a_session_is(store: SessionStore) -> None:
    session = await made(store, HERE, "hi")
    bucket = hashlib.md5(b"/work/here").hexdigest()
    assert session.dir == store.root / "sessions" / bucket / session.id
    assert str(uuid.UUID(session.id)) == session.id


async def test_the_list_tells_what_there_is_the_newest_first(store: SessionStore) -> None:
    first = await made(store, HERE, "Fix the parser\nplease", "more")
    second = await made(store, HERE, "x" * 80)
    elsewhere = await made(store, THERE, "other")
    for age, session in enumerate((elsewhere, second, first)):
        os.utime(session.dir / "context.jsonl", (1_000 - age, 1_000 - age))
    infos = store.list()
    assert [info.id for info in infos] == [elsewhere.id, second.id, first.id]
    assert [info.title for info in infos] == ["other", "x" * 49 + "…", "Fix the parser please"]
    assert infos[2].messages == 2
    assert infos[2].tokens == 100
    assert infos[2].work_dir == "/work/here"
    assert infos[2].updated_at == 998
    assert infos[2].world_lines == 0
    assert infos[2].size_bytes > 400
    assert [info.id for info in store.list(HERE)] == [second.id, first.id]


async def test_world_lines_are_counted(store: SessionStore) -> None:
    session = await made(store, HERE, "a", "b")
    await session.open()
    await session.context.revert_to(1, reason="rewind")
    await session.aclose()
    info = only(store.list(HERE))
    assert (info.messages, info.world_lines) == (1, 1)
    assert info.world_lines_bytes == (session.dir / "context_1.jsonl").stat().st_size


async def test_empty_sessions_are_not_listed_and_bad_ones_hide_nothing(store: SessionStore) -> None:
    good = await made(store, HERE, "hi")
    bucket = good.dir.parent
    for name, data in [("empty", b""), ("zeros", bytes(500)), ("odd", b'{"role":[]}\n\xff\n')]:
        (bucket / name).mkdir()
        (bucket / name / "context.jsonl").write_bytes(data)
    (bucket / "folder" / "context.jsonl").mkdir(parents=True)
    (bucket / "loose").write_text("x")
    (bucket / "dangling").symlink_to(bucket / "nowhere")
    (good.dir / "state.json").write_bytes(b"\0\0\0")
    assert [info.id for info in store.list(HERE)] == [good.id]
    assert [path.name for path in (bucket / "empty").iterdir()] == ["context.jsonl"]
    (said,) = store.passed_over(HERE)
    assert said.startswith(f"{bucket / 'folder' / 'context.jsonl'}: ")
    assert said.endswith("; this session is skipped.")
    assert disk_use(good.dir).record == 0
    (good.dir / "wire.jsonl").write_text("12345")
    assert disk_use(good.dir).record == 5
    with (good.dir / "context.jsonl").open("a") as file:
        file.write("half")
    async with read_only_copy(good) as copied:
        assert (copied.report.torn_bytes, copied.report.remarks) == (0, ())


async def test_a_session_without_a_message_is_listed_where_it_has_a_name(
    store: SessionStore,
) -> None:
    named = unsaid(store)
    assert store.list(HERE) == []
    store.note(named, title="kept")
    assert only(store.list(HERE)).title == "kept"


async def test_the_newest_draft_of_a_session_without_a_message_is_taken_over(
    store: SessionStore,
) -> None:
    mine = await made(store, HERE, "hi")
    for name, at in (("a", 20), ("b", 30), ("c", 10)):
        draft = unsaid(store).dir / "draft.json"
        draft.write_text(name)
        os.utime(draft, (at, at))
    assert store.take_over(mine, "draft.json")
    assert (mine.dir / "draft.json").read_text() == "b"


@pytest.mark.parametrize("which", ["context.jsonl", "wire.jsonl"])
async def test_a_session_that_cannot_be_read_is_not_taken_for_one_in_which_nothing_was_said(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    lost, mine = await made(store, HERE, "hi"), await made(store, HERE, "ho")
    await lost.aclose()
    (lost.dir / "state.json").unlink()
    if which == "wire.jsonl":
        (lost.dir / "context.jsonl").write_bytes(b"")
    for name in ("draft.json", which):
        (lost.dir / name).touch()
    before = {path.name for path in lost.dir.iterdir()}

    def refused(path: Path) -> int:
        if path == lost.dir / which:
            raise PermissionError(13, "Permission denied")
        return open_regular(path)

    monkeypatch.setattr("kimi_tui.session.listing.open_regular", refused)
    assert not store.take_over(mine, "draft.json")
    assert {path.name for path in lost.dir.iterdir()} == before


async def test_what_was_noted_for_the_list_is_not_believed_when_it_does_not_fit(
    store: SessionStore,
) -> None:
    session = await made(store, HERE, "hi")
    with (session.dir / "context.jsonl").open("ab") as file:
        file.write(b'{"role":"user","content":"more"}\n{"role":"_usage","token_count":777}\n')
    info = only(store.list(HERE))
    assert (info.messages, info.tokens, info.title) == (2, 777, "hi")


async def test_a_long_session_that_was_killed_is_listed_by_its_ends(store: SessionStore) -> None:
    session = await made(store, HERE, "the beginning", *["y" * 3_000] * 100)
    (session.dir / "state.json").unlink()
    info = only(store.list(HERE))
    assert (info.title, info.messages, info.tokens) == ("the beginning", None, 100)


async def test_listing_reads_no_whole_files(store: SessionStore) -> None:
    session = await made(store, HERE, "hi", "ho")
    names = ["context.jsonl", "state.json", "lock"]
    files = {name: (session.dir / name).read_bytes() for name in names}
    files["context_1.jsonl"] = files["context.jsonl"]
    for number in range(100):
        folder = session.dir.parent / f"{number}"
        folder.mkdir()
        for name, data in files.items():
            (folder / name).write_bytes(data)
        # More than fits into memory, though next to nothing on the disk.
        for name in ("wire.jsonl", "context_1.jsonl"):
            with (folder / name).open("ab") as file:
                file.truncate(1 << 42)
    assert len(store.list(HERE)) == 101
    n = n_calls(lambda: store.list(HERE))
    assert n < 101 * 300, n


async def test_find_by_the_beginning_of_an_id(store: SessionStore) -> None:
    session = await made(store, HERE, "hi")
    other = await made(store, THERE, "ho")
    assert store.find(session.id).dir == session.dir
    assert store.find(session.id[:8]).dir == session.dir
    assert store.find(other.id, HERE).work_dir == THERE
    with pytest.raises(SessionNotFound, match="no session 'zz'"):
        store.find("zz")
    with pytest.raises(SessionNotFound):
        store.find("")
    twin = session.dir.with_name(session.id[:8] + "-twin")
    twin.mkdir()
    (twin / "context.jsonl").write_bytes((session.dir / "context.jsonl").read_bytes())
    with pytest.raises(SessionNotFound, match="2 sessions begin"):
        store.find(session.id[:8])
    assert store.find(session.id).dir == session.dir


async def test_newest(store: SessionStore) -> None:
    assert store.newest(HERE) is None
    first = await made(store, HERE, "a")
    second = await made(store, HERE, "b")
    os.utime(first.dir / "context.jsonl", (1, 1))
    newest = store.newest(HERE)
    assert newest is not None
    assert newest.id == second.id
    second_state = Session(second.dir, HERE)
    await second_state.open()
    second_state.archive()
    await second_state.aclose()
    newest = store.newest(HERE)
    assert newest is not None
    assert newest.id == first.id
    assert [info.archived for info in store.list(HERE, archived=True)] == [True, False]


async def test_folders_come_in_the_order_of_their_last_write(store: SessionStore) -> None:
    folders = [(await made(store, HERE, word)).dir for word in ("a", "b", "c")]
    for folder, at in zip(folders, (20, 30, 10), strict=True):
        os.utime(folder / "context.jsonl", (at, at))
    assert store.newest_first(HERE) == [folders[1], folders[0], folders[2]]


async def test_listing_and_opening_delete_nothing(store: SessionStore) -> None:
    session = await made(store, HERE, "hi")

    def snapshot() -> dict[str, bytes]:
        files = [path for path in store.root.rglob("*") if path.is_file()]
        return {str(path): path.read_bytes() for path in files}

    before = snapshot()
    store.list()
    store.newest(HERE)
    store.find(session.id)
    again = Session(session.dir, HERE)
    await again.open()
    await again.aclose()
    store.list()
    assert snapshot() == before


async def test_a_session_does_not_say_that_it_works_elsewhere(store: SessionStore) -> None:
    session = await made(store, HERE, "hi")
    state = json.loads((session.dir / "state.json").read_text())
    (session.dir / "state.json").write_text(json.dumps({**state, "work_dir": "/home/me/.ssh"}))
    newest = store.newest(HERE)
    assert newest is not None
    assert newest.work_dir == HERE


async def test_rename_and_what_it_was_called_before(store: SessionStore) -> None:
    session = await made(store, HERE, "hi")
    await session.open()
    session.rename("  The\nparser ")
    assert session.title == "The parser"
    assert only(store.list()).title == "The parser"
    session.rename("")
    assert session.title == "hi"
    await session.aclose()


async def test_keys_of_others_in_the_state_survive(store: SessionStore) -> None:
    session = await made(store, HERE, "hi")
    path = session.dir / "state.json"
    path.write_text(json.dumps({"custom_title": "T", "todos": [{"title": "x"}], "later": 1}))
    await session.open()
    session.archive()
    await session.aclose()
    kept = json.loads(path.read_text())
    assert (kept["custom_title"], kept["todos"], kept["later"]) == ("T", [{"title": "x"}], 1)
    assert kept["archived"] is True


async def test_a_damaged_side_file_is_kept_aside(store: SessionStore) -> None:
    session = await made(store, HERE, "hi")
    (session.dir / "marks.json").write_bytes(b"{broken")
    await session.open()
    session.bookmark("uid1", "here")
    assert (session.dir / "marks.json.damaged").read_bytes() == b"{broken"
    await session.aclose()


async def test_bookmarks_and_pins(store: SessionStore) -> None:
    session = await made(store, HERE, "hi")
    await session.open()
    session.bookmark("u1", "one")
    session.bookmark("u2", "two")
    session.bookmark("u1", "")
    session.change_pins({("u1", 2), ("u1", 3)})
    session.change_pins({("u1", 2)}, pinned=False)
    await session.aclose()
    marks = read_marks(session.dir)
    assert marks.bookmarks == {"u2": "two"}
    assert marks.pins == {("u1", 3)}


async def test_a_title_that_cannot_be_written_is_an_error_and_the_old_one_stands(
    store: SessionStore,
) -> None:
    session = await made(store, HERE, "hi")
    await session.open()
    session.rename("old")

    def refuse(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    session.storage.replace = refuse
    with pytest.raises(StorageTrouble, match="No space left"):
        session.rename("new")
    assert session.title == "old"
    assert read_state(session.dir).title == "old"
    await session.aclose()


async def test_what_is_thrown_away_lies_in_the_trash_for_a_while(store: SessionStore) -> None:
    session = await made(store, HERE, "keep me")
    long_ago = store.trash / "2020-01-01" / "x" / "y"
    long_ago.mkdir(parents=True)
    other = store.trash / "mine"
    other.mkdir()
    held = await made(store, HERE, "held")
    await held.open()
    for refused in (store.move_to_trash, store.note):
        with pytest.raises(SessionLocked):
            refused(Session(held.dir, HERE))
    await held.aclose()
    thrown = store.move_to_trash(session)
    assert (thrown.is_dir(), session.dir.exists()) == (True, False)
    assert (long_ago.exists(), other.exists()) == (False, True)
    with pytest.raises(SessionNotFound):
        store.restore("")
    back = store.restore(session.id[:8])
    assert (back.dir, back.work_dir) == (session.dir, HERE)
    store.note(back, title=" A  name ", archived=True)
    assert (read_state(back.dir).title, read_state(back.dir).archived) == ("A name", True)


async def test_delete(store: SessionStore) -> None:
    session = await made(store, HERE, "hi")
    other = await made(store, HERE, "ho")
    await session.open()
    with pytest.raises(SessionLocked):
        store.delete(Session(session.dir, HERE))
    await session.aclose()
    store.delete(session)
    assert [info.id for info in store.list()] == [other.id]
    assert not session.dir.exists()
    store.delete(other)
    assert not list((store.root / "sessions").iterdir())


async def test_what_a_killed_program_left_is_removed_and_nothing_that_is_being_made(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await made(store, HERE, "hi")
    bucket, sessions = session.dir.parent, store.root / "sessions"
    left = [bucket / f"{start}left" for start in (FORKED, IMPORTED, DELETED)]
    others = [bucket / ".another", bucket / ".future-b"]
    elsewhere = sessions / "elsewhere" / f"{DELETED}b"
    for folder in (*left, *others, elsewhere):
        (folder / "inner").mkdir(parents=True)
    (bucket / f"{FORKED}link").symlink_to(session.dir)
    removed: list[int] = []
    write_file = Storage.write_file

    def remove_meanwhile(*args: Any, **more: Any) -> None:
        removed.append(remove_unfinished(sessions))
        write_file(*args, **more)

    monkeypatch.setattr(Storage, "write_file", remove_meanwhile)
    copy = await session.fork()
    assert set(removed) == {0, 1}
    assert not elsewhere.exists()
    assert all(folder.exists() for folder in left)
    assert remove_unfinished(sessions) == len(left)
    assert not any(folder.exists() for folder in left)
    assert all(folder.exists() for folder in others)
    assert {info.id for info in store.list(HERE)} == {session.id, copy.id}
    assert session.dir.is_dir()


async def test_the_deletion_of_a_session_is_finished_after_a_kill(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await made(store, HERE, "hi")

    def removed_meanwhile(folder: Path) -> None:
        assert not remove_unfinished(store.root / "sessions")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", removed_meanwhile)
        with pytest.raises(KeyboardInterrupt):
            store.delete(session)
    assert [one.name for one in session.dir.parent.iterdir()] == [f"{DELETED}{session.id}"]
    assert remove_unfinished(store.root / "sessions") == 1
    assert not list(session.dir.parent.iterdir())


async def test_the_fork_of_an_empty_session_has_no_title_yet(store: SessionStore) -> None:
    session = store.create(store.root)
    await session.open()
    copy = await session.fork()
    assert read_state(copy.dir).title == "", "the first message gives it one"
    await session.aclose()


async def test_a_fork_has_everything_and_is_its_own(store: SessionStore) -> None:
    session = await made(store, HERE, "a", "b", "c")
    await session.open()
    await session.context.revert_to(2, reason="rewind")
    session.bookmark("u", "name")
    blob = session.dir / "blobs" / "ab" / "cdef"
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"contents")
    (session.dir / "blobs" / "journal.jsonl").write_text("{}\n")
    session.record.append({"timestamp": 1.0, "message": {"type": "TurnBegin", "payload": {}}})
    copy = await session.fork()
    assert copy.id != session.id
    await copy.open()
    assert list(copy.context.messages) == list(session.context.messages)
    assert copy.marks.bookmarks == {"u": "name"}
    assert copy.state.forked_from == session.id
    assert len(list(copy.record.read())) == 2
    assert (copy.dir / "blobs" / "ab" / "cdef").stat().st_ino == blob.stat().st_ino
    journals = [folder / "blobs" / "journal.jsonl" for folder in (copy.dir, session.dir)]
    assert journals[0].stat().st_ino != journals[1].stat().st_ino
    before = (session.dir / "context.jsonl").read_bytes()
    journal = (session.dir / "worldlines.jsonl").read_bytes()
    await undo(copy.context)
    assert [message.text for message in copy.context.messages if "CHECK" not in message.text] == [
        "a",
        "b",
        "c",
    ]
    await copy.context.append([user_message("only there")])
    assert (session.dir / "context.jsonl").read_bytes() == before
    assert (session.dir / "worldlines.jsonl").read_bytes() == journal
    await copy.aclose()
    await session.aclose()


async def test_a_fork_syncs_the_names_in_every_folder_that_it_made(store: SessionStore) -> None:
    origin = await made(store, HERE, "a")
    blob = origin.dir / "files" / "blobs" / "ab" / "cdef"
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"contents")
    storage = WatchedStorage()
    synced: list[Path] = []

    def before(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "sync_folder":
            synced.append(arguments[0])

    storage.before = before
    session = Session(origin.dir, HERE, storage)
    copy = await session.fork()
    (made_at,) = {path for path in synced if path.parent == copy.dir.parent}
    below = [path.relative_to(made_at).as_posix() for path in synced if made_at in path.parents]
    # Innermost first, and the folder of the copy itself behind them.
    assert below == ["files/blobs/ab", "files/blobs", "files"]
    assert synced.index(made_at) > synced.index(made_at / "files")


async def test_a_copy_to_be_read_needs_the_conversation_alone(store: SessionStore) -> None:
    origin = await made(store, HERE, "a")
    (origin.dir / "context_1.jsonl").write_text("{}\n")
    storage = WatchedStorage()
    session = Session(origin.dir, HERE, storage)

    def refused(name: str) -> None:
        def before(call: str, arguments: tuple[Any, ...]) -> None:
            if call == "open" and Path(arguments[0]) == origin.dir / name:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        storage.before = before

    for name in ("context_1.jsonl", "state.json"):
        refused(name)
        async with read_only_copy(session) as copied:
            assert copied.context.messages[-1].text == "a"
    refused("context.jsonl")
    with pytest.raises(StorageTrouble, match="read the session"):
        async with read_only_copy(session):
            pass


async def test_a_fork_at_a_checkpoint_and_of_a_world_line(store: SessionStore) -> None:
    session = await made(store, HERE, "a", "b", "c")
    await session.open()
    points = list(session.context.checkpoints)
    for point in points:
        message = {"type": "CheckpointCreated", "payload": {"uid": point.uid}}
        session.record.append({"timestamp": 1.0, "message": message})
    here = await session.fork(1)
    await here.open()
    assert here.context.messages[-1].text == "a"
    assert here.context.n_checkpoints == 1
    # The fork has the part of the record up to that checkpoint.
    assert len(list(here.record.read())) == 2
    await here.aclose()
    await session.context.revert_to(1, reason="rewind")
    there = await session.fork(2, world_line=1)
    await there.open()
    assert there.context.messages[-1].text == "b"
    assert sorted(stored_world_lines(there.dir)) == [1]
    assert (
        world_line_path(there.dir, 1).read_bytes() == world_line_path(session.dir, 1).read_bytes()
    )
    await there.aclose()
    with pytest.raises(UnknownCheckpoint):
        await session.fork(1)
    assert not [name for name in os.listdir(session.dir.parent) if name.startswith(".")]
    await session.aclose()


async def test_a_fork_of_a_whole_world_line_tells_its_record_which_line_it_is(
    store: SessionStore,
) -> None:
    session = await made(store, HERE, "a", "b")
    await session.open()
    for n, point in enumerate(session.context.checkpoints):
        message = {"type": "CheckpointCreated", "payload": {"uid": point.uid}}
        session.record.append({"timestamp": float(n), "message": message})
    await session.context.revert_to(1, reason="rewind")
    await session.context.append([user_message("other")])
    there = await session.fork(world_line=1)
    await there.open()
    assert there.context.messages[-1].text == "b"
    last = list(there.record.read())[-1]["message"]
    assert (last["type"], last["payload"]["to_line"]) == ("LineChanged", 1)
    assert last["payload"]["uid"] == ""
    await there.aclose()
    await session.aclose()


async def test_an_operation_that_is_just_happening_does_not_come_along(store: SessionStore) -> None:
    session = await made(store, HERE, "a", "b", "c")
    await session.open()
    await session.context.revert_to(2, reason="rewind")
    point = session.context.index.checkpoint(1)
    entry = JournalEntry(op="rewind", n=1, size=session.context.size_bytes, to_size=point.offset)
    session.context.journal.intend(entry)
    copy = await session.fork(1)
    await copy.open()
    assert [entry.checkpoint_id for entry in copy.context.journal.entries] == [2]
    await copy.aclose()
    await session.aclose()


async def test_a_fork_leaves_out_what_is_being_written(store: SessionStore) -> None:
    session = await made(store, HERE, "hi")
    await session.open()
    packs = session.dir / "files" / "store"
    packs.mkdir(parents=True)
    (packs / "whole.pack").write_bytes(b"contents")
    (packs / "begun.tmp").write_bytes(b"cont")
    copy = await session.fork()
    assert [one.name for one in (copy.dir / "files" / "store").iterdir()] == ["whole.pack"]
    await session.aclose()
