"""Snapshots that are synced later: syncs that fail, threads that wait for one another's, and what a power cut may leave of them."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.followed_folder import Place

from kimi_tui.workspace.snapshots import SnapshotLog
from kimi_tui.workspace.store import SUFFIX, BlobStore

CONTENT = os.urandom(20_000)


class Disk:
    """The syncs of files: the first `n_refused` of those whose name ends so fail, and each is noted by name and inode."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.n_refused = 0
        self.ends = ""
        self.synced: list[tuple[str, int]] = []
        self.before: Callable[[str], None] = lambda _name: None
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self._noted)

    def _noted(self, handle: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{handle}")).name
        self.before(name)
        if self.n_refused and name.endswith(self.ends):
            self.n_refused -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._fsync(handle)
        self.synced.append((name, os.fstat(handle).st_ino))

    def has_synced(self, path: Path) -> bool:
        return path.stat().st_ino in [inode for _, inode in self.synced]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def packs(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{SUFFIX}"))


@pytest.mark.parametrize("n_refused", [1, 2])
def test_a_pack_whose_sync_failed_is_written_again(
    tmp_path: Path, disk: Disk, n_refused: int
) -> None:
    kept = BlobStore(tmp_path, 1 << 30)
    name = kept.put(CONTENT)
    kept.flush(later=True)
    (pack,) = packs(tmp_path)
    refused = pack.stat().st_ino
    # The second one is that of the copy.
    disk.n_refused = n_refused
    if n_refused == 2:
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            kept.sync()
        assert not kept.is_synced
    kept.sync()
    assert kept.is_synced
    # The kernel takes the pages of the first file for written.
    assert pack.stat().st_ino != refused
    assert disk.has_synced(pack)
    assert kept.get(name) == BlobStore(tmp_path, 1 << 30).get(name) == CONTENT
    assert packs(tmp_path) == [pack]
    assert not [*tmp_path.glob("*.tmp")]


def test_one_pack_that_is_gone_does_not_keep_others_from_the_disk(
    tmp_path: Path, disk: Disk
) -> None:
    kept = BlobStore(tmp_path, 1 << 30)
    lost = kept.put(CONTENT)
    kept.flush(later=True)
    (gone,) = packs(tmp_path)
    other = kept.put(CONTENT[1:])
    kept.flush(later=True)
    gone.unlink()
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        kept.sync()
    assert disk.has_synced(packs(tmp_path)[0])
    assert kept.is_synced
    assert kept.has(other)
    assert not kept.has(lost), "contents that are gone are stored when they are seen again"


def test_a_pack_of_a_neighbour_is_synced_before_what_refers_to_it(
    tmp_path: Path, disk: Disk
) -> None:
    near = BlobStore(tmp_path / "near", 1 << 30)
    name = near.put(CONTENT)
    near.flush(later=True)
    own = BlobStore(tmp_path / "own", 1 << 30, [tmp_path / "near"])
    assert own.has(name)
    own.flush()
    assert disk.has_synced(packs(tmp_path / "own")[0])


@pytest.mark.parametrize("n_refused", [1, 2])
def test_a_log_whose_sync_failed_is_written_again(
    tmp_path: Path, disk: Disk, n_refused: int
) -> None:
    log = SnapshotLog(tmp_path / "snapshots.jsonl")
    log.begin("/work")
    log.mark("c1")
    made = log.add({}, by="agent", at=1.0, later=True)
    path = tmp_path / "snapshots-2.jsonl"
    before, refused = path.read_bytes(), path.stat().st_ino
    # The file system has undone what it could not write, as btrfs does.
    disk.n_refused, disk.ends = n_refused, ".jsonl" if n_refused == 1 else ""

    def lose(name: str) -> None:
        if disk.n_refused and name == path.name:
            os.truncate(path, before.index(b"\n") + 1)

    disk.before = lose
    if n_refused == 2:
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            log.sync()
        assert not log.is_synced
    log.sync()
    assert log.is_synced
    assert path.read_bytes() == before
    assert path.stat().st_ino != refused
    assert disk.has_synced(path)
    again = log.add({}, by="agent", at=2.0)
    stored = SnapshotLog(tmp_path / "snapshots.jsonl")
    assert [one.id for one in stored.snapshots] == [made.id, again.id]
    assert stored.marked_at("c1") == -1


def test_a_refused_snapshot_takes_no_earlier_one_with_it(tmp_path: Path, disk: Disk) -> None:
    log = SnapshotLog(tmp_path / "snapshots.jsonl")
    log.begin("/work")
    made = log.add({}, by="agent", at=1.0, later=True)
    path = tmp_path / "snapshots-2.jsonl"
    refused = path.stat().st_ino
    disk.n_refused = 1
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        log.add({}, by="other", at=2.0)
    assert not log.is_synced
    log.sync()
    assert path.stat().st_ino != refused
    assert disk.has_synced(path)
    assert [one.id for one in SnapshotLog(path).snapshots] == [made.id]


def test_a_log_that_cannot_be_opened_at_the_start_is_kept_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = SnapshotLog(tmp_path / "snapshots.jsonl")
    log.begin("/work")
    first = log.add({}, by="agent", at=1.0)
    path, opened = tmp_path / "snapshots-2.jsonl", os.open
    log = SnapshotLog(tmp_path / "snapshots.jsonl")
    with monkeypatch.context() as patch:

        def refuse(name: str | Path, *args: int, **more: int | None) -> int:
            if Path(name).name == path.name:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return opened(name, *args, **more)

        patch.setattr(os, "open", refuse)
        log.begin("/work")
    second = log.add({}, by="agent", at=2.0)
    assert [one.id for one in SnapshotLog(path).snapshots] == [first.id, second.id]


def test_who_syncs_waits_for_a_sync_that_runs(tmp_path: Path, disk: Disk) -> None:
    log = SnapshotLog(tmp_path / "snapshots.jsonl")
    log.begin("/work")
    log.add({}, by="agent", at=1.0, later=True)
    is_syncing, may_end, has_ended = threading.Event(), threading.Event(), threading.Event()

    def wait(_name: str) -> None:
        is_syncing.set()
        assert may_end.wait(10)

    def second() -> None:
        log.sync()
        has_ended.set()

    disk.before = wait
    threads = [threading.Thread(target=log.sync), threading.Thread(target=second)]
    threads[0].start()
    assert is_syncing.wait(10)
    threads[1].start()
    assert not has_ended.wait(0.05), "the snapshot is not on the disk yet"
    # Nobody waits to write.
    log.mark("c1")
    may_end.set()
    for thread in threads:
        thread.join(10)
    assert [name for name, _ in disk.synced] == ["snapshots-2.jsonl"] * 2
    assert log.is_synced
    assert SnapshotLog(tmp_path / "snapshots.jsonl").marked_at("c1") == log.marked_at("c1")


def test_what_a_killed_process_did_not_sync_is_synced_at_the_next_start(
    tmp_path: Path, disk: Disk
) -> None:
    place = Place(tmp_path)
    place.begin()
    place.write("a", "by a process that is killed")
    place.tracker.take_snapshot("agent", later=True)
    (pack,) = packs(tmp_path / "files" / "store")
    log = tmp_path / "files" / "snapshots-2.jsonl"
    disk.synced.clear()
    place.tracker = place.started()
    place.begin()
    assert disk.has_synced(pack)
    assert disk.has_synced(log)
    # The file system refuses it: the log is written anew.
    inode, content = log.stat().st_ino, log.read_bytes()
    disk.n_refused, disk.ends = 1, log.name
    place.tracker = place.started()
    assert place.tracker.first_scan()
    assert not place.tracker.is_synced
    place.tracker.sync()
    assert log.stat().st_ino != inode
    assert log.read_bytes() == content
    assert disk.has_synced(log)


def damaged(pack: Path) -> None:
    """Leave the index of a pack and zeros in the place of its bodies: its last page was written, the others were not."""
    content = pack.read_bytes()
    end = len(content) - 4096
    pack.write_bytes(b"KTPACK1\n" + bytes(end - 8) + content[end:])


def test_what_a_restore_overwrites_is_stored_whole_before(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write("a", "first")
    before = place.begin()
    text = CONTENT.hex()
    place.agent(("a", text))
    place.tracker.close()
    newest = max(packs(tmp_path / "files" / "store"), key=lambda path: path.stat().st_size)
    damaged(newest)
    place.tracker = place.started()
    place.begin()
    assert place.go_to(before).restored == ("a",)
    assert place.files() == {"a": "first"}
    for _ in range(2):
        assert place.undo().restored == ("a",)
        place.tracker.close()
        place.tracker = place.started()
        place.begin()


PACK = ("kept", "zeros", "bodies lost", "short", "empty", "absent")
RECORD = ("kept", "zeros", "begin lost", "half", "absent")
FILE = ("new", "old", "absent", "zeros")


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param(one, marks=() if n % 16 == 5 else pytest.mark.exhaustive)
        for n, one in enumerate(itertools.product(PACK, RECORD, FILE, (False, True)))
    ],
    ids=lambda one: "-".join(map(str, one)),
)
def test_whatever_a_power_cut_leaves_of_a_step_nothing_of_it_is_lost_by_the_next_rewind(
    tmp_path: Path, lost: tuple[str, str, str, bool]
) -> None:
    pack_is, record_is, file_is, is_closed = lost
    place = Place(tmp_path)
    place.write("a", "first")
    place.write("b", "other")
    start = place.begin()
    place.agent(("b", "other by the agent"))
    second = place.mark()
    log = tmp_path / "files" / "snapshots-2.jsonl"
    # All this is on the disk.
    synced_log, synced_packs = log.read_bytes(), {*packs(tmp_path / "files" / "store")}
    if is_closed:
        place.tracker.close()
        place.tracker = place.started()
        place.begin()
        synced_log = log.read_bytes()
    new = CONTENT.hex()
    place.write("a", new)
    place.tracker.take_snapshot("agent", later=True)
    (pack,) = {*packs(tmp_path / "files" / "store")} - synced_packs
    record = log.read_bytes()[len(synced_log) :]
    after = place.mark()
    content, whole = pack.read_bytes(), log.read_bytes()
    n_lost = len(whole) - len(synced_log)
    assert len(record) > 50
    if pack_is == "absent":
        pack.unlink()
    elif pack_is == "bodies lost":
        damaged(pack)
    elif pack_is != "kept":
        left = {"zeros": bytes(len(content)), "short": content[:5000], "empty": b""}[pack_is]
        pack.write_bytes(left)
    left = {
        "kept": whole,
        "zeros": synced_log + bytes(n_lost),
        "begin lost": synced_log + bytes(50) + whole[len(synced_log) + 50 :],
        "half": whole[: -n_lost // 2],
        "absent": synced_log,
    }[record_is]
    log.write_bytes(left)
    states = {"new": new, "old": "first", "absent": None, "zeros": "\0" * len(new)}
    place.write("a", states[file_is])
    found = place.files()
    # The power cut.
    shutil.copytree(tmp_path / "files", tmp_path / "copy")
    place.tracker.close()
    shutil.rmtree(tmp_path / "files")
    (tmp_path / "copy").rename(tmp_path / "files")

    place.tracker = place.started()
    place.begin()
    assert place.files() == found
    place.agent(("c", "later"))
    now = place.files()
    place.go_to(start)
    if file_is in ("new", "old"):
        assert place.files()["b"] == "other"
    place.undo()
    assert place.files() == now, "what was there before a rewind comes back"
    place.go_to(second, {"a", "c"})
    if record_is == "kept" or file_is == "old":
        # Without the record nobody knows that it was the agent: what others changed belongs to the checkpoint before.
        assert place.files() == {"a": "first", "b": "other by the agent"}
    place.undo()
    assert place.files() == now
    place.tracker.close()
    place.tracker = place.started()
    place.begin()
    if record_is in ("kept", "begin lost"):
        place.go_to(after, {"a", "c"})
        assert "c" not in place.files()
        place.undo()
    assert place.files() == now
