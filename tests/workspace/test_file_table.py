"""A manifest in little memory and on the disk: an unchanged file is read once, and a damaged table is not believed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.followed_folder import CoarseClock, Place, PowerCut, power_cut

from kimi_tui.workspace import scan, tracker
from kimi_tui.workspace.file_table import (
    FileRow,
    FileRows,
    Folder,
    Layered,
    ManifestTable,
    Stamp,
    edited,
    folders_of,
    read_table,
    write_table,
)
from kimi_tui.workspace.manifest import Limits, ManifestEntry
from kimi_tui.workspace.snapshots import SnapshotLog
from kimi_tui.workspace.store import disk_usage
from kimi_tui.workspace.tracker import SnapshotScope, Tracker, stored_snapshots
from kimi_tui.workspace.tree_watch import HeldFiles

BLOB = "ab" * 32
FILE = ManifestEntry("file", BLOB, 0o644, 5)


def test_a_table_comes_back_from_the_disk(tmp_path: Path) -> None:
    entries = {
        "a": FILE,
        "d/e/b": ManifestEntry("link", BLOB, 0, 7),
        "d/build": ManifestEntry("ignored"),
        "d/.git": ManifestEntry("ignored"),
        os.fsdecode(b"caf\xe9"): FILE,
    }
    folders = edited({}, entries)
    write_table(tmp_path / "t.table", folders, {"after": "x"}, sync=True)
    facts, read = read_table(tmp_path / "t.table")
    assert facts == {"after": "x"}
    assert dict(ManifestTable(read)) == entries
    assert {path: one.folders for path, one in read.items()} == {
        path: one.folders for path, one in folders.items()
    }


@pytest.mark.parametrize("root", [None, 7, "x", {"a": 1}, [7], [[7], "7"]])
def test_stamps_of_a_table_without_its_folder_do_not_count(tmp_path: Path, root: object) -> None:
    log = SnapshotLog(tmp_path / "snapshots.jsonl")
    log.begin("/work")
    stamp = Stamp(1, 2, 3, 4, 5)
    folders = {"": Folder(rows=FileRows.of({"a": FileRow(FILE, stamp)}))}
    snapshot = log.add({"a": FILE}, by="agent", at=1.0)
    write_table(
        tmp_path / "latest.table", folders, {"after": snapshot.id, "root": root}, sync=False
    )
    again = SnapshotLog(tmp_path / "snapshots.jsonl")
    assert dict(again.latest) == {"a": FILE}
    assert not any(stamp for _, stamp in again.folders((7, 8))[""].rows.stamps())


@pytest.mark.parametrize("path", ["../x", "a/../b", ".git/config", "d/.GIT/x", "x\0y"])
def test_a_table_with_paths_outside_is_refused(tmp_path: Path, path: str) -> None:
    write_table(tmp_path / "t.table", edited({}, {path: FILE}), {}, sync=False)
    with pytest.raises(ValueError, match="the list of files is damaged"):
        read_table(tmp_path / "t.table")


def test_every_changed_byte_of_a_table_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "t.table"
    write_table(path, edited({}, {"a": FILE, "d/b": FILE}), {}, sync=False)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ValueError, match="list of files"):
            read_table(path)
        path.write_bytes(whole[:place])
        with pytest.raises(ValueError, match="list of files"):
            read_table(path)


def test_a_table_whose_folders_are_in_memory_shares_them(tmp_path: Path) -> None:
    folders = edited({}, {"a": FILE, "d/b": FILE, "e/c": FILE})
    write_table(tmp_path / "t.table", folders, {}, sync=False)
    like = edited(folders, {"d/b": None})
    _, read = read_table(tmp_path / "t.table", like)
    assert ManifestTable(read) == ManifestTable(folders)
    assert read["e"].rows is like["e"].rows
    assert read["d"].rows is not like["d"].rows


@pytest.mark.parametrize(
    "facts",
    [b"[]", b"{", b"[" * 100_000, b"1e9", b"\xff"],
    ids=["list", "cut", "deep", "number", "bytes"],
)
def test_an_odd_table_with_a_right_checksum_is_refused(tmp_path: Path, facts: bytes) -> None:
    path = tmp_path / "t.table"
    content = b"KTTREE1\n" + len(facts).to_bytes(4, "little") + facts
    path.write_bytes(content + zlib.crc32(content).to_bytes(4, "little"))
    with pytest.raises(ValueError, match="the list of files is damaged"):
        read_table(path)


def test_a_table_that_claims_more_than_it_has_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "t.table"
    content = b"KTTREE1\n" + (0xFFFF_FFFF).to_bytes(4, "little") + b"{}"
    path.write_bytes(content + zlib.crc32(content).to_bytes(4, "little"))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="the list of files is damaged"):
            read_table(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "remark", ['[["a", "file", 0, 0]]', '[["a", "over", 1e999, 0]]', "[[]]", "3"]
)
def test_an_odd_remark_in_a_table_is_refused(tmp_path: Path, remark: str) -> None:
    path, facts, listed = tmp_path / "t.table", b"{}", remark.encode()
    content = b"KTTREE1\n" + struct.pack("<I", 2) + facts
    content += struct.pack("<IIII", 0, 0, len(listed), 0) + listed
    path.write_bytes(content + zlib.crc32(content).to_bytes(4, "little"))
    with pytest.raises(ValueError, match="the list of files is damaged"):
        read_table(path)


def test_a_link_under_the_name_of_an_unfinished_table_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    folder = tmp_path / "files"
    folder.mkdir()
    os.link(precious, folder / ".table.tmp")
    write_table(folder / "t.table", edited({}, {"a": FILE}), {}, sync=False)
    (folder / ".table.tmp").symlink_to(precious)
    write_table(folder / "t.table", edited({}, {"a": FILE}), {}, sync=False)
    assert precious.read_text() == "precious"
    assert [one.name for one in folder.iterdir()] == ["t.table"]


@given(
    *(
        st.dictionaries(
            st.sampled_from(["a", "d", "d/a", "d/e", "d/e/f", "d/e/g", "h/i/k", "h/i"]),
            st.sampled_from([FILE, ManifestEntry("folder"), *blanks]),
        )
        for blanks in ([], [None])
    )
)
def test_the_folders_of_a_changed_table_are_those_of_its_entries(
    first: dict[str, ManifestEntry], changes: dict[str, ManifestEntry | None]
) -> None:
    layered = Layered(ManifestTable(edited({}, first)), changes)
    assert folders_of(layered) - {""} == folders_of(dict(layered))


def as_of_earlier_versions(files: Path) -> None:
    """Make of the stored snapshots what an earlier version would have written: all files in the first record of the log."""
    stored = files / "snapshots-2.jsonl"
    lines = [json.loads(line) for line in stored.read_text().splitlines()]
    for record in lines:
        if name := record.pop("table", None):
            table = ManifestTable(read_table(files / name)[1])
            record["changed"] = {
                path: [one.kind, one.blob, one.mode, one.size] for path, one in table.items()
            }
    stored.with_name("snapshots.jsonl").write_text(
        "".join(f"{json.dumps(record)}\n" for record in lines)
    )
    stored.unlink()
    for path in files.glob("*.table"):
        path.unlink()


def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of the files that the scanner reads from now on."""
    found: list[str] = []
    real = scan._content  # pyright: ignore[reportPrivateUsage]

    def content(name: str, folder: int, stamp: scan.Stamp) -> bytes:
        found.append(name)
        return real(name, folder, stamp)

    monkeypatch.setattr(scan, "_content", content)
    return found


def found_by_others(place: Place) -> set[str]:
    """Return the paths of the newest snapshot, unless that is the first one."""
    last = stored_snapshots(place.top / "files")[0].last
    assert last is not None
    return set() if last.by == "first" else set(last.changed)


def test_an_opened_session_reads_only_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All files count as old enough.
    monkeypatch.setattr(scan, "SETTLED_NS", -(10**12))
    place = Place(tmp_path)
    place.other(("a", "1"), ("d/b", "2"), ("c", "3"))
    uid = place.begin()
    place.agent(("a", "by the agent"))
    place.tracker.close()
    place.other(("c", "by somebody"))
    read = reads(monkeypatch)
    place.tracker = place.started()
    assert place.tracker.first_scan()
    assert read == ["c"]
    assert place.planned(uid) == {"a": "restore", "c": "conflict"}
    place.go_to(uid)
    assert place.files()["a"] == "1"
    # Without its last stamps it reads what has changed since the first snapshot; a damaged first one is taken anew.
    (tmp_path / "files/latest.table").write_bytes(b"?")
    place.tracker = place.started()
    assert place.tracker.first_scan()
    assert place.planned(uid)["c"] == "conflict"
    (tmp_path / "files/latest.table").unlink()
    for path in (tmp_path / "files").glob("first-*.table"):
        path.write_bytes(path.read_bytes()[:-1])
    place.tracker = place.started()
    assert place.tracker.first_scan()
    assert place.tracker.plan(uid).reason
    uid = place.mark()
    place.agent(("a", "again"))
    assert place.planned(uid) == {"a": "restore"}


def test_an_opened_session_compares_with_the_files_in_memory(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.other(("a", "1\n"), ("b", "1\n"), ("c", "1\n"))
    place.begin()
    place.agent(("b", "2\n2\n"))
    place.tracker.close()
    # The table of the first snapshot would be read from the disk.
    for path in (tmp_path / "files").glob("first-*.table"):
        path.write_bytes(b"?")
    place.tracker = place.started()
    assert place.tracker.first_scan()
    place.agent(("a", "1\n2\n"), ("b", "3\n"), ("c", None), ("d", "1\n"))
    last = place.tracker._log.last
    assert last is not None
    assert place.tracker.figures(last) == ([*"abcd"], 3, 3, [], [])


def test_a_log_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.other(("a", "1"), ("d/b", "2"))
    uid = place.begin()
    place.tracker.close()
    as_of_earlier_versions(tmp_path / "files")
    place.tracker = place.started()
    assert place.tracker.first_scan()
    place.agent(("a", "2"), ("d/b", None))
    assert place.planned(uid) == {"a": "restore", "d/b": "create"}
    place.go_to(uid)
    assert place.files() == {"a": "1", "d/b": "2"}
    assert not (tmp_path / "files/snapshots-2.jsonl").exists()


def test_snapshots_of_an_earlier_version_beside_those_of_this_one_are_joined(
    tmp_path: Path,
) -> None:
    """Somebody opened the session with the version before, which sees no snapshots, and then with this one again."""
    place = Place(tmp_path)
    place.other(("a", "1"), ("d/b", "2"), ("e/c", "3"))
    first = place.begin()
    place.agent(("a", "by this version"))
    place.tracker.close()
    files, aside = tmp_path / "files", tmp_path / "aside"
    aside.mkdir()
    for path in files.glob("*s*.*"):
        path.rename(aside / path.name)
    place.other(("d/b", None), ("f", "new"))
    place.tracker = place.started()
    second = place.begin()
    place.agent(("e/c", "by the earlier version"))
    place.tracker.close()
    as_of_earlier_versions(files)
    for path in aside.iterdir():
        path.rename(files / path.name)
    place.tracker = place.started()
    third = place.begin()
    assert place.planned(third) == {}
    assert place.planned(second) == {"e/c": "restore"}
    assert place.planned(first) == {
        "a": "restore",
        "d/b": "conflict",
        "e/c": "restore",
        "f": "conflict",
    }
    place.agent(("f", "again"))
    place.tracker.close()
    # Later snapshots are in the log that both versions read.
    assert '"agent"' in (files / "snapshots.jsonl").read_text().splitlines()[-1]
    place.tracker = place.started()
    assert place.tracker.first_scan()
    assert place.planned(third) == {"f": "restore"}


@pytest.mark.parametrize("is_young", [True, False])
def test_a_stored_stamp_is_only_believed_if_it_was_old_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_young: bool
) -> None:
    """Two contents with the same times and size: what a change within the same tick of the clock looks like."""
    clock = CoarseClock()
    place = Place(tmp_path, clock=clock)
    with clock.ticking():
        place.other(("a", "one"), ("b", "two"))
        if not is_young:
            clock.rest()
        place.begin()
        place.tracker.close()
        inode = (place.root / "a").stat().st_ino
        now_ns, clock.now_ns = clock.now_ns, clock.now_ns - (0 if is_young else 2 * clock.STEP_NS)
        place.other(("a", "1st"))
        clock.now_ns = now_ns
        assert (place.root / "a").stat().st_ino == inode
        place.tracker = place.started()
        read = reads(monkeypatch)
        assert place.tracker.first_scan()
        # Nothing on the disk tells the old enough file from its former self, which is why young ones are read again.
        assert sorted(read) == (["a", "b"] if is_young else [])
        assert found_by_others(place) == ({"a"} if is_young else set())


def test_a_file_of_equal_size_and_time_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that sets the time back, such as `touch -r`, cannot set that of the change of status."""
    monkeypatch.setattr(scan, "SETTLED_NS", -(10**12))
    place = Place(tmp_path)
    place.other(("a", "one"), ("b", "two"))
    place.begin()
    place.tracker.close()
    status = (place.root / "a").stat()
    place.other(("a", "1st"))
    os.utime(place.root / "a", ns=(status.st_atime_ns, status.st_mtime_ns))
    place.tracker = place.started()
    read = reads(monkeypatch)
    assert place.tracker.first_scan()
    assert read == ["a"]
    assert found_by_others(place) == {"a"}


def test_stamps_of_another_folder_and_of_lost_contents_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "SETTLED_NS", -(10**12))
    place = Place(tmp_path)
    place.other(("a", "one"), ("b", "two"))
    uid = place.begin()
    place.agent(("b", "two more"))
    place.tracker.close()
    # The first pack has the contents of both files at first, the second one those of the changed file.
    min((tmp_path / "files/store").iterdir(), key=lambda one: one.stat().st_mtime_ns).unlink()
    place.tracker = place.started()
    read = reads(monkeypatch)
    assert place.tracker.first_scan()
    assert read == ["a"]
    place.agent(("a", "lost"))
    place.go_to(uid)
    assert place.files()["a"] == "one"
    place.tracker.close()
    # The same names and contents in another folder, as after a backup was unpacked.
    place.root.rename(tmp_path / "former")
    shutil.copytree(tmp_path / "former", place.root)
    place.tracker = place.started()
    read.clear()
    assert place.tracker.first_scan()
    assert sorted(read) == ["a", "b"]


def test_a_file_that_is_mapped_has_no_stored_stamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "SETTLED_NS", -(10**12))
    place = Place(tmp_path)
    place.other(("a", "one"), ("b", "two"))
    held = HeldFiles(mapped={"a"}, opened=set())
    monkeypatch.setattr(tracker, "held_files", lambda root: held)
    place.begin()
    place.tracker.close()
    place.tracker = place.started()
    read = reads(monkeypatch)
    assert place.tracker.first_scan()
    assert read == ["a"]


def test_a_file_that_did_not_fit_is_named_and_kept_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "SETTLED_NS", -(10**12))
    place = Place(tmp_path, Limits(max_store_bytes=2000))
    place.other(("a", "one"), ("big", os.urandom(3000).hex()))
    uid = place.begin()
    assert "limit" in place.tracker.full
    assert place.tracker.plan(uid).not_covered
    (place.root / "big too").write_text(os.urandom(3000).hex())
    assert any("limit" in remark for remark in place.tracker.plan(uid).remarks)
    (place.root / "big too").unlink()
    place.tracker.close()
    place.limits = Limits()
    place.tracker = place.started()
    assert place.tracker.first_scan()
    assert not place.tracker.full
    uid = place.mark()
    place.agent(("big", "small"))
    assert place.planned(uid) == {"big": "restore"}


@pytest.mark.slow  # it kills a process at each call
def test_a_kill_at_any_moment_of_the_first_snapshot_loses_nothing(tmp_path: Path) -> None:
    """The process dies at each call that changes the disk in turn; the next one goes on, and every state can be read."""
    calls, is_killed = 0, True
    for calls in range(200):
        top = tmp_path / str(calls)
        top.mkdir()
        place = Place(top)
        place.other(("a", "1"), ("d/b", "2"))
        is_killed = True
        with contextlib.suppress(PowerCut), power_cut(calls):
            place.begin()
            place.agent(("a", "changed"))
            place.tracker.close()
            is_killed = False
        # Another program looks at the session meanwhile.
        stored, _ = stored_snapshots(top / "files")
        for one in stored.snapshots:
            assert dict(stored.manifest_at(one))
        was = place.files()["a"]
        place.tracker = place.started()
        assert place.tracker.first_scan()
        uid = place.mark()
        place.agent(("a", "again"), ("d/b", None))
        assert place.planned(uid) == {"a": "restore", "d/b": "create"}
        place.go_to(uid)
        assert place.files() == {"a": was, "d/b": "2"}
        place.tracker.close()
        if not is_killed:
            break
        shutil.rmtree(top)
    assert not is_killed
    assert calls > 10, "so many calls change the disk at least"


@pytest.mark.slow  # it kills a process
def test_a_killed_writer_leaves_the_former_table(tmp_path: Path) -> None:
    """A process is killed while it writes a large table over and over; what is under the name is always a whole table."""
    path = tmp_path / "t.table"
    write_table(path, edited({}, {f"d{n % 50}/f{n}": FILE for n in range(5000)}), {}, sync=False)
    code = (
        "import sys; from pathlib import Path; from kimi_tui.workspace.file_table import *\n"
        "path = Path(sys.argv[1]); facts, folders = read_table(path); print('ready', flush=True)\n"
        "while True: write_table(path, folders, facts, sync=False)\n"
    )
    for n in range(3):
        child = subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        inode = path.stat().st_ino
        # It has written at least once, and is in the middle of it somewhere.
        while path.stat().st_ino == inode:
            assert len(read_table(path)[1]) == 51
        child.kill()
        child.communicate()
        assert len(ManifestTable(read_table(path)[1])) == 5000, n
    write_table(path, edited({}, {"a": FILE}), {}, sync=False)
    assert [one.name for one in tmp_path.iterdir()] == ["t.table"]


def test_equal_contents_are_kept_once_for_two_sessions_of_a_folder(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.other(*((f"d{n}/f", "the same\n" * 1000) for n in range(50)), ("x", "another"))
    place.begin()
    place.tracker.close()
    first = tmp_path / "files/store"
    assert disk_usage([first]) < 2000
    second = Tracker(place.root, tmp_path / "more", Limits(), SnapshotScope(neighbours=[first]))
    assert second.first_scan()
    assert disk_usage([first, tmp_path / "more/store"]) == disk_usage([first])
    second.close()


def test_the_rows_of_a_folder_are_what_was_put_into_them() -> None:
    blob, stamp = BLOB, Stamp(1 << 60, 2, 3, 4, 0o100755)
    rows = {
        "link": FileRow(ManifestEntry("link", blob, 0o777, 5)),
        "known": FileRow(ManifestEntry("file", blob, 0o755, 6), stamp),
        "file": FileRow(ManifestEntry("file", blob, 0o640, 7)),
        "left": FileRow(ManifestEntry("ignored")),
        "large": FileRow(ManifestEntry("large", size=1 << 40), stamp),
        "folder": FileRow(ManifestEntry("folder")),
    }
    made = FileRows.of(rows)
    assert dict(made.entries()) == {name: row.entry for name, row in rows.items()}
    assert dict(made.stamps()) == {name: row.stamp for name, row in rows.items()}
    # Links have no permissions of their own, and what is not in the store needs none.
    assert dict(made.modes()) == {"known": 0o755, "file": 0o640, "link": None}
    for name, row in rows.items():
        assert made.get(name) == row
        assert made.stamp(name) == row.stamp
    assert made.get("known2") is None
    assert made.stamp("a") is None
