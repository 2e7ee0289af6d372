"""Changes of files that are synced beside the next request: refused syncs are told and made good, and nothing overtakes them."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.chat_server import calls, say
from support.soul import Stage, stage

from kimi_tui.soul.folder_snapshots import FolderSnapshots
from kimi_tui.wire import events as ev

STEPS = (
    calls([("WriteFile", {"path": "in/deep/one", "content": "first"})]),
    calls([("WriteFile", {"path": "in/deep/one", "content": "second"})]),
    say("done"),
)


class Disk:
    """Knows what of each file is on the disk for sure: its contents at the last sync, until one of its syncs fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: dict[int, bytes] = {}
        self.names: list[str] = []
        self.refused: set[int] = set()
        self.refuses: Callable[[str, bool], bool] = lambda _name, _is_folder: False
        self.before: Callable[[str], None] = lambda _name: None
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self._noted)

    def _noted(self, handle: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{handle}")).name
        status = os.fstat(handle)
        is_folder = stat.S_ISDIR(status.st_mode)
        self.before(name)
        if self.refuses(name, is_folder):
            self.refused.add(status.st_ino)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        content = b"" if is_folder else Path(f"/proc/self/fd/{handle}").read_bytes()
        self._fsync(handle)
        self.synced[status.st_ino] = content
        self.names.append(name)

    def has(self, path: Path) -> bool:
        """Return whether a file is on the disk, but for the marks of checkpoints, which the next snapshot syncs."""
        inode, content = path.stat().st_ino, path.read_bytes()
        synced = self.synced.get(inode)
        if synced is None or inode in self.refused or not content.startswith(synced):
            return False
        return all(b'{"mark"' in line for line in content[len(synced) :].splitlines())


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def folder_of(on: Stage) -> FolderSnapshots:
    return on.soul._conversation.files.folder  # pyright: ignore[reportPrivateUsage]


async def test_the_names_of_new_folders_are_synced_with_the_file(
    tmp_path: Path, disk: Disk
) -> None:
    async with stage(tmp_path) as on:
        await on.soul.files_ready()
        disk.names.clear()
        on.server.script(*STEPS)
        await on.soul.run("go")
        assert [disk.names.count(name) for name in ("deep", "in", "work")] == [2, 1, 1]


async def test_an_error_for_the_names_in_a_folder_is_told(tmp_path: Path, disk: Disk) -> None:
    async with stage(tmp_path) as on:
        await on.soul.files_ready()
        disk.refuses = lambda name, is_folder: is_folder and name == "deep"
        on.server.script(*STEPS)
        await on.soul.run("go")
        await asyncio.sleep(0)
        (notice,) = on.ear.notices()
        assert "in/deep: Input/output error" in notice.text
        assert (notice.level, on.ear.of(ev.TurnEnd)[-1].reason) == ("warning", "done")
        # The snapshots are synced all the same.
        assert disk.has(on.session.dir / "files" / "snapshots-2.jsonl")


async def test_a_command_that_no_record_tells_of_is_synced_with_its_turn(
    tmp_path: Path, disk: Disk
) -> None:
    async with stage(tmp_path) as on:
        await on.soul.files_ready()
        await on.soul.run_command("echo changed > new", told=False)
        assert folder_of(on).is_synced
        assert disk.has(on.session.dir / "files" / "snapshots-2.jsonl")


async def test_an_agent_waits_for_what_another_one_syncs(tmp_path: Path, disk: Disk) -> None:
    async with stage(tmp_path) as on:
        await on.soul.files_ready()
        folder, work = folder_of(on), str(tmp_path / "work")
        is_syncing, may_end = threading.Event(), threading.Event()

        def wait(_name: str) -> None:
            is_syncing.set()
            assert may_end.wait(10)

        disk.before = wait
        folder.sync_names_soon(work)
        first = asyncio.create_task(asyncio.to_thread(folder.sync_changes))
        await asyncio.to_thread(is_syncing.wait, 10)
        assert not folder.is_synced
        second = asyncio.create_task(asyncio.to_thread(folder.sync_changes))
        done, _ = await asyncio.wait([second], timeout=0.05)
        assert not done
        folder.sync_names_soon(work)
        may_end.set()
        await asyncio.gather(first, second)
        assert folder.is_synced
        assert disk.names.count("work") == 2


@pytest.mark.parametrize(
    "at", [4, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in range(30) if n != 4)]
)
@pytest.mark.parametrize("n_refused", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
async def test_after_a_refused_sync_everything_is_on_the_disk_at_the_end_of_the_next_turn(
    tmp_path: Path, disk: Disk, at: int, n_refused: int
) -> None:
    n_syncs = 0

    def refuses(_name: str, is_folder: bool) -> bool:
        nonlocal n_syncs
        n_syncs += 1
        return at < n_syncs <= at + n_refused and not is_folder

    async with stage(tmp_path) as on:
        await on.soul.files_ready()
        disk.refuses = refuses
        on.server.script(*STEPS)
        await on.soul.run("go")
        assert on.ear.of(ev.TurnEnd)[-1].reason == "done"
        on.server.script(say("again"))
        await on.soul.run("go on")
        files = on.session.dir / "files"
        kept = [
            on.session.dir / "context.jsonl",
            files / "snapshots-2.jsonl",
            *(files / "store").glob("*.pack"),
        ]
        assert len(kept) >= 3
        assert [path.name for path in kept if not disk.has(path)] == []
