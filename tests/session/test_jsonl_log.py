"""The record: appended to and never cut, whatever its end looks like and whatever the disk says."""

from __future__ import annotations

import errno
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from support.faulty_storage import FullStorage, WatchedStorage, failing

from kimi_tui.filesystem import Storage
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.jsonl import MAX_UNSYNCED_BYTES, JsonlLog


def seen(path: Path) -> list[int]:
    return [record["n"] for record in JsonlLog(path).read() if "n" in record]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "wire.jsonl"


def test_the_first_line_is_the_metadata(path: Path) -> None:
    record = JsonlLog(path)
    assert list(record.read()) == []
    record.append({"n": 1})
    record.close()
    again = JsonlLog(path)
    again.append({"n": 2})
    again.close()
    assert [json.loads(line) for line in path.open()] == [
        {"type": "metadata", "protocol_version": "1.10"},
        {"n": 1},
        {"n": 2},
    ]


def test_a_closed_file_is_held_no_longer(path: Path) -> None:
    closed: list[int] = []

    class Noted(Storage):
        def close(self, fd: int) -> None:
            closed.append(fd)
            super().close(fd)

    record = JsonlLog(path, Noted())
    record.append({"n": 1})
    record.close()
    assert len(closed) == 1
    record.close()
    assert len(closed) == 1
    assert record.trouble is None


def test_what_only_closing_tells_is_told(path: Path) -> None:
    class Refused(Storage):
        def close(self, fd: int) -> None:
            super().close(fd)
            raise OSError(errno.EIO, "no")

    record = JsonlLog(path, Refused())
    record.append({"n": 1})
    record.close()
    assert record.trouble is not None
    assert "wire.jsonl" in str(record.trouble)


@pytest.mark.parametrize("torn", [b'{"n": 9', b"\0\0\0", b'{"n":9}', b"\xff"])
def test_a_torn_end_swallows_nothing(path: Path, torn: bytes) -> None:
    record = JsonlLog(path)
    record.append({"n": 1})
    record.close()
    before = path.read_bytes()
    path.write_bytes(before + torn)
    again = JsonlLog(path)
    again.append({"n": 2})
    again.close()
    assert path.read_bytes().startswith(before + torn)
    assert [n for n in seen(path) if n != 9] == [1, 2]


def test_what_the_disk_refuses_comes_later_and_in_order(path: Path) -> None:
    storage = FullStorage()
    record = JsonlLog(path, storage)
    record.append({"n": 1})
    storage.room = 4
    record.append({"n": 2})
    storage.room = 0
    record.append({"n": 3})
    assert record.trouble is not None
    assert record.trouble.errno == errno.ENOSPC
    assert not record.is_synced
    assert seen(path) == [1]
    with pytest.raises(StorageTrouble):
        record.sync()
    storage.room = 1 << 30
    record.append({"n": 4})
    assert record.trouble is None
    assert seen(path) == [1, 2, 3, 4]
    assert path.read_bytes().count(b"\n") == 5
    record.close()


def test_after_a_failed_sync_it_is_all_written_again(path: Path) -> None:
    storage = WatchedStorage()
    record = JsonlLog(path, storage)
    record.append({"n": 1})
    record.sync()
    record.append({"n": 2})
    storage.before = failing({"fsync"}, errno.EIO, times=1)
    with pytest.raises(StorageTrouble):
        record.sync()
    record.append({"n": 3})
    record.sync()
    assert seen(path) == [1, 2, 2, 3]
    record.close()


def test_a_file_that_was_deleted_is_begun_anew(path: Path) -> None:
    record = JsonlLog(path)
    record.append({"n": 1})
    path.unlink()
    record.append({"n": 2})
    record.close()
    assert seen(path) == [2]


def test_reading_from_the_end(path: Path) -> None:
    record = JsonlLog(path)
    for n in range(1_000):
        record.append({"n": n, "pad": "x" * 100})
    start, size = record.tail_start(5_000), path.stat().st_size
    assert size - 5_000 <= start < size - 4_000
    numbers: list[Any] = [each["n"] for each in record.read(start)]
    assert numbers == list(range(numbers[0], 1_000))
    assert record.tail_start(1 << 30) == 0
    offsets = [offset for offset, _ in record.read_with_offsets(start)]
    assert offsets[0] == start
    record.close()


@pytest.mark.exhaustive
def test_what_is_kept_in_memory_for_a_sync_is_bounded(path: Path) -> None:
    disk = WatchedStorage()
    file = JsonlLog(path, disk)
    for _ in range(20):
        file.append({"text": "x" * (1 << 20)})
        kept = file._unsynced  # pyright: ignore[reportPrivateUsage]
        assert len(kept) <= MAX_UNSYNCED_BYTES + (2 << 20)
    assert disk.calls.count("fsync") >= 4
    disk.before = failing({"fsync"}, errno.EIO)
    for _ in range(10):
        file.append({"text": "x" * (1 << 20)})
    assert file.trouble is not None
    disk.before = lambda _name, _arguments: None
    file.close()
    texts = [record["text"] for record in file.read() if "text" in record]
    assert len(texts) >= 30


def test_what_is_appended_while_two_threads_sync_is_not_taken_for_synced(tmp_path: Path) -> None:
    storage = WatchedStorage()
    file = JsonlLog(tmp_path / "wire.jsonl", storage)
    file.append({"n": 1})
    is_syncing, may_end = threading.Event(), threading.Event()

    def wait(name: str, _arguments: tuple[Any, ...]) -> None:
        if name == "fsync":
            is_syncing.set()
            assert may_end.wait(10)

    storage.after = wait
    threads = [threading.Thread(target=file.sync) for _ in range(2)]
    threads[0].start()
    assert is_syncing.wait(10)
    threads[1].start()
    threads[1].join(0.05)
    file.append({"n": 2})
    may_end.set()
    for thread in threads:
        thread.join(10)
    assert file.is_synced
    assert [name for name in storage.calls if name in ("write", "fsync")][-1] == "fsync"
    file.close()
