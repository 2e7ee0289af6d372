"""Whatever the disk refuses: the conversation in memory is whole, the file undamaged, and what is missing is written later."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.faulty_storage import FullStorage, ShortStorage, WatchedStorage, failing

from kimi_tui.filesystem import Storage
from kimi_tui.llm.message import user_message
from kimi_tui.session.context import Context
from kimi_tui.session.context_file import ContextFile
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.metadata import read_marks, read_state
from kimi_tui.session.rotation import stored_world_lines
from kimi_tui.session.session import Session


def on_disk(folder: Path) -> list[str]:
    """Return the text that another program would read, after checking that every line is a complete record."""
    lines = (folder / "context.jsonl").read_bytes().split(b"\n")
    assert lines[-1] == b""
    found: list[dict[str, Any]] = [json.loads(line) for line in lines[:-1]]
    return [record["content"] for record in found if "content" in record]


def texts(context: Context) -> list[str]:
    return [message.text for message in context.messages]


async def opened(folder: Path, storage: Storage) -> Session:
    session = Session(folder, Path("/w"), storage)
    await session.open()
    return session


async def say(session: Session, *words: str) -> None:
    for word in words:
        await session.context.checkpoint(False)
        await session.context.append([user_message(word)])


def nothing(_name: str, _arguments: tuple[Any, ...]) -> None:
    """The disk is well again."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "session"


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT, errno.EACCES]
)
async def test_a_refused_write_is_told_once_and_made_up_for(folder: Path, number: int) -> None:
    storage = WatchedStorage()
    session = await opened(folder, storage)
    told: list[StorageTrouble | None] = []
    session.context.listen(told.append, pytest.fail)
    await say(session, "one")
    storage.before = failing({"write", "copy_range"}, number)
    await say(session, "two", "three")
    assert not await session.sync()
    assert texts(session.context) == ["one", "two", "three"]
    assert on_disk(folder) == ["one"]
    assert session.context.unsaved_bytes > 0
    assert session.context.unsaved_messages == 2
    assert len(told) == 1
    assert told[0] is not None
    assert told[0].errno == number
    assert told[0].advice
    with pytest.raises(StorageTrouble):
        await session.context.revert_to(1, reason="rewind")
    assert texts(session.context) == ["one", "two", "three"]
    storage.before = nothing
    await say(session, "four")
    assert on_disk(folder) == ["one", "two", "three", "four"]
    assert told[1:] == [None]
    assert (session.context.unsaved_bytes, session.context.unsaved_messages) == (0, 0)
    await session.aclose()


async def test_a_full_disk_never_leaves_half_a_record(folder: Path) -> None:
    storage = FullStorage()
    session = await opened(folder, storage)
    await say(session, "one")
    size = (folder / "context.jsonl").stat().st_size
    for room in range(0, 220, 7):
        storage.room = room
        await say(session, "much too long for what is left")
        on_disk(folder)
        storage.room = 1 << 40
        await session.sync()
    assert on_disk(folder) == texts(session.context)
    assert len(texts(session.context)) == 33
    assert size < (folder / "context.jsonl").stat().st_size
    await session.aclose()


async def test_a_write_that_can_not_be_cut_back_is_never_joined(folder: Path) -> None:
    storage = FullStorage()
    session = await opened(folder, storage)
    await say(session, "one")
    storage.room = 10
    storage.before = failing({"ftruncate"}, errno.EIO)
    await say(session, "two")
    storage.room = 1 << 40
    await say(session, "three")
    await session.sync()
    assert on_disk(folder) == ["one", "two", "three"]
    assert not stored_world_lines(folder)
    await session.aclose()


@pytest.mark.parametrize("limit", [1, 7, 64])
async def test_short_writes_are_finished(folder: Path, limit: int) -> None:
    session = await opened(folder, ShortStorage(limit))
    await say(session, "one", "two", "three")
    await session.context.revert_to(1, reason="rewind")
    await say(session, "four")
    await session.aclose()
    assert on_disk(folder) == ["one", "four"]
    again = await opened(folder, ShortStorage(limit))
    assert texts(again.context) == ["one", "four"]
    await again.aclose()


async def test_after_a_failed_sync_everything_since_the_last_good_one_is_written_anew(
    folder: Path,
) -> None:
    storage = WatchedStorage()
    session = await opened(folder, storage)
    told: list[StorageTrouble | None] = []
    session.context.listen(told.append, pytest.fail)
    await say(session, "one")
    assert await session.sync()
    await say(session, "two")
    before = (folder / "context.jsonl").stat().st_ino
    storage.before = failing({"fsync"}, errno.EIO, times=1)
    assert await session.sync()
    # A second sync of the same file would have said yes to pages that never reached the disk.
    assert (folder / "context.jsonl").stat().st_ino != before
    assert on_disk(folder) == ["one", "two"]
    await say(session, "three")
    assert on_disk(folder) == ["one", "two", "three"]
    await session.aclose()


async def test_a_sync_that_goes_on_failing_is_never_called_saved(folder: Path) -> None:
    storage = WatchedStorage()
    session = await opened(folder, storage)
    await say(session, "one")
    storage.before = failing({"fsync"}, errno.EIO)
    assert not await session.sync()
    await say(session, "two")
    assert not await session.sync()
    assert session.context.trouble is not None
    assert texts(session.context) == ["one", "two"]
    with pytest.raises(StorageTrouble):
        await session.context.clear(reason="clear")
    storage.before = nothing
    assert await session.sync()
    assert session.context.trouble is None
    assert on_disk(folder) == ["one", "two"]
    await session.aclose()


def test_a_failed_close_counts_as_a_failed_sync(tmp_path: Path) -> None:
    storage = WatchedStorage()
    path = tmp_path / "context.jsonl"
    path.touch()
    live = ContextFile(path, storage, lambda: None)
    live.adopt(0)
    live.append(b"{}\n")
    before = path.stat().st_ino
    storage.before = failing({"close"}, errno.EDQUOT, times=1)
    live.release()
    assert live.must_rewrite
    assert live.trouble is not None
    with pytest.raises(StorageTrouble):
        live.sync()
    assert live.unsaved_bytes == 3
    live.rewrite()
    assert path.stat().st_ino != before
    assert path.read_bytes() == b"{}\n"
    assert live.trouble is None
    # Data that was synced before is safe, whatever closing reports.
    storage.before = failing({"close"}, errno.EDQUOT, times=1)
    live.append(b"[]\n")
    live.sync()
    live.release()
    assert not live.must_rewrite


def test_a_rewrite_that_failed_stays_due(tmp_path: Path) -> None:
    storage = WatchedStorage()
    path = tmp_path / "context.jsonl"
    path.touch()
    live = ContextFile(path, storage, lambda: None)
    live.adopt(0)
    live.append(b"{}\n")
    live.flush()
    live.sync()
    storage.before = failing({"replace"}, errno.EIO, times=1)
    with pytest.raises(StorageTrouble):
        live.rewrite()
    assert live.must_rewrite
    live.rewrite()
    assert not live.must_rewrite
    assert path.read_bytes() == b"{}\n"


async def test_the_folders_of_a_new_session_are_synced_too(folder: Path) -> None:
    storage = WatchedStorage()
    synced: list[Path] = []

    def watch(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "sync_folder":
            synced.extend(arguments)

    storage.before = watch
    place = folder / "sessions" / "bucket" / "0"
    session = await opened(place, storage)
    # The names that lead to its first record: of the file, the session, and the work folder's place.
    assert set(synced) == {place, place.parent, place.parent.parent}
    await session.aclose()


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EBADF])
async def test_folders_that_cannot_be_synced_are_no_trouble(
    folder: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def fsync(fd: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            raise OSError(number, os.strerror(number))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    session = await opened(folder, Storage())
    await say(session, "one", "two")
    await session.context.revert_to(1, reason="rewind")
    assert await session.sync()
    assert session.context.trouble is None
    await session.aclose()


async def test_a_folder_sync_that_reports_a_disk_error_is_made_good(folder: Path) -> None:
    storage = WatchedStorage()
    session = await opened(folder, storage)
    await say(session, "one", "two")
    storage.before = failing({"sync_folder"}, errno.EIO, times=1)
    await session.context.revert_to(1, reason="rewind")
    assert session.context.trouble is not None
    await say(session, "three")
    assert await session.sync()
    assert session.context.trouble is None
    assert on_disk(folder) == ["one", "three"]
    await session.aclose()


@pytest.mark.parametrize(
    "number",
    [
        errno.EPERM,
        errno.EACCES,
        errno.EXDEV,
        errno.EMLINK,
        errno.EOPNOTSUPP,
        errno.EINVAL,
        errno.ENOSYS,
    ],
)
async def test_without_hard_links_a_copy_takes_their_place(folder: Path, number: int) -> None:
    storage = WatchedStorage()
    storage.before = failing({"link"}, number)
    session = await opened(folder, storage)
    await say(session, "one", "two")
    whole = (folder / "context.jsonl").read_bytes()
    done = await session.context.revert_to(1, reason="rewind")
    assert (folder / "context_1.jsonl").read_bytes() == whole
    assert (done.entry.n, on_disk(folder)) == (1, ["one"])
    assert "rename" not in storage.calls
    await say(session, "three")
    await session.context.clear(reason="clear")
    assert sorted(stored_world_lines(folder)) == [1, 2]
    await session.aclose()


@pytest.mark.sample
@pytest.mark.parametrize("times", [1, 10**9])
async def test_a_refused_operation_changes_nothing_at_whichever_call_it_is_refused(
    tmp_path: Path, times: int
) -> None:
    names = {"open", "close", "write", "copy_range", "fsync", "link", "replace"}
    refused = 0
    for skip in range(40):
        place = tmp_path / str(skip)
        storage = WatchedStorage()
        session = await opened(place, storage)
        await say(session, "one", "two")
        await session.sync()
        storage.before = failing(names, errno.ENOSPC, skip=skip, times=times)
        try:
            await session.context.revert_to(1, reason="rewind")
        except StorageTrouble:
            refused += 1
            assert texts(session.context) == ["one", "two"]
            assert on_disk(place) == ["one", "two"]
            assert not stored_world_lines(place)
            storage.before = nothing
            await say(session, "three")
            expected = ["one", "two", "three"]
        else:
            assert texts(session.context) == ["one"]
            expected = ["one"]
        storage.before = nothing
        await session.sync()
        assert on_disk(place) == expected
        await session.aclose()
        again = await opened(place, Storage())
        assert texts(again.context) == expected
        # An operation that was refused is not there to be undone.
        assert len(again.context.journal.entries) == (1 if expected == ["one"] else 0)
        await again.aclose()
        shutil.rmtree(place)
    assert refused > 8


async def test_a_rename_that_is_refused_for_a_moment_is_tried_again(tmp_path: Path) -> None:
    real = os.replace
    refusals = [errno.EACCES, errno.EBUSY]
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_text("new")
    target.write_text("old")

    def replace(one: Path, other: Path) -> None:
        if refusals:
            raise OSError(refusals.pop(), "held by a scanner")
        real(one, other)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", replace)
        Storage(patient=True).replace(source, target)
        assert target.read_text() == "new"
        source.write_text("newer")
        refusals.append(errno.EACCES)
        with pytest.raises(PermissionError):
            Storage(patient=False).replace(source, target)


async def test_opening_and_repairing_needs_no_free_byte(folder: Path) -> None:
    session = await opened(folder, Storage())
    await say(session, "one", "two")
    await session.context.revert_to(1, reason="rewind")
    await session.aclose()
    torn = b'{"role":"user","content":"to'
    with (folder / "context.jsonl").open("ab") as file:
        file.write(torn)
    storage = FullStorage(room=0)
    again = await opened(folder, storage)
    assert texts(again.context) == ["one"]
    # There is no room to keep it aside, so it is not cut off either.
    assert (folder / "context.jsonl").read_bytes().endswith(torn)
    await say(again, "three")
    assert texts(again.context) == ["one", "three"]
    assert (folder / "context.jsonl").read_bytes().endswith(torn)
    storage.room = 1 << 40
    await again.sync()
    await again.aclose()
    third = await opened(folder, Storage())
    assert texts(third.context) == ["one", "three"]
    kept = (folder / "context.jsonl").read_bytes()
    beside = folder / "context.jsonl.torn"
    assert torn + b"\n" in kept or beside.read_bytes() == torn + b"\n"
    await third.aclose()


async def test_a_torn_end_that_a_full_disk_kept_is_in_no_world_line(folder: Path) -> None:
    session = await opened(folder, Storage())
    await say(session, "one", "two")
    await session.aclose()
    whole, torn = (folder / "context.jsonl").read_bytes(), b'{"role":"user","content":"to'
    with (folder / "context.jsonl").open("ab") as file:
        file.write(torn)
    storage = FullStorage(room=0)
    again = await opened(folder, storage)
    assert (folder / "context.jsonl").read_bytes() == whole + torn
    storage.room = 1 << 40
    reverted = await again.context.revert_to(1, reason="rewind")
    assert texts(again.context) == ["one"]
    assert (folder / f"context_{reverted.entry.n}.jsonl").read_bytes() == whole
    assert (folder / "context.jsonl.torn").read_bytes() == torn + b"\n"
    await again.aclose()


async def test_a_folder_that_is_deleted_is_made_again(folder: Path) -> None:
    session = await opened(folder, Storage())
    await say(session, "one")
    await session.sync()
    shutil.rmtree(folder)
    await say(session, "two")
    assert texts(session.context) == ["one", "two"]
    await session.sync()
    assert on_disk(folder) == ["one", "two"]
    assert session.context.trouble is None
    assert session.lock.held
    await session.aclose()


async def test_a_file_that_is_deleted_is_written_again(folder: Path) -> None:
    session = await opened(folder, Storage())
    await say(session, "one")
    (folder / "context.jsonl").unlink()
    await say(session, "two")
    assert on_disk(folder) == ["one", "two"]
    await session.context.revert_to(1, reason="rewind")
    (folder / "context.jsonl").unlink()
    await say(session, "three")
    assert on_disk(folder) == ["one", "three"]
    await session.aclose()


async def test_a_session_that_may_only_be_read_opens(folder: Path) -> None:
    session = await opened(folder, Storage())
    await say(session, "one")
    await session.aclose()

    class ReadOnly(WatchedStorage):
        def open(self, path: Path, flags: int) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            return super().open(path, flags)

    again = await opened(folder, ReadOnly())
    assert texts(again.context) == ["one"]
    assert again.context.trouble is not None
    assert again.context.trouble.errno == errno.EROFS
    await say(again, "two")
    assert texts(again.context) == ["one", "two"]
    await again.aclose()
    assert on_disk(folder) == ["one"]


@pytest.mark.parametrize("change", ["append", "cut", "replace"])
async def test_what_another_program_did_to_the_file_is_noticed_and_kept(
    folder: Path, change: str
) -> None:
    session = await opened(folder, Storage())
    remarks: list[str] = []
    session.context.listen(lambda _trouble: None, remarks.append)
    await say(session, "one", "two")
    path = folder / "context.jsonl"
    theirs = {
        "append": path.read_bytes() + b'{"role":"user","content":"theirs"}\n',
        "cut": path.read_bytes()[:50],
        "replace": b'{"role":"user","content":"all theirs"}\n',
    }[change]
    if change == "replace":
        other = folder / "other"
        other.write_bytes(theirs)
        other.replace(path)
    elif change == "append":
        with path.open("ab") as file:
            file.write(b'{"role":"user","content":"theirs"}\n')
    else:
        os.truncate(path, 50)
    await say(session, "three")
    assert on_disk(folder) == texts(session.context) == ["one", "two", "three"]
    assert (folder / "context_1.jsonl").read_bytes() == theirs
    assert len(remarks) == 1
    assert "world line 1" in remarks[0]
    await session.context.revert_to(2, reason="rewind")
    assert sorted(stored_world_lines(folder)) == [1, 2]
    assert session.world_lines.list()[0].reason == "foreign"
    await session.aclose()


async def test_a_long_line_keeps_only_what_is_not_safe_in_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kimi_tui.session.context_file.WHOLE_IN_MEMORY_BYTES", 2_000)
    storage = WatchedStorage()
    session = await opened(folder, storage)
    words = [f"{number} " + "x" * 100 for number in range(40)]
    for word in words:
        await say(session, word)
        await session.sync()
    assert texts(session.context) == words
    await say(session, "unsynced")
    storage.before = failing({"fsync"}, errno.EIO, times=1)
    assert await session.sync()
    assert on_disk(folder) == [*words, "unsynced"]
    await session.context.revert_to(5, reason="rewind")
    assert texts(session.context) == words[:5]
    await say(session, "after")
    await session.aclose()
    assert on_disk(folder) == [*words[:5], "after"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 64 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = shutil.which("mount") and os.geteuid() == 0
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if not mounted or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(path: Path) -> None:
    """Write until the disk is full to the last byte."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(512)):
            pass


async def test_a_real_disk_that_is_really_full(small_disk: Path) -> None:
    folder = small_disk / "session"
    session = await opened(folder, Storage())
    told: list[StorageTrouble | None] = []
    session.context.listen(told.append, pytest.fail)
    await say(session, "one")
    filler = small_disk / "filler"
    fill(filler)
    words = ["two " + "x" * 5_000, "three"]
    await say(session, *words)
    assert not await session.sync()
    assert [trouble.errno for trouble in told if trouble] == [errno.ENOSPC]
    with pytest.raises(StorageTrouble):
        await session.context.revert_to(1, reason="rewind")
    on_disk(folder)
    filler.unlink()
    assert await session.sync()
    assert told[-1] is None
    assert on_disk(folder) == ["one", *words]
    await session.context.revert_to(2, reason="rewind")
    assert on_disk(folder) == ["one", words[0]]
    await session.aclose()


async def test_a_folder_that_went_is_made_again_with_all_that_is_known(folder: Path) -> None:
    place = folder / "session"
    session = await opened(place, Storage())
    await say(session, "one", "two")
    session.rename("Mine")
    uid = session.context.checkpoints[0].uid
    session.bookmark(uid, "here")
    await session.context.revert_to(1, reason="rewind")
    told: list[str] = []
    session.context.listen(lambda _trouble: None, told.append)
    shutil.rmtree(place)
    await say(session, "three")
    await session.sync()
    # The notice comes once, though more is written afterwards, and it names the records that are lost.
    await say(session, "four")
    await session.sync()
    assert len(told) == 1
    assert "storage folder was deleted" in told[0]
    # Now, not only when it is closed.
    assert (read_state(place).title, read_marks(place).bookmarks) == ("Mine", {uid: "here"})
    expected = texts(session.context)
    await session.aclose()
    again = await opened(place, Storage())
    assert texts(again.context) == expected
    await again.aclose()


async def test_an_operation_and_the_end_sync_first_what_the_records_tell_of(folder: Path) -> None:
    done: list[str] = []
    storage = WatchedStorage()
    session = await opened(folder, storage)
    await say(session, "one", "two")
    storage.before = lambda name, _arguments: done.append(name)
    session.context.sync_first = lambda: done.append("first")
    await session.context.revert_to(1, reason="rewind")
    assert done.index("first") < done.index("fsync")
    done.clear()
    # Nothing is unsynced but what no record tells of.
    await session.sync()
    assert done[0] == "first"
    done.clear()
    await session.context.aclose()
    assert "first" in done
    await session.aclose()
