"""The copy made while the user looks at a preview is used if it fits, thrown away if not, and never trusted."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from support.faulty_storage import FullStorage, WatchedStorage, failing

from kimi_tui.llm.message import user_message
from kimi_tui.session import context as contexts
from kimi_tui.session import rotation
from kimi_tui.session.context_index import ContextIndex
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.schema import AddedLine, NewCheckpoint
from kimi_tui.session.session import Session

_AHEAD = ".context_0.jsonl.tmp"


@pytest.fixture(autouse=True)
def _short_lines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "WORTH_COPYING_BYTES", 1)
    monkeypatch.setattr(rotation, "SPARE_BYTES", 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "session"


async def held(folder: Path, storage: WatchedStorage) -> Session:
    """Return a session of five messages, all of them on the disk."""
    session = Session(folder, Path("/w"), storage)
    await session.open()
    for n in range(5):
        await session.context.checkpoint(False)
        await session.context.append([user_message(f"message {n}")])
    await session.context.sync()
    return session


async def copied(session: Session) -> object:
    """Wait until it is made or gone; None if there is none."""
    task = session.context._prefix._task  # pyright: ignore[reportPrivateUsage]
    return await task if task is not None else None


def texts(session: Session) -> list[str]:
    return [message.text for message in session.context.messages]


@pytest.mark.parametrize("then", [(), (NewCheckpoint(marker=False),)])
async def test_a_prepared_revert_copies_nothing_and_is_the_same(
    folder: Path, then: tuple[Any, ...]
) -> None:
    storage = WatchedStorage()
    session = await held(folder, storage)
    whole = (folder / "context.jsonl").read_bytes()
    session.context.prepare_revert(3)
    assert await copied(session) is not None
    keep = session.context.index.checkpoint(3).offset
    storage.calls.clear()
    reverted = await session.context.revert_to(3, reason="rewind", then=then)
    assert "copy_range" not in storage.calls
    assert not (folder / _AHEAD).exists()
    assert (folder / "context.jsonl").read_bytes()[:keep] == whole[:keep]
    assert (folder / f"context_{reverted.entry.n}.jsonl").read_bytes() == whole
    assert texts(session) == ["message 0", "message 1", "message 2"]
    await session.aclose()
    again = Session(folder, Path("/w"))
    assert not (await again.open()).sentences()
    assert texts(again) == ["message 0", "message 1", "message 2"]
    await again.aclose()


async def test_the_switch_takes_the_file_that_was_copied(folder: Path) -> None:
    session = await held(folder, WatchedStorage())
    session.context.prepare_revert(3)
    await copied(session)
    inode = os.stat(folder / _AHEAD).st_ino
    await session.context.revert_to(3, reason="rewind")
    assert os.stat(folder / "context.jsonl").st_ino == inode
    await session.aclose()


async def test_another_place_another_file_or_a_grown_one(folder: Path) -> None:
    session = await held(folder, WatchedStorage())
    session.context.prepare_revert(3)
    session.context.prepare_revert(2)
    await session.context.append([user_message("said meanwhile")])
    await session.context.revert_to(4, reason="rewind")
    assert texts(session) == [f"message {n}" for n in range(4)]
    assert not (folder / _AHEAD).exists()
    await session.aclose()


async def test_what_somebody_did_to_the_copy_is_not_taken(folder: Path) -> None:
    session = await held(folder, WatchedStorage())
    session.context.prepare_revert(3)
    await copied(session)
    with (folder / _AHEAD).open("ab") as file:
        file.write(b"x")
    await session.context.revert_to(3, reason="rewind")
    assert texts(session) == ["message 0", "message 1", "message 2"]
    assert not (folder / "context.jsonl").read_bytes().endswith(b"x")
    assert not (folder / _AHEAD).exists()
    await session.aclose()


@pytest.mark.parametrize("call", ["copy_range", "fsync", "close", "fstat"])
async def test_a_copy_that_the_disk_refuses_is_no_copy(folder: Path, call: str) -> None:
    storage = WatchedStorage()
    session = await held(folder, storage)
    storage.before = failing({call}, errno.EIO)
    session.context.prepare_revert(3)
    assert await copied(session) is None
    storage.before = lambda _name, _arguments: None
    assert not (folder / _AHEAD).exists()
    await session.context.revert_to(3, reason="rewind")
    assert texts(session) == ["message 0", "message 1", "message 2"]
    await session.aclose()


@pytest.mark.parametrize("call", ["link", "replace", "write", "fsync"])
async def test_a_refused_switch_with_a_copy_changes_nothing(folder: Path, call: str) -> None:
    storage = WatchedStorage()
    session = await held(folder, storage)
    whole = (folder / "context.jsonl").read_bytes()
    session.context.prepare_revert(3)
    await copied(session)
    storage.before = failing({call}, errno.ENOSPC)
    with pytest.raises(StorageTrouble):
        await session.context.revert_to(3, reason="rewind", then=[NewCheckpoint(marker=False)])
    storage.before = lambda _name, _arguments: None
    assert (folder / "context.jsonl").read_bytes() == whole
    assert len(texts(session)) == 5
    assert not [name for name in os.listdir(folder) if name.startswith(".context")]
    await session.aclose()


async def test_closing_leaves_nothing_behind(folder: Path) -> None:
    session = await held(folder, WatchedStorage())
    session.context.prepare_revert(3)
    await session.aclose()
    assert not (folder / _AHEAD).exists()


async def test_a_crash_leaves_nothing_behind(folder: Path) -> None:
    session = await held(folder, WatchedStorage())
    await session.aclose()
    (folder / _AHEAD).write_bytes(b"half")
    again = Session(folder, Path("/w"))
    await again.open()
    assert not (folder / _AHEAD).exists()
    assert len(texts(again)) == 5
    await again.aclose()


async def test_what_is_said_next_throws_it_away(folder: Path) -> None:
    storage = WatchedStorage()
    session = await held(folder, storage)
    session.context.prepare_revert(3)
    assert await copied(session) is not None
    await session.context.append([user_message("said meanwhile")])
    assert await copied(session) is None
    assert not (folder / _AHEAD).exists()
    await session.context.sync()
    session.context.prepare_revert(3)
    assert await copied(session) is not None
    await session.context.revert_to(3, reason="rewind")
    assert texts(session) == ["message 0", "message 1", "message 2"]
    stored = (folder / "context_1.jsonl").read_bytes()
    assert b"said meanwhile" in stored
    await session.aclose()


async def test_nothing_is_copied_that_no_switch_could_take(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = WatchedStorage()
    session = await held(folder, storage)
    context = session.context

    async def is_copied(checkpoint: int) -> bool:
        storage.calls.clear()
        context.prepare_revert(checkpoint)
        await copied(session)
        return "open" in storage.calls

    # A short line is copied by the switch in no time.
    monkeypatch.setattr(contexts, "WORTH_COPYING_BYTES", context.index.checkpoint(3).offset + 1)
    assert not await is_copied(3)
    monkeypatch.setattr(contexts, "WORTH_COPYING_BYTES", context.index.checkpoint(3).offset)
    assert await is_copied(3)
    # The end of the line is in memory only, so the file does not have it.
    storage.before = failing({"write"}, errno.ENOSPC)
    await context.append([user_message("kept in memory")])
    await context.checkpoint(False)
    await copied(session)
    assert not await is_copied(5)
    storage.before = lambda _name, _arguments: None
    assert await session.sync()
    assert await is_copied(5)
    # After a failed sync the switch writes the file anew, and a copy of the old one is of no use.
    storage.before = failing({"fsync"}, errno.EIO)
    await context.append([user_message("not surely on the disk")])
    assert not await session.sync()
    await copied(session)
    assert not await is_copied(3)
    storage.before = lambda _name, _arguments: None
    await context.revert_to(3, reason="rewind")
    assert texts(session) == ["message 0", "message 1", "message 2"]
    await session.aclose()


@pytest.mark.parametrize("wanted", [1, 3])
async def test_a_preview_during_a_switch_touches_nothing_of_it(folder: Path, wanted: int) -> None:
    storage = WatchedStorage()
    session = await held(folder, storage)
    session.context.prepare_revert(3)
    assert await copied(session) is not None
    loop = asyncio.get_running_loop()

    def before(name: str, _arguments: tuple[Any, ...]) -> None:
        if name == "replace":
            # The switch is in its thread, its file complete: whatever began to copy now would cut that.
            done = asyncio.run_coroutine_threadsafe(look(), loop)
            done.result(timeout=50)

    async def look() -> None:
        session.context.prepare_revert(wanted)
        await copied(session)

    storage.before = before
    await session.context.revert_to(3, reason="rewind", then=[NewCheckpoint(marker=False)])
    storage.before = lambda _name, _arguments: None
    assert texts(session) == ["message 0", "message 1", "message 2"]
    await session.aclose()
    again = Session(folder, Path("/w"))
    assert not (await again.open()).sentences()
    assert texts(again) == ["message 0", "message 1", "message 2"]
    await again.aclose()


async def test_a_preview_while_another_copy_is_waited_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = WatchedStorage()
    session = await held(folder, storage)
    copying, go_on = threading.Event(), threading.Event()

    def before(name: str, _arguments: tuple[Any, ...]) -> None:
        if name == "copy_range":
            copying.set()
            assert go_on.wait(5)

    storage.before = before
    session.context.prepare_revert(3)
    await asyncio.to_thread(copying.wait, 5)
    planned = asyncio.Event()
    loop, add = asyncio.get_running_loop(), ContextIndex.add

    def watched(self: ContextIndex, lines: Iterable[AddedLine]) -> None:
        # The index of the new line is made while the operation is planned, in a thread.
        loop.call_soon_threadsafe(planned.set)
        add(self, lines)

    monkeypatch.setattr(ContextIndex, "add", watched)
    rewind = asyncio.create_task(session.context.revert_to(3, reason="rewind"))
    await planned.wait()
    session.context.prepare_revert(1)
    go_on.set()
    await rewind
    assert texts(session) == ["message 0", "message 1", "message 2"]
    assert not (folder / _AHEAD).exists()
    await session.aclose()


@pytest.mark.parametrize("is_prepared", [True, False])
async def test_a_foreign_append_is_set_aside_before_a_rewind(
    folder: Path, is_prepared: bool
) -> None:
    session = await held(folder, WatchedStorage())
    if is_prepared:
        session.context.prepare_revert(3)
        assert await copied(session) is not None
    whole = (folder / "context.jsonl").read_bytes()
    with (folder / "context.jsonl").open("ab") as file:
        file.write(b'{"role":"user","content":"from elsewhere"}\n')
    await session.context.revert_to(3, reason="rewind")
    assert texts(session) == ["message 0", "message 1", "message 2"]
    assert b"from elsewhere" in (folder / "context_1.jsonl").read_bytes()
    # The line begins with all messages of this session.
    assert (folder / "context_1.jsonl").read_bytes().startswith(whole)
    assert not (folder / _AHEAD).exists()
    await session.aclose()


async def test_another_program_that_writes_in_that_very_moment(folder: Path) -> None:
    storage = WatchedStorage()
    session = await held(folder, storage)
    session.context.prepare_revert(3)
    assert await copied(session) is not None
    looked = 0

    def before(name: str, arguments: tuple[Any, ...]) -> None:
        nonlocal looked
        if name == "stat" and arguments[0].name == "context.jsonl":
            looked += 1
            if looked == 2:
                with (folder / "context.jsonl").open("ab") as file:
                    file.write(b"{}\n")

    storage.before = before
    with pytest.raises(StorageTrouble, match="Another program"):
        await session.context.revert_to(3, reason="rewind")
    storage.before = lambda _name, _arguments: None
    assert len(texts(session)) == 5
    assert not (folder / _AHEAD).exists()
    await session.context.revert_to(3, reason="rewind")
    assert texts(session) == ["message 0", "message 1", "message 2"]
    await session.aclose()


async def test_a_refused_sync_before_the_switch_leaves_nothing_behind(folder: Path) -> None:
    storage = WatchedStorage()
    session = await held(folder, storage)
    session.context.prepare_revert(3)
    assert await copied(session) is not None
    live = session.context._live  # pyright: ignore[reportPrivateUsage]
    live._synced -= 1  # pyright: ignore[reportPrivateUsage] - as if the newest byte was not yet synced
    storage.before = failing({"fsync"}, errno.EIO)
    with pytest.raises(StorageTrouble):
        await session.context.revert_to(3, reason="rewind")
    storage.before = lambda _name, _arguments: None
    assert not (folder / _AHEAD).exists()
    await session.aclose()
    again = Session(folder, Path("/w"))
    assert not (await again.open()).sentences()
    assert len(texts(again)) == 5
    await again.aclose()


async def test_a_full_disk_keeps_its_room_for_what_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = FullStorage()
    session = await held(folder, storage)
    monkeypatch.setattr(storage, "free_bytes", lambda _path: 10)  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    session.context.prepare_revert(3)
    assert await copied(session) is None
    monkeypatch.setattr(storage, "free_bytes", lambda _path: 1 << 30)  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    storage.room = 40
    session.context.prepare_revert(2)
    # Half of it came, and went again.
    assert await copied(session) is None
    assert not (folder / _AHEAD).exists()
    storage.room = 1 << 40
    await session.context.revert_to(2, reason="rewind")
    assert texts(session) == ["message 0", "message 1"]
    await session.aclose()


async def test_after_the_end_none_is_begun(folder: Path) -> None:
    session = await held(folder, WatchedStorage())
    context = session.context
    await session.aclose()
    context.prepare_revert(3)
    assert await copied(session) is None
    assert not (folder / _AHEAD).exists()
