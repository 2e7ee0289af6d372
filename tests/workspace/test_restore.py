"""Restoring: the tree equals the snapshot in what it tracks, and nothing else is ever lost."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kimi_tui.workspace import restore
from kimi_tui.workspace.entries import Limits
from kimi_tui.workspace.scan import Scanner
from kimi_tui.workspace.snapshots import By, Snapshot, SnapshotLog, delta
from kimi_tui.workspace.store import BlobStore


class Place:
    """A work folder with its store, scanner and log."""

    def __init__(self, top: Path) -> None:
        self.root = top / "work"
        self.root.mkdir()
        self.store = BlobStore(top / "store", 1 << 30)
        self.scanner = Scanner(str(self.root), self.store, Limits())
        self.log = SnapshotLog(top / "snapshots.jsonl")
        self.intent = top / "restore.json"

    def snapshot(self, by: By) -> Snapshot:
        scan = self.scanner.scan()
        changed = delta(self.log.latest, scan.manifest, {*self.log.latest, *scan.manifest})
        return self.log.add(changed, by=by, at=1.0)

    def plan(self, to: Snapshot) -> list[restore.FileChange]:
        now = self.scanner.scan().manifest
        return restore.plan(self.log.manifest_at(to), now, self.log.changed_since(to))

    def files(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.root)): path.read_text()
            for path in sorted(self.root.rglob("*"))
            if path.is_file()
        }


def test_edits_creations_and_deletions_go_back(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.root / "edited").write_text("before")
    (place.root / "deleted").write_text("still here")
    start = place.snapshot("first")
    was = place.files()
    (place.root / "edited").write_text("after")
    (place.root / "deleted").unlink()
    (place.root / "new/deep").mkdir(parents=True)
    (place.root / "new/deep/file").write_text("new")
    place.snapshot("agent")
    planned = place.plan(start)
    assert [(one.path, one.change) for one in planned] == [
        ("deleted", "create"),
        ("edited", "restore"),
        ("new/deep/file", "delete"),
    ]
    outcome = restore.apply(place.root, place.store, planned, place.intent)
    assert not outcome.failed
    assert place.files() == was
    assert not (place.root / "new").exists()
    assert not place.intent.exists()


def test_what_someone_else_changed_is_left_alone_unless_chosen(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.root / "mine").write_text("v1")
    start = place.snapshot("first")
    (place.root / "mine").write_text("by hand")
    place.snapshot("other")
    planned = place.plan(start)
    assert [(one.change, one.would) for one in planned] == [("conflict", "restore")]
    restore.apply(place.root, place.store, planned, place.intent)
    assert place.files() == {"mine": "by hand"}
    chosen = [replace(one, change=one.would) for one in planned]
    restore.apply(place.root, place.store, chosen, place.intent)
    assert place.files() == {"mine": "v1"}


def test_a_change_after_the_plan_is_never_overwritten(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.root / "a").write_text("v1")
    start = place.snapshot("first")
    (place.root / "a").write_text("v2")
    place.snapshot("agent")
    planned = place.plan(start)
    (place.root / "a").write_text("v3, just typed")
    outcome = restore.apply(place.root, place.store, planned, place.intent)
    assert place.files() == {"a": "v3, just typed"}
    assert "a" in outcome.failed


def test_ignored_and_uncovered_files_are_named_and_stay(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.root / ".gitignore").write_text("*.db\n")
    (place.root / "data.db").write_text("precious")
    start = place.snapshot("first")
    (place.root / ".gitignore").write_text("")
    place.snapshot("agent")
    planned = {one.path: one for one in place.plan(start)}
    assert planned["data.db"].change == "skip"
    restore.apply(place.root, place.store, list(planned.values()), place.intent)
    assert place.files() == {".gitignore": "*.db\n", "data.db": "precious"}


def test_a_folder_in_the_place_of_a_file_and_back(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.root / "x").write_text("a file")
    os.chmod(place.root / "x", 0o750)
    start = place.snapshot("first")
    (place.root / "x").unlink()
    (place.root / "x").mkdir()
    (place.root / "x/inner").write_text("a folder now")
    other = place.snapshot("agent")
    restore.apply(place.root, place.store, place.plan(start), place.intent)
    assert place.files() == {"x": "a file"}
    assert (place.root / "x").stat().st_mode & 0o777 == 0o750
    place.snapshot("restore")
    restore.apply(place.root, place.store, place.plan(other), place.intent)
    assert place.files() == {"x/inner": "a folder now"}


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_restore_that_was_cut_off_is_finished(
    tmp_path: Path, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    for name in ("a", "b", "c"):
        (place.root / name).write_text(f"old {name}")
    start = place.snapshot("first")
    was = place.files()
    for name in ("a", "b"):
        (place.root / name).write_text(f"new {name}")
    (place.root / "c").unlink()
    (place.root / "d").write_text("new d")
    place.snapshot("agent")
    planned = place.plan(start)

    class PowerCut(BaseException):
        pass

    calls = 0
    for verb in ("rename", "unlink", "open"):
        real = getattr(os, verb)

        def counted(*args: object, _real=real, **kwargs: object) -> object:
            nonlocal calls
            calls += 1
            if calls == cut * 3:
                raise PowerCut
            return _real(*args, **kwargs)

        monkeypatch.setattr(os, verb, counted)
    with pytest.raises(PowerCut):
        restore.apply(place.root, place.store, planned, place.intent)
    monkeypatch.undo()
    finished = restore.finish(place.root, place.store, place.intent)
    assert finished is None or not finished.failed
    assert place.files() == was or finished is None
    assert not place.intent.exists()


NAMES = st.sampled_from(["a", "b", "dir/a", "dir/b", "dir/sub/c", "notes.md", "skip.log"])
EDIT = st.tuples(
    st.sampled_from(["agent", "other"]), NAMES, st.text("xyz\n", max_size=8) | st.none()
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(EDIT, max_size=4), min_size=1, max_size=5), st.integers(0, 4))
def test_the_tree_equals_the_snapshot_in_what_it_tracks(
    rounds: list[list[tuple[By, str, str | None]]], back: int
) -> None:
    with tempfile.TemporaryDirectory() as top:
        place = Place(Path(top))
        (place.root / ".gitignore").write_text("*.log\n")
        snapshots = [place.snapshot("first")]
        states = [place.files()]
        foreign: list[set[str]] = [set()]
        for edits in rounds:
            for by, name, content in edits:
                path = place.root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                if content is None:
                    path.unlink(missing_ok=True)
                else:
                    path.write_text(content)
                snapshots.append(place.snapshot(by))
                states.append(place.files())
                real = states[-1] != states[-2]
                foreign.append({name} if by == "other" and real else set())
        index = min(back, len(snapshots) - 1)
        target, wanted = snapshots[index], states[index]
        now = place.files()
        touched = set().union(*foreign[index + 1 :])
        outcome = restore.apply(place.root, place.store, place.plan(target), place.intent)
        assert not outcome.failed
        after = place.files()
        for name in now.keys() | wanted.keys():
            kept = name.endswith(".log") or name in touched
            assert after.get(name) == (now if kept else wanted).get(name), name


def test_the_log_survives_a_torn_line(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.root / "a").write_text("1")
    place.snapshot("first")
    path = tmp_path / "snapshots.jsonl"
    path.write_bytes(path.read_bytes() + b'{"id": "half')
    log = SnapshotLog(path)
    assert (len(log), log.skipped) == (1, 1)
    log.add({"a": None}, by="agent", at=2.0)
    again = SnapshotLog(path)
    assert (len(again), again.skipped, dict(again.latest)) == (2, 1, {})
