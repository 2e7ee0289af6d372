"""The snapshots of a copy of a session become part of the session's own, and are restored as any others."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from kimi_tui.workspace import restore
from kimi_tui.workspace.adoption import hand_over_stamps
from kimi_tui.workspace.manifest import Limits
from kimi_tui.workspace.restore import FileChange, Restored
from kimi_tui.workspace.snapshots import SnapshotLog, new_id
from kimi_tui.workspace.store import BlobStore
from kimi_tui.workspace.tracker import Brought, SnapshotScope, Tracker


class Scene:
    """A work folder with a session of one step, a copy of it at another place, and the files of both."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.work, self.files = top / "work", top / "session" / "files"
        self.work.mkdir()
        self.files.mkdir(parents=True)
        for name in "abcde":
            (self.work / name).write_text(f"{name} at first\n")
        self.tracker = self.tracked(self.files)
        self.tracker.mark("main-0")
        (self.work / "a").write_text("a by the agent\n")
        self.tracker.take_snapshot("agent")
        self.tracker.mark("fork")
        self.since = self.tracker.log.last.id if self.tracker.log.last else ""

    def tracked(self, files: Path) -> Tracker:
        """A tracker of the work folder that has scanned it."""
        tracker = Tracker(self.work, files, Limits(), SnapshotScope())
        assert tracker.first_scan()
        return tracker

    def future(self) -> Path:
        """Let a future change files, and bring the work folder back; return the folder of its snapshots."""
        copy = self.top / "copy" / "files"
        shutil.copytree(self.files, copy)
        tracker = self.tracked(copy)
        before = {path.name: path.read_text() for path in self.work.iterdir()}
        tracker.mark("future-1")
        (self.work / "b").write_text("b by the future\n")
        (self.work / "new").write_text("new\n")
        tracker.take_snapshot("agent")
        tracker.mark("future-2")
        (self.work / "c").unlink()
        tracker.take_snapshot("agent")
        tracker.close()
        (self.work / "new").unlink()
        for name, text in before.items():
            (self.work / name).write_text(text)
        return copy

    def now(self) -> dict[str, str]:
        """The files of the work folder."""
        return {path.name: path.read_text() for path in self.work.iterdir()}


def copy_with(scene: Scene, *steps: Callable[[Path], object]) -> Path:
    """Let a copy take these steps in the work folder, and bring that back; return the folder of its snapshots."""
    copy, kept = scene.top / "copy" / "files", scene.top / "kept"
    shutil.copytree(scene.files, copy)
    shutil.copytree(scene.work, kept)
    tracker = scene.tracked(copy)
    for step in steps:
        step(scene.work)
        tracker.take_snapshot("agent")
    tracker.close()
    shutil.rmtree(scene.work)
    kept.rename(scene.work)
    return copy


def renamed(copy: Path) -> None:
    """Give the snapshots and checkpoints that a copy made itself other names, as those of another copy have."""
    path = copy / "snapshots-2.jsonl"
    text = path.read_text()
    for one in SnapshotLog(copy / "snapshots.jsonl").snapshots[2:]:
        text = text.replace(one.id, new_id())
    path.write_text(text.replace("future-", "other-"))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_the_files_of_a_future_are_restored_and_undone(scene: Scene) -> None:
    before, tracker = scene.now(), scene.tracker
    assert tracker.adopt(scene.future(), scene.since, "other")
    assert scene.now() == before
    plan = tracker.plan("future-2", after=True)
    assert {(one.path, one.change) for one in plan.changes} == {
        ("b", "restore"),
        ("c", "delete"),
        ("new", "create"),
    }
    prepared = tracker.prepare(plan)
    assert prepared is not None
    tracker.carry_out(prepared)
    assert scene.now() == {
        **{name: text for name, text in before.items() if name != "c"},
        "b": "b by the future\n",
        "new": "new\n",
    }
    intent = prepared.intent
    back = tracker.prepare(tracker.plan_back(intent.before, intent.after, intent.paths))
    assert back is not None
    tracker.carry_out(back)
    assert scene.now() == before


def test_a_step_in_its_middle_has_its_files_too(scene: Scene) -> None:
    tracker = scene.tracker
    tracker.adopt(scene.future(), scene.since, "other")
    assert {one.path for one in tracker.plan("future-2").changes} == {"b", "new"}
    assert {one.path for one in tracker.plan("future-1").changes} == set()
    assert {one.path for one in tracker.plan("main-0").changes} == {"a"}


def test_changes_of_others_meanwhile_are_conflicts_and_those_of_the_agent_are_not(
    scene: Scene,
) -> None:
    copy, tracker = scene.future(), scene.tracker
    (scene.work / "b").write_text("b by the user\n")
    (scene.work / "own").write_text("by the user\n")
    tracker.take_snapshot("other")
    (scene.work / "d").write_text("d by the agent\n")
    tracker.take_snapshot("agent")
    tracker.adopt(copy, scene.since, "other")
    plan = {one.path: one.change for one in tracker.plan("future-2", after=True).changes}
    assert plan == {
        "b": "conflict",
        "own": "conflict",
        "c": "delete",
        "d": "restore",
        "new": "create",
    }
    assert {one.path: one.change for one in tracker.plan("main-0").changes} == {
        "a": "restore",
        "b": "conflict",
        "d": "restore",
        "own": "conflict",
    }


def test_it_is_taken_once_and_read_again_by_the_next_process(scene: Scene) -> None:
    copy = scene.future()
    assert scene.tracker.adopt(copy, scene.since, "other")
    n_snapshots = len(scene.tracker.log)
    assert not scene.tracker.adopt(copy, scene.since, "other")
    log = SnapshotLog(scene.files / "snapshots.jsonl")
    assert len(log) == n_snapshots
    assert dict(log.latest) == dict(scene.tracker.log.latest)
    assert log.after_checkpoint("future-2") == scene.tracker.log.after_checkpoint("future-2")


def test_the_differences_of_several_copies_are_applied_in_order_and_conflicts_told(
    scene: Scene,
) -> None:
    first = scene.future()
    second = first.with_name("second")
    shutil.copytree(first, second)
    (scene.work / "d").write_text("d by the user\n")
    brought = scene.tracker.apply_difference(first, scene.since, "other", "general-1")
    assert (brought.restored, brought.deleted, brought.conflicts) == (("b", "new"), ("c",), ())
    # The one that was killed before it could say that it had ended does nothing the second time.
    assert scene.tracker.apply_difference(first, scene.since, "other", "general-1") == Brought()
    (scene.work / "b").write_text("b by the user\n")
    (scene.work / "new").unlink()
    renamed(second)
    brought = scene.tracker.apply_difference(second, scene.since, "other", "general-2")
    assert (brought.restored, [one.path for one in brought.conflicts]) == (("new",), ["b"])
    assert scene.now()["b"] == "b by the user\n"
    assert scene.now()["d"] == "d by the user\n"
    assert "c" not in scene.now()


@pytest.mark.parametrize("keeps_folder", [True, False])
def test_a_folder_whose_last_file_a_copy_deleted_is_there_only_if_the_copy_kept_it(
    scene: Scene, keeps_folder: bool
) -> None:
    folder, copy = scene.work / "folder", scene.top / "copy" / "files"
    folder.mkdir()
    (folder / "last").write_text("last\n")
    scene.tracker.take_snapshot("agent")
    assert scene.tracker.log.last is not None
    since = scene.tracker.log.last.id
    shutil.copytree(scene.files, copy)
    theirs = scene.tracked(copy)
    theirs.mark("begun")
    (folder / "last").unlink()
    if not keeps_folder:
        folder.rmdir()
    theirs.take_snapshot("agent")
    theirs.close()
    folder.mkdir(exist_ok=True)
    (folder / "last").write_text("last\n")
    brought = scene.tracker.apply_difference(copy, since, "other", "general-1")
    assert brought.deleted == ("folder/last",)
    assert folder.exists() is keeps_folder
    assert not (folder / "last").exists()


def test_what_a_copy_changed_and_changed_back_is_neither_brought_nor_a_conflict(
    scene: Scene,
) -> None:
    def change(work: Path) -> None:
        for name in "ab":
            (work / name).write_text(f"{name} by the copy\n")
        (work / "c").unlink()
        (work / "d").write_text("d by the copy\n")
        (work / "made/inside").mkdir(parents=True)
        (work / "new").write_text("new\n")

    def change_back(work: Path) -> None:
        (work / "a").write_text("a by the agent\n")
        for name in "bc":
            (work / name).write_text(f"{name} at first\n")
        shutil.rmtree(work / "made")
        (work / "new").unlink()

    copy = copy_with(scene, change, change_back)
    (scene.work / "b").write_text("b by the user\n")
    brought = scene.tracker.apply_difference(copy, scene.since, "other", "general-1")
    assert brought == Brought(restored=("d",))
    assert scene.now()["b"] == "b by the user\n"


def test_what_no_snapshot_of_a_copy_holds_stays_as_it_is_in_the_work_folder(scene: Scene) -> None:
    def change(work: Path) -> None:
        (work / "b").unlink()
        os.mkfifo(work / "b")
        (work / ".env").write_text("KEY=copy\n")
        (work / "own").mkdir()
        (work / "own/.env").write_text("KEY=copy\n")
        (work / "c").write_text("c by the copy\n")

    (scene.work / ".env").write_text("KEY=ours\n")
    copy = copy_with(scene, change)
    brought = scene.tracker.apply_difference(copy, scene.since, "other", "general-1")
    assert brought == Brought(restored=("c",))
    assert scene.now() == {
        ".env": "KEY=ours\n",
        "a": "a by the agent\n",
        "b": "b at first\n",
        "c": "c by the copy\n",
        "d": "d at first\n",
        "e": "e at first\n",
    }


def test_an_empty_folder_of_a_copy_is_made_where_there_is_none(scene: Scene) -> None:
    def change(work: Path) -> None:
        for name in ("new", "taken", "full"):
            (work / name).mkdir()
        (work / "gone").rmdir()
        (work / "again").rmdir()

    def make_again(work: Path) -> None:
        (work / "again").mkdir()

    (scene.work / "gone").mkdir()
    (scene.work / "again").mkdir()
    scene.tracker.take_snapshot("other")
    since = scene.tracker.log.last.id if scene.tracker.log.last else ""
    copy = copy_with(scene, change, make_again)
    (scene.work / "again").rmdir()
    (scene.work / "taken").write_text("a file of the user\n")
    (scene.work / "full").mkdir()
    (scene.work / "full/file").write_text("by the user\n")
    brought = scene.tracker.apply_difference(copy, since, "other", "general-1")
    assert brought == Brought(restored=("new",))
    assert (scene.work / "new").is_dir()
    assert (scene.work / "taken").read_text() == "a file of the user\n"
    assert (scene.work / "gone").is_dir()
    assert not (scene.work / "again").exists()


def test_changes_of_others_before_the_first_difference_are_still_told_from_the_agents(
    tmp_path: Path,
) -> None:
    work, files, copy = (tmp_path / name for name in ("work", "files", "copy"))
    work.mkdir()
    (work / "a").write_text("a at first\n")

    def tracked(folder: Path) -> Tracker:
        tracker = Tracker(work, folder, Limits(), SnapshotScope())
        assert tracker.first_scan()
        return tracker

    tracker = tracked(files)
    tracker.mark("main-0")
    assert tracker.log.last is not None
    since = tracker.log.last.id
    shutil.copytree(files, copy)
    theirs = tracked(copy)
    theirs.mark("begun")
    (work / "b").write_text("b by the agent\n")
    theirs.take_snapshot("agent")
    theirs.close()
    (work / "b").unlink()
    (work / "c").write_text("c by the agent\n")
    tracker.take_snapshot("agent")
    (work / "a").write_text("a by the user\n")
    tracker.take_snapshot("other")
    tracker.apply_difference(copy, since, "other", "general-1")
    plan = {one.path: one.change for one in tracker.plan("main-0").changes}
    assert plan == {"a": "conflict", "b": "delete", "c": "delete"}


def test_an_empty_folder_that_a_copy_made_is_made(scene: Scene) -> None:
    copy, made = scene.top / "copy" / "files", scene.work / "made" / "inner"
    shutil.copytree(scene.files, copy)
    theirs = scene.tracked(copy)
    theirs.mark("begun")
    made.mkdir(parents=True)
    theirs.take_snapshot("agent")
    theirs.close()
    shutil.rmtree(made.parent)
    brought = scene.tracker.apply_difference(copy, scene.since, "other", "general-1")
    assert brought.restored == ("made/inner",)
    assert made.is_dir()


def test_the_steps_of_a_copy_are_restored_as_if_it_had_worked_in_the_folder(scene: Scene) -> None:
    copy, tracker, before = scene.future(), scene.tracker, scene.now()
    (scene.work / "d").write_text("d by the user\n")
    tracker.apply_difference(copy, scene.since, "other", "general-1")
    after = scene.now()
    assert {one.path for one in tracker.plan("fork").changes} == {"b", "c", "new"}
    assert {one.path: one.change for one in tracker.plan("future-2").changes} == {"c": "create"}
    assert [one.author for one in tracker.log.snapshots if one.by == "agent"][-2:] == [
        "general-1",
        "general-1",
    ]
    prepared = tracker.prepare(tracker.plan("fork"))
    assert prepared is not None
    tracker.carry_out(prepared)
    assert scene.now() == {**before, "d": "d by the user\n"}
    intent = prepared.intent
    back = tracker.prepare(tracker.plan_back(intent.before, intent.after, intent.paths))
    assert back is not None
    tracker.carry_out(back)
    assert scene.now() == after
    again = SnapshotLog(scene.files / "snapshots.jsonl")
    for uid in ("fork", "future-1", "future-2"):
        assert again.at_checkpoint(uid) == tracker.log.at_checkpoint(uid)
        assert again.after_checkpoint(uid) == tracker.log.after_checkpoint(uid)


def test_an_application_that_a_kill_cut_short_is_finished(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, before, carry_out = scene.future(), scene.now(), restore.carry_out

    def killed(root: Path, store: BlobStore, changes: Collection[FileChange]) -> Restored:
        carry_out(root, store, [one for one in changes if one.path == "b"])
        raise KeyboardInterrupt

    monkeypatch.setattr("kimi_tui.workspace.tracker.restore.carry_out", killed)
    with pytest.raises(KeyboardInterrupt):
        scene.tracker.apply_difference(copy, scene.since, "other", "general-1")
    monkeypatch.undo()
    scene.tracker.close()
    tracker = scene.tracked(scene.files)
    unfinished = tracker.unfinished_restore()
    assert unfinished is not None
    tracker.give_up(unfinished.intent)
    tracker.take_snapshot("other")
    brought = tracker.apply_difference(copy, scene.since, "other", "general-1")
    assert (brought.restored, brought.deleted, brought.conflicts) == (("new",), ("c",), ())
    prepared = tracker.prepare(tracker.plan("fork"))
    assert prepared is not None
    tracker.carry_out(prepared)
    assert scene.now() == before


def test_a_copy_is_told_the_stamps_of_the_frozen_files_that_are_as_in_its_log(scene: Scene) -> None:
    copy, base = scene.top / "copy" / "files", scene.top / "base"
    scene.tracker.close()
    shutil.copytree(scene.files, copy)
    shutil.copytree(scene.work, base)
    files = dict(scene.tracker.log.latest)
    del files["b"]
    (base / "c").write_text("longer than it was\n")
    again, other = (scene.top / name / "files" for name in ("again", "other"))
    shutil.copytree(copy, again)
    shutil.copytree(copy, other)
    SnapshotLog(other / "snapshots.jsonl").mark("other")
    hand_over_stamps([one / "snapshots.jsonl" for one in (copy, again, other)], base, files)
    log = SnapshotLog(copy / "snapshots.jsonl")
    stamps = dict(log.folders((7, 7))[""].rows.stamps())
    assert {name for name, stamp in stamps.items() if stamp} == {"a", "d", "e"}
    status = (base / "a").lstat()
    stamp = stamps["a"]
    assert stamp is not None
    assert stamp[:4] == (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
    assert dict(log.latest) == dict(scene.tracker.log.latest)


def test_a_step_of_a_future_has_the_changes_of_the_agents_that_it_called(scene: Scene) -> None:
    copy, tracker = scene.future(), scene.tracker
    theirs = scene.tracked(copy)
    theirs.mark("called")
    theirs.mark("agent-1", "general-1")
    (scene.work / "d").write_text("d by the sub-agent\n")
    theirs.take_snapshot("agent")
    theirs.mark("agent-2", "general-1")
    theirs.mark_again("future-again", "main-0")
    theirs.close()
    (scene.work / "d").write_text("d at first\n")
    assert tracker.adopt(copy, scene.since, "other")
    for log in (tracker.log, SnapshotLog(scene.files / "snapshots.jsonl")):
        end = log.after_checkpoint("called")
        assert end is not None
        assert end == log.at_checkpoint("agent-2")
        assert log.at_checkpoint("called") == log.at_checkpoint("agent-1") != end
        assert log.at_checkpoint("future-again") == log.at_checkpoint("main-0")
    assert not tracker.adopt(copy, scene.since, "other")
