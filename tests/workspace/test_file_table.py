"""A manifest in little memory and on the disk: an unchanged file is read once, and a damaged table is not believed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.followed_folder import Place

from kimi_tui.workspace import scan
from kimi_tui.workspace.file_table import FileTable, edited, read_table, write_table
from kimi_tui.workspace.manifest import ManifestEntry

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
    assert dict(FileTable(read)) == entries
    assert {path: one.folders for path, one in read.items()} == {
        path: one.folders for path, one in folders.items()
    }


@pytest.mark.parametrize("path", ["../x", "a/../b", ".git/config", "d/.GIT/x", "x\0y"])
def test_a_table_with_paths_outside_is_refused(tmp_path: Path, path: str) -> None:
    write_table(tmp_path / "t.table", edited({}, {path: FILE}), {}, sync=False)
    with pytest.raises(ValueError, match=r"table|path"):
        read_table(tmp_path / "t.table")


def test_every_changed_byte_of_a_table_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "t.table"
    write_table(path, edited({}, {"a": FILE, "d/b": FILE}), {}, sync=False)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ValueError, match="table"):
            read_table(path)
        path.write_bytes(whole[:place])
        with pytest.raises(ValueError, match="table"):
            read_table(path)


def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of the files that the scanner reads from now on."""
    found: list[str] = []
    real = scan._content  # pyright: ignore[reportPrivateUsage]

    def content(name: str, folder: int, stamp: scan.Stamp) -> bytes:
        found.append(name)
        return real(name, folder, stamp)

    monkeypatch.setattr(scan, "_content", content)
    return found


def test_an_opened_session_reads_only_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All files count as old enough.
    monkeypatch.setattr(scan, "_TRUST_AFTER_NS", -(10**12))
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


def test_a_log_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.other(("a", "1"), ("d/b", "2"))
    uid = place.begin()
    place.tracker.close()
    # As that version wrote it: all files in the first record.
    stored = tmp_path / "files/snapshots-2.jsonl"
    lines = [json.loads(line) for line in stored.read_text().splitlines()]
    for record in lines:
        if name := record.pop("table", None):
            table = FileTable(read_table(tmp_path / "files" / name)[1])
            record["changed"] = {
                path: [one.kind, one.blob, one.mode, one.size] for path, one in table.items()
            }
    stored.with_name("snapshots.jsonl").write_text(
        "".join(f"{json.dumps(record)}\n" for record in lines)
    )
    stored.unlink()
    for path in (tmp_path / "files").glob("*.table"):
        path.unlink()
    place.tracker = place.started()
    assert place.tracker.first_scan()
    place.agent(("a", "2"), ("d/b", None))
    assert place.planned(uid) == {"a": "restore", "d/b": "create"}
    place.go_to(uid)
    assert place.files() == {"a": "1", "d/b": "2"}
    assert not stored.exists()
